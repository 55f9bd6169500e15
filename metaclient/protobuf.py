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
from collections.abc import Callable, Mapping
from functools import partial
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
_NUMBERS = (UNSIGNED, SIGNED, BOOL)
_SIGN = 1 << 63
_WRAP = 1 << 64
_MASK = _WRAP - 1
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
    stop = at + _VARINT_BYTES_MAX
    for byte in data[at : stop if stop < end else end]:
        if byte < 0x80:
            return (value | byte << shift) & _MASK, at + shift // 7 + 1
        value |= (byte & 0x7F) << shift
        shift += 7
    raise ProtocolError(f"a varint is cut short or too long, at byte {at} of {end}")


def delimited(data: bytes) -> bytes:
    """Return the bytes with their length as a varint before them.

    >>> delimited(b"ab").hex()
    '026162'
    """
    return varint(len(data)) + data


FieldKind: TypeAlias = "str | Message"
Converter: TypeAlias = Callable[..., Any]
FieldLine: TypeAlias = tuple[int, str, FieldKind]


class _Field:
    """One line of a table of fields.

    ``convert`` makes the value of a number (wire type 0), or of the bytes ``data[at:stop]`` (wire type 2), which it
    gets as ``(data, at, stop)``. It is None where the number, or the bytes, are the value.
    """

    __slots__ = ("convert", "is_repeated", "kind", "message", "name", "tag")

    def __init__(self, number: int, name: str, kind: FieldKind) -> None:
        self.is_repeated = name.endswith("*")
        self.name = name.rstrip("*!")
        self.message = kind if isinstance(kind, Message) else None
        self.kind = kind if isinstance(kind, str) else BYTES
        wire_type = _FIXED[self.kind][0] if self.kind in _FIXED else _WIRE_TYPES[self.kind]
        self.tag = number << 3 | wire_type
        self.convert: Converter | None
        self.convert = _CONVERTERS.get(self.kind) if self.message is None else partial(decode, self.message)


class Message:
    """A table of fields: (number, name, kind). ``name!`` is required, ``name*`` repeated; a kind may be a message."""

    __slots__ = ("_fields", "by_name", "name", "rare", "readers", "required")

    def __init__(self, name: str, *fields: FieldLine) -> None:
        self._fields = fields
        made = [_Field(*field) for field in fields]
        self.name = name
        self.by_name = {field.name: field for field in made}
        # By tag: the fields of wire types 0 and 2. A tuple is unpacked faster than three attributes are read.
        self.readers = {
            field.tag: (field.name, field.convert, field.is_repeated) for field in made if field.kind not in _FIXED
        }
        # By tag: fixed-width fields, and repeated numbers as they are sent packed.
        self.rare = {field.tag: field for field in made if field.kind in _FIXED}
        self.rare |= {field.tag | _LENGTH: field for field in made if field.is_repeated and field.kind in _NUMBERS}
        self.required = tuple(field_name[:-1] for _, field_name, _ in fields if field_name.endswith("!"))

    def tag(self, name: str) -> bytes:
        """Return the tag of a field as it is on the wire, for code that encodes without this table.

        >>> Message("Point", (1, "x!", SIGNED)).tag("x")
        b'\\x08'
        """
        return varint(self.by_name[name].tag)

    def with_bytes(self, name: str) -> Message:
        """Return a message that decodes its field ``name`` as bytes, for code that caches its content.

        >>> LINE = Message("Line", (1, "to!", Message("Point", (1, "x", UNSIGNED))))
        >>> decode(LINE, b"\\n\\x02\\x08\\x05"), decode(LINE.with_bytes("to"), b"\\n\\x02\\x08\\x05")
        ({'to': {'x': 5}}, {'to': b'\\x08\\x05'})
        """
        fields = [(number, text, BYTES if text.rstrip("*!") == name else kind) for number, text, kind in self._fields]
        return Message(self.name, *fields)

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
            parts.append(varint(value & _MASK))
        case "unsigned":
            parts.append(varint(value))
        case "bool":
            parts.append(b"\x01" if value else b"\x00")
        case fixed:
            parts.append(_FIXED[fixed][1].pack(value))


def decode(message: Message, data: bytes, at: int = 0, end: int | None = None) -> dict[str, Any]:
    """Return the fields of the message at ``data[at:end]``; ProtocolError if it is malformed.

    Of a field that is not repeated, the last value counts, as in Java.
    """
    if end is None:
        end = len(data)
    readers = message.readers
    made: dict[str, Any] = {}
    value: Any
    try:
        while at < end:
            tag = data[at]
            at += 1
            if tag > 0x7F:
                tag, at = read_varint(data, at - 1, end)
            try:
                name, convert, is_repeated = readers[tag]
            except KeyError:
                at = _decode_rare(message, tag, data, at, end, made)
                continue
            value = data[at]
            at += 1
            if value > 0x7F:
                value, at = read_varint(data, at - 1, end)
            if tag & 2:  # wire type 2: the number is a length
                stop = at + value
                if stop > end:
                    raise _cut_short(message, stop, end)
                value = data[at:stop] if convert is None else convert(data, at, stop)
                at = stop
            elif convert is not None and (value > 0x7F or convert is bool):  # a number of one byte is not negative
                value = convert(value)
            if is_repeated:
                made.setdefault(name, []).append(value)
            else:
                made[name] = value
    except IndexError:  # the data end after a tag
        at += 1
    if at > end:
        raise _cut_short(message, at, end)
    for name in message.required:
        if name not in made:
            raise ProtocolError(f"{message.name} without its field {name!r}, up to byte {end}")
    return made


def _signed(number: int) -> int:
    return number - _WRAP if number & _SIGN else number


def _text(data: bytes, at: int, stop: int) -> str:
    return data[at:stop].decode(errors="replace")


_CONVERTERS: Final[Mapping[str, Converter]] = {SIGNED: _signed, BOOL: bool, TEXT: _text}


def _cut_short(message: Message, stop: int, end: int) -> ProtocolError:
    return ProtocolError(f"{message.name} is cut short: a field ends at byte {stop} of {end}")


def _decode_rare(message: Message, tag: int, data: bytes, at: int, end: int, made: dict[str, Any]) -> int:
    """Read a fixed-width field or a packed repeated one, or skip a field that is not in the table; return its end."""
    stop = skip_field(message, tag, data, at, end)
    field = message.rare.get(tag)
    if field is None:
        return stop
    if field.kind in _FIXED:
        value = _FIXED[field.kind][1].unpack_from(data, at)[0]
        if field.is_repeated:
            made.setdefault(field.name, []).append(value)
        else:
            made[field.name] = value
        return stop
    _, at = read_varint(data, at, end)
    values = made.setdefault(field.name, [])
    while at < stop:
        number, at = read_varint(data, at, stop)
        values.append(number if field.convert is None else field.convert(number))
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
    if at > end:
        raise _cut_short(message, at, end)
    return at
