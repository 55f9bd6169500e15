"""``df.where(...).select(...)``, SQL, limits and joins reach HBase, for each query on its own; no answer changes.

The DataFrame of ``hbase.table`` is planned by Spark's optimizer. Each test compares the answer with the same query on
rows in Spark's memory, and looks at what the scan was asked for.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import reduce
from typing import Any

import pytest

import spark_connector as hbase_connector
from metaclient.runtime import ThreadRuntime
from spark_connector.tables import hosts
from tests.live.load import wait_until
from tests.spark.served import CATALOG

ROWS = 40


def fill(served: Any, rows: int = ROWS) -> None:
    with served.connect() as connection:
        connection.create_table("t", {"cf": {}}, splits=[b"r10", b"r20"])
        table = connection.table("t")
        for n in range(rows):
            cells = {b"cf:i": n.to_bytes(4, "big")} | ({b"cf:name": b"n%d" % (n % 7)} if n % 3 else {})
            table.put(b"r%02d" % n, cells)


def expected(rows: int = ROWS) -> list[tuple[str, int, str | None]]:
    return [(f"r{n:02d}", n, f"n{n % 7}" if n % 3 else None) for n in range(rows)]


@pytest.fixture
def table(spark: Any, hbase: Any) -> Any:
    fill(hbase)
    return hbase_connector.table(spark, CATALOG, url=hbase.url)


@pytest.fixture
def memory(spark: Any) -> Any:
    return spark.createDataFrame(expected(), "id string, i int, name string")


def rows_of(df: Any) -> list[tuple[Any, ...]]:
    return sorted((tuple(row) for row in df.collect()), key=repr)


def plan_of(df: Any) -> str:
    return str(df._jdf.queryExecution().executedPlan().toString())


QUERIES: dict[str, Callable[[Any], Any]] = {
    "all": lambda df: df,
    "one row": lambda df: df.where("id = 'r05'"),
    "rows": lambda df: df.where("id IN ('r05', 'r31', 'gone')").select("name"),
    "range": lambda df: df.where("id >= 'r08' AND id < 'r12'").select("i"),
    "or": lambda df: df.where("id = 'r01' OR i = 30").select("id"),
    "not": lambda df: df.where("NOT (i < 35 OR name = 'n1')"),
    "not and": lambda df: df.where("NOT (i > 3 AND upper(name) = 'N1')"),
    "null": lambda df: df.where("name IS NULL AND i > 20"),
    "null safe": lambda df: df.where("name <=> NULL"),
    "prefix": lambda df: df.where("id LIKE 'r1%'").select("id", "name"),
    "percent": lambda df: df.where("startswith(name, 'n%')"),
    "end": lambda df: df.where("name LIKE '%3' AND name LIKE '%n%'"),
    "function": lambda df: df.where("length(name) = 2 AND i % 2 = 0 AND id > 'r30'"),
    "count": lambda df: df.groupBy().count(),
    "group": lambda df: df.where("i > 10").groupBy("name").count(),
    "nothing": lambda df: df.where("id = 'a' AND id = 'b'"),
    "union": lambda df: df.where("i = 1").union(df.where("i = 2")).union(df.where("id = 'r03'")),
    "union with all": lambda df: df.where("i = 1").select("id").union(df.select("id")),
    "self join": lambda df: (
        df.where("i % 2 = 0").alias("a").join(df.where("i > 30").alias("b"), "id", "full").select("id", "a.i", "b.name")
    ),
    "semi join": lambda df: df.join(df.where("id > 'r35'").select("id"), "id", "left_semi"),
    "anti join": lambda df: df.join(df.where("id > 'r05'").select("id"), "id", "left_anti"),
}


def answers(queries: dict[str, Any]) -> dict[str, list[str]]:
    """The rows of each query, as JSON: one job answers all queries, and each is planned on its own."""
    from pyspark.sql import functions as f

    branches = [
        df.select(
            f.lit(name).alias("query"), f.to_json(f.struct(*df.columns), {"ignoreNullFields": "false"}).alias("row")
        )
        for name, df in queries.items()
    ]
    found: dict[str, list[str]] = {name: [] for name in queries}
    for name, row in reduce(lambda one, other: one.union(other), branches).collect():
        found[name].append(row)
    return {name: sorted(rows) for name, rows in found.items()}


def test_every_query_on_one_dataframe_is_answered_as_in_memory(table: Any, memory: Any) -> None:
    """Also if the queries are planned together, and if another query was planned in between."""
    ours = {name: query(table) for name, query in QUERIES.items()}
    plan_of(ours["one row"])
    plan_of(ours["nothing"])
    assert answers(ours) == answers({name: query(memory) for name, query in QUERIES.items()})
    assert table.count() == ROWS
    assert table.where("id = 'r05'").count() == 1
    assert table.count() == ROWS


@pytest.mark.essential
def test_filters_and_columns_of_a_view_reach_hbase(spark: Any, table: Any) -> None:
    table.createOrReplaceTempView("users")
    scan = plan_of(spark.table("users").where("id >= 'r08' AND id < 'r12' AND name = 'n2'").select("name"))
    assert "HBase t, columns [id, name], rows ['r08', 'r12')" in scan
    assert "SingleColumnValueFilter('cf','name',=,'binary:n2'" in scan
    assert re.search(r"2 regions of .* in 2 tasks", scan)
    scan = plan_of(spark.sql("SELECT i FROM users WHERE id IN ('r01', 'r39')"))
    assert "columns [id, i], rows 'r01' + 'r39'" in scan


def test_a_limit_reaches_the_tasks(spark: Any, table: Any) -> None:
    assert len(table.limit(5).collect()) == 5
    assert "limit 5 per task" in plan_of(table.limit(5))
    assert "per task" not in plan_of(table.where("i > 3").limit(5))
    assert len(table.where("i > 36").limit(5).collect()) == 3


@pytest.fixture
def small(spark: Any, tmp_path: Any) -> Any:
    made = spark.range(0, 40).selectExpr("concat('r', lpad(id, 2, '0')) AS key", "id AS n")
    made.write.parquet(str(tmp_path / "small"))
    return spark.read.parquet(str(tmp_path / "small"))


@pytest.mark.essential
@pytest.mark.parametrize("how", ["inner", "left_semi"])
def test_the_runtime_filter_of_a_join_leaves_the_wanted_rows(table: Any, memory: Any, small: Any, how: str) -> None:
    def joined(df: Any) -> Any:
        return df.join(small.where("n IN (3, 33)"), df["id"] == small["key"], how)

    ours = joined(table)
    assert rows_of(ours) == rows_of(joined(memory))
    assert "dynamicpruning" in plan_of(ours)
    read = sum(_rows_read(ours))
    assert read == 2, "a multi-get of the two rows, and no scan"


def test_a_scan_that_two_joins_share_is_filtered_for_each(table: Any, memory: Any, small: Any) -> None:
    def both(df: Any) -> Any:
        three = df.join(small.where("n = 3"), df["id"] == small["key"], "left_semi")
        four = df.join(small.where("n = 4"), df["id"] == small["key"], "left_semi")
        return three.union(four).union(df.where("i > 37"))

    assert rows_of(both(table)) == rows_of(both(memory))


def _rows_read(df: Any) -> list[int]:
    """The rows that each scan of HBase returned, by Spark's metrics."""
    found: list[int] = []

    def walk(node: Any) -> None:
        kind = node.getClass().getSimpleName()
        if node.nodeName().startswith("BatchScan hbase."):
            found.append(int(node.metrics().apply("numOutputRows").value()))
        if kind == "AdaptiveSparkPlanExec":
            walk(node.executedPlan())
        elif kind.endswith("QueryStageExec"):
            walk(node.plan())
        children = node.children()
        for number in range(children.size()):
            walk(children.apply(number))

    walk(df._jdf.queryExecution().executedPlan())
    return found


def test_a_cached_dataframe_keeps_its_rows(spark: Any, hbase: Any, table: Any) -> None:
    kept = table.where("i < 5").cache()
    assert kept.count() == 5
    with hbase.connect() as connection:
        connection.table("t").delete(b"r01")
    assert kept.count() == 5
    kept.unpersist()
    assert table.where("i < 5").count() == 4


def test_a_missing_family_fails_before_a_task_runs(spark: Any, hbase: Any) -> None:
    with hbase.connect() as connection:
        connection.create_table("t", {"other": {}})
    expected = "table 't' has no family 'cf' .it has other."
    with pytest.raises(Exception, match=expected):
        hbase_connector.table(spark, CATALOG, url=hbase.url)
    with pytest.raises(Exception, match=expected):
        hbase_connector.table(spark, CATALOG, url=hbase.url, where="i > 3")
    with pytest.raises(Exception, match=expected) as caught:
        spark.read.format("hbase").option("url", hbase.url).option("catalog", CATALOG).load().count()
    assert "AnalysisException" in type(caught.value).__name__


@pytest.mark.parametrize("locality", ["auto", "off"])
def test_tasks_prefer_the_hosts_of_their_regions(
    spark: Any, serve: Callable[..., Any], monkeypatch: pytest.MonkeyPatch, locality: str
) -> None:
    """The fake's servers have names; here each is the machine of one of Spark's executors, 127.0.0.2 or 127.0.0.3."""
    tracker = spark.sparkContext._jsc.sc().statusTracker()
    wait_until(lambda: len(tracker.getExecutorInfos()) == 3, "the driver and two executors", ThreadRuntime(name="test"))
    served = serve(servers=2)
    fill(served)
    with served.connect() as connection:
        servers = sorted({region["server_name"] for region in connection.table("t").regions()})
    addresses = dict(zip(servers, ("127.0.0.2", "127.0.0.3"), strict=True))
    monkeypatch.setattr(hosts, "_address", lambda host: addresses.get(host.encode(), host))
    df = hbase_connector.table(spark, CATALOG, url=served.url, hbase_spark_locality=locality)
    rdd = df._jdf.queryExecution().toRdd()
    preferred = spark.sparkContext._jsc.sc().getPreferredLocs
    found = {str(preferred(rdd, number).mkString(",")) for number in range(rdd.getNumPartitions())}
    assert found == ({"127.0.0.2", "127.0.0.3"} if locality == "auto" else {""})
    assert rows_of(df) == expected()
