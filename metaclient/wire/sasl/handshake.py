"""Runs a SASL mechanism on a stream, for the client: preamble, tokens, challenges, refusals."""

from __future__ import annotations

import enum
from collections.abc import Callable

from metaclient.errors import AuthenticationFailed, ServerUnreachable
from metaclient.protobuf import ProtocolError
from metaclient.wire.sasl import messages
from metaclient.wire.sasl.mechanism import Mechanism
from metaclient.wire.stream import Stream

__all__ = ["CHALLENGES_MAX", "Negotiated", "negotiate", "read_exactly", "read_refusal"]

#: The most challenges of one handshake: GSSAPI needs two, DIGEST-MD5 two.
CHALLENGES_MAX = 8


class Negotiated(enum.Enum):
    """The end of a handshake that did not fail."""

    AUTHENTICATED = "authenticated"
    SIMPLE = "simple"  # the server is not secure: the connection continues without authentication


def negotiate(
    stream: Stream, mechanism: Mechanism, *, preamble: bytes, now: Callable[[], float], deadline: float
) -> Negotiated:
    """Send the preamble and run the handshake.

    AuthenticationFailed if the server refuses (`SaslRefused`) or the mechanism fails; ServerUnreachable if the
    connection ends or the deadline passes; ProtocolError for bytes that are no handshake.
    """
    try:
        stream.write(preamble + messages.encode_token(mechanism.begin()), deadline)
        for _ in range(CHALLENGES_MAX):
            challenge = _read_challenge(stream, now, deadline)
            if challenge is None:
                return Negotiated.SIMPLE
            token = mechanism.step(challenge)
            if token is not None:
                stream.write(messages.encode_token(token), deadline)
            if mechanism.is_complete:
                return Negotiated.AUTHENTICATED
    except (OSError, EOFError) as error:
        raise ServerUnreachable(f"the connection ended during authentication: {error}") from error
    raise AuthenticationFailed(f"the server sent more than {CHALLENGES_MAX} challenges")


def _read_challenge(stream: Stream, now: Callable[[], float], deadline: float) -> bytes | None:
    """Return a challenge; None if the server is not secure."""
    status = _read_int(stream, now, deadline)
    if status == messages.STATUS_REFUSED:
        raise read_refusal(stream, messages.FRAME_REFUSED, now, deadline)
    if status != messages.STATUS_SUCCESS:
        raise ProtocolError(f"the server answered to authentication with {status & 0xFFFFFFFF:08x}, which is no status")
    size = _read_int(stream, now, deadline)
    if size == messages.SWITCH_TO_SIMPLE:
        return None
    if not 0 <= size <= messages.TOKEN_BYTES_MAX:
        raise ProtocolError(f"a challenge of {size} bytes: allowed are 0 to {messages.TOKEN_BYTES_MAX}")
    return read_exactly(stream, size, now, deadline)


def read_refusal(stream: Stream, begun: bytes, now: Callable[[], float], deadline: float) -> messages.SaslRefused:
    """Return the refusal that begins with the bytes ``begun``; the rest is read. The text may be cut by the end."""
    data = begun
    while (refused := messages.parse_refusal(data)) is None:
        try:
            more = _read_some(stream, messages.TEXT_BYTES_MAX, now, deadline)
        except (OSError, EOFError):
            text = "the server refused, and the connection ended before its reason was complete"
            return messages.SaslRefused(text)
        data += more
    return refused


def _read_int(stream: Stream, now: Callable[[], float], deadline: float) -> int:
    return int.from_bytes(read_exactly(stream, 4, now, deadline), "big", signed=True)


def read_exactly(stream: Stream, size: int, now: Callable[[], float], deadline: float) -> bytes:
    """Return ``size`` bytes; TimeoutError at the deadline, EOFError at the end."""
    data = b""
    while len(data) < size:
        data += _read_some(stream, size - len(data), now, deadline)
    return data


def _read_some(stream: Stream, size_max: int, now: Callable[[], float], deadline: float) -> bytes:
    while (data := stream.read(size_max, deadline)) is None:
        if now() >= deadline:
            raise TimeoutError("the server did not answer in time")
    if not data:
        raise EOFError("the server closed the connection")
    return data
