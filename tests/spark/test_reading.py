"""Reading through Spark's standalone cluster: right rows, clear errors, and nothing asked of hbase:meta twice."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from pyspark.errors import PySparkException

import spark_connector as hbase_connector
from metaclient.errors import ConfigError, TableNotFound

ROWS = 30


def fill(served: Any, rows: int = ROWS, splits: tuple[bytes, ...] = (b"r10", b"r20"), **table: Any) -> None:
    """Table ``t``: r00, r01, ... with i and name; every third has no name."""
    with served.connect() as connection:
        connection.create_table("t", {"cf": {}}, splits=list(splits), **table)
        with connection.table("t").batch() as batch:
            for i in range(rows):
                data = {b"cf:i": i.to_bytes(4, "big", signed=True)}
                if i % 3:
                    data[b"cf:name"] = b"name%d" % i
                batch.put(b"r%02d" % i, data)


def expected(rows: int = ROWS) -> list[tuple[str, int, str | None]]:
    return [(f"r{i:02d}", i, f"name{i}" if i % 3 else None) for i in range(rows)]


def load(spark: Any, served: Any, catalog: str, **options: object) -> Any:
    reader = spark.read.format("hbase").option("url", served.url).option("catalog", catalog)
    return reader.options(**options).load()


def rows_of(df: Any) -> list[tuple[Any, ...]]:
    return sorted(tuple(row) for row in df.collect())


# -- both roads --------------------------------------------------------------------------------------------------------


@pytest.mark.essential
def test_the_data_source_reads_every_row_once(spark: Any, hbase: Any, catalog: str) -> None:
    fill(hbase)
    df = load(spark, hbase, catalog)
    assert df.schema.simpleString() == "struct<id:string,i:int,name:string>"
    assert rows_of(df) == expected()
    assert df.rdd.getNumPartitions() == 3  # one a region


@pytest.mark.essential
def test_table_prunes_columns_and_rows(spark: Any, hbase: Any, catalog: str) -> None:
    fill(hbase)
    df = hbase_connector.table(
        spark, catalog, url=hbase.url, columns=["name"], where="id BETWEEN 'r05' AND 'r06' OR i IN (11, 29)"
    )
    assert df.columns == ["name"]
    assert {row.name for row in df.collect()} == {"name5", None, "name11", "name29"}


def test_a_schema_of_the_user_chooses_columns(spark: Any, hbase: Any, catalog: str) -> None:
    fill(hbase)
    reader = spark.read.format("hbase").option("url", hbase.url).option("catalog", catalog)
    df = reader.schema("name string, id string").load()
    assert rows_of(df.where("id < 'r03'").na.fill("-")) == [("-", "r00"), ("name1", "r01"), ("name2", "r02")]


def test_a_schema_that_contradicts_the_catalog_is_an_error(spark: Any, hbase: Any, catalog: str) -> None:
    fill(hbase)
    reader = spark.read.format("hbase").option("url", hbase.url).option("catalog", catalog)
    with pytest.raises(Exception, match="'i' is bigint in the schema and int in the catalog"):
        reader.schema("i bigint").load().collect()


def test_no_column_is_needed_to_count(spark: Any, hbase: Any, catalog: str) -> None:
    fill(hbase)
    assert load(spark, hbase, catalog).count() == ROWS
    assert hbase_connector.table(spark, catalog, url=hbase.url).count() == ROWS


def test_a_limit_is_of_the_whole_read(spark: Any, hbase: Any, catalog: str) -> None:
    fill(hbase)
    assert load(spark, hbase, catalog, **{"hbase.spark.query.limit": 12}).count() == 12
    assert hbase_connector.table(spark, catalog, url=hbase.url, limit=12).count() == 12
    limited = hbase_connector.table(spark, catalog, url=hbase.url, where="i >= 25", limit=3)
    assert {row.i for row in limited.collect()} <= set(range(25, 30))
    assert limited.count() == 3


def test_nothing_to_read_is_an_empty_dataframe(spark: Any, hbase: Any, catalog: str) -> None:
    fill(hbase)
    assert load(spark, hbase, catalog, **{"hbase.spark.query.prefix": "nobody"}).collect() == []
    df = hbase_connector.table(spark, catalog, url=hbase.url, where="id = 'a' AND id = 'b'")
    assert df.collect() == []
    assert df.columns == ["id", "i", "name"]


def test_an_empty_table_is_an_empty_dataframe(spark: Any, hbase: Any, catalog: str) -> None:
    fill(hbase, rows=0)
    assert load(spark, hbase, catalog).collect() == []
    assert hbase_connector.table(spark, catalog, url=hbase.url).collect() == []


@pytest.mark.essential
def test_points_are_fetched_by_multi_get(spark: Any, hbase: Any, catalog: str) -> None:
    fill(hbase)
    wanted = ["r03", "r14", "r15", "r29", "none"]
    condition = f"id IN ({', '.join(repr(one) for one in wanted)})"
    df = hbase_connector.table(spark, catalog, url=hbase.url, where=condition)
    assert [row[0] for row in rows_of(df.na.fill("-"))] == wanted[:4]


def test_an_empty_value_is_a_value_and_a_missing_one_is_null(spark: Any, hbase: Any, catalog: str) -> None:
    fill(hbase, rows=1)
    with hbase.connect() as connection:
        connection.table("t").put(b"r01", {b"cf:name": b""})
    found = {row.id: (row.i, row.name) for row in load(spark, hbase, catalog).collect()}
    assert found == {"r00": (0, None), "r01": (None, "")}


def test_the_source_is_found_without_registration(spark: Any) -> None:
    """``pip install`` is enough: Spark finds ``pyspark_hbase.DefaultSource`` by itself (an editable install, too)."""
    other = spark.newSession()
    with pytest.raises(Exception, match="option url is missing"):
        other.read.format("hbase").option("hbase.table", "t").option(
            "hbase.columns.mapping", "k STRING :key"
        ).load().count()


def test_sql_can_read_it(spark: Any, hbase: Any, catalog: str) -> None:
    fill(hbase)
    spark.sql(f"CREATE OR REPLACE TEMPORARY VIEW v USING hbase OPTIONS (url '{hbase.url}', catalog '{catalog}')")
    assert spark.sql("SELECT count(*), max(i) FROM v WHERE name IS NOT NULL").first() == (20, 29)


# -- the defect of Spark's push-down, and our ways around it -----------------------------------------------------------


@pytest.fixture
def ten(spark: Any, hbase: Any, catalog: str) -> Any:
    """Ten rows, i from 0 to 9, in two regions."""
    fill(hbase, rows=10, splits=(b"r05",))
    return hbase


@pytest.fixture(params=["data source", "table"])
def road(request: pytest.FixtureRequest, spark: Any, ten: Any, catalog: str) -> Callable[[], Any]:
    """A function that makes a DataFrame of the ten rows."""
    if request.param == "table":
        return lambda: hbase_connector.table(spark, catalog, url=ten.url)
    return lambda: load(spark, ten, catalog)


@contextmanager
def pushdown(spark: Any, wanted: str) -> Iterator[None]:
    """Spark's own switch for push-down to Python sources."""
    name = "spark.sql.python.filterPushdown.enabled"
    try:
        before = spark.conf.get(name)
    except PySparkException:
        if wanted == "true":
            pytest.skip("Spark can push down to Python sources from 4.1 on")
        yield
        return
    spark.conf.set(name, wanted)
    yield
    spark.conf.set(name, before)


@pytest.fixture(params=["false", "true"], ids=["catalyst off", "catalyst conf on"])
def conf(request: pytest.FixtureRequest, spark: Any) -> Iterator[None]:
    """Whether Spark's switch is on must not matter to who did not ask."""
    with pushdown(spark, request.param):
        yield


def ids(df: Any) -> list[int]:
    return sorted(row.i for row in df.collect())


@pytest.mark.essential
def test_one_dataframe_serves_many_filters(spark: Any, road: Callable[[], Any], conf: Any) -> None:
    """Eight ways to use one DataFrame twice, on one DataFrame each."""
    df = road()
    assert ids(df.where("i = 1")) == [1]  # 1: a filter, then the bare DataFrame
    assert ids(df) == list(range(10))
    df = road()
    assert ids(df.where("i = 1").union(df.where("i = 2"))) == [1, 2]  # 2
    df = road()
    a, b = df.where("i = 1"), df.where("i = 2")  # 3: both planned, the first run
    a.explain()
    b.explain()
    assert ids(a) == [1]
    df = road()
    even, odd = df.where("i % 2 = 0 AND i >= 0"), df.where("i % 2 = 1 AND i >= 1")  # 4: self join
    joined = even.alias("e").join(odd.alias("o"), on=(_col("e.i") + 1 == _col("o.i")))
    assert joined.count() == 5
    df = road()
    assert df.where("i = 1").union(df).count() == 11  # 5, either order
    df = road()
    assert df.union(df.where("i = 1")).count() == 11
    df = road()
    df.createOrReplaceTempView("ten")  # 6: SQL on a view
    union = "SELECT i FROM ten WHERE i = 1 UNION ALL SELECT i FROM ten WHERE i = 2"
    assert ids(spark.sql(union)) == [1, 2]
    one, two = road(), road()  # 7: two separate loads
    assert ids(one.where("i = 1").union(two.where("i = 2"))) == [1, 2]
    df = road()  # 8: two queries on one catalog entry, one after the other
    df.createOrReplaceTempView("ten")
    assert ids(spark.sql("SELECT i FROM ten WHERE i = 3")) == [3]
    assert ids(spark.sql("SELECT i FROM ten WHERE i > 7")) == [8, 9]


def _col(name: str) -> Any:
    from pyspark.sql.functions import col

    return col(name)


@pytest.mark.essential
def test_sparks_own_push_down_cannot_be_asked_for(spark: Any, ten: Any, catalog: str) -> None:
    """With it ``df.where("i = 1").count()`` and then ``df.count()`` gave 1 and 1."""
    with pushdown(spark, "true"), pytest.raises(Exception, match=r"pushdown\.catalyst = true: it was removed"):
        load(spark, ten, catalog, **{"hbase.spark.pushdown.catalyst": "true"}).count()


# -- bad input ---------------------------------------------------------------------------------------------------------


@pytest.mark.essential
def test_an_unknown_option_names_the_nearest(spark: Any, hbase: Any, catalog: str) -> None:
    with pytest.raises(
        Exception, match=r"hbase\.spark\.query\.limmit: no such option; did you mean hbase\.spark\.query\.limit"
    ):
        load(spark, hbase, catalog, **{"hbase.spark.query.limmit": 3})
    with pytest.raises(ConfigError, match=r"did you mean hbase\.spark\.query\.limit"):
        hbase_connector.table(spark, catalog, url=hbase.url, hbase_spark_query_limmit=3)


@pytest.mark.essential
def test_a_table_that_is_gone_is_named(spark: Any, hbase: Any, catalog: str) -> None:
    with pytest.raises(Exception, match=r"(?s)TableNotFound.*'t' does not exist"):
        load(spark, hbase, catalog).collect()
    with pytest.raises(TableNotFound, match="'t' does not exist"):
        hbase_connector.table(spark, catalog, url=hbase.url)


def test_a_table_that_goes_after_planning_is_named(spark: Any, hbase: Any, catalog: str) -> None:
    fill(hbase)
    df = hbase_connector.table(spark, catalog, url=hbase.url)
    with hbase.connect() as connection:
        connection.delete_table("t", disable=True)
    with pytest.raises(Exception, match=r"(?s)TableNotFound|TableDisabled"):
        df.collect()


@pytest.mark.parametrize("columns", [["nam"], [], "name"])
def test_wrong_columns_are_an_error_before_anything_runs(spark: Any, hbase: Any, catalog: str, columns: Any) -> None:
    fill(hbase, rows=1)
    with pytest.raises(ConfigError, match=r"columns"):
        hbase_connector.table(spark, catalog, url=hbase.url, columns=columns)


def test_a_cluster_in_the_drivers_memory_is_refused(spark: Any, catalog: str) -> None:
    with pytest.raises(ConfigError, match="serve it over TCP"):
        hbase_connector.table(spark, catalog, url="fake:mine")
    reader = spark.read.format("hbase").option("url", "fake:mine").option("catalog", catalog)
    with pytest.raises(Exception, match="serve it over TCP"):
        reader.load().collect()


def test_a_gateway_that_is_not_there_is_named(spark: Any, catalog: str) -> None:
    with pytest.raises(Exception, match=r"127\.0\.0\.1:1"):
        hbase_connector.table(spark, catalog, url="thrift2://127.0.0.1:1", **{"hbase.client.operation.timeout": 2000})


def test_a_value_of_the_wrong_width_names_row_and_column(spark: Any, hbase: Any, catalog: str) -> None:
    fill(hbase, rows=2)
    with hbase.connect() as connection:
        connection.table("t").put(b"r01", {b"cf:i": b"toolong"})
    with pytest.raises(Exception, match=r"(?s)r01.*cf:i|cf:i.*r01"):
        load(spark, hbase, catalog).collect()
    nulls = load(spark, hbase, catalog, **{"hbase.spark.query.badvalue": "null"})
    assert {row.id: row.i for row in nulls.collect()} == {"r00": 0, "r01": None}
