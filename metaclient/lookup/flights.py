"""Stores the lookups in flight of each table, so that callers that miss the same region share one read of hbase:meta.

A flight answers a row if it was started for the same hole in the cache (a region whose range is known and whose place
is not, or a table without known regions), or for a higher row of the same unknown range, because the scan runs
downwards and returns the neighbours. A flight that started before a failure does not answer lookups that start after
the failure.
"""

from __future__ import annotations

import enum
from collections.abc import Sequence
from dataclasses import dataclass

from cachetools import LRUCache

from metaclient import keys
from metaclient.config import Config
from metaclient.errors import ConnectionClosed
from metaclient.lookup.location_cache import LocationCache, Snapshot
from metaclient.lookup.pages import PageGrowth
from metaclient.meta import Lookup
from metaclient.model import RegionLocations
from metaclient.runtime import Pending, Runtime

__all__ = ["FirstPage", "Flight", "Flights"]

#: Tables whose page sizes are remembered; each entry is a few dozen bytes.
TABLES_REMEMBERED = 1_000


class FirstPage(enum.Enum):
    """The page that a flight reads first. If that page does not place the row, a page DOWN is read next."""

    DOWN = "down"  # the row's region and the regions below it
    FROM_TOP = "from top"  # the whole gap, from its upper end
    KNOWN_ROW = "known row"  # the row of the cached region: its place is known, and the caller wants it read again


@dataclass(frozen=True, slots=True, eq=False)
class Flight:
    """A lookup in flight that other callers may wait for."""

    row: bytes
    before: bool
    replica_id: int
    gap: tuple[bytes, bytes]  # the unknown range around the row
    known: RegionLocations | None  # the cached region of the row, whose range is the gap
    is_for_whole_gap: bool  # one answer may serve every row of the gap
    first_page: FirstPage
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
        return self.replica_id == replica_id and (self.row == row or self.known is not None)


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
        known = None if lookup.before else snapshot.covering(row)
        if known is not None and lookup.reload and known.at(replica_id) is not None:
            first_page, rows = FirstPage.KNOWN_ROW, self._config.locate_prefetch  # no miss: the pages do not grow
        else:
            first_page, rows = self._plan_pages(lookup, snapshot, is_known_region=known is not None)
        return Flight(
            row=row,
            before=lookup.before,
            replica_id=replica_id,
            gap=snapshot.gap(row),
            known=known,
            is_for_whole_gap=known is not None or first_page is FirstPage.FROM_TOP or not snapshot.regions,
            first_page=first_page,
            rows=rows,
            generation=self._cache.generation,
            pending=self._runtime.pending(name="lookup"),
        )

    def _plan_pages(self, lookup: Lookup, snapshot: Snapshot, *, is_known_region: bool) -> tuple[FirstPage, int]:
        """Return the first page of a miss, and the rows of its pages."""
        growth = self._growth_of(lookup.table)
        rows = growth.next(self._runtime.now())
        if is_known_region:  # its neighbours are known, too, unless they have failed
            return FirstPage.DOWN, max(
                self._config.locate_prefetch, snapshot.rows_to_lowest_hole(lookup.row or b"", rows)
            )
        # Only a page that has grown can be expected to reach from the top of the gap down to the row.
        has_grown = rows > self._config.locate_prefetch
        is_from_top = growth.reaches_down and has_grown and not lookup.before
        return (FirstPage.FROM_TOP if is_from_top else FirstPage.DOWN), rows

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
