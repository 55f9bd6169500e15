"""Batches of Spark become store files of regions: shares, runs on the disk, repeated keys, deletes."""

from __future__ import annotations

import json
import random
from bisect import bisect_right
from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa
import pytest

from metaclient.hfile import FileSettings, StoragePath, open_hfile
from spark_connector.jobs.bulk_loads import partition_keys
from spark_connector.settings.options import Options
from spark_connector.writing import store_files
from spark_connector.writing.store_files import RegionFiles, ShareEncoder
from tests.unit.hfile.cells import StoredCell, cells_from

CATALOG = json.dumps(
    {
        "table": {"name": "t"},
        "rowkey": "key",
        "columns": {
            "id": {"cf": "rowkey", "col": "key", "type": "string"},
            "b": {"cf": "d", "col": "b", "type": "string"},
            "a": {"cf": "d", "col": "a", "type": "string"},
            "z": {"cf": "e", "col": "z", "type": "string"},
        },
    }
)
STARTS = (b"", b"3", b"6")
STAMP = 9


def batch(lines: Sequence[tuple[str | None, ...]]) -> pa.RecordBatch:
    columns = list(zip(*lines, strict=True))
    return pa.RecordBatch.from_arrays(
        [pa.array(column, pa.string()) for column in columns], names=["id", "b", "a", "z"]
    )


def files(tmp_path: Path, batches: Sequence[pa.RecordBatch], **given: str) -> dict[bytes, list[list[StoredCell]]]:
    """Return the cells of the files by family, region by region."""
    options = Options.parse({"catalog": CATALOG, **given})
    encoder = ShareEncoder(options.catalog(), options, STAMP, (b"d", b"e"), STARTS)
    settings = [FileSettings(b"d"), FileSettings(b"e")]
    found: dict[bytes, list[list[StoredCell]]] = {b"d": [], b"e": []}
    with RegionFiles(settings, StoragePath.of(str(tmp_path)), "x") as regions:
        for one in batches:
            for region, _, share in encoder.shares(one):
                regions.add(region, share)
        for written in regions.write():
            for file in written:
                with open_hfile(file.path) as source:
                    cells = cells_from(source.batches())
                assert (cells[0].row, cells[-1].row, len(cells)) == (file.first_row, file.last_row, file.cells)
                found[file.family].append(cells)
    return found


def random_batches(count: int) -> list[pa.RecordBatch]:
    rng = random.Random(2)
    numbers = [str(number) for number in range(count)]
    rng.shuffle(numbers)
    lines = [(number, f"b{number}", None if number.endswith("7") else "a", f"z{number}") for number in numbers]
    return [batch(lines[at : at + 50]) for at in range(0, count, 50)]


@pytest.mark.parametrize("run_bytes", [1 << 30, 2000])
def test_rows_of_each_region_are_sorted_also_from_runs_on_the_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, run_bytes: int
) -> None:
    monkeypatch.setattr(store_files, "RUN_BYTES", run_bytes)
    monkeypatch.setattr(store_files, "SLICE_ROWS", 7)
    found = files(tmp_path, random_batches(400))
    rows = sorted(str(number).encode() for number in range(400))
    assert [cell.row for cells in found[b"e"] for cell in cells] == rows
    firsts = [bisect_right(STARTS, row) for row in rows]
    assert [len(cells) for cells in found[b"e"]] == [firsts.count(number) for number in (1, 2, 3)]
    wanted = [
        (row, name, value)
        for row in rows
        for name, value in ((b"a", b"a"), (b"b", b"b" + row))
        if not (name == b"a" and row.endswith(b"7"))
    ]
    assert [(cell.row, cell.qualifier, cell.value) for cells in found[b"d"] for cell in cells] == wanted


@pytest.mark.parametrize("run_bytes", [1 << 30, 10])
def test_last_of_two_rows_with_one_key_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, run_bytes: int) -> None:
    monkeypatch.setattr(store_files, "RUN_BYTES", run_bytes)
    found = files(tmp_path, [batch([("1", "old", "x", None), ("2", "b", "a", None)]), batch([("1", "new", None, "z")])])
    assert [(cell.row, cell.qualifier, cell.value) for cell in found[b"d"][0]] == [
        (b"1", b"a", b"x"),
        (b"1", b"b", b"new"),
        (b"2", b"a", b"a"),
        (b"2", b"b", b"b"),
    ]
    assert [cell.value for cell in found[b"e"][0]] == [b"z"]


def test_family_without_cells_leaves_no_file(tmp_path: Path) -> None:
    found = files(tmp_path, [batch([("1", "b", None, None)])])
    assert found[b"e"] == []
    assert not (tmp_path / "e").exists()


def test_nulls_become_markers_and_rows_can_be_deleted(tmp_path: Path) -> None:
    found = files(tmp_path / "nulls", [batch([("1", "b", None, "z")])], **{"hbase.spark.write.nulls": "delete"})
    assert [(cell.qualifier, cell.type, cell.timestamp) for cell in found[b"d"][0]] == [
        (b"a", 12, STAMP),
        (b"b", 4, STAMP),
    ]
    only_keys = batch([("1", None, None, None)]).select(["id"])
    found = files(tmp_path / "rows", [only_keys], **{"hbase.spark.write.operation": "delete"})
    assert [(cell.qualifier, cell.type) for cell in found[b"d"][0] + found[b"e"][0]] == [(b"", 14), (b"", 14)]


def test_each_partition_has_its_key() -> None:
    for count in (1, 2, 7, 200):
        keys = partition_keys(count)
        assert len(set(keys)) == len(keys) == count
