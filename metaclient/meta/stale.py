"""Stores the ranges in which a location proved wrong: lookups in them go to the primary for a while.

A mark lives ``base_s`` (HBase: 3 s). The life doubles, up to ``max_s``, each time that the range fails again during the
life of the mark or within one more life after it. There are at most ``marks_max`` marks; the oldest is dropped first.

DIVERGENCES from CatalogReplicaLoadBalanceSimpleSelector (HBase 3): a repeated error renews the mark (there it is lost,
also when the old mark has expired and was not yet swept), the life grows, the number is bounded.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import OrderedDict
from dataclasses import dataclass

from metaclient import keys
from metaclient.model import RegionInfo

__all__ = ["StaleRanges"]


@dataclass(frozen=True, slots=True)
class _Mark:
    end_key: bytes
    until: float
    life_s: float


class StaleRanges:
    """The marks of one connection. Not thread-safe: the owner calls it under a lock.

    A mark is entered before its start key and removed after it, so that an interrupt (KeyboardInterrupt, a signal
    handler that raises) between the two steps leaves no start key without a mark.

    >>> marks = StaleRanges(base_s=3.0, max_s=30.0, marks_max=100)
    >>> marks.add(RegionInfo(b"t", b"g", b"m", 1), now=0.0)
    >>> marks.covers(b"t", b"h", now=2.999), marks.covers(b"t", b"h", now=3.0), marks.covers(b"t", b"m", now=1.0)
    (True, False, False)
    """

    def __init__(self, *, base_s: float, max_s: float, marks_max: int) -> None:
        self._base_s = base_s
        self._max_s = max_s
        self._marks_max = marks_max
        self._marks: OrderedDict[tuple[bytes, bytes], _Mark] = OrderedDict()
        self._starts: dict[bytes, list[bytes]] = {}  # table -> sorted start keys of its marks

    def __len__(self) -> int:
        return len(self._marks)

    def add(self, region: RegionInfo, now: float) -> None:
        """Mark the range of a region."""
        key = (region.table, region.start_key)
        old = self._marks.get(key)
        # The life doubles when the range fails again within one more life after the end of the old mark.
        goes_on = old is not None and now < old.until + old.life_s
        life_s = min(old.life_s * 2, self._max_s) if old is not None and goes_on else self._base_s
        self._marks[key] = _Mark(region.end_key, now + life_s, life_s)
        self._marks.move_to_end(key)
        starts = self._starts.setdefault(region.table, [])
        at = bisect_left(starts, region.start_key)
        if at == len(starts) or starts[at] != region.start_key:
            starts.insert(at, region.start_key)
        while len(self._marks) > self._marks_max:
            self._drop(next(iter(self._marks)))

    def covers(self, table: bytes, row: bytes, now: float, *, before: bool = False) -> bool:
        """Return True if a living mark covers ``row`` (or, with ``before``, the keys just before it)."""
        starts = self._starts.get(table)
        if not starts:
            return False
        index = (len(starts) if not row else bisect_left(starts, row)) if before else bisect_right(starts, row)
        if index == 0:
            return False
        key = (table, starts[index - 1])
        mark = self._marks[key]
        if now >= mark.until + mark.life_s:
            self._drop(key)  # too old to lengthen the next mark
            return False
        if now >= mark.until:
            return False
        covers = keys.contains_before if before else keys.contains
        return covers(key[1], mark.end_key, row)

    def _drop(self, key: tuple[bytes, bytes]) -> None:
        starts = self._starts.get(key[0], [])
        at = bisect_left(starts, key[1])
        if at < len(starts) and starts[at] == key[1]:
            del starts[at]
        if not starts:
            self._starts.pop(key[0], None)
        del self._marks[key]
