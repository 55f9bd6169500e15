r"""Literals of Spark SQL: the text between quotes, numbers with their suffixes, dates and timestamps.

They follow Spark 4's ``AstBuilder`` and ``SparkParserUtils.unescapeSQLString``. Dates and timestamps are accepted only
in full. Spark's short forms (``DATE '2024'``, ``DATE 'today'``) are refused.

>>> unescaped(r"'\101\u0042\U00000043\n'"), number("0.1F"), number("1.50")
('ABC\n', Single(0.10000000149011612), Decimal('1.50'))
"""

from __future__ import annotations

import datetime
import math
import re
import struct
import sys
from decimal import Decimal, InvalidOperation
from fractions import Fraction

from metaclient.columns.codecs.text import date_from_text
from metaclient.columns.types import INTEGERS
from spark_connector.conditions.condition import Single
from spark_connector.conditions.dialect import Dialect

__all__ = [
    "PRECISION_MAX",
    "date",
    "float_word",
    "hex_bytes",
    "instant",
    "joined",
    "local_time",
    "nearest_single",
    "number",
    "precision_and_scale",
    "unescaped",
]

#: DecimalType.MAX_PRECISION
PRECISION_MAX = 38
#: java.lang.Float.MAX_VALUE
SINGLE_MAX = (2 - 2**-23) * 2.0**127
#: A double ends at 308 and begins at -324; arithmetic on decimals of Python's context ends at 999,999.
EXPONENT_MAX = 10_000
_ESCAPE = re.compile(r"\\u([0-9A-Fa-f]{4})|\\U([0-9A-Fa-f]{8})|\\([01][0-7]{2})|\\(.)|''|\"\"", re.DOTALL)
_ESCAPES = {"0": "\0", "b": "\b", "n": "\n", "r": "\r", "t": "\t", "Z": "\x1a", "%": "\\%", "_": "\\_"}
_HEX = re.compile(r"(?:[0-9A-Fa-f]{2})*")
_TIME = re.compile(
    r"(?P<local>[0-9]{4}-[0-9]{2}-[0-9]{2}(?:[ T][0-9]{2}:[0-9]{2}(?::[0-9]{2}(?:\.[0-9]{1,6})?(?P<zone>"
    r" ?(?:Z|UTC|[+-][0-9]{2}:[0-9]{2}|[A-Za-z_]+(?:/[A-Za-z_]+)+))?)?)?)"
)
_SUFFIXES = {"Y": "tinyint", "S": "smallint", "L": "bigint"}
#: java.time.ZoneOffset.MAX
_OFFSET_MAX = datetime.timedelta(hours=18)
_WORDS = {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}


# ---- strings


def joined(token: str) -> str:
    """Return a string literal without its doubled quotes: for Spark 4.0, they end one string and begin the next.

    >>> joined("'it''s'")
    "'its'"
    """
    quote = token[0]
    return quote + re.sub(rf"(\\.)|{quote}{quote}", r"\1", token[1:-1], flags=re.DOTALL) + quote


def unescaped(token: str) -> str:
    """Return the text of a quoted string literal; raise ValueError for half of a surrogate pair."""
    quote, body = token[0], token[1:-1]

    def one(match: re.Match[str]) -> str:
        short, long, octal, other = match.groups()
        if other is not None:
            return _ESCAPES.get(other, str(other))
        if short is None and long is None and octal is None:
            return quote if match[0][0] == quote else match[0]
        return chr(int(octal, 8) if octal is not None else int(short or long, 16))

    found = _ESCAPE.sub(one, body)
    try:  # two \u of a surrogate pair are one character, as in Java
        return found.encode("utf-16-le", "surrogatepass").decode("utf-16-le")
    except UnicodeDecodeError:
        raise ValueError("it has half of a surrogate pair") from None


def hex_bytes(text: str) -> bytes:
    if not _HEX.fullmatch(text):
        raise ValueError
    return bytes.fromhex(text)


# ---- numbers


def number(text: str) -> int | float | Decimal:
    """Return the value of a number with its suffix (Y S L F D BD); raise ValueError with the reason."""
    digits = text.rstrip("LlSsYyDdFfBb")
    suffix = text[len(digits) :].upper()
    if suffix in _SUFFIXES:
        return _whole(digits, suffix)
    value = _decimal(digits)
    if suffix == "F":
        double = _within(value, SINGLE_MAX, "F")
        return Single(nearest_single(Fraction(value)) if double else double)
    if suffix == "D" or (not suffix and "e" in digits.lower()):
        return _within(value, sys.float_info.max, "D")
    if precision_and_scale(value)[0] > PRECISION_MAX:
        raise ValueError(f"a decimal has at most {PRECISION_MAX} digits")
    return int(digits) if digits.lstrip("-").isdigit() and not suffix else value


def _decimal(digits: str) -> Decimal:
    try:
        value = Decimal(digits)
    except InvalidOperation:  # the C library's exponents have 18 digits
        raise ValueError("the exponent has too many digits") from None
    if value and abs(value.adjusted()) > EXPONENT_MAX:
        raise ValueError(f"the exponent is beyond {EXPONENT_MAX}")
    return value


def _whole(digits: str, suffix: str) -> int:
    if not digits.lstrip("-").isdigit():
        raise ValueError(f"{suffix} is for whole numbers")
    low, high = INTEGERS[_SUFFIXES[suffix]]
    if not low <= int(digits) <= high:
        raise ValueError(f"{suffix} is for {low} to {high}")
    return int(digits)


def _within(value: Decimal, most: float, suffix: str) -> float:
    """Return the number as a double; raise ValueError if it is above the type's maximum, before any rounding."""
    if abs(value) > Decimal(most):
        raise ValueError(f"the number is too great for {suffix}")
    return float(value)


def float_word(text: str) -> float:
    """Return the value of NaN, Infinity or -Infinity."""
    if text not in _WORDS:
        raise ValueError
    return _WORDS[text]


def nearest_single(value: Fraction | int) -> float:
    """Return the 32-bit float that is nearest to a number (ties to even); infinity for numbers that are too great.

    Rounding to 64 bits first and then to 32 sometimes gives another number. This function corrects that.
    """
    try:
        double = float(value)
        near: float = struct.unpack(">f", struct.pack(">f", double))[0]
    except OverflowError:
        return math.inf if value > 0 else -math.inf
    found = [near, *(each for each in (_step(near, 1), _step(near, -1)) if math.isfinite(each))]
    return min(found, key=lambda each: (abs(Fraction(each) - value), struct.pack(">f", each)[-1] & 1))


def _step(value: float, direction: int) -> float:
    """Return the next 32-bit float above or below."""
    if value == 0:
        return math.copysign(2.0**-149, direction)
    bits: int = struct.unpack(">i", struct.pack(">f", abs(value)))[0]
    bits += direction if value > 0 else -direction
    return math.copysign(struct.unpack(">f", struct.pack(">i", bits))[0], value)


def precision_and_scale(value: Decimal | int) -> tuple[int, int]:
    """Return the precision and the scale of Spark's decimal literal of this value."""
    _, digits, exponent = Decimal(value).as_tuple()
    assert isinstance(exponent, int)
    scale = max(0, -exponent)
    return max(len(digits) + max(0, exponent), scale), scale


# ---- dates and times


def date(text: str) -> datetime.date:
    return date_from_text(text.strip())


def local_time(text: str) -> datetime.datetime:
    """Return a timestamp without a zone; ValueError if it has one."""
    match = _TIME.fullmatch(text.strip())
    if match is None or match["zone"]:
        raise ValueError("it is not 'YYYY-MM-DD HH:MM:SS' without a zone")
    return datetime.datetime.fromisoformat(match["local"])


def instant(text: str, dialect: Dialect) -> datetime.datetime:
    """Return the instant of a timestamp, in the session's time zone unless it has one of its own."""
    text = text.strip()
    match = _TIME.fullmatch(text)
    if match is None:
        raise ValueError("it is not 'YYYY-MM-DD HH:MM:SS', with or without a zone")
    zone = (match["zone"] or "").strip()
    if zone and "/" not in zone:
        return _with_offset(match, zone)
    local = match["local"].removesuffix(match["zone"] or "")
    datetime.datetime.fromisoformat(local)  # a day and a time that exist
    if dialect.instant is None:
        raise ValueError("the session's time zone is not known here: write the offset to UTC behind it, such as +02:00")
    try:
        return dialect.instant(text)
    except OverflowError:
        raise ValueError("it is outside of the years 1 to 9999") from None


def _with_offset(match: re.Match[str], zone: str) -> datetime.datetime:
    local = datetime.datetime.fromisoformat(match["local"].removesuffix(match["zone"]))
    if zone in ("Z", "UTC"):
        return local.replace(tzinfo=datetime.UTC)
    offset = datetime.timedelta(hours=int(zone[1:3]), minutes=int(zone[4:6]))
    if offset > _OFFSET_MAX or int(zone[4:6]) > 59:
        raise ValueError(f"{zone} is no offset to UTC")
    try:
        return local.replace(tzinfo=datetime.timezone(-offset if zone[0] == "-" else offset)).astimezone(datetime.UTC)
    except OverflowError:
        raise ValueError("it is outside of the years 1 to 9999") from None
