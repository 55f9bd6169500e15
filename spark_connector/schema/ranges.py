r"""Ranges of row keys: union, intersection and text. Ranges are half-open, and ``b""`` is "unbounded" on either side.

>>> union([KeyRange(b"c", b"e"), KeyRange(b"a", b"c"), KeyRange(b"x", b"")])
(KeyRange(start=b'a', stop=b'e'), KeyRange(start=b'x', stop=b''))
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from metaclient import keys
from metaclient.columns.key_text import bytes_of, text_of

__all__ = ["EVERYTHING", "KeyRange", "bytes_of", "intersection", "rows_within", "text_of", "union"]


@dataclass(frozen=True, slots=True, order=True)
class KeyRange:
    """The rows from ``start`` (inclusive) to ``stop`` (exclusive)."""

    start: bytes = b""
    stop: bytes = b""

    def contains(self, row: bytes) -> bool:
        return keys.contains(self.start, self.stop, row)

    @property
    def is_empty(self) -> bool:
        return keys.ends_before_or_at(self.stop, self.start)

    @property
    def is_row(self) -> bool:
        """True for the range of exactly one row."""
        return self.stop == keys.next_row(self.start)

    @classmethod
    def of_prefix(cls, prefix: bytes) -> KeyRange:
        return cls(prefix, keys.prefix_stop(prefix))

    @classmethod
    def of_row(cls, row: bytes) -> KeyRange:
        return cls(row, keys.next_row(row))


EVERYTHING: tuple[KeyRange, ...] = (KeyRange(),)


def union(ranges: Iterable[KeyRange]) -> tuple[KeyRange, ...]:
    """Return the same rows as sorted ranges: empty ones removed, adjacent and overlapping ones merged."""
    merged: list[KeyRange] = []
    for each in sorted(r for r in ranges if not r.is_empty):
        last = merged[-1] if merged else None
        if last is None or (last.stop != each.start and keys.ends_before_or_at(last.stop, each.start)):
            merged.append(each)
        elif keys.earlier_end(last.stop, each.stop) == last.stop:
            merged[-1] = KeyRange(last.start, each.stop)
    return tuple(merged)


def intersection(left: Iterable[KeyRange], right: Iterable[KeyRange]) -> tuple[KeyRange, ...]:
    """Return the ranges of the rows that are in both.

    >>> intersection([KeyRange(b"a", b"f")], [KeyRange(b"", b"b"), KeyRange(b"e", b"")])
    (KeyRange(start=b'a', stop=b'b'), KeyRange(start=b'e', stop=b'f'))
    """
    a, b = union(left), union(right)
    found: list[KeyRange] = []
    i = j = 0
    while i < len(a) and j < len(b):
        stop = keys.earlier_end(a[i].stop, b[j].stop)
        both = KeyRange(max(a[i].start, b[j].start), stop)
        if not both.is_empty:
            found.append(both)
        # The range that ends first meets no later range.
        if a[i].stop == stop:
            i += 1
        else:
            j += 1
    return tuple(found)


def rows_within(rows: Iterable[bytes], ranges: Sequence[KeyRange]) -> list[bytes]:
    """Return the rows that lie in one of the ranges, which are sorted and disjoint.

    >>> rows_within([b"a", b"d", b"y"], [KeyRange(b"b", b"e"), KeyRange(b"x", b"")])
    [b'd', b'y']
    """
    starts = [each.start for each in ranges]
    found = []
    for row in rows:
        at = bisect_right(starts, row)
        if at and ranges[at - 1].contains(row):
            found.append(row)
    return found
