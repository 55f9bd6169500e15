"""The messages of a SASL handshake of HBase's RPC, after the preamble and before the connection header.

::

    client     int32 length | token                                   an empty token has length 0
    challenge  int32 0 | int32 length > 0 | token
    switch     int32 0 | int32 -88                                    the server is not secure: continue as simple
    refusal    int32 1 | int32 length | class | int32 length | text   then the server closes; a null text has length -1

A refusal may arrive after the client has completed its part (HBASE SaslStatus.ERROR): it is sent unwrapped where
responses are expected. Its first four bytes, read as the length of a frame, are 1; no response and no wrapped message
is that short.
"""

from __future__ import annotations

from struct import Struct
from typing import Final

from metaclient.errors import AuthenticationFailed
from metaclient.protobuf import ProtocolError

__all__ = [
    "FRAME_REFUSED",
    "SASL_EXCEPTION",
    "STATUS_REFUSED",
    "STATUS_SUCCESS",
    "SWITCH_TO_SIMPLE",
    "TEXT_BYTES_MAX",
    "TOKEN_BYTES_MAX",
    "SaslRefused",
    "encode_challenge",
    "encode_refusal",
    "encode_token",
    "parse_refusal",
]

STATUS_SUCCESS, STATUS_REFUSED = 0, 1
#: SaslUtil.SWITCH_TO_SIMPLE_AUTH: a length that no token has.
SWITCH_TO_SIMPLE: Final = -88
#: The most bytes of a token. An AP-REQ has 700 bytes, or up to 64 KB with the groups of Active Directory.
TOKEN_BYTES_MAX: Final = 1024 * 1024
#: The most bytes of class or text of a refusal.
TEXT_BYTES_MAX: Final = 64 * 1024
#: The first bytes of a refusal.
FRAME_REFUSED: Final = b"\x00\x00\x00\x01"
#: The class of most refusals.
SASL_EXCEPTION: Final = "javax.security.sasl.SaslException"
_int = Struct(">i")


class SaslRefused(AuthenticationFailed):
    """A refusal in the words of a server: the Java class and the text. Servers raise it, clients read it."""

    def __init__(
        self,
        message: str = "",
        *,
        java_class_name: str = SASL_EXCEPTION,
        may_have_applied: bool = False,
        detail: str | None = None,
    ) -> None:
        super().__init__(message, detail=detail)
        self.java_class_name = java_class_name


def encode_token(token: bytes) -> bytes:
    """Return a token of the client with its length."""
    return _int.pack(len(token)) + token


def encode_challenge(token: bytes) -> bytes:
    """Return a challenge of the server."""
    return _int.pack(STATUS_SUCCESS) + encode_token(token)


def encode_refusal(java_class: str, text: str | None) -> bytes:
    """Return a refusal of the server.

    >>> encode_refusal("a.B", None).hex()
    '0000000100000003612e42ffffffff'
    """
    body = _int.pack(-1) if text is None else encode_token(text.encode())
    return FRAME_REFUSED + encode_token(java_class.encode()) + body


def parse_refusal(data: bytes) -> SaslRefused | None:
    """Return a refusal from the bytes that begin with its status; None while bytes are missing; ProtocolError."""
    parts: list[str] = []
    at = 4
    for _ in range(2):
        if len(data) < at + 4:
            return None
        (size,) = _int.unpack_from(data, at)
        at += 4
        if not -1 <= size <= TEXT_BYTES_MAX:
            raise ProtocolError(f"the refusal of a SASL handshake announces a text of {size} bytes")
        if len(data) < at + size:
            return None
        parts.append(data[at : at + max(0, size)].decode(errors="replace"))
        at += max(0, size)
    return SaslRefused(parts[1] or "no reason given", java_class_name=parts[0])
