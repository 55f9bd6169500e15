"""Decides which edits of a primary are sent to which of its replicas, and when: one sink per open primary.

Fed by :attr:`Region.on_commit`, in sequence order, under the region's update lock: :meth:`add` never blocks and never
calls back. Steps for one edit:

1. edits that are not replicated (families, tables without memstore replication) are skipped;
2. the start of a flush of *all* families, or the marker "nothing to flush", heals: everything older is in files or
   will be, so failed and long queues restart with this marker;
3. no healthy replica: the edit is dropped; a flush was asked for when the last one failed;
4. memory is reserved; if the limit is reached, replicas of this server's region with the most pending bytes are
   failed, the ones that are furthest behind first;
5. the edit goes into the log, and each replica without a batch in flight gets one.

When a batch has failed: if a flush started since that covers it, nothing; else the replica is failed, its edits are
dropped, and a flush is requested. Batches are not resent and not persisted: files fill every gap.

Mirrors RegionReplicationSink (3.x). DIVERGENCES:

- a queue for each replica, at its own pace (HBASE-18070); ``lock_step`` gives HBase's way, with one barrier for all;
- a healthy replica that is at most one batch behind keeps its queue when a flush starts, unless memory is short: it is
  about to be up to date (HBase drops everything, which opens a gap until the flush ends);
- at the hard limit replicas of the region that holds most are failed (HBASE-26233: "drop the edits for a region which
  has the most biggest size"), only as many as it takes, the slowest first (HBase 3.x: all of the region that asks);
- "nothing to flush" covers everything before it, also for a batch that fails later (HBase resets its mark to -1);
- the number of replicas is read again at each such flush (HBASE-18070), so that hbase:meta need not be reopened;
- closing does not wait for batches in flight: each open of a primary has an epoch, and replicas refuse older ones.
"""

from __future__ import annotations

import enum
import logging
from collections.abc import Callable, Sequence

from metaclient.errors import NotServingRegion, RegionOffline
from metaclient.runtime import Pending, Runtime
from metaclient_fake.config.region_replication import ReplicationConfig
from metaclient_fake.region_replication.buffer_manager import BufferManager
from metaclient_fake.region_replication.flush_requester import FlushRequester
from metaclient_fake.region_replication.pending_edits import PendingEdits
from metaclient_fake.region_replication.replica_queue import (
    Acknowledged,
    Batch,
    QueueState,
    ReplicaQueue,
    ReplicaStatus,
)
from metaclient_fake.region_replication.reservation import Reservation
from metaclient_fake.region_replication.sink_source import SinkSource
from metaclient_fake.storage import Marker, MarkerKind, WalEntry
from metaclient_fake.storage.wal import UNKNOWN_BYTES, LoggedEntry, bytes_of, family_of

__all__ = ["Send", "Sink", "SinkState"]

logger = logging.getLogger(__name__)

#: Sends a batch to its replica; completion is reported by ``on_done``. Must not block.
Send = Callable[[Batch], "Pending[None]"]

#: The replica is not online. It requests a flush itself when it opens.
_NOT_ONLINE = (NotServingRegion, RegionOffline)


#: The bytes of an entry beside its cells, without its region and table (``WalEntry.size``).
_ENTRY_BYTES = 32


class SinkState(enum.Enum):
    """The states of a sink, in order; it never goes back."""

    RUNNING = "running"
    STOPPING = "stopping"  # takes no edits; batches are still in flight
    STOPPED = "stopped"


_RUNNING = SinkState.RUNNING


class Sink:
    """Sends the edits of one primary to its replicas and requests flushes. ``_lock`` guards everything that changes."""

    def __init__(
        self,
        source: SinkSource,
        *,
        runtime: Runtime,
        config: ReplicationConfig,
        buffer: BufferManager,
        requester: FlushRequester,
        send: Send,
    ) -> None:
        self.name = source.name
        self.epoch = source.epoch
        self.source = source
        self.requester = requester
        self._overhead = _ENTRY_BYTES + len(source.name)
        self._batch_entries, self._batch_bytes = config.batch_entries, config.batch_bytes
        self._runtime = runtime
        self._now = runtime.now  # not the server's wall clock, which may jump
        self._config = config
        self._buffer = buffer
        self._send = send
        self._lock = runtime.lock()
        self._stopped = runtime.condition(self._lock)
        # Guarded by the lock:
        self.state = SinkState.RUNNING
        self._pending = PendingEdits(source.name, source.epoch, config, self._now, source.replica_count())
        self._memory = Reservation(buffer, config.pending_bytes_max)
        self.last_sequence_id = self.last_flushed_sequence_id = -1
        #: The last entry that was left out because of its family: only files bring it to replicas.
        self._left_out_sequence_id = -1
        self.flush_seen_at: float | None = None
        self.flushes_seen = 0

    # -- from the region ---------------------------------------------------------------------------------------

    def add(self, entry: LoggedEntry, sequence_id: int, data_bytes: int) -> None:
        """Take one committed entry; called in sequence order (``CommitHook``)."""
        marker = entry.marker
        if marker is None and self.source.leaves_out:
            kept = self._filtered(entry, sequence_id)
            if kept is None:
                return
            if kept is not entry:
                entry, data_bytes = kept, sum([bytes_of(row) for row in kept.rows])
        size = data_bytes + self._overhead
        with self._lock:
            if self.state is not _RUNNING:
                return
            if marker is not None and self.source.is_flush_of_all(marker):
                self._begin_anew(sequence_id, marker)
            self.last_sequence_id = sequence_id
            pending, memory = self._pending, self._memory
            if not pending.healthy:
                pending.drop()
                return
            credit = memory.credit - size
            if credit >= 0:
                memory.credit = credit
                has_room = True
            else:
                has_room = memory.reserve(size)
            if has_room:
                if marker is not None:
                    pending.markers += 1
                pending.entries.append(entry)
                pending.times.append(self._now())
                pending.sizes.append(size)
                if not pending.idle:  # the usual case at full rate: a batch to every replica is in flight
                    return
                batches: Sequence[Batch] = pending.planned()
        if not has_room:
            batches = self._take_tight(entry, size, marker)
        for batch in batches:
            self._carry(batch)

    def _take_tight(self, entry: LoggedEntry, size: int, marker: Marker | None) -> Sequence[Batch]:
        """Make the sink with the most pending bytes drop edits, then add the entry, unless no replica is healthy."""
        # Without this sink's lock, because another sink's is taken. The region's update lock excludes other entries.
        self._buffer.make_room(size)
        with self._lock:
            if self.state is not _RUNNING:
                return ()
            pending = self._pending
            if not pending.healthy or not (self._memory.reserve(size) or self._make_room(size)):
                pending.drop()
                return ()
            pending.append(entry, size, marker)
            return pending.planned()

    def _filtered(self, entry: LoggedEntry, sequence_id: int) -> LoggedEntry | None:
        """Return the replicated part of an entry; None if there is none."""
        wanted = self.source.replicated_families
        if not self.source.replicates_data:
            return None
        assert wanted is not None, "asked only when there is something to leave out"
        rows = tuple([row for row in entry.rows if family_of(row) in wanted])
        if len(rows) == len(entry.rows):
            return entry
        self._left_out_sequence_id = sequence_id
        if not rows:
            return None
        assert isinstance(entry, WalEntry), "a packed row is of one family"
        return entry._replace(rows=rows, cell_bytes=UNKNOWN_BYTES)

    def _give_back(self, size: int) -> None:
        self._memory.give_back(size, is_empty=not self._pending.entries)

    def give_way(self, size: int) -> None:
        """Fail replicas until the server has room for ``size`` bytes of any sink, or no healthy replica is left."""
        with self._lock:
            if self.state is _RUNNING:
                self._fail_slowest_until(lambda: self._buffer.has_room(size))

    def _make_room(self, size: int) -> bool:
        """Fail replicas until there is room for an entry of this sink; return False if no healthy replica is left."""
        self._fail_slowest_until(lambda: self._buffer.reserve(size))
        if not self._pending.healthy:
            return False
        self._memory.reserved += size
        return True

    def _fail_slowest_until(self, has_room: Callable[[], bool]) -> None:
        why = f"the buffer limit of {self._config.pending_bytes_max} bytes is reached"
        has_failed = False
        while self._pending.healthy and not has_room():
            self._pending.fail_slowest(why)
            self._trim()
            has_failed = True
        if has_failed:
            self.requester.request(self.last_sequence_id)

    # -- heal and fail -----------------------------------------------------------------------------------------

    def _begin_anew(self, sequence_id: int, marker: Marker) -> None:
        """Heal the queues: all edits before this entry are in files, or will be at the end of this flush."""
        is_start = marker.kind is MarkerKind.START_FLUSH
        covered = marker.flush_sequence_id if is_start else sequence_id - 1
        self.last_flushed_sequence_id = covered
        self.flush_seen_at = self._runtime.now()
        self.flushes_seen += 1
        drops_all = self._config.lock_step or self._buffer.is_tight
        self._pending.begin_anew(covered, self.source.replica_count(), drops_all=drops_all)
        self._trim()
        self.requester.record(covered)

    def _trim(self) -> None:
        """Drop the entries that every healthy replica has acknowledged."""
        freed = self._pending.trim()
        if freed is not None:
            self._give_back(freed)

    # -- to the replicas ---------------------------------------------------------------------------------------

    def fill(self, batch: Batch) -> None:
        """Extend a batch that is about to be sent with newer edits, up to the limits of a batch.

        Otherwise the first edit after a pause would be sent alone. A batch with a marker has other timeouts, so a
        marker is not added to a batch without one.
        """
        room, room_bytes = self._batch_entries - len(batch.entries), self._batch_bytes - batch.size
        if room <= 0 or room_bytes <= 0 or self._config.lock_step:
            return
        with self._lock:
            self._pending.fill(batch, room, room_bytes)

    def _carry(self, batch: Batch) -> None:
        self._send(batch).on_done(lambda answer: self._answered(batch, answer.error()))

    def _answered(self, batch: Batch, error: BaseException | None) -> None:
        batches: Sequence[Batch] = ()
        with self._lock:
            queue = self._pending.queue(batch.replica_id)
            if queue is not None and queue.batch is batch:
                queue.batch = None
                self._settle(queue, batch, error)
                self._trim()
            if batch in self._pending.orphans:
                self._give_back(self._pending.orphans.forget(batch))
            if self.state is SinkState.RUNNING:
                batches = self._pending.planned()
            else:
                self._end_if_nothing_is_out()
        for following in batches:
            self._carry(following)

    def _settle(self, queue: ReplicaQueue, batch: Batch, error: BaseException | None) -> None:
        if queue.state is not QueueState.SENDING:
            return
        if error is not None and batch.last_sequence_id > self.last_flushed_sequence_id:
            self._pending.fail(queue, f"{type(error).__name__}: {error}")
            if self.state is SinkState.RUNNING:
                self.requester.request(batch.last_sequence_id, is_urgent=not isinstance(error, _NOT_ONLINE))
            return
        if error is not None:
            # The flush that started since covers the lost edits, but the replica gets them only at its end.
            self._pending.miss(queue, queue.acked)
            queue.dropped += len(batch.entries)
            queue.healed_sequence_id = self.last_flushed_sequence_id
        self._pending.settle(queue, batch)
        if error is None:
            self._pending.acknowledge(queue, batch)

    # -- coming and going --------------------------------------------------------------------------------------

    def replica_opened(self, replica_id: int) -> None:
        """Request a flush for a replica that has just opened; edits in flight to its old server are lost to it."""
        with self._lock:
            if self.state is not SinkState.RUNNING:
                return
            queue = self._pending.queue(replica_id)
            # A replica to which nothing was ever sent misses nothing.
            if queue is not None and queue.is_healthy and queue.batches:
                self._pending.fail(queue, "it was opened anew", is_fault=False)
                self._trim()
        self.requester.request_for_open()

    def stop(self) -> None:
        """Take no more edits and drop the queued ones, without a wait for batches in flight. Idempotent."""
        self.requester.stop()
        with self._lock:
            if self.state is not SinkState.RUNNING:
                return
            self.state = SinkState.STOPPING
            self._pending.abandon()
            self._trim()
            self._end_if_nothing_is_out()

    def _end_if_nothing_is_out(self) -> None:
        if self.state is SinkState.STOPPING and not self._pending.orphans:
            self.state = SinkState.STOPPED
            self._stopped.notify_all()

    def wait_until_stopped(self, deadline: float) -> bool:
        """Wait until no batch is in flight; return False if some still are at the deadline."""
        with self._lock:
            return self._stopped.wait_for(lambda: self.state is SinkState.STOPPED, deadline)

    # -- questions ---------------------------------------------------------------------------------------------

    @property
    def pending_bytes(self) -> int:
        """The bytes of queued and in-flight entries, each counted once; read without the lock."""
        return max(0, self._memory.used)

    @property
    def droppable_bytes(self) -> int:
        """The bytes that would be freed if all replicas failed now: without the longest batch in flight."""
        with self._lock:
            if not self._pending.healthy:
                return 0
            in_flight = max([queue.batch.size for queue in self._pending.queues if queue.batch is not None], default=0)
            return max(0, self._memory.used - self._pending.orphans.held_bytes - in_flight)

    @property
    def failed_replicas(self) -> list[int]:
        with self._lock:
            return [queue.replica_id for queue in self._pending.queues if not queue.is_healthy]

    @property
    def needs_flush(self) -> bool:
        """True if replicas lack edits that they can get only from the files of a flush."""
        with self._lock:
            pending = self._pending
            return self._left_out_sequence_id > self.last_flushed_sequence_id or pending.healthy < len(pending.queues)

    def position(self) -> int:
        """Return the number of entries so far."""
        with self._lock:
            return self._pending.end

    def has_everything_before(self, replica_id: int, position: int) -> bool:
        """Return True if this replica has acknowledged every entry before ``position``, without a gap."""
        with self._lock:
            queue = self._pending.queue(replica_id)
            return queue is not None and queue.is_healthy and queue.missed_from is None and queue.acked >= position

    def acknowledged(self, replica_id: int, families: frozenset[bytes] | None = None) -> Acknowledged | None:
        """Return up to which instant and entry this replica has all edits of some families, or of all.

        None if that is not known: the sink has stopped, the replica has not caught up with this primary yet, or
        these families are not pushed.
        """
        as_of = self._now()  # before the lock: entries that are committed from here on may be missing
        if not self.source.replicates(families):
            return None
        with self._lock:
            queue = self._pending.queue(replica_id)
            if queue is None or not queue.has_caught_up or self.state is not _RUNNING:
                return None
            since = queue.missed_since
            if since is None and queue.acked < self._pending.end:
                since = self._pending.committed_at(queue.acked)
            if since is not None and since < as_of:
                as_of = since
            return Acknowledged._make((as_of, self.epoch, queue.acked_sequence_id))

    def replicas(self) -> list[ReplicaStatus]:
        """Return the status of each replica."""
        now = self._now()
        with self._lock:
            return self._pending.statuses(now)

    def __repr__(self) -> str:
        return f"Sink({self.name}, {self.state.value}, {self.pending_bytes} bytes, {self._pending.queues})"
