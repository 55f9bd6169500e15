"""Comparisons of a number column with literals, in the type that Spark compares them in.

Spark casts both sides to a common type. These are the rules of Spark 4's ``TypeCoercion``, ``AnsiTypeCoercion``,
``DecimalPrecisionTypeCoercion`` and ``InTypeCoercion``, for a column beside literals:

1. A double on either side, or a float beside a decimal: both become doubles. A list (``IN``) has one common type for
   the column and all of its values, so that one double in it makes all of them doubles.
2. A float beside a whole number: doubles in ANSI mode, otherwise 32-bit floats.
3. Whole numbers and decimals: a decimal that is wide enough for both. Above 38 digits it loses fraction digits.
4. ``<``, ``<=``, ``>`` and ``>=`` of a whole number and a decimal outside of BIGINT: TRUE or FALSE, also of null.

The returned conditions hold values whose plain comparison gives Spark's result. Where Spark rounds the column's values
(rule 2 for INT and BIGINT, rule 3 above 38 digits), the condition is an
:class:`~spark_connector.conditions.condition.Opaque`.
"""

from __future__ import annotations

from collections.abc import Iterable
from decimal import Decimal

from metaclient.columns.types import INTEGERS, DataType
from spark_connector.conditions.condition import Comparison, Constant, Expression, In, Opaque, Single
from spark_connector.conditions.literals import PRECISION_MAX, nearest_single, precision_and_scale

__all__ = ["compared", "listed"]

#: DecimalType.forType, by type.
_DIGITS = {"tinyint": 3, "smallint": 5, "int": 10, "bigint": 20}
#: Types whose values a 32-bit float holds without rounding.
_SMALL = frozenset({"tinyint", "smallint"})
_LONG = INTEGERS["bigint"]

Number = int | float | Decimal

_FLOATS = "with ANSI mode off Spark rounds {type} to 32-bit floats here: write the number with D, or as a decimal"
_WIDE = "Spark compares {type} with this number in a decimal of more than 38 digits, which it rounds: use fewer digits"


def compared(name: str, type: DataType, operator: str, value: Number, *, is_ansi: bool) -> Expression:
    """Return *name operator value* with the value that Spark compares with."""
    test = Comparison(name, operator, value)
    kind = _common(type, [value], is_ansi)
    if kind == "float" and type.name in INTEGERS and type.name not in _SMALL:
        return Opaque(test, _FLOATS.format(type=type))
    if kind != "decimal":
        return Comparison(name, operator, _as(kind, value))
    is_order = type.name in INTEGERS and _is_decimal(value) and operator in ("<", "<=", ">", ">=")
    if is_order and not _LONG[0] <= value <= _LONG[1]:
        return Constant((value > 0) == operator.startswith("<"))
    return (
        test if is_order or _fits(type, [precision_and_scale(_exact(value))]) else Opaque(test, _WIDE.format(type=type))
    )


def listed(name: str, type: DataType, values: tuple[Number | None, ...], *, is_ansi: bool) -> Expression:
    """Return *name* IN *values* with the values that Spark compares with."""
    test = In(name, values)
    numbers = [value for value in values if value is not None]
    kind = _common(type, numbers, is_ansi)
    if kind == "float" and type.name in INTEGERS and type.name not in _SMALL:
        return Opaque(test, _FLOATS.format(type=type))
    if kind == "decimal":
        widths = [precision_and_scale(_exact(v)) if _is_decimal(v) else (_DIGITS["bigint"], 0) for v in numbers]
        return test if _fits(type, widths) else Opaque(test, _WIDE.format(type=type))
    return In(name, tuple(None if value is None else _as(kind, value) for value in values))


def _common(type: DataType, values: Iterable[Number], is_ansi: bool) -> str:
    """Return the common type of a column and literals: double, float, decimal or (only whole numbers) whole."""
    kinds = {_kind_of(value) for value in values} | {"whole" if type.name in INTEGERS else type.name}
    if "double" in kinds or {"float", "decimal"} <= kinds:
        return "double"
    if "float" in kinds:
        return "double" if is_ansi and "whole" in kinds else "float"
    return "decimal" if "decimal" in kinds else "whole"


def _kind_of(value: Number) -> str:
    if isinstance(value, Single):
        return "float"
    if isinstance(value, float):
        return "double"
    return "decimal" if _is_decimal(value) else "whole"


def _is_decimal(value: Number) -> bool:
    """Return True for a literal that is a decimal in Spark; whole numbers outside of BIGINT are."""
    return isinstance(value, Decimal) or (isinstance(value, int) and not _LONG[0] <= value <= _LONG[1])


def _as(kind: str, value: Number) -> Number:
    """Return the value in the common type; a double stands for a float, too."""
    if kind == "whole":
        return value
    return nearest_single(value) if kind == "float" and isinstance(value, int) else float(value)


def _exact(value: Number) -> Decimal:
    assert not isinstance(value, float)
    return Decimal(value)


def _fits(type: DataType, widths: Iterable[tuple[int, int]]) -> bool:
    """Return True if a decimal that holds the column and literals of these precisions and scales needs no rounding."""
    scale = type.scale if type.name == "decimal" else 0
    whole = type.precision - scale if type.name == "decimal" else _DIGITS[type.name]
    for literal_precision, literal_scale in widths:
        scale, whole = max(scale, literal_scale), max(whole, literal_precision - literal_scale)
    return scale + whole <= PRECISION_MAX
