"""Finds out where a row lives: cache, then one flight per region, then hbase:meta, then the cache again.

1. A cached location is memory. A miss joins a flight that will answer it, or starts one; at most ``locate_concurrency``
   flights of a table are under way, the rest wait for any of them to land and look again.
2. Which flight answers a row: one that was sent for the same hole in the cache (a region known by its range and not by
   its place, or a table of which nothing is known), or for a higher row of the same unknown stretch, because the scan
   runs downwards and brings neighbours. Flights from before a failure never answer those who come after it.
3. A flight is one reversed page of hbase:meta: the region and the ones below it, cached for free. Pages grow from
   ``locate_prefetch`` to ``locate_prefetch_max`` rows while misses follow each other, and shrink again when they stop.
4. What a page means is decided by ``located`` (pure). Negative answers of secondaries are confirmed at the primary by
   the reader before anyone hears of them.
5. After a failed call: RegionMoved repairs the cache once, without a lookup; a location that proved wrong becomes a
   hole and its range is asked at the primary for a while; time-outs keep it (the *server* is slow, meta was right)
   until the third.

DIVERGENCES from AsyncNonMetaRegionLocator (HBase 3): see the rules above; the region is checked to contain the row; the
leader's own deadline ends only the leader: those who joined fly again.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from cachetools import LRUCache, TTLCache

from metaclient import keys, metarow
from metaclient.backend import Backend, MetaPage, MetaScan
from metaclient.config import Config
from metaclient.errors import (
    ConnectionClosed,
    DeadlineExceeded,
    Disposition,
    LocationUnknown,
    MetaClientError,
    RegionMoved,
    RegionOffline,
    TableDisabled,
    TableNotFound,
)
from metaclient.location_cache import EMPTY, LocationCache, with_regions
from metaclient.meta_reader import MetaReader
from metaclient.model import RegionLocation, RegionLocations, ServerName, TableState
from metaclient.replicas import Lookup
from metaclient.runtime import Pending, Runtime
from metaclient.telemetry import Telemetry

__all__ = ["Located", "Locator", "listed", "located"]

#: A miss this long after the last one starts with a small page again.
PREFETCH_MEMORY_S = 10.0
#: Time-outs in a row at one location before it is looked up again: meta is rarely wrong about a slow server.
TIMEOUTS_MAX = 3
#: Bounds of the small memories below; each entry is a few dozen bytes.
TIMEOUTS_REMEMBERED = 10_000
TABLES_REMEMBERED = 1_000
TIMEOUT_MEMORY_S = 60.0


@dataclass(frozen=True, slots=True)
class Located:
    """What a page of a lookup means: the region of the row, and others that it happened to bring."""

    region: RegionLocations
    neighbours: tuple[RegionLocations, ...]


def located(page: MetaPage, lookup: Lookup, replica_id: int = 0) -> Located | MetaClientError:
    """Understand a reversed page: the first acceptable row wins, as in HBase; pure.

    Split parents are passed over, garbage rows never become locations, and a region that does not contain the row is
    a hole in meta, not an answer.
    """
    assert lookup.row is not None
    if not page.rows:
        return TableNotFound(f"table {keys.printable(lookup.table)!r} does not exist: hbase:meta has no region of it")
    faults: list[str] = []
    regions: list[RegionLocations] = []
    answer: RegionLocations | MetaClientError | None = None
    for row in page.rows:
        decoded = metarow.decode(row.row, row.columns)
        entry = decoded.locations
        if entry is None or entry.region.table != lookup.table:
            faults.append(f"{keys.printable(row.row)}: {decoded.fault or 'a row of another table'}")
            continue
        if entry.region.is_split_parent:
            continue
        if answer is None:
            answer = _answer(entry, lookup, replica_id)
            if isinstance(answer, MetaClientError):
                break
        if not entry.region.is_offline and decoded.fault is None:
            regions.append(entry)
    if isinstance(answer, RegionLocations):
        return Located(answer, tuple(entry for entry in regions if entry is not answer))
    if answer is not None:
        return answer
    return LocationUnknown(
        f"hbase:meta has no usable region for {_row_of(lookup)}: {'; '.join(faults[:3]) or 'only split parents'}"
    )


def _answer(entry: RegionLocations, lookup: Lookup, replica_id: int) -> RegionLocations | MetaClientError:
    region = entry.region
    row = lookup.row or b""
    if lookup.before:
        covers = not region.end_key or (bool(row) and region.end_key >= row)
        covers = covers and (not row or region.start_key < row)
    else:
        covers = region.contains(row)
    if not covers:
        return LocationUnknown(
            f"hbase:meta has a hole: no region contains {_row_of(lookup)}; the nearest is "
            f"[{keys.printable(region.start_key)}, {keys.printable(region.end_key)})"
        )
    if entry.at(replica_id) is None:
        return RegionOffline(f"there is no server for replica {replica_id} of the region of {_row_of(lookup)}")
    return entry


def _row_of(lookup: Lookup) -> str:
    which = "the region before " if lookup.before else ""
    return f"{which}row {keys.printable(lookup.row or b'')!r} of table {keys.printable(lookup.table)!r}"


def listed(
    page: MetaPage, table: bytes, *, expected_start: bytes, is_last: bool
) -> tuple[RegionLocations, ...] | MetaClientError:
    """Understand a forward page of a table's listing; an error when it has a hole, garbage, or an unplaced primary."""
    regions: list[RegionLocations] = []
    next_start = expected_start
    for row in page.rows:
        decoded = metarow.decode(row.row, row.columns)
        entry = decoded.locations
        if entry is None or entry.region.table != table:
            return LocationUnknown(f"hbase:meta row {keys.printable(row.row)}: {decoded.fault or 'another table'}")
        if entry.region.is_split_parent:
            continue
        if entry.region.start_key != next_start:
            return LocationUnknown(f"hbase:meta has a hole before {keys.printable(entry.region.start_key)!r}")
        if entry.primary is None:
            return RegionOffline(f"region {keys.printable(row.row)} has no server")
        next_start = entry.region.end_key
        regions.append(entry)
    if is_last and (next_start or (not regions and not expected_start)):
        if not regions and not expected_start:
            return TableNotFound(f"table {keys.printable(table)!r} does not exist: hbase:meta has no region of it")
        return LocationUnknown(f"hbase:meta has a hole after {keys.printable(next_start)!r}")
    return tuple(regions)


class _Flight:
    """A lookup under way that others may wait for."""

    __slots__ = ("before", "gap", "generation", "is_whole_gap", "pending", "row")

    def __init__(
        self,
        row: bytes,
        before: bool,
        gap: tuple[bytes, bytes],
        is_whole_gap: bool,
        generation: int,
        pending: Pending[None],
    ) -> None:
        self.row = row
        self.before = before
        self.gap = gap
        self.is_whole_gap = is_whole_gap  # one answer will do for every row of the gap, as far as we know
        self.generation = generation
        self.pending = pending

    def answers(self, row: bytes, before: bool, generation: int) -> bool:
        if self.generation < generation:
            return False
        if before or self.before:
            return before == self.before and row == self.row
        return keys.contains(*self.gap, row) and (self.is_whole_gap or row <= self.row)


class _Prefetch:
    """How many rows the next lookup of a table asks for."""

    __slots__ = ("_base", "_last_miss", "_max", "_page")

    def __init__(self, base: int, maximum: int) -> None:
        self._base = base
        self._max = max(base, maximum)
        self._page = base
        self._last_miss = float("-inf")

    def next(self, now: float) -> int:
        if now - self._last_miss > PREFETCH_MEMORY_S:
            self._page = self._base
        page, self._page = self._page, min(self._page * 2, self._max)
        self._last_miss = now
        return page


class Locator:
    """Where the rows of a cluster's tables are, for one connection."""

    def __init__(
        self, backend: Backend, runtime: Runtime, config: Config, reader: MetaReader, telemetry: Telemetry
    ) -> None:
        self._runtime = runtime
        self._config = config
        self._reader = reader
        self._telemetry = telemetry
        self.cache = LocationCache(runtime, regions_max=config.location_cache_regions_max)
        self._lock = runtime.lock()
        # Guarded by the lock:
        self._flights: dict[bytes, list[_Flight]] = {}
        self._prefetch: LRUCache[bytes, _Prefetch] = LRUCache(TABLES_REMEMBERED)
        self._timeouts: TTLCache[tuple[bytes, ServerName], int] = TTLCache(
            TIMEOUTS_REMEMBERED, TIMEOUT_MEMORY_S, timer=runtime.now
        )
        self._states: TTLCache[bytes, TableState | None] = TTLCache(
            TABLES_REMEMBERED, config.table_state_ttl_s, timer=runtime.now
        )
        self._state_flights: dict[bytes, Pending[TableState | None]] = {}
        self._is_closed = False

    def close(self) -> None:
        """Forget everything and end whoever waits."""
        with self._lock:
            self._is_closed = True
            flights = [flight for of_table in self._flights.values() for flight in of_table]
        for flight in flights:
            flight.pending.fail(ConnectionClosed("the connection was closed during the lookup"))
        self.cache.clear()

    # -- one row -----------------------------------------------------------------------------------------------

    def locate(
        self, table: bytes, row: bytes, *, deadline: float, replica_id: int = 0, reload: bool = False
    ) -> RegionLocation:
        """The place of one replica of the row's region; network when it is not cached."""
        entry = self.locate_region(table, row, deadline=deadline, replica_id=replica_id, reload=reload)
        location = entry.at(replica_id)
        assert location is not None
        return location

    def locate_region(
        self,
        table: bytes,
        row: bytes,
        *,
        deadline: float,
        replica_id: int = 0,
        reload: bool = False,
        before: bool = False,
    ) -> RegionLocations:
        """All that is known of the region of ``row`` (or the one before it); replica ``replica_id`` is placed."""
        known = self.cache.table(table)
        lookup = Lookup(table, row, before, reload)
        generation = self.cache.bump(table) if reload else self._failed_generation(table, row)
        # Each round either finds the answer, or waits for a flight that may bring it; the deadline bounds them.
        while True:
            if not reload:
                entry = self._cached(lookup)
                if entry is not None and entry.at(replica_id) is not None:
                    known.hits += 1
                    return entry
            reload = False
            flight, is_ours = self._board(lookup, generation)
            if is_ours:
                known.misses += 1
                try:
                    return self._fly(flight, lookup, replica_id, deadline)
                except TableNotFound:
                    self.cache.drop(table)
                    raise
            self._telemetry.count("metaclient.lookups.joined")
            self._wait_for(flight, lookup, deadline)

    def _cached(self, lookup: Lookup) -> RegionLocations | None:
        assert lookup.row is not None
        if lookup.before:
            return self.cache.cached_region_before(lookup.table, lookup.row)
        return self.cache.cached_region(lookup.table, lookup.row)

    def _failed_generation(self, table: bytes, row: bytes) -> int:
        known = self.cache.table(table)
        if not known.failed:
            return 0
        start = known.snapshot.gap(row)[0]
        return max((since for (key, _), (since, _) in known.failed.copy().items() if key == start), default=0)

    def _board(self, lookup: Lookup, generation: int) -> tuple[_Flight, bool]:
        """The flight to wait for, or a new one that is ours to make."""
        assert lookup.row is not None
        with self._lock:
            if self._is_closed:
                raise ConnectionClosed("the connection is closed")
            flights = self._flights.setdefault(lookup.table, [])
            for flight in flights:
                if flight.answers(lookup.row, lookup.before, generation):
                    return flight, False
            if len(flights) >= self._config.locate_concurrency:
                return flights[0], False
            flight = self._new_flight(lookup)
            flights.append(flight)
            return flight, True

    def _new_flight(self, lookup: Lookup) -> _Flight:
        assert lookup.row is not None
        known = self.cache.table(lookup.table)
        snapshot = known.snapshot
        is_known_range = snapshot.covering(lookup.row) is not None
        return _Flight(
            lookup.row,
            lookup.before,
            snapshot.gap(lookup.row),
            is_known_range or not snapshot.regions,
            known.generation,
            self._runtime.pending(),
        )

    def _wait_for(self, flight: _Flight, lookup: Lookup, deadline: float) -> None:
        if self._runtime.wait_first((flight.pending,), deadline) is None:
            raise DeadlineExceeded(f"looking up {_row_of(lookup)}: hbase:meta did not answer in time")
        error = flight.pending.error()
        # A leader out of its own time says nothing about meta, and a flight for another row nothing about ours.
        if error is None or isinstance(error, DeadlineExceeded):
            return
        assert lookup.row is not None
        if flight.answers(lookup.row, lookup.before, flight.generation) and isinstance(error, MetaClientError):
            raise error

    def _fly(self, flight: _Flight, lookup: Lookup, replica_id: int, deadline: float) -> RegionLocations:
        error: BaseException | None = None
        try:
            with self._telemetry.lookup(lookup.table):
                return self._read(flight, lookup, replica_id, deadline)
        except BaseException as raised:
            error = raised
            raise
        finally:
            with self._lock:
                self._flights[lookup.table].remove(flight)
                if not self._flights[lookup.table]:
                    del self._flights[lookup.table]
            if error is None:
                flight.pending.complete(None)
            else:
                flight.pending.fail(error)

    def _read(self, flight: _Flight, lookup: Lookup, replica_id: int, deadline: float) -> RegionLocations:
        assert lookup.row is not None
        self._telemetry.count("metaclient.lookups")
        scan = MetaScan(
            (keys.meta_search_key_before if lookup.before else keys.meta_search_key)(lookup.table, lookup.row),
            keys.meta_table_start(lookup.table),
            is_reversed=True,
            limit=self._page(lookup.table),
        )
        until = min(deadline, self._runtime.now() + self._config.meta_lookup_timeout_s)
        found, _ = self._reader.read(lookup, scan, lambda page: located(page, lookup, replica_id), until)
        self.cache.insert(lookup.table, (*found.neighbours, found.region), flight.generation)
        return found.region

    def _page(self, table: bytes) -> int:
        with self._lock:
            growth = self._prefetch.get(table)
            if growth is None:
                growth = _Prefetch(self._config.locate_prefetch, self._config.locate_prefetch_max)
                self._prefetch[table] = growth
            return growth.next(self._runtime.now())

    # -- whole tables --------------------------------------------------------------------------------------------

    def regions(
        self, table: bytes, *, deadline: float, on_page: Callable[[int], None] | None = None
    ) -> list[RegionLocations]:
        """All regions of a table, read from hbase:meta page by page and cached; resumes at another replica."""
        generation = self.cache.generation(table)
        snapshot = EMPTY
        start_row = keys.meta_table_start(table)
        next_start = b""
        limit = self._config.meta_scan_caching
        while True:
            page, rows = self._read_listing(table, start_row, next_start, limit, deadline)
            snapshot = with_regions(snapshot, page)
            self.cache.insert(table, page, generation)
            if on_page is not None:
                on_page(len(snapshot.regions))
            if len(rows) < limit:
                break
            start_row = keys.next_row(rows[-1])
            next_start = page[-1].region.end_key if page else next_start
        if not snapshot.regions:
            raise TableNotFound(f"table {keys.printable(table)!r} does not exist: hbase:meta has no region of it")
        return list(snapshot.regions)

    def _read_listing(
        self, table: bytes, start_row: bytes, next_start: bytes, limit: int, deadline: float
    ) -> tuple[Sequence[RegionLocations], list[bytes]]:
        scan = MetaScan(start_row, keys.meta_table_stop(table), is_reversed=False, limit=limit)
        rows: list[bytes] = []

        def judge(page: MetaPage) -> tuple[RegionLocations, ...] | MetaClientError:
            rows[:] = [row.row for row in page.rows]
            is_last = len(page.rows) < limit
            return listed(page, table, expected_start=next_start, is_last=is_last)

        try:
            page, _ = self._reader.read(Lookup(table), scan, judge, deadline)
        except (RegionOffline, LocationUnknown):
            # The primary itself shows regions on the move: list what it has, as HBase does.
            answer = self._reader.read_primary(scan, deadline)
            rows[:] = [row.row for row in answer.rows]
            page = _as_they_are(answer, table)
        return page, rows

    # -- what calls tell us ----------------------------------------------------------------------------------------

    def on_error(self, location: RegionLocation, error: MetaClientError) -> None:
        """A call at this location failed: decide what that says about the location."""
        if isinstance(error, RegionMoved) and self._follow(location, error):
            return
        if error.disposition is Disposition.RELOCATE:
            self._lost(location, error, mark=True)
            if error.blames_server:
                self.cache.forget_server(location.server)
        elif error.blames_server and self._is_timed_out_often(location):
            self._lost(location, error, mark=False)

    def _follow(self, location: RegionLocation, error: RegionMoved) -> bool:
        """A hint is followed once: RegionMoved names the *requested* target, which may never have existed."""
        if location.is_hint or error.server is None or error.server == location.server:
            return False
        if not self.cache.moved(location, error.server, error.seqnum):
            return False
        self._telemetry.count("metaclient.locations.moved")
        self._telemetry.emit("location_moved", region=location.region.encoded_name, server=str(error.server))
        return True

    def _lost(self, location: RegionLocation, error: MetaClientError, *, mark: bool) -> None:
        if not self.cache.forget(location):
            return
        name = type(error).__name__
        self._telemetry.count("metaclient.locations.lost", error=name)
        self._telemetry.emit("location_lost", region=location.region.encoded_name, error=name)
        if mark:
            self._reader.on_wrong_location(location.region.replica(0))

    def _is_timed_out_often(self, location: RegionLocation) -> bool:
        key = (location.region_name, location.server)
        with self._lock:
            count = self._timeouts.get(key, 0) + 1
            if count >= TIMEOUTS_MAX:
                self._timeouts.pop(key, None)
                return True
            self._timeouts[key] = count
            return False

    def check_enabled(self, table: bytes, deadline: float) -> None:
        """Raise TableDisabled when the primary hbase:meta says so; one read per table and ``table_state_ttl_s``."""
        state = self._state(table, deadline)
        if state in (TableState.DISABLED, TableState.DISABLING):
            raise TableDisabled(f"table {keys.printable(table)!r} is disabled; enable_table() makes it readable again")

    def _state(self, table: bytes, deadline: float) -> TableState | None:
        with self._lock:
            if table in self._states:
                return self._states[table]
            pending = self._state_flights.get(table)
            is_ours = pending is None
            if pending is None:
                pending = self._state_flights[table] = self._runtime.pending()
        if is_ours:
            self._read_state(table, pending, deadline)
        if self._runtime.wait_first((pending,), deadline) is None or pending.error() is not None:
            return None  # unknown is not disabled: the operation goes on and hears more
        return pending.result()

    def _read_state(self, table: bytes, pending: Pending[TableState | None], deadline: float) -> None:
        scan = MetaScan(table, table, is_reversed=False, limit=1, families=(b"table",))
        try:
            page = self._reader.read_primary(scan, deadline)
            values = [row.columns.get(b"table:state") for row in page.rows if row.row == table]
            state = metarow.decode_table_state(values[0]) if values and values[0] is not None else None
            with self._lock:
                self._states[table] = state
            pending.complete(state)
        except MetaClientError as error:
            pending.fail(error)
        finally:
            with self._lock:
                self._state_flights.pop(table, None)
            pending.complete(None)


def _as_they_are(page: MetaPage, table: bytes) -> tuple[RegionLocations, ...]:
    decoded = (metarow.decode(row.row, row.columns).locations for row in page.rows)
    return tuple(
        entry
        for entry in decoded
        if entry is not None and entry.region.table == table and not entry.region.is_split_parent
    )
