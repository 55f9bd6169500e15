"""A condition means what it means in Spark, in the session's settings; what depends on an unknown one is refused."""

from __future__ import annotations

import datetime
import math
import sys
from dataclasses import replace
from decimal import Decimal
from fractions import Fraction
from types import SimpleNamespace

import pytest

from metaclient.errors import ConfigError
from spark_connector.conditions.condition import Comparison, Constant, Expression, In, Like, Opaque, evaluate
from spark_connector.conditions.dialect import PORTABLE, Dialect, of_session
from spark_connector.conditions.expressions import bind
from spark_connector.conditions.literals import nearest_single
from spark_connector.conditions.pushdown import push, superset
from spark_connector.conditions.sql_text import parse_where
from spark_connector.planning.query import Query
from spark_connector.schema.catalog import Catalog
from spark_connector.settings.options import Options

CATALOG = Catalog.from_mapping(
    "t",
    "k STRING :k, i INT c:i, l BIGINT c:l, f FLOAT c:f, d DOUBLE c:d, m decimal(10,2) c:m, w decimal(38,18) c:w, "
    "s STRING c:s, x BINARY c:x, dt DATE c:dt, ts TIMESTAMP c:ts, n TIMESTAMP_NTZ c:n",
)
NEW_YORK = datetime.timezone(datetime.timedelta(hours=-5))


def _in_new_york(text: str) -> datetime.datetime:
    return datetime.datetime.fromisoformat(text).replace(tzinfo=NEW_YORK).astimezone(datetime.UTC)


ANSI = Dialect(is_ansi=True, instant=_in_new_york)
LEGACY = Dialect(is_ansi=False, instant=_in_new_york)


def bound(text: str, dialect: Dialect = PORTABLE) -> Expression:
    return bind(parse_where(text, dialect), CATALOG, dialect)


def refusal(text: str, dialect: Dialect = PORTABLE) -> str:
    with pytest.raises(ConfigError) as caught:
        bound(text, dialect)
    return str(caught.value)


# ---- common types


def test_one_double_in_a_list_makes_doubles_of_the_column_and_of_all_values() -> None:
    condition = bound("l IN (0.1D, 9007199254740993)")
    assert condition == In("l", (0.1, 2.0**53))
    assert evaluate(condition, {"l": 2**53}) is True
    assert push(condition, CATALOG).filter == push(bound("l IS NOT NULL"), CATALOG).filter  # the bytes say nothing


def test_a_float_and_a_decimal_in_one_list_make_doubles() -> None:
    assert bound("i IN (0.5F, 0.25)", LEGACY) == In("i", (0.5, 0.25))


def test_a_whole_number_beside_a_float_is_rounded_to_it_without_ansi_mode() -> None:
    assert bound("f = 16777217", ANSI) == Comparison("f", "=", 16777217.0)
    assert bound("f = 16777217", LEGACY) == Comparison("f", "=", 16777216.0)
    assert bound("f IN (16777217, 0.1F)", LEGACY) == In("f", (16777216.0, nearest_single(Fraction("0.1"))))
    assert "write the number with D" in refusal("f = 16777217")
    assert bound("f = 16777216") == Comparison("f", "=", 16777216.0)  # the same in both modes


def test_a_column_that_spark_rounds_to_floats_is_left_to_spark() -> None:
    assert bound("i = 16777216F", ANSI) == Comparison("i", "=", 16777216.0)
    left = bound("i = 16777216F", LEGACY)
    assert isinstance(left, Opaque)
    assert push(left, CATALOG).filter is None
    assert "depends on spark.sql.ansi.enabled" in refusal("i = 16777216F")


def test_a_decimal_of_more_than_38_digits_is_rounded_by_spark_only() -> None:
    text = "w = 1.0000000000000000010000000000000000001"
    assert isinstance(bound(text), Opaque)
    options = Options.parse({"hbase.table": "t", "hbase.columns.mapping": "k STRING :k, w decimal(38,18) c:w"})
    with pytest.raises(ConfigError, match=r"in a decimal of more than 38 digits.*table\(where="):
        Query.of(replace(options, where=text))


def test_a_whole_number_is_less_than_a_huge_decimal_even_if_it_is_null() -> None:
    """DecimalPrecisionTypeCoercion makes TRUE of it: a filter for rows that have the cell would lose the others."""
    assert bound("i < 99999999999999999999") == Constant(True)
    assert bound("-99999999999999999999 >= i") == Constant(False)
    assert bound("i = 99999999999999999999") == Comparison("i", "=", 99999999999999999999)


def test_a_condition_that_only_spark_can_test_is_true_for_the_push_down_in_any_place() -> None:
    mixed = bound("NOT (i = 0.1F OR k = 'a') AND (l = 0.1F OR k = 'b')", LEGACY)
    assert superset(mixed) == Comparison("k", "<>", "a")


# ---- literals


def test_a_float_literal_has_32_bits() -> None:
    assert bound("d = 0.1F") == Comparison("d", "=", 0.10000000149011612)


@pytest.mark.parametrize("number", ["1.00000005960464477539062500001", "16777217.00000000000000001", "0.1", "-7e-46"])
def test_a_float_literal_is_not_rounded_twice(number: str) -> None:
    exact, near = Fraction(number), nearest_single(Fraction(number))
    for other in (math.nextafter(near, math.inf), math.nextafter(near, -math.inf)):
        assert abs(exact - Fraction(near)) <= abs(exact - Fraction(nearest_single(Fraction(other)))), other
    assert nearest_single(Fraction("1.00000005960464477539062500001")) > 1.0  # by way of a double it would be 1.0


@pytest.mark.parametrize(
    ("literal", "text"),
    [
        (r"'\101'", "A"),
        (r"'\U00000041\u0042'", "AB"),
        (r"'\ud83d\ude00'", "\U0001f600"),
        (r"'\08\18'", "\x008" + "18"),
        (r"'\%\_\x'", r"\%\_x"),
        ("'a''b'", "a'b"),
        ("\"a''b\"", "a''b"),
    ],
)
def test_escapes_are_those_of_spark(literal: str, text: str) -> None:
    assert parse_where(f"s = {literal}") == Comparison("s", "=", text)


def test_escapes_stay_where_the_session_does_not_read_them() -> None:
    raw = Dialect(is_ansi=True, unescapes_strings=False)
    assert parse_where(r"s = '\101''x'", raw) == Comparison("s", "=", r"\101''x")
    assert parse_where(r"s LIKE 'a\%' ESCAPE '\\'", raw) == Like("s", r"a\%")
    assert parse_where(r"d = DATE '\u0032024-01-01'", raw) == Comparison("d", "=", datetime.date(2024, 1, 1))


@pytest.mark.parametrize(
    ("literal", "text", "raw_text"),
    [
        ("'it''s'", "its", "its"),
        (r"'it\'s'", "it's", r"it\'s"),
        (r"'it\'''s'", "it's", r"it\'s"),
        ("''''", "", ""),
        ('"a\'\'b""c"', "a''bc", "a''bc"),
    ],
)
def test_doubled_quotes_join_two_strings_in_spark_4_0(literal: str, text: str, raw_text: str) -> None:
    joining = Dialect(doubled_quotes=False)
    assert parse_where(f"s = {literal}", joining) == Comparison("s", "=", text)
    raw = Dialect(doubled_quotes=False, unescapes_strings=False)
    assert parse_where(f"s = {literal}", raw) == Comparison("s", "=", raw_text)


@pytest.mark.parametrize(("version", "text"), [("4.0.1", "its"), ("4.1.0", "it's"), ("4.10.2", "it's")])
def test_without_a_session_quotes_are_read_as_by_the_pyspark_of_this_process(
    version: str, text: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "pyspark", SimpleNamespace(__version__=version))
    assert parse_where("s = 'it''s'") == Comparison("s", "=", text)


def test_double_quotes_are_not_text_where_they_are_names() -> None:
    with pytest.raises(ConfigError, match="doubleQuotedIdentifiers is on: write names in backticks"):
        parse_where('"s" = 1', Dialect(is_ansi=True, quotes_names=True))


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("dt = DATE '20240101'", "DATE takes 'YYYY-MM-DD'"),
        ("dt = DATE '2024-W01-1'", "DATE takes 'YYYY-MM-DD'"),
        ("x = X'61 62'", "even number of hex digits"),
        ("d = DOUBLE '1.5'", "write 1.5D"),
        ("d = double('1.5')", "takes NaN, Infinity or -Infinity"),
        ("i = 128Y", "Y is for -128 to 127"),
        ("f = 3.4028235e38F", "too great for F"),
        ("d = 1e309", "too great for D"),
        ("m = 123456789012345678901234567890123456789", "at most 38 digits"),
        ("i = +5", "without +"),
        (r"s = '\ud83d'", "half of a surrogate pair"),
        ("ts = TIMESTAMP '2024-01-01 10:00Z'", "TIMESTAMP takes"),
        ("ts = TIMESTAMP '2024-01-01 10:00:00+19:00'", "no offset to UTC"),
    ],
)
def test_literals_that_spark_does_not_have_are_refused(text: str, words: str) -> None:
    assert words in refusal(text, ANSI)


# ---- times


@pytest.mark.parametrize(
    "literal", ["TIMESTAMP '2024-01-01 00:00:00'", "'2024-01-01 00:00:00'", "TIMESTAMP '2024-01-01'"]
)
def test_a_timestamp_without_a_zone_is_not_taken_for_utc(literal: str) -> None:
    assert bound(f"ts = {literal}", ANSI) == Comparison(
        "ts", "=", datetime.datetime(2024, 1, 1, 5, tzinfo=datetime.UTC)
    )
    assert "write the offset to UTC behind it" in refusal(f"ts = {literal}")


def test_a_timestamp_is_without_a_zone_where_the_session_says_so() -> None:
    plain = Dialect(is_ansi=True, instant=_in_new_york, timestamps_have_zones=False)
    midnight = datetime.datetime(2024, 1, 1)  # noqa: DTZ001  # it has none, on purpose
    assert bound("n = TIMESTAMP '2024-01-01 00:00:00'", plain) == Comparison("n", "=", midnight)
    assert "write TIMESTAMP_LTZ" in refusal("ts = TIMESTAMP '2024-01-01 00:00:00'", plain)


@pytest.mark.parametrize("text", ["ts IN ('2024-01-01')", "n IN ('2024-01-01')", "x IN ('a')"])
def test_text_in_a_list_is_refused_where_spark_compares_it_as_text(text: str) -> None:
    assert "with ANSI mode off Spark does not convert text in an IN list" in refusal(text, LEGACY)
    assert isinstance(bound(text, ANSI), In)


# ---- sessions


class _Conf:
    def __init__(self, **settings: str) -> None:
        self._settings = {name.replace("__", "."): value for name, value in settings.items()}

    def get(self, name: str, default: str) -> str:
        return self._settings.get(name.removeprefix("spark.sql."), default)


class _Session:
    version = "4.0.1"

    def __init__(self, **settings: str) -> None:
        self.conf = _Conf(**settings)


def test_the_dialect_of_a_session_has_its_settings() -> None:
    session = _Session(
        ansi__enabled="false",
        ansi__doubleQuotedIdentifiers="true",
        parser__escapedStringLiterals="true",
        timestampType="TIMESTAMP_NTZ",
    )
    found = of_session(session)  # type: ignore[arg-type]  # as much of a session as is asked for
    assert (found.is_ansi, found.unescapes_strings, found.timestamps_have_zones) == (False, False, False)
    assert not found.quotes_names  # that takes ANSI mode, too
    assert not found.has_doubled_quotes  # that takes Spark 4.1


def test_a_legacy_setting_that_changes_conditions_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"exponentLiteralAsDecimal\.enabled is true.*set it to false"):
        of_session(_Session(legacy__exponentLiteralAsDecimal__enabled="true"))  # type: ignore[arg-type]  # as above


def test_decimals_and_whole_numbers_are_compared_exactly() -> None:
    assert bound("m = 5") == Comparison("m", "=", 5)
    assert bound("i > 3.5") == Comparison("i", ">", Decimal("3.5"))
    assert bound("l IN (9007199254740993, 1.5)") == In("l", (9007199254740993, Decimal("1.5")))
