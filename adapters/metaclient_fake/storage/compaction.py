"""Decides which files are compacted together (ExploringCompactionPolicy), and replaces them by one file."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from metaclient_fake.storage.store import Store
from metaclient_fake.storage.store_file import StoreFile
from metaclient_fake.storage.wal import Marker, MarkerKind

if TYPE_CHECKING:
    from metaclient_fake.storage.region import Region

__all__ = ["Compactor", "selected_files"]

#: hbase.hstore.compaction.ratio
RATIO = 1.2


def selected_files(files: Sequence[StoreFile], min_files: int, max_files: int) -> tuple[StoreFile, ...]:
    """Return the best run of neighbours in which no file is much bigger than all others together.

    The best run has the most files; of runs with equally many files, it has the fewest bytes.

    Only files that are neighbours in sequence order are chosen: a file in between would come out of order. In a region
    with reference files, all files up to the last reference are chosen, because the region cannot split while it has
    references.
    """
    references = [index for index, file in enumerate(files) if file.is_reference]
    if references:
        return tuple(files[: max(max_files, references[-1] + 1)])
    best: tuple[StoreFile, ...] = ()
    for start in range(len(files)):
        for stop in range(start + min_files, min(start + max_files, len(files)) + 1):
            run = tuple(files[start:stop])
            if _in_ratio(run) and (len(run), -_size(run)) > (len(best), -_size(best)):
                best = run
    return best


def _size(run: Sequence[StoreFile]) -> int:
    return sum(file.size for file in run)


def _in_ratio(run: Sequence[StoreFile]) -> bool:
    total = _size(run)
    return all(file.size <= (total - file.size) * RATIO for file in run)


class Compactor:
    """Compacts one primary region, one family at a time."""

    def __init__(self, region: Region) -> None:
        self._region = region
        self._is_running = False

    def compact(self, store: Store, *, major: bool) -> bool:
        """Replace files of a family by one; False when there is nothing to do, or another compaction runs."""
        region = self._region
        with region.update_lock:
            chosen = self._chosen(store, major)
            if not chosen or not region.is_open or self._is_running:
                return False
            self._is_running = True
            # As in HBase, delete markers are dropped whenever all files take part, even in a minor compaction.
            drops_deletes = len(chosen) == len(store.files)
        try:
            name = region.filesystem.file_name()
            made = store.compacted_file(chosen, name, region.time_ms(), drops_deletes=drops_deletes)
            with region.update_lock:
                return self._swap(store, chosen, made)
        finally:
            self._is_running = False

    def _chosen(self, store: Store, major: bool) -> tuple[StoreFile, ...]:
        config = self._region.config
        if major:
            return store.files
        return selected_files(store.files, config.compaction_min_files, config.compaction_max_files)

    def _swap(self, store: Store, chosen: Sequence[StoreFile], made: StoreFile) -> bool:
        region = self._region
        if not region.is_open:
            return False
        names = (*[file.name for file in chosen], made.name)
        region.log.mark(Marker(MarkerKind.COMPACTION, -1, (store.name,), names))
        region.replace_files(store, chosen, made)
        region.publish()
        return True
