"""A url that does not fit its server: the first contact says what was found at that address, and which url to write."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress

import pytest

import metaclient
from metaclient.errors import ConfigError, ServerUnreachable, Unsupported
from metaclient.runtime import ThreadRuntime
from metaclient.wire.peers import describe_peer, probe_peer, recognise_peer
from metaclient_fake import FakeCluster
from metaclient_fake.front.serving import Front
from metaclient_thrift import Thrift1Backend, Thrift2Backend

DIALECTS = ["", "transport=framed", "protocol=compact", "transport=framed&protocol=compact"]
HTTP_400 = b"HTTP/1.1 400 Illegal character CNTL=0x0\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
WAIT_S = 60.0


def strict_options(dialect: str) -> dict[str, str]:
    """As HBase's gateways: one transport and one protocol, and a hang-up for everything else."""
    return {"transport": "buffered", "protocol": "binary", **dict(one.split("=") for one in dialect.split("&") if one)}


@pytest.fixture(scope="module")
def fronts() -> Iterator[dict[str, Front]]:
    clusters = {dialect: FakeCluster(servers=1) for dialect in DIALECTS}
    yield {
        dialect: cluster.serve(rpc_port=0, status_port=0, **strict_options(dialect))
        for dialect, cluster in clusters.items()
    }
    for cluster in clusters.values():
        cluster.close()


@pytest.fixture
def answering() -> Iterator[Callable[[bytes], int]]:
    """Starts a server that answers the same to whatever it is sent, and hangs up; its port."""
    listeners: list[socket.socket] = []

    def serve(listener: socket.socket, answer: bytes) -> None:
        with suppress(OSError):
            while True:
                sock, _ = listener.accept()
                with sock, suppress(OSError):
                    sock.recv(65536)
                    sock.sendall(answer)

    def start(answer: bytes) -> int:
        listener = socket.create_server(("127.0.0.1", 0))
        listeners.append(listener)
        threading.Thread(target=serve, args=(listener, answer), daemon=True).start()
        return int(listener.getsockname()[1])

    yield start
    for one in listeners:
        with suppress(OSError):
            one.shutdown(socket.SHUT_RDWR)
        one.close()


def refusal(url: str) -> str:
    with pytest.raises(ConfigError) as caught, metaclient.connect(url, operation_timeout_s=WAIT_S):
        pytest.fail(f"{url} was taken for good")
    return str(caught.value)


@pytest.mark.parametrize("spoken", DIALECTS)
@pytest.mark.parametrize("served", DIALECTS)
@pytest.mark.parametrize("version", [1, 2])
def test_gateway_of_another_transport_or_protocol_is_named_with_its_url(
    fronts: dict[str, Front], version: int, served: str, spoken: str
) -> None:
    address = f"127.0.0.1:{getattr(fronts[served], f'thrift{version}_port')}"
    url = f"thrift{version}://{address}?{spoken}"
    if served == spoken:
        with metaclient.connect(url) as connection:
            assert connection.tables() == []
    else:
        said = refusal(url)
        assert f"is a Thrift {version} gateway" in said
        assert said.endswith(f"write thrift{version}://{address}{'?' if served else ''}{served}")


@pytest.mark.parametrize(("ours", "theirs"), [(1, 2), (2, 1)])
def test_gateway_of_the_other_service_is_not_called_too_old(fronts: dict[str, Front], ours: int, theirs: int) -> None:
    said = refusal(f"thrift{ours}://127.0.0.1:{getattr(fronts[''], f'thrift{theirs}_port')}")
    assert f"is a Thrift {theirs} gateway: write thrift{theirs}: instead of thrift{ours}:" in said
    assert "too old" not in said


@pytest.mark.parametrize("backend", [Thrift1Backend, Thrift2Backend])
def test_gateway_that_cannot_say_which_service_it_is_may_be_either(
    fronts: dict[str, Front], backend: type[Thrift1Backend | Thrift2Backend]
) -> None:
    """Before HBase 2.3 a gateway of the other service is first noticed by a method that it does not know."""
    front = fronts[""]
    other = front.thrift2_port if backend is Thrift1Backend else front.thrift1_port
    with ThreadRuntime() as runtime:
        made = backend(f"{backend.name}://127.0.0.1:{other}", runtime=runtime)
        scheme = "thrift2" if backend is Thrift1Backend else "thrift1"
        with pytest.raises(Unsupported, match=rf"write {scheme}://127.0.0.1:{other}.*too old"):
            made.table_names(runtime.now() + WAIT_S)
        made.close()


@pytest.mark.parametrize("query", ["", "?transport=framed", "?protocol=compact"])
@pytest.mark.parametrize("scheme", ["thrift1", "thrift2"])
def test_thrift_at_a_port_of_hbases_rpc_does_not_blame_itself(
    fronts: dict[str, Front], scheme: str, query: str
) -> None:
    address = fronts[""].rpc_url.partition("//")[2]
    said = refusal(f"{scheme}://{address}{query}")
    assert f"{address} is a master or region server of HBase: write hbase+rpc://{address}" in said
    assert "our own" not in said


@pytest.mark.parametrize("scheme", ["thrift1", "thrift2", "hbase+rpc"])
def test_http_server_is_called_one(answering: Callable[[bytes], int], scheme: str) -> None:
    """HBase's web pages are Jetty's, which answers nonsense with 400. As a length ``HTTP`` is 1213486160."""
    address = f"127.0.0.1:{answering(HTTP_400)}"
    said = refusal(f"{scheme}://{address}")
    assert f"{address} is an HTTP server: write thrift2+http://{address} if it is a Thrift gateway in HTTP mode" in said
    assert "1213486160" not in said


def test_http_server_that_waits_for_the_end_of_a_line_is_found_by_asking(
    fronts: dict[str, Front], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("metaclient_thrift.gateway_backend.OPEN_S_MAX", 0.1)
    monkeypatch.setattr("metaclient.wire.peers.PROBE_S_MAX", 0.3)
    assert "is an HTTP server" in refusal(f"thrift2://127.0.0.1:{fronts[''].status_port}")


def test_http_url_at_a_plain_gateway(fronts: dict[str, Front]) -> None:
    address = f"127.0.0.1:{fronts[''].thrift2_port}"
    assert refusal(f"thrift2+http://{address}").endswith(f"write thrift2://{address}")


@pytest.mark.parametrize("served", DIALECTS)
def test_hbases_rpc_at_a_port_of_a_thrift_gateway(fronts: dict[str, Front], served: str) -> None:
    address = f"127.0.0.1:{fronts[served].thrift2_port}"
    said = refusal(f"hbase+rpc://{address}")
    assert said.endswith(f"write thrift2://{address}{'?' if served else ''}{served}")


def test_gateway_that_only_had_a_bad_moment_is_not_called_a_wrong_port(
    fronts: dict[str, Front], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The connection broke, but asked again it is what the url says: then the error stays what it is."""

    def broken(link: object) -> object:
        raise ConnectionResetError("the gateway closed the connection")

    monkeypatch.setattr("metaclient_thrift.link.Link.server_type", broken)
    with ThreadRuntime() as runtime:
        backend = Thrift2Backend(fronts[""].thrift2_url, runtime=runtime)
        with pytest.raises(ServerUnreachable, match=r"closed the connection$"):
            backend.open(runtime.now() + WAIT_S)
        backend.close()


@pytest.mark.parametrize(
    ("first", "what"),
    [
        (b"\x15\x03\x03\x00\x02\x02\x50", "a server that wants TLS"),
        (b"<html><body>", "an HTTP server"),
        (b"\x80\x01\x00\x03\x00\x00\x00\x03get\x00\x00\x00\x01", "a Thrift gateway (unframed and binary)"),
        (b"\x00\x00\x00\x20\x82\x41\x01\x03get", "a Thrift gateway (framed and compact)"),
    ],
)
def test_first_bytes_are_recognised(first: bytes, what: str) -> None:
    peer = recognise_peer(first)
    assert peer is not None
    assert peer.what == what
    assert "h:1" in describe_peer("h:1", peer)


@pytest.mark.parametrize("first", [b"", b"\x00", b"SSH-2.0-OpenSSH", b"\x00\x00\x00\x04abcd", b"\x82", b"\x80\x02\0\0"])
def test_bytes_that_mean_nothing_are_not_recognised(first: bytes) -> None:
    assert recognise_peer(first) is None


def test_probing_ends_at_its_deadline(answering: Callable[[bytes], int]) -> None:
    port = answering(b"SSH-2.0-OpenSSH")
    with ThreadRuntime() as runtime:
        assert probe_peer("127.0.0.1", port, now=runtime.now, deadline=runtime.now()) is None
        assert probe_peer("127.0.0.1", port, now=runtime.now, deadline=runtime.now() + WAIT_S) is None
