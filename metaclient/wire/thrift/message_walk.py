"""Finds the end of a Thrift message before it is decoded, and refuses a message that exceeds its bounds.

thriftpy2 trusts the counts and lengths of a message: it skips a list of 2^31 elements that take no byte in a C loop
which holds the GIL, it accepts a negative length, and it makes 300 bytes of objects from one byte. So every
message is walked first, here, without making an object of any value. A message that was walked has:

1. known types only, and no element without a byte of its own;
2. lengths and counts that fit into ``bytes_max``;
3. at most ``DEPTH_MAX`` structs and containers inside each other;
4. objects that take at most ``MEMORY_FLOOR`` + ``MEMORY_PER_BYTE`` x its bytes, and never more than
   4 x ``bytes_max`` or the floor, whichever is more.

A walk goes on where it stopped when more bytes have arrived: a message that arrives in pieces is walked once.

>>> walk = BinaryWalk(1000)
>>> message = bytes.fromhex("80010002 00000001 67 00000001 0b0000 00000002 6162 00")
>>> walk.end(message[:12]), walk.end(message), len(message)
(None, 23, 23)
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from struct import Struct
from struct import error as TooShort
from typing import ClassVar

__all__ = ["DEPTH_MAX", "MEMORY_FLOOR", "BinaryWalk", "CompactWalk", "MalformedMessage", "MessageWalk", "walk_of"]

#: HBase's deepest message (mutateRow's arguments with their attributes) has 9 levels.
DEPTH_MAX = 32
#: Bytes of thriftpy2's objects for a struct (an object and the dict of its fields), and for any other value; estimates
#: from above.
STRUCT_BYTES, VALUE_BYTES = 300, 50
#: The smallest cell that HBase sends is 16 bytes in the compact protocol, and becomes 550 bytes of objects.
MEMORY_PER_BYTE = 48
#: A short message may hold many small values, such as the rows that a multiple get did not find.
MEMORY_FLOOR = 16 << 20
_MEMORY_PER_BOUND = 4
_NAME_BYTES_MAX = 1024
_STOP, _STRUCT = 0, 12
_int = Struct(">i").unpack_from
_list_head = Struct(">bi").unpack_from
_map_head = Struct(">bbi").unpack_from


class MalformedMessage(ValueError):
    """The bytes are no Thrift message, or exceed its bounds. ``is_head``: the head of the message is wrong already."""

    def __init__(self, text: str, *, is_head: bool = False) -> None:
        super().__init__(text)
        self.is_head = is_head


class _Level:
    """A struct (``kinds`` is empty) or a container that is being walked, and how many of its values are left."""

    __slots__ = ("kinds", "left")

    def __init__(self, kinds: tuple[int, ...] = (), left: int = 0) -> None:
        self.kinds = kinds
        self.left = left


class MessageWalk(ABC):
    """One walk over one message in one protocol. ``steps`` counts the values that were visited."""

    __slots__ = ("_at", "_bytes_max", "_has_begun", "_levels", "_memory", "_memory_max", "steps")

    _FIRST: ClassVar[int]

    def __init__(self, bytes_max: int) -> None:
        self._bytes_max = bytes_max
        self._memory_max = max(MEMORY_FLOOR, _MEMORY_PER_BOUND * bytes_max)
        self._at = 0
        self._has_begun = False
        self._levels: list[_Level] = []
        self._memory = 0
        self.steps = 0

    def end(self, data: bytes | bytearray) -> int | None:
        """Return where the message that begins at byte 0 ends; None when more of it must arrive first.

        ``data`` begins with the bytes of the call before. MalformedMessage when it is no message.
        """
        try:
            if not self._has_begun:
                self._begin(data)
            while self._levels:
                self._step(data, self._levels[-1])
        except (TooShort, IndexError):
            if len(data) > self._bytes_max:
                raise MalformedMessage(f"a message of more than {self._bytes_max} bytes") from None
            return None
        return self._at

    def _begin(self, data: bytes | bytearray) -> None:
        if data and data[0] != self._FIRST:
            raise MalformedMessage(f"it begins with {bytes(data[:16])!r}", is_head=True)
        self._at = self._head_end(data)
        self._has_begun = True
        self._enter(_Level(), self._at, STRUCT_BYTES)

    def _step(self, data: bytes | bytearray, level: _Level) -> None:
        """Walk one field of a struct, or one value of a container. Nothing has changed if the bytes do not suffice."""
        self.steps += 1
        if not level.kinds:
            kind, at = self._field(data, self._at)
            if kind == _STOP:
                self._levels.pop()
                self._at = at
                return
        elif level.left == 0:
            self._levels.pop()
            return
        else:
            kind, at = level.kinds[level.left % len(level.kinds)], self._at
        self._value(data, at, kind, level)

    def _value(self, data: bytes | bytearray, at: int, kind: int, level: _Level) -> None:
        if kind == _STRUCT:
            self._enter(_Level(), at, STRUCT_BYTES)
        elif self._is_container(kind):
            kinds, count, at = self._container(data, at, kind)
            self._check_kinds(kinds, count, at)
            self._enter(_Level(kinds, count * len(kinds)), at, VALUE_BYTES)
        else:
            end = self._scalar_end(data, at, kind, is_field=not level.kinds)
            self._check_size(end)
            if end > len(data):
                raise IndexError
            self._at = end
            self._charge(VALUE_BYTES)
        level.left -= 1

    def _enter(self, level: _Level, at: int, memory: int) -> None:
        if len(self._levels) >= DEPTH_MAX:
            raise MalformedMessage(f"more than {DEPTH_MAX} structs and containers inside each other")
        self._levels.append(level)
        self._at = at
        self._charge(memory)

    def _charge(self, memory: int) -> None:
        self._memory += memory
        allowed = min(MEMORY_FLOOR + MEMORY_PER_BYTE * self._at, self._memory_max)
        if self._memory > allowed:
            raise MalformedMessage(f"too many values: {self._at} bytes would take more than {allowed} bytes of memory")

    def _check_kinds(self, kinds: tuple[int, ...], count: int, at: int) -> None:
        if count < 0:
            raise MalformedMessage(f"a container of {count} values")
        self._check_size(at + count * len(kinds))
        for kind in kinds if count else ():
            if kind != _STRUCT and not self._is_container(kind) and not self._is_scalar(kind):
                raise MalformedMessage(f"a container of values of the unknown type {kind}")

    def _check_size(self, end: int) -> None:
        if end > self._bytes_max:
            raise MalformedMessage(f"a value that ends at byte {end}: a message has at most {self._bytes_max}")

    @abstractmethod
    def _head_end(self, data: bytes | bytearray) -> int:
        """Return where name and sequence id end."""

    @abstractmethod
    def _field(self, data: bytes | bytearray, at: int) -> tuple[int, int]:
        """Return the type of the field at ``at``, and where its value begins."""

    @abstractmethod
    def _is_container(self, kind: int) -> bool: ...

    @abstractmethod
    def _is_scalar(self, kind: int) -> bool: ...

    @abstractmethod
    def _container(self, data: bytes | bytearray, at: int, kind: int) -> tuple[tuple[int, ...], int, int]:
        """Return the types inside (two for a map), the number of entries, and where the first begins."""

    @abstractmethod
    def _scalar_end(self, data: bytes | bytearray, at: int, kind: int, *, is_field: bool) -> int:
        """Return where a value ends that holds no others."""


class BinaryWalk(MessageWalk):
    """A walk over a message of the binary protocol (TBinaryProtocol, strict)."""

    __slots__ = ()

    _FIRST = 0x80
    _BINARY, _MAP = 11, 13
    _CONTAINERS = frozenset({13, 14, 15})
    _SIZES: ClassVar[dict[int, int]] = {2: 1, 3: 1, 4: 8, 6: 2, 8: 4, 10: 8}

    def _head_end(self, data: bytes | bytearray) -> int:
        if data[1] != 1:
            raise MalformedMessage(f"it begins with {bytes(data[:16])!r}", is_head=True)
        at = 8 + _checked_name(_int(data, 4)[0]) + 4
        if len(data) < at:
            raise IndexError
        return at

    def _field(self, data: bytes | bytearray, at: int) -> tuple[int, int]:
        kind = data[at]
        return kind, at + 3 if kind else at + 1

    def _is_container(self, kind: int) -> bool:
        return kind in self._CONTAINERS

    def _is_scalar(self, kind: int) -> bool:
        return kind == self._BINARY or kind in self._SIZES

    def _container(self, data: bytes | bytearray, at: int, kind: int) -> tuple[tuple[int, ...], int, int]:
        if kind == self._MAP:
            of_key, of_value, count = _map_head(data, at)
            return (of_key, of_value), count, at + 6  # an even number of values is left before a key
        of, count = _list_head(data, at)
        return (of,), count, at + 5

    def _scalar_end(self, data: bytes | bytearray, at: int, kind: int, *, is_field: bool) -> int:
        size = self._SIZES.get(kind)
        if size is not None:
            return at + size
        if kind != self._BINARY:
            raise MalformedMessage(f"a value of the unknown type {kind}")
        return at + 4 + _checked_length(_int(data, at)[0])


class CompactWalk(MessageWalk):
    """A walk over a message of the compact protocol (TCompactProtocol)."""

    __slots__ = ()

    _FIRST = 0x82
    _MAP = 11
    _CONTAINERS = frozenset({9, 10, 11})
    _BOOLS, _BYTE, _VARINTS, _DOUBLE, _BINARY = (1, 2), 3, (4, 5, 6), 7, 8

    def _head_end(self, data: bytes | bytearray) -> int:
        if data[1] & 0x1F != 1:
            raise MalformedMessage(f"it begins with {bytes(data[:16])!r}", is_head=True)
        length, at = _varint(data, _varint(data, 2)[1])
        at += _checked_name(length)
        if len(data) < at:
            raise IndexError
        return at

    def _field(self, data: bytes | bytearray, at: int) -> tuple[int, int]:
        head = data[at]
        kind = head & 0x0F
        if kind == _STOP or head >> 4:
            return kind, at + 1
        return kind, _varint(data, at + 1)[1]

    def _is_container(self, kind: int) -> bool:
        return kind in self._CONTAINERS

    def _is_scalar(self, kind: int) -> bool:
        return 1 <= kind <= self._BINARY

    def _container(self, data: bytes | bytearray, at: int, kind: int) -> tuple[tuple[int, ...], int, int]:
        if kind == self._MAP:
            count, at = _varint(data, at)
            if not count:
                return (_STOP,), 0, at
            return (data[at] >> 4, data[at] & 0x0F), count, at + 1
        head = data[at]
        count, at = (head >> 4, at + 1) if head >> 4 != 15 else _varint(data, at + 1)
        return (head & 0x0F,), count, at

    def _scalar_end(self, data: bytes | bytearray, at: int, kind: int, *, is_field: bool) -> int:
        if kind in self._BOOLS:
            return at if is_field else at + 1
        if kind == self._BYTE:
            return at + 1
        if kind in self._VARINTS:
            return _varint(data, at)[1]
        if kind == self._DOUBLE:
            return at + 8
        if kind != self._BINARY:
            raise MalformedMessage(f"a value of the unknown type {kind}")
        length, at = _varint(data, at)
        return at + _checked_length(length)


def walk_of(bytes_max: int, *, is_compact: bool) -> MessageWalk:
    """Return a walk for one message of a protocol."""
    return CompactWalk(bytes_max) if is_compact else BinaryWalk(bytes_max)


def _checked_length(length: int) -> int:
    if length < 0:
        raise MalformedMessage(f"a value of {length} bytes")
    return length


def _checked_name(length: int) -> int:
    if not 0 <= length <= _NAME_BYTES_MAX:
        raise MalformedMessage(f"the name of its method has {length} bytes", is_head=True)
    return length


def _varint(data: bytes | bytearray, at: int) -> tuple[int, int]:
    """Return a number of at most 64 bits, and where it ends."""
    value = 0
    for index in range(10):
        byte = data[at + index]
        value |= (byte & 0x7F) << 7 * index
        if byte < 0x80:
            return value, at + index + 1
    raise MalformedMessage("a number of more than 64 bits")
