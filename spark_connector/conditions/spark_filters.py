"""Converts filters of Spark's optimizer (``org.apache.spark.sql.sources.Filter``) to conditions.

Spark has already brought both sides of each comparison to the column's type, so a value needs no rule of SQL here. A
filter that cannot be converted is left out as a whole: Spark tests every filter again on the returned rows.

DIVERGENCES from the values of Spark: py4j passes a Java ``float`` as its shortest decimal text, so that values of FLOAT
columns are rounded to 32 bits again.
"""

from __future__ import annotations

import datetime
import pickle
import struct
from collections.abc import Callable, Iterable, Mapping
from decimal import Decimal
from typing import Any

from metaclient.columns.types import INTEGERS, DataType
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
    Single,
)

__all__ = ["VALUES_MAX", "condition_of"]

#: A list (IN, or the runtime filter of a join) with more values than this is not converted.
VALUES_MAX = 100_000
#: Dates and timestamps of a list are converted by one call of the JVM each; a longer list is not converted.
_SLOW_VALUES_MAX = 1000

_EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
_COMPARISONS = {
    "EqualTo": "=",
    "EqualNullSafe": "<=>",
    "GreaterThan": ">",
    "GreaterThanOrEqual": ">=",
    "LessThan": "<",
    "LessThanOrEqual": "<=",
}
_PATTERNS: Mapping[str, Callable[[str], str]] = {
    "StringStartsWith": lambda text: f"{text}%",
    "StringEndsWith": lambda text: f"%{text}",
    "StringContains": lambda text: f"%{text}%",
}
#: Types whose Java values py4j and Java's pickler convert without loss.
_PLAIN = frozenset({*INTEGERS, "float", "double", "boolean", "string", "binary", "decimal"})


class _NotConverted(Exception):
    """The filter, or a value of it, has no condition here."""


def condition_of(filters: Iterable[Any], types: Mapping[str, DataType], jvm: Any) -> Expression | None:
    """Return a condition that is true for all rows that pass all of the filters; None if no filter can be converted.

    ``filters`` are Java objects, ``types`` the columns of the table, ``jvm`` the view of the JVM that has the objects.
    """
    reader = _FilterReader(types, jvm)
    found: list[Expression] = []
    for each in filters:
        found += reader.conjuncts(each)
    found = [each for each in found if not _is_implied(each, found)]
    return None if not found else found[0] if len(found) == 1 else And(tuple(found))


def _is_implied(condition: Expression, others: Iterable[Expression]) -> bool:
    """Return True for *column* IS NOT NULL beside a comparison of the column, which is never true of null."""
    match condition:
        case Not(IsNull(column)):
            return any(
                isinstance(other, Comparison | In | Like)
                and other.column == column
                and not (isinstance(other, Comparison) and other.operator == "<=>")
                for other in others
            )
    return False


class _FilterReader:
    """Reads Java filters of one table."""

    def __init__(self, types: Mapping[str, DataType], jvm: Any) -> None:
        self._types = types
        self._jvm = jvm

    def conjuncts(self, each: Any) -> list[Expression]:
        """Return the parts of a filter that could be converted; all of them are true for a row that passes it."""
        if _kind(each) == "And":
            return [*self.conjuncts(each.left()), *self.conjuncts(each.right())]
        try:
            return [self._whole(each)]
        except (_NotConverted, OverflowError):
            return []

    def _whole(self, each: Any) -> Expression:
        """Return the whole filter as a condition. A part of it would not do: it may be under NOT or OR."""
        kind = _kind(each)
        match kind:
            case "And":
                return And((self._whole(each.left()), self._whole(each.right())))
            case "Or":
                return Or((self._whole(each.left()), self._whole(each.right())))
            case "Not":
                return Not(self._whole(each.child()))
            case "AlwaysTrue":
                return Constant(True)
            case "AlwaysFalse":
                return Constant(False)
            case "IsNull":
                return IsNull(self._column(each))
            case "IsNotNull":
                return Not(IsNull(self._column(each)))
            case "In":
                column = self._column(each)
                return In(column, self._values(column, each.values()))
        if kind in _COMPARISONS:
            column = self._column(each)
            return Comparison(column, _COMPARISONS[kind], self._value(column, each.value()))
        if kind in _PATTERNS:
            column = self._column(each)
            if self._types[column].name != "string":
                raise _NotConverted
            return Like(column, _PATTERNS[kind](_escaped(each.value())))
        raise _NotConverted

    def _column(self, each: Any) -> str:
        """Return the column of a filter. Spark quotes names with dots; a name with dots is a field of a struct."""
        name = str(each.attribute())
        if len(name) > 2 and name[0] == name[-1] == "`" and "`" not in name[1:-1].replace("``", ""):
            name = name[1:-1].replace("``", "`")
        elif "." in name:
            raise _NotConverted
        if name not in self._types:
            raise _NotConverted
        return name

    def _values(self, column: str, values: Any) -> tuple[object, ...]:
        type = self._types[column]
        count = len(values)
        if count > (VALUES_MAX if type.name in _PLAIN else _SLOW_VALUES_MAX):
            raise _NotConverted
        if type.name in _PLAIN:
            # One call for all values. The bytes come from the driver's own JVM.
            values = pickle.loads(bytes(self._jvm.net.razorvine.pickle.Pickler().dumps(values)))
        return tuple(self._value(column, value) for value in values)

    def _value(self, column: str, value: Any) -> object:
        type = self._types[column]
        if value is None:
            return None
        match type.name:
            case "string" if isinstance(value, str):
                return value
            case "boolean" if isinstance(value, bool):
                return value
            case "binary" if isinstance(value, bytes | bytearray):
                return bytes(value)
            case "decimal" if isinstance(value, Decimal):
                return value
            case "float" if isinstance(value, float):
                return Single(struct.unpack("f", struct.pack("f", value))[0])
            case "double" if isinstance(value, float):
                return value
            case "date":
                return (_EPOCH + datetime.timedelta(days=self._days(value))).date()
            case "timestamp":
                return _EPOCH + datetime.timedelta(microseconds=self._micros(value))
            case "timestamp_ntz":
                return _EPOCH.replace(tzinfo=None) + datetime.timedelta(microseconds=self._micros(value))
        if type.name in INTEGERS and isinstance(value, int) and not isinstance(value, bool):
            return value
        raise _NotConverted

    def _days(self, value: Any) -> int:
        match _class(value):
            case "java.sql.Date":
                return int(self._jvm.org.apache.spark.sql.catalyst.util.DateTimeUtils.fromJavaDate(value))
            case "java.time.LocalDate":
                return int(value.toEpochDay())
        raise _NotConverted

    def _micros(self, value: Any) -> int:
        match _class(value):
            case "java.sql.Timestamp":
                return int(self._jvm.org.apache.spark.sql.catalyst.util.DateTimeUtils.fromJavaTimestamp(value))
            case "java.time.Instant":
                return int(value.getEpochSecond()) * 1_000_000 + int(value.getNano()) // 1000
            case "java.time.LocalDateTime":
                seconds = int(value.toEpochSecond(self._jvm.java.time.ZoneOffset.UTC))
                return seconds * 1_000_000 + int(value.getNano()) // 1000
        raise _NotConverted


def _kind(each: Any) -> str:
    return str(each.getClass().getSimpleName()).removesuffix("$")


def _class(value: Any) -> str:
    return str(value.getClass().getName()) if hasattr(value, "getClass") else ""


def _escaped(text: object) -> str:
    if not isinstance(text, str):
        raise _NotConverted
    return text.replace("\\", "\\\\").replace("%", "\\%").replace("_", "\\_")
