"""A network that lies: each connection of the client runs through a proxy, and a lie decides about its bytes."""

from __future__ import annotations

import enum
import random
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

import pytest

__all__ = ["Lie", "LyingNetwork", "lying_network"]

#: The lies about single pieces concern one piece out of this many.
ONE_OF = 10
DELAY_S = 0.2
DRIP_S = 0.02
READ_S = 0.02
_JOIN_S = 5.0
_dial = socket.create_connection


class Lie(enum.Enum):
    """What happens to the bytes of a connection. Requests are never repeated or corrupted: no protocol detects that."""

    NONE = "all bytes arrive"
    DROP = "some replies do not arrive"
    REPEAT = "some replies arrive twice"
    DELAY = "some bytes arrive late"
    CUT = "some replies end in the middle, and so does the connection"
    CORRUPT = "one byte of some replies is another one"
    SWALLOW = "nothing arrives any more, and no connection ends"
    DRIP = "replies arrive byte by byte"
    READ_SLOWLY = "requests are read in small pieces, with pauses"


class LyingNetwork:
    """Dials instead of ``socket.create_connection``, through a proxy for each connection."""

    def __init__(self, seed: int) -> None:
        self.lie = Lie.NONE
        self._rng = random.Random(seed)
        self._is_over = threading.Event()
        self._lock = threading.Lock()
        # Guarded by the lock:
        self._threads: list[threading.Thread] = []
        self._sockets: list[socket.socket] = []

    def dial(self, address: tuple[str, int], *arguments: Any, **options: Any) -> socket.socket:
        """Return a socket whose other end is a proxy of the server at the address."""
        server = _dial(address, *arguments, **options)
        with socket.create_server(("127.0.0.1", 0)) as listener:
            client = _dial(listener.getsockname(), *arguments, **options)
            proxy, _ = listener.accept()
        for sock in (server, proxy, client):
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        server.settimeout(None)
        with self._lock:
            self._sockets += [server, proxy]
            for source, target, is_reply in ((proxy, server, False), (server, proxy, True)):
                thread = threading.Thread(target=self._forward, args=(source, target, is_reply), daemon=True)
                self._threads.append(thread)
                thread.start()
        return client

    def _forward(self, source: socket.socket, target: socket.socket, is_reply: bool) -> None:
        is_swallowed = False
        with suppress(OSError):
            while data := source.recv(1 << 14):
                if self.lie is Lie.READ_SLOWLY and not is_reply:
                    self._is_over.wait(READ_S)
                is_swallowed |= self.lie is Lie.SWALLOW  # for good: only a new connection helps
                if not is_swallowed and not self._pass_on(data, target, is_reply):
                    break
        for sock in (source, target):
            with suppress(OSError):
                sock.shutdown(socket.SHUT_RDWR)

    def _pass_on(self, data: bytes, target: socket.socket, is_reply: bool) -> bool:
        """Return False if the connection ends here."""
        lie = self.lie if self._rng.randrange(ONE_OF) == 0 or self.lie is Lie.DRIP else Lie.NONE
        if lie is Lie.DELAY:
            self._is_over.wait(DELAY_S)
        if not is_reply or lie in (Lie.NONE, Lie.DELAY, Lie.SWALLOW, Lie.READ_SLOWLY):
            target.sendall(data)
        elif lie is Lie.REPEAT:
            target.sendall(data + data)
        elif lie is Lie.CUT:
            target.sendall(data[: self._rng.randrange(len(data))])
            return False
        elif lie is Lie.CORRUPT:
            at = self._rng.randrange(len(data))
            target.sendall(data[:at] + bytes((data[at] ^ self._rng.randint(1, 255),)) + data[at + 1 :])
        elif lie is Lie.DRIP:
            for byte in data:
                target.sendall(bytes((byte,)))
                if self.lie is not Lie.DRIP or self._is_over.wait(DRIP_S):
                    return False
        return True

    def close(self) -> None:
        """End every connection and thread."""
        self._is_over.set()
        with self._lock:
            threads, sockets = self._threads, self._sockets
        for sock in sockets:
            with suppress(OSError):
                sock.shutdown(socket.SHUT_RDWR)
        for thread in threads:
            thread.join(_JOIN_S)
        for sock in sockets:
            sock.close()


@contextmanager
def lying_network(monkeypatch: pytest.MonkeyPatch, seed: int) -> Iterator[LyingNetwork]:
    """Every connection that is dialled meanwhile runs through the network."""
    network = LyingNetwork(seed)
    with monkeypatch.context() as patched:
        patched.setattr(socket, "create_connection", network.dial)
        try:
            yield network
        finally:
            network.close()
