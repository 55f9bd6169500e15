"""Handshakes of native connections against a scripted server: tokens, refusals, fallback, what the header says."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator

import pytest

from metaclient.config import Config
from metaclient.config.security import Protection
from metaclient.config.tokens import Token
from metaclient.errors import (
    AccessDenied,
    AuthenticationFailed,
    CallTimeout,
    ExtraMissing,
    KdcUnreachable,
    MetaClientError,
    ServerUnreachable,
)
from metaclient.runtime import ThreadRuntime
from metaclient.wire.rpc import framing
from metaclient.wire.sasl.digest_md5 import DigestServer
from metaclient.wire.sasl.kerberos import load_gssapi, make_server_principal
from metaclient.wire.sasl.mechanism import Layer
from metaclient.wire.sasl.messages import encode_challenge, encode_refusal, encode_token
from metaclient_native import security as security_module
from metaclient_native.connection import State
from metaclient_native.connections import Connections
from metaclient_native.request import Request
from metaclient_native.security import Security, encode_identity
from tests.unit.native.peer import WAIT_S, Caller, Peer, serving, text
from tests.unit.test_security_settings import SERVERS, token

SASL = "javax.security.sasl.SaslException"
SWITCH = bytes.fromhex("00000000ffffffa8")


def make_connections(
    runtime: ThreadRuntime, properties: dict[str, str] | None = None, **options: object
) -> Connections:
    given = {**SERVERS, **(properties or {})}
    return Connections(runtime, Security.of(config=Config.of(given, **options)))  # type: ignore[arg-type]


@pytest.fixture
def by_token(runtime: ThreadRuntime) -> Iterator[Connections]:
    made = make_connections(runtime, token=token())
    yield made
    made.close()


def ask(connections: Connections, peer: Peer, runtime: ThreadRuntime, *, seconds: float = WAIT_S) -> bytes:
    deadline = runtime.now() + seconds
    request = Request(b"Get", b"hello", text, deadline, "the get", is_write=True)
    return connections.call(peer.address, request).result(deadline + WAIT_S)


class SecureCaller:
    """The server's side of a connection that authenticates by a token."""

    def __init__(self, caller: Caller, made: Token) -> None:
        self.caller = caller
        self.server = DigestServer(lambda user: encode_identity(made)[1], nonce="nonce")
        self.layer: Layer | None = None
        self._plain = framing.FrameReader()

    def exactly(self, size: int) -> bytes:
        data = b""
        while len(data) < size:
            more = self.caller.sock.recv(size - len(data))
            if not more:
                raise ConnectionResetError
            data += more
        return data

    def token(self) -> bytes:
        return self.exactly(int.from_bytes(self.exactly(4), "big"))

    def preamble(self) -> framing.Preamble:
        return framing.parse_preamble(self.exactly(framing.PREAMBLE_BYTES))

    def authenticate(self) -> None:
        assert self.preamble().auth == framing.AUTH_DIGEST
        assert self.token() == b""
        self.caller.sock.sendall(encode_challenge(self.server.challenge()))
        self.caller.sock.sendall(encode_challenge(self.server.evaluate(self.token())))
        self.layer = self.server.layer

    def frames(self) -> Iterator[bytes]:
        """The frames of the client, unwrapped if the data is protected."""
        while True:
            data = self.token()
            if self.layer is None:
                yield data
            else:
                yield from self._plain.feed(self.layer.unwrap(data))

    def send(self, *responses: bytes) -> None:
        data = b"".join(responses)
        if self.layer is None:
            self.caller.sock.sendall(data)
            return
        for at in range(0, len(data), 7):  # a response is split over several wrapped messages
            self.caller.sock.sendall(encode_token(self.layer.wrap(data[at : at + 7])))


def echoing(made: Token, headers: list[dict[str, object]]) -> Callable[[Caller], None]:
    def script(caller: Caller) -> None:
        secure = SecureCaller(caller, made)
        secure.authenticate()
        frames = secure.frames()
        headers.append(framing.parse_connection_header(next(frames)))
        for frame in frames:
            request = framing.parse_request(frame)
            secure.send(framing.response(request.call_id, request.param))

    return script


@pytest.mark.parametrize("protection", Protection)
def test_token_authenticates_with_every_protection(runtime: ThreadRuntime, protection: Protection) -> None:
    connections = make_connections(runtime, {"hbase.rpc.protection": protection.value}, token=token())
    headers: list[dict[str, object]] = []
    with serving(runtime, echoing(token(), headers), is_raw=True) as peer:
        assert [ask(connections, peer, runtime) for _ in range(3)] == [b"hello"] * 3
        assert peer.accepted == 1
    connections.close()
    (header,) = headers
    assert header["service_name"] == "ClientService"
    assert "user_info" not in header  # HBase would take it as a request to impersonate
    assert "rpc_crypto_cipher_transformation" not in header


def test_call_that_is_made_after_the_handshake_is_sent(runtime: ThreadRuntime) -> None:
    """After a handshake there may be nothing to send; the first call must not wait for a sender that has ended."""
    connections = make_connections(runtime, token=token())
    headers: list[dict[str, object]] = []
    with serving(runtime, echoing(token(), headers), is_raw=True) as peer:
        connection = connections._connected(peer.address)
        deadline = runtime.now() + WAIT_S
        while connection._state is not State.OPEN:
            assert runtime.now() < deadline
            runtime.sleep(0.01)
        assert ask(connections, peer, runtime) == b"hello"
        assert peer.accepted == 1
    connections.close()


@pytest.mark.parametrize("round_number", [1, 2, 3])
@pytest.mark.parametrize("protection", ["authentication", "privacy"])
def test_refusal_in_any_round_is_final_and_has_class_and_text(
    runtime: ThreadRuntime, round_number: int, protection: str
) -> None:
    def script(caller: Caller) -> None:
        secure = SecureCaller(caller, token())
        secure.preamble()
        if round_number == 3:
            secure.token()
            caller.sock.sendall(encode_challenge(secure.server.challenge()))
            caller.sock.sendall(encode_challenge(secure.server.evaluate(secure.token())))
            secure.token()  # the header
        elif round_number == 2:
            secure.token()
            caller.sock.sendall(encode_challenge(secure.server.challenge()))
        secure.token()
        caller.sock.sendall(encode_refusal(SASL, "DIGEST-MD5: Mismatched response."))
        secure.exactly(1)

    connections = make_connections(runtime, {"hbase.rpc.protection": protection}, token=token())
    with (
        serving(runtime, script, is_raw=True) as peer,
        pytest.raises(AuthenticationFailed, match=r"token of alice.*SaslException.*Mismatched") as caught,
    ):
        ask(connections, peer, runtime)
    connections.close()
    assert not caught.value.may_have_applied


def test_expired_token_says_so_and_what_to_do(runtime: ThreadRuntime, by_token: Connections) -> None:
    def script(caller: Caller) -> None:
        SecureCaller(caller, token()).preamble()
        name = "org.apache.hadoop.security.token.SecretManager$InvalidToken"
        caller.sock.sendall(encode_refusal(name, "Token has expired"))

    with (
        serving(runtime, script, is_raw=True) as peer,
        pytest.raises(AuthenticationFailed, match=r"Token has expired; fetch a new token"),
    ):
        ask(by_token, peer, runtime)


def test_server_that_is_not_secure_gets_no_call_unless_that_is_allowed(runtime: ThreadRuntime) -> None:
    headers: list[dict[str, object]] = []

    def script(caller: Caller) -> None:
        secure = SecureCaller(caller, token())
        secure.preamble()
        secure.token()
        caller.sock.sendall(SWITCH)
        frames = secure.frames()
        headers.append(framing.parse_connection_header(next(frames)))
        for frame in frames:
            request = framing.parse_request(frame)
            secure.send(framing.response(request.call_id, request.param))

    with serving(runtime, script, is_raw=True) as peer:
        refusing = make_connections(runtime, token=token())
        with pytest.raises(AuthenticationFailed, match=r"would fall back to simple.*fallback-to-simple-auth-allowed"):
            ask(refusing, peer, runtime)
        refusing.close()
        assert headers == []
        allowing = make_connections(
            runtime, {"hbase.ipc.client.fallback-to-simple-auth-allowed": "true"}, token=token()
        )
        assert ask(allowing, peer, runtime) == b"hello"
        allowing.close()
    assert headers[0]["user_info"]


@pytest.mark.parametrize("size", ["00200000", "ffffffff"])
def test_impossible_challenge_ends_the_call_and_the_task(
    runtime: ThreadRuntime, by_token: Connections, size: str
) -> None:
    def script(caller: Caller) -> None:
        SecureCaller(caller, token()).preamble()
        caller.sock.sendall(bytes.fromhex("00000000" + size) + b"x" * 100)
        caller.sock.recv(1 << 16)

    with (
        serving(runtime, script, is_raw=True) as peer,
        pytest.raises(MetaClientError, match="a challenge of") as caught,
    ):
        ask(by_token, peer, runtime)
    assert not caught.value.may_have_applied


def test_end_during_the_handshake_lets_the_call_be_tried_again(runtime: ThreadRuntime, by_token: Connections) -> None:
    def script(caller: Caller) -> None:
        secure = SecureCaller(caller, token())
        secure.preamble()
        caller.sock.sendall(encode_challenge(secure.server.challenge())[:20])

    with (
        serving(runtime, script, is_raw=True) as peer,
        pytest.raises(ServerUnreachable, match=r"token of alice.*the connection ended") as caught,
    ):
        ask(by_token, peer, runtime)
    assert not caught.value.may_have_applied


def test_silent_server_costs_the_call_its_deadline_and_no_more(runtime: ThreadRuntime, by_token: Connections) -> None:
    release = runtime.pending()

    def script(caller: Caller) -> None:
        release.result(runtime.now() + WAIT_S)

    with (
        serving(runtime, script, is_raw=True) as peer,
        pytest.raises((CallTimeout, ServerUnreachable)),
    ):
        ask(by_token, peer, runtime, seconds=0.2)
        release.complete(None)


def test_changed_wrapped_response_ends_the_connection(runtime: ThreadRuntime) -> None:
    def script(caller: Caller) -> None:
        secure = SecureCaller(caller, token())
        secure.authenticate()
        frames = secure.frames()
        next(frames)
        request = framing.parse_request(next(frames))
        assert secure.layer is not None
        wrapped = bytearray(secure.layer.wrap(framing.response(request.call_id, b"changed")))
        wrapped[0] ^= 1
        caller.sock.sendall(encode_token(bytes(wrapped)))
        secure.exactly(1)

    connections = make_connections(runtime, {"hbase.rpc.protection": "integrity"}, token=token())
    with (
        serving(runtime, script, is_raw=True) as peer,
        pytest.raises(MetaClientError, match="signature is wrong") as caught,
    ):
        ask(connections, peer, runtime)
    connections.close()
    assert caught.value.may_have_applied  # the server had the call


def test_simple_client_of_a_secure_server_is_told_at_once(runtime: ThreadRuntime) -> None:
    def script(caller: Caller) -> None:
        caller.handshake()
        caller.refuse(
            framing.CONNECTION_CALL_ID, AccessDenied.java_class or "", "Authentication is required", do_not_retry=True
        )

    connections = Connections(runtime, Security.of({}))
    with (
        serving(runtime, script, is_raw=True) as peer,
        pytest.raises(AuthenticationFailed, match=r"Authentication is required.*Kerberos.*token="),
    ):
        ask(connections, peer, runtime)
    connections.close()


@pytest.mark.parametrize(
    ("answer", "expected", "match"),
    [
        (
            encode_refusal(SASL, "GSS initiate failed"),
            AuthenticationFailed,
            r"requires authentication.*Kerberos.*token=",
        ),
        (SWITCH, ServerUnreachable, "closed the connection before its first answer"),
        (b"", ServerUnreachable, "closed the connection before its first answer"),
    ],
    ids=["secure", "simple", "silent"],
)
def test_server_that_hangs_up_on_a_simple_client_is_asked_whether_it_is_secure(
    runtime: ThreadRuntime, answer: bytes, expected: type[MetaClientError], match: str
) -> None:
    """A secure HBase 3.0 closes simple connections without an answer."""

    def script(caller: Caller) -> None:
        secure = SecureCaller(caller, token())
        if secure.preamble().auth == framing.AUTH_KERBEROS:
            assert secure.token() == b""
            caller.sock.sendall(answer)
        else:
            secure.token()  # the header, then the call
            secure.token()

    connections = Connections(runtime, Security.of({}))
    with serving(runtime, script, is_raw=True) as peer, pytest.raises(expected, match=match):
        ask(connections, peer, runtime)
    connections.close()


# -- Kerberos, with a security context of the test -----------------------------------------------------------------


class Context:
    """A security context that completes after one round; the server is asked for by a name of the test."""

    def __init__(self, login: object, server: object) -> None:
        self.server = str(server)
        self.is_complete = False

    def step(self, received: bytes | None) -> bytes:
        if "down" in self.server:
            raise KdcUnreachable("no Kerberos server (KDC) answers")
        self.is_complete = received is not None
        return self.server.encode() if received is None else b""

    def wrap(self, data: bytes, *, encrypts: bool) -> bytes:
        return data

    def unwrap(self, data: bytes) -> bytes:
        return data


@pytest.fixture
def tickets(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(security_module, "KerberosContext", Context)


def principal_server(known: str, seen: list[str], headers: list[dict[str, object]]) -> Callable[[Caller], None]:
    """A server that has one principal and echoes."""

    def script(caller: Caller) -> None:
        secure = SecureCaller(caller, token())
        assert secure.preamble().auth == framing.AUTH_KERBEROS
        asked = secure.token().decode()
        seen.append(asked)
        if not asked.startswith(known):
            caller.sock.sendall(encode_refusal(SASL, "GSS initiate failed"))
            return
        caller.sock.sendall(encode_challenge(b"AP-REP"))
        assert secure.token() == b""
        caller.sock.sendall(encode_challenge(b"\7\1\0\0"))
        assert secure.token() == b"\1\0\0\0"
        frames = secure.frames()
        headers.append(framing.parse_connection_header(next(frames)))
        for frame in frames:
            request = framing.parse_request(frame)
            secure.send(framing.response(request.call_id, request.param))

    return script


BOTH = {"hbase.master.kerberos.principal": "m/_HOST@R", "hbase.regionserver.kerberos.principal": "r/_HOST@R"}


@pytest.mark.usefixtures("tickets")
def test_registry_server_may_have_either_principal_and_the_right_one_is_remembered(runtime: ThreadRuntime) -> None:
    seen: list[str] = []
    connections = make_connections(runtime, BOTH)
    with serving(runtime, principal_server("r/", seen, []), is_raw=True) as peer:
        registry = peer.address._replace(service="ClientMetaService")
        for _ in range(2):
            deadline = runtime.now() + WAIT_S
            request = Request(b"GetClusterId", b"hi", text, deadline, "the registry")
            assert connections.call(registry, request).result(deadline) == b"hi"
            connections._open[registry].close()
    connections.close()
    assert [one[0] for one in seen] == ["m", "r", "r"]


@pytest.mark.usefixtures("tickets")
def test_refused_principal_is_named(runtime: ThreadRuntime) -> None:
    connections = make_connections(runtime, BOTH)
    with (
        serving(runtime, principal_server("x/", [], []), is_raw=True) as peer,
        pytest.raises(AuthenticationFailed, match=r"ticket for r/localhost@R.*GSS initiate failed.*principal"),
    ):
        ask(connections, peer, runtime)
    connections.close()


@pytest.mark.usefixtures("tickets")
def test_header_names_a_user_only_for_do_as(runtime: ThreadRuntime) -> None:
    headers: list[dict[str, object]] = []
    with serving(runtime, principal_server("hbase/", [], headers), is_raw=True) as peer:
        for options in ({}, {"do_as": "bob"}):
            connections = make_connections(runtime, **options)
            assert ask(connections, peer, runtime) == b"hello"
            connections.close()
    assert "user_info" not in headers[0]
    assert headers[1]["user_info"] == {"effective_user": "bob"}


@pytest.mark.usefixtures("tickets")
def test_kerberos_server_that_is_down_may_be_asked_again(runtime: ThreadRuntime) -> None:
    connections = make_connections(runtime, {"hbase.regionserver.kerberos.principal": "down/_HOST@R"})
    with (
        serving(runtime, principal_server("", [], []), is_raw=True) as peer,
        pytest.raises(KdcUnreachable, match="KDC") as caught,
    ):
        ask(connections, peer, runtime)
    connections.close()
    assert caught.value.disposition.value == "backoff"


def test_missing_gssapi_says_what_to_install_and_a_token_needs_it_not(
    runtime: ThreadRuntime, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "gssapi", None)
    with pytest.raises(ExtraMissing, match=r"apt-get .*libkrb5-dev.*pip install 'hbase-metaclient\[kerberos\]'"):
        load_gssapi()
    connections = make_connections(runtime)
    with (
        serving(runtime, principal_server("", [], []), is_raw=True) as peer,
        pytest.raises(ExtraMissing, match="libkrb5-dev"),
    ):
        ask(connections, peer, runtime)
    connections.close()
    connections = make_connections(runtime, token=token())
    with serving(runtime, echoing(token(), []), is_raw=True) as peer:
        assert ask(connections, peer, runtime) == b"hello"
    connections.close()


@pytest.mark.parametrize(
    ("pattern", "host", "made"),
    [
        ("hbase/_HOST@R", "Node1.EXAMPLE", "hbase/node1.example@R"),
        ("hbase/fixed@R", "Node1", "hbase/fixed@R"),
        ("hbase/_HOST", "node1", "hbase/node1"),
    ],
)
def test_host_of_a_principal_is_in_lower_case(pattern: str, host: str, made: str) -> None:
    assert str(make_server_principal(pattern, host)) == made


@pytest.mark.parametrize("pattern", ["hbase", "hbase@R", "a/b/c@R", "/h@R", "hbase/@R", ""])
def test_principal_without_a_host_is_refused(pattern: str) -> None:
    with pytest.raises(MetaClientError, match="SERVICE/_HOST@REALM"):
        make_server_principal(pattern, "h")


def test_tokens_of_several_clusters_are_chosen_by_the_cluster_id(runtime: ThreadRuntime) -> None:
    import dataclasses

    base = Security.of(config=Config.of(SERVERS, token=token()))
    several = dataclasses.replace(
        base,
        settings=dataclasses.replace(base.settings, tokens=(token("c1"), token("c2"), token("c2", expires=99_000))),
        find_cluster_id=lambda deadline: "c2",
    )
    assert several._choose_token(0, 1.0) == token("c2", expires=99_000)
    other = dataclasses.replace(several, find_cluster_id=lambda deadline: "c3")
    with pytest.raises(AuthenticationFailed, match=r"no token is of this cluster \(c3\): there are tokens of c1, c2"):
        other._choose_token(0, 1.0)
