"""Encodes the arguments of the most frequent calls in Thrift's binary protocol; ``binary`` reads the replies.

The bytes are the same as thriftpy2's: a test compares the two. ``link.Link`` puts the head of the message, with the
call's sequence id, before them.
"""

from __future__ import annotations

from collections.abc import Sequence
from struct import Struct
from typing import TYPE_CHECKING

from metaclient.backend import PutPage
from metaclient.model import LATEST_TIMESTAMP, Cell, Durability, Put, PutCells
from metaclient.wire.cell_arrays import cells_per_row, joined, numbers, sizes, together

if TYPE_CHECKING:
    import pyarrow

__all__ = [
    "encode_get1",
    "encode_get2",
    "encode_gets2",
    "encode_put1",
    "encode_put2",
    "encode_put_page2",
    "encode_puts2",
]

_BINARY = 11
_int = Struct(">i")
_map_container = Struct(">bbi")

_EMPTY_MAP = _map_container.pack(_BINARY, _BINARY, 0)


def encode_get2(table: bytes, row: bytes) -> bytes:
    """Return the arguments of Thrift 2's ``get`` of a whole row."""
    pack = _int.pack
    return b"\x0b\0\1%b%b\x0c\0\2\x0b\0\1%b%b\0\0" % (pack(len(table)), table, pack(len(row)), row)


def encode_gets2(table: bytes, rows: Sequence[bytes], options: bytes = b"") -> bytes:
    """Return the arguments of Thrift 2's ``getMultiple``; ``options`` are the fields of each get after its row."""
    pack, end = _int.pack, options + b"\0"
    heads = {size: b"\x0b\0\1" + pack(size) for size in set(map(len, rows))}
    parts = [part for row in rows for part in (heads[len(row)], row, end)]
    return b"\x0b\0\1%b%b\x0f\0\2\x0c%b%b\0" % (pack(len(table)), table, pack(len(rows)), b"".join(parts))


def encode_put2(table: bytes, put: Put) -> bytes:
    """Return the arguments of Thrift 2's ``put``."""
    pack, row = _int.pack, put.row
    parts = [b"\x0b\0\1", pack(len(table)), table, b"\x0c\0\2\x0b\0\1", pack(len(row)), row]
    parts += (b"\x0f\0\2\x0c", pack(len(put.cells)))
    for column, timestamp, value, _ in put.cells:
        family, _, qualifier = column.partition(b":")
        parts.append(
            b"\x0b\0\1%b%b\x0b\0\2%b%b\x0b\0\3%b%b"
            % (pack(len(family)), family, pack(len(qualifier)), qualifier, pack(len(value)), value)
        )
        parts.append(b"\0" if timestamp == LATEST_TIMESTAMP else b"\x0a\0\4%b\0" % timestamp.to_bytes(8, "big"))
    parts += (_ending(put.durability, put.ttl_ms), b"\0")
    return b"".join(parts)


def encode_puts2(table: bytes, puts: Sequence[Put]) -> bytes:
    """Return the arguments of Thrift 2's ``putMultiple``."""
    parts = [b"\x0b\0\1", _int.pack(len(table)), table, b"\x0f\0\2\x0c", _int.pack(len(puts))]
    add = parts.append
    written = _PutWriter()
    for put in puts:
        cells = put.cells
        add(written.by_columns(put.row, cells) if type(cells) is PutCells else written.by_cells(put.row, cells))
        add(_ending(put.durability, put.ttl_ms))
    add(b"\0")
    return b"".join(parts)


def encode_put_page2(table: bytes, page: PutPage) -> bytes:
    """Return the arguments of Thrift 2's ``putMultiple`` for a page, with one timestamp per put and none per cell."""
    counts = numbers(cells_per_row(page).astype(">i4"))
    parts: list[pyarrow.LargeBinaryArray | bytes] = [b"\x0b\0\1", *_sized(page.rows), b"\x0f\0\2\x0c", counts]
    for column, values in zip(page.columns, page.values, strict=True):
        cell = (_column_head(column), *_sized(values), b"\0")
        parts += (joined(*cell),) if values.null_count else cell
    parts += (b"\x0a\0\3", numbers(page.timestamps.to_numpy().astype(">i8")), _ending(page.durability, page.ttl_ms))
    head = (b"\x0b\0\1", _int.pack(len(table)), table, b"\x0f\0\2\x0c", _int.pack(len(page)))
    return b"".join((*head, together(joined(*parts)), b"\0"))


def _sized(array: pyarrow.LargeBinaryArray) -> tuple[pyarrow.LargeBinaryArray, pyarrow.LargeBinaryArray]:
    return numbers(sizes(array).astype(">i4")), array


def _column_head(column: bytes) -> bytes:
    """Return the bytes of a cell before its value."""
    family, _, qualifier = column.partition(b":")
    return b"\x0b\0\1%b%b\x0b\0\2%b%b\x0b\0\3" % (
        _int.pack(len(family)), family, _int.pack(len(qualifier)), qualifier
    )  # fmt: skip


class _PutWriter:
    """Encodes puts up to the end of their cells. It reuses columns and timestamps, which most rows share."""

    def __init__(self) -> None:
        self._heads: dict[bytes, bytes] = {}
        self._stamp, self._ending = LATEST_TIMESTAMP, b"\0"
        self._columns: tuple[bytes, ...] | None = None
        self._stamps: tuple[int, ...] | None = None
        self._template = b""

    def by_columns(self, row: bytes, cells: PutCells) -> bytes:
        if cells.columns is not self._columns or cells.timestamps is not self._stamps:
            self._columns, self._stamps = cells.columns, cells.timestamps
            ends = [b"\x0f\0\2\x0c" + _int.pack(len(cells.columns)), *map(self._ended, cells.timestamps)]
            heads = [*map(self._head, cells.columns), b""]
            constants = [end + head for end, head in zip(ends, heads, strict=True)]
            self._template = b"%b%b".join([b"\x0b\0\1", *(one.replace(b"%", b"%%") for one in constants)])
        pack = _int.pack
        sized = [part for value in cells.values for part in (pack(len(value)), value)]
        return self._template % (pack(len(row)), row, *sized)

    def by_cells(self, row: bytes, cells: Sequence[Cell]) -> bytes:
        pack = _int.pack
        parts = [b"\x0b\0\1%b%b\x0f\0\2\x0c%b" % (pack(len(row)), row, pack(len(cells)))]
        for column, stamp, value, _ in cells:
            head = self._heads.get(column) or self._head(column)
            ending = self._ending if stamp == self._stamp else self._ended(stamp)
            parts.append(b"%b%b%b%b" % (head, pack(len(value)), value, ending))
        return b"".join(parts)

    def _head(self, column: bytes) -> bytes:
        head = self._heads[column] = _column_head(column)
        return head

    def _ended(self, stamp: int) -> bytes:
        self._stamp = stamp
        self._ending = b"\0" if stamp == LATEST_TIMESTAMP else b"\x0a\0\4%b\0" % stamp.to_bytes(8, "big")
        return self._ending


def _ending(durability: Durability, ttl_ms: int | None) -> bytes:
    """Return the bytes after a put's cells and its timestamp."""
    if ttl_ms is None and durability is Durability.USE_DEFAULT:
        return b"\0"
    parts = []
    if ttl_ms is not None:
        parts.append(b"\x0d\0\5\x0b\x0b\0\0\0\1\0\0\0\4_ttl\0\0\0\x08" + ttl_ms.to_bytes(8, "big"))
    if durability is not Durability.USE_DEFAULT:
        parts.append(b"\x08\0\6" + _int.pack(durability.value))
    return b"".join(parts) + b"\0"


def encode_get1(table: bytes, row: bytes) -> bytes:
    """Return the arguments of Thrift 1's ``getRowWithColumns``, without columns."""
    pack = _int.pack
    return b"\x0b\0\1%b%b\x0b\0\2%b%b\x0d\0\4%b\0" % (pack(len(table)), table, pack(len(row)), row, _EMPTY_MAP)


def encode_put1(table: bytes, put: Put) -> bytes:
    """Return the arguments of Thrift 1's ``mutateRows`` for one row at the server's time."""
    pack, row = _int.pack, put.row
    end = b"\x02\0\4%b\0" % (b"\0" if put.durability is Durability.SKIP_WAL else b"\1")
    parts = [b"\x0b\0\1", pack(len(table)), table, b"\x0f\0\2\x0c", pack(1)]
    parts += (b"\x0b\0\1", pack(len(row)), row, b"\x0f\0\2\x0c", pack(len(put.cells)))
    for column, _, value, _ in put.cells:
        parts.append(
            b"\x02\0\1\0\x0b\0\2%b%b\x0b\0\3%b%b%b" % (pack(len(column)), column, pack(len(value)), value, end)
        )
    parts += (b"\0\x0d\0\3", _EMPTY_MAP, b"\0")
    return b"".join(parts)
