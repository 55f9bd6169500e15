"""Writes one HFile: sorted cells of one family as data blocks, with their index, bloom filter and facts.

The file is what HFileOutputFormat2 (HBase 2.6.1) makes for a bulk load: format 3, no data block encoding, sequence ids
of 0, which the server replaces by the one of the load.

DIVERGENCES: checksums are CRC32 (see :mod:`.blocks`); an index entry is the first key of its block, not a shorter key
between two blocks; there is no bloom filter of delete markers, only their number.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from metaclient import keys
from metaclient.hfile import blocks
from metaclient.hfile.bloom import BloomWriter, first_on_column
from metaclient.hfile.compression import WRITABLE
from metaclient.hfile.index import IndexEntry, IndexWriter
from metaclient.hfile.key_values import ROW_BYTES_MAX, CellLayout, encode_cells, encode_columns, last_key
from metaclient.hfile.trailer import Trailer, encode_info, encode_trailer
from metaclient.model import CellType, FamilyDescriptor
from metaclient.wire.cell_arrays import COLUMNS, libraries, sizes, together

if TYPE_CHECKING:
    import pyarrow

    from metaclient.backend import PutPage

__all__ = ["FileSettings", "HFileWriter", "Sink", "cells_of_page"]

_BLOCK_BYTES = 64 * 1024
_TTL_TAG = 8
_COMPARATOR = b"org.apache.hadoop.hbase.CellComparatorImpl"
#: Compression of files for families whose own compression cannot be written.
_FALLBACK = "GZ"
_MAX_STAMP = 2**63 - 1


class Sink(Protocol):
    """The stream that a file is written to."""

    def write(self, data: bytes, /) -> Any: ...


@dataclass(frozen=True, slots=True)
class FileSettings:
    """How a file is written. ``ttl_ms`` is the time to live of each of its cells."""

    family: bytes
    compression: str = "NONE"
    bloom: str = "ROW"  # ROW, ROWCOL or NONE
    block_bytes: int = _BLOCK_BYTES
    ttl_ms: int | None = None
    created_ms: int = 0
    source: str = ""

    @classmethod
    def of_family(cls, family: FamilyDescriptor, *, created_ms: int, source: str, ttl_ms: int | None) -> FileSettings:
        """Return the settings of a family's files.

        A compression that cannot be written becomes GZ, and a filter of row prefixes one of rows: HBase reads both, and
        its next compaction uses the family's own.
        """
        named = dict(family.attributes)
        size = named.get("BLOCKSIZE", "")
        return cls(
            family.name,
            family.compression if family.compression in WRITABLE else _FALLBACK,
            "ROW" if family.bloom_filter_type.startswith("ROWPREFIX") else family.bloom_filter_type,
            int(size) if size.isdigit() and int(size) > 0 else _BLOCK_BYTES,
            ttl_ms,
            created_ms,
            source,
        )

    @property
    def layout(self) -> CellLayout:
        """The layout of the cells."""
        return CellLayout(has_tags=self.ttl_ms is not None)

    @property
    def tags(self) -> bytes:
        """The tags of each cell: none, or one with the time to live."""
        if self.ttl_ms is None:
            return b""
        return (9).to_bytes(2, "big") + bytes([_TTL_TAG]) + self.ttl_ms.to_bytes(8, "big")

    @property
    def suffix(self) -> bytes:
        """The bytes that follow each value: the tags, and the sequence id 0."""
        tags = self.tags
        return (len(tags).to_bytes(2, "big") + tags if tags else b"") + b"\x00"


class HFileWriter:
    """Writes a file to a sink. Rows and cells are appended in HBase's order; ``close`` writes the rest.

    ``cells``, ``first_row`` and ``last_row`` describe what has been appended so far.
    """

    def __init__(self, sink: Sink, settings: FileSettings) -> None:
        self._sink = sink
        self._settings = settings
        self._suffix = settings.suffix
        self._offset = 0
        self._previous: dict[bytes, int] = {}
        self._total_bytes = 0
        self._index = IndexWriter(self._write_block)
        comparator = _COMPARATOR if settings.bloom == "ROWCOL" else b""
        self._bloom = None if settings.bloom == "NONE" else BloomWriter(self._write_block, comparator=comparator)
        self._pending: list[bytes | memoryview] = []
        self._pending_bytes = 0
        self._first_block = self._last_block = 0
        self._last_block_data: bytes | memoryview = b""
        self._key_bytes = self._value_bytes = self._family_markers = 0
        self._stamps = (_MAX_STAMP, -1)
        self._earliest_put = _MAX_STAMP
        self._last_bloom_key = b""
        self.cells = 0
        self.first_row: bytes | None = None
        self.last_row: bytes | None = None

    @property
    def size(self) -> int:
        """The bytes of the file so far."""
        return self._offset + self._pending_bytes

    # -- appending -----------------------------------------------------------------------------------------------------

    def append_page(self, page: PutPage) -> None:
        """Append the cells of this family in a page whose rows are sorted and distinct."""
        np, _ = libraries()
        family = self._settings.family
        split = [(name.partition(b":")[::2], values) for name, values in zip(page.columns, page.values, strict=True)]
        named = sorted(((qualifier, values) for (of, qualifier), values in split if of == family), key=_name)
        if not named or not len(page):
            return
        if self._settings.bloom == "ROWCOL":
            self.append_cells(cells_of_page(page, family))
            return
        rows, stamps = page.rows, page.timestamps
        counts = np.zeros(len(page), dtype=np.int64)
        for _, values in named:
            counts += values.is_valid().to_numpy(zero_copy_only=False)
        if not counts.all():
            is_there = libraries()[1].array(counts > 0)
            rows, stamps = rows.filter(is_there), stamps.filter(is_there)
            named = [(qualifier, values.filter(is_there)) for qualifier, values in named]
        if not len(rows):
            return
        self._check_rows(rows, is_distinct=True)
        times = stamps.to_numpy()
        columns = [(family, qualifier, values) for qualifier, values in named]
        row_bytes = sizes(rows)
        for qualifier, values in named:
            has = values.is_valid().to_numpy(zero_copy_only=False)
            self.cells += int(has.sum())
            self._key_bytes += int(row_bytes[has].sum()) + int(has.sum()) * (len(family) + len(qualifier) + 12)
            self._value_bytes += int(sizes(values).sum())
        self._note_stamps(times, times)
        self._note_rows(rows)
        if self._bloom is not None:
            self._add_to_bloom(rows)
        self._append(encode_columns(rows, times, columns, self._suffix))

    def append_cells(self, cells: pyarrow.RecordBatch) -> None:
        """Append cells of this family, in HBase's order, without two cells of the same key."""
        np, arrow = libraries()
        if not cells.num_rows:
            return
        binary = arrow.large_binary()
        rows = cells["row"].cast(binary)
        self._check_rows(rows, is_distinct=False)
        kinds, times = cells["type"].to_numpy(), cells["timestamp"].to_numpy()
        units = encode_cells(cells, self._suffix)
        value_bytes = int(sizes(cells["value"].cast(binary)).sum())
        self.cells += cells.num_rows
        self._value_bytes += value_bytes
        self._key_bytes += int(sizes(units).sum()) - value_bytes - cells.num_rows * (8 + len(self._suffix))
        self._note_stamps(times, times[kinds == CellType.PUT])
        markers = (kinds == CellType.DELETE_FAMILY) | (kinds == CellType.DELETE_FAMILY_VERSION)
        self._family_markers += int(markers.sum())
        if self._bloom is not None:
            qualifiers = cells["qualifier"].cast(binary)
            made = first_on_column(rows, qualifiers) if self._settings.bloom == "ROWCOL" else rows
            is_new = np.ones(len(made), dtype=bool)
            is_new[1:] = arrow.compute.not_equal(made[1:], made[:-1]).to_numpy(zero_copy_only=False)
            is_new[0] = made[0].as_py() != self._last_bloom_key
            self._add_to_bloom(made.filter(arrow.array(is_new)))
        self._note_rows(rows)
        self._append(units)

    def _check_rows(self, rows: pyarrow.LargeBinaryArray, *, is_distinct: bool) -> None:
        """Raise ValueError for rows that are not sorted or too long: a reader of HBase would miss cells."""
        _, arrow = libraries()
        compare = arrow.compute.less if is_distinct else arrow.compute.less_equal
        if len(rows) > 1 and not arrow.compute.all(compare(rows[:-1], rows[1:])).as_py():
            raise ValueError("the rows of a store file must be sorted")
        first = rows[0].as_py()
        if self.last_row is not None and (first < self.last_row or (is_distinct and first == self.last_row)):
            raise ValueError(f"row {keys.printable(first)} comes before the last row of the store file")
        if int(sizes(rows).max()) > ROW_BYTES_MAX:
            raise ValueError(f"a row key of a store file has at most {ROW_BYTES_MAX} bytes")

    def _note_rows(self, rows: pyarrow.LargeBinaryArray) -> None:
        if self.first_row is None:
            self.first_row = rows[0].as_py()
        self.last_row = rows[-1].as_py()

    def _note_stamps(self, times: Any, puts: Any) -> None:
        low, high = self._stamps
        self._stamps = min(low, int(times.min())), max(high, int(times.max()))
        if len(puts):
            self._earliest_put = min(self._earliest_put, int(puts.min()))

    def _add_to_bloom(self, made: pyarrow.LargeBinaryArray) -> None:
        assert self._bloom is not None
        if len(made):
            self._bloom.add(made)
            self._last_bloom_key = made[-1].as_py()

    def _append(self, units: pyarrow.LargeBinaryArray) -> None:
        """Append encoded cells, or rows of cells, which stay in one block each; write the blocks that are full."""
        np, _ = libraries()
        data = together(units)
        ends = np.cumsum(sizes(units))
        begin = done = 0
        while done < len(data):
            room = max(self._settings.block_bytes - self._pending_bytes, 1)
            unit = int(np.searchsorted(ends, begin + room))
            end = int(ends[unit]) if unit < len(ends) else len(data)
            self._pending.append(data[begin:end])
            self._pending_bytes += end - begin
            begin = done = end
            if self._pending_bytes >= self._settings.block_bytes:
                self._finish_block()
        self._pending = [bytes(part) for part in self._pending]  # what is kept must not keep the page's memory

    # -- blocks --------------------------------------------------------------------------------------------------------

    def _finish_block(self) -> None:
        if not self._pending_bytes:
            return
        data = b"".join(self._pending)
        self._pending, self._pending_bytes = [], 0
        key_bytes = int.from_bytes(data[:4], "big")
        offset, length = self._write_block(blocks.DATA, data)
        if not self._index.root_entries and self._last_block_data == b"":
            self._first_block = offset
        self._last_block, self._last_block_data = offset, data
        self._index.add(IndexEntry(data[8 : 8 + key_bytes], offset, length))

    def _write_block(self, magic: bytes, data: bytes) -> tuple[int, int]:
        block = blocks.encode_block(magic, data, self._settings.compression, self._previous.get(magic, -1))
        offset = self._offset
        self._sink.write(block)
        self._previous[magic] = offset
        self._offset += len(block)
        self._total_bytes += blocks.HEADER_BYTES + len(data)
        return offset, len(block)

    def close(self) -> None:
        """Write the rest of the file. The sink is not closed."""
        self._finish_block()
        described = None if self._bloom is None else self._bloom.finish()
        root_offset = self._index.finish()
        self._write_block(blocks.ROOT_INDEX, b"")  # of the meta blocks, which there are none of
        info_offset, _ = self._write_block(blocks.FILE_INFO, encode_info(self._facts(has_bloom=described is not None)))
        if described is not None:
            self._write_block(blocks.BLOOM_META, described)
        trailer = Trailer(
            info_offset,
            root_offset,
            self._index.bytes,
            self._total_bytes,
            self._index.root_entries,
            self.cells,
            self._index.levels,
            self._first_block,
            self._last_block,
            self._settings.compression,
        )
        self._sink.write(encode_trailer(trailer))

    def _facts(self, *, has_bloom: bool) -> dict[bytes, bytes]:
        settings, cells = self._settings, self.cells
        facts = {
            b"hfile.AVG_KEY_LEN": _int(self._key_bytes // cells if cells else 0),
            b"hfile.AVG_VALUE_LEN": _int(self._value_bytes // cells if cells else 0),
            b"hfile.CREATE_TIME_TS": _long(settings.created_ms),
            b"KEY_VALUE_VERSION": _int(1),
            b"MAX_MEMSTORE_TS_KEY": _long(0),
            b"BULKLOAD_TIMESTAMP": _long(settings.created_ms),
            b"BULKLOAD_SOURCE_TASK": settings.source.encode(),
            b"MAJOR_COMPACTION_KEY": b"\xff",
            b"EXCLUDE_FROM_MINOR_COMPACTION": b"\x00",
            b"DELETE_FAMILY_COUNT": _long(self._family_markers),
            b"EARLIEST_PUT_TS": _long(self._earliest_put),
            b"TIMERANGE": _long(self._stamps[0]) + _long(self._stamps[1]),
        }
        if cells:
            facts[b"hfile.LASTKEY"] = last_key(self._last_block_data, settings.layout, "the file")
        if settings.ttl_ms is not None:
            facts[b"hfile.MAX_TAGS_LEN"] = _int(len(settings.tags))
            facts[b"hfile.TAGS_COMPRESSED"] = b"\x00"
        if has_bloom:
            facts[b"BLOOM_FILTER_TYPE"] = settings.bloom.encode()
            facts[b"LAST_BLOOM_KEY"] = self._last_bloom_key
        return facts


def _name(pair: tuple[Any, object]) -> Any:
    return pair[0]


def _int(value: int) -> bytes:
    return value.to_bytes(4, "big", signed=True)


def _long(value: int) -> bytes:
    return value.to_bytes(8, "big", signed=True)


def cells_of_page(page: PutPage, family: bytes | None = None) -> pyarrow.RecordBatch:
    """Return the cells of a page, row by row in the order of the page, by name within a row.

    With ``family``, only the cells of that family.
    """
    np, arrow = libraries()
    split = [(name.partition(b":")[::2], values) for name, values in zip(page.columns, page.values, strict=True)]
    named = sorted((one for one in split if family is None or one[0][0] == family), key=_name)
    count, width = len(page), len(named)
    binary = arrow.large_binary()
    is_there = np.empty((count, width), dtype=bool)
    for number, (_, values) in enumerate(named):
        is_there[:, number] = values.is_valid().to_numpy(zero_copy_only=False)
    row_of, column_of = np.nonzero(is_there)
    everything = arrow.concat_arrays([values for _, values in named])
    taken_rows, taken_columns = arrow.array(row_of), arrow.array(column_of)
    arrays = [
        page.rows.take(taken_rows),
        arrow.array([name[0] for name, _ in named], binary).take(taken_columns),
        arrow.array([name[1] for name, _ in named], binary).take(taken_columns),
        page.timestamps.take(taken_rows),
        arrow.array(np.full(len(row_of), CellType.PUT, dtype=np.uint8)),
        everything.take(arrow.array(column_of * count + row_of)),
    ]
    return arrow.RecordBatch.from_arrays(arrays, names=list(COLUMNS))
