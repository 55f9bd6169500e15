"""Decides what of a primary's edits goes to which of its replicas, and when: one sink per open primary.

Fed by :attr:`Region.on_commit`, in sequence order, under the region's update lock: :meth:`add` never blocks and never
calls back. Steps for one edit:

1. what is not replicated (families, tables without memstore replication) is left out;
2. the start of a flush of *all* families, or word that there is nothing to flush, heals: everything older is in files,
   or will be, so queues that failed or are long begin anew with this marker;
3. no healthy replica: the edit is dropped; a flush was asked for when the last one failed;
4. the buffer manager is asked; when it refuses, the region of this server that holds most gives way: its replicas are
   failed, those that are furthest behind first;
5. it goes into the log, and each replica that has nothing on its way gets a batch.

When a batch has failed: if a flush started since that covers it, nothing; else the replica is failed, its edits are
dropped, and a flush is asked for. Nothing is ever resent and nothing is persisted: files fill every gap.

Mirrors RegionReplicationSink (3.x). DIVERGENCES:

- a queue for each replica, at its own pace (HBASE-18070); ``lock_step`` gives HBase's way, with one barrier for all;
- a healthy replica that is at most one batch behind keeps its queue when a flush starts, unless memory is short: it is
  about to be up to date (HBase drops everything, which opens a gap until the flush ends);
- at the hard limit replicas of the region that holds most are failed (HBASE-26233: "drop the edits for a region which
  has the most biggest size"), only as many as it takes, the slowest first (HBase 3.x: all of the region that asks);
- "nothing to flush" covers everything before it, also for a batch that fails later (HBase resets its mark to -1);
- the number of replicas is asked anew at each such flush (HBASE-18070), so that hbase:meta need not be reopened;
- closing does not wait for batches on their way: each open of a primary has an epoch, and replicas refuse older ones.
"""

from __future__ import annotations

import enum
import logging
from collections.abc import Callable, Sequence
from itertools import islice

from metaclient.errors import NotServingRegion, RegionOffline
from metaclient.runtime import Pending, Runtime
from metaclient_fake.config.region_replication import ReplicationConfig
from metaclient_fake.region_replication.buffer_manager import BufferManager
from metaclient_fake.region_replication.flush_requester import FlushRequester
from metaclient_fake.region_replication.orphans import Orphans
from metaclient_fake.region_replication.replica_queue import (
    Acknowledged,
    Batch,
    QueueState,
    ReplicaQueue,
    ReplicaStatus,
)
from metaclient_fake.storage import Marker, MarkerKind, WalEntry
from metaclient_fake.storage.packed_row import PackedRow
from metaclient_fake.storage.region_log import RowHook
from metaclient_fake.storage.wal import UNKNOWN_BYTES, LoggedEntry, family_of

__all__ = ["Send", "Sink", "SinkState"]

logger = logging.getLogger(__name__)

#: Carries a batch to its replica; the answer is awaited with ``on_done``. Must not block.
Send = Callable[[Batch], "Pending[None]"]

#: The replica is nowhere right now. It asks for a flush by itself when it opens.
_NOT_ONLINE = (NotServingRegion, RegionOffline)


#: A sink reserves this part of the server's limit at a time: the lock of all sinks is not for every edit.
_CREDITS = 1024
#: What an entry takes beside its cells, without its region and table (``WalEntry.size``).
_ENTRY_BYTES = 32


class SinkState(enum.Enum):
    """A sink's life; it only goes forward."""

    RUNNING = "running"
    STOPPING = "stopping"  # takes nothing more, batches are still on their way
    STOPPED = "stopped"


_RUNNING, _FAILED = SinkState.RUNNING, QueueState.FAILED


class Sink:
    """The edits of one primary on their way to its replicas. ``_lock`` guards everything that changes."""

    def __init__(
        self,
        name: str,
        *,
        runtime: Runtime,
        config: ReplicationConfig,
        buffer: BufferManager,
        requester: FlushRequester,
        send: Send,
        replica_count: Callable[[], int],
        families: frozenset[bytes],
        replicated_families: frozenset[bytes] | None = None,
        replicates_data: bool = True,
        epoch: int = 1,
    ) -> None:
        self.name = name
        self.epoch = epoch
        self.requester = requester
        self._overhead = _ENTRY_BYTES + len(name)
        self._credit_bytes = config.pending_bytes_max // _CREDITS
        self._batch_entries, self._batch_bytes = config.batch_entries, config.batch_bytes
        self._runtime = runtime
        self._now = runtime.now  # not the server's wall clock, which may jump
        self._config = config
        self._buffer = buffer
        self._send = send
        self._replica_count = replica_count
        self._families = families
        self._replicated_families, self._replicates_data = replicated_families, replicates_data
        self._leaves_out = not replicates_data or replicated_families is not None
        self._lock = runtime.lock()
        self._stopped = runtime.condition(self._lock)
        # Guarded by the lock:
        self.state = SinkState.RUNNING
        self._entries: list[LoggedEntry] = []  # what at least one healthy replica has not acknowledged
        self._times: list[float] = []  # when each was committed, before it was acknowledged
        self._markers = 0  # how many of them are markers
        self._sizes: list[int] = []
        self._first = 0  # the position of the first of them
        self._queues = [ReplicaQueue(replica_id, 0) for replica_id in range(1, replica_count())]
        self._orphans = Orphans()
        self._reserved = 0  # bytes of the buffer manager's: those of the log, those that are held, and the credit
        self._credit = 0  # reserved, and not used yet: all that adding an entry changes
        self._idle = self._healthy = len(self._queues)
        self.last_sequence_id = self.last_flushed_sequence_id = -1
        #: The last entry that was left out because of its family: only files bring it to replicas.
        self._left_out_sequence_id = -1
        self.flush_seen_at: float | None = None
        self.flushes_seen = 0

    # -- from the region ---------------------------------------------------------------------------------------

    def add(self, entry: WalEntry) -> None:
        """One committed entry, in sequence order."""
        if entry.marker is None and self._leaves_out:
            kept = self._filtered(entry)
            if kept is None:
                return
            entry = kept
        self._take(entry, entry.sequence_id, entry.write_time_ms, entry.data_bytes, entry.marker)

    @property
    def on_row(self) -> RowHook:
        """What hears of an entry of one packed row, which most puts are: nothing else is made of it."""
        return self._filter_row if self._leaves_out else self._take

    def _filter_row(self, row: PackedRow, sequence_id: int, now_ms: int, data_bytes: int) -> None:
        if not self._replicates_data:
            return
        if self._replicated_families is not None and row.family not in self._replicated_families:
            self._left_out_sequence_id = sequence_id
            return
        self._take(row, sequence_id, now_ms, data_bytes)

    def _take(self, entry: LoggedEntry, sequence_id: int, now_ms: int, size: int, marker: Marker | None = None) -> None:
        """Every put comes by here."""
        with self._lock:
            if self.state is not _RUNNING:
                return
            if marker is not None and self._is_flush_of_all(marker):
                self._begin_anew(sequence_id, marker)
            self.last_sequence_id = sequence_id
            if not self._healthy:
                self._drop()
                return
            size += self._overhead
            credit = self._credit - size
            if credit >= 0:
                self._credit = credit
                has_room = True
            else:
                has_room = self._reserve(size)
            if has_room:
                if marker is not None:
                    self._markers += 1
                self._entries.append(entry)
                self._times.append(self._now())
                self._sizes.append(size)
                if not self._idle:  # the usual case at full rate: everybody is busy
                    return
                batches: Sequence[Batch] = self._planned()
        if not has_room:
            batches = self._take_tight(entry, size, marker)
        for batch in batches:
            self._carry(batch)

    def _take_tight(self, entry: LoggedEntry, size: int, marker: Marker | None) -> Sequence[Batch]:
        """Have the region that holds most give way, then take the entry, or drop it if it is this one that gave way."""
        # Without our lock, because another sink's is taken. The region's update lock keeps other entries out.
        self._buffer.make_room(size)
        with self._lock:
            if self.state is not _RUNNING:
                return ()
            if not self._healthy or not (self._reserve(size) or self._make_room(size)):
                self._drop()
                return ()
            self._markers += marker is not None
            self._entries.append(entry)
            self._times.append(self._now())
            self._sizes.append(size)
            return self._planned()

    def _filtered(self, entry: WalEntry) -> WalEntry | None:
        """What of an entry is replicated; None when it is nothing."""
        wanted = self._replicated_families
        if not self._replicates_data:
            return None
        assert wanted is not None, "asked only when there is something to leave out"
        rows = tuple([row for row in entry.rows if family_of(row) in wanted])
        if len(rows) < len(entry.rows):
            self._left_out_sequence_id = entry.sequence_id
        if not rows:
            return None
        return entry if len(rows) == len(entry.rows) else entry._replace(rows=rows, cell_bytes=UNKNOWN_BYTES)

    def _is_flush_of_all(self, marker: Marker) -> bool:
        if marker.kind is MarkerKind.CANNOT_FLUSH:
            return True
        return marker.kind is MarkerKind.START_FLUSH and frozenset(marker.families) == self._families

    def _reserve(self, size: int) -> bool:
        """Room for the entry, and in quiet times for some more, so that not every edit asks; False when there is none.

        What was reserved for later is given back when nothing is pending, or as soon as memory is short.
        """
        granted = size if self._buffer.is_tight else max(size, self._credit_bytes)
        if self._buffer.reserve(granted):
            self._reserved += granted
            self._credit += granted - size
            return True
        if granted > size and self._buffer.reserve(size):
            self._reserved += size
            return True
        return False

    def _give_back(self, size: int) -> None:
        self._credit += size
        if not self._entries or self._buffer.is_tight:
            size, self._credit = self._credit, 0
        else:
            size = max(0, self._credit - self._credit_bytes)
            self._credit -= size
        if size:
            self._reserved -= size
            self._buffer.release(size)

    def give_way(self, size: int) -> None:
        """Fail replicas until the server has room for ``size`` bytes of any sink, or none is left."""
        with self._lock:
            if self.state is _RUNNING:
                self._fail_slowest_until(lambda: self._buffer.has_room(size))

    def _make_room(self, size: int) -> bool:
        """Fail replicas until there is room for an entry of our own; False when none is left."""
        self._fail_slowest_until(lambda: self._buffer.reserve(size))
        if not self._healthy:
            return False
        self._reserved += size
        return True

    def _fail_slowest_until(self, has_room: Callable[[], bool]) -> None:
        why = f"the buffer limit of {self._config.pending_bytes_max} bytes is reached"
        has_failed = False
        while self._healthy and not has_room():
            slowest = min((queue.acked for queue in self._queues if queue.is_healthy), default=0)
            for queue in self._queues:
                if queue.is_healthy and (self._config.lock_step or queue.acked == slowest):
                    self._fail(queue, why)
            self._trim()
            has_failed = True
        if has_failed:
            self.requester.request(self.last_sequence_id)

    def _drop(self) -> None:
        """Nobody is there to take an entry: count it, so that positions go on."""
        self._first += 1
        for queue in self._queues:
            queue.dropped += 1

    # -- heal and fail -----------------------------------------------------------------------------------------

    def _begin_anew(self, sequence_id: int, marker: Marker) -> None:
        """Everything before this entry is in files, or will be with the end of this flush."""
        is_start = marker.kind is MarkerKind.START_FLUSH
        covered = marker.flush_sequence_id if is_start else sequence_id - 1
        self.last_flushed_sequence_id = covered
        self.flush_seen_at = self._runtime.now()
        self.flushes_seen += 1
        self._resize(self._replica_count())
        end = self._first + len(self._entries)
        drops_all = self._config.lock_step or self._buffer.is_tight
        for queue in self._queues:
            if not queue.is_healthy:
                self._heal(queue, end, covered)
            elif drops_all or self._is_long(queue, end):
                self._jump(queue, end, covered)
        self._trim()
        self.requester.record(covered)

    def _is_long(self, queue: ReplicaQueue, end: int) -> bool:
        waiting = end - queue.sent
        if waiting > self._batch_entries:
            return True
        return waiting > 0 and sum(islice(self._sizes, queue.sent - self._first, None)) > self._batch_bytes

    def _heal(self, queue: ReplicaQueue, end: int, covered: int) -> None:
        queue.become(QueueState.IDLE)
        queue.acked = queue.sent = end
        queue.healed_sequence_id = covered
        queue.failed_at = None
        self._idle += 1
        self._healthy += 1
        logger.info("%s: replica %d is healthy again from %d on", self.name, queue.replica_id, covered)

    def _jump(self, queue: ReplicaQueue, end: int, covered: int) -> None:
        """Forget what is queued; a batch on its way stays on its way, and its answer is awaited as before."""
        if queue.sent == end:
            return
        self._miss(queue, queue.acked)  # not from ``sent``: the batch on its way may be lost, too
        queue.dropped += end - queue.sent
        queue.sent = end
        queue.healed_sequence_id = covered
        if queue.batch is not None:
            self._orphans.add(queue.batch)
        queue.acked = end

    def _fail(self, queue: ReplicaQueue, why: str, *, is_fault: bool = True) -> None:
        """Skip this replica until a flush of all families starts."""
        end = self._first + len(self._entries)
        if queue.state is QueueState.IDLE:
            self._idle -= 1
        self._healthy -= 1
        queue.become(QueueState.FAILED)
        self._miss(queue, queue.acked)
        queue.dropped += max(0, end - queue.acked)
        queue.failures += is_fault
        queue.failed_at = self._runtime.now()
        queue.last_error = why
        if queue.batch is not None:
            self._orphans.add(queue.batch)
            queue.batch = None
        queue.acked = queue.sent = end
        level = logging.WARNING if is_fault else logging.INFO
        logger.log(level, "%s: replica %d is skipped until the next flush: %s", self.name, queue.replica_id, why)

    def _miss(self, queue: ReplicaQueue, position: int) -> None:
        """From ``position`` on the replica has a gap, if it has not one already."""
        if queue.missed_from is None:
            queue.missed_from = position
            queue.missed_since = self._committed_at(position)

    def _committed_at(self, position: int) -> float:
        """When the entry at a position was committed; now, if it is still to come."""
        index = position - self._first
        assert index >= 0, "what a healthy replica has not acknowledged is not forgotten"
        return self._times[index] if index < len(self._times) else self._now()

    def _resize(self, replica_count: int) -> None:
        end = self._first + len(self._entries)
        for replica_id in range(len(self._queues) + 1, replica_count):
            self._queues.append(ReplicaQueue(replica_id, end))
            self._idle += 1
            self._healthy += 1
        while len(self._queues) > max(0, replica_count - 1):
            queue = self._queues[-1]
            if queue.is_healthy:
                self._fail(queue, "there are fewer replicas now", is_fault=False)
            self._queues.pop()

    def _trim(self) -> None:
        """Forget what every healthy replica has acknowledged."""
        end = self._first + len(self._entries)
        base = min([queue.acked for queue in self._queues if queue.state is not _FAILED], default=end)
        count = base - self._first
        if count <= 0:
            return
        freed = sum(self._sizes[:count])
        if self._orphans:
            freed -= self._orphans.hold(self._first, self._sizes[:count])
        if self._markers:
            self._markers -= sum([entry.marker is not None for entry in self._entries[:count]])
        del self._entries[:count], self._times[:count], self._sizes[:count]
        self._first = base
        self._give_back(freed)

    # -- to the replicas ---------------------------------------------------------------------------------------

    def _planned(self) -> list[Batch]:
        """The batches that may go now; their queues are SENDING."""
        if self._config.lock_step and any(queue.batch is not None for queue in self._queues):
            return []
        end = self._first + len(self._entries)
        return [self._taken(queue) for queue in self._queues if queue.state is QueueState.IDLE and queue.sent < end]

    def _taken(self, queue: ReplicaQueue) -> Batch:
        """What waits, as far as a batch may be long, as a batch."""
        entries, size = self._next_entries(queue, self._batch_entries, self._batch_bytes)
        queue.become(QueueState.SENDING)
        self._idle -= 1
        has_marker = self._markers > 0 and any(entry.marker is not None for entry in entries)
        queue.batch = Batch(queue.replica_id, self.epoch, entries, size, queue.sent, has_marker)
        queue.batches += 1
        return queue.batch

    def _next_entries(self, queue: ReplicaQueue, count_max: int, bytes_max: int) -> tuple[list[LoggedEntry], int]:
        """Entries until count or size reaches its limit, and their bytes; the one that crosses it is the last."""
        start = queue.sent - self._first
        sizes = self._sizes[start : start + count_max]
        size, count = sum(sizes), len(sizes)
        if size > bytes_max:
            size, count = Batch.cut(sizes, bytes_max)
        queue.sent += count
        return self._entries[start : start + count], size

    def fill(self, batch: Batch) -> None:
        """It is about to be carried: let it take what has come since it was made, as far as a batch may be long.

        At full rate the first edit after a pause would travel alone. A batch with a marker has other timeouts, so a
        marker does not come into one without.
        """
        room, room_bytes = self._batch_entries - len(batch.entries), self._batch_bytes - batch.size
        if room <= 0 or room_bytes <= 0 or self._config.lock_step:
            return
        with self._lock:
            queue = self._queue_of(batch)
            if queue is None or queue.batch is not batch or queue.sent != batch.end or batch in self._orphans:
                return
            if self._markers and not batch.has_marker:
                return
            entries, size = self._next_entries(queue, room, room_bytes)
            batch.entries += entries
            batch.size += size
            batch.end = queue.sent

    def _carry(self, batch: Batch) -> None:
        self._send(batch).on_done(lambda answer: self._answered(batch, answer.error()))

    def _answered(self, batch: Batch, error: BaseException | None) -> None:
        batches: Sequence[Batch] = ()
        with self._lock:
            queue = self._queue_of(batch)
            if queue is not None and queue.batch is batch:
                queue.batch = None
                self._settle(queue, batch, error)
                self._trim()
            if batch in self._orphans:
                self._give_back(self._orphans.forget(batch))
            if self.state is SinkState.RUNNING:
                batches = self._planned()
            else:
                self._end_if_nothing_is_out()
        for following in batches:
            self._carry(following)

    def _queue_of(self, batch: Batch) -> ReplicaQueue | None:
        index = batch.replica_id - 1
        return self._queues[index] if index < len(self._queues) else None

    def _settle(self, queue: ReplicaQueue, batch: Batch, error: BaseException | None) -> None:
        if queue.state is not QueueState.SENDING:
            return
        if error is not None and batch.last_sequence_id > self.last_flushed_sequence_id:
            self._fail(queue, f"{type(error).__name__}: {error}")
            if self.state is SinkState.RUNNING:
                self.requester.request(batch.last_sequence_id, is_urgent=not isinstance(error, _NOT_ONLINE))
            return
        if error is not None:
            # The flush that started since covers the loss, but only its end brings it there.
            self._miss(queue, queue.acked)
            queue.dropped += len(batch.entries)
            queue.healed_sequence_id = self.last_flushed_sequence_id
        queue.become(QueueState.IDLE)
        self._idle += 1
        queue.acked = max(queue.acked, batch.end)
        if error is None:
            queue.acked_sequence_id = max(queue.acked_sequence_id, batch.last_sequence_id)
            has_gap = queue.missed_from is not None or not queue.has_caught_up
            if has_gap and batch.fills_gap_since(queue.healed_sequence_id):
                queue.missed_from = queue.missed_since = None
                queue.has_caught_up = True

    # -- coming and going --------------------------------------------------------------------------------------

    def replica_opened(self, replica_id: int) -> None:
        """A replica has just opened: what was on its way to its old place is of no use, it waits for a flush."""
        with self._lock:
            if self.state is not SinkState.RUNNING:
                return
            queue = self._queues[replica_id - 1] if 0 < replica_id <= len(self._queues) else None
            # One to which nothing was ever sent misses nothing: what it will get is all there is.
            if queue is not None and queue.is_healthy and queue.batches:
                self._fail(queue, "it was opened anew", is_fault=False)
                self._trim()
        self.requester.request_for_open()

    def stop(self) -> None:
        """Take nothing more and forget what is queued; what is on its way is not waited for. Idempotent."""
        self.requester.stop()
        with self._lock:
            if self.state is not SinkState.RUNNING:
                return
            self.state = SinkState.STOPPING
            end = self._first + len(self._entries)
            for queue in self._queues:
                if queue.batch is not None:
                    self._orphans.add(queue.batch)
                    queue.batch = None
                queue.acked = queue.sent = end
            self._trim()
            self._end_if_nothing_is_out()

    def _end_if_nothing_is_out(self) -> None:
        if self.state is SinkState.STOPPING and not self._orphans:
            self.state = SinkState.STOPPED
            self._stopped.notify_all()

    def wait_until_stopped(self, deadline: float) -> bool:
        """Wait for the answers to what was on its way; False when some are missing at the deadline."""
        with self._lock:
            return self._stopped.wait_for(lambda: self.state is SinkState.STOPPED, deadline)

    # -- questions ---------------------------------------------------------------------------------------------

    @property
    def pending_bytes(self) -> int:
        """Queued and on their way, each entry once; of a moment only if nothing is added meanwhile."""
        return max(0, self._reserved - self._credit)

    @property
    def droppable_bytes(self) -> int:
        """What would be free if all replicas failed now, at most: without the longest batch that is on its way."""
        with self._lock:
            if not self._healthy:
                return 0
            in_flight = max([queue.batch.size for queue in self._queues if queue.batch is not None], default=0)
            return max(0, self._reserved - self._credit - self._orphans.held_bytes - in_flight)

    @property
    def failed_replicas(self) -> list[int]:
        with self._lock:
            return [queue.replica_id for queue in self._queues if not queue.is_healthy]

    @property
    def needs_flush(self) -> bool:
        """Do replicas miss something that only files will bring, without anybody having asked for them?"""
        with self._lock:
            return self._left_out_sequence_id > self.last_flushed_sequence_id or self._healthy < len(self._queues)

    def position(self) -> int:
        """How many entries were handed over so far."""
        with self._lock:
            return self._first + len(self._entries)

    def has_everything_before(self, replica_id: int, position: int) -> bool:
        """Has this replica acknowledged every entry before ``position``, without a gap?"""
        with self._lock:
            queue = self._queues[replica_id - 1] if 0 < replica_id <= len(self._queues) else None
            return queue is not None and queue.is_healthy and queue.missed_from is None and queue.acked >= position

    def acknowledged(self, replica_id: int, families: frozenset[bytes] | None = None) -> Acknowledged | None:
        """What this replica is known to have of some families, or of all.

        None when that is not known: the sink has stopped, the replica has not caught up with this primary yet, or
        these families are not pushed.
        """
        as_of = self._now()  # first: what is committed from here on may be missing
        pushed = self._replicated_families
        if not self._replicates_data or (pushed is not None and (families is None or not families <= pushed)):
            return None
        with self._lock:
            queue = self._queues[replica_id - 1] if 0 < replica_id <= len(self._queues) else None
            if queue is None or not queue.has_caught_up or self.state is not _RUNNING:
                return None
            since = queue.missed_since
            if since is None and queue.acked - self._first < len(self._times):
                since = self._committed_at(queue.acked)
            if since is not None and since < as_of:
                as_of = since
            return Acknowledged._make((as_of, self.epoch, queue.acked_sequence_id))

    def _missing_since(self, queue: ReplicaQueue) -> float:
        """When the oldest entry that a replica lacks was committed; now when it lacks none."""
        return queue.missed_since if queue.missed_since is not None else self._committed_at(queue.acked)

    def replicas(self) -> list[ReplicaStatus]:
        """The replicas as they are now."""
        now = self._now()
        with self._lock:
            end = self._first + len(self._entries)
            return [
                queue.status(
                    end=end,
                    queue_bytes=sum(self._sizes[max(0, queue.sent - self._first) :]),
                    missing_since=self._missing_since(queue),
                    now=now,
                )
                for queue in self._queues
            ]

    def __repr__(self) -> str:
        return f"Sink({self.name}, {self.state.value}, {self.pending_bytes} bytes, {self._queues})"
