"""Finds the region of a row and its place: in the cache, or with one lookup in flight per region in hbase:meta.

1. A location in the cache is returned at once. A miss joins a flight (a lookup in flight) that will answer it, or
   starts one (``flights``). At most ``locate_concurrency`` flights per table run at the same time; further callers
   wait until one of them ends, and search the cache again.
2. A flight reads one reversed page of hbase:meta: the row's region and the regions below it, which are cached, too.
   When the last page was longer than the unknown range below its row, the next page starts at the upper end of its own
   unknown range and covers all of it. Reading only downwards would leave the rows above the highest requested row
   unknown (1000 regions, random rows: 6 calls instead of 11). If such a page does not reach the row, a plain page is
   read. A reload of a location that is cached reads the row of its region with a get, which costs the server less than
   a reversed scan, and a plain page if that row is gone or does not place the region.
3. ``pages`` decides what a page means. A negative answer of a secondary, and an answer that contradicts a newer region
   in the cache, is confirmed at the primary by the reader.
4. After a failed call: RegionMoved repairs the cache once, without a lookup. A location that proved wrong becomes a
   hole, and its range is looked up at the primary for a while. A location survives two time-outs, because then the
   server is slow and hbase:meta was right; the third makes it a hole. A hint of RegionMoved that failed is not followed
   again for as long as the server may repeat it.

DIVERGENCES from AsyncNonMetaRegionLocator (HBase 3): the rules above; the region is checked to contain the row; the
deadline of the caller that made a flight ends that caller only, and the callers that joined start a new flight; callers
that joined get the error of the flight only if it answers their own question.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from copy import copy

from cachetools import TTLCache

from metaclient import keys
from metaclient.backend import Backend, MetaPage, MetaScan
from metaclient.config import Config
from metaclient.errors import (
    CallTimeout,
    DeadlineExceeded,
    Disposition,
    LocationUnknown,
    MetaClientError,
    NoSuchReplica,
    RegionMoved,
    RegionOffline,
    TableNotFound,
)
from metaclient.lookup.flights import FirstPage, Flight, Flights
from metaclient.lookup.location_cache import EMPTY, LocationCache, with_regions
from metaclient.lookup.pages import (
    Located,
    covers,
    described,
    last_row_of,
    listed,
    located,
    placed,
    regions_on,
    why_unplaced,
)
from metaclient.lookup.region_listing import RegionListing, fault_in
from metaclient.lookup.table_states import TableStates
from metaclient.meta import Lookup
from metaclient.meta.reader import MetaReader
from metaclient.model import META_TABLE, RegionInfo, RegionLocation, RegionLocations, ServerName
from metaclient.runtime import Runtime
from metaclient.telemetry import Telemetry

__all__ = ["Locator"]

#: Time-outs in a row at one location before it is looked up again: hbase:meta is rarely wrong about a slow server.
TIMEOUTS_MAX = 3
#: Bounds of the small memories below; each entry is a few dozen bytes.
TIMEOUTS_REMEMBERED = 10_000
HINTS_REMEMBERED = 10_000
TIMEOUT_MEMORY_S = 60.0
#: How long a server reports the target of a region that moved (HRegionServer.TIMEOUT_REGION_MOVED of HBase 2 and 3).
HINT_MEMORY_S = 120.0


class Locator:
    """The locations of the regions of a cluster, for one connection."""

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
        self._flights = Flights(runtime, config, self.cache)
        self.table_states = TableStates(runtime, config, reader)
        self._begin()
        runtime.on_fork(self._begin)

    def _begin(self) -> None:
        """Start with no failure remembered, here and in a forked child."""
        now = self._runtime.now
        self._lock = self._runtime.lock()
        # The fields below are guarded by the lock.
        self._failed_hints: TTLCache[tuple[bytes, ServerName], bool] = TTLCache(
            HINTS_REMEMBERED, HINT_MEMORY_S, timer=now
        )
        self._timeouts: TTLCache[tuple[bytes, ServerName], int] = TTLCache(
            TIMEOUTS_REMEMBERED, TIMEOUT_MEMORY_S, timer=now
        )

    def close(self) -> None:
        """Fail the lookups in flight and clear the cache."""
        self._flights.close()
        self.cache.clear()

    # -- one row -----------------------------------------------------------------------------------------------

    def locate(
        self, table: bytes, row: bytes, *, deadline: float, replica_id: int = 0, reload: bool = False
    ) -> RegionLocation:
        """Return the place of one replica of the row's region; read hbase:meta when it is not cached."""
        entry = self.locate_region(table, row, deadline=deadline, replica_id=replica_id, reload=reload)
        location = entry.at(replica_id)
        assert location is not None
        return location

    def cached(self, table: bytes, row: bytes, replica_id: int = 0, *, before: bool = False) -> RegionLocation | None:
        """Return the place of one replica of the row's region (or of the region before it) if it is in the cache."""
        entry = self._cached(Lookup(table, row, before))
        place = None if entry is None else entry.at(replica_id)
        if place is not None:
            self.cache.table(table).hits += 1
        return place

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
        """Return the region of ``row`` (or the region before it); the place of ``replica_id`` is known."""
        if table == META_TABLE:
            return self._meta_region(replica_id, reload, deadline)
        known = self.cache.table(table)
        lookup = Lookup(table, row, before, reload)
        generation = self.cache.bump() if reload else 0
        # Each round returns the answer, or waits for a flight that may find it; the deadline bounds the rounds.
        while True:
            if not reload:
                entry = self._cached(lookup)
                if entry is not None:
                    if entry.at(replica_id) is not None:
                        known.hits += 1
                        return entry
                    generation = max(generation, self.cache.failed_generation(table, entry.region, replica_id))
            made: list[Flight] = []
            try:
                flight, others = self._flights.board(lookup, replica_id, generation, made)
                if flight is None:
                    self._wait_for_any(others, lookup, deadline)
                    continue
                reload = False
                if others:
                    self._telemetry.count("metaclient.lookups.joined")
                    self._wait_for(flight, lookup, replica_id, deadline)
                else:
                    known.misses += 1
                    found = self._fly(flight, lookup, deadline)
                    if found is not None:
                        return found
            except BaseException as error:
                # An interrupt came before the flight, or while it ended: no caller may wait for a flight that was
                # never made.
                for one in made:
                    if not one.pending.is_done:
                        self._flights.land(table, one)
                        one.pending.fail(error)
                raise

    def _meta_region(self, replica_id: int, reload: bool, deadline: float) -> RegionLocations:
        """Return the one region of hbase:meta, which no row describes: the registry has the places of its replicas."""
        replicas = self._reader.registry.refresh(deadline) if reload else self._reader.registry.replicas(deadline)
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
            raise NoSuchReplica(f"there is no replica {replica_id} of hbase:meta: the registry lists 0 to {known}")
        raise RegionOffline(f"the registry has no server for replica {replica_id} of hbase:meta")

    def _cached(self, lookup: Lookup) -> RegionLocations | None:
        row = lookup.row or b""
        if lookup.before:
            return self.cache.cached_region_before(lookup.table, row)
        return self.cache.cached_region(lookup.table, row)

    def _wait_for_any(self, flights: Sequence[Flight], lookup: Lookup, deadline: float) -> None:
        if self._runtime.wait_first([flight.pending for flight in flights], deadline) is None:
            raise DeadlineExceeded(f"looking up {described(lookup)}: no lookup of the table finished in time")

    def _wait_for(self, flight: Flight, lookup: Lookup, replica_id: int, deadline: float) -> None:
        """Wait until the flight ends; raise its error if the error answers this lookup, too."""
        if self._runtime.wait_first((flight.pending,), deadline) is None:
            raise DeadlineExceeded(f"looking up {described(lookup)}: hbase:meta did not answer in time")
        error = flight.pending.error()
        # The deadline of the caller that made the flight is no evidence about hbase:meta.
        if not isinstance(error, MetaClientError) or error.is_deadline:
            return
        if not error.is_about_row or flight.is_same_question(lookup.row or b"", replica_id):
            raise copy(error) from error  # each task adds its own attempts and traceback

    def _fly(self, flight: Flight, lookup: Lookup, deadline: float) -> RegionLocations | None:
        """Make the flight; return None if the location that it found has failed in the meantime."""
        error: BaseException | None = None
        try:
            with self._telemetry.lookup(lookup.table):
                self._telemetry.count("metaclient.lookups")
                until = min(deadline, self._runtime.now() + self._config.meta_lookup_timeout_s)
                found = None if flight.first_page is FirstPage.DOWN else self._read_first(flight, lookup, until)
                return found or self._read_down(flight, lookup, until)
        except MetaClientError as raised:
            error = self._failure(raised, lookup, deadline)
            if error is raised:
                raise
            raise error from raised
        except BaseException as raised:
            error = raised
            raise
        finally:
            is_shared = self._flights.land(lookup.table, flight)
            if error is None:
                flight.pending.complete(None)
            else:
                is_gone = isinstance(error, TableNotFound) and self._reader.confirms
                if is_gone or not is_shared:
                    self.cache.drop(lookup.table, only_if_empty=not is_gone)
                flight.pending.fail(error)
                error = None  # error -> traceback -> this frame -> error would be a cycle

    def _failure(self, error: MetaClientError, lookup: Lookup, deadline: float) -> MetaClientError:
        """Return the error of a failed flight: DeadlineExceeded for the caller's deadline, CallTimeout for its own."""
        if error.disposition is Disposition.FATAL and not error.is_deadline:
            return error
        if self._runtime.now() >= deadline:
            return DeadlineExceeded(f"looking up {described(lookup)}: {error}")
        if error.is_deadline:  # the lookup's own limit: the operation may still retry
            return CallTimeout(f"looking up {described(lookup)} took all of meta_lookup_timeout_s")
        return error

    def _read_first(self, flight: Flight, lookup: Lookup, until: float) -> RegionLocations | None:
        """Read the first page of a flight that differs from a page down; return None if it does not place the row."""
        if flight.first_page is FirstPage.FROM_TOP:
            return self._read_from_top(flight, lookup, until)
        return self._read_known(flight, lookup, until)

    def _read_known(self, flight: Flight, lookup: Lookup, until: float) -> RegionLocations | None:
        """Read the row of the cached region; return None if it does not place the row: after a split, for example."""
        known = flight.known
        assert known is not None, "the row of a region is read again only if the region is cached"
        row = known.region.name if known.primary is None else known.primary.region_name

        def judge(page: MetaPage, meta_replica: int) -> Located | MetaClientError:
            found = located(page, lookup) if page.rows else None
            if not isinstance(found, Located):
                return LocationUnknown(f"row {keys.printable(row)!r} of hbase:meta does not place {described(lookup)}")
            if found.entry.at(flight.replica_id) is None:
                return LocationUnknown(why_unplaced(found.entry, flight.replica_id, lookup))
            return self._contradiction(found.entry, meta_replica, lookup) or found

        try:
            scan = MetaScan(row, row, is_reversed=True, limit=1)
            found, meta_replica = self._reader.read(lookup, scan, judge, until)
        except LocationUnknown:  # also at the primary; a page finds the region that the row is in now, or the reason
            return None
        return self._taken(flight, lookup, found, meta_replica)

    def _read_down(self, flight: Flight, lookup: Lookup, until: float) -> RegionLocations | None:
        """Read the row's region and the regions below it."""
        search_key = keys.meta_search_key_before if lookup.before else keys.meta_search_key
        scan = self._reversed_scan(search_key(lookup.table, flight.row), lookup.table, flight.rows)
        unplaced: list[RegionLocations] = []

        def judge(page: MetaPage, meta_replica: int) -> Located | MetaClientError:
            found = located(page, lookup)
            if isinstance(found, MetaClientError):
                return found
            contradiction = self._contradiction(found.entry, meta_replica, lookup)
            if contradiction is not None:
                return contradiction
            if found.entry.at(flight.replica_id) is None:
                unplaced[:] = [found.entry]
                # RegionStateStore of HBase writes empty columns for replicas that wait for a server, so that the number
                # of replicas is known from the start: a replica without columns at the primary does not exist.
                is_final = meta_replica == 0 and flight.replica_id >= len(found.entry.replicas)
                kind = NoSuchReplica if is_final else RegionOffline
                return kind(why_unplaced(found.entry, flight.replica_id, lookup))
            return found

        try:
            found, meta_replica = self._reader.read(lookup, scan, judge, until)
        except RegionOffline as error:
            if unplaced:  # the known places are cached, and the primary is asked until the replica has a server
                self.cache.insert(lookup.table, unplaced, flight.generation)
                if self._reader.confirms and not isinstance(error, NoSuchReplica):
                    self._reader.on_wrong_location(unplaced[0].region)
            raise
        lowest = found.neighbours[-1] if found.neighbours else found.entry
        is_short = len(found.neighbours) + 1 < flight.rows
        self._flights.note_reach(lookup.table, is_short or lowest.region.start_key <= flight.gap[0])
        return self._taken(flight, lookup, found, meta_replica)

    def _read_from_top(self, flight: Flight, lookup: Lookup, until: float) -> RegionLocations | None:
        """Read the whole unknown range around the row; return None if the page does not reach down to the row."""
        start_row = keys.meta_search_key_before(lookup.table, flight.gap[1])
        scan = self._reversed_scan(start_row, lookup.table, flight.rows)

        def judge(page: MetaPage, meta_replica: int) -> tuple[RegionLocations, ...]:
            return placed(regions_on(page, lookup.table)[0])

        regions, meta_replica = self._reader.read(lookup, scan, judge, until)
        answer = next((entry for entry in regions if covers(entry.region, lookup)), None)
        if answer is None or answer.at(flight.replica_id) is None or self._is_contradicted(answer, meta_replica):
            self._flights.note_reach(lookup.table, False)
            self.cache.insert(lookup.table, regions, flight.generation)
            return None
        return self._taken(flight, lookup, Located(answer, regions), meta_replica)

    def _reversed_scan(self, start_row: bytes, table: bytes, rows: int) -> MetaScan:
        return MetaScan(start_row, keys.meta_table_start(table), is_reversed=True, limit=rows)

    def _contradiction(self, region: RegionLocations, meta_replica: int, lookup: Lookup) -> LocationUnknown | None:
        """Return an error if a lagging secondary returned a region that has been split or merged since."""
        if not self._is_contradicted(region, meta_replica):
            return None
        return LocationUnknown(f"a newer region than the one of {described(lookup)} is known")

    def _is_contradicted(self, region: RegionLocations, meta_replica: int) -> bool:
        """Return True if a lagging secondary returned a region that has been split or merged since."""
        return meta_replica != 0 and self._reader.confirms and self.cache.outranks(region)

    def _taken(self, flight: Flight, lookup: Lookup, found: Located, meta_replica: int) -> RegionLocations | None:
        """Cache an answer; return the cached region, or None if the place has failed in the meantime."""
        if meta_replica == 0:
            self.cache.insert(lookup.table, found.neighbours, flight.generation, verdict=found.entry)
        else:
            self.cache.insert(lookup.table, (*found.neighbours, found.entry), flight.generation)
        entry = self._cached(lookup)
        if entry is not None and entry.at(flight.replica_id) is not None:
            return entry
        failed = self.cache.failed_generation(lookup.table, found.entry.region, flight.replica_id)
        return found.entry if failed <= flight.generation else None

    # -- whole tables --------------------------------------------------------------------------------------------

    def regions(self, table: bytes, *, deadline: float) -> list[RegionLocations]:
        """Return all regions of a table, as :meth:`listing` finds them."""
        return list(self.listing(table, deadline=deadline).regions)

    def listing(
        self,
        table: bytes,
        *,
        deadline: float,
        on_page: Callable[[int], None] | None = None,
        at_primary: bool = False,
    ) -> RegionListing:
        """Read all regions of a table from hbase:meta page by page, and cache them.

        Each page is a read of its own: when a replica fails, the listing continues at another replica. With
        ``at_primary`` only the primary is read: a secondary may still have the regions of an earlier table.
        """
        if table == META_TABLE:
            return RegionListing((self._meta_region(0, True, deadline),), None)
        generation = self.cache.generation
        snapshot = EMPTY
        seen: list[RegionInfo] = []  # also regions that overlap a newer one, which the snapshot does not keep
        start_row = keys.meta_table_start(table)
        next_start = b""
        while True:
            page, last_row = self._read_listing(table, start_row, next_start, deadline, at_primary=at_primary)
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
        self, table: bytes, start_row: bytes, next_start: bytes, deadline: float, *, at_primary: bool
    ) -> tuple[Sequence[RegionLocations], bytes | None]:
        """Return the regions of one page, and the row after which the next page starts (None: no next page)."""
        limit = self._config.meta_scan_caching
        scan = MetaScan(start_row, keys.meta_table_stop(table), is_reversed=False, limit=limit)

        def judge(page: MetaPage, _: int) -> tuple[Sequence[RegionLocations], bytes | None] | MetaClientError:
            last_row = last_row_of(page, scan)
            regions = listed(page, table, expected_start=next_start, is_last=len(page.rows) < limit)
            return regions if isinstance(regions, MetaClientError) else (regions, last_row)

        def as_they_are(page: MetaPage, _: int) -> tuple[Sequence[RegionLocations], bytes | None]:
            return regions_on(page, table)[0], last_row_of(page, scan)

        if self._runtime.now() >= deadline:
            raise DeadlineExceeded(f"listing the regions of table {keys.printable(table)!r} took too long")
        try:
            if at_primary:
                return self._reader.read_primary(scan, judge, deadline)
            return self._reader.read(Lookup(table), scan, judge, deadline)[0]
        except (RegionOffline, LocationUnknown):
            # Some regions have no server, also at the primary: list them as they are, as HBase does.
            return self._reader.read_primary(scan, as_they_are, deadline)

    # -- outcomes of calls -------------------------------------------------------------------------------------------

    def confirm(self, location: RegionLocation | None) -> None:
        """Record that a call at this location succeeded: a hint of RegionMoved becomes a location."""
        if location is not None and location.is_hint:
            self.cache.confirm(location)

    def on_error(self, location: RegionLocation, error: MetaClientError) -> None:
        """Decide whether a failed call proves its location wrong, and repair or forget the location if so."""
        if location.region.table == META_TABLE:
            self._reader.registry.refresh_on_evidence()
            return
        if isinstance(error, RegionMoved) and self._follow(location, error):
            return
        if error.disposition is Disposition.RELOCATE:
            # Once per server: later callers find no location of the server in the cache.
            if self._lost(location, error, mark=True) and error.blames_server:
                self.cache.forget_server(location.server)
        elif error.blames_server and self._is_timed_out_often(location):
            self._lost(location, error, mark=False)

    def _follow(self, location: RegionLocation, error: RegionMoved) -> bool:
        """Cache the target of RegionMoved as a hint; return False if it must not be followed.

        RegionMoved names the *requested* target, which may never have hosted the region: a hint is followed once.
        """
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
        """Make the location a hole in the cache; return False if the cache has a newer location."""
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
