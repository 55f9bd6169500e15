"""Decides whether calls keep their deadlines: none outlives the time that its operation has.

A scan's pages each have their own time, so a scan as a whole has none; its calls do.

Code takes no virtual time, except where a preempted task pauses between two statements. Paused code cannot keep a
deadline, so an operation or a call may be late by as much as the pauses that fell into it.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from metaclient_fake.simulation.history import NEVER
from metaclient_fake.simulation.world import Violation

if TYPE_CHECKING:
    from metaclient_fake.simulation.world import World

__all__ = ["check"]

#: Sums of floating point seconds.
_ROUNDING_S = 1e-6
#: Operations that are several calls in a row, each with its own time: how many.
_CALLS_OF = {"drop": 3, "storm": 1, "create": 1}
_WITHOUT = ("scan", "timeline_scan", "bounded_scan", "session_scan")


def check(world: World) -> Iterator[Violation]:
    timeouts = {client.name: client.connection.config.operation_timeout_s for client in world.clients}
    for operation in world.history:
        timeout_s = timeouts.get(operation.client)
        if timeout_s is None or operation.kind in _WITHOUT or operation.group != operation.number:
            continue
        ended = operation.returned_at if operation.returned_at != NEVER else world.runtime.now()
        took_s = ended - operation.called_at
        deadline = operation.called_at + timeout_s * _CALLS_OF.get(operation.kind, 1)
        if _is_late(world, operation.called_at, ended, deadline):
            text = f"{operation.describe()} took {took_s:.3f} s and had {timeout_s:g} s"
            yield Violation("deadlines", text, operation.called_at, (operation.number,))
    for client in world.clients:
        for call in client.backend.calls:
            ended = call.ended if call.ended is not None else world.runtime.now()
            if _is_late(world, call.begun, ended, call.deadline):
                text = (
                    f"a call of {client.name} to {call.server} ended {ended - call.deadline:.6f} s after its deadline"
                )
                yield Violation("deadlines", text, call.begun)


def _is_late(world: World, begun: float, ended: float, deadline: float) -> bool:
    late_s = ended - deadline - _ROUNDING_S
    since = min(begun, deadline)  # a task that pauses before it makes its call may begin it after the deadline
    return late_s > 0 and late_s > world.pauses.total_s(since, ended)
