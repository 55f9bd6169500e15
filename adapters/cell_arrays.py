"""What backends that answer cells as Arrow arrays share: the columns, and ways to take bytes from many places."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import TYPE_CHECKING, Any

from metaclient.model import Result

if TYPE_CHECKING:
    import pyarrow

__all__ = ["COLUMNS", "batch_of_results", "libraries", "slices", "taken"]

#: Names of a batch's columns, in order.
COLUMNS = ("row", "family", "qualifier", "timestamp", "type", "value")


@cache
def libraries() -> tuple[Any, Any]:
    """numpy and pyarrow, which come with Spark; the client itself needs neither."""
    try:
        import numpy as np
        import pyarrow
        import pyarrow.compute
    except ImportError as error:
        raise ImportError(
            f"{error}; cells become Arrow with numpy and pyarrow: pip install 'hbase-metaclient[spark]'"
        ) from error
    return np, pyarrow


def taken(np: Any, block: Any, at: Any, size: int) -> Any:
    """``size`` bytes from each of these places: one copy a place, which beats indexing byte by byte.

    >>> import numpy as np
    >>> taken(np, np.frombuffer(b"abcdef", dtype=np.uint8), np.array([0, 4]), 2).tobytes()
    b'abef'
    """
    windows = np.ndarray((max(len(block) - size + 1, 0),), dtype=f"V{size}", buffer=block, strides=(1,))
    return windows[at].view(np.uint8).reshape(-1, size)


def slices(data: bytes, borders: Any, which: pyarrow.Array) -> pyarrow.Array:
    """Parts of the data as an Arrow array of binaries: part ``i`` stands between borders ``i`` and ``i + 1``.

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


def batch_of_results(results: Sequence[Result]) -> pyarrow.RecordBatch:
    """Rows that are Python objects already, in the same shape."""
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
