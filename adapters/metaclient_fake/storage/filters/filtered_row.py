"""Decides which rows and cells of a scan pass a filter (in RegionScannerImpl, StoreScanner, UserScanQueryMatcher).

HBase's scanners show a filter more than a reader would see without one:


1. A row is shown (``drops_row_key``) when a family that the filter needs has *stored* something of it, even if all of
   that is deleted, expired, or of other columns or times than those that are read.
2. The cells of a row whose key was dropped are shown to the filter, too, before the next row (nextRow); not in a
   reversed scan, which seeks.
3. A filter whose ``all_remaining`` becomes True in the middle of a row closes the family's scanner for the rest of the
   scan (DONE_SCAN), even if the filter would pass cells of the next row (ColumnCountGetFilter).
4. A reversed scan follows no hints.
5. A column without a qualifier is never skipped: markers of the whole family may be between its versions, so that the
   scanner continues with its next cell (ScanQueryMatcher.getKeyForNextColumn, HBASE-18471).

DIVERGENCE: point 5 is HBase's behaviour for cells in the memstore. In a store file, HBase may skip to the next column
or not, depending on the file's index.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from metaclient.model import Cell
from metaclient_fake.storage.filters.filter import INCLUDES, Code, Filter, Hint, place_of

__all__ = ["FamilyCells", "RowFiltering", "filtered_row"]


class FamilyCells(NamedTuple):
    """One family of a row: the cells that are visible without a filter, and whether any cell is stored."""

    family: bytes
    cells: Sequence[Cell]
    is_stored: bool = True


def filtered_row(condition: Filter, row: bytes, families: Sequence[Sequence[Cell]], max_versions: int) -> list[Cell]:
    """Return the cells of one row that pass, family by family; empty when the row is dropped."""
    known = [FamilyCells(cells[0].family, cells) for cells in families if cells]
    return RowFiltering(condition, max_versions).row(row, known)


class RowFiltering:
    """The state of a filter in one scan. ``max_versions`` limits the versions of a column that passed."""

    def __init__(self, condition: Filter, max_versions: int, *, is_reversed: bool = False) -> None:
        self._condition = condition
        self._max_versions = max_versions
        self._is_reversed = is_reversed
        #: The families whose scanners are closed; replaced, never changed.
        self.closed: frozenset[bytes] = frozenset()
        #: Family -> the code with which its last cell of the current row passed: where its scanner has moved.
        self.codes: dict[bytes, Code] = {}

    def row(self, row: bytes, families: Sequence[FamilyCells]) -> list[Cell]:
        """Return the cells of the next row that pass; empty when the row is dropped."""
        condition = self._condition
        self.codes.clear()
        stored = [one for one in families if one.is_stored and one.family not in self.closed]
        needed = [one for one in stored if condition.needs_family(one.family)]
        if not needed:
            return []
        condition.reset()
        cells: list[Cell] = []
        if condition.drops_row_key(row):
            if not self._is_reversed and not condition.all_remaining():
                self._show(row, needed, cells)
            return []
        self._show(row, needed, cells)
        if not cells:
            return []
        if condition.has_row_step:
            cells = condition.row_cells(cells)
        # ``drops_row`` is not called for a row that lost all cells in that step; it may get cells of other families.
        if cells and condition.drops_row():
            return []
        on_demand = [one for one in stored if one not in needed]
        if on_demand:
            self._show(row, on_demand, cells)
            order = {one.family: number for number, one in enumerate(families)}
            cells.sort(key=lambda cell: order[cell.family])  # stable: within a family they are sorted
        return cells

    def _show(self, row: bytes, families: Sequence[FamilyCells], passed: list[Cell]) -> None:
        for one in families:
            self._show_family(row, one.cells, passed)
            if self._condition.all_remaining():
                self.closed |= {one.family}

    def _show_family(self, row: bytes, cells: Sequence[Cell], passed: list[Cell]) -> None:
        condition = self._condition
        skipped: bytes | None = None  # a column that is done
        hint: Hint | None = None
        column: bytes | None = None
        count = 0
        for cell in cells:
            if condition.all_remaining():
                return
            if cell.column == skipped or (hint is not None and place_of(cell) < hint):
                continue
            hint = None
            if cell.column != column:
                column, count = cell.column, 0
            code = condition.cell(row, cell)
            if code in INCLUDES:
                count += 1
                if count <= self._max_versions:
                    passed.append(condition.transformed(cell))
                    self.codes[cell.family] = code
            if code is Code.SEEK_TO_HINT:
                hint = None if self._is_reversed else condition.hint(cell)
            elif code in (Code.NEXT_ROW, Code.INCLUDE_AND_NEXT_ROW):
                return
            elif code in (Code.NEXT_COLUMN, Code.INCLUDE_AND_NEXT_COLUMN) or count > self._max_versions:
                skipped = cell.column if cell.qualifier else None
