"""Decides how a memstore becomes files: the steps of a flush, in HBase's order (HRegion.internalFlushcache).

1. one flush at a time; a second one returns without writing to the log;
2. nothing in memory: CANNOT_FLUSH, which uses up a sequence id and reports to the replicas that no edit is missing;
3. under the update lock: the flush's sequence id, START_FLUSH, a snapshot of each chosen family;
4. outside of it: the files;
5. under it again: the files replace the snapshots, COMMIT_FLUSH; the log no longer needs older entries.

After a failure that follows the snapshot, ABORT_FLUSH is logged and the region stops serving
(DroppedSnapshotException).
"""

from __future__ import annotations

import enum
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

from metaclient_fake.storage.memstore import Segment
from metaclient_fake.storage.store import Store
from metaclient_fake.storage.store_file import StoreFile
from metaclient_fake.storage.wal import Marker, MarkerKind

if TYPE_CHECKING:
    from metaclient_fake.storage.region import Region

__all__ = ["FlushOutcome", "FlushResult", "RegionFlusher"]

#: A segment that no longer changes, and its rows in order.
Snapshot: TypeAlias = tuple[Segment, list[bytes]]


class FlushOutcome(enum.Enum):
    """The kinds of results of a flush (FlushResultImpl)."""

    FLUSHED = "FLUSHED"
    FLUSHED_COMPACTION_NEEDED = "FLUSHED_COMPACTION_NEEDED"
    CANNOT_FLUSH_EMPTY = "CANNOT_FLUSH_EMPTY"
    CANNOT_FLUSH = "CANNOT_FLUSH"


@dataclass(frozen=True, slots=True)
class FlushResult:
    """How a flush ended; ``sequence_id`` is that of its files, -1 when there are none."""

    outcome: FlushOutcome
    sequence_id: int = -1
    wrote_marker: bool = False
    reason: str = ""

    @property
    def is_flushed(self) -> bool:
        return self.outcome in (FlushOutcome.FLUSHED, FlushOutcome.FLUSHED_COMPACTION_NEEDED)

    @property
    def needs_compaction(self) -> bool:
        return self.outcome is FlushOutcome.FLUSHED_COMPACTION_NEEDED


class RegionFlusher:
    """Flushes one primary region."""

    def __init__(self, region: Region) -> None:
        self._region = region
        self._done = region.runtime.condition(region.update_lock)
        self.is_running = False

    def flush(self, families: Sequence[bytes] | None, *, writes_marker: bool, closing: bool = False) -> FlushResult:
        """Flush some families or all; ``closing``: the region has stopped serving and writes the rest."""
        region = self._region
        with region.update_lock:
            if not region.is_open and not closing:
                return FlushResult(FlushOutcome.CANNOT_FLUSH, reason=f"the region is {region.state.value.lower()}")
            if self.is_running:
                return FlushResult(FlushOutcome.CANNOT_FLUSH, reason="already flushing")
            self.is_running = True
        try:
            return self._flush(families, writes_marker)
        finally:
            with region.update_lock:
                self.is_running = False
                self._done.notify_all()

    def wait_until_done(self) -> None:
        """Wait for a flush that runs; the caller holds the update lock."""
        while self.is_running:
            self._done.wait()

    def _flush(self, families: Sequence[bytes] | None, writes_marker: bool) -> FlushResult:
        region = self._region
        with region.update_lock:
            as_of = region.runtime.now()
            if not region.memstore_bytes:
                region.files_are_complete(as_of)
                region.log.mark(Marker(MarkerKind.CANNOT_FLUSH), is_logged=writes_marker)
                return FlushResult(FlushOutcome.CANNOT_FLUSH_EMPTY, -1, writes_marker, "the memstore is empty")
            stores = [store for store in region.stores if families is None or store.name in families]
            sequence_id = region.log.use_up()
            names = tuple(store.name for store in stores)
            region.log.mark(Marker(MarkerKind.START_FLUSH, sequence_id, names))
            snapshots = self.take_snapshots(stores)
        # After a flush of some families, the edits of the other families are still in memory only.
        self._write_and_commit(stores, snapshots, sequence_id, as_of if len(stores) == len(region.stores) else None)
        is_many = any(len(store.files) >= region.config.compaction_min_files for store in stores)
        outcome = FlushOutcome.FLUSHED_COMPACTION_NEEDED if is_many else FlushOutcome.FLUSHED
        return FlushResult(outcome, sequence_id, True)

    def take_snapshots(self, stores: Sequence[Store]) -> list[Snapshot]:
        """Set the memstores aside; the lock is held."""
        taken = [store.memstore.take_snapshot() for store in stores]
        self._region.publish()
        return [(segment, segment.sorted_rows()) for segment in taken]

    def _write_and_commit(
        self, stores: Sequence[Store], snapshots: Sequence[Snapshot], sequence_id: int, as_of: float | None
    ) -> None:
        region = self._region
        try:
            files = self.files_of(stores, snapshots, sequence_id)
            with region.update_lock:
                region.log.sync()
                self.swap(stores, files)
                if as_of is not None:
                    region.files_are_complete(as_of)
                self._commit(stores, files, sequence_id)
        except BaseException:
            with region.update_lock:
                region.stop_serving()
                if region.log.wal is not None and not region.log.wal.is_closed:
                    region.log.mark(Marker(MarkerKind.ABORT_FLUSH, sequence_id), is_told=False)
            raise

    def files_of(
        self, stores: Sequence[Store], snapshots: Sequence[Snapshot], sequence_id: int
    ) -> list[StoreFile | None]:
        """Return the file of each snapshot; None for a family that had nothing to flush."""
        now_ms, name = self._region.time_ms(), self._region.filesystem.file_name
        return [
            store.flushed_file(segment, rows, name(), sequence_id=sequence_id, now_ms=now_ms) if segment.rows else None
            for store, (segment, rows) in zip(stores, snapshots, strict=True)
        ]

    def swap(self, stores: Sequence[Store], files: Sequence[StoreFile | None]) -> None:
        """Replace the snapshots by the files, for all readers at once; the lock is held."""
        for store, file in zip(stores, files, strict=True):
            if file is not None:
                self._region.replace_files(store, (), file)
            store.memstore.drop_snapshot()
        self._region.publish()

    def _commit(self, stores: Sequence[Store], files: Sequence[StoreFile | None], sequence_id: int) -> None:
        region = self._region
        names = tuple(file.name for file in files if file is not None)
        region.log.mark(Marker(MarkerKind.COMMIT_FLUSH, sequence_id, tuple(store.name for store in stores), names))
        # After a flush of some families, the log must keep the edits of the other families.
        oldest = [store.memstore.active.oldest_sequence_id for store in region.stores]
        kept = min([number for number in oldest if number is not None], default=sequence_id + 1)
        region.log.flushed(min(sequence_id, kept - 1))
