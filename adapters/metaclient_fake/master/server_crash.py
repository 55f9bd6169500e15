"""Decides how the regions of a dead server are reopened (ServerCrashProcedure).

1. hbase:meta's primary, if it was there, without waiting for other procedures, which may be waiting for it.
2. All other regions, under the procedure lock: primaries with the edits of the dead server's log, secondaries from
   their files only (they have lost the other edits).
3. The log goes to the archive.

``failover_piles_replicas`` reproduces a behaviour of HBase 2.6.1: copies share a server until the
balancer runs.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import TYPE_CHECKING

from metaclient.model import ServerName, TableState
from metaclient_fake.master.region_states import RegionNode, RegionState

if TYPE_CHECKING:
    from metaclient_fake.master.master import Master

__all__ = ["recover"]

logger = logging.getLogger(__name__)


def recover(master: Master, dead: ServerName) -> None:
    """Reopen all regions of ``dead``; return when they are open."""
    with master.meta_lock:
        primary = master.meta_node(0)
        if primary is not None and primary in master.states.on_server(dead):
            _reopen(master, dead, [primary])
    with master.procedure_lock:
        nodes = [node for node in master.states.on_server(dead) if _is_wanted(master, node)]
        _reopen(master, dead, nodes)
        for node in master.states.on_server(dead):
            master.states.leave(node)
    master.states.forget_server(dead)
    master.filesystem.delete_wal(str(dead))
    master.filesystem.delete_wal(f"{dead}.meta")
    logger.info("%s: %d regions recovered", dead, len(nodes))


def _is_wanted(master: Master, node: RegionNode) -> bool:
    record = master.tables.get(node.info.table)
    return record is not None and record.state in (TableState.ENABLED, TableState.ENABLING)


def _reopen(master: Master, dead: ServerName, nodes: Sequence[RegionNode]) -> None:
    if not nodes:
        return
    with master.lock:
        for node in nodes:
            node.become(RegionState.ABNORMALLY_CLOSED)
            master.states.leave(node)
    wanted: dict[bytes, ServerName] = {}
    if master.config.failover_piles_replicas and master.live:
        target = min(master.live)
        wanted = {node.name: target for node in nodes if node.info.replica_id}
    master.assignment.assign(nodes, wanted)
