"""Reads one HFile: its facts, its index, and its cells in Arrow, in ranges of rows."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from metaclient.hfile import blocks
from metaclient.hfile.encodings import ENCODINGS, decode_encoded
from metaclient.hfile.errors import CorruptFile, refuse
from metaclient.hfile.files import StoragePath
from metaclient.hfile.index import LEVELS_MAX, IndexEntry, decode_node, decode_root
from metaclient.hfile.key_values import CellLayout, decode_cells
from metaclient.hfile.trailer import TRAILER_BYTES, Trailer, decode_info, decode_trailer

if TYPE_CHECKING:
    import pyarrow

__all__ = ["HFile", "find_row", "open_hfile", "row_of_key"]

#: Bytes of the file per read; compressed blocks become several times as long.
READ_BYTES = 4 * 1024 * 1024
READ_BYTES_COMPRESSED = 1024 * 1024
#: Index, facts and bloom filter's description, which are read when a file is opened.
OPEN_BYTES_MAX = 512 * 1024 * 1024


class HFile:
    """An open HFile. ``facts`` is its map of facts, ``layout`` what follows the value of each cell."""

    def __init__(self, source: Any, where: str) -> None:
        self._source = source
        self.where = where
        size: int = source.size()
        tail = self._read(max(size - TRAILER_BYTES, 0), min(size, TRAILER_BYTES))
        self.trailer: Trailer = decode_trailer(where, bytes(tail))
        self._end = size - TRAILER_BYTES
        self._root, self.facts = self._read_open_section()
        self.encoding = self.facts.get(b"DATA_BLOCK_ENCODING", b"NONE").decode(errors="replace")
        self.layout = self._layout()
        self._check()
        self._entries: list[IndexEntry] | None = None

    def _read(self, offset: int, count: int) -> memoryview:
        try:
            data = memoryview(self._source.read_at(count, offset))
        except (OSError, ValueError) as error:
            raise CorruptFile(f"{self.where} cannot be read at byte {offset}: {error}") from error
        if len(data) != count:
            raise CorruptFile(f"{self.where} ends at byte {offset + len(data)}, before byte {offset + count}")
        return data

    def _read_open_section(self) -> tuple[list[IndexEntry], dict[bytes, bytes]]:
        """Return the entries of the root and the facts."""
        trailer, begin = self.trailer, self.trailer.load_on_open_offset
        if not 0 <= begin < self._end or self._end - begin > OPEN_BYTES_MAX:
            raise CorruptFile(f"{self.where}: its index should begin at byte {begin} of {self._end}")
        data = self._read(begin, self._end - begin)
        places = [(begin, 0), (trailer.file_info_offset, 0)]
        root, info = blocks.read_blocks(self.where, data, begin, places, trailer.compression)
        if root.magic != blocks.ROOT_INDEX or info.magic != blocks.FILE_INFO:
            raise CorruptFile(f"{self.where}: its trailer names no index or no facts")
        entries = decode_root(self.where, root.data, trailer.index_entries)
        return entries, decode_info(self.where, bytes(info.data))

    def _layout(self) -> CellLayout:
        version = self.facts.get(b"KEY_VALUE_VERSION")
        has_sequence = version is not None and int.from_bytes(version, "big") == 1
        return CellLayout(has_tags=b"hfile.MAX_TAGS_LEN" in self.facts, has_sequence=has_sequence)

    def _check(self) -> None:
        """Refuse what cannot be read."""
        facts = self.facts
        if self.encoding not in ENCODINGS:
            raise refuse(self.where, f"has data block encoding {self.encoding}", "read the table through its servers")
        if facts.get(b"INDEX_BLOCK_ENCODING", b"NONE") != b"NONE":
            raise refuse(self.where, "has an encoded index", "read the table through its servers")
        if self.tags_max and facts.get(b"hfile.TAGS_COMPRESSED", b"\0") != b"\0":
            raise refuse(self.where, "has compressed tags", "set COMPRESS_TAGS to false and run a major compaction")
        if int.from_bytes(facts.get(b"MOB_CELLS_COUNT", b""), "big"):
            raise refuse(self.where, "has MOB cells", "read the table through its servers")

    @property
    def tags_max(self) -> int:
        """The length of the longest tags of a cell."""
        return int.from_bytes(self.facts.get(b"hfile.MAX_TAGS_LEN", b""), "big")

    @property
    def max_sequence_id(self) -> int:
        """The highest sequence id of the file, by which HBase orders files; 0 of a file that no server has written."""
        return int.from_bytes(self.facts.get(b"MAX_SEQ_ID_KEY", b""), "big")

    @property
    def last_row(self) -> bytes | None:
        """The last row; None of an empty file."""
        key = self.facts.get(b"hfile.LASTKEY")
        return None if key is None else row_of_key(self.where, key)

    def first_row(self) -> bytes | None:
        """Return the first row; None of an empty file."""
        for batch in self.batches():
            row: bytes = batch["row"][0].as_py()
            return row
        return None

    # -- blocks --------------------------------------------------------------------------------------------------------

    def entries(self) -> list[IndexEntry]:
        """Return the entries of all data blocks, in order."""
        if self._entries is None:
            found = self._root
            levels = self.trailer.index_levels
            if not 1 <= levels <= LEVELS_MAX:
                raise CorruptFile(f"{self.where}: an index of {levels} levels")
            for _ in range(levels - 1):
                found = [entry for one in found for entry in self._node(one)]
            ends = [0]
            for entry in found:
                if entry.offset < ends[-1] or entry.length <= 0 or entry.offset + entry.length > self._end:
                    raise CorruptFile(f"{self.where}: the index has a block at byte {entry.offset}, out of order")
                ends.append(entry.offset + entry.length)
            self._entries = found
        return self._entries

    def _node(self, entry: IndexEntry) -> list[IndexEntry]:
        if not 0 <= entry.offset <= self._end - entry.length or not 0 < entry.length <= OPEN_BYTES_MAX:
            raise CorruptFile(f"{self.where}: the index has a block at byte {entry.offset}")
        data = self._read(entry.offset, entry.length)
        place = [(entry.offset, entry.length)]
        (block,) = blocks.read_blocks(self.where, data, entry.offset, place, self.trailer.compression)
        if block.magic not in (blocks.LEAF_INDEX, blocks.INTERMEDIATE_INDEX):
            raise CorruptFile(f"{self.where}: the block at byte {entry.offset} is none of the index")
        return decode_node(self.where, block.data)

    # -- cells ---------------------------------------------------------------------------------------------------------

    def batches(
        self, start: bytes = b"", stop: bytes = b"", *, with_sequence: bool = True
    ) -> Iterator[pyarrow.RecordBatch]:
        """Yield the cells of the rows from ``start`` to ``stop`` (exclusive; b"" is no bound), in the file's order.

        The columns are those of :func:`.key_values.decode_cells`; without ``with_sequence`` the sequence ids are 0. A
        row may continue in the next batch.
        """
        entries = self.entries()
        rows = [row_of_key(self.where, entry.key) for entry in entries]
        first = max(bisect_left(rows, start) - 1, 0)
        last = bisect_left(rows, stop) if stop else len(rows)
        for begin, end in self._groups(entries[first:last]):
            data = self._data(entries[first + begin : first + end])
            batch = decode_cells(data, self.layout, self.where, with_sequence=with_sequence)
            if begin == 0:
                batch = batch.slice(find_row(batch["row"], start))
            if first + end == last and stop:
                batch = batch.slice(0, find_row(batch["row"], stop))
            if batch.num_rows:
                yield batch

    def _groups(self, entries: list[IndexEntry]) -> Iterator[tuple[int, int]]:
        """Yield runs of blocks that are read together."""
        limit = READ_BYTES if self.trailer.compression == "NONE" else READ_BYTES_COMPRESSED
        begin = 0
        for number, entry in enumerate(entries):
            if entry.offset + entry.length - entries[begin].offset > limit and number > begin:
                yield begin, number
                begin = number
        if begin < len(entries):
            yield begin, len(entries)

    def _data(self, entries: list[IndexEntry]) -> bytes:
        base = entries[0].offset
        data = self._read(base, entries[-1].offset + entries[-1].length - base)
        places = [(entry.offset, entry.length) for entry in entries]
        made: list[bytes | memoryview] = []
        for block in blocks.read_blocks(self.where, data, base, places, self.trailer.compression):
            if block.magic == blocks.DATA:
                made.append(block.data)
            elif block.magic == blocks.ENCODED_DATA:
                made.append(decode_encoded(bytes(block.data), self.layout, self.where))
            else:
                raise CorruptFile(f"{self.where}: the index names a block that holds no cells")
        return b"".join(made)


@contextmanager
def open_hfile(path: StoragePath) -> Iterator[HFile]:
    """Yield the open file at a path; CorruptFile if it is no HFile, Unsupported if it has a feature that is refused."""
    with path.input() as source:
        yield HFile(source, f"file {path}")


def row_of_key(where: str, key: bytes) -> bytes:
    """Return the row of a serialized key.

    >>> row_of_key("f", b"\\0\\2rr\\1f")
    b'rr'
    """
    size = int.from_bytes(key[:2], "big")
    if len(key) < 2 + size:
        raise CorruptFile(f"{where}: a key of {len(key)} bytes with a row of {size}")
    return key[2 : 2 + size]


def find_row(rows: pyarrow.Array, row: bytes) -> int:
    """Return the index of the first of the sorted rows that is not less than ``row``.

    >>> import pyarrow
    >>> find_row(pyarrow.array([b"a", b"c"]), b"b")
    1
    """
    low, high = 0, len(rows)
    while low < high:
        middle = (low + high) // 2
        if rows[middle].as_py() < row:
            low = middle + 1
        else:
            high = middle
    return low
