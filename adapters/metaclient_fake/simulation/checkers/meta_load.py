"""Decides whether the primary of ``hbase:meta`` is spared: in LoadBalance it is read only after errors.

A client in this mode may read the primary when a secondary failed, had no row, or returned a wrong location. The client
keeps this state for a while (marks of stale ranges, ejections: some 60 s). A read of the primary by a client that met
no such error within that time is a violation. Clients without such state are checked exactly after the heal
(:mod:`metaclient_fake.simulation.calm`).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from metaclient.config import MetaMode
from metaclient_fake.simulation.workloads.base import Workload
from metaclient_fake.simulation.world import Violation

if TYPE_CHECKING:
    from metaclient_fake.simulation.world import World

__all__ = ["check"]

#: ``meta_ejection_max_s`` and its jitter, plus the longest stale mark.
_MEMORY_S = 66.0 + 30.0
#: Errors that are not visible from outside: no secondaries at times, incomplete rows.
_UNSEEN = frozenset({"meta_replica_count", "torn_meta", "meta_rows_torn_s"})


def check(world: World) -> Iterator[Violation]:
    for client in world.clients:
        config = client.connection.config
        if config.meta_mode is MetaMode.LOAD_BALANCE and config.meta_selector == "round_robin":
            yield from _check_one(world, client)


def _check_one(world: World, client: Workload) -> Iterator[Violation]:
    if world.spec.meta_replicas < 2 or client.kind == "tables" or _UNSEEN & {*world.spec.kinds, *world.spec.settings}:
        return
    troubles = sorted(
        [read.begun for read in client.backend.meta_reads if read.error is not None or read.rows == 0 or read.is_vague]
        + [call.begun for call in client.backend.calls if call.error is not None]
        + client.backend.troubles
    )
    for read in client.backend.meta_reads:
        if read.replica_id or read.is_table_state:
            continue
        if not any(read.begun - _MEMORY_S <= instant <= read.begun for instant in troubles):
            text = f"{client.name} balances, had no trouble, and read hbase:meta at its primary"
            yield Violation("meta_load", text, read.begun)
