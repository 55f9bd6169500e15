"""S3, S3b, S4: a DataFrame written by the connector, compared with happybase's batch writer; and a count of rows.

It uses a real HBase if this machine can run one, and Spark's standalone cluster with two executors of one core.
happybase writes the same rows from one process through the Thrift 1 gateway. The connector writes from two tasks,
through the Thrift 2 gateway (of the same HBase, with the same settings) and directly to the region servers. Each writer
gets a new table, because flushes and compactions of earlier rows would slow down the next writer. Rounds alternate, so
that noise of the machine affects all; the figures are ratios of the medians.
"""

from __future__ import annotations

import json
import statistics
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import happybase

import metaclient
import spark_connector
from metaclient_bench.figure import Bars, Figure, Outcome
from metaclient_bench.gateways import HOST, Gateway, gateway
from metaclient_bench.scenario import Scenario
from metaclient_bench.spark_cluster import SparkCluster

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

TABLE = "spark_write_benchmark"
COLUMNS = 4
REGIONS = 8
#: happybase counts cells, the connector rows: both send a thousand rows per call.
BATCH_ROWS = 1000
#: The writers.
HAPPYBASE, GATEWAY, NATIVE = "happybase", "connector by thrift2", "connector by HBase's own RPC"
CATALOG = json.dumps(
    {
        "table": {"namespace": "default", "name": TABLE},
        "rowkey": "key",
        "columns": {
            "id": {"cf": "rowkey", "col": "key", "type": "string"},
            **{f"c{n}": {"cf": "cf", "col": f"c{n}", "type": "string"} for n in range(COLUMNS)},
        },
    }
)


def run(quick: bool) -> Outcome:
    # A Spark job has a fixed cost of some seconds; with few rows the figure would measure only that cost.
    rows, rounds, counted = (100_000, 2, 50_000) if quick else (300_000, 5, 1_000_000)
    with gateway() as served, SparkCluster(workers=2) as cluster:
        spark = cluster.session("spark-write")
        try:
            seconds = _written(spark, served, rows, rounds)
            lines, found, count_s = _counted(spark, served, counted)
        finally:
            spark.stop()
    median = {name: statistics.median(each) for name, each in seconds.items()}
    roads = [(number, name) for number, name in (("S3", GATEWAY), ("S3b", NATIVE)) if name in median]
    figures = (
        *(
            Figure.of(
                number,
                f"rows per second written by the {name}, happybase's batch writer = 1",
                median[HAPPYBASE] / median[name],
                ">= 1.5",
                connector_rows_per_s=rows / median[name],
                happybase_rows_per_s=rows / median[HAPPYBASE],
            )
            for number, name in roads
        ),
        Figure.of(
            "S4",
            f"lines that cross to Spark for each region when {counted} rows are counted",
            lines / REGIONS,
            "== 1",
            rows_counted=found,
            rows_per_s=found / count_s,
        ),
    )
    if found != counted:
        raise AssertionError(f"{found} rows were counted of {counted} that were written")
    shown = {name: rows / value for name, value in median.items()}
    kind = "real HBase" if served.is_real else "fake"
    chart = Bars(
        f"{rows} rows of {COLUMNS} cells written, {kind}", "rows per second", shown, goal=1.5 * shown[HAPPYBASE]
    )
    return Outcome(figures, {"seconds": seconds, "rows": rows, "is_real": served.is_real}, (chart,))


def _written(spark: SparkSession, served: Gateway, rows: int, rounds: int) -> dict[str, list[float]]:
    """Return the seconds of each writer per round; the first round is a warm-up and not counted."""
    writers: dict[str, Callable[[], None]] = {
        HAPPYBASE: lambda: _by_happybase(served, rows),
        GATEWAY: lambda: _by_connector(spark, served.url, rows),
    }
    if served.hbase is not None:
        native_url = served.hbase.native_url
        writers[NATIVE] = lambda: _by_connector(spark, native_url, rows)
    seconds: dict[str, list[float]] = {name: [] for name in writers}
    for number in range(rounds + 1):
        for name, write in writers.items():
            _new_table(served)
            began = time.perf_counter()
            write()
            if number:
                seconds[name].append(time.perf_counter() - began)
    return seconds


def _new_table(served: Gateway) -> None:
    with metaclient.connect(served.url) as connection:
        if TABLE.encode() in connection.tables():
            connection.delete_table(TABLE, disable=True)
        splits = [b"%07d" % (number * 10_000_000 // REGIONS) for number in range(1, REGIONS)]
        connection.create_table(TABLE, {"cf": {}}, splits=splits)


def _row(number: int) -> bytes:
    """Return a row key that is spread over the regions like a hash."""
    return b"%07d" % (number * 7_654_321 % 10_000_000)


def _by_happybase(served: Gateway, rows: int) -> None:
    connection = happybase.Connection(HOST, served.thrift1_port)
    try:
        with connection.table(TABLE).batch(batch_size=BATCH_ROWS * COLUMNS) as batch:
            for number in range(rows):
                value = b"value-%d" % number
                batch.put(_row(number), {b"cf:c%d" % n: value for n in range(COLUMNS)})
    finally:
        connection.close()


def _by_connector(spark: SparkSession, url: str, rows: int) -> None:
    given: dict[str, Any] = {"hbase.spark.write.batch.rows": BATCH_ROWS}
    spark_connector.write(_frame(spark, rows), CATALOG, url=url, **given)


def _frame(spark: SparkSession, rows: int) -> DataFrame:
    from pyspark.sql import functions as f

    value = f.concat(f.lit("value-"), f.col("id"))
    key = f.format_string("%07d", f.col("id") * 7_654_321 % 10_000_000)
    return spark.range(0, rows, 1, 2).select(key.alias("id"), *(value.alias(f"c{n}") for n in range(COLUMNS)))


def _counted(spark: SparkSession, served: Gateway, rows: int) -> tuple[int, int, float]:
    """Return the number of lines that tasks returned, the sum of their rows, and the seconds."""
    from spark_connector.jobs.row_counter import counts
    from spark_connector.jobs.splits import plan_splits, scan_options
    from spark_connector.planning.query import Query
    from spark_connector.settings.option_uses import Use

    _new_table(served)
    _by_connector(spark, served.url, rows)
    query = Query.of(scan_options(TABLE, served.url, {}, Use.ROW_COUNT))
    began = time.perf_counter()
    lines = counts(spark, query, plan_splits(spark, query)).collect()
    return len(lines), sum(int(line.rows) for line in lines), time.perf_counter() - began


SCENARIO = Scenario(
    "spark-write",
    ("S3", "S3b", "S4"),
    "the connector writes faster than happybase, and counts without moving rows to Spark",
    run,
    backend="gateway",
)
