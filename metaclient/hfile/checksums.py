"""Checksums of blocks: CRC32 and CRC32C (Castagnoli), of many chunks at once.

Python has CRC32 in zlib and no CRC32C, which HBase writes by default. A CRC without its start value is linear: the CRC
of a message is the XOR of one table entry per byte, chosen by the byte and its distance from the end. The tables for a
distance of up to ``SEGMENT`` bytes give the CRC of a segment; each byte of that CRC is then moved over the segments
behind it, by a second set of tables. Both steps are one lookup per byte in numpy, for all chunks of a read together.
"""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from functools import cache
from typing import Any

from metaclient.hfile.errors import CorruptFile
from metaclient.wire.cell_arrays import libraries

__all__ = ["CRC32", "CRC32C", "NO_CHECKSUM", "crc32c", "make_checksums", "verify_checksums"]

#: ChecksumType's codes.
NO_CHECKSUM, CRC32, CRC32C = 0, 1, 2
#: Castagnoli's polynomial, its bits reversed.
_POLYNOMIAL = 0x82F63B78
SEGMENT = 128


@cache
def _byte_table() -> Any:
    """Return the CRC register after one byte, for each byte."""
    np, _ = libraries()
    table = np.arange(256, dtype=np.uint32)
    for _ in range(8):
        table = np.where(table & 1, (table >> 1) ^ np.uint32(_POLYNOMIAL), table >> 1)
    return table


def _shifted(np: Any, registers: Any, count: int) -> Any:
    """Return the registers after ``count`` zero bytes."""
    table = _byte_table()
    for _ in range(count):
        registers = table[registers & 0xFF] ^ (registers >> 8)
    return registers


@cache
def _segment_tables() -> Any:
    """Return the registers of byte ``b`` at offset ``i`` of a segment, at index ``i * 256 + b``."""
    np, _ = libraries()
    tables = [_byte_table()]
    while len(tables) < SEGMENT:
        tables.append(_shifted(np, tables[-1], 1))
    return np.concatenate(tables[::-1])


@cache
def _shift_tables(segments: int) -> Any:
    """Return, for the segments of a chunk, the tables that move each byte of a segment's CRC to the chunk's end."""
    np, _ = libraries()
    values = (np.arange(256, dtype=np.uint32) << np.array([[0], [8], [16], [24]], dtype=np.uint32)).ravel()
    tables = [values]
    while len(tables) < segments:
        tables.append(_shifted(np, tables[-1], SEGMENT))
    return np.concatenate(tables[::-1])


def crc32c(chunks: Any) -> Any:
    """Return the CRC32C of each row of a matrix of bytes, as numpy's uint32.

    >>> import numpy as np
    >>> hex(crc32c(np.frombuffer(b"123456789", dtype=np.uint8).reshape(1, 9))[0])
    '0xe3069283'
    """
    np, _ = libraries()
    count, size = chunks.shape
    segments = -(-size // SEGMENT) or 1
    padding = segments * SEGMENT - size
    if padding:  # zero bytes before the message change nothing: the register starts at zero
        filled = np.zeros((count, segments * SEGMENT), dtype=np.uint8)
        filled[:, padding:] = chunks
    else:
        filled = np.ascontiguousarray(chunks)
    at = np.arange(SEGMENT, dtype=np.intp) * 256
    registers = np.empty((count, segments), dtype=np.uint32)
    tables = _segment_tables()
    cells = filled.reshape(count, segments, SEGMENT)
    for row in range(count):  # one chunk at a time stays in the processor's cache
        np.bitwise_xor.reduce(tables[cells[row] + at], axis=1, out=registers[row])
    parts = registers.view(np.uint8).reshape(count, segments * 4)  # little-endian, as on every supported machine
    moved = _shift_tables(segments)[parts + np.arange(segments * 4, dtype=np.intp) * 256]
    start = _start(size)
    return np.bitwise_xor.reduce(moved, axis=1) ^ start ^ np.uint32(0xFFFFFFFF)


@cache
def _start(size: int) -> Any:
    """Return the start value of the register, moved over a message of so many bytes."""
    np, _ = libraries()
    segments, rest = divmod(size, SEGMENT)
    register = _shifted(np, np.array([0xFFFFFFFF], dtype=np.uint32), rest)
    if not segments:
        return register[0]
    moved = _shift_tables(segments + 1)[: 4 * 256].reshape(4, 256)  # the tables that move over all segments
    return np.bitwise_xor.reduce(moved[np.arange(4), register.view(np.uint8)])


def make_checksums(data: bytes, bytes_per_checksum: int) -> bytes:
    """Return the CRC32 of each chunk of a block.

    >>> make_checksums(b"123456789", 16).hex()
    'cbf43926'
    """
    view = memoryview(data)
    parts = range(0, len(data), bytes_per_checksum)
    return b"".join(zlib.crc32(view[at : at + bytes_per_checksum]).to_bytes(4, "big") for at in parts)


def verify_checksums(where: str, blocks: Sequence[tuple[int, memoryview, memoryview, int, int]]) -> None:
    """Raise CorruptFile unless each block has the checksums that follow it.

    A block is its offset in the file, its bytes with the header, its checksums, their type, and the bytes per checksum.
    """
    np, _ = libraries()
    by_size: dict[int, list[tuple[int, memoryview, bytes]]] = {}
    for offset, data, sums, kind, step in blocks:
        for number, at in enumerate(range(0, len(data), step)):
            chunk, wanted = data[at : at + step], bytes(sums[4 * number : 4 * number + 4])
            if kind == CRC32:
                if zlib.crc32(chunk) != int.from_bytes(wanted, "big"):
                    raise _wrong(where, offset)
            elif kind == CRC32C:
                by_size.setdefault(len(chunk), []).append((offset, chunk, wanted))
    for size, chunks in by_size.items():
        matrix = np.frombuffer(b"".join(chunk for _, chunk, _ in chunks), dtype=np.uint8).reshape(len(chunks), size)
        wanted_sums = np.frombuffer(b"".join(wanted for _, _, wanted in chunks), dtype=">u4")
        differs = crc32c(matrix) != wanted_sums
        if differs.any():
            raise _wrong(where, chunks[int(differs.argmax())][0])


def _wrong(where: str, offset: int) -> CorruptFile:
    return CorruptFile(f"{where}: the block at byte {offset} does not have its checksum; the file is damaged")
