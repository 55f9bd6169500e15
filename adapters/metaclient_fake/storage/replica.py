"""Decides how a secondary follows its primary: by the primary's files, and by entries that are replayed to it.

Mirrors ``HRegion.refreshStoreFiles`` and ``replayWALEntry`` (3.x). DIVERGENCE: replayed cells are
stamped with their entry's sequence id, so that a reader never sees half of an entry.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from metaclient_fake.storage.store import Store
from metaclient_fake.storage.wal import LoggedEntry, Marker, MarkerKind

if TYPE_CHECKING:
    from metaclient_fake.storage.region import Region

__all__ = ["Follower", "lists_files"]

#: After these markers the primary's directory has no new files; after any other marker it may have.
_NO_NEW_FILES = (MarkerKind.START_FLUSH, MarkerKind.ABORT_FLUSH)
_FLUSH_ENDS = (MarkerKind.COMMIT_FLUSH, MarkerKind.ABORT_FLUSH, MarkerKind.CANNOT_FLUSH)


def lists_files(marker: Marker) -> bool:
    """Return True if a secondary that replays this marker lists the primary's files."""
    return marker.kind not in _NO_NEW_FILES


class Follower:
    """The state of a secondary that follows its primary. Guarded by the region's update lock."""

    def __init__(self, region: Region) -> None:
        self._region = region
        self._prepared_flush_id: int | None = None
        #: Entries up to this one were applied, or are in the files that the region was opened with.
        self.last_replayed_sequence_id = -1
        #: Files are known to cover everything up to here, in all families.
        self.last_replayed_open_sequence_id = -1

    @property
    def is_flush_prepared(self) -> bool:
        return self._prepared_flush_id is not None

    def opened(self, next_id: int, files_id: int) -> None:
        self.last_replayed_sequence_id = next_id - 1
        self.last_replayed_open_sequence_id = files_id

    def replay(self, entry: LoggedEntry) -> bool:
        """Apply one entry; return False when it is old. Gaps between entries are not detected."""
        sequence_id = entry.sequence_id
        if sequence_id <= self.last_replayed_sequence_id:
            return False
        region, marker = self._region, entry.marker
        region.apply_replayed(entry)
        if marker is not None:
            self._follow(marker)
        region.log.mvcc.advance_to(sequence_id)
        self.last_replayed_sequence_id = sequence_id
        return True

    def _follow(self, marker: Marker) -> None:
        if marker.kind is MarkerKind.START_FLUSH:
            self._prepare_flush(marker)
        if lists_files(marker):
            self.refresh()
        if marker.kind in _FLUSH_ENDS:
            self._prepared_flush_id = None

    def restart(self, sequence_id: int) -> None:
        """Drop the memstores and list the files again: another primary has opened, and the files have all its data.

        The read point moves before the sources do, so that a reader of the new sources does not see part of a later
        entry.
        """
        region = self._region
        files = [store.directory.files(store.name) for store in region.stores]
        newest = max([file.sequence_id for listed in files for file in listed], default=-1)
        region.log.mvcc.restart_at(max(sequence_id, newest))
        self._prepared_flush_id = None
        for store, listed in zip(region.stores, files, strict=True):
            store.memstore.drop_snapshot()
            store.memstore.drop_active()
            store.files = listed
        self.last_replayed_sequence_id = sequence_id
        self.last_replayed_open_sequence_id = min([store.file_sequence_id for store in region.stores], default=-1)
        region.publish()

    def _prepare_flush(self, marker: Marker) -> None:
        """Take a snapshot of the families that the primary has begun to flush; a second START_FLUSH is ignored."""
        if self._prepared_flush_id is not None:
            return
        self._prepared_flush_id = marker.flush_sequence_id
        for store in self._region.stores:
            if store.name in marker.families and store.memstore.active.rows:
                store.memstore.take_snapshot()
        self._region.publish()

    def refresh(self) -> bool:
        """List the primary's files again and drop the edits that they cover; return True if memory was freed."""
        region = self._region
        before = region.memstore_bytes
        grown = [store for store in region.stores if self._relist(store)]
        smallest = min([store.file_sequence_id for store in region.stores], default=-1)
        self.last_replayed_open_sequence_id = max(self.last_replayed_open_sequence_id, smallest)
        if all(store.memstore.snapshot is None for store in region.stores):
            self._prepared_flush_id = None
        for store in grown:
            if store.file_sequence_id >= region.read_point:
                store.memstore.drop_active()
        region.publish()
        return region.memstore_bytes < before

    def _relist(self, store: Store) -> bool:
        """Use the files that the directory lists now; return True if their highest sequence id grew."""
        old = store.file_sequence_id
        store.files = store.directory.files(store.name)
        new = store.file_sequence_id
        self._region.log.mvcc.advance_to(new)
        if new <= old:
            return False
        if self._prepared_flush_id is not None and self._prepared_flush_id <= new:
            store.memstore.drop_snapshot()
        return True
