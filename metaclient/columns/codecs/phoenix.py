"""Apache Phoenix' types (PDataType): numbers with an inverted sign bit, so that bytes sort like values; empty is null.

``phoenix``: TINYINT to BIGINT, FLOAT, DOUBLE, DECIMAL, BOOLEAN, VARCHAR, VARBINARY, DATE, TIMESTAMP.
``phoenix_unsigned``: the UNSIGNED_ types, which are Java's own bytes of numbers that are not negative. In a composite
key a VARCHAR that is not the last part ends at a zero byte, and so does a DECIMAL.

A DATE holds milliseconds and reads as its day in UTC; a TIMESTAMP holds nanoseconds and reads as microseconds.
Mirrors Phoenix 5.1. DIVERGENCE: descending columns (``DESC``) and arrays are not supported.
"""

from __future__ import annotations

import struct
from decimal import Decimal
from typing import TYPE_CHECKING

from metaclient import keys
from metaclient.columns.codecs import values
from metaclient.columns.codecs.base import BadValueError, Codec, Order
from metaclient.columns.codecs.naive import plain_prefix, times_of_millis
from metaclient.columns.codecs.sortable import float_of_sortable, floats_of_sortable, sortable_of_float
from metaclient.columns.types import FLOATS, INTEGERS, DataType

if TYPE_CHECKING:
    import numpy as np

__all__ = ["PhoenixCodec", "PhoenixUnsignedCodec"]

_WIDTHS = {
    "boolean": 1,
    "tinyint": 1,
    "smallint": 2,
    "int": 4,
    "bigint": 8,
    "float": 4,
    "double": 8,
    "date": 8,
    "timestamp": 12,
    "timestamp_ntz": 12,
}
_NANOS_MAX = 999_999  # of one millisecond
_DECIMAL_ZERO = b"\x80"
_EXPONENT_OFFSET, _POSITIVE_OFFSET, _NEGATIVE_OFFSET, _NEGATIVE_END = 65, 1, 101, 102


class PhoenixCodec(Codec):
    """See the module's docstring."""

    name = "phoenix"

    def encode(self, value: object, type: DataType) -> bytes:
        match type.name:
            case "string":
                return _not_empty(values.utf8_of(value, type), type)
            case "binary":
                return _not_empty(values.binary_of(value, type), type)
            case "decimal":
                return _encoded_decimal(values.decimal_of(values.unscaled_of(value, type), type))
            case "boolean":
                return b"\x01" if values.boolean_of(value, type) else b"\x00"
            case "date":
                return self._whole(values.days_of(value, type) * values.DAY_MS, 8)
            case "timestamp" | "timestamp_ntz":
                millis, micros = divmod(values.micros_of(value, type), 1000)
                return self._whole(millis, 8) + struct.pack(">I", micros * 1000)
            case name if name in FLOATS:
                return self._float(values.float_of(value, type), _WIDTHS[name])
            case name if name in INTEGERS:
                return self._whole(values.integer_of(value, type), _WIDTHS[name])
        raise BadValueError(f"Phoenix has no {type} here")

    def decode(self, data: bytes, type: DataType) -> object:
        if not data:
            return None
        match type.name:
            case "string":
                return values.decoded_text(data)
            case "binary":
                return data
            case "decimal":
                return values.decimal_of(values.unscaled_of(_decoded_decimal(data), type), type)
        if type.name not in _WIDTHS:
            raise BadValueError(f"Phoenix has no {type} here")
        width = _WIDTHS[type.name]
        values.need_width(data, width, type)
        match type.name:
            case "boolean":
                return data != b"\x00"
            case "date":
                return values.date_of(self._unwhole(data) // values.DAY_MS, type)
            case "timestamp" | "timestamp_ntz":
                nanos = int.from_bytes(data[8:], "big")
                if nanos > _NANOS_MAX:
                    raise BadValueError(f"{nanos} nanoseconds are more than a millisecond: {keys.printable(data)}")
                return values.instant_of(self._unwhole(data[:8]) * 1000 + nanos // 1000, type)
            case name if name in FLOATS:
                return self._unfloat(data)
        return self._unwhole(data)

    def order(self, type: DataType) -> Order:
        return Order.SAME

    def is_canonical(self, type: DataType) -> bool:
        return type.name not in FLOATS

    def writes_nulls(self, type: DataType) -> bool:
        return True

    def width(self, type: DataType) -> int | None:
        return _WIDTHS.get(type.name)

    def delimiter(self, type: DataType) -> bytes | None:
        return b"\0" if type.name in ("string", "decimal") else None

    def is_plain(self, type: DataType) -> bool:
        return type.name in ("string", "binary")

    def equals(self, value: object, type: DataType) -> tuple[bytes, bytes]:
        if type.name == "boolean":
            return (b"\x01", b"\xff") if value else (b"\x00", b"\x00")
        if type.name == "date":
            start = values.days_of(value, type) * values.DAY_MS
            return self._whole(start, 8), self._whole(start + values.DAY_MS - 1, 8)
        encoded = self.encode(value, type)
        if type.name.startswith("timestamp"):
            return encoded, encoded[:8] + struct.pack(">I", int.from_bytes(encoded[8:], "big") + 999)
        if type.name in FLOATS and value == 0:
            return self.encode(-0.0, type), self.encode(0.0, type)
        return encoded, encoded

    def prefix(self, start: str | bytes, type: DataType) -> bytes | None:
        return plain_prefix(start, type)

    def decode_array(self, raw: np.ndarray, type: DataType) -> tuple[np.ndarray, np.ndarray | None] | None:
        import numpy as np

        if type.name not in _WIDTHS:
            return None
        if type.name == "boolean":
            return raw.reshape(-1) != 0, None
        if type.name.startswith("timestamp"):
            millis, bad = self._wholes(np.ascontiguousarray(raw[:, :8]))
            nanos = np.ascontiguousarray(raw[:, 8:]).view(">u4").reshape(-1).astype("i8")
            times, outside = times_of_millis(millis, type)
            bad = bad | (nanos > _NANOS_MAX) | (False if outside is None else outside)
            return times + np.where(bad, 0, nanos) // 1000, bad
        if type.name in FLOATS:
            return self._floats(raw)
        numbers, bad = self._wholes(raw)
        if type.name == "date":
            days, outside = times_of_millis(numbers, type)
            return days, bad | (False if outside is None else outside)
        return numbers, bad

    # -- numbers, signed

    def _whole(self, number: int, width: int) -> bytes:
        return (number + (1 << (8 * width - 1))).to_bytes(width, "big")

    def _unwhole(self, data: bytes) -> int:
        return int.from_bytes(data, "big") - (1 << (8 * len(data) - 1))

    def _wholes(self, raw: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        import numpy as np

        width = raw.shape[1]
        numbers = raw.view(f">u{width}").reshape(-1).astype(f"u{width}")
        signed = (numbers ^ numbers.dtype.type(1 << (8 * width - 1))).view(f"i{width}")
        return signed, np.zeros(len(signed), dtype=bool)

    def _float(self, value: float, width: int) -> bytes:
        return ((sortable_of_float(value, width) + 1) % (1 << (8 * width))).to_bytes(width, "big")

    def _unfloat(self, data: bytes) -> float:
        width = len(data)
        return float_of_sortable((int.from_bytes(data, "big") - 1) % (1 << (8 * width)), width)

    def _floats(self, raw: np.ndarray) -> tuple[np.ndarray, np.ndarray | None]:
        width = raw.shape[1]
        numbers = raw.view(f">u{width}").reshape(-1).astype(f"u{width}")
        return floats_of_sortable(numbers - numbers.dtype.type(1), width), None


class PhoenixUnsignedCodec(PhoenixCodec):
    """UNSIGNED_TINYINT to UNSIGNED_LONG, UNSIGNED_FLOAT, UNSIGNED_DOUBLE, UNSIGNED_DATE, UNSIGNED_TIMESTAMP."""

    name = "phoenix_unsigned"

    def _whole(self, number: int, width: int) -> bytes:
        if number < 0:
            raise BadValueError(f"{number} is negative, and the column is unsigned")
        return number.to_bytes(width, "big")

    def _unwhole(self, data: bytes) -> int:
        if data[0] & 0x80:
            raise BadValueError(f"an unsigned number has its sign bit set: {keys.printable(data)}")
        return int.from_bytes(data, "big")

    def _wholes(self, raw: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        width = raw.shape[1]
        signed = raw.view(f">i{width}").reshape(-1).astype(f"i{width}")
        return signed, signed < 0

    def _float(self, value: float, width: int) -> bytes:
        if value < 0:
            raise BadValueError(f"{value} is negative, and the column is unsigned")
        return (sortable_of_float(abs(value), width) - (1 << (8 * width - 1))).to_bytes(width, "big")

    def _unfloat(self, data: bytes) -> float:
        self._unwhole(data)
        value: float = struct.unpack(">f" if len(data) == 4 else ">d", data)[0]
        return value

    def _floats(self, raw: np.ndarray) -> tuple[np.ndarray, np.ndarray | None]:
        wire = raw.view(f">f{raw.shape[1]}").reshape(-1)
        return wire.astype(wire.dtype.newbyteorder("=")), (raw[:, 0] & 0x80) != 0


def _not_empty(data: bytes, type: DataType) -> bytes:
    if not data:
        raise BadValueError(f"an empty {type} is null in Phoenix: it cannot be written as a value")
    return data


def _encoded_decimal(value: Decimal) -> bytes:
    if not value:
        return _DECIMAL_ZERO
    sign, digits, exponent = value.as_tuple()
    assert isinstance(exponent, int)
    text = "".join(map(str, digits)).lstrip("0")
    point = len(text) + exponent
    e = -(-point // 2)  # base-100 digits before the point
    text = ("0" * (2 * e - point) + text).rstrip("0")
    text += "0" * (len(text) % 2)
    hundreds = [int(text[i : i + 2]) for i in range(0, len(text), 2)]
    power = e - 1 + _EXPONENT_OFFSET
    if sign:
        body = bytes(_NEGATIVE_OFFSET - digit for digit in hundreds)
        return bytes((~(power + 128) & 0x7F,)) + body + bytes((_NEGATIVE_END,))
    return bytes((power | 0x80,)) + bytes(digit + _POSITIVE_OFFSET for digit in hundreds)


def _decoded_decimal(data: bytes) -> Decimal:
    if data == _DECIMAL_ZERO:
        return Decimal(0)
    is_negative = not data[0] & 0x80
    if is_negative:
        body = data[1:-1] if data[-1] == _NEGATIVE_END else data[1:]
        power = (~data[0] & 0x7F) - _EXPONENT_OFFSET
        digits = [_NEGATIVE_OFFSET - byte for byte in body]
    else:
        power = (data[0] & 0x7F) - _EXPONENT_OFFSET
        digits = [byte - _POSITIVE_OFFSET for byte in data[1:]]
    if not digits or any(not 0 <= digit <= 99 for digit in digits):
        raise BadValueError(f"no DECIMAL of Phoenix: {keys.printable(data)}")
    text = "".join(f"{digit:02d}" for digit in digits)
    return Decimal((int(is_negative), tuple(map(int, text)), 2 * (power + 1) - len(text)))
