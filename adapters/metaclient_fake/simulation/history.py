"""Stores the operations of the clients: each with its result and the instants of its call and its return.

An operation ends in one of three ways, and checkers need to know which: OK (it happened), FAILED (it did not and will
not), UNKNOWN (it may have happened, may still happen, or never). Reads are never unknown: a read without an answer has
no effect.
"""

from __future__ import annotations

import enum
import hashlib
from collections.abc import Iterable, Iterator

from metaclient.errors import MetaClientError
from metaclient.runtime import Runtime

__all__ = ["NEVER", "History", "Operation", "Status"]

NEVER = float("inf")


class Status(enum.Enum):
    """How an operation ended."""

    RUNNING = "running"
    OK = "ok"
    FAILED = "failed"
    UNKNOWN = "unknown"


class Operation:
    """One operation on one row (or on none). ``argument`` is the value to write, ``value`` the value that was read."""

    __slots__ = (
        "argument",
        "called_at",
        "client",
        "error",
        "expected",
        "group",
        "is_write",
        "kind",
        "lag_s",
        "max_staleness_s",
        "number",
        "outcome",
        "replica_id",
        "returned_at",
        "row",
        "server",
        "session",
        "stale",
        "table",
        "timestamp",
        "value",
    )

    def __init__(self, number: int, client: str, kind: str, table: str, row: bytes, called_at: float) -> None:
        self.number = number
        self.client = client
        self.kind = kind
        self.table = table
        self.row = row
        self.called_at = called_at
        self.returned_at = NEVER
        self.outcome = Status.RUNNING
        self.is_write = False
        self.argument: object = None
        self.expected: object = None
        self.value: object = None
        self.timestamp = 0
        self.stale: bool | None = None
        self.replica_id: int | None = None
        self.server: str | None = None
        #: The ``lag_s`` of a replica's answer: the upper bound of its age.
        self.lag_s: float | None = None
        #: The limit that the read gave.
        self.max_staleness_s: float | None = None
        self.error: MetaClientError | None = None
        #: The session of the client that the operation belongs to, if any.
        self.session = ""
        #: The first operation of those that were one call (a batch, a scan); its own number otherwise.
        self.group = number

    def describe(self) -> str:
        """Return the operation as one line of text."""
        wrote = f" {_shown(self.argument)}" if self.argument is not None else ""
        expected = f" if {_shown(self.expected)}" if self.expected is not None else ""
        where = (
            f" at replica {self.replica_id}{' (stale)' if self.stale else ''}" if self.replica_id is not None else ""
        )
        if self.outcome is Status.OK:
            ended = f"-> {_shown(self.value)}{where}" if self.value is not None or not self.is_write else "-> ok"
        else:
            ended = f"-> {self.outcome.value}" + (f" {type(self.error).__name__}" if self.error else "")
        until = f"{self.returned_at:8.3f}" if self.returned_at != NEVER else "   never"
        row = f" {_shown(self.row)}" if self.row else ""
        return f"{self.called_at:8.3f} .. {until} {self.client:<13} {self.kind}{row}{wrote}{expected} {ended}"

    __repr__ = describe


def _shown(value: object) -> str:
    if isinstance(value, bytes):
        return value.decode(errors="replace") if len(value) <= 40 else f"{len(value)} bytes"
    return str(value)


def _without_frames(error: MetaClientError) -> MetaClientError:
    """Return the error without its traceback: a run keeps thousands, and each would hold the frames of its call."""
    chain: list[BaseException | None] = [error]
    while chain:
        one = chain.pop()
        if one is not None and one.__traceback__ is not None:
            one.__traceback__ = None
            chain += (one.__cause__, one.__context__)
    return error


class History:
    """All operations of a run, in the order of their calls."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self.operations: list[Operation] = []

    def begin(self, client: str, kind: str, table: str = "", row: bytes = b"") -> Operation:
        operation = Operation(len(self.operations), client, kind, table, row, self._runtime.now())
        self.operations.append(operation)
        return operation

    def ok(self, operation: Operation, value: object = None) -> None:
        operation.returned_at = self._runtime.now()
        operation.outcome = Status.OK
        operation.value = value

    def failed(self, operation: Operation, error: MetaClientError) -> None:
        operation.returned_at = self._runtime.now()
        is_unknown = operation.is_write and error.may_have_applied
        operation.outcome = Status.UNKNOWN if is_unknown else Status.FAILED
        operation.error = _without_frames(error)

    def __iter__(self) -> Iterator[Operation]:
        return iter(self.operations)

    def __len__(self) -> int:
        return len(self.operations)

    def of_kinds(self, *kinds: str) -> list[Operation]:
        return [operation for operation in self.operations if operation.kind in kinds]

    def digest(self, more: Iterable[str] = ()) -> str:
        """Return a hash of all operations and results; equal runs have equal hashes on any machine."""
        made = hashlib.sha256()
        for operation in self.operations:
            made.update(operation.describe().encode())
            made.update(b"\n")
        for line in more:
            made.update(line.encode() + b"\n")
        return made.hexdigest()[:16]
