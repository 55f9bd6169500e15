"""Finds out where a row lives: cache, then one flight per region, then hbase:meta, then the cache again.

1. A cached location is memory. A miss joins a flight that will answer it, or starts one; at most ``locate_concurrency``
   flights of a table are under way, the rest wait for any of them to land and look again.
2. Which flight answers a row: one that was sent for the same hole in the cache (a region known by its range and not by
   its place, or a table of which nothing is known), or for a higher row of the same unknown stretch, because the scan
   runs downwards and brings neighbours. Flights from before a failure never answer those who come after it.
3. A flight is one reversed page of hbase:meta: the region and the ones below it, cached for free. Pages grow from
   ``locate_prefetch`` to ``locate_prefetch_max`` rows, fourfold, while misses follow each other, and are small again
   when they stop. Once a page was longer than the stretch below its row, the next one starts at the upper end of its
   own stretch and fills all of it: reading only downwards, the rows above the highest one asked for would stay unknown
   (1000 regions, random rows: 6 calls instead of 11). A page that did not come down to its row is followed by a
   plain one.
4. What a page means is decided by ``located`` (pure). Negative answers of secondaries, and such that contradict a newer
   region in the cache, are confirmed at the primary by the reader before anyone hears of them.
5. After a failed call: RegionMoved repairs the cache once, without a lookup; a location that proved wrong becomes a
   hole and its range is asked at the primary for a while; time-outs keep it (the *server* is slow, meta was right)
   until the third. A hint that failed is not followed again as long as a server may go on giving it.

DIVERGENCES from AsyncNonMetaRegionLocator (HBase 3): see the rules above; the region is checked to contain the row; the
leader's own deadline ends only the leader: those who joined fly again. Those who joined hear the leader's error only if
it is an answer to their own question.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TypeVar

from cachetools import LRUCache, TTLCache

from metaclient import keys, metarow
from metaclient.backend import Backend, MetaPage, MetaScan
from metaclient.config import Config
from metaclient.errors import (
    CallTimeout,
    ConnectionClosed,
    DeadlineExceeded,
    Disposition,
    LocationUnknown,
    MetaClientError,
    NoSuchReplica,
    RegionMoved,
    RegionOffline,
    TableDisabled,
    TableNotFound,
)
from metaclient.lookup.location_cache import EMPTY, LocationCache, with_regions
from metaclient.lookup.region_listing import RegionListing, fault_in
from metaclient.meta import Lookup
from metaclient.meta.reader import MetaReader
from metaclient.model import META_TABLE, RegionInfo, RegionLocation, RegionLocations, ServerName, TableState
from metaclient.runtime import Pending, Runtime
from metaclient.telemetry import Telemetry

__all__ = ["Located", "Locator", "listed", "located"]

#: A miss this long after the last one starts with a small page again.
PREFETCH_MEMORY_S = 10.0
#: How fast pages grow: 10, 40, 160, 640, 1000 rows. Doubling costs two calls more until 1000 regions are known.
PREFETCH_GROWTH = 4
#: Time-outs in a row at one location before it is looked up again: meta is rarely wrong about a slow server.
TIMEOUTS_MAX = 3
#: Bounds of the small memories below; each entry is a few dozen bytes.
TIMEOUTS_REMEMBERED = 10_000
TABLES_REMEMBERED = 1_000
HINTS_REMEMBERED = 10_000
TIMEOUT_MEMORY_S = 60.0
#: So long a server repeats where a region was asked to go (HRegionServer.TIMEOUT_REGION_MOVED).
HINT_MEMORY_S = 120.0


@dataclass(frozen=True, slots=True)
class Located:
    """What a page of a lookup means: the region of the row, and others that it happened to bring."""

    region: RegionLocations
    neighbours: tuple[RegionLocations, ...]


def located(page: MetaPage, lookup: Lookup) -> Located | MetaClientError:
    """Understand a reversed page: the first acceptable row wins, as in HBase; pure.

    Split parents are passed over, garbage rows never become locations, and a region that does not contain the row is
    a hole in meta, not an answer.
    """
    if not page.rows:
        return TableNotFound(f"table {keys.printable(lookup.table)!r} does not exist: hbase:meta has no region of it")
    regions, faults = _regions_on(page, lookup.table)
    if not regions:
        why = "; ".join(faults[:3]) or "only split parents"
        return LocationUnknown(f"hbase:meta has no usable region for {_row_of(lookup)}: {why}")
    nearest = regions[0]
    if not _covers(nearest.region, lookup):
        bounds = f"[{keys.printable(nearest.region.start_key)}, {keys.printable(nearest.region.end_key)})"
        return LocationUnknown(f"hbase:meta has a hole: no region contains {_row_of(lookup)}; the nearest is {bounds}")
    return Located(nearest, _placed(regions[1:]))


def _regions_on(page: MetaPage, table: bytes) -> tuple[list[RegionLocations], list[str]]:
    """The table's regions in the order of the page, without split parents; and what is wrong with other rows."""
    regions: list[RegionLocations] = []
    faults: list[str] = []
    for row in page.rows:
        decoded = metarow.decode(row.row, row.columns)
        entry = decoded.locations
        if entry is None or entry.region.table != table:
            faults.append(f"{keys.printable(row.row)}: {decoded.fault or 'a row of another table'}")
        elif not entry.region.is_split_parent:
            regions.append(entry)
    return regions, faults


def _placed(regions: Iterable[RegionLocations]) -> tuple[RegionLocations, ...]:
    """Those worth caching: a region without a primary, or offline, would only be a hole."""
    return tuple(entry for entry in regions if entry.primary is not None and not entry.region.is_offline)


def _covers(region: RegionInfo, lookup: Lookup) -> bool:
    row = lookup.row or b""
    if not lookup.before:
        return region.contains(row)
    return not region.end_key if not row else region.start_key < row and not (region.end_key and region.end_key < row)


def _row_of(lookup: Lookup) -> str:
    which = "the region before " if lookup.before else ""
    return f"{which}row {keys.printable(lookup.row or b'')!r} of table {keys.printable(lookup.table)!r}"


def _unplaced(region: RegionLocations, replica_id: int, lookup: Lookup) -> str:
    """Why a replica has no place: it waits for a server (its columns are there, and empty), or there is none at all."""
    known = len(region.replicas)
    if replica_id < known:
        return f"there is no server for replica {replica_id} of {_row_of(lookup)}"
    has = f"replicas 0 to {known - 1}" if known > 1 else "replica 0 only"
    return f"there is no replica {replica_id} of {_row_of(lookup)}: its region has {has}"


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
    if not page.rows and not expected_start:
        return TableNotFound(f"table {keys.printable(table)!r} does not exist: hbase:meta has no region of it")
    if is_last and (next_start or not (regions or expected_start)):
        return LocationUnknown(f"hbase:meta has a hole after {keys.printable(next_start)!r}")
    return tuple(regions)


@dataclass(frozen=True, slots=True, eq=False)
class _Flight:
    """A lookup under way that others may wait for."""

    row: bytes
    before: bool
    replica_id: int
    gap: tuple[bytes, bytes]  # what is not known around the row
    is_known_region: bool  # the gap is one region's range
    is_for_whole_gap: bool  # one answer may do for every row of the gap
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
        """Whether "no such place" is an answer for them, too."""
        return self.replica_id == replica_id and (self.row == row or self.is_known_region)


class _Prefetch:
    """How many rows the next lookup of a table asks for, and from where."""

    __slots__ = ("_base", "_last_miss", "_max", "_page", "reaches_down")

    def __init__(self, base: int, maximum: int) -> None:
        self._base = base
        self._max = max(base, maximum)
        self._page = base
        self._last_miss = float("-inf")
        self.reaches_down = False  # the last page was longer than what was unknown below its row

    def next(self, now: float) -> int:
        if now - self._last_miss > PREFETCH_MEMORY_S:
            self._page = self._base
            self.reaches_down = False
        page, self._page = self._page, min(self._page * PREFETCH_GROWTH, self._max)
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
        telemetry.watch("metaclient.cache.hits", lambda: self.cache.hits_and_misses()[0])
        telemetry.watch("metaclient.cache.misses", lambda: self.cache.hits_and_misses()[1])
        telemetry.watch("metaclient.cache.regions", self.cache.regions_cached)
        self._is_closed = False
        self._begin()
        runtime.on_fork(self._begin)

    def _begin(self) -> None:
        """No lookup is in flight: at first, and in a child process, where the parent's lookups never end."""
        now = self._runtime.now
        self._lock = self._runtime.lock()
        # Guarded by the lock, as _is_closed is:
        self._flights: dict[bytes, tuple[_Flight, ...]] = {}
        self._prefetch: LRUCache[bytes, _Prefetch] = LRUCache(TABLES_REMEMBERED)
        self._failed_hints: TTLCache[tuple[bytes, ServerName], bool] = TTLCache(
            HINTS_REMEMBERED, HINT_MEMORY_S, timer=now
        )
        self._timeouts: TTLCache[tuple[bytes, ServerName], int] = TTLCache(
            TIMEOUTS_REMEMBERED, TIMEOUT_MEMORY_S, timer=now
        )
        self._states: TTLCache[bytes, _KnownState] = TTLCache(
            TABLES_REMEMBERED, self._config.table_state_ttl_s, timer=now
        )
        self._state_flights: dict[bytes, Pending[TableState | None]] = {}

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
        if table == META_TABLE:
            return self._meta_region(replica_id, reload, deadline)
        known = self.cache.table(table)
        lookup = Lookup(table, row, before, reload)
        generation = self.cache.bump() if reload else 0
        # Each round either finds the answer, or waits for a flight that may bring it; the deadline bounds them.
        while True:
            if not reload:
                entry = self._cached(lookup)
                if entry is not None:
                    if entry.at(replica_id) is not None:
                        known.hits += 1
                        return entry
                    generation = max(generation, self.cache.failed_generation(table, entry.region, replica_id))
            flight, others = self._board(lookup, replica_id, generation)
            if flight is None:
                self._wait_for_any(others, lookup, deadline)
            elif others:
                self._telemetry.count("metaclient.lookups.joined")
                self._wait_for(flight, lookup, replica_id, deadline)
                reload = False
            else:
                known.misses += 1
                found = self._fly(flight, lookup, deadline)
                if found is not None:
                    return found
                reload = False

    def _meta_region(self, replica_id: int, reload: bool, deadline: float) -> RegionLocations:
        """hbase:meta's one region, which no row of meta describes: the registry knows where its copies are."""
        replicas = self._reader.refresh(deadline) if reload else self._reader.replicas(deadline)
        info = RegionInfo(META_TABLE, region_id=1)
        places: list[RegionLocation | None] = [None] * (1 + max(replica.replica_id for replica in replicas))
        for replica in replicas:
            if replica.server is not None:
                at = info.replica(replica.replica_id)
                places[replica.replica_id] = RegionLocation(at, replica.server, region_name=replica.region_name)
        found = RegionLocations(info, tuple(places))
        if found.at(replica_id) is not None:
            return found
        if not reload:
            return self._meta_region(replica_id, True, deadline)
        if replica_id >= len(places):
            known = len(places) - 1
            raise NoSuchReplica(f"there is no replica {replica_id} of hbase:meta: the registry knows 0 to {known}")
        raise RegionOffline(f"the registry knows no server for replica {replica_id} of hbase:meta")

    def _cached(self, lookup: Lookup) -> RegionLocations | None:
        row = lookup.row or b""
        if lookup.before:
            return self.cache.cached_region_before(lookup.table, row)
        return self.cache.cached_region(lookup.table, row)

    def _board(self, lookup: Lookup, replica_id: int, generation: int) -> tuple[_Flight | None, Sequence[_Flight]]:
        """Ours to make: (it, ()). Another's that answers us: (it, all). Too many under way: (None, all)."""
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
            self._flights[lookup.table] = (*flights, flight)
            return flight, ()

    def _new_flight(self, lookup: Lookup, replica_id: int) -> _Flight:
        row = lookup.row or b""
        snapshot = self.cache.table(lookup.table).snapshot
        is_known_region = not lookup.before and snapshot.covering(row) is not None
        growth = self._growth(lookup.table)
        rows = growth.next(self._runtime.now())
        if is_known_region:  # its neighbours are known, too, unless they have failed as well
            rows = max(self._config.locate_prefetch, snapshot.rows_to_lowest_hole(row, rows))
        # Only a page that has grown can be expected to come down from the top of the gap to the row.
        has_grown = rows > self._config.locate_prefetch
        from_top = growth.reaches_down and has_grown and not is_known_region and not lookup.before
        return _Flight(
            row=row,
            before=lookup.before,
            replica_id=replica_id,
            gap=snapshot.gap(row),
            is_known_region=is_known_region,
            is_for_whole_gap=is_known_region or from_top or not snapshot.regions,
            from_top=from_top,
            rows=rows,
            generation=self.cache.generation,
            pending=self._runtime.pending(name="lookup"),
        )

    def _growth(self, table: bytes) -> _Prefetch:
        growth = self._prefetch.get(table)
        if growth is None:
            growth = _Prefetch(self._config.locate_prefetch, self._config.locate_prefetch_max)
            self._prefetch[table] = growth
        return growth

    def _wait_for_any(self, flights: Sequence[_Flight], lookup: Lookup, deadline: float) -> None:
        if self._runtime.wait_first([flight.pending for flight in flights], deadline) is None:
            raise DeadlineExceeded(f"looking up {_row_of(lookup)}: no lookup of the table came to an end in time")

    def _wait_for(self, flight: _Flight, lookup: Lookup, replica_id: int, deadline: float) -> None:
        """Until the flight lands; its error is raised when it answers our question as well."""
        if self._runtime.wait_first((flight.pending,), deadline) is None:
            raise DeadlineExceeded(f"looking up {_row_of(lookup)}: hbase:meta did not answer in time")
        error = flight.pending.error()
        # A leader out of its own time says nothing about meta.
        if not isinstance(error, MetaClientError) or isinstance(error, DeadlineExceeded):
            return
        is_about_a_row = isinstance(error, LocationUnknown | RegionOffline)
        if not is_about_a_row or flight.is_same_question(lookup.row or b"", replica_id):
            raise _copied(error) from error

    def _fly(self, flight: _Flight, lookup: Lookup, deadline: float) -> RegionLocations | None:
        """Make the flight; None when what it found has failed in the meantime."""
        error: BaseException | None = None
        try:
            with self._telemetry.lookup(lookup.table):
                return self._read(flight, lookup, deadline)
        except BaseException as raised:
            error = raised
            raise
        finally:
            with self._lock:
                left = tuple(one for one in self._flights.get(lookup.table, ()) if one is not flight)
                if left:
                    self._flights[lookup.table] = left
                else:  # it is not there when this thread forked during the lookup, in a listener
                    self._flights.pop(lookup.table, None)
            if error is None:
                flight.pending.complete(None)
            else:
                is_gone = isinstance(error, TableNotFound) and self._reader.confirms
                if is_gone or not left:
                    self.cache.drop(lookup.table, only_if_empty=not is_gone)
                flight.pending.fail(error)
                error = None  # error -> traceback -> this frame -> error would be a cycle

    def _read(self, flight: _Flight, lookup: Lookup, deadline: float) -> RegionLocations | None:
        self._telemetry.count("metaclient.lookups")
        until = min(deadline, self._runtime.now() + self._config.meta_lookup_timeout_s)
        try:
            found = self._read_from_top(flight, lookup, until) if flight.from_top else None
            return found or self._read_down(flight, lookup, until)
        except MetaClientError as error:
            is_late = isinstance(error, DeadlineExceeded)
            if error.disposition is Disposition.FATAL and not is_late:
                raise
            if self._runtime.now() >= deadline:
                raise DeadlineExceeded(f"looking up {_row_of(lookup)}: {error}") from error
            if is_late:  # the lookup's own limit: the operation may still try again
                raise CallTimeout(f"looking up {_row_of(lookup)} took all of meta_lookup_timeout_s") from error
            raise

    def _read_down(self, flight: _Flight, lookup: Lookup, until: float) -> RegionLocations | None:
        """The plain lookup: the row's region and the ones below it."""
        search_key = keys.meta_search_key_before if lookup.before else keys.meta_search_key
        scan = self._reversed_scan(search_key(lookup.table, flight.row), lookup.table, flight.rows)
        unplaced: list[RegionLocations] = []

        def judge(page: MetaPage, meta_replica: int) -> Located | MetaClientError:
            found = located(page, lookup)
            if isinstance(found, MetaClientError):
                return found
            if self._is_contradicted(found.region, meta_replica):
                return LocationUnknown(f"a newer region than the one of {_row_of(lookup)} is known")
            if found.region.at(flight.replica_id) is None:
                unplaced[:] = [found.region]
                # HBase writes empty columns for replicas that wait for a server (RegionStateStore), so that their
                # number is known from the start: what the primary does not show will not come.
                is_final = meta_replica == 0 and flight.replica_id >= len(found.region.replicas)
                kind = NoSuchReplica if is_final else RegionOffline
                return kind(_unplaced(found.region, flight.replica_id, lookup))
            return found

        try:
            found, meta_replica = self._reader.read(lookup, scan, judge, until)
        except RegionOffline as error:
            if unplaced:  # what is known is kept, and the primary is asked until it knows more
                self.cache.insert(lookup.table, unplaced, flight.generation)
                if self._reader.confirms and not isinstance(error, NoSuchReplica):
                    self._reader.on_wrong_location(unplaced[0].region)
            raise
        lowest = found.neighbours[-1] if found.neighbours else found.region
        is_short = len(found.neighbours) + 1 < flight.rows
        self._growth_after(lookup.table, is_short or lowest.region.start_key <= flight.gap[0])
        return self._taken(flight, lookup, found, meta_replica)

    def _read_from_top(self, flight: _Flight, lookup: Lookup, until: float) -> RegionLocations | None:
        """All that is unknown around the row; None when the page does not come down to the row."""
        start_row = keys.meta_search_key_before(lookup.table, flight.gap[1])
        scan = self._reversed_scan(start_row, lookup.table, flight.rows)

        def judge(page: MetaPage, meta_replica: int) -> tuple[RegionLocations, ...]:
            return _placed(_regions_on(page, lookup.table)[0])

        regions, meta_replica = self._reader.read(lookup, scan, judge, until)
        answer = next((entry for entry in regions if _covers(entry.region, lookup)), None)
        if answer is None or answer.at(flight.replica_id) is None or self._is_contradicted(answer, meta_replica):
            self._growth_after(lookup.table, False)
            self.cache.insert(lookup.table, regions, flight.generation)
            return None
        return self._taken(flight, lookup, Located(answer, regions), meta_replica)

    def _reversed_scan(self, start_row: bytes, table: bytes, rows: int) -> MetaScan:
        return MetaScan(start_row, keys.meta_table_start(table), is_reversed=True, limit=rows)

    def _growth_after(self, table: bytes, reaches_down: bool) -> None:
        with self._lock:
            self._growth(table).reaches_down = reaches_down

    def _is_contradicted(self, region: RegionLocations, meta_replica: int) -> bool:
        """A secondary shows a region that has been split or merged since: it is behind."""
        return meta_replica != 0 and self._reader.confirms and self.cache.outranks(region)

    def _taken(self, flight: _Flight, lookup: Lookup, found: Located, meta_replica: int) -> RegionLocations | None:
        """Cache an answer; what the cache makes of it, or None if the very place has failed in the meantime."""
        if meta_replica == 0:
            self.cache.insert(lookup.table, found.neighbours, flight.generation, verdict=found.region)
        else:
            self.cache.insert(lookup.table, (*found.neighbours, found.region), flight.generation)
        entry = self._cached(lookup)
        if entry is not None and entry.at(flight.replica_id) is not None:
            return entry
        failed = self.cache.failed_generation(lookup.table, found.region.region, flight.replica_id)
        return found.region if failed <= flight.generation else None

    # -- whole tables --------------------------------------------------------------------------------------------

    def regions(self, table: bytes, *, deadline: float) -> list[RegionLocations]:
        """All regions of a table, as :meth:`listing` finds them."""
        return list(self.listing(table, deadline=deadline).regions)

    def listing(self, table: bytes, *, deadline: float, on_page: Callable[[int], None] | None = None) -> RegionListing:
        """All regions of a table, read from hbase:meta page by page and cached; resumes at another replica."""
        if table == META_TABLE:
            return RegionListing((self._meta_region(0, True, deadline),), None)
        generation = self.cache.generation
        snapshot = EMPTY
        seen: list[RegionInfo] = []  # with those that others hide in the snapshot
        start_row = keys.meta_table_start(table)
        next_start = b""
        while True:
            page, last_row = self._read_listing(table, start_row, next_start, deadline)
            snapshot = with_regions(snapshot, page)
            seen += (entry.region for entry in page)
            self.cache.insert(table, page, generation)
            if on_page is not None:
                on_page(len(snapshot.regions))
            if page:
                next_start = page[-1].region.end_key
            # A short page is the last one, unless it ends in the middle of the table.
            if last_row is None or (page and not next_start):
                break
            start_row = keys.next_row(last_row)
        if not snapshot.regions:
            if self._reader.confirms:
                self.cache.drop(table)
            raise TableNotFound(f"table {keys.printable(table)!r} does not exist: hbase:meta has no region of it")
        return RegionListing(tuple(snapshot.regions), fault_in(seen))

    def _read_listing(
        self, table: bytes, start_row: bytes, next_start: bytes, deadline: float
    ) -> tuple[Sequence[RegionLocations], bytes | None]:
        """One page, and the row after which the next one begins; None: there is none."""
        limit = self._config.meta_scan_caching
        scan = MetaScan(start_row, keys.meta_table_stop(table), is_reversed=False, limit=limit)

        def judge(page: MetaPage, _: int) -> tuple[Sequence[RegionLocations], bytes | None] | MetaClientError:
            last_row = _last_row(page, scan)
            regions = listed(page, table, expected_start=next_start, is_last=len(page.rows) < limit)
            return regions if isinstance(regions, MetaClientError) else (regions, last_row)

        def as_they_are(page: MetaPage, _: int) -> tuple[Sequence[RegionLocations], bytes | None]:
            return _regions_on(page, table)[0], _last_row(page, scan)

        if self._runtime.now() >= deadline:
            raise DeadlineExceeded(f"listing the regions of table {keys.printable(table)!r} took too long")
        try:
            return self._reader.read(Lookup(table), scan, judge, deadline)[0]
        except (RegionOffline, LocationUnknown):
            # The primary itself shows regions on the move: list what it has, as HBase does.
            return self._reader.read_primary(scan, as_they_are, deadline)

    # -- what calls tell us ----------------------------------------------------------------------------------------

    def on_error(self, location: RegionLocation, error: MetaClientError) -> None:
        """A call at this location failed: decide what that says about the location."""
        if location.region.table == META_TABLE:
            self._reader.refresh_on_evidence()
            return
        if isinstance(error, RegionMoved) and self._follow(location, error):
            return
        if error.disposition is Disposition.RELOCATE:
            # Once for each server: whoever comes later finds nothing of it in the cache.
            if self._lost(location, error, mark=True) and error.blames_server:
                self.cache.forget_server(location.server)
        elif error.blames_server and self._is_timed_out_often(location):
            self._lost(location, error, mark=False)

    def _follow(self, location: RegionLocation, error: RegionMoved) -> bool:
        """A hint is followed once: RegionMoved names the *requested* target, which may never have existed."""
        if location.is_hint or error.server is None or error.server == location.server:
            return False
        with self._lock:
            if (location.region_name, error.server) in self._failed_hints:
                return False
        if not self.cache.moved(location, error.server, error.seqnum):
            return False
        self._telemetry.count("metaclient.locations.moved")
        self._telemetry.emit("location_moved", region=location.region.encoded_name, server=str(error.server))
        return True

    def _lost(self, location: RegionLocation, error: MetaClientError, *, mark: bool) -> bool:
        """Make a hole of it; False when the cache has moved on, and nothing is to be done."""
        region = location.region
        if location.is_hint:
            with self._lock:
                self._failed_hints[location.region_name, location.server] = True
        if not self.cache.forget(location) and self.cache.cached_region(region.table, region.start_key) is not None:
            return False
        name = type(error).__name__
        self._telemetry.count("metaclient.locations.lost", error=name)
        self._telemetry.emit("location_lost", region=region.encoded_name, error=name)
        if mark:
            self._reader.on_wrong_location(region.replica(0))
        return True

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
            known = self._states.get(table)  # one call: the entry may expire between two
            if known is not None:
                return known.state
            pending = self._state_flights.get(table)
            is_ours = pending is None
            if pending is None:
                pending = self._state_flights[table] = self._runtime.pending(name="table state")
        if is_ours:
            self._read_state(table, pending, deadline)
        if self._runtime.wait_first((pending,), deadline) is None or pending.error() is not None:
            return None  # unknown is not disabled: the operation goes on and hears more
        return pending.result()

    def _read_state(self, table: bytes, pending: Pending[TableState | None], deadline: float) -> None:
        scan = MetaScan(table, table, is_reversed=False, limit=1, families=(b"table",))

        def judge(page: MetaPage, _: int) -> _KnownState:
            values = [row.columns.get(b"table:state") for row in page.rows if row.row == table]
            return _KnownState(metarow.decode_table_state(values[0]) if values and values[0] is not None else None)

        found: _KnownState | None = None
        try:
            found = self._reader.read_primary(scan, judge, deadline)
        except MetaClientError:
            pass  # unknown: see above
        finally:
            with self._lock:
                self._state_flights.pop(table, None)
                if found is not None:
                    self._states[table] = found
            pending.complete(found.state if found is not None else None)


@dataclass(frozen=True, slots=True)
class _KnownState:
    """A table's state as the primary told it; None: it has none, or none that we know."""

    state: TableState | None


def _last_row(page: MetaPage, scan: MetaScan) -> bytes | None:
    """The page's last row, None when there is none; ValueError when a page does not lead on (it would never end)."""
    if not page.rows:
        return None
    last_row = page.rows[-1].row
    if not keys.meta_sort_key(scan.start_row) <= keys.meta_sort_key(last_row) <= keys.meta_sort_key(scan.stop_row):
        raise ValueError(f"row {keys.printable(last_row)!r} is not in the range that was asked for")
    return last_row


E = TypeVar("E", bound=MetaClientError)


def _copied(error: E) -> E:
    """The same error for another task: each adds its own attempts and traceback."""
    copy = type(error).__new__(type(error), *error.args)
    copy.__dict__.update(error.__dict__)
    return copy
