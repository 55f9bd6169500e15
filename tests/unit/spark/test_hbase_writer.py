"""The writer without Spark: what it does on the driver and in a task, called as Spark calls it. A fake over TCP."""

from __future__ import annotations

import logging
import pickle
from collections.abc import Iterator
from typing import Any

import pytest

pytest.importorskip("pyspark", reason="needs the extra 'spark'")

import pyarrow as pa

from metaclient import ConfigError, Connection, NoSuchFamily, TableNotFound
from metaclient.errors import MetaClientError
from metaclient_fake import FakeCluster
from spark_connector import clients
from spark_connector.jobs.splits import schema_from
from spark_connector.settings.options import Options
from spark_connector.streaming.checkpoint import BatchTime
from spark_connector.streaming.source_and_sink import DataSourceStreamArrowWriter, _Batch, stream_writer
from spark_connector.writing.writer import HBaseWriter, WriteMessage

SCHEMA = schema_from("id string, a string, n bigint")
MAPPING = "id STRING :id, a STRING cf:a, n BIGINT cf:n"
NEEDS_SINKS = pytest.mark.skipif(
    DataSourceStreamArrowWriter is None, reason="Spark has streams into Python sinks by Arrow from 4.1 on"
)


@pytest.fixture(scope="module")
def cluster() -> Iterator[FakeCluster]:
    with FakeCluster(servers=3, meta_replicas=3) as made:
        made.serve()
        yield made
        clients.close_all()


@pytest.fixture
def connection(cluster: FakeCluster) -> Iterator[Connection]:
    with cluster.connect() as made:
        made.create_table("t", {"cf": {"max_versions": 10}}, splits=[b"r3", b"r6"])
        yield made
        made.delete_table("t", disable=True)


def options(cluster: FakeCluster, **given: Any) -> Options:
    return Options.parse(
        {
            "url": f"thrift2://127.0.0.1:{cluster.thrift2_port}",
            "hbase.table": "t",
            "hbase.columns.mapping": MAPPING,
            **{name.replace("_", "."): str(value) for name, value in given.items()},
        }
    )


def batch(rows: int) -> pa.RecordBatch:
    names = [f"r{number}" for number in range(rows)]
    return pa.record_batch([pa.array(names), pa.array(names), pa.array(range(rows), pa.int64())], names=SCHEMA.names)


def shipped(writer: Any) -> Any:
    """As it arrives in a task, or where the job is committed."""
    return pickle.loads(pickle.dumps(writer))


def test_a_task_writes_with_the_timestamp_of_the_driver(cluster: FakeCluster, connection: Connection) -> None:
    writer = HBaseWriter(options(cluster), SCHEMA, False)
    messages = [shipped(writer).write(iter([batch(9)])) for _ in range(3)]  # a task, and two that run again
    assert {(one.rows, one.cells) for one in messages} == {(9, 18)}
    assert connection.table("t").cells(b"r4", b"cf:a", include_timestamp=True) == [(b"r4", writer.timestamp)]


def test_a_job_later_is_another_version(cluster: FakeCluster, connection: Connection) -> None:
    for stamp in (5, 6):
        shipped(HBaseWriter(options(cluster, hbase_spark_write_timestamp=stamp), SCHEMA, False)).write(iter([batch(1)]))
    assert [at for _, at in connection.table("t").cells(b"r0", b"cf:a", include_timestamp=True)] == [6, 5]


def test_a_partition_without_rows(cluster: FakeCluster, connection: Connection) -> None:
    message = shipped(HBaseWriter(options(cluster), SCHEMA, False)).write(iter([]))
    assert message == WriteMessage(0, 0, 0, 0, 0, 0, 0, 0)


def test_locations_travel_or_do_not(cluster: FakeCluster, connection: Connection) -> None:
    assert HBaseWriter(options(cluster), SCHEMA, False)._locations
    looking = HBaseWriter(options(cluster, hbase_spark_locations="lookup"), SCHEMA, False)
    assert not looking._locations
    assert shipped(looking).write(iter([batch(9)])).servers >= 2


def test_commit_and_abort_say_what_happened(
    cluster: FakeCluster, connection: Connection, caplog: pytest.LogCaptureFixture
) -> None:
    writer = HBaseWriter(options(cluster), SCHEMA, False)
    message = shipped(writer).write(iter([batch(9)]))
    with caplog.at_level(logging.INFO, "spark_connector"):
        shipped(writer).commit([message, message])
        shipped(writer).abort([message, None])
    told = [record.getMessage() for record in caplog.records]
    assert f"wrote 18 mutations, 36 cells, {2 * message.bytes} bytes, 0 retries to table t" in told[0]
    assert "spark_connector.repartition" in told[1]
    assert "1 of 2 tasks had ended" in told[-1]
    assert str(writer.timestamp) in told[-1]


@pytest.mark.parametrize(
    ("given", "overwrite", "error", "message"),
    [
        ({"hbase_table": "nosuch"}, False, TableNotFound, "newtable"),
        ({"hbase_columns_mapping": MAPPING.replace("cf:", "x:")}, False, NoSuchFamily, "no family 'x'"),
        ({}, True, ConfigError, "truncate=true"),
        ({"hbase_spark_write_operation": "increment"}, False, MetaClientError, "cannot be incremented"),
        ({"url": "fake:x"}, False, ConfigError, "serve it over TCP"),
    ],
)
def test_the_driver_refuses(
    cluster: FakeCluster,
    connection: Connection,
    given: dict[str, str],
    overwrite: bool,
    error: type[Exception],
    message: str,
) -> None:
    with pytest.raises(error, match=message):
        HBaseWriter(options(cluster, **given), SCHEMA, overwrite)


def test_increments_and_deletes(cluster: FakeCluster, connection: Connection) -> None:
    counters = schema_from("id string, n bigint")
    rows = batch(3).select(["id", "n"])
    given = {"hbase_columns_mapping": "id STRING :id, n BIGINT cf:n", "hbase_spark_write_operation": "increment"}
    with pytest.raises(ConfigError, match=r"hbase\.spark\.write\.atleastonce=true"):
        HBaseWriter(options(cluster, **given), counters, False)
    adding = HBaseWriter(options(cluster, **given, hbase_spark_write_atleastonce="true"), counters, False)
    for _ in range(2):
        shipped(adding).write(iter([rows]))
    assert connection.table("t").counter_get(b"r2", b"cf:n") == 4
    with pytest.raises(ConfigError, match="use mode append"):
        given["hbase_spark_write_operation"] = "delete"
        HBaseWriter(options(cluster, **given, hbase_spark_write_truncate="true"), counters, True)
    shipped(HBaseWriter(options(cluster, **given), counters, False)).write(iter([rows.slice(0, 2)]))
    assert [key for key, _ in connection.table("t").scan()] == [b"r2"]


class TestMicroBatches:
    def test_the_checkpoints_time_or_a_base_and_the_id(self, cluster: FakeCluster, tmp_path: Any) -> None:
        (tmp_path / "offsets").mkdir()
        (tmp_path / "offsets" / "4").write_text('v1\n{"batchTimestampMs":777}\n{"ts":1}')
        at = _Batch(options(cluster), str(tmp_path))
        assert at._time == BatchTime(4, 777)
        assert at.timestamp(4) == 777
        with pytest.raises(ConfigError, match="micro-batch 5 runs, and the checkpoint's latest is 4"):
            at.timestamp(5)
        assert _Batch(options(cluster, hbase_spark_write_timestamp=1000), None).timestamp(5) == 1005

    @NEEDS_SINKS
    def test_outside_of_a_stream_there_is_no_batch(self, cluster: FakeCluster, connection: Connection) -> None:
        writer = stream_writer(options(cluster, hbase_spark_write_timestamp=1000), SCHEMA, False)
        with pytest.raises(ConfigError, match=r"streaming\.sql\.batchId"):
            shipped(writer).write(iter([batch(1)]))

    @NEEDS_SINKS
    def test_without_a_checkpoint_the_driver_says_what_to_do(
        self, cluster: FakeCluster, connection: Connection
    ) -> None:
        with pytest.raises(ConfigError, match="checkpointLocation"):
            stream_writer(options(cluster), SCHEMA, False)
