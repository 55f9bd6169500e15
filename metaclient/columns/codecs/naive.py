"""Java's ``Bytes.toBytes``, as hbase-connectors uses it: big-endian numbers, UTF-8, milliseconds for times.

DIVERGENCES from hbase-connectors' NaiveEncoder and Utils

- A value of the wrong width is an error; NaiveEncoder reads its first bytes.
- A date is a day in UTC; in Utils it is midnight in the JVM's time zone. Any millisecond of a day reads as the day.
- ``timestamp_ntz``, which Utils does not support, is encoded like ``timestamp``. Both are milliseconds, as in Utils. A
  value with microseconds is an error when it is written; Utils loses them.
- A decimal that does not fit the column's type is an error; in hbase-connectors it is rounded, or null.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING

from metaclient import keys
from metaclient.columns.codecs import values
from metaclient.columns.codecs.base import BadValueError, Codec, Order
from metaclient.columns.codecs.fitting import Fitted
from metaclient.columns.types import INTEGERS, DataType

if TYPE_CHECKING:
    import numpy as np

__all__ = ["NaiveCodec"]

_STRUCTS = {
    "tinyint": struct.Struct(">b"),
    "smallint": struct.Struct(">h"),
    "int": struct.Struct(">i"),
    "bigint": struct.Struct(">q"),
    "float": struct.Struct(">f"),
    "double": struct.Struct(">d"),
}
_LONG = _STRUCTS["bigint"]
_INT = _STRUCTS["int"]
_TIMES = frozenset({"timestamp", "timestamp_ntz"})
_WIDTHS = {name: each.size for name, each in _STRUCTS.items()} | {"boolean": 1, "date": 8} | dict.fromkeys(_TIMES, 8)
_DAY_MS = values.DAY_MS
_DTYPES = {"tinyint": ">i1", "smallint": ">i2", "int": ">i4", "bigint": ">i8", "float": ">f4", "double": ">f8"}


class NaiveCodec(Codec):
    """See the module's docstring."""

    name = "naive"

    def encode(self, value: object, type: DataType) -> bytes:
        match type.name:
            case "string":
                return values.utf8_of(value, type)
            case "binary":
                return values.binary_of(value, type)
            case "boolean":
                return b"\xff" if values.boolean_of(value, type) else b"\x00"
            case "float" | "double":
                return _STRUCTS[type.name].pack(values.float_of(value, type))
            case "decimal":
                unscaled = values.unscaled_of(value, type)
                return _INT.pack(type.scale) + unscaled.to_bytes(_twos_length(unscaled), "big", signed=True)
            case "date":
                return _LONG.pack(values.days_of(value, type) * values.DAY_MS)
            case "timestamp" | "timestamp_ntz":
                millis, micros = divmod(values.micros_of(value, type), 1000)
                if micros:
                    raise BadValueError(
                        f"{value} has microseconds, and the coder naive holds milliseconds: write "
                        "date_trunc('MILLISECOND', ...), or choose the coder orderedbytes, phoenix, string or json"
                    )
                return _LONG.pack(millis)
            case name if name in INTEGERS:
                return _STRUCTS[name].pack(values.integer_of(value, type))
        raise BadValueError(f"the naive encoding has no {type}")

    def decode(self, data: bytes, type: DataType) -> object:
        match type.name:
            case "string":
                return values.decoded_text(data)
            case "binary":
                return data
            case "decimal":
                return _decoded_decimal(data, type)
        width = _WIDTHS.get(type.name)
        if width is None:
            raise BadValueError(f"the naive encoding has no {type}")
        values.need_width(data, width, type)
        match type.name:
            case "boolean":
                return data != b"\x00"
            case "date":
                return values.date_of(_LONG.unpack(data)[0] // values.DAY_MS, type)
            case "timestamp" | "timestamp_ntz":
                return values.instant_of(_LONG.unpack(data)[0] * 1000, type)
        return _STRUCTS[type.name].unpack(data)[0]

    def order(self, type: DataType) -> Order:
        if type.name in ("string", "binary", "boolean"):
            return Order.SAME
        return Order.SIGNED if type.name in INTEGERS or type.name == "date" or type.name in _TIMES else Order.NONE

    def width(self, type: DataType) -> int | None:
        return _WIDTHS.get(type.name)

    def delimiter(self, type: DataType) -> bytes | None:
        return b"\0" if type.name == "string" else None

    def is_plain(self, type: DataType) -> bool:
        return type.name in ("string", "binary")

    def prefix(self, start: str | bytes, type: DataType) -> bytes | None:
        return plain_prefix(start, type)

    def fitted(self, value: object, type: DataType) -> Fitted | None:
        if type.name not in _TIMES:
            return super().fitted(value, type)
        micros = values.micros_of(value, type)
        return Fitted(values.instant_of(micros // 1000 * 1000, type), micros % 1000 == 0)

    def equals(self, value: object, type: DataType) -> tuple[bytes, bytes]:
        if type.name == "boolean":
            return (b"\x01", b"\xff") if value else (b"\x00", b"\x00")
        if type.name == "date":
            start = values.days_of(value, type) * values.DAY_MS
            return _LONG.pack(start), _LONG.pack(start + values.DAY_MS - 1)
        return super().equals(value, type)

    def decode_array(self, raw: np.ndarray, type: DataType) -> tuple[np.ndarray, np.ndarray | None] | None:
        if type.name in _DTYPES:
            wire = raw.view(_DTYPES[type.name]).reshape(-1)
            return wire.astype(wire.dtype.newbyteorder("=")), None
        if type.name == "boolean":
            return raw.reshape(-1) != 0, None
        if type.name == "date" or type.name in _TIMES:
            return times_of_millis(raw.view(">i8").reshape(-1).astype("i8"), type)
        return None

    def encode_array(self, values: np.ndarray, type: DataType) -> np.ndarray | None:
        if type.name in _DTYPES:
            wire = values.astype(_DTYPES[type.name])
        elif type.name == "boolean":
            wire = values.astype("u1") * 0xFF
        elif type.name == "date":
            wire = (values.astype("i8") * _DAY_MS).astype(">i8")
        elif type.name in _TIMES:
            millis = values // 1000
            if (millis * 1000 != values).any():
                return None  # encode() names the value
            wire = millis.astype(">i8")
        else:
            return None
        return wire.view("u1").reshape(len(values), wire.itemsize)


def times_of_millis(millis: np.ndarray, type: DataType) -> tuple[np.ndarray, np.ndarray | None]:
    """Return days or microseconds, and True for each time outside of the years 1 to 9999."""
    days = millis // values.DAY_MS
    bad = (days < values.DAYS[0]) | (days > values.DAYS[1])
    if bad.any():
        millis = millis.copy()
        millis[bad] = 0
        days = millis // values.DAY_MS
    return (days.astype("i4") if type.name == "date" else millis * 1000), bad


def plain_prefix(start: str | bytes, type: DataType) -> bytes | None:
    if type.name not in ("string", "binary"):
        return None
    return start.encode() if isinstance(start, str) else start


def _twos_length(number: int) -> int:
    """Return the length of Java's ``BigInteger.toByteArray``."""
    return (number if number >= 0 else ~number).bit_length() // 8 + 1


def _decoded_decimal(data: bytes, type: DataType) -> object:
    if len(data) < _INT.size + 1:
        raise BadValueError(f"a decimal takes 4 bytes for its scale and 1 or more: {keys.printable(data)}")
    scale: int = _INT.unpack_from(data)[0]
    unscaled = int.from_bytes(data[_INT.size :], "big", signed=True)
    shift = type.scale - scale
    if abs(shift) > 10_000:
        raise BadValueError(f"a decimal with a scale of {scale} is no {type}")
    if shift >= 0:
        return values.decimal_of(unscaled * 10**shift, type)
    whole, lost = divmod(abs(unscaled), 10**-shift)
    if lost:
        raise BadValueError(f"a decimal with a scale of {scale} does not fit {type} without losing digits")
    return values.decimal_of(whole if unscaled >= 0 else -whole, type)
