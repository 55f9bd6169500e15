"""Compression of blocks as HBase's codecs do it, with the libraries that Python and pyarrow have.

GZ is one gzip stream. SNAPPY, LZ4 and the ZSTD of HBase's own module are Hadoop's block streams::

    int32 length of the data | (int32 length of the chunk, compressed | chunk)*

Hadoop's native ZSTD is one plain frame; a reader tells the two apart by the frame's magic number.
"""

from __future__ import annotations

import struct
import zlib
from typing import Any, Final

from metaclient.hfile.errors import CorruptFile, refuse
from metaclient.wire.cell_arrays import libraries

__all__ = ["CODES", "WRITABLE", "compress", "decompress", "name_of"]

#: Compression.Algorithm, by ordinal.
CODES: Final = ("LZO", "GZ", "NONE", "SNAPPY", "LZ4", "BZIP2", "ZSTD", "LZMA", "BROTLI")
#: What HBase reads whatever its ZSTD codec is.
WRITABLE: Final = frozenset({"NONE", "GZ", "SNAPPY", "LZ4"})
_ARROW = {"SNAPPY": "snappy", "LZ4": "lz4_raw", "ZSTD": "zstd"}
_INT = struct.Struct(">i")
#: Hadoop's decompressors have buffers of 256 KB.
CHUNK_BYTES = 64 * 1024
_ZSTD_MAGIC = b"\x28\xb5\x2f\xfd"
_GZIP = 31  # zlib's window bits for a gzip header
#: No codec with an own length does better: LZ4 has at most 255 bytes per byte. A damaged length is found before memory
#: is taken for it.
_RATIO_MAX = 256
#: zlib level 6, as Java's default.
_GZIP_LEVEL = 6


def name_of(where: str, code: int) -> str:
    """Return the name of a compression; refuse one that cannot be read."""
    name = CODES[code] if 0 <= code < len(CODES) else f"code {code}"
    if name not in ("NONE", "GZ", *_ARROW):
        raise refuse(where, f"has compression {name}", "read the table through its servers, or change the family")
    return name


def compress(name: str, data: bytes) -> bytes:
    """Return the data of a block, compressed."""
    if name == "NONE":
        return data
    if name == "GZ":
        stream = zlib.compressobj(_GZIP_LEVEL, zlib.DEFLATED, _GZIP)
        return stream.compress(data) + stream.flush()
    codec = libraries()[1].Codec(_ARROW[name])
    parts = [_INT.pack(len(data))]
    for at in range(0, len(data), CHUNK_BYTES):
        chunk = codec.compress(data[at : at + CHUNK_BYTES], asbytes=True)
        parts += (_INT.pack(len(chunk)), chunk)
    return b"".join(parts)


def decompress(name: str, data: memoryview, size: int, where: str) -> bytes | memoryview:
    """Return the ``size`` bytes of a block; CorruptFile if the compressed data have another length or are damaged."""
    if name == "NONE":
        made: bytes | memoryview = data
    elif name == "GZ":
        made = _gunzip(data, size, where)
    elif name == "ZSTD" and bytes(data[:4]) == _ZSTD_MAGIC:
        made = _streamed("zstd", data, size, where)
    else:
        made = _block_stream(_ARROW[name], data, size, where)
    if len(made) != size:
        raise CorruptFile(f"{where}: a block of {len(made)} bytes, whose header has {size}")
    return made


def _gunzip(data: memoryview, size: int, where: str) -> bytes:
    stream = zlib.decompressobj(_GZIP)
    try:
        return stream.decompress(data, size + 1)  # a bound: the header's length may be wrong
    except zlib.error as error:
        raise CorruptFile(f"{where}: a block that gzip cannot decompress: {error}") from error


def _by_arrow(codec: str, data: Any, size: int, where: str) -> bytes:
    _, arrow = libraries()
    try:
        made: bytes = arrow.Codec(codec).decompress(data, decompressed_size=size, asbytes=True)
    except (OSError, ValueError) as error:
        raise CorruptFile(f"{where}: a block that {codec} cannot decompress: {error}") from error
    return made


def _block_stream(codec: str, data: memoryview, size: int, where: str) -> bytes:
    made: list[bytes] = []
    at = done = 0
    while at < len(data):
        if at + 4 > len(data):
            raise CorruptFile(f"{where}: a compressed block is cut short")
        (wanted,) = _INT.unpack_from(data, at)
        at += 4
        if not 0 <= wanted <= size - done:
            raise CorruptFile(f"{where}: a part of {wanted} bytes in a block of {size}")
        end = done + wanted
        while done < end:
            if at + 4 > len(data):
                raise CorruptFile(f"{where}: a compressed block is cut short")
            (length,) = _INT.unpack_from(data, at)
            at += 4
            if not 0 < length <= len(data) - at:
                raise CorruptFile(f"{where}: a compressed chunk of {length} bytes in {len(data) - at}")
            is_last = at + length == len(data)
            chunk = _chunk(codec, data[at : at + length], end - done, where, is_last=is_last)
            if not chunk:
                raise CorruptFile(f"{where}: an empty compressed chunk")
            made.append(chunk)
            done += len(chunk)
            at += length
    return made[0] if len(made) == 1 else b"".join(made)


def _chunk(codec: str, data: memoryview, bytes_max: int, where: str, *, is_last: bool) -> bytes:
    """Return one chunk, of at most ``bytes_max`` bytes; the last one has all of them."""
    if codec == "zstd":
        return _streamed(codec, data, bytes_max, where)
    length = bytes_max if is_last else _snappy_length(data) if codec == "snappy" else _lz4_length(data)
    if not 0 < length <= min(bytes_max, len(data) * _RATIO_MAX):
        raise CorruptFile(f"{where}: a compressed chunk of {length} bytes where {bytes_max} are left")
    return _by_arrow(codec, data, length, where)


def _streamed(codec: str, data: memoryview, bytes_max: int, where: str) -> bytes:
    _, arrow = libraries()
    try:
        with arrow.CompressedInputStream(arrow.BufferReader(data), codec) as stream:
            made: bytes = stream.read(bytes_max + 1)
    except (OSError, ValueError) as error:
        raise CorruptFile(f"{where}: a block that {codec} cannot decompress: {error}") from error
    if len(made) > bytes_max:
        raise CorruptFile(f"{where}: a compressed chunk of more than the {bytes_max} bytes that are left")
    return made


def _snappy_length(data: memoryview) -> int:
    """Return the length of the data, which snappy stores first."""
    length = shift = 0
    for byte in data[:5]:
        length |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            break
    return length


def _lz4_length(data: memoryview) -> int:
    """Return the length of the data, which LZ4 does not store: the sum of its literals and matches; 0 if it is torn."""
    at = length = 0
    try:
        while at < len(data):
            token = data[at]
            literals, at = _lz4_extended(data, at + 1, token >> 4)
            length += literals
            at += literals
            if at >= len(data):  # the last sequence has no match
                break
            match, at = _lz4_extended(data, at + 2, token & 15)
            length += match + 4
    except IndexError:
        return 0
    return length


def _lz4_extended(data: memoryview, at: int, value: int) -> tuple[int, int]:
    if value == 15:
        while True:
            more = data[at]
            at += 1
            value += more
            if more != 255:
                break
    return value, at
