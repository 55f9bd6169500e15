"""Cell blocks into Arrow: one record batch a block, without a Python object for each cell.

Cells have no fixed size, so one pass over their lengths finds where each begins. From there on numpy computes where the
parts of all cells begin and end. Those borders make one Arrow array of the whole block, row, family, qualifier, value
and what is in between them, and each column is every seventh element of it.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Any

from adapters.native.protocol.protobuf import ProtocolError

if TYPE_CHECKING:
    import pyarrow

__all__ = ["COLUMNS", "cells_to_arrow"]

#: Names of the batch's columns, in order.
COLUMNS = ("row", "family", "qualifier", "timestamp", "type", "value")
_TOTAL = struct.Struct(">i")
#: A cell's lengths, row, family's length, family, qualifier, timestamp and type, value.
_PARTS = 7
_ROW, _FAMILY, _QUALIFIER, _VALUE = 1, 3, 4, 6
#: Lengths, one byte of a family's length, timestamp and type: no cell is shorter.
_CELL_BYTES_MIN = 24


def cells_to_arrow(data: bytes, at: int = 0, end: int | None = None) -> pyarrow.RecordBatch:
    """All cells of a block as a record batch: row, family, qualifier, timestamp, type, value.

    >>> from adapters.native.protocol.cellblock import encode_cells
    >>> from metaclient.model import Cell
    >>> batch = cells_to_arrow(encode_cells(b"r", [Cell(b"cf:a", 7, b"1"), Cell(b"cf:b", 8, b"22")]))
    >>> batch.to_pylist()[1]["qualifier"], batch.column("timestamp").to_pylist()
    (b'b', [7, 8])
    """
    np, arrow = _libraries()
    end = len(data) if end is None else end
    if end > 0x7FFFFFFF:
        raise ProtocolError(f"a cell block of {end} bytes: ask for smaller pages")
    starts = np.array(_starts(data, at, end), dtype=np.int64)
    block = np.frombuffer(data, dtype=np.uint8, count=end)
    borders, timestamps, types = _borders(np, block, starts, end)
    parts = arrow.Array.from_buffers(
        arrow.binary(), len(starts) * _PARTS, [None, arrow.py_buffer(borders), arrow.py_buffer(data)]
    )
    row, family, qualifier, value = (
        parts.take(arrow.array(np.arange(part, len(starts) * _PARTS, _PARTS)))
        for part in (_ROW, _FAMILY, _QUALIFIER, _VALUE)
    )
    columns = [row, family, qualifier, arrow.array(timestamps), arrow.array(types), value]
    return arrow.RecordBatch.from_arrays(columns, names=list(COLUMNS))


def _libraries() -> tuple[Any, Any]:
    try:
        import numpy as np
        import pyarrow
    except ImportError as error:
        raise ImportError(
            f"{error}; cells become Arrow with numpy and pyarrow: pip install 'hbase-metaclient[spark]'"
        ) from error
    return np, pyarrow


def _starts(data: bytes, at: int, end: int) -> list[int]:
    """Where each cell begins: the only step that goes from cell to cell."""
    starts: list[int] = []
    append, total_at = starts.append, _TOTAL.unpack_from
    try:
        while at < end:
            append(at)
            (total,) = total_at(data, at)
            if total < _CELL_BYTES_MIN - 4:
                raise ProtocolError(f"the cell block is torn at byte {at} of {end}")
            at += 4 + total
    except struct.error as error:
        raise ProtocolError(f"the cell block is cut short at byte {at} of {end}") from error
    if at != end:
        raise ProtocolError(f"the cell block is cut short: a cell ends at byte {at} of {end}")
    return starts


def _borders(np: Any, block: Any, starts: Any, end: int) -> tuple[Any, Any, Any]:
    """Where each part of each cell ends, one behind the other; timestamps; types."""
    head = _taken(np, block, starts, 14)
    lengths = head[:, :12].copy().view(">i4").astype(np.int64)
    total, key_length, value_length = lengths[:, 0], lengths[:, 1], lengths[:, 2]
    row_length = head[:, 12].astype(np.int64) << 8 | head[:, 13]
    is_inside = (key_length >= row_length + 12) & (value_length >= 0) & (8 + key_length + value_length <= total)
    if not is_inside.all():
        raise ProtocolError(f"the cell block is torn at byte {int(starts[~is_inside][0])} of {end}")
    made = np.empty(len(starts) * _PARTS + 1, dtype=np.int32)
    made[0] = 0
    by_cell = made[1:].reshape(-1, _PARTS)
    by_cell[:, 0] = starts + 14
    by_cell[:, 1] = row_end = starts + 14 + row_length
    by_cell[:, 2] = row_end + 1
    by_cell[:, 3] = family_end = row_end + 1 + block[row_end]
    by_cell[:, 4] = tail = starts + 3 + key_length
    by_cell[:, 5] = value_at = tail + 9
    by_cell[:, 6] = value_at + value_length
    if (family_end > tail).any():
        raise ProtocolError("a cell whose family is longer than its key")
    rest = _taken(np, block, tail, 9)
    return made, rest[:, :8].copy().view(">i8").ravel().astype(np.int64), rest[:, 8].copy()


def _taken(np: Any, block: Any, at: Any, size: int) -> Any:
    """``size`` bytes from each of these places: one copy a place, which beats indexing byte by byte five times."""
    windows = np.ndarray((max(len(block) - size + 1, 0),), dtype=f"V{size}", buffer=block, strides=(1,))
    return windows[at].view(np.uint8).reshape(-1, size)
