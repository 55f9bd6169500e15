"""HBase's ``OrderedBytes`` (ascending): encodings sort like their values, have a type byte, and mark their own end.

int8 to int64, float32 and float64 for the numbers of these widths, text for strings, blob-var for binaries, numeric for
decimals. OrderedBytes has no boolean, date or time: they are an int8 of 0 or 1, an int32 of days, and an int64 of
microseconds since 1970. Text and blobs may be null (one byte, 0x05).

Mirrors org.apache.hadoop.hbase.util.OrderedBytes of HBase 2.6. DIVERGENCE: a decimal of more than 31 digits is an
error; OrderedBytes truncates it.
"""

from __future__ import annotations

from decimal import Decimal
from typing import TYPE_CHECKING

from metaclient import keys
from metaclient.columns.codecs import values
from metaclient.columns.codecs.base import BadValueError, Codec, Order
from metaclient.columns.codecs.sortable import float_of_sortable, floats_of_sortable, sortable_of_float
from metaclient.columns.types import FLOATS, DataType

if TYPE_CHECKING:
    import numpy as np

__all__ = ["OrderedBytesCodec"]

_NULL = 0x05
_NEG_LARGE, _NEG_MED_MAX, _NEG_SMALL = 0x08, 0x13, 0x14
_ZERO = 0x15
_POS_SMALL, _POS_MED_MIN, _POS_LARGE = 0x16, 0x17, 0x22
_TEXT, _BLOB_VAR = 0x34, 0x37
#: The largest exponent (base 100) that the header byte holds.
_MEDIUM_MAX = 10
#: OrderedBytes.MAX_PRECISION
_DIGITS_MAX = 31
#: Type -> (header, bytes after it)
_FIXED = {
    "boolean": (0x29, 1),
    "tinyint": (0x29, 1),
    "smallint": (0x2A, 2),
    "int": (0x2B, 4),
    "date": (0x2B, 4),
    "bigint": (0x2C, 8),
    "timestamp": (0x2C, 8),
    "timestamp_ntz": (0x2C, 8),
    "float": (0x30, 4),
    "double": (0x31, 8),
}


class OrderedBytesCodec(Codec):
    """See the module's docstring."""

    name = "orderedbytes"

    def encode(self, value: object, type: DataType) -> bytes:
        match type.name:
            case "string":
                text = values.utf8_of(value, type)
                if 0 in text:
                    raise BadValueError("text of OrderedBytes cannot hold the character U+0000")
                return bytes((_TEXT,)) + text + b"\0"
            case "binary":
                return bytes((_BLOB_VAR,)) + _septets(values.binary_of(value, type))
            case "decimal":
                return _encoded_numeric(values.decimal_of(values.unscaled_of(value, type), type))
        if type.name not in _FIXED:
            raise BadValueError(f"OrderedBytes have no {type}")
        header, width = _FIXED[type.name]
        return bytes((header,)) + _sortable(value, type, width).to_bytes(width, "big")

    def decode(self, data: bytes, type: DataType) -> object:
        if type.name in _FIXED:
            return _decoded_fixed(data, type)
        if data == bytes((_NULL,)):
            return None
        if self.part_length(data, 0, type) != len(data):
            raise BadValueError(f"{type} ends before the last byte: {keys.printable(data)}")
        if type.name == "string":
            return values.decoded_text(data[1:-1])
        if type.name == "binary":
            return _unseptets(data[1:])
        return values.decimal_of(values.unscaled_of(_decoded_numeric(data), type), type)

    def order(self, type: DataType) -> Order:
        return Order.SAME

    def is_canonical(self, type: DataType) -> bool:
        return type.name not in FLOATS

    def writes_nulls(self, type: DataType) -> bool:
        return type.name not in _FIXED

    def width(self, type: DataType) -> int | None:
        return _FIXED[type.name][1] + 1 if type.name in _FIXED else None

    def is_self_delimiting(self, type: DataType) -> bool:
        return True

    def part_length(self, data: bytes, start: int, type: DataType) -> int:
        if type.name in _FIXED:
            return super().part_length(data, start, type)
        if start < len(data) and data[start] == _NULL:
            return 1
        if type.name == "string":
            end = data.find(b"\0", start + 1) if data[start : start + 1] == bytes((_TEXT,)) else -1
        elif type.name == "binary":
            end = _first(data, start + 1, 0x80) if data[start : start + 1] == bytes((_BLOB_VAR,)) else -1
        else:
            end = _numeric_end(data, start)
        if end < 0:
            raise BadValueError(f"no {type} of OrderedBytes begins at byte {start}: {keys.printable(data)}")
        return end + 1 - start

    def equals(self, value: object, type: DataType) -> tuple[bytes, bytes]:
        if type.name in FLOATS and value == 0:
            return self.encode(-0.0, type), self.encode(0.0, type)
        return super().equals(value, type)

    def prefix(self, start: str | bytes, type: DataType) -> bytes | None:
        if type.name != "string" or not isinstance(start, str):
            return None
        return bytes((_TEXT,)) + start.encode()

    def decode_array(self, raw: np.ndarray, type: DataType) -> tuple[np.ndarray, np.ndarray | None] | None:
        import numpy as np

        if type.name not in _FIXED:
            return None
        header, width = _FIXED[type.name]
        bad = raw[:, 0] != header
        numbers = np.ascontiguousarray(raw[:, 1:]).view(f">u{width}").reshape(-1).astype(f"u{width}")
        if type.name in FLOATS:
            return floats_of_sortable(numbers, width), bad
        signed = (numbers ^ numbers.dtype.type(1 << (8 * width - 1))).view(f"i{width}")
        low, high = _range_of(type)
        if (low, high) != (-(1 << (8 * width - 1)), (1 << (8 * width - 1)) - 1):
            bad |= (signed < low) | (signed > high)
            signed = np.where(bad, 0, signed)
        return (signed != 0 if type.name == "boolean" else signed), bad


def _range_of(type: DataType) -> tuple[int, int]:
    width = _FIXED[type.name][1]
    if type.name == "boolean":
        return 0, 1
    if type.name == "date":
        return values.DAYS
    if type.name.startswith("timestamp"):
        return values.MICROS
    return -(1 << (8 * width - 1)), (1 << (8 * width - 1)) - 1


def _sortable(value: object, type: DataType, width: int) -> int:
    if type.name in FLOATS:
        return sortable_of_float(values.float_of(value, type), width)
    if type.name == "boolean":
        number = int(values.boolean_of(value, type))
    elif type.name == "date":
        number = values.days_of(value, type)
    elif type.name.startswith("timestamp"):
        number = values.micros_of(value, type)
    else:
        number = values.integer_of(value, type)
    return number + (1 << (8 * width - 1))


def _decoded_fixed(data: bytes, type: DataType) -> object:
    header, width = _FIXED[type.name]
    values.need_width(data, width + 1, type)
    if data[0] != header:
        raise BadValueError(f"{type} begins with 0x{header:02x}, not with 0x{data[0]:02x}: {keys.printable(data)}")
    number = int.from_bytes(data[1:], "big")
    if type.name in FLOATS:
        return float_of_sortable(number, width)
    number -= 1 << (8 * width - 1)
    if type.name == "boolean":
        if number not in (0, 1):
            raise BadValueError(f"a boolean is 0 or 1, not {number}")
        return number == 1
    if type.name == "date":
        return values.date_of(number, type)
    return values.instant_of(number, type) if type.name.startswith("timestamp") else number


# ---- blob-var: seven bits per byte; the eighth bit is set if more bytes follow


def _septets(data: bytes) -> bytes:
    if not data:
        return b"\0"
    count = (8 * len(data) + 6) // 7
    bits = int.from_bytes(data, "big") << (7 * count - 8 * len(data))
    septets = bytearray(0x80 | ((bits >> (7 * (count - 1 - i))) & 0x7F) for i in range(count))
    septets[-1] &= 0x7F
    return bytes(septets)


def _unseptets(data: bytes) -> bytes:
    if data == b"\0":
        return b""
    bits = 0
    for byte in data:
        bits = bits << 7 | (byte & 0x7F)
    length = 7 * len(data) // 8
    spare = 7 * len(data) - 8 * length
    if length == 0 or bits & ((1 << spare) - 1):
        raise BadValueError(f"no blob of OrderedBytes: {keys.printable(data)}")
    return (bits >> spare).to_bytes(length, "big")


def _first(data: bytes, start: int, mask: int) -> int:
    """Return the index of the first byte from ``start`` on without this bit; -1 if all have it."""
    return next((at for at in range(start, len(data)) if not data[at] & mask), -1)


# ---- numeric: base 100, an exponent and digits, inverted for negative numbers


def _encoded_numeric(value: Decimal) -> bytes:
    if not value:
        return bytes((_ZERO,))
    sign, digits, exponent = value.as_tuple()
    assert isinstance(exponent, int)
    text = "".join(map(str, digits)).lstrip("0")
    point = len(text) + exponent  # digits before the point
    e = -(-point // 2)
    text = ("0" * (2 * e - point) + text).rstrip("0")
    if len(text.lstrip("0")) > _DIGITS_MAX:
        raise BadValueError(f"{value} has more than the {_DIGITS_MAX} digits of OrderedBytes")
    text += "0" * (len(text) % 2)
    mantissa = bytearray(2 * int(text[i : i + 2]) + 1 for i in range(0, len(text), 2))
    mantissa[-1] &= 0xFE
    if e > _MEDIUM_MAX:
        head, tail = (_NEG_LARGE if sign else _POS_LARGE), bytes((e,))
        tail = _inverted(tail) if sign else tail
    elif e > 0:
        head, tail = (_NEG_MED_MAX - e if sign else _POS_MED_MIN + e), b""
    else:
        head, tail = (_NEG_SMALL if sign else _POS_SMALL), bytes((-e,))
        tail = tail if sign else _inverted(tail)
    return bytes((head,)) + tail + (_inverted(mantissa) if sign else bytes(mantissa))


def _inverted(data: bytes | bytearray) -> bytes:
    return bytes(byte ^ 0xFF for byte in data)


def _numeric_parts(data: bytes, start: int) -> tuple[bool, int, int]:
    """Return sign, exponent, and the index of the first digit; the exponent has one byte, enough for 38 digits."""
    head = data[start] if start < len(data) else 0
    exponent = data[start + 1] if start + 1 < len(data) else 0
    if head == _NEG_LARGE:
        return True, exponent ^ 0xFF, start + 2
    if _NEG_LARGE < head <= _NEG_MED_MAX:
        return True, _NEG_MED_MAX - head, start + 1
    if head == _NEG_SMALL:
        return True, -exponent, start + 2
    if head == _POS_SMALL:
        return False, -(exponent ^ 0xFF), start + 2
    if _POS_MED_MIN <= head < _POS_LARGE:
        return False, head - _POS_MED_MIN, start + 1
    if head == _POS_LARGE:
        return False, exponent, start + 2
    raise BadValueError(f"0x{head:02x} begins no number of OrderedBytes: {keys.printable(data)}")


def _numeric_end(data: bytes, start: int) -> int:
    if data[start : start + 1] == bytes((_ZERO,)):
        return start
    sign, _, at = _numeric_parts(data, start)
    flip = 0xFF if sign else 0
    return next((i for i in range(at, len(data)) if not (data[i] ^ flip) & 1), -1)


def _decoded_numeric(data: bytes) -> Decimal:
    if data == bytes((_ZERO,)):
        return Decimal(0)
    sign, e, at = _numeric_parts(data, 0)
    digits = _inverted(data[at:]) if sign else data[at:]
    if any(byte // 2 > 99 for byte in digits) or e > 200:
        raise BadValueError(f"no number of OrderedBytes: {keys.printable(data)}")
    text = "".join(f"{byte // 2:02d}" for byte in digits)
    return Decimal((int(sign), tuple(map(int, text)), 2 * e - len(text)))
