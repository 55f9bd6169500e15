"""What the writer writes, the reader reads; and damaged files are found."""

from __future__ import annotations

import random
from bisect import bisect_left
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from metaclient.errors import ConfigError, MetaClientError, Unsupported
from metaclient.hfile import CorruptFile, FileMissing, FileSettings, StoragePath, cells_of_page, index, open_hfile
from metaclient.hfile import bloom as blooms
from metaclient.hfile.checksums import crc32c
from metaclient.hfile.compression import compress, decompress
from metaclient.model import FamilyDescriptor
from tests.unit.hfile.cells import PUT, StoredCell, batch_of, cells_from, opened, page_of, stored_cells, written

SETTINGS = FileSettings(b"d", created_ms=1_700_000_000_000, source="test")


def distinct(cells: list[StoredCell]) -> list[StoredCell]:
    by_key = {cell.key(): cell for cell in cells}
    return [by_key[key] for key in sorted(by_key)]


@given(
    st.lists(stored_cells(), max_size=60),
    st.sampled_from(["NONE", "GZ", "SNAPPY", "LZ4"]),
    st.sampled_from(["ROW", "ROWCOL", "NONE"]),
    st.sampled_from([None, 5]),
    st.integers(1, 300),
)
def test_cells_come_back_in_order(
    cells: list[StoredCell], compression: str, bloom: str, ttl_ms: int | None, block_bytes: int
) -> None:
    wanted = distinct(cells)
    data = written([batch_of(wanted)], FileSettings(b"d", compression, bloom, block_bytes, ttl_ms))
    file = opened(data)
    assert cells_from(file.batches()) == wanted
    assert file.trailer.cells == len(wanted)
    assert file.first_row() == (wanted[0].row if wanted else None)
    assert file.last_row == (wanted[-1].row if wanted else None)


@given(st.lists(stored_cells(), min_size=1, max_size=60), st.binary(max_size=3), st.binary(max_size=3))
def test_range_of_rows_is_what_a_filter_of_all_rows_gives(cells: list[StoredCell], start: bytes, stop: bytes) -> None:
    wanted = distinct(cells)
    file = opened(written([batch_of(wanted)], FileSettings(b"d", block_bytes=40)))
    inside = [cell for cell in wanted if start <= cell.row and (not stop or cell.row < stop)]
    assert cells_from(file.batches(start, stop)) == inside


@given(
    st.lists(st.tuples(st.binary(min_size=1, max_size=4), *[st.none() | st.binary(max_size=3)] * 3), max_size=40),
    st.sampled_from(["ROW", "ROWCOL"]),
)
def test_page_is_written_as_its_cells(lines: list[tuple[bytes | None, ...]], bloom: str) -> None:
    by_row = {line[0]: line for line in lines if any(value is not None for value in line[1:])}
    rows = sorted(row for row in by_row if row is not None)
    columns = {name: [by_row[row][at] for row in rows] for at, name in enumerate((b"d:b", b"d:a", b"e:z"), 1)}
    page = page_of(rows, columns)
    settings = FileSettings(b"d", bloom=bloom)
    found = cells_from(opened(written([page], settings)).batches())
    assert found == cells_from([cells_of_page(page, b"d")] if rows else [])
    assert [cell.qualifier for cell in found] == [
        name for row in rows for name in (b"a", b"b") if by_row[row][1 + (name == b"a")] is not None
    ]


def test_index_of_many_levels_finds_each_row(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(index, "CHUNK_BYTES_MAX", 120)
    monkeypatch.setattr(index, "ENTRIES_MIN", 2)
    rows = [b"%05d" % number for number in range(1500)]
    page = page_of(rows, {b"d:q": [b"x" * 20] * len(rows)})
    file = opened(written([page], FileSettings(b"d", block_bytes=100)))
    assert file.trailer.index_levels > 3
    assert [cell.row for cell in cells_from(file.batches())] == rows
    for row in (b"00000", b"00777", b"01499"):
        assert [cell.row for cell in cells_from(file.batches(row, row + b"\0"))] == [row]


def test_rows_of_changing_lengths_are_decoded() -> None:
    rng = random.Random(3)
    rows = sorted({b"%d" % rng.randrange(10**9) for _ in range(3000)})
    values = [b"v" * rng.randrange(200) if rng.random() < 0.9 else None for _ in rows]
    page = page_of(rows, {b"d:a": values, b"d:b": [b"y"] * len(rows)})
    found = cells_from(opened(written([page], SETTINGS)).batches())
    assert [cell.value for cell in found if cell.qualifier == b"a"] == [value for value in values if value is not None]


@pytest.mark.parametrize("rows", [[b"b", b"a"], [b"a", b"a"]])
def test_rows_out_of_order_are_refused(rows: list[bytes]) -> None:
    with pytest.raises(ValueError, match="sorted"):
        written([page_of(rows, {b"d:q": [b"1", b"2"]})], SETTINGS)


def test_second_page_must_follow_the_first() -> None:
    pages = [page_of([row], {b"d:q": [b"1"]}) for row in (b"b", b"a")]
    with pytest.raises(ValueError, match="before the last row"):
        written(pages, SETTINGS)


# -- checksums, bloom filters, compression -----------------------------------------------------------------------------


@given(st.binary(min_size=1, max_size=700))
def test_crc32c_is_that_of_the_definition(data: bytes) -> None:
    register = 0xFFFFFFFF
    for byte in data:
        register ^= byte
        for _ in range(8):
            register = register >> 1 ^ (0x82F63B78 if register & 1 else 0)
    found = crc32c(np.frombuffer(data, dtype=np.uint8).reshape(1, -1))
    assert int(found[0]) == register ^ 0xFFFFFFFF


@pytest.mark.parametrize("count", [100, 1000, blooms.KEYS_MAX + 10])
def test_bloom_filter_has_every_key_and_few_others(count: int) -> None:
    chunks: list[tuple[bytes, bytes]] = []
    writer = blooms.BloomWriter(lambda magic, data: (chunks.append((magic, data)) or 0, len(data)))
    rows = pa.array([b"key%09d" % number for number in range(count)], pa.large_binary())
    writer.add(rows)
    assert writer.finish() is not None
    first = chunks[0][1]
    assert blooms.contains(first, rows.slice(0, blooms.KEYS_MAX)).all()
    others = pa.array([b"other%d" % number for number in range(2000)], pa.large_binary())
    assert blooms.contains(first, others).mean() < 0.05  # the error rate is 0.01
    assert len(chunks) == 1 + (count > blooms.KEYS_MAX)


@given(st.sampled_from(["GZ", "SNAPPY", "LZ4"]), st.binary(max_size=300), st.integers(1, 2000))
def test_compressed_block_comes_back(name: str, data: bytes, times: int) -> None:
    whole = data * times
    assert bytes(decompress(name, memoryview(compress(name, whole)), len(whole), "f")) == whole


def test_zstandard_of_both_formats_is_read() -> None:
    data = b"abc" * 1000
    frame = pa.Codec("zstd").compress(data, asbytes=True)
    stream = len(data).to_bytes(4, "big") + len(frame).to_bytes(4, "big") + frame
    for packed in (frame, stream):
        assert bytes(decompress("ZSTD", memoryview(packed), len(data), "f")) == data


def test_family_whose_compression_cannot_be_written_gets_gz() -> None:
    made = FileSettings.of_family(FamilyDescriptor(b"d", compression="ZSTD"), created_ms=1, source="s", ttl_ms=None)
    assert made.compression == "GZ"


# -- files that are damaged or refused ---------------------------------------------------------------------------------


def sample() -> bytes:
    rows = [b"%03d" % number for number in range(100)]
    return written([page_of(rows, {b"d:q": [b"x" * 10] * 100})], FileSettings(b"d", block_bytes=500))


def test_flipped_bit_of_any_block_is_found() -> None:
    data = sample()
    rng = random.Random(1)
    end = len(data) - 4096
    for at in rng.sample(range(end), 150):
        broken = bytearray(data)
        broken[at] ^= 1 << rng.randrange(8)
        try:
            found = cells_from(opened(bytes(broken)).batches())
        except MetaClientError:
            continue
        # Bloom filters are not read; everything else that is read has a checksum.
        assert found == cells_from(opened(data).batches())


@pytest.mark.parametrize("size", [0, 1, 100, 4095, 4096, 5000])
def test_torn_file_is_no_hfile(size: int) -> None:
    with pytest.raises(CorruptFile):
        cells_from(opened(sample()[:size]).batches())


def test_missing_file_and_wrong_path_are_named(tmp_path: Path) -> None:
    with pytest.raises(FileMissing, match="there is no file"), open_hfile(StoragePath.of(f"{tmp_path}/none")):
        pass
    with pytest.raises(ConfigError, match="absolute path"):
        StoragePath.of("staging/x")


def test_file_on_disk_is_read(tmp_path: Path) -> None:
    path = StoragePath.of(f"file://{tmp_path}").child("cf", "f1")
    with path.output() as sink:
        sink.write(sample())
    with open_hfile(path) as file:
        assert file.trailer.cells == 100
    assert StoragePath.of(str(tmp_path)).child("cf").names() == ["f1"]


def test_encrypted_file_is_refused_by_name() -> None:
    data = bytearray(sample())
    trailer = len(data) - 4096
    size = data[trailer + 8]
    field = b"\x6a\x01k"  # encryption_key
    assert size + len(field) < 128
    end = trailer + 9 + size
    data[trailer + 8] = size + len(field)
    data[end : end + len(field)] = field
    with pytest.raises(Unsupported, match="is encrypted"):
        opened(bytes(data))


def test_row_bounds_agree_with_bisect() -> None:
    from metaclient.hfile import find_row

    rows = [b"a", b"a", b"c", b"e"]
    for wanted in (b"", b"a", b"b", b"e", b"f"):
        assert find_row(pa.array(rows), wanted) == bisect_left(rows, wanted)


def test_delete_markers_are_counted_and_written() -> None:
    cells = [StoredCell(b"r", b"d", b"", 5, 14, b""), StoredCell(b"r", b"d", b"q", 3, PUT, b"v")]
    file = opened(written([batch_of(cells)], SETTINGS))
    assert int.from_bytes(file.facts[b"DELETE_FAMILY_COUNT"], "big") == 1
    assert cells_from(file.batches()) == cells
