"""Values as readable text, as in the HBase shell: ``42``, ``1.5``, ``true``, ``2024-03-01``.

Strings are UTF-8, binaries are their own bytes. Numbers are read as Python reads them, so ``007`` is 7: equal values
may have unequal bytes, and only strings, binaries and dates (always ``YYYY-MM-DD``) can be compared by HBase.
"""

from __future__ import annotations

import datetime
import math
import re
from decimal import Decimal, InvalidOperation

from metaclient import keys
from metaclient.columns.codecs import values
from metaclient.columns.codecs.base import BadValueError, Codec, Order
from metaclient.columns.codecs.naive import plain_prefix
from metaclient.columns.types import FLOATS, INTEGERS, DataType

__all__ = [
    "StringCodec",
    "date_from_text",
    "float_from_text",
    "instant_from_text",
    "text_from_float",
    "text_from_instant",
]

_DATE = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}")
_INTEGER = re.compile(r"[+-]?[0-9]+")
# Possessive quantifiers: a cell of many digits and a letter is refused in linear time.
_DECIMAL = re.compile(r"[+-]?(?:[0-9]++\.?+[0-9]*+|\.[0-9]++)(?:[eE][+-]?[0-9]{1,3})?")
#: As Java writes them.
_WORDS = {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}


class StringCodec(Codec):
    """See the module's docstring."""

    name = "string"

    def encode(self, value: object, type: DataType) -> bytes:
        match type.name:
            case "string":
                return values.utf8_of(value, type)
            case "binary":
                return values.binary_of(value, type)
            case "boolean":
                return b"true" if values.boolean_of(value, type) else b"false"
            case "decimal":
                return f"{values.decimal_of(values.unscaled_of(value, type), type):f}".encode()
            case "date":
                return values.date_of(values.days_of(value, type), type).isoformat().encode()
            case "timestamp" | "timestamp_ntz":
                return text_from_instant(value, type).encode()
            case name if name in FLOATS:
                return text_from_float(values.float_of(value, type)).encode()
            case name if name in INTEGERS:
                return str(values.integer_of(value, type)).encode()
        raise BadValueError(f"the string encoding has no {type}")

    def decode(self, data: bytes, type: DataType) -> object:
        if type.name == "binary":
            return data
        text = values.decoded_text(data)
        if type.name == "string":
            return text
        try:
            return _read(text.strip() if type.name != "date" else text, type)
        except (ValueError, InvalidOperation) as error:
            why = f": {error}" if isinstance(error, BadValueError) else ""
            raise BadValueError(f"no {type}: {keys.printable(data)}{why}") from None

    def order(self, type: DataType) -> Order:
        return Order.SAME if type.name in ("string", "binary", "date") else Order.NONE

    def delimiter(self, type: DataType) -> bytes | None:
        return None if type.name == "binary" else b"\0"

    def is_plain(self, type: DataType) -> bool:
        return type.name in ("string", "binary")

    def prefix(self, start: str | bytes, type: DataType) -> bytes | None:
        return plain_prefix(start, type)


def _read(text: str, type: DataType) -> object:
    if type.name == "boolean":
        if text.lower() not in ("true", "false"):
            raise ValueError
        return text.lower() == "true"
    if type.name == "decimal":
        if not _DECIMAL.fullmatch(text):
            raise ValueError
        return values.decimal_of(values.unscaled_of(Decimal(text), type), type)
    if type.name == "date":
        return date_from_text(text)
    if type.name.startswith("timestamp"):
        return instant_from_text(text, type)
    if type.name in FLOATS:
        return float_from_text(text, type)
    if not _INTEGER.fullmatch(text):
        raise ValueError
    return values.integer_of(int(text), type)


def date_from_text(text: str) -> datetime.date:
    """Return the date of ``YYYY-MM-DD``; raise ValueError for any other form."""
    if not _DATE.fullmatch(text):
        raise ValueError(f"{text!r} is not YYYY-MM-DD")
    return datetime.date.fromisoformat(text)


def text_from_float(value: float) -> str:
    if math.isfinite(value):
        return repr(value)
    return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"


def float_from_text(text: str, type: DataType) -> float:
    if text in _WORDS:
        return _WORDS[text]
    if not _DECIMAL.fullmatch(text):
        raise ValueError
    return values.float_of(float(text), type)


def text_from_instant(value: object, type: DataType) -> str:
    """Return a timestamp as ISO 8601, in UTC with a Z unless the type has no time zone."""
    instant = values.instant_of(values.micros_of(value, type), type)
    return instant.isoformat().replace("+00:00", "Z")


def instant_from_text(text: str, type: DataType) -> datetime.datetime:
    """Return the timestamp of ISO 8601 text; without a zone it is in UTC."""
    instant = datetime.datetime.fromisoformat(text)
    if type.name == "timestamp_ntz":
        if instant.tzinfo is not None:
            raise ValueError
        return instant
    if instant.tzinfo is None:
        return instant.replace(tzinfo=datetime.UTC)
    return instant.astimezone(datetime.UTC)
