"""The server's side of the beginning of a connection of HBase's RPC: preamble and connection header.

As in HBase 2.6: for an unknown codec or compressor the connection is closed without a response, Kerberos is answered
with "switch to simple", and the preamble of the registry with the cluster's id.
"""

from __future__ import annotations

import logging
from typing import NamedTuple, Protocol

from metaclient.protobuf import ProtocolError, encode
from metaclient.wire.rpc import framing
from metaclient.wire.rpc.cellblock import CODEC
from metaclient.wire.rpc.messages import GET_CONNECTION_REGISTRY_RESPONSE

__all__ = [
    "Connected",
    "Greeting",
    "allow_simple",
    "receive_exactly",
    "receive_greeting",
    "receive_header",
    "receive_preamble",
]

logger = logging.getLogger(__name__)

_CODECS = frozenset({CODEC, CODEC + "WithTags"})
#: A header holds a user, a service and class names.
_HEADER_BYTES_MAX = 64 * 1024
#: How much is received at a time: the memory of a long message is taken as its bytes arrive.
_READ_BYTES_MAX = 1 << 20
_FATAL = "org.apache.hadoop.hbase.ipc.FatalConnectionException"
_NOT_SECURE = "org.apache.hadoop.hbase.ipc.SecurityNotEnabledException"
#: The response of an insecure server to Kerberos: "switch to simple" (status 0, length -88).
_SWITCH_TO_SIMPLE = bytes.fromhex("00000000ffffffa8")


class Connected(Protocol):
    """A connected socket, or its simulation."""

    def recv(self, size: int, /) -> bytes: ...

    def sendall(self, data: bytes, /) -> None: ...


class Greeting(NamedTuple):
    """What a client has asked for: a service by its name, and cells in cell blocks or in messages.

    ``user`` is the name that the client gives itself: the user of simple authentication.
    """

    service: str
    has_codec: bool
    user: str | None = None


def receive_greeting(sock: Connected, cluster_id: str) -> Greeting | None:
    """Receive preamble and header of a client without authentication; None if the connection must be closed."""
    auth = receive_preamble(sock, cluster_id)
    if auth is None:
        return None
    allow_simple(sock, auth)
    return receive_header(sock)


def receive_header(sock: Connected) -> Greeting | None:
    """Receive the connection header, which follows the preamble and the authentication; None as in the preamble."""
    size = receive_exactly(sock, 4)
    length = int.from_bytes(size or b"", "big")
    if size is None or length > _HEADER_BYTES_MAX:
        return None
    data = receive_exactly(sock, length)
    if data is None:
        return None
    try:
        header = framing.parse_connection_header(data)
    except ProtocolError as error:
        logger.debug("a client sent an invalid connection header: %s", error)
        return None
    codec = header.get("cell_block_codec_class")
    if header.get("cell_block_compressor_class") or (codec and codec not in _CODECS):
        logger.debug("a client wants codec %s, compressor %s", codec, header.get("cell_block_compressor_class"))
        return None
    user = header.get("user_info", {}).get("effective_user")
    return Greeting(header.get("service_name", ""), bool(codec), user or None)


def receive_preamble(sock: Connected, cluster_id: str) -> int | None:
    """Receive the preamble; return the code of its authentication, None if the connection must be closed."""
    while True:
        data = receive_exactly(sock, framing.PREAMBLE_BYTES)
        if data is None:
            return None
        try:
            preamble = framing.parse_preamble(data)
        except ProtocolError as error:
            sock.sendall(_refusal(_FATAL, str(error)))
            return None
        if preamble.special == framing.REGISTRY_PREAMBLE:
            param = encode(GET_CONNECTION_REGISTRY_RESPONSE, {"cluster_id": cluster_id})
            sock.sendall(framing.response(framing.CONNECTION_CALL_ID, param))
            return None
        if preamble.special:
            sock.sendall(_refusal(_NOT_SECURE, "security is not enabled"))
            continue
        return preamble.auth


def allow_simple(sock: Connected, auth: int) -> None:
    """Let a client that asked for another authentication go on without one."""
    if auth != framing.AUTH_SIMPLE:
        sock.sendall(_SWITCH_TO_SIMPLE)


def _refusal(java_class: str, text: str) -> bytes:
    return framing.error_response(framing.CONNECTION_CALL_ID, java_class, f"{java_class}: {text}", do_not_retry=True)


def receive_exactly(sock: Connected, count: int) -> bytes | None:
    """Receive ``count`` bytes; return None when the client hangs up before."""
    parts: list[bytes] = []
    while count:
        part = sock.recv(min(count, _READ_BYTES_MAX))
        if not part:
            return None
        parts.append(part)
        count -= len(part)
    return parts[0] if len(parts) == 1 else b"".join(parts)
