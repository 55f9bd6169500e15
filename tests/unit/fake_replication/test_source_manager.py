"""Which sources a region server runs: peers come, change and go, logs roll, servers die."""

from collections.abc import Iterator
from dataclasses import replace

import pytest

from metaclient.model import ServerName
from metaclient.replication_peers import Peer, PeerState
from metaclient.runtime import SimRuntime
from metaclient_fake.config.replication import PeerReplicationConfig
from metaclient_fake.replication.queues import QueueId
from tests.unit.fake_replication.peer_rig import CONFIG, Rig, ScriptedServer

AGAIN = PeerReplicationConfig(behaviour="2.6")


@pytest.fixture
def runtime() -> Iterator[SimRuntime]:
    with SimRuntime(seed=3) as runtime:
        yield runtime


@pytest.fixture
def rig(runtime: SimRuntime) -> Rig:
    return Rig(runtime)


def test_a_new_peer_gets_the_current_log_and_no_rolled_one(rig: Rig) -> None:
    server = rig.start("rs1")
    server.roll()
    rig.add("p")
    assert server.source("p").positions == {"rs1.2": 0}
    assert rig.queues.positions(QueueId("p", server.name)) == {"rs1.2": 0}


def test_six_logs_wait_in_a_queue_and_leave_it_when_a_position_is_stored(rig: Rig) -> None:
    server = rig.start("rs1")
    rig.add("p")
    for _ in range(5):
        server.roll()
    queue = QueueId("p", server.name)
    assert len(rig.queues.positions(queue)) == 6
    assert server.source("p").wals == server.wals
    server.source("p").store("rs1.4", 30)
    assert rig.queues.positions(queue) == {"rs1.4": 30, "rs1.5": 0, "rs1.6": 0}
    server.source("p").store("rs1.5", 90, is_end_of_file=True)
    assert rig.queues.positions(queue) == {"rs1.6": 0}


def test_a_stored_position_of_one_peer_leaves_the_logs_of_another(rig: Rig) -> None:
    server = rig.start("rs1")
    rig.add("p")
    rig.add("q")
    server.roll()
    server.source("p").store("rs1.2", 5)
    assert rig.queues.positions(QueueId("q", server.name)) == {"rs1.1": 0, "rs1.2": 0}
    assert rig.cleaner.needed() == {"rs1.1", "rs1.2"}


def test_logs_of_another_group_stay_in_the_queue(rig: Rig) -> None:
    """With several logs per server, a position in one says nothing about the others."""
    server = rig.start("rs1")
    rig.add("p")
    server.manager.log_rolled("rs1.second.1")
    server.manager.log_rolled("rs1.second.2")
    server.roll()
    server.source("p").store("rs1.second.2", 5)
    assert set(rig.queues.positions(QueueId("p", server.name))) == {"rs1.1", "rs1.2", "rs1.second.2"}


def test_a_log_of_hbase_meta_is_never_queued(rig: Rig) -> None:
    server = rig.start("rs1")
    rig.add("p")
    server.manager.log_rolled("rs1.meta.7.meta")
    server.wals.append("rs1.meta.8.meta")
    rig.add("q")
    assert set(rig.queues.all_wals()) == {"rs1.1"}
    assert server.source("p").wals == ["rs1.1"]
    assert server.source("q").wals == []


def test_pushed_ids_are_stored_with_the_position(rig: Rig) -> None:
    server = rig.start("rs1")
    rig.add("p")
    server.source("p").store("rs1.1", 5, {"ab" * 16: 17})
    assert rig.pushed.get("ab" * 16, "p") == 17


# -- changes of peers ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("config", "position"), [(AGAIN, 0), (PeerReplicationConfig(), 40)])
def test_disable_and_enable_ship_the_current_log_again_in_2_6_only(
    runtime: SimRuntime, config: PeerReplicationConfig, position: int
) -> None:
    rig = Rig(runtime, config)
    server = rig.start("rs1")
    rig.add("p")
    server.source("p").store("rs1.1", 40)
    server.roll()
    rig.procedures.set_state("p", PeerState.DISABLED)
    rig.procedures.set_state("p", PeerState.ENABLED)
    assert server.source("p").positions == {"rs1.1": position, "rs1.2": 0}
    assert len(server.made) == 2


def test_enable_recreates_no_source_and_the_source_sees_it(rig: Rig) -> None:
    server = rig.start("rs1")
    rig.add("p", state=PeerState.DISABLED)
    source = server.source("p")
    assert source.peer().state is PeerState.DISABLED
    rig.procedures.set_state("p", PeerState.ENABLED)
    assert server.source("p") is source
    assert source.peer().state is PeerState.ENABLED


@pytest.mark.parametrize(("config", "position"), [(AGAIN, 0), (PeerReplicationConfig(), 40)])
def test_changed_tables_ship_the_current_log_again_in_2_6_only(
    runtime: SimRuntime, config: PeerReplicationConfig, position: int
) -> None:
    rig = Rig(runtime, config)
    server = rig.start("rs1")
    rig.add("p")
    server.source("p").store("rs1.1", 40)
    rig.procedures.update("p", replace(CONFIG, replicate_all=False, tables={b"t": ()}))
    assert server.source("p").positions == {"rs1.1": position}
    assert server.source("p").peer().config.tables == {b"t": ()}


def test_a_changed_bandwidth_reaches_the_running_source(rig: Rig) -> None:
    server = rig.start("rs1")
    rig.add("p")
    source = server.source("p")
    assert source.peer().config.bandwidth == 0
    rig.procedures.update("p", replace(CONFIG, bandwidth=2097152, configuration={"a": "1"}))
    assert server.source("p") is source
    assert source.peer().config.bandwidth == 2097152
    assert rig.procedures.peer("p").config.bandwidth == 2097152


def test_a_late_position_of_a_replaced_source_does_not_move_the_new_one_back(rig: Rig) -> None:
    server = rig.start("rs1")
    rig.add("p")
    old = server.source("p")
    old.store("rs1.1", 40)
    rig.procedures.set_state("p", PeerState.DISABLED)
    server.source("p").store("rs1.1", 90)
    old.store("rs1.1", 60)
    assert rig.queues.positions(QueueId("p", server.name)) == {"rs1.1": 90}
    assert not server.aborts


def test_a_log_that_rolls_while_sources_are_recreated_is_not_lost(rig: Rig) -> None:
    server = rig.start("rs1")
    rig.add("p")
    server.stop_s = 5.0
    change = rig.runtime.start(rig.procedures.set_state, "p", PeerState.DISABLED)
    rig.runtime.sleep(2.0)
    server.roll()
    change.result(rig.runtime.now() + 60)
    assert server.source("p").wals == ["rs1.1", "rs1.2"]
    assert set(rig.queues.positions(QueueId("p", server.name))) == {"rs1.1", "rs1.2"}


def test_removal_of_a_peer_waits_for_its_sources_and_leaves_no_queue(rig: Rig) -> None:
    first, second = rig.start("rs1"), rig.start("rs2")
    rig.add("p", replace(CONFIG, serial=True))
    rig.add("q")
    rig.pushed.set_all("p", {"ab" * 16: 17})
    first.stop_s, second.stop_s = 2.3, 4.5
    began = rig.runtime.now()
    rig.procedures.remove("p")
    assert rig.runtime.now() - began == pytest.approx(4.5)
    assert [source.queue.text for source in first.running() + second.running()] == ["q", "q"]
    assert rig.queues.all_queues("p") == []
    assert rig.pushed.get("ab" * 16, "p") == -1


def test_a_source_that_does_not_end_holds_a_removal_up_for_a_bounded_time(rig: Rig) -> None:
    server = rig.start("rs1")
    rig.add("p")
    old = server.source("p")
    server.stop_s = 1e6
    rig.procedures.remove("p")
    assert rig.runtime.now() < 400
    old.store("rs1.1", 10)
    assert rig.queues.all_queues() == []
    assert not server.aborts


def test_a_queue_that_was_taken_away_aborts_the_server(rig: Rig) -> None:
    """The server hung, was declared dead, and another server has its queue: it must not go on shipping."""
    server, other = rig.start("rs1"), rig.start("rs2")
    rig.add("p")
    assert rig.queues.claim(QueueId("p", server.name), other.name) is not None
    server.source("p").store("rs1.1", 10)
    assert len(server.aborts) == 1
    assert "cannot be written" in server.aborts[0]


# -- starts --------------------------------------------------------------------------------------------------------


def test_a_server_that_starts_later_ships_to_every_peer(rig: Rig) -> None:
    rig.add("p")
    rig.add("q", state=PeerState.DISABLED)
    server = rig.start("rs1")
    assert sorted(source.queue.text for source in server.running()) == ["p", "q"]
    assert server.source("q").peer().state is PeerState.DISABLED


@pytest.mark.parametrize("is_added", [False, True])
def test_a_server_that_starts_while_a_disable_is_under_way_ends_disabled(rig: Rig, is_added: bool) -> None:
    """The change comes after the server has read the peers, and before the master counts it as live."""
    rig.add("p")
    server = ScriptedServer(rig, ServerName("rs1", 16020, 1))
    server.manager.refresh_all()
    rig.procedures.set_state("p", PeerState.DISABLED)
    if is_added:
        rig.add("q")
    rig.live[server.name] = server
    server.manager.refresh_all()
    assert server.source("p").peer().state is PeerState.DISABLED
    assert [source.queue.text for source in server.running()] == (["p", "q"] if is_added else ["p"])


# -- deaths --------------------------------------------------------------------------------------------------------


def test_a_dead_servers_queue_is_shipped_from_its_stored_position(runtime: SimRuntime) -> None:
    rig = Rig(runtime, AGAIN)
    first, second = rig.start("rs1"), rig.start("rs2")
    rig.add("p")
    first.source("p").store("rs1.1", 40)
    first.roll()
    began = runtime.now()
    rig.kill(first)
    assert 30.0 <= runtime.now() - began <= 60.0
    recovered = second.source(f"p-{first.name}")
    assert recovered.positions == {"rs1.1": 40, "rs1.2": 0}
    assert recovered.queue.origin == first.name
    assert first.name not in rig.queues.servers()


def test_queues_of_a_chain_of_deaths_all_end_at_the_last_server(rig: Rig) -> None:
    first, second = rig.start("rs1"), rig.start("rs2")
    rig.add("p", state=PeerState.DISABLED)
    rig.kill(first)
    assert sorted(source.queue.text for source in second.running()) == ["p", f"p-{first.name}"]
    third = rig.start("rs3")
    rig.kill(second)
    assert sorted(source.queue.text for source in third.running()) == sorted(
        ["p", f"p-{second.name}", f"p-{first.name}-{second.name}"]
    )
    assert rig.cleaner.needed() == {"rs1.1", "rs2.1", "rs3.1"}
    rig.procedures.set_state("p", PeerState.ENABLED)
    for source in third.running():
        if source.queue.is_recovered:
            source.store(source.wals[0], 10, is_end_of_file=True)
            source.finished()
    assert [queue.text for queue in rig.queues.all_queues()] == ["p"]
    assert rig.cleaner.needed() == {"rs3.1"}
    assert third.manager.queues() == [QueueId("p", third.name)]


def test_three_servers_that_claim_one_queue_ship_it_once(rig: Rig) -> None:
    first = rig.start("rs1")
    others = [rig.start(f"rs{number}") for number in (2, 3, 4)]
    rig.add("p")
    rig.live.pop(first.name)
    first.manager.stop()
    tasks = [rig.runtime.start(server.manager.claim, QueueId("p", first.name)) for server in others]
    for task in tasks:
        task.result(rig.runtime.now() + 100)
    recovered = [source for server in others for source in server.running() if source.queue.is_recovered]
    assert len(recovered) == 1


def test_a_claim_without_a_live_server_waits_for_one(rig: Rig) -> None:
    server = rig.start("rs1")
    rig.add("p")
    rig.add("q")
    killed = rig.runtime.start(rig.kill, server)
    rig.runtime.sleep(100.0)
    assert not killed.is_done
    other = rig.start("rs2")
    killed.result(rig.runtime.now() + 200)
    assert len([source for source in other.running() if source.queue.is_recovered]) == 2


def test_a_server_that_dies_before_its_claim_leaves_the_queue_to_others(rig: Rig) -> None:
    first, second = rig.start("rs1"), rig.start("rs2")
    rig.add("p")
    killed = rig.runtime.start(rig.kill, first)
    rig.runtime.sleep(10.0)
    also = rig.runtime.start(rig.kill, second)
    third = rig.start("rs3")
    for task in (killed, also):
        task.result(rig.runtime.now() + 300)
    assert sorted(source.queue.text for source in third.running()) == sorted(
        ["p", f"p-{first.name}", f"p-{second.name}"]
    )


def test_a_queue_whose_peer_is_removed_during_the_wait_is_not_shipped(rig: Rig) -> None:
    first, second = rig.start("rs1"), rig.start("rs2")
    rig.add("p")
    killed = rig.runtime.start(rig.kill, first)
    rig.runtime.sleep(10.0)
    rig.procedures.remove("p")
    rig.add("p")
    killed.result(rig.runtime.now() + 100)
    assert [source.queue.text for source in second.running()] == ["p"]
    assert [queue.text for queue in rig.queues.all_queues()] == ["p"]


@pytest.mark.parametrize("config", [AGAIN, PeerReplicationConfig()])
def test_disable_and_enable_of_a_recovered_queue_lose_nothing(
    runtime: SimRuntime, config: PeerReplicationConfig
) -> None:
    rig = Rig(runtime, config)
    first, second = rig.start("rs1"), rig.start("rs2")
    rig.add("p")
    rig.kill(first)
    second.source(f"p-{first.name}").store("rs1.1", 70)
    rig.procedures.set_state("p", PeerState.DISABLED)
    rig.procedures.set_state("p", PeerState.ENABLED)
    assert second.source(f"p-{first.name}").positions == {"rs1.1": 70}


def test_a_recovered_source_that_ends_while_its_peer_changes_is_not_made_again(rig: Rig) -> None:
    """It has shipped its last log and is about to say so when it is stopped."""
    first, second = rig.start("rs1"), rig.start("rs2")
    rig.add("p")
    rig.kill(first)
    old = second.source(f"p-{first.name}")
    old.store("rs1.1", 70, is_end_of_file=True)
    second.stop_s = 5.0
    change = rig.runtime.start(rig.procedures.set_state, "p", PeerState.DISABLED)
    rig.runtime.sleep(1.0)
    old.finished()
    change.result(rig.runtime.now() + 60)
    assert [source.queue.text for source in second.running()] == ["p"]
    assert second.manager.queues() == [QueueId("p", second.name)]
    assert rig.queues.all_queues() == [QueueId("p", second.name)]


def test_a_finished_queue_is_gone(rig: Rig) -> None:
    first, second = rig.start("rs1"), rig.start("rs2")
    rig.add("p")
    rig.kill(first)
    second.source(f"p-{first.name}").finished()
    assert second.manager.queues() == [QueueId("p", second.name)]
    second.source("p").finished()
    assert rig.queues.all_queues() == [QueueId("p", second.name)]


def test_a_stopped_server_claims_and_takes_over_nothing(rig: Rig) -> None:
    first, second = rig.start("rs1"), rig.start("rs2")
    rig.add("p")
    second.manager.stop()
    second.manager.claim(QueueId("p", first.name))
    second.manager.refresh_all()
    assert second.running() == []
    assert rig.queues.queues(first.name) == [QueueId("p", first.name)]


def test_a_server_that_does_not_know_the_peer_yet_leaves_its_queue_to_others(rig: Rig) -> None:
    """The peer is stored, and its refresh has not reached this server."""
    server = rig.start("rs1")
    queue = QueueId("p", ServerName("rs9", 16020, 9))
    rig.store.add(Peer("p", PeerState.ENABLED, CONFIG))
    rig.queues.add_wal(queue, "rs9.1")
    server.manager.claim(queue)
    assert rig.queues.all_queues() == [queue]
    server.manager.refresh("p")
    server.manager.claim(queue)
    assert sorted(source.queue.text for source in server.running()) == ["p", f"p-{queue.server}"]


def test_a_log_is_needed_until_the_last_queue_has_left_it(rig: Rig) -> None:
    assert rig.cleaner.needed() == frozenset()
    first, second = rig.start("rs1"), rig.start("rs2")
    rig.add("p")
    rig.add("q")
    first.roll()
    first.source("p").store("rs1.1", 9, is_end_of_file=True)
    assert "rs1.1" in rig.cleaner.needed()
    rig.kill(first)
    assert {"rs1.1", "rs1.2"} <= rig.cleaner.needed()
    second.source(f"q-{first.name}").store("rs1.1", 9, is_end_of_file=True)
    assert "rs1.1" not in rig.cleaner.needed()
