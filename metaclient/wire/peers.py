"""Finds the protocol of a server that does not speak the protocol of the url, so that an error can name the right url.

:func:`recognise_peer` looks at the first bytes that the server has sent, and :func:`probe_peer` sends requests. Probing
sends the call ``getThriftServerType`` in each dialect of Thrift, each on a new connection, and an HTTP request last.
Servers of another protocol hang up or answer in their own; no request here changes anything on a server.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import NamedTuple

from metaclient.errors import ServerUnreachable
from metaclient.wire.stream import Dial, dial

__all__ = ["ServerKind", "describe_peer", "probe_peer", "recognise_peer"]

#: Per dialect. A gateway answers this call without HBase.
PROBE_S_MAX = 0.5
#: Enough to recognise an answer; an error page is longer.
_FIRST_BYTES = 4096
_METHOD = b"getThriftServerType"
_BINARY_CALL = b"\x80\x01\x00\x01" + len(_METHOD).to_bytes(4, "big") + _METHOD + b"\0\0\0\1\0"
_COMPACT_CALL = b"\x82\x21\x01" + bytes([len(_METHOD)]) + _METHOD + b"\0"
_HTTP_REQUEST = b"GET / HTTP/1.0\r\n\r\n"
#: Texts in the answer of HBase's RPC to a wrong preamble (ServerRpcConnection.doBadPreambleHandling).
_RPC_REFUSALS = (b"FatalConnectionException", b"BadAuthException", b"Expected HEADER=")
_EXCEPTION_TYPE = 3


class ServerKind(NamedTuple):
    """A server's protocol: its description, the schemes of fitting urls, their options, and the condition for them."""

    what: str
    schemes: tuple[str, ...]
    options: str = ""
    condition: str = ""


_HTTP = ServerKind(
    "an HTTP server", ("thrift2+http",), condition=" if it is a Thrift gateway in HTTP mode, else another port"
)
_RPC = ServerKind("a master or region server of HBase", ("hbase+rpc",))
_TLS = ServerKind(
    "a server that wants TLS", ("thrift2+tls",), condition=" if it is a Thrift gateway, else another port"
)


def recognise_peer(first: bytes) -> ServerKind | None:
    """Return the protocol of a server whose answer begins with these bytes; None if it is unknown.

    >>> recognise_peer(b"HTTP/1.1 400 Bad Request").what
    'an HTTP server'
    """
    if first.startswith((b"HTTP/", b"<!DOCTYPE", b"<html")):
        return _HTTP
    if first.startswith(b"\x15\x03"):
        return _TLS
    if any(text in first[:_FIRST_BYTES] for text in _RPC_REFUSALS):
        return _RPC
    return _recognise_gateway(first, "") or _recognise_gateway(first[4:], "transport=framed")


def _recognise_gateway(message: bytes, transport: str) -> ServerKind | None:
    """Return the kind of Thrift gateway that sent this message; None if it is no Thrift message."""
    if message.startswith(b"\x80\x01\x00"):
        protocol, kind, value = "", message[3], message[-2:-1]
    elif message.startswith(b"\x82") and len(message) > 1 and message[1] & 0x1F == 1:
        protocol, kind, value = "protocol=compact", message[1] >> 5, bytes(one // 2 for one in message[-2:-1])
    else:
        return None
    is_known = _METHOD in message and kind != _EXCEPTION_TYPE and value in (b"\1", b"\2")
    number = value[0] if is_known else None  # gateways before 2.3 do not have the call
    options = "&".join(option for option in (transport, protocol) if option)
    ways = " and ".join(option.partition("=")[2] for option in (transport, protocol) if option) or "unframed and binary"
    name = f"a Thrift {number} gateway" if number else "a Thrift gateway"
    return ServerKind(f"{name} ({ways})", (f"thrift{number}",) if number else ("thrift1", "thrift2"), options)


def describe_peer(address: str, peer: ServerKind) -> str:
    """Return a sentence with the protocol of the server and the url to write."""
    query = f"?{peer.options}" if peer.options else ""
    urls = " or ".join(f"{scheme}://{address}{query}" for scheme in peer.schemes)
    return f"{address} is {peer.what}: write {urls}{peer.condition}"


def probe_peer(
    host: str, port: int, *, now: Callable[[], float], deadline: float, dial: Dial = dial
) -> ServerKind | None:
    """Send requests of several protocols; return the server's, None if it is silent, unreachable or unknown."""
    calls = [framed(call) for call in (_BINARY_CALL, _COMPACT_CALL) for framed in (_leave_unframed, _prefix_length)]
    for request in (*calls, _HTTP_REQUEST):
        if now() >= deadline:
            return None
        first = _ask(host, port, request, now, min(deadline, now() + PROBE_S_MAX), dial)
        found = recognise_peer(first) if first else None
        if found is not None:
            return found
    return None


def _leave_unframed(message: bytes) -> bytes:
    return message


def _prefix_length(message: bytes) -> bytes:
    return len(message).to_bytes(4, "big") + message


def _ask(host: str, port: int, request: bytes, now: Callable[[], float], deadline: float, dial: Dial) -> bytes:
    """Return the first bytes of the answer to a request; b"" when there is none."""
    with contextlib.suppress(OSError, ServerUnreachable), contextlib.closing(dial(host, port, now, deadline)) as stream:
        stream.write(request, deadline)
        return stream.read(_FIRST_BYTES, deadline) or b""
    return b""
