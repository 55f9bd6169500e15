"""Cell blocks: the cells after a message, as HBase's KeyValueCodec writes them; encoded and decoded by slices.

::

    int32 total | int32 key length | int32 value length
    int16 row length | row | int8 family length | family | qualifier | int64 timestamp | int8 type | value

All numbers are big-endian. The key begins with the row length and ends before the value. ``total`` does not count
itself. Bytes after the value are tags, which this codec never sends and which are skipped here.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Sequence
from itertools import repeat
from typing import TYPE_CHECKING, Any, TypeAlias

from metaclient.backend import PutPage
from metaclient.model import Cell, CellType, PutCells, Result
from metaclient.protobuf import ProtocolError
from metaclient.wire.cell_arrays import joined, libraries, numbers, sizes, together

if TYPE_CHECKING:
    import pyarrow

__all__ = [
    "CODEC",
    "PutWriter",
    "decode_cells",
    "decode_columns",
    "decode_counted",
    "decode_results",
    "decode_rows",
    "encode_cells",
    "encode_page",
    "encode_results",
    "skip_cells",
]

#: The codec's name in a connection header.
CODEC = "org.apache.hadoop.hbase.codec.KeyValueCodec"

_HEAD = struct.Struct(">iiiH")
#: The same fields for numpy, which encodes many at once.
_HEADS = [("total", ">i4"), ("key", ">i4"), ("value", ">i4"), ("row", ">u2")]
_LENGTHS_BYTES = 8  # of the lengths of key and value, which a cell's total counts
_TAIL = struct.Struct(">qB")
_TOTAL = struct.Struct(">i")
_new = tuple.__new__
_PUT = CellType.PUT
_PUT_BYTE = bytes([CellType.PUT])
_TYPES = {int(one): one for one in CellType}
#: family length, family, qualifier -> b"family:qualifier", and back: a table has few names.
_columns: dict[bytes, bytes] = {}
_names: dict[bytes, bytes] = {}
_COLUMNS_MAX = 4096
_COLUMN_BYTES_MAX = 128
_Shape: TypeAlias = tuple[Callable[[bytes, int], tuple[Any, ...]], int]
#: The four lengths of a cell -> its layout. The cells of a table have few layouts; one unpack is faster than slices.
_shapes: dict[bytes, _Shape] = {}
_SHAPES_MAX = 4096
_ROWS_MAX = 256
#: A layout of a whole row pays for rows with at least so many cells.
_ROW_CELLS_MIN = 3
_ROW_CELLS_MAX = 256
#: A layout of a row that did not fit this many times in succession is not tried any more.
_MISSES_MAX = 8
#: A key without row, family and qualifier.
_KEY_BYTES_MIN = 12
_ROW_BYTES_MAX = 0x7FFF
_FAMILY_BYTES_MAX = 0x7F


def _column(raw: bytes) -> bytes:
    family_end = 1 + raw[0]
    if family_end > len(raw):
        raise ProtocolError("a cell whose family is longer than its key")
    made = raw[1:family_end] + b":" + raw[family_end:]
    if len(raw) <= _COLUMN_BYTES_MAX:
        if len(_columns) >= _COLUMNS_MAX:
            _columns.clear()
        _columns[raw] = made
    return made


def _shape(head: bytes) -> _Shape:
    """Return the unpack function for cells with these four lengths, and their size."""
    total, key_length, value_length, row_length = _HEAD.unpack(head)
    name_length = key_length - row_length - _KEY_BYTES_MIN + 1
    if name_length < 1 or value_length < 0 or 8 + key_length + value_length > total:
        raise ProtocolError(
            f"a cell of {total} bytes with a key of {key_length}, a value of {value_length} and a row of {row_length}"
        )
    if len(_shapes) >= _SHAPES_MAX:
        _shapes.clear()
    unpack = struct.Struct(f">{14 + row_length}x{name_length}sqB{value_length}s").unpack_from
    made = _shapes[head] = (unpack, 4 + total)
    return made


class _RowShape:
    """The layout of a row whose cells have the lengths of an earlier row's: one unpack reads all of them."""

    __slots__ = ("_columns", "_heads", "_names", "_puts", "_unpack", "misses", "size")

    def __init__(self, data: bytes, at: int, count: int) -> None:
        """Take the layout from cells that were decoded before, and are therefore valid."""
        layout: list[str] = []
        heads: list[bytes] = []
        names: list[bytes] = []
        begun = at
        for _ in range(count):
            heads.append(data[at : at + 14])
            total, key_length, value_length, row_length = _HEAD.unpack(heads[-1])
            name_length = key_length - row_length - _KEY_BYTES_MIN + 1
            name_at = at + 14 + row_length
            names.append(data[name_at : name_at + name_length])
            tags = total - 8 - key_length - value_length
            layout.append(f"14s{row_length}s{name_length}sqB{value_length}s{tags}x")
            at += 4 + total
        self._unpack = struct.Struct(">" + "".join(layout)).unpack_from
        self._heads, self._names = tuple(heads), tuple(names)
        self._columns = tuple(_columns.get(name) or _column(name) for name in names)
        self._puts = (_PUT,) * count
        self.size = at - begun
        self.misses = 0

    def cells(self, data: bytes, at: int) -> tuple[bytes, PutCells] | None:
        """Return the row and its cells; None if they have another layout."""
        parts = self._unpack(data, at)
        rows = parts[1::6]
        if (
            parts[::6] != self._heads
            or parts[2::6] != self._names
            or parts[4::6] != self._puts
            or rows.count(rows[0]) != len(rows)
        ):
            self.misses += 1
            return None
        self.misses = 0
        return rows[0], PutCells(self._columns, parts[3::6], parts[5::6])


#: The number of a row's cells and the lengths of the first cell -> their layout.
_rows: dict[tuple[int, bytes], _RowShape] = {}


def decode_cells(data: bytes, at: int, end: int, count: int) -> tuple[bytes, Sequence[Cell], int]:
    """Decode ``count`` cells of one row at ``data[at:end]``: return the row, its cells, and where they end.

    >>> block = encode_cells(b"r", [Cell(b"cf:q", 7, b"v")])
    >>> decode_cells(block, 0, len(block), 1)
    (b'r', [Cell(column=b'cf:q', timestamp=7, value=b'v', type=<CellType.PUT: 4>)], 29)
    """
    if not _ROW_CELLS_MIN <= count <= _ROW_CELLS_MAX:
        return _one_by_one(data, at, end, count)
    key = (count, data[at : at + 14])
    shape = _rows.get(key)
    if shape is not None:
        stop = at + shape.size
        if stop <= end and shape.misses < _MISSES_MAX and (known := shape.cells(data, at)) is not None:
            return known[0], known[1], stop
        return _one_by_one(data, at, end, count)
    found = _one_by_one(data, at, end, count)
    if len(_rows) >= _ROWS_MAX:
        _rows.clear()
    _rows[key] = _RowShape(data, at, count)
    return found


def _one_by_one(data: bytes, at: int, end: int, count: int) -> tuple[bytes, list[Cell], int]:
    shapes, columns, new, cell_class, put = _shapes.get, _columns.get, _new, Cell, _PUT
    cells: list[Cell] = []
    append = cells.append
    row = data[at + 14 : at + 14 + int.from_bytes(data[at + 12 : at + 14], "big")] if count else b""
    try:
        for _ in repeat(None, count):
            head = data[at : at + 14]
            unpack, size = shapes(head) or _shape(head)
            name, timestamp, kind, value = unpack(data, at)
            fields = (columns(name) or _column(name), timestamp, value, put if kind == 4 else _TYPES[kind])
            append(new(cell_class, fields))
            at += size
    except struct.error as error:
        raise _bad(at, end) from error
    except KeyError as error:
        raise ProtocolError(f"a cell has the unknown type {error}") from error
    if at > end:
        raise _bad(at, end)
    return row, cells, at


def _bad(at: int, end: int) -> ProtocolError:
    return ProtocolError(f"the cell block is cut short or torn at byte {at} of {end}")


def decode_results(
    data: bytes, at: int, end: int, counts: Sequence[int], *, is_stale: bool = False, partials: Sequence[bool] = ()
) -> list[Result]:
    """Return results with these counts of cells; ``partials`` marks those with more to come. No byte may remain."""
    made: list[Result] = []
    decode = decode_cells
    for index, count in enumerate(counts):
        row, cells, at = decode(data, at, end, count)
        made.append(_new(Result, (row, cells, is_stale, index < len(partials) and partials[index], None, None)))
    if at != end:
        raise ProtocolError(f"the cell block has {end - at} bytes that belong to no result")
    return made


def decode_columns(
    data: bytes, at: int, end: int, *, count: int, rows: int
) -> tuple[list[bytes], list[int], list[bytes], int]:
    """Decode the rows that have the ``count`` columns of the first one, all cells puts; at most ``rows`` rows.

    Return their keys, the timestamps and the values of all cells in succession, and where the rows end. The first row
    is valid: it was decoded before.
    """
    shapes, names = _shapes.get, _names_of(data, at, count)
    keys: list[bytes] = []
    timestamps: list[int] = []
    values: list[bytes] = []
    begun = at
    try:
        for _ in repeat(None, rows):
            for name in names:
                head = data[at : at + 14]
                unpack, size = shapes(head) or _shape(head)
                found, timestamp, kind, value = unpack(data, at)
                if found != name or kind != 4:
                    break
                timestamps.append(timestamp)
                values.append(value)
                at += size
            else:
                keys.append(data[begun + 14 : begun + 14 + int.from_bytes(data[begun + 12 : begun + 14], "big")])
                begun = at
                continue
            del timestamps[len(keys) * count :], values[len(keys) * count :]
            break
    except struct.error as error:
        raise _bad(at, end) from error
    if begun > end:
        raise _bad(begun, end)
    return keys, timestamps, values, begun


def _names_of(data: bytes, at: int, count: int) -> list[bytes]:
    """Return family length, family and qualifier of the next cells."""
    names: list[bytes] = []
    for _ in repeat(None, count):
        total, key_length, _, row_length = _HEAD.unpack_from(data, at)
        names.append(data[at + 14 + row_length : at + 4 + _LENGTHS_BYTES + key_length - _TAIL.size])
        at += 4 + total
    return names


def decode_rows(data: bytes, at: int, end: int) -> list[tuple[bytes, Cell]]:
    """Return every cell of a block with its row, for blocks whose cells are counted elsewhere."""
    return decode_counted(data, at, end, end - at)[0]


def decode_counted(data: bytes, at: int, end: int, count: int) -> tuple[list[tuple[bytes, Cell]], int]:
    """Decode ``count`` cells of any rows, fewer if the block ends: return (row, cell) of each, and where they end.

    >>> block = encode_cells(b"r", [Cell(b"cf:q", 7, b"v")])
    >>> decode_counted(block, 0, len(block), 2)
    ([(b'r', Cell(column=b'cf:q', timestamp=7, value=b'v', type=<CellType.PUT: 4>))], 29)
    """
    shapes, columns, new, cell_class, put = _shapes.get, _columns.get, _new, Cell, _PUT
    made: list[tuple[bytes, Cell]] = []
    try:
        for _ in repeat(None, count):
            if at >= end:
                break
            head = data[at : at + 14]
            unpack, size = shapes(head) or _shape(head)
            name, timestamp, kind, value = unpack(data, at)
            fields = (columns(name) or _column(name), timestamp, value, put if kind == 4 else _TYPES[kind])
            made.append((data[at + 14 : at + 14 + (head[12] << 8 | head[13])], new(cell_class, fields)))
            at += size
    except struct.error as error:
        raise _bad(at, end) from error
    except KeyError as error:
        raise ProtocolError(f"a cell has the unknown type {error}") from error
    if at > end:
        raise _bad(at, end)
    return made, at


def skip_cells(data: bytes, at: int, end: int, count: int) -> int:
    """Return the offset after the next ``count`` cells."""
    try:
        for _ in repeat(None, count):
            (total,) = _TOTAL.unpack_from(data, at)
            at += 4 + total
            if total < 20 or at > end:
                raise _bad(at, end)
    except struct.error as error:
        raise _bad(at, end) from error
    return at


def encode_cells(row: bytes, cells: Iterable[Cell]) -> bytes:
    """Return the cells of one row as a block."""
    parts: list[bytes] = []
    _encode(parts, row, cells)
    return b"".join(parts)


def encode_results(results: Iterable[Result]) -> bytes:
    """Return the cells of many rows as a block, without their numbers per row."""
    parts: list[bytes] = []
    for result in results:
        _encode(parts, result.row, result.cells)
    return b"".join(parts)


def _encode(parts: list[bytes], row: bytes, cells: Iterable[Cell]) -> None:
    row_length = _row_length(len(row))
    head, tail, names = _HEAD.pack, _TAIL.pack, _names.get
    for column, timestamp, value, kind in cells:
        name = names(column) or _name(column)
        key_length = _KEY_BYTES_MIN - 1 + row_length + len(name)
        parts += (
            head(8 + key_length + len(value), key_length, len(value), row_length),
            row,
            name,
            tail(timestamp, kind),
            value,
        )


def _row_length(length: int) -> int:
    if length > _ROW_BYTES_MAX:
        raise ValueError(f"a row of {length} bytes: HBase allows {_ROW_BYTES_MAX}")
    return length


def _name(column: bytes) -> bytes:
    """Return family length, family and qualifier of a column: the inverse of ``_column``."""
    family, _, qualifier = column.partition(b":")
    if len(family) > _FAMILY_BYTES_MAX:
        raise ValueError(f"a family of {len(family)} bytes: HBase allows {_FAMILY_BYTES_MAX}")
    made = len(family).to_bytes(1, "big") + family + qualifier
    if len(column) <= _COLUMN_BYTES_MAX:
        if len(_names) >= _COLUMNS_MAX:
            _names.clear()
        _names[column] = made
    return made


class PutWriter:
    """Encodes cells of many rows. Columns and timestamps, which most rows of a batch share, are encoded once.

    >>> cells = PutCells((b"cf:a", b"cf:b"), (7, 7), (b"1", b"22"))
    >>> PutWriter().cells(b"r", cells) == encode_cells(b"r", cells)
    True
    """

    __slots__ = ("_columns", "_key_bytes", "_stamps", "_template")

    def __init__(self) -> None:
        self._columns: tuple[bytes, ...] | None = None
        self._stamps: tuple[int, ...] | None = None
        self._key_bytes: list[int] = []  # of each cell's key, without the row
        self._template = b""

    def cells(self, row: bytes, cells: Sequence[Cell]) -> bytes:
        """Return the cells of one row as bytes."""
        if type(cells) is not PutCells:
            return encode_cells(row, cells)
        if cells.columns is not self._columns or cells.timestamps is not self._stamps:
            self._begin(cells.columns, cells.timestamps)
        head, row_length = _HEAD.pack, _row_length(len(row))
        parts: list[bytes] = []
        for key_length, value in zip(self._key_bytes, cells.values, strict=True):
            key_length += row_length
            size = len(value)
            parts += (head(8 + key_length + size, key_length, size, row_length), row, value)
        return self._template % tuple(parts)

    def _begin(self, columns: tuple[bytes, ...], stamps: tuple[int, ...]) -> None:
        names = [_names.get(column) or _name(column) for column in columns]
        self._columns, self._stamps = columns, stamps
        self._key_bytes = [_KEY_BYTES_MIN - 1 + len(name) for name in names]
        between = (name + _TAIL.pack(stamp, _PUT) for name, stamp in zip(names, stamps, strict=True))
        self._template = b"".join(b"%b%b" + one.replace(b"%", b"%%") + b"%b" for one in between)


def encode_page(page: PutPage) -> memoryview:
    """Return the cells of a page of puts, row by row.

    >>> import pyarrow
    >>> rows, values = (pyarrow.array(each, pyarrow.large_binary()) for each in ([b"r", b"s"], [b"1", b"22"]))
    >>> page = PutPage(rows, pyarrow.array([7, 8]), (b"cf:a",), (values,))
    >>> encode_page(page) == b"".join(encode_cells(put.row, put.cells) for put in page.puts())
    True
    """
    np, _ = libraries()
    row_bytes = sizes(page.rows)
    _row_length(row_bytes.max(initial=0))
    stamps = numbers(page.timestamps.to_numpy().astype(">i8"))
    parts: list[pyarrow.LargeBinaryArray | bytes] = []
    for column, values in zip(page.columns, page.values, strict=True):
        name = _name(column)
        heads = np.empty(len(page), dtype=_HEADS)
        heads["row"] = row_bytes
        heads["key"] = key_bytes = row_bytes + (_KEY_BYTES_MIN - 1 + len(name))
        heads["value"] = value_bytes = sizes(values)
        heads["total"] = key_bytes + value_bytes + _LENGTHS_BYTES
        cell = (numbers(heads), page.rows, name, stamps, _PUT_BYTE, values)
        parts += (joined(*cell),) if values.null_count else cell
    return together(joined(*parts))
