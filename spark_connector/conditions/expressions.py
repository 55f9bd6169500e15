"""Conditions on a catalog: binds them to its columns (names and kinds of values), and makes a pyspark column of them.

A condition is bound on the driver, before anything is read: a column that is not there, or a value that cannot be one
of the column's, is an error with the column's name. Text for a date or a time is read as ISO 8601; a time without a
zone is in UTC (whatever Spark's session time zone is: the same instant is compared here and there).
"""

from __future__ import annotations

import datetime
from decimal import Decimal
from typing import TYPE_CHECKING

from metaclient.errors import ConfigError
from spark_connector.conditions.condition import (
    And,
    ColumnName,
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
    like_prefix,
    to_sql,
)
from spark_connector.schema.catalog import Catalog, FamilyColumn, Field
from spark_connector.schema.codecs.text import date_from_text, instant_from_text
from spark_connector.schema.types import DataType

if TYPE_CHECKING:
    from pyspark.sql import Column as SparkColumn

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
    "Or",
    "bind",
    "col",
    "columns_of",
    "evaluate",
    "to_column",
    "to_sql",
]


def bind(expression: Expression, catalog: Catalog) -> Expression:
    """The same condition with the catalog's names and every value of its column's kind; ConfigError if it cannot be.

    >>> bind(col("K") == "a", Catalog.from_mapping("t", "k BINARY :k, a INT cf:a"))
    Comparison(column='k', operator='=', value=b'a')
    """
    match expression:
        case And(parts):
            return And(tuple(bind(part, catalog) for part in parts))
        case Or(parts):
            return Or(tuple(bind(part, catalog) for part in parts))
        case Not(part):
            return Not(bind(part, catalog))
        case Constant():
            return expression
        case IsNull(column):
            return IsNull(catalog.field(column).name)
        case Comparison(column, operator, value):
            field = _comparable(catalog, column)
            if value is None:
                return IsNull(field.name) if operator == "<=>" else Constant(None)
            return Comparison(field.name, operator, _value(field, value))
        case In(column, values):
            field = _comparable(catalog, column)
            return In(field.name, tuple(None if value is None else _value(field, value) for value in values))
        case Like(column, pattern, escape):
            return _like(catalog, column, pattern, escape)
    raise ConfigError(f"where: {expression!r} is no condition: text, or made of spark_connector.col")


def _comparable(catalog: Catalog, column: str) -> Field:
    field = catalog.field(column)
    if isinstance(field, FamilyColumn) or not field.type.is_atomic:
        raise ConfigError(
            f"where: column {field.name} is {field.type}: only IS NULL can be asked of it here (use df.where)"
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
        raise ConfigError(f"where: column {field.name} is binary: only LIKE 'prefix%' can be asked of it")
    if field.type.name == "binary" and not like_prefix(pattern, escape)[1]:
        return Comparison(field.name, "=", like_prefix(pattern, escape)[0].encode())
    return Like(field.name, pattern, escape)


def _value(field: Field, value: object) -> object:
    try:
        return _converted(value, field.type)
    except (ValueError, TypeError) as error:
        raise ConfigError(
            f"where: column {field.name} is {field.type}, and {value!r} is {_kind(value)}: {error}"
        ) from None


def _kind(value: object) -> str:
    return {"str": "text", "bytes": "binary", "datetime": "a timestamp", "date": "a date", "bool": "a boolean"}.get(
        type(value).__name__, f"of Python's {type(value).__name__}"
    )


def _converted(value: object, type: DataType) -> object:
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
            return date_from_text(value)
        case "date" if isinstance(value, datetime.date) and not isinstance(value, datetime.datetime):
            return value
        case "date":
            raise TypeError("write DATE 'YYYY-MM-DD'")
    return _instant(value, type)


def _instant(value: object, type: DataType) -> datetime.datetime:
    if isinstance(value, str):
        return instant_from_text(value, type)
    if not isinstance(value, datetime.datetime):
        raise TypeError(f"write {type.name.upper()} 'YYYY-MM-DD HH:MM:SS'")
    if type.name == "timestamp_ntz":
        if value.tzinfo is not None:
            raise ValueError("it has a time zone, the column has none")
        return value
    if value.tzinfo is None:
        raise ValueError("it has no time zone; write datetime(..., tzinfo=datetime.UTC)")
    return value.astimezone(datetime.UTC)


# ---- for Spark


def to_column(expression: Expression) -> SparkColumn:
    """The same condition as a pyspark ``Column``: put it above what was read, always. Needs a SparkSession."""
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
            return _comparison(f.col(_quoted(column)), operator, _literal(value))
        case In(column, values):
            return f.col(_quoted(column)).isin(*map(_literal, values)) if values else f.lit(False)
        case Like(column, pattern, escape):
            return f.like(f.col(_quoted(column)).cast("string"), f.lit(pattern), f.lit(escape))
        case IsNull(column):
            return f.col(_quoted(column)).isNull()
    raise TypeError(f"{expression!r} is no condition")


def _quoted(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"


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
    """A literal of exactly this value, whatever Spark's conversion of Python objects would make of it."""
    from pyspark.sql import functions as f

    match value:
        case Decimal():
            _, digits, exponent = value.as_tuple()
            assert isinstance(exponent, int)
            scale = max(0, -exponent)
            precision = max(len(digits) + max(0, exponent), scale, 1)
            if precision > 38:
                raise ConfigError(f"where: {value} has more than the 38 digits that Spark's decimals have")
            return f.lit(f"{value:f}").cast(f"decimal({precision},{scale})")
        case int() if not isinstance(value, bool) and not -(2**63) <= value < 2**63:
            return _literal(Decimal(value))
        case bytes():
            return f.unhex(f.lit(value.hex()))
        case datetime.datetime() if value.tzinfo is None:
            return f.lit(value.isoformat()).cast("timestamp_ntz")
        case datetime.datetime():
            return f.lit(value.isoformat()).cast("timestamp")
        case datetime.date():
            return f.lit(value.isoformat()).cast("date")  # py4j cannot carry the years before 1000
    return f.lit(value)
