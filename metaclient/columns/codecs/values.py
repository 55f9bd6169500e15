"""Converts values of Python to the numbers that codecs write, and back; BadValueError for values that do not fit.

Dates are days since 1970. Timestamps are microseconds since 1970 in UTC (``timestamp_ntz``: in local time).
"""

from __future__ import annotations

import datetime
import struct
from decimal import Decimal

from metaclient import keys
from metaclient.columns.codecs.base import BadValueError
from metaclient.columns.types import INTEGERS, DataType
from metaclient.wording import counted

__all__ = [
    "DAYS",
    "DAY_MS",
    "MICROS",
    "binary_of",
    "boolean_of",
    "date_of",
    "days_of",
    "decimal_of",
    "float_of",
    "instant_of",
    "integer_of",
    "micros_of",
    "need_width",
    "unscaled_of",
    "utf8_of",
    "wrong_type",
]

_EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
_EPOCH_NTZ = _EPOCH.replace(tzinfo=None)
_EPOCH_DAY = datetime.date(1970, 1, 1).toordinal()
_MICRO = datetime.timedelta(microseconds=1)
DAY_MS = 86_400_000
#: The days that both Python and Spark support: years 1 to 9999.
DAYS = (1 - _EPOCH_DAY, datetime.date.max.toordinal() - _EPOCH_DAY)
MICROS = (DAYS[0] * DAY_MS * 1000, (DAYS[1] + 1) * DAY_MS * 1000 - 1)


def wrong_type(value: object, type: DataType) -> BadValueError:
    shown = repr(value)
    return BadValueError(f"{shown[:80]} ({value.__class__.__name__}) is no {type}")


def need_width(data: bytes, width: int, type: DataType) -> None:
    if len(data) != width:
        raise BadValueError(f"{type} takes {counted(width, 'byte')}, got {len(data)}: {keys.printable(data)}")


def boolean_of(value: object, type: DataType) -> bool:
    if not isinstance(value, bool):
        raise wrong_type(value, type)
    return value


def integer_of(value: object, type: DataType) -> int:
    if not isinstance(value, int) or isinstance(value, bool):
        raise wrong_type(value, type)
    low, high = INTEGERS[type.name]
    if not low <= value <= high:
        raise BadValueError(f"{value} is outside of {type} ({low} to {high})")
    return value


def float_of(value: object, type: DataType) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise wrong_type(value, type)
    number = float(value)
    if type.name == "float":
        try:
            struct.pack(">f", number)
        except OverflowError:
            raise BadValueError(f"{value} is outside of {type}") from None
    return number


def unscaled_of(value: object, type: DataType) -> int:
    """Return a decimal without its point: 12.34 of decimal(10,2) is 1234."""
    if isinstance(value, bool) or not isinstance(value, int | Decimal):
        raise wrong_type(value, type)
    number = Decimal(value)
    if not number.is_finite():
        raise wrong_type(value, type)
    sign, digits, exponent = number.as_tuple()
    assert isinstance(exponent, int)
    unscaled = int("".join(map(str, digits)) or "0")
    shift = exponent + type.scale
    if shift >= 0:
        unscaled *= int(10 ** min(shift, 100))
    else:
        unscaled, lost = divmod(unscaled, int(10 ** min(-shift, len(digits) + 1)))
        if lost:
            raise BadValueError(f"{value} has more than the {type.scale} fraction digits of {type}")
    if unscaled >= 10**type.precision:
        raise BadValueError(f"{value} has more digits than {type}")
    return -unscaled if sign else unscaled


def decimal_of(unscaled: int, type: DataType) -> Decimal:
    """Return the decimal with this many units of the last digit of the type."""
    if abs(unscaled) >= 10**type.precision:
        raise BadValueError(f"{unscaled}e-{type.scale} has more digits than {type}")
    digits = tuple(int(digit) for digit in str(abs(unscaled)))
    return Decimal((int(unscaled < 0), digits, -type.scale))


def binary_of(value: object, type: DataType) -> bytes:
    if not isinstance(value, bytes | bytearray | memoryview):
        raise wrong_type(value, type)
    return bytes(value)


def utf8_of(value: object, type: DataType) -> bytes:
    if not isinstance(value, str):
        raise wrong_type(value, type)
    try:
        return value.encode()
    except UnicodeEncodeError as error:
        raise BadValueError(f"{value!r} has half of a surrogate pair at character {error.start + 1}") from None


def decoded_text(data: bytes) -> str:
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        raise BadValueError(f"no UTF-8 at byte {error.start}: {keys.printable(data)}") from None


def days_of(value: object, type: DataType) -> int:
    if not isinstance(value, datetime.date) or isinstance(value, datetime.datetime):
        raise wrong_type(value, type)
    return value.toordinal() - _EPOCH_DAY


def date_of(days: int, type: DataType) -> datetime.date:
    if not DAYS[0] <= days <= DAYS[1]:
        raise BadValueError(f"day {days} since 1970 is outside of the years 1 to 9999")
    return datetime.date.fromordinal(days + _EPOCH_DAY)


def micros_of(value: object, type: DataType) -> int:
    if not isinstance(value, datetime.datetime):
        raise wrong_type(value, type)
    if type.name == "timestamp_ntz":
        if value.tzinfo is not None:
            raise BadValueError(f"{value} has a time zone, and timestamp_ntz has none")
        return (value - _EPOCH_NTZ) // _MICRO
    if value.tzinfo is None:
        raise BadValueError(f"{value} has no time zone, so its instant is unknown: give it one, such as UTC")
    return (value - _EPOCH) // _MICRO


def instant_of(micros: int, type: DataType) -> datetime.datetime:
    if not MICROS[0] <= micros <= MICROS[1]:
        raise BadValueError(f"{micros} microseconds since 1970 are outside of the years 1 to 9999")
    start = _EPOCH_NTZ if type.name == "timestamp_ntz" else _EPOCH
    return start + datetime.timedelta(microseconds=micros)
