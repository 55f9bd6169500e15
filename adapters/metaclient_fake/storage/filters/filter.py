"""Defines the interface of a filter (Filter): the steps of a scan that it takes part in, and the codes it returns.

For each row, in order (RegionScannerImpl.nextInternal; ``filtered_row`` has the details):

1. ``all_remaining``: if True, the scan ends;
2. ``reset``, then ``drops_row_key``: if True, the row is dropped without being read;
3. ``cell`` for each cell of each family returns a code: include, skip, or skip ahead; ``transformed`` changes the
   included cells;
4. ``row_cells`` and ``drops_row`` decide on the whole row, if ``has_row_step``.

Families that a filter does not need (``needs_family``) are read on demand, after these steps and only for rows that
passed: a row with cells in no other family is not returned (hbase.hregion.scan.loadColumnFamiliesOnDemand, on by
default).
"""

from __future__ import annotations

import enum
from typing import TypeAlias

from metaclient.model import LATEST_TIMESTAMP, Cell

__all__ = ["INCLUDES", "Code", "Filter", "Hint", "first_of", "place_of"]


class Code(enum.Enum):
    """What to do with a cell and which cell is next (Filter.ReturnCode). ROW means the row within this family."""

    INCLUDE = "INCLUDE"
    INCLUDE_AND_NEXT_COLUMN = "INCLUDE_AND_NEXT_COL"
    INCLUDE_AND_NEXT_ROW = "INCLUDE_AND_SEEK_NEXT_ROW"
    SKIP = "SKIP"
    NEXT_COLUMN = "NEXT_COL"
    NEXT_ROW = "NEXT_ROW"
    SEEK_TO_HINT = "SEEK_NEXT_USING_HINT"


INCLUDES = frozenset({Code.INCLUDE, Code.INCLUDE_AND_NEXT_COLUMN, Code.INCLUDE_AND_NEXT_ROW})

#: A place inside a row, ordered as cells are: (column, minus timestamp).
Hint: TypeAlias = tuple[bytes, int]


def place_of(cell: Cell) -> Hint:
    return (cell.column, -cell.timestamp)


def first_of(family: bytes, qualifier: bytes) -> Hint:
    """Return the place at which a column begins."""
    return (family + b":" + qualifier, -LATEST_TIMESTAMP)


class Filter:
    """The base class; passes all rows and cells (FilterBase)."""

    #: Whether step 4 matters; such a filter needs whole rows and cannot be combined with ``Scan.batch``.
    has_row_step: bool = False
    #: Whether it may answer SEEK_TO_HINT of its own (HintingFilter); AND asks such filters also about cells that the
    #: filters before it refuse.
    gives_hints: bool = False
    is_reversed: bool = False

    def set_reversed(self, is_reversed: bool) -> None:
        self.is_reversed = is_reversed

    def needs_family(self, family: bytes) -> bool:
        """Return True if the filter needs this family's cells to decide (isFamilyEssential)."""
        return True

    def reset(self) -> None:
        """Clear the state of the last row; called when a new row begins."""

    def all_remaining(self) -> bool:
        """Return True if the scan can end here."""
        return False

    def drops_row_key(self, row: bytes) -> bool:
        """Return True if this row is dropped because of its key."""
        return False

    def cell(self, row: bytes, cell: Cell) -> Code:
        return Code.INCLUDE

    def hint(self, cell: Cell) -> Hint | None:
        """Return the place at which to continue after SEEK_TO_HINT."""
        return None

    def transformed(self, cell: Cell) -> Cell:
        return cell

    def row_cells(self, cells: list[Cell]) -> list[Cell]:
        return cells

    def drops_row(self) -> bool:
        """Return True if this row is dropped after all of its cells were seen."""
        return False
