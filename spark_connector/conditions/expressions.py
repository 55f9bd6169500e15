"""Binds conditions to the columns of a catalog (names and types of values), and converts them to pyspark columns.

A condition is bound on the driver, before anything is read. A column that does not exist, or a value that does not fit
the column's type, is an error with the column's name. Bound values are those that Spark compares with, in the session's
dialect: numbers in the common type (:mod:`spark_connector.conditions.coercion`), text for a timestamp as the instant in
the session's time zone. A condition that depends on an unknown setting of the session is refused.
"""

from __future__ import annotations

import datetime
from collections.abc import Callable
from dataclasses import replace
from decimal import Decimal
from typing import TYPE_CHECKING

from metaclient.columns.types import DataType
from metaclient.errors import ConfigError
from spark_connector.conditions import coercion, literals
from spark_connector.conditions.condition import (
    And,
    Comparison,
    Constant,
    Expression,
    In,
    IsNull,
    Like,
    Not,
    Opaque,
    Or,
    Single,
    like_prefix,
    quoted_name,
    to_sql,
)
from spark_connector.conditions.dialect import PORTABLE, Dialect
from spark_connector.schema.catalog import Catalog, FamilyColumn, Field

if TYPE_CHECKING:
    from pyspark.sql import Column as SparkColumn

__all__ = ["bind", "to_column"]


def bind(expression: Expression, catalog: Catalog, dialect: Dialect = PORTABLE) -> Expression:
    """Return the condition with the catalog's names and the values that Spark compares with; else raise ConfigError.

    >>> from spark_connector.conditions.condition import col
    >>> bind(col("K") == "a", Catalog.from_mapping("t", "k BINARY :k, a INT cf:a"))
    Comparison(column='k', operator='=', value=b'a')
    """
    match expression:
        case And(parts):
            return And(tuple(bind(part, catalog, dialect) for part in parts))
        case Or(parts):
            return Or(tuple(bind(part, catalog, dialect) for part in parts))
        case Not(part):
            return Not(bind(part, catalog, dialect))
        case Constant() | Opaque():
            return expression
        case IsNull(column):
            return IsNull(catalog.field(column).name)
        case Comparison(column, operator, value):
            field = _comparable(catalog, column)
            if value is None:
                return IsNull(field.name) if operator == "<=>" else Constant(None)
            return _in_either_mode(dialect, lambda known: _compared(field, operator, value, known))
        case In(column, values):
            field = _comparable(catalog, column)
            return _in_either_mode(dialect, lambda known: _listed(field, values, known))
        case Like(column, pattern, escape):
            return _like(catalog, column, pattern, escape)
    raise ConfigError(f"where: {expression!r} is no condition: give SQL text, or an expression of spark_connector.col")


def _in_either_mode(dialect: Dialect, bound: Callable[[Dialect], Expression]) -> Expression:
    """Return the bound condition if ANSI mode is known or makes no difference; else raise ConfigError."""
    if dialect.is_ansi is not None:
        return bound(dialect)
    with_ansi, without = bound(replace(dialect, is_ansi=True)), bound(replace(dialect, is_ansi=False))
    if with_ansi == without or to_sql(with_ansi) == to_sql(without):  # NaN is not equal to itself
        return with_ansi
    reason = without.reason if isinstance(without, Opaque) else "write the number with D to compare doubles"
    raise ConfigError(
        f"where: {to_sql(without)} depends on spark.sql.ansi.enabled, which is not known here: {reason}; or use "
        "spark_connector.table(where=...)"
    )


def _compared(field: Field, operator: str, value: object, dialect: Dialect) -> Expression:
    converted = _value(field, value, dialect)
    if field.type.is_number:
        assert isinstance(converted, int | float | Decimal)
        return coercion.compared(field.name, field.type, operator, converted, is_ansi=dialect.is_ansi is True)
    return Comparison(field.name, operator, converted)


def _listed(field: Field, values: tuple[object, ...], dialect: Dialect) -> Expression:
    if not dialect.is_ansi and field.type.name in _NO_TEXT_IN_LISTS and any(isinstance(each, str) for each in values):
        raise ConfigError(
            f"where: column {field.name} is {field.type}: with ANSI mode off Spark does not convert text in an IN list "
            f"to this type: write {_NO_TEXT_IN_LISTS[field.type.name]}"
        )
    converted = tuple(None if value is None else _value(field, value, dialect) for value in values)
    if field.type.is_number:
        return coercion.listed(field.name, field.type, converted, is_ansi=dialect.is_ansi is True)  # type: ignore[arg-type]  # numbers, by _converted
    return In(field.name, converted)


#: Type -> what to write in an IN list instead of text, which Spark compares as text or refuses.
_NO_TEXT_IN_LISTS = {
    "binary": "X'hex'",
    "timestamp": "TIMESTAMP '...'",
    "timestamp_ntz": "TIMESTAMP_NTZ '...'",
}


def _comparable(catalog: Catalog, column: str) -> Field:
    field = catalog.field(column)
    if isinstance(field, FamilyColumn) or not field.type.is_atomic:
        raise ConfigError(
            f"where: column {field.name} is {field.type}: only IS NULL is supported for it here (use df.where)"
        )
    return field


def _like(catalog: Catalog, column: str, pattern: str, escape: str) -> Expression:
    field = _comparable(catalog, column)
    if not isinstance(pattern, str) or not isinstance(escape, str) or len(escape) != 1:
        raise ConfigError(f"where: column {field.name}: LIKE takes text, and ESCAPE one character")
    if field.type.name not in ("string", "binary"):
        raise ConfigError(f"where: column {field.name} is {field.type}: LIKE is for text (use df.where)")
    rest = pattern
    while rest:  # checks every escape
        _, rest = like_prefix(rest, escape)
        rest = rest[1:]
    if field.type.name == "binary" and like_prefix(pattern, escape)[1] not in ("", "%"):
        raise ConfigError(f"where: column {field.name} is binary: only LIKE 'prefix%' is supported for it")
    if field.type.name == "binary" and not like_prefix(pattern, escape)[1]:
        return Comparison(field.name, "=", like_prefix(pattern, escape)[0].encode())
    return Like(field.name, pattern, escape)


def _value(field: Field, value: object, dialect: Dialect) -> object:
    try:
        return _converted(value, field.type, dialect)
    except (ValueError, TypeError) as error:
        raise ConfigError(
            f"where: column {field.name} is {field.type}, and {value!r} is {_kind(value)}: {error}"
        ) from None


def _kind(value: object) -> str:
    return {"str": "text", "bytes": "binary", "datetime": "a timestamp", "date": "a date", "bool": "a boolean"}.get(
        type(value).__name__, f"of Python's {type(value).__name__}"
    )


def _converted(value: object, type: DataType, dialect: Dialect) -> object:
    if type.is_number:
        if isinstance(value, bool) or not isinstance(value, int | float | Decimal):
            raise TypeError("write a number, without quotes")
        if isinstance(value, Decimal) and not value.is_finite():
            raise ValueError("no number")
        return value
    match type.name:
        case "boolean" if isinstance(value, bool):
            return value
        case "boolean":
            raise TypeError("write TRUE or FALSE")
        case "string" if isinstance(value, str):
            return value
        case "string":
            raise TypeError("write text, in single quotes")
        case "binary" if isinstance(value, bytes | bytearray | memoryview):
            return bytes(value)
        case "binary" if isinstance(value, str):
            return value.encode()
        case "binary":
            raise TypeError("write X'hex' or text")
        case "date" if isinstance(value, str):
            return literals.date(value)
        case "date" if isinstance(value, datetime.date) and not isinstance(value, datetime.datetime):
            return value
        case "date":
            raise TypeError("write DATE 'YYYY-MM-DD'")
    return _instant(value, type, dialect)


def _instant(value: object, type: DataType, dialect: Dialect) -> datetime.datetime:
    if isinstance(value, str):
        return literals.local_time(value) if type.name == "timestamp_ntz" else literals.instant(value, dialect)
    if not isinstance(value, datetime.datetime):
        raise TypeError(f"write {type.name.upper()} 'YYYY-MM-DD HH:MM:SS'")
    if type.name == "timestamp_ntz":
        if value.tzinfo is not None:
            raise ValueError("it has a time zone, the column has none; write TIMESTAMP_NTZ '...'")
        return value
    if value.tzinfo is None:
        raise ValueError("it has no time zone; write TIMESTAMP_LTZ '...', or datetime(..., tzinfo=datetime.UTC)")
    return value.astimezone(datetime.UTC)


# ---- conversion to pyspark


def to_column(expression: Expression) -> SparkColumn:
    """Return the condition as a pyspark ``Column``, which must always filter the rows that were read.

    Needs a SparkSession.
    """
    from pyspark.sql import functions as f

    match expression:
        case Constant(value):
            return f.lit(value).cast("boolean")
        case Not(part):
            return ~to_column(part)
        case And(parts):
            found = f.lit(True)
            for part in parts:
                found = found & to_column(part)
            return found
        case Or(parts):
            found = f.lit(False)
            for part in parts:
                found = found | to_column(part)
            return found
        case Comparison(column, operator, value):
            return _comparison(f.col(quoted_name(column)), operator, _literal(value))
        case In(column, values):
            return f.col(quoted_name(column)).isin(*map(_literal, values)) if values else f.lit(False)
        case Like(column, pattern, escape):
            return f.like(f.col(quoted_name(column)).cast("string"), f.lit(pattern), f.lit(escape))
        case IsNull(column):
            return f.col(quoted_name(column)).isNull()
        case Opaque(part):
            return to_column(part)
    raise TypeError(f"{expression!r} is no condition")


def _comparison(column: SparkColumn, operator: str, value: SparkColumn) -> SparkColumn:
    match operator:
        case "=":
            return column == value
        case "<>":
            return column != value
        case "<":
            return column < value
        case "<=":
            return column <= value
        case ">":
            return column > value
        case ">=":
            return column >= value
    return column.eqNullSafe(value)


def _literal(value: object) -> SparkColumn:
    """Return a literal of exactly this value; Spark's own conversion of Python objects may change it."""
    from pyspark.sql import functions as f

    match value:
        case Decimal():
            if literals.precision_and_scale(value)[0] > literals.PRECISION_MAX:
                raise ConfigError(f"where: {value} has more than the 38 digits that Spark's decimals have")
            # Not a cast: Spark compares whole numbers with a cast by other rules than with a literal.
            return f.expr(f"{value:f}BD")
        case Single():
            return f.lit(float(value)).cast("float")
        case int() if not isinstance(value, bool) and not -(2**63) <= value < 2**63:
            return _literal(Decimal(value))
        case bytes():
            return f.unhex(f.lit(value.hex()))
        case datetime.datetime() if value.tzinfo is None:
            return f.lit(value.isoformat()).cast("timestamp_ntz")
        case datetime.datetime():
            return f.lit(value.isoformat()).cast(
                "timestamp_ltz"
            )  # spark.sql.timestampType may make "timestamp" one without a zone
        case datetime.date():
            return f.lit(value.isoformat()).cast("date")  # py4j cannot carry the years before 1000
    return f.lit(value)
