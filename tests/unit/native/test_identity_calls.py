"""The calls of AuthenticationService against a scripted region server."""

from __future__ import annotations

import pytest

from metaclient.config.tokens import Token
from metaclient.errors import MetaClientError, RegionOffline, Unsupported
from metaclient.model import Identity, MetaReplica, ServerName
from metaclient.protobuf import decode, encode
from metaclient.runtime import ThreadRuntime
from metaclient.wire.rpc.security_messages import (
    EXEC_SERVICE_REQUEST,
    EXEC_SERVICE_RESPONSE,
    GET_TOKEN_RESPONSE,
    WHO_AM_I_RESPONSE,
)
from metaclient_native.connections import Connections
from metaclient_native.identity import IdentityCalls
from metaclient_native.security import Security
from tests.unit.native.peer import WAIT_S, Caller, Peer, serving
from tests.unit.test_security_settings import identifier, token

REGION = {"type": 1, "value": b"hbase:meta,,1"}
HBASE = "org.apache.hadoop.hbase."


def make_calls(runtime: ThreadRuntime, peer: Peer, connections: Connections) -> IdentityCalls:
    server = ServerName("127.0.0.1", peer.port)
    return IdentityCalls(connections, lambda deadline: [MetaReplica(1, server), MetaReplica(0, server)])


@pytest.fixture
def connections(runtime: ThreadRuntime) -> Connections:
    return Connections(runtime, Security.of({}, user="ada"))


def answer_calls(caller: Caller) -> None:
    while True:
        request = caller.request()
        asked = decode(EXEC_SERVICE_REQUEST, request.param)
        assert request.method == "ExecService"
        assert (asked["region"], asked["call"]["service_name"]) == (REGION, "AuthenticationService")
        if asked["call"]["method_name"] == "WhoAmI":
            value = encode(WHO_AM_I_RESPONSE, {"username": "ada", "auth_method": "KERBEROS"})
        else:
            made = {"identifier": identifier(), "password": b"secret", "service": b"c1"}
            value = encode(GET_TOKEN_RESPONSE, {"token": made})
        answer = {"region": REGION, "value": {"name": "a.B", "value": value}}
        caller.answer(request.call_id, encode(EXEC_SERVICE_RESPONSE, answer))


def test_user_and_token_are_read_from_the_primary_of_meta(runtime: ThreadRuntime, connections: Connections) -> None:
    with serving(runtime, answer_calls) as peer:
        calls = make_calls(runtime, peer, connections)
        assert calls.whoami(runtime.now() + WAIT_S) == Identity("ada", "KERBEROS")
        made = calls.delegation_token(runtime.now() + WAIT_S)
    connections.close()
    assert made == token()
    assert isinstance(made, Token)
    assert made.password == b"secret"


def test_cluster_without_the_coprocessor_names_it(runtime: ThreadRuntime, connections: Connections) -> None:
    def script(caller: Caller) -> None:
        call_id = caller.request().call_id
        caller.refuse(call_id, HBASE + "exceptions.UnknownProtocolException", "No registered", do_not_retry=True)

    with serving(runtime, script) as peer, pytest.raises(Unsupported, match="TokenProvider"):
        make_calls(runtime, peer, connections).whoami(runtime.now() + WAIT_S)
    connections.close()


def test_cluster_without_kerberos_issues_no_token(runtime: ThreadRuntime, connections: Connections) -> None:
    def script(caller: Caller) -> None:
        call_id = caller.request().call_id
        answer = {"region": REGION, "value": {"name": "a.B", "value": b""}}
        caller.answer(call_id, encode(EXEC_SERVICE_RESPONSE, answer))

    with serving(runtime, script) as peer, pytest.raises(Unsupported, match="issues no token"):
        make_calls(runtime, peer, connections).delegation_token(runtime.now() + WAIT_S)
    connections.close()


@pytest.mark.parametrize("raw", [b"\xff", b"\x12\x05ab"])
def test_answer_that_is_no_message_is_an_error_of_ours(
    runtime: ThreadRuntime, connections: Connections, raw: bytes
) -> None:
    def script(caller: Caller) -> None:
        caller.answer(caller.request().call_id, raw)

    with serving(runtime, script) as peer, pytest.raises(MetaClientError):
        make_calls(runtime, peer, connections).whoami(runtime.now() + WAIT_S)
    connections.close()


def test_meta_without_a_server_is_looked_up_again(runtime: ThreadRuntime, connections: Connections) -> None:
    calls = IdentityCalls(connections, lambda deadline: [])
    with pytest.raises(RegionOffline):
        calls.whoami(runtime.now() + WAIT_S)
    connections.close()
