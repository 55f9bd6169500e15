"""Stores where regions are: one immutable sorted snapshot per table, read without a lock.

A reader takes the snapshot once and does a floor search in it (a *cached* lookup is memory and costs about a
microsecond). A writer builds the next snapshot under the cache's lock and swaps one reference.

Rules of insertion (``with_regions``):

1. Same start key, same region id: merge replica by replica. The incoming location wins when its sequence number is
   not older; a hole never erases what is known; the length is the longer of both. (Java loses replicas here in three
   ways, because it compares encoded names of different replicas and takes the incoming length.)
2. Otherwise regions that overlap exclude each other, and the highest region id stays: HBase gives daughters, merged
   regions and re-created tables a later id. So an old answer cannot bring back a split parent, and a daughter drops
   its parent whichever of the two was asked for. A region all of whose locations have failed outranks nobody.

Rules of forgetting:

3. A failed location becomes a hole; the range stays known, so that the next lookup of any of its rows is one flight.
4. The failure bumps the table's generation. Answers of lookups that started before it cannot bring the failed
   location back.

The number of regions is bounded: when it is exceeded, the tables that were not read since the last sweep go first
(a clock, because moving a table to the front of a list at every read would cost more than the read).

DIVERGENCES from AsyncNonMetaRegionLocator (HBase 3): rules 1, 2 and 4; entries are never removed one by one, only made
holes; the cache is bounded.
"""

from __future__ import annotations

import json
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from metaclient import keys
from metaclient.errors import ConfigError
from metaclient.model import RegionInfo, RegionLocation, RegionLocations, ServerName
from metaclient.runtime import Lock, Runtime

__all__ = ["LocationCache", "Snapshot", "TableLocations", "merged", "with_regions"]


@dataclass(frozen=True, slots=True)
class Snapshot:
    """Regions of one table in the order of their start keys, as parallel lists; never changed once made."""

    starts: list[bytes]
    ends: list[bytes]
    primaries: list[RegionLocation | None]
    regions: list[RegionLocations]

    def covering(self, row: bytes) -> RegionLocations | None:
        """The region that contains ``row``."""
        index = bisect_right(self.starts, row) - 1
        if index < 0:
            return None
        end = self.ends[index]
        return self.regions[index] if not end or row < end else None

    def before(self, row: bytes) -> RegionLocations | None:
        """The region that ends at or contains what lies just before ``row``; ``b""`` = the last region."""
        index = (len(self.starts) if not row else bisect_left(self.starts, row)) - 1
        if index < 0:
            return None
        end = self.ends[index]
        covers = not end or (row and end >= row)
        return self.regions[index] if covers else None

    def gap(self, row: bytes) -> tuple[bytes, bytes]:
        """The widest range around ``row`` of which nothing is known; a known region's own range otherwise."""
        index = bisect_right(self.starts, row)
        if index and keys.contains(self.starts[index - 1], self.ends[index - 1], row):
            return self.starts[index - 1], self.ends[index - 1]
        start = self.ends[index - 1] if index else b""
        return start, self.starts[index] if index < len(self.starts) else b""


EMPTY = Snapshot([], [], [], [])


def _snapshot(regions: list[RegionLocations]) -> Snapshot:
    return Snapshot(
        [entry.region.start_key for entry in regions],
        [entry.region.end_key for entry in regions],
        [entry.primary for entry in regions],
        regions,
    )


def merged(old: RegionLocations, new: RegionLocations) -> RegionLocations:
    """Both answers about one region, replica by replica; ``old`` itself when nothing changes."""
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
    if new.seqnum >= old.seqnum or new.seqnum < 0:
        return new
    return old


def with_regions(snapshot: Snapshot, incoming: Iterable[RegionLocations]) -> Snapshot:
    """The snapshot after an answer; the same object when the answer says nothing new."""
    regions = list(snapshot.regions)
    starts = list(snapshot.starts)
    changed = False
    for entry in incoming:
        first, last = _overlap(starts, regions, entry.region)
        present = regions[first:last]
        if len(present) == 1 and _same_region(present[0], entry):
            entry = merged(present[0], entry)
            if entry is present[0]:
                continue
        elif any(_outranks(other, entry) for other in present):
            continue
        regions[first:last] = [entry]
        starts[first:last] = [entry.region.start_key]
        changed = True
    return _snapshot(regions) if changed else snapshot


def _overlap(starts: list[bytes], regions: list[RegionLocations], region: RegionInfo) -> tuple[int, int]:
    """The slice of known regions that share rows with ``region``."""
    first = bisect_right(starts, region.start_key)
    if first and keys.overlaps(
        regions[first - 1].region.start_key, regions[first - 1].region.end_key, region.start_key, region.end_key
    ):
        first -= 1
    last = len(starts) if not region.end_key else bisect_left(starts, region.end_key)
    return first, max(first, last)


def _same_region(a: RegionLocations, b: RegionLocations) -> bool:
    return a.region.start_key == b.region.start_key and a.region.region_id == b.region.region_id


def _outranks(known: RegionLocations, incoming: RegionLocations) -> bool:
    return known.region.region_id > incoming.region.region_id and any(
        location is not None and not location.is_hint for location in known.replicas
    )


class TableLocations:
    """What is known of one table. ``snapshot`` is swapped, never changed; the rest is guarded by the cache's lock."""

    __slots__ = ("failed", "generation", "hits", "misses", "snapshot", "swept_hits")

    def __init__(self) -> None:
        self.snapshot = EMPTY
        # Plain additions: CPython does not switch threads inside one, so nothing is lost, and a lock would cost
        # more than the lookup that is counted.
        self.hits = 0
        self.misses = 0
        self.swept_hits = 0
        self.generation = 0
        # (start key, replica id) -> generation and location of the failure, for rule 4.
        self.failed: dict[tuple[bytes, int], tuple[int, RegionLocation]] = {}


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
        self._regions_max = regions_max
        #: Table name -> what is known. Read without a lock; entries are added and dropped under it.
        self.tables: dict[bytes, TableLocations] = {}
        self._lock: Lock = runtime.lock()
        # Guarded by the lock:
        self._regions = 0
        self.evictions = 0

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

    def gap(self, table: bytes, row: bytes) -> tuple[bytes, bytes]:
        known = self.tables.get(table)
        return known.snapshot.gap(row) if known is not None else (b"", b"")

    def generation(self, table: bytes) -> int:
        known = self.tables.get(table)
        return known.generation if known is not None else 0

    def regions_cached(self) -> int:
        return self._regions

    # -- writing ---------------------------------------------------------------------------------------------

    def table(self, table: bytes) -> TableLocations:
        """The table's entry, made on first use."""
        known = self.tables.get(table)
        if known is None:
            with self._lock:
                known = self.tables.setdefault(table, TableLocations())
        return known

    def insert(self, table: bytes, regions: Sequence[RegionLocations], generation: int | None = None) -> None:
        """Take in an answer of hbase:meta. ``generation`` is the table's at the time when the lookup *started*."""
        known = self.table(table)
        with self._lock:
            fresh = [self._without_failed(known, entry, generation) for entry in regions]
            self._swap(known, with_regions(known.snapshot, fresh))
            self._evict(known)

    def _without_failed(self, known: TableLocations, entry: RegionLocations, generation: int | None) -> RegionLocations:
        if not known.failed:
            return entry
        replicas = list(entry.replicas)
        for replica_id, location in enumerate(replicas):
            failure = known.failed.get((entry.region.start_key, replica_id))
            if failure is None:
                continue
            since, failed = failure
            if generation is not None and generation < since:
                if location is not None and location.server == failed.server and location.seqnum <= failed.seqnum:
                    replicas[replica_id] = None
            else:
                del known.failed[entry.region.start_key, replica_id]
        return RegionLocations(entry.region, tuple(replicas))

    def forget(self, location: RegionLocation) -> bool:
        """Make a hole where this location is cached; False when the cache has moved on already."""
        region = location.region
        known = self.tables.get(region.table)
        if known is None:
            return False
        with self._lock:
            entry = known.snapshot.covering(region.start_key)
            cached = entry.at(region.replica_id) if entry is not None else None
            if entry is None or cached is None or not _is_the_failed_one(cached, location):
                return False
            known.generation += 1
            known.failed[region.start_key, region.replica_id] = (known.generation, location)
            self._swap(known, _replaced(known.snapshot, entry, region.replica_id, None))
            return True

    def moved(self, location: RegionLocation, server: ServerName, seqnum: int) -> bool:
        """Follow a RegionMoved error without a lookup; False when what is cached is newer."""
        region = location.region
        known = self.tables.get(region.table)
        if known is None:
            return False
        with self._lock:
            entry = known.snapshot.covering(region.start_key)
            cached = entry.at(region.replica_id) if entry is not None else None
            if entry is None or cached is None or not _is_the_failed_one(cached, location) or seqnum < cached.seqnum:
                return False
            hint = RegionLocation(cached.region, server, seqnum, is_hint=True, region_name=cached.region_name)
            self._swap(known, _replaced(known.snapshot, entry, region.replica_id, hint))
            return True

    def confirm(self, location: RegionLocation) -> None:
        """A call at a hinted location worked: it is a fact now."""
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
        """Make holes of everything that was on this server; how many there were."""
        count = 0
        with self._lock:
            for known in self.tables.values():
                count += self._forget_server_in(known, server)
        return count

    def _forget_server_in(self, known: TableLocations, server: ServerName) -> int:
        lost = [
            location
            for entry in known.snapshot.regions
            for location in entry.replicas
            if location is not None and location.server == server
        ]
        if not lost:
            return 0
        known.generation += 1
        for location in lost:
            known.failed[location.region.start_key, location.replica_id] = (known.generation, location)
        self._swap(
            known,
            _snapshot(
                [
                    RegionLocations(
                        entry.region,
                        tuple(None if at is not None and at.server == server else at for at in entry.replicas),
                    )
                    for entry in known.snapshot.regions
                ]
            ),
        )
        return len(lost)

    def bump(self, table: bytes) -> int:
        """Start a new generation: lookups in flight will not satisfy whoever asks from now on."""
        known = self.table(table)
        with self._lock:
            known.generation += 1
            return known.generation

    def clear(self, table: bytes | None = None) -> None:
        with self._lock:
            for name in [table] if table is not None else list(self.tables):
                known = self.tables.get(name)
                if known is not None:
                    known.generation += 1
                    known.failed.clear()
                    self._swap(known, EMPTY)

    def drop(self, table: bytes) -> None:
        """Forget that there ever was such a table, so that names that nobody has do not pile up."""
        with self._lock:
            known = self.tables.pop(table, None)
            if known is not None:
                self._swap(known, EMPTY)

    def _swap(self, known: TableLocations, snapshot: Snapshot) -> None:
        self._regions += len(snapshot.regions) - len(known.snapshot.regions)
        known.snapshot = snapshot

    def _evict(self, keep: TableLocations) -> None:
        """Drop tables nobody read since the last sweep, then any, until the bound holds; ``keep`` goes last."""
        if self._regions <= self._regions_max:
            return
        others = [known for known in self.tables.values() if known is not keep and known.snapshot.regions]
        others.sort(key=lambda known: known.hits - known.swept_hits)
        for known in others:
            known.swept_hits = known.hits
        for known in [*others, keep]:
            if self._regions <= self._regions_max:
                return
            self.evictions += len(known.snapshot.regions)
            self._swap(known, EMPTY)
            known.failed.clear()

    # -- shipping it -----------------------------------------------------------------------------------------

    def exported(self, tables: Sequence[bytes]) -> bytes:
        """The locations of these tables (all when empty) as bytes for :meth:`imported`."""
        chosen = tables or tuple(self.tables)
        return json.dumps(
            {
                "format": 1,
                "tables": {
                    name.decode("utf-8"): [_as_json(entry) for entry in self.tables[name].snapshot.regions]
                    for name in chosen
                    if name in self.tables
                },
            },
            separators=(",", ":"),
        ).encode()

    def imported(self, data: bytes) -> int:
        """Take in what :meth:`exported` made, in this process or another; how many regions it held."""
        try:
            document = json.loads(data)
            if document["format"] != 1:
                raise ConfigError(f"these locations have format {document['format']!r}; this version reads 1")
            tables = {
                name.encode(): [_from_json(name.encode(), entry) for entry in entries]
                for name, entries in document["tables"].items()
            }
        except (ValueError, KeyError, TypeError, IndexError, AttributeError) as error:
            if isinstance(error, ConfigError):
                raise
            raise ConfigError(f"not a set of exported locations: {type(error).__name__}: {error}") from error
        for name, regions in tables.items():
            self.insert(name, regions)
        return sum(map(len, tables.values()))


def _is_the_failed_one(cached: RegionLocation, failed: RegionLocation) -> bool:
    """Java's rule: only the location that was used may be cleared by its failure, never a newer one."""
    return cached.server == failed.server and cached.seqnum <= failed.seqnum


def _replaced(snapshot: Snapshot, entry: RegionLocations, replica_id: int, location: RegionLocation | None) -> Snapshot:
    replicas = tuple(location if index == replica_id else at for index, at in enumerate(entry.replicas))
    index = bisect_right(snapshot.starts, entry.region.start_key) - 1
    regions = list(snapshot.regions)
    regions[index] = RegionLocations(entry.region, replicas)
    primaries = list(snapshot.primaries)
    primaries[index] = replicas[0]
    return Snapshot(snapshot.starts, snapshot.ends, primaries, regions)


def _as_json(entry: RegionLocations) -> list[object]:
    region = entry.region
    servers = [[*at.server, at.seqnum] if at is not None else None for at in entry.replicas]
    return [region.start_key.hex(), region.end_key.hex(), region.region_id, servers]


def _from_json(table: bytes, data: Sequence[object]) -> RegionLocations:
    start, end, region_id, servers = data
    if not (isinstance(start, str) and isinstance(end, str) and isinstance(region_id, int)):
        raise TypeError(f"a region is [start, end, id, servers], got {data!r}")
    if not isinstance(servers, list):
        raise TypeError(f"servers of a region must be a list, got {servers!r}")
    region = RegionInfo(table, bytes.fromhex(start), bytes.fromhex(end), region_id)
    replicas = tuple(
        RegionLocation(region.replica(index), ServerName(str(at[0]), int(at[1]), int(at[2])), int(at[3]))
        if at is not None
        else None
        for index, at in enumerate(servers)
    )
    return RegionLocations(region, replicas)
