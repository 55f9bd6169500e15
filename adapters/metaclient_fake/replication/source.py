"""Ships one queue of logs to one peer: a reader and a shipper per log group.

Mirrors ``ReplicationSource`` and ``RecoveredReplicationSource`` (HBase 2.6.1). A source first asks for the id of the
peer's cluster, after 1, 2, 3 ... x ``retry_pause_s``, because its filters need it. The source of a claimed queue ends
when it has shipped the last log of the queue.
"""

from __future__ import annotations

import logging
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Protocol

from metaclient.errors import ConnectionClosed, MetaClientError
from metaclient.replication_peers import Peer, PeerState, SourceLoad
from metaclient.runtime import Runtime, Task
from metaclient_fake.config.replication import PeerReplicationConfig, SerialBug
from metaclient_fake.replication.batches import BufferQuota, EntryBatch, StorePosition
from metaclient_fake.replication.endpoint import PeerEndpoint
from metaclient_fake.replication.filters import EntryFilter, has_scope_2
from metaclient_fake.replication.metrics import SourceMetrics
from metaclient_fake.replication.queues import QueueId, wal_group
from metaclient_fake.replication.reader import OrderCheck, WalTail
from metaclient_fake.replication.shipper import FamiliesOf, Shipper
from metaclient_fake.replication.sinks import SinkPool
from metaclient_fake.replication.splitting import IsOrdered
from metaclient_fake.replication.throttle import CYCLES_PER_SECOND, Throttle
from metaclient_fake.storage.wal import WalFile
from metaclient_fake.storage.wal_reader import WalReader

__all__ = ["Source", "SourceHost"]

logger = logging.getLogger(__name__)


class MakeEndpoint(Protocol):
    """Connects a source to the cluster of a peer; raises MetaClientError when that is not possible now."""

    def __call__(self, peer: Peer) -> PeerEndpoint: ...


class MakeOrderCheck(Protocol):
    """Makes the check of a serial source: may this entry be pushed to the peer now?"""

    def __call__(self, peer_id: str) -> OrderCheck: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceHost:
    """What all sources of a region server share. :meth:`make_source` is the ``SourceFactory`` of its manager."""

    runtime: Runtime
    config: PeerReplicationConfig
    cluster_id: uuid.UUID  # of this cluster
    quota: BufferQuota
    find_wal: Callable[[str], WalFile | None]
    make_endpoint: MakeEndpoint
    make_order_check: MakeOrderCheck
    families_of: FamiliesOf
    is_running: Callable[[], bool]  # False while the server hangs: its sources stand still, too
    abort: Callable[[str], None]  # ends the server, because a source had an error of our own (a bug)

    def make_source(
        self,
        queue: QueueId,
        peer: Callable[[], Peer],
        positions: Mapping[str, int],
        *,
        store: StorePosition,
        finished: Callable[[], None],
    ) -> Source:
        """Make the source of a queue; it begins with :meth:`Source.start`."""
        return Source(self, queue, peer, positions, store=store, finished=finished)


@dataclass(slots=True)
class _LogGroup:
    """The logs with one prefix: their reader, their shipper and what these have done."""

    tail: WalTail
    shipper: Shipper
    metrics: SourceMetrics


@dataclass(slots=True)
class _AcknowledgedPart:
    """How much of a log the peer has acknowledged. ``entries`` is None until they are counted from the log."""

    position: int
    entries: int | None = None


class Source:
    """Ships the logs of one queue. ``_changed`` guards the mutable fields and is notified at the stop."""

    def __init__(
        self,
        host: SourceHost,
        queue: QueueId,
        peer: Callable[[], Peer],
        positions: Mapping[str, int],
        *,
        store: StorePosition,
        finished: Callable[[], None],
    ) -> None:
        """Make a source that does nothing before :meth:`start`.

        ``peer`` returns the peer as it is now: its state and bandwidth are read again and again; its tables and its
        serial flag once. ``positions`` are the logs of the queue, oldest first, and where to begin in each. ``store``
        is called by the shipper after each acknowledged batch, never after :meth:`stop` has returned and the tasks
        have ended. ``finished`` is called once, when a claimed queue has been shipped to its end.
        """
        self._host = host
        self._runtime = host.runtime
        self._config = host.config
        self.queue = queue
        self._peer = peer
        self._store = store
        self._finished = finished
        config = host.config
        self._sinks = SinkPool(host.runtime, ratio=config.sink_ratio, threshold=config.bad_sink_threshold)
        self._throttle = Throttle(0, host.runtime.now())
        self._changed = host.runtime.condition()
        self._positions = dict(positions)  # of logs that no group reads yet
        self._acknowledged = {wal: _AcknowledgedPart(position) for wal, position in positions.items()}
        self._groups: dict[str, _LogGroup] = {}
        self._tasks: list[Task[None]] = []
        self._endpoint: PeerEndpoint | None = None
        self._filter: EntryFilter | None = None
        self._is_stopped = False
        self._connect_error = ""  # of the last attempt to ask for the peer's cluster id
        self._unfinished = 0  # groups whose shippers run

    def __repr__(self) -> str:
        return f"Source({self.queue.text} on {self.queue.server})"

    # -- used by the manager -----------------------------------------------------------------------------------

    def start(self) -> None:
        """Start the tasks; return at once."""
        self._start(self._begin, "begin")

    def stop(self) -> None:
        """Have the tasks end; return at once. Idempotent."""
        with self._changed:
            self._is_stopped = True
            groups, endpoint = list(self._groups.values()), self._endpoint
            self._changed.notify_all()
        for group in groups:
            group.tail.stop()
            group.shipper.stop()
        if endpoint is not None:
            endpoint.close()

    def wait_ended(self, deadline: float) -> bool:
        """Wait until all tasks have ended; return False at the deadline."""
        waited = 0
        while waited < len(self._tasks):
            if self._runtime.wait_first((self._tasks[waited],), deadline) is None:
                return False
            waited += 1
        return True

    def enqueue(self, wal: str) -> None:
        """Read this new log after the others of its group; return at once."""
        with self._changed:
            group = self._groups.get(wal_group(wal))
            self._acknowledged[wal] = _AcknowledgedPart(0)
            if group is None:
                self._positions[wal] = 0
            else:
                group.tail.enqueue(wal)
            if group is None and self._filter is not None:
                self._start_groups()

    def load(self) -> SourceLoad:
        """Return the status of the queue (``ReplicationLoadSource``)."""
        with self._changed:
            groups, unread = list(self._groups.values()), len(self._positions)
        metrics = [group.metrics for group in groups]
        queue_edits, queue_bytes = self._left()
        now_ms = self._runtime.time_ms()
        return SourceLoad(
            peer_id=self.queue.peer,
            server=self.queue.server,
            queue_id=self.queue.text,
            age_of_last_shipped_ms=max((one.age_of_last_shipped_ms for one in metrics), default=0),
            log_queue=unread + sum(len(group.tail.wals) for group in groups),
            last_shipped_ms=max((one.last_shipped_ms for one in metrics), default=0),
            lag_ms=max((one.lag_ms(now_ms) for one in metrics), default=0),
            next_to_replicate_ms=max((one.next_to_replicate_ms for one in metrics), default=0),
            is_recovered=self.queue.is_recovered,
            is_running=bool(groups) and not self._is_stopped,
            has_edits_since_restart=any(one.edits_shipped for one in metrics),
            edits_read=sum(one.edits_read for one in metrics),
            edits_shipped=sum(one.edits_shipped for one in metrics),
            queue_edits=queue_edits,
            queue_bytes=queue_bytes,
            sinks=self._sinks.sinks,
            failed_calls=sum(one.failed_calls for one in metrics),
            last_error=self._last_error(metrics),
            blocked=tuple(one.blocked for one in metrics if one.blocked is not None),
        )

    def _left(self) -> tuple[int, int]:
        """Return the entries of the logs that the peer has not acknowledged, and their bytes."""
        with self._changed:
            acknowledged = list(self._acknowledged.items())
        edits = size = 0
        for wal, done in acknowledged:
            file = self._host.find_wal(wal)
            if file is None:
                continue
            if done.entries is None:
                done.entries = WalReader(file, done.position).slot
            edits += max(file.slots - done.entries, 0)
            size += max((file.durable_size if file.is_closed else file.size) - done.position, 0)
        return edits, size

    def _last_error(self, metrics: list[SourceMetrics]) -> str:
        errors = [one.last_error for one in metrics if one.last_error]
        return errors[0] if errors else self._connect_error

    @property
    def metrics(self) -> list[SourceMetrics]:
        """The counters of each log group."""
        with self._changed:
            return [group.metrics for group in self._groups.values()]

    # -- the beginning -----------------------------------------------------------------------------------------

    def _start(self, function: Callable[[], None], what: str) -> None:
        task = self._runtime.start_daemon(self._guarded, function, name=f"replication-{what}-{self.queue.text}")
        self._tasks.append(task)

    def _guarded(self, function: Callable[[], None]) -> None:
        """Run a task; an unexpected error ends the server.

        DIVERGENCE: with ``replication.source.regionserver.abort=false`` HBase makes the sources of the peer again after
        an error of a reader or shipper, too. Here such an error is a bug of the fake, and always ends the server.
        """
        try:
            function()
        except ConnectionClosed:
            pass  # the runtime is closed
        except Exception as error:
            logger.exception("%r failed", self)
            self._host.abort(f"{self!r} failed: {error!r}")

    def _begin(self) -> None:
        """Wait for the id of the peer's cluster, then read the logs."""
        multiplier = 1
        while (found := self._peer_cluster_id()) is None:
            self._pause(self._config.retry_pause_s * multiplier)
            if self._is_stopped:
                return
            multiplier = min(multiplier + 1, self._config.retry_multiplier_max)
        with self._changed:
            if self._is_stopped:
                return
            self._filter = EntryFilter(
                self._peer().config,
                cluster_id=self._host.cluster_id,
                peer_cluster_id=found,
                counts_returned=SerialBug.RETURNED_EDITS_UNCOUNTED not in self._config.serial_bugs,
                scope_2_is_serial=self._config.scope_2_is_serial,
            )
            self._start_groups()

    def _peer_cluster_id(self) -> uuid.UUID | None:
        try:
            endpoint = self._endpoint or self._host.make_endpoint(self._peer())
            with self._changed:
                self._endpoint = endpoint
                is_stopped = self._is_stopped
            if is_stopped:  # meanwhile: stop() did not know the endpoint
                endpoint.close()
                return None
            found = endpoint.cluster_id()
            self._connect_error = "" if found is not None else "the id of the peer's cluster is not known yet"
            return found
        except ConnectionClosed:
            raise
        except MetaClientError as error:
            logger.warning("%r cannot reach its peer: %s", self, error)
            self._connect_error = f"{type(error).__name__}: {error}"
            return None
        except Exception as error:
            if self._config.aborts_server:
                raise  # ends the server
            logger.exception("%r cannot start; it tries again", self)
            self._connect_error = f"{type(error).__name__}: {error}"
            return None

    def _pause(self, seconds: float) -> None:
        """Sleep, at most until the stop."""
        until = self._runtime.now() + seconds
        with self._changed:
            while not self._is_stopped and self._changed.wait(until):
                pass

    def _start_groups(self) -> None:
        """Start a reader and a shipper for each log group that has none. The caller holds the lock."""
        positions, self._positions = self._positions, {}
        groups: dict[str, list[tuple[str, int]]] = {}
        for wal, position in positions.items():
            groups.setdefault(wal_group(wal), []).append((wal, position))
        made = {name: self._make_group(logs) for name, logs in groups.items()}
        self._groups |= made
        self._unfinished += len(made)
        for group in made.values():
            self._start(group.tail.run, "reader")
            self._start(lambda group=group: self._ship(group), "shipper")  # type: ignore[misc]  # bound per group

    def _make_group(self, logs: list[tuple[str, int]]) -> _LogGroup:
        assert self._filter is not None, "made after the peer's cluster id is known"
        assert self._endpoint is not None, "the cluster id came from the endpoint"
        host, metrics = self._host, SourceMetrics()
        is_ordered = self._ordered_scopes()
        tail = WalTail(
            host.runtime,
            host.config,
            logs,
            entry_filter=self._filter,
            quota=host.quota,
            metrics=metrics,
            find_wal=host.find_wal,
            is_enabled=self._is_enabled,
            order_check=host.make_order_check(self.queue.peer) if is_ordered is not None else None,
            is_ordered=is_ordered,
            ends=self.queue.is_recovered,
        )
        shipper = Shipper(
            host.runtime,
            host.config,
            tail,
            endpoint=self._endpoint,
            sinks=self._sinks,
            quota=host.quota,
            metrics=metrics,
            is_ordered=is_ordered,
            is_enabled=self._is_enabled,
            throttle=self._throttle_s,
            acknowledged=self._acknowledge,
            families_of=host.families_of,
        )
        return _LogGroup(tail, shipper, metrics)

    def _ordered_scopes(self) -> IsOrdered | None:
        """Return the test for entries that the peer gets in order, by their scopes; None if there are none."""
        if self._peer().config.serial:
            return lambda scopes: True
        return has_scope_2 if self._config.scope_2_is_serial else None

    # -- while it runs -----------------------------------------------------------------------------------------

    def _is_enabled(self) -> bool:
        return self._peer().state is PeerState.ENABLED and self._host.is_running()

    def _throttle_s(self, size: int) -> float:
        """Return the seconds until the peer's bandwidth has room for these bytes; 0 counts them as pushed."""
        now = self._runtime.now()
        bandwidth = self._peer().config.bandwidth or self._config.bandwidth
        with self._changed:
            self._throttle.change(bandwidth / CYCLES_PER_SECOND, now)
            pause_s = self._throttle.pause_s(size, now)
            if pause_s:
                self._throttle.waited(now + pause_s)
            else:
                self._throttle.pushed(size)
            return pause_s

    def _acknowledge(self, batch: EntryBatch) -> None:
        self._store(batch.wal, batch.position, batch.pushed_ids, is_end_of_file=batch.is_end_of_file)
        with self._changed:
            if batch.is_end_of_file:
                self._acknowledged.pop(batch.wal, None)
            else:
                self._acknowledged[batch.wal] = _AcknowledgedPart(batch.position, batch.entries_before)

    def _ship(self, group: _LogGroup) -> None:
        group.shipper.run()
        with self._changed:
            self._unfinished -= 1
            is_done = not self._unfinished and not self._is_stopped and self.queue.is_recovered
            endpoint = self._endpoint
        if is_done:
            self._finished()
            if endpoint is not None:
                endpoint.close()
