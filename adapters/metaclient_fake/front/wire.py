"""Reads Thrift messages from one client's socket and writes each reply in one piece.

HBase's gateway speaks one transport and one protocol (``-f`` framed, ``-c`` compact) and answers a client of the other
kind with silence. This one looks at the first bytes and speaks what the client speaks, unless it is told otherwise:

=============================  ==========================
first bytes of a connection    what it is
=============================  ==========================
``80 01``                      binary, unframed
``82``                         compact, unframed
length (4), then ``80`` / ``82``  the same, framed
=============================  ==========================

Bounds: a request of more than ``message_bytes_max`` bytes ends the connection (as HBase's framed server does with its
2 MB), also when its bytes are only announced; a request must be complete ``message_s`` after its first byte; a thread
waits for the next one no longer than the listener lets it. Nothing is allocated for a length before its bytes are here.
"""

from __future__ import annotations

from collections.abc import Callable
from struct import Struct
from typing import Any

from thriftpy2._compat import CYTHON
from thriftpy2.protocol import TBinaryProtocol, TCompactProtocol
from thriftpy2.transport import TBufferedTransport

from metaclient.errors import ConfigError
from metaclient_fake.front.listener import Client

__all__ = ["MESSAGE_BYTES_MAX", "MESSAGE_S", "PROTOCOLS", "TRANSPORTS", "BadMessage", "Wire", "check_dialect"]

#: hbase.regionserver.thrift.framed.max_frame_size_in_mb is 2; a batch of our writers may be larger, so: 64 MB.
MESSAGE_BYTES_MAX = 64 << 20
MESSAGE_S = 60.0
TRANSPORTS = ("auto", "buffered", "framed")
PROTOCOLS = ("auto", "binary", "compact")
#: One read of a socket; a reply of more is put together from pieces of this size, and sent as one.
BUFFER_BYTES = 64 * 1024
_BINARY, _COMPACT = 0x80, 0x82
_length = Struct(">i")


class BadMessage(Exception):
    """What the client sent is no Thrift message that this front can take; its connection is closed."""


class Wire:
    """One client's bytes; also what Thrift's buffer reads from and writes to (``read``, ``write``, ``flush``)."""

    def __init__(
        self,
        sock: Client,
        *,
        now: Callable[[], float],
        transport: str = "auto",
        protocol: str = "auto",
        message_bytes_max: int = MESSAGE_BYTES_MAX,
        message_s: float = MESSAGE_S,
    ) -> None:
        check_dialect(transport, protocol)
        self._socket = sock
        self._now = now
        self._transport, self._protocol = transport, protocol
        self._bytes_max, self._message_s = message_bytes_max, message_s
        self._is_framed = False
        self._received = b""  # read to see what it is, and not yet taken
        self._frame = b""
        self._frame_at = 0
        self._reply: list[bytes] = []
        self._taken = 0  # bytes of the present message
        self._due = 0.0  # when the present message must be complete; 0: not a byte of it is here

    # -- what is spoken ----------------------------------------------------------------------------------------

    def open(self) -> Any:
        """Wait for the first bytes and decide what is spoken; Thrift's protocol object, or None if nobody speaks."""
        self.begin()
        is_known = self._transport != "auto" and self._protocol != "auto"
        if not is_known and not self._receive(1):
            return None
        self._is_framed = self._transport == "framed" or (self._transport == "auto" and self._received[0] < _BINARY)
        is_compact = self._protocol == "compact"
        if self._protocol == "auto":
            at = _length.size if self._is_framed else 0
            if self._is_framed:
                self._check_length()
            if not self._receive(at + 1):
                raise BadMessage("the connection ended within the first message")
            is_compact = self._received[at] == _COMPACT
            if not is_compact and self._received[at] != _BINARY:
                raise BadMessage(f"a Thrift message begins with 80 or 82, not with {self._received[: at + 4].hex(' ')}")
        buffered: Any = TBufferedTransport  # which class depends on the platform
        self._buffer = buffered(self, BUFFER_BYTES) if CYTHON else buffered(self)
        return (TCompactProtocol if is_compact else TBinaryProtocol)(self._buffer)

    def _receive(self, size: int) -> bool:
        """Have at least ``size`` bytes in ``_received``; False when the client is gone before the first one."""
        while len(self._received) < size:
            data = self._recv(BUFFER_BYTES)
            if not data and not self._received:
                return False
            if not data:
                raise BadMessage("the connection ended within the first message")
            self._received += data
        return True

    # -- reading -----------------------------------------------------------------------------------------------

    def begin(self) -> None:
        """The next message starts: its bytes and its time are counted from here."""
        self._taken = 0
        self._due = 0.0
        if self._is_framed and self._frame:
            self._frame, self._frame_at = b"", 0
            self._buffer.clean()  # what was in the frame behind the message is nobody's

    def read(self, size: int) -> bytes:
        """At least one byte, at most ``size``; EOFError when the client has left between two messages."""
        return self._read_frame(size) if self._is_framed else self._read_stream(size)

    def _read_stream(self, size: int) -> bytes:
        if self._received:
            data, self._received = self._received[:size], self._received[size:]
        else:
            data = self._recv(min(size, BUFFER_BYTES))
        if not data:
            raise (
                BadMessage("the connection ended within a message") if self._taken else EOFError("the client has left")
            )
        self._taken += len(data)
        # The buffer may hold the beginning of the next message, too.
        if self._taken > self._bytes_max + BUFFER_BYTES:
            raise self._too_long(self._taken)
        return data

    def _read_frame(self, size: int) -> bytes:
        if not self._frame:
            if not self._receive(_length.size):
                raise EOFError("the client has left")
            length = self._check_length()
            body, self._received = self._received[4 : 4 + length], self._received[4 + length :]
            self._frame = body if len(body) == length else self._rest_of_frame(body, length)
        data = self._frame[self._frame_at : self._frame_at + size] if self._frame_at else self._frame[:size]
        if not data:
            raise BadMessage(f"a message goes on behind the end of its frame of {len(self._frame)} bytes")
        self._frame_at += len(data)
        return data

    def _check_length(self) -> int:
        self._receive(_length.size)
        length: int = _length.unpack_from(self._received)[0]
        if length <= 0:
            raise BadMessage(f"a frame of {length} bytes")
        if length > self._bytes_max:
            raise self._too_long(length)
        return length

    def _rest_of_frame(self, begun: bytes, length: int) -> bytes:
        pieces, missing = [begun], length - len(begun)
        while missing:
            data = self._recv(min(missing, 1 << 20))
            if not data:
                raise BadMessage(f"the connection ended {missing} bytes before the end of a frame")
            pieces.append(data)
            missing -= len(data)
        return b"".join(pieces)

    def _recv(self, size: int) -> bytes:
        if self._due and self._now() > self._due:
            raise BadMessage(f"a message was not complete after {self._message_s:g} s")
        data = self._socket.recv(size)
        if not self._due:
            self._due = self._now() + self._message_s
        return data

    def _too_long(self, length: int) -> BadMessage:
        return BadMessage(f"a message of {length} bytes or more: at most {self._bytes_max} are taken")

    # -- writing -----------------------------------------------------------------------------------------------

    def write(self, data: bytes) -> None:
        self._reply.append(data)

    def flush(self) -> None:
        """Send what was written, with its frame, in one call: two would wait for each other on a slow client."""
        pieces, self._reply = self._reply, []
        if self._is_framed:
            pieces.insert(0, _length.pack(sum(map(len, pieces))))
        self._socket.sendall(pieces[0] if len(pieces) == 1 else b"".join(pieces))

    def discard_reply(self) -> None:
        """Forget what was written and not sent."""
        self._reply.clear()
        self._buffer.clean()


def check_dialect(transport: str, protocol: str) -> None:
    """ConfigError for a transport or a protocol that there is not."""
    _check("transport", transport, TRANSPORTS)
    _check("protocol", protocol, PROTOCOLS)


def _check(name: str, value: str, allowed: tuple[str, ...]) -> None:
    if value not in allowed:
        raise ConfigError(f"{name} must be one of {', '.join(allowed)}, got {value!r}")
