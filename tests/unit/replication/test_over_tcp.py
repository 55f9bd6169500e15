"""Clusters that replicate over TCP: the peer is found in a ZooKeeper, and the entries go by HBase's RPC."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import metaclient
from metaclient.config.cluster_keys import ClusterKey
from metaclient.errors import (
    BackendFault,
    ConfigError,
    MetaClientError,
    NoSuchFamily,
    RequestRefused,
    ServerUnreachable,
)
from metaclient.model import FamilyDescriptor, ServerName, TableDescriptor
from metaclient.runtime import Pending, SimRuntime, ThreadRuntime
from metaclient.wire import publication
from metaclient.wire.rpc.cluster_nodes import cluster_id_node
from metaclient_fake import FakeCluster
from metaclient_fake.coordination.znodes import NoNode
from metaclient_native import native_factory
from metaclient_native.replication import ReplicationCalls
from tests.unit.replication.zookeeper_server import ZooKeeperServer

pytest.importorskip("kazoo")

#: Generous: a busy machine is not a fault.
WAIT_S = 60.0
#: Sources look again soon; the tests wait in real time.
SOON = {"peer_replication_retry_pause_s": 0.02, "peer_replication_retry_multiplier_max": 2}
TABLE = TableDescriptor(b"t", (FamilyDescriptor(b"f", replication_scope=1), FamilyDescriptor(b"g")))


@pytest.fixture(autouse=True)
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(publication, "PERIOD_S", 0.02)


@pytest.fixture
def runtime() -> Iterator[ThreadRuntime]:
    with ThreadRuntime(name="test") as made:
        yield made


@pytest.fixture
def zookeeper(runtime: ThreadRuntime) -> Iterator[ZooKeeperServer]:
    made = ZooKeeperServer(runtime)
    yield made
    made.close()


@pytest.fixture
def west() -> Iterator[FakeCluster]:
    with FakeCluster(servers=2, meta_replicas=1, name="west", config=SOON) as cluster:
        cluster.create_table(TABLE)
        cluster.serve(thrift1_port=None, thrift2_port=None, rpc_port=0)
        yield cluster


@pytest.fixture
def east() -> Iterator[FakeCluster]:
    with FakeCluster(servers=2, meta_replicas=1, name="east", config=SOON) as cluster:
        cluster.create_table(TABLE)
        yield cluster


def publish(cluster: FakeCluster, key: str) -> None:
    assert cluster.front is not None
    cluster.front.publish(key)


def wait_for(runtime: ThreadRuntime, is_so: Callable[[], object]) -> None:
    until = runtime.now() + WAIT_S
    while not is_so():
        assert runtime.now() < until, "it did not happen in time"
        runtime.sleep(0.005)


def rows(cluster: FakeCluster) -> dict[bytes, dict[bytes, Any]]:
    with cluster.connect() as connection:
        return {row: dict(data) for row, data in connection.table("t").scan(include_timestamp=True)}


def put(cluster: FakeCluster, row: bytes, *columns: bytes, timestamp: int = 7) -> None:
    with cluster.connect() as connection:
        connection.table("t").put(row, dict.fromkeys(columns or (b"f:q",), b"v"), timestamp=timestamp)


def test_cluster_of_another_process_gets_the_edits_of_scope_1_only(
    runtime: ThreadRuntime, zookeeper: ZooKeeperServer, east: FakeCluster, west: FakeCluster
) -> None:
    key = zookeeper.key("/west")
    publish(west, key)
    put(east, b"a", b"f:q", b"g:q")
    east.replication.add("p", key)
    put(east, b"b")
    wait_for(runtime, lambda: len(rows(west)) == 2)
    assert rows(west) == {b"a": {b"f:q": (b"v", 7)}, b"b": {b"f:q": (b"v", 7)}}


def test_two_ways_over_tcp_do_not_echo(
    runtime: ThreadRuntime, zookeeper: ZooKeeperServer, east: FakeCluster, west: FakeCluster
) -> None:
    east.serve(thrift1_port=None, thrift2_port=None, rpc_port=0)
    for cluster, other in ((east, "/west"), (west, "/east")):
        publish(cluster, zookeeper.key(f"/{cluster.name}"))
        cluster.replication.add("p", zookeeper.key(other))
    put(east, b"a", timestamp=5)
    put(west, b"b", timestamp=6)
    wait_for(runtime, lambda: len(rows(west)) == len(rows(east)) == 2)
    # An echo would be shipped after the edits that follow it in the same log.
    put(east, b"c", timestamp=7)
    put(west, b"d", timestamp=8)
    wait_for(runtime, lambda: len(rows(west)) == len(rows(east)) == 4)
    for cluster in (east, west):
        shipped = sum(load.edits_shipped for status in cluster.replication.status() for load in status.sources)
        assert shipped <= 2, "only its own edits"


def test_peer_that_is_published_later_is_found(
    runtime: ThreadRuntime, zookeeper: ZooKeeperServer, east: FakeCluster, west: FakeCluster
) -> None:
    key = zookeeper.key("/west")
    east.replication.add("p", key)
    put(east, b"a")
    wait_for(runtime, lambda: zookeeper.sessions)
    publish(west, key)
    wait_for(runtime, lambda: rows(west))


def test_servers_that_start_and_end_are_seen_by_the_sources(
    runtime: ThreadRuntime, zookeeper: ZooKeeperServer, west: FakeCluster
) -> None:
    key = zookeeper.key("/west")
    publish(west, key)
    backend = native_factory(ClusterKey.parse(key).url, runtime=runtime, properties={})
    sinks = backend.replication_admin

    def seen() -> list[ServerName]:
        return sinks.live_servers(runtime.now() + WAIT_S)

    assert len(seen()) == 2
    reads = zookeeper.sessions
    west.add_server()
    wait_for(runtime, lambda: len(seen()) == 3)
    west.stop("rs1")
    wait_for(runtime, lambda: len(seen()) == 2)
    assert zookeeper.sessions == reads, "on one session, with watches"
    assert sinks.cluster_id(runtime.now() + WAIT_S) == west.cluster_id
    backend.close()


def test_lost_session_does_not_leave_the_cluster_unpublished(
    runtime: ThreadRuntime, zookeeper: ZooKeeperServer, west: FakeCluster
) -> None:
    publish(west, zookeeper.key("/west"))
    servers = zookeeper.nodes.children("/west/rs")
    assert len(servers) == 2
    begun = zookeeper.sessions
    zookeeper.break_off()
    wait_for(runtime, lambda: zookeeper.sessions > begun and zookeeper.nodes.children("/west/rs") == servers)
    wait_for(runtime, lambda: zookeeper.nodes.children("/west") == ["hbaseid", "master", "meta-region-server", "rs"])


def test_clients_find_a_published_cluster_also_after_its_meta_has_moved(
    runtime: ThreadRuntime, zookeeper: ZooKeeperServer, west: FakeCluster
) -> None:
    key = zookeeper.key("/west")
    publish(west, key)
    put(west, b"a")
    before = zookeeper.nodes.get("/west/meta-region-server").data
    with metaclient.connect(ClusterKey.parse(key).url) as connection:
        assert [row for row, _ in connection.table("t").scan()] == [b"a"]
    west.stop(west.meta_server(0))
    wait_for(runtime, lambda: meta_node(zookeeper) not in (None, before))
    with metaclient.connect(ClusterKey.parse(key).url) as connection:
        assert [row for row, _ in connection.table("t").scan()] == [b"a"]


def meta_node(zookeeper: ZooKeeperServer) -> bytes | None:
    """The data of the node; None between the deletion of the old one and the creation of the next."""
    try:
        return zookeeper.nodes.get("/west/meta-region-server").data
    except NoNode:
        return None


def test_closed_front_is_withdrawn_from_zookeeper(
    runtime: ThreadRuntime, zookeeper: ZooKeeperServer, west: FakeCluster
) -> None:
    publish(west, zookeeper.key("/deep/west"))
    assert zookeeper.nodes.get("/deep/west/hbaseid").data == cluster_id_node(west.cluster_id)
    assert west.front is not None
    west.front.close()
    wait_for(runtime, lambda: zookeeper.nodes.children("/deep/west") == ["rs"])
    assert zookeeper.nodes.children("/deep/west/rs") == []


def test_parent_of_another_cluster_is_not_taken_over(zookeeper: ZooKeeperServer, west: FakeCluster) -> None:
    """The servers of a real cluster stand there: sources would ship to both."""
    zookeeper.nodes.create("/hbase/hbaseid", cluster_id_node("0" * 36), make_parents=True)
    with pytest.raises(RequestRefused, match="/hbase in this ZooKeeper belongs to another cluster"):
        publish(west, zookeeper.key("/hbase"))
    assert zookeeper.nodes.children("/hbase") == ["hbaseid"]


@pytest.mark.parametrize("key", ["zk1", "zk1:2181", "zk1:2181:hbase", "zk1:2181:/", ":2181:/a", "zk1,:2181:/a"])
def test_bad_key_is_refused_before_zookeeper_is_asked(west: FakeCluster, key: str) -> None:
    with pytest.raises(ConfigError, match="is not a cluster key"):
        publish(west, key)


def test_cluster_without_rpc_cannot_be_published(east: FakeCluster) -> None:
    with east.serve(thrift1_port=None) as front, pytest.raises(RequestRefused, match="rpc_port=0"):
        front.publish("zk1:2181:/east")


def test_zookeeper_that_is_not_there_is_said(west: FakeCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(publication, "COMPARE_S_MAX", 0.2)
    with pytest.raises(ServerUnreachable, match="check the address"):
        publish(west, "127.0.0.1:1:/west")


def messages(caplog: pytest.LogCaptureFixture) -> str:
    return "\n".join(record.getMessage() for record in caplog.records)


def test_cluster_that_is_its_own_peer_ships_nothing(
    runtime: ThreadRuntime, zookeeper: ZooKeeperServer, west: FakeCluster, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING, "metaclient_fake")
    publish(west, zookeeper.key("/west"))
    west.replication.add("p", zookeeper.key("/west"))
    put(west, b"a")
    wait_for(runtime, lambda: "is that of the cluster itself" in messages(caplog))
    assert not any(load.edits_shipped for status in west.replication.status() for load in status.sources)


def test_virtual_time_refuses_a_real_peer_and_finds_one_that_joins(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING, "metaclient_fake")
    with SimRuntime(seed=1) as runtime, FakeCluster(servers=1, meta_replicas=1, runtime=runtime) as east:
        east.create_table(TABLE)
        east.replication.add("p", "west:2181:/hbase")
        put(east, b"a")
        runtime.sleep(10.0)
        assert "a cluster on virtual time cannot replicate to a real one" in messages(caplog)
        with FakeCluster(servers=1, meta_replicas=1, network=east.network, name="west") as west:
            west.create_table(TABLE)
            runtime.sleep(60.0)
            assert list(rows(west)) == [b"a"]


def test_removed_peer_leaves_no_session_behind(
    runtime: ThreadRuntime, zookeeper: ZooKeeperServer, east: FakeCluster, west: FakeCluster
) -> None:
    key = zookeeper.key("/west")
    publish(west, key)
    before = len(zookeeper._sockets)
    east.replication.add("p", key)
    put(east, b"a")
    wait_for(runtime, lambda: rows(west))
    assert len(zookeeper._sockets) > before
    east.replication.remove("p")
    wait_for(runtime, lambda: len(zookeeper._sockets) == before)


def test_queue_of_a_dead_server_that_was_shipped_leaves_no_session_behind(
    runtime: ThreadRuntime, zookeeper: ZooKeeperServer, west: FakeCluster
) -> None:
    key = zookeeper.key("/west")
    publish(west, key)
    settings = {**SOON, "peer_replication_sleep_before_failover_s": 0.01, "session_timeout_s": 0.2}
    with FakeCluster(servers=2, meta_replicas=1, name="east", config=settings) as east:
        east.create_table(TABLE)
        before = len(zookeeper._sockets)
        east.replication.add("p", key)
        put(east, b"a")
        wait_for(runtime, lambda: rows(west))
        host = east.server_of(east.regions("t")[0])
        assert host is not None
        east.kill(host)
        wait_for(runtime, lambda: len(east.master.live) == 1)
        wait_for(runtime, lambda: not any("-" in one.queue_id for s in east.replication.status() for one in s.sources))
        put(east, b"b")
        wait_for(runtime, lambda: len(rows(west)) == 2)
        wait_for(runtime, lambda: len(zookeeper._sockets) == before + 1)


class FailingConnections:
    """Stands for connections whose every call fails."""

    def __init__(self, runtime: ThreadRuntime, error: MetaClientError) -> None:
        self._runtime = runtime
        self._error = error

    def call(self, address: object, request: object) -> Pending[None]:
        pending: Pending[None] = self._runtime.pending()
        pending.fail(self._error)
        return pending


def test_missing_family_that_hbase_hides_in_a_text_has_its_class(runtime: ThreadRuntime) -> None:
    """HBase's sink sends a RetriesExhaustedException; a source drops edits of deleted families by the class."""
    text = "ReplicateWALEntry: RetriesExhaustedException: NoSuchColumnFamilyException: Column family f does not exist"
    nothing: Any = None
    for error, expected in ((BackendFault(text), NoSuchFamily), (BackendFault("full disk"), BackendFault)):
        connections: Any = FailingConnections(runtime, error)
        calls = ReplicationCalls(nothing, connections, nothing)
        with pytest.raises(expected, match=str(error)):
            calls.replicate(ServerName("rs1", 1, 1), [], runtime.now() + WAIT_S)
