"""Decides whether scans lose or repeat rows: each row that does not change is returned once, in order."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import TYPE_CHECKING

from metaclient_fake.simulation.history import Operation, Status
from metaclient_fake.simulation.workloads.scans import asked_of
from metaclient_fake.simulation.world import Violation

if TYPE_CHECKING:
    from metaclient_fake.simulation.world import World

__all__ = ["check"]


def check(world: World) -> Iterator[Violation]:
    for scan in world.history.of_kinds("scan", "timeline_scan"):
        start, stop, is_reversed, limit = asked_of(scan)
        keys: tuple[bytes, ...] = scan.value or ()  # type: ignore[assignment]  # as the workload wrote it
        for one, other in pairwise(keys):
            if (one <= other) if is_reversed else (one >= other):
                yield _violation(scan, f"returned {other.decode()} after {one.decode()}")
        outside = [key for key in keys if (start is not None and key < start) or (stop is not None and key > stop)]
        if outside:
            yield _violation(scan, f"returned {outside[0].decode()}, which is outside of its range")
        yield from _complete(world, scan, keys, start, stop, is_reversed, limit)


def _complete(
    world: World,
    scan: Operation,
    keys: tuple[bytes, ...],
    start: bytes | None,
    stop: bytes | None,
    is_reversed: bool,
    limit: int | None,
) -> Iterator[Violation]:
    """Check that the rows which the scan has passed were returned; all rows of the range if the scan is complete."""
    is_whole = scan.outcome is Status.OK and scan.expected == "complete" and (limit is None or len(keys) < limit)
    if not is_whole and not keys:
        return
    found = frozenset(keys)
    for row in world.statics:
        is_inside = _is_inside(row, start, stop, is_reversed)
        is_passed = is_whole or (row > keys[-1] if is_reversed else row < keys[-1])
        if is_inside and is_passed and row not in found:
            yield _violation(scan, f"lost row {row.decode()}, which has been there all the time")


def _is_inside(row: bytes, start: bytes | None, stop: bytes | None, is_reversed: bool) -> bool:
    """Return True if the row is in the range: [start, stop) of a forward scan, (start, stop] of a reversed one."""
    if is_reversed:
        return (start is None or row > start) and (stop is None or row <= stop)
    return (start is None or row >= start) and (stop is None or row < stop)


def _violation(scan: Operation, what: str) -> Violation:
    text = f"{scan.client}'s {scan.kind} of {scan.argument} at {scan.called_at:.3f} s {what}"
    return Violation("scans", text, scan.called_at, (scan.number,))
