"""Stores the locations of regions: one immutable sorted snapshot per table, read without a lock.

A reader takes the snapshot once and does a floor search in it, which costs less than a microsecond. A writer builds the
next snapshot under the cache's lock and swaps one reference.

Rules of insertion (``with_regions``):

1. Same start key, same region id: merge replica by replica. The incoming location wins when its sequence number is
   not older; a hole never erases what is known; the length is the longer of both. (Java loses replicas here in three
   ways, because it compares encoded names of different replicas and takes the incoming length.)
2. Otherwise regions that overlap exclude each other, and the highest region id stays: HBase gives daughters, merged
   regions and re-created tables a later id. An old answer cannot bring back a split parent, and a daughter replaces
   its parent, whichever row was looked up. A region all of whose locations have failed outranks no other region.
3. The answer of the *primary* of hbase:meta for the requested row (the verdict) replaces any known region, also one
   with a higher id: a restored snapshot brings old ids back.

Rules of removal:

4. A failed location becomes a hole. The range stays known, so that the lookups of all its rows share one flight.
5. Each failure has a number, the cache's *generation*. The answer of a lookup that started before a failure cannot
   bring the failed location back. After a table was cleared, the answer of an older lookup is dropped.

The number of regions is bounded. When it is exceeded, the tables with the fewest reads since the last sweep are evicted
first. (An LRU list would have to be updated at every read, which costs more than the read.)

DIVERGENCES from AsyncNonMetaRegionLocator (HBase 3): rules 1, 2, 3 and 5; single entries are never removed, only
made holes; the cache is bounded.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain

from metaclient import keys
from metaclient.model import RegionInfo, RegionLocation, RegionLocations, ServerName
from metaclient.runtime import Lock, Runtime

__all__ = ["EMPTY", "LocationCache", "Snapshot", "TableLocations", "merged", "with_regions"]

#: Failures remembered per known region before those of vanished regions are removed: more than a region has replicas.
FAILED_PER_REGION = 16


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The regions of one table in the order of their start keys, as parallel lists. Immutable."""

    starts: list[bytes]
    ends: list[bytes]
    primaries: list[RegionLocation | None]
    regions: list[RegionLocations]

    def index_of(self, row: bytes) -> int:
        """Return the index of the region that contains ``row``; -1 when no such region is known."""
        index = bisect_right(self.starts, row) - 1
        if index < 0:
            return -1
        end = self.ends[index]
        return index if not end or row < end else -1

    def covering(self, row: bytes) -> RegionLocations | None:
        """Return the region that contains ``row``."""
        index = self.index_of(row)
        return self.regions[index] if index >= 0 else None

    def before(self, row: bytes) -> RegionLocations | None:
        """Return the region that contains the keys just before ``row``; for ``b""``, the last region."""
        index = (len(self.starts) if not row else bisect_left(self.starts, row)) - 1
        if index < 0:
            return None
        return self.regions[index] if keys.contains_before(self.starts[index], self.ends[index], row) else None

    def gap(self, row: bytes) -> tuple[bytes, bytes]:
        """Return the widest unknown range around ``row``; the range of its region if that is known."""
        index = self.index_of(row)
        if index >= 0:
            return self.starts[index], self.ends[index]
        above = bisect_right(self.starts, row)
        start = self.ends[above - 1] if above else b""
        return start, self.starts[above] if above < len(self.starts) else b""

    def rows_to_lowest_hole(self, row: bytes, rows_max: int) -> int:
        """Return how many rows of meta, from the region of ``row`` down, reach the lowest hole among ``rows_max``."""
        index = bisect_right(self.starts, row) - 1
        below = self.primaries[max(0, index - rows_max + 1) : index + 1]
        return len(below) - below.index(None) if None in below else 1


EMPTY = Snapshot([], [], [], [])


def merged(old: RegionLocations, new: RegionLocations) -> RegionLocations:
    """Merge two answers about one region, replica by replica; return ``old`` itself when nothing changes."""
    if old.region.region_id != new.region.region_id or old.region.start_key != new.region.start_key:
        return new
    length = max(len(old.replicas), len(new.replicas))
    replicas = tuple(_newer(old.at(index), new.at(index)) for index in range(length))
    if replicas == old.replicas and new.region == old.region:
        return old
    return RegionLocations(new.region, replicas)


def _newer(old: RegionLocation | None, new: RegionLocation | None) -> RegionLocation | None:
    if old is None or new is None:
        return new if old is None else old
    return new if new.seqnum >= old.seqnum else old


def with_regions(
    snapshot: Snapshot, incoming: Sequence[RegionLocations], verdict: RegionLocations | None = None
) -> Snapshot:
    """Return the snapshot after an answer; the same object when nothing changes. ``verdict``: see rule 3."""
    if verdict is None and len(incoming) > 1 and _is_above(snapshot, incoming):
        return Snapshot(
            snapshot.starts + [entry.region.start_key for entry in incoming],
            snapshot.ends + [entry.region.end_key for entry in incoming],
            snapshot.primaries + [entry.primary for entry in incoming],
            [*snapshot.regions, *incoming],
        )
    made = snapshot
    for entry in incoming if verdict is None else (*incoming, verdict):
        first, last = _overlap(made, entry.region)
        present = made.regions[first:last]
        if len(present) == 1 and _is_same_region(present[0], entry):
            taken = merged(present[0], entry)
            if taken is present[0]:
                continue
        elif entry is not verdict and any(_outranks(other, entry) for other in present):
            continue
        else:
            taken = entry
        if made is snapshot:
            made = Snapshot(list(made.starts), list(made.ends), list(made.primaries), list(made.regions))
        made.starts[first:last] = [taken.region.start_key]
        made.ends[first:last] = [taken.region.end_key]
        made.primaries[first:last] = [taken.primary]
        made.regions[first:last] = [taken]
    return made


def _is_above(known: Snapshot, regions: Sequence[RegionLocations]) -> bool:
    """Return True if the regions are in order and above all known ones, as the pages of a listing are."""
    ends = chain(known.ends[-1:], (entry.region.end_key for entry in regions))
    starts = (entry.region.start_key for entry in (regions if known.ends else regions[1:]))
    return all(map(keys.ends_before_or_at, ends, starts))


def _overlap(known: Snapshot, region: RegionInfo) -> tuple[int, int]:
    """Return the slice of known regions that share rows with ``region``."""
    first = bisect_right(known.starts, region.start_key)
    if first and keys.overlaps(known.starts[first - 1], known.ends[first - 1], region.start_key, region.end_key):
        first -= 1
    return first, max(first, keys.count_before_end(known.starts, region.end_key))


def _is_same_region(a: RegionLocations, b: RegionLocations) -> bool:
    return a.region.start_key == b.region.start_key and a.region.region_id == b.region.region_id


def _outranks(known: RegionLocations, incoming: RegionLocations) -> bool:
    return known.region.region_id > incoming.region.region_id and any(
        location is not None and not location.is_hint for location in known.replicas
    )


class TableLocations:
    """The known locations of one table. ``snapshot`` is swapped; the other fields are guarded by the cache's lock."""

    __slots__ = ("cleared", "failed", "hits", "misses", "snapshot", "swept_hits")

    def __init__(self) -> None:
        self.snapshot = EMPTY
        # Incremented without the lock, which would cost more than the lookup that is counted. No count is lost:
        # CPython does not switch threads inside of one addition.
        self.hits = 0
        self.misses = 0
        self.swept_hits = 0
        self.cleared = 0  # generation of the last clear
        # (start key, replica id) -> generation and location of the failure, for rule 5.
        self.failed: dict[tuple[bytes, int], tuple[int, RegionLocation]] = {}

    def cached_primary(self, row: bytes) -> RegionLocation | None:
        """Return where the primary of the row's region is, and count the hit; None when that is not known.

        This is Snapshot.index_of without its call, which would cost 60 ns of each cached get and put.
        """
        snapshot = self.snapshot
        index = bisect_right(snapshot.starts, row) - 1
        if index < 0:
            return None
        end = snapshot.ends[index]
        if end and row >= end:
            return None
        place = snapshot.primaries[index]
        if place is not None:
            self.hits += 1
        return place

    def cached_region(self, row: bytes) -> RegionLocations | None:
        """Return the row's region, as :meth:`cached_primary`; None when the place of its primary is not known."""
        snapshot = self.snapshot
        index = bisect_right(snapshot.starts, row) - 1
        if index < 0:
            return None
        end = snapshot.ends[index]
        if (end and row >= end) or snapshot.primaries[index] is None:
            return None
        self.hits += 1
        return snapshot.regions[index]


class LocationCache:
    """The cache of one connection.

    >>> from metaclient.runtime import ThreadRuntime
    >>> cache = LocationCache(ThreadRuntime(), regions_max=1000)
    >>> a = RegionInfo(b"t", b"", b"m", region_id=1)
    >>> cache.insert(b"t", [RegionLocations(a, (RegionLocation(a, ServerName("rs1", 16020, 1), 5),))])
    >>> cache.cached(b"t", b"hello").server.host
    'rs1'
    >>> cache.cached(b"t", b"z") is None
    True
    """

    def __init__(self, runtime: Runtime, *, regions_max: int) -> None:
        self._runtime = runtime
        self._regions_max = regions_max
        #: Table name -> its locations. Read without the lock; entries are added and dropped under it.
        self.tables: dict[bytes, TableLocations] = {}
        self.generation = 0  # grows with each failure, reload and clear; guarded by the lock, and read without it
        self._begin()
        runtime.on_fork(self._begin)

    def _begin(self) -> None:
        """Make a new lock and new counters, here and in a forked child, which keeps the locations."""
        self._lock: Lock = self._runtime.lock()
        # Guarded by the lock, and read without it:
        self._regions = sum(len(known.snapshot.regions) for known in self.tables.values())
        self.evictions = 0
        self._past_hits = 0
        self._past_misses = 0
        for known in self.tables.values():
            known.hits = known.misses = known.swept_hits = 0

    # -- reading, no lock ------------------------------------------------------------------------------------

    def cached(self, table: bytes, row: bytes, replica_id: int = 0) -> RegionLocation | None:
        entry = self.cached_region(table, row)
        return entry.at(replica_id) if entry is not None else None

    def cached_region(self, table: bytes, row: bytes) -> RegionLocations | None:
        known = self.tables.get(table)
        return known.snapshot.covering(row) if known is not None else None

    def cached_region_before(self, table: bytes, row: bytes) -> RegionLocations | None:
        known = self.tables.get(table)
        return known.snapshot.before(row) if known is not None else None

    def failed_generation(self, table: bytes, region: RegionInfo, replica_id: int) -> int:
        """Return the generation of the last failure of this replica; 0 if it did not fail, or was found again since."""
        known = self.tables.get(table)
        failure = known.failed.get((region.start_key, replica_id)) if known is not None else None
        return failure[0] if failure is not None else 0

    def outranks(self, entry: RegionLocations) -> bool:
        """Return True if a newer region with a known place shares rows with this one."""
        known = self.tables.get(entry.region.table)
        if known is None:
            return False
        snapshot = known.snapshot
        first, last = _overlap(snapshot, entry.region)
        return any(_outranks(other, entry) for other in snapshot.regions[first:last])

    def regions_cached(self) -> int:
        return self._regions

    # -- writing ---------------------------------------------------------------------------------------------

    def table(self, table: bytes) -> TableLocations:
        """Return the table's entry, made on first use."""
        known = self.tables.get(table)
        if known is None:
            with self._lock:
                known = self.tables.setdefault(table, TableLocations())
        return known

    def insert(
        self,
        table: bytes,
        regions: Sequence[RegionLocations],
        generation: int | None = None,
        verdict: RegionLocations | None = None,
    ) -> None:
        """Insert an answer of hbase:meta; ``generation`` is the cache's generation when the lookup *started*."""
        known = self.table(table)
        with self._lock:
            if generation is not None and generation < known.cleared:
                return
            fresh = [self._without_failed(known, entry, generation) for entry in regions]
            if verdict is not None:
                verdict = self._without_failed(known, verdict, generation)
            self._swap(known, with_regions(known.snapshot, fresh, verdict))
            if self._regions > self._regions_max:
                self._evict(known, fresh if verdict is None else [*fresh, verdict])
            if len(known.failed) > FAILED_PER_REGION * (len(known.snapshot.regions) + 1):
                starts = set(known.snapshot.starts)
                known.failed = {key: failure for key, failure in known.failed.items() if key[0] in starts}

    def _without_failed(self, known: TableLocations, entry: RegionLocations, generation: int | None) -> RegionLocations:
        if not known.failed:
            return entry
        replicas = list(entry.replicas)
        for replica_id, location in enumerate(replicas):
            failure = known.failed.get((entry.region.start_key, replica_id))
            if failure is None:
                continue
            since, failed = failure
            if generation is None or generation >= since:
                del known.failed[entry.region.start_key, replica_id]
            elif location is not None and _is_same_place(location, failed):
                replicas[replica_id] = None
        return RegionLocations(entry.region, tuple(replicas))

    def forget(self, location: RegionLocation) -> bool:
        """Make this location a hole; return False if it is not cached, or a newer one is."""
        known = self.tables.get(location.region.table)
        if known is None:
            return False
        with self._lock:
            entry = self._holding(known, location)
            if entry is None:
                return False
            self.generation += 1
            known.failed[location.region.start_key, location.replica_id] = (self.generation, location)
            self._swap(known, _replaced(known.snapshot, entry, location.replica_id, None))
            return True

    def moved(self, location: RegionLocation, server: ServerName, seqnum: int) -> bool:
        """Cache the target of a RegionMoved error as a hint; return False if the cached location is newer."""
        known = self.tables.get(location.region.table)
        if known is None:
            return False
        with self._lock:
            entry = self._holding(known, location)
            cached = entry.at(location.replica_id) if entry is not None else None
            if entry is None or cached is None or seqnum < cached.seqnum:
                return False
            hint = RegionLocation(cached.region, server, seqnum, is_hint=True, region_name=cached.region_name)
            self._swap(known, _replaced(known.snapshot, entry, location.replica_id, hint))
            return True

    def _holding(self, known: TableLocations, location: RegionLocation) -> RegionLocations | None:
        """Return the entry whose place of this replica is ``location``, with the same or an older sequence number."""
        entry = known.snapshot.covering(location.region.start_key)
        cached = entry.at(location.replica_id) if entry is not None else None
        return entry if cached is not None and _is_same_place(cached, location) else None

    def confirm(self, location: RegionLocation) -> None:
        """Turn a hint into a location, after a call there succeeded."""
        region = location.region
        known = self.tables.get(region.table)
        if known is None:
            return
        with self._lock:
            entry = known.snapshot.covering(region.start_key)
            if entry is not None and entry.at(region.replica_id) is location:
                fact = replace(location, is_hint=False)
                self._swap(known, _replaced(known.snapshot, entry, region.replica_id, fact))

    def forget_server(self, server: ServerName) -> int:
        """Make holes of all locations on this server; return their number."""
        count = 0
        with self._lock:
            for known in self.tables.values():
                count += self._forget_server_in(known, server)
        return count

    def _forget_server_in(self, known: TableLocations, server: ServerName) -> int:
        snapshot = known.snapshot
        regions = list(snapshot.regions)
        primaries = list(snapshot.primaries)
        lost = 0
        for index, entry in enumerate(regions):
            here = [at for at in entry.replicas if at is not None and at.server == server]
            if here:
                if not lost:
                    self.generation += 1
                lost += len(here)
                for at in here:
                    known.failed[entry.region.start_key, at.replica_id] = (self.generation, at)
                replicas = tuple(None if at in here else at for at in entry.replicas)
                regions[index] = RegionLocations(entry.region, replicas)
                primaries[index] = replicas[0]
        if lost:
            self._swap(known, Snapshot(snapshot.starts, snapshot.ends, primaries, regions))
        return lost

    def bump(self) -> int:
        """Start a new generation: lookups in flight do not answer callers that come from now on."""
        with self._lock:
            self.generation += 1
            return self.generation

    def clear(self, table: bytes | None = None) -> None:
        """Remove all locations of a table, or of all tables; lookups in flight do not bring them back."""
        with self._lock:
            self.generation += 1
            for name in [table] if table is not None else list(self.tables):
                known = self.tables.get(name)
                if known is not None:
                    known.cleared = self.generation
                    known.failed.clear()
                    self._swap(known, EMPTY)

    def drop(self, table: bytes, *, only_if_empty: bool = False) -> None:
        """Remove a table's entry, so that names of tables that do not exist do not pile up."""
        with self._lock:
            known = self.tables.get(table)
            if known is not None and not (only_if_empty and known.snapshot.regions):
                del self.tables[table]
                self._swap(known, EMPTY)
                self._past_hits += known.hits
                self._past_misses += known.misses

    def hits_and_misses(self) -> tuple[int, int]:
        """Return the hits and misses of all tables, also of dropped ones."""
        tables = list(self.tables.values())
        hits = self._past_hits + sum(known.hits for known in tables)
        return hits, self._past_misses + sum(known.misses for known in tables)

    def _swap(self, known: TableLocations, snapshot: Snapshot) -> None:
        self._regions += len(snapshot.regions) - len(known.snapshot.regions)
        known.snapshot = snapshot

    def _evict(self, keep: TableLocations, newest: list[RegionLocations]) -> None:
        """Empty the tables with the fewest reads since the last sweep until the bound holds.

        The table that grew is the last one, and keeps its newest regions: otherwise each further lookup of it would be
        a miss.
        """
        others = [known for known in self.tables.values() if known is not keep and known.snapshot.regions]
        others.sort(key=lambda known: known.hits - known.swept_hits)
        for known in others:
            known.swept_hits = known.hits
        for known in [*others, keep]:
            if self._regions <= self._regions_max:
                return
            before = self._regions
            known.failed.clear()
            self._swap(known, with_regions(EMPTY, newest[-self._regions_max :]) if known is keep else EMPTY)
            self.evictions += before - self._regions

    def take(self, tables: Mapping[bytes, Sequence[RegionLocations]]) -> int:
        """Insert the locations that another process exported; return the number of regions."""
        for name, regions in tables.items():
            self.insert(name, regions)
        return sum(map(len, tables.values()))


def _is_same_place(known: RegionLocation, failed: RegionLocation) -> bool:
    """Return True if a failure may clear the known location: it is the location that was used, not a newer one.

    This is the rule of AsyncRegionLocatorHelper.canUpdateOnError of HBase 3.
    """
    return (
        known.server == failed.server
        and known.seqnum <= failed.seqnum
        and known.region.region_id == failed.region.region_id
    )


def _replaced(snapshot: Snapshot, entry: RegionLocations, replica_id: int, location: RegionLocation | None) -> Snapshot:
    replicas = tuple(location if index == replica_id else at for index, at in enumerate(entry.replicas))
    index = bisect_right(snapshot.starts, entry.region.start_key) - 1
    regions = list(snapshot.regions)
    regions[index] = RegionLocations(entry.region, replicas)
    primaries = list(snapshot.primaries)
    primaries[index] = replicas[0]
    return Snapshot(snapshot.starts, snapshot.ends, primaries, regions)
