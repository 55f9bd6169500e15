"""Semantics that surprise, as docs/spark.md has them: hidden cells, deletes of nulls, microseconds, empty cells."""

from __future__ import annotations

import datetime
import json
import logging
import pickle
from collections.abc import Iterator
from typing import Any

import pytest

pytest.importorskip("pyspark", reason="needs the extra 'spark'")

import pyarrow as pa

from metaclient import Connection
from metaclient.columns.codecs.base import BadValueError
from metaclient.errors import ConfigError
from metaclient_fake import FakeCluster
from spark_connector import clients
from spark_connector.jobs.splits import schema_from
from spark_connector.planning.query import Query
from spark_connector.planning.splits import plan
from spark_connector.reading.split_reader import read_split
from spark_connector.settings.option_uses import Use, check_written
from spark_connector.settings.options import Options
from spark_connector.writing import writer as writing
from spark_connector.writing.hidden_cells import SAMPLE_ROWS
from spark_connector.writing.writer import HBaseWriter, WriteMessage

SCHEMA = schema_from("id string, a string, n bigint")
MAPPING = "id STRING :id, a STRING cf:a, n BIGINT cf:n"
NOW = 1_700_000_000_000


@pytest.fixture(scope="module", params=["thrift2", "native"])
def url(request: pytest.FixtureRequest) -> Iterator[str]:
    with FakeCluster(servers=2) as cluster:
        front = cluster.serve(thrift1_port=None, rpc_port=0)
        yield str(front.thrift2_url if request.param == "thrift2" else front.rpc_url)
        clients.close_all()


@pytest.fixture
def connection(url: str) -> Iterator[Connection]:
    import metaclient

    with metaclient.connect(url) as made:
        made.create_table("t", {"cf": {"max_versions": 3}}, splits=[b"r3"])
        yield made
        made.delete_table("t", disable=True)


def options(url: str, **given: Any) -> Options:
    named = {name.replace("_", "."): str(value) for name, value in given.items()}
    return Options.parse({"url": url, "hbase.table": "t", "hbase.columns.mapping": MAPPING, **named})


def batch(values: list[str | None], first: int = 0) -> pa.RecordBatch:
    names = [f"r{first + number}" for number in range(len(values))]
    return pa.record_batch(
        [pa.array(names), pa.array(values, pa.string()), pa.array([1] * len(values), pa.int64())], names=SCHEMA.names
    )


def written(url: str, batches: list[pa.RecordBatch], **given: Any) -> tuple[HBaseWriter, WriteMessage]:
    made = HBaseWriter(options(url, hbase_spark_write_timestamp=NOW, **given), SCHEMA, False)
    return made, pickle.loads(pickle.dumps(made)).write(iter(batches))


def read(url: str, **given: str) -> list[dict[str, Any]]:
    parsed = Options.parse({"url": url, **given})
    query = Query.of(parsed)
    with clients.lease(parsed) as client:
        return [
            row
            for split in plan(client, query)
            for each in read_split(client, query, split)
            for row in each.to_pylist()
        ]


@pytest.mark.parametrize(("mode", "checked", "hidden"), [("sample", 5, 3), ("count", 5, 3), ("off", 0, 0)])
def test_cells_that_stay_hidden_are_counted_and_logged(
    url: str, connection: Connection, mode: str, checked: int, hidden: int, caplog: pytest.LogCaptureFixture
) -> None:
    """An earlier writer had a clock that is ahead: two cells of r1 and one of r4 are newer than the job."""
    table = connection.table("t")
    table.put(b"r1", {b"cf:a": b"ahead", b"cf:n": bytes(8)}, timestamp=NOW + 5_000)
    table.put(b"r4", {b"cf:a": b"ahead"}, timestamp=NOW + 1)
    table.put(b"r2", {b"cf:a": b"older"}, timestamp=NOW - 1)
    made, message = written(url, [batch(["x"] * 5)], hbase_spark_write_hidden=mode)
    assert (message.checked, message.hidden) == (checked, hidden)
    assert table.row(b"r1")[b"cf:a"] == b"ahead"
    assert table.row(b"r2")[b"cf:a"] == b"x"
    with caplog.at_level(logging.WARNING, logger=writing.__name__):
        made.commit([message])
    said = [record.getMessage() for record in caplog.records if "stay hidden" in record.getMessage()]
    assert len(said) == (1 if hidden else 0)
    if said:
        assert f"3 written cells of table t in {checked} rows checked stay hidden" in said[0]
        assert "hbase.spark.write.timestamp=server" in said[0]


def test_a_sample_is_bounded_and_a_count_is_not(url: str, connection: Connection) -> None:
    batches = [batch(["x"] * 70, first) for first in (100, 200, 300)]
    assert written(url, batches)[1].checked == SAMPLE_ROWS
    assert written(url, batches, hbase_spark_write_hidden="count")[1].checked == 210


def test_a_deleted_null_hides_a_value_of_a_second_run_with_the_same_timestamp(
    url: str, connection: Connection, caplog: pytest.LogCaptureFixture
) -> None:
    table = connection.table("t")
    made, _ = written(url, [batch([None])], hbase_spark_write_nulls="delete")
    written(url, [batch(["now there"])], hbase_spark_write_nulls="delete")
    assert b"cf:a" not in table.row(b"r0"), "the delete of the first run has the same timestamp"
    with caplog.at_level(logging.ERROR, logger=writing.__name__):
        made.abort([None])
    assert "write again with a later timestamp" in caplog.text
    later = HBaseWriter(
        options(url, hbase_spark_write_timestamp=NOW + 1, hbase_spark_write_nulls="delete"), SCHEMA, False
    )
    later.write(iter([batch(["now there"])]))
    assert table.row(b"r0")[b"cf:a"] == b"now there"


def test_a_repeated_task_with_the_same_rows_changes_nothing(url: str, connection: Connection) -> None:
    for _ in range(2):
        written(url, [batch([None, "b"])], hbase_spark_write_nulls="delete")
    table = connection.table("t")
    assert b"cf:a" not in table.row(b"r0")
    assert table.cells(b"r1", b"cf:a") == [b"b"]


@pytest.mark.parametrize("type", ["timestamp", "timestamp_ntz"])
@pytest.mark.parametrize("coder", ["naive", "string", "orderedbytes", "phoenix", "json"])
def test_microseconds_are_kept_or_refused_and_never_lost(
    url: str, connection: Connection, coder: str, type: str
) -> None:
    columns = {
        "id": {"cf": "rowkey", "col": "id", "type": "string"},
        "at": {"cf": "cf", "col": "at", "type": type, "coder": coder},
    }
    catalog = json.dumps({"table": {"name": "t"}, "rowkey": "id", "columns": columns})
    zone = datetime.UTC if type == "timestamp" else None
    arrow = pa.timestamp("us", "UTC" if zone else None)
    schema = schema_from(f"id string, at {type}")
    for micros in (123_000, 123_456):
        at = datetime.datetime(2024, 1, 1, microsecond=micros, tzinfo=zone)
        rows = pa.record_batch([pa.array(["r"]), pa.array([at], arrow)], names=["id", "at"])
        made = HBaseWriter(Options.parse({"url": url, "catalog": catalog}), schema, False)
        if coder == "naive" and micros % 1000:
            with pytest.raises(BadValueError, match=r"row r, column at: .*123456.* has microseconds.*date_trunc"):
                made.write(iter([rows]))
        else:
            made.write(iter([rows]))
            assert read(url, catalog=catalog) == [{"id": "r", "at": at}]


@pytest.mark.parametrize("coder", ["naive", "string", "orderedbytes", "phoenix", "json"])
@pytest.mark.parametrize("type", ["int", "double", "decimal(10,2)", "date", "timestamp", "boolean", "string"])
def test_an_empty_cell_is_null_unless_it_is_an_empty_text(
    url: str, connection: Connection, coder: str, type: str
) -> None:
    """Also for the filter that the servers get: IS NULL finds missing and empty cells."""
    connection.table("t").put(b"empty", {b"cf:v": b"", b"cf:w": b"x"})
    connection.table("t").put(b"missing", {b"cf:w": b"x"})
    columns = {
        "id": {"cf": "rowkey", "col": "id", "type": "string"},
        "v": {"cf": "cf", "col": "v", "type": type, "coder": coder},
        "w": {"cf": "cf", "col": "w", "type": "string"},
    }
    catalog = json.dumps({"table": {"name": "t"}, "rowkey": "id", "columns": columns})
    is_text = type == "string" and coder in ("naive", "string")
    expected = "" if is_text else None
    assert {row["id"]: row["v"] for row in read(url, catalog=catalog)} == {"empty": expected, "missing": None}
    nulls = read(url, catalog=catalog, **{"hbase.spark.query.where": "v IS NULL"})
    assert [row["id"] for row in nulls] == (["missing"] if is_text else ["empty", "missing"])
    others = read(url, catalog=catalog, **{"hbase.spark.query.where": "v IS NOT NULL"})
    assert [row["id"] for row in others] == (["empty"] if is_text else [])


def test_nulls_written_as_empty_cells_are_read_as_nulls(url: str, connection: Connection) -> None:
    rows = pa.record_batch(
        [pa.array(["r"]), pa.array([None], pa.string()), pa.array([None], pa.int64())], names=SCHEMA.names
    )
    HBaseWriter(options(url, hbase_spark_write_nulls="empty"), SCHEMA, False).write(iter([rows]))
    found = read(url, **{"hbase.table": "t", "hbase.columns.mapping": MAPPING})
    assert found == [{"id": "r", "a": "", "n": None}]


@pytest.mark.parametrize("use", [Use.WRITE, Use.STREAM_WRITE])
def test_the_timestamp_of_a_query_is_not_that_of_a_write(use: Use) -> None:
    """hbase-connectors has one option for both."""
    with pytest.raises(ConfigError, match=r"hbase\.spark\.query\.timestamp .* use hbase\.spark\.write\.timestamp"):
        check_written(["hbase.spark.query.timestamp"], use)
