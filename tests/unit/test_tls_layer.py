"""TLS under native connections, over sockets and over a stream in pieces: refusals, ends, versions, wrong names."""

from __future__ import annotations

import socket
import ssl
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from metaclient.config.security import TlsSettings
from metaclient.errors import AuthenticationFailed, ConfigError, MetaClientError, ServerUnreachable
from metaclient.runtime import ThreadRuntime
from metaclient.wire.stream import Stream, dial
from metaclient.wire.tls_layer import TlsLayerStream, make_context, tls_layer_dial
from tests.unit.certificates import make_certificates

WAIT_S = 60.0


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A certificate for localhost that signs itself, and one of a stranger."""
    return make_certificates(tmp_path_factory.mktemp("tls"), "known", "other")


@pytest.fixture
def runtime() -> Iterator[ThreadRuntime]:
    with ThreadRuntime() as made:
        yield made


def context_of(files: Path, *, version: str = "", asks: bool = False) -> ssl.SSLContext:
    made = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    made.load_cert_chain(files / "known.pem")
    if version:
        made.minimum_version = made.maximum_version = ssl.TLSVersion[version]
    if asks:
        made.verify_mode = ssl.CERT_REQUIRED
        made.load_verify_locations(files / "known.crt")
    return made


def echo(sock: ssl.SSLSocket) -> None:
    while data := sock.recv(65536):
        sock.sendall(data)


@contextmanager
def serving(
    runtime: ThreadRuntime, context: ssl.SSLContext | None, script: Callable[[ssl.SSLSocket], None] = echo
) -> Iterator[int]:
    listener = socket.create_server(("127.0.0.1", 0))
    accepted: list[socket.socket] = []

    def accept() -> None:
        with suppress(OSError):
            while True:
                sock, _ = listener.accept()
                sock.settimeout(WAIT_S)
                accepted.append(sock)
                runtime.start_daemon(serve, sock, name="tls-server")

    def serve(sock: socket.socket) -> None:
        with suppress(OSError):
            if context is None:
                sock.recv(1)
                sock.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")
                sock.recv(65536)
            else:
                with context.wrap_socket(sock, server_side=True) as secured:
                    script(secured)

    runtime.start_daemon(accept, name="tls-accept")
    try:
        yield listener.getsockname()[1]
    finally:
        with suppress(OSError):
            listener.shutdown(socket.SHUT_RDWR)
        listener.close()
        for sock in accepted:
            with suppress(OSError):
                sock.close()


def dialled(runtime: ThreadRuntime, port: int, settings: TlsSettings, *, host: str = "localhost") -> Stream:
    """Connect to this machine under any name."""
    make = tls_layer_dial(settings, lambda _, *others: dial("127.0.0.1", *others), runtime.lock)
    return make(host, port, runtime.now, runtime.now() + WAIT_S)


def read_exactly(runtime: ThreadRuntime, stream: Stream, size: int) -> bytes:
    data = b""
    while len(data) < size:
        more = stream.read(size - len(data), runtime.now() + WAIT_S)
        assert more, "the stream ended, or was silent"
        data += more
    return data


@pytest.mark.parametrize("version", ["TLSv1_2", "TLSv1_3"])
def test_reader_and_writer_at_once_carry_megabytes(runtime: ThreadRuntime, files: Path, version: str) -> None:
    settings = TlsSettings(ca=str(files / "known.crt"), handshake_s=WAIT_S)
    sent = bytes(range(256)) * 8192  # 2 MB: more than the buffers of both sockets
    with serving(runtime, context_of(files, version=version)) as port:
        stream = dialled(runtime, port, settings)
        assert isinstance(stream, TlsLayerStream)
        assert stream.version == version.replace("_", ".")
        writing = runtime.start(stream.write, sent, runtime.now() + WAIT_S, name="writer")
        assert read_exactly(runtime, stream, len(sent)) == sent
        writing.result(runtime.now() + WAIT_S)
        stream.close()


@pytest.mark.parametrize("version", ["TLSv1_2", "TLSv1_3"])
def test_missing_client_certificate_is_named_in_the_handshake_or_at_the_first_read(
    runtime: ThreadRuntime, files: Path, version: str
) -> None:
    settings = TlsSettings(ca=str(files / "known.crt"), handshake_s=WAIT_S)
    with serving(runtime, context_of(files, version=version, asks=True)) as port:
        with pytest.raises(AuthenticationFailed, match=r"does not accept the client's certificate.*cert="):
            stream = dialled(runtime, port, settings)
            stream.read(10, runtime.now() + WAIT_S)  # TLS 1.3: the server refuses after the handshake
        accepted = TlsSettings(ca=str(files / "known.crt"), cert=str(files / "known.pem"), handshake_s=WAIT_S)
        stream = dialled(runtime, port, accepted)
        stream.write(b"hello", runtime.now() + WAIT_S)
        assert read_exactly(runtime, stream, 5) == b"hello"
        stream.close()


def test_unknown_authority_and_wrong_name_are_refused_unless_that_is_wanted(
    runtime: ThreadRuntime, files: Path
) -> None:
    known, other = str(files / "known.crt"), str(files / "other.crt")
    with serving(runtime, context_of(files)) as port:
        with pytest.raises(AuthenticationFailed, match=r"certificate is not accepted.*ca="):
            dialled(runtime, port, TlsSettings(ca=other, handshake_s=WAIT_S))
        with pytest.raises(AuthenticationFailed, match=r"not valid for 'stranger\.example'"):
            dialled(runtime, port, TlsSettings(ca=known, handshake_s=WAIT_S), host="stranger.example")
        for settings in (
            TlsSettings(ca=known, verifies_hostname=False, handshake_s=WAIT_S),
            TlsSettings(verifies=False, handshake_s=WAIT_S),
        ):
            dialled(runtime, port, settings, host="stranger.example" if settings.ca else "localhost").close()


def test_server_without_tls_is_named(runtime: ThreadRuntime, files: Path) -> None:
    with (
        serving(runtime, None) as port,
        pytest.raises(AuthenticationFailed, match=r"does not speak TLS.*hbase\.client\.netty\.tls\.enabled=false"),
    ):
        dialled(runtime, port, TlsSettings(ca=str(files / "known.crt"), handshake_s=WAIT_S))


def test_unreachable_server_is_unreachable(runtime: ThreadRuntime, files: Path) -> None:
    with serving(runtime, context_of(files)) as port:
        pass
    with pytest.raises(ServerUnreachable):
        dialled(runtime, port, TlsSettings(ca=str(files / "known.crt")))


def test_files_that_cannot_be_used_are_named(files: Path, tmp_path: Path) -> None:
    empty = tmp_path / "empty"
    empty.write_text("nothing")
    for settings, text in (
        (TlsSettings(ca=str(tmp_path / "none")), "none: cannot be read"),
        (TlsSettings(ca=str(empty)), "keytool"),
        (TlsSettings(cert=str(empty)), "cert .*empty: cannot be used"),
        (TlsSettings(cert=str(files / "known.crt"), key=str(files / "other.key")), "other.key: cannot be used"),
    ):
        with pytest.raises(ConfigError, match=text):
            make_context(settings)


# -- in pieces, without a socket -----------------------------------------------------------------------------------


class NoLock:
    def __enter__(self) -> None: ...

    def __exit__(self, *error: object) -> None: ...


class TlsServer:
    """The server's half in memory, as a stream for the client: bytes arrive ``piece`` at a time."""

    def __init__(self, context: ssl.SSLContext, piece: int) -> None:
        self._in, self._out = ssl.MemoryBIO(), ssl.MemoryBIO()
        self.tls = context.wrap_bio(self._in, self._out, server_side=True)
        self._piece = piece
        self._is_shaken = False
        self.received = b""
        self.has_ended = False

    def write(self, data: bytes, deadline: float) -> None:
        self._in.write(data)
        with suppress(ssl.SSLWantReadError):
            if not self._is_shaken:
                self.tls.do_handshake()
                self._is_shaken = True
            while True:
                self.received += self.tls.read(65536)

    def read(self, size_max: int, deadline: float) -> bytes | None:
        data = self._out.read(min(size_max, self._piece))
        return data or (b"" if self.has_ended else None)

    def is_silent(self) -> bool:
        return not self._out.pending and not self.has_ended

    def close(self) -> None: ...

    def leave_to_parent(self) -> None: ...


@contextmanager
def in_memory(files: Path, piece: int) -> Iterator[tuple[TlsLayerStream, TlsServer]]:
    server = TlsServer(context_of(files), piece)
    context = make_context(TlsSettings(ca=str(files / "known.crt")))
    stream = TlsLayerStream(server, context, "localhost", NoLock)
    stream.handshake(lambda: 0.0, 1.0)
    yield stream, server


def test_bytes_one_at_a_time_are_the_same_bytes(files: Path) -> None:
    with in_memory(files, 1) as (stream, server):
        stream.write(b"abc" * 10_000, 1.0)
        assert server.received == b"abc" * 10_000
        server.tls.write(b"answer")
        assert stream.read(4, 1.0) == b"answ"
        assert stream.read(4, 1.0) == b"er"
        assert stream.read(4, 1.0) is None


def test_session_tickets_are_silence_and_data_is_not(files: Path) -> None:
    with in_memory(files, 65536) as (stream, server):
        assert stream.is_silent()  # TLS 1.3 has sent tickets by now
        server.tls.write(b"answer")
        assert not stream.is_silent()
        assert stream.read(3, 1.0) == b"ans"
        assert stream.read(3, 1.0) == b"wer"
        assert stream.is_silent()


def test_close_notify_and_a_cut_stream_are_the_end(files: Path) -> None:
    with in_memory(files, 65536) as (stream, server):
        server.tls.write(b"last")
        with suppress(ssl.SSLError):
            server.tls.unwrap()
        assert stream.read(10, 1.0) == b"last"
        assert stream.read(10, 1.0) == b""
    with in_memory(files, 65536) as (stream, server):
        server.has_ended = True
        assert not stream.is_silent()
        assert stream.read(10, 1.0) == b""


def test_one_read_returns_all_records_that_have_arrived(files: Path) -> None:
    """A record has at most 16 KB, and a page of a scan has hundreds of them."""
    with in_memory(files, 1 << 20) as (stream, server):
        content = bytes(range(256)) * 200
        server.tls.write(content)
        assert stream.read(1 << 20, 1.0) == content
        server.tls.write(content)
        assert stream.read(20_000, 1.0) == content[:20_000]  # the rest is kept
        assert stream.read(1 << 20, 1.0) == content[20_000:]
        assert stream.read(10, 1.0) is None


def test_bytes_before_a_changed_record_are_returned_and_the_next_read_fails(files: Path) -> None:
    with in_memory(files, 1 << 20) as (stream, server):
        assert stream.is_silent()
        server.tls.write(b"first")
        good = server._out.read()
        server.tls.write(b"second")
        record = bytearray(server._out.read())
        record[-1] ^= 1
        server._out.write(good + bytes(record))
        assert stream.read(100, 1.0) == b"first"
        with pytest.raises((OSError, MetaClientError)):
            stream.read(100, 1.0)


def test_changed_record_is_an_error_of_the_network(files: Path) -> None:
    with in_memory(files, 65536) as (stream, server):
        assert stream.is_silent()
        server.tls.write(b"answer")
        record = bytearray(server._out.read())
        record[-1] ^= 1
        server._out.write(bytes(record))
        with pytest.raises((OSError, MetaClientError)):
            stream.read(10, 1.0)
