"""Stores the lookups in flight of each table, so that callers that miss the same region share one read of hbase:meta.

A flight answers a row if it was started for the same hole in the cache (a region whose range is known and whose place
is not, or a table of which nothing is known), or for a higher row of the same unknown range, because the scan runs
downwards and returns the neighbours. A flight that started before a failure never answers callers that come after it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from cachetools import LRUCache

from metaclient import keys
from metaclient.config import Config
from metaclient.errors import ConnectionClosed
from metaclient.lookup.location_cache import LocationCache
from metaclient.lookup.pages import PageGrowth
from metaclient.meta import Lookup
from metaclient.runtime import Pending, Runtime

__all__ = ["Flight", "Flights"]

#: Tables whose page sizes are remembered; each entry is a few dozen bytes.
TABLES_REMEMBERED = 1_000


@dataclass(frozen=True, slots=True, eq=False)
class Flight:
    """A lookup in flight that other callers may wait for."""

    row: bytes
    before: bool
    replica_id: int
    gap: tuple[bytes, bytes]  # the unknown range around the row
    is_known_region: bool  # the gap is one region's range
    is_for_whole_gap: bool  # one answer may serve every row of the gap
    from_top: bool  # the page starts at the upper end of the gap
    rows: int
    generation: int
    pending: Pending[None]

    def answers(self, row: bytes, before: bool, generation: int) -> bool:
        if self.generation < generation:
            return False
        if before or self.before:
            return before == self.before and row == self.row
        return keys.contains(*self.gap, row) and (self.is_for_whole_gap or row <= self.row)

    def is_same_question(self, row: bytes, replica_id: int) -> bool:
        """Return True if "no such place" answers a lookup of this row and replica, too."""
        return self.replica_id == replica_id and (self.row == row or self.is_known_region)


class Flights:
    """The lookups in flight of one connection, by table."""

    def __init__(self, runtime: Runtime, config: Config, cache: LocationCache) -> None:
        self._runtime = runtime
        self._config = config
        self._cache = cache
        self._is_closed = False
        self._begin()
        runtime.on_fork(self._begin)

    def _begin(self) -> None:
        """Start with no lookup in flight, here and in a forked child, where the lookups of the parent never end."""
        self._lock = self._runtime.lock()
        # The fields below, and _is_closed, are guarded by the lock.
        self._flights: dict[bytes, tuple[Flight, ...]] = {}
        self._growth: LRUCache[bytes, PageGrowth] = LRUCache(TABLES_REMEMBERED)

    def __len__(self) -> int:
        return sum(map(len, list(self._flights.values())))

    def close(self) -> None:
        """Refuse further lookups and fail those in flight."""
        with self._lock:
            self._is_closed = True
            flights = [flight for of_table in self._flights.values() for flight in of_table]
        for flight in flights:
            flight.pending.fail(ConnectionClosed("the connection was closed during the lookup"))

    def board(
        self, lookup: Lookup, replica_id: int, generation: int, made: list[Flight]
    ) -> tuple[Flight | None, Sequence[Flight]]:
        """Return a flight for the lookup, or None when too many are running; and the flights that run already.

        Without other flights, the returned flight is new and the caller has to make it. A new flight is also appended
        to ``made``, before other callers can see it: an interrupt may come before the caller gets the returned value.
        """
        row = lookup.row or b""
        with self._lock:
            if self._is_closed:
                raise ConnectionClosed("the connection is closed")
            flights = self._flights.get(lookup.table, ())
            for flight in flights:
                if flight.answers(row, lookup.before, generation):
                    return flight, flights
            if len(flights) >= self._config.locate_concurrency:
                return None, flights
            flight = self._new_flight(lookup, replica_id)
            made.append(flight)
            self._flights[lookup.table] = (*flights, flight)
            return flight, ()

    def _new_flight(self, lookup: Lookup, replica_id: int) -> Flight:
        row = lookup.row or b""
        snapshot = self._cache.table(lookup.table).snapshot
        is_known_region = not lookup.before and snapshot.covering(row) is not None
        growth = self._growth_of(lookup.table)
        rows = growth.next(self._runtime.now())
        if is_known_region:  # its neighbours are known, too, unless they have failed
            rows = max(self._config.locate_prefetch, snapshot.rows_to_lowest_hole(row, rows))
        # Only a page that has grown can be expected to come down from the top of the gap to the row.
        has_grown = rows > self._config.locate_prefetch
        from_top = growth.reaches_down and has_grown and not is_known_region and not lookup.before
        return Flight(
            row=row,
            before=lookup.before,
            replica_id=replica_id,
            gap=snapshot.gap(row),
            is_known_region=is_known_region,
            is_for_whole_gap=is_known_region or from_top or not snapshot.regions,
            from_top=from_top,
            rows=rows,
            generation=self._cache.generation,
            pending=self._runtime.pending(name="lookup"),
        )

    def _growth_of(self, table: bytes) -> PageGrowth:
        growth = self._growth.get(table)
        if growth is None:
            growth = PageGrowth(self._config.locate_prefetch, self._config.locate_prefetch_max)
            self._growth[table] = growth
        return growth

    def land(self, table: bytes, flight: Flight) -> bool:
        """Remove a flight that has ended; return True if other lookups of the table are in flight."""
        with self._lock:
            left = tuple(one for one in self._flights.get(table, ()) if one is not flight)
            if left:
                self._flights[table] = left
            else:  # the table is missing when this thread forked during the lookup, in a listener
                self._flights.pop(table, None)
        return bool(left)

    def note_reach(self, table: bytes, reaches_down: bool) -> None:
        with self._lock:
            self._growth_of(table).reaches_down = reaches_down
