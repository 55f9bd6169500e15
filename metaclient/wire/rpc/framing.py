"""The preamble, the connection header, and frames of requests and responses.

::

    preamble   "HBas" | version 0 | authentication           then int32 length | ConnectionHeader
    request    int32 length | varint | RequestHeader | varint | parameter | cell block
    response   int32 length | varint | ResponseHeader [| varint | answer | cell block]

All functions take and return bytes, for both ends of a connection.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import lru_cache
from io import BytesIO
from struct import Struct
from typing import Any, Final, NamedTuple

from metaclient.protobuf import ProtocolError, decode, delimited, encode, read_varint, varint
from metaclient.wire.rpc.cellblock import CODEC
from metaclient.wire.rpc.messages import CELL_BLOCK_META, CONNECTION_HEADER, REQUEST_HEADER, RESPONSE_HEADER

__all__ = [
    "AUTH_DIGEST",
    "AUTH_KERBEROS",
    "AUTH_SIMPLE",
    "CONNECTION_CALL_ID",
    "FRAME_BYTES_MAX",
    "PREAMBLE_BYTES",
    "REGISTRY_PREAMBLE",
    "SECURITY_PREAMBLE",
    "FrameReader",
    "Preamble",
    "ReceivedRequest",
    "Response",
    "connection_header",
    "error_response",
    "framed",
    "parse_connection_header",
    "parse_preamble",
    "parse_request",
    "parse_response",
    "preamble",
    "request",
    "response",
]

MAGIC: Final = b"HBas"
VERSION: Final = 0
AUTH_SIMPLE, AUTH_KERBEROS, AUTH_DIGEST = 0x50, 0x51, 0x52
PREAMBLE_BYTES: Final = 6
#: Preambles that ask for the cluster's id, and for the server's Kerberos principal (2.6, 3.0.0-beta-2).
REGISTRY_PREAMBLE: Final = b"Regist"
SECURITY_PREAMBLE: Final = b"Securi"
#: The call id of a response about the connection itself (-1 as uint32).
CONNECTION_CALL_ID: Final = 0xFFFFFFFF
#: The most bytes of a request (SimpleRpcServer).
FRAME_BYTES_KEY: Final = "hbase.ipc.max.request.size"
FRAME_BYTES_MAX: Final = 256 * 1024 * 1024
#: The version in the connection header: from 1.3 on a Get is answered with a cell block, from 1.4 on ScannerReset is
#: sent.
CLIENT_VERSION: Final = "2.6.1"


_new = tuple.__new__
_CALL_ID, _METHOD_NAME, _REQUEST_CELLS, _PRIORITY, _TIMEOUT = map(
    REQUEST_HEADER.tag, ("call_id", "method_name", "cell_block_meta", "priority", "timeout")
)
_HAS_PARAM = encode(REQUEST_HEADER, {"request_param": True})
_CELL_BYTES = CELL_BLOCK_META.tag("length")
_REQUEST_CELLS_FORMAT = _REQUEST_CELLS + b"%b" + _CELL_BYTES + b"%b"
_RESPONSE_CALL_ID, _RESPONSE_CELLS = RESPONSE_HEADER.tag("call_id"), RESPONSE_HEADER.tag("cell_block_meta")
#: The same tags as numbers, for the first bytes of a response.
(_CALL_ID_BYTE,), (_CELLS_BYTE,), (_CELL_BYTES_BYTE,) = _RESPONSE_CALL_ID, _RESPONSE_CELLS, _CELL_BYTES
_LENGTH = Struct(">I")
_pack_length, _length_of = _LENGTH.pack, _LENGTH.unpack_from


class Preamble(NamedTuple):
    """The first six bytes of a connection; ``special`` is REGISTRY_PREAMBLE, SECURITY_PREAMBLE or b""."""

    auth: int
    special: bytes = b""


class ReceivedRequest(NamedTuple):
    """A request that a server has received. ``param`` is the message, ``cells`` the cell block."""

    call_id: int
    method: str
    param: bytes
    cells: bytes
    priority: int | None = None
    timeout_ms: int = 0
    has_param: bool = True


class Response(NamedTuple):
    """A response that a client has received: the message is ``data[at:end]``, the cell block ``data[end:]``."""

    call_id: int
    data: bytes
    at: int
    end: int
    exception: dict[str, Any] | None = None

    @property
    def param(self) -> bytes:
        return self.data[self.at : self.end]

    @property
    def cells(self) -> bytes:
        return self.data[self.end :]


# -- connections ---------------------------------------------------------------------------------------------------


def preamble(auth: int = AUTH_SIMPLE) -> bytes:
    """
    >>> preamble().hex()
    '484261730050'
    """
    return MAGIC + bytes((VERSION, auth))


def parse_preamble(data: bytes) -> Preamble:
    """Parse six bytes; the text of a ProtocolError is that of HBase."""
    if len(data) != PREAMBLE_BYTES:
        raise ProtocolError(f"a preamble has {PREAMBLE_BYTES} bytes, got {len(data)}")
    if data in (REGISTRY_PREAMBLE, SECURITY_PREAMBLE):
        return Preamble(0, data)
    if not data.startswith(MAGIC):
        raise ProtocolError(f"Expected HEADER={MAGIC.hex()} but received HEADER={data[:4].hex()}")
    if data[4] != VERSION:
        raise ProtocolError(f"serverVersion={VERSION}, clientVersion={data[4]}")
    if data[5] not in (AUTH_SIMPLE, AUTH_KERBEROS, AUTH_DIGEST):
        raise ProtocolError(f"unknown authentication {data[5]}")
    return Preamble(data[5])


def connection_header(service: str, user: str | None = None, codec: str | None = CODEC) -> bytes:
    """Return the connection header with its length: service, user, and codec of the cells."""
    version = {
        "version": CLIENT_VERSION,
        "url": "",
        "revision": "",
        "user": "",
        "date": "",
        "src_checksum": "",
        "version_major": int(CLIENT_VERSION.split(".")[0]),
        "version_minor": int(CLIENT_VERSION.split(".")[1]),
    }
    values = {
        "user_info": {"effective_user": user} if user else None,
        "service_name": service,
        "cell_block_codec_class": codec,
        "version_info": version,
    }
    return framed(encode(CONNECTION_HEADER, values))


def parse_connection_header(data: bytes) -> dict[str, Any]:
    """Return the fields of a connection header, given without its length."""
    return decode(CONNECTION_HEADER, data)


def framed(data: bytes) -> bytes:
    """Return the bytes with their length as an int32 before them."""
    return len(data).to_bytes(4, "big") + data


# -- requests ------------------------------------------------------------------------------------------------------


def request(
    call_id: int,
    method: bytes,
    param: bytes,
    cells: bytes = b"",
    priority: int = 0,
    timeout_ms: int = 0,
) -> bytes:
    """Return the frame of a request.

    >>> request(1, b"GetMetaRegionLocations", b"").hex()
    '0000001e1c08011a164765744d657461526567696f6e4c6f636174696f6e73200100'
    """
    number, size = varint(call_id), varint(len(param))
    if cells or priority:
        rest = _methods.get(method) or _method(method)
        if cells:
            length = varint(len(cells))
            rest += _REQUEST_CELLS_FORMAT % (varint(len(length) + 1), length)
        if priority:
            rest += _PRIORITY + varint(priority)
        rest += _timeout(timeout_ms)
    else:
        rest = _method_and_timeout(method, timeout_ms)
    header_bytes = len(_CALL_ID) + len(number) + len(rest)
    before = varint(header_bytes)
    length = _pack_length(len(before) + header_bytes + len(size) + len(param) + len(cells))
    return b"".join((length, before, _CALL_ID, number, rest, size, param, cells))


@lru_cache(maxsize=256)
def _method_and_timeout(method: bytes, timeout_ms: int) -> bytes:
    """Return these fields of a header, between which nothing stands in most calls."""
    return (_methods.get(method) or _method(method)) + _timeout(timeout_ms)


@lru_cache(maxsize=256)
def _timeout(timeout_ms: int) -> bytes:
    """Return the field ``timeout`` of a header; most calls have the same value."""
    return _TIMEOUT + varint(timeout_ms) if timeout_ms > 0 else b""


#: method -> its fields ``method_name`` and ``request_param`` in a header; there are some forty methods.
_methods: dict[bytes, bytes] = {}


def _method(method: bytes) -> bytes:
    made = _methods[method] = _METHOD_NAME + varint(len(method)) + method + _HAS_PARAM
    return made


def parse_request(frame: bytes) -> ReceivedRequest:
    """Parse a frame without its length; ProtocolError if it is no request."""
    size, at = read_varint(frame, 0, len(frame))
    header = decode(REQUEST_HEADER, frame, at, _inside(at + size, frame, "request header"))
    at += size
    call_id, method = header.get("call_id", 0), header.get("method_name", "")
    priority, timeout_ms = header.get("priority"), header.get("timeout", 0)
    if not header.get("request_param", False):
        return ReceivedRequest(call_id, method, b"", b"", priority, timeout_ms, has_param=False)
    size, at = read_varint(frame, at, len(frame))
    end = _inside(at + size, frame, "parameter")
    cells = frame[end:]
    told = header.get("cell_block_meta", {}).get("length", 0)
    if told != len(cells):
        raise ProtocolError(f"the request of {method} announces {told} bytes of cells and has {len(cells)}")
    return ReceivedRequest(call_id, method, frame[at:end], cells, priority, timeout_ms)


# -- responses -----------------------------------------------------------------------------------------------------


def response(call_id: int, param: bytes, cells: bytes = b"") -> bytes:
    """Return the frame of a response without an exception."""
    header = _RESPONSE_CALL_ID + varint(call_id)
    if cells:
        length = varint(len(cells))
        header += _RESPONSE_CELLS + varint(len(length) + 1) + _CELL_BYTES + length
    body = varint(len(header)) + header + varint(len(param)) + param
    return (len(body) + len(cells)).to_bytes(4, "big") + body + cells


def error_response(
    call_id: int,
    java_class: str,
    text: str,
    *,
    do_not_retry: bool,
    hostname: str | None = None,
    port: int | None = None,
    is_overloaded: bool | None = None,
) -> bytes:
    """Return the frame of a response with an exception; nothing follows the header. ``text`` is HBase's stack trace."""
    values = {
        "exception_class_name": java_class,
        "stack_trace": text,
        "hostname": hostname,
        "port": port,
        "do_not_retry": do_not_retry,
        "server_overloaded": is_overloaded,
    }
    return framed(delimited(encode(RESPONSE_HEADER, {"call_id": call_id, "exception": values})))


def parse_response(frame: bytes) -> Response:
    """Parse a frame without its length; ProtocolError if it is no response.

    Most have a short header with a call id and the length of the cells, and a short message: these are parsed without
    the field table.
    """
    try:
        size, at = frame[0], 3
        if frame[1] != _CALL_ID_BYTE or size > 0x7F:
            return _parse_slowly(frame)
        call_id = frame[2]
        if call_id > 0x7F:
            call_id, shift = call_id & 0x7F, 7
            while (byte := frame[at]) > 0x7F:
                if shift > 28:  # a uint32 has at most five bytes; read_varint refuses what has more than ten
                    return _parse_slowly(frame)
                call_id |= (byte & 0x7F) << shift
                shift += 7
                at += 1
            call_id |= byte << shift
            at += 1
        told = 0
        if at <= size and frame[at] == _CELLS_BYTE and frame[at + 2] == _CELL_BYTES_BYTE:
            told = frame[at + 3]
            at += 4
            if told > 0x7F:
                if (byte := frame[at]) > 0x7F:
                    return _parse_slowly(frame)
                told = told & 0x7F | byte << 7
                at += 1
        if at != size + 1:
            return _parse_slowly(frame)
        end = at + 1 + frame[at]
        if frame[at] > 0x7F or len(frame) - end != told:
            return _parse_slowly(frame)
    except IndexError as error:
        raise ProtocolError(f"a response is cut short after {len(frame)} bytes") from error
    return _new(Response, (call_id, frame, at + 1, end, None))


def _parse_slowly(frame: bytes) -> Response:
    length, at = read_varint(frame, 0, len(frame))
    return _parse_long_header(frame, at, _inside(at + length, frame, "response header"))


def _parse_long_header(frame: bytes, at: int, header_end: int) -> Response:
    header = decode(RESPONSE_HEADER, frame, at, header_end)
    if "call_id" not in header:
        raise ProtocolError("a response has no call id")
    exception = header.get("exception")
    if exception is not None:
        return Response(header["call_id"], frame, header_end, header_end, exception)
    return _with_answer(frame, header["call_id"], header.get("cell_block_meta", {}).get("length", 0), header_end)


def _with_answer(frame: bytes, call_id: int, told: int, header_end: int) -> Response:
    length, at = read_varint(frame, header_end, len(frame))
    end = _inside(at + length, frame, "answer")
    if len(frame) - end != told:
        raise ProtocolError(
            f"the response to call {call_id} announces {told} bytes of cells and has {len(frame) - end}"
        )
    return Response(call_id, frame, at, end)


def _inside(end: int, frame: bytes, what: str) -> int:
    if end > len(frame):
        raise ProtocolError(f"the {what} ends at byte {end} of a frame of {len(frame)}")
    return end


# -- streams -------------------------------------------------------------------------------------------------------


class FrameReader:
    """Splits the received bytes into frames; ProtocolError for a length over ``bytes_max``, which ``key`` sets.

    >>> reader = FrameReader()
    >>> list(reader.feed(b"\\x00\\x00\\x00\\x02ab\\x00\\x00")), list(reader.feed(b"\\x00\\x01c"))
    ([b'ab'], [b'c'])
    """

    __slots__ = ("_body", "_head", "_key", "_max", "missing")

    def __init__(self, bytes_max: int = FRAME_BYTES_MAX, key: str = FRAME_BYTES_KEY) -> None:
        self._max = bytes_max
        self._key = key
        # Of an incomplete frame: the first bytes of its length, or its body without the length. BytesIO returns a
        # complete body without a copy, so that a frame takes its length in memory once.
        self._head = b""
        self._body: BytesIO | None = None
        #: At least this many bytes are missing before the next frame is complete.
        self.missing = 4

    @property
    def buffered(self) -> int:
        """The number of bytes of the incomplete frame."""
        return len(self._head) if self._body is None else 4 + self._body.tell()

    def feed(self, data: bytes) -> Iterable[bytes]:
        """Return the frames that are complete now, without their lengths."""
        size = len(data) - 4
        if size >= 0 and self._body is None and not self._head and _length_of(data)[0] == size <= self._max:
            return (data[4:],)  # exactly one whole frame
        return self._cut(data)

    def _cut(self, data: bytes) -> Iterator[bytes]:
        body = self._body
        if body is not None:
            taken = body.write(memoryview(data)[: self.missing])
            self.missing -= taken
            if self.missing:
                return
            self._body = None
            yield body.getvalue()
            data = data[taken:]
        elif self._head:
            data = self._head + data
        self._head = b""
        self.missing = 4
        at, size = 0, len(data)
        while size - at >= 4:
            length = int.from_bytes(data[at : at + 4], "big")
            if length > self._max:
                raise ProtocolError(f"a frame of {length} bytes: the limit is {self._max} ({self._key})")
            end = at + 4 + length
            if end > size:
                self._body = BytesIO()
                self.missing = length - self._body.write(memoryview(data)[at + 4 :])
                return
            yield data[at + 4 : end]
            at = end
        self._head = data[at:]
        self.missing = 4 - len(self._head)
