"""Changes of peers as procedures of the master: checked, stored, refreshed on every live server."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest

from metaclient.errors import RequestRefused, ServerUnreachable
from metaclient.replication_peers import Peer, PeerConfig, PeerState
from metaclient.runtime import SimRuntime
from metaclient_fake.replication.peer_procedures import PeerProcedures
from metaclient_fake.replication.queues import QueueId
from tests.unit.fake_replication.peer_rig import CONFIG, KEY, Rig


@pytest.fixture
def runtime() -> Iterator[SimRuntime]:
    with SimRuntime(seed=3) as runtime:
        yield runtime


@pytest.fixture
def rig(runtime: SimRuntime) -> Rig:
    return Rig(runtime)


def ids(rig: Rig) -> list[str]:
    return [peer.id for peer in rig.procedures.peers()]


def test_the_nodes_of_a_peer_are_those_of_hbase(rig: Rig) -> None:
    config = PeerConfig(cluster_key="127.0.0.1:25246:/cdc", replicate_all=False, tables={b"t": ()})
    rig.add("cdc", config)
    stored = rig.znodes.get("/hbase/replication/peers/cdc").data
    assert stored == b"PBUF\x0a\x14127.0.0.1:25246:/cdc" + bytes.fromhex("2a0e0a0c0a0764656661756c74120174380040005800")
    assert rig.znodes.get("/hbase/replication/peers/cdc/peer-state").data == b"PBUF\x08\x00"
    rig.procedures.set_state("cdc", PeerState.DISABLED)
    assert rig.znodes.get("/hbase/replication/peers/cdc/peer-state").data == b"PBUF\x08\x01"
    assert rig.store.get("cdc") == Peer("cdc", PeerState.DISABLED, config)


def test_a_refused_second_add_leaves_the_first_peer(rig: Rig) -> None:
    rig.add("p")
    with pytest.raises(RequestRefused, match="already exists"):
        rig.add("p", PeerConfig(cluster_key="east:2181:/hbase"))
    assert [peer.config.cluster_key for peer in rig.procedures.peers()] == [KEY]
    assert rig.store.ids() == ["p"]


def test_a_refused_removal_leaves_the_others(rig: Rig) -> None:
    rig.add("p")
    with pytest.raises(RequestRefused) as caught:
        rig.procedures.remove("nope")
    assert caught.value.detail == "org.apache.hadoop.hbase.ReplicationPeerNotFoundException"
    assert ids(rig) == ["p"]


@pytest.mark.parametrize("dead", [False, True])
def test_a_queue_of_an_older_peer_refuses_its_id_until_it_is_gone(rig: Rig, dead: bool) -> None:
    """Otherwise the old logs would be shipped to the new peer."""
    server = rig.start("rs1")
    queue = QueueId("p", server.name)
    left = queue.claimed_by(server.name) if dead else queue
    rig.queues.add_wal(left, "rs9.1")
    with pytest.raises(RequestRefused) as caught:
        rig.add("p")
    assert str(caught.value) == f"undeleted queue for peerId: p, replicator: {server.name}, queueId: {left.text}"
    assert rig.store.ids() == []
    rig.queues.remove(left)
    rig.add("p")


def test_a_peer_that_is_added_disabled_is_disabled_on_every_server(rig: Rig) -> None:
    servers = [rig.start("rs1"), rig.start("rs2")]
    rig.add("p", state=PeerState.DISABLED)
    assert [server.source("p").peer().state for server in servers] == [PeerState.DISABLED] * 2
    with pytest.raises(RequestRefused, match="has already been disabled"):
        rig.procedures.set_state("p", PeerState.DISABLED)
    rig.procedures.set_state("p", PeerState.ENABLED)
    with pytest.raises(RequestRefused, match="has already been enabled"):
        rig.procedures.set_state("p", PeerState.ENABLED)


def test_a_peer_that_is_the_cluster_itself_is_refused_and_not_stored(rig: Rig) -> None:
    rig.cluster_ids[KEY] = rig.cluster_id
    with pytest.raises(RequestRefused, match="should not replicate to itself"):
        rig.add("p")
    assert rig.store.ids() == []
    rig.cluster_ids[KEY] = "other"
    rig.add("p")


def test_five_calls_at_once_make_one_peer_and_remove_it_once(rig: Rig) -> None:
    server = rig.start("rs1")
    server.stop_s = 1.0

    def outcomes(function: Callable[..., Any], *arguments: object) -> int:
        tasks = [rig.runtime.start(function, *arguments) for _ in range(5)]
        done = 0
        for task in tasks:
            try:
                task.result(rig.runtime.now() + 60)
            except RequestRefused:
                continue
            done += 1
        return done

    assert outcomes(rig.add, "p") == 1
    assert outcomes(rig.procedures.remove, "p") == 1
    assert outcomes(rig.add, "p") == 1
    assert ids(rig) == ["p"]


@pytest.mark.parametrize("is_before", [True, False])
def test_a_storage_that_fails_once_around_each_write_fails_no_call(rig: Rig, is_before: bool) -> None:
    rig.start("rs1")
    failures: list[str] = []

    def fails_once(name: str) -> None:
        real = getattr(rig.store, name)

        def write(*arguments: object) -> None:
            has_failed = name in failures
            if not has_failed and is_before:
                failures.append(name)
                raise ServerUnreachable("the connection to ZooKeeper is lost")
            real(*arguments)
            if not has_failed:
                failures.append(name)
                raise ServerUnreachable("the connection to ZooKeeper is lost")

        setattr(rig.store, name, write)

    for name in ("add", "set_config", "set_state", "remove"):
        fails_once(name)
    rig.add("p")
    rig.procedures.update("p", replace(CONFIG, bandwidth=3))
    rig.procedures.set_state("p", PeerState.DISABLED)
    rig.procedures.set_state("p", PeerState.ENABLED)
    assert rig.store.get("p") == rig.procedures.peer("p")
    assert rig.procedures.peer("p").config.bandwidth == 3
    rig.procedures.remove("p")
    assert (ids(rig), rig.store.ids()) == ([], [])
    assert failures == ["add", "set_config", "set_state", "remove"]


def test_a_server_that_cannot_be_reached_holds_a_change_up_until_it_is_dead(rig: Rig) -> None:
    near, far = rig.start("rs1"), rig.start("rs2")
    far.is_reachable = False
    added = rig.runtime.start(rig.add, "p")
    rig.runtime.sleep(100.0)
    assert not added.is_done
    assert near.source("p").is_started
    del rig.live[far.name]
    added.result(rig.runtime.now() + 60)
    assert far.running() == []


def test_a_server_that_dies_during_its_refresh_does_not_stop_the_change(rig: Rig) -> None:
    server = rig.start("rs1")
    rig.add("p")
    server.stop_s = 50.0
    removed = rig.runtime.start(rig.procedures.remove, "p")
    rig.runtime.sleep(5.0)
    del rig.live[server.name]
    removed.result(rig.runtime.now() + 5)
    assert rig.queues.all_queues() == []


def test_a_server_that_comes_back_within_reach_is_refreshed(rig: Rig) -> None:
    server = rig.start("rs1")
    server.is_reachable = False
    added = rig.runtime.start(rig.add, "p")
    rig.runtime.sleep(5.0)
    server.is_reachable = True
    added.result(rig.runtime.now() + 30)
    assert server.source("p").is_started


def test_update_merges_the_configuration_and_replaces_the_rest(rig: Rig) -> None:
    rig.add("p", replace(CONFIG, configuration={"a": "1"}, bandwidth=7))
    rig.procedures.update("p", replace(CONFIG, configuration={"b": "2"}))
    config = rig.procedures.peer("p").config
    assert (dict(config.configuration), config.bandwidth) == ({"a": "1", "b": "2"}, 0)


def test_base_config_is_in_every_new_peer_until_an_update_and_wins_at_a_restart(runtime: SimRuntime) -> None:
    rig = Rig(runtime, base_config="k=base;other=1")

    def k(procedures: PeerProcedures) -> str | None:
        return procedures.peer("p").config.configuration.get("k")

    rig.add("p", replace(CONFIG, configuration={"own": "x"}))
    assert dict(rig.procedures.peer("p").config.configuration) == {"own": "x", "k": "base", "other": "1"}
    rig.procedures.update("p", replace(CONFIG, configuration={"k": "changed"}))
    assert k(rig.procedures) == "changed"
    assert k(rig.new_master("k=base")) == "base"
    stored = rig.store.get("p")
    assert stored is not None
    assert stored.config.configuration["k"] == "base"
    assert k(rig.new_master("k=")) is None
    assert k(rig.new_master()) is None


def test_peers_are_listed_by_a_pattern_of_the_whole_id(rig: Rig) -> None:
    for peer_id in ("b1", "a1", "a2"):
        rig.add(peer_id)
    assert ids(rig) == ["a1", "a2", "b1"]
    assert [peer.id for peer in rig.procedures.peers("a.*")] == ["a1", "a2"]
    assert rig.procedures.peers("a") == []
    with pytest.raises(RequestRefused, match="is not a regular expression"):
        rig.procedures.peers("(")


# -- serial peers --------------------------------------------------------------------------------------------------


class ScriptedTables:
    """The regions of serial peers: records the calls, and what was shipped when the regions reopened."""

    def __init__(self, rig: Rig) -> None:
        self.rig = rig
        self.states: list[PeerState] = []
        self.gone: list[str] = []

    def prepare(self, old: PeerConfig | None, new: PeerConfig) -> dict[str, int]:
        self.states.append(self.rig.procedures.peer("p").state)
        return {"aa" * 16: 27, "bb" * 16: -1}

    def is_serial(self, config: PeerConfig) -> bool:
        return config.serial

    def removed(self, old: PeerConfig, new: PeerConfig) -> list[str]:
        return self.gone


@pytest.fixture
def tables(rig: Rig) -> ScriptedTables:
    tables = ScriptedTables(rig)
    rig.procedures = PeerProcedures(
        rig.runtime, rig, store=rig.store, queues=rig.queues, pushed=rig.pushed, serial=tables
    )
    return tables


SERIAL = replace(CONFIG, serial=True)


def test_a_serial_peer_is_enabled_only_after_its_pushed_ids_are_stored(rig: Rig, tables: ScriptedTables) -> None:
    rig.add("p", SERIAL)
    assert tables.states == [PeerState.DISABLED]
    assert rig.procedures.peer("p").state is PeerState.ENABLED
    assert (rig.pushed.get("aa" * 16, "p"), rig.pushed.get("bb" * 16, "p")) == (27, -1)


def test_a_serial_peer_that_is_added_disabled_stays_disabled(rig: Rig, tables: ScriptedTables) -> None:
    rig.add("p", SERIAL, PeerState.DISABLED)
    assert rig.procedures.peer("p").state is PeerState.DISABLED


def test_a_peer_that_becomes_serial_is_disabled_meanwhile(rig: Rig, tables: ScriptedTables) -> None:
    rig.add("p")
    rig.procedures.update("p", SERIAL)
    assert tables.states == [PeerState.DISABLED]
    assert rig.procedures.peer("p") == rig.store.get("p") == Peer("p", PeerState.ENABLED, SERIAL)


@pytest.mark.parametrize("change", ["remove", "flag", "table"])
def test_pushed_ids_are_gone_with_the_peer_the_flag_or_the_table(rig: Rig, tables: ScriptedTables, change: str) -> None:
    rig.add("p", SERIAL)
    tables.gone = ["aa" * 16]
    if change == "remove":
        rig.procedures.remove("p")
    elif change == "flag":
        rig.procedures.update("p", CONFIG)
    else:
        rig.procedures.update("p", replace(SERIAL, exclude_tables={b"t": ()}))
    assert rig.pushed.get("aa" * 16, "p") == -1
