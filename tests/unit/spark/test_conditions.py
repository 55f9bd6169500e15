"""Conditions: the small SQL, its errors, binding to a catalog, and the three values."""

from __future__ import annotations

import datetime
import math
from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from metaclient.errors import ConfigError
from spark_connector.conditions.condition import (
    And,
    Comparison,
    Constant,
    Expression,
    In,
    IsNull,
    Like,
    Not,
    Or,
    col,
    columns_of,
    evaluate,
    to_sql,
)
from spark_connector.conditions.expressions import bind
from spark_connector.conditions.sql_text import parse_where
from spark_connector.schema.catalog import Catalog
from tests.unit.spark.strategies import catalogs, conditions

UTC = datetime.UTC


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a = 1", Comparison("a", "=", 1)),
        ("a == -1", Comparison("a", "=", -1)),
        ("1 < a", Comparison("a", ">", 1)),
        ("a != 1.50", Comparison("a", "<>", Decimal("1.50"))),
        ("a >= 1e2", Comparison("a", ">=", 100.0)),
        ("a >= 1.5D AND b < 2L", And((Comparison("a", ">=", 1.5), Comparison("b", "<", 2)))),
        ("a <=> NULL", Comparison("a", "<=>", None)),
        ("`odd ``name` = 'it''s'", Comparison("odd `name", "=", "it's")),
        (r"a = 'x\'y\\z\u00e9\n'", Comparison("a", "=", "x'y\\zé\n")),
        ('a = "dq"', Comparison("a", "=", "dq")),
        ("a = X'00fF'", Comparison("a", "=", b"\x00\xff")),
        ("a = date '2024-02-29'", Comparison("a", "=", datetime.date(2024, 2, 29))),
        ("a < TIMESTAMP '2024-01-01 10:00:00Z'", Comparison("a", "<", datetime.datetime(2024, 1, 1, 10, tzinfo=UTC))),
        ("a < TIMESTAMP_NTZ '2024-01-01'", Comparison("a", "<", datetime.datetime(2024, 1, 1))),  # noqa: DTZ001  # it has none, on purpose
        ("date = DATE '2024-01-01'", Comparison("date", "=", datetime.date(2024, 1, 1))),
        ("a IS NULL or not b is not null", Or((IsNull("a"), Not(Not(IsNull("b")))))),
        ("a IN (1, NULL)", In("a", (1, None))),
        ("a NOT IN ('x')", Not(In("a", ("x",)))),
        (
            "a BETWEEN 1 AND 2 AND b = 3",
            And((And((Comparison("a", ">=", 1), Comparison("a", "<=", 2))), Comparison("b", "=", 3))),
        ),
        ("a NOT BETWEEN 1 AND 2", Not(And((Comparison("a", ">=", 1), Comparison("a", "<=", 2))))),
        ("a LIKE 'p%'", Like("a", "p%")),
        (r"a LIKE 'p\%%'", Like("a", r"p\%%")),
        ("a NOT LIKE '/%x' ESCAPE '/'", Not(Like("a", "/%x", "/"))),
        ("flag AND NOT other", And((Comparison("flag", "=", True), Not(Comparison("other", "=", True))))),
        (
            "a = 1 OR b = 2 AND c = 3",
            Or((Comparison("a", "=", 1), And((Comparison("b", "=", 2), Comparison("c", "=", 3))))),
        ),
        (
            "(a = 1 OR b = 2) AND c = TRUE",
            And((Or((Comparison("a", "=", 1), Comparison("b", "=", 2))), Comparison("c", "=", True))),
        ),
        ("TRUE", Constant(True)),
    ],
)
def test_text_means(text: str, expected: Expression) -> None:
    assert parse_where(text) == expected


@pytest.mark.parametrize(
    ("text", "at", "words"),
    [
        ("", 1, "a literal or a column should be here"),
        ("a =", 4, "a literal or a column should be here"),
        ("a = 1 b", 7, "should end here, or go on with AND or OR"),
        ("a = b", 1, "two columns are compared"),
        ("1 = 2", 1, "two literals are compared"),
        ("upper(a) = 'X'", 1, "functions cannot be pushed down"),
        ("a LIKE b", 8, "a pattern in quotes should be here"),
        ("a IN ()", 7, "a literal or a column should be here"),
        ("a IN (1", 8, ") should be here"),
        ("(a = 1", 7, ") should be here"),
        ("a = 'x", 5, "a quote is open"),
        ("a = X'abc'", 5, "an even number of hex digits"),
        ("a = DATE '2024-13-01'", 5, "DATE takes 'YYYY-MM-DD'"),
        ("a RLIKE 'x'", 3, "a comparison, IN, BETWEEN, LIKE or IS NULL should be here"),
        ("a IS TRUE", 3, "a comparison, IN, BETWEEN, LIKE or IS NULL should be here"),
        ("a ; b", 3, "has no meaning here"),
        ("NOT " * 200 + "a", 401, "inside each other"),
        ("1.5L = a", 1, "L is for whole numbers"),
    ],
)
def test_a_mistake_is_pointed_at(text: str, at: int, words: str) -> None:
    with pytest.raises(ConfigError) as caught:
        parse_where(text)
    assert f"at character {at}," in str(caught.value)
    assert words in str(caught.value)


@given(data=st.data())
def test_sql_of_a_condition_reads_back_as_the_same_condition(data: st.DataObject) -> None:
    condition = data.draw(conditions(data.draw(catalogs())))
    again = parse_where(to_sql(condition))
    assert to_sql(again) == to_sql(condition)
    assert set(columns_of(again)) <= set(columns_of(condition))


CATALOG = Catalog.from_mapping(
    "t",
    "k BINARY :k, i INT f:i, l BIGINT f:l, d DOUBLE f:d, s STRING f:s, b BOOLEAN f:b, x BINARY f:x, "
    "dt DATE f:dt, ts TIMESTAMP f:ts, n TIMESTAMP_NTZ f:n, m map<string,int> g:*",
)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("K = 'a'", Comparison("k", "=", b"a")),
        ("i > 3.5", Comparison("i", ">", Decimal("3.5"))),
        ("i = NULL", Constant(None)),
        ("i <=> NULL", IsNull("i")),
        ("dt = '2024-01-01'", Comparison("dt", "=", datetime.date(2024, 1, 1))),
        ("ts = '2024-01-01T00:00:00+02:00'", Comparison("ts", "=", datetime.datetime(2023, 12, 31, 22, tzinfo=UTC))),
        ("n = '2024-01-01 01:02:03'", Comparison("n", "=", datetime.datetime(2024, 1, 1, 1, 2, 3))),  # noqa: DTZ001  # it has none, on purpose
        ("x LIKE 'ab%'", Like("x", "ab%")),
        ("x LIKE 'ab'", Comparison("x", "=", b"ab")),
        ("m IS NULL", IsNull("m")),
    ],
)
def test_values_are_bound_to_their_columns(text: str, expected: Expression) -> None:
    assert bind(parse_where(text), CATALOG) == expected


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("j = 1", "no column j"),
        ("i = '1'", "column i is int, and '1' is text: write a number, without quotes"),
        ("i = TRUE", "column i is int, and True is a boolean"),
        ("s = 1", "write text, in single quotes"),
        ("b = 1", "write TRUE or FALSE"),
        ("x = 1", "write X'hex' or text"),
        ("dt = 'today'", "is not YYYY-MM-DD"),
        ("dt = TIMESTAMP '2024-01-01 00:00:00Z'", "write DATE 'YYYY-MM-DD'"),
        ("n = TIMESTAMP '2024-01-01 00:00:00Z'", "it has a time zone, the column has none"),
        ("ts = TIMESTAMP_NTZ '2024-01-01 00:00:00'", "it has no time zone"),
        ("m = 1", "only IS NULL is supported for it"),
        ("i LIKE '1%'", "LIKE is for text"),
        ("x LIKE '%a'", "only LIKE 'prefix%'"),
        (r"s LIKE 'a\\b'", "must be followed by %, _ or itself"),
    ],
)
def test_what_does_not_fit_a_column_is_refused(text: str, words: str) -> None:
    with pytest.raises(ConfigError) as caught:
        bind(parse_where(text), CATALOG)
    assert words in str(caught.value)


@pytest.mark.parametrize(
    ("condition", "row", "expected"),
    [
        (col("a") == 1, {"a": None}, None),
        (col("a").eq_null_safe(None), {"a": None}, True),
        (col("a").eq_null_safe(1), {"a": None}, False),
        (~(col("a") == 1), {"a": None}, None),
        ((col("a") == 1) & (col("b") == 2), {"a": None, "b": 3}, False),
        ((col("a") == 1) | (col("b") == 2), {"a": None, "b": 2}, True),
        (col("a").isin(1, None), {"a": 1}, True),
        (col("a").isin(1, None), {"a": 2}, None),
        (~col("a").isin(1), {"a": None}, None),
        (col("a") > 5, {"a": math.nan}, True),
        (col("a") == math.nan, {"a": math.nan}, True),
        (col("a") == 0.0, {"a": -0.0}, True),
        (col("a") == float(2**53), {"a": 2**53 + 1}, True),  # Spark compares doubles
        (col("a") == Decimal("0.1"), {"a": 0.1}, True),
        (col("a") == 0.1, {"a": Decimal("0.1")}, True),
        (col("a").like("a_c%"), {"a": "abc\nd"}, True),
        (col("a").startswith("50%"), {"a": "50% off"}, True),
        (col("a").startswith("50%"), {"a": "500"}, False),
        (col("a").startswith(b"\xff"), {"a": b"\xff\x01"}, True),
        (col("a").between(1, 3), {"a": 3}, True),
        (col("a").is_not_null(), {"a": None}, False),
    ],
)
def test_three_values(condition: Expression, row: dict[str, object], expected: bool | None) -> None:
    assert evaluate(condition, row) is expected


def test_a_condition_is_not_a_truth_value() -> None:
    with pytest.raises(TypeError, match="combine with &"):
        bool(col("a") == 1)
