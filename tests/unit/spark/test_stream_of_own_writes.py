"""Our stream source beside our own writers: cells that say they are older than they are, and how to have none."""

from __future__ import annotations

import logging
import pickle
from collections.abc import Iterator
from typing import Any

import pytest

pytest.importorskip("pyspark", reason="needs the extra 'spark'")
pytest.importorskip("pyspark.sql.streaming.datasource", reason="Spark asks for limits from 4.2 on")

import pyarrow as pa

from metaclient import Connection
from metaclient.model import LATEST_TIMESTAMP
from metaclient_fake import FakeCluster
from spark_connector import clients
from spark_connector.jobs.splits import schema_from
from spark_connector.planning.read_schema import schema_of
from spark_connector.settings.options import Options
from spark_connector.streaming.source_and_sink import (
    DataSourceStreamArrowWriter,
    HBaseStreamReader,
    _Batch,
    stream_writer,
)
from spark_connector.writing import writer
from spark_connector.writing.writer import STREAM_LAG_MS, HBaseWriter

SCHEMA = schema_from("id string, a string, n bigint")
CELLS = schema_from("row binary, family string, qualifier binary, timestamp bigint, type string, value binary")
ROWS = 41


@pytest.fixture(scope="module")
def cluster() -> Iterator[FakeCluster]:
    with FakeCluster(servers=2) as made:
        made.serve(rpc_port=0)
        yield made
        clients.close_all()


@pytest.fixture
def connection(cluster: FakeCluster) -> Iterator[Connection]:
    with cluster.connect() as made:
        made.create_table("t", {"cf": {"max_versions": 10}}, splits=[b"r2"])
        yield made
        made.delete_table("t", disable=True)


@pytest.fixture(params=["thrift2", "thrift1", "hbase+rpc"])
def url(cluster: FakeCluster, request: pytest.FixtureRequest) -> str:
    port = {"thrift2": cluster.thrift2_port, "thrift1": cluster.thrift1_port, "hbase+rpc": cluster.rpc_port}
    return f"{request.param}://127.0.0.1:{port[request.param]}"


class Clock:
    """The writer's own clock: milliseconds that a test sets."""

    def __init__(self, now_ms: int) -> None:
        self.now_ms = now_ms

    def time_ms(self) -> int:
        return self.now_ms


def options(url: str, **given: Any) -> Options:
    mapping = {} if "hbase.spark.query.layout" in given else {"hbase.columns.mapping": MAPPING}
    return Options.parse({"url": url, "hbase.table": "t", **mapping, **{name: str(one) for name, one in given.items()}})


MAPPING = "id STRING :id, a STRING cf:a, n BIGINT cf:n"


def batch() -> pa.RecordBatch:
    names = [f"r{number}" for number in range(ROWS)]
    return pa.record_batch([pa.array(names), pa.array(names), pa.array(range(ROWS), pa.int64())], names=SCHEMA.names)


def rows_between(url: str, start: int, end: int) -> set[bytes]:
    """The rows of one micro-batch."""
    given = options(url, **{"hbase.spark.query.layout": "cells"})
    made = HBaseStreamReader(given, schema_of(given.catalog(), given))
    parts = made.partitions({"ts": start}, {"ts": end})
    return {row["row"] for part in parts for found in made.read(part) for row in found.to_pylist()}


@pytest.mark.parametrize(("timestamp", "seen"), [("job", 0), ("server", ROWS)])
def test_a_stream_misses_what_a_slow_job_writes_unless_it_has_the_servers_time(
    cluster: FakeCluster,
    url: str,
    connection: Connection,
    monkeypatch: pytest.MonkeyPatch,
    timestamp: str,
    seen: int,
) -> None:
    """The job began a minute ago; the stream has read up to now, and its next batch begins here."""
    now = connection._runtime.time_ms()
    monkeypatch.setattr(writer, "_runtime", Clock(now - 60_000))
    made = HBaseWriter(options(url, **{"hbase.spark.write.timestamp": timestamp}), SCHEMA, False)
    pickle.loads(pickle.dumps(made)).write(iter([batch()]))
    assert len(list(connection.table("t").scan())) == ROWS
    stream = f"thrift2://127.0.0.1:{cluster.thrift2_port}"
    assert len(rows_between(stream, now, connection._runtime.time_ms() + 60_000)) == seen


def test_cells_without_a_time_of_their_own_get_the_servers(
    url: str, connection: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = connection._runtime.time_ms()
    monkeypatch.setattr(writer, "_runtime", Clock(now - 60_000))
    cells = pa.record_batch(
        [[b"r1", b"r2"], ["cf", "cf"], [b"a", b"a"], pa.array([None, 7], pa.int64()), ["PUT", "PUT"], [b"v", b"v"]],
        names=CELLS.names,
    )
    given = options(url, **{"hbase.spark.query.layout": "cells", "hbase.spark.write.timestamp": "server"})
    HBaseWriter(given, CELLS, False).write(iter([cells]))
    stamps = [connection.table("t").cells(row, b"cf:a", include_timestamp=True)[0][1] for row in (b"r1", b"r2")]
    assert stamps[0] >= now
    assert stamps[1] == 7


def test_deletes_with_the_servers_time_hide_what_is_there(url: str, connection: Connection) -> None:
    for number in range(3):
        connection.table("t").put(b"r%d" % number, {b"cf:a": b"v"})
    server = {"hbase.spark.write.timestamp": "server"}
    keys = schema_from("id string")
    rows = pa.record_batch([pa.array(["r0", "r1"])], names=["id"])
    HBaseWriter(options(url, **server, **{"hbase.spark.write.operation": "delete"}), keys, False).write(iter([rows]))
    assert [key for key, _ in connection.table("t").scan()] == [b"r2"]


@pytest.mark.parametrize(
    ("took_ms", "given", "warns"),
    [
        (STREAM_LAG_MS + 1, {}, True),
        (STREAM_LAG_MS, {}, False),
        (10 * STREAM_LAG_MS, {"hbase.spark.write.timestamp": "server"}, False),
        (10 * STREAM_LAG_MS, {"hbase.spark.write.timestamp": "1000"}, False),
    ],
)
def test_a_job_that_takes_longer_than_streams_wait_warns(
    cluster: FakeCluster,
    connection: Connection,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    took_ms: int,
    given: dict[str, str],
    warns: bool,
) -> None:
    clock = Clock(connection._runtime.time_ms())
    monkeypatch.setattr(writer, "_runtime", clock)
    made = HBaseWriter(options(f"thrift2://127.0.0.1:{cluster.thrift2_port}", **given), SCHEMA, False)
    clock.now_ms += took_ms
    with caplog.at_level(logging.WARNING, "spark_connector"):
        made.commit([])
    assert ("hbase.spark.write.timestamp=server" in caplog.text) == warns


@pytest.mark.skipif(DataSourceStreamArrowWriter is None, reason="Spark has streams into Python sinks from 4.1 on")
@pytest.mark.parametrize("given", [{}, {"hbase.spark.write.timestamp": "server"}], ids=str)
def test_a_micro_batch_that_takes_longer_than_streams_wait_warns(
    cluster: FakeCluster,
    connection: Connection,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    tmp_path: Any,
    given: dict[str, str],
) -> None:
    began = connection._runtime.time_ms()
    (tmp_path / "offsets").mkdir()
    (tmp_path / "offsets" / "4").write_text(f'v1\n{{"batchTimestampMs":{began}}}\n{{"ts":1}}')
    monkeypatch.setattr(writer, "_runtime", Clock(began + STREAM_LAG_MS + 1))
    parsed = options(f"thrift2://127.0.0.1:{cluster.thrift2_port}", **given)
    made = stream_writer(parsed, SCHEMA, False, str(tmp_path))
    with caplog.at_level(logging.WARNING, "spark_connector"):
        made.commit([], 4)
    assert ("has missed the late ones" in caplog.text) == (not given)


def test_a_sink_with_the_servers_time_needs_no_checkpoint(cluster: FakeCluster) -> None:
    made = _Batch(options("thrift2://x:1", **{"hbase.spark.write.timestamp": "server"}), None)
    assert made.timestamp(7) == LATEST_TIMESTAMP
    assert not made.is_time
