"""Decodes cell blocks into Arrow: one record batch per block, without a Python object per cell.

1. The decoder computes the *borders*: the offsets at which the parts of the cells begin, in order. They make one Arrow
   array of the whole block (row, family, qualifier, value and the bytes between them), from which each column is taken.
2. Cells have no fixed size: the offset of a cell is known only at the end of the cell before. But most rows have the
   same lengths as the row before them. So numpy compares the lengths at the offsets at which cells would begin if all
   rows were like this one. As far as they are equal, the borders of this row, shifted, are those of the following rows.
3. Where rows differ, a number of cells is read one by one before the next comparison.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from functools import cache, lru_cache
from typing import TYPE_CHECKING, Any

from metaclient.model import CellType
from metaclient.protobuf import ProtocolError
from metaclient.wire.cell_arrays import COLUMNS, count_repeats, libraries, slices, taken

if TYPE_CHECKING:
    import pyarrow

__all__ = ["cells_to_arrow"]

#: total, key length, value length and row length, at the beginning of a cell.
_HEAD = struct.Struct(">IIIH")
_HEAD_BYTES = _HEAD.size
_TOTAL = struct.Struct(">I")
#: Row, family's length, family, qualifier, timestamp and type, value, and the lengths of the next cell.
_PARTS = 7
_ROW, _FAMILY, _QUALIFIER, _TAIL, _VALUE = 0, 2, 3, 4, 5
#: Timestamp and type.
_TAIL_BYTES = 9
_TYPES = bytes(CellType)
#: The lengths, one byte for the family's length, timestamp and type: no cell is shorter.
_CELL_BYTES_MIN = 24
#: Offsets in Arrow are numbers of 32 bits.
_BLOCK_BYTES_MAX = 0x7FFFFFFF
#: A row with more cells than this is not compared with the following rows.
_PATTERN_MAX = 256
#: Cells that are longer than this are few: reading them one by one costs less than comparing them.
_CELL_BYTES_GUESSED = 512
#: A comparison pays if it finds so many cells. One that does not may have met a single odd row. After two of them cells
#: are read one by one, each time more of them, so that useless comparisons cost little.
_PAYING = 400
_FAILURES_MAX = 2
_STRETCH_MIN = 256
_GROWTH = 8


def cells_to_arrow(data: bytes, at: int = 0, end: int | None = None) -> pyarrow.RecordBatch:
    """Return all cells of a block as a record batch: row, family, qualifier, timestamp, type, value.

    >>> from metaclient.wire.rpc.cellblock import encode_cells
    >>> from metaclient.model import Cell
    >>> batch = cells_to_arrow(encode_cells(b"r", [Cell(b"cf:a", 7, b"1"), Cell(b"cf:b", 8, b"22")]))
    >>> batch.to_pylist()[1]["qualifier"], batch.column("timestamp").to_pylist()
    (b'b', [7, 8])
    """
    np, arrow = libraries()
    end = len(data) if end is None else end
    if end > _BLOCK_BYTES_MAX:
        raise ProtocolError(f"a cell block of {end} bytes is too long for Arrow: ask for smaller pages")
    block = np.frombuffer(data, dtype=np.uint8, count=end)
    borders = _find_borders(np, data, block, at, end)
    timestamps, types = _tails(np, block, borders[_TAIL::_PARTS])
    count = len(types)
    found = slices(data, borders, _wanted(count))  # all four in one go
    row, family, qualifier, value = (found.slice(number * count, count) for number in range(4))
    columns = [row, family, qualifier, arrow.array(timestamps), arrow.array(types), value]
    return arrow.RecordBatch.from_arrays(columns, names=list(COLUMNS))


@lru_cache(maxsize=1)  # most pages of a scan have as many cells as the one before
def _wanted(count: int) -> pyarrow.Array:
    """Return the indexes of the parts that are the rows, families, qualifiers and values of ``count`` cells."""
    np, arrow = libraries()
    of_cell = np.arange(0, count * _PARTS, _PARTS, dtype=np.int32)
    return arrow.array(np.concatenate([of_cell + part for part in (_ROW, _FAMILY, _QUALIFIER, _VALUE)]))


def _find_borders(np: Any, data: bytes, block: Any, at: int, end: int) -> Any:
    """Return the borders of all cells, seven per cell; ProtocolError unless the last cell ends with the block."""
    found: list[Any] = []
    failures, stretch = 0, _STRETCH_MIN
    while at < end:
        row = _RowLengths.read(data, at, end)
        times = (end - at) // row.size
        alike = row.count_repeats(np, block, at, times)
        shifts = np.arange(0, alike * row.size, row.size, dtype=np.int32)
        found.append(np.add.outer(shifts, np.array(row.borders, dtype=np.int32)).ravel())
        at += alike * row.size
        if (alike - 1) * len(row.borders) > _PAYING * _PARTS:
            failures, stretch = 0, _STRETCH_MIN
            continue
        failures += 1
        if failures >= _FAILURES_MAX and at < end:
            starts, at = _read_starts(data, at, end, stretch)
            found.append(_compute_borders(np, block, starts, at))
            stretch *= _GROWTH
    return found[0] if len(found) == 1 else np.concatenate([*found, np.zeros(0, dtype=np.int32)])


# -- rows that are alike -----------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _RowLengths:
    """The lengths of a row, or of the beginning of a long one, which the following rows may share."""

    borders: list[int]
    is_length: bytearray  # of each byte
    size: int

    @classmethod
    def read(cls, data: bytes, at: int, end: int) -> _RowLengths:
        """Return the row at this offset, read cell by cell."""
        begin, row, row_length = at, b"", 0
        borders: list[int] = []
        is_length = bytearray()
        while at < end and len(borders) < _PATTERN_MAX * _PARTS:
            if row and data[at + 12 : at + _HEAD_BYTES + row_length] != row:
                break
            try:
                total, key_length, value_length, row_length = _HEAD.unpack_from(data, at)
                row_end = at + _HEAD_BYTES + row_length
                family_end = row_end + 1 + data[row_end]
            except (struct.error, IndexError) as error:
                raise _torn(at, end) from error
            row = row or data[at + 12 : row_end]
            tail = at + 3 + key_length
            value_at = tail + _TAIL_BYTES
            value_end = value_at + value_length
            behind = at + 4 + total
            if family_end > tail or value_end > behind or behind > end:
                raise _torn(at, end)
            borders += (at + _HEAD_BYTES, row_end, row_end + 1, family_end, tail, value_at, value_end)
            is_length += b"\1" * _HEAD_BYTES + bytes(row_length) + b"\1" + bytes(behind - row_end - 1)
            at = behind
        return cls(borders, is_length, at - begin)

    def count_repeats(self, np: Any, block: Any, at: int, times: int) -> int:
        """Return how many rows from this offset on, at most ``times``, have all the lengths of this one."""
        if self.size > len(self.borders) // _PARTS * _CELL_BYTES_GUESSED:
            return 1
        return count_repeats(np, block[at : at + times * self.size].reshape(times, self.size), self.is_length)


# -- rows that are not -------------------------------------------------------------------------------------------------


def _read_starts(data: bytes, at: int, end: int, count: int) -> tuple[list[int], int]:
    """Return the offsets of the next cells, at most ``count``, and the end of the last one."""
    starts: list[int] = []
    append, total_at = starts.append, _TOTAL.unpack_from
    try:
        while at < end and count:
            append(at)
            at += 4 + total_at(data, at)[0]
            count -= 1
    except struct.error as error:
        raise _torn(at, end) from error
    if at > end or at - starts[-1] < _CELL_BYTES_MIN:
        raise _torn(starts[-1], end)
    return starts, at


def _compute_borders(np: Any, block: Any, cells: list[int], end: int) -> Any:
    """Return the borders of the cells at these offsets; the last cell ends at ``end``."""
    starts = np.array(cells, dtype=np.int64)
    head = taken(np, block, starts, _HEAD_BYTES).view(_head_type(np)).ravel()
    row_end = starts + head["row"] + _HEAD_BYTES
    family_end = block.take(row_end, mode="clip") + (row_end + 1)
    tail = starts + head["key"] + 3
    value_at = tail + _TAIL_BYTES
    value_end = value_at + head["value"]
    # A length that is too great, up to the greatest possible, ends after the part that must follow it.
    is_good = (family_end <= tail) & (value_end - starts <= head["total"] + np.int64(4))
    if not is_good.all():
        raise _torn(int(starts[~is_good][0]), end)
    parts = [starts + _HEAD_BYTES, row_end, row_end + 1, family_end, tail, value_at, value_end]
    return np.stack(parts, axis=1, dtype=np.int32, casting="same_kind").ravel()


@cache
def _head_type(np: Any) -> Any:
    return np.dtype([("total", ">u4"), ("key", ">u4"), ("value", ">u4"), ("row", ">u2")])


# -- all of them -------------------------------------------------------------------------------------------------------


def _tails(np: Any, block: Any, at: Any) -> tuple[Any, Any]:
    """Return the timestamps and the types."""
    tails = taken(np, block, at, _TAIL_BYTES).view(_tail_type(np))
    types = tails["type"].ravel()
    if unknown := types.tobytes().translate(None, _TYPES):
        raise ProtocolError(f"a cell has the unknown type {unknown[0]}")
    return tails["timestamp"].ravel().astype(np.int64), types


@cache
def _tail_type(np: Any) -> Any:
    return np.dtype([("timestamp", ">i8"), ("type", "u1")])


def _torn(at: int, end: int) -> ProtocolError:
    return ProtocolError(f"the cell block is cut short or torn at byte {at} of {end}")
