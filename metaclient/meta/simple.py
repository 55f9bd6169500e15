"""Decides exactly as the Java client's LoadBalance mode does, so that the two can be compared side by side.

Mirrors ``CatalogReplicaLoadBalanceSimpleSelector`` of HBase 2.6 and 3:

- a uniformly random id of ``0 .. n-1``, primary and holes included; ``n <= 1`` or unknown: the primary;
- one pick per lookup, never changed: no fallback when the replica is dead or wrong (see ``java_reader``);
- after a wrong location, lookups of the range go to the primary for 3 s; a mark is inserted only if absent, so that
  errors during the life of the mark, and after it until the next sweep, are lost;
- constants, not configurable: 3000 ms life of a mark, a sweep every 1500 ms, a replica count refreshed every 60 s. The
  sweep and the refresh run at fixed periods from the first use of the selector. There is no background thread: each
  call first does the work of the ticks since the last call.

DIVERGENCES: none that can be observed; time and random numbers are arguments.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections.abc import Sequence
from typing import TYPE_CHECKING

from metaclient import keys
from metaclient.model import RegionInfo

if TYPE_CHECKING:
    from metaclient.meta.view import Lookup, MetaView

__all__ = ["SimpleSelector"]

MARK_LIFE_S = 3.0
SWEEP_S = 1.5
COUNT_REFRESH_S = 60.0


class SimpleSelector:
    """The Java client's selector."""

    def __init__(self) -> None:
        self._marks: dict[bytes, dict[bytes, tuple[bytes, float]]] = {}  # table -> start -> (end, made at)
        self._starts: dict[bytes, list[bytes]] = {}
        self._count: int | None = None
        self._counted_at = 0.0
        self._swept_at = 0.0
        self._begun: float | None = None

    def select(self, lookup: Lookup, view: MetaView) -> Sequence[int]:
        self._sweep(view.now)
        if lookup.row is not None and self._is_marked(lookup, view.now):
            return [0]
        return [self._random(view)]

    def on_wrong_location(self, region: RegionInfo, now: float) -> None:
        self._sweep(now)
        marks = self._marks.setdefault(region.table, {})
        if region.start_key not in marks:
            marks[region.start_key] = (region.end_key, now)
            insort(self._starts.setdefault(region.table, []), region.start_key)

    def _random(self, view: MetaView) -> int:
        """Return a random id below the count of replicas; the primary while the count is unknown.

        The count is the highest id plus one, so that ids without a replica are eligible, as in Java's array of znodes.
        A registry that does not answer leaves the count as it was.
        """
        tick = self._tick(view.now, COUNT_REFRESH_S)
        if view.replicas and (self._count is None or tick > self._counted_at):
            self._count = max(replica.replica_id for replica in view.replicas) + 1
            self._counted_at = tick
        return view.rng.randrange(self._count) if self._count is not None and self._count > 1 else 0

    def _is_marked(self, lookup: Lookup, now: float) -> bool:
        starts = self._starts.get(lookup.table)
        row = lookup.row or b""
        if not starts:
            return False
        if lookup.before:
            index = len(starts) if not row else bisect_left(starts, row)
        else:
            index = bisect_right(starts, row)
        if index == 0:
            return False
        start = starts[index - 1]
        end, made_at = self._marks[lookup.table][start]
        if now - made_at >= MARK_LIFE_S:
            self._remove(lookup.table, start)
            return False
        covers = keys.contains_before if lookup.before else keys.contains
        return covers(start, end, row)

    def _sweep(self, now: float) -> None:
        """Remove the marks that had expired at the last tick of the sweep."""
        tick = self._tick(now, SWEEP_S)
        if tick <= self._swept_at:
            return
        self._swept_at = tick
        for table in list(self._marks):
            for start, (_, made_at) in list(self._marks[table].items()):
                if tick - made_at >= MARK_LIFE_S:
                    self._remove(table, start)

    def _tick(self, now: float, period_s: float) -> float:
        if self._begun is None:
            self._begun = self._swept_at = self._counted_at = now
        return self._begun + (now - self._begun) // period_s * period_s

    def _remove(self, table: bytes, start: bytes) -> None:
        del self._marks[table][start]
        starts = self._starts[table]
        del starts[bisect_left(starts, start)]
