"""The join without Spark: what a task does with a batch, called as Spark calls it. A fake over TCP."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest

pytest.importorskip("pyspark", reason="needs the extra 'spark'")

import pyarrow as pa

import spark_connector
from metaclient import ConfigError
from metaclient_fake import FakeCluster
from spark_connector import clients
from spark_connector.jobs import bulk_join
from spark_connector.jobs.splits import schema_from

CATALOG = json.dumps(
    {
        "table": {"namespace": "default", "name": "users"},
        "rowkey": "key",
        "columns": {
            "id": {"cf": "rowkey", "col": "key", "type": "string"},
            "age": {"cf": "d", "col": "age", "type": "int"},
            "name": {"cf": "d", "col": "name", "type": "string"},
        },
    }
)


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with FakeCluster(servers=2) as cluster:
        cluster.serve()
        with cluster.connect() as connection:
            connection.create_table("users", {"d": {"max_versions": 3}, "e": {}}, splits=[b"u5"])
            for number in range(9):
                data = {b"d:age": (20 + number).to_bytes(4, "big"), b"e:hidden": b"h%d" % (number % 2)}
                data |= {b"d:name": b"name%d" % number} if number % 2 else {}
                connection.table("users").put(b"u%d" % number, data, timestamp=1000 + number)
        yield f"thrift2://127.0.0.1:{cluster.thrift2_port}"
        clients.close_all()


class Frame:
    """As much of a DataFrame as a join needs."""

    schema = schema_from("number int, user string")
    sparkSession = None  # Spark's name

    def mapInArrow(self, function: Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]], schema: Any) -> Any:
        keys = [*(f"u{number}" for number in range(10)), None]
        batch = pa.record_batch([pa.array(range(11), pa.int32()), pa.array(keys)], names=["number", "user"])
        return [row for made in function(iter([batch])) for row in made.to_pylist()]


@pytest.fixture
def joined(url: str, monkeypatch: pytest.MonkeyPatch) -> Callable[..., list[dict[str, Any]]]:
    monkeypatch.setattr(bulk_join.lookup_counts, "collect", lambda spark, is_wanted=True: None)

    def join(catalog: str = CATALOG, **given: Any) -> list[dict[str, Any]]:
        options = {name.replace("_", ".") if "hbase" in name else name: value for name, value in given.items()}
        found: Any = spark_connector.join(Frame(), catalog, on="user", url=url, **options)  # type: ignore[arg-type]
        return list(found)

    return join


@pytest.mark.parametrize(
    ("option", "value", "users"),
    [
        ("where", "age > 26", "78"),
        ("where", "name IS NULL", "02468"),
        ("where", "id IN ('u1', 'u2') OR id > 'u6'", "1278"),
        ("where", "id LIKE '%3'", "3"),
        ("prefix", "u3", "3"),
        ("startrow", "u7", "78"),
        ("stoprow", "u2", "01"),
        ("ranges", "u1,u2;u4,u6", "145"),
        ("filter", "SingleColumnValueFilter('e','hidden',=,'binary:h1',true,true)", "1357"),
        ("filter", "SingleColumnValueFilter('d','name',=,'binary:name3',true,true)", "3"),
        ("filter", "FamilyFilter(=,'binary:e')", ""),
        ("timestamp", "1004", "4"),
        ("timerange.start", "1007", "78"),
        ("timerange.end", "1002", "01"),
    ],
)
@pytest.mark.parametrize("columns", [None, ["age"]], ids=["all columns", "one column"])
def test_a_join_does_not_ignore_what_chooses_rows(
    joined: Any, option: str, value: str, users: str, columns: list[str] | None
) -> None:
    given = {f"hbase.spark.query.{option}": value}
    found = joined(columns=columns, **given)
    assert [row["number"] for row in found] == [int(user) for user in users]
    left = joined(columns=columns, how="left", **given)
    assert [row["number"] for row in left] == list(range(11))
    assert [row["number"] for row in left if row["age"] is not None] == [int(user) for user in users]


def test_options_that_choose_rows_are_taken_together(joined: Any) -> None:
    where = {"hbase.spark.query.where": "age < 27 AND id IN ('u3', 'u5', 'u6', 'u8')", "hbase.spark.query.prefix": "u"}
    text = "SingleColumnValueFilter('e','hidden',=,'binary:h1',true,true)"
    found = joined(columns=["name"], **where, **{"hbase.spark.query.filter": text})
    assert [(row["number"], row["name"]) for row in found] == [(3, "name3"), (5, "name5")]
    assert list(found[0]) == ["number", "user", "name"]


def test_a_value_that_is_none_of_its_type_is_null_where_that_was_asked_for(joined: Any) -> None:
    names_as_numbers = CATALOG.replace('"col": "name", "type": "string"', '"col": "name", "type": "int"')
    assert names_as_numbers != CATALOG
    with pytest.raises(Exception, match="name"):
        joined(names_as_numbers)
    found = joined(names_as_numbers, **{"hbase.spark.query.badvalue": "null"})
    assert {row["name"] for row in found} == {None}


def test_an_empty_cell_of_a_number_is_null(joined: Any) -> None:
    found = joined(**{"hbase.spark.query.filter": "KeyOnlyFilter()"})
    assert found
    assert {row["age"] for row in found} == {None}


@pytest.mark.parametrize(
    "given",
    [
        {"hbase.spark.query.limit": 3},
        {"hbase.spark.query.cachedrows": 3},
        {"hbase.spark.query.batchsize": 3},
        {"hbase.spark.query.cacheblocks": True},
        {"hbase.spark.query.maxVersions": 3},
        {"hbase.spark.partition.max": 3},
        {"hbase.spark.write.ttl": 3},
        {"prefix": "u1"},
    ],
    ids=str,
)
def test_a_join_refuses_what_it_cannot_honour(joined: Any, given: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match=f"option {next(iter(given))}"):
        joined(**given)


def test_a_column_that_the_option_leaves_out_is_an_error_that_names_it(joined: Any) -> None:
    with pytest.raises(ConfigError, match="no column 'name'"):
        joined(columns=["name"], **{"hbase.spark.query.columns": "age"})
