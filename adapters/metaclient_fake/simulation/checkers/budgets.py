"""Decides whether hedges and retries stay in their budgets, and whether a race ends as it should.

From outside, a call of an operation is a *hedge* if another call of the same operation was in flight when it began, and
had not been for as long as ``STALLED_S``: then it is a second try, as after a time-out. It is a *retry* if none was and
one had been made before. Promises (``metaclient.attempts.budget``):

- hedges <= max(burst, ratio * hedged reads) + the debt that shows whether a server is slow;
- retries, while nothing succeeds: at most two bursts that were earned, one of the share, and canaries after 1, 3, 7 s;
- a failure does not end a race while another leg is in flight: no new race begins, and no error is raised, before that
  leg has ended or its deadline has passed.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from metaclient.attempts.budget import DEBT_MAX
from metaclient.calls.hedging import STALLED_S
from metaclient.errors import Disposition
from metaclient_fake.simulation.history import Operation
from metaclient_fake.simulation.observed import SeenCall
from metaclient_fake.simulation.workloads.base import Workload
from metaclient_fake.simulation.world import Violation

if TYPE_CHECKING:
    from metaclient_fake.simulation.world import World

__all__ = ["check"]

#: Operations whose calls are all made for one row: a batch goes to many servers at once.
_SINGLE = ("put", "get", "delete", "increment", "check_and_put", "insert", "insert_get", "counter_get", "cycle_swap")
_HEDGED = ("timeline_get", "cycle_get")


def check(world: World) -> Iterator[Violation]:
    operations = {operation.number: operation for operation in world.history if operation.group == operation.number}
    batches = {operation.group for operation in world.history if operation.group != operation.number}
    for client in world.clients:
        calls: dict[int, list[SeenCall]] = {}
        for call in client.backend.calls:
            if call.operation in operations and call.operation not in batches:
                calls.setdefault(call.operation, []).append(call)
        yield from _check_hedges(client, operations, calls)
        yield from _check_retries(client, operations, calls)


def _check_hedges(
    client: Workload, operations: dict[int, Operation], calls: dict[int, list[SeenCall]]
) -> Iterator[Violation]:
    config = client.connection.config
    reads, hedges = len(client.backend.calls), 0  # at least: a race is one read to the budget, and has one call or more
    for number, made in calls.items():
        operation = operations[number]
        if operation.kind not in _HEDGED:
            continue
        hedges += sum(1 for call in made if _is_hedge(made, call))
        yield from _check_race(operation, made)
    allowed = max(config.hedge_budget_burst, config.hedge_budget * reads + 1) + DEBT_MAX
    if hedges > allowed:
        yield Violation("budgets", f"{client.name} made {hedges} hedges for {reads} reads; {allowed:.1f} are allowed")


def _is_hedge(made: list[SeenCall], call: SeenCall) -> bool:
    others = _others(made, call)
    return bool(others) and call.begun - min(other.begun for other in others) < STALLED_S


def _others(made: list[SeenCall], call: SeenCall) -> list[SeenCall]:
    """Return the calls of the same operation that were in flight when this one began."""
    return [
        other for other in made if other is not call and other.begun < call.begun and other.is_running_at(call.begun)
    ]


def _check_race(operation: Operation, made: list[SeenCall]) -> Iterator[Violation]:
    last: dict[int, SeenCall] = {}
    for call in made:  # each race asks each replica once, so that one that is asked again belongs to another race
        before, last[call.replica_id] = last.get(call.replica_id), call
        if before is None:
            continue
        if any(other.begun < before.over_at and other.over_at > call.begun for other in _others(made, call)):
            text = f"replica {call.replica_id} was asked again while another leg was under way: {operation.describe()}"
            yield Violation("budgets", text, call.begun, (operation.number,))
    error = operation.error
    if error is None or (error.disposition is Disposition.FATAL and type(error).__name__ != "RetriesExhausted"):
        return
    running = [
        call for call in made if call.is_running_at(operation.returned_at) and call.deadline > operation.returned_at
    ]
    if running:
        text = f"an error was told while replica {running[0].replica_id} might still answer: {operation.describe()}"
        yield Violation("budgets", text, operation.returned_at, (operation.number,))


def _check_retries(
    client: Workload, operations: dict[int, Operation], calls: dict[int, list[SeenCall]]
) -> Iterator[Violation]:
    """Count the retries of each operation: a client does one operation at a time, and earns nothing while it fails."""
    burst = client.connection.config.retry_budget_burst
    for number, made in calls.items():
        operation = operations[number]
        if operation.kind not in _SINGLE or made[0].ended is None:
            continue
        for retries, call in enumerate(made[1:], 1):
            since_s = call.begun - made[0].ended
            allowed = 3 * burst + _canaries(since_s)
            if retries > allowed:
                text = f"{retries} retries within {since_s:.3f} s of the first failure; {allowed} are allowed"
                yield Violation("budgets", f"{text}: {operation.describe()}", call.begun, (number,))
                break


def _canaries(seconds: float) -> int:
    """Return the number of canaries: one after a second without success, the next after 2 s more, then 4 s, ...

    >>> [_canaries(seconds) for seconds in (0.9, 1.0, 2.9, 3.0, 7.0)]
    [0, 1, 1, 2, 3]
    """
    return int(seconds + 1.0).bit_length() - 1
