"""Decides nothing itself: the steps that every filter may take part in, and the codes that it answers with (Filter).

For each row, in order (RegionScannerImpl.nextInternal; ``filtered_row`` has the details):

1. ``all_remaining``: nothing more is wanted, the scan ends;
2. ``reset``, then ``drops_row_key``: the row goes, unread;
3. ``cell`` for each cell, in each family: take it, skip it, skip ahead (a code); ``transformed`` for those taken;
4. ``row_cells`` and ``drops_row``, with the whole row in hand, where ``has_row_step``.

Families that a filter does not need (``needs_family``) are read on demand, after all this and only for rows that
passed: a row that has nothing else is never seen (hbase.hregion.scan.loadColumnFamiliesOnDemand, on by default).
"""

from __future__ import annotations

import enum
from typing import TypeAlias

from metaclient.model import LATEST_TIMESTAMP, Cell

__all__ = ["INCLUDES", "Code", "Filter", "Hint", "first_of", "place_of"]


class Code(enum.Enum):
    """What to do with a cell and where to go on (Filter.ReturnCode). ROW means: in this family."""

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
    """Return where a column begins."""
    return (family + b":" + qualifier, -LATEST_TIMESTAMP)


class Filter:
    """Lets everything pass (FilterBase)."""

    #: Whether step 4 matters; such a filter needs whole rows and cannot be combined with ``Scan.batch``.
    has_row_step: bool = False
    #: Whether it may answer SEEK_TO_HINT of its own (HintingFilter); AND asks such filters also about cells that the
    #: filters before it refuse.
    gives_hints: bool = False
    is_reversed: bool = False

    def set_reversed(self, is_reversed: bool) -> None:
        self.is_reversed = is_reversed

    def needs_family(self, family: bytes) -> bool:
        """Return True if it must see this family's cells before it can decide (isFamilyEssential)."""
        return True

    def reset(self) -> None:
        """A new row begins."""

    def all_remaining(self) -> bool:
        """True: nothing from here on is wanted."""
        return False

    def drops_row_key(self, row: bytes) -> bool:
        """True: this row is not wanted."""
        return False

    def cell(self, row: bytes, cell: Cell) -> Code:
        return Code.INCLUDE

    def hint(self, cell: Cell) -> Hint | None:
        """Return where to go on after SEEK_TO_HINT."""
        return None

    def transformed(self, cell: Cell) -> Cell:
        return cell

    def row_cells(self, cells: list[Cell]) -> list[Cell]:
        return cells

    def drops_row(self) -> bool:
        """True: after all, this row is not wanted."""
        return False
