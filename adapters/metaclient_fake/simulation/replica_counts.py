"""Stores how many replicas a table may have had at which time, to check "no such replica" errors.

While a table is altered, some of its regions have the old number of replicas and others the new one. An alteration that
fails may leave it so, and alterations may overlap. A number is therefore possible from the beginning of the alteration
that brings it until the end of one that began later and succeeded.
"""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["ReplicaCounts"]


@dataclass(slots=True)
class _Span:
    table: str
    count: int
    since_s: float
    until_s: float = float("inf")


class ReplicaCounts:
    """The numbers of replicas of all tables over the time of a run.

    >>> counts = ReplicaCounts()
    >>> altered = counts.began("t", 3, 1, at_s=5.0)
    >>> counts.ended(altered, at_s=6.0)
    >>> counts.may_lack("t", 2, 1.0, 4.0), counts.may_lack("t", 2, 4.0, 5.5), counts.may_lack("t", 0, 7.0, 8.0)
    (False, True, False)
    """

    def __init__(self) -> None:
        self._spans: list[_Span] = []

    def began(self, table: str, old: int, new: int, *, at_s: float) -> _Span:
        """Record that an alteration from ``old`` to ``new`` replicas begins; the result is for :meth:`ended`."""
        if not any(span.table == table for span in self._spans):
            self._spans.append(_Span(table, old, 0.0))
        self._spans.append(_Span(table, new, at_s))
        return self._spans[-1]

    def ended(self, altered: _Span, *, at_s: float) -> None:
        """Record that an alteration has succeeded: earlier numbers of replicas are not possible any more."""
        for span in self._spans:
            if span.table == altered.table and span.since_s < altered.since_s:
                span.until_s = min(span.until_s, at_s)

    def may_lack(self, table: str, replica_id: int, since_s: float, until_s: float) -> bool:
        """Return True if a region of the table may have had no such replica at some time of this span."""
        return any(
            span.table == table and span.count <= replica_id and span.since_s <= until_s and span.until_s >= since_s
            for span in self._spans
        )
