"""Spark's filters in our words, and the memory that a load() is planned with one set of them only."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyspark")

from pyspark.sql import datasource as spark

if not hasattr(spark, "EqualTo"):
    pytest.skip("Spark tells Python sources of filters from 4.1 on", allow_module_level=True)

from metaclient.errors import ConfigError
from spark_connector.conditions.expressions import Comparison, to_sql
from spark_connector.planning import plans
from spark_connector.planning.plans import condition_of, only_one
from spark_connector.schema.catalog import Catalog

CATALOG = Catalog.from_mapping("t", "key STRING :key, i INT cf:i, s STRING cf:s, x BINARY cf:x")


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return tmp_path


@pytest.mark.parametrize(
    ("each", "text"),
    [
        (spark.EqualTo(("i",), 3), "i = 3"),
        (spark.EqualNullSafe(("i",), 3), "i <=> 3"),
        (spark.GreaterThan(("i",), 3), "i > 3"),
        (spark.GreaterThanOrEqual(("i",), 3), "i >= 3"),
        (spark.LessThan(("i",), 3), "i < 3"),
        (spark.LessThanOrEqual(("i",), 3), "i <= 3"),
        (spark.In(("i",), [3, 1, 2]), "i IN (1, 2, 3)"),
        (spark.IsNull(("s",)), "s IS NULL"),
        (spark.IsNotNull(("s",)), "NOT s IS NULL"),
        (spark.Not(spark.In(("i",), [1])), "NOT"),
        (spark.StringStartsWith(("s",), "5%"), "LIKE"),
        (spark.StringEndsWith(("s",), "b"), "LIKE '%b'"),
        (spark.StringContains(("s",), "b"), "LIKE '%b%'"),
    ],
)
def test_filters_of_spark_have_a_word_of_ours(each: Any, text: str) -> None:
    found = condition_of([each], CATALOG)
    assert found is not None
    assert text in to_sql(found).replace("`", "")


def test_what_we_have_no_word_for_is_left_to_spark() -> None:
    filters = [spark.EqualTo(("s", "inner"), 3), spark.EqualTo(("nobody",), 3), spark.EqualTo(("i",), "text")]
    assert condition_of(filters, CATALOG) is None
    assert condition_of([], CATALOG) is None


def test_the_same_filters_in_another_order_are_the_same() -> None:
    one, other = spark.EqualTo(("i",), 3), spark.In(("s",), ["a", "b"])
    turned = spark.In(("s",), ["b", "a"])
    assert to_sql(condition_of([one, other], CATALOG)) == to_sql(condition_of([turned, one], CATALOG))


def test_one_load_one_filter() -> None:
    only_one("load1", Comparison("i", "=", 1))
    only_one("load1", Comparison("i", "=", 1))
    only_one("load2", Comparison("i", "=", 2))
    with pytest.raises(ConfigError, match=r"planned with the filter .*1.* and is now used with .*2"):
        only_one("load1", Comparison("i", "=", 2))
    with pytest.raises(ConfigError, match="no filter"):
        only_one("load1", None)


def test_a_bare_use_before_a_filtered_one_is_refused_too() -> None:
    only_one("load1", None)
    with pytest.raises(ConfigError, match=r"Call load\(\) again"):
        only_one("load1", Comparison("i", "=", 2))


def test_old_notes_are_swept_out(monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
    monkeypatch.setattr(plans, "PLANS_MAX", 3)
    for number in range(6):
        only_one(f"load{number}", None)
    (kept,) = folder.iterdir()
    assert len(list(kept.iterdir())) == 3
