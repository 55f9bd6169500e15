"""Reads by hand the replies that most calls get, in Thrift's binary protocol; ``requests`` writes the calls.

thriftpy2 makes an object of every cell, of which we would make a ``Cell`` at once. Read by hand, a page costs half of
that, and the columns of one row are the same bytes objects as those of the row before. Two rules keep it honest:

1. The quick way knows one order of fields, the one that HBase's gateways write. Whatever else arrives is read field by
   field (:func:`_struct`); an error, or a message that is none of ours, is left to thriftpy2 with the same bytes.
2. A reply has no length. Whatever runs into the end of what has arrived is read again when more has.

Everything here is about bytes: sockets and errors are others' business.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from struct import Struct
from struct import error as TooShort
from typing import Any, Protocol, TypeAlias

from metaclient.model import Cell, CellType, Result

__all__ = ["Incoming", "NotOurs", "RowReader", "Rows1", "Rows2", "read_row", "read_rows"]

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
_REPLY = 0x80010002
_uint = Struct(">I")
_int = Struct(">i")
_field = Struct(">bh")
_binary_field = Struct(">bhi")
_list_field = Struct(">bhbi")
_map_field = Struct(">bhbbi")
_container = Struct(">bi")
_map_container = Struct(">bbi")


class NotOurs(Exception):
    """The message is not what this module reads: an error, or something unknown."""


class Incoming(Protocol):
    """A reply as it arrives."""

    data: bytes

    def more(self, at: int) -> bytes:
        """Wait for more; what stands before ``at`` is dropped, so that this becomes 0."""
        ...


# -- replies -------------------------------------------------------------------------------------------------------

#: Reads one row at an offset: the result, and the offset after it. Raises TooShort or IndexError when it is not whole.
RowReader: TypeAlias = Callable[[bytes, int], tuple[Result, int]]


class _Rows(ABC):
    """Reads rows one after the other; remembers the shape of the last one, because the next is mostly like it."""

    def __init__(self) -> None:
        self._heads: list[bytes] = []
        self._columns: list[bytes] = []

    def __call__(self, data: bytes, at: int) -> tuple[Result, int]:
        """One row at an offset, and the offset after it; TooShort or IndexError when it is not whole."""
        try:
            found = self._quick(data, at)
        except (TooShort, IndexError):
            found = None
        return self._careful(data, at) if found is None else found

    @abstractmethod
    def _quick(self, data: bytes, at: int) -> tuple[Result, int] | None:
        """None when the fields are not in the order that is known."""

    @abstractmethod
    def _careful(self, data: bytes, at: int) -> tuple[Result, int]: ...

    def _remember(self, index: int, head: bytes, column: bytes) -> None:
        del self._heads[index:], self._columns[index:]
        self._heads.append(head)
        self._columns.append(column)


class Rows2(_Rows):
    """``TResult`` of Thrift 2. Fields in order: row, columnValues, stale, partial."""

    _time = Struct(">3sq5s")
    _TIME, _END = b"\x0a\0\4", b"\x03\0\6\x04\0"
    _FRESH, _STALE = b"\x02\0\3\0\x02\0\4\0\0", b"\x02\0\3\1\x02\0\4\0\0"

    def _quick(self, data: bytes, at: int) -> tuple[Result, int] | None:
        row, at = _expected(data, at, 1)
        if _list_field.unpack_from(data, at)[:3] != (_LIST, 2, _STRUCT):
            return None
        count = _list_field.unpack_from(data, at)[3]
        at += 8
        cells: list[Cell] = []
        heads, columns, length, time = self._heads, self._columns, _int.unpack_from, self._time.unpack_from
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
            end = at + 4 + length(data, at)[0]
            value = data[at + 4 : end]
            head, timestamp, tail = time(data, end)
            if head != self._TIME or tail != self._END:
                return None
            at = end + 16
            cells.append(_new(Cell, (column, timestamp, value, _PUT)))
        is_stale = data.startswith(self._STALE, at)
        if not is_stale and not data.startswith(self._FRESH, at):
            return None
        return _new(Result, (row, cells, is_stale, False, None, None)), at + 9

    @staticmethod
    def _column(data: bytes, at: int) -> tuple[bytes, int]:
        """Family and qualifier, up to the length of the value."""
        family, at = _expected(data, at, 1)
        qualifier, at = _expected(data, at, 2)
        if _field.unpack_from(data, at) != (_BINARY, 3):
            raise TooShort("not in the order that is read quickly")
        return family + b":" + qualifier, at + 3

    def _careful(self, data: bytes, at: int) -> tuple[Result, int]:
        fields, at = _struct(data, at)
        cells = [
            Cell(one[1] + b":" + one[2], one.get(4, 0), one[3], _TYPES.get(one.get(6, _PUT), _PUT))
            for one in fields.get(2, ())
        ]
        return Result(fields.get(1, b""), cells, bool(fields.get(3)), bool(fields.get(4))), at


class Rows1(_Rows):
    """``TRowResult`` of Thrift 1. Fields in order: row, columns; a gateway's order of columns is not HBase's."""

    _time = Struct(">3sqb")
    _TIME = b"\x0a\0\2"

    def _quick(self, data: bytes, at: int) -> tuple[Result, int] | None:
        row, at = _expected(data, at, 1)
        *kinds, count = _map_field.unpack_from(data, at)
        if kinds != [_MAP, 2, _BINARY, _STRUCT]:
            return None
        at += 9
        cells: list[Cell] = []
        heads, columns, length, time = self._heads, self._columns, _int.unpack_from, self._time.unpack_from
        known = len(heads)
        for index in range(count):
            if index < known and data.startswith(heads[index], at):
                column = columns[index]
                at += len(heads[index])
            else:
                begun = at
                size = length(data, at)[0]
                column, at = data[at + 4 : at + 4 + size], at + 4 + size
                if _field.unpack_from(data, at) != (_BINARY, 1):
                    return None
                at += 3
                self._remember(index, data[begun:at], column)
                known = index + 1
            end = at + 4 + length(data, at)[0]
            value = data[at + 4 : end]
            head, timestamp, stop = time(data, end)
            if head != self._TIME or stop != _STOP:
                return None
            at = end + 12
            cells.append(_new(Cell, (column, timestamp, value, _PUT)))
        if data[at] != _STOP:
            return None
        cells.sort()
        return _new(Result, (row, cells, False, False, None, None)), at + 1

    def _careful(self, data: bytes, at: int) -> tuple[Result, int]:
        fields, at = _struct(data, at)
        cells = [Cell(column, cell.get(2, 0), cell[1]) for column, cell in sorted(fields.get(2, {}).items())]
        return Result(fields.get(1, b""), cells), at


def read_rows(incoming: Incoming, reader: RowReader) -> list[Result]:
    """A reply whose success is a list of rows; NotOurs before anything is consumed when it is something else."""
    at, kind = _success(incoming)
    if kind != _LIST:
        raise NotOurs
    data = incoming.data
    while len(data) < at + 5:
        data, at = incoming.more(at), 0
    of, count = _container.unpack_from(data, at)
    if of != _STRUCT or count < 0:
        raise NotOurs
    at += 5
    rows: list[Result] = []
    while len(rows) < count:
        try:
            result, at = reader(data, at)
        except (TooShort, IndexError):
            data, at = incoming.more(at), 0
        else:
            rows.append(result)
    _ended(incoming, at)
    return rows


def read_row(incoming: Incoming, reader: RowReader) -> Result:
    """A reply whose success is one row."""
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
            _ended(incoming, at)
            return result


def _success(incoming: Incoming) -> tuple[int, int]:
    """Where the value of a successful reply begins, and its type. Nothing is dropped: thriftpy2 may have to read it."""
    while True:
        data = incoming.data
        try:
            (version,) = _uint.unpack_from(data, 0)
            at = 8 + _int.unpack_from(data, 4)[0] + 4
            kind, number = _field.unpack_from(data, at)
        except TooShort:
            if len(data) >= 4 and _uint.unpack_from(data, 0)[0] != _REPLY:
                raise NotOurs from None
            incoming.more(0)
            continue
        if version != _REPLY or number != 0 or kind == _STOP:
            raise NotOurs
        return at + 3, kind


def _ended(incoming: Incoming, at: int) -> None:
    """After the value comes the end of the message, and nothing else."""
    data = incoming.data
    while len(data) <= at:
        data, at = incoming.more(at), 0
    if len(data) != at + 1 or data[at] != _STOP:
        raise ConnectionError("the gateway sent more than one answer")


def _expected(data: bytes, at: int, number: int) -> tuple[bytes, int]:
    kind, found, size = _binary_field.unpack_from(data, at)
    if kind != _BINARY or found != number:
        raise TooShort("not in the order that is read quickly")
    end = at + 7 + size
    return data[at + 7 : end], end


# -- anything else, field by field ---------------------------------------------------------------------------------


def _struct(data: bytes, at: int) -> tuple[dict[int, Any], int]:
    """Field number -> value, and where the struct ends."""
    fields: dict[int, Any] = {}
    while data[at] != _STOP:
        kind, number = _field.unpack_from(data, at)
        fields[number], at = _value(data, at + 3, kind)
    return fields, at + 1


def _value(data: bytes, at: int, kind: int) -> tuple[Any, int]:
    fixed = _FIXED.get(kind)
    if fixed is not None:
        return fixed.unpack_from(data, at)[0], at + fixed.size
    if kind == _BINARY:
        end = at + 4 + _size(data, at)
        if end > len(data):
            raise IndexError
        return data[at + 4 : end], end
    if kind == _STRUCT:
        return _struct(data, at)
    if kind in (_LIST, _SET):
        of, count = _container.unpack_from(data, at)
        return _many(data, at + 5, (of,) * _possible(count, data))
    if kind == _MAP:
        of_key, of_value, count = _map_container.unpack_from(data, at)
        flat, at = _many(data, at + 6, (of_key, of_value) * _possible(count, data))
        return dict(zip(flat[::2], flat[1::2], strict=True)), at
    raise ConnectionError(f"the gateway sent a value of the unknown type {kind}")


def _possible(count: int, data: bytes) -> int:
    """Each takes a byte at least: what cannot have arrived yet is not made room for."""
    if count > len(data):
        raise IndexError
    return count


def _many(data: bytes, at: int, kinds: Sequence[int]) -> tuple[list[Any], int]:
    values: list[Any] = []
    for kind in kinds:
        value, at = _value(data, at, kind)
        values.append(value)
    return values, at


def _size(data: bytes, at: int) -> int:
    size: int = _int.unpack_from(data, at)[0]
    if size < 0:
        raise ConnectionError(f"the gateway sent a value of {size} bytes")
    return size
