"""hbase:meta is left alone: what a whole job asks of it, and of which replica, as the cluster itself has counted.

By a gateway, and straight to the servers. The gateway of the fake finds regions by its own client, as HBase's does, and
asks the primary for them; it is warmed up first, so that what is counted is ours.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

import metaclient
import spark_connector as hbase_connector
from metaclient_fake import FakeCluster
from spark_connector.planning.query import Query
from spark_connector.planning.splits import plan
from spark_connector.reading.split_reader import results_of
from spark_connector.settings.options import Options
from tests.spark.served import CATALOG, Served

pytestmark = pytest.mark.essential

REGIONS = 1000
TASKS = 200
#: Of chi-square with one degree of freedom: exceeded by chance once in a thousand runs.
CHI_SQUARE_999 = 10.83


@pytest.fixture(scope="module", params=["thrift2", "hbase+rpc"])
def wide(request: pytest.FixtureRequest) -> Iterator[Served]:
    """A table ``t`` of 1000 regions with a row each, on five servers with three copies of meta."""
    with FakeCluster(servers=5, meta_replicas=3) as cluster:
        cluster.serve(rpc_port=0)
        port = cluster.thrift2_port if request.param == "thrift2" else cluster.rpc_port
        served = Served(cluster, f"{request.param}://127.0.0.1:{port}")
        with served.connect() as connection:
            connection.create_table("t", {"cf": {}}, splits=[b"r%04d" % i for i in range(1, REGIONS)])
            with connection.table("t").batch() as batch:
                for i in range(REGIONS):
                    batch.put(b"r%04d" % i, {b"cf:i": i.to_bytes(4, "big")})
        cluster.wait_until_replicated(60)
        with metaclient.connect(served.url) as gateway:  # warms up the gateway's own client
            assert sum(1 for _ in gateway.table("t").scan()) == REGIONS
        yield served


def delta(served: Any, before: dict[str, int]) -> dict[str, int]:
    now = served.meta_reads()
    return {replica: now[replica] - before.get(replica, 0) for replica in now}


@pytest.fixture(scope="module")
def cold(wide: Any) -> int:
    """Meta reads of one cold client a task, each of which finds the regions of its own range by itself."""
    options = Options.parse({"url": wide.url, "catalog": CATALOG, "hbase.spark.partition.max": str(TASKS)})
    query = Query.of(options)
    with wide.connect() as planner:
        splits = plan(planner, query)
    assert len(splits) == TASKS
    before = wide.meta_reads()
    for split in splits:
        with wide.connect() as client:
            assert sum(1 for _ in results_of(client, query, replace(split, locations=b""))) == REGIONS // TASKS
    return sum(delta(wide, before).values())


def options(mode: str) -> dict[str, object]:
    """A copy of meta has half a minute: on a slow machine a try that is given up would be counted, too."""
    return {
        "hbase.spark.partition.max": TASKS,
        "hbase.spark.partition.min.mb": "off",  # HBase's own RPC knows sizes, and small regions would share a task
        "hbase.spark.locations": mode,
        "metaclient.meta_try_timeout_s": "30",
    }


def counted(spark: Any) -> dict[str, int]:
    return dict(hbase_connector.lookups(spark)["reads_by_replica"])


def test_a_job_of_200_tasks_on_1000_regions_asks_meta_once_or_twice(
    spark: Any, wide: Any, cold: int, catalog: str
) -> None:
    assert cold >= TASKS  # each of them asks at least once
    for road in ("table", "data source"):
        before, told = wide.meta_reads(), counted(spark)
        if road == "table":
            df = hbase_connector.table(spark, catalog, url=wide.url, **options("ship"))
        else:
            df = spark.read.format("hbase").options(url=wide.url, catalog=catalog, **options("ship")).load()
        assert df.rdd.getNumPartitions() == TASKS
        assert df.count() == REGIONS
        made = delta(wide, before)
        assert 1 <= sum(made.values()) <= 0.02 * cold
        assert made["0"] == 0
        now = counted(spark)
        assert {r: now.get(r, 0) - told.get(r, 0) for r in made} == made  # lookups() tells the same as the cluster


def test_lookups_of_executors_are_spread_evenly_and_spare_the_primary(spark: Any, wide: Any, catalog: str) -> None:
    before, told = wide.meta_reads(), counted(spark)
    df = hbase_connector.table(spark, catalog, url=wide.url, **options("lookup"))
    assert df.count() == REGIONS
    made = delta(wide, before)
    total = sum(made.values())
    assert total >= TASKS  # each task has found its own range
    assert made["0"] <= 0.01 * total
    secondaries = [made["1"], made["2"]]
    even = sum(secondaries) / 2
    assert sum((one - even) ** 2 / even for one in secondaries) < CHI_SQUARE_999
    now = counted(spark)
    assert {r: now.get(r, 0) - told.get(r, 0) for r in made} == made
    executors = hbase_connector.lookups(spark)
    assert executors["processes"] >= 2  # both executors had a share, and said so
