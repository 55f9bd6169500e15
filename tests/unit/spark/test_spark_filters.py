"""Filters of Spark's optimizer become conditions that are true for every row that passes them, or are left out."""

from __future__ import annotations

import datetime
import pickle
import struct
from types import SimpleNamespace
from typing import Any

import pytest

from spark_connector.conditions.condition import And, Comparison, In, IsNull, Like, Not, Or, evaluate
from spark_connector.conditions.spark_filters import VALUES_MAX, condition_of
from spark_connector.schema.types import parse_type

TYPES = {
    name: parse_type(type)
    for name, type in {
        "s": "string",
        "i": "int",
        "f": "float",
        "d": "double",
        "b": "binary",
        "day": "date",
        "at": "timestamp",
        "local": "timestamp_ntz",
        "a.b": "int",
    }.items()
}


class Java:
    """A Java object with a class name and methods."""

    def __init__(self, kind: str, **values: Any) -> None:
        self._kind = kind
        for name, value in values.items():
            setattr(self, name, lambda *_, value=value: value)

    def getClass(self) -> Any:
        return SimpleNamespace(getSimpleName=lambda: self._kind.rpartition(".")[2], getName=lambda: self._kind)


def compared(kind: str, attribute: str, value: Any) -> Java:
    return Java(kind, attribute=attribute, value=value)


class Pickler:
    def dumps(self, values: Any) -> bytes:
        return pickle.dumps(tuple(values))


JVM: Any = SimpleNamespace(
    net=SimpleNamespace(razorvine=SimpleNamespace(pickle=SimpleNamespace(Pickler=Pickler))),
    java=SimpleNamespace(time=SimpleNamespace(ZoneOffset=SimpleNamespace(UTC="Z"))),
)
STRANGE = compared("Rlike", "s", "x")


def converted(*filters: Java) -> Any:
    return condition_of(filters, TYPES, JVM)


def test_comparisons_lists_and_patterns() -> None:
    assert converted(compared("GreaterThan", "i", 3)) == Comparison("i", ">", 3)
    assert converted(compared("EqualNullSafe", "s", None)) == Comparison("s", "<=>", None)
    assert converted(Java("In", attribute="i", values=[1, None])) == In("i", (1, None))
    assert converted(Java("IsNull", attribute="b")) == IsNull("b")
    assert converted(compared("EqualTo", "`a.b`", 1)) == Comparison("a.b", "=", 1)
    assert converted(compared("StringContains", "s", "5%_\\")) == Like("s", "%5\\%\\_\\\\%")


@pytest.mark.parametrize(("pattern", "matches"), [("StringStartsWith", "a%b..."), ("StringEndsWith", "...a%b")])
def test_a_pattern_matches_its_own_text_only(pattern: str, matches: str) -> None:
    found = converted(compared(pattern, "s", "a%b"))
    assert evaluate(found, {"s": matches}) is True
    assert evaluate(found, {"s": matches.replace("%", "x")}) is False


def test_not_null_is_dropped_beside_a_comparison_only() -> None:
    not_null = Java("IsNotNull", attribute="s")
    assert converted(not_null, compared("EqualTo", "s", "x")) == Comparison("s", "=", "x")
    assert converted(not_null, compared("EqualTo", "i", 1)) == And((Not(IsNull("s")), Comparison("i", "=", 1)))
    assert converted(not_null, compared("EqualNullSafe", "s", "x")) == And(
        (Not(IsNull("s")), Comparison("s", "<=>", "x"))
    )


def test_an_unknown_part_of_and_is_left_out_but_never_under_not_or_or() -> None:
    """``NOT (i = 1 AND strange)`` is true for rows with i = 1, so NOT i = 1 would lose rows."""
    known = compared("EqualTo", "i", 1)
    both = Java("And", left=known, right=STRANGE)
    assert converted(both) == Comparison("i", "=", 1)
    assert converted(Java("Not", child=both)) is None
    assert converted(Java("Or", left=known, right=STRANGE)) is None
    assert converted(Java("Or", left=both, right=known)) is None
    assert converted(Java("Not", child=both), known) == Comparison("i", "=", 1)
    assert converted(Java("Or", left=known, right=known)) == Or((Comparison("i", "=", 1), Comparison("i", "=", 1)))


def test_a_float_is_the_nearest_32_bit_value() -> None:
    """py4j passes 0.1F as the text 0.1; the column's value as a double is 0.10000000149011612."""
    found = converted(compared("EqualTo", "f", 0.1))
    assert found.value == struct.unpack("f", struct.pack("f", 0.1))[0] != 0.1
    assert converted(compared("EqualTo", "d", 0.1)).value == 0.1


def test_dates_and_times_are_exact() -> None:
    instant = Java("java.time.Instant", getEpochSecond=-1, getNano=999_999_000)
    assert converted(compared("LessThan", "at", instant)).value == datetime.datetime(
        1969, 12, 31, 23, 59, 59, 999_999, tzinfo=datetime.UTC
    )
    day = Java("java.time.LocalDate", toEpochDay=-1)
    assert converted(compared("LessThan", "day", day)).value == datetime.date(1969, 12, 31)
    local = Java("java.time.LocalDateTime", toEpochSecond=60, getNano=1000)
    assert converted(compared("LessThan", "local", local)).value == datetime.datetime.fromisoformat(
        "1970-01-01T00:01:00.000001"
    )


@pytest.mark.parametrize(
    "filter",
    [
        compared("EqualTo", "nowhere", 1),
        compared("EqualTo", "s.x", 1),
        compared("EqualTo", "i", True),
        compared("EqualTo", "s", 5),
        compared("StringStartsWith", "b", "x"),
        compared("EqualTo", "day", Java("java.time.LocalDate", toEpochDay=10**8)),
        Java("In", attribute="i", values=range(VALUES_MAX + 1)),
        STRANGE,
    ],
    ids=lambda each: each._kind,
)
def test_what_cannot_be_converted_is_left_to_spark(filter: Java) -> None:
    assert converted(filter) is None
