"""Protobuf on the wire, without the protobuf package: varints, field tables, and dicts as messages.

A :class:`Message` is a table of fields. ``encode`` turns a dict into bytes, ``decode`` bytes into a dict with the
fields that were sent; a repeated field is a list. Unknown fields, and known numbers with another wire type
than the table's, are skipped: versions of HBase differ there.

>>> POINT = Message("Point", (1, "x!", SIGNED), (2, "name", TEXT), (3, "path*", UNSIGNED))
>>> encode(POINT, {"x": -1, "name": "a", "path": [1, 300]}).hex()
'08ffffffffffffffffff01120161180118ac02'
>>> decode(POINT, encode(POINT, {"x": -1, "name": "a", "path": [1, 300]}))
{'x': -1, 'name': 'a', 'path': [1, 300]}
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from typing import Any, Final, TypeAlias

from metaclient.errors import BackendFault

__all__ = [
    "BOOL",
    "BYTES",
    "DOUBLE",
    "FLOAT",
    "SIGNED",
    "TEXT",
    "UNSIGNED",
    "Message",
    "ProtocolError",
    "decode",
    "delimited",
    "encode",
    "read_varint",
    "skip_field",
    "varint",
]

UNSIGNED: Final = "unsigned"  # uint32, uint64, enums
SIGNED: Final = "signed"  # int32, int64: ten bytes when negative
BOOL: Final = "bool"
BYTES: Final = "bytes"
TEXT: Final = "text"
FLOAT: Final = "float"
DOUBLE: Final = "double"

_VARINT, _FIXED64, _LENGTH, _FIXED32 = 0, 1, 2, 5
_WIRE_TYPE = 7
_WIRE_TYPES = {UNSIGNED: _VARINT, SIGNED: _VARINT, BOOL: _VARINT, BYTES: _LENGTH, TEXT: _LENGTH}
_FIXED = {FLOAT: (_FIXED32, struct.Struct("<f")), DOUBLE: (_FIXED64, struct.Struct("<d"))}
_SIGN = 1 << 63
_WRAP = 1 << 64
#: A varint of 64 bits has at most ten bytes.
_VARINT_BYTES_MAX = 10


class ProtocolError(BackendFault):
    """The peer sent bytes that are no message; the text has the message's name and the position."""


def _varint(value: int) -> bytes:
    made = bytearray()
    while value > 0x7F:
        made.append(value & 0x7F | 0x80)
        value >>= 7
    made.append(value)
    return bytes(made)


_SMALL = tuple(_varint(value) for value in range(1 << 14))
#: The lowest 14 bits of a longer varint.
_FIRST = tuple(_varint(value | 1 << 14)[:2] for value in range(1 << 14))


def varint(value: int) -> bytes:
    """Return a number from 0 to 2**64 - 1 as a varint.

    >>> varint(300).hex()
    'ac02'
    """
    if 0 <= value < 1 << 14:
        return _SMALL[value]
    if 0 <= value < 1 << 28:
        return _FIRST[value & 0x3FFF] + _SMALL[value >> 14]
    if not 0 <= value < _WRAP:
        raise ValueError(f"{value} does not fit into 64 bits")
    return _varint(value)


def read_varint(data: bytes, at: int, end: int) -> tuple[int, int]:
    """Return the number at ``at``, and where it ends; ProtocolError when it does not end before ``end``."""
    value = shift = 0
    for position in range(at, min(end, at + _VARINT_BYTES_MAX)):
        byte = data[position]
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value & (_WRAP - 1), position + 1
        shift += 7
    raise ProtocolError(f"a varint is cut short or too long, at byte {at} of {end}")


def delimited(data: bytes) -> bytes:
    """Return the bytes with their length as a varint before them.

    >>> delimited(b"ab").hex()
    '026162'
    """
    return varint(len(data)) + data


FieldKind: TypeAlias = "str | Message"
FieldSpec: TypeAlias = tuple[int, str, FieldKind]


class _Field:
    __slots__ = ("is_repeated", "kind", "message", "name", "tag")

    def __init__(self, number: int, name: str, kind: FieldKind) -> None:
        self.is_repeated = name.endswith("*")
        self.name = name.rstrip("*!")
        self.message = kind if isinstance(kind, Message) else None
        self.kind = kind if isinstance(kind, str) else BYTES
        wire_type = _FIXED[self.kind][0] if self.kind in _FIXED else _WIRE_TYPES[self.kind]
        self.tag = number << 3 | wire_type


class Message:
    """A table of fields: (number, name, kind). ``name!`` is required, ``name*`` repeated; a kind may be a message."""

    __slots__ = ("by_name", "by_tag", "name", "packed", "required")

    def __init__(self, name: str, *fields: FieldSpec) -> None:
        made = [_Field(*field) for field in fields]
        self.name = name
        self.by_name = {field.name: field for field in made}
        self.by_tag = {field.tag: field for field in made}
        scalars = [field for field in made if field.is_repeated and field.kind in (UNSIGNED, SIGNED, BOOL)]
        self.packed = {field.tag | _LENGTH: field for field in scalars}
        self.required = tuple(field_name[:-1] for _, field_name, _ in fields if field_name.endswith("!"))

    def tag(self, name: str) -> bytes:
        """Return the tag of a field as it is on the wire, for code that encodes without this table.

        >>> Message("Point", (1, "x!", SIGNED)).tag("x")
        b'\\x08'
        """
        return varint(self.by_name[name].tag)

    def __repr__(self) -> str:
        return f"<Message {self.name}: {', '.join(self.by_name)}>"


def encode(message: Message, values: Mapping[str, Any]) -> bytes:
    """Return the bytes of a message: fields in the order of the dict, without None. An unknown name is a KeyError."""
    parts: list[bytes] = []
    for name, value in values.items():
        field = message.by_name[name]
        if value is None:
            continue
        if field.is_repeated:
            for one in value:
                _encode_field(parts, field, one)
        else:
            _encode_field(parts, field, value)
    return b"".join(parts)


def _encode_field(parts: list[bytes], field: _Field, value: Any) -> None:
    parts.append(varint(field.tag))
    if field.message is not None:
        parts.append(delimited(value if isinstance(value, bytes) else encode(field.message, value)))
        return
    match field.kind:
        case "bytes":
            parts.append(delimited(value))
        case "text":
            parts.append(delimited(value.encode()))
        case "signed":
            parts.append(varint(value & (_WRAP - 1)))
        case "unsigned":
            parts.append(varint(value))
        case "bool":
            parts.append(b"\x01" if value else b"\x00")
        case fixed:
            parts.append(_FIXED[fixed][1].pack(value))


def decode(message: Message, data: bytes, at: int = 0, end: int | None = None) -> dict[str, Any]:
    """Return the fields of the message at ``data[at:end]``; ProtocolError if it is malformed."""
    end = len(data) if end is None else end
    by_tag = message.by_tag
    made: dict[str, Any] = {}
    while at < end:
        tag = data[at]
        at += 1
        if tag > 0x7F:
            tag, at = read_varint(data, at - 1, end)
        field = by_tag.get(tag)
        if field is None:
            packed = message.packed.get(tag)
            if packed is None:
                at = skip_field(message, tag, data, at, end)
            else:
                at = _decode_packed(message, packed, data, at, end, made.setdefault(packed.name, []))
            continue
        value, at = _decode_field(message, field, data, at, end)
        if field.is_repeated:
            made.setdefault(field.name, []).append(value)
        else:
            made[field.name] = value
    for name in message.required:
        if name not in made:
            raise ProtocolError(f"{message.name} without its field {name!r}")
    return made


def _decode_field(message: Message, field: _Field, data: bytes, at: int, end: int) -> tuple[Any, int]:
    kind = field.kind
    if kind in _FIXED:
        size = _FIXED[kind][1].size
        _check_end(message, at + size, end)
        return _FIXED[kind][1].unpack_from(data, at)[0], at + size
    number, at = read_varint(data, at, end)
    if field.tag & _WIRE_TYPE == _VARINT:
        return _number(kind, number), at
    stop = at + number
    _check_end(message, stop, end)
    if field.message is not None:
        return decode(field.message, data, at, stop), stop
    if kind == BYTES:
        return data[at:stop], stop
    return data[at:stop].decode(errors="replace"), stop


def _number(kind: str, number: int) -> int | bool:
    if kind == SIGNED:
        return number - _WRAP if number & _SIGN else number
    return number if kind == UNSIGNED else number != 0


def _check_end(message: Message, stop: int, end: int) -> None:
    if stop > end:
        raise ProtocolError(f"{message.name} is cut short: a field ends at byte {stop} of {end}")


def _decode_packed(message: Message, field: _Field, data: bytes, at: int, end: int, values: list[Any]) -> int:
    """Append the numbers of a repeated field that was sent packed, and return where the field ends."""
    size, at = read_varint(data, at, end)
    _check_end(message, stop := at + size, end)
    while at < stop:
        number, at = read_varint(data, at, stop)
        values.append(_number(field.kind, number))
    return stop


def skip_field(message: Message, tag: int, data: bytes, at: int, end: int) -> int:
    """Return where the field ends whose tag was read and whose value begins at ``at``; ProtocolError if it is cut."""
    match tag & _WIRE_TYPE:
        case 0:  # a varint
            at = read_varint(data, at, end)[1]
        case 1:  # 64 bits
            at += 8
        case 2:  # a length and so many bytes
            size, at = read_varint(data, at, end)
            at += size
        case 5:  # 32 bits
            at += 4
        case wire_type:
            raise ProtocolError(f"{message.name} has a field of wire type {wire_type}, which HBase never sends")
    if tag >> 3 == 0:
        raise ProtocolError(f"{message.name} has a field with the number 0")
    _check_end(message, at, end)
    return at
