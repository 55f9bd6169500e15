"""Decides by the row: RowFilter, PrefixFilter, InclusiveStopFilter, PageFilter."""

from __future__ import annotations

from metaclient.model import Cell
from metaclient_fake.storage.filters.comparators import Comparison
from metaclient_fake.storage.filters.filter import Code, Filter

__all__ = ["InclusiveStopFilter", "PageFilter", "PrefixFilter", "RowFilter"]


class RowFilter(Filter):
    """Rows whose key meets the comparison."""

    def __init__(self, comparison: Comparison) -> None:
        self._comparison = comparison
        self._is_dropped = False

    def reset(self) -> None:
        self._is_dropped = False

    def drops_row_key(self, row: bytes) -> bool:
        self._is_dropped = self._is_dropped or not self._comparison.holds(row)
        return self._is_dropped

    def cell(self, row: bytes, cell: Cell) -> Code:
        return Code.NEXT_ROW if self._is_dropped else Code.INCLUDE

    def drops_row(self) -> bool:
        return self._is_dropped


class PrefixFilter(Filter):
    """Rows that begin with a prefix; ends the scan after them."""

    def __init__(self, prefix: bytes) -> None:
        self._prefix = prefix
        self._is_past = False
        self._is_dropped = True

    def reset(self) -> None:
        self._is_dropped = True

    def all_remaining(self) -> bool:
        return self._is_past

    def drops_row_key(self, row: bytes) -> bool:
        if self._is_past or len(row) < len(self._prefix):
            return True
        head = row[: len(self._prefix)]
        self._is_dropped = head != self._prefix
        self._is_past = head < self._prefix if self.is_reversed else head > self._prefix
        return self._is_dropped

    def cell(self, row: bytes, cell: Cell) -> Code:
        return Code.NEXT_ROW if self._is_dropped else Code.INCLUDE

    def drops_row(self) -> bool:
        return self._is_dropped


class InclusiveStopFilter(Filter):
    """Rows up to and including a stop row."""

    def __init__(self, stop_row: bytes) -> None:
        self._stop_row = stop_row
        self._is_past = False

    def all_remaining(self) -> bool:
        return self._is_past

    def drops_row_key(self, row: bytes) -> bool:
        if not self._is_past:
            self._is_past = row < self._stop_row if self.is_reversed else row > self._stop_row
        return self._is_past

    def cell(self, row: bytes, cell: Cell) -> Code:
        return Code.NEXT_ROW if self._is_past else Code.INCLUDE


class PageFilter(Filter):
    """At most ``size`` rows *per region*: the client must count the rows of all regions."""

    has_row_step = True

    def __init__(self, size: int) -> None:
        self._size = size
        self._accepted = 0

    def all_remaining(self) -> bool:
        return self._accepted >= self._size

    def drops_row(self) -> bool:
        self._accepted += 1
        return self._accepted > self._size
