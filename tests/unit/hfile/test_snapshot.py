"""Snapshots in a folder that is laid out as HBase's: plain files, links, halves of split regions, and the archive."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from metaclient.errors import ConfigError, Unsupported
from metaclient.hfile import (
    CorruptFile,
    FamilyRules,
    FileMissing,
    FileSettings,
    HFileWriter,
    StoragePath,
    read_region,
    read_snapshot,
)
from metaclient.hfile.snapshot import MANIFEST
from metaclient.hfile.visible import CellSelection
from metaclient.model import FamilyDescriptor, RegionInfo, TableDescriptor
from metaclient.protobuf import encode
from metaclient.wire.rpc.admin_messages import SNAPSHOT
from metaclient.wire.rpc.names import region_info_message
from metaclient.wire.rpc.schemas import table_schema_message
from tests.unit.hfile.cells import StoredCell, batch_of, cells_from, page_of

TABLE = b"ns:t"
REGION = RegionInfo(TABLE, b"", b"m", 1)
UPPER = RegionInfo(TABLE, b"m", b"", 1)
PARENT = "a" * 32
LINKED = "b" * 32
RULES = {b"d": FamilyRules(3)}


class Root:
    """HBase's root folder."""

    def __init__(self, folder: Path) -> None:
        self.path = StoragePath.of(str(folder))

    def store(self, *names: str, rows: Sequence[bytes], value: bytes, stamp: int = 7) -> None:
        with self.path.child(*names).output() as sink:
            writer = HFileWriter(sink, FileSettings(b"d"))
            writer.append_page(page_of(rows, {b"d:q": [value] * len(rows)}, stamp))
            writer.close()

    def manifest(
        self, name: str, files: Sequence[dict[str, Any]], *, version: int = 2, region: RegionInfo = REGION
    ) -> None:
        described = {"name": name, "table": TABLE.decode(), "creation_time": 5, "version": version}
        regions = [
            {
                "region_info": region_info_message(region),
                "family_files": [{"family_name": b"d", "store_files": list(files)}],
            },
            {"region_info": region_info_message(UPPER)},
            {"region_info": {**region_info_message(REGION), "split": True, "offline": True, "region_id": 9}},
        ]
        table = table_schema_message(TableDescriptor(TABLE, (FamilyDescriptor(b"d", max_versions=3),)))
        self.write(encode(SNAPSHOT, described), name, ".snapshotinfo")
        self.write(encode(MANIFEST, {"table_schema": table, "region_manifests": regions}), name, "data.manifest")

    def write(self, data: bytes, *names: str) -> None:
        with self.path.child(".hbase-snapshot", *names).output() as sink:
            sink.write(data)

    def cells(self, name: str, selection: CellSelection = CellSelection(max_versions=3)) -> list[StoredCell]:  # noqa: B008  # immutable
        found: list[StoredCell] = []
        for region in read_snapshot(self.path, name).regions:
            found += cells_from(read_region(region, RULES, selection))
        return found


@pytest.fixture
def root(tmp_path: Path) -> Root:
    return Root(tmp_path)


def in_region(*below: str) -> tuple[str, ...]:
    return "data", "ns", "t", REGION.encoded_name, "d", *below


def test_versions_of_two_files_are_merged(root: Root) -> None:
    root.store(*in_region("01"), rows=[b"a", b"b"], value=b"old", stamp=1)
    root.store(*in_region("02"), rows=[b"b", b"c"], value=b"new", stamp=2)
    root.manifest("s", [{"name": "01"}, {"name": "02"}])
    found = read_snapshot(root.path, "s")
    assert (found.table.name, found.created_ms, [one.info.start_key for one in found.regions]) == (
        TABLE,
        5,
        [b"", b"m"],
    )
    assert [(cell.row, cell.value) for cell in root.cells("s")] == [
        (b"a", b"old"),
        (b"b", b"new"),
        (b"b", b"old"),
        (b"c", b"new"),
    ]
    assert [cell.value for cell in root.cells("s", CellSelection())] == [b"old", b"new", b"new"]


def test_file_in_the_archive_is_found(root: Root) -> None:
    root.store("archive", *in_region("01"), rows=[b"a"], value=b"v")
    root.manifest("s", [{"name": "01"}])
    assert [cell.row for cell in root.cells("s")] == [b"a"]


def test_halves_of_a_split_region_and_links_are_followed(root: Root) -> None:
    rows = [b"a", b"f", b"k", b"x"]
    root.store("data", "ns", "t", PARENT, "d", "01", rows=rows, value=b"half")
    root.store("data", "default", "u", LINKED, "d", "02", rows=[b"b"], value=b"link")
    root.store("archive", "data", "ns", "u", LINKED, "d", "03", rows=[b"c", b"z"], value=b"both")
    key = b"\0\1k\0" + b"\x7f" + b"\xff" * 7 + b"\xff"
    bottom = {"splitkey": key, "range": 1}
    files = [
        {"name": f"01.{PARENT}", "reference": bottom},
        {"name": f"u={LINKED}-02"},
        {"name": f"ns=u={LINKED}-03.{PARENT}", "reference": bottom},
    ]
    root.manifest("s", files)
    assert [cell.row for cell in root.cells("s")] == [b"a", b"b", b"c", b"f"]


def test_loaded_file_is_as_new_as_its_name_says(root: Root) -> None:
    root.store(*in_region("0a_SeqId_4_"), rows=[b"a"], value=b"4")
    root.store(*in_region("0b_SeqId_12_"), rows=[b"a"], value=b"12")
    root.manifest("s", [{"name": "0b_SeqId_12_"}, {"name": "0a_SeqId_4_"}])
    assert [cell.value for cell in root.cells("s")] == [b"12"]


def test_cell_with_its_own_time_to_live_expires(root: Root) -> None:
    with root.path.child(*in_region("01")).output() as sink:
        writer = HFileWriter(sink, FileSettings(b"d", ttl_ms=10))
        writer.append_cells(batch_of([StoredCell(b"a", b"d", b"q", 100, 4, b"v")]))
        writer.close()
    root.store(*in_region("02"), rows=[b"b"], value=b"w", stamp=100)
    root.manifest("s", [{"name": "01"}, {"name": "02"}])
    assert [cell.row for cell in root.cells("s", CellSelection(now_ms=110))] == [b"a", b"b"]
    assert [cell.row for cell in root.cells("s", CellSelection(now_ms=111))] == [b"b"]


# -- mistakes and refusals ---------------------------------------------------------------------------------------------


def test_unknown_snapshot_is_answered_with_those_that_there_are(root: Root) -> None:
    root.manifest("monday", [])
    with pytest.raises(ConfigError, match=r"no snapshot 'tuesday'.*hbase\.rootdir; there are: monday"):
        read_snapshot(root.path, "tuesday")
    with pytest.raises(ConfigError, match="there are: none"):
        read_snapshot(root.path.child("elsewhere"), "monday")


def test_old_layout_is_refused(root: Root) -> None:
    root.manifest("s", [], version=0)
    with pytest.raises(Unsupported, match=r"HBase 0\.94"):
        read_snapshot(root.path, "s")


def test_unfinished_snapshot_is_refused(root: Root) -> None:
    root.manifest("s", [])
    Path(root.path.child(".hbase-snapshot", "s", "data.manifest").path).unlink()
    with pytest.raises(Unsupported, match=r"no data\.manifest"):
        read_snapshot(root.path, "s")


def test_missing_file_is_named_with_its_places(root: Root) -> None:
    root.manifest("s", [{"name": "01"}])
    with pytest.raises(FileMissing, match=r"store file 01.*archive.*snapshot was deleted"):
        root.cells("s")


def test_damaged_manifest_is_named(root: Root) -> None:
    root.manifest("s", [])
    root.write(b"\x0a\xff\xff", "s", "data.manifest")
    with pytest.raises(CorruptFile, match="damaged manifest"):
        read_snapshot(root.path, "s")


def test_name_of_a_file_cannot_leave_the_root(root: Root) -> None:
    root.manifest("s", [{"name": "../../secret"}])
    with pytest.raises(CorruptFile, match="secret"):
        read_snapshot(root.path, "s")
