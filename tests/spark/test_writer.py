"""Writing DataFrames, on Spark's standalone cluster, against a fake HBase over TCP; bad days included."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import pytest

import spark_connector as hbase_spark
from metaclient import ConfigError, Connection
from tests.spark.test_jobs import raw_cells

#: Little patience, for tests in which nobody will answer any more.
IMPATIENT = {
    "hbase.client.operation.timeout": "4000",
    "hbase.rpc.timeout": "1000",
    "hbase.client.retries.number": "3",
    "hbase.client.pause": "20",
}


def made(connection: Connection, table: str = "t", **kind: Any) -> Connection:
    connection.create_table(table, {"cf": {"max_versions": 10}}, **{"splits": [b"r2", b"r5", b"r8"], **kind})
    return connection


def numbers(spark: Any, rows: int = 1000, partitions: int = 4) -> Any:
    """id r000..., i = the number, name = its text."""
    from pyspark.sql import functions as f

    number = f.col("id").cast("int")
    return spark.range(0, rows, 1, partitions).select(
        f.format_string("r%03d", number).alias("id"), number.alias("i"), f.concat(f.lit("n"), number).alias("name")
    )


def failing(df: Any, fail: Callable[[], None]) -> Any:
    """The same rows, in small batches; at the end of the first attempt of partition 1, ``fail`` is called."""

    def rows(batches: Iterator[Any]) -> Iterator[Any]:
        from pyspark import TaskContext

        context = TaskContext.get()
        for batch in batches:
            for start in range(0, batch.num_rows, 10):
                yield batch.slice(start, 10)
        if context.partitionId() == 1 and context.attemptNumber() == 0:
            fail()

    return df.mapInArrow(rows, df.schema)


def raise_error() -> None:
    raise ValueError("this attempt fails on purpose")


def kill_worker() -> None:
    os._exit(1)


def kill_executor() -> None:
    """Kill the JVM that this worker's daemon belongs to, as the system would when memory is short."""
    import signal
    from pathlib import Path

    pid = os.getpid()
    for _ in range(10):
        pid = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
        command = Path(f"/proc/{pid}/cmdline").read_bytes()
        if b"CoarseGrainedExecutorBackend" in command:
            os.kill(pid, signal.SIGKILL)
            return
    raise AssertionError("no executor above this worker")


def stamps(connection: Connection, table: str = "t") -> set[int]:
    return {cell.timestamp for _, cells in raw_cells(connection, table) for cell in cells}


def versions(connection: Connection, table: str = "t") -> set[int]:
    """How many versions the cells have: {1} when each was written once, or again with the same timestamp."""
    counted: set[int] = set()
    for _, cells in raw_cells(connection, table):
        names = [cell.column for cell in cells]
        counted |= {names.count(name) for name in names}
    return counted


def rows_of(connection: Connection, table: str = "t") -> dict[bytes, dict[bytes, bytes]]:
    return {key: dict(row) for key, row in connection.table(table).scan()}


def expected(rows: int = 1000) -> dict[bytes, dict[bytes, bytes]]:
    return {
        b"r%03d" % number: {b"cf:i": number.to_bytes(4, "big"), b"cf:name": b"n%d" % number} for number in range(rows)
    }


class TestPuts:
    def test_what_is_written_is_read_back(self, spark: Any, hbase: Any, catalog: str) -> None:
        with made(hbase.connect()) as connection:
            hbase_spark.write(numbers(spark), catalog, url=hbase.url)
            assert rows_of(connection) == expected()
            df = hbase_spark.table(spark, catalog, url=hbase.url)
            assert sorted(map(tuple, df.collect())) == sorted(map(tuple, numbers(spark).collect()))

    def test_one_timestamp_for_the_job_and_no_lookup_by_executors(self, spark: Any, hbase: Any, catalog: str) -> None:
        with made(hbase.connect()) as connection:
            before = hbase_spark.lookups(spark)["executors"]
            numbers(spark).write.format("hbase").option("url", hbase.url).option("catalog", catalog).mode(
                "append"
            ).save()
            assert len(stamps(connection)) == 1
            assert hbase_spark.lookups(spark)["executors"] == before

    def test_timestamps_by_number_and_by_column(self, spark: Any, hbase: Any, catalog: str) -> None:
        from pyspark.sql import functions as f

        with made(hbase.connect()) as connection:
            write = partial(hbase_spark.write, catalog=catalog, url=hbase.url)
            write(numbers(spark, 5), hbase_spark_write_timestamp=77)
            assert stamps(connection) == {77}
            stamped = numbers(spark, 5).withColumn("at", (f.col("i") + 100).cast("long"))
            write(stamped, hbase_spark_write_timestamp="column:at")
            assert stamps(connection) == {77, 100, 101, 102, 103, 104}

    @pytest.mark.parametrize(
        ("nulls", "left"),
        [("skip", {b"cf:name": b"old"}), ("delete", {}), ("empty", {b"cf:name": b""})],
    )
    def test_nulls(self, spark: Any, hbase: Any, catalog: str, nulls: str, left: dict[bytes, bytes]) -> None:
        with made(hbase.connect()) as connection:
            connection.table("t").put(b"r1", {b"cf:name": b"old"}, timestamp=5)
            df = spark.createDataFrame([("r1", 7, None)], "id string, i int, name string")
            hbase_spark.write(df, catalog, url=hbase.url, hbase_spark_write_nulls=nulls)
            assert connection.table("t").row(b"r1") == {b"cf:i": b"\0\0\0\7", **left}

    def test_small_batches_one_at_a_time_and_a_rate(self, spark: Any, hbase: Any, catalog: str) -> None:
        with made(hbase.connect()) as connection:
            given = {
                "hbase.spark.write.batch.rows": 7,
                "hbase.spark.write.batch.bytes": 300,
                "hbase.spark.write.concurrency": 1,
                "hbase.spark.write.rate.mb": 1,
                "hbase.spark.write.durability": "ASYNC_WAL",
                "hbase.spark.locations": "lookup",
            }
            hbase_spark.write(numbers(spark, 200), catalog, url=hbase.url, **given)
            assert rows_of(connection) == expected(200)

    def test_layout_cells_writes_what_it_reads(self, spark: Any, hbase: Any, catalog: str) -> None:
        with made(hbase.connect()) as connection:
            made(connection, "u", splits=[b"r4"])
            hbase_spark.write(numbers(spark, 50), catalog, url=hbase.url)
            layout = {"hbase.spark.query.layout": "raw"}
            read = hbase_spark.table(spark, None, url=hbase.url, **{"hbase.table": "t"}, **layout)
            hbase_spark.write(read, None, url=hbase.url, **{"hbase.table": "u"}, **layout)
            assert raw_cells(connection, "u") == raw_cells(connection, "t")


class TestOtherOperations:
    def test_deletes_of_rows_and_of_cells(self, spark: Any, hbase: Any, catalog: str) -> None:
        with made(hbase.connect()) as connection:
            hbase_spark.write(numbers(spark, 10), catalog, url=hbase.url)
            delete = partial(hbase_spark.write, catalog=catalog, url=hbase.url, hbase_spark_write_operation="delete")
            delete(numbers(spark, 3).select("id"))
            delete(numbers(spark, 5).where("i >= 3").select("id", "name"))
            left = rows_of(connection)
            assert sorted(left) == [b"r%03d" % number for number in range(3, 10)]
            assert left[b"r004"] == {b"cf:i": b"\0\0\0\4"}
            assert left[b"r005"] == expected()[b"r005"]

    COUNTERS = json.dumps(
        {
            "table": {"namespace": "default", "name": "t"},
            "rowkey": "key",
            "columns": {
                "id": {"cf": "rowkey", "col": "key", "type": "string"},
                "hits": {"cf": "cf", "col": "hits", "type": "bigint"},
            },
        }
    )

    def test_increments_must_be_accepted(self, spark: Any, hbase: Any) -> None:
        with made(hbase.connect()) as connection:
            df = spark.createDataFrame([("r1", 5), ("r9", 7)], "id string, hits long")
            add = partial(hbase_spark.write, df, self.COUNTERS, url=hbase.url, hbase_spark_write_operation="increment")
            with pytest.raises(ConfigError, match=r"not idempotent.*hbase\.spark\.write\.atleastonce=true"):
                add()
            assert rows_of(connection) == {}
            for _ in range(2):
                add(hbase_spark_write_atleastonce=True)
            assert connection.table("t").counter_get(b"r1", b"cf:hits") == 10
            assert connection.table("t").counter_get(b"r9", b"cf:hits") == 14


class TestTables:
    def test_a_missing_table_is_an_error_or_made_with_splits(self, spark: Any, hbase: Any, catalog: str) -> None:
        with hbase.connect() as connection:
            with pytest.raises(Exception, match=r"does not exist.*newtable"):
                hbase_spark.write(numbers(spark, 5), catalog, url=hbase.url)
            hbase_spark.write(numbers(spark), catalog, url=hbase.url, newtable=6, regionStart="r1", regionEnd="r9")
            assert len(connection.regions("t")) == 6
            assert rows_of(connection) == expected()

    def test_splits_of_a_new_table(self, spark: Any, hbase: Any, catalog: str) -> None:
        with hbase.connect() as connection:
            hbase_spark.write(numbers(spark, 5), catalog, url=hbase.url, hbase_spark_write_splits="r002,r004")
            assert [entry.region.start_key for entry in connection.regions("t")] == [b"", b"r002", b"r004"]

    def test_overwrite_is_guarded_and_truncates_once(self, spark: Any, hbase: Any, catalog: str) -> None:
        with made(hbase.connect()) as connection:
            connection.table("t").put(b"old", {b"cf:name": b"x"})
            with pytest.raises(Exception, match=r"hbase\.spark\.write\.truncate=true"):
                hbase_spark.write(numbers(spark, 5), catalog, url=hbase.url, mode="overwrite")
            assert b"old" in rows_of(connection)
            created = [entry.region.region_id for entry in connection.regions("t")]
            again = failing(numbers(spark, 100), raise_error)  # a task that runs again must not truncate again
            hbase_spark.write(again, catalog, url=hbase.url, mode="overwrite", hbase_spark_write_truncate=True)
            assert rows_of(connection) == expected(100)
            assert [entry.region.start_key for entry in connection.regions("t")] == [b"", b"r2", b"r5", b"r8"]
            assert all(entry.region.region_id > max(created) for entry in connection.regions("t"))


class TestBadInput:
    @pytest.mark.parametrize(
        ("select", "given", "message"),
        [
            (["i", "name"], {}, "row key's column id is not in the DataFrame"),
            (["id", "cast(i as long) i"], {}, "column i is int in the catalog and int64 in the DataFrame"),
            (["id", "i", "i as nosuch"], {}, "nosuch"),
            (["id", "i"], {"hbase.spark.write.nuls": "skip"}, r"did you mean hbase\.spark\.write\.nulls"),
            (["id", "i"], {"hbase.spark.write.timestamp": "column:at"}, "no column at"),
            (["id", "i"], {"mode": "ignore"}, "append or overwrite"),
            (["id", "i"], {"url": "fake:x"}, "serve it over TCP"),
        ],
    )
    def test_is_refused_before_anything_is_written(
        self, spark: Any, hbase: Any, catalog: str, select: list[str], given: dict[str, str], message: str
    ) -> None:
        with made(hbase.connect()) as connection:
            with pytest.raises(ConfigError, match=message):
                hbase_spark.write(numbers(spark, 5).selectExpr(*select), catalog, **{"url": hbase.url, **given})
            assert rows_of(connection) == {}

    def test_a_null_row_key_names_the_row(self, spark: Any, hbase: Any, catalog: str) -> None:
        made(hbase.connect()).close()
        df = spark.createDataFrame([("r1", 1), (None, 2)], "id string, i int")
        with pytest.raises(Exception, match=r"row 2 of a batch.*id"):
            hbase_spark.write(df.coalesce(1), catalog, url=hbase.url)

    def test_a_family_that_is_not_there(self, spark: Any, hbase: Any, catalog: str) -> None:
        with hbase.connect() as connection:
            connection.create_table("t", {"other": {}})
            with pytest.raises(Exception, match=r"NoSuchFamily.*no family 'cf'.*it has other"):
                hbase_spark.write(numbers(spark, 5), catalog, url=hbase.url)


class TestBadDays:
    """A task that runs twice, a worker or an executor that dies, a gateway that goes away: right, or a clear error."""

    SMALL = {"hbase.spark.write.batch.rows": 10}  # noqa: RUF012 - a constant

    @pytest.mark.parametrize("fail", [raise_error, kill_worker, kill_executor])
    def test_a_task_that_runs_again_leaves_one_version(
        self, spark: Any, hbase: Any, catalog: str, fail: Callable[[], None]
    ) -> None:
        with made(hbase.connect()) as connection:
            hbase_spark.write(failing(numbers(spark, 400), fail), catalog, url=hbase.url, **self.SMALL)
            assert rows_of(connection) == expected(400)
            assert versions(connection) == {1}
            assert len(stamps(connection)) == 1

    def test_a_task_that_always_fails_is_an_error_and_what_others_wrote_can_be_found(
        self, spark: Any, hbase: Any, catalog: str
    ) -> None:
        def fail(batches: Iterator[Any]) -> Iterator[Any]:
            from pyspark import TaskContext

            yield from batches
            if TaskContext.get().partitionId() == 1:
                raise ValueError("this task never works")

        df = numbers(spark, 400)
        with made(hbase.connect()) as connection:
            with pytest.raises(Exception, match="this task never works"):
                hbase_spark.write(df.mapInArrow(fail, df.schema), catalog, url=hbase.url, **self.SMALL)
            assert len(stamps(connection)) == 1
            # The same job again, with the timestamp that the log tells, replaces all of it.
            stamp = stamps(connection).pop()
            hbase_spark.write(df, catalog, url=hbase.url, hbase_spark_write_timestamp=stamp)
            assert rows_of(connection) == expected(400)
            assert versions(connection) == {1}

    @pytest.fixture
    def on_put(self, monkeypatch: pytest.MonkeyPatch) -> Callable[[int, Callable[[], None]], None]:
        """Calls a function when the gateway gets its n-th batch of puts, before it is carried out."""
        from metaclient_fake.front.thrift2 import Thrift2Handler

        real = Thrift2Handler._batch

        def arm(number: int, function: Callable[[], None]) -> None:
            calls = iter(range(1, 1_000_000))

            def batch(self: Any, table: bytes, actions: Any) -> Any:
                if next(calls) == number:
                    function()
                return real(self, table, actions)

            monkeypatch.setattr(Thrift2Handler, "_batch", batch)

        return arm

    def test_regions_that_move_and_split_meanwhile(self, spark: Any, hbase: Any, catalog: str, on_put: Any) -> None:
        with made(hbase.connect()) as connection:

            def shake() -> None:
                for entry in connection.regions("t"):
                    here = entry.primary.server.host
                    hbase.cluster.move(entry.region.encoded_name, next(s for s in hbase.cluster.servers() if s != here))
                hbase.cluster.split(connection.regions("t")[1].region.encoded_name, b"r3")

            on_put(5, shake)
            hbase_spark.write(numbers(spark, 400), catalog, url=hbase.url, **self.SMALL)
            assert len(connection.regions("t")) == 5
            assert rows_of(connection) == expected(400)
            assert versions(connection) == {1}

    def test_a_gateway_that_comes_back_costs_nothing(self, spark: Any, hbase: Any, catalog: str, on_put: Any) -> None:
        port, restarted = hbase.cluster.thrift2_port, []

        def restart() -> None:
            hbase.cluster.front.close()
            restarted.append(hbase.cluster.serve(thrift1_port=None, thrift2_port=port))

        with made(hbase.connect()) as connection:
            on_put(5, lambda: hbase.cluster.runtime.start(restart, name="restart"))
            hbase_spark.write(numbers(spark, 400), catalog, url=hbase.url, **self.SMALL)
            assert restarted
            assert rows_of(connection) == expected(400)
            assert versions(connection) == {1}

    def test_a_gateway_that_is_gone_is_a_clear_error(self, spark: Any, hbase: Any, catalog: str, on_put: Any) -> None:
        with made(hbase.connect()) as connection:
            on_put(5, lambda: hbase.cluster.runtime.start(hbase.cluster.front.close, name="close"))
            with pytest.raises(Exception, match=r"could not be written.*|ServerUnreachable|DeadlineExceeded") as raised:
                hbase_spark.write(numbers(spark, 400), catalog, url=hbase.url, **self.SMALL, **IMPATIENT)
            assert hbase.url.removeprefix("thrift2://") in str(raised.value)
            assert len(stamps(connection)) <= 1

    def test_a_server_that_dies_meanwhile(self, spark: Any, hbase: Any, catalog: str, on_put: Any) -> None:
        with made(hbase.connect()) as connection:
            on_put(5, lambda: hbase.cluster.kill(connection.locate("t", b"r3").server.host))
            hbase_spark.write(numbers(spark, 400), catalog, url=hbase.url, **self.SMALL)
            assert rows_of(connection) == expected(400)
            assert versions(connection) == {1}
