"""The names of ``import spark_connector as hbase`` are frozen, each is there, and importing it needs no pyspark."""

from __future__ import annotations

import inspect
import subprocess
import sys

import pytest

import spark_connector

NAMES = {
    "bulk_load": "df, catalog",
    "col": "name",
    "copy_table": "spark",
    "join": "df, catalog",
    "lookups": "spark",
    "register": "spark",
    "repartition": "df, catalog",
    "row_count": "spark, table",
    "snapshot": "spark, name",
    "table": "spark, catalog",
    "use": "spark",
    "verify_replication": "spark",
    "write": "df, catalog",
}


def test_the_public_names_are_these() -> None:
    assert sorted(spark_connector.__all__) == sorted(NAMES)
    assert set(NAMES) <= set(dir(spark_connector))


@pytest.mark.parametrize("name", sorted(NAMES))
def test_each_name_is_a_function_with_its_first_arguments(name: str) -> None:
    pytest.importorskip("pyspark")
    function = getattr(spark_connector, name)
    assert callable(function), "a module of the same name would hide the function"
    assert ", ".join(inspect.signature(function).parameters).startswith(NAMES[name])
    assert function.__doc__


def test_conditions_are_made_of_the_name_that_errors_recommend() -> None:
    """``where=`` of something else asks for "an expression of spark_connector.col"."""
    pytest.importorskip("pyspark")
    from metaclient.errors import ConfigError
    from spark_connector.conditions.condition import evaluate
    from spark_connector.conditions.expressions import bind
    from spark_connector.schema.catalog import Catalog

    condition = (spark_connector.col("a") > 3) & spark_connector.col("k").startswith("u")
    catalog = Catalog.from_mapping("t", "k STRING :k, a INT cf:a")
    assert evaluate(bind(condition, catalog), {"a": 4, "k": "u1"}) is True
    with pytest.raises(ConfigError, match=r"an expression of spark_connector\.col"):
        bind(7, catalog)  # type: ignore[arg-type]  # what the error is about


def test_a_name_that_is_none_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="nobody"):
        _ = spark_connector.nobody


def test_importing_it_imports_no_pyspark() -> None:
    program = "import sys, spark_connector; print('pyspark' in sys.modules, 'pyarrow' in sys.modules)"
    said = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout
    assert said.split() == ["False", "False"]


def test_spark_finds_the_source_by_the_name_of_its_module() -> None:
    """Installed at the top level, in a wheel and in an editable install: ``pip install`` is all that users do."""
    pytest.importorskip("pyspark")
    import pyspark_hbase

    assert pyspark_hbase.DefaultSource.name() == "hbase"
    assert pyspark_hbase.DefaultSource.__module__ == "pyspark_hbase"
