"""The same question has the same answer, however it is asked: filters, limits, joins, tables of the catalog."""

from __future__ import annotations

import json
from typing import Any

import pytest

import spark_connector as hbase_spark

CATALOG = {
    "table": {"namespace": "default", "name": "people"},
    "rowkey": "key",
    "columns": {
        "id": {"cf": "rowkey", "col": "key", "type": "string"},
        "name": {"cf": "d", "col": "name", "type": "string"},
        "age": {"cf": "d", "col": "age", "type": "int"},
    },
}
NAMED_N3 = "SingleColumnValueFilter('d','name',=,'binary:n3',true,true)"


@pytest.fixture
def people(hbase: Any) -> Any:
    with hbase.connect() as connection:
        connection.create_table("people", {"d": {}}, splits=[b"u3"])
        for number in range(6):
            connection.table("people").put(
                b"u%d" % number, {b"d:name": b"n%d" % number, b"d:age": number.to_bytes(4, "big")}
            )
    return hbase


def load(spark: Any, url: str, **options: object) -> Any:
    return spark.read.format("hbase").options(url=url, catalog=json.dumps(CATALOG), **options).load()


def test_a_filter_on_a_column_that_is_not_read_finds_its_row(spark: Any, people: Any) -> None:
    given = {"hbase.spark.query.filter": NAMED_N3}
    table = hbase_spark.table(spark, CATALOG, url=people.url, columns=["id", "age"], **given)
    assert [tuple(row) for row in table.collect()] == [("u3", 3)]
    found = load(spark, people.url, **given, **{"hbase.spark.query.columns": "id,age"})
    assert [tuple(row) for row in found.collect()] == [("u3", 3)]
    assert table.count() == found.count() == 1


@pytest.mark.parametrize("layout", ["columns", "map", "cells", "raw"])
@pytest.mark.parametrize("pieces", [{}, {"hbase.spark.query.batchsize": 1}], ids=["whole rows", "pieces"])
def test_a_limit_is_the_same_number_of_rows_by_table_and_by_load(
    spark: Any, people: Any, layout: str, pieces: dict[str, int]
) -> None:
    given = {"hbase.spark.query.layout": layout, **pieces}
    expected = 3
    limited = hbase_spark.table(spark, CATALOG, url=people.url, limit=expected, **given).collect()
    loaded = load(spark, people.url, **given, **{"hbase.spark.query.limit": expected}).collect()
    assert len(limited) == len(loaded) == expected
    if layout == "columns":
        assert all(row.name is not None and row.age is not None for row in (*limited, *loaded))


def test_a_join_takes_the_rows_that_its_condition_allows(spark: Any, people: Any) -> None:
    orders = spark.createDataFrame([(number, f"u{number}") for number in range(8)], "number int, user string")
    given = {"hbase.spark.query.where": "age > 1", "hbase.spark.query.stoprow": "u5"}
    joined = hbase_spark.join(orders, CATALOG, on="user", url=people.url, columns=["name"], **given)
    assert sorted(row.number for row in joined.collect()) == [2, 3, 4]


def test_create_table_does_not_make_a_table_that_cannot_be_read(spark: Any, people: Any) -> None:
    options = f"OPTIONS (url '{people.url}', catalog '{json.dumps(CATALOG)}')"
    with pytest.raises(Exception, match="CREATE TEMPORARY VIEW"):
        spark.sql(f"CREATE TABLE made_people USING hbase {options}")
    assert "made_people" not in [table.name for table in spark.catalog.listTables()]
    spark.sql(f"CREATE TABLE typed_people (id string, name string, age int) USING hbase {options}")
    try:
        with pytest.raises(Exception, match="does not keep the options"):
            spark.sql("SELECT * FROM typed_people").collect()
        with_them = f"SELECT * FROM typed_people WITH (url = '{people.url}', catalog = '{json.dumps(CATALOG)}')"
        assert spark.sql(with_them).count() == 6
    finally:
        spark.sql("DROP TABLE typed_people")
    spark.sql(f"CREATE OR REPLACE TEMPORARY VIEW viewed_people USING hbase {options}")
    spark.sql("INSERT INTO viewed_people VALUES ('u9', 'n9', 9)")
    assert spark.sql("SELECT * FROM viewed_people").count() == 7
    spark.catalog.dropTempView("viewed_people")
