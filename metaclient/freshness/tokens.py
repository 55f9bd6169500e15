"""Encodes what a session has seen as a token, with which a session in another process continues.

A token contains no instants, because processes on different machines have no common clock. Everything that was seen
before the token was made was stored at the primary before the token is used: the session that is made from a token
begins with the present as the floor of each range of the token.

Format: the version (1 byte), the body, CRC-32 of both (4 bytes, big-endian). The body begins with a varint of flags; 1
means that all rows without a range have been seen, and a varint follows that is 1 if no replica contains these writes.
Then comes each table: its name, the number of ranges, and per range the start, the end and a varint. Its lowest bit is
1 if no replica contains the writes, the other bits are the id of the replica that contains all of it. An id other than
0 is followed by that replica's region (id, start, end) and server. Bytes are preceded by their length as a varint.

>>> pins = Pins()
>>> pins.update(b"t", b"a", b"m", lambda seen: Seen(3.0))
>>> token = encode(pins)
>>> len(token), list(decode(token, now=50.0))
(14, [(b't', b'a', b'm', Seen(floor=50.0, copy=None))])
>>> decode(token[:-1] + bytes(1), now=50.0)
Traceback (most recent call last):
metaclient.errors.ConfigError: a session token of 14 bytes has a wrong checksum: it was cut or changed on its way; \
pass the bytes of Session.token() as they are
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import groupby
from zlib import crc32

from metaclient import keys
from metaclient.errors import ConfigError
from metaclient.freshness.pins import NEVER, PINS_MAX, Copy, Pins, Seen
from metaclient.model import ServerName

__all__ = ["decode", "encode"]

VERSION = 1
_CRC = 4
_ELSEWHERE = 1
#: The longest name, row key or server text that a token may contain; HBase's row keys have at most 32767 bytes.
_BYTES_MAX = 1 << 15
_HINT = "pass the bytes of Session.token() as they are"


def encode(pins: Pins) -> bytes:
    """Return the token of a session."""
    made = bytearray([VERSION])
    elsewhere = pins.elsewhere
    made += _varint(0 if elsewhere is None else _ELSEWHERE)
    if elsewhere is not None:
        made += _varint(int(elsewhere.floor == NEVER))
    for table, group in groupby(pins, key=lambda one: one[0]):
        ranges = list(group)
        made += _sized(table) + _varint(len(ranges))
        for _, start, end, seen in ranges:
            made += _sized(start) + _sized(end) + _seen(seen)
    return bytes(made) + crc32(made).to_bytes(_CRC, "big")


def decode(token: bytes, *, now: float, ranges_max: int = PINS_MAX) -> Pins:
    """Return what the session of a token had seen; raise ConfigError for bytes that are no token."""
    if not isinstance(token, bytes):
        raise ConfigError(f"a session token must be bytes, got {type(token).__name__}; {_HINT}")
    size = len(token)
    if size < 2 + _CRC:
        raise ConfigError(f"a session token of {size} bytes is too short; {_HINT}")
    if token[0] != VERSION:
        raise ConfigError(
            f"a session token has version {token[0]}, and this release reads version {VERSION}: use the same release "
            "of metaclient on both sides"
        )
    body, checksum = token[:-_CRC], token[-_CRC:]
    if crc32(body).to_bytes(_CRC, "big") != checksum:
        raise ConfigError(
            f"a session token of {size} bytes has a wrong checksum: it was cut or changed on its way; {_HINT}"
        )
    pins = Pins(ranges_max)
    try:
        _fill(pins, _Reader(body, 1), now)
    except (ValueError, IndexError) as error:
        raise ConfigError(f"a session token of {size} bytes cannot be read: {error}; {_HINT}") from error
    return pins


def _fill(pins: Pins, reader: _Reader, now: float) -> None:
    if reader.varint() & _ELSEWHERE:
        pins.elsewhere = Seen(NEVER if reader.varint() else now)
    while not reader.is_at_end:
        table = reader.sized()
        if not table:
            raise ValueError("a table has no name")
        for start, end, seen in _ranges(reader, now):
            pins.update(table, start, end, lambda _, seen=seen: seen)  # type: ignore[misc]  # bound now


def _ranges(reader: _Reader, now: float) -> Iterator[tuple[bytes, bytes, Seen]]:
    at: bytes | None = b""
    for _ in range(reader.varint()):
        start, end = reader.sized(), reader.sized()
        if at is None or start < at or keys.ends_before_or_at(end, start):
            raise ValueError("ranges overlap or are empty")
        at = end or None
        yield start, end, _read_seen(reader, now)


def _seen(seen: Seen) -> bytes:
    copy = seen.copy
    is_never = int(seen.floor == NEVER)
    if copy is None:
        return _varint(is_never)
    server = str(copy.server).encode()
    return (
        _varint(copy.replica_id << 1 | is_never)
        + _varint(copy.region_id)
        + _sized(copy.start_key)
        + _sized(copy.end_key)
        + _sized(server)
    )


def _read_seen(reader: _Reader, now: float) -> Seen:
    number = reader.varint()
    floor = NEVER if number & 1 else now
    if not number >> 1:
        return Seen(floor)
    region_id, start, end = reader.varint(), reader.sized(), reader.sized()
    server = ServerName.parse(reader.sized().decode())
    return Seen(floor, Copy(start, end, region_id, number >> 1, server))


def _varint(number: int) -> bytes:
    made = bytearray()
    while number >= 0x80:
        made.append(number & 0x7F | 0x80)
        number >>= 7
    made.append(number)
    return bytes(made)


def _sized(data: bytes) -> bytes:
    return _varint(len(data)) + data


class _Reader:
    """A position in the body of a token; reading past its end raises ValueError."""

    def __init__(self, data: bytes, at: int) -> None:
        self._data = data
        self._at = at

    @property
    def is_at_end(self) -> bool:
        return self._at >= len(self._data)

    def varint(self) -> int:
        number = 0
        for shift in range(0, 70, 7):
            if self.is_at_end:
                raise ValueError("it ends in a number")
            byte = self._data[self._at]
            self._at += 1
            number |= (byte & 0x7F) << shift
            if byte < 0x80:
                return number
        raise ValueError("a number is too long")

    def sized(self) -> bytes:
        size = self.varint()
        end = self._at + size
        if size > _BYTES_MAX or end > len(self._data):
            raise ValueError("it ends in a key")
        data = self._data[self._at : end]
        self._at = end
        return data
