"""The bytes of a segment of a spool.

A segment is a file: a header of 20 bytes, then records::

    header   8 bytes "MCSPOOL1", the number of the segment (u64), checksum (u32) of both
    record   length of the body (u32), checksum (u32), kind (u8), body
    body     length of the keys (u32), length of the flags (u32), keys, flags, cells

All numbers are big-endian. The keys are the bytes of HBase's ``ReplicateWALEntryRequest``, and the cells those of its
cell block, as they came. A flag (one bit per log entry, the first one in the highest bit) is set for an entry that is
new; without flags, all entries are new. The checksum (CRC-32) of a record also covers the number of the segment and the
record's place in it, so that bytes of another place are never taken for a record.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Sequence
from typing import NamedTuple

from metaclient.errors import MetaClientError

__all__ = [
    "HEADER_BYTES",
    "HEAD_BYTES",
    "RECORD_BYTES_MIN",
    "Position",
    "RecordHead",
    "SpoolError",
    "SpooledCall",
    "decode_body",
    "decode_head",
    "decode_position",
    "encode_position",
    "encode_record",
    "has_header",
    "is_record",
    "segment_header",
    "segment_name",
    "segment_number",
]

_MAGIC = b"MCSPOOL1"
_HEADER = struct.Struct(">8sQI")
_HEAD = struct.Struct(">IIB")
_PLACE = struct.Struct(">QQIB")
_LENGTHS = struct.Struct(">II")
_POSITION = struct.Struct(">QQI")
_CALL = 1
_SUFFIX = ".segment"

#: The place of the first record of a segment.
HEADER_BYTES = _HEADER.size
#: The bytes of a record before its body.
HEAD_BYTES = _HEAD.size
RECORD_BYTES_MIN = _HEAD.size + _LENGTHS.size
#: The largest body: HBase's RPC refuses calls of more than 256 MB (hbase.ipc.max.request.size).
_BODY_BYTES_MAX = 1 << 30


class SpoolError(MetaClientError):
    """The files of a spool are damaged, missing, or not those that were asked for."""


class Position(NamedTuple):
    """A place in the files of one worker; the end of a record, or of the header."""

    segment: int
    byte: int


class RecordHead(NamedTuple):
    """The beginning of a record."""

    length: int
    checksum: int
    kind: int

    @property
    def size(self) -> int:
        """The number of bytes of the whole record."""
        return _HEAD.size + self.length


class SpooledCall(NamedTuple):
    """One call: the keys of log entries, their cells, and which of them are new (None: all)."""

    param: bytes
    cells: bytes
    flags: list[bool] | None

    def __repr__(self) -> str:
        return f"<SpooledCall of {len(self.param)} + {len(self.cells)} bytes>"


def segment_name(number: int) -> str:
    """
    >>> segment_name(7)
    '0000000000000007.segment'
    """
    return f"{number:016d}{_SUFFIX}"


def segment_number(name: str) -> int | None:
    """Return the number of a segment by the name of its file; None for other files."""
    digits = name.removesuffix(_SUFFIX)
    return int(digits) if name.endswith(_SUFFIX) and len(digits) == 16 and digits.isdecimal() else None


def segment_header(number: int) -> bytes:
    return _HEADER.pack(_MAGIC, number, zlib.crc32(_HEADER.pack(_MAGIC, number, 0)[:-4]))


def has_header(data: bytes, number: int) -> bool:
    """Return True if a file begins with the complete header of this segment."""
    return data[:HEADER_BYTES] == segment_header(number)


def encode_record(at: Position, param: bytes, cells: bytes, flags: Sequence[bool] | None = None) -> list[bytes]:
    """Return the parts of a record whose first byte is at this place."""
    packed = b"" if flags is None else _packed(flags)
    lengths = _LENGTHS.pack(len(param), len(packed))
    length = len(lengths) + len(param) + len(packed) + len(cells)
    if length > _BODY_BYTES_MAX:
        raise SpoolError(f"a call of {length} bytes is larger than a spool takes ({_BODY_BYTES_MAX})")
    checksum = _checksum(at, length, _CALL, (lengths, param, packed, cells))
    return [_HEAD.pack(length, checksum, _CALL) + lengths, param, packed, cells]


def decode_head(data: bytes, offset: int = 0) -> RecordHead:
    """Decode the beginning of a record; struct.error if there are too few bytes."""
    return RecordHead(*_HEAD.unpack_from(data, offset))


def is_record(at: Position, head: RecordHead, body: bytes | memoryview) -> bool:
    """Return True if the bytes after a head are the complete body that it announces."""
    return len(body) == head.length and head.checksum == _checksum(at, head.length, head.kind, (body,))


def decode_body(head: RecordHead, body: bytes) -> SpooledCall:
    """Decode a body whose checksum was compared."""
    if head.kind != _CALL:
        raise SpoolError(f"a record of the unknown kind {head.kind}: the spool was written by a later version")
    param_length, flags_length = _LENGTHS.unpack_from(body)
    keys_end = _LENGTHS.size + param_length
    flags_end = keys_end + flags_length
    packed = body[keys_end:flags_end]
    flags = _unpacked(packed) if flags_length else None
    return SpooledCall(body[_LENGTHS.size : keys_end], body[flags_end:], flags)


def encode_position(position: Position) -> bytes:
    return _POSITION.pack(*position, zlib.crc32(_POSITION.pack(*position, 0)[:-4]))


def decode_position(data: bytes) -> Position | None:
    """Return a stored position; None if its bytes are torn."""
    if len(data) != _POSITION.size:
        return None
    segment, byte, _ = _POSITION.unpack(data)
    found = Position(segment, byte)
    return found if encode_position(found) == data else None


def _checksum(at: Position, length: int, kind: int, parts: Sequence[bytes | memoryview]) -> int:
    made = zlib.crc32(_PLACE.pack(at.segment, at.byte, length, kind))
    for part in parts:
        made = zlib.crc32(part, made)
    return made


def _packed(flags: Sequence[bool]) -> bytes:
    """Return the flags as bits, after their number.

    >>> _unpacked(_packed([True, False, True]))
    [True, False, True]
    """
    bits = int("".join("1" if flag else "0" for flag in flags) or "0", 2)
    return len(flags).to_bytes(4, "big") + bits.to_bytes((len(flags) + 7) // 8, "big")


def _unpacked(data: bytes) -> list[bool]:
    count = int.from_bytes(data[:4], "big")
    bits = int.from_bytes(data[4:], "big")
    return [digit == "1" for digit in f"{bits:0{count}b}"] if count else []
