"""Store files are handed over to the regions of a fake cluster, over HBase's RPC."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

import metaclient
from metaclient.calls import bulk_load
from metaclient.calls.bulk_load import StoreFileToLoad
from metaclient.errors import CallTimeout, RequestRefused, Unsupported
from metaclient.hfile import FileSettings, HFileWriter, StoragePath
from metaclient_fake import FakeCluster
from tests.unit.hfile.cells import page_of

SETTINGS = {family: FileSettings(family, created_ms=1, source="test") for family in (b"d", b"e")}
ROWS = [b"%03d" % number for number in range(100)]


@pytest.fixture
def cluster() -> Iterator[FakeCluster]:
    with FakeCluster(servers=2) as made:
        made.serve(thrift1_port=None, thrift2_port=None, rpc_port=0)
        yield made


@pytest.fixture
def connection(cluster: FakeCluster) -> Iterator[metaclient.Connection]:
    assert cluster.front is not None
    with metaclient.connect(cluster.front.rpc_url) as made:
        made.create_table("t", {"d": {}, "e": {}}, splits=[b"050"])
        yield made


def file_of(folder: Path, family: bytes, rows: Sequence[bytes], stamp: int = 7) -> StoreFileToLoad:
    path = StoragePath.of(str(folder)).child(family.decode(), f"{rows[0].decode()}-{rows[-1].decode()}")
    with path.output() as sink:
        writer = HFileWriter(sink, SETTINGS[family])
        writer.append_page(page_of(rows, {family + b":q": [b"v" + row for row in rows]}, stamp))
        writer.close()
    return StoreFileToLoad(family, path, rows[0], rows[-1])


def rows_of(connection: metaclient.Connection) -> dict[bytes, dict[bytes, bytes]]:
    return {row: dict(columns) for row, columns in connection.table("t").scan()}


def test_files_of_two_families_become_rows(connection: metaclient.Connection, tmp_path: Path) -> None:
    files = [file_of(tmp_path, family, part) for family in (b"d", b"e") for part in (ROWS[:50], ROWS[50:])]
    done = connection.engine.bulk_load(b"t", files, SETTINGS)
    assert (done.files, len(done.regions), done.split_files) == (4, 2, 0)
    assert rows_of(connection) == {row: {b"d:q": b"v" + row, b"e:q": b"v" + row} for row in ROWS}


def test_file_that_spans_two_regions_is_split(connection: metaclient.Connection, tmp_path: Path) -> None:
    done = connection.engine.bulk_load(b"t", [file_of(tmp_path, b"d", ROWS)], SETTINGS)
    assert (done.files, len(done.regions), done.split_files) == (2, 2, 1)
    assert list(rows_of(connection)) == ROWS


def test_region_that_splits_during_the_load_is_looked_up_again(
    cluster: FakeCluster, connection: metaclient.Connection, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (region,) = [one.region for one in connection.engine.regions(b"t") if not one.region.start_key]
    calls = connection.engine.backend.bulk_loads  # type: ignore[attr-defined]  # native RPC has it
    prepare = calls.prepare

    def prepare_and_split(*args: object) -> object:
        token = prepare(*args).result(args[-1])
        cluster.split(region, b"020")
        return token

    monkeypatch.setattr(calls, "prepare", prepare_and_split)
    done = connection.engine.bulk_load(b"t", [file_of(tmp_path, b"d", ROWS[:50])], SETTINGS)
    assert (len(done.regions), done.split_files) == (2, 1)
    assert done.retries >= 1
    assert list(rows_of(connection)) == ROWS[:50]


def test_loaded_cells_are_newer_than_puts_of_their_timestamp(connection: metaclient.Connection, tmp_path: Path) -> None:
    connection.table("t").put(b"000", {b"d:q": b"put"}, timestamp=7)
    connection.engine.bulk_load(b"t", [file_of(tmp_path, b"d", ROWS[:1])], SETTINGS)
    assert connection.table("t").row(b"000") == {b"d:q": b"v000"}


def test_file_that_no_server_can_read_is_refused_with_its_path(
    connection: metaclient.Connection, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bulk_load, "ATTEMPTS_MAX", 2)
    missing = StoreFileToLoad(b"d", StoragePath.of(str(tmp_path)).child("none"), b"000", b"001")
    with pytest.raises(RequestRefused, match=r"1 file was not taken after 2 attempts.*none.*log of server"):
        connection.engine.bulk_load(b"t", [missing], SETTINGS)
    assert rows_of(connection) == {}


def test_damaged_file_changes_no_row(
    connection: metaclient.Connection, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bulk_load, "ATTEMPTS_MAX", 1)
    file = file_of(tmp_path, b"d", ROWS[:10])
    local = Path(file.path.path)
    data = bytearray(local.read_bytes())
    data[40] ^= 1
    local.write_bytes(data)
    with pytest.raises(RequestRefused):
        connection.engine.bulk_load(b"t", [file], SETTINGS)
    assert rows_of(connection) == {}


def test_unknown_outcome_is_not_repeated(
    connection: metaclient.Connection, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = connection.engine.backend.bulk_loads  # type: ignore[attr-defined]  # native RPC has it
    asked: list[object] = []

    def lose(*args: object) -> object:
        asked.append(args)
        raise CallTimeout("no answer", may_have_applied=True)

    monkeypatch.setattr(calls, "load", lose)
    with pytest.raises(CallTimeout, match=r"outcome is unknown.*same timestamp") as caught:
        connection.engine.bulk_load(b"t", [file_of(tmp_path, b"d", ROWS[:5])], SETTINGS)
    assert caught.value.may_have_applied
    assert len(asked) == 1


def test_fake_refuses_cells_with_their_own_time_to_live(connection: metaclient.Connection, tmp_path: Path) -> None:
    path = StoragePath.of(str(tmp_path)).child("d", "ttl")
    with path.output() as sink:
        writer = HFileWriter(sink, FileSettings(b"d", ttl_ms=5))
        writer.append_page(page_of([b"000"], {b"d:q": [b"v"]}))
        writer.close()
    with pytest.raises(RequestRefused, match="tags"):
        connection.engine.bulk_load(b"t", [StoreFileToLoad(b"d", path, b"000", b"000")], SETTINGS)


def test_backend_without_bulk_load_names_one_that_has_it(tmp_path: Path) -> None:
    with metaclient.connect("fake:") as connection, pytest.raises(Unsupported, match="hbase://"):
        connection.engine.bulk_load(b"t", [file_of(tmp_path, b"d", ROWS)], SETTINGS)
