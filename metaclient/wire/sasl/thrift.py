"""SASL on Thrift's connections (TSaslClientTransport of Apache Thrift): the client's handshake and the frames after it.

::

    message  byte status | int32 length | bytes       1 START, 2 OK, 3 BAD, 4 ERROR, 5 COMPLETE
    data     int32 length | bytes                     in both directions, wrapped if a layer was agreed on

The client sends START with the mechanism's name and OK with the first token; the server answers OK with a challenge
until it sends COMPLETE, or BAD or ERROR with a text.
"""

from __future__ import annotations

from collections.abc import Callable
from struct import Struct
from typing import Final

from metaclient.errors import AuthenticationFailed, ServerUnreachable
from metaclient.protobuf import ProtocolError
from metaclient.wire.sasl.handshake import CHALLENGES_MAX, read_exactly
from metaclient.wire.sasl.mechanism import Mechanism
from metaclient.wire.sasl.messages import TOKEN_BYTES_MAX
from metaclient.wire.stream import Stream

__all__ = ["PlainLayer", "negotiate_thrift"]

_START, _OK, _BAD, _ERROR, _COMPLETE = 1, 2, 3, 4, 5
_head = Struct(">Bi")
_TEXT_CHARS_MAX: Final = 300


class PlainLayer:
    """The layer of protection "authentication": the data of a frame is sent as it is."""

    def wrap(self, data: bytes) -> bytes:
        return data

    def unwrap(self, data: bytes) -> bytes:
        return data


def encode_message(status: int, data: bytes) -> bytes:
    return _head.pack(status, len(data)) + data


def negotiate_thrift(
    stream: Stream, mechanism: Mechanism, *, name: bytes, now: Callable[[], float], deadline: float
) -> None:
    """Run the handshake.

    AuthenticationFailed if the gateway refuses or the mechanism fails; ServerUnreachable if the connection ends or the
    deadline passes; ProtocolError for bytes that are no handshake.
    """
    try:
        stream.write(encode_message(_START, name) + encode_message(_OK, mechanism.begin()), deadline)
        for _ in range(CHALLENGES_MAX):
            status, data = _read_message(stream, now, deadline)
            if status == _COMPLETE:
                if not mechanism.is_complete:
                    raise AuthenticationFailed("the gateway ended the handshake before it proved its identity")
                return
            token = mechanism.step(data)
            stream.write(encode_message(_OK, token or b""), deadline)
    except (OSError, EOFError) as error:
        raise ServerUnreachable(f"the connection ended during authentication: {error}") from error
    raise AuthenticationFailed(f"the gateway sent more than {CHALLENGES_MAX} challenges")


def _read_message(stream: Stream, now: Callable[[], float], deadline: float) -> tuple[int, bytes]:
    status, size = _head.unpack(read_exactly(stream, _head.size, now, deadline))
    if status not in (_OK, _BAD, _ERROR, _COMPLETE) or not 0 <= size <= TOKEN_BYTES_MAX:
        raise ProtocolError(f"the answer to authentication begins with {status:02x}{size & 0xFFFFFFFF:08x}")
    data = read_exactly(stream, size, now, deadline)
    if status in (_BAD, _ERROR):
        text = " ".join(data.decode(errors="replace").split())[:_TEXT_CHARS_MAX]
        raise AuthenticationFailed(text or "no reason given")
    return status, data
