"""Converts values of conditions to a column's type, so that comparisons give the same result as in Spark.

``i > 3.5`` is ``i > 3`` for whole numbers, and ``tinyint < 1000`` is always true. The result is the greatest value of
the type that is not above the given one, and whether the two are equal. Where Spark compares in another type (a bigint
or a decimal with a double becomes a double, which loses digits) there is no result.
"""

from __future__ import annotations

import math
import struct
from dataclasses import dataclass
from decimal import Decimal

from metaclient.columns.types import FLOATS, INTEGERS, DataType

__all__ = ["Fitted", "fitted"]

#: Whole numbers below this are exact as doubles.
DOUBLE_EXACT = 2**53
#: Above this scale Spark's common type of a decimal and a whole number may round.
LITERAL_SCALE_MAX = 18
#: DecimalType.MAX_PRECISION
PRECISION_MAX = 38


@dataclass(frozen=True, slots=True)
class Fitted:
    """The greatest value of a type that is not above a given one (None: all are above), and whether it is equal."""

    value: object
    is_exact: bool
    is_the_last: bool = False  # the given value is above all values of the type


def fitted(value: object, type: DataType) -> Fitted | None:
    """Return ``value`` in terms of ``type``; None if Spark compares in another type.

    >>> from metaclient.columns.types import parse_type
    >>> fitted(Decimal("-3.5"), parse_type("int")), fitted(1000, parse_type("tinyint"))
    (Fitted(value=-4, is_exact=False, is_the_last=False), Fitted(value=127, is_exact=False, is_the_last=True))
    """
    if type.name in INTEGERS:
        return _fitted_integer(value, type)
    if type.name in FLOATS:
        return _fitted_float(value, type)
    if type.name == "decimal":
        return _fitted_decimal(value, type)
    return Fitted(value, True)


def _fitted_integer(value: object, type: DataType) -> Fitted | None:
    low, high = INTEGERS[type.name]
    if isinstance(value, float):
        if math.isnan(value) or (type.name == "bigint" and abs(value) >= DOUBLE_EXACT):
            return None
        if math.isinf(value):
            return Fitted(high, False, True) if value > 0 else Fitted(None, False)
    elif isinstance(value, Decimal):
        if not value.is_finite() or -_exponent(value) > LITERAL_SCALE_MAX:
            return None
    elif not isinstance(value, int):
        return None
    floor = math.floor(value)
    if floor < low:
        return Fitted(None, False)
    return Fitted(high, False, True) if floor > high else Fitted(floor, floor == value)


def _fitted_float(value: object, type: DataType) -> Fitted | None:
    if not isinstance(value, int | float | Decimal):
        return None
    try:
        number = float(value)
    except OverflowError:
        return None
    if math.isnan(number):
        return None
    if type.name == "double" or math.isinf(number):
        return Fitted(number, True)
    return _float32_floor(number)


def _float32_floor(number: float) -> Fitted:
    try:
        near: float = struct.unpack(">f", struct.pack(">f", number))[0]
    except OverflowError:
        near = math.copysign(math.inf, number)
    if near > number:
        near = _float32_below(near)
    return Fitted(near, near == number)


def _float32_below(value: float) -> float:
    bits: int = struct.unpack(">i", struct.pack(">f", value))[0]
    if value == 0:
        bits = -(2**31) + 1  # the smallest negative one
    else:
        bits += 1 if bits < 0 else -1
    below: float = struct.unpack(">f", struct.pack(">i", bits))[0]
    return below


def _fitted_decimal(value: object, type: DataType) -> Fitted | None:
    if not isinstance(value, int | Decimal) or (isinstance(value, Decimal) and not value.is_finite()):
        return None  # a double: Spark compares doubles
    given = Decimal(value)
    digits = len(given.as_tuple().digits) + max(0, _exponent(given))
    if digits + type.precision > PRECISION_MAX or -_exponent(given) > LITERAL_SCALE_MAX:
        return None  # Spark's common type may have to round
    unit = 10**type.scale
    floor = math.floor(given * unit)
    top = 10**type.precision - 1
    if floor < -top:
        return Fitted(None, False)
    if floor > top:
        return Fitted(Decimal(top).scaleb(-type.scale), False, True)
    return Fitted(Decimal(floor).scaleb(-type.scale), Decimal(floor).scaleb(-type.scale) == given)


def _exponent(value: Decimal) -> int:
    exponent = value.as_tuple().exponent
    assert isinstance(exponent, int)
    return exponent
