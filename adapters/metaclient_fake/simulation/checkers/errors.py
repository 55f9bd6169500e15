"""Decides whether errors are correct: no operation on a table that existed all the time gets a final refusal.

With Java's selector ("simple") a client trusts a secondary of ``hbase:meta`` that does not have a table's rows, as in
Java; the operations of such clients may get this error.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from metaclient.errors import (
    BackendFault,
    Disposition,
    LocationUnknown,
    MetaClientError,
    NoSuchReplica,
    TableNotFound,
)
from metaclient_fake.simulation.history import Operation
from metaclient_fake.simulation.world import Violation

if TYPE_CHECKING:
    from metaclient_fake.simulation.world import World

__all__ = ["check"]

#: The errors an operation may end with after faults: its time or its attempts ran out, or it may not be repeated.
_ENDINGS = ("DeadlineExceeded", "RetriesExhausted", "ConnectionClosed")


def check(world: World) -> Iterator[Violation]:
    believers = {client.name for client in world.clients if client.connection.config.meta_selector == "simple"}
    misled = world.misled()
    for operation in world.history:
        error = operation.error
        if error is None or operation.table not in world.tables or operation.number in misled:
            continue
        if operation.client in believers and isinstance(error, TableNotFound | LocationUnknown):
            continue
        if isinstance(error, NoSuchReplica) and _may_be_true(world, operation):
            continue
        if isinstance(error, BackendFault) or _is_final(error):
            text = f"{operation.describe()}: {type(error).__name__}: {error}"
            yield Violation("errors", text, operation.called_at, (operation.number,))


def _may_be_true(world: World, operation: Operation) -> bool:
    """Return True if, during the operation, the table may have had fewer replicas than the requested one needs."""
    asked = operation.expected
    counts = world.injector.replica_counts
    return isinstance(asked, int) and counts.may_lack(
        operation.table, asked, operation.called_at, operation.returned_at
    )


def _is_final(error: MetaClientError) -> bool:
    return error.disposition is Disposition.FATAL and type(error).__name__ not in _ENDINGS
