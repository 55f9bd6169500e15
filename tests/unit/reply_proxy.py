"""A TCP proxy that repeats, drops and replaces the replies of the server behind it."""

from __future__ import annotations

import enum
import socket
import ssl
import threading
from collections.abc import Callable
from contextlib import suppress
from itertools import count

__all__ = ["Fate", "ReplyProxy"]


class Fate(enum.Enum):
    """What happens to one reply on its way to the client."""

    PASS = "it arrives"
    REPEAT = "it arrives twice, at once"
    REPEAT_LATE = "it arrives, and once more right before the next reply of its connection"
    REPLACE = "the reply before it arrives again, in its place"
    DROP = "it does not arrive"


class ReplyProxy:
    """Listens on a port of its own and forwards to ``port``; ``fate`` decides about each reply, by its number.

    Replies are small and come one at a time, so that what one ``recv`` returns is one reply. With ``tls`` clients must
    speak TLS; the server behind does not.
    """

    def __init__(self, port: int, fate: Callable[[int], Fate], *, tls: ssl.SSLContext | None = None) -> None:
        self._server = ("127.0.0.1", port)
        self._fate = fate
        self._tls = tls
        self._numbers = count()
        self._sockets: list[socket.socket] = []
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self.connections = 0
        self._start(self._accept)

    def _start(self, function: Callable[..., None], *args: object) -> None:
        threading.Thread(target=function, args=args, daemon=True).start()

    def _accept(self) -> None:
        with suppress(OSError):  # close() ends it
            while True:
                client, _ = self._listener.accept()
                client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                self._start(self._serve, client)

    def _serve(self, client: socket.socket) -> None:
        with suppress(OSError):
            if self._tls is not None:
                client = self._tls.wrap_socket(client, server_side=True)
            server = socket.create_connection(self._server)
            server.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self.connections += 1
            self._sockets += [client, server]
            self._start(self._forward_requests, client, server)
            self._forward_replies(server, client)

    def _forward_requests(self, client: socket.socket, server: socket.socket) -> None:
        with suppress(OSError):
            while data := client.recv(1 << 20):
                server.sendall(data)
        self._end(server)

    def _forward_replies(self, server: socket.socket, client: socket.socket) -> None:
        late = before = b""
        with suppress(OSError):
            while reply := server.recv(1 << 20):
                fate = self._fate(next(self._numbers))
                if fate is Fate.REPLACE:
                    client.sendall(before or reply)
                elif fate is not Fate.DROP:
                    client.sendall(late + reply + (reply if fate is Fate.REPEAT else b""))
                late = reply if fate is Fate.REPEAT_LATE else b""
                before = reply
        self._end(client)

    def _end(self, sock: socket.socket) -> None:
        with suppress(OSError):
            sock.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        """Stop listening and end every connection."""
        self._end(self._listener)
        self._listener.close()
        for sock in self._sockets:
            self._end(sock)
            sock.close()
