"""Decodes pages of a Thrift 2 scan into Arrow, without a Python object per cell.

A page has no index: the offset of a row is known only at the end of the row before. But every row and every cell begins
with the same three bytes. So numpy finds all offsets with these bytes, computes for each where the row or cell would
end, and *then* checks that they form one chain from the first byte of the page to its last. A chain without a gap is
the only way to read the page, even if these three bytes occur inside of a value. Without such a chain (fields in
another order, tags, rows in pieces), the page is read row by row, as :mod:`metaclient_thrift.binary` does.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from metaclient.model import Result
from metaclient.wire.cell_arrays import COLUMNS, batch_of_results, libraries, slices, taken
from metaclient_thrift.binary import Incoming, RowReader, TooShort, ended, read_rows, rows_begin

if TYPE_CHECKING:
    import pyarrow

__all__ = ["CellRows", "cells_of_rows", "read_cells"]

# Heads of fields: type and number. The row of a TResult and the family of a TColumnValue have the same.
_FIRST = 0x0B0001
_CELLS = 0x0F00020C
_QUALIFIER = 0x0B0002
_VALUE = 0x0B0003
_TIMESTAMP = 0x0A0004
_TYPE = 0x030006
#: After the cells of a row: stale, partial (it is not), and the end of the struct.
_TAIL = (2, 0, 3, 0, 2, 0, 4, 0, 0)
_STALE_AT = 3
_TAIL_BYTES = len(_TAIL)
#: The last row of a page ends with at least so many bytes, so no row or cell begins later.
_REST_BYTES = 16
#: Offsets in Arrow are numbers of 32 bits.
_BYTES_MAX = 0x7FFFFFFF
#: A page that seems whole is tried this often before it is read row by row.
_LOOKS_MAX = 4
#: False beginnings are removed in this many rounds, as one may follow another.
_ROUNDS_MAX = 4


@dataclass(frozen=True, slots=True)
class CellRows:
    """Rows as cells in Arrow (``cell_arrays.COLUMNS``)."""

    cells: pyarrow.RecordBatch
    rows: int
    first_row: bytes
    last_row: bytes
    is_stale: bool

    @classmethod
    def of(cls, results: Sequence[Result]) -> CellRows:
        """Return the cells of rows that were read one by one."""
        first, last = (results[0].row, results[-1].row) if results else (b"", b"")
        return cls(batch_of_results(results), len(results), first, last, any(one.is_stale for one in results))


def read_cells(incoming: Incoming, reader: RowReader) -> CellRows:
    """Return the rows of a reply as cells; see :func:`~metaclient_thrift.binary.read_rows`."""
    at, count = rows_begin(incoming)
    data = incoming.data
    for _ in range(_LOOKS_MAX if count else 0):
        # The last struct and the message end with zeros: bytes with another end are not the whole reply.
        while not data.endswith(b"\0\0"):
            data, at = incoming.more(at), 0
        found = cells_of_rows(data, at, count)
        if found is not None:
            ended(incoming, found[1])
            return found[0]
        if _is_whole(data, at, count, reader):
            break
        data, at = incoming.more(at), 0
    return CellRows.of(read_rows(incoming, reader, (at, count)))


def _is_whole(data: bytes, at: int, count: int, reader: RowReader) -> bool:
    """Return True if all rows have arrived: a read may wait for more bytes only if more must come."""
    try:
        for _ in range(count):
            _, at = reader(data, at)
    except (TooShort, IndexError):
        return False
    return True


def cells_of_rows(data: bytes, at: int, count: int) -> tuple[CellRows, int] | None:
    """Return ``count`` rows (at least one) at an offset, and the offset after them; None if they form no chain."""
    if len(data) > _BYTES_MAX:
        return None
    np, _ = libraries()
    block = np.frombuffer(data, dtype=np.uint8)
    chain = _chain(np, _Elements.found(np, block, at), at)
    if chain is None:
        return None
    rows = np.flatnonzero(chain.is_row)
    cells = np.diff(rows, append=len(chain.is_row)) - 1
    is_last = np.append(chain.is_row[1:], True)  # of its row
    if len(rows) != count or (cells != chain.counts[rows]).any():
        return None
    if ((chain.follower != chain.end) != is_last).any():
        return None
    tails = taken(np, block, chain.end[is_last], _TAIL_BYTES)
    is_stale = tails[:, _STALE_AT] != 0
    tails[:, _STALE_AT] = 0
    if (tails != _TAIL).any():
        return None
    return _made(np, data, block, chain, rows, bool(is_stale.any())), int(chain.follower[-1])


@dataclass(frozen=True, slots=True)
class _Elements:
    """Possible beginnings of rows and cells: arrays of the same length, in order of their offsets."""

    start: Any
    second: Any  # the end of its first field: a row's key, a cell's family
    is_row: Any
    counts: Any  # a row's number of cells, the length of a cell's qualifier
    value: Any  # of a cell: where its value's head begins, and where its value ends
    value_end: Any
    end: Any
    follower: Any  # where the next one must begin

    @classmethod
    def found(cls, np: Any, block: Any, at: int) -> _Elements:
        """Return all possible beginnings in the bytes from ``at`` on."""
        last = len(block) - _REST_BYTES
        start = np.flatnonzero(block[at : max(last, at)] == _FIRST >> 16) + at
        start = start[_words(np, block, start) >> 8 == _FIRST]
        second = start + 7 + _words(np, block, start + 3)
        start, second = _kept(second <= last, start, second)
        head = _words(np, block, second)
        is_row = head == _CELLS
        start, second, is_row = _kept(is_row | (head >> 8 == _QUALIFIER), start, second, is_row)
        counts = _words(np, block, second + np.where(is_row, 4, 3))
        value = np.where(is_row, second, second + 7 + counts)
        start, second, is_row, counts, value = _kept(value <= last, start, second, is_row, counts, value)
        value_end = np.where(is_row, value, value + 7 + _words(np, block, value + 3))
        is_good = (is_row | (_words(np, block, value) >> 8 == _VALUE)) & (value_end <= last)
        arrays = _kept(is_good, start, second, is_row, counts, value, value_end)
        start, second, is_row, counts, value, value_end = arrays
        is_cell = _words(np, block, value_end) >> 8 == _TIMESTAMP
        is_cell &= _words(np, block, value_end + 11) >> 8 == _TYPE
        is_cell &= block[value_end + 15] == 0
        end = value_end + np.where(is_row, 8, 16)
        is_good = (is_row | is_cell) & (end < len(block) - _TAIL_BYTES)
        arrays = _kept(is_good, start, second, is_row, counts, value, value_end, end)
        start, second, is_row, counts, value, value_end, end = arrays
        follower = end + np.where(block[end] == _TAIL[0], _TAIL_BYTES, 0)
        return cls(start, second, is_row, counts, value, value_end, end, follower)

    def where(self, is_kept: Any) -> _Elements:
        return _Elements(*(getattr(self, name)[is_kept] for name in self.__slots__))


def _kept(is_kept: Any, *arrays: Any) -> tuple[Any, ...]:
    return arrays if is_kept.all() else tuple(one[is_kept] for one in arrays)


def _words(np: Any, block: Any, at: Any) -> Any:
    """Return the four bytes at each offset as a number."""
    return taken(np, block, at, 4).view(">u4").ravel().astype(np.int64)


def _chain(np: Any, elements: _Elements, at: int) -> _Elements | None:
    """Return the elements from ``at`` on of which each begins where the one before ends; None if there is a gap."""
    for _ in range(_ROUNDS_MAX):
        start, follower = elements.start, elements.follower
        if not len(start) or start[0] != at:
            return None
        if (start[1:] == follower[:-1]).all():
            return elements
        elements = elements.where((start == at) | np.isin(start, follower))
    return None


def _made(np: Any, data: bytes, block: Any, chain: _Elements, rows: Any, is_stale: bool) -> CellRows:
    _, arrow = libraries()
    keys = np.empty(2 * len(rows), dtype=np.int32)
    keys[0::2], keys[1::2] = chain.start[rows] + 7, chain.second[rows]
    cells = chain.where(~chain.is_row)
    borders = np.empty(6 * len(cells.start), dtype=np.int32)
    borders[0::6], borders[1::6] = cells.start + 7, cells.second
    borders[2::6], borders[3::6] = cells.second + 7, cells.value
    borders[4::6], borders[5::6] = cells.value + 7, cells.value_end
    rest = taken(np, block, cells.value_end, 16)
    timestamps = np.ascontiguousarray(rest[:, 3:11]).view(">i8").ravel().astype(np.int64)
    every_sixth = np.arange(0, len(borders), 6)
    row = slices(data, keys, arrow.array(np.repeat(np.arange(0, len(keys), 2), chain.counts[rows])))
    found = slices(data, borders, arrow.array(np.concatenate([every_sixth, every_sixth + 2, every_sixth + 4])))
    count = len(every_sixth)
    family, qualifier, value = (found.slice(number * count, count) for number in range(3))
    columns = [row, family, qualifier, arrow.array(timestamps), arrow.array(rest[:, 14].copy()), value]
    batch = arrow.RecordBatch.from_arrays(columns, names=list(COLUMNS))
    first, last = (data[keys[at] : keys[at + 1]] for at in (0, -2 % len(keys)))
    return CellRows(batch, len(rows), first, last, is_stale)
