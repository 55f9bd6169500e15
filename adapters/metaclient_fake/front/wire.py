"""Reads Thrift messages from one client's socket and writes each reply in one piece.

HBase's gateway uses one transport and one protocol (``-f`` framed, ``-c`` compact) and does not answer other clients.
This front detects the client's transport and protocol by the first bytes, unless they are configured:

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
A request is received and walked as a whole (:mod:`metaclient.wire.thrift.message_walk`) before thriftpy2 reads it, and
the incomplete requests of all clients share the bytes of ``pending``.
"""

from __future__ import annotations

from collections.abc import Callable
from struct import Struct
from typing import Any

from thriftpy2._compat import CYTHON
from thriftpy2.protocol import TBinaryProtocol, TCompactProtocol
from thriftpy2.transport import TBufferedTransport

from metaclient.errors import ConfigError
from metaclient.wire.listener import Client
from metaclient.wire.thrift.message_walk import MalformedMessage, walk_of
from metaclient_fake.front.pending_bytes import PendingBytes

__all__ = [
    "MESSAGE_BYTES_MAX",
    "MESSAGE_S",
    "PROTOCOLS",
    "TRANSPORTS",
    "BadMessage",
    "ClientTransport",
    "check_dialect",
]

#: hbase.regionserver.thrift.framed.max_frame_size_in_mb is 2; metaclient's write batches may be larger, so: 64 MB.
MESSAGE_BYTES_MAX = 64 << 20
MESSAGE_S = 60.0
TRANSPORTS = ("auto", "buffered", "framed")
PROTOCOLS = ("auto", "binary", "compact")
#: One read of a socket; a reply of more is put together from pieces of this size, and sent as one.
BUFFER_BYTES = 64 * 1024
#: The rest of a large frame is received in larger pieces.
_READ_BYTES_MAX = 1 << 18
_BINARY, _COMPACT = 0x80, 0x82
_length = Struct(">i")


class BadMessage(Exception):
    """The client's bytes are not a Thrift message that this front accepts; its connection is closed."""


class ClientTransport:
    """One client's transport, which Thrift's buffer reads from and writes to (``read``, ``write``, ``flush``)."""

    def __init__(
        self,
        sock: Client,
        *,
        now: Callable[[], float],
        pending: PendingBytes,
        transport: str = "auto",
        protocol: str = "auto",
        message_bytes_max: int = MESSAGE_BYTES_MAX,
        message_s: float = MESSAGE_S,
    ) -> None:
        check_dialect(transport, protocol)
        self._socket = sock
        self._now = now
        self._pending = pending
        self._transport, self._protocol = transport, protocol
        self._bytes_max, self._message_s = message_bytes_max, message_s
        self._is_framed = False
        self._is_compact = False
        self._received = bytearray()  # not yet taken
        self._message = b""  # the present message, as far as it was received as a whole
        self._message_at = 0
        self._reply: list[bytes] = []
        self._due = 0.0  # when the present message must be complete; 0: not a byte of it is here

    # -- what is spoken ----------------------------------------------------------------------------------------

    def open(self) -> Any:
        """Wait for the first bytes and detect the protocol; return Thrift's protocol object, None if none come."""
        self.begin()
        is_known = self._transport != "auto" and self._protocol != "auto"
        if not is_known and not self._receive(1):
            return None
        self._is_framed = self._transport == "framed" or (self._transport == "auto" and self._received[0] < _BINARY)
        self._is_compact = self._protocol == "compact"
        if self._protocol == "auto":
            at = _length.size if self._is_framed else 0
            if self._is_framed:
                self._check_length()
            if not self._receive(at + 1):
                raise BadMessage("the connection ended within the first message")
            self._is_compact = self._received[at] == _COMPACT
            if not self._is_compact and self._received[at] != _BINARY:
                raise BadMessage(
                    f"a Thrift message begins with 80 or 82, not with {bytes(self._received[: at + 4]).hex(' ')}"
                )
        buffered: Any = TBufferedTransport  # which class depends on the platform
        self._buffer = buffered(self, BUFFER_BYTES) if CYTHON else buffered(self)
        return (TCompactProtocol if self._is_compact else TBinaryProtocol)(self._buffer)

    def close(self) -> None:
        """Release the bytes of an incomplete message; the listener closes the socket."""
        self._received.clear()
        self._pending.hold(self._socket, 0)

    def _receive(self, size: int) -> bool:
        """Receive until ``_received`` has ``size`` bytes; return False if the client hangs up before the first."""
        while (missing := size - len(self._received)) > 0:
            data = self._recv(max(missing, BUFFER_BYTES))
            if not data and not self._received:
                return False
            if not data:
                raise BadMessage(f"the connection ended {missing} bytes or more before the end of a message")
            self._received += data
            self._pending.hold(self._socket, len(self._received))
        return True

    # -- reading -----------------------------------------------------------------------------------------------

    def begin(self) -> None:
        """Prepare for the next message: its bytes and its time are counted from here."""
        self._due = 0.0
        if self._message:
            self._message, self._message_at = b"", 0
            self._buffer.clean()  # bytes in the frame after the message are ignored

    def read(self, size: int) -> bytes:
        """Return 1 to ``size`` bytes; raise EOFError when the client has hung up between two messages."""
        if not self._message:
            self._message = self._framed_message() if self._is_framed else self._unframed_message()
            self._message_at = 0
            self._pending.hold(self._socket, len(self._received))
        data = self._message[self._message_at : self._message_at + size]
        if not data:
            raise BadMessage(f"a message of {len(self._message)} bytes could not be parsed")
        self._message_at += len(data)
        return data

    def _unframed_message(self) -> bytes:
        walk = walk_of(self._bytes_max, is_compact=self._is_compact)
        try:
            while (end := walk.end(self._received)) is None:
                if not self._receive(len(self._received) + 1):
                    raise EOFError("the client closed the connection")
        except MalformedMessage as error:
            raise BadMessage(str(error)) from error
        return self._take(0, end)

    def _framed_message(self) -> bytes:
        if not self._receive(_length.size):
            raise EOFError("the client closed the connection")
        length = self._check_length()
        self._receive(_length.size + length)
        frame = self._take(_length.size, _length.size + length)
        try:
            if walk_of(self._bytes_max, is_compact=self._is_compact).end(frame) is None:
                raise BadMessage(f"a message continues after the end of its frame of {length} bytes")
        except MalformedMessage as error:
            raise BadMessage(str(error)) from error
        return frame

    def _take(self, begin: int, end: int) -> bytes:
        with memoryview(self._received) as view:
            taken = bytes(view[begin:end])
        del self._received[:end]
        return taken

    def _check_length(self) -> int:
        self._receive(_length.size)
        length: int = _length.unpack_from(self._received)[0]
        if length <= 0:
            raise BadMessage(f"a frame of {length} bytes")
        if length > self._bytes_max:
            raise self._too_long(length)
        return length

    def _recv(self, size: int) -> bytes:
        if self._due and self._now() > self._due:
            raise BadMessage(f"a message was not complete after {self._message_s:g} s")
        data = self._socket.recv(min(size, _READ_BYTES_MAX))
        if not self._due:
            self._due = self._now() + self._message_s
        return data

    def _too_long(self, length: int) -> BadMessage:
        return BadMessage(f"a message of {length} bytes or more: at most {self._bytes_max} are taken")

    # -- writing -----------------------------------------------------------------------------------------------

    def write(self, data: bytes) -> None:
        self._reply.append(data)

    def flush(self) -> None:
        """Send the written bytes, with their frame, in one call: a second write would wait for an acknowledgement."""
        pieces, self._reply = self._reply, []
        if self._is_framed:
            pieces.insert(0, _length.pack(sum(map(len, pieces))))
        self._socket.sendall(pieces[0] if len(pieces) == 1 else b"".join(pieces))

    def discard_reply(self) -> None:
        """Discard the bytes that were written and not sent."""
        self._reply.clear()
        self._buffer.clean()


def check_dialect(transport: str, protocol: str) -> None:
    """Raise ConfigError for an unknown transport or protocol."""
    _check("transport", transport, TRANSPORTS)
    _check("protocol", protocol, PROTOCOLS)


def _check(name: str, value: str, allowed: tuple[str, ...]) -> None:
    if value not in allowed:
        raise ConfigError(f"{name} must be one of {', '.join(allowed)}, got {value!r}")
