"""Reads the most frequent replies in Thrift's binary protocol without thriftpy2; ``requests`` writes the calls.

thriftpy2 makes an object of every cell, from which a ``Cell`` would be made at once. Without it a page costs half as
much, and the columns of one row are the same bytes objects as those of the row before. Two rules keep it correct:

1. The fast path reads one order of fields, the one that HBase's gateways write. Other orders are read field by field
   (:func:`_struct`); an error, or a message that is not known here, is left to thriftpy2 with the same bytes.
2. A reply has no length. A read that reaches the end of the bytes is repeated when more have arrived.

The functions work on bytes only. ``link`` has the transport, ``errors`` the errors.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from operator import itemgetter
from struct import Struct
from struct import error as TooShort
from typing import Any, ClassVar, Protocol, TypeAlias

from metaclient.keys import column_sort_key
from metaclient.model import Cell, CellType, PutCells, Result

__all__ = [
    "Incoming",
    "NotOurs",
    "RowReader",
    "Rows1",
    "Rows2",
    "TooShort",
    "ended",
    "read_row",
    "read_rows",
    "rows_begin",
]

_new = tuple.__new__
_PUT = CellType.PUT
_TYPES = {int(one): one for one in CellType}

# Types of the protocol.
_STOP, _BOOL, _BYTE, _DOUBLE, _I16, _I32, _I64 = 0, 2, 3, 4, 6, 8, 10
_BINARY, _STRUCT, _MAP, _SET, _LIST = 11, 12, 13, 14, 15
_FIXED = {
    _BOOL: Struct(">b"),
    _BYTE: Struct(">b"),
    _DOUBLE: Struct(">d"),
    _I16: Struct(">h"),
    _I32: Struct(">i"),
    _I64: Struct(">q"),
}
_int = Struct(">i")
_field = Struct(">bh")
_binary_field = Struct(">bhi")
_time = Struct(">3sq")
_list_field = Struct(">bhbi")
_map_field = Struct(">bhbbi")
_container = Struct(">bi")
_map_container = Struct(">bbi")
#: A row has at least its required fields: an empty TResult takes 9 bytes, a TRowResult 8 for its key alone.
_ROW_BYTES_MIN = 8
#: The depth of structs and containers; a row, its list of cells and a cell are three.
_DEPTH_MAX = 16


class NotOurs(Exception):
    """The message cannot be read by this module: it is an error, or unknown."""


class Incoming(Protocol):
    """A reply as it arrives. ``head`` are its expected first bytes: type, method and sequence id."""

    data: bytes
    head: bytes

    def more(self, at: int) -> bytes:
        """Wait for more bytes and return all; those before ``at`` are dropped, so that ``at`` becomes 0."""
        ...

    def end(self, at: int) -> None:
        """End the reply at ``at``; later bytes belong to the next reply."""
        ...


# -- replies -------------------------------------------------------------------------------------------------------

#: Bytes and offset -> the row there and the offset after it; TooShort or IndexError when the row is not whole.
RowReader: TypeAlias = Callable[[bytes, int], tuple[Result, int]]


class _Shape:
    """The layout of a row whose cells have the lengths of the row before: constant bytes between values and timestamps.

    One ``unpack`` reads such a row, and one comparison of tuples proves that the row has this layout.
    """

    __slots__ = ("_columns", "_constants", "_in_order", "_struct", "_times", "count", "size")

    def __init__(
        self,
        constants: Sequence[bytes],
        columns: Sequence[bytes],
        lengths: Sequence[int],
        time: bytes,
        *,
        is_sorted: bool,
    ) -> None:
        """``constants[i]`` are the bytes before value i, with its length; the last constant follows the last value.

        ``time`` is the head of a timestamp, which follows each value. ``is_sorted``: the cells are in HBase's order.
        """
        layout = "".join(
            f"{len(constant)}s{length}s{len(time)}sq" for constant, length in zip(constants[:-1], lengths, strict=True)
        )
        self._struct = Struct(f">{layout}{len(constants[-1])}s")
        self._constants = tuple(constants)
        self._times = (time,) * len(columns)
        order = sorted(range(len(columns)), key=lambda at: column_sort_key(columns[at]))
        is_kept = is_sorted or order == sorted(order)
        self._columns = tuple(columns) if is_kept else tuple(columns[index] for index in order)
        self._in_order: Callable[[tuple[Any, ...]], tuple[Any, ...]] | None = None if is_kept else itemgetter(*order)
        self.count = len(columns)
        self.size = self._struct.size

    def cells(self, data: bytes, at: int) -> PutCells | None:
        """Return the cells in the order of columns; None if the row has another layout."""
        parts = self._struct.unpack_from(data, at)
        if parts[::4] != self._constants or parts[2::4] != self._times:
            return None
        timestamps, values = parts[3::4], parts[1::4]
        if self._in_order is not None:
            timestamps, values = self._in_order(timestamps), self._in_order(values)
        return PutCells(self._columns, timestamps, values)


class _Rows(ABC):
    """Reads rows one after the other; keeps the layout of the last row, because the next one is mostly the same."""

    #: The head of a timestamp, and the bytes from it to the next cell.
    _TIME: ClassVar[bytes]
    _END: ClassVar[bytes]
    #: True if cells are in HBase's order.
    _IS_SORTED: ClassVar[bool]

    def __init__(self) -> None:
        self._heads: list[bytes] = []
        self._columns: list[bytes] = []
        self._lengths: list[int] = []
        self._shape: _Shape | None = None

    def __call__(self, data: bytes, at: int) -> tuple[Result, int]:
        """Return the row at an offset, and the offset after it; TooShort or IndexError when it is not whole."""
        try:
            found = self._quick(data, at)
        except (TooShort, IndexError):
            found = None
        if found is None:
            found = self._careful(data, at)
            if found[1] - at < _ROW_BYTES_MIN:  # millions of rows of one byte each would take gigabytes
                raise ConnectionError(f"the gateway sent a row of {found[1] - at} bytes")
        return found

    @abstractmethod
    def _quick(self, data: bytes, at: int) -> tuple[Result, int] | None:
        """Return the row and the offset after it; None if its fields are in another order than the gateways'."""

    @abstractmethod
    def _careful(self, data: bytes, at: int) -> tuple[Result, int]: ...

    @abstractmethod
    def _column(self, data: bytes, at: int) -> tuple[bytes, int]:
        """Return the name of a cell's column, and the offset of its value's length."""

    def _cells(self, data: bytes, at: int, count: int) -> tuple[Sequence[Cell], int] | None:
        """Return ``count`` cells in the order of columns, and the offset after them."""
        shape = self._shape
        if shape is not None and shape.count == count and at + shape.size <= len(data):
            known = shape.cells(data, at)
            if known is not None:
                return known, at + shape.size
        return self._one_by_one(data, at, count)

    def _one_by_one(self, data: bytes, at: int, count: int) -> tuple[list[Cell], int] | None:
        cells: list[Cell] = []
        lengths: list[int] = []
        heads, columns, length, time, end = self._heads, self._columns, _int.unpack_from, _time.unpack_from, self._END
        known = len(heads)
        for index in range(count):
            if index < known and data.startswith(heads[index], at):
                column = columns[index]
                at += len(heads[index])
            else:
                begun = at
                column, at = self._column(data, at)
                self._remember(index, data[begun:at], column)
                known = index + 1
            (size,) = length(data, at)
            if size < 0:
                raise _negative(size)
            at += 4
            lengths.append(size)
            value = data[at : at + size]
            head, timestamp = time(data, at + size)
            at += size + 11
            if head != self._TIME or not data.startswith(end, at):
                return None
            at += len(end)
            cells.append(_new(Cell, (column, timestamp, value, _PUT)))
        if lengths and lengths == self._lengths and len(heads) == count:  # twice the same: it is worth a shape
            self._shape = self._shape_of(lengths)
        self._lengths = lengths
        if not self._IS_SORTED:
            cells.sort(key=_column_order)
        return cells, at

    def _shape_of(self, lengths: Sequence[int]) -> _Shape:
        heads = [head + _int.pack(length) for head, length in zip(self._heads, lengths, strict=True)]
        constants = [*heads[:1], *(self._END + head for head in heads[1:]), self._END]
        return _Shape(constants, self._columns, lengths, self._TIME, is_sorted=self._IS_SORTED)

    def _remember(self, index: int, head: bytes, column: bytes) -> None:
        del self._heads[index:], self._columns[index:]
        self._heads.append(head)
        self._columns.append(column)


class Rows2(_Rows):
    """``TResult`` of Thrift 2. Fields in order: row, columnValues, stale, partial."""

    _TIME, _END, _IS_SORTED = b"\x0a\0\4", b"\x03\0\6\x04\0", True
    _FRESH, _STALE = b"\x02\0\3\0\x02\0\4\0\0", b"\x02\0\3\1\x02\0\4\0\0"
    #: A get found no row: the key is not set, and there are no cells.
    _MISSING = b"\x0f\0\2\x0c\0\0\0\0" + _FRESH

    def _quick(self, data: bytes, at: int) -> tuple[Result, int] | None:
        if data.startswith(self._MISSING, at):
            return _new(Result, (b"", [], False, False, None, None)), at + len(self._MISSING)
        row, at = _expected(data, at, 1)
        *kinds, count = _list_field.unpack_from(data, at)
        if kinds != [_LIST, 2, _STRUCT]:
            return None
        found = self._cells(data, at + 8, count)
        if found is None:
            return None
        cells, at = found
        is_stale = data.startswith(self._STALE, at)
        if not is_stale and not data.startswith(self._FRESH, at):
            return None
        return _new(Result, (row, cells, is_stale, False, None, None)), at + 9

    def _column(self, data: bytes, at: int) -> tuple[bytes, int]:
        family, at = _expected(data, at, 1)
        qualifier, at = _expected(data, at, 2)
        if _field.unpack_from(data, at) != (_BINARY, 3):
            raise TooShort("not in the order that is read quickly")
        return family + b":" + qualifier, at + 3

    def _careful(self, data: bytes, at: int) -> tuple[Result, int]:
        fields, at = _struct(data, at)
        cells = [self._cell(one) for one in fields.get((2, _LIST), ())]
        row = fields.get((1, _BINARY), b"")
        return Result(row, cells, bool(fields.get((3, _BOOL))), bool(fields.get((4, _BOOL)))), at

    def _cell(self, fields: object) -> Cell:
        column = b":".join((_required(fields, 1), _required(fields, 2)))
        value = _required(fields, 3)
        assert isinstance(fields, dict), "a cell with required fields is a struct"
        kind = _TYPES.get(fields.get((6, _BYTE), _PUT), _PUT)
        return Cell(column, fields.get((4, _I64), 0), value, kind)


class Rows1(_Rows):
    """``TRowResult`` of Thrift 1. Fields in order: row, columns; a gateway's order of columns is not HBase's."""

    _TIME, _END, _IS_SORTED = b"\x0a\0\2", b"\0", False

    def _quick(self, data: bytes, at: int) -> tuple[Result, int] | None:
        row, at = _expected(data, at, 1)
        *kinds, count = _map_field.unpack_from(data, at)
        if kinds != [_MAP, 2, _BINARY, _STRUCT]:
            return None
        found = self._cells(data, at + 9, count)
        if found is None or data[found[1]] != _STOP:
            return None
        cells, at = found
        return _new(Result, (row, cells, False, False, None, None)), at + 1

    def _column(self, data: bytes, at: int) -> tuple[bytes, int]:
        end = at + 4 + _size(data, at)
        if _field.unpack_from(data, end) != (_BINARY, 1):
            raise TooShort("not in the order that is read quickly")
        return data[at + 4 : end], end + 3

    def _careful(self, data: bytes, at: int) -> tuple[Result, int]:
        fields, at = _struct(data, at)
        cells = [self._cell(column, cell) for column, cell in fields.get((2, _MAP), {}).items()]
        cells.sort(key=_column_order)
        return Result(fields.get((1, _BINARY), b""), cells), at

    def _cell(self, column: object, fields: object) -> Cell:
        value = _required(fields, 1)
        if not isinstance(column, bytes) or not isinstance(fields, dict):
            raise ConnectionError("the gateway sent a row with a column that is not text")
        return Cell(column, fields.get((2, _I64), 0), value)


def _column_order(cell: Cell) -> tuple[bytes, bytes, bytes]:
    return column_sort_key(cell[0])


def rows_begin(incoming: Incoming) -> tuple[int, int]:
    """Return the offset of the first row of a list, and the number of rows; NotOurs if it is no list."""
    at, kind = _success(incoming)
    if kind != _LIST:
        raise NotOurs
    data = incoming.data
    while len(data) < at + 5:
        data = incoming.more(0)
    of, count = _container.unpack_from(data, at)
    if of != _STRUCT or count < 0:
        raise NotOurs
    return at + 5, count


def read_rows(incoming: Incoming, reader: RowReader, begin: tuple[int, int] | None = None) -> list[Result]:
    """Return the rows of a reply; ``begin`` is the result of :func:`rows_begin`, if that was called."""
    at, count = rows_begin(incoming) if begin is None else begin
    data = incoming.data
    rows: list[Result] = []
    while len(rows) < count:
        try:
            result, at = reader(data, at)
        except (TooShort, IndexError):
            data, at = incoming.more(at), 0
        else:
            rows.append(result)
    ended(incoming, at)
    return rows


def read_row(incoming: Incoming, reader: RowReader) -> Result:
    """Return the row of a reply."""
    at, kind = _success(incoming)
    if kind != _STRUCT:
        raise NotOurs
    data = incoming.data
    while True:
        try:
            result, at = reader(data, at)
        except (TooShort, IndexError):
            data, at = incoming.more(at), 0
        else:
            ended(incoming, at)
            return result


def _success(incoming: Incoming) -> tuple[int, int]:
    """Return the offset and the type of the value of a successful reply. No bytes are dropped, for thriftpy2.

    NotOurs when it is another message than the reply to this call, or has no value.
    """
    head, data = incoming.head, incoming.data
    at = len(head)
    while len(data) < at + 3:
        # Compare before waiting for more bytes: another message may be shorter than the expected head.
        if not head.startswith(data[:at]) or (len(data) > at and data[at] == _STOP):
            raise NotOurs
        data = incoming.more(0)
    if not data.startswith(head):
        raise NotOurs
    kind, number = _field.unpack_from(data, at)
    if number != 0 or kind == _STOP:
        raise NotOurs
    return at + 3, kind


def ended(incoming: Incoming, at: int) -> None:
    """Check that the message ends after the value."""
    data = incoming.data
    while len(data) <= at:
        data, at = incoming.more(at), 0
    if data[at] != _STOP:
        raise ConnectionError("the gateway's answer does not end where it should")
    incoming.end(at + 1)


def _expected(data: bytes, at: int, number: int) -> tuple[bytes, int]:
    kind, found, size = _binary_field.unpack_from(data, at)
    if kind != _BINARY or found != number:
        raise TooShort("not in the order that is read quickly")
    if size < 0:
        raise _negative(size)
    end = at + 7 + size
    return data[at + 7 : end], end


# -- anything else, field by field ---------------------------------------------------------------------------------


def _struct(data: bytes, at: int, depth: int = _DEPTH_MAX) -> tuple[dict[tuple[int, int], Any], int]:
    """Return a struct's values by number and type, and where it ends.

    A field with another type than the protocol's is an unknown field, as in libthrift.
    """
    if depth <= 0:
        raise ConnectionError(f"the gateway sent a row of more than {_DEPTH_MAX} structs and containers in each other")
    fields: dict[tuple[int, int], Any] = {}
    while data[at] != _STOP:
        kind, number = _field.unpack_from(data, at)
        fields[number, kind], at = _value(data, at + 3, kind, depth - 1)
    return fields, at + 1


def _value(data: bytes, at: int, kind: int, depth: int) -> tuple[Any, int]:
    fixed = _FIXED.get(kind)
    if fixed is not None:
        return fixed.unpack_from(data, at)[0], at + fixed.size
    if kind == _BINARY:
        end = at + 4 + _size(data, at)
        if end > len(data):
            raise IndexError
        return data[at + 4 : end], end
    if depth <= 0:
        raise ConnectionError(f"the gateway sent a row of more than {_DEPTH_MAX} structs and containers in each other")
    if kind == _STRUCT:
        return _struct(data, at, depth)
    if kind in (_LIST, _SET):
        of, count = _container.unpack_from(data, at)
        return _list(data, at + 5, of, _possible(count, data, at), depth - 1)
    if kind == _MAP:
        of_key, of_value, count = _map_container.unpack_from(data, at)
        return _map(data, at + 6, (of_key, of_value), _possible(count, data, at), depth - 1)
    raise ConnectionError(f"the gateway sent a value of the unknown type {kind}")


def _possible(count: int, data: bytes, at: int) -> int:
    """Return a count; TooShort if fewer bytes have arrived, because each value takes at least one."""
    if count < 0:
        raise ConnectionError(f"the gateway sent a container of {count} values")
    if count > len(data) - at:
        raise IndexError
    return count


def _list(data: bytes, at: int, kind: int, count: int, depth: int) -> tuple[list[Any], int]:
    values: list[Any] = []
    for _ in range(count):
        begun = at
        value, at = _value(data, at, kind, depth)
        if kind == _STRUCT and at - begun == 1:  # one byte would become a dict; HBase has no empty struct
            raise ConnectionError("the gateway sent a list of empty structs")
        values.append(value)
    return values, at


def _map(data: bytes, at: int, kinds: tuple[int, int], count: int, depth: int) -> tuple[dict[Any, Any], int]:
    of_key, of_value = kinds
    if count and of_key not in _FIXED and of_key != _BINARY:
        raise ConnectionError(f"the gateway sent a map with keys of type {of_key}")
    values: dict[Any, Any] = {}
    for _ in range(count):
        key, at = _value(data, at, of_key, depth)
        values[key], at = _value(data, at, of_value, depth)
    return values, at


def _required(fields: object, number: int) -> bytes:
    """Return a field of a cell that is bytes."""
    value = fields.get((number, _BINARY)) if isinstance(fields, dict) else None
    if not isinstance(value, bytes):
        raise ConnectionError(f"the gateway sent a cell without its field {number}")
    return value


def _size(data: bytes, at: int) -> int:
    size: int = _int.unpack_from(data, at)[0]
    if size < 0:
        raise _negative(size)
    return size


def _negative(size: int) -> ConnectionError:
    return ConnectionError(f"the gateway sent a value of {size} bytes")
