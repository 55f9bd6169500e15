"""Decodes the data block encodings PREFIX, DIFF, FAST_DIFF and ROW_INDEX_V1 to plain cells, cell by cell.

The first three store what differs from the cell before. Their cells are rebuilt in Python, about 20 times as slowly as
plain blocks are read. The classes of HBase (2.6.1) are PrefixKeyDeltaEncoder, DiffKeyDeltaEncoder,
FastDiffDeltaEncoder and RowIndexCodecV1.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Final

from metaclient.hfile.errors import CorruptFile
from metaclient.hfile.key_values import CellLayout
from metaclient.hfile.vints import SIZES

__all__ = ["ENCODINGS", "decode_encoded"]

_LENGTHS = struct.Struct(">ii")
_TAIL_BYTES = 9
_ID_BYTES = 2
#: The length of the plain cells, which is not needed.
_SIZE_BYTES = 4


class _Input:
    """Reads a block from its beginning to its end."""

    __slots__ = ("at", "data", "end", "layout", "where")

    def __init__(self, data: bytes, at: int, layout: CellLayout, where: str) -> None:
        self.data = data
        self.at = at
        self.end = len(data)
        self.layout = layout
        self.where = where

    def torn(self) -> CorruptFile:
        return CorruptFile(f"{self.where}: an encoded block is torn at byte {self.at} of {self.end}")

    def byte(self) -> int:
        self.at += 1
        return self.data[self.at - 1]

    def number(self) -> int:
        """Return a number in groups of 7 bits, the lowest first."""
        value = shift = 0
        while shift <= 28:
            byte = self.byte()
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return value
            shift += 7
        raise self.torn()

    def take(self, count: int) -> bytes:
        if count < 0 or self.at + count > self.end:
            raise self.torn()
        self.at += count
        return self.data[self.at - count : self.at]

    def suffix(self) -> bytes:
        """Return the tags and the sequence id of a cell as plain blocks have them."""
        made = b""
        if self.layout.has_tags:
            size = self.number()
            made = (size & 0xFFFF).to_bytes(2, "big") + self.take(size)
        if self.layout.has_sequence:
            made += self.take(SIZES[self.data[self.at]])
        return made


def _prefix(source: _Input) -> list[bytes]:
    made: list[bytes] = []
    key = b""
    while source.at < source.end:
        rest, value_bytes, common = source.number(), source.number(), source.number()
        if common > len(key):
            raise source.torn()
        key = key[:common] + source.take(rest)
        made += (_LENGTHS.pack(len(key), value_bytes), key, source.take(value_bytes), source.suffix())
    return made


def _key_head(source: _Input, key: bytes, family: bytes, key_bytes: int, common: int) -> bytes:
    """Return row, family and qualifier of a key whose first ``common`` bytes are those of the key before.

    ``family`` has its length before it. It is not stored if the row differs.
    """
    row_end = 2 + int.from_bytes(key[:2], "big") if key else 0
    if key and common >= row_end:
        if common > len(key) - _TAIL_BYTES:
            raise source.torn()
        return key[:common] + source.take(key_bytes - _TAIL_BYTES - common)
    if common > len(key):
        raise source.torn()
    head = key[:common]
    if common < 2:
        head += source.take(2 - common)
    row = head + source.take(2 + int.from_bytes(head[:2], "big") - len(head))
    return row + family + source.take(key_bytes - _TAIL_BYTES - len(row) - len(family))


def _diff(source: _Input) -> list[bytes]:
    made: list[bytes] = []
    size = source.byte()
    family = bytes([size]) + source.take(size)
    key, key_bytes, value_bytes, stamp, kind = b"", 0, 0, 0, b""
    while source.at < source.end:
        flag = source.byte()
        key_bytes = key_bytes if flag & 1 else source.number()
        value_bytes = value_bytes if flag & 2 else source.number()
        head = _key_head(source, key, family, key_bytes, source.number())
        number = int.from_bytes(source.take(((flag >> 4) & 7) + 1), "little")
        number = -number if flag & 0x80 else number
        stamp = stamp - number if flag & 8 else number
        kind = kind if flag & 4 else source.take(1)
        key = head + (stamp & 0xFFFFFFFFFFFFFFFF).to_bytes(8, "big") + kind
        made += (_LENGTHS.pack(key_bytes, value_bytes), key, source.take(value_bytes), source.suffix())
    return made


def _fast_diff(source: _Input) -> list[bytes]:
    made: list[bytes] = []
    key, value, family, key_bytes, value_bytes = b"", b"", b"", 0, 0
    while source.at < source.end:
        flag = source.byte()
        key_bytes = key_bytes if flag & 8 else source.number()
        value_bytes = value_bytes if flag & 16 else source.number()
        common = source.number()
        if not key:
            key, value = source.take(key_bytes), source.take(value_bytes)
            row_end = 2 + int.from_bytes(key[:2], "big")
            family = key[row_end : row_end + 1 + key[row_end]]
        else:
            head = _key_head(source, key, family, key_bytes, common)
            shared = flag & 7
            stamp = key[-_TAIL_BYTES : shared - _TAIL_BYTES] + source.take(8 - shared)
            key = head + stamp + (key[-1:] if flag & 32 else source.take(1))
            value = value if flag & 64 else source.take(value_bytes)
        made += (_LENGTHS.pack(key_bytes, len(value)), key, value, source.suffix())
    return made


def _row_index(source: _Input) -> list[bytes]:
    """Return the plain cells; the offsets of the rows behind them are not needed."""
    size = int.from_bytes(source.data[-4:], "big")
    return [source.take(size)]


_READERS: Final[dict[int, tuple[str, int, Callable[[_Input], list[bytes]]]]] = {
    2: ("PREFIX", _SIZE_BYTES, _prefix),
    3: ("DIFF", _SIZE_BYTES, _diff),
    4: ("FAST_DIFF", _SIZE_BYTES, _fast_diff),
    7: ("ROW_INDEX_V1", 0, _row_index),
}
#: The names of the encodings that can be read.
ENCODINGS: Final = frozenset({"NONE", *(name for name, _, _ in _READERS.values())})


def decode_encoded(data: bytes, layout: CellLayout, where: str) -> bytes:
    """Return the plain cells of an encoded block; CorruptFile if it is torn."""
    known = _READERS.get(int.from_bytes(data[:_ID_BYTES], "big")) if len(data) >= _ID_BYTES else None
    if known is None:
        raise CorruptFile(f"{where}: an encoded block with the unknown encoding {data[:_ID_BYTES].hex()}")
    _, skipped, read = known
    source = _Input(data, _ID_BYTES + skipped, layout, where)
    try:
        return b"".join(read(source))
    except (IndexError, struct.error, OverflowError) as error:
        raise source.torn() from error
