"""Stores a row of few small cells as one string of bytes, as HBase's memstore does in its chunks (MSLAB).

A row of one cell as objects is a cell, a tuple, a row and an entry of the log: three times its data. A packed row is
one object, which memstore, log, replicas and files share. Each read creates new cells from it. Rows with more cells, or
with long cells, stay objects: packing them saves too little memory. :mod:`packed_lane` has the measurements, and lists
the functions that handle packed rows separately.

Layout, little endian::

    sequence id * 16 + number of cells: 8, length of the row: 2
    for each cell: timestamp: 8, length of the column: 1, length of the value: 4
    the row, then column and value of each cell
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from struct import Struct
from typing import TYPE_CHECKING

from metaclient.model import Cell, CellType

if TYPE_CHECKING:
    from metaclient_fake.storage.cells import Columns

__all__ = ["CELLS_MAX", "COLUMN_BYTES_MAX", "ROW_BYTES_MAX", "PackedRow", "is_packable", "packed", "packed_cell"]

#: From five cells on, objects need less than 400 bytes per cell of 100 bytes (``benchmarks``' F4), and no unpacking.
CELLS_MAX = 4
#: Size of the cells as KeyValues. For larger rows a copy costs more than packing saves.
ROW_BYTES_MAX = 1024
COLUMN_BYTES_MAX = 255

_HEAD = Struct("<QH")
_CELL = Struct("<qBI")
_ONE = Struct("<QHqBI")  # head and the only cell at once
_COUNT_BITS = 4
_COUNT_MASK = (1 << _COUNT_BITS) - 1
#: The overhead of a KeyValue (20 bytes) minus the overhead of a packed cell.
_MORE_BYTES = 20 - _CELL.size

PUT = CellType.PUT

_new_cell: Callable[..., Cell] = tuple.__new__
_new_row: Callable[..., PackedRow] = bytes.__new__
_pack_one = _ONE.pack
_unpack_one = _ONE.unpack_from


class PackedRow(bytes):
    """A plain row: one put of each column, in order. Made by :func:`packed`; has what :class:`RowCells` has.

    >>> row = packed(b"r", (Cell(b"cf:a", 7, b"1"), Cell(b"cf:b", 8, b"")), 42)
    >>> row.row, row.sequence_id, row.family, [(cell.column, cell.timestamp, cell.value) for cell in row.cells]
    (b'r', 42, b'cf', [(b'cf:a', 7, b'1'), (b'cf:b', 8, b'')])
    """

    __slots__ = ()

    is_plain = True
    #: A packed row can stand for a log entry with no other row: see :data:`metaclient_fake.storage.wal.LoggedEntry`.
    marker = None

    @property
    def rows(self) -> tuple[PackedRow, ...]:
        return (self,)

    @property
    def sequence_id(self) -> int:
        head: int = _HEAD.unpack_from(self)[0]
        return head >> _COUNT_BITS

    @property
    def size(self) -> int:
        """The bytes of the cells as KeyValues (``MemStoreSize.dataSize``)."""
        head, row_length = _HEAD.unpack_from(self)
        return int(len(self) - _HEAD.size - row_length + (head & _COUNT_MASK) * (_MORE_BYTES + row_length))

    @property
    def row(self) -> bytes:
        head, row_length = _HEAD.unpack_from(self)
        start = _HEAD.size + (head & _COUNT_MASK) * _CELL.size
        return self[start : start + row_length]

    @property
    def family(self) -> bytes:
        return self.parts()[2]

    def parts(self) -> tuple[int, bytes, bytes, int]:
        """Return sequence id, row, family and size at once: a replica needs all of them for each edit.

        >>> packed(b"r", (Cell(b"cf:a", 7, b"1"), Cell(b"cf:b", 8, b"")), 42).parts()
        (42, b'r', b'cf', 51)
        """
        head, row_length, _, column_length, _ = _unpack_one(self)
        count = head & _COUNT_MASK
        start = _HEAD.size + count * _CELL.size
        middle = start + row_length
        family = self[middle : middle + column_length].partition(b":")[0]
        size = len(self) - _HEAD.size - row_length + count * (_MORE_BYTES + row_length)
        return head >> _COUNT_BITS, self[start:middle], family, size

    @property
    def cells(self) -> tuple[Cell, ...]:
        head, row_length, timestamp, column_length, _ = _unpack_one(self)
        count = head & _COUNT_MASK
        if count == 1:
            start = _ONE.size + row_length
            at = start + column_length
            return (_new_cell(Cell, (self[start:at], timestamp, self[at:], PUT)),)
        at = _HEAD.size + count * _CELL.size + row_length
        cells: list[Cell] = []
        for number in range(count):
            timestamp, column_length, value_length = _CELL.unpack_from(self, _HEAD.size + number * _CELL.size)
            middle, end = at + column_length, at + column_length + value_length
            cells.append(_new_cell(Cell, (self[at:middle], timestamp, self[middle:end], PUT)))
            at = end
        return tuple(cells)

    def collect(self, into: Columns, read_point: int) -> None:
        """Add the cells if a reader at ``read_point`` sees them: all or none."""
        number = self.sequence_id
        if number > read_point:
            return
        for cell in self.cells:
            into.setdefault(cell[0], []).append((cell[1], int(PUT), number, cell))

    def __repr__(self) -> str:
        return f"PackedRow({self.row!r}, {len(self.cells)} cells, sequence_id={self.sequence_id})"


def is_packable(cells: Sequence[Cell], size: int) -> bool:
    """Return True if a plain row of these cells, which take ``size`` bytes, is to be packed."""
    if size > ROW_BYTES_MAX or len(cells) > CELLS_MAX:
        return False
    return all(len(cell[0]) <= COLUMN_BYTES_MAX for cell in cells)


def packed(row: bytes, cells: tuple[Cell, ...], sequence_id: int) -> PackedRow:
    """Pack a plain row of at most :data:`CELLS_MAX` puts, each column of at most :data:`COLUMN_BYTES_MAX` bytes."""
    count = len(cells)
    if count == 1:
        column, timestamp, value, _ = cells[0]
        return packed_cell(row, column, timestamp, value, sequence_id)
    assert 0 < count <= CELLS_MAX, f"{count} cells"
    parts = [_HEAD.pack(sequence_id << _COUNT_BITS | count, len(row))]
    parts += [_CELL.pack(timestamp, len(column), len(value)) for column, timestamp, value, _ in cells]
    parts.append(row)
    for column, _, value, _ in cells:
        parts += (column, value)
    return _new_row(PackedRow, b"".join(parts))


def packed_cell(row: bytes, column: bytes, timestamp: int, value: bytes, sequence_id: int) -> PackedRow:
    """Pack a row of one cell."""
    head = _pack_one(sequence_id << _COUNT_BITS | 1, len(row), timestamp, len(column), len(value))
    return _new_row(PackedRow, b"".join((head, row, column, value)))
