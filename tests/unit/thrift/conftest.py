"""A small Thrift 2 gateway in this process: it answers what a test tells it to, over real sockets."""

from __future__ import annotations

import logging
import shutil
import socket
import ssl
import subprocess
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from thriftpy2.protocol import TBinaryProtocol, TBinaryProtocolFactory, TCompactProtocolFactory
from thriftpy2.server import TThreadedServer
from thriftpy2.thrift import TProcessor
from thriftpy2.transport import TBufferedTransportFactory, TFramedTransportFactory, TMemoryBuffer, TServerSocket

from metaclient.runtime import ThreadRuntime
from metaclient.wire.thrift.idl import thrift2

T = thrift2()
# Tests break connections on purpose: what the stand-in's threads have to say about that is noise.
logging.getLogger("thriftpy2.server").disabled = True
LONG_S = 60.0


class Gateway:
    """Serves one table of rows; ``hooks`` replace methods; ``calls`` counts them."""

    def __init__(
        self,
        *,
        is_framed: bool = False,
        is_compact: bool = False,
        name: bytes = b"gw",
        tls: ssl.SSLContext | None = None,
    ) -> None:
        self.name = name
        self.calls: Counter[str] = Counter()
        self.hooks: dict[str, Callable[..., Any]] = {}
        self.released = threading.Event()
        self.connections: list[Any] = []
        self._socket = TServerSocket("127.0.0.1", 0, client_timeout=None)
        accept = self._socket.accept

        def counted() -> Any:
            accepted = accept()
            if tls is not None:
                try:
                    accepted.sock = tls.wrap_socket(accepted.sock, server_side=True)
                except (ssl.SSLError, OSError):  # a client that does not trust us hangs up: serve nothing to it
                    accepted.sock = socket.socketpair()[0]
            self.connections.append(accepted)
            return accepted

        self._socket.accept = counted
        self._server = TThreadedServer(
            TProcessor(T.THBaseService, self),
            self._socket,
            iprot_factory=TCompactProtocolFactory() if is_compact else TBinaryProtocolFactory(),
            itrans_factory=TFramedTransportFactory() if is_framed else TBufferedTransportFactory(),
            daemon=True,
        )
        self._socket.listen()
        self._socket.listen = lambda: None
        self.port: int = self._socket.sock.getsockname()[1]
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()

    def _serve(self) -> None:
        with suppress(OSError):  # stop() closes the socket under it
            self._server.serve()

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    def stop(self) -> None:
        """As a kill: nobody listens any more, and every connection breaks."""
        self.released.set()
        self._server.closed = True
        self._socket.sock.shutdown(2)
        self._socket.sock.close()
        for sock in [one.sock for one in self.connections]:
            if sock is not None:  # None: the thread that served it was faster
                with suppress(OSError):
                    sock.shutdown(2)
        self._thread.join(5)

    def __getattr__(self, method: str) -> Callable[..., Any]:
        if method.startswith("_") or method not in T.THBaseService.thrift_services:
            raise AttributeError(method)

        def serve(*args: Any) -> Any:
            self.calls[method] += 1
            hook = self.hooks.get(method)
            return hook(*args) if hook is not None else getattr(self, f"on_{method}")(*args)

        return serve

    # -- answers -----------------------------------------------------------------------------------------------

    def on_getThriftServerType(self) -> int:
        return int(T.TThriftServerType.TWO)

    def on_get(self, table: bytes, get: Any) -> Any:
        """The row's own name, and whose answer it is."""
        cells = [
            T.TColumnValue(b"cf", b"row", get.row, 1, None, 4),
            T.TColumnValue(b"cf", b"gateway", self.name, 1, None, 4),
        ]
        return T.TResult(row=get.row, columnValues=cells, stale=bool(get.targetReplicaId))

    def on_put(self, table: bytes, put: Any) -> None:
        return None

    def on_openScanner(self, table: bytes, scan: Any) -> int:
        return 7

    def on_getScannerRows(self, number: int, rows: int) -> list[Any]:
        return [self.on_get(b"t", T.TGet(b"r%d" % at)) for at in range(min(rows, 3))]

    def on_closeScanner(self, number: int) -> None:
        return None


@pytest.fixture
def runtime() -> Iterator[ThreadRuntime]:
    with ThreadRuntime() as made:
        yield made


@pytest.fixture
def serve() -> Iterator[Callable[..., Gateway]]:
    made: list[Gateway] = []

    def start(**options: Any) -> Gateway:
        made.append(Gateway(**options))
        return made[-1]

    yield start
    for one in made:
        if not one._server.closed:
            one.stop()


@pytest.fixture
def http(serve: Callable[..., Any]) -> Iterator[ThreadingHTTPServer]:
    gateway = serve()
    processor = TProcessor(T.THBaseService, gateway)

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        wbufsize = 1 << 16  # head and body leave together

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            if self.path == "/slow":
                gateway.released.wait(LONG_S)
            if self.path == "/wrong":
                self.send_error(404)
                return
            out = TMemoryBuffer()
            processor.process(TBinaryProtocol(TMemoryBuffer(body)), TBinaryProtocol(out))
            answer = out.getvalue()
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
    yield server
    gateway.released.set()
    server.shutdown()
    server.server_close()
    thread.join(LONG_S)


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    if shutil.which("openssl") is None:
        pytest.skip("making a certificate needs openssl")
    folder = tmp_path_factory.mktemp("tls")
    key, cert = folder / "key.pem", folder / "cert.pem"
    made = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=localhost"]
    names = ["-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1"]
    subprocess.run([*made, *names, "-keyout", str(key), "-out", str(cert)], check=True, capture_output=True)
    return cert, key
