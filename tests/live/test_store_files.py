"""Store files and snapshots of a real HBase: each side reads what the other has written."""

from __future__ import annotations

import random
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import metaclient
from metaclient import Connection
from metaclient.calls.bulk_load import StoreFileToLoad
from metaclient.errors import ConfigError
from metaclient.hfile import FamilyRules, FileSettings, HFileWriter, StoragePath, open_hfile, read_region, read_snapshot
from metaclient.hfile.visible import CellSelection
from metaclient.model import Consistency, FamilyDescriptor, Scan, TableDescriptor
from metaclient_local_hbase import LocalHBase
from metaclient_native.admin import Admin
from tests.unit.hfile.cells import page_of

#: Generous: a busy machine is not a fault.
WAIT_S = 240.0
COUNT = 20_000
ENCODINGS = ("NONE", "PREFIX", "DIFF", "FAST_DIFF", "ROW_INDEX_V1")
PRINTER = "org.apache.hadoop.hbase.io.hfile.HFilePrettyPrinter"


@pytest.fixture
def native(hbase: LocalHBase) -> Iterator[Connection]:
    with metaclient.connect(hbase.native_url) as connection:
        yield connection


@pytest.fixture
def admin(native: Connection) -> Admin:
    found = native.engine.backend.admin  # type: ignore[attr-defined]  # native RPC has it
    assert isinstance(found, Admin)
    return found


@pytest.fixture
def root(hbase: LocalHBase) -> StoragePath:
    return StoragePath.of(str(hbase.folder / "data" / "hbase"))


@pytest.fixture
def within(native: Connection) -> Callable[[], float]:
    return lambda: native.engine.runtime.now() + WAIT_S


def make(native: Connection, name: bytes, families: list[FamilyDescriptor], splits: list[bytes]) -> None:
    native.engine.create_table(TableDescriptor(name, tuple(families)), splits)


def files_of(native: Connection, table: bytes, folder: Path) -> tuple[list[StoreFileToLoad], dict[bytes, FileSettings]]:
    """Write one file per family, with all rows of the table."""
    rows = [b"row%010d" % (number * 5) for number in range(COUNT)]
    values = [b"v%d" % number for number in range(COUNT)]
    some = [None if number % 2 else b"x" for number in range(COUNT)]
    files, settings = [], {}
    for family in native.engine.describe(table).families:
        one = settings[family.name] = FileSettings.of_family(
            family, created_ms=1_700_000_000_000, source="test", ttl_ms=None
        )
        path = StoragePath.of(str(folder)).child(family.name.decode(), "file")
        with path.output() as sink:
            writer = HFileWriter(sink, one)
            writer.append_page(
                page_of(rows, {family.name + b":q": values, family.name + b":a": some}, 1_700_000_000_000)
            )
            writer.close()
        files.append(StoreFileToLoad(family.name, path, rows[0], rows[-1]))
    return files, settings


def test_hbase_loads_files_whose_regions_have_split(
    native: Connection, admin: Admin, within: Callable[[], float], tmp_path: Path
) -> None:
    families = [FamilyDescriptor(b"d"), FamilyDescriptor(b"e", compression="GZ", bloom_filter_type="ROWCOL")]
    make(native, b"loaded", families, [b"row0000050000"])
    files, settings = files_of(native, b"loaded", tmp_path)
    first = native.engine.regions(b"loaded")[0]
    admin.split_region(first, b"row0000020000", within())
    done = native.engine.bulk_load(b"loaded", files, settings)
    assert (len(done.regions), done.split_files) == (3, 4)
    table = native.table("loaded")
    found = dict(table.scan())
    assert len(found) == COUNT
    assert found[b"row0000000010"] == {b"d:q": b"v2", b"d:a": b"x", b"e:q": b"v2", b"e:a": b"x"}
    for number in range(0, COUNT, 997):  # gets use the bloom filters
        row = table.row(b"row%010d" % (number * 5), [b"d:q", b"e:q"])
        assert row == {b"d:q": b"v%d" % number, b"e:q": b"v%d" % number}
    assert table.row(b"row0000000011") == {}


def test_tool_of_hbase_reads_a_written_file(hbase: LocalHBase, native: Connection, tmp_path: Path) -> None:
    make(native, b"printed", [FamilyDescriptor(b"d", compression="GZ")], [])
    files, _ = files_of(native, b"printed", tmp_path)
    command = ["java", "-cp", hbase.class_path(), PRINTER, "-f", files[0].path.uri, "-m", "-k", "-v"]
    printed = subprocess.run(command, capture_output=True, text=True, timeout=WAIT_S, check=True).stdout
    assert f"entries={COUNT + COUNT // 2}" in printed
    assert f"Scanned kv count -> {COUNT + COUNT // 2}" in printed
    assert f"No of Keys in bloom: {COUNT}" in printed
    assert "WARNING" not in printed  # keys out of order


def fill(native: Connection, admin: Admin, within: Callable[[], float], families: list[str], seed: int) -> None:
    """Write random puts and deletes in two rounds, with a flush after each: HBase compacts from three files on."""
    rng = random.Random(seed)
    table = native.table("kept")
    for _ in range(2):
        for _ in range(400):
            row = b"k%03d" % rng.randrange(500)
            columns = {
                f"{family}:q{'x' * rng.randrange(3)}".encode(): rng.randbytes(rng.choice([0, 3, 70]))
                for family in rng.sample(families, 3)
            }
            chance = rng.random()
            if chance < 0.8:
                table.put(row, columns, timestamp=rng.choice([1000, 2000, 3000, rng.randrange(10**12)]))
            elif chance < 0.9:
                table.delete(row, columns=list(columns)[:1], timestamp=rng.choice([1000, 2500, None]))
            else:
                table.delete(row, timestamp=rng.choice([2000, None]))
        admin.flush_table(b"kept", within())


def test_snapshot_has_the_cells_of_a_scan(
    native: Connection, admin: Admin, root: StoragePath, within: Callable[[], float]
) -> None:
    """Versions, deletes, five data block encodings, compression, split daughters, and files in the archive."""
    families = [
        FamilyDescriptor(
            f"f{number}".encode(),
            max_versions=3,
            compression="GZ" if number % 2 else "NONE",
            attributes=(("DATA_BLOCK_ENCODING", encoding),),
        )
        for number, encoding in enumerate(ENCODINGS)
    ]
    families.append(FamilyDescriptor(b"r", max_versions=2, bloom_filter_type="ROWCOL"))
    make(native, b"kept", families, [b"k250"])
    fill(native, admin, within, [family.name.decode() for family in families], 5)
    admin.snapshot("kept-1", b"kept", within())
    before = {versions: scanned(native, b"kept", versions) for versions in (1, 5)}
    for versions, cells in before.items():
        assert snapshot_cells(native, root, "kept-1", versions) == cells
    assert {len(files) for _, files in read_snapshot(root, "kept-1").regions[0].files} == {2}
    last = native.engine.regions(b"kept")[-1]
    admin.split_region(last, b"k400", within())
    admin.snapshot("kept-2", b"kept", within())
    halves = [file for region in read_snapshot(root, "kept-2").regions for _, files in region.files for file in files]
    assert any(file.start == b"k400" for file in halves)
    assert snapshot_cells(native, root, "kept-2", 5) == before[5]
    native.disable_table("kept")
    native.delete_table("kept")  # its files are in the archive now
    for name in ("kept-1", "kept-2"):
        assert snapshot_cells(native, root, name, 5) == before[5]
        admin.delete_snapshot(name, within())
    with pytest.raises(ConfigError, match="no snapshot 'kept-1'"):
        read_snapshot(root, "kept-1")


def scanned(native: Connection, table: bytes, versions: int) -> list[tuple[object, ...]]:
    found: list[tuple[object, ...]] = []
    for result, _ in native.engine.scan_rows(table, Scan(max_versions=versions), Consistency.STRONG):
        found += [(result.row, *cell.column.partition(b":")[::2], cell.timestamp, cell.value) for cell in result.cells]
    return found


def snapshot_cells(native: Connection, root: StoragePath, name: str, versions: int) -> list[tuple[object, ...]]:
    snapshot = read_snapshot(root, name)
    rules = {family.name: FamilyRules.of("x", family) for family in snapshot.table.families}
    asked = CellSelection((), versions, now_ms=native.engine.runtime.time_ms())
    found: list[tuple[object, ...]] = []
    for region in snapshot.regions:
        for batch in read_region(region, rules, asked):
            columns = [batch[column].to_pylist() for column in ("row", "family", "qualifier", "timestamp", "value")]
            found += zip(*columns, strict=True)
    return found


def test_file_of_a_flush_has_the_cells_of_a_raw_scan(
    native: Connection, admin: Admin, root: StoragePath, within: Callable[[], float]
) -> None:
    make(native, b"flushed", [FamilyDescriptor(b"d", max_versions=5)], [])
    table = native.table("flushed")
    for number in range(200):
        table.put(b"r%03d" % number, {b"d:a": b"%d" % number, b"d:b": b"x" * (number % 7)}, timestamp=number + 1)
    table.delete(b"r007", timestamp=100)
    table.delete(b"r009", columns=[b"d:a"], timestamp=100)
    admin.flush_table(b"flushed", within())
    admin.snapshot("flushed-1", b"flushed", within())
    (region,) = read_snapshot(root, "flushed-1").regions
    ((_, (file,)),) = region.files
    found: list[tuple[object, ...]] = []
    with open_hfile(file.paths[0]) as source:
        assert source.max_sequence_id > 0
        for batch in source.batches():
            columns = [batch[name].to_pylist() for name in ("row", "qualifier", "timestamp", "type", "value")]
            found += zip(*columns, strict=True)
    raw: list[tuple[object, ...]] = []
    for result, _ in native.engine.scan_rows(b"flushed", Scan(is_raw=True, max_versions=9), Consistency.STRONG):
        raw += [
            (result.row, cell.column.partition(b":")[2], cell.timestamp, int(cell.type), cell.value)
            for cell in result.cells
        ]
    assert found == raw
