"""The stream source without Spark: which instant a batch ends at, and what is in it. Real code, a fake over TCP."""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from typing import Any

import pytest

pytest.importorskip("pyspark", reason="needs the extra 'spark'")
pytest.importorskip("pyspark.sql.streaming.datasource", reason="Spark asks for limits from 4.2 on")

from pyspark.sql.datasource import InputPartition
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows

from metaclient import ConfigError, Connection
from metaclient_fake import FakeCluster
from spark_connector import clients
from spark_connector.planning.read_schema import schema_of
from spark_connector.settings.options import Options
from spark_connector.streaming.source_and_sink import HBaseStreamReader, MissingChangesWarning

T0 = 1_700_000_000_000


@pytest.fixture(scope="module")
def cluster() -> Iterator[FakeCluster]:
    with FakeCluster(servers=2) as made:
        made.serve()
        yield made
        clients.close_all()


@pytest.fixture
def connection(cluster: FakeCluster) -> Iterator[Connection]:
    with cluster.connect() as made:
        made.create_table("t", {"cf": {"max_versions": 10}}, splits=[b"r5"])
        yield made
        made.delete_table("t", disable=True)


def reader(cluster: FakeCluster, **given: Any) -> HBaseStreamReader:
    options = Options.parse(
        {
            "url": f"thrift2://127.0.0.1:{cluster.thrift2_port}",
            "hbase.table": "t",
            "hbase.spark.query.layout": "raw",
            "hbase.spark.stream.lag.ms": "0",
            "startingTimestamp": str(T0),
            **{name: str(value) for name, value in given.items()},
        }
    )
    return HBaseStreamReader(options, schema_of(options.catalog(), options))


def put(connection: Connection, row: bytes, stamp: int) -> None:
    connection.table("t").put(row, {b"cf:a": b"v"}, timestamp=T0 + stamp)


def read(made: HBaseStreamReader, start: int, end: int) -> list[tuple[bytes, int, str]]:
    """As Spark does it: partitions are pickled, and read by a reader that was pickled, too."""
    parts = made.partitions({"ts": T0 + start}, {"ts": T0 + end})
    rows = []
    for part in parts:
        for batch in pickle.loads(pickle.dumps(made)).read(pickle.loads(pickle.dumps(part))):
            rows += [(row["row"], row["timestamp"] - T0, row["type"]) for row in batch.to_pylist()]
    return sorted(rows)


def test_a_batch_has_the_cells_of_its_time_and_no_others(cluster: FakeCluster, connection: Connection) -> None:
    for stamp, row in ((0, b"r1"), (1, b"r7"), (2, b"r1"), (3, b"r9")):
        put(connection, row, stamp)
    connection.table("t").delete(b"r7", [b"cf:a"], timestamp=T0 + 2)
    made = reader(cluster)
    assert read(made, 1, 3) == [(b"r1", 2, "PUT"), (b"r7", 1, "PUT"), (b"r7", 2, "DELETE_COLUMN")]
    assert read(made, 0, 1) == [(b"r1", 0, "PUT")]
    assert made.partitions({"ts": T0}, {"ts": T0}) == []
    assert list(made.read(InputPartition(None))) == []  # Spark's own, when there is none


def test_offsets_go_on_from_the_start_and_never_back(cluster: FakeCluster, connection: Connection) -> None:
    made = reader(cluster)
    assert made.initialOffset() == {"ts": T0}
    now = made.latestOffset({"ts": T0}, ReadAllAvailable())["ts"]
    assert now > T0
    ahead = {"ts": now + 10_000_000}
    assert made.latestOffset(ahead, ReadAllAvailable()) == ahead
    assert made.latestOffset()["ts"] >= now  # Spark before 4.2
    assert isinstance(made.getDefaultReadLimit(), ReadAllAvailable)


def test_the_lag_and_the_default_start(cluster: FakeCluster, connection: Connection) -> None:
    made = reader(cluster, **{"hbase.spark.stream.lag.ms": 3_600_000, "startingTimestamp": "now"})
    start = made.initialOffset()
    assert made.latestOffset(start, ReadAllAvailable()) == start
    assert made.reportLatestOffset()["ts"] <= start["ts"] - 3_500_000


def test_available_now_ends(cluster: FakeCluster, connection: Connection) -> None:
    made = reader(cluster)
    made.prepareForTriggerAvailableNow()
    end = made.latestOffset({"ts": T0}, ReadAllAvailable())
    assert made.latestOffset({"ts": T0}, ReadAllAvailable()) == end
    assert made.latestOffset(end, ReadAllAvailable()) == end


def test_a_limit_cuts_where_it_fits(cluster: FakeCluster, connection: Connection) -> None:
    for stamp in (0, 1, 1, 2, 5, 5, 5, 9):
        put(connection, b"r%d" % connection._runtime.rng.getrandbits(60), stamp)
    made = reader(cluster, maxRowsPerTrigger=3)
    limit = made.getDefaultReadLimit()
    assert limit == ReadMaxRows(3)
    made.prepareForTriggerAvailableNow()
    at, seen = 0, []
    for _ in range(10):
        end = made.latestOffset({"ts": T0 + at}, limit)["ts"] - T0
        if end == at:
            break
        seen.append([stamp for _, stamp, _ in sorted(read(made, at, end), key=lambda row: row[1])])
        at = end
    assert [batch for batch in seen if batch] == [[0, 1, 1], [2], [5, 5, 5], [9]]


def test_one_millisecond_is_never_separated(cluster: FakeCluster, connection: Connection) -> None:
    for number in range(6):
        put(connection, b"r%d" % number, 3)
    made = reader(cluster, maxRowsPerTrigger=2)
    assert made.latestOffset({"ts": T0}, ReadMaxRows(2)) == {"ts": T0 + 4}


def test_spark_before_4_2_asks_for_no_limits(cluster: FakeCluster, connection: Connection) -> None:
    with pytest.raises(ConfigError, match=r"Spark 4\.2"):
        reader(cluster, maxRowsPerTrigger=2).latestOffset()


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"hbase.spark.query.layout": "map"}, r"hbase\.spark\.query\.layout=raw"),
        ({"hbase.spark.query.timestamp": 5}, "use startingTimestamp"),
        ({"hbase.spark.query.timerange.end": 5}, "use startingTimestamp"),
        ({"maxRowsPerTrigger": 100_000_000}, "at most 10000000"),
        ({"url": "fake:x"}, "serve it over TCP"),
    ],
)
def test_wrong_options(cluster: FakeCluster, given: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        reader(cluster, **given)


def test_new_stream_says_what_it_can_miss(cluster: FakeCluster) -> None:
    """ "The timestamp source ... says loudly what it can miss"."""
    made = reader(cluster)
    with pytest.warns(MissingChangesWarning, match=r"table t .*older than 0 ms.*hbase\.spark\.stream\.source=wal"):
        made.initialOffset()
