"""Thrift 2 in HTTP requests and over TLS, against small servers in this process."""

from __future__ import annotations

import ssl
from collections.abc import Callable
from http.server import ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from metaclient.errors import CallTimeout, ServerUnreachable
from metaclient.model import Get
from metaclient.runtime import ThreadRuntime
from metaclient.wire.thrift.idl import thrift2
from metaclient_thrift import Thrift2Backend
from metaclient_thrift.link import Link

LONG_S, SHORT_S = 60.0, 0.75
T = thrift2()


def over_http(server: ThreadingHTTPServer, path: str, runtime: ThreadRuntime) -> Thrift2Backend:
    return Thrift2Backend(f"thrift2+http://127.0.0.1:{server.server_port}{path}", runtime=runtime)


def test_http_carries_calls_one_after_the_other(http: ThreadingHTTPServer, runtime: ThreadRuntime) -> None:
    backend = over_http(http, "/thrift", runtime)
    for row in (b"a", b"b" * 50_000, b"c"):
        assert backend.get(None, b"t", Get(row), runtime.now() + LONG_S).cells[0].value == row
    backend.close()


def test_http_carries_several_requests_of_one_call(http: ThreadingHTTPServer, runtime: ThreadRuntime) -> None:
    """A page of a scan is several requests. The second one had the first one before it, and its answer was cut."""
    backend = over_http(http, "/thrift", runtime)

    def ask(link: Link) -> list[Any]:
        return [link.call("get", b"t", T.TGet(row)) for row in (b"a", b"b" * 5_000, b"c")]

    found = backend._channel.ask(ask, "get", runtime.now() + LONG_S, b"t")[0]
    assert [one.columnValues[0].value for one in found] == [b"a", b"b" * 5_000, b"c"]
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
        assert [link.transport.is_usable() for link in state.idle] == [True]
        assert backend.get(None, b"t", Get(b"d"), runtime.now() + LONG_S).cells[0].value == b"d"
        gateway.hooks["put"] = lambda table, put: gateway.released.wait(LONG_S)
        with pytest.raises(CallTimeout):
            backend._call("put", b"t", T.TPut(b"r", []), deadline=runtime.now() + SHORT_S)
        backend.close()
    stranger = Thrift2Backend(f"thrift2+tls://{gateway.address}", runtime=runtime)
    with pytest.raises(ServerUnreachable, match="certificate"):
        stranger.get(None, b"t", Get(b"r"), runtime.now() + LONG_S)
    stranger.close()
