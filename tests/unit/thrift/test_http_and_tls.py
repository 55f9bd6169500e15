"""Thrift 2 in HTTP requests and over TLS, against small servers in this process."""

from __future__ import annotations

import shutil
import ssl
import subprocess
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from thriftpy2.protocol import TBinaryProtocol
from thriftpy2.thrift import TProcessor
from thriftpy2.transport import TMemoryBuffer

from adapters.thrift import Thrift2Backend
from adapters.thrift.idl import thrift2
from metaclient.errors import CallTimeout, ServerUnreachable
from metaclient.model import Get
from metaclient.runtime import ThreadRuntime

LONG_S, SHORT_S = 60.0, 0.75
T = thrift2()


@pytest.fixture
def http(serve: Callable[..., Any]) -> Iterator[ThreadingHTTPServer]:
    gateway = serve()
    processor = TProcessor(T.THBaseService, gateway)

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

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


def over_http(server: ThreadingHTTPServer, path: str, runtime: ThreadRuntime) -> Thrift2Backend:
    return Thrift2Backend(f"thrift2+http://127.0.0.1:{server.server_port}{path}", runtime=runtime)


def test_http_carries_calls_one_after_the_other(http: ThreadingHTTPServer, runtime: ThreadRuntime) -> None:
    backend = over_http(http, "/thrift", runtime)
    for row in (b"a", b"b" * 50_000, b"c"):
        assert backend.get(None, b"t", Get(row), runtime.now() + LONG_S).cells[0].value == row
    backend.close()


def test_http_error_is_no_answer(http: ThreadingHTTPServer, runtime: ThreadRuntime) -> None:
    backend = over_http(http, "/wrong", runtime)
    with pytest.raises(ServerUnreachable, match="HTTP 404"):
        backend.get(None, b"t", Get(b"r"), runtime.now() + LONG_S)
    backend.close()


def test_http_ends_at_the_deadline(http: ThreadingHTTPServer, runtime: ThreadRuntime) -> None:
    backend = over_http(http, "/slow", runtime)
    with pytest.raises(CallTimeout):
        backend.get(None, b"t", Get(b"r"), runtime.now() + SHORT_S)
    backend.close()


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


def test_tls_is_verified_unless_told_otherwise(
    serve: Callable[..., Any], certificate: tuple[Path, Path], runtime: ThreadRuntime
) -> None:
    cert, key = certificate
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(cert, key)
    gateway = serve(tls=context)
    for query in (f"?ca={cert}", "?verify=false"):
        backend = Thrift2Backend(f"thrift2+tls://{gateway.address}{query}", runtime=runtime)
        for row in (b"a", b"b" * 50_000, b"c"):
            assert backend.get(None, b"t", Get(row), runtime.now() + LONG_S).cells[0].value == row
        (state,) = backend._channel.gateways._states.values()
        assert [link.stream.is_usable() for link in state.idle] == [True]
        assert backend.get(None, b"t", Get(b"d"), runtime.now() + LONG_S).cells[0].value == b"d"
        gateway.hooks["put"] = lambda table, put: gateway.released.wait(LONG_S)
        with pytest.raises(CallTimeout):
            backend._call("put", b"t", T.TPut(b"r", []), deadline=runtime.now() + SHORT_S)
        backend.close()
    stranger = Thrift2Backend(f"thrift2+tls://{gateway.address}", runtime=runtime)
    with pytest.raises(ServerUnreachable, match="certificate"):
        stranger.get(None, b"t", Get(b"r"), runtime.now() + LONG_S)
    stranger.close()
