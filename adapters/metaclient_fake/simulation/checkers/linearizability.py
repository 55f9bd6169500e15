"""Decides whether the history of one register can be explained by one order of its operations.

A history is linearizable if each operation can be given one instant between its call and its return so that, done at
those instants, each returns what it returned. Rows are independent of each other, so each is checked alone.

The search is Wing and Gong's with Lowe's cache: go through the calls and returns in time; at each call try to apply the
operation next; at the return of an operation that was not applied yet, backtrack. A pair (applied operations, value of
the register) that was visited before is not tried again.

A read that a zombie answered is left out (:mod:`metaclient_fake.simulation.observed`). An UNKNOWN write may happen at
any time after its call, or never: it has no return. A write whose value no read returned is left out, because "never"
explains it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from metaclient_fake.simulation.history import NEVER, Operation, Status
from metaclient_fake.simulation.world import Violation

if TYPE_CHECKING:
    from metaclient_fake.simulation.world import World

__all__ = ["check", "explanation", "steps_max"]

#: A linearizable history of these sizes needs less than a thousandth of it; more is reported as undecided.
steps_max = 2_000_000

_WRITES = ("put", "delete")

_TIMELINE = ("timeline_get", "replica_get", "timeline_rows", "bounded_get", "bounded_rows", "bounded_scan")


def check(world: World) -> Iterator[Violation]:
    """Check each register, and each cell that is changed by check-and-put alone."""
    rows: dict[bytes, list[Operation]] = {row: [] for row in (*world.registers, *world.cells)}
    misled = world.misled()
    for operation in world.history:
        if operation.table != "t" or operation.row not in rows:
            continue
        if operation.number in misled and not operation.is_write:
            continue
        if operation.kind in ("get", "put", "delete", "check_and_put") or _is_fresh(operation):
            rows[operation.row].append(operation)
    for row, operations in rows.items():
        start = b"start" if row in world.cells else None  # registers were put as part of the history
        culprits = explanation(operations, start)
        if culprits is not None:
            shown = "\n    ".join(operation.describe() for operation in culprits)
            yield Violation(
                "linearizability",
                f"row {row.decode()}: no order of its operations explains what was seen; stuck at\n    {shown}",
                culprits[0].called_at,
                tuple(operation.number for operation in culprits),
            )


def _is_fresh(operation: Operation) -> bool:
    """Return True for a STRONG read, and for a TIMELINE read that is not stale."""
    return operation.kind in _TIMELINE and operation.stale is False


class _Event:
    """A call or a return in the list of events; ``match`` is a call's return."""

    __slots__ = ("index", "is_call", "match", "next", "operation", "previous")

    def __init__(self, operation: Operation | None, index: int, is_call: bool) -> None:
        self.operation = operation
        self.index = index
        self.is_call = is_call
        self.match: _Event | None = None
        self.next: _Event | None = None
        self.previous: _Event | None = None


def explanation(operations: Sequence[Operation], start: object = None) -> list[Operation] | None:
    """Return None when an order explains all operations; else those that the longest attempt could not place."""
    relevant = _relevant(operations)
    head = _events(relevant)
    state = start
    done = 0
    memory: set[tuple[int, object]] = set()
    stack: list[tuple[_Event, object]] = []
    best, stuck_at = -1, head.next
    entry = head.next
    steps = 0
    while head.next is not None:
        steps += 1
        if steps > steps_max:
            return _around(stuck_at, relevant)
        if entry is not None and entry.is_call:
            assert entry.operation is not None
            possible, after = _applied(entry.operation, state)
            mark = done | (1 << entry.index)
            if possible and (mark, after) not in memory:
                memory.add((mark, after))
                stack.append((entry, state))
                state, done = after, mark
                _lift(entry)
                entry = head.next
            else:
                entry = entry.next
            continue
        # A return whose operation was not done, or only operations without a return are left.
        if entry is None and _only_unknown(head):
            return None
        if len(stack) > best:
            best, stuck_at = len(stack), entry
        if not stack:
            return _around(stuck_at, relevant)
        entry, state = stack.pop()
        done &= ~(1 << entry.index)
        _unlift(entry)
        entry = entry.next
    return None


def _relevant(operations: Sequence[Operation]) -> list[Operation]:
    seen = {operation.value for operation in operations if not operation.is_write}
    seen |= {operation.expected for operation in operations if operation.kind == "check_and_put"}
    return [operation for operation in operations if _matters(operation, seen)]


def _matters(operation: Operation, seen: set[object]) -> bool:
    if operation.outcome is Status.OK:
        return True
    return operation.is_write and operation.outcome is not Status.FAILED and operation.argument in seen


def _events(operations: Sequence[Operation]) -> _Event:
    """Return the list of calls and returns in time; a call comes before a return of the same instant."""
    moments: list[tuple[float, int, int, _Event]] = []
    for index, operation in enumerate(operations):
        called = _Event(operation, index, True)
        moments.append((operation.called_at, 0, index, called))
        if operation.outcome is Status.OK and operation.returned_at != NEVER:
            returned = _Event(operation, index, False)
            called.match = returned
            moments.append((operation.returned_at, 1, index, returned))
    moments.sort(key=lambda moment: moment[:3])
    head = last = _Event(None, -1, False)
    for *_, event in moments:
        last.next, event.previous = event, last
        last = event
    return head


def _lift(call: _Event) -> None:
    for event in (call, call.match):
        if event is not None:
            assert event.previous is not None
            event.previous.next = event.next
            if event.next is not None:
                event.next.previous = event.previous


def _unlift(call: _Event) -> None:
    for event in (call.match, call):
        if event is not None:
            assert event.previous is not None
            event.previous.next = event
            if event.next is not None:
                event.next.previous = event


def _only_unknown(head: _Event) -> bool:
    event = head.next
    while event is not None:
        if event.match is not None or not event.is_call:
            return False
        event = event.next
    return True


def _applied(operation: Operation, state: object) -> tuple[bool, object]:
    """Return whether the operation, applied to this value, can have returned its result; and the value after it."""
    if operation.kind in _WRITES:
        return True, operation.argument
    if operation.kind != "check_and_put":
        return operation.value == state, state
    if operation.outcome is not Status.OK:
        return state == operation.expected, operation.argument
    if operation.value:
        return state == operation.expected, operation.argument
    return state != operation.expected, state


def _around(event: _Event | None, operations: Sequence[Operation]) -> list[Operation]:
    """Return the operation that could not be placed, and those that overlap it."""
    if event is None or event.operation is None:
        return list(operations[-3:])
    stuck = event.operation
    near = [
        one
        for one in operations
        if one is not stuck and one.called_at <= stuck.returned_at and one.returned_at >= stuck.called_at - 0.5
    ]
    return [stuck, *near[:8]]
