"""The write half against a real HBase: what the fake promises is what HBase does."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

import metaclient
import spark_connector as hbase_spark
from metaclient import Connection
from metaclient_local_hbase import LocalHBase
from tests.spark.patience import patiently
from tests.spark.releases import needs_sinks
from tests.spark.served import catalog_of
from tests.spark.test_jobs import raw_cells
from tests.spark.test_streaming import ended, file_of, sunk
from tests.spark.test_writer import expected, failing, numbers, raise_error, rows_of, stamps, versions

pytestmark = pytest.mark.live

TABLE = "spark_live"
CATALOG = catalog_of(TABLE)


@pytest.fixture(params=["thrift2", "hbase"])
def url(real_hbase: LocalHBase, request: pytest.FixtureRequest) -> str:
    """By a gateway, and straight to the servers."""
    return real_hbase.thrift2_url if request.param == "thrift2" else real_hbase.native_url


@pytest.fixture
def connection(url: str) -> Iterator[Connection]:
    """A client; the tables of these tests are gone before and after."""
    with metaclient.connect(url) as made:
        drop(made)
        yield made
        drop(made)


def drop(connection: Connection) -> None:
    for name in connection.tables():
        if name.startswith(TABLE.encode()):
            connection.delete_table(name, disable=True)


def starts(connection: Connection) -> list[bytes]:
    """Return where the regions start, by the primary of hbase:meta: its copies are seconds behind on a busy machine."""
    return [entry.region.start_key for entry in connection.engine.regions(TABLE.encode(), at_primary=True)]


@pytest.mark.essential
def test_written_by_tasks_that_run_twice_and_read_back(spark: Any, url: str, connection: Connection) -> None:
    df = failing(numbers(spark, 1000), raise_error)
    small = {"hbase.spark.write.batch.rows": 50}
    hbase_spark.write(df, CATALOG, url=url, newtable=5, regionStart="r2", regionEnd="r8", **small)
    assert len(starts(connection)) == 5
    assert rows_of(connection, TABLE) == expected(1000)
    assert versions(connection, TABLE) == {1}
    assert len(stamps(connection, TABLE)) == 1
    back = hbase_spark.table(spark, CATALOG, url=url)
    assert sorted(map(tuple, back.collect())) == sorted(map(tuple, numbers(spark, 1000).collect()))


def test_deletes_nulls_overwrite_and_a_ttl(spark: Any, url: str, connection: Connection) -> None:
    write = partial(hbase_spark.write, catalog=CATALOG, url=url)
    write(numbers(spark, 10), hbase_spark_write_splits="r005")
    write(numbers(spark, 3).select("id"), hbase_spark_write_operation="delete")
    assert sorted(rows_of(connection, TABLE)) == [b"r%03d" % number for number in range(3, 10)]
    gone = numbers(spark, 4).where("i = 3").selectExpr("id", "cast(null as string) name")
    write(gone, hbase_spark_write_nulls="delete")
    assert rows_of(connection, TABLE)[b"r003"] == {b"cf:i": b"\0\0\0\3"}
    write(numbers(spark, 5), mode="overwrite", hbase_spark_write_truncate=True)
    assert rows_of(connection, TABLE) == expected(5)
    assert starts(connection) == [b"", b"r005"]
    # A cell whose life is over when it is written is never seen; one that lives for a day is.
    past = 1_600_000_000_000
    short = numbers(spark, 7).where("i = 6")
    write(short, hbase_spark_write_ttl=1, hbase_spark_write_timestamp=past)
    assert b"r006" not in rows_of(connection, TABLE)
    write(short, hbase_spark_write_ttl=86_400_000)
    assert rows_of(connection, TABLE)[b"r006"] == expected(7)[b"r006"]


def test_jobs(spark: Any, url: str, connection: Connection) -> None:
    hbase_spark.write(numbers(spark, 1000), CATALOG, url=url, newtable=4, regionStart="r2", regionEnd="r8")
    assert hbase_spark.row_count(spark, TABLE, url=url, expected=1000) == 1000
    assert hbase_spark.row_count(spark, TABLE, url=url, startrow="r100", stoprow="r200") == 100
    connection.table(TABLE).delete(b"r500")
    copy = f"{TABLE}_copy"
    done = hbase_spark.copy_table(spark, TABLE, url=url, to_table=copy, all_cells=True, create=True)
    assert done.rows == 1000  # with the one of which only a marker, and what it hides, is left
    assert raw_cells(connection, copy) == raw_cells(connection, TABLE)
    check = partial(hbase_spark.verify_replication, spark, TABLE, url=url, peer_table=copy)
    assert check().counters["GOODROWS"] == 999
    connection.table(copy).put(b"r007", {b"cf:name": b"other"})
    for blocks in (None, 100):
        report = check(block_rows=blocks)
        assert [(line.verdict, bytes(line.row)) for line in report.differences.collect()] == [
            ("CONTENT_DIFFERENT", b"r007")
        ]
        report.close()
    people = spark.createDataFrame([(1, "r001"), (2, "r500"), (3, "r999")], "n int, who string")
    joined = hbase_spark.join(people, CATALOG, on="who", url=url, how="left", columns=["name"])
    assert sorted(map(tuple, joined.collect())) == [(1, "r001", "n1"), (2, "r500", None), (3, "r999", "n999")]


@needs_sinks
def test_streams(spark: Any, url: str, connection: Connection, tmp_path: Path) -> None:
    connection.create_table(TABLE, {"cf": {"max_versions": 5}}, splits=[b"r050"])
    file_of(tmp_path / "in", "a", range(100), "first")
    file_of(tmp_path / "in", "b", range(50, 150), "second")
    for _ in range(2):
        sunk(spark, tmp_path / "in", CATALOG, url, tmp_path / "cp")
    assert len(stamps(connection, TABLE)) == 2
    before = raw_cells(connection, TABLE)
    for entry in (tmp_path / "cp" / "commits").iterdir():  # as after a crash: Spark does not know that it ran
        if entry.name.strip(".").partition(".")[0] == "1":
            entry.unlink()
    sunk(spark, tmp_path / "in", CATALOG, url, tmp_path / "cp")
    assert raw_cells(connection, TABLE) == before

    copy = f"{TABLE}_copy"
    connection.create_table(copy, {"cf": {"max_versions": 5}})
    names = {"url": url, "hbase.spark.query.layout": "raw"}
    changes = (
        spark.readStream.format("hbase")
        .options(**names, **{"hbase.table": TABLE, "hbase.spark.stream.lag.ms": 0, "startingTimestamp": 0})
        .load()
    )
    for _ in range(2):
        writer = (
            changes.writeStream.format("hbase")
            .options(**names, **{"hbase.table": copy, "checkpointLocation": str(tmp_path / "cp2")})
            .trigger(availableNow=True)
        )
        patiently(lambda writer=writer: ended(writer.start()))
        assert raw_cells(connection, copy) == raw_cells(connection, TABLE)
        connection.table(TABLE).delete(b"r003")
