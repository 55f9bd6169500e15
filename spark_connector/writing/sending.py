"""Sends many mutations of one table, as objects or in pages: grouped by region, with several batches in flight.

1. Mutations are buffered until there are :data:`BATCHES_BUFFERED` batches of them, by rows or by bytes. Then they are
   sorted by row, grouped by the servers of their regions (as far as the cached locations know them), and cut into
   batches. So a call goes to one server and to few of its regions, also through a gateway; a server writes its log once
   per region of a call. Partial batches stay in the buffer, at most half of its size.
2. While the next mutations are collected, one batch is sent for each batch collected. So the caller and the servers
   work at the same time, and at most twice :data:`BATCHES_BUFFERED` batches are in memory.
3. At most ``concurrency`` batches are in flight. The rate limit counts the bytes sent, and sleeps before a batch.
4. The client retries each row that its region refused (moved, split, too busy). Rows that still fail raise one
   :class:`~metaclient.errors.BatchError` that names them, and nothing more is sent.

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
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from math import ceil, fsum
from types import TracebackType
from typing import TYPE_CHECKING, Any, TypeVar

from metaclient import keys
from metaclient.errors import BatchError, DeadlineExceeded, MetaClientError
from spark_connector.writing.loads import Load, Mutation, Mutations, Page

if TYPE_CHECKING:
    from metaclient import Connection
    from metaclient.backend import PutPage
    from metaclient.model import ServerName
    from metaclient.runtime import Runtime, Task

__all__ = ["Sender", "Sent"]

L = TypeVar("L", bound=Load)

#: The size of the buffer that is sorted and cut into batches, in batches.
BATCHES_BUFFERED = 8
#: A batch ends by the client's own deadline; if it has not ended this much later, the runtime is broken.
GRACE_S = 30.0
#: Rows that an error message names.
ROWS_NAMED = 3


@dataclass(slots=True)
class Sent:
    """The numbers of rows, cells, bytes and batches sent, and of retries."""

    rows: int = 0
    cells: int = 0
    bytes: int = 0
    batches: int = 0
    retries: int = 0


class Sender:
    """Buffers and sends mutations; as a context manager it sends the rest at its end, unless there was an error."""

    def __init__(
        self,
        connection: Connection,
        table: bytes,
        *,
        batch_rows: int = 1000,
        batch_bytes: int = 2 << 20,
        concurrency: int = 2,
        bytes_per_s: float | None = None,
        learn: Callable[[bytes], bool] | None = None,
    ) -> None:
        self._engine = connection.engine
        self._table = table
        self._learn = learn  # imports the location of a row's region; returns True if that was news
        self._batch_rows = batch_rows
        self._batch_bytes = batch_bytes
        self._concurrency = concurrency
        self._runtime: Runtime = connection.engine.runtime
        self._pace = _Pace(self._runtime, bytes_per_s) if bytes_per_s is not None else None
        self._mutations = Mutations()  # the buffer: mutations, and the pages below
        self._pages: list[Page] = []
        self._worths = 0  # full batches that were collected since the last cut
        self._rows_left = batch_rows  # rows and bytes until the next batch is full
        self._bytes_left = batch_bytes
        self._ready: deque[Load] = deque()
        self._running: list[Task[None]] = []
        self._retries_before = self._retries()
        self._sent_lock = self._runtime.lock()  # guards sent: batches end in other threads
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
        """Add one mutation; may send batches, and wait for one in flight."""
        self.extend((mutation,))

    def extend(self, mutations: Iterable[Mutation]) -> None:
        """Add many mutations; see :meth:`add`."""
        for mutation in mutations:
            self._take(1, self._mutations.add(mutation))

    def extend_page(self, page: PutPage) -> None:
        """Add a page of puts; see :meth:`add`."""
        load = Page(page)
        begin = 0
        while begin < len(load):
            end = load.until(begin, self._rows_left, self._bytes_left)
            part = load.part(begin, end)
            self._pages.append(part)
            self._take(len(part), part.byte_count)
            begin = end

    def flush(self) -> None:
        """Send the whole buffer and wait until it is written; raise BatchError if rows cannot be written."""
        self._ready.extend(self._batches())
        while self._ready:
            self._send(self._ready.popleft())
        while self._running:
            self._collect_one()
        self.sent.retries = self._retries() - self._retries_before

    # -- the buffer --------------------------------------------------------------------------------------------------

    def _take(self, rows: int, byte_count: int) -> None:
        """Count rows and bytes added to the buffer; when they fill a batch, send a ready one or cut the buffer."""
        self._rows_left -= rows
        self._bytes_left -= byte_count
        if self._rows_left > 0 and self._bytes_left > 0:
            return
        self._rows_left, self._bytes_left = self._batch_rows, self._batch_bytes
        self._worths += 1
        is_time = self._worths >= BATCHES_BUFFERED
        for _ in range(len(self._ready) if is_time else min(1, len(self._ready))):
            self._send(self._ready.popleft())
        if is_time:
            self._cut()

    def _cut(self) -> None:
        """Move the full batches to the ready queue, and the fullest others until the buffer is at most half full."""
        batches = sorted(self._batches(), key=self._worth)
        left = fsum(map(self._worth, batches))
        while batches and (self._worth(batches[-1]) >= 1 or left > BATCHES_BUFFERED / 2):
            fullest = batches.pop()
            left -= self._worth(fullest)
            self._ready.append(fullest)
        self._mutations = Mutations().joined(one for one in batches if isinstance(one, Mutations))
        self._pages = [one for one in batches if isinstance(one, Page)]
        self._worths = ceil(left)

    def _worth(self, batch: Load) -> float:
        """Return how full a batch is, by rows or by bytes; 1 is full."""
        return max(len(batch) / self._batch_rows, batch.byte_count / self._batch_bytes)

    def _batches(self) -> Iterator[Load]:
        """Empty the buffer and yield its batches, by server and sorted by row."""
        by_kind: dict[object, list[Page]] = {}
        for page in self._pages:
            by_kind.setdefault(page.kind, []).append(page)
        waiting: list[Load] = [self._mutations, *(first.joined(others) for first, *others in by_kind.values())]
        self._mutations, self._pages = Mutations(), []
        for load in waiting:
            for server, dealt in self._by_server(load.sorted()).items():
                self.servers.add(server)
                yield from self._cut_up(dealt)

    def _cut_up(self, load: Load) -> Iterator[Load]:
        begin = 0
        while begin < len(load):
            end = load.until(begin, self._batch_rows, self._batch_bytes)
            yield load.part(begin, end)
            begin = end

    def _by_server(self, load: L) -> dict[ServerName | None, L]:
        """Return the rows per server; the location cache is searched once per region, because the rows are sorted."""
        cached, learn = self._engine.cached_location, self._learn
        rows = load.rows()
        runs: dict[ServerName | None, list[tuple[int, int]]] = {}
        begin = 0
        while begin < len(rows):
            row = rows[begin]
            place = cached(self._table, row)
            if place is None and learn is not None and learn(row):
                place = cached(self._table, row)
            server, end_key = (place.server, place.region.end_key) if place is not None else (None, row + b"\0")
            end = bisect_left(rows, end_key, begin) if end_key else len(rows)
            found = runs.setdefault(server, [])
            goes_on = bool(found) and found[-1][1] == begin
            found.append((found.pop()[0] if goes_on else begin, end))
            begin = end
        dealt = {server: [load.part(*run) for run in found] for server, found in runs.items()}
        return {server: first.joined(others) for server, (first, *others) in dealt.items()}

    # -- one batch ---------------------------------------------------------------------------------------------------

    def _send(self, batch: Load) -> None:
        if self._pace is not None:
            self._pace.wait(batch.byte_count)
        if self._concurrency == 1:
            self._write(batch)
            return
        while len(self._running) >= self._concurrency:
            self._collect_one()
        self._running.append(self._runtime.start(self._write, batch, name="spark-write"))

    def _collect_one(self) -> None:
        """Wait for one batch in flight; raise its error after the other batches have ended."""
        deadline = self._runtime.now() + self._engine.config.operation_timeout_s + GRACE_S
        done: Any = self._runtime.wait_first(self._running, deadline)
        if done is None:
            raise DeadlineExceeded(
                f"{len(self._running)} batches on table '{keys.printable(self._table)}' did not end by their deadline",
                may_have_applied=True,
            )
        self._running.remove(done)
        try:
            done.result()
        except BaseException:
            self._settle()
            raise

    def _settle(self) -> None:
        """Wait for the batches in flight and ignore their errors: the first error is already being raised."""
        deadline = self._runtime.now() + self._engine.config.operation_timeout_s + GRACE_S
        while self._running:
            done: Any = self._runtime.wait_first(self._running, deadline)
            if done is None:
                return
            self._running.remove(done)

    def _write(self, batch: Load) -> None:
        """Write a batch; runs in a task of the runtime, up to ``concurrency`` at a time."""
        failed = batch.write(self._engine, self._table)
        if failed:
            raise BatchError(_summary(failed, len(batch), self._table), failed=failed)
        with self._sent_lock:
            sent = self.sent
            sent.rows += len(batch)
            sent.cells += batch.cell_count
            sent.bytes += batch.byte_count
            sent.batches += 1

    def _retries(self) -> int:
        return self._engine.retries()


class _Pace:
    """Limits the average bytes per second; an unused share is not carried over."""

    def __init__(self, runtime: Runtime, bytes_per_s: float) -> None:
        self._runtime = runtime
        self._bytes_per_s = bytes_per_s
        self._free_at = runtime.now()

    def wait(self, size: int) -> None:
        now = self._runtime.now()
        if self._free_at > now:
            self._runtime.sleep(self._free_at - now)
        self._free_at = max(self._free_at, now) + size / self._bytes_per_s


def _summary(failed: dict[bytes, MetaClientError], rows: int, table: bytes) -> str:
    row, error = next(iter(failed.items()))
    named = ", ".join(f"'{keys.printable(one)}'" for one in list(failed)[:ROWS_NAMED])
    more = f" and {len(failed) - ROWS_NAMED} more" if len(failed) > ROWS_NAMED else ""
    return (
        f"{len(failed)} of {rows} rows of a batch on '{keys.printable(table)}' could not be written: {named}"
        f"{more}; '{keys.printable(row)}': {type(error).__name__}: {error}"
    )
