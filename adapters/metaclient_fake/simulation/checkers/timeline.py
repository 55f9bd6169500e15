"""Decides whether TIMELINE reads are correct: they return past states, in order, and name the right replica.

1. The flag and the id agree: ``stale`` means that a secondary answered, and a read at one replica comes from that one.
2. A stale value was written before the read returned; a missing value needs a delete.
3. One copy on one server shows a row's values in the order in which they became true: never an older one after a newer
   one. Writers bring growing timestamps (``workloads.registers``), so the order is that of the timestamps.
4. A result that is not stale is checked as a STRONG read (:mod:`checkers.linearizability`).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from metaclient_fake.simulation.history import Operation, Status
from metaclient_fake.simulation.world import Violation

if TYPE_CHECKING:
    from metaclient_fake.simulation.world import World

__all__ = ["check"]

_READS = ("timeline_get", "replica_get", "timeline_rows", "bounded_get", "bounded_rows", "bounded_scan")


def check(world: World) -> Iterator[Violation]:
    writes = {
        (operation.row, operation.argument): operation
        for operation in world.history.of_kinds("put")
        if operation.table == "t"
    }
    deleted_at: dict[bytes, float] = {}
    for operation in world.history.of_kinds("delete"):
        deleted_at[operation.row] = min(operation.called_at, deleted_at.get(operation.row, operation.called_at))
    newest: dict[tuple[bytes, int, str], list[tuple[float, int, Operation]]] = {}
    reads = [one for one in world.history.of_kinds(*_READS) if one.outcome is Status.OK]
    for read in sorted(reads, key=lambda one: one.returned_at):
        yield from _honest(read)
        if not read.stale:
            continue
        write = writes.get((read.row, read.value))
        if read.value is None:
            if deleted_at.get(read.row, read.returned_at) >= read.returned_at:
                yield _violation(read, "saw nothing in a row that was never deleted before")
        elif write is None or write.outcome is Status.FAILED or write.called_at > read.returned_at:
            yield _violation(read, "saw a value that no client had written by then")
        else:
            yield from _in_order(read, write.timestamp, newest)


def _honest(read: Operation) -> Iterator[Violation]:
    if read.stale != bool(read.replica_id):
        yield _violation(read, f"says stale={read.stale} and replica {read.replica_id}")
    if read.kind == "replica_get" and read.replica_id != read.expected:
        yield _violation(read, f"was asked of replica {read.expected} and says {read.replica_id}")


def _in_order(
    read: Operation, timestamp: int, newest: dict[tuple[bytes, int, str], list[tuple[float, int, Operation]]]
) -> Iterator[Violation]:
    """Yield a violation if the copy returned a newer value to a read that had ended before this one was called."""
    key = (read.row, read.replica_id or 0, read.server or "")
    earlier = newest.setdefault(key, [])
    for returned_at, shown, other in earlier:
        if returned_at < read.called_at and shown > timestamp:
            yield Violation(
                "timeline",
                f"a copy went back in time:\n    {other.describe()}\n    {read.describe()}",
                read.called_at,
                (other.number, read.number),
            )
            break
    earlier.append((read.returned_at, timestamp, read))
    earlier.sort(key=lambda one: -one[1])


def _violation(read: Operation, what: str) -> Violation:
    return Violation("timeline", f"a TIMELINE read {what}: {read.describe()}", read.called_at, (read.number,))
