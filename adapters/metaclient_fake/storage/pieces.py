"""Decides how a row is cut into pieces of ``Scan.batch`` cells, and which pieces are marked as partial.

A full piece is marked as partial when the row has any stored cell after the place to which the store's scanner has
moved (RegionScannerImpl.populateResult of HBase 2.6.1 checks the heap, not the visible cells). That cell may be an
older version, a deleted cell or a column that is not read: then no further piece follows. A filter may have moved the
scanner to the next column or row, after the last cell that passed (INCLUDE_AND_NEXT_COL of ColumnCountGetFilter).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from metaclient.model import Cell, Result
from metaclient_fake.storage.cells import Columns
from metaclient_fake.storage.filters import Code
from metaclient_fake.storage.query_matcher import StoreQuery

__all__ = ["pieces_of"]


def pieces_of(
    row: bytes,
    cells: Sequence[Cell],
    batch: int,
    stores: Sequence[tuple[StoreQuery, Columns]],
    *,
    codes: Mapping[bytes, Code],
    is_stale: bool,
) -> list[Result]:
    """Return the pieces of a row; ``stores`` has the query of each family, and the family's stored cells of the row.

    ``codes`` has the code of a filter for the last cell that it passed in each family.
    """
    pieces = [tuple(cells[at : at + batch]) for at in range(0, len(cells), batch)]
    made = [Result(row, piece, is_stale, True) for piece in pieces[:-1]]
    is_partial = len(pieces[-1]) == batch and _is_followed(cells, stores, codes)
    return [*made, Result(row, pieces[-1], is_stale, is_partial)]


def _is_followed(
    cells: Sequence[Cell], stores: Sequence[tuple[StoreQuery, Columns]], codes: Mapping[bytes, Code]
) -> bool:
    """Return True if a cell is stored after the last cell that is read."""
    last = cells[-1]
    code = codes.get(last.family, Code.INCLUDE)
    for query, stored in reversed(stores):
        if any(column.partition(b":")[0] == last.family for column in stored):
            return code is not Code.INCLUDE_AND_NEXT_ROW and _is_followed_in_store(last, cells, query, stored, code)
        if stored:
            return True
    raise AssertionError(f"the family of {last.column!r} is not among those that are read")


def _is_followed_in_store(last: Cell, cells: Sequence[Cell], query: StoreQuery, stored: Columns, code: Code) -> bool:
    """Return True if the store has a cell after ``last``, which a filter passed with this code.

    After the last version of an explicitly requested column, the scanner moves to the next column
    (ExplicitColumnTracker). A column without a qualifier is never skipped: see ``filtered_row``.
    """
    if query.columns is not None:
        versions = sum(1 for cell in cells if cell.column == last.column)
        if versions >= query.max_versions:
            if last.column == max(query.columns):
                return False
            if last.qualifier:
                return any(column > last.column for column in stored)
    if code is Code.INCLUDE_AND_NEXT_COLUMN and last.qualifier:
        return any(column > last.column for column in stored)
    place = (-last.timestamp, -int(last.type))
    for column, versions_stored in stored.items():
        if column > last.column:
            return True
        if column == last.column:
            after = [one for one in versions_stored if (-one[0], -one[1]) > place]
            same = [one for one in versions_stored if (-one[0], -one[1]) == place]
            if after or len(same) > 1:
                return True
    return False
