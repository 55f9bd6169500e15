"""Sends many mutations of one table: region by region, several batches on their way at a time.

1. Mutations wait until there are :data:`BATCHES_BUFFERED` batches' worth of them, by rows or by bytes. Then they are
   sorted by row, dealt out to the servers of their regions, as far as the shipped locations know them, and what a
   server gets is cut into batches. So a call goes to one server and to few regions there, also behind a gateway: a
   server writes its log once for each region of a call. What does not fill a batch waits on, half of all at most.
2. While the next ones are collected, one batch is sent for each batch's worth: the caller and the servers work side by
   side, and no more than twice :data:`BATCHES_BUFFERED` batches are in memory.
3. At most ``concurrency`` batches are on their way. The rate limit counts what is sent, and sleeps before a batch.
4. The client tries each row again that its region refused (moved, split, too busy). What it gives up on ends in one
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

from bisect import bisect_left
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from math import ceil, fsum
from operator import itemgetter
from types import TracebackType
from typing import TYPE_CHECKING, Any

from metaclient import keys, multi
from metaclient.errors import BatchError, DeadlineExceeded, MetaClientError
from metaclient.model import Delete, Increment, Put, PutCells

if TYPE_CHECKING:
    from metaclient import Connection
    from metaclient.model import ServerName
    from metaclient.runtime import Runtime, Task

__all__ = ["Mutation", "Sender", "Sent", "bytes_of_mutation", "cells_of_mutation"]

Mutation = Put | Delete | Increment
_Waiting = tuple[bytes, int, Mutation]  # row, bytes, and what is to be sent

#: Batches' worth of mutations that are sorted and cut at a time.
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
    if isinstance(mutation.cells, PutCells):
        columns, values = mutation.cells.columns, mutation.cells.values
        return len(columns) * row + sum(map(len, columns)) + sum(map(len, values))
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
    waiting: list[_Waiting]
    bytes: int


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
        self._waiting: list[_Waiting] = []
        self._worths = 0  # batches' worth that were taken since the last cut
        self._rows_left = batch_rows  # until the next batch's worth is full, as are the bytes
        self._bytes_left = batch_bytes
        self._ready: deque[_Batch] = deque()
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
        """Take one; may send batches, and wait for one that is on its way."""
        self.extend((mutation,))

    def extend(self, mutations: Iterable[Mutation]) -> None:
        """Take many, one after the other."""
        for mutation in mutations:
            size = bytes_of_mutation(mutation)
            self._waiting.append((mutation.row, size, mutation))
            self._rows_left -= 1
            self._bytes_left -= size
            if self._rows_left <= 0 or self._bytes_left <= 0:
                self._go_on()

    def flush(self) -> None:
        """Send all that waits, and wait until all of it is written; BatchError when some rows cannot be."""
        self._ready.extend(self._batches())
        while self._ready:
            self._send(self._ready.popleft())
        while self._running:
            self._collect_one()
        self.sent.retries = self._retries() - self._retries_before

    # -- what waits ----------------------------------------------------------------------------------------------

    def _go_on(self) -> None:
        """A batch's worth has been taken: one may go."""
        self._rows_left, self._bytes_left = self._batch_rows, self._batch_bytes
        self._worths += 1
        is_time = self._worths >= BATCHES_BUFFERED
        for _ in range(len(self._ready) if is_time else min(1, len(self._ready))):
            self._send(self._ready.popleft())
        if is_time:
            self._cut()

    def _cut(self) -> None:
        """Make the full batches ready, and as many others as leave half of what may wait, the fullest first."""
        batches = sorted(self._batches(), key=self._worth)
        left = fsum(map(self._worth, batches))
        while batches and (self._worth(batches[-1]) >= 1 or left > BATCHES_BUFFERED / 2):
            fullest = batches.pop()
            left -= self._worth(fullest)
            self._ready.append(fullest)
        self._waiting = [one for batch in batches for one in batch.waiting]
        self._worths = ceil(left)

    def _worth(self, batch: _Batch) -> float:
        """How full it is, by rows or by bytes; 1 is full."""
        return max(len(batch.waiting) / self._batch_rows, batch.bytes / self._batch_bytes)

    def _batches(self) -> Iterator[_Batch]:
        """All that waits, by server and in the order of its rows; it waits no more."""
        waiting, self._waiting = self._waiting, []
        waiting.sort(key=itemgetter(0))  # stable: two of one row keep their order
        for server, dealt in self._by_server(waiting).items():
            self.servers.add(server)
            begun = size = 0
            for index, (_, bytes_, _) in enumerate(dealt, 1):
                size += bytes_
                if index - begun >= self._batch_rows or size >= self._batch_bytes or index == len(dealt):
                    yield _Batch(dealt[begun:index], size)
                    begun, size = index, 0

    def _by_server(self, waiting: Sequence[_Waiting]) -> dict[ServerName | None, list[_Waiting]]:
        """One look at the map for each region: its rows are neighbours."""
        cached = self._connection._operations.locator.cache.cached
        rows = [row for row, _, _ in waiting]
        dealt: dict[ServerName | None, list[_Waiting]] = {}
        begun = 0
        while begun < len(rows):
            place = cached(self._table, rows[begun])
            server, end_key = (place.server, place.region.end_key) if place is not None else (None, rows[begun] + b"\0")
            end = bisect_left(rows, end_key, begun) if end_key else len(rows)
            dealt.setdefault(server, []).extend(waiting[begun:end])
            begun = end
        return dealt

    # -- one batch ---------------------------------------------------------------------------------------------

    def _send(self, batch: _Batch) -> None:
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
        mutations = [mutation for _, _, mutation in batch.waiting]
        outcomes = multi.batch(self._connection._operations, self._table, mutations)
        failed = {
            mutation.row: outcome
            for mutation, outcome in zip(mutations, outcomes, strict=True)
            if isinstance(outcome, MetaClientError)
        }
        if failed:
            raise BatchError(_summary(failed, mutations, self._table), failed=failed)
        cells = sum(map(cells_of_mutation, mutations))
        with self._sent_lock:
            sent = self.sent
            sent.rows += len(mutations)
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
