"""Stores one row's cells of one family: those of one write (RowCells), or those of several writes (VersionedRow).

The order is HBase's ``CellComparatorImpl`` inside a row: column, then newest timestamp, then the delete markers before
the puts, then the newest sequence id. Rows are shared between WAL, memstore and store files: a flush copies nothing.
Rows of few small cells are packed (:mod:`packed_row`); of other rows, readers get the stored cell objects themselves.

A row is *plain* when each of its columns has one put and there is no delete marker: a read returns its cells as they
are. Whether a row is plain is decided once, when it is written, which makes reads fast.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Sequence
from typing import TypeAlias

from metaclient.model import Cell, CellType
from metaclient_fake.storage.packed_row import PackedRow, is_packable, packed

__all__ = [
    "CELL_OVERHEAD_BYTES",
    "Columns",
    "PlainRow",
    "RowCells",
    "RowVersions",
    "Version",
    "VersionedRow",
    "cells_size",
    "newest_cells",
    "row_of",
]

#: Bytes that a KeyValue adds to row, column and value: their length fields, the timestamp and the type.
CELL_OVERHEAD_BYTES = 20

#: (timestamp, type, sequence id, cell): sorted backwards it is HBase's order inside a column.
Version: TypeAlias = tuple[int, int, int, Cell]
Columns: TypeAlias = dict[bytes, list[Version]]

PUT = CellType.PUT
#: Up to this many packed versions, unpacking for each read is faster than also keeping the unpacked cells.
FRESH_FEW = 2


class RowCells:
    """Cells of one row in HBase's order that never change again; ``sequence_id`` is the newest of them."""

    __slots__ = ("cells", "is_plain", "sequence_id", "size")

    def __init__(self, cells: tuple[Cell, ...], sequence_id: int, size: int, is_plain: bool) -> None:
        self.cells = cells
        self.sequence_id = sequence_id
        self.size = size
        self.is_plain = is_plain

    def collect(self, into: Columns, read_point: int) -> None:
        """Add the cells if a reader at ``read_point`` sees them: all or none, as one write or one file has them."""
        number = self.sequence_id
        if number > read_point:
            return
        for cell in self.cells:
            version = (cell[1], int(cell[3]), number, cell)
            versions = into.get(cell[0])
            if versions is None:
                into[cell[0]] = [version]
            else:
                versions.append(version)

    def __repr__(self) -> str:
        return f"RowCells({len(self.cells)} cells, sequence_id={self.sequence_id}, is_plain={self.is_plain})"


class VersionedRow:
    """A row of the memstore that was written more than once, or has delete markers. Guarded by the region's lock.

    After :meth:`settle`, as part of a snapshot, it is read without the lock.
    """

    __slots__ = ("_fresh", "_newest", "columns", "has_markers", "sequence_id", "size")

    #: As :attr:`RowCells.is_plain`; never True for this class.
    is_plain = False

    def __init__(self) -> None:
        self.columns: Columns = {}  # each list oldest first: the usual write is an append
        self.has_markers = False
        self.sequence_id = 0
        self.size = 0
        self._newest: RowCells | None = None
        self._fresh: list[PackedRow] = []  # not in ``columns`` yet

    def add(self, cells: Iterable[Cell], sequence_id: int, size: int) -> None:
        """Apply one write. A cell of the same column, timestamp, type and sequence id replaces (``CellSet.add``)."""
        self.settle()
        self._newest = None
        self._merge(cells, sequence_id)
        self.sequence_id = max(self.sequence_id, sequence_id)
        self.size += size

    def _merge(self, cells: Iterable[Cell], sequence_id: int) -> None:
        columns = self.columns
        for cell in cells:
            column, timestamp, _, kind = cell
            versions = columns.get(column)
            if versions is None:
                columns[column] = [(timestamp, int(kind), sequence_id, cell)]
            elif versions[-1][0] < timestamp:
                versions.append((timestamp, int(kind), sequence_id, cell))
            else:
                _place(versions, (timestamp, int(kind), sequence_id, cell))
            if kind != PUT:
                self.has_markers = True

    def put(self, row: PackedRow, sequence_id: int, size: int) -> None:
        """Keep a packed put; the next read unpacks it."""
        self._fresh.append(row)
        self._newest = None
        self.sequence_id = sequence_id
        self.size += size

    def settle(self) -> None:
        """Unpack the rows that were put since the last read.

        The list of packed rows is cleared last: after an interrupted read, the next read merges the rows again, and
        merging a row twice changes nothing.
        """
        if self._fresh:
            for row in self._fresh:
                self._merge(row.cells, row.sequence_id)
            self._fresh = []

    def collect(self, into: Columns, read_point: int) -> None:
        """Add the versions that a reader at ``read_point`` sees."""
        self.settle()
        sees_all = self.sequence_id <= read_point
        for column, versions in self.columns.items():
            seen = versions if sees_all else [version for version in versions if version[2] <= read_point]
            if seen:
                into[column] = into[column] + seen if column in into else list(seen)

    def newest(self) -> RowCells:
        """Return the newest put of each column, as a plain row; only for a row without markers."""
        if self._newest is None:
            columns = self.columns
            if columns:
                self.settle()
                cells = tuple([columns[column][-1][3] for column in sorted(columns)])
            else:
                cells = newest_cells(self._fresh)
                if len(self._fresh) <= FRESH_FEW:
                    return RowCells(cells, self.sequence_id, self.size, True)
            self._newest = RowCells(cells, self.sequence_id, self.size, True)
        return self._newest

    def cached_newest(self) -> RowCells | None:
        """Return the last result of :meth:`newest` if nothing was written since, else None; needs no lock."""
        return self._newest

    def forget_older(self, column: bytes, row_length: int, smallest_read_point: int) -> int:
        """Drop puts that no open reader can need, after an increment (``Segment.upsert``); return the freed bytes."""
        self.settle()
        versions = self.columns[column]
        kept: list[Version] = []
        visible = freed = 0
        for version in reversed(versions):
            if version[1] == PUT and version[2] <= smallest_read_point:
                visible += 1
                if visible > 1:
                    freed += _size(row_length, version[3])
                    continue
            kept.append(version)
        if freed:
            kept.reverse()
            self.columns[column] = kept
            self.size -= freed
        return freed

    def __repr__(self) -> str:
        return f"VersionedRow({len(self.columns)} columns, sequence_id={self.sequence_id})"


#: A row that does not change any more: a row of a file, or a row that was written once.
PlainRow: TypeAlias = RowCells | PackedRow
RowVersions: TypeAlias = PlainRow | VersionedRow


def newest_cells(rows: Iterable[PlainRow]) -> tuple[Cell, ...]:
    """Return the newest cell per column of plain rows in sequence order; the later row wins a tie."""
    newest: dict[bytes, Cell] = {}
    for row in rows:
        for cell in row.cells:
            found = newest.get(cell[0])
            if found is None or cell[1] >= found[1]:
                newest[cell[0]] = cell
    return tuple(newest.values()) if len(newest) == 1 else tuple([newest[column] for column in sorted(newest)])


def row_of(row: bytes, cells: tuple[Cell, ...], sequence_id: int) -> PlainRow:
    """Return a row of a file, or of a replica, from cells in order."""
    size, is_plain = cells_size(len(row), cells), _is_plain(cells)
    if is_plain and is_packable(cells, size):
        return packed(row, cells, sequence_id)
    return RowCells(cells, sequence_id, size, is_plain)


def cells_size(row_length: int, cells: Sequence[Cell]) -> int:
    """Return the bytes of these cells as KeyValues (``MemStoreSize.dataSize``)."""
    total = (CELL_OVERHEAD_BYTES + row_length) * len(cells)
    for cell in cells:
        total += len(cell[0]) + len(cell[2])
    return total


def _size(row_length: int, cell: Cell) -> int:
    return CELL_OVERHEAD_BYTES + row_length + len(cell[0]) + len(cell[2])


def _is_plain(cells: Sequence[Cell]) -> bool:
    previous = b""
    for cell in cells:
        if cell[3] != PUT or cell[0] == previous:
            return False
        previous = cell[0]
    return True


def _place(versions: list[Version], version: Version) -> None:
    """Insert ``version`` in order; a version with the same key is replaced."""
    key = version[:3]
    index = bisect_left(versions, key)  # a prefix sorts before the tuple that it begins
    if index < len(versions) and versions[index][:3] == key:
        versions[index] = version
    else:
        versions.insert(index, version)
