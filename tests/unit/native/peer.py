"""A server for one test: a listening socket whose connections do what the test says, byte for byte."""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

from metaclient.runtime import ThreadRuntime
from metaclient.wire.rpc import framing
from metaclient_native.request import ServiceAddress

#: Nothing here takes a second; a machine that is busy with other things may.
WAIT_S = 60.0


class Caller:
    """One accepted connection, from the server's side."""

    def __init__(self, sock: socket.socket) -> None:
        self.sock = sock
        self.sock.settimeout(WAIT_S)
        self.header: dict[str, object] = {}
        self._frames = framing.FrameReader()
        self._ready: list[bytes] = []
        self.first_read = b""

    def handshake(self) -> None:
        """Preamble and header; what came behind them in the same piece is kept."""
        data = b""
        while len(data) < framing.PREAMBLE_BYTES + 4:
            data += self._read()
        framing.parse_preamble(data[: framing.PREAMBLE_BYTES])
        self.first_read = data
        size = int.from_bytes(data[6:10], "big")
        while len(data) < 10 + size:
            data += self._read()
        self.header = framing.parse_connection_header(data[10 : 10 + size])
        self._ready += self._frames.feed(data[10 + size :])

    def _read(self) -> bytes:
        data = self.sock.recv(65536)
        if not data:
            raise ConnectionResetError("the client hung up")
        return data

    def request(self) -> framing.ReceivedRequest:
        while not self._ready:
            self._ready += self._frames.feed(self._read())
        return framing.parse_request(self._ready.pop(0))

    def answer(self, call_id: int, param: bytes = b"", cells: bytes = b"") -> None:
        self.sock.sendall(framing.response(call_id, param, cells))

    def refuse(self, call_id: int, java_class: str, text: str, *, do_not_retry: bool = False) -> None:
        self.sock.sendall(framing.error_response(call_id, java_class, text, do_not_retry=do_not_retry))


class Peer:
    """``script`` gets each connection in turn, after its handshake unless ``is_raw``."""

    def __init__(self, runtime: ThreadRuntime, script: Callable[[Caller], None], *, is_raw: bool = False) -> None:
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self.address = ServiceAddress("127.0.0.1", self.port, "ClientService")
        self._script = script
        self._is_raw = is_raw
        self.accepted = 0
        self._callers: list[Caller] = []
        self._runtime = runtime
        runtime.start_daemon(self._accept, name="peer")

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                sock, _ = self._listener.accept()
                caller = Caller(sock)
                self._callers.append(caller)
                self.accepted += 1
                self._runtime.start_daemon(self._serve, caller, name="peer-connection")

    def _serve(self, caller: Caller) -> None:
        with suppress(OSError):
            if not self._is_raw:
                caller.handshake()
            self._script(caller)
        caller.sock.close()

    def close(self) -> None:
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        for caller in self._callers:
            with suppress(OSError):
                caller.sock.shutdown(socket.SHUT_RDWR)


@contextmanager
def serving(runtime: ThreadRuntime, script: Callable[[Caller], None], *, is_raw: bool = False) -> Iterator[Peer]:
    peer = Peer(runtime, script, is_raw=is_raw)
    try:
        yield peer
    finally:
        peer.close()


def echo(caller: Caller) -> None:
    """A script: the answer to each call is its parameter."""
    while True:
        request = caller.request()
        caller.answer(request.call_id, request.param)


def text(response: framing.Response) -> bytes:
    """How tests understand an answer."""
    return response.param
