"""Decides whether increments count exactly: acknowledged ones once, unknown ones once or not at all, others never.

For a counter with the values v that increments returned and reads saw:

1. no two increments return the same value;
2. an increment that was called after another had returned returns more;
3. every value is at least the number of increments that were acknowledged before its call (plus one, for an increment),
   and at most the number of those that were called, and did not fail for certain, before its return.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from typing import TYPE_CHECKING

from metaclient.errors import MetaClientError
from metaclient_fake.simulation.history import NEVER, Operation, Status
from metaclient_fake.simulation.workloads.counters import COLUMN, TABLE
from metaclient_fake.simulation.world import Violation

if TYPE_CHECKING:
    from metaclient_fake.simulation.world import World

__all__ = ["check"]


def check(world: World) -> Iterator[Violation]:
    misled = world.misled()
    reads_of_all = [
        one for one in world.history.of_kinds("counter_get") if one.outcome is Status.OK and one.number not in misled
    ]
    for row in world.counters:
        increments = [one for one in world.history.of_kinds("increment") if one.row == row]
        reads = [one for one in reads_of_all if one.row == row]
        last = _last_read(world, row)
        if isinstance(last, Violation):
            yield last
            continue
        yield from _check_one(row, increments, [*reads, last])


def _last_read(world: World, row: bytes) -> Operation | Violation:
    operation = world.history.begin("helper", "counter_get", TABLE, row)
    try:
        found = world.helper.table(TABLE).row(row)
    except MetaClientError as error:
        return Violation("counters", f"counter {row.decode()} cannot be read at the end: {error}")
    world.history.ok(operation, int.from_bytes(found.get(COLUMN, b""), "big"))
    return operation


def _check_one(row: bytes, increments: list[Operation], reads: list[Operation]) -> Iterator[Violation]:
    acknowledged = [one for one in increments if one.outcome is Status.OK]
    by_value: dict[object, Operation] = {}
    highest: Operation | None = None
    for one in sorted(acknowledged, key=lambda one: one.returned_at):
        twin = by_value.setdefault(one.value, one)
        if twin is not one:
            yield _violation(row, f"two increments returned {one.value}", twin, one)
    for one in sorted(acknowledged, key=lambda one: one.called_at):
        before = [other for other in acknowledged if other.returned_at < one.called_at]
        highest = max(before, key=lambda other: _number(other), default=None)
        if highest is not None and _number(highest) >= _number(one):
            yield _violation(row, "an increment returned less than one before it", highest, one)
    returned = sorted(one.returned_at for one in acknowledged)
    possible = sorted(one.called_at for one in increments if one.outcome is not Status.FAILED)
    for one in [*acknowledged, *reads]:
        at_least = bisect_left(returned, one.called_at) + one.is_write
        at_most = bisect_right(possible, one.returned_at if one.returned_at != NEVER else one.called_at)
        if not at_least <= _number(one) <= at_most:
            what = f"the counter was {one.value}; at least {at_least} and at most {at_most} increments had happened"
            yield _violation(row, what, one)


def _number(operation: Operation) -> int:
    assert isinstance(operation.value, int), "increments and their reads are numbers"
    return operation.value


def _violation(row: bytes, what: str, *operations: Operation) -> Violation:
    shown = "\n    ".join(operation.describe() for operation in operations)
    numbers = tuple(operation.number for operation in operations)
    return Violation("counters", f"counter {row.decode()}: {what}\n    {shown}", operations[-1].called_at, numbers)
