"""Peers of whole clusters: queues follow the logs, servers die and start, the cleaner keeps what a queue needs."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from metaclient.errors import ConfigError, ConnectionClosed, RequestRefused
from metaclient.model import FamilyDescriptor, TableDescriptor
from metaclient.replication_peers import PeerState
from metaclient.runtime import SimRuntime, ThreadRuntime
from metaclient_fake.cluster import FakeCluster
from metaclient_fake.config.cluster import ClusterConfig
from metaclient_fake.replication.queues import QueueId

WEST = "west:2181:/hbase"


@pytest.fixture
def runtime() -> Iterator[SimRuntime]:
    with SimRuntime(seed=5) as runtime:
        yield runtime


@pytest.fixture
def east(runtime: SimRuntime) -> Iterator[FakeCluster]:
    with FakeCluster(servers=3, runtime=runtime, name="east") as cluster:
        yield cluster


def texts(cluster: FakeCluster) -> list[str]:
    """Return the queues of a cluster as ``host: queue``."""
    return [f"{queue.server.host}: {queue.text}" for queue in cluster.peer_replication.queues.all_queues()]


def wals(cluster: FakeCluster, host: str, peer: str = "p") -> list[str]:
    """Return the logs in the queue of a server."""
    return list(cluster.peer_replication.queues.positions(QueueId(peer, cluster.server_named(host).name)))


def test_every_server_gets_a_queue_with_its_current_log(east: FakeCluster) -> None:
    east.replication.add("p", WEST)
    assert texts(east) == ["rs1: p", "rs2: p", "rs3: p"]
    for host in east.servers():
        assert wals(east, host) == [east.server_named(host).wal.files[-1].name]
    assert east.replication.get("p").config.cluster_key == WEST


def test_a_roll_adds_the_log_and_the_log_of_meta_stays_out(east: FakeCluster) -> None:
    east.replication.add("p", WEST)
    server = east.server_named("rs1")
    server.wal.roll()
    server.meta_wal.roll()
    expected = [file.name for file in server.wal.files]
    assert wals(east, "rs1")[-1] == expected[-1]
    assert len(wals(east, "rs1")) == 2


def test_archived_logs_stay_as_long_as_a_queue_needs_them(runtime: SimRuntime, east: FakeCluster) -> None:
    east.replication.add("p", WEST)
    with east.connect() as connection:
        connection.create_table("t", {"f": {}})
        for number in range(5):
            connection.table("t").put(b"%d" % number, {b"f:q": b"v"})
            east.flush()
            for host in east.servers():
                east.server_named(host).wal.roll()
    for host in east.servers():
        assert len(wals(east, host)) >= 2
    runtime.sleep(30.0)
    assert all(east.filesystem.find_wal_file(wal) is not None for host in east.servers() for wal in wals(east, host))
    kept = [wal for host in east.servers() for wal in wals(east, host)[:-1]]
    east.replication.remove("p")
    runtime.sleep(30.0)
    archived = {file.name for file in east.filesystem.old_wals}
    assert not archived & set(kept)


def test_a_killed_servers_queue_is_claimed_by_exactly_one(runtime: SimRuntime, east: FakeCluster) -> None:
    east.replication.add("p", WEST)
    dead = east.server_named("rs1").name
    logs = wals(east, "rs1")
    east.kill("rs1")
    runtime.sleep(80.0)
    claimed = [queue for queue in east.peer_replication.queues.all_queues() if queue.is_recovered]
    assert [queue.text for queue in claimed] == [f"p-{dead}"]
    assert list(east.peer_replication.queues.positions(claimed[0])) == logs
    assert all(east.filesystem.find_wal_file(wal) is not None for wal in logs)
    assert sum(text.startswith("rs1") for text in texts(east)) == 0


def test_a_stopped_servers_queue_is_claimed_too(runtime: SimRuntime, east: FakeCluster) -> None:
    east.replication.add("p", WEST)
    dead = east.server_named("rs2").name
    east.stop("rs2")
    runtime.sleep(80.0)
    assert [text.partition(": ")[2] for text in texts(east)].count(f"p-{dead}") == 1


def test_a_restarted_server_has_a_queue_of_its_own_beside_the_claimed_one(
    runtime: SimRuntime, east: FakeCluster
) -> None:
    east.replication.add("p", WEST)
    east.restart("rs1")
    runtime.sleep(80.0)
    assert sorted(text.partition("-")[0] for text in texts(east) if "-" not in text) == ["rs1: p", "rs2: p", "rs3: p"]
    assert len([text for text in texts(east) if "-" in text]) == 1
    assert wals(east, "rs1") == [east.server_named("rs1").wal.files[-1].name]


def test_claims_without_a_peer_make_no_node(runtime: SimRuntime, east: FakeCluster) -> None:
    east.kill("rs1")
    runtime.sleep(20.0)
    assert not east.znodes.exists("/hbase/replication")


def test_one_server_with_two_peers_restarts_and_claims_its_own_queues(runtime: SimRuntime) -> None:
    with FakeCluster(servers=1, runtime=runtime, meta_replicas=1) as cluster:
        cluster.replication.add("p", WEST)
        cluster.replication.add("q", "north:2181:/hbase")
        dead = cluster.server_named("rs1").name
        cluster.kill("rs1")
        runtime.sleep(30.0)
        assert texts(cluster) == ["rs1: p", "rs1: q"]
        cluster.restart("rs1")
        runtime.sleep(150.0)
        assert sorted(texts(cluster)) == ["rs1: p", f"rs1: p-{dead}", "rs1: q", f"rs1: q-{dead}"]
        assert {queue.server for queue in cluster.peer_replication.queues.all_queues()} == {
            cluster.server_named("rs1").name
        }


def test_a_hung_server_holds_a_change_up_until_its_session_ends(runtime: SimRuntime, east: FakeCluster) -> None:
    east.pause("rs3")
    began = runtime.now()
    east.replication.add("p", WEST)
    assert 1.0 < runtime.now() - began < 30.0
    assert texts(east) == ["rs1: p", "rs2: p"]


def test_a_server_that_wakes_up_after_its_queue_was_claimed_ends(runtime: SimRuntime, east: FakeCluster) -> None:
    east.replication.add("p", WEST)
    east.pause("rs3")
    runtime.sleep(90.0)
    assert not any(text == "rs3: p" for text in texts(east))
    east.resume("rs3")
    runtime.sleep(5.0)
    assert not east.server_named("rs3").is_running


def test_a_new_server_knows_the_peers_and_their_state(east: FakeCluster) -> None:
    east.replication.add("p", WEST, enabled=False)
    host = east.add_server()
    assert wals(east, host) == [east.server_named(host).wal.files[-1].name]
    manager = east.server_named(host).sources
    assert manager is not None
    peer = manager.peer("p")
    assert peer is not None
    assert peer.state is PeerState.DISABLED


def test_a_peer_that_is_the_cluster_itself_is_refused(runtime: SimRuntime, east: FakeCluster) -> None:
    with pytest.raises(RequestRefused, match="should not replicate to itself"):
        east.replication.add("p", east.cluster_key)
    with FakeCluster(servers=1, network=east.network, name="west") as west:
        east.replication.add("p", west.cluster_key)
        west.replication.add("p", east.cluster_key)
    assert [peer.id for peer in east.replication.list()] == ["p"]


def test_a_connection_administers_the_same_peers(runtime: SimRuntime, east: FakeCluster) -> None:
    with east.connect() as connection:
        connection.replication.add("p", WEST, tables={"t": ["f"]}, bandwidth=7)
        assert east.replication.get("p").config.tables == {b"t": (b"f",)}
        connection.replication.update("p", tables=["u"])
        connection.replication.disable("p")
        assert east.replication.get("p").state is PeerState.DISABLED
        assert east.replication.get("p").config.bandwidth == 7
        with pytest.raises(RequestRefused, match="has already been disabled"):
            connection.replication.disable("p")
        connection.replication.enable("p")
        assert [status.server.host for status in connection.replication.status()] == ["rs1", "rs2", "rs3"]
        connection.replication.remove("p")
        assert east.replication.list() == []
        with pytest.raises(RequestRefused) as caught:
            connection.replication.get("p")
        assert caught.value.detail == "org.apache.hadoop.hbase.ReplicationPeerNotFoundException"


def test_status_shows_peers_queues_and_unclaimed_queues_as_json(runtime: SimRuntime, east: FakeCluster) -> None:
    east.replication.add("p", WEST, exclude_namespaces=["n"])
    east.kill("rs1")
    shown: Any = json.loads(json.dumps(east.status()["replication_peers"]))
    assert shown["peers"]["p"]["state"] == "ENABLED"
    assert shown["peers"]["p"]["exclude_namespaces"] == ["n"]
    dead = east.server_named("rs1").name
    assert list(shown["queues"][f"{dead}/p"]["logs"].values()) == [0]


def test_a_cluster_closes_while_a_claim_waits(runtime: SimRuntime) -> None:
    with FakeCluster(servers=2, runtime=runtime, meta_replicas=1) as cluster:
        cluster.replication.add("p", WEST)
        cluster.kill("rs1")
        runtime.sleep(20.0)
    with pytest.raises(ConnectionClosed):
        cluster.replication.list()


def test_peers_on_real_threads() -> None:
    with FakeCluster(servers=2) as cluster:
        assert isinstance(cluster.runtime, ThreadRuntime)
        cluster.replication.add("p", WEST)
        cluster.server_named("rs1").wal.roll()
        assert len(wals(cluster, "rs1")) == 2
        cluster.replication.disable("p")
        cluster.replication.remove("p")
        assert texts(cluster) == []


def test_base_config_of_the_cluster_is_in_every_peer(runtime: SimRuntime) -> None:
    config = {"hbase.replication.peer.base.config": "a=1;b=2"}
    with FakeCluster(servers=1, runtime=runtime, config=config) as cluster:
        cluster.replication.add("p", WEST, configuration={"b": "3", "c": "4"})
        assert dict(cluster.replication.get("p").config.configuration) == {"a": "1", "b": "2", "c": "4"}


def test_settings_are_taken_by_hbases_names_and_in_urls() -> None:
    config = ClusterConfig.of({"replication.sleep.before.failover": "2000", "replication.source.ratio": "1"})
    assert config.peer_replication.sleep_before_failover_s == 2.0
    assert config.peer_replication.sink_ratio == 1.0
    changed = config.replace(peer_replication_behaviour="2.6", peer_replication_batch_entries="5")
    assert (changed.peer_replication.behaviour, changed.peer_replication.batch_entries) == ("2.6", 5)
    assert changed.peer_replication.sink_ratio == 1.0
    with pytest.raises(ConfigError, match=r"2\.6 or 3\.0"):
        ClusterConfig().replace(peer_replication_behaviour="1.0")
    with pytest.raises(ConfigError, match="is k=v;k=v"):
        ClusterConfig().replace(peer_replication_base_config="nonsense")


@pytest.mark.parametrize("behaviour", ["2.6", "3.0"])
def test_write_without_a_log_is_refused_by_the_version_that_refuses_it(runtime: SimRuntime, behaviour: str) -> None:
    """HBASE-21365: a SKIP_WAL write to a replicated family never reaches a peer; 3.0 refuses it."""
    config = {"peer_replication_behaviour": behaviour}
    with FakeCluster(servers=1, runtime=runtime, config=config) as cluster:
        cluster.create_table(TableDescriptor(b"t", (FamilyDescriptor(b"f", replication_scope=1),)))
        table = cluster.connect().table("t")
        if behaviour == "3.0":
            with pytest.raises(RequestRefused):
                table.put(b"r", {b"f:q": b"v"}, wal=False)
        else:
            table.put(b"r", {b"f:q": b"v"}, wal=False)


@pytest.mark.parametrize(
    ("version", "counts_markers"), [("", True), ("2.6.1", False), ("2.6.5", False), ("3.0.0-beta-2", False)]
)
def test_storage_gives_ids_of_markers_again_only_as_a_version_of_hbase(version: str, counts_markers: bool) -> None:
    settled = ClusterConfig().replace(peer_replication_serial_bugs_of=version).settled(is_virtual=True)
    assert settled.storage.counts_markers_on_recovery is counts_markers
    assert settled.storage.refuses_skip_wal_of_replicated


def test_bugs_of_an_unknown_version_are_refused() -> None:
    with pytest.raises(ConfigError, match=r"known of HBase 2\.6\.1, .* not of '2\.6\.0'"):
        ClusterConfig().replace(peer_replication_serial_bugs_of="2.6.0")


def test_a_change_between_the_start_of_a_server_and_its_registration_reaches_it(
    runtime: SimRuntime, east: FakeCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The master refreshes its live servers, and this one is not among them yet."""
    east.replication.add("p", WEST)
    register = east.master.server_started

    def disable_first(server: Any) -> None:
        east.peer_replication.procedures.set_state("p", PeerState.DISABLED)
        east.peer_replication.procedures.add("q", east.replication.get("p").config)
        register(server)

    monkeypatch.setattr(east.master, "server_started", disable_first)
    manager = east.server_named(east.add_server()).sources
    assert manager is not None
    peer = manager.peer("p")
    assert peer is not None
    assert peer.state is PeerState.DISABLED
    assert [queue.text for queue in manager.queues()] == ["p", "q"]


# -- serial peers --------------------------------------------------------------------------------------------------


@pytest.fixture
def tables(east: FakeCluster) -> list[str]:
    """Two replicated tables of one region each, and one that is not replicated; return the encoded names."""
    for name, scope in ((b"t", 1), (b"u", 1), (b"local", 0)):
        east.create_table(TableDescriptor(name, (FamilyDescriptor(b"f", replication_scope=scope),)), [])
    return [east.regions(name)[0] for name in (b"t", b"u", b"local")]


def pushed(cluster: FakeCluster, tables: list[str]) -> list[bool]:
    """Return for each region whether the peer has a pushed id for it."""
    return [cluster.peer_replication.pushed.get(region, "p") >= 0 for region in tables]


def test_a_new_serial_peer_does_not_wait_for_edits_before_it(east: FakeCluster, tables: list[str]) -> None:
    opened = [east.master.live_server_of(east.node_named(region)) for region in tables]
    east.replication.add("p", WEST, serial=True)
    assert pushed(east, tables) == [True, True, False]
    assert east.replication.get("p").state is PeerState.ENABLED
    assert [east.master.live_server_of(east.node_named(region)) for region in tables] == opened
    with east.connect() as connection:
        connection.table("t").put(b"r", {b"f:q": b"v"})


@pytest.mark.parametrize("change", ["remove", "flag", "table"])
def test_pushed_ids_go_with_the_peer_its_flag_or_its_table(east: FakeCluster, tables: list[str], change: str) -> None:
    east.replication.add("p", WEST, serial=True)
    if change == "remove":
        east.replication.remove("p")
    elif change == "flag":
        east.replication.update("p", serial=False)
    else:
        east.replication.update("p", exclude_tables=["t"])
    assert pushed(east, tables) == ([False, True, False] if change == "table" else [False, False, False])


def test_a_table_that_joins_a_serial_peer_does_not_wait_for_its_old_edits(east: FakeCluster, tables: list[str]) -> None:
    east.replication.add("p", WEST, serial=True, tables=["t"])
    assert pushed(east, tables) == [True, False, False]
    before = east.peer_replication.pushed.get(tables[0], "p")
    east.replication.update("p", tables=["t", "u", "local"])
    assert pushed(east, tables) == [True, True, False]
    assert east.peer_replication.pushed.get(tables[0], "p") == before


def test_a_peer_that_becomes_serial_does_not_wait_for_edits_before_it(east: FakeCluster, tables: list[str]) -> None:
    east.replication.add("p", WEST)
    assert pushed(east, tables) == [False, False, False]
    east.replication.update("p", serial=True)
    assert pushed(east, tables) == [True, True, False]
    assert east.replication.get("p").state is PeerState.ENABLED


def test_a_disabled_table_counts_as_pushed_and_stays_closed(east: FakeCluster, tables: list[str]) -> None:
    east.disable_table("t")
    east.replication.add("p", WEST, serial=True)
    assert pushed(east, tables) == [True, True, False]
    assert east.node_named(tables[0]).state.value == "CLOSED"
