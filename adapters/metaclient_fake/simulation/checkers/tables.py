"""Decides whether tables are created empty and deleted: no rows of an earlier table, or of a deleted one."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from metaclient.errors import TableDisabled, TableExists, TableNotFound
from metaclient_fake.simulation.history import Operation, Status
from metaclient_fake.simulation.world import Violation

if TYPE_CHECKING:
    from metaclient_fake.simulation.world import World

__all__ = ["check"]


def check(world: World) -> Iterator[Violation]:
    """Check each table by itself: it has one client, so its operations are one after the other."""
    tables: dict[str, list[Operation]] = {}
    for operation in world.history.of_kinds("create", "drop", "table_put", "table_get"):
        tables.setdefault(operation.table, []).append(operation)
    believers = {client.name for client in world.clients if client.connection.config.meta_selector == "simple"}
    misled = world.misled()
    for operations in tables.values():
        for violation in _check_one(operations, believers):
            if not misled.intersection(violation.operations):
                yield violation


def _check_one(operations: list[Operation], believers: set[str]) -> Iterator[Violation]:
    rows: dict[bytes, Operation] = {}
    is_there = False
    for one in operations:
        if one.kind == "create":
            is_there, rows = one.outcome is Status.OK, {}
            if isinstance(one.error, TableExists) and one.error.attempts == ():
                yield _violation(one, "the table was dropped, and its name is still taken")
        elif one.kind == "drop":
            is_there = is_there and one.outcome is not Status.OK
        elif one.kind == "table_put" and one.outcome is Status.OK:
            rows[one.row] = one
        elif one.kind == "table_get" and one.outcome is Status.OK:
            written = rows.get(one.row) if is_there else None
            if one.value != (written.argument if written else None) and not _is_in_doubt(operations, one):
                yield _violation(one, "not what this life of the table holds")
        elif is_there and one.client not in believers and isinstance(one.error, TableNotFound | TableDisabled):
            yield _violation(one, "the table existed, and no client had disabled it")


def _is_in_doubt(operations: list[Operation], read: Operation) -> bool:
    """Return True if a put of this value has an unknown outcome."""
    return any(
        one.kind == "table_put" and one.argument == read.value and one.outcome is Status.UNKNOWN for one in operations
    )


def _violation(operation: Operation, what: str) -> Violation:
    text = f"table {operation.table}: {operation.describe()}: {what}"
    return Violation("tables", text, operation.called_at, (operation.number,))
