"""Decides whether answers come from the replica that they name: compares the client's result with its calls.

The calls of each client are recorded from outside (:mod:`metaclient_fake.simulation.observed`): a read whose result
names replica 1 must have called replica 1, at the server that it names, and that call must have succeeded.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from metaclient_fake.simulation.history import Status
from metaclient_fake.simulation.observed import SeenCall
from metaclient_fake.simulation.world import Violation

if TYPE_CHECKING:
    from metaclient_fake.simulation.world import World

__all__ = ["check"]

_READS = ("get", "timeline_get", "replica_get", "cycle_get", "insert_get", "bounded_get")


def check(world: World) -> Iterator[Violation]:
    calls: dict[int, list[SeenCall]] = {}
    for client in world.clients:
        for call in client.backend.calls:
            calls.setdefault(call.operation, []).append(call)
    for read in world.history.of_kinds(*_READS):
        if read.outcome is not Status.OK or read.replica_id is None or read.group != read.number:
            continue
        answered = [call for call in calls.get(read.number, ()) if call.error is None and call.ended is not None]
        if not answered:
            continue  # a multi-get's calls count for the last of its rows
        if not any(
            call.replica_id == read.replica_id and (read.server or "").startswith(call.server) for call in answered
        ):
            told = ", ".join(f"replica {call.replica_id} at {call.server}" for call in answered)
            yield Violation(
                "answers",
                f"{read.describe()}, at {read.server}: but the answers came from {told}",
                read.called_at,
                (read.number,),
            )
