"""S7, S8: bulk loads compared with puts, and reads of a snapshot's files compared with scans, by Spark on a real HBase.

Two executors of one core each do the work. Each load gets a new table, because flushes and compactions of earlier rows
would slow down the next one. The tables that are read have been flushed: in one, each cell was written once (a single
file per region); in the other, three versions of each cell lie in three files, which HBase has not compacted yet. The
peers take turns in each round, and the figures are ratios of the medians. The requests are counted by the region
servers themselves, per region, before and after one more scan and one more read of the snapshot.
"""

from __future__ import annotations

import json
import statistics
import tempfile
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import metaclient
import spark_connector
from metaclient_bench.figure import Bars, Figure, Outcome
from metaclient_bench.scenario import Scenario
from metaclient_bench.spark_cluster import SparkCluster
from metaclient_local_hbase import LocalHBase, missing_tools

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

COLUMNS = 4
REGIONS = 8
VERSIONS = 3
#: Keys are seven digits, spread over the regions like a hash.
KEYS = 10_000_000
ADMIN_S = 120.0
#: Region servers report their counters to the master every three seconds (hbase.regionserver.msginterval).
REPORTS_S = 8.0
PUTS, LOAD = "puts", "bulk load"
SCAN, SNAPSHOT = "scan", "snapshot"


@dataclass(frozen=True, slots=True)
class Clusters:
    """A running HBase, a session of a running Spark, and the number of rows of each table."""

    hbase: LocalHBase
    spark: SparkSession
    rows: int

    def frame(self) -> DataFrame:
        from pyspark.sql import functions as f

        value = f.concat(f.lit("value-"), f.col("id"))
        key = f.format_string("%07d", f.col("id") * 7_654_321 % KEYS)
        frame = self.spark.range(0, self.rows, 1, 2)
        return frame.select(key.alias("id"), *(value.alias(f"c{n}") for n in range(COLUMNS)))

    def new_table(self, name: str) -> None:
        with metaclient.connect(self.hbase.native_url) as connection:
            if name.encode() in connection.tables():
                connection.delete_table(name, disable=True)
            splits = [b"%07d" % (number * KEYS // REGIONS) for number in range(1, REGIONS)]
            connection.create_table(name, {"cf": {"max_versions": VERSIONS}}, splits=splits)

    def put(self, name: str) -> None:
        spark_connector.write(self.frame(), catalog_of(name), url=self.hbase.native_url)

    def load(self, name: str, staging: Path) -> None:
        frame, url = self.frame(), self.hbase.native_url
        spark_connector.bulk_load(frame, catalog_of(name), url=url, staging=f"file://{staging}")


def run(quick: bool) -> Outcome:
    rows, rounds = (500_000, 2) if quick else (1_000_000, 5)  # a job of two stages has a fixed cost of a second
    with LocalHBase(region_servers=2, meta_replicas=2) as hbase, SparkCluster(workers=2) as cluster:
        spark = cluster.session("spark-files")
        spark.sparkContext.setLogLevel("ERROR")
        try:
            clusters = Clusters(hbase, spark, rows)
            loads = _loads(clusters, rounds)
            once, requests = _reads(clusters, "spark_files_once", 1, rounds)
            thrice, further = _reads(clusters, "spark_files_thrice", VERSIONS, rounds)
            asked = {name: requests[name] + further[name] for name in requests}
        finally:
            spark.stop()
    figures = (
        _over("S7", f"rows per second of a {LOAD} over {PUTS}", loads, LOAD, PUTS, rows, ">= 3"),
        _over(
            "S8",
            f"rows per second of a {SNAPSHOT} over a {SCAN}, cells written once",
            once,
            SNAPSHOT,
            SCAN,
            rows,
            ">= 2",
        ),
        _over("S8b", f"the same, {VERSIONS} versions of each cell in files", thrice, SNAPSHOT, SCAN, rows, ">= 2"),
        Figure.of(
            "S8c", f"read requests of a {SNAPSHOT} at the region servers", asked[SNAPSHOT], "== 0", scan=asked[SCAN]
        ),
    )
    shown = {
        **{name: rows / statistics.median(each) for name, each in {**loads, **once}.items()},
        **{f"{name}, {VERSIONS} versions": rows / statistics.median(each) for name, each in thrice.items()},
    }
    chart = Bars(f"{rows} rows of {COLUMNS} cells by Spark, real HBase", "rows per second", shown)
    return Outcome(figures, {"loads": loads, "once": once, "thrice": thrice, "rows": rows}, (chart,))


def _over(id: str, what: str, seconds: Mapping[str, list[float]], ours: str, peer: str, rows: int, goal: str) -> Figure:
    taken = {name: statistics.median(each) for name, each in seconds.items()}
    beside = {f"{name.replace(' ', '_')}_rows_per_s": rows / taken[name] for name in (ours, peer)}
    return Figure.of(id, what, taken[peer] / taken[ours], goal, **beside)


def _loads(clusters: Clusters, rounds: int) -> dict[str, list[float]]:
    """Return the seconds of each way to write a new table, per round, after one round that does not count."""
    name = "spark_files_loaded"
    with tempfile.TemporaryDirectory(prefix="spark-files-") as staging:
        ways: dict[str, Callable[[], None]] = {
            PUTS: lambda: clusters.put(name),
            LOAD: lambda: clusters.load(name, Path(staging)),
        }
        return _timed(ways, rounds, before=lambda: clusters.new_table(name))


def _reads(clusters: Clusters, name: str, versions: int, rounds: int) -> tuple[dict[str, list[float]], dict[str, int]]:
    """Return, per way to read a table, the seconds of each round and the requests that one more read has made."""
    clusters.new_table(name)
    for _ in range(versions):
        clusters.put(name)
        clusters.hbase.admin.flush(name.encode())
    with metaclient.connect(clusters.hbase.native_url) as connection:
        admin: Any = connection.engine.backend.admin  # type: ignore[attr-defined]  # native RPC has it
        admin.snapshot(f"{name}-1", name.encode(), connection.engine.runtime.now() + ADMIN_S)
    root = f"file://{clusters.hbase.folder}/data/hbase"

    def snapshot() -> None:
        _read_all(
            spark_connector.snapshot(clusters.spark, f"{name}-1", root=root, catalog=catalog_of(name)), clusters.rows
        )

    def scan() -> None:
        _read_all(spark_connector.table(clusters.spark, catalog_of(name), url=clusters.hbase.native_url), clusters.rows)

    ways = {SCAN: scan, SNAPSHOT: snapshot}
    seconds = _timed(ways, rounds)
    requests = {}
    for kind, way in ways.items():
        before = _requests(clusters, name)
        way()
        requests[kind] = _requests(clusters, name) - before
    if not requests[SCAN]:
        raise AssertionError("the region servers have counted no request of a scan, so their counters prove nothing")
    return seconds, requests


def _read_all(frame: DataFrame, rows: int) -> None:
    """Read every cell of a DataFrame in Spark's executors, and check the number of rows."""
    from pyspark.sql import functions as f

    length = sum((f.length(f.col(column)) for column in frame.columns), f.lit(0))
    found = frame.select(f.count(f.lit(1)), f.sum(length)).collect()[0]
    if found[0] != rows or not found[1]:
        raise AssertionError(f"{found[0]} of {rows} rows were read, with {found[1]} characters")


def _requests(clusters: Clusters, name: str) -> int:
    """Return the read requests that the regions of a table have had, when all servers have reported them."""
    time.sleep(REPORTS_S)
    with metaclient.connect(clusters.hbase.native_url) as connection:
        admin: Any = connection.engine.backend.admin  # type: ignore[attr-defined]  # native RPC has it
        status = admin.cluster_status(connection.engine.runtime.now() + ADMIN_S)
    regions = [one for server in status.live_servers for one in server.regions]
    return sum(one.reads for one in regions if one.region_name.startswith(f"{name},".encode()))


def _timed(
    ways: Mapping[str, Callable[[], None]], rounds: int, *, before: Callable[[], None] = lambda: None
) -> dict[str, list[float]]:
    seconds: dict[str, list[float]] = {name: [] for name in ways}
    for number in range(rounds + 1):
        for name, way in ways.items():
            before()
            began = time.perf_counter()
            way()
            if number:
                seconds[name].append(time.perf_counter() - began)
    return seconds


def catalog_of(table: str) -> str:
    columns = {f"c{n}": {"cf": "cf", "col": f"c{n}", "type": "string"} for n in range(COLUMNS)}
    key = {"cf": "rowkey", "col": "key", "type": "string"}
    return json.dumps({"table": {"name": table}, "rowkey": "key", "columns": {"id": key, **columns}})


SCENARIO = Scenario(
    "spark-files",
    ("S7", "S8", "S8b", "S8c"),
    "bulk loads are faster than puts, and snapshots are read faster than tables, without the region servers",
    run,
    backend="local-hbase",
    missing=missing_tools,
)
