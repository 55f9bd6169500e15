"""Decides whether acknowledged writes survive: the table has all inserted rows, complete, and no other rows."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from metaclient.errors import MetaClientError
from metaclient_fake.simulation.history import Operation, Status
from metaclient_fake.simulation.workloads.inserts import COLUMN, TABLE
from metaclient_fake.simulation.world import Violation

if TYPE_CHECKING:
    from metaclient_fake.simulation.world import World

__all__ = ["check"]


def check(world: World) -> Iterator[Violation]:
    """Check the reads that followed an acknowledgement, and the whole table at the end."""
    inserts = {operation.row: operation for operation in world.history.of_kinds("insert")}
    misled = world.misled()
    for read in world.history.of_kinds("insert_get"):
        if read.outcome is Status.OK and read.number not in misled and read.value != inserts[read.row].argument:
            yield _lost(inserts[read.row], f"was read as {read.value!r} at {read.returned_at:.3f} s", read)
    try:
        found = {row: columns.get(COLUMN) for row, columns in world.helper.table(TABLE).scan()}
    except MetaClientError as error:
        yield Violation("durability", f"table {TABLE} cannot be read at the end: {error}", world.runtime.now())
        return
    for row, insert in inserts.items():
        if insert.outcome is Status.OK and found.get(row) != insert.argument:
            yield _lost(insert, f"is {found.get(row)!r} at the end")
        if insert.outcome is Status.FAILED and row in found:
            yield _lost(insert, "is there at the end, though the client was told that it was not applied")
    for row in found:
        if row not in inserts:
            yield Violation("durability", f"row {row.decode()} exists, and no client wrote it", world.runtime.now())


def _lost(insert: Operation, what: str, *reads: Operation) -> Violation:
    text = f"insert of {insert.row.decode()} ({insert.outcome.value} at {insert.returned_at:.3f} s) {what}"
    return Violation("durability", text, insert.called_at, (insert.number, *(operation.number for operation in reads)))
