"""Blocks of an HFile (format 3): header, data, checksums.

::

    8 bytes magic | int32 bytes behind the header | int32 bytes of the uncompressed data
    int64 offset of the previous block of this type | int8 checksum's type | int32 bytes per checksum
    int32 bytes of header and data | data | checksums

Lengths and offsets are signed and big-endian. DIVERGENCES from HFileBlock (2.6.1): blocks are written with CRC32, which
Python has, and not with CRC32C; the header names the type, and HBase reads both.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import NamedTuple

from metaclient.hfile import checksums
from metaclient.hfile.compression import compress, decompress
from metaclient.hfile.errors import CorruptFile

__all__ = [
    "BLOOM_CHUNK",
    "BLOOM_META",
    "BYTES_PER_CHECKSUM",
    "DATA",
    "ENCODED_DATA",
    "FILE_INFO",
    "HEADER_BYTES",
    "INTERMEDIATE_INDEX",
    "LEAF_INDEX",
    "ROOT_INDEX",
    "FileBlock",
    "encode_block",
    "read_blocks",
]

DATA = b"DATABLK*"
ENCODED_DATA = b"DATABLKE"
LEAF_INDEX = b"IDXLEAF2"
INTERMEDIATE_INDEX = b"IDXINTE2"
ROOT_INDEX = b"IDXROOT2"
BLOOM_CHUNK = b"BLMFBLK2"
BLOOM_META = b"BLMFMET2"
FILE_INFO = b"FILEINF2"

_HEADER = struct.Struct(">8siiqbii")
HEADER_BYTES = _HEADER.size
#: hbase.hstore.bytes.per.checksum
BYTES_PER_CHECKSUM = 16 * 1024
#: HBase limits a cell to 10 MB (hbase.client.keyvalue.maxsize) and a block to little more than one cell.
BLOCK_BYTES_MAX = 256 * 1024 * 1024


class FileBlock(NamedTuple):
    """A block as it was read: its magic, its data without compression, and its length on disk."""

    magic: bytes
    data: bytes | memoryview
    bytes_on_disk: int


def encode_block(magic: bytes, data: bytes, compression: str, previous: int) -> bytes:
    """Return a block; ``previous`` is the offset of the previous block of the same type, or -1.

    >>> block = encode_block(DATA, b"abc", "NONE", -1)
    >>> read_blocks("f", memoryview(block), 0, [(0, len(block))], "NONE")[0].data.tobytes()
    b'abc'
    """
    packed = compress(compression, data)
    with_header = HEADER_BYTES + len(packed)
    sums = 4 * -(-with_header // BYTES_PER_CHECKSUM)
    header = _HEADER.pack(
        magic, len(packed) + sums, len(data), previous, checksums.CRC32, BYTES_PER_CHECKSUM, with_header
    )
    whole = header + packed
    return whole + checksums.make_checksums(whole, BYTES_PER_CHECKSUM)


def read_blocks(
    where: str, data: memoryview, base: int, places: Sequence[tuple[int, int]], compression: str
) -> list[FileBlock]:
    """Return the blocks at these (offset, length) of the file, whose bytes from offset ``base`` on are ``data``.

    A length of 0 stands for the one in the header. CorruptFile if a block is torn or fails its checksum.
    """
    packed: list[tuple[bytes, int, memoryview, int]] = []
    summed: list[tuple[int, memoryview, memoryview, int, int]] = []
    for offset, length in places:
        at = offset - base
        if at < 0 or at + HEADER_BYTES > len(data):
            raise CorruptFile(f"{where}: there is no block at byte {offset}")
        magic, behind, size, _, kind, step, with_header = _HEADER.unpack_from(data, at)
        end = at + HEADER_BYTES + behind
        is_right = (
            end <= len(data)
            and HEADER_BYTES <= with_header <= HEADER_BYTES + behind
            and (not length or length == HEADER_BYTES + behind)
            and 0 <= size <= BLOCK_BYTES_MAX
            and kind in (checksums.NO_CHECKSUM, checksums.CRC32, checksums.CRC32C)
        )
        if is_right and kind != checksums.NO_CHECKSUM:
            sums = HEADER_BYTES + behind - with_header
            is_right = step >= HEADER_BYTES and sums == 4 * -(-with_header // step)
        if not is_right:
            raise CorruptFile(f"{where}: the block at byte {offset} has a header that contradicts the file")
        summed.append((offset, data[at : at + with_header], data[at + with_header : end], kind, step))
        packed.append((magic, size, data[at + HEADER_BYTES : at + with_header], HEADER_BYTES + behind))
    checksums.verify_checksums(where, summed)
    return [
        FileBlock(magic, decompress(compression, body, size, where), on_disk) for magic, size, body, on_disk in packed
    ]
