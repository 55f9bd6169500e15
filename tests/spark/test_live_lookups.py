"""hbase:meta of a real HBase is left alone by a job; its servers' own counts (JMX) are the witness."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

import metaclient
import spark_connector as hbase_spark
from metaclient_local_hbase import LocalHBase
from tests.live.load import wait_for_meta
from tests.spark.served import catalog_of

pytestmark = [pytest.mark.live, pytest.mark.essential]

TABLE = "spark_live_lookups"
REGIONS = 100
CATALOG = catalog_of(TABLE)
#: The master reads the primary, too, every now and then: then we look again.
TRIES_MAX = 4


@pytest.fixture(scope="module")
def filled(real_hbase: LocalHBase) -> Iterator[LocalHBase]:
    """A table of 100 regions with a row each that every copy of meta and the gateway's own client know."""
    real_hbase.spread_meta()
    with metaclient.connect(real_hbase.thrift2_url) as connection:
        connection.create_table(TABLE, {"cf": {}}, splits=[b"r%03d" % number for number in range(1, REGIONS)])
        with connection.table(TABLE).batch() as batch:
            for number in range(REGIONS):
                batch.put(b"r%03d" % number, {b"cf:i": number.to_bytes(4, "big")})
        wait_for_meta(connection, TABLE.encode(), REGIONS)
        assert sum(1 for _ in connection.table(TABLE).scan()) == REGIONS
        yield real_hbase
        connection.delete_table(TABLE, disable=True)


@pytest.fixture(params=["thrift2", "hbase"])
def url(filled: LocalHBase, request: pytest.FixtureRequest) -> str:
    return filled.thrift2_url if request.param == "thrift2" else filled.native_url


@pytest.fixture
def job(spark: Any, filled: LocalHBase, url: str) -> Callable[[str], tuple[dict[int, int], dict[int, int]]]:
    """Reads the table with a task a region; how often each copy of meta was read by our count, and by the servers'."""

    def run(mode: str) -> tuple[dict[int, int], dict[int, int]]:
        told, served = counted(spark), filled.meta_reads()
        options = {
            "hbase.spark.locations": mode,
            "hbase.spark.partition.min.mb": "off",
            "metaclient.meta_try_timeout_s": "30",  # on a slow machine a try that is given up would be counted, too
        }
        df = hbase_spark.table(spark, CATALOG, url=url, **options)
        assert df.rdd.getNumPartitions() == REGIONS
        assert sorted(row.i for row in df.collect()) == list(range(REGIONS))
        return since(told, counted(spark)), since(served, filled.meta_reads())

    return run


def counted(spark: Any) -> dict[int, int]:
    found = hbase_spark.lookups(spark)["reads_by_replica"]
    return {replica_id: found.get(str(replica_id), 0) for replica_id in range(3)}


def since(before: dict[int, int], now: dict[int, int]) -> dict[int, int]:
    return {replica_id: now[replica_id] - before[replica_id] for replica_id in now}


def test_shipped_locations_cost_a_lookup_or_two(job: Callable[[str], Any]) -> None:
    told, _ = job("ship")
    assert told[0] == 0
    assert 1 <= sum(told.values()) <= 0.02 * REGIONS


def test_lookups_of_executors_are_spread_evenly_and_spare_the_primary(job: Callable[[str], Any], capsys: Any) -> None:
    for _ in range(TRIES_MAX):
        told, served = job("lookup")
        with capsys.disabled():
            print(f"\nlookups of {REGIONS} tasks by replica, ours: {told}, the servers': {served}")
        if served[0] <= 0.01 * sum(served.values()):
            break
    assert told[0] == 0
    assert served[0] <= 0.01 * sum(served.values())
    assert sum(told.values()) >= REGIONS
    for counts in (told, served):
        assert min(counts[1], counts[2]) >= 0.4 * sum(counts.values())
