"""Decides by family, qualifier, timestamp or position of a cell in its row."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence

from metaclient.model import LATEST_TIMESTAMP, Cell
from metaclient_fake.storage.filters.comparators import Comparison
from metaclient_fake.storage.filters.filter import Code, Filter, Hint, first_of

__all__ = [
    "ColumnCountGetFilter",
    "ColumnPaginationFilter",
    "ColumnPrefixFilter",
    "ColumnRangeFilter",
    "FamilyFilter",
    "FirstKeyOnlyFilter",
    "KeyOnlyFilter",
    "MultipleColumnPrefixFilter",
    "QualifierFilter",
    "TimestampsFilter",
]


class KeyOnlyFilter(Filter):
    """Cells without values, or with the value's length as four bytes in its place."""

    def __init__(self, length_as_value: bool = False) -> None:
        self._length_as_value = length_as_value

    def transformed(self, cell: Cell) -> Cell:
        value = len(cell.value).to_bytes(4, "big") if self._length_as_value else b""
        return cell._replace(value=value)


class FirstKeyOnlyFilter(Filter):
    """The first cell of each row: enough to count rows."""

    def __init__(self) -> None:
        self._is_found = False

    def reset(self) -> None:
        self._is_found = False

    def cell(self, row: bytes, cell: Cell) -> Code:
        if self._is_found:
            return Code.NEXT_ROW
        self._is_found = True
        return Code.INCLUDE


class FamilyFilter(Filter):
    """Cells of families whose name meets the comparison."""

    def __init__(self, comparison: Comparison) -> None:
        self._comparison = comparison

    def cell(self, row: bytes, cell: Cell) -> Code:
        return Code.INCLUDE if self._comparison.holds(cell.family) else Code.NEXT_ROW


class QualifierFilter(Filter):
    """Cells whose qualifier meets the comparison."""

    def __init__(self, comparison: Comparison) -> None:
        self._comparison = comparison

    def cell(self, row: bytes, cell: Cell) -> Code:
        return Code.INCLUDE if self._comparison.holds(cell.qualifier) else Code.SKIP


class MultipleColumnPrefixFilter(Filter):
    """Cells whose qualifier begins with one of several prefixes.

    As in HBase, only the last prefix that sorts before the qualifier is compared: ``b"z"`` begins with ``b""``, but is
    excluded when ``b"p"`` is also a prefix. Without prefixes all cells pass.
    """

    gives_hints = True

    def __init__(self, prefixes: Sequence[bytes]) -> None:
        self._prefixes = sorted(prefixes)
        self._hint = self._prefixes[0] if self._prefixes else b""

    def cell(self, row: bytes, cell: Cell) -> Code:
        if not self._prefixes:
            return Code.INCLUDE
        qualifier = cell.qualifier
        before = bisect_right(self._prefixes, qualifier)
        if before and qualifier.startswith(self._prefixes[before - 1]):
            return Code.INCLUDE
        if before == len(self._prefixes):
            return Code.NEXT_ROW
        self._hint = self._prefixes[before]
        return Code.SEEK_TO_HINT

    def hint(self, cell: Cell) -> Hint | None:
        """Return the next prefix after the last cell; ``cell`` gives the family only (OR asks again when reversed)."""
        return first_of(cell.family, self._hint)


class ColumnPrefixFilter(MultipleColumnPrefixFilter):
    """Cells whose qualifier begins with a prefix."""

    def __init__(self, prefix: bytes) -> None:
        super().__init__((prefix,))


class ColumnRangeFilter(Filter):
    """Cells whose qualifier is between two bounds; None = no bound."""

    gives_hints = True

    def __init__(self, low: bytes | None, with_low: bool, high: bytes | None, with_high: bool) -> None:
        self._low, self._with_low = low, with_low
        self._high, self._with_high = high, with_high

    def cell(self, row: bytes, cell: Cell) -> Code:
        qualifier = cell.qualifier
        if self._low is not None:
            if qualifier < self._low:
                return Code.SEEK_TO_HINT
            if qualifier == self._low and not self._with_low:
                return Code.NEXT_COLUMN
        if self._high is None or qualifier < self._high or (qualifier == self._high and self._with_high):
            return Code.INCLUDE
        return Code.NEXT_ROW

    def hint(self, cell: Cell) -> Hint | None:
        return first_of(cell.family, self._low or b"")


class TimestampsFilter(Filter):
    """Cells with one of these timestamps."""

    gives_hints = True  # as HBase's class; the filter language cannot create one that gives hints

    def __init__(self, timestamps: Sequence[int]) -> None:
        self._timestamps = frozenset(timestamps)
        self._oldest = min(timestamps, default=LATEST_TIMESTAMP)

    def cell(self, row: bytes, cell: Cell) -> Code:
        if cell.timestamp in self._timestamps:
            return Code.INCLUDE
        return Code.NEXT_COLUMN if cell.timestamp < self._oldest else Code.SKIP


class ColumnCountGetFilter(Filter):
    """The first columns of each row."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._count = 0

    def reset(self) -> None:
        self._count = 0

    def all_remaining(self) -> bool:
        return self._count > self._limit

    def cell(self, row: bytes, cell: Cell) -> Code:
        self._count += 1
        return Code.NEXT_COLUMN if self.all_remaining() else Code.INCLUDE_AND_NEXT_COLUMN


class ColumnPaginationFilter(Filter):
    """``limit`` columns of each row, after the first ``offset``."""

    def __init__(self, limit: int, offset: int) -> None:
        self._limit = limit
        self._offset = offset
        self._count = 0

    def reset(self) -> None:
        self._count = 0

    def cell(self, row: bytes, cell: Cell) -> Code:
        if self._count >= self._offset + self._limit:
            return Code.NEXT_ROW
        self._count += 1
        return Code.NEXT_COLUMN if self._count <= self._offset else Code.INCLUDE_AND_NEXT_COLUMN
