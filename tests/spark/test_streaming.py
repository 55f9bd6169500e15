"""Structured Streaming both ways, on Spark's standalone cluster, against a fake HBase over TCP."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from metaclient import Connection
from tests.spark.patience import patiently
from tests.spark.releases import HAS_READ_LIMITS, HAS_SINKS, needs_read_limits, needs_sinks
from tests.spark.test_jobs import raw_cells
from tests.spark.test_writer import made, rows_of, stamps, versions

TIMEOUT_S = 240
T0 = 1_700_000_000_000


def changes(spark: Any, url: str, **options: Any) -> Any:
    given = {
        "url": url,
        "hbase.table": "t",
        "hbase.spark.query.layout": "raw",
        "hbase.spark.stream.lag.ms": 0,
        "startingTimestamp": T0,
        **options,
    }
    return spark.readStream.format("hbase").options(**given).load()


@pytest.fixture
def run(spark: Any, tmp_path: Path) -> Callable[..., list[tuple[Any, ...]]]:
    """Runs a stream until nothing is left, into a table in memory; all it has collected so far. Restarts go on."""

    def to_memory(df: Any, name: str = "seen") -> list[list[tuple[Any, ...]]]:
        batches: list[list[tuple[Any, ...]]] = []

        def collect(batch: Any, number: int) -> None:
            batches.append(sorted(tuple(row) for row in batch.collect()))

        writer = df.writeStream.foreachBatch(collect).option("checkpointLocation", str(tmp_path / name))
        patiently(lambda: ended(writer.trigger(availableNow=True).start()))
        return [batch for batch in batches if batch]

    return to_memory


def ended(query: Any) -> None:
    """Wait for the end of a query; its error is raised."""
    try:
        assert query.awaitTermination(TIMEOUT_S)
    finally:
        query.stop()


class TestSource:
    def test_changes_since_the_last_run_and_each_once(self, spark: Any, hbase: Any, run: Any) -> None:
        with made(hbase.connect()) as connection:
            table = connection.table("t")
            table.put(b"r0", {b"cf:a": b"before"}, timestamp=T0 - 1)
            table.put(b"r1", {b"cf:a": b"1"}, timestamp=T0)
            table.put(b"r9", {b"cf:a": b"2"}, timestamp=T0 + 5)
            first = run(changes(spark, hbase.url))
            assert [[(bytes(row[0]), row[3], row[4], bytes(row[5])) for row in batch] for batch in first] == [
                [(b"r1", T0, "PUT", b"1"), (b"r9", T0 + 5, "PUT", b"2")]
            ]
            table.put(b"r3", {b"cf:a": b"3"})
            table.delete(b"r1", [b"cf:a"])
            second = run(changes(spark, hbase.url))
            assert [(bytes(row[0]), row[4]) for batch in second for row in batch] == [
                (b"r1", "DELETE_COLUMN"),
                (b"r3", "PUT"),
            ]
            assert run(changes(spark, hbase.url)) == []

    def test_all_versions_in_between_are_changes(self, spark: Any, hbase: Any, run: Any) -> None:
        with made(hbase.connect()) as connection:
            for number in range(4):
                connection.table("t").put(b"r", {b"cf:a": b"%d" % number}, timestamp=T0 + number)
            (batch,) = run(changes(spark, hbase.url))
            assert sorted((row[3] - T0, bytes(row[5])) for row in batch) == [
                (0, b"0"),
                (1, b"1"),
                (2, b"2"),
                (3, b"3"),
            ]

    def test_a_lag_holds_back_what_may_not_be_complete(self, spark: Any, hbase: Any, run: Any) -> None:
        with made(hbase.connect()) as connection:
            connection.table("t").put(b"r1", {b"cf:a": b"old"}, timestamp=T0)
            connection.table("t").put(b"r2", {b"cf:a": b"just now"})
            lagging = changes(spark, hbase.url, **{"hbase.spark.stream.lag.ms": 3_600_000})
            assert [[bytes(row[0]) for row in batch] for batch in run(lagging)] == [[b"r1"]]

    @needs_read_limits
    def test_max_rows_per_trigger(self, spark: Any, hbase: Any, run: Any) -> None:
        """10 cells in 10 ms, and 6 in one: batches of at most 4, except for what one millisecond has."""
        with made(hbase.connect()) as connection:
            for number in range(10):
                connection.table("t").put(b"r%d" % number, {b"cf:a": b"1"}, timestamp=T0 + number)
            for number in range(6):
                connection.table("t").put(b"x%d" % number, {b"cf:a": b"1"}, timestamp=T0 + 100)
            batches = run(changes(spark, hbase.url, maxRowsPerTrigger=4))
            assert [[bytes(row[0]) for row in batch] for batch in batches] == [
                [b"r0", b"r1", b"r2", b"r3"],
                [b"r4", b"r5", b"r6", b"r7"],
                [b"r8", b"r9"],
                [b"x0", b"x1", b"x2", b"x3", b"x4", b"x5"],
            ]

    @pytest.mark.parametrize(
        ("options", "message"),
        [
            ({"hbase.spark.query.layout": "map"}, r"hbase\.spark\.query\.layout=raw"),
            ({"hbase.spark.query.timerange.start": 5}, "use startingTimestamp"),
            ({"hbase.spark.query.limit": 5}, "is not for streams"),
            ({"maxRowsPerTrigger": 100_000_000}, "at most 10000000"),
            ({"startingTimestamp": "yesterday"}, "startingTimestamp"),
        ],
    )
    def test_wrong_options(self, spark: Any, hbase: Any, run: Any, options: dict[str, Any], message: str) -> None:
        made(hbase.connect()).close()
        with pytest.raises(Exception, match=message):
            run(changes(spark, hbase.url, **options))


def sunk(spark: Any, source: Path, catalog: str, url: str, checkpoint: Path, **options: Any) -> None:
    """Streams JSON files into table t, until all are read."""
    df = spark.readStream.schema("id string, i int, name string").option("maxFilesPerTrigger", 1).json(str(source))
    given = {"url": url, "catalog": catalog, "checkpointLocation": str(checkpoint), **options}
    writer = df.writeStream.format("hbase").options(**given).trigger(availableNow=True)
    patiently(lambda: ended(writer.start()))


def file_of(folder: Path, name: str, rows: range, text: str) -> None:
    folder.mkdir(exist_ok=True)
    lines = [json.dumps({"id": f"r{number:03d}", "i": number, "name": text}) for number in rows]
    made_as = folder / f".{name}"
    made_as.write_text("\n".join(lines))
    made_as.rename(folder / f"{name}.json")


@pytest.mark.skipif(HAS_READ_LIMITS, reason="this Spark has read limits")
def test_limit_that_spark_does_not_support_is_refused(spark: Any, hbase: Any, run: Any) -> None:
    made(hbase.connect()).close()
    with pytest.raises(Exception, match=r"maxRowsPerTrigger needs Spark 4\.2 or newer"):
        run(changes(spark, hbase.url, maxRowsPerTrigger=4))


@pytest.mark.skipif(HAS_SINKS, reason="this Spark has sinks")
def test_sink_that_spark_does_not_support_is_refused_with_another_way(
    spark: Any, hbase: Any, catalog: str, tmp_path: Path
) -> None:
    made(hbase.connect()).close()
    file_of(tmp_path / "in", "a", range(3), "first")
    with pytest.raises(Exception, match=r"needs Spark 4\.1 or newer: use foreachBatch"):
        sunk(spark, tmp_path / "in", catalog, hbase.url, tmp_path / "cp")


@needs_sinks
class TestSink:
    def test_batches_have_their_own_times_and_a_replay_writes_the_same_cells(
        self, spark: Any, hbase: Any, catalog: str, tmp_path: Path
    ) -> None:
        with made(hbase.connect()) as connection:
            file_of(tmp_path / "in", "a", range(100), "first")
            file_of(tmp_path / "in", "b", range(50, 150), "second")
            sunk(spark, tmp_path / "in", catalog, hbase.url, tmp_path / "cp")
            assert len(rows_of(connection)) == 150
            assert len(stamps(connection)) == 2
            before = raw_cells(connection, "t")
            assert any(len(cells) == 4 for _, cells in before)  # two versions of rows that both files have
            # As after a crash: the last batch was run, and Spark does not know it.
            for entry in (tmp_path / "cp" / "commits").iterdir():
                if entry.name.strip(".").partition(".")[0] == "1":
                    entry.unlink()
            sunk(spark, tmp_path / "in", catalog, hbase.url, tmp_path / "cp")
            assert raw_cells(connection, "t") == before

    def test_a_base_for_timestamps(self, spark: Any, hbase: Any, catalog: str, tmp_path: Path) -> None:
        with made(hbase.connect()) as connection:
            file_of(tmp_path / "in", "a", range(3), "first")
            file_of(tmp_path / "in", "b", range(3), "second")
            base = {"hbase.spark.write.timestamp": 1000}
            sunk(spark, tmp_path / "in", catalog, hbase.url, tmp_path / "cp", **base)
            assert stamps(connection) == {1000, 1001}

    def test_a_batch_that_fails_is_run_again_on_restart(
        self, spark: Any, hbase: Any, catalog: str, tmp_path: Path
    ) -> None:
        """The table is missing at first: the query fails; with the table there the same batch is written."""
        file_of(tmp_path / "in", "a", range(20), "x")
        with pytest.raises(Exception, match="does not exist"):
            sunk(spark, tmp_path / "in", catalog, hbase.url, tmp_path / "cp")
        with made(hbase.connect()) as connection:
            sunk(spark, tmp_path / "in", catalog, hbase.url, tmp_path / "cp")
            assert len(rows_of(connection)) == 20
            assert versions(connection) == {1}


@needs_sinks
def test_a_table_followed_into_another_one(spark: Any, hbase: Any, tmp_path: Path) -> None:
    """Source and sink together: raw changes of t, with their timestamps and deletes, are written to u."""
    with made(hbase.connect()) as connection:
        made(connection, "u", splits=[b"r4"])
        fill(connection)
        for _ in range(2):
            writer = (
                changes(spark, hbase.url)
                .writeStream.format("hbase")
                .options(**{"url": hbase.url, "hbase.table": "u", "hbase.spark.query.layout": "raw"})
                .option("checkpointLocation", str(tmp_path / "cp"))
                .trigger(availableNow=True)
            )
            patiently(lambda writer=writer: ended(writer.start()))
            assert raw_cells(connection, "u") == raw_cells(connection, "t")
            connection.table("t").delete(b"r2")
            connection.table("t").put(b"r7", {b"cf:new": b"1"})


def fill(connection: Connection) -> None:
    for number in range(10):
        connection.table("t").put(b"r%d" % number, {b"cf:a": b"%d" % number}, timestamp=T0 + number)
