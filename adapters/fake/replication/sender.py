"""Decides how a batch gets to its replica: where it is now, how often and how long it is tried (server.md 2.9).

Mirrors AsyncRegionReplicationRetryingCaller: each attempt asks anew where the replica is; ``replicateToReplica`` is
tried up to ``retries`` times more, with HBase's growing pauses, within one operation timeout that counts from the
hand-over; a server that does not know the call is told to ``replay`` instead. A batch with a marker has the longer
timeouts.

:class:`SendSlots` bounds how many sends are in progress to one server: sends are blocking calls here, and a hung server
with a thousand replicas must not take a thousand threads.

DIVERGENCES: a primary that closes ends its retries (seed 000, 6.3.3), as does one whose server has died; a send of a
server that hangs goes on when it wakes up.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Protocol

from adapters.fake.replication.config import ReplicationConfig
from adapters.fake.replication.replica_queue import Batch
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

__all__ = ["ReplicaSender", "SendSlots", "Wire"]

logger = logging.getLogger(__name__)

#: HConstants.RETRY_BACKOFF, as far as four attempts get.
_BACKOFF = (1, 2, 3, 5, 10, 20, 40, 100)


class Wire(Protocol):
    """How one primary reaches its replicas; the server and the cluster are behind it."""

    def place_of(self, replica_id: int) -> str | None:
        """The server that has the replica, None when it is nowhere."""
        ...

    def replicate(self, host: str, batch: Batch, deadline: float, *, is_legacy: bool) -> None:
        """One call; raises what the other server or the network says."""
        ...

    def is_wanted(self) -> bool:
        """Is the primary still open on a server that runs? May wait while that server hangs."""
        ...


#: Carries something and says how to tell of its end; must not raise.
Job = Callable[[], Callable[[], object]]


class SendSlots:
    """At most so many jobs at a time for each key; the rest wait in line. ``_lock`` guards the maps.

    Telling of the end of one job usually brings the next one for the same server: it is left to the task that tells,
    which is free in a moment, because waking another one costs as much as a batch.
    """

    def __init__(self, runtime: Runtime, slots: int) -> None:
        self._runtime = runtime
        self._slots = slots
        self._lock = runtime.lock()
        self._busy: dict[object, int] = {}
        self._telling: dict[object, int] = {}
        self._waiting: dict[object, deque[Job]] = {}

    def run(self, key: object, job: Job) -> None:
        """Start the job, or queue it; Overloaded when there is no task for it."""
        with self._lock:
            busy = self._busy.get(key, 0)
            waiting = self._waiting.get(key, ())
            if busy >= self._slots or self._telling.get(key, 0) > len(waiting):
                self._waiting.setdefault(key, deque()).append(job)
                return
            self._busy[key] = busy + 1
        try:
            self._runtime.start(self._work, key, job, name="replication-send")
        except BaseException:
            self._leave(key)
            raise

    def _work(self, key: object, job: Job) -> None:
        following: Job | None = job
        while following is not None:
            tell = following()
            with self._lock:
                self._telling[key] = self._telling.get(key, 0) + 1
            try:
                tell()
            finally:
                following = self._next(key)

    def _next(self, key: object) -> Job | None:
        """What the task that has told goes on with; None: it leaves."""
        with self._lock:
            _count_down(self._telling, key)
            waiting = self._waiting.get(key)
            if waiting:
                return waiting.popleft()
            self._waiting.pop(key, None)
            _count_down(self._busy, key)
        return None

    def _leave(self, key: object) -> None:
        with self._lock:
            _count_down(self._busy, key)


def _count_down(counts: dict[object, int], key: object) -> None:
    left = counts[key] - 1
    if left:
        counts[key] = left
    else:
        del counts[key]


class ReplicaSender:
    """Carries the batches of one sink."""

    def __init__(
        self, runtime: Runtime, config: ReplicationConfig, wire: Wire, slots: SendSlots, *, kind: str = "user"
    ) -> None:
        self._runtime = runtime
        self._config = config
        self._wire = wire
        self._slots = slots
        #: hbase:meta does not wait in line behind user tables.
        self._kind = kind

    def send(self, batch: Batch) -> Pending[None]:
        """Begin; the answer is a success, or the last error."""
        answer: Pending[None] = self._runtime.pending(name="a batch")
        config = self._config
        has_marker = batch.has_marker
        timeout_s = config.marker_operation_timeout_s if has_marker else config.operation_timeout_s
        rpc_s = config.marker_rpc_timeout_s if has_marker else config.rpc_timeout_s
        deadline = self._runtime.now() + timeout_s
        key = (self._kind, self._wire.place_of(batch.replica_id))
        try:
            self._slots.run(key, lambda: self._carried(answer, batch, deadline, rpc_s))
        except (Overloaded, ConnectionClosed) as error:
            answer.fail(error)
        return answer

    def _carried(self, answer: Pending[None], batch: Batch, deadline: float, rpc_s: float) -> Callable[[], object]:
        """Try until it is there or there is no more time for it; how to say what became of it."""
        try:
            self._try(batch, deadline, rpc_s)
        except MetaClientError as error:
            return partial(answer.fail, error)
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
                last = error
            if last.disposition is Disposition.FATAL or attempt >= self._config.retries:
                raise last
            pause_s = self._config.retry_pause_s * _BACKOFF[min(attempt, len(_BACKOFF) - 1)]
            if self._runtime.now() + pause_s >= deadline:
                raise last
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
