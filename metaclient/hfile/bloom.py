"""Bloom filters of an HFile: keys in chunks of 128 KB, hashed by MurmurHash 2 as HBase does (BloomFilterChunk, 2.6.1).

A chunk is full when it holds as many keys as its error rate allows; the last one is folded to half of its size as long
as it is less than half full.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from metaclient.hfile import blocks
from metaclient.hfile.index import IndexEntry, encode_root
from metaclient.hfile.vints import encode_vint
from metaclient.wire.cell_arrays import joined, libraries, numbers, sizes

if TYPE_CHECKING:
    import pyarrow

__all__ = ["BloomWriter", "contains", "first_on_column", "murmur"]

VERSION: Final = 3
MURMUR: Final = 1
#: io.storefile.bloom.block.size and io.storefile.bloom.error.rate
CHUNK_BYTES: Final = 128 * 1024
ERROR_RATE: Final = 0.01
_MULTIPLIER = 0x5BD1E995
_META = struct.Struct(">iqiiqqi")
_LN2_SQUARED = math.log(2) ** 2
#: Timestamp and type of the first possible cell of a column.
_FIRST_CELL = b"\x7f" + b"\xff" * 7 + b"\xff"


def first_on_column(rows: pyarrow.LargeBinaryArray, qualifiers: pyarrow.LargeBinaryArray) -> pyarrow.LargeBinaryArray:
    """Return the keys of a ROWCOL filter: row and qualifier without the family.

    >>> import pyarrow
    >>> one = pyarrow.array([b"r"], pyarrow.large_binary())
    >>> first_on_column(one, one)[0].as_py().hex()
    '00017200727fffffffffffffffff'
    """
    return joined(numbers(sizes(rows).astype(">u2")), rows, b"\x00", qualifiers, _FIRST_CELL)


def murmur(keys: pyarrow.LargeBinaryArray, seeds: Any) -> Any:
    """Return MurmurHash 2 of each key with its seed, as numpy's uint32.

    >>> import numpy as np
    >>> import pyarrow
    >>> murmur(pyarrow.array([b"abcde"], pyarrow.large_binary()), np.zeros(1, dtype=np.uint32)).tolist()
    [1594468574]
    """
    np, _ = libraries()
    lengths = sizes(keys)
    data, starts = _flat(np, keys)
    hashes = seeds ^ lengths.astype(np.uint32)
    words = lengths >> 2
    multiplier = np.uint32(_MULTIPLIER)
    for number in range(int(words.max(initial=0))):
        chosen = np.flatnonzero(words > number) if (words <= number).any() else slice(None)
        at = starts[chosen] + 4 * number
        word = data[at].astype(np.uint32)
        for byte in (1, 2, 3):
            word |= data[at + byte].astype(np.uint32) << np.uint32(8 * byte)
        word *= multiplier
        word ^= word >> np.uint32(24)
        word *= multiplier
        hashes[chosen] = hashes[chosen] * multiplier ^ word
    left = lengths & 3
    tails = starts + (words << 2)
    signed = data.view(np.int8)  # Java's bytes are signed
    for byte in (2, 1, 0):
        chosen = np.flatnonzero(left > byte)
        extended = signed[tails[chosen] + byte].astype(np.int32).view(np.uint32)
        hashes[chosen] ^= extended << np.uint32(8 * byte)
    hashes[left > 0] *= multiplier
    hashes ^= hashes >> np.uint32(13)
    hashes *= multiplier
    hashes ^= hashes >> np.uint32(15)
    return hashes


def _flat(np: Any, keys: pyarrow.LargeBinaryArray) -> tuple[Any, Any]:
    """Return the bytes of all keys, and where each begins."""
    _, borders, data = keys.buffers()
    starts = np.frombuffer(borders, dtype=np.int64)[keys.offset : keys.offset + len(keys)]
    return np.frombuffer(data if data is not None else b"", dtype=np.uint8), starts


def _bits(np: Any, first: Any, second: Any, hashes: int, size: int) -> Any:
    """Return the numbers of the bits of the keys, one row per hash."""
    steps = np.arange(hashes, dtype=np.int32)[:, None]
    places = first.view(np.int32)[None, :] + steps * second.view(np.int32)[None, :]  # wraps, as in Java
    return np.abs(np.fmod(places.astype(np.int64), size * 8))


def _limits() -> tuple[int, int]:
    """Return the number of hashes and of keys of a chunk."""
    bits = CHUNK_BYTES * 8
    rate = struct.unpack("f", struct.pack("f", ERROR_RATE))[0]  # HBase reads it as a float
    ideal = int(bits * (_LN2_SQUARED / -math.log(rate)))
    hashes = math.ceil(math.log(2) * (bits // ideal))
    return hashes, int(-bits / hashes * math.log(1 - math.exp(math.log(rate) / hashes)))


HASHES, KEYS_MAX = _limits()


class BloomWriter:
    """Collects keys, writes full chunks between the data blocks, and makes the block that describes them."""

    def __init__(self, write_block: Callable[[bytes, bytes], tuple[int, int]], *, comparator: bytes = b"") -> None:
        self._write_block = write_block
        self._comparator = comparator
        self._hashed: list[tuple[Any, Any]] = []  # of the chunk that is not full
        self._pending = 0
        self._first_key = b""
        self._entries: list[IndexEntry] = []
        self._bytes = self._keys_max = self._chunk_bytes = 0
        self.keys = 0

    def add(self, keys: pyarrow.LargeBinaryArray) -> None:
        """Add keys, which are sorted and distinct; write each chunk that is full."""
        np, _ = libraries()
        at = 0
        while at < len(keys):
            taken = min(KEYS_MAX - self._pending, len(keys) - at)
            if not self._pending:
                self._first_key = keys[at].as_py()
            part = keys.slice(at, taken)
            first = murmur(part, np.zeros(taken, dtype=np.uint32))
            self._hashed.append((first, murmur(part, first.copy())))
            self._pending += taken
            self.keys += taken
            at += taken
            if self._pending == KEYS_MAX:
                self._write_chunk()

    def finish(self) -> bytes | None:
        """Write the last chunk; return the data of the describing block, None without keys."""
        if self._pending:
            self._write_chunk()
        if not self.keys:
            return None
        head = _META.pack(VERSION, self._bytes, HASHES, MURMUR, self.keys, self._keys_max, len(self._entries))
        return head + encode_vint(len(self._comparator)) + self._comparator + encode_root(self._entries)

    def _write_chunk(self) -> None:
        np, _ = libraries()
        size, keys_max = CHUNK_BYTES, KEYS_MAX
        while size % 2 == 0 and keys_max > self._pending << 1:  # a folded chunk: the remainder by half the size
            size, keys_max = size >> 1, keys_max >> 1
        set_bits = np.zeros(size * 8, dtype=bool)
        for first, second in self._hashed:
            places = _bits(np, first, second, HASHES, CHUNK_BYTES)
            set_bits[(places % (size * 8)).ravel()] = True
        data = np.packbits(set_bits, bitorder="little").tobytes()
        self._entries.append(IndexEntry(self._first_key, *self._write_block(blocks.BLOOM_CHUNK, data)))
        self._bytes += size
        self._keys_max += keys_max
        self._hashed, self._pending = [], 0


def contains(chunk: bytes, keys: pyarrow.LargeBinaryArray, hashes: int = HASHES) -> Any:
    """Return True for each key that may be in the chunk, as HBase looks it up; for tests and checks."""
    np, _ = libraries()
    first = murmur(keys, np.zeros(len(keys), dtype=np.uint32))
    places = _bits(np, first, murmur(keys, first.copy()), hashes, len(chunk))
    found = np.unpackbits(np.frombuffer(chunk, dtype=np.uint8), bitorder="little").astype(bool)
    return found[places].all(axis=0)
