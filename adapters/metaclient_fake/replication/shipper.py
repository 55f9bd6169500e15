"""Ships the batches of one log group to the peer: in parallel, with retries without end, and stores the position.

Mirrors ``ReplicationSourceShipper`` and ``HBaseInterClusterReplicationEndpoint`` (HBase 2.6.1). For each batch:

1. Wait while the peer's bandwidth is used up.
2. Split the entries into jobs and send them, up to ``calls_max`` at once, each call to a sink drawn at random.
3. Send the failed jobs again after 1, 2, 3 ... x ``retry_pause_s``, whatever the error was. After a timeout the next
   timeout is 2, 3, 5, 10 ... times as long (``HConstants.RETRY_BACKOFF``). After an error of the sink, or when a sink
   does not listen, the sample of sinks is drawn anew; after a timeout or a broken connection the sample stays.
4. If the sink has no such table or family, and ``drops_deleted_...`` is set, drop the edits of tables or families that
   are gone in this cluster, too.
5. Store the position. A crash before this makes the next owner of the queue send the batch again.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Sequence

from metaclient.errors import (
    CallTimeout,
    ConnectionClosed,
    MetaClientError,
    NoSuchFamily,
    Overloaded,
    ServerUnreachable,
    TableNotFound,
)
from metaclient.runtime import Runtime, Task
from metaclient.wire.rpc.replication import ShippedEntry
from metaclient_fake.config.replication import PeerReplicationConfig
from metaclient_fake.replication.batches import BufferQuota, EntryBatch
from metaclient_fake.replication.endpoint import PeerEndpoint
from metaclient_fake.replication.metrics import SourceMetrics
from metaclient_fake.replication.reader import WalTail
from metaclient_fake.replication.sinks import SinkPool
from metaclient_fake.replication.splitting import IsOrdered, Job, jobs_of, without

__all__ = ["FamiliesOf", "Shipper"]

logger = logging.getLogger(__name__)

#: HConstants.RETRY_BACKOFF: factors of the timeout.
_BACKOFF = (1, 2, 3, 5, 10, 20, 40, 100, 100, 100, 100, 200, 200)

#: Returns the families of a table of this cluster; None if there is no such table.
FamiliesOf = Callable[[bytes], frozenset[bytes] | None]


class Shipper:
    """The shipper of one log group. Its task takes batches from the reader until the reader ends or the stop."""

    def __init__(
        self,
        runtime: Runtime,
        config: PeerReplicationConfig,
        tail: WalTail,
        *,
        endpoint: PeerEndpoint,
        sinks: SinkPool,
        quota: BufferQuota,
        metrics: SourceMetrics,
        is_ordered: IsOrdered | None,
        is_enabled: Callable[[], bool],
        throttle: Callable[[int], float],
        acknowledged: Callable[[EntryBatch], None],
        families_of: FamiliesOf,
    ) -> None:
        """Make a shipper that does nothing before :meth:`run`.

        ``throttle`` returns the seconds to wait before a batch of so many bytes, and is called again after the wait.
        ``acknowledged`` is called when the peer has a whole batch, and stores its position.
        """
        self._runtime = runtime
        self._config = config
        self._tail = tail
        self._endpoint = endpoint
        self._sinks = sinks
        self._quota = quota
        self._metrics = metrics
        self._is_ordered = is_ordered
        self._is_enabled = is_enabled
        self._throttle = throttle
        self._acknowledged = acknowledged
        self._families_of = families_of
        self._changed = runtime.condition()  # notified at the stop
        self._is_stopped = False

    def stop(self) -> None:
        """End pauses and retries. A call in flight is not cancelled; its outcome is not stored."""
        with self._changed:
            self._is_stopped = True
            self._changed.notify_all()

    def run(self) -> None:
        """Ship batches until the reader has ended, or until the stop."""
        while (batch := self._tail.take()) is not None:
            try:
                if not self._ship(batch) or self._is_stopped:
                    return
                self._acknowledged(batch)
                self._count(batch)
            finally:
                self._quota.release(batch.size)

    def _count(self, batch: EntryBatch) -> None:
        metrics = self._metrics
        metrics.last_error = ""
        if not batch.entries:
            return
        metrics.edits_shipped += sum(map(_operations, batch.entries))
        metrics.batches_shipped += 1
        metrics.bytes_shipped += batch.size
        metrics.last_shipped_ms = batch.last_write_time_ms
        metrics.age_of_last_shipped_ms = self._runtime.time_ms() - batch.last_write_time_ms

    def _pause(self, seconds: float) -> None:
        """Sleep, at most until the stop."""
        until = self._runtime.now() + seconds
        with self._changed:
            while not self._is_stopped and self._changed.wait(until):
                pass

    def _ship(self, batch: EntryBatch) -> bool:
        """Send a batch until the peer has all of it; return False after the stop."""
        if not batch.entries:
            return True
        self._metrics.next_to_replicate_ms = batch.last_write_time_ms
        while pause_s := self._throttle(batch.size):
            self._pause(pause_s)
            if self._is_stopped:
                return False
        jobs: list[Job] | None = None
        timeout_s = self._config.ship_timeout_s
        multiplier = 1
        while not self._is_stopped:
            if not self._is_enabled():
                multiplier = self._pause_and_grow(multiplier)
                continue
            sinks = self._sinks.update(self._endpoint.servers())
            if not sinks:
                self._metrics.last_error = "the peer has no servers"
                self._pause(self._config.retry_pause_s)
                continue
            if jobs is None:
                jobs = self._jobs(batch.entries, sinks)
            jobs, errors = self._send(jobs, timeout_s)
            if errors and not self._is_stopped:
                jobs = self._react(jobs, errors)
            if not jobs:
                return True
            if any(isinstance(error, CallTimeout) for error in errors):
                timeout_s = self._config.ship_timeout_s * _BACKOFF[min(multiplier, len(_BACKOFF) - 1)]
            multiplier = self._pause_and_grow(multiplier)
        return False

    def _jobs(self, entries: Sequence[ShippedEntry], sinks: int) -> list[Job]:
        config = self._config
        return jobs_of(
            entries,
            is_ordered=self._is_ordered,
            sinks=sinks,
            calls_max=config.calls_max,
            request_bytes_max=config.request_bytes_max,
        )

    def _pause_and_grow(self, multiplier: int) -> int:
        self._pause(self._config.retry_pause_s * multiplier)
        return min(multiplier + 1, self._config.retry_multiplier_max)

    def _react(self, jobs: list[Job], errors: Sequence[MetaClientError]) -> list[Job]:
        """Choose other sinks, or drop the edits of deleted tables and families; return the jobs that are left."""
        config, metrics = self._config, self._metrics
        is_first = not metrics.last_error
        metrics.failed_calls += len(errors)
        metrics.last_error = f"{type(errors[-1]).__name__}: {errors[-1]}"
        level = logging.WARNING if is_first else logging.DEBUG
        logger.log(level, "%d of %d calls to a peer failed; last error: %s", len(errors), len(jobs), errors[-1])
        if config.drops_deleted_tables and any(isinstance(error, TableNotFound) for error in errors):
            return without(jobs, self._of_existing_table)
        if config.drops_deleted_families and any(isinstance(error, NoSuchFamily) for error in errors):
            return without(jobs, self._of_existing_families)
        if not all(map(_is_without_answer, errors)):
            self._sinks.choose_anew()
        return jobs

    def _of_existing_table(self, entry: ShippedEntry) -> ShippedEntry | None:
        return entry if self._families_of(entry.key.table) is not None else None

    def _of_existing_families(self, entry: ShippedEntry) -> ShippedEntry | None:
        families = self._families_of(entry.key.table) or frozenset()
        cells = tuple([(row, cell) for row, cell in entry.cells if cell.family in families])
        return ShippedEntry(entry.key, cells) if cells else None

    # -- calls -------------------------------------------------------------------------------------------------

    def _send(self, jobs: list[Job], timeout_s: float) -> tuple[list[Job], list[MetaClientError]]:
        """Run the jobs, ``calls_max`` at a time; return those that failed, in their order, and the errors."""
        waiting = deque(enumerate(jobs))
        failed: dict[int, MetaClientError] = {}

        def work() -> None:
            while not self._is_stopped:
                try:
                    index, job = waiting.popleft()
                except IndexError:
                    return
                try:
                    self._run_job(job, timeout_s)
                except MetaClientError as error:
                    failed[index] = error.with_traceback(None)  # its frames would keep the entries in memory

        tasks = self._start(work, min(self._config.calls_max, len(jobs)) - 1)
        work()
        for task in tasks:
            task.result()
        unsent = {index for index, _ in waiting}
        left = [job for index, job in enumerate(jobs) if index in failed or index in unsent]
        return left, [failed[index] for index in sorted(failed)]

    def _start(self, work: Callable[[], None], count: int) -> list[Task[None]]:
        """Start up to ``count`` tasks, fewer when the runtime has no more: the shipper's own task works, too."""
        tasks: list[Task[None]] = []
        for _ in range(count):
            try:
                tasks.append(self._runtime.start(work, name="replication-call"))
            except Overloaded:
                break
        return tasks

    def _run_job(self, job: Job, timeout_s: float) -> None:
        for request in job:
            sink = self._sinks.draw()
            if sink is None:
                raise ConnectionClosed("the peer has no servers any more")
            try:
                self._endpoint.replicate(sink, request, self._runtime.now() + timeout_s)
            except MetaClientError:
                self._sinks.failed(sink)
                raise
            self._sinks.succeeded(sink)


def _is_without_answer(error: MetaClientError) -> bool:
    """Return True if the call was sent and got no answer: HBase then keeps its sample of sinks."""
    return isinstance(error, CallTimeout) or (isinstance(error, ServerUnreachable) and error.may_have_applied)


def _operations(entry: ShippedEntry) -> int:
    """Return the number of rows of an entry (``ReplicationSourceShipper.countDistinctRowKeys``)."""
    cells = entry.cells
    return 1 if len(cells) == 1 else len({row for row, _ in cells})
