"""Bulk loads by Spark into a fake HBase over its RPC."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import spark_connector as hbase_spark
from metaclient import ConfigError, Connection
from metaclient.errors import MetaClientError, NoSuchFamily
from metaclient_fake import FakeCluster

CATALOG = json.dumps(
    {
        "table": {"name": "loaded"},
        "rowkey": "key",
        "columns": {
            "id": {"cf": "rowkey", "col": "key", "type": "string"},
            "name": {"cf": "d", "col": "name", "type": "string"},
            "n": {"cf": "e", "col": "n", "type": "bigint"},
        },
    }
)


@pytest.fixture
def loads() -> Iterator[tuple[str, Connection]]:
    """The url of a fake with HBase's RPC, and a client of it; the table has three regions."""
    with FakeCluster(servers=2) as cluster, cluster.connect() as connection:
        front = cluster.serve(thrift1_port=None, thrift2_port=None, rpc_port=0)
        connection.create_table("loaded", {"d": {}, "e": {}}, splits=[b"3", b"6"])
        yield front.rpc_url, connection


def people(spark: Any, count: int = 3000) -> Any:
    return spark.range(0, count, 1, 3).selectExpr(
        "cast(id as string) id", "concat('name ', id) name", "if(id % 3 = 0, null, id) n"
    )


def test_dataframe_is_loaded_as_one_file_per_region_and_family(
    spark: Any, loads: tuple[str, Connection], tmp_path: Path
) -> None:
    url, _ = loads
    df = people(spark)
    done = hbase_spark.bulk_load(df, CATALOG, url=url, staging=f"file://{tmp_path}")
    assert (done.rows, done.cells, done.files, done.regions) == (3000, 5000, 6, 3)
    assert list(tmp_path.iterdir()) == []
    found = hbase_spark.table(spark, CATALOG, url=url)
    assert found.exceptAll(df).count() == df.exceptAll(found).count() == 0


def test_repeated_load_and_puts_of_its_timestamp_are_the_same_cells(
    spark: Any, loads: tuple[str, Connection], tmp_path: Path
) -> None:
    url, connection = loads
    df = people(spark, 300)
    for _ in range(2):
        hbase_spark.bulk_load(df, CATALOG, url=url, staging=str(tmp_path), hbase_spark_write_timestamp=77)
    connection.create_table("puts", {"d": {}, "e": {}})
    hbase_spark.write(df, CATALOG.replace("loaded", "puts"), url=url, hbase_spark_write_timestamp=77)
    report = hbase_spark.verify_replication(spark, "loaded", url=url, peer_table="puts", versions=5)
    assert (report.counters["GOODROWS"], report.counters["BADROWS"]) == (300, 0)


def test_mistakes_are_named_before_a_task_runs(spark: Any, loads: tuple[str, Connection], tmp_path: Path) -> None:
    url, _ = loads
    df = people(spark, 10)
    with pytest.raises(ConfigError, match="no path of a file system"):
        hbase_spark.bulk_load(df, CATALOG, url=url, staging="staging")
    with pytest.raises(ConfigError, match="timestamp=server"):
        hbase_spark.bulk_load(df, CATALOG, url=url, staging=str(tmp_path), hbase_spark_write_timestamp="server")
    with pytest.raises(ConfigError, match="writes no log"):
        hbase_spark.bulk_load(df, CATALOG, url=url, staging=str(tmp_path), hbase_spark_write_durability="SKIP_WAL")
    with pytest.raises(NoSuchFamily):
        hbase_spark.bulk_load(df, CATALOG.replace('"e"', '"x"'), url=url, staging=str(tmp_path))


def test_gateway_is_refused_with_the_url_to_use(spark: Any, hbase: Any, tmp_path: Path) -> None:
    with pytest.raises(MetaClientError, match="hbase://"):
        hbase_spark.bulk_load(people(spark, 10), CATALOG, url=hbase.url, staging=str(tmp_path))
