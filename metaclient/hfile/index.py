"""The index of an HFile's data blocks: one level, or leaves, intermediate blocks and a root.

An entry is the first key of a block, its offset and its length on disk. A leaf is written between the data blocks as
soon as it is large enough; what is left at the end becomes the root, or the last leaf (HFileBlockIndex, 2.6.1).
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import NamedTuple

from metaclient.hfile import blocks
from metaclient.hfile.errors import CorruptFile
from metaclient.hfile.vints import encode_vint, read_vint

__all__ = ["IndexEntry", "IndexWriter", "decode_node", "decode_root", "encode_root"]

_PLACE = struct.Struct(">qi")
_INT = struct.Struct(">i")
_MIDDLE = struct.Struct(">qii")
#: hfile.index.block.max.size and hfile.index.block.min.entries
CHUNK_BYTES_MAX = 128 * 1024
ENTRIES_MIN = 16
LEVELS_MAX = 16


class IndexEntry(NamedTuple):
    """A block: its first key, as HBase serializes keys, its offset and its length."""

    key: bytes
    offset: int
    length: int


#: Writes a block of this magic and data; returns its offset and its length on disk.
WriteBlock = Callable[[bytes, bytes], tuple[int, int]]


class IndexWriter:
    """Collects the entries of data blocks and writes the blocks of the index."""

    def __init__(self, write_block: WriteBlock) -> None:
        self._write_block = write_block
        self._leaf: list[IndexEntry] = []
        self._leaf_bytes = 0
        self._leaves: list[IndexEntry] = []
        self._counts: list[int] = []  # entries up to the end of each leaf
        self._count = 0
        self.levels = 1
        self.root_entries = 0
        self.bytes = 0  # of all blocks of the index, uncompressed

    def add(self, entry: IndexEntry) -> None:
        """Add a data block; write a leaf if it is full."""
        self._leaf.append(entry)
        self._count += 1
        self._leaf_bytes += _PLACE.size + len(entry.key) + _INT.size
        if self._leaf_bytes >= CHUNK_BYTES_MAX:
            self._write_leaf()

    def finish(self) -> int:
        """Write the root, after the levels above the leaves; return the root's offset."""
        entries, middle = self._leaf, b""
        if self._leaves:
            if self._leaf:
                self._write_leaf()
            entries, middle, self.levels = self._leaves, self._middle(), 2
            while _root_bytes(entries) > CHUNK_BYTES_MAX and len(entries) > ENTRIES_MIN and self.levels < LEVELS_MAX:
                entries = self._write_level(entries)
                self.levels += 1
        self.root_entries = len(entries)
        return self._written(blocks.ROOT_INDEX, encode_root(entries) + middle)[0]

    def _write_leaf(self) -> None:
        self._leaves.append(self._node(blocks.LEAF_INDEX, self._leaf))
        self._counts.append(self._count)
        self._leaf, self._leaf_bytes = [], 0

    def _write_level(self, entries: Sequence[IndexEntry]) -> list[IndexEntry]:
        parents: list[IndexEntry] = []
        chunk: list[IndexEntry] = []
        for entry in entries:
            chunk.append(entry)
            if len(chunk) >= ENTRIES_MIN and _root_bytes(chunk) >= CHUNK_BYTES_MAX:
                parents.append(self._node(blocks.INTERMEDIATE_INDEX, chunk))
                chunk = []
        if chunk:
            parents.append(self._node(blocks.INTERMEDIATE_INDEX, chunk))
        return parents

    def _node(self, magic: bytes, entries: Sequence[IndexEntry]) -> IndexEntry:
        return IndexEntry(entries[0].key, *self._written(magic, encode_node(entries)))

    def _written(self, magic: bytes, data: bytes) -> tuple[int, int]:
        self.bytes += len(data)
        return self._write_block(magic, data)

    def _middle(self) -> bytes:
        """Return the place of the middle key: HBase splits a region there."""
        wanted = (self._count - 1) // 2
        leaf = next(number for number, count in enumerate(self._counts) if wanted < count)
        before = self._counts[leaf - 1] if leaf else 0
        return _MIDDLE.pack(self._leaves[leaf].offset, self._leaves[leaf].length, wanted - before)


def _root_bytes(entries: Sequence[IndexEntry]) -> int:
    return sum(_PLACE.size + 2 + len(entry.key) for entry in entries)


def encode_root(entries: Sequence[IndexEntry]) -> bytes:
    """Return a root: entries one after the other, also of a bloom filter's chunks."""
    return b"".join(
        _PLACE.pack(entry.offset, entry.length) + encode_vint(len(entry.key)) + entry.key for entry in entries
    )


def encode_node(entries: Sequence[IndexEntry]) -> bytes:
    """Return a leaf or an intermediate block: the offsets of the entries, for binary search, then the entries."""
    offsets = [0]
    for entry in entries:
        offsets.append(offsets[-1] + _PLACE.size + len(entry.key))
    head = struct.pack(f">{len(offsets) + 1}i", len(entries), *offsets)
    return head + b"".join(_PLACE.pack(entry.offset, entry.length) + entry.key for entry in entries)


def decode_root(where: str, data: bytes | memoryview, count: int) -> list[IndexEntry]:
    """Return the first ``count`` entries of a root.

    >>> decode_root("f", encode_root([IndexEntry(b"k", 7, 8)]), 1)
    [IndexEntry(key=b'k', offset=7, length=8)]
    """
    entries: list[IndexEntry] = []
    at = 0
    for _ in range(count):
        if at + _PLACE.size > len(data):
            raise CorruptFile(f"{where}: the index ends after {len(entries)} of {count} entries")
        offset, length = _PLACE.unpack_from(data, at)
        size, at = read_vint(data, at + _PLACE.size)
        if size < 0 or at + size > len(data):
            raise CorruptFile(f"{where}: the index has a key of {size} bytes")
        entries.append(IndexEntry(bytes(data[at : at + size]), offset, length))
        at += size
    return entries


def decode_node(where: str, data: bytes | memoryview) -> list[IndexEntry]:
    """Return the entries of a leaf or of an intermediate block.

    >>> decode_node("f", encode_node([IndexEntry(b"k", 7, 8), IndexEntry(b"l", 9, 10)]))[1].key
    b'l'
    """
    if len(data) < _INT.size:
        raise CorruptFile(f"{where}: an empty block of the index")
    (count,) = _INT.unpack_from(data, 0)
    begin = _INT.size * (count + 2)
    if count < 0 or begin > len(data):
        raise CorruptFile(f"{where}: a block of the index with {count} entries")
    offsets = struct.unpack_from(f">{count + 1}i", data, _INT.size)
    entries: list[IndexEntry] = []
    for first, end in pairwise(offsets):
        if not 0 <= first <= end - _PLACE.size or begin + end > len(data):
            raise CorruptFile(f"{where}: a block of the index with an entry from {first} to {end}")
        offset, length = _PLACE.unpack_from(data, begin + first)
        entries.append(IndexEntry(bytes(data[begin + first + _PLACE.size : begin + end]), offset, length))
    return entries
