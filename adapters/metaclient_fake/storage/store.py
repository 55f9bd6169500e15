"""Stores one family of one region: its memstore, its files, and how a row is put together from them (HStore)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TypeAlias, cast

from metaclient.model import Cell, FamilyDescriptor
from metaclient.runtime import Lock
from metaclient_fake.storage.cells import Columns, PlainRow, RowCells, RowVersions, VersionedRow, row_of
from metaclient_fake.storage.filesystem import RegionDirectory
from metaclient_fake.storage.memstore import MemStore, RowOrder, Segment
from metaclient_fake.storage.query_matcher import StoreQuery, compacted, merged_plain, plain_cells, resolved
from metaclient_fake.storage.store_file import StoreFile

__all__ = ["CellSource", "CellSources", "Store", "read_row", "stored_columns"]

CellSource: TypeAlias = Segment | StoreFile
#: All sources that a reader must read, oldest first; the tuple is replaced, never changed.
CellSources: TypeAlias = tuple[CellSource, ...]

NO_CELLS: tuple[Cell, ...] = ()


def read_row(
    sources: Sequence[CellSource], row: bytes, query: StoreQuery, *, read_point: int, now_ms: int, lock: Lock
) -> Sequence[Cell]:
    """Return the cells of ``row`` that match ``query`` at ``read_point``; take ``lock`` only for rows being written."""
    found = [entry for source in sources if (entry := source.rows.get(row)) is not None]
    if not found:
        return NO_CELLS
    if len(found) == 1:
        only = found[0]
        if only.is_plain:
            plain = cast("PlainRow", only)
            return plain_cells(plain, query, now_ms) if plain.sequence_id <= read_point else NO_CELLS
        if query.max_versions == 1 and not query.has_range and isinstance(only, VersionedRow):
            newest = _newest(only, read_point, lock)
            if newest is not None:
                return plain_cells(newest, query, now_ms)
    elif all(entry.is_plain for entry in found):
        return _from_plain(cast("list[PlainRow]", found), query, read_point=read_point, now_ms=now_ms)
    columns: Columns = {}
    with lock:
        for entry in found:
            entry.collect(columns, read_point)
    return resolved(columns, query, now_ms)


def stored_columns(sources: Sequence[CellSource], row: bytes, *, read_point: int, lock: Lock) -> Columns:
    """Return every version and delete marker of ``row`` that is stored at ``read_point``, visible or not."""
    columns: Columns = {}
    found = [entry for source in sources if (entry := source.rows.get(row)) is not None]
    if found:
        with lock:
            for entry in found:
                entry.collect(columns, read_point)
    return columns


def _newest(entry: VersionedRow, read_point: int, lock: Lock) -> RowCells | None:
    """Return the newest put of each column as a plain row, where a reader at ``read_point`` sees just that."""
    newest = entry.cached_newest()
    if newest is None:
        with lock:
            if entry.has_markers:
                return None
            newest = entry.newest()
    return newest if newest.sequence_id <= read_point else None


def _from_plain(rows: list[PlainRow], query: StoreQuery, *, read_point: int, now_ms: int) -> Sequence[Cell]:
    visible = [row for row in rows if row.sequence_id <= read_point]
    if len(visible) == 1:
        return plain_cells(visible[0], query, now_ms)
    if query.max_versions == 1 and query.is_trivial:
        return merged_plain(visible)
    columns: Columns = {}
    for row in visible:
        row.collect(columns, read_point)
    return resolved(columns, query, now_ms)


class Store:
    """One family. All changes are made under the region's lock; readers take :attr:`sources` and need none."""

    def __init__(self, family: FamilyDescriptor, directory: RegionDirectory, order: RowOrder) -> None:
        self.family = family
        self.name = family.name
        self.order = order
        self.directory = directory
        self.memstore = MemStore(order)
        self.files: tuple[StoreFile, ...] = directory.files(family.name)

    @property
    def sources(self) -> CellSources:
        snapshot = self.memstore.snapshot
        if snapshot is None:
            return (*self.files, self.memstore.active)
        return (*self.files, snapshot, self.memstore.active)

    @property
    def file_sequence_id(self) -> int:
        """The highest sequence id that the files are known to cover; -1 when there are none."""
        return max((file.sequence_id for file in self.files), default=-1)

    @property
    def size(self) -> int:
        return self.memstore.size + sum(file.size for file in self.files)

    def flushed_file(
        self, segment: Segment, segment_keys: list[bytes], name: str, *, sequence_id: int, now_ms: int
    ) -> StoreFile:
        """Return the file that a snapshot becomes. It is written even when empty: its sequence id covers the log."""
        rows, is_changed = _flushed_rows(segment.rows, self.family, now_ms)
        keys = sorted(rows, key=self.order) if is_changed else segment_keys
        return StoreFile.of(name, sequence_id, rows, keys=keys)

    def compacted_file(self, files: Sequence[StoreFile], name: str, now_ms: int, *, drops_deletes: bool) -> StoreFile:
        """Return the one file that replaces ``files``, even when empty (HBASE-6059: or old edits would be replayed)."""
        keys = _union(files, self.order)
        keeps_deleted = drops_deletes and self.family.keep_deleted_cells != "FALSE"
        earliest = min(file.earliest_put() for file in files) if keeps_deleted else 0
        rows: dict[bytes, PlainRow] = {}
        for row in keys:
            found = [file.rows[row] for file in files if row in file.rows]
            kept = _compacted_row(row, found, self.family, now_ms, drops_deletes=drops_deletes, earliest=earliest)
            if kept is not None:
                rows[row] = kept
        sequence_id = max(file.sequence_id for file in files)
        return StoreFile.of(name, sequence_id, rows, keys=keys if len(rows) == len(keys) else list(rows))


def _flushed_rows(
    rows: Mapping[bytes, RowVersions], family: FamilyDescriptor, now_ms: int
) -> tuple[Mapping[bytes, PlainRow], bool]:
    """Return the rows of a file, and whether they differ from the memstore's; the same mapping where all are plain."""
    if family.time_to_live_s is None and all(entry.is_plain for entry in rows.values()):
        return cast("Mapping[bytes, PlainRow]", rows), False
    written: dict[bytes, PlainRow] = {}
    for row, entry in rows.items():
        kept = _compacted_row(row, [entry], family, now_ms, drops_deletes=False, earliest=0)
        if kept is not None:
            written[row] = kept
    return written, True


def _compacted_row(
    row: bytes,
    found: Sequence[RowVersions],
    family: FamilyDescriptor,
    now_ms: int,
    *,
    drops_deletes: bool,
    earliest: int,
) -> PlainRow | None:
    if len(found) == 1 and found[0].is_plain and family.time_to_live_s is None:
        return cast("PlainRow", found[0])
    columns: Columns = {}
    newest = 0
    for entry in found:
        newest = max(newest, entry.sequence_id)
        entry.collect(columns, entry.sequence_id)
    cells = compacted(columns, family, now_ms, drops_deletes=drops_deletes, earliest_put=earliest)
    return row_of(row, cells, newest) if cells else None


def _union(files: Sequence[StoreFile], order: RowOrder) -> list[bytes]:
    """Return the rows of several files, each once, in order."""
    if len(files) == 1:
        return files[0].keys
    rows: set[bytes] = set()
    for file in files:
        rows.update(file.keys)
    return sorted(rows, key=order)
