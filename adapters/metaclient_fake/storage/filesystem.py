"""Stores the data that survives a server crash: region directories, archive, sequence-id files and logs (HDFS).

A directory belongs to a range of rows, not to a replica: secondaries list the primary's files. Files that a compaction
or a drop replaced stay in the archive until its time to live is over (``hbase.master.hfilecleaner.ttl``), because a
secondary may still be reading them.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Sequence
from dataclasses import dataclass
from itertools import count
from typing import TypeVar

from metaclient import keys
from metaclient.model import META_TABLE, RegionInfo
from metaclient_fake.storage.memstore import RowOrder
from metaclient_fake.storage.store_file import StoreFile
from metaclient_fake.storage.wal import ROLL_BYTES, Wal, WalFile, no_clock

__all__ = ["FileSystem", "RegionDirectory", "row_order"]

T = TypeVar("T")

#: hbase.master.logcleaner.ttl
WAL_TTL_S = 600.0


@dataclass(frozen=True, slots=True)
class Archived:
    """A file that no region lists any more, and the time of its removal."""

    file: StoreFile
    since_s: float


def row_order(table: bytes) -> RowOrder:
    """Return the sort key of the rows of ``table``; None for the order of bytes."""
    return keys.meta_sort_key if table == META_TABLE else None


class RegionDirectory:
    """The files of one region, by family, oldest first; the owner swaps a family's tuple as a whole."""

    __slots__ = ("_archive", "_files", "complete_as_of", "info", "marker_sequence_id", "region", "sequence_id")

    def __init__(self, info: RegionInfo, region: str, archive: list[Archived]) -> None:
        self.info = info
        self.region = region  # the primary's encoded name
        self.sequence_id = 1  # the seq-id file; HBase's new regions open with 2
        #: The highest sequence id of a logged marker. For primaries only: a secondary waits for the entries after its
        #: files, and for it the markers are among them.
        self.marker_sequence_id = -1
        #: The files have everything that was acknowledged before this instant of the runtime's clock; None when that is
        #: not known. Set by the primary after the files are listed here, read by secondaries before they list them.
        self.complete_as_of: float | None = None
        self._files: dict[bytes, tuple[StoreFile, ...]] = {}
        self._archive = archive

    def families(self) -> tuple[bytes, ...]:
        return tuple(self._files)

    def files(self, family: bytes) -> tuple[StoreFile, ...]:
        return self._files.get(family, ())

    def all_files(self) -> tuple[StoreFile, ...]:
        # A copy first: a flush may add the first file of a family meanwhile.
        return tuple(file for files in list(self._files.values()) for file in files)

    def has_references(self) -> bool:
        """Return True if files are references to a parent's: the region cannot split before a compaction."""
        return any(file.is_reference for file in self.all_files())

    def add(self, family: bytes, file: StoreFile) -> None:
        self.replace(family, (), (file,), 0.0)

    def replace(
        self, family: bytes, removed: Sequence[StoreFile], added: Sequence[StoreFile], now_s: float
    ) -> tuple[StoreFile, ...]:
        """Swap files in one step and archive the removed ones; return the family's new files, oldest first."""
        gone = {id(file) for file in removed}
        kept = [file for file in self._files.get(family, ()) if id(file) not in gone]
        now = tuple(sorted([*kept, *added], key=lambda file: file.sequence_id))
        self._files[family] = now
        self._archive.extend(Archived(file, now_s) for file in removed)
        return now

    def drop_family(self, family: bytes, now_s: float) -> None:
        """Archive the files of a family that was removed from the table."""
        self._archive.extend(Archived(file, now_s) for file in self._files.pop(family, ()))

    def __repr__(self) -> str:
        return f"RegionDirectory({self.region}, {len(self.all_files())} files, sequence_id={self.sequence_id})"


class FileSystem:
    """The file system of one cluster, shared by all its servers."""

    def __init__(self) -> None:
        self._regions: dict[str, RegionDirectory] = {}
        self._archive: list[Archived] = []
        self._wals: dict[str, Wal] = {}
        #: Name -> each file of a log from its creation until the cleaner deletes it, so that it can be found while it
        #: moves to the archive.
        self._wal_files: dict[str, WalFile] = {}
        self._old_wals: list[WalFile] = []
        #: Returns the names of the log files that replication queues need. Replaced by the owner of the queues.
        self.needed_wals: Callable[[], Container[str]] = frozenset
        self._file_numbers = count(1)  # ``next`` is atomic: regions flush at the same time

    def file_name(self) -> str:
        """Return a name that no file had before (HBase draws a UUID; a counter repeats with the seed)."""
        return f"{next(self._file_numbers):08x}"

    def region(self, info: RegionInfo) -> RegionDirectory:
        """Return the directory of a region, the same for all replicas; create it when it is missing."""
        primary = info.replica(0)
        encoded = primary.encoded_name
        found = self._regions.get(encoded)
        if found is None:
            found = self._regions.setdefault(encoded, RegionDirectory(primary, encoded, self._archive))
        return found

    def regions(self, table: bytes | None = None) -> list[RegionDirectory]:
        return [found for found in list(self._regions.values()) if table is None or found.info.table == table]

    def delete_region(self, info: RegionInfo, now_s: float) -> None:
        """Archive a region's files and remove its directory (of a parent that has no references left)."""
        found = self._regions.pop(info.replica(0).encoded_name, None)
        if found is not None:
            self._archive.extend(Archived(file, now_s) for file in found.all_files())

    def delete_table(self, table: bytes, now_s: float) -> int:
        """Archive all regions of a table; return their number."""
        found = self.regions(table)
        for directory in found:
            self.delete_region(directory.info, now_s)
        return len(found)

    def split(self, parent: RegionInfo, left: RegionInfo, right: RegionInfo, at: bytes) -> None:
        """Make the daughters' directories out of references to the parent's files; the parent keeps its own."""
        source = self.region(parent)
        order = row_order(parent.table)
        for daughter, start, stop in ((left, b"", at), (right, at, b"")):
            target = self.region(daughter)
            target.sequence_id = source.sequence_id
            for family in source.families():
                for file in source.files(family):
                    half = file.half(f"{file.name}.{source.region}", start, stop, order)
                    if half is not None:
                        target.add(family, half)

    def merge(self, *parents_and_merged: RegionInfo) -> None:
        """Make the merged region's directory (the last one named) out of references to its parents' files."""
        *parents, merged = parents_and_merged
        target = self.region(merged)
        for parent in parents:
            source = self.region(parent)
            target.sequence_id = max(target.sequence_id, source.sequence_id)
            for family in source.families():
                for file in source.files(family):
                    whole = file.half(f"{file.name}.{source.region}", b"", b"", None)
                    if whole is not None:
                        target.add(family, whole)

    @property
    def archived(self) -> tuple[StoreFile, ...]:
        return tuple(entry.file for entry in self._archive)

    def clean_archive(self, now_s: float, ttl_s: float) -> int:
        """Delete the files that have been in the archive for longer than ``ttl_s``; return their number."""
        expired = [entry for entry in list(self._archive) if now_s - entry.since_s > ttl_s]
        for entry in expired:
            entry.file.is_deleted = True
        _remove(self._archive, expired)
        return len(expired)

    def create_wal(self, name: str, *, roll_bytes: int = ROLL_BYTES, time_ms: Callable[[], int] = no_clock) -> Wal:
        """Return a new log, kept here until :meth:`delete_wal`."""
        if name in self._wals:
            raise ValueError(f"a log named {name!r} is already there")
        wal = self._wals[name] = Wal(name, roll_bytes=roll_bytes, time_ms=time_ms)
        for file in wal.files:
            self._keep_wal_file(file)
        wal.on_roll.append(self._keep_wal_file)
        wal.on_archive = self._archive_wal_file
        return wal

    def _keep_wal_file(self, file: WalFile) -> None:
        self._wal_files[file.name] = file

    def _archive_wal_file(self, file: WalFile) -> None:
        """Move a file to the archive, unless another thread has done so: a roll may meet the recovery of its server."""
        if file.take_archiving():
            self._old_wals.append(file)

    def wal(self, name: str) -> Wal | None:
        return self._wals.get(name)

    def find_wal_file(self, name: str) -> WalFile | None:
        """Return a file of a log, whether it is being written, kept or archived; None once it is deleted."""
        return self._wal_files.get(name)

    def delete_wal(self, name: str) -> None:
        """Remove a log whose regions were all recovered; its files go to the archive of logs."""
        wal = self._wals.pop(name, None)
        if wal is not None:
            for file in wal.files:
                self._archive_wal_file(file)

    @property
    def old_wals(self) -> tuple[WalFile, ...]:
        return tuple(self._old_wals)

    def clean_old_wals(
        self, now_s: float, ttl_s: float = WAL_TTL_S, is_needed: Callable[[str], bool] | None = None
    ) -> int:
        """Delete log files archived for longer than ``ttl_s`` that replication does not need; return their number.

        ``is_needed`` decides by the name of a file; by default :attr:`needed_wals` is asked once, after the expired
        files are known, so that a file which a queue took over from another one meanwhile is found in one of them.
        """
        expired: list[WalFile] = []
        for file in list(self._old_wals):
            if file.archived_at_s is None:
                file.archived_at_s = now_s  # archived since the last cleaning: its time begins now
            if now_s - file.archived_at_s > ttl_s:
                expired.append(file)
        if not expired:
            return 0
        if is_needed is None:
            is_needed = self.needed_wals().__contains__
        expired = [file for file in expired if not is_needed(file.name)]
        _remove(self._old_wals, expired)
        for file in expired:
            self._wal_files.pop(file.name, None)
        return len(expired)


def _remove(archive: list[T], expired: Sequence[T]) -> None:
    """Take ``expired`` out of an archive to which other threads append meanwhile.

    Appends go to the end and one chore removes, so the first ``length`` entries stay the same ones; replacing the whole
    list would lose an entry that is archived in between.
    """
    gone = {id(entry) for entry in expired}
    length = len(archive)
    archive[:length] = [entry for entry in archive[:length] if id(entry) not in gone]
