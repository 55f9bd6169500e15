"""Cells as Arrow arrays, for all backends: the names of the columns, and functions that copy bytes in bulk."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from itertools import groupby
from typing import TYPE_CHECKING, Any

from metaclient.backend import PutPage
from metaclient.errors import ExtraMissing
from metaclient.model import Result

if TYPE_CHECKING:
    import pyarrow

__all__ = [
    "COLUMNS",
    "batch_of_results",
    "cells_per_row",
    "count_repeats",
    "joined",
    "libraries",
    "numbers",
    "sizes",
    "slices",
    "taken",
    "together",
]

#: The names of the columns of a record batch, in order.
COLUMNS = ("row", "family", "qualifier", "timestamp", "type", "value")
#: The bytes that are compared at a time: they fit into the processor's cache.
_COMPARED_BYTES = 64 * 1024


@cache
def libraries() -> tuple[Any, Any]:
    """Return numpy and pyarrow, which Spark users have installed; the client itself needs neither."""
    try:
        import numpy as np
        import pyarrow
        import pyarrow.compute
    except ImportError as error:
        raise ExtraMissing.of("cells in Arrow", error.name, extra="spark") from error
    return np, pyarrow


def taken(np: Any, block: Any, at: Any, size: int) -> Any:
    """Return ``size`` bytes from each of these offsets, with one copy per offset, which is faster than indexing.

    >>> import numpy as np
    >>> taken(np, np.frombuffer(b"abcdef", dtype=np.uint8), np.array([0, 4]), 2).tobytes()
    b'abef'
    """
    windows = np.ndarray((max(len(block) - size + 1, 0),), dtype=f"V{size}", buffer=block, strides=(1,))
    return windows[at].view(np.uint8).reshape(-1, size)


def count_repeats(np: Any, rows: Any, is_compared: bytearray) -> int:
    """Return how many rows of a matrix of bytes, from the first on, equal the first where ``is_compared`` is 1.

    >>> import numpy as np
    >>> count_repeats(np, np.frombuffer(b"axaybz", dtype=np.uint8).reshape(3, 2), bytearray(b"\\1\\0"))
    2
    """
    times, size = rows.shape
    mask = np.frombuffer(is_compared, dtype=bool)
    step = max(_COMPARED_BYTES // size, 1)
    for begin in range(0, times, step):
        differs = rows[begin : begin + step] != rows[0]
        differs &= mask
        if differs.any():
            return begin + int(differs.any(axis=1).argmax())
    return int(times)


def slices(data: bytes, borders: Any, which: pyarrow.Array) -> pyarrow.Array:
    """Return parts of the data as an Arrow array of binaries: part ``i`` is between borders ``i`` and ``i + 1``.

    >>> import numpy as np
    >>> import pyarrow
    >>> slices(b"abcdef", np.array([0, 1, 4, 6], dtype=np.int32), pyarrow.array([1, 0])).to_pylist()
    [b'bcd', b'a']
    """
    _, arrow = libraries()
    parts = arrow.Array.from_buffers(
        arrow.binary(), max(len(borders) - 1, 0), [None, arrow.py_buffer(borders), arrow.py_buffer(data)]
    )
    return arrow.compute.take(parts, which, boundscheck=False)


def sizes(array: pyarrow.LargeBinaryArray) -> Any:
    """Return the length of each element, as numpy's int64; a null has length 0.

    >>> import pyarrow
    >>> sizes(pyarrow.array([b"a", b"", None, b"bcd"], pyarrow.large_binary())).tolist()
    [1, 0, 0, 3]
    """
    found = libraries()[1].compute.binary_length(array)
    return (found.fill_null(0) if array.null_count else found).to_numpy()


def numbers(values: Any) -> pyarrow.LargeBinaryArray:
    """Return the bytes of each number of a numpy array, as they are in memory.

    >>> import numpy as np
    >>> numbers(np.array([1, 258], dtype=">u2")).to_pylist()
    [b'\\x00\\x01', b'\\x01\\x02']
    """
    np, arrow = libraries()
    borders = np.arange(len(values) + 1, dtype=np.int64) * values.itemsize
    return arrow.Array.from_buffers(
        arrow.large_binary(), len(values), [None, arrow.py_buffer(borders), arrow.py_buffer(values)]
    )


def joined(*parts: pyarrow.LargeBinaryArray | bytes) -> pyarrow.LargeBinaryArray:
    """Return the concatenation of the parts per row; bytes are the same in every row, and a null makes the row empty.

    >>> import pyarrow
    >>> joined(b"<", pyarrow.array([b"a", None], pyarrow.large_binary()), b">").to_pylist()
    [b'<a>', b'']
    """
    _, arrow = libraries()
    binary = arrow.large_binary()
    sides: list[Any] = []
    for is_constant, run in groupby(parts, key=lambda part: isinstance(part, bytes)):
        each = list(run)
        sides += [arrow.scalar(b"".join(each), binary)] if is_constant else each
    made = arrow.compute.binary_join_element_wise(*sides, arrow.scalar(b"", binary))
    return made.fill_null(b"") if made.null_count else made


def together(array: pyarrow.LargeBinaryArray) -> memoryview:
    """Return the bytes of all elements in order, without a copy.

    >>> import pyarrow
    >>> bytes(together(pyarrow.array([b"a", b"bc", b"d"], pyarrow.large_binary()).slice(1)))
    b'bcd'
    """
    np, _ = libraries()
    _, borders, data = array.buffers()
    if not len(array) or data is None:
        return memoryview(b"")
    first, last = np.frombuffer(borders, dtype=np.int64)[[array.offset, array.offset + len(array)]]
    return memoryview(data)[int(first) : int(last)]


def cells_per_row(page: PutPage) -> Any:
    """Return the number of cells of each row of a page, as numpy's int64."""
    np, _ = libraries()
    counts = np.full(len(page), len(page.columns), dtype=np.int64)
    for values in page.values:
        if values.null_count:
            counts -= values.is_null().to_numpy(zero_copy_only=False)
    return counts


def batch_of_results(results: Sequence[Result]) -> pyarrow.RecordBatch:
    """Return the record batch of rows that are Python objects."""
    _, arrow = libraries()
    cells = [(result.row, cell) for result in results for cell in result.cells]
    names = [cell.column.partition(b":") for _, cell in cells]
    columns = [
        arrow.array([row for row, _ in cells], arrow.binary()),
        arrow.array([name[0] for name in names], arrow.binary()),
        arrow.array([name[2] for name in names], arrow.binary()),
        arrow.array([cell.timestamp for _, cell in cells], arrow.int64()),
        arrow.array([int(cell.type) for _, cell in cells], arrow.uint8()),
        arrow.array([cell.value for _, cell in cells], arrow.binary()),
    ]
    return arrow.RecordBatch.from_arrays(columns, names=list(COLUMNS))
