"""Decides the steps that make tables ready for a serial peer: fresh barriers, and the ids that count as pushed.

The logs of edits that are older than the peer may be gone, and nothing must wait for them. So every region of an
enabled table is reopened, which writes a barrier, and all edits before the last barrier of each region count as pushed.

Mirrors AbstractPeerProcedure.setLastPushedSequenceId and ModifyPeerProcedure.reopenRegions (HBase 2.6). DIVERGENCE:
HBase waits while a table is ENABLING or DISABLING; here one procedure runs at a time, so that no table is.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial

from metaclient import keys
from metaclient.model import Get, Result, TableState
from metaclient_fake.master.master import Master
from metaclient_fake.replication.barriers import BARRIER_FAMILY, barriers_in
from metaclient_fake.server.data_calls import DataCalls

__all__ = ["last_pushed_ids", "make_serial", "regions_with_barriers"]

_ALL_VERSIONS = 0x7FFFFFFF


def make_serial(master: Master, tables: Iterable[bytes]) -> dict[str, int]:
    """Reopen the tables that are enabled and have barriers; return the ids that count as pushed, by encoded name.

    The result has an id for each region with barriers, also of disabled tables and of regions that are gone.
    """
    ids: dict[str, int] = {}
    for table in tables:
        ids.update(master.run(partial(_make_serial, master, table)))
    return ids


def _make_serial(master: Master, table: bytes) -> dict[str, int]:
    record = master.tables.get(table)
    if record is None or not master.has_barriers(table):
        return {}
    if record.state is TableState.ENABLED:
        primaries = [group.primary for group in master.states.table(table)]
        places = {node.name: node.server for node in primaries if node.server is not None}
        master.assignment.close_for_good(primaries)
        master.assignment.assign(primaries, places)
    return last_pushed_ids(master, table)


def last_pushed_ids(master: Master, table: bytes) -> dict[str, int]:
    """Return the last barrier - 1 of each region of the table, by encoded name."""
    ids: dict[str, int] = {}
    for row in master.meta.barrier_rows(table):
        get = Get(row, (BARRIER_FAMILY,), max_versions=_ALL_VERSIONS)
        barriers = barriers_in(master.meta.read(partial(_get, get)).cells).barriers
        if barriers:
            ids[keys.encoded_region_name(row)] = barriers[-1] - 1
    return ids


def _get(get: Get, calls: DataCalls) -> Result:
    return calls.get_meta(0, get)


def regions_with_barriers(master: Master, tables: Iterable[bytes]) -> list[str]:
    """Return the regions of tables, by encoded name, whose pushed ids go when a peer leaves these tables out."""
    return [keys.encoded_region_name(row) for table in tables for row in master.meta.barrier_rows(table)]
