"""Decides the steps of every change to a table: create, alter, truncate, enable, disable, drop.

Each is a function that the master runs under its procedure lock. Mirrors the classes of the same name in
``master/procedure``. A step writes to hbase:meta before the servers execute it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise

from metaclient import keys
from metaclient.errors import RequestRefused, TableNotDisabled
from metaclient.model import META_TABLE, RegionInfo, ServerName, TableDescriptor, TableState
from metaclient_fake.master.barrier_rows import end_barrier
from metaclient_fake.master.master import Master, TableRecord
from metaclient_fake.master.region_states import RegionGroup, RegionNode
from metaclient_fake.replication.barriers import NO_SEQUENCE_ID

__all__ = ["alter", "create", "delete", "disable", "enable", "truncate"]

_INSANE = "org.apache.hadoop.hbase.DoNotRetryIOException"


def create(master: Master, descriptor: TableDescriptor, splits: Sequence[bytes]) -> None:
    """CreateTableProcedure: rows in meta, then ENABLING, regions open, ENABLED."""
    master.check_new(descriptor.name)
    _check_descriptor(descriptor)
    borders = _checked_splits(splits)
    region_id = master.runtime.time_ms()
    groups = [
        RegionGroup(RegionInfo(descriptor.name, start, end, region_id), descriptor.region_replication)
        for start, end in zip([b"", *borders], [*borders, b""], strict=True)
    ]
    master.tables[descriptor.name] = TableRecord(descriptor, TableState.ENABLING)
    with master.lock:
        master.states.add_table(descriptor.name, groups)
    master.meta.set_table_state(descriptor.name, TableState.ENABLING)
    master.meta.add_regions(groups)
    master.assignment.assign(node for group in groups for node in group.nodes)
    master.set_table_state(descriptor.name, TableState.ENABLED)


def delete(master: Master, table: bytes) -> None:
    """DeleteTableProcedure: only a disabled table; its files go to the archive."""
    master.check_disabled(table)
    _delete_regions(master, table)
    master.meta.delete_barriers(table)
    master.meta.delete_table_state(table)
    del master.tables[table]


def truncate(master: Master, table: bytes, *, preserve_splits: bool = False) -> None:
    """TruncateTableProcedure: drop and create again, empty and enabled."""
    record = master.check_disabled(table)
    starts = [group.start_key for group in master.states.table(table)]
    delete(master, table)
    create(master, record.descriptor, [start for start in starts if start] if preserve_splits else [])


def disable(master: Master, table: bytes) -> None:
    """DisableTableProcedure: rows keep their servers, only the state becomes CLOSED."""
    if table == META_TABLE:
        master.check_disabled(table)
    master.check_enabled(table)
    master.set_table_state(table, TableState.DISABLING)
    master.assignment.close_for_good(_nodes(master, table))
    _end_ranges(master, table)
    master.set_table_state(table, TableState.DISABLED)


def _end_ranges(master: Master, table: bytes) -> None:
    """Write a barrier for each closed region, so that a serial peer added meanwhile starts behind its old edits."""
    if master.has_barriers(table):
        groups = master.states.table(table)
        master.meta.add_barriers((group, end_barrier(master, group.info) or NO_SEQUENCE_ID) for group in groups)


def enable(master: Master, table: bytes) -> None:
    """EnableTableProcedure: regions go back to where they were, if that server is alive."""
    if master.record(table).state is TableState.ENABLED:
        raise TableNotDisabled(
            f"table {table.decode(errors='replace')!r} is not disabled", detail=TableNotDisabled.java_class
        )
    master.set_table_state(table, TableState.ENABLING)
    nodes = _nodes(master, table)
    master.assignment.assign(nodes, _retained(nodes))
    master.set_table_state(table, TableState.ENABLED)


def alter(master: Master, descriptor: TableDescriptor) -> None:
    """ModifyTableProcedure: excess copies close, every region reopens with the new descriptor, new copies open."""
    record = master.record(descriptor.name)
    old = record.descriptor
    _check_descriptor(descriptor)
    if descriptor.name == META_TABLE:
        descriptor = replace(old, region_replication=descriptor.region_replication)
        with master.meta_lock:
            _alter(master, record, old, descriptor)
        return
    _alter(master, record, old, descriptor)


def _alter(master: Master, record: TableRecord, old: TableDescriptor, new: TableDescriptor) -> None:
    groups = master.states.table(new.name)
    is_open = record.state is TableState.ENABLED
    excess = [node for group in groups for node in group.nodes[new.region_replication :]]
    master.assignment.close_for_good(excess)
    _forget_copies(master, groups, new, excess)
    record.descriptor = new
    if is_open and new.name != META_TABLE:
        nodes = _nodes(master, new.name)
        places = _retained(nodes)
        master.assignment.close_for_good(nodes)
        master.assignment.assign(nodes, places)
    with master.lock:
        added = [node for group in groups for node in master.states.resize(group, new.region_replication)]
    if added and new.name != META_TABLE:
        master.meta.add_replicas(added)
    if is_open:
        master.assignment.assign(added)
    _drop_families(master, groups, old, new)  # after the regions were closed, which flushed them


def _forget_copies(master: Master, groups: list[RegionGroup], new: TableDescriptor, excess: list[RegionNode]) -> None:
    if not excess:
        return
    with master.lock:
        for group in groups:
            master.states.resize(group, min(len(group.nodes), new.region_replication))
    if new.name == META_TABLE:
        for node in excess:
            master.registry.withdraw(node.info.replica_id)
    else:
        master.meta.delete_replicas(excess)


def _drop_families(master: Master, groups: list[RegionGroup], old: TableDescriptor, new: TableDescriptor) -> None:
    kept = {family.name for family in new.families}
    for family in old.families:
        if family.name not in kept:
            for group in groups:
                master.filesystem.region(group.info).drop_family(family.name, master.runtime.now())


def _delete_regions(master: Master, table: bytes) -> None:
    parents = [group for group, _ in master.states.parents.values() if group.info.table == table]
    with master.lock:
        groups = master.states.remove_table(table)
    master.meta.delete_regions([*groups, *parents])
    master.filesystem.delete_table(table, master.runtime.now())


def _nodes(master: Master, table: bytes) -> list[RegionNode]:
    return [node for group in master.states.table(table) for node in group.nodes]


def _retained(nodes: Sequence[RegionNode]) -> dict[bytes, ServerName]:
    return {node.name: node.server for node in nodes if node.server is not None}


def _check_descriptor(descriptor: TableDescriptor) -> None:
    """TableDescriptorChecker.sanityCheck, the part that applies here."""
    if not descriptor.families:
        raise RequestRefused("Table should have at least one column family.", detail=_INSANE)
    if descriptor.region_replication < 1:
        raise RequestRefused(
            f"region_replication must be at least 1, got {descriptor.region_replication}", detail=_INSANE
        )
    names = [family.name for family in descriptor.families]
    if len(set(names)) != len(names):
        raise RequestRefused("a column family is named twice", detail=_INSANE)


def _checked_splits(splits: Sequence[bytes]) -> list[bytes]:
    borders = sorted(splits)
    if b"" in borders:
        raise RequestRefused("Empty split key must not be passed in the split keys.", detail=_INSANE)
    for one, other in pairwise(borders):
        if one == other:
            raise RequestRefused(f"all split keys must be unique, found {keys.printable(one)} twice", detail=_INSANE)
    return borders
