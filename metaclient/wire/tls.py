"""TLS under the `Stream` protocol: a `Dial` that makes the handshake, and the encrypted stream."""

from __future__ import annotations

import contextlib
import select
import socket
import ssl
from collections.abc import Callable

from metaclient.errors import ServerUnreachable
from metaclient.runtime import close_descriptor, warn_in_loop
from metaclient.wire.stream import SLACK, TIMEOUT_S_MIN, Dial, connect_socket

__all__ = ["TlsStream", "tls_dial"]


class TlsStream:
    """A TLS socket as a `Stream`. OpenSSL needs Python's time-outs: one read may take several from the kernel."""

    __slots__ = ("_now", "_poll", "_socket", "_timeout_s")

    def __init__(self, sock: ssl.SSLSocket, now: Callable[[], float]) -> None:
        self._socket = sock
        self._now = now
        self._timeout_s = 0.0
        poll = select.poll()
        poll.register(sock, select.POLLIN)
        self._poll = poll.poll

    def read(self, size_max: int, deadline: float) -> bytes | None:
        if not self._set_timeout(deadline):
            return None
        warn_in_loop()
        try:
            return self._socket.recv(size_max)
        except TimeoutError:
            return None

    def write(self, data: bytes, deadline: float) -> None:
        # Not ``sendall``, whose time-out applies to each piece.
        view, sent = memoryview(data), 0
        while sent < len(data):
            if not self._set_timeout(deadline):
                raise TimeoutError(f"the peer accepted only {sent} of {len(data)} bytes before the deadline")
            sent += self._socket.send(view[sent:])

    def _set_timeout(self, deadline: float) -> bool:
        """Set the time-out of the next read or write; False if the deadline has passed."""
        left_s = deadline - self._now()
        if left_s <= 0:
            return False
        if not left_s * SLACK <= self._timeout_s <= left_s:
            self._timeout_s = max(left_s, TIMEOUT_S_MIN)
            self._socket.settimeout(self._timeout_s)
        return True

    def is_silent(self) -> bool:
        return not self._poll(0) and not self._socket.pending()

    def close(self) -> None:
        # SSLSocket.shutdown would drop the TLS state under a reader; only the TCP stream is shut down.
        with contextlib.suppress(OSError):
            socket.socket.shutdown(self._socket, socket.SHUT_RDWR)
        self._socket.close()

    def leave_to_parent(self) -> None:
        close_descriptor(self._socket)


def tls_dial(context: Callable[[], ssl.SSLContext]) -> Dial:
    """Return a `Dial` that connects with TLS; ``context`` is called per connection, so that new files are loaded."""

    def dial(host: str, port: int, now: Callable[[], float], deadline: float) -> TlsStream:
        try:
            sock = connect_socket(host, port, now, deadline)
            try:
                return TlsStream(context().wrap_socket(sock, server_hostname=host), now)
            except BaseException:
                sock.close()
                raise
        except OSError as error:  # ssl.SSLError is one
            raise ServerUnreachable(f"{host}:{port} cannot be reached: {error}") from error

    return dial
