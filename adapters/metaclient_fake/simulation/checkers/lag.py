"""Decides whether ``Row.lag_s`` is an upper bound: no answer lacks a write that was acknowledged longer ago than that.

A replica reads a row at some instant T of a call, and T is not before the call. Every write that was acknowledged
before ``T - lag_s`` must be in the answer, so in particular every one that was acknowledged before ``called_at -
lag_s``. A later write of the same row may replace it. An answer without ``lag_s`` (None) promises nothing.
Answers whose lag a canary could not prove are left out (:mod:`workloads.canary`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from metaclient_fake.simulation.history import Operation, Status
from metaclient_fake.simulation.world import Violation

if TYPE_CHECKING:
    from metaclient_fake.simulation.world import World

__all__ = ["check", "missing_write"]

_READS = ("timeline_get", "replica_get", "timeline_rows", "bounded_get", "bounded_rows", "bounded_scan")
#: Instants are sums of floats.
_ROUNDING_S = 1e-6


def check(world: World) -> Iterator[Violation]:
    """Check every answer of a replica that has a ``lag_s``."""
    writes: dict[bytes, list[Operation]] = {}
    for operation in world.history.of_kinds("put", "delete"):
        if operation.table == "t":
            writes.setdefault(operation.row, []).append(operation)
    unproven = world.unproven()
    for read in world.history.of_kinds(*_READS):
        if read.outcome is Status.OK and read.lag_s is not None and read.number not in unproven:
            missing = missing_write(read, writes.get(read.row, ()), read.lag_s)
            if missing is not None:
                yield Violation(
                    "lag",
                    f"an answer that says it is at most {read.lag_s:.3f} s old lacks a write that was acknowledged "
                    f"before:\n    {missing.describe()}\n    {read.describe()}",
                    read.called_at,
                    (missing.number, read.number),
                )


def missing_write(read: Operation, writes: Iterable[Operation], age_s: float) -> Operation | None:
    """Return a write that an answer of at most this age lacks, although it should show this write or a later one."""
    acknowledged_before = read.called_at - age_s - _ROUNDING_S
    due = [one for one in writes if one.outcome is Status.OK and one.returned_at < acknowledged_before]
    if not due:
        return None
    newest = max(due, key=lambda one: one.timestamp)
    shown = [one.timestamp for one in writes if _may_show(one, read)]
    return newest if max(shown, default=0) < newest.timestamp else None


def _may_show(write: Operation, read: Operation) -> bool:
    """Return True if the answer may be the result of this write: its value, or no value after a delete."""
    return write.outcome is not Status.FAILED and write.argument == read.value and write.called_at <= read.returned_at
