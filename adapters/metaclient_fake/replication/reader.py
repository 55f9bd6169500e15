"""Reads the logs of one group in order and makes batches of them.

Mirrors ``ReplicationSourceWALReader``, ``SerialReplicationSourceWALReader`` and ``WALEntryStream`` (HBase 2.6.1):

- A batch ends at its limits, when nothing more is durable, and at the end of a file; it never spans two files.
- While there is nothing new the reader sleeps 2, 3, 4 ... x ``retry_pause_s``, up to ``retry_multiplier_max``; any new
  entry, also one that the peer does not get, starts the pauses anew.
- It does not begin a batch while the peer is disabled, or while all sources of the server hold too many bytes.
- Serial peers: an entry that may not be pushed yet ends the batch; at the beginning of a batch the reader asks again
  every ``serial_pause_s``. Entries behind it wait, too.
- A check that fails ends the batch, too, and is repeated with growing pauses. With the bugs of HBase 2.6.1 an entry at
  the beginning of a batch is pushed without a check after the first pause (HBASE-29501).

DIVERGENCE: the reader waits, with growing pauses, for a log that is in the queue and in no folder (HBase aborts).
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Iterable

from metaclient.errors import ConnectionClosed, MetaClientError
from metaclient.replication_peers import BlockedRegion
from metaclient.runtime import Condition, Runtime
from metaclient_fake.config.replication import PeerReplicationConfig, SerialBug
from metaclient_fake.replication.batches import BufferQuota, EntryBatch
from metaclient_fake.replication.filters import EntryFilter
from metaclient_fake.replication.metrics import SourceMetrics
from metaclient_fake.replication.splitting import IsOrdered
from metaclient_fake.storage.wal import WalEntry, WalFile
from metaclient_fake.storage.wal_reader import WalReader

__all__ = ["OrderCheck", "WalTail"]

logger = logging.getLogger(__name__)

#: Returns None if an entry may be pushed to a serial peer now, and otherwise what it waits for. Asked for entries that
#: survive the entry filters.
OrderCheck = Callable[[WalEntry], BlockedRegion | None]


class WalTail:
    """The reader of one log group, and the batches that wait for its shipper.

    ``_changed`` guards the queue of logs and the queue of batches, and is notified when either changes and at the stop.
    The other fields belong to the reading task.
    """

    def __init__(
        self,
        runtime: Runtime,
        config: PeerReplicationConfig,
        positions: Iterable[tuple[str, int]],
        *,
        entry_filter: EntryFilter,
        quota: BufferQuota,
        metrics: SourceMetrics,
        find_wal: Callable[[str], WalFile | None],
        is_enabled: Callable[[], bool],
        order_check: OrderCheck | None = None,
        is_ordered: IsOrdered | None = None,
        ends: bool = False,
    ) -> None:
        """``positions``: the logs, oldest first, and where to begin in each. ``ends``: a claimed queue has an end.

        ``is_ordered`` selects the entries, by their scopes, that ``order_check`` is asked for; None: all of them. The
        pushed ids count all entries, because a table may become serial later.
        """
        self._runtime = runtime
        self._config = config
        self._filter = entry_filter
        self._quota = quota
        self._metrics = metrics
        self._find_wal = find_wal
        self._is_enabled = is_enabled
        self._order_check = order_check
        self._is_ordered = is_ordered
        self._ends = ends
        self._reader: WalReader | None = None
        self._held: WalEntry | None = None  # read, and not allowed to be pushed yet
        self._entries_before = 0  # before ``_position``
        self._position = 0  # behind the last entry that is in a batch or was filtered out
        self._changed: Condition = runtime.condition()
        self._wals: deque[tuple[str, int]] = deque(positions)
        self._batches: deque[EntryBatch] = deque()
        self._is_stopped = False
        self._is_finished = False

    # -- used by the source and the shipper --------------------------------------------------------------------

    def enqueue(self, wal: str) -> None:
        """Add a log behind the others. A sleeping reader finds it when its pause is over, as in HBase."""
        with self._changed:
            self._wals.append((wal, 0))

    @property
    def wals(self) -> list[str]:
        """The logs that are not read to their end yet."""
        with self._changed:
            return [wal for wal, _ in self._wals]

    def stop(self) -> None:
        """End the reader and :meth:`take`; give the bytes of waiting batches back to the quota."""
        with self._changed:
            self._is_stopped = True
            dropped = sum(batch.size for batch in self._batches)
            self._batches.clear()
            self._changed.notify_all()
        if dropped:
            self._quota.release(dropped)

    def take(self) -> EntryBatch | None:
        """Wait for the next batch; None after the stop, and when a queue that ends has no more logs."""
        with self._changed:
            while not self._batches:
                if self._is_stopped or self._is_finished:
                    return None
                self._changed.wait(None)
            batch = self._batches.popleft()
            self._changed.notify_all()
            return batch

    # -- the reading task --------------------------------------------------------------------------------------

    def run(self) -> None:
        """Read until the stop, or until the end of a queue that ends."""
        multiplier = 1
        while not self._is_stopped:
            if not self._is_enabled() or self._quota.is_exceeded:
                self._pause(self._config.retry_pause_s)
                continue
            batch = self._next_batch()
            if batch is not None:
                self._put(batch)
                multiplier = 1
            elif self._ends and not self.wals:
                break
            else:
                multiplier = min(multiplier + 1, self._config.retry_multiplier_max)
                self._pause(self._config.retry_pause_s * multiplier)
        with self._changed:
            self._is_finished = True
            self._changed.notify_all()

    def _pause(self, seconds: float) -> None:
        """Sleep, at most until the stop."""
        until = self._runtime.now() + seconds
        with self._changed:
            while not self._is_stopped and self._changed.wait(until):
                pass

    def _put(self, batch: EntryBatch) -> None:
        with self._changed:
            while len(self._batches) >= self._config.batches_ahead and not self._is_stopped:
                self._changed.wait(None)
            if not self._is_stopped:
                self._batches.append(batch)
                self._changed.notify_all()
                return
        self._quota.release(batch.size)

    def _next_batch(self) -> EntryBatch | None:
        """Return a batch; None if there is nothing new and no file has ended."""
        reader = self._reader or self._open()
        if reader is None:
            return None
        batch = EntryBatch(reader.file.name, self._position, entries_before=self._entries_before)
        self._fill(batch, reader)
        is_moved, self._position = batch.position > self._position, batch.position
        self._entries_before = batch.entries_before
        if self._held is None and reader.is_at_end:
            batch.is_end_of_file = True
            self._reader = None
            with self._changed:
                self._wals.popleft()
        return batch if is_moved or batch.is_end_of_file else None

    def _open(self) -> WalReader | None:
        """Open the oldest log; return None if there is no log, or if its file is not found."""
        with self._changed:
            first = self._wals[0] if self._wals else None
        if first is None:
            return None
        wal, position = first
        file = self._find_wal(wal)
        if file is None:
            logger.warning("the log %s is in a replication queue and in no folder; its peer waits for it", wal)
            return None
        self._reader = WalReader(file, position)
        self._position, self._entries_before = position, self._reader.slot
        return self._reader

    def _fill(self, batch: EntryBatch, reader: WalReader) -> None:
        """Add entries until a limit, the end of the data, or an entry that may not be pushed yet."""
        config, quota, keep = self._config, self._quota, self._filter.shipped
        read = filtered = 0
        while not self._is_stopped:
            entry = self._held or reader.read()
            self._held = None
            if entry is None:
                break
            shipped = keep(entry)
            if shipped is not None and self._order_check is not None:
                is_ordered = self._is_ordered is None or self._is_ordered(entry.scopes)
                waits = batch.position == self._position
                if is_ordered and not self._is_allowed(entry, self._order_check, waits=waits):
                    self._held = entry
                    break
                batch.pushed_ids[entry.region] = entry.sequence_id
            read += 1
            batch.position, batch.entries_before = reader.position, reader.slot
            batch.last_write_time_ms = entry.write_time_ms
            if shipped is None or not shipped.cells:
                filtered += 1
                continue
            size = entry.size
            batch.add(shipped, size)
            if quota.acquire(size) or batch.size >= config.batch_bytes or len(batch.entries) >= config.batch_entries:
                break
        self._metrics.count_read(read, filtered)

    def _is_allowed(self, entry: WalEntry, check: OrderCheck, *, waits: bool) -> bool:
        """Ask if an entry may be pushed; if ``waits`` (at the beginning of a batch), until it may or until the stop."""
        config, multiplier = self._config, 1
        while not self._is_stopped:
            try:
                blocked, pause_s = check(entry), config.serial_pause_s
            except ConnectionClosed:
                raise
            except MetaClientError as error:
                level = logging.WARNING if multiplier == 1 else logging.DEBUG
                logger.log(level, "the order of an entry of region %s cannot be checked now: %s", entry.region, error)
                waits_for = f"hbase:meta to be read: {type(error).__name__}: {error}"
                blocked = BlockedRegion(region=entry.region, sequence_id=entry.sequence_id, waits_for=waits_for)
                pause_s = config.retry_pause_s * multiplier
                multiplier = min(multiplier + 1, config.retry_multiplier_max)
                if waits and SerialBug.UNCHECKED_AFTER_ERROR in config.serial_bugs:
                    self._pause(pause_s)
                    blocked = None
            if blocked is None:
                self._metrics.blocked = None
                return True
            self._metrics.blocked = blocked
            if not waits:
                return False
            self._pause(pause_s)
        return False
