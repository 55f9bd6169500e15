"""Stores the edits of one primary that replicas have not acknowledged, and the position of each replica in them.

An edit is stored once, however many replicas wait for it. It is dropped when every healthy replica has acknowledged
it. This module does not lock, send or request flushes: :class:`metaclient_fake.region_replication.sink.Sink` does.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from itertools import islice

from metaclient_fake.config.region_replication import ReplicationConfig
from metaclient_fake.region_replication.orphans import Orphans
from metaclient_fake.region_replication.replica_queue import Batch, QueueState, ReplicaQueue, ReplicaStatus
from metaclient_fake.storage import Marker
from metaclient_fake.storage.wal import LoggedEntry

__all__ = ["PendingEdits"]

logger = logging.getLogger(__name__)

_FAILED = QueueState.FAILED


class PendingEdits:
    """The log of one sink and the queues of its replicas. Guarded by the sink's lock.

    The lists are public because every put adds to them, and a call per put is measurable.
    """

    def __init__(
        self, name: str, epoch: int, config: ReplicationConfig, now: Callable[[], float], replica_count: int
    ) -> None:
        self._name = name
        self._epoch = epoch
        self._config = config
        self._batch_entries, self._batch_bytes = config.batch_entries, config.batch_bytes
        self._now = now
        self.entries: list[LoggedEntry] = []  # not acknowledged by at least one healthy replica
        self.times: list[float] = []  # when each was committed, before it was acknowledged
        self.sizes: list[int] = []
        self.markers = 0  # how many of the entries are markers
        self.first = 0  # the position of the first entry
        self.queues = [ReplicaQueue(replica_id, 0) for replica_id in range(1, replica_count)]
        self.orphans = Orphans()
        self.idle = self.healthy = len(self.queues)

    @property
    def end(self) -> int:
        """The position after the newest entry."""
        return self.first + len(self.entries)

    def append(self, entry: LoggedEntry, size: int, marker: Marker | None) -> None:
        self.markers += marker is not None
        self.entries.append(entry)
        self.times.append(self._now())
        self.sizes.append(size)

    def queue(self, replica_id: int) -> ReplicaQueue | None:
        """Return the queue of a replica; None if the region does not have this replica (any more)."""
        return self.queues[replica_id - 1] if 0 < replica_id <= len(self.queues) else None

    def drop(self) -> None:
        """Count an entry that is sent to no replica, so that positions stay correct."""
        self.first += 1
        for queue in self.queues:
            queue.dropped += 1

    # -- heal and fail -----------------------------------------------------------------------------------------

    def begin_anew(self, covered: int, replica_count: int, *, drops_all: bool) -> None:
        """Heal failed queues and empty long ones: entries up to sequence id ``covered`` are, or will be, in files."""
        self._resize(replica_count)
        end = self.end
        for queue in self.queues:
            if not queue.is_healthy:
                self._heal(queue, end, covered)
            elif drops_all or self._is_long(queue, end):
                self._jump(queue, end, covered)

    def _is_long(self, queue: ReplicaQueue, end: int) -> bool:
        waiting = end - queue.sent
        if waiting > self._batch_entries:
            return True
        return waiting > 0 and sum(islice(self.sizes, queue.sent - self.first, None)) > self._batch_bytes

    def _heal(self, queue: ReplicaQueue, end: int, covered: int) -> None:
        queue.become(QueueState.IDLE)
        queue.acked = queue.sent = end
        queue.healed_sequence_id = covered
        queue.failed_at = None
        self.idle += 1
        self.healthy += 1
        logger.info("%s: replica %d is healthy again from %d on", self._name, queue.replica_id, covered)

    def _jump(self, queue: ReplicaQueue, end: int, covered: int) -> None:
        """Drop the queued entries of a replica; its batch in flight stays in flight."""
        if queue.sent == end:
            return
        self.miss(queue, queue.acked)  # not from ``sent``: the batch in flight may be lost, too
        queue.dropped += end - queue.sent
        queue.sent = end
        queue.healed_sequence_id = covered
        if queue.batch is not None:
            self.orphans.add(queue.batch)
        queue.acked = end

    def fail(self, queue: ReplicaQueue, why: str, *, is_fault: bool = True) -> None:
        """Skip this replica until a flush of all families starts."""
        end = self.end
        if queue.state is QueueState.IDLE:
            self.idle -= 1
        self.healthy -= 1
        queue.become(QueueState.FAILED)
        self.miss(queue, queue.acked)
        queue.dropped += max(0, end - queue.acked)
        queue.failures += is_fault
        queue.failed_at = self._now()
        queue.last_error = why
        if queue.batch is not None:
            self.orphans.add(queue.batch)
            queue.batch = None
        queue.acked = queue.sent = end
        level = logging.WARNING if is_fault else logging.INFO
        logger.log(level, "%s: replica %d is skipped until the next flush: %s", self._name, queue.replica_id, why)

    def fail_slowest(self, why: str) -> None:
        """Fail the replicas that are furthest behind; all of them in lock step."""
        slowest = min((queue.acked for queue in self.queues if queue.is_healthy), default=0)
        for queue in self.queues:
            if queue.is_healthy and (self._config.lock_step or queue.acked == slowest):
                self.fail(queue, why)

    def abandon(self) -> None:
        """Drop the queued entries; batches in flight become orphans."""
        end = self.end
        for queue in self.queues:
            if queue.batch is not None:
                self.orphans.add(queue.batch)
                queue.batch = None
            queue.acked = queue.sent = end

    def miss(self, queue: ReplicaQueue, position: int) -> None:
        """Record that the replica has a gap from ``position`` on, unless it has an earlier one."""
        if queue.missed_from is None:
            queue.missed_from = position
            queue.missed_since = self.committed_at(position)

    def committed_at(self, position: int) -> float:
        """Return when the entry at a position was committed; now, if there is no such entry yet."""
        index = position - self.first
        assert index >= 0, "what a healthy replica has not acknowledged is not forgotten"
        return self.times[index] if index < len(self.times) else self._now()

    def _missing_since(self, queue: ReplicaQueue) -> float:
        """Return when the oldest entry that a replica lacks was committed; now, if it lacks none."""
        return queue.missed_since if queue.missed_since is not None else self.committed_at(queue.acked)

    def _resize(self, replica_count: int) -> None:
        end = self.end
        for replica_id in range(len(self.queues) + 1, replica_count):
            self.queues.append(ReplicaQueue(replica_id, end))
            self.idle += 1
            self.healthy += 1
        while len(self.queues) > max(0, replica_count - 1):
            queue = self.queues[-1]
            if queue.is_healthy:
                self.fail(queue, "there are fewer replicas now", is_fault=False)
            self.queues.pop()

    def trim(self) -> int | None:
        """Drop the entries that every healthy replica has acknowledged; return their bytes, None if there are none."""
        end = self.end
        base = min([queue.acked for queue in self.queues if queue.state is not _FAILED], default=end)
        count = base - self.first
        if count <= 0:
            return None
        freed = sum(self.sizes[:count])
        if self.orphans:
            freed -= self.orphans.hold(self.first, self.sizes[:count])
        if self.markers:
            self.markers -= sum([entry.marker is not None for entry in self.entries[:count]])
        del self.entries[:count], self.times[:count], self.sizes[:count]
        self.first = base
        return freed

    # -- batches -----------------------------------------------------------------------------------------------

    def planned(self) -> list[Batch]:
        """Make the batches that may be sent now; their queues become SENDING."""
        if self._config.lock_step and any(queue.batch is not None for queue in self.queues):
            return []
        end = self.end
        return [self._taken(queue) for queue in self.queues if queue.state is QueueState.IDLE and queue.sent < end]

    def _taken(self, queue: ReplicaQueue) -> Batch:
        """Make a batch of the waiting entries, up to its limits."""
        entries, size = self._next_entries(queue, self._batch_entries, self._batch_bytes)
        queue.become(QueueState.SENDING)
        self.idle -= 1
        has_marker = self.markers > 0 and any(entry.marker is not None for entry in entries)
        queue.batch = Batch(queue.replica_id, self._epoch, entries, size, queue.sent, has_marker)
        queue.batches += 1
        return queue.batch

    def _next_entries(self, queue: ReplicaQueue, count_max: int, bytes_max: int) -> tuple[list[LoggedEntry], int]:
        """Return entries until count or size reaches its limit (the last one may cross it), and their bytes."""
        start = queue.sent - self.first
        sizes = self.sizes[start : start + count_max]
        size, count = sum(sizes), len(sizes)
        if size > bytes_max:
            size, count = Batch.cut(sizes, bytes_max)
        queue.sent += count
        return self.entries[start : start + count], size

    def fill(self, batch: Batch, room: int, room_bytes: int) -> None:
        """Extend a batch that is about to be sent with the entries that follow it, unless its queue has moved on."""
        queue = self.queue(batch.replica_id)
        if queue is None or queue.batch is not batch or queue.sent != batch.end or batch in self.orphans:
            return
        if self.markers and not batch.has_marker:
            return
        entries, size = self._next_entries(queue, room, room_bytes)
        batch.entries += entries
        batch.size += size
        batch.end = queue.sent

    def settle(self, queue: ReplicaQueue, batch: Batch) -> None:
        """Make the queue idle after a batch that does not fail it: the next batch may be sent."""
        queue.become(QueueState.IDLE)
        self.idle += 1
        queue.acked = max(queue.acked, batch.end)

    def acknowledge(self, queue: ReplicaQueue, batch: Batch) -> None:
        """Record that the replica has applied the batch."""
        queue.acked_sequence_id = max(queue.acked_sequence_id, batch.last_sequence_id)
        has_gap = queue.missed_from is not None or not queue.has_caught_up
        if has_gap and batch.fills_gap_since(queue.healed_sequence_id):
            queue.missed_from = queue.missed_since = None
            queue.has_caught_up = True

    def statuses(self, now: float) -> list[ReplicaStatus]:
        """Return the current status of each replica."""
        end = self.end
        return [
            queue.status(
                end=end,
                queue_bytes=sum(self.sizes[max(0, queue.sent - self.first) :]),
                missing_since=self._missing_since(queue),
                now=now,
            )
            for queue in self.queues
        ]
