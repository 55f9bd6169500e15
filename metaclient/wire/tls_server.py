"""The server's side of TLS: a client's socket whose bytes are encrypted, for several threads that send responses."""

from __future__ import annotations

import select
import ssl
from collections.abc import Callable
from typing import cast

from metaclient.errors import ConfigError
from metaclient.wire.listener import Client
from metaclient.wire.tls_layer import READ_BYTES, MakeLock, TlsLayerStream

__all__ = ["make_server_context", "serve_tls"]

#: The longest handshake (hbase.server.netty.tls.handshaketimeout of HBase 2.6).
HANDSHAKE_S_MAX = 5.0
#: The time and the reads for what a client has sent before it got the alert that ends its handshake.
DRAIN_S_MAX = 1.0
DRAIN_READS_MAX = 64
_FOREVER = float("inf")


def make_server_context(certificate: str, key: str | None = None, client_ca: str | None = None) -> ssl.SSLContext:
    """Return a context for TLS 1.2 and 1.3 from PEM files. With ``client_ca`` clients need a certificate of it."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    try:
        context.load_cert_chain(certificate, key, password=lambda: "")
        if client_ca is not None:
            context.load_verify_locations(client_ca)
            context.verify_mode = ssl.CERT_REQUIRED
    except OSError as error:  # ssl.SSLError is one
        reason = getattr(error, "reason", None) or error.strerror or str(error)
        files = ", ".join(file for file in (certificate, key, client_ca) if file)
        raise ConfigError(
            f"{files}: cannot be used for TLS: {reason}; PEM files are needed: the certificate with its chain and key "
            "(without a password), and the authority of the clients"
        ) from error
    return context


def serve_tls(
    serve: Callable[[Client], None], context: ssl.SSLContext, make_lock: MakeLock, now: Callable[[], float]
) -> Callable[[Client], None]:
    """Return a function that makes TLS with a client and then serves it; OSError if the handshake fails."""

    def serve_encrypted(sock: Client) -> None:
        below = _SocketAsStream(sock, now)
        stream = TlsLayerStream(below, context, None, make_lock, address="the client")
        try:
            stream.handshake(now, now() + HANDSHAKE_S_MAX)
        except ssl.SSLError as error:
            if "CERTIFICATE" in (error.reason or ""):  # else the client speaks no TLS, and waits for an answer
                _drain(below, now() + DRAIN_S_MAX)
            raise
        serve(cast("Client", _TlsClient(sock, stream)))

    return serve_encrypted


def _drain(below: _SocketAsStream, deadline: float) -> None:
    """Read until the client hangs up: closing before that would discard the alert on its way.

    With TLS 1.3 a client that was refused has sent its first request already.
    """
    for _ in range(DRAIN_READS_MAX):
        if not below.read(READ_BYTES, deadline):
            return


class _SocketAsStream:
    """A client's socket as the `Stream` below TLS; after the handshake, its own time-outs count."""

    def __init__(self, sock: Client, now: Callable[[], float]) -> None:
        self._socket = sock
        self._now = now
        self._poll = select.poll()
        self._poll.register(sock, select.POLLIN)

    def read(self, size_max: int, deadline: float) -> bytes | None:
        if deadline != _FOREVER and not self._poll.poll(max(0.0, deadline - self._now()) * 1000):
            return None
        return self._socket.recv(size_max)

    def write(self, data: bytes, deadline: float) -> None:
        self._socket.sendall(data)

    def is_silent(self) -> bool:
        return not self._poll.poll(0)

    def close(self) -> None:
        self._socket.close()

    def leave_to_parent(self) -> None:
        """Nothing: the listener closes the descriptor."""


class _TlsClient:
    """The methods of a socket that fronts call."""

    def __init__(self, sock: Client, stream: TlsLayerStream) -> None:
        self._socket = sock
        self._stream = stream

    def recv(self, size: int) -> bytes:
        return self._stream.read(size, _FOREVER) or b""

    def sendall(self, data: bytes) -> None:
        self._stream.write(data, _FOREVER)

    def shutdown(self, how: int) -> None:
        self._socket.shutdown(how)

    def close(self) -> None:
        self._socket.close()

    def getsockname(self) -> object:
        return self._socket.getsockname()

    def getpeername(self) -> object:
        return self._socket.getpeername()
