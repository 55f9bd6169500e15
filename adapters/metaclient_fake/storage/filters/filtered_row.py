"""Decides what a filter leaves of one row (the filter's part of RegionScannerImpl and UserScanQueryMatcher)."""

from __future__ import annotations

from collections.abc import Sequence

from metaclient.model import Cell
from metaclient_fake.storage.filters.filter import INCLUDES, Code, Filter, Hint, place_of

__all__ = ["filtered_row"]


def filtered_row(condition: Filter, row: bytes, families: Sequence[Sequence[Cell]], max_versions: int) -> list[Cell]:
    """The cells that pass, family by family; empty when the row goes. ``max_versions`` counts what has passed."""
    needed: list[Sequence[Cell]] = []
    on_demand: list[Sequence[Cell]] = []
    for family in families:
        if family:
            (needed if condition.needs_family(family[0].family) else on_demand).append(family)
    if not needed:
        return []
    condition.reset()
    if condition.drops_row_key(row):
        return []
    cells: list[Cell] = []
    for family in needed:
        _filter_family(condition, row, family, max_versions, cells)
    if condition.has_row_step:
        cells = condition.row_cells(cells)
    if not cells or condition.drops_row():
        return []
    for family in on_demand:
        _filter_family(condition, row, family, max_versions, cells)
    if on_demand:
        order = {family[0].family: number for number, family in enumerate(families) if family}
        cells.sort(key=lambda cell: order[cell.family])  # stable: within a family they are sorted
    return cells


def _filter_family(condition: Filter, row: bytes, cells: Sequence[Cell], max_versions: int, passed: list[Cell]) -> None:
    skipped: bytes | None = None  # a column that is done
    hint: Hint | None = None
    column: bytes | None = None
    count = 0
    for cell in cells:
        if cell.column == skipped or (hint is not None and place_of(cell) < hint):
            continue
        hint = None
        if cell.column != column:
            column, count = cell.column, 0
        code = condition.cell(row, cell)
        if code in INCLUDES:
            passed.append(condition.transformed(cell))
            count += 1
        if code is Code.SEEK_TO_HINT:
            hint = condition.hint(cell)
        elif code in (Code.NEXT_ROW, Code.INCLUDE_AND_NEXT_ROW):
            return
        elif code in (Code.NEXT_COLUMN, Code.INCLUDE_AND_NEXT_COLUMN) or count >= max_versions:
            skipped = cell.column
