"""Delegation tokens from the driver to the tasks of Spark: pickled, kept by workers, renewed, and never shown."""

from __future__ import annotations

import pickle
from base64 import b64encode
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import metaclient
from metaclient import Token
from metaclient.errors import AuthenticationFailed, Unsupported
from metaclient_fake import FakeCluster
from metaclient_fake.front.serving import Front
from spark_connector import clients
from spark_connector.planning.splits import TableSplit
from spark_connector.settings import tokens
from spark_connector.settings.options import Options
from spark_connector.streaming.source_and_sink import ChangesPartition

KERBEROS = {
    "hbase.security.authentication": "kerberos",
    "hbase.regionserver.kerberos.principal": "hbase/_HOST@R",
    "hbase.master.kerberos.principal": "hbase/_HOST@R",
    "hbase.client.keytab.file": "/only/on/the/driver.keytab",
    "hbase.client.keytab.principal": "etl@R",
}


@pytest.fixture
def front() -> Iterator[Front]:
    with FakeCluster(servers=1) as cluster:
        yield cluster.serve(thrift1_port=None, thrift2_port=None, rpc_port=0, is_secure=True)


@pytest.fixture(autouse=True)
def empty(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A process that has neither received nor fetched a token."""
    monkeypatch.setattr(tokens, "_received", {})
    monkeypatch.setattr(clients._clients, "fetched", {})
    yield
    clients.close_all()


def options_of(front: Front, **more: str) -> Options:
    return Options.parse({"url": str(front.rpc_url), "hbase.table": "t", **KERBEROS, **more})


def sent(value: Any, token: Token | None, monkeypatch: pytest.MonkeyPatch) -> tuple[Any, bytes]:
    """Pickle a value on a driver that has this token, and unpickle it."""
    with monkeypatch.context() as patched:
        patched.setattr(tokens, "_source", lambda options: token)
        data = pickle.dumps(value)
    return pickle.loads(data), data


def test_worker_authenticates_by_the_token_without_keytab_and_kdc(
    front: Front, monkeypatch: pytest.MonkeyPatch
) -> None:
    options = options_of(front)
    arrived, _ = sent(options, front.issue_token("etl"), monkeypatch)
    assert arrived == options
    with clients.lease(arrived) as connection:
        assert connection.whoami() == ("etl", "TOKEN")


def test_cluster_without_security_ships_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    for url in ("hbase+rpc://127.0.0.1:1", "thrift2://127.0.0.1:1"):
        options = Options.parse({"url": url, "hbase.table": "t"})
        assert pickle.loads(pickle.dumps(options)) == options
    assert tokens._received == {}


def test_driver_fetches_one_token_and_a_new_one_at_80_percent_of_its_life(
    front: Front, monkeypatch: pytest.MonkeyPatch
) -> None:
    fetched: list[Token] = []
    now_ms = front.cluster.runtime.time_ms()

    class _Kerberos:
        def __enter__(self) -> _Kerberos:
            return self

        def __exit__(self, *error: object) -> None:
            pass

        def delegation_token(self) -> Token:
            fetched.append(front.issue_token("etl", life_s=100.0))
            return fetched[-1]

    monkeypatch.setattr(clients.metaclient, "connect", lambda url, config: _Kerberos())
    options = options_of(front)
    for later_s, count in ((0, 1), (79, 1), (81, 2)):
        monkeypatch.setattr(clients._runtime, "time_ms", lambda later_s=later_s: now_ms + later_s * 1000)
        pickle.dumps(options)
        assert len(fetched) == count, later_s


def test_driver_that_has_only_a_token_file_passes_its_token_on(
    front: Front, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    own = front.issue_token("etl")
    file = tmp_path / "tokens"
    parts = (b"alias", own.identifier, own.password, b"HBASE_AUTH_TOKEN", own.cluster_id.encode())
    file.write_bytes(b"HDTS\0\1" + b"".join(bytes((len(part),)) + part for part in parts) + b"\0")
    monkeypatch.setenv("HADOOP_TOKEN_FILE_LOCATION", str(file))
    plain = {name: value for name, value in KERBEROS.items() if "keytab" not in name}
    options = Options.parse({"url": str(front.rpc_url), "hbase.table": "t", **plain})
    data = pickle.dumps(options)
    monkeypatch.delenv("HADOOP_TOKEN_FILE_LOCATION")
    with clients.lease(pickle.loads(data)) as connection:
        assert connection.whoami() == ("etl", "TOKEN")


def test_partition_of_a_later_micro_batch_brings_a_newer_token(front: Front, monkeypatch: pytest.MonkeyPatch) -> None:
    options = options_of(front)
    old, new = front.issue_token("etl", life_s=0.001), front.issue_token("etl")
    arrived, _ = sent(options, old, monkeypatch)
    front.cluster.runtime.sleep(0.01)
    with pytest.raises(AuthenticationFailed, match="Token has expired"), clients.lease(arrived):
        pass
    partition = ChangesPartition(TableSplit(), 0, 1, token=tokens.TokenParcel(options))
    received, _ = sent(partition, new, monkeypatch)
    assert received.token is None
    with clients.lease(arrived) as connection:
        assert connection.whoami().username == "etl"
    sent(options, old, monkeypatch)  # a late task with the older token
    assert tokens.received_token(options.client_key()) == new


def test_client_with_an_old_token_is_replaced_and_closed_after_its_last_task(
    front: Front, monkeypatch: pytest.MonkeyPatch
) -> None:
    options, now_ms = options_of(front), front.cluster.runtime.time_ms()
    sent(options, front.issue_token("etl", life_s=1000.0), monkeypatch)
    with clients.lease(options) as first:
        sent(options, front.issue_token("etl", life_s=2000.0), monkeypatch)
        with clients.lease(options) as same:
            assert same is first  # before 80 % of its life
        monkeypatch.setattr(clients._runtime, "time_ms", lambda: now_ms + 900_000)
        with clients.lease(options) as second:
            assert second is not first
        assert first.whoami().username == "etl"
    with pytest.raises(metaclient.ConnectionClosed):
        first.whoami()


def test_cluster_that_issues_no_token_leaves_tasks_their_own_identity(
    front: Front, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def refuse(url: str, config: object) -> None:
        raise Unsupported("no TokenProvider")

    monkeypatch.setattr(clients.metaclient, "connect", refuse)
    assert clients._token_for_tasks(options_of(front)) is None
    assert "no TokenProvider" in caplog.text


def test_secrets_are_in_no_repr_of_what_is_pickled(front: Front, monkeypatch: pytest.MonkeyPatch) -> None:
    token = front.issue_token("etl")
    arrived, data = sent(options_of(front), token, monkeypatch)
    assert token.password in data  # so that the search below could fail
    parcel = tokens.TokenParcel(arrived)
    shown = f"{arrived!r} {arrived.properties!r} {parcel!r} {arrived.client_key()!r} {tokens._received!r}"
    for secret in (token.password, token.identifier):
        for text in (secret.hex(), b64encode(secret).decode(), str(secret)[2:-1]):
            assert text not in shown
