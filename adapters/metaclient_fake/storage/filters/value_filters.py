"""Decides by values: of each cell, or of one column for the whole row."""

from __future__ import annotations

from metaclient.model import Cell
from metaclient_fake.storage.filters.comparators import Comparison
from metaclient_fake.storage.filters.filter import Code, Filter

__all__ = [
    "ColumnValueFilter",
    "DependentColumnFilter",
    "SingleColumnValueExcludeFilter",
    "SingleColumnValueFilter",
    "ValueFilter",
]


def _column(family: bytes, qualifier: bytes) -> bytes | None:
    """Return the column's name; None if ``family`` has a colon: ``a:b`` with ``c`` is not column ``b:c`` of ``a``."""
    return None if b":" in family else family + b":" + qualifier


class ValueFilter(Filter):
    """Cells whose value meets the comparison."""

    def __init__(self, comparison: Comparison) -> None:
        self._comparison = comparison

    def cell(self, row: bytes, cell: Cell) -> Code:
        return Code.INCLUDE if self._comparison.holds(cell.value) else Code.SKIP


class ColumnValueFilter(Filter):
    """The cells of one column whose value meets the comparison, and no others."""

    def __init__(self, family: bytes, qualifier: bytes, comparison: Comparison) -> None:
        self._family = family
        self._column = _column(family, qualifier)
        self._comparison = comparison
        self._is_found = False

    def needs_family(self, family: bytes) -> bool:
        return self._family == family

    def reset(self) -> None:
        self._is_found = False

    def cell(self, row: bytes, cell: Cell) -> Code:
        if cell.column != self._column:
            return Code.NEXT_ROW if self._is_found else Code.NEXT_COLUMN
        self._is_found = True
        return Code.INCLUDE if self._comparison.holds(cell.value) else Code.SKIP


class SingleColumnValueFilter(Filter):
    """Whole rows in which one column's value meets the comparison.

    Rows without the column pass, unless ``drops_missing``. A column that is not read counts as missing.
    """

    has_row_step = True

    def __init__(
        self, family: bytes, qualifier: bytes, comparison: Comparison, *, drops_missing: bool, latest_only: bool
    ) -> None:
        self._family = family
        self._column = _column(family, qualifier)
        self._comparison = comparison
        self._drops_missing = drops_missing
        self._latest_only = latest_only
        self._is_found = False
        self._is_matched = False

    def needs_family(self, family: bytes) -> bool:
        return not self._drops_missing or self._family == family

    def reset(self) -> None:
        self._is_found = self._is_matched = False

    def cell(self, row: bytes, cell: Cell) -> Code:
        if self._is_matched:
            return Code.INCLUDE
        if self._latest_only and self._is_found:
            return Code.NEXT_ROW
        if cell.column != self._column:
            return Code.INCLUDE
        self._is_found = True
        self._is_matched = self._comparison.holds(cell.value)
        return Code.INCLUDE if self._is_matched or not self._latest_only else Code.NEXT_ROW

    def drops_row(self) -> bool:
        return not self._is_matched if self._is_found else self._drops_missing


class SingleColumnValueExcludeFilter(SingleColumnValueFilter):
    """The same, without the tested column in the result."""

    def row_cells(self, cells: list[Cell]) -> list[Cell]:
        return [cell for cell in cells if cell.column != self._column]


class DependentColumnFilter(Filter):
    """Cells with the timestamp of a cell in one column, whose value meets the comparison if there is one."""

    has_row_step = True

    def __init__(self, family: bytes, qualifier: bytes, comparison: Comparison | None, *, drops_column: bool) -> None:
        self._column = _column(family, qualifier)
        self._comparison = comparison
        self._drops_column = drops_column
        self._timestamps: set[int] = set()

    def reset(self) -> None:
        self._timestamps.clear()

    def cell(self, row: bytes, cell: Cell) -> Code:
        if cell.column != self._column:
            return Code.INCLUDE
        if self._comparison is not None and not self._comparison.holds(cell.value):
            return Code.SKIP
        self._timestamps.add(cell.timestamp)
        return Code.SKIP if self._drops_column else Code.INCLUDE

    def row_cells(self, cells: list[Cell]) -> list[Cell]:
        return [cell for cell in cells if cell.timestamp in self._timestamps]
