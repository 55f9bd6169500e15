"""S5, S6a, S6b: the reads of hbase:meta by a Spark job, per meta replica, by the fake cluster's counters.

200 tasks read 1000 regions. S5: with shipped locations the whole job makes as few meta reads as its planning; beside
it, one cold client per task. S6: in ``lookup`` mode every task finds its own range: how even that is over secondaries
(chi-square, one degree of freedom: 10.83 is exceeded once in a thousand runs by chance), and how much of it reaches the
primary. The gateway's own client, which asks the primary as HBase's does, is warmed up first.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import metaclient
from metaclient_bench.figure import Bars, Figure, Outcome
from metaclient_bench.scenario import Scenario
from metaclient_bench.spark_cluster import SparkCluster
from metaclient_fake import FakeCluster

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

TABLE = "wide"
CATALOG = json.dumps(
    {
        "table": {"namespace": "default", "name": TABLE},
        "rowkey": "key",
        "columns": {
            "id": {"cf": "rowkey", "col": "key", "type": "string"},
            "i": {"cf": "cf", "col": "i", "type": "int"},
        },
    }
)
META_REPLICAS = 3


def run(quick: bool) -> Outcome:
    regions, tasks = (250, 50) if quick else (1000, 200)
    with wide_table(regions) as cluster, SparkCluster(workers=2) as workers:
        cold = reads_during(cluster, lambda: read_by_cold_clients(cluster, tasks))
        spark = workers.session("benchmark")
        spark.sparkContext.setLogLevel("ERROR")
        try:
            ship = reads_during(cluster, lambda: read_by_spark(spark, cluster, regions, tasks, "ship"))
            lookup = reads_during(cluster, lambda: read_by_spark(spark, cluster, regions, tasks, "lookup"))
        finally:
            spark.stop()
    secondaries = [lookup[replica] for replica in range(1, META_REPLICAS)]
    even = sum(secondaries) / len(secondaries)
    chi_square = sum((one - even) ** 2 / even for one in secondaries)
    what = f"{tasks} tasks on {regions} regions"
    figures = (
        Figure.of("S5", f"meta reads of {what}, as a share of one cold client per task", _share(ship, cold), "<= 0.02",
                  job=sum(ship.values()), cold_clients=sum(cold.values())),
        Figure.of("S6a", f"chi-square of lookups over the secondaries, {what}", chi_square, "< 10.83",
                  lookups=sum(lookup.values())),
        Figure.of("S6b", "share of those lookups at the primary", lookup[0] / sum(lookup.values()), "<= 0.01"),
    )  # fmt: skip
    shown = {"cold clients": sum(cold.values()), "lookup mode": sum(lookup.values()), "shipped": sum(ship.values())}
    chart = Bars("meta reads of one job", "reads", {name: float(count) for name, count in shown.items()}, is_log_y=True)
    return Outcome(figures, {"cold": cold, "ship": ship, "lookup": lookup}, (chart,))


def _share(some: dict[int, int], of: dict[int, int]) -> float:
    return sum(some.values()) / sum(of.values())


@contextmanager
def wide_table(regions: int) -> Iterator[FakeCluster]:
    with FakeCluster(servers=5, meta_replicas=META_REPLICAS) as cluster:
        cluster.serve()
        with cluster.connect() as connection:
            connection.create_table(TABLE, {"cf": {}}, splits=[b"r%04d" % i for i in range(1, regions)])
            with connection.table(TABLE).batch() as batch:
                for i in range(regions):
                    batch.put(b"r%04d" % i, {b"cf:i": i.to_bytes(4, "big")})
        cluster.wait_until_replicated(60)
        with metaclient.connect(_url(cluster)) as gateway:
            assert sum(1 for _ in gateway.table(TABLE).scan()) == regions
        yield cluster


def _url(cluster: FakeCluster) -> str:
    return f"thrift2://127.0.0.1:{cluster.thrift2_port}"


def reads_during(cluster: FakeCluster, work: Callable[[], None]) -> dict[int, int]:
    """Return meta replica -> reads that the cluster counted during the work."""
    before = _reads(cluster)
    work()
    return {replica: count - before[replica] for replica, count in _reads(cluster).items()}


def _reads(cluster: FakeCluster) -> dict[int, int]:
    meta = cluster.status()["meta"]
    assert isinstance(meta, dict)
    return {int(replica): int(count) for replica, count in meta["reads_by_replica"].items()}


def read_by_cold_clients(cluster: FakeCluster, tasks: int) -> None:
    """Read with a new client per task that has no locations and calls region servers, as HBase's client does."""
    from spark_connector.planning.query import Query
    from spark_connector.planning.splits import plan
    from spark_connector.reading.split_reader import results_of
    from spark_connector.settings.options import Options

    options = {"url": _url(cluster), "catalog": CATALOG, "hbase.spark.partition.max": str(tasks)}
    query = Query.of(Options.parse(options))
    with cluster.connect() as planner:
        splits = plan(planner, query)
    for split in splits:
        with cluster.connect() as client:
            for _ in results_of(client, query, replace(split, locations=b"")):
                pass


def read_by_spark(spark: SparkSession, cluster: FakeCluster, regions: int, tasks: int, mode: str) -> None:
    import spark_connector

    options: dict[str, Any] = {"hbase.spark.partition.max": tasks, "hbase.spark.locations": mode}
    found = spark_connector.table(spark, CATALOG, url=_url(cluster), **options).count()
    if found != regions:
        raise RuntimeError(f"Spark saw {found} of {regions} rows")


SCENARIO = Scenario(
    "spark-lookups",
    ("S5", "S6a", "S6b"),
    "a Spark job makes few reads of hbase:meta, and spreads them over its replicas",
    run,
    backend="fake",
)
