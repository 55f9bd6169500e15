"""Conditions as values: ``where=`` as text or as Python expressions becomes one, with SQL's three-valued logic.

>>> condition = (col("a") >= 3) & ~col("b").isin("x", "y")
>>> to_sql(condition)
"(`a` >= 3 AND NOT `b` IN ('x', 'y'))"
>>> evaluate(condition, {"a": 4, "b": None}) is None
True
"""

from __future__ import annotations

import datetime
import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from decimal import Decimal

from metaclient.errors import ConfigError

__all__ = [
    "And",
    "ColumnName",
    "Comparison",
    "Constant",
    "Expression",
    "In",
    "IsNull",
    "Like",
    "Not",
    "Opaque",
    "Or",
    "Single",
    "col",
    "columns_of",
    "evaluate",
    "like_prefix",
    "opaque_parts",
    "quoted_name",
    "to_sql",
]

OPERATORS = ("=", "<>", "<", "<=", ">", ">=", "<=>")


class Expression:
    """A condition; combine with ``&``, ``|`` and ``~``."""

    __slots__ = ()

    def __and__(self, other: Expression) -> Expression:
        # One flat And: functions that walk over conditions recurse once per level.
        return And((*self.parts, other) if isinstance(self, And) else (self, other))

    def __or__(self, other: Expression) -> Expression:
        return Or((*self.parts, other) if isinstance(self, Or) else (self, other))

    def __invert__(self) -> Expression:
        return Not(self)

    def __bool__(self) -> bool:
        raise TypeError(
            "a condition is neither true nor false by itself: combine with &, | and ~, not with and, or, not"
        )


@dataclass(frozen=True, slots=True)
class Comparison(Expression):
    """*column operator value*, with one of ``= <> < <= > >= <=>``."""

    column: str
    operator: str
    value: object

    def __post_init__(self) -> None:
        if self.operator not in OPERATORS:
            raise ValueError(f"{self.operator!r} is no comparison: {' '.join(OPERATORS)}")


@dataclass(frozen=True, slots=True)
class In(Expression):
    """*column* IN (*values*); with a null among the values, "not found" is unknown."""

    column: str
    values: tuple[object, ...]


@dataclass(frozen=True, slots=True)
class Like(Expression):
    """*column* LIKE *pattern*: ``%`` stands for any text, ``_`` for one character."""

    column: str
    pattern: str
    escape: str = "\\"


@dataclass(frozen=True, slots=True)
class IsNull(Expression):
    """*column* IS NULL."""

    column: str


@dataclass(frozen=True, slots=True)
class Not(Expression):
    """The negation of a condition; the negation of unknown is unknown."""

    part: Expression


@dataclass(frozen=True, slots=True)
class And(Expression):
    """All of the parts are true."""

    parts: tuple[Expression, ...]


@dataclass(frozen=True, slots=True)
class Or(Expression):
    """At least one of the parts is true."""

    parts: tuple[Expression, ...]


@dataclass(frozen=True, slots=True)
class Constant(Expression):
    """A condition that is always true, false, or (None) unknown."""

    value: bool | None


@dataclass(frozen=True, slots=True)
class Opaque(Expression):
    """A condition that only Spark can test, because Spark rounds the column's values; it is never pushed down."""

    part: Expression
    reason: str  # what Spark does, and what to write instead


class Single(float):
    """A value of Spark's FLOAT (``0.1F``): a 32-bit float, kept as the double of the same value."""

    __slots__ = ()

    def __repr__(self) -> str:
        return f"Single({float(self)!r})"


@dataclass(frozen=True, slots=True, eq=False)
class ColumnName:
    """A column to compare; made by :func:`col`."""

    name: str

    def __eq__(self, value: object) -> Expression:  # type: ignore[override]  # as pyspark's Column
        return Comparison(self.name, "=", value)

    def __ne__(self, value: object) -> Expression:  # type: ignore[override]  # as pyspark's Column
        return Comparison(self.name, "<>", value)

    def __lt__(self, value: object) -> Expression:
        return Comparison(self.name, "<", value)

    def __le__(self, value: object) -> Expression:
        return Comparison(self.name, "<=", value)

    def __gt__(self, value: object) -> Expression:
        return Comparison(self.name, ">", value)

    def __ge__(self, value: object) -> Expression:
        return Comparison(self.name, ">=", value)

    __hash__ = None  # type: ignore[assignment]  # == makes a condition

    def eq_null_safe(self, value: object) -> Expression:
        return Comparison(self.name, "<=>", value)

    def isin(self, *values: object) -> Expression:
        return In(self.name, values)

    def between(self, low: object, high: object) -> Expression:
        return And((Comparison(self.name, ">=", low), Comparison(self.name, "<=", high)))

    def like(self, pattern: str, escape: str = "\\") -> Expression:
        return Like(self.name, pattern, escape)

    def startswith(self, prefix: str | bytes) -> Expression:
        if isinstance(prefix, bytes):
            return _starts_with_bytes(self.name, prefix)
        return Like(self.name, re.sub(r"([\\%_])", r"\\\1", prefix) + "%")

    def is_null(self) -> Expression:
        return IsNull(self.name)

    def is_not_null(self) -> Expression:
        return Not(IsNull(self.name))


def _starts_with_bytes(name: str, prefix: bytes) -> Expression:
    """Return a range comparison for a prefix of a binary column, whose bytes need not be text."""
    from metaclient import keys

    at_least = Comparison(name, ">=", prefix)
    stop = keys.prefix_stop(prefix)
    return And((at_least, Comparison(name, "<", stop))) if stop else at_least


def col(name: str) -> ColumnName:
    """Return a column to compare: ``col("a") > 3``, ``col("k").startswith("eu-")``, ``col("b").isin(1, 2)``."""
    return ColumnName(name)


def columns_of(expression: Expression) -> tuple[str, ...]:
    """Return the columns that a condition reads, in order of appearance."""
    return tuple(dict.fromkeys(_columns(expression)))


def _columns(expression: Expression) -> Iterator[str]:
    match expression:
        case And(parts) | Or(parts):
            for part in parts:
                yield from _columns(part)
        case Not(part) | Opaque(part):
            yield from _columns(part)
        case Comparison() | In() | Like() | IsNull():
            yield expression.column


def opaque_parts(expression: Expression) -> Iterator[Opaque]:
    """Yield the parts of a condition that only Spark can test."""
    match expression:
        case And(parts) | Or(parts):
            for part in parts:
                yield from opaque_parts(part)
        case Not(part):
            yield from opaque_parts(part)
        case Opaque():
            yield expression


# ---- evaluation


def evaluate(expression: Expression, row: Mapping[str, object]) -> bool | None:
    """Return True, False or None (unknown): Spark's result for a row, which maps columns to values."""
    match expression:
        case Constant(value):
            return value
        case Not(part):
            inner = evaluate(part, row)
            return None if inner is None else not inner
        case And(parts):
            found = [evaluate(part, row) for part in parts]
            return False if False in found else None if None in found else True
        case Or(parts):
            found = [evaluate(part, row) for part in parts]
            return True if True in found else None if None in found else False
        case IsNull(column):
            return row[column] is None
        case Comparison(column, operator, value):
            return _compared(operator, row[column], value)
        case In(column, values):
            return _is_in(row[column], values)
        case Like(column, pattern, escape):
            text = row[column]
            return None if text is None else _is_like(text, pattern, escape)
    raise TypeError(f"{expression!r} is no condition")


def _is_in(value: object, values: tuple[object, ...]) -> bool | None:
    if value is None:
        return None
    if any(each is not None and compare(value, each) == 0 for each in values):
        return True
    return None if None in values else False


def _compared(operator: str, left: object, right: object) -> bool | None:
    if operator == "<=>":
        return left is None and right is None if left is None or right is None else compare(left, right) == 0
    if left is None or right is None:
        return None
    sign = compare(left, right)
    return {
        "=": sign == 0,
        "<>": sign != 0,
        "<": sign < 0,
        "<=": sign <= 0,
        ">": sign > 0,
        ">=": sign >= 0,
    }[operator]


def compare(left: object, right: object) -> int:
    """Return a negative number, 0 or a positive one, in Spark's order.

    If one side is a double, both are compared as doubles. NaN equals NaN and is greater than every other number.
    """
    if isinstance(left, float) or isinstance(right, float):
        left, right = _double(left), _double(right)
        if math.isnan(left) or math.isnan(right):
            return math.isnan(left) - math.isnan(right)
    is_greater: bool = left > right  # type: ignore[operator]  # bound to one kind
    is_less: bool = left < right  # type: ignore[operator]  # bound to one kind
    return is_greater - is_less


def _double(value: object) -> float:
    assert isinstance(value, int | float | Decimal)
    try:
        return float(value)
    except OverflowError:
        return math.inf if value > 0 else -math.inf


def like_prefix(pattern: str, escape: str) -> tuple[str, str]:
    r"""Return the literal prefix of a LIKE pattern and the rest of the pattern (``""`` if there is no wildcard).

    >>> like_prefix("ab%", "\\"), like_prefix("a\\%b_c", "\\"), like_prefix("abc", "\\")
    (('ab', '%'), ('a%b', '_c'), ('abc', ''))
    """
    found: list[str] = []
    at = 0
    while at < len(pattern):
        char = pattern[at]
        if char == escape:
            if pattern[at + 1 : at + 2] not in ("%", "_", escape):
                raise ConfigError(
                    f"LIKE {pattern!r}: the escape {escape!r} must be followed by %, _ or itself (character {at + 1})"
                )
            found.append(pattern[at + 1])
            at += 2
        elif char in "%_":
            break
        else:
            found.append(char)
            at += 1
    return "".join(found), pattern[at:]


def _is_like(value: object, pattern: str, escape: str) -> bool:
    if isinstance(value, bytes):
        return value.startswith(like_prefix(pattern, escape)[0].encode())
    assert isinstance(value, str)
    return re.fullmatch(_like_regex(pattern, escape), value, re.DOTALL) is not None


def _like_regex(pattern: str, escape: str) -> str:
    parts: list[str] = []
    rest = pattern
    while rest:
        fixed, rest = like_prefix(rest, escape)
        parts.append(re.escape(fixed))
        if rest:
            parts.append(".*" if rest[0] == "%" else ".")
            rest = rest[1:]
    return "".join(parts)


# ---- text


def to_sql(expression: Expression) -> str:
    """Return SQL text that :func:`.sql_text.parse_where` parses into the same condition (for options)."""
    match expression:
        case Constant(value):
            return "NULL" if value is None else str(value).upper()
        case Not(part):
            return f"NOT {to_sql(part)}"
        case And(parts):
            return _joined(" AND ", parts, "TRUE")
        case Or(parts):
            return _joined(" OR ", parts, "FALSE")
        case IsNull(column):
            return f"{quoted_name(column)} IS NULL"
        case Comparison(column, operator, value):
            return f"{quoted_name(column)} {operator} {literal_sql(value)}"
        case In(column, values):
            return f"{quoted_name(column)} IN ({', '.join(map(literal_sql, values))})" if values else "FALSE"
        case Like(column, pattern, escape):
            return f"{quoted_name(column)} LIKE {literal_sql(pattern)} ESCAPE {literal_sql(escape)}"
        case Opaque(part):
            return to_sql(part)
    raise TypeError(f"{expression!r} is no condition")


def _joined(word: str, parts: tuple[Expression, ...], empty: str) -> str:
    if len(parts) < 2:
        return to_sql(parts[0]) if parts else empty
    return f"({word.join(map(to_sql, parts))})"


def quoted_name(name: str) -> str:
    """Return a column name in backticks, as Spark SQL quotes it."""
    return "`" + name.replace("`", "``") + "`"


def literal_sql(value: object) -> str:
    """Return a value as a literal of SQL text."""
    match value:
        case None:
            return "NULL"
        case bool():
            return str(value).upper()
        case int():
            return str(value)
        case float():
            return _float_sql(value)
        case Decimal():
            return f"{value!s}BD"
        case str():
            return "'" + value.replace("\\", "\\\\").replace("'", "\\'") + "'"
        case bytes() | bytearray() | memoryview():
            return f"X'{bytes(value).hex()}'"
        case datetime.datetime() if value.tzinfo is None:
            return f"TIMESTAMP_NTZ '{value.isoformat()}'"
        case datetime.datetime():
            return f"TIMESTAMP_LTZ '{value.astimezone(datetime.UTC).isoformat()}'"
        case datetime.date():
            return f"DATE '{value.isoformat()}'"
    raise ConfigError(f"{value!r} ({type(value).__name__}) cannot be a value of a condition")


def _float_sql(value: float) -> str:
    word, suffix = ("FLOAT", "F") if isinstance(value, Single) else ("DOUBLE", "D")
    if math.isnan(value) or math.isinf(value):
        return f"{word}('{'NaN' if math.isnan(value) else 'Infinity' if value > 0 else '-Infinity'}')"
    return f"{float(value)!r}{suffix}"
