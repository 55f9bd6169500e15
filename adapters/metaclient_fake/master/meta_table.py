"""Decides which rows the master writes to hbase:meta, in HBase's format, and sends them to the primary copy.

The master reads and writes the primary only. While the primary is on no server, a writer waits: the
procedure that recovers the primary does not write to meta before.

A table with a replicated family gets barriers, for serial peers: with each open of a primary, and when a region is
split, merged or disabled (:mod:`metaclient_fake.replication.barriers`). They outlive the other columns of a region.

Mirrors RegionStateStore and MetaTableAccessor. DIVERGENCES: a multi-row change is one batch on one region, which is
one entry after the other under one WAL sync; HBase uses a row processor for splits and merges. The master's clock
gives the timestamps, as in HBase, where the clock of the server that has meta does not matter; here it also never gives
one twice, so that a row that is deleted and written again in one millisecond is there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import TypeVar

from metaclient import metarow
from metaclient.backend import Action
from metaclient.errors import ConnectionClosed, Disposition, MetaClientError
from metaclient.model import (
    LATEST_TIMESTAMP,
    META_TABLE,
    Cell,
    CellType,
    Delete,
    FamilyDescriptor,
    Put,
    RegionInfo,
    RegionLocation,
    TableDescriptor,
    TableState,
)
from metaclient_fake.master.region_states import RegionGroup, RegionNode, RegionState
from metaclient_fake.replication.barriers import BARRIER_FAMILY, barrier_column, parent_column
from metaclient_fake.server.barrier_reads import barrier_rows
from metaclient_fake.server.data_calls import DataCalls
from metaclient_fake.server.region_server import RegionServer

__all__ = ["META_INFO", "MetaTable", "meta_descriptor"]

META_INFO = RegionInfo(META_TABLE, region_id=1)
#: The pause of a writer while the primary is on no server.
_PAUSE_S = 0.05
#: Rows of hbase:meta that are sent in one call; HBase's hbase.rpc.rows.warning.threshold.
_BATCH_ROWS = 5000
_ALL_VERSIONS = 0x7FFFFFFF
#: hbase.meta.versions
_META_VERSIONS = 3

Row = tuple[bytes, Mapping[bytes, bytes]]
T = TypeVar("T")


def meta_descriptor(replicas: int) -> TableDescriptor:
    """Return the table itself (FSTableDescriptors.createMetaTableDescriptorBuilder)."""
    families = (
        FamilyDescriptor(b"info", max_versions=_META_VERSIONS, in_memory=True),
        FamilyDescriptor(b"ns", max_versions=_META_VERSIONS, in_memory=True),
        FamilyDescriptor(BARRIER_FAMILY, max_versions=_ALL_VERSIONS, in_memory=True),
        FamilyDescriptor(b"table", max_versions=_META_VERSIONS, in_memory=True),
    )
    return TableDescriptor(META_TABLE, families, region_replication=replicas)


class MetaTable:
    """hbase:meta as the master sees it."""

    def __init__(
        self,
        locate: Callable[[], RegionServer | None],
        call: Callable[[RegionServer, Callable[[], object]], object],
        pause: Callable[[float], None],
        time_ms: Callable[[], int],
        *,
        has_barriers: Callable[[bytes], bool],
    ) -> None:
        self._locate = locate
        self._call = call
        self._pause = pause
        self._time_ms = time_ms
        self._has_barriers = has_barriers
        self._last_ms = 0

    # -- carrying ----------------------------------------------------------------------------------------------

    def write(self, puts: Iterable[Row] = (), deletes: Iterable[Delete] = ()) -> None:
        """Apply the changes at the primary; wait until it is on a server. A repeated write is harmless."""
        stamp = self._last_ms = max(self._time_ms(), self._last_ms + 1)
        operations: list[Put | Delete] = [Put(row, _cells(columns, stamp)) for row, columns in puts]
        operations.extend(_stamped(delete, stamp) for delete in deletes)
        for start in range(0, len(operations), _BATCH_ROWS):
            self._send(operations[start : start + _BATCH_ROWS])

    def _send(self, operations: Sequence[Put | Delete]) -> None:
        while operations:
            server = self._locate()
            if server is None:
                self._pause(_PAUSE_S)
                continue
            place = RegionLocation(META_INFO, server.name)
            actions = [Action(place, operation) for operation in operations]
            outcomes = self._attempt(server, actions)
            operations = [
                operation for operation, outcome in zip(operations, outcomes, strict=True) if _must_repeat(outcome)
            ]
            if operations:
                self._pause(_PAUSE_S)

    def _attempt(self, server: RegionServer, actions: Sequence[Action]) -> Sequence[object]:
        try:
            outcomes = self._call(server, lambda: server.calls.batch(actions))
        except ConnectionClosed:
            raise
        except MetaClientError as error:
            return [error] * len(actions)
        assert isinstance(outcomes, list)
        return outcomes

    def read(self, function: Callable[[DataCalls], T]) -> T:
        """Return what a function reads at the primary; wait until it is on a server."""
        while True:
            server = self._locate()
            if server is not None:
                found: list[T] = []
                try:
                    self._call(server, partial(_collect, found, function, server.calls))
                except ConnectionClosed:
                    raise
                except MetaClientError as error:
                    _must_repeat(error)
                else:
                    return found[0]
            self._pause(_PAUSE_S)

    # -- tables ------------------------------------------------------------------------------------------------

    def set_table_state(self, table: bytes, state: TableState) -> None:
        self.write([(table, {b"table:state": metarow.encode_table_state(state)})])

    def delete_table_state(self, table: bytes) -> None:
        self.write(deletes=[Delete(table)])

    def add_namespace(self, name: bytes) -> None:
        """Write a NamespaceDescriptor{1 name}, without PBUF prefix."""
        self.write([(name, {b"ns:d": b"\x0a" + bytes([len(name)]) + name})])

    def delete_namespace(self, name: bytes) -> None:
        self.write(deletes=[Delete(name)])

    # -- regions -----------------------------------------------------------------------------------------------

    def add_regions(self, groups: Iterable[RegionGroup]) -> None:
        """Write the rows of new regions: closed, with an empty location per secondary, so that clients count them."""
        self.write(new_row(group) for group in groups)

    def set_opening(self, nodes: Iterable[RegionNode]) -> None:
        self.write(opening_row(node) for node in nodes)

    def set_open(self, nodes: Iterable[RegionNode]) -> None:
        self.write(open_row(node, has_barrier=self._has_barriers(node.info.table)) for node in nodes)

    def add_barriers(self, barriers: Iterable[tuple[RegionGroup, int]]) -> None:
        """Write a barrier per region: a table is disabled."""
        self.write((group.primary.name, barrier_column(barrier)) for group, barrier in barriers)

    def set_state(self, nodes: Iterable[RegionNode], state: RegionState) -> None:
        """Write the state only: the location of a region stays in its row while it is closed or moving."""
        self.write((_row(node), {_column(b"state", node): state.value.encode()}) for node in nodes)

    def delete_regions(self, groups: Iterable[RegionGroup]) -> None:
        """Delete the rows of regions, but for their barriers: a serial peer may still need them."""
        self.write(deletes=[_family_deleted(group.primary.name, b"info") for group in groups])

    def delete_barriers_up_to(self, row: bytes, timestamp: int) -> None:
        """Delete the cells of the family rep_barrier up to a timestamp."""
        self._send([_family_deleted(row, BARRIER_FAMILY, timestamp)])

    def delete_barriers_of(self, row: bytes) -> None:
        """Delete the whole family rep_barrier of a row."""
        self.write(deletes=[_family_deleted(row, BARRIER_FAMILY)])

    def delete_barriers(self, table: bytes) -> None:
        """Delete what is left of a dropped table: barriers of its regions, also of those that were split or merged."""
        if self._has_barriers(table):
            self.write(deletes=[Delete(row) for row in self.barrier_rows(table)])

    def barrier_rows(self, table: bytes) -> list[bytes]:
        """Return the names of all regions of a table that have barriers, also of regions that are gone."""
        return self.read(lambda calls: barrier_rows(calls, table))

    def delete_replicas(self, nodes: Iterable[RegionNode]) -> None:
        """Delete the columns of secondaries (the table has fewer copies now)."""
        self.write(deletes=[_replica_columns_deleted(node) for node in nodes])

    def add_replicas(self, nodes: Iterable[RegionNode]) -> None:
        """Write empty locations for new secondaries."""
        self.write((_row(node), metarow.location_columns(node.info.replica_id, None, None)) for node in nodes)

    def split(self, parent: RegionGroup, left: RegionGroup, right: RegionGroup, barrier: int | None) -> None:
        """Write a split: the parent goes offline and names its daughters; the daughters' rows are added.

        ``barrier`` ends the last range of the parent; None if it has no barriers, or was never written.
        """
        info = replace(parent.info, is_offline=True, is_split_parent=True)
        columns = {
            b"info:regioninfo": metarow.encode_region_info(info),
            b"info:state": RegionState.SPLIT.value.encode(),
            b"info:splitA": metarow.encode_region_info(left.info),
            b"info:splitB": metarow.encode_region_info(right.info),
        }
        origin: dict[bytes, bytes] = {}
        if barrier is not None:
            columns.update(barrier_column(barrier))
            origin = parent_column([parent.primary.name])
        daughters = [(row, {**cells, **origin}) for row, cells in (new_row(left), new_row(right))]
        self.write([(parent.primary.name, columns), *daughters])

    def merge(self, parents: Sequence[RegionGroup], merged: RegionGroup, barriers: Sequence[int | None]) -> None:
        """Write a merge: the merged region's row names its parents; the parents' rows keep only their barriers.

        ``barriers`` end the last ranges of the parents, as in :meth:`split`.
        """
        row, columns = new_row(merged)
        lineage = {
            b"info:merge%04d" % number: metarow.encode_region_info(parent.info) for number, parent in enumerate(parents)
        }
        ended = [
            (parent.primary.name, barrier_column(barrier))
            for parent, barrier in zip(parents, barriers, strict=True)
            if barrier is not None
        ]
        origin = parent_column([name for name, _ in ended]) if ended else {}
        self.write(
            [(row, {**columns, **lineage, **origin}), *ended],
            [_family_deleted(parent.primary.name, b"info") for parent in parents],
        )


# -- rows ------------------------------------------------------------------------------------------------------


def _row(node: RegionNode) -> bytes:
    """Return the row of a region: the name of its primary."""
    return node.info.replica(0).name if node.info.replica_id else node.name


def _column(name: bytes, node: RegionNode) -> bytes:
    replica_id = node.info.replica_id
    return b"info:" + name + (b"_%04X" % replica_id if replica_id else b"")


def new_row(group: RegionGroup) -> Row:
    columns: dict[bytes, bytes] = {
        b"info:regioninfo": metarow.encode_region_info(group.info),
        b"info:state": RegionState.CLOSED.value.encode(),
    }
    for node in group.nodes[1:]:
        columns.update(metarow.location_columns(node.info.replica_id, None, None))
    return group.primary.name, columns


def opening_row(node: RegionNode) -> Row:
    return _row(node), {
        _column(b"state", node): RegionState.OPENING.value.encode(),
        _column(b"sn", node): str(node.server).encode(),
    }


def open_row(node: RegionNode, *, has_barrier: bool) -> Row:
    columns = metarow.location_columns(node.info.replica_id, node.server, node.seqnum, RegionState.OPEN.value)
    columns[_column(b"sn", node)] = str(node.server).encode()
    if has_barrier and not node.info.replica_id:
        columns.update(barrier_column(node.seqnum))
    return _row(node), columns


def _family_deleted(row: bytes, family: bytes, timestamp: int = LATEST_TIMESTAMP) -> Delete:
    return Delete(row, (Cell(family + b":", timestamp, b"", CellType.DELETE_FAMILY),))


def _replica_columns_deleted(node: RegionNode) -> Delete:
    names = (b"server", b"serverstartcode", b"seqnumDuringOpen", b"sn", b"state")
    cells = tuple(Cell(_column(name, node), LATEST_TIMESTAMP, b"", CellType.DELETE_COLUMN) for name in sorted(names))
    return Delete(_row(node), cells)


def _cells(columns: Mapping[bytes, bytes], stamp: int) -> tuple[Cell, ...]:
    return tuple(Cell(column, stamp, value) for column, value in sorted(columns.items()))


def _stamped(delete: Delete, stamp: int) -> Delete:
    cells = tuple(cell._replace(timestamp=stamp) for cell in delete.cells)
    return replace(delete, cells=cells, timestamp=stamp)


def _collect(found: list[T], function: Callable[[DataCalls], T], calls: DataCalls) -> None:
    found.append(function(calls))


def _must_repeat(outcome: object) -> bool:
    if isinstance(outcome, MetaClientError):
        if outcome.disposition is Disposition.FATAL:
            raise outcome
        return True
    return False
