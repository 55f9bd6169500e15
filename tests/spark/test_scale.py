"""Repartitioned writes and joins, salted tables, and sessions without counts, on Spark's standalone cluster."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Callable
from typing import Any

import pytest

import spark_connector as hbase_connector
from metaclient.columns.salt import salted
from metaclient.errors import ConfigError
from spark_connector import lookup_counts
from tests.spark.served import CATALOG, Served

ROWS = 2_000


@pytest.fixture
def split(hbase: Served) -> Served:
    """Table ``t`` with 24 regions on three servers."""
    with hbase.connect() as connection:
        connection.create_table("t", {"cf": {}}, splits=[b"r%04d" % (number * ROWS // 24) for number in range(1, 24)])
    return hbase


def _rows(spark: Any) -> Any:
    return spark.range(ROWS).selectExpr(
        "concat('r', lpad(string((id * 7919) % 2000), 4, '0')) AS id", "int(id) AS i", "string(id) AS name"
    )


@pytest.mark.essential
def test_each_partition_has_the_rows_of_one_server(spark: Any, split: Served) -> None:
    from pyspark.sql.functions import spark_partition_id

    df = hbase_connector.repartition(_rows(spark), CATALOG, url=split.url, partitions=6)
    assert df.columns == ["id", "i", "name"]
    placed = df.select(spark_partition_id().alias("p"), "id").collect()
    assert len(placed) == ROWS
    servers: dict[int, set[Any]] = defaultdict(set)
    with split.connect() as connection:
        for row in placed:
            servers[row.p].add(connection.locate("t", row.id).server)
    assert {len(found) for found in servers.values()} == {1}
    assert len(servers) == 6, "no partition is empty: the hash leads to the computed number"
    hbase_connector.write(df, CATALOG, url=split.url)
    assert hbase_connector.row_count(spark, "t", url=split.url) == ROWS


def test_a_join_of_repartitioned_rows_has_the_rows_of_a_join(spark: Any, split: Served) -> None:
    hbase_connector.write(_rows(spark), CATALOG, url=split.url)
    keys = (
        _rows(spark)
        .selectExpr("id AS user", "i % 3 AS kind")
        .where("kind = 1")
        .unionAll(spark.createDataFrame([("nobody", 1), (None, 1)], "user string, kind int"))
    )
    plain, shuffled = (
        hbase_connector.join(keys, CATALOG, on="user", url=split.url, how="left", repartitioned=way)
        for way in (False, True)
    )
    assert sorted(map(tuple, shuffled.collect()), key=repr) == sorted(map(tuple, plain.collect()), key=repr)


def test_what_repartition_cannot_do_is_refused(spark: Any, split: Served) -> None:
    df = _rows(spark)
    with pytest.raises(ConfigError, match="no column 'id'"):
        hbase_connector.repartition(df.drop("id"), CATALOG, url=split.url)
    with pytest.raises(ConfigError, match="partitions must be 1 to"):
        hbase_connector.repartition(df, CATALOG, url=split.url, partitions=0)
    with pytest.raises(ConfigError, match=r"hbase\.spark\.query\.layout is not for spark_connector\.repartition"):
        hbase_connector.repartition(df, CATALOG, url=split.url, hbase_spark_query_layout="map")


@pytest.mark.essential
def test_a_salted_table_is_written_read_and_joined_by_its_keys(spark: Any, hbase: Served) -> None:
    catalog = json.dumps({**json.loads(CATALOG), "salt": 8})
    df = _rows(spark)
    hbase_connector.write(df, catalog, url=hbase.url, newtable=8)
    with hbase.connect() as connection:
        assert len(connection.regions("t")) == 8
        per_region = [
            sum(1 for _ in connection.table("t").scan(row_start=bytes((number,)), row_stop=bytes((number + 1,))))
            for number in range(8)
        ]
        assert connection.table("t").row(salted(b"r0007", 8))
    assert sum(per_region) == ROWS
    assert min(per_region) > ROWS / 8 / 2, "neighbouring keys are spread over the regions"
    condition = "id BETWEEN 'r0100' AND 'r0199' AND i % 2 = 0"
    expected = sorted(row.id for row in df.where(condition).collect())
    found = hbase_connector.table(spark, catalog, url=hbase.url, where="id BETWEEN 'r0100' AND 'r0199'")
    assert sorted(row.id for row in found.where("i % 2 = 0").collect()) == expected
    keys = spark.createDataFrame([("r0007",), ("nobody",)], "user string")
    joined = hbase_connector.join(keys, catalog, on="user", url=hbase.url, how="left", columns=["name"])
    assert {row.user: row.name is not None for row in joined.collect()} == {"r0007": True, "nobody": False}


def test_a_call_with_lookups_off_reports_nothing(spark: Any, split: Served, serve: Callable[..., Served]) -> None:
    before = hbase_connector.lookups(spark)["total"]
    df = hbase_connector.table(spark, CATALOG, url=split.url, hbase_spark_lookups="off", hbase_spark_locations="lookup")
    df.count()
    quiet = hbase_connector.lookups(spark)["executors"]
    counted = hbase_connector.table(spark, CATALOG, url=split.url, hbase_spark_locations="lookup")
    counted.count()
    after = hbase_connector.lookups(spark)
    assert after["total"] > before
    assert sum(after["executors"].values()) > sum(quiet.values())
    assert lookup_counts.collect(spark, is_wanted=False) is None
