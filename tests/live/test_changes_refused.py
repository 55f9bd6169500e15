"""What a real HBase and its ZooKeeper refuse to a subscription: each is a clear error that leaves nothing behind."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

import metaclient
from metaclient import Connection
from metaclient.changes import Subscriptions
from metaclient.errors import AccessDenied, MetaClientError, RequestRefused, ServerNotRunning
from metaclient.protobuf import BOOL, Message
from metaclient_local_hbase import LocalHBase
from tests.live.load import WAIT_S_MAX, backend_of, connect_patiently, unwatched

kazoo_client = pytest.importorskip("kazoo.client")
security = pytest.importorskip("kazoo.security")

NAME = "live-refused"
PEER = "live_refused"
ROOT = "/metaclient-changes"
SWITCH_REQUEST = Message("ReplicationPeerModificationSwitchRequest", (1, "on!", BOOL))
SWITCH_RESPONSE = Message("ReplicationPeerModificationSwitchResponse", (1, "previous_value!", BOOL))
_ACCESS = "org.apache.hadoop.hbase.security.access.AccessController"


@pytest.fixture
def table(native: Connection) -> Iterator[bytes]:
    made = f"refused_{native.engine.runtime.time_ms()}".encode()
    native.create_table(made, {"cf": {"replication_scope": 1}, "local": {}})
    yield made
    native.delete_table(made, disable=True)


@pytest.fixture
def zookeeper(hbase: LocalHBase) -> Iterator[Any]:
    client = kazoo_client.KazooClient(hosts=hbase.zookeeper)
    client.start(timeout=WAIT_S_MAX)
    yield client
    client.stop()
    client.close()


@pytest.fixture
def is_clean(native: Connection, zookeeper: Any) -> Callable[[], bool]:
    """Return a function that is True if neither a peer nor a node of the subscription is there."""

    def check() -> bool:
        peers = [peer.id for peer in native.replication.list()]
        return PEER not in peers and zookeeper.exists(f"{ROOT}/{PEER}") is None

    return check


def test_family_that_is_not_replicated(native: Connection, is_clean: Callable[[], bool]) -> None:
    name = f"plain_{native.engine.runtime.time_ms()}".encode()
    native.create_table(name, {"cf": {}})
    try:
        with pytest.raises(RequestRefused, match="REPLICATION_SCOPE => 1"):
            native.changes(name, name=NAME)
    finally:
        native.delete_table(name, disable=True)
    assert is_clean()


def test_peer_of_that_name_with_another_key(
    hbase: LocalHBase, native: Connection, table: bytes, zookeeper: Any
) -> None:
    other = f"{hbase.zookeeper}:/elsewhere"
    native.replication.add(PEER, other, tables=[table], enabled=False)
    try:
        with pytest.raises(RequestRefused, match=rf"a replication peer has \(its cluster key is '{other}'\)"):
            native.changes(table, name=NAME)
        assert [peer.config.cluster_key for peer in native.replication.list() if peer.id == PEER] == [other]
        assert zookeeper.exists(f"{ROOT}/{PEER}") is None
    finally:
        native.replication.remove(PEER)


def test_subscription_that_was_made_with_other_addresses_of_zookeeper(
    hbase: LocalHBase, native: Connection, table: bytes, is_clean: Callable[[], bool]
) -> None:
    Subscriptions(native).create(NAME, [table])
    port = hbase.zookeeper.rpartition(":")[2]
    try:
        with (
            metaclient.connect(f"hbase://localhost:{port}") as other,
            pytest.raises(RequestRefused, match=r"was made with the cluster key .* and this connection has"),
        ):
            other.changes(table, name=NAME)
    finally:
        Subscriptions(native).remove(NAME)
    assert is_clean()


def test_cluster_whose_peers_must_not_change(native: Connection, table: bytes, is_clean: Callable[[], bool]) -> None:
    """The shell's ``peer_modification_switch``, which turns changes of replication off."""
    with peers_locked(native):
        with pytest.raises(RequestRefused, match=f"the subscription '{NAME}' was not made, because the master refused"):
            native.changes(table, name=NAME)
        assert is_clean()
    native.changes(table, name=NAME).close()
    Subscriptions(native).remove(NAME)
    assert is_clean()


@contextmanager
def peers_locked(native: Connection) -> Iterator[None]:
    admin, now = backend_of(native).admin, native.engine.runtime.now

    def switch(is_on: bool) -> None:
        method = "ReplicationPeerModificationSwitch"
        admin.ask(method, SWITCH_REQUEST, {"on": is_on}, SWITCH_RESPONSE, now() + WAIT_S_MAX)

    switch(False)
    try:
        yield
    finally:
        switch(True)


@pytest.mark.parametrize("at", ["", "/rs"])
def test_zookeeper_in_which_nobody_may_write(
    native: Connection, table: bytes, zookeeper: Any, is_clean: Callable[[], bool], at: str
) -> None:
    """The node of all subscriptions, or that of the workers of this one, may only be read."""
    read_only = [security.make_acl("world", "anyone", read=True, admin=True)]
    everybody = [security.make_acl("world", "anyone", all=True)]
    if at:
        Subscriptions(native).create(NAME, [table])
    path = f"{ROOT}/{PEER}{at}" if at else ROOT
    zookeeper.ensure_path(path)
    zookeeper.set_acls(path, read_only)
    try:
        with pytest.raises(RequestRefused, match=rf"ZooKeeper at .* refuses {path}/.*NoAuthError.*by the ACL"):
            native.changes(table, name=NAME)
        assert at or is_clean()
    finally:
        zookeeper.set_acls(path, everybody)
    if at:
        Subscriptions(native).remove(NAME)
    assert is_clean()


def test_url_with_a_parent_that_is_no_hbase(hbase: LocalHBase, table: bytes, is_clean: Callable[[], bool]) -> None:
    with (
        pytest.raises(ServerNotRunning, match=r"has no /nowhere.*zookeeper\.znode\.parent"),
        metaclient.connect(f"{hbase.native_url}/nowhere", operation_timeout_s=5, retries=1) as other,
    ):
        other.changes(table, name=NAME)
    assert is_clean()


@pytest.mark.parametrize("version", ["2.6.1", "3.0.0-alpha-4"])
def test_user_who_must_not_add_peers(version: str) -> None:
    """A cluster that checks permissions, and a user without the right ADMIN."""
    import getpass

    properties = {
        "hbase.security.authorization": "true",
        "hbase.superuser": getpass.getuser(),
        "hbase.coprocessor.master.classes": _ACCESS,
        "hbase.coprocessor.region.classes": _ACCESS,
        "hbase.coprocessor.regionserver.classes": _ACCESS,
    }
    with (
        unwatched(),
        LocalHBase(version, region_servers=1, meta_replicas=1, properties=properties) as hbase,
        connect_patiently(hbase) as native,
        metaclient.connect(f"{hbase.native_url}?user=bob") as of_bob,
    ):
        native.create_table("t", {"cf": {"replication_scope": 1}})
        with pytest.raises(AccessDenied, match=r"subscriptions are replication peers.*needs the global right ADMIN"):
            of_bob.changes("t", name=NAME)
        assert native.replication.list() == []
        client = kazoo_client.KazooClient(hosts=hbase.zookeeper)
        client.start(timeout=WAIT_S_MAX)
        try:
            assert client.exists(f"{ROOT}/{PEER}") is None
        finally:
            client.stop()
            client.close()
        with pytest.raises(MetaClientError, match="ADMIN"):
            Subscriptions(of_bob).list()
