"""Decides how a batch is sent to its replica: to which server, how often and how long it is tried.

Mirrors AsyncRegionReplicationRetryingCaller: each attempt locates the replica again; ``replicateToReplica`` is retried
up to ``retries`` times, with HBase's growing pauses, within one operation timeout that starts at :meth:`send`; to a
server that does not support this call, ``replay`` is sent instead. A batch with a marker has longer timeouts.

:class:`SendSlots` bounds how many sends are in progress to one server: sends are blocking calls here, and a hung server
with a thousand replicas must not take a thousand threads.

DIVERGENCES: the retries of a primary end when it closes or its server dies; a send of a hung server continues when the
server resumes.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Protocol

from metaclient.errors import (
    CallTimeout,
    ConnectionClosed,
    Disposition,
    MetaClientError,
    Overloaded,
    RegionOffline,
    Unsupported,
)
from metaclient.runtime import Pending, Runtime
from metaclient_fake.config.region_replication import ReplicationConfig
from metaclient_fake.region_replication.replica_queue import Batch

__all__ = ["ReplicaSender", "ReplicaTransport", "SendSlots"]

logger = logging.getLogger(__name__)

#: The first values of HConstants.RETRY_BACKOFF.
_BACKOFF = (1, 2, 3, 5, 10, 20, 40, 100)


class ReplicaTransport(Protocol):
    """Delivers the batches of one primary to its replicas, through its server and the cluster."""

    def place_of(self, replica_id: int) -> str | None:
        """Return the host of the replica; None if it is on no server."""
        ...

    def replicate(self, host: str, batch: Batch, deadline: float, *, is_legacy: bool) -> None:
        """Send a batch in one call; raise the error of the other server or of the network."""
        ...

    def fill(self, batch: Batch) -> None:
        """Add the entries that came since the batch was made; the batch is about to be sent."""
        ...

    def is_wanted(self) -> bool:
        """Return True if the primary is open on a server that runs. May wait while that server hangs."""
        ...


#: Carries a batch and returns the function that reports its end; must not raise.
Job = Callable[[], Callable[[], object]]
#: Reports that a job will never run, and why.
Refusal = Callable[[BaseException], object]


class _Line:
    """The jobs for one key: how many run, how many of those report their end just now, and which wait."""

    __slots__ = ("busy", "telling", "waiting")

    def __init__(self) -> None:
        self.busy = 0
        self.telling = 0
        self.waiting: deque[tuple[Job, Refusal]] = deque()


class SendSlots:
    """Runs at most ``slots`` jobs at a time per key; further jobs are queued. ``_lock`` guards all queues.

    Reporting the end of one job usually queues the next one for the same server. The reporting task runs that job
    itself, because waking another task costs as much as a batch.
    """

    def __init__(self, runtime: Runtime, slots: int) -> None:
        self._runtime = runtime
        self._slots = slots
        self._lock = runtime.lock()
        self._lines: dict[object, _Line] = {}  # of the keys that have a job

    def run(self, key: object, job: Job, refused: Refusal) -> None:
        """Start the job, or queue it. ``refused`` is called with the error when there is no task for it."""
        with self._lock:
            line = self._lines.get(key)
            if line is None:
                line = self._lines[key] = _Line()
            if line.busy >= self._slots or line.telling > len(line.waiting):
                line.waiting.append((job, refused))
                return
            line.busy += 1
        try:
            self._runtime.start(self._work, key, line, job, name="replication-send")
        except (Overloaded, ConnectionClosed) as error:
            for one in (refused, *self._given_up(key, line)):
                one(error)

    def _given_up(self, key: object, line: _Line) -> list[Refusal]:
        """Take out the jobs behind a task that could not be started; return the callbacks that refuse them."""
        with self._lock:
            alone = line.busy == 1
            waiting = [refused for _, refused in line.waiting] if alone else []
            if alone:
                line.waiting.clear()
            self._leave(key, line)
        return waiting

    def _work(self, key: object, line: _Line, job: Job) -> None:
        following: Job | None = job
        while following is not None:
            tell = following()
            with self._lock:
                line.telling += 1
            try:
                tell()
            finally:
                following = self._next(key, line)

    def _next(self, key: object, line: _Line) -> Job | None:
        """Return the next job of the task; None if it ends."""
        with self._lock:
            line.telling -= 1
            if line.waiting:
                return line.waiting.popleft()[0]
            self._leave(key, line)
        return None

    def _leave(self, key: object, line: _Line) -> None:
        line.busy -= 1
        if not line.busy:
            del self._lines[key]


class ReplicaSender:
    """Sends the batches of one sink."""

    def __init__(
        self,
        runtime: Runtime,
        config: ReplicationConfig,
        wire: ReplicaTransport,
        slots: SendSlots,
        *,
        kind: str = "user",
    ) -> None:
        self._runtime = runtime
        self._config = config
        self._wire = wire
        self._slots = slots
        #: Part of the key of the slots: hbase:meta is not queued behind user tables.
        self._kind = kind

    def send(self, batch: Batch) -> Pending[None]:
        """Start sending a batch; the returned future completes, or fails with the last error."""
        answer: Pending[None] = self._runtime.pending(name="a batch")
        config = self._config
        has_marker = batch.has_marker
        timeout_s = config.marker_operation_timeout_s if has_marker else config.operation_timeout_s
        rpc_s = config.marker_rpc_timeout_s if has_marker else config.rpc_timeout_s
        deadline = self._runtime.now() + timeout_s
        key = (self._kind, self._wire.place_of(batch.replica_id))
        self._slots.run(key, partial(self._carried, answer, batch, deadline, rpc_s), answer.fail)
        return answer

    def _carried(self, answer: Pending[None], batch: Batch, deadline: float, rpc_s: float) -> Callable[[], object]:
        """Send the batch, with retries until its deadline; return the function that reports the result."""
        try:
            if len(batch.entries) < self._config.batch_entries:
                self._wire.fill(batch)
            self._try(batch, deadline, rpc_s)
        except MetaClientError as error:
            return partial(answer.fail, error.with_traceback(None))  # its frames would keep the batch in memory
        except BaseException as error:
            logger.exception("a batch for replica %d could not be sent", batch.replica_id)
            return partial(answer.fail, error)
        return partial(answer.complete, None)

    def _try(self, batch: Batch, deadline: float, rpc_s: float) -> None:
        is_legacy = False
        attempt = 0
        while True:
            try:
                self._attempt(batch, min(deadline, self._runtime.now() + rpc_s), is_legacy)
                return
            except Unsupported as error:
                if is_legacy:
                    raise
                logger.info("replica %d: %s; replaying instead", batch.replica_id, error)
                is_legacy = True
                continue
            except ConnectionClosed:
                raise
            except MetaClientError as error:
                pause_s = self._config.retry_pause_s * _BACKOFF[min(attempt, len(_BACKOFF) - 1)]
                is_last = error.disposition is Disposition.FATAL or attempt >= self._config.retries
                if is_last or self._runtime.now() + pause_s >= deadline:
                    raise
            attempt += 1
            self._runtime.sleep(pause_s)

    def _attempt(self, batch: Batch, deadline: float, is_legacy: bool) -> None:
        if not self._wire.is_wanted():
            raise ConnectionClosed("the primary is not open here any more")
        if self._runtime.now() >= deadline:
            raise CallTimeout("the batch waited in line until its deadline")
        host = self._wire.place_of(batch.replica_id)
        if host is None:
            raise RegionOffline(f"replica {batch.replica_id} is on no server")
        self._wire.replicate(host, batch, deadline, is_legacy=is_legacy)
