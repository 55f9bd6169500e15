"""The bytes of pages of puts, and their parts of bounded size."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from metaclient.backend import PutPage

if TYPE_CHECKING:
    import numpy as np

__all__ = ["CELL_OVERHEAD", "cumulated_bytes", "parts"]

#: Bytes of a KeyValue beside row, column and value: lengths, timestamp and type (KeyValue.FIXED_OVERHEAD and infos).
CELL_OVERHEAD = 20


def parts(page: PutPage, rows: int, byte_count: int) -> Iterator[PutPage]:
    """Yield the page in parts that end with the row that reaches ``byte_count`` bytes, or after ``rows`` rows."""
    ends = cumulated_bytes(page)
    begin = 0
    while begin < len(page):
        full = int(ends.searchsorted(ends[begin] + byte_count))
        end = min(max(full, begin + 1), begin + rows, len(page))
        yield page.part(begin, end)
        begin = end


def cumulated_bytes(page: PutPage) -> np.ndarray:
    """Return the cumulated bytes before each row of a page, and the sum of all: about those of its KeyValues."""
    import numpy as np
    import pyarrow.compute as pc

    row_bytes = pc.binary_length(page.rows).to_numpy() + CELL_OVERHEAD
    each = np.zeros(len(page) + 1, dtype=np.int64)
    for column, values in zip(page.columns, page.values, strict=True):
        lengths = pc.binary_length(values)
        if values.null_count:
            is_there = values.is_valid().to_numpy(zero_copy_only=False)
            each[1:] += (row_bytes + len(column)) * is_there + lengths.fill_null(0).to_numpy()
        else:
            each[1:] += row_bytes + len(column) + lengths.to_numpy()
    ends: np.ndarray = np.cumsum(each)
    return ends
