"""The data source without Spark: what it says to tables of Spark's catalog, whose options Spark does not keep."""

from __future__ import annotations

import pytest

pytest.importorskip("pyspark", reason="needs the extra 'spark'")

from metaclient.errors import ConfigError
from spark_connector.jobs.splits import schema_from
from spark_connector.source import HBaseSource

SCHEMA = schema_from("id string, a string")
GIVEN = {"url": "thrift2://127.0.0.1:1", "hbase.table": "t", "hbase.columns.mapping": "id STRING :id, a STRING cf:a"}


def test_create_table_is_refused_because_the_table_could_not_be_read() -> None:
    """As Spark 4.3 calls the source for ``CREATE TABLE t USING hbase OPTIONS (...)``."""
    added = {"provider": "hbase", "owner": "somebody", **{f"option.{name}": value for name, value in GIVEN.items()}}
    with pytest.raises(ConfigError, match=r"does not keep the options.*CREATE TEMPORARY VIEW"):
        HBaseSource({**GIVEN, **added}).schema()


@pytest.mark.parametrize("use", ["reader", "writer", "streamReader"])
def test_a_table_of_the_catalog_that_lost_its_options_says_so(use: str) -> None:
    """``CREATE TABLE t (id string) USING hbase OPTIONS (...)`` never calls the source; the first use gets {}."""
    made = HBaseSource({})
    arguments = (SCHEMA, False) if use == "writer" else (SCHEMA,)
    with pytest.raises(ConfigError, match=r"no options.*does not keep.*CREATE TEMPORARY VIEW.*WITH \(url"):
        getattr(made, use)(*arguments)


def test_a_view_is_not_taken_for_a_table() -> None:
    assert HBaseSource(GIVEN).schema().fieldNames() == ["id", "a"]
