"""Stores the newest writes of one family in memory: an active segment, and a snapshot while a flush runs."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Callable
from typing import Any, TypeAlias

from metaclient.model import Cell
from metaclient_fake.storage.cells import RowCells, RowVersions, VersionedRow
from metaclient_fake.storage.packed_row import PackedRow

__all__ = ["MemStore", "RowOrder", "Segment"]

#: The sort key of rows: None = their bytes; hbase:meta has its own order (MetaCellComparator).
RowOrder: TypeAlias = Callable[[bytes], Any] | None

#: Above this many new rows, one sort is cheaper than that many insertions
#: (``benchmarks/metaclient_bench/storage_floor.py``).
INSERTIONS_MAX = 64


class Segment:
    """Rows by key; the keys are sorted by the first scan. Writes are guarded by the region's lock.

    A reader may keep ``rows`` and a list from :meth:`sorted_rows`: rows that are added later have sequence ids above
    the reader's read point, and a returned list is never changed.
    """

    __slots__ = ("_new_rows", "_order", "_sorted", "oldest_sequence_id", "rows", "size")

    def __init__(self, order: RowOrder = None) -> None:
        self.rows: dict[bytes, RowVersions] = {}
        self.size = 0
        self.oldest_sequence_id: int | None = None
        self._order = order
        self._sorted: list[bytes] = []
        self._new_rows: list[bytes] = []

    def add(self, row: bytes, cells: tuple[Cell, ...], sequence_id: int, size: int, is_plain: bool) -> None:
        """Apply the cells of one write to one row; ``is_plain``: the cells are puts of different columns, in order."""
        rows = self.rows
        found = rows.get(row)
        self.size += size
        if found is None:
            if not rows:
                self.oldest_sequence_id = sequence_id
            self._new_rows.append(row)
            if is_plain:
                rows[row] = RowCells(cells, sequence_id, size, True)
                return
        self._versioned(row, found).add(cells, sequence_id, size)

    def add_packed(self, row: bytes, packed: PackedRow, sequence_id: int, size: int) -> None:
        """Apply the put of a packed row."""
        rows = self.rows
        found = rows.get(row)
        self.size += size
        if found is None:
            if not rows:
                self.oldest_sequence_id = sequence_id
            self._new_rows.append(row)
            rows[row] = packed
        else:
            self._versioned(row, found).put(packed, sequence_id, size)

    def _versioned(self, row: bytes, found: RowVersions | None) -> VersionedRow:
        """Return the stored row as a VersionedRow, which takes further writes."""
        if type(found) is VersionedRow:
            return found
        versioned = VersionedRow()
        if type(found) is PackedRow:
            versioned.put(found, found.sequence_id, found.size)
        elif found is not None:
            versioned.add(found.cells, found.sequence_id, found.size)  # type: ignore[union-attr]  # a plain row
        self.rows[row] = versioned
        return versioned

    def settle(self) -> None:
        """Prepare for reads without the lock: there are no writes from now on. The caller holds the lock."""
        for found in self.rows.values():
            if type(found) is VersionedRow:
                found.settle()

    def forget_older(self, row: bytes, column: bytes, smallest_read_point: int) -> None:
        """Drop the versions that an increment replaced for every reader: counters must not grow the memstore."""
        found = self.rows[row]
        if type(found) is VersionedRow:
            self.size -= found.forget_older(column, len(row), smallest_read_point)

    def sorted_rows(self) -> list[bytes]:
        """Return the keys in order; the caller holds the region's lock, and must not change the list."""
        new = self._new_rows
        if new:
            if len(new) > INSERTIONS_MAX or len(new) > len(self._sorted):
                ordered = sorted(self._sorted + new, key=self._order)
            else:
                ordered = self._sorted.copy()  # a reader may have the old list
                _insert(ordered, new, self._order)
            self._sorted, self._new_rows = ordered, []  # in one step: an interrupted read leaves both as they were
        return self._sorted

    def __repr__(self) -> str:
        return f"Segment({len(self.rows)} rows, {self.size} bytes)"


class MemStore:
    """The active segment and at most one snapshot (DefaultMemStore)."""

    __slots__ = ("_order", "active", "snapshot")

    def __init__(self, order: RowOrder = None) -> None:
        self._order = order
        self.active = Segment(order)
        self.snapshot: Segment | None = None

    @property
    def size(self) -> int:
        return self.active.size + (self.snapshot.size if self.snapshot is not None else 0)

    def take_snapshot(self) -> Segment:
        """Make the active segment the snapshot for a flush; a snapshot that was not flushed yet stays, as in HBase."""
        if self.snapshot is None:
            self.active.settle()
            self.snapshot = self.active
            self.active = Segment(self._order)
        return self.snapshot

    def drop_snapshot(self) -> int:
        """Drop the snapshot, whose cells are in a file now; return the freed bytes."""
        freed = self.snapshot.size if self.snapshot is not None else 0
        self.snapshot = None
        return freed

    def drop_active(self) -> int:
        """Drop the active segment (the files of a replica cover it); return the freed bytes."""
        freed = self.active.size
        self.active = Segment(self._order)
        return freed


def _insert(rows: list[bytes], new: list[bytes], order: RowOrder) -> None:
    for row in new:
        if order is None:
            rows.insert(bisect_left(rows, row), row)
        else:
            insort(rows, row, key=order)
