"""The stream source over a spool, without Spark: layouts, offsets, limits, replays, commits, and wrong options."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from metaclient.changes.spool import Journal, Spool, SpoolError
from metaclient.changes.spool.disk import FolderDisk
from metaclient.errors import ConfigError
from metaclient.model import Cell, CellType
from metaclient.wire.rpc.replication import ShippedEntry, WalKey, encode_replicate
from spark_connector.source import HBaseSource
from spark_connector.streaming.change_source import ChangeStreamReader

REGION = "0" * 32
CATALOG = json.dumps(
    {
        "table": {"name": "t"},
        "rowkey": "id",
        "columns": {
            "id": {"cf": "rowkey", "col": "id", "type": "string"},
            "name": {"cf": "d", "col": "name", "type": "string"},
            "age": {"cf": "d", "col": "age", "type": "int"},
            "note": {"cf": "n", "col": "note", "type": "string"},
        },
    }
)
PUT, COLUMN, FAMILY = CellType.PUT, CellType.DELETE_COLUMN, CellType.DELETE_FAMILY


def entry(sequence: int, row: bytes, *cells: tuple[Any, ...], table: bytes = b"t") -> ShippedEntry:
    """A log entry of one row; a cell is column, timestamp, value, type."""
    made = [(row, Cell(column, timestamp, value, kind)) for column, timestamp, value, kind in cells]
    return ShippedEntry(WalKey(REGION, table, sequence, 1000 + sequence), tuple(made))


def spooled(
    folder: Path, *calls: Sequence[ShippedEntry], worker: str = "w", tables: Sequence[bytes] = (b"t",)
) -> Spool:
    spool = Spool.ensure(folder, "lake", tables, new_id="id-1")
    (folder / worker).mkdir(exist_ok=True)
    journal = Journal(FolderDisk(folder / worker), bytes_max=1 << 30, segment_bytes=300)
    for call in calls:
        if journal.is_roll_due:
            journal.roll(b"{}")
        journal.append([(*encode_replicate(call), None)])
        journal.sync()
    journal.close()
    return spool


def reader_of(folder: Path, **options: str) -> ChangeStreamReader:
    given = {"hbase.spark.stream.source": "wal", "hbase.spark.stream.spool": str(folder), **options}
    if "catalog" not in given:
        given.setdefault("hbase.table", "t")
    source = HBaseSource(given)
    made = source.streamReader(source.schema())
    assert isinstance(made, ChangeStreamReader)
    return made


def rows(reader: ChangeStreamReader, start: Any = None, end: Any = None) -> list[dict[str, Any]]:
    start = start or reader.initialOffset()
    end = end or reader.latestOffset(start)
    batches = [batch for part in reader.partitions(start, end) for batch in reader.read(part)]
    return pa.Table.from_batches(batches).to_pylist() if batches else []


NUMBER = (7).to_bytes(4, "big")


def test_layout_columns_tells_writes_deletes_and_untouched_columns_apart(tmp_path: Path) -> None:
    spooled(
        tmp_path,
        [entry(1, b"a", (b"d:name", 5, b"Ann", PUT), (b"d:age", 5, NUMBER, PUT))],
        [entry(2, b"a", (b"d:name", 6, b"", COLUMN)), entry(3, b"a", (b"d:other", 6, b"x", PUT))],
        [entry(4, b"a", (b"d:", 9, b"", FAMILY)), entry(5, b"a", (b"d:", 9, b"", FAMILY), (b"n:", 9, b"", FAMILY))],
    )
    found = rows(reader_of(tmp_path, catalog=CATALOG))
    shown = [(row["change"], row["name"], row["age"], row["changed"], row["sequence"]) for row in found]
    assert shown == [
        ("upsert", "Ann", 7, ["name", "age"], 1),
        ("upsert", None, None, ["name"], 2),
        ("upsert", None, None, ["name", "age"], 4),
        ("delete", None, None, ["name", "age", "note"], 5),
    ]
    assert {row["id"] for row in found} == {"a"}
    assert [row["write_time"] for row in found] == [1001, 1002, 1004, 1005]


def test_marker_hides_older_versions_of_the_same_change_only(tmp_path: Path) -> None:
    spooled(
        tmp_path,
        [entry(1, b"a", (b"d:", 5, b"", FAMILY), (b"n:", 5, b"", FAMILY), (b"d:name", 6, b"new", PUT))],
        [entry(2, b"b", (b"d:", 5, b"", FAMILY), (b"d:name", 5, b"hidden", PUT))],
        [entry(3, b"c", (b"d:name", 3, b"old", PUT), (b"d:name", 9, b"first", PUT), (b"d:name", 9, b"last", PUT))],
        [entry(0, b"s", (b"d:name", 9, b"first", PUT), (b"d:name", 9, b"last", PUT), (b"d:age", 4, NUMBER, PUT))],
        [entry(4, b"v", (b"d:name", 9, b"", CellType.DELETE), (b"d:name", 9, b"x", PUT), (b"d:name", 8, b"y", PUT))],
    )
    found = {
        row["id"]: (row["change"], row["name"], row["changed"]) for row in rows(reader_of(tmp_path, catalog=CATALOG))
    }
    assert found == {
        "a": ("upsert", "new", ["name", "age", "note"]),
        "b": ("upsert", None, ["name", "age"]),
        "c": ("upsert", "last", ["name"]),
        "s": ("upsert", "first", ["name", "age"]),
        "v": ("upsert", "y", ["name"]),
    }


def test_layouts_raw_and_cells_have_the_cells_as_they_are(tmp_path: Path) -> None:
    cells = [(b"d:name", 5, b"Ann", PUT), (b"d:", 6, b"", FAMILY)]
    spooled(tmp_path, [entry(8, b"a", *cells), entry(9, b"x", *cells, table=b"other")], tables=(b"t", b"other"))
    (put, marker) = rows(reader_of(tmp_path))
    assert put == {
        "row": b"a", "family": "d", "qualifier": b"name", "timestamp": 5, "type": "PUT", "value": b"Ann",
        "region": REGION, "sequence": 8, "write_time": 1008,
    }  # fmt: skip
    assert (marker["type"], marker["qualifier"], marker["timestamp"]) == ("DELETE_FAMILY", b"", 6)
    assert rows(reader_of(tmp_path, **{"hbase.spark.query.layout": "cells"})) == [put]
    assert [row["row"] for row in rows(reader_of(tmp_path, **{"hbase.table": "other"}))] == [b"x", b"x"]


def calls(first: int, last: int) -> list[list[ShippedEntry]]:
    return [[entry(number, b"%03d" % number, (b"d:name", 5, b"n", PUT))] for number in range(first, last)]


def test_batches_replay_the_same_rows_and_commits_delete_segments(tmp_path: Path) -> None:
    spooled(tmp_path, *calls(1, 20))
    spooled(tmp_path, *calls(20, 40), worker="v")
    reader = reader_of(tmp_path, maxBytesPerTrigger="700")
    limit = reader.getDefaultReadLimit()
    assert limit.max_bytes == 700
    start, seen, batches = reader.initialOffset(), [], 0
    while (end := reader.latestOffset(start, limit)) != start:
        found = rows(reader, start, end)
        again = reader_of(tmp_path, maxBytesPerTrigger="700")  # after a restart, from the checkpoint
        assert rows(again, json.loads(json.dumps(start)), json.loads(json.dumps(end))) == found
        seen += [row["row"] for row in found]
        reader.commit(start)
        start, batches = end, batches + 1
    assert sorted(seen) == [b"%03d" % number for number in range(1, 40)]
    assert batches > 5
    assert len(list(tmp_path.glob("*/*.segment"))) <= 4


def test_available_now_ends_at_what_is_there(tmp_path: Path) -> None:
    spooled(tmp_path, *calls(1, 5))
    reader = reader_of(tmp_path)
    reader.prepareForTriggerAvailableNow()
    spooled(tmp_path, *calls(5, 9))
    end = reader.latestOffset(reader.initialOffset(), reader.getDefaultReadLimit())
    assert len(rows(reader, None, end)) == 4
    assert reader.latestOffset(end, reader.getDefaultReadLimit()) == end
    assert reader.reportLatestOffset() != end


def test_segment_is_cut_into_tasks_between_calls(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("spark_connector.streaming.change_source._TASK_BYTES", 150)
    spooled(tmp_path, *calls(1, 12))
    reader = reader_of(tmp_path)
    parts = reader.partitions(reader.initialOffset(), reader.latestOffset())
    assert len(parts) >= 11
    assert len(rows(reader)) == 11


# -- wrong uses --------------------------------------------------------------------------------------------------------


def refused(match: str, **options: str) -> None:
    given = {"hbase.spark.stream.source": "wal", "hbase.table": "t", "url": "hbase://127.0.0.1:1", **options}
    source = HBaseSource({name: value for name, value in given.items() if value})
    with pytest.raises(ConfigError, match=match):
        source.streamReader(source.schema())


def test_wrong_options_are_named() -> None:
    refused("no layout map", **{"hbase.spark.query.layout": "map"})
    refused("receives changes from hbase:// only", url="thrift2://127.0.0.1:1")
    refused(r"needs hbase\.spark\.stream\.spool", **{"hbase.spark.stream.receiver": "external"})
    refused("its command", **{"hbase.spark.stream.spool": "/x", "hbase.spark.stream.name": "n"})
    refused("use maxBytesPerTrigger", maxRowsPerTrigger="5")
    refused("begins at its creation", startingTimestamp="5")
    whole = CATALOG.replace('"col": "note", "type": "string"', '"type": "map<string,string>"')
    refused("note is a whole family", catalog=whole, **{"hbase.table": ""})
    refused("rename it", catalog=CATALOG.replace('"note"', '"sequence"'), **{"hbase.table": ""})


def test_schema_of_the_user_is_refused(tmp_path: Path) -> None:
    from pyspark.sql.types import StructType

    spooled(tmp_path)
    source = HBaseSource(
        {"hbase.spark.stream.source": "wal", "hbase.spark.stream.spool": str(tmp_path), "hbase.table": "t"}
    )
    with pytest.raises(ConfigError, match=r"leave \.schema"):
        source.streamReader(StructType().add("row", "binary"))


def test_checkpoint_of_another_spool_and_a_missing_spool_are_named(tmp_path: Path) -> None:
    spooled(tmp_path / "one", *calls(1, 3))
    reader = reader_of(tmp_path / "one")
    old = {**reader.latestOffset(), "spool": "id-0"}
    with pytest.raises(SpoolError, match="the checkpoint belongs to another spool"):
        reader.latestOffset(old)
    with pytest.raises(SpoolError, match=r"is no spool.*metaclient changes receive"):
        reader_of(tmp_path / "two").initialOffset()
    with pytest.raises(ConfigError, match="no changes of table b'u', only of b't'"):
        reader_of(tmp_path / "one", **{"hbase.table": "u"}).initialOffset()


def test_default_folder_is_of_the_subscription(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    given = {"hbase.spark.stream.source": "wal", "hbase.table": "ns:t", "url": "hbase://127.0.0.1:1"}
    source = HBaseSource(given)
    reader: Any = source.streamReader(source.schema())
    assert reader._folder == tmp_path / "metaclient" / "spools" / "spark-ns_t"
    assert reader.getDefaultReadLimit().max_bytes == 16 << 20


def test_driver_receives_with_the_options_of_the_stream(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its partitions carry the bytes: tasks need not see the folder."""
    from spark_connector.streaming import change_source

    seen: list[Any] = []

    class Receiver:
        def __init__(self, options: Any, name: str, table: bytes, folder: Path) -> None:
            spooled(folder, *calls(1, 4))
            address = (options.stream_host, options.stream_port, options.stream_allow_insecure)
            seen.append((name, table, *address, options.stream_spool_mb))

        def check(self) -> None:
            seen.append("checked")

        def close(self) -> None:
            seen.append("closed")

    monkeypatch.setattr(change_source, "DriverReceiver", Receiver)
    given = {"hbase.spark.stream.receiver": "driver", "hbase.spark.stream.name": "n", "hbase.spark.stream.host": "h"}
    given |= {"hbase.spark.stream.port": "5", "hbase.spark.stream.spool.mb": "7", "url": "hbase://127.0.0.1:1"}
    given |= {"hbase.spark.stream.allow.insecure": "true"}
    reader = reader_of(tmp_path / "s", **given)
    parts = reader.partitions(reader.initialOffset(), reader.latestOffset())
    (tmp_path / "s").rename(tmp_path / "elsewhere")
    found = [row for part in parts for batch in reader.read(part) for row in batch.to_pylist()]
    assert [row["row"] for row in found] == [b"001", b"002", b"003"]
    reader.stop()
    assert seen == [("n", b"t", "h", 5, True, 7.0), "checked", "closed"]
