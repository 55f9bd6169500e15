"""Reads pages of Thrift 2 by runs of rows that have the same columns, without a Result per row.

1. One row is read as in :mod:`metaclient_thrift.binary`. If its fields are in the order that gateways write, the names
   of its cells are taken from it.
2. The following rows with the same names and lengths are read together (:mod:`metaclient.wire.fixed_layout`).
3. Rows with the same names and other lengths are read one after the other, into lists.
4. All other rows are read one by one; after each failed attempt more of them before the next attempt.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from itertools import repeat
from struct import Struct

from metaclient.model import Result
from metaclient.row_runs import AlikeRows, RowRuns
from metaclient.wire.fixed_layout import ROW_BYTES_MAX, ROWS_MIN, FixedLayout
from metaclient_thrift.binary import Incoming, RowReader, TooShort, ended, rows_begin

__all__ = ["read_page"]

# Heads of fields: type and number.
_ROW, _CELLS = b"\x0b\0\1", b"\x0f\0\2\x0c"
_FAMILY, _QUALIFIER, _VALUE = b"\x0b\0\1", b"\x0b\0\2", b"\x0b\0\3"
_TIMESTAMP = b"\x0a\0\4"
#: After a timestamp: the type, which is a put, and the end of the cell.
_CELL_END = b"\x03\0\6\x04\0"
#: After the cells: stale or not, not partial, and the end of the row.
_TAILS = {b"\x02\0\3\0\x02\0\4\0\0": False, b"\x02\0\3\1\x02\0\4\0\0": True}
_TAIL_BYTES = 9
_binary = Struct(">3si")  # a head and a length
_list = Struct(">4si")  # a head and a count
_time = Struct(">3sq")
_time_bytes = _time.size
_length = Struct(">i")
#: A row with more cells than this is not compared with the following rows.
_CELLS_MAX = 256
#: How many rows are read one by one after a failed attempt: at first, and at most.
_SINGLE_MIN, _SINGLE_MAX = 4, 256


@dataclass(frozen=True, slots=True)
class _Names:
    """What rows with the same columns share: the bytes before each value's length, and those after the last cell."""

    columns: tuple[bytes, ...]
    #: Before the length of each value: the end of the cell before, and the names of this one.
    heads: tuple[bytes, ...]
    tail: bytes

    @property
    def is_stale(self) -> bool:
        return _TAILS[self.tail[-_TAIL_BYTES:]]


def read_page(incoming: Incoming, reader: RowReader) -> RowRuns:
    """Return the rows of a reply of Thrift 2; see :func:`~metaclient_thrift.binary.read_rows`."""
    at, count = rows_begin(incoming)
    data = incoming.data
    runs: list[AlikeRows | list[Result]] = []
    single: list[Result] = []
    wait, next_wait = 0, _SINGLE_MIN
    while count:
        try:
            row, end = reader(data, at)
        except (TooShort, IndexError):
            data, at = incoming.more(at), 0
            continue
        if wait:
            wait -= 1
        elif count >= ROWS_MIN and (end - at) * ROWS_MIN <= len(data) - at:
            found = _read_run(data, at, end, count)
            if found is not None:
                run, at = found
                runs += [single, run] if single else [run]
                count -= len(run)
                single, next_wait = [], _SINGLE_MIN
                continue
            wait, next_wait = next_wait, min(next_wait * 2, _SINGLE_MAX)
        single.append(row)
        at, count = end, count - 1
    ended(incoming, at)
    return RowRuns([*runs, single] if single else runs)


def _read_run(data: bytes, at: int, end: int, rows_max: int) -> tuple[AlikeRows, int] | None:
    """Return the rows that have the columns of the row ``data[at:end]``, and where they end; None if they are few."""
    try:
        names, key_length, lengths = _describe(data, at, end)
    except TooShort:
        return None
    size = end - at
    if size <= ROW_BYTES_MAX:
        layout = _make_layout(names, key_length, lengths)
        alike = layout.count_alike(data, at, min(rows_max, (len(data) - at) // size))
        if alike >= ROWS_MIN:
            stop = at + alike * size
            return layout.unpack(data, at, stop, is_stale=names.is_stale), stop
    run, stop = _read_named(data, at, names, rows_max)
    return (run, stop) if len(run) >= ROWS_MIN else None


def _describe(data: bytes, at: int, end: int) -> tuple[_Names, int, tuple[int, ...]]:
    """Return the names, the length of the key and the lengths of the values of a row; TooShort for another order."""
    key, at = _field(data, at, _ROW)
    before = at
    head, count = _list.unpack_from(data, at)
    _check(head == _CELLS and 0 < count <= _CELLS_MAX)
    at += _list.size
    columns: list[bytes] = []
    heads: list[bytes] = []
    lengths: list[int] = []
    for _ in repeat(None, count):
        family, at = _field(data, at, _FAMILY)
        qualifier, at = _field(data, at, _QUALIFIER)
        heads.append(data[before : at + len(_VALUE)])
        value, at = _field(data, at, _VALUE)
        _check(data.startswith(_TIMESTAMP, at))
        before = at + _time_bytes
        _check(data.startswith(_CELL_END, before))
        at = before + len(_CELL_END)
        columns.append(family + b":" + qualifier)
        lengths.append(len(value))
    tail = data[before:end]
    _check(at + _TAIL_BYTES == end and tail[-_TAIL_BYTES:] in _TAILS)
    return _Names(tuple(columns), tuple(heads), tail), len(key), tuple(lengths)


def _field(data: bytes, at: int, head: bytes) -> tuple[bytes, int]:
    """Return the bytes of a field and the offset after it; TooShort if another field is there."""
    found, length = _binary.unpack_from(data, at)
    _check(found == head and length >= 0)
    at += _binary.size
    return data[at : at + length], at + length


def _check(is_so: bool) -> None:
    if not is_so:
        raise TooShort("not in the order that is read quickly")


@lru_cache(maxsize=64)  # the pages of a scan share their layouts
def _make_layout(names: _Names, key_length: int, lengths: tuple[int, ...]) -> FixedLayout:
    fixed = [(0, _binary.pack(_ROW, key_length))]
    at = _binary.size + key_length
    values: list[tuple[int, int]] = []
    timestamps: list[int] = []
    for head, length in zip(names.heads, lengths, strict=True):
        fixed.append((at, head + _length.pack(length)))
        at += len(head) + _length.size
        values.append((at, length))
        fixed.append((at + length, _TIMESTAMP))
        timestamps.append(at + length + len(_TIMESTAMP))
        at += length + _time_bytes
    fixed.append((at, names.tail))
    at += len(names.tail)
    key = (_binary.size, key_length)
    return FixedLayout(at, fixed, names.columns, key=key, values=values, timestamps=timestamps)


def _read_named(data: bytes, at: int, names: _Names, rows_max: int) -> tuple[AlikeRows, int]:
    """Return the rows, at most ``rows_max``, that have these names, and where they end."""
    keys: list[bytes] = []
    values: list[list[bytes]] = []
    timestamps: list[list[int]] = []
    for _ in repeat(None, rows_max):
        row_values: list[bytes] = []
        row_timestamps: list[int] = []
        try:
            key, end = _read_cells(data, at, names, row_values, row_timestamps)
        except TooShort:  # other names, or the rest of the row has not arrived
            break
        keys.append(key)
        values.append(row_values)
        timestamps.append(row_timestamps)
        at = end
    run = AlikeRows(
        keys,
        names.columns,
        lambda: map(tuple, values),
        lambda: map(tuple, timestamps),
        is_stale=names.is_stale,
    )
    return run, at


def _read_cells(data: bytes, at: int, names: _Names, values: list[bytes], timestamps: list[int]) -> tuple[bytes, int]:
    """Append values and timestamps of a row; return its key and where it ends. TooShort if it has other names."""
    length_of, time_of, starts_with = _length.unpack_from, _time.unpack_from, data.startswith
    head, length = _binary.unpack_from(data, at)
    if head != _ROW or length < 0:
        raise TooShort
    at += 7
    key = data[at : at + length]
    at += length
    for head in names.heads:
        if not starts_with(head, at):
            raise TooShort
        at += len(head)
        (length,) = length_of(data, at)
        if length < 0:
            raise TooShort
        at += 4
        values.append(data[at : at + length])
        at += length
        head, timestamp = time_of(data, at)
        if head != _TIMESTAMP:
            raise TooShort
        timestamps.append(timestamp)
        at += 11
    if not starts_with(names.tail, at):
        raise TooShort
    return key, at + len(names.tail)
