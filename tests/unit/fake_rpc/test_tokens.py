"""The fake's RPC front with delegation tokens: the whole client against it, and clients that must be refused."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

import metaclient
from metaclient import AuthenticationFailed, ConfigError, Token
from metaclient.errors import RequestRefused
from metaclient_fake import FakeCluster
from metaclient_fake.front.serving import Front


@pytest.fixture
def front() -> Iterator[Front]:
    with FakeCluster(servers=2) as cluster:
        yield cluster.serve(thrift1_port=None, thrift2_port=None, rpc_port=0, is_secure=True)


@pytest.mark.parametrize("protection", ["authentication", "integrity", "privacy"])
def test_token_reads_and_writes_with_every_protection(front: Front, protection: str) -> None:
    token = front.issue_token("alice")
    assert (token.username, token.cluster_id) == ("alice", front.cluster.cluster_id)
    properties = {"hbase.rpc.protection": protection}
    with metaclient.connect(front.rpc_url, open_timeout_s=60, config=properties, token=token) as connection:
        connection.create_table("t", {"f": {}})
        table = connection.table("t")
        table.put(b"a", {b"f:q": b"x" * 100_000})
        with table.batch() as batch:
            for number in range(20):
                batch.put(b"b%02d" % number, {b"f:q": b"1"})
        assert table.row(b"a") == {b"f:q": b"x" * 100_000}
        assert len(list(table.scan())) == 21


def test_expired_changed_and_foreign_tokens_are_final(front: Front) -> None:
    expired = front.issue_token("alice", life_s=0.001)
    front.cluster.runtime.sleep(0.01)
    good = front.issue_token("alice")
    for token, text in (
        (expired, "Token has expired; fetch a new token"),
        (Token(good.identifier, bytes(20), good.cluster_id), "Mismatched response"),
        (Token(good.identifier[:-1] + b"\x7f", good.password, good.cluster_id), "InvalidToken"),
    ):
        with pytest.raises(AuthenticationFailed, match=text) as caught:
            metaclient.connect(front.rpc_url, open_timeout_s=60, token=token)
        assert good.password.hex() not in str(caught.value)


def test_simple_client_is_told_to_authenticate(front: Front) -> None:
    with pytest.raises(AuthenticationFailed, match="Authentication is required"):
        metaclient.connect(front.rpc_url, open_timeout_s=60)


def test_server_that_is_not_secure_gets_no_call_of_a_token() -> None:
    with FakeCluster(servers=1) as cluster:
        front = cluster.serve(thrift1_port=None, thrift2_port=None, rpc_port=0, is_secure=True)
        token = front.issue_token("alice")
        front.close()
        plain = cluster.serve(thrift1_port=None, thrift2_port=None, rpc_port=0)
        with pytest.raises(RequestRefused, match="is_secure=True"):
            plain.issue_token("alice")
        with pytest.raises(AuthenticationFailed, match="would fall back to simple"):
            metaclient.connect(plain.rpc_url, open_timeout_s=60, token=token)


@pytest.mark.parametrize("sent", [b"", b"\0\0", b"\x7f\xff\xff\xff", b"\0\0\0\0", b"\0\0\0\0\0\0\0\4abcd"])
def test_client_that_sends_no_handshake_is_disconnected_and_harms_no_other(front: Front, sent: bytes) -> None:
    import socket

    assert front.rpc_port is not None
    with socket.create_connection(("127.0.0.1", front.rpc_port), 60) as client:
        client.sendall(b"HBas\x00\x52" + sent)
        client.shutdown(socket.SHUT_WR)
        while client.recv(4096):
            pass
    with metaclient.connect(front.rpc_url, open_timeout_s=60, token=front.issue_token("bob")) as connection:
        assert connection.tables() == []
    assert front.stats()["rpc"]["broken"] == 0


def test_token_without_a_user_is_refused(front: Front) -> None:
    for arguments in (("", 1.0), ("alice", 0.0)):
        with pytest.raises(ConfigError, match="name of a user"):
            front.issue_token(*arguments)
