"""Combines filters: AND, OR, SKIP (drops the whole row) and WHILE (ends the scan).

AND asks its parts in order until one excludes the cell. The parts after it do not see that cell (HBASE-20565), except
parts that may give a hint. AND takes the longest step that a part returned, or goes to the farthest hint
(FilterListWithAND). OR takes the shortest step: a part that returned a longer one is not shown the cells in between
(FilterListWithOR).
"""

from __future__ import annotations

from collections.abc import Sequence

from metaclient.model import Cell
from metaclient_fake.storage.filters.filter import INCLUDES, Code, Filter, Hint, place_of

__all__ = ["AndFilter", "OrFilter", "SkipFilter", "WhileMatchFilter"]

#: How far a code goes: the next cell, column, row (of the family), or a place that the filter names.
_STEPS = {
    Code.INCLUDE: 0,
    Code.SKIP: 0,
    Code.INCLUDE_AND_NEXT_COLUMN: 1,
    Code.NEXT_COLUMN: 1,
    Code.INCLUDE_AND_NEXT_ROW: 2,
    Code.NEXT_ROW: 2,
}
_INCLUDE = (Code.INCLUDE, Code.INCLUDE_AND_NEXT_COLUMN, Code.INCLUDE_AND_NEXT_ROW)
_EXCLUDE = (Code.SKIP, Code.NEXT_COLUMN, Code.NEXT_ROW)


class _FilterList(Filter):
    """The base class of AND and OR."""

    def __init__(self, filters: Sequence[Filter]) -> None:
        self._filters = tuple(filters)
        self.has_row_step = any(part.has_row_step for part in filters)

    def set_reversed(self, is_reversed: bool) -> None:
        super().set_reversed(is_reversed)
        for part in self._filters:
            part.set_reversed(is_reversed)

    def needs_family(self, family: bytes) -> bool:
        return any(part.needs_family(family) for part in self._filters)

    def reset(self) -> None:
        for part in self._filters:
            part.reset()

    def row_cells(self, cells: list[Cell]) -> list[Cell]:
        for part in self._filters:
            cells = part.row_cells(cells)
        return cells


class AndFilter(_FilterList):
    """Passes the cells that all parts pass."""

    def __init__(self, filters: Sequence[Filter]) -> None:
        super().__init__(filters)
        self._hinting: list[Filter] = []

    def reset(self) -> None:
        super().reset()
        self._hinting = []

    def all_remaining(self) -> bool:
        return any(part.all_remaining() for part in self._filters)

    def drops_row_key(self, row: bytes) -> bool:
        """Ask all parts, because each tracks the rows. The row is kept if a part that gives hints does not drop it."""
        is_dropped = is_kept = False
        for part in self._filters:
            if part.all_remaining():
                return True
            if part.drops_row_key(row):
                is_dropped = True
            elif part.gives_hints:
                is_kept = True
        return is_dropped and not is_kept

    def cell(self, row: bytes, cell: Cell) -> Code:
        self._hinting = []
        asked, code = self._code(row, cell)
        for part in self._filters[asked:]:
            if part.gives_hints and part.cell(row, cell) is Code.SEEK_TO_HINT:
                self._hinting.append(part)
        return Code.SEEK_TO_HINT if self._hinting else code

    def _code(self, row: bytes, cell: Cell) -> tuple[int, Code]:
        """Return how many parts were asked until one excluded the cell, and the longest step that they returned."""
        step = 0
        for asked, part in enumerate(self._filters, 1):
            if part.all_remaining():
                return asked, Code.NEXT_ROW
            code = part.cell(row, cell)
            if code is Code.SEEK_TO_HINT:
                self._hinting.append(part)
                return asked, code
            step = max(step, _STEPS[code])
            if code not in INCLUDES:
                return asked, _EXCLUDE[step]
        return len(self._filters), _INCLUDE[step]

    def hint(self, cell: Cell) -> Hint | None:
        hints = [part.hint(cell) for part in self._hinting if not part.all_remaining()]
        farthest = min if self.is_reversed else max
        return farthest((hint for hint in hints if hint is not None), default=None)

    def transformed(self, cell: Cell) -> Cell:
        for part in self._filters:
            cell = part.transformed(cell)
        return cell

    def drops_row(self) -> bool:
        return any(part.drops_row() for part in self._filters)


class OrFilter(_FilterList):
    """Passes the cells that any part passes."""

    def __init__(self, filters: Sequence[Filter]) -> None:
        super().__init__(filters)
        self._previous: list[tuple[Cell, Code] | None] = [None] * len(filters)
        self._including: list[Filter] = []

    def reset(self) -> None:
        super().reset()
        self._previous = [None] * len(self._filters)

    def all_remaining(self) -> bool:
        return all(part.all_remaining() for part in self._filters)

    def drops_row_key(self, row: bytes) -> bool:
        answers = [part.all_remaining() or part.drops_row_key(row) for part in self._filters]
        return all(answers)

    def cell(self, row: bytes, cell: Cell) -> Code:
        codes: list[Code] = []
        self._including = []
        for index, part in enumerate(self._filters):
            if part.all_remaining():
                continue
            code = self._still(index, cell) or part.cell(row, cell)
            self._previous[index] = (cell, code)
            codes.append(code)
            if code in INCLUDES:
                self._including.append(part)
        return _shortest(codes)

    def _still(self, index: int, cell: Cell) -> Code | None:
        """Return the previous code of a part whose step goes beyond this cell; None if the part must be asked."""
        previous = self._previous[index]
        if previous is None:
            return None
        before, code = previous
        if code is Code.SEEK_TO_HINT:
            hint = self._filters[index].hint(before)
            return code if hint is not None and self._is_before(cell, hint) else None
        step = _STEPS[code]
        if step == 1 and before.column == cell.column:
            return Code.NEXT_COLUMN
        if step == 2 and before.family == cell.family:
            return Code.NEXT_ROW
        return None

    def _is_before(self, cell: Cell, hint: Hint) -> bool:
        """As FilterListBase.compareCell, which in a reversed scan reverses the order of a row's cells, too."""
        return place_of(cell) > hint if self.is_reversed else place_of(cell) < hint

    def hint(self, cell: Cell) -> Hint | None:
        hints = [part.hint(cell) for part in self._filters if not part.all_remaining()]
        known = [hint for hint in hints if hint is not None]
        nearest = max if self.is_reversed else min
        return nearest(known) if known and len(known) == len(hints) else None

    def transformed(self, cell: Cell) -> Cell:
        for part in self._including:
            cell = part.transformed(cell)
        return cell

    def drops_row(self) -> bool:
        return all(part.drops_row() for part in self._filters)


def _shortest(codes: Sequence[Code]) -> Code:
    if not codes:
        return Code.SKIP
    if all(code is Code.SEEK_TO_HINT for code in codes):
        return Code.SEEK_TO_HINT
    step = min([_STEPS.get(code, 0) for code in codes])  # a hint among other codes: how far is unknown, so one cell
    return _EXCLUDE[step] if INCLUDES.isdisjoint(codes) else _INCLUDE[step]


class SkipFilter(Filter):
    """Drops the whole row when one of its cells does not pass.

    As in HBase, ``set_reversed`` is not forwarded to the inner filter, and its hints are ignored.
    """

    has_row_step = True

    def __init__(self, inner: Filter) -> None:
        self._inner = inner
        self._is_dropped = False

    def needs_family(self, family: bytes) -> bool:
        return self._inner.needs_family(family)

    def reset(self) -> None:
        self._inner.reset()
        self._is_dropped = False

    def cell(self, row: bytes, cell: Cell) -> Code:
        code = self._inner.cell(row, cell)
        self._is_dropped = self._is_dropped or code is not Code.INCLUDE
        return code

    def transformed(self, cell: Cell) -> Cell:
        return self._inner.transformed(cell)

    def drops_row(self) -> bool:
        return self._is_dropped


class WhileMatchFilter(Filter):
    """Ends the scan at the first row or cell that does not pass. Reversal and hints as for :class:`SkipFilter`."""

    def __init__(self, inner: Filter) -> None:
        self._inner = inner
        self._is_over = False
        self.has_row_step = True

    def needs_family(self, family: bytes) -> bool:
        return self._inner.needs_family(family)

    def reset(self) -> None:
        self._inner.reset()

    def all_remaining(self) -> bool:
        return self._is_over or self._inner.all_remaining()

    def drops_row_key(self, row: bytes) -> bool:
        if self.all_remaining():
            return True
        is_dropped = self._inner.drops_row_key(row)
        self._is_over = self._is_over or is_dropped
        return is_dropped

    def cell(self, row: bytes, cell: Cell) -> Code:
        code = self._inner.cell(row, cell)
        self._is_over = self._is_over or code is not Code.INCLUDE
        return code

    def transformed(self, cell: Cell) -> Cell:
        return self._inner.transformed(cell)

    def drops_row(self) -> bool:
        is_dropped = self._inner.drops_row()
        self._is_over = self._is_over or is_dropped
        return is_dropped
