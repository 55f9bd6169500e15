"""Decides whether sessions keep their promises: no read goes back in time, and own writes are seen.

Writers of registers bring growing timestamps, and the newest timestamp wins: the states of a register are in the order
of the timestamps. For each session and row the checker keeps the newest state that the session must have seen:

1. an acknowledged write of the session is at least its timestamp;
2. a read that returned a value is the timestamp of the write of that value;
3. a read that found nothing is the timestamp of the oldest delete that explains it.

A read that was called later must show that state or a newer one. A client makes one call at a time, so that "later" is
the order of the operations. Reads that a zombie answered are left out.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from metaclient_fake.simulation.history import Operation, Status
from metaclient_fake.simulation.world import Violation

if TYPE_CHECKING:
    from metaclient_fake.simulation.world import World

__all__ = ["check"]

_READS = ("timeline_get", "timeline_rows", "timeline_missing", "session_scan")


def check(world: World) -> Iterator[Violation]:
    """Check every read of every session."""
    values: dict[tuple[bytes, object], int] = {}
    deletes: dict[bytes, list[int]] = {}
    for write in world.history.of_kinds("put", "delete"):
        if write.table == "t" and write.outcome is not Status.FAILED:
            if write.kind == "put":
                values[write.row, write.argument] = write.timestamp
            else:
                deletes.setdefault(write.row, []).append(write.timestamp)
    misled = world.misled()
    newest: dict[tuple[str, bytes], tuple[int, Operation]] = {}
    for operation in world.history:
        if not operation.session or operation.outcome is not Status.OK or operation.number in misled:
            continue
        key = (operation.session, operation.row)
        least, earlier = newest.get(key, (0, None))
        if operation.kind in ("put", "delete"):
            newest[key] = max((least, earlier or operation), (operation.timestamp, operation), key=lambda one: one[0])
        elif operation.kind in _READS:
            shown = _shown(operation, least, values, deletes)
            if shown is not None and shown >= least:
                newest[key] = (shown, operation)
            elif earlier is not None:
                what = "does not show the session's own write" if earlier.is_write else "went back in time"
                yield Violation(
                    "sessions",
                    f"a read {what}:\n    {earlier.describe()}\n    {operation.describe()}",
                    operation.called_at,
                    (earlier.number, operation.number),
                )


def _shown(
    read: Operation, least: int, values: dict[tuple[bytes, object], int], deletes: dict[bytes, list[int]]
) -> int | None:
    """Return the timestamp of the state that the read shows; None if no write explains it."""
    if read.value is not None:
        return values.get((read.row, read.value))
    return min((timestamp for timestamp in deletes.get(read.row, ()) if timestamp >= least), default=None)
