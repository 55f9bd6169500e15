"""The cluster of a scripted backend: tables, regions on servers, and rows of hbase:meta in HBase's format."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

from metaclient import keys, metarow
from metaclient.backend import Action, MetaPage, MetaRow, MetaScan, Outcome
from metaclient.errors import (
    MetaClientError,
    NotServingRegion,
    RequestRefused,
    TableDisabled,
    TableExists,
    TableNotDisabled,
    TableNotFound,
    WrongRegion,
)
from metaclient.model import (
    FamilyDescriptor,
    Get,
    MetaReplica,
    Mutation,
    RegionInfo,
    RegionLocation,
    RegionLocations,
    Result,
    ServerName,
    TableDescriptor,
    TableState,
)
from metaclient.runtime import Runtime
from metaclient.testing.rows import TableRows

__all__ = ["ScriptedCluster", "is_stale"]

#: Versions that families of :meth:`ScriptedCluster.add_table` keep: the default of happybase and the Thrift gateway.
VERSIONS_MAX = 3


@dataclass(slots=True)
class _ScriptedTable:
    descriptor: TableDescriptor
    regions: list[RegionLocations]
    rows: TableRows
    state: TableState = TableState.ENABLED


@dataclass(frozen=True, slots=True)
class _Meta:
    """All rows of hbase:meta in HBase's order, and their sort keys; immutable."""

    rows: list[MetaRow]
    order: list[tuple[bytes, bool, bytes, bytes]]


class ScriptedCluster:
    """A small correct cluster: regions on servers, hbase:meta, and HBase's errors."""

    def __init__(self, runtime: Runtime, *, servers: int, meta_replicas: int) -> None:
        self.runtime: Runtime = runtime
        self.servers = [ServerName(f"rs{number}.example.com", 16020, 1000 + number) for number in range(servers)]
        self.registry = [MetaReplica(number, self.servers[number % servers]) for number in range(meta_replicas)]
        self._lock = runtime.lock()
        # The fields below are guarded by ``_lock``.
        self._tables: dict[bytes, _ScriptedTable] = {}
        self._meta: _Meta | None = None  # None: it has changed and is built at the next read
        self._frozen: dict[int, _Meta] = {}
        self._parents: list[MetaRow] = []
        self._next_id = 1_600_000_000_000
        self._last_write_ms = 0
        self._dead: set[ServerName] = set()

    def add_table(
        self,
        name: bytes | str,
        families: Iterable[bytes] = (b"cf",),
        *,
        splits: Sequence[bytes] = (),
        region_replication: int = 1,
    ) -> None:
        """Create a table without a call of the SPI; its families keep ``VERSIONS_MAX`` versions."""
        table = keys.table_name(name)
        made = tuple(FamilyDescriptor(family, VERSIONS_MAX) for family in families)
        self._create(TableDescriptor(table, made, region_replication), splits)

    def _create(self, descriptor: TableDescriptor, splits: Sequence[bytes]) -> None:
        with self._lock:
            if descriptor.name in self._tables:
                raise TableExists(f"table {keys.printable(descriptor.name)!r} already exists")
            bounds = [b"", *sorted(set(splits)), b""]
            self._next_id += 1
            region_id = self._next_id
            regions = [
                self._placed(RegionInfo(descriptor.name, start, end, region_id), number, descriptor.region_replication)
                for number, (start, end) in enumerate(pairwise(bounds))
            ]
            self._tables[descriptor.name] = _ScriptedTable(descriptor, regions, TableRows(descriptor))
            self._meta = None

    def _placed(self, info: RegionInfo, number: int, replicas: int) -> RegionLocations:
        return RegionLocations(
            info,
            tuple(
                RegionLocation(info.replica(replica), self.servers[(number + replica) % len(self.servers)], 2)
                for replica in range(replicas)
            ),
        )

    def region_of(self, table: bytes, row: bytes) -> RegionLocations:
        with self._lock:
            return self._region_of(self._table(table), row)

    def move(self, table: bytes, row: bytes, server: ServerName, *, replica_id: int = 0) -> RegionLocation:
        """Move a region replica: hbase:meta changes at once, the caches of clients do not."""
        with self._lock:
            known = self._table(table)
            entry = self._region_of(known, row)
            at = entry.replicas[replica_id]
            seqnum = at.seqnum + 10 if at is not None else 10
            moved = RegionLocation(entry.region.replica(replica_id), server, seqnum)
            replicas = tuple(moved if index == replica_id else old for index, old in enumerate(entry.replicas))
            known.regions[known.regions.index(entry)] = RegionLocations(entry.region, replicas)
            self._meta = None
            return moved

    def unplace(self, table: bytes, row: bytes, *, replica_id: int = 0) -> None:
        """Take a region replica off its server: hbase:meta has the region, without a server."""
        with self._lock:
            known = self._table(table)
            entry = self._region_of(known, row)
            replicas = tuple(None if index == replica_id else old for index, old in enumerate(entry.replicas))
            known.regions[known.regions.index(entry)] = RegionLocations(entry.region, replicas)
            self._meta = None

    def split(self, table: bytes, at: bytes, *, keeps_parent: bool = False) -> None:
        """Split the region of ``at`` there; ``keeps_parent``: its row stays, as before the catalog janitor runs."""
        with self._lock:
            known = self._table(table)
            entry = self._region_of(known, at)
            index = known.regions.index(entry)
            self._next_id += 1
            bounds = ((entry.region.start_key, at), (at, entry.region.end_key))
            if keeps_parent:
                parent = RegionLocations(replace(entry.region, is_offline=True, is_split_parent=True), entry.replicas)
                self._parents.append(MetaRow(entry.region.name, metarow.region_columns(parent, "CLOSED")))
            known.regions[index : index + 1] = [
                self._placed(RegionInfo(table, start, end, self._next_id), index + number, len(entry.replicas))
                for number, (start, end) in enumerate(bounds)
            ]
            self._meta = None

    def merge(self, table: bytes, first_row: bytes, last_row: bytes) -> None:
        """Merge the regions from the one of ``first_row`` to the one of ``last_row``."""
        with self._lock:
            known = self._table(table)
            first = known.regions.index(self._region_of(known, first_row))
            last = known.regions.index(self._region_of(known, last_row))
            self._next_id += 1
            bounds = known.regions[first].region.start_key, known.regions[last].region.end_key
            info = RegionInfo(table, *bounds, region_id=self._next_id)
            known.regions[first : last + 1] = [self._placed(info, first, len(known.regions[first].replicas))]
            self._meta = None

    def kill(self, server: ServerName) -> None:
        """Refuse connections to this server from now on; hbase:meta does not change."""
        self._dead.add(server)

    def revive(self, server: ServerName) -> None:
        self._dead.discard(server)

    # -- hbase:meta ---------------------------------------------------------------------------------------------------

    def freeze_meta(self, replica_id: int) -> None:
        """Make this meta replica lag: from now on it returns hbase:meta as it is at this moment."""
        with self._lock:
            self._frozen[replica_id] = self._meta_rows()

    def true_page(self, scan: MetaScan) -> MetaPage:
        """Return the page that the primary would return, for rules that change the page."""
        with self._lock:
            return MetaPage(tuple(_page_of(self._meta_rows(), scan)))

    def _meta_page(self, replica: MetaReplica, scan: MetaScan) -> MetaPage:
        with self._lock:
            frozen = self._frozen.get(replica.replica_id)
            rows = self._meta_rows() if frozen is None else frozen
            return MetaPage(tuple(_page_of(rows, scan)), is_stale=replica.replica_id != 0)

    def _meta_rows(self) -> _Meta:
        if self._meta is None:
            rows = [
                MetaRow(entry.region.name, metarow.region_columns(entry))
                for table in self._tables.values()
                for entry in table.regions
            ]
            rows += self._parents
            rows += [
                MetaRow(name, {b"table:state": metarow.encode_table_state(table.state)})
                for name, table in self._tables.items()
            ]
            rows.sort(key=lambda row: keys.meta_sort_key(row.row))
            self._meta = _Meta(rows, [keys.meta_sort_key(row.row) for row in rows])
        return self._meta

    def _outcome(self, table: bytes, action: Action) -> Outcome:
        """Return the result of one action of a batch, or its error."""
        operation = action.operation
        try:
            with self._lock:
                known = self._served(action.place, table, operation.row, is_write=not isinstance(operation, Get))
                if isinstance(operation, Get):
                    return self._read(known, operation, action.place)
                return self._write(known, operation)
        except MetaClientError as error:
            return error

    # -- under the lock -----------------------------------------------------------------------------------------------

    def _table(self, name: bytes) -> _ScriptedTable:
        known = self._tables.get(name)
        if known is None:
            raise TableNotFound(f"table {keys.printable(name)!r} does not exist")
        return known

    def _table_at(self, place: RegionLocation | None, name: bytes) -> _ScriptedTable:
        """Return the table. A region server has no list of tables: for it, an unknown table is a region not online."""
        if place is not None and name not in self._tables:
            raise NotServingRegion(f"{keys.printable(place.region_name)} is not online on {place.server}")
        return self._table(name)

    def _region_of(self, known: _ScriptedTable, row: bytes) -> RegionLocations:
        return known.regions[bisect_right(known.regions, row, key=lambda entry: entry.region.start_key) - 1]

    def _served(self, place: RegionLocation | None, table: bytes, row: bytes, is_write: bool = False) -> _ScriptedTable:
        known = self._table_at(place, table)
        if place is None:
            if known.state is not TableState.ENABLED:
                raise TableDisabled(f"table {keys.printable(table)!r} is disabled")
            return known
        self._check_place(known, place, row)
        if is_write and place.replica_id != 0:
            raise RequestRefused("region is read only: it is a secondary")
        return known

    def _check_place(self, known: _ScriptedTable, place: RegionLocation, row: bytes | None) -> None:
        entry = self._region_of(known, place.region.start_key)
        at = entry.at(place.replica_id)
        is_here = at is not None and at.server == place.server and entry.region.region_id == place.region.region_id
        if not is_here or known.state is not TableState.ENABLED:
            raise NotServingRegion(f"{keys.printable(place.region_name)} is not online on {place.server}")
        if row is not None and not place.region.contains(row):
            raise WrongRegion(f"row {keys.printable(row)!r} is not in {keys.printable(place.region_name)}")

    def _read(self, known: _ScriptedTable, get: Get, place: RegionLocation | None) -> Result:
        return known.rows.get(get, self.runtime.time_ms(), is_stale=is_stale(place))

    def _write(self, known: _ScriptedTable, mutation: Mutation) -> Result | None:
        return known.rows.mutate(mutation, self._write_ms())

    def _write_ms(self) -> int:
        """Return the servers' time, at least a millisecond later than that of the last write.

        Virtual time does not move between calls. Without this, a delete would hide the puts that come after it.
        """
        self._last_write_ms = max(self.runtime.time_ms(), self._last_write_ms + 1)
        return self._last_write_ms

    # -- admin --------------------------------------------------------------------------------------------------------

    def _delete(self, table: bytes) -> None:
        with self._lock:
            if self._table(table).state is not TableState.DISABLED:
                raise TableNotDisabled(f"table {keys.printable(table)!r} must be disabled before it is deleted")
            del self._tables[table]
            self._parents = [row for row in self._parents if not row.row.startswith(table + b",")]
            self._meta = None

    def _set_state(self, table: bytes, state: TableState) -> None:
        with self._lock:
            if self._table(table).state is state:
                kind = TableNotDisabled if state is TableState.ENABLED else TableDisabled
                raise kind(f"table {keys.printable(table)!r} is {state.name} already")
            self._table(table).state = state
            self._meta = None


def _page_of(meta: _Meta, scan: MetaScan) -> Iterable[MetaRow]:
    """Yield the rows between both ends, in the scan's direction, at most ``limit``, with the requested families."""
    low, high = (scan.stop_row, scan.start_row) if scan.is_reversed else (scan.start_row, scan.stop_row)
    rows = meta.rows
    first = bisect_left(meta.order, keys.meta_sort_key(low)) if low else 0
    last = bisect_right(meta.order, keys.meta_sort_key(high)) if high else len(rows)
    chosen = range(first, last)
    found = 0
    for index in reversed(chosen) if scan.is_reversed else chosen:
        if found == scan.limit:
            return
        columns = {
            name: value for name, value in rows[index].columns.items() if name.partition(b":")[0] in scan.families
        }
        if columns:
            found += 1
            yield MetaRow(rows[index].row, columns)


def is_stale(place: RegionLocation | None) -> bool:
    """Return True if results of this place are marked stale: it is a secondary."""
    return place is not None and place.replica_id != 0
