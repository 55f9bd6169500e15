"""Sends many mutations of one table: collected by the server of their region, several batches on their way at a time.

1. A mutation goes to the batch of the server that has its region, as far as the shipped locations know it; a batch is
   sent when it has enough rows or bytes. So a call goes to one server, also behind a gateway. Memory is bounded: beyond
   :data:`BATCHES_BUFFERED` batches' worth of waiting mutations the fullest one is sent as it is.
2. At most ``concurrency`` batches are on their way. The rate limit counts what is sent, and sleeps before a batch.
3. The client tries each row again that its region refused (moved, split, too busy). What it gives up on ends in one
   :class:`~metaclient.errors.BatchError` that names the rows; then nothing more is sent.

>>> import metaclient
>>> from metaclient.model import Cell, Put
>>> with metaclient.connect("scripted:") as connection:
...     connection.create_table("t", {"cf": {}})
...     with Sender(connection, b"t") as sender:
...         sender.add(Put(b"r1", (Cell(b"cf:a", 7, b"1"),)))
...     sender.sent.rows, connection.table("t").row(b"r1")
(1, {b'cf:a': b'1'})
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from types import TracebackType
from typing import TYPE_CHECKING, Any

from metaclient import keys, multi
from metaclient.errors import BatchError, DeadlineExceeded, MetaClientError
from metaclient.model import Delete, Increment, Put

if TYPE_CHECKING:
    from metaclient import Connection
    from metaclient.model import ServerName
    from metaclient.runtime import Runtime, Task

__all__ = ["Mutation", "Sender", "Sent", "bytes_of_mutation", "cells_of_mutation"]

Mutation = Put | Delete | Increment

#: Batches' worth of mutations that may wait in memory for their server's batch to be full.
BATCHES_BUFFERED = 8
#: What a KeyValue has beside row, column and value: lengths, timestamp and type (KeyValue.FIXED_OVERHEAD and infos).
CELL_OVERHEAD = 20
#: A batch ends by the client's own deadline; after this much more the runtime itself is broken.
GRACE_S = 30.0
#: Rows that an error message names.
ROWS_NAMED = 3


def cells_of_mutation(mutation: Mutation) -> int:
    """How many cells a mutation writes; a delete of a whole row counts as one."""
    if isinstance(mutation, Increment):
        return len(mutation.amounts)
    return len(mutation.cells) or 1


def bytes_of_mutation(mutation: Mutation) -> int:
    """About as many bytes as it has as KeyValues."""
    row = len(mutation.row) + CELL_OVERHEAD
    if isinstance(mutation, Increment):
        return sum([row + len(column) + 8 for column, _ in mutation.amounts])
    return sum([row + len(cell[0]) + len(cell[2]) for cell in mutation.cells]) or row


@dataclass(slots=True)
class Sent:
    """What was sent, and what it took."""

    rows: int = 0
    cells: int = 0
    bytes: int = 0
    batches: int = 0
    retries: int = 0


@dataclass(slots=True, eq=False)
class _Batch:
    mutations: list[Mutation] = field(default_factory=list)
    bytes: int = 0


class Sender:
    """Collects and sends; a context manager that sends the rest at its end (unless it ends with an error)."""

    def __init__(
        self,
        connection: Connection,
        table: bytes,
        *,
        batch_rows: int = 1000,
        batch_bytes: int = 2 << 20,
        concurrency: int = 2,
        bytes_per_s: float | None = None,
    ) -> None:
        self._connection = connection
        self._table = table
        self._batch_rows = batch_rows
        self._batch_bytes = batch_bytes
        self._concurrency = concurrency
        self._runtime: Runtime = connection._runtime
        self._pace = _Pace(self._runtime, bytes_per_s) if bytes_per_s is not None else None
        self._cached = connection._operations.locator.cache.cached
        self._waiting: dict[ServerName | None, _Batch] = {}
        self._waiting_rows = 0
        self._waiting_bytes = 0
        self._running: list[Task[None]] = []
        self._retries_before = self._retries()
        self._sent_lock = self._runtime.lock()  # guards sent: batches end in threads of their own
        self.sent = Sent()
        self.servers: set[ServerName | None] = set()

    def __enter__(self) -> Sender:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None:
            self.flush()
        else:
            self._settle()

    def add(self, mutation: Mutation) -> None:
        """Take one; may send a batch, and wait for one that is on its way."""
        place = self._cached(self._table, mutation.row)
        server = place.server if place is not None else None
        batch = self._waiting.get(server)
        if batch is None:
            batch = self._waiting[server] = _Batch()
            self.servers.add(server)
        size = bytes_of_mutation(mutation)
        batch.mutations.append(mutation)
        batch.bytes += size
        self._waiting_rows += 1
        self._waiting_bytes += size
        if len(batch.mutations) >= self._batch_rows or batch.bytes >= self._batch_bytes:
            self._send(server)
        elif (
            self._waiting_bytes > BATCHES_BUFFERED * self._batch_bytes
            or self._waiting_rows > BATCHES_BUFFERED * self._batch_rows
        ):
            self._send(max(self._waiting, key=lambda one: self._waiting[one].bytes))

    def flush(self) -> None:
        """Send all that waits, and wait until all of it is written; BatchError when some rows cannot be."""
        for server in list(self._waiting):
            self._send(server)
        while self._running:
            self._collect_one()
        self.sent.retries = self._retries() - self._retries_before

    # -- one batch ---------------------------------------------------------------------------------------------

    def _send(self, server: ServerName | None) -> None:
        batch = self._waiting.pop(server)
        self._waiting_rows -= len(batch.mutations)
        self._waiting_bytes -= batch.bytes
        if self._pace is not None:
            self._pace.wait(batch.bytes)
        if self._concurrency == 1:
            self._write(batch)
            return
        while len(self._running) >= self._concurrency:
            self._collect_one()
        self._running.append(self._runtime.start(self._write, batch, name="spark-write"))

    def _collect_one(self) -> None:
        """Wait for one batch that is on its way; its error is raised after the others have ended."""
        deadline = self._runtime.now() + self._connection.config.operation_timeout_s + GRACE_S
        done: Any = self._runtime.wait_first(self._running, deadline)
        if done is None:
            raise DeadlineExceeded(
                f"{len(self._running)} batches on table '{keys.printable(self._table)}' did not end in their time",
                may_have_applied=True,
            )
        self._running.remove(done)
        try:
            done.result()
        except BaseException:
            self._settle()
            raise

    def _settle(self) -> None:
        """Wait for what is on its way, whatever becomes of it: a first error is already being raised."""
        deadline = self._runtime.now() + self._connection.config.operation_timeout_s + GRACE_S
        while self._running:
            done: Any = self._runtime.wait_first(self._running, deadline)
            if done is None:
                return
            self._running.remove(done)

    def _write(self, batch: _Batch) -> None:
        """Runs in a task of the runtime, one of several."""
        outcomes = multi.batch(self._connection._operations, self._table, batch.mutations)
        failed = {
            mutation.row: outcome
            for mutation, outcome in zip(batch.mutations, outcomes, strict=True)
            if isinstance(outcome, MetaClientError)
        }
        if failed:
            raise BatchError(_summary(failed, batch.mutations, self._table), failed=failed)
        cells = sum(map(cells_of_mutation, batch.mutations))
        with self._sent_lock:
            sent = self.sent
            sent.rows += len(batch.mutations)
            sent.cells += cells
            sent.bytes += batch.bytes
            sent.batches += 1

    def _retries(self) -> int:
        return int(self._connection._telemetry.total("metaclient.retries"))


class _Pace:
    """So many bytes a second, on average; what was not used is not saved up."""

    def __init__(self, runtime: Runtime, bytes_per_s: float) -> None:
        self._runtime = runtime
        self._bytes_per_s = bytes_per_s
        self._free_at = runtime.now()

    def wait(self, size: int) -> None:
        now = self._runtime.now()
        if self._free_at > now:
            self._runtime.sleep(self._free_at - now)
        self._free_at = max(self._free_at, now) + size / self._bytes_per_s


def _summary(failed: dict[bytes, MetaClientError], mutations: Sequence[Mutation], table: bytes) -> str:
    row, error = next(iter(failed.items()))
    named = ", ".join(f"'{keys.printable(one)}'" for one in list(failed)[:ROWS_NAMED])
    more = f" and {len(failed) - ROWS_NAMED} more" if len(failed) > ROWS_NAMED else ""
    return (
        f"{len(failed)} of {len(mutations)} rows of a batch on '{keys.printable(table)}' could not be written: {named}"
        f"{more}; '{keys.printable(row)}': {type(error).__name__}: {error}"
    )
