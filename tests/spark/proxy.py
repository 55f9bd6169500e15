"""A TCP proxy in front of a gateway that can hang up, or let something happen, in the middle of an answer."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable
from contextlib import suppress
from urllib.parse import urlsplit


class Proxy:
    """Forwards to ``url``; ``on_answer(bytes so far)`` is called before each piece of an answer is passed on.

    It returns True to hang up on that connection. ``refuse`` makes every further connection fail.
    """

    def __init__(self, url: str, on_answer: Callable[[int], bool]) -> None:
        self._target = (urlsplit(url).hostname or "", urlsplit(url).port or 0)
        self._on_answer = on_answer
        self._lock = threading.Lock()
        self._answered = 0
        self.connections = 0
        self.refuse = False
        self._socket = socket.create_server(("127.0.0.1", 0))
        self._open: list[socket.socket] = []
        self.url = f"thrift2://127.0.0.1:{self._socket.getsockname()[1]}"
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self) -> None:
        self.refuse = True
        self._socket.close()
        for one in list(self._open):
            _hang_up(one)

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._socket.accept()
            except OSError:
                return
            if self.refuse:
                client.close()
                continue
            self.connections += 1
            server = socket.create_connection(self._target)
            self._open += [client, server]
            threading.Thread(target=self._forward, args=(client, server), daemon=True).start()
            threading.Thread(target=self._answer, args=(server, client), daemon=True).start()

    def _forward(self, source: socket.socket, target: socket.socket) -> None:
        with suppress(OSError):
            while data := source.recv(1 << 16):
                target.sendall(data)
        _hang_up(source, target)

    def _answer(self, source: socket.socket, target: socket.socket) -> None:
        with suppress(OSError):
            while data := source.recv(1 << 12):
                with self._lock:
                    self._answered += len(data)
                    is_over = self._on_answer(self._answered)
                if is_over:
                    break
                target.sendall(data)
        _hang_up(source, target)


def _hang_up(*sockets: socket.socket) -> None:
    for one in sockets:
        with suppress(OSError):
            one.shutdown(socket.SHUT_RDWR)
        one.close()
