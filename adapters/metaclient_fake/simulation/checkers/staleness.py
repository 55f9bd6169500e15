"""Decides whether ``max_staleness`` holds: no answer lacks a write that was acknowledged longer before the call.

A later write of the same row may stand in the place of a missing one. The answers of primaries are fresh, and
:mod:`checkers.linearizability` looks at them. ``Row.lag_s`` of an answer must be within the limit, too.
Answers whose lag a canary could not prove (:mod:`workloads.canary`) may lack writes.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from metaclient_fake.simulation.checkers.lag import missing_write
from metaclient_fake.simulation.history import Operation, Status
from metaclient_fake.simulation.world import Violation

if TYPE_CHECKING:
    from metaclient_fake.simulation.world import World

__all__ = ["check"]

_READS = ("bounded_get", "bounded_rows", "bounded_scan", "bounded_missing")
_ROUNDING_S = 1e-9


def check(world: World) -> Iterator[Violation]:
    """Look at every answer of a read with a limit."""
    writes: dict[bytes, list[Operation]] = {}
    for operation in world.history.of_kinds("put", "delete"):
        if operation.table == "t":
            writes.setdefault(operation.row, []).append(operation)
    misled, unproven = world.misled(), world.unproven()
    for read in world.history.of_kinds(*_READS):
        limit_s = read.max_staleness_s
        if read.outcome is not Status.OK or limit_s is None or read.number in misled:
            continue
        if read.stale and (read.lag_s is None or read.lag_s > limit_s + _ROUNDING_S):
            yield Violation(
                "staleness",
                f"max_staleness was {limit_s} s, and the answer's lag_s is {read.lag_s}: {read.describe()}",
                read.called_at,
                (read.number,),
            )
        if read.number in unproven:
            continue
        missing = missing_write(read, writes.get(read.row, ()), limit_s)
        if missing is not None:
            yield Violation(
                "staleness",
                f"max_staleness was {limit_s} s, and the answer lacks a write that was acknowledged before:\n"
                f"    {missing.describe()}\n    {read.describe()}",
                read.called_at,
                (missing.number, read.number),
            )
