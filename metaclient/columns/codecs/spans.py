r"""Spans: unions of ranges of encoded bytes, as values.

A :data:`Cut` is a position between encodings: ``(bytes, 0)`` is before these bytes and all that begin with them,
``(bytes, 1)`` is right after these bytes. Spans are sorted and disjoint; an empty tuple is the empty set.

>>> intersect_spans(prefix_span(b"a"), union_spans([Span((b"ab", 1), None)]))
(Span(low=(b'ab', 1), high=(b'b', 0)),)
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TypeAlias

from metaclient import keys

__all__ = ["ALL", "START", "Cut", "Span", "Spans", "intersect_spans", "prefix_span", "union_spans"]

Cut: TypeAlias = tuple[bytes, int]
START: Cut = (b"", 0)


@dataclass(frozen=True, slots=True)
class Span:
    """The encodings between two cuts; without ``high`` all from ``low`` on."""

    low: Cut = START
    high: Cut | None = None

    @property
    def is_point(self) -> bool:
        """True for a span of exactly one encoding."""
        return self.low[1] == 0 and self.high == (self.low[0], 1)


Spans: TypeAlias = tuple[Span, ...]
ALL: Spans = (Span(),)


def union_spans(spans: Iterable[Span]) -> Spans:
    """Return the union as sorted, disjoint spans without empty ones."""
    merged: list[Span] = []
    for each in sorted((s for s in spans if s.high is None or s.low < s.high), key=_low):
        last = merged[-1] if merged else None
        if last is None or (last.high is not None and last.high < each.low):
            merged.append(each)
        elif last.high is not None and (each.high is None or each.high > last.high):
            merged[-1] = Span(last.low, each.high)
    return tuple(merged)


def _low(span: Span) -> Cut:
    return span.low


def intersect_spans(left: Spans, right: Spans) -> Spans:
    """Return the intersection of two unions of spans."""
    found: list[Span] = []
    i = j = 0
    while i < len(left) and j < len(right):
        a, b = left[i], right[j]
        high = b.high if a.high is None else a.high if b.high is None else min(a.high, b.high)
        low = max(a.low, b.low)
        if high is None or low < high:
            found.append(Span(low, high))
        # The span that ends first meets no later span.
        if a.high is not None and (b.high is None or a.high <= b.high):
            i += 1
        else:
            j += 1
    return tuple(found)


def prefix_span(start: bytes) -> Spans:
    """Return the span of all encodings that begin with these bytes."""
    stop = keys.prefix_stop(start)
    return (Span((start, 0), (stop, 0) if stop else None),)
