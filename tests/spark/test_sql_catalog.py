"""``hbase.use``: the tables of a cluster in SQL; a statement that cannot work is refused when it is run."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

import spark_connector as hbase_connector
from metaclient.errors import ConfigError
from tests.spark.served import CATALOG


@pytest.fixture
def sql(spark: Any, hbase: Any) -> Iterator[Any]:
    """``spark.sql`` with the catalog ``hbase``; table ``t`` has two rows."""
    with hbase.connect() as connection:
        connection.create_table("t", {"cf": {}}, splits=[b"m"])
        connection.table("t").put(b"a", {b"cf:i": b"\0\0\0\1", b"cf:name": b"Ada"})
        connection.table("t").put(b"z", {b"cf:i": b"\0\0\0\2"})
    hbase_connector.use(spark, url=hbase.url, catalogs={"t": CATALOG})
    yield spark.sql
    spark.sql("USE spark_catalog")


@pytest.mark.essential
def test_tables_are_listed_read_created_and_written(spark: Any, sql: Any, hbase: Any) -> None:
    assert [tuple(row) for row in sql("SHOW TABLES IN hbase").collect()] == [("default", "t", False)]
    assert [tuple(row) for row in spark.table("hbase.t").where("id = 'a'").select("name").collect()] == [("Ada",)]
    sql("CREATE TABLE hbase.people (id STRING, `d:name` STRING) USING hbase OPTIONS (`hbase.spark.write.splits` 'k,p')")
    sql("INSERT INTO hbase.people SELECT id, name FROM hbase.t")
    sql("USE hbase")
    assert [tuple(row) for row in sql("SELECT id, `d:name` FROM people").collect()] == [("a", "Ada")], "z has no name"
    with hbase.connect() as connection:
        assert len(connection.regions("people")) == 3


def test_a_table_without_a_catalog_is_sampled(spark: Any, sql: Any, hbase: Any, capsys: Any) -> None:
    hbase_connector.use(spark, url=hbase.url)
    found = sql("SELECT id, name, hex(i) FROM hbase.t ORDER BY id").collect()
    assert [tuple(row) for row in found] == [("a", "Ada", "00000001"), ("z", None, "00000002")]
    df = hbase_connector.table(spark, "t", url=hbase.url)
    assert df.columns == ["id", "i", "name"]
    assert '"col": "name"' in capsys.readouterr().out


def test_statements_that_cannot_work_are_refused(spark: Any, sql: Any) -> None:
    for statement, reason in {
        "CREATE TABLE hbase.x (id STRING, name STRING)": "columns named `family:qualifier`",
        "CREATE TABLE hbase.t (id STRING, `d:a` STRING)": "already exists",
        "CREATE TABLE hbase.x (id STRING, `d:a` STRING) PARTITIONED BY (id)": "PARTITIONED BY",
        "DROP TABLE hbase.t": "DROP TABLE is not supported",
        "SELECT * FROM hbase.gone": "direct query on files: hbase",  # Spark thinks of a file
        "INSERT OVERWRITE hbase.t VALUES ('a', 1, 'b')": "hbase.spark.write.truncate",
        "SELECT * FROM hbase.t WITH (`hbase.spark.query.prefx` = 'a')": "hbase.spark.query.prefix",
        "SELECT * FROM hbase.t WITH (`hbase.spark.query.columns` = 'id')": "changes the columns",
    }.items():
        with pytest.raises(Exception, match=f"(?is){reason}"):
            sql(statement).collect()
    assert sql("SELECT * FROM hbase.t").count() == 2


def test_progress_of_a_write_is_reported(spark: Any, hbase: Any, sql: Any) -> None:
    seen: list[tuple[int, int]] = []
    df = spark.createDataFrame([("b", 3, "Bo")], "id string, i int, name string")
    hbase_connector.write(df, CATALOG, url=hbase.url, progress=lambda done, all: seen.append((done, all)))
    assert seen[-1][0] == seen[-1][1] > 0
    with pytest.raises(ConfigError, match="family:qualifier"):
        hbase_connector.write(df, "t", url=hbase.url)
