"""Further ways to a served fake: HTTP and TLS in front of its Thrift 2 gateway, and a ZooKeeper for its RPC."""

from __future__ import annotations

import socket
import ssl
import struct
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from metaclient.runtime import ThreadRuntime
from metaclient.wire.listener import Listener

__all__ = ["ZooKeeper", "http_bridge", "tls_bridge"]

WAIT_S = 30.0
_int, _long = struct.Struct(">i"), struct.Struct(">q")


@contextmanager
def http_bridge(port: int) -> Iterator[int]:
    """A port that takes Thrift calls as POSTs and passes them on to the gateway at ``port``, framed."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            with socket.create_connection(("127.0.0.1", port), WAIT_S) as sock:
                sock.sendall(_int.pack(len(body)) + body)
                answer = _exactly(sock, _int.unpack(_exactly(sock, 4))[0])
            self.send_response(200)
            self.send_header("Content-Length", str(len(answer)))
            self.end_headers()
            self.wfile.write(answer)

        def log_message(self, format: str, *args: object) -> None:
            """Not into the test's output."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield server.server_port
    finally:
        server.shutdown()
        server.server_close()
        thread.join(WAIT_S)


@contextmanager
def tls_bridge(port: int, certificate: tuple[Path, Path], ends: list[str]) -> Iterator[int]:
    """A port that speaks TLS and passes the bytes on to ``port``; ``ends`` collects how each client ended."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(*certificate)

    def serve(sock: socket.socket) -> None:
        with (
            context.wrap_socket(sock.dup(), server_side=True, suppress_ragged_eofs=False) as client,
            socket.create_connection(("127.0.0.1", port), WAIT_S) as gateway,
        ):
            back = runtime.start(_pump, gateway.recv, client.sendall)
            try:
                _pump(client.recv, gateway.sendall)
                ends.append("close-notify")
            except OSError as error:
                ends.append(type(error).__name__)
            gateway.shutdown(socket.SHUT_RDWR)
            runtime.wait_first((back,), runtime.now() + WAIT_S)

    with (
        ThreadRuntime(name="tls") as runtime,
        Listener("127.0.0.1", 0, runtime=runtime, name="tls", serve=serve) as listener,
    ):
        yield listener.port


def _pump(read: Callable[[int], bytes], write: Callable[[bytes], object]) -> None:
    while data := read(65536):
        write(data)


def _exactly(sock: socket.socket, size: int) -> bytes:
    parts = b""
    while len(parts) < size:
        part = sock.recv(size - len(parts))
        if not part:
            raise EOFError(f"{size - len(parts)} bytes are missing")
        parts += part
    return parts


class ZooKeeper:
    """A ZooKeeper that answers getChildren, getData, ping and closeSession of clients that only read.

    ``sessions`` counts those that were opened, ``closed`` those that said goodbye.
    """

    PING, GET_DATA, GET_CHILDREN, CLOSE = 11, 4, 8, -11
    NO_NODE = -101

    def __init__(self, nodes: Mapping[str, bytes]) -> None:
        self._nodes = dict(nodes)
        self.sessions = 0
        self.closed = 0
        self._runtime = ThreadRuntime(name="zookeeper")
        self._listener = Listener("127.0.0.1", 0, runtime=self._runtime, name="zookeeper", serve=self._serve)
        self.port = self._listener.port

    def close(self) -> None:
        self._listener.close()
        self._runtime.close()

    def _serve(self, sock: socket.socket) -> None:
        try:
            self._open(sock)
            while self._answered(sock, _exactly(sock, _int.unpack(_exactly(sock, 4))[0])):
                pass
        except EOFError:
            return  # the client is gone

    def _open(self, sock: socket.socket) -> None:
        _exactly(sock, _int.unpack(_exactly(sock, 4))[0])
        self.sessions += 1
        answer = struct.pack(">iiq", 0, 30_000, self.sessions) + _buffer(bytes(16)) + b"\0"
        sock.sendall(_buffer(answer))

    def _answered(self, sock: socket.socket, request: bytes) -> bool:
        xid, kind = struct.unpack(">ii", request[:8])
        error, body = 0, b""
        if kind == self.CLOSE:
            self.closed += 1
        elif kind in (self.GET_DATA, self.GET_CHILDREN):
            size = _int.unpack(request[8:12])[0]
            path = request[12 : 12 + size].decode()
            if kind == self.GET_CHILDREN:
                names = [node.rpartition("/")[2] for node in self._nodes if node.rpartition("/")[0] == path]
                body = _int.pack(len(names)) + b"".join(_buffer(name.encode()) for name in names)
            elif path in self._nodes:
                body = _buffer(self._nodes[path]) + bytes(68)  # a Stat of zeros
            else:
                error = self.NO_NODE
        elif kind != self.PING:
            raise AssertionError(f"the test's ZooKeeper does not know operation {kind}")
        sock.sendall(_buffer(_int.pack(xid) + _long.pack(1) + _int.pack(error) + body))
        return kind != self.CLOSE


def _buffer(data: bytes) -> bytes:
    return _int.pack(len(data)) + data
