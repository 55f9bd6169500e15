"""Peers, queues and deaths with real sources: every edit arrives, no queue and no log is left behind."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from metaclient.runtime import SimRuntime
from tests.unit.fake_replication.cluster_rig import MakeSide, Side, sides

ROWS = [b"%02d" % number for number in range(40)]


@pytest.fixture
def side(runtime: SimRuntime) -> Iterator[MakeSide]:
    with sides(runtime, sleep_before_failover_s=2.0, retry_multiplier_max=5) as make:
        yield make


def pair(side: MakeSide, **options: object) -> tuple[Side, Side]:
    """Two clusters with a table of four regions; the first replicates to the second."""
    a, b = side("a", **{"servers": 3, **options}), side("b")
    for one in (a, b):
        one.create(splits=[b"10", b"20", b"30"])
    a.replicates_to(b)
    return a, b


def recovered(side: Side) -> list[str]:
    return [queue.text for queue in side.cluster.peer_replication.queues.all_queues() if queue.is_recovered]


def test_edits_of_a_killed_server_arrive_and_its_queue_and_logs_go(side: MakeSide, runtime: SimRuntime) -> None:
    a, b = pair(side)
    a.disable()
    for row in ROWS:
        a.put(row)
    logs = {file.name for file in a.cluster.server_named("rs1").wal.files}
    a.cluster.kill("rs1")
    runtime.sleep(30.0)
    assert len(recovered(a)) == 1
    assert all(a.cluster.filesystem.find_wal_file(log) is not None for log in logs)
    assert b.rows() == {}
    a.enable()
    runtime.sleep(30.0)
    assert list(b.rows()) == ROWS
    assert recovered(a) == []
    runtime.sleep(10.0)
    assert all(a.cluster.filesystem.find_wal_file(log) is None for log in logs)


def test_queues_of_a_chain_of_deaths_are_all_shipped_at_the_end(side: MakeSide, runtime: SimRuntime) -> None:
    a, b = pair(side, servers=2)
    a.disable()
    for row in ROWS:
        a.put(row)
    first, second = (a.cluster.server_named(host).name for host in ("rs1", "rs2"))
    a.cluster.kill("rs1")
    runtime.sleep(30.0)
    assert recovered(a) == [f"p-{first}"]
    a.cluster.add_server()
    a.cluster.kill("rs2")
    runtime.sleep(30.0)
    assert sorted(recovered(a)) == sorted([f"p-{second}", f"p-{first}-{second}"])
    a.enable()
    runtime.sleep(60.0)
    assert list(b.rows()) == ROWS
    assert recovered(a) == []


def test_the_only_server_restarts_and_both_peers_get_everything(side: MakeSide, runtime: SimRuntime) -> None:
    a, b, c = side("a", servers=1), side("b"), side("c")
    for one in (a, b, c):
        one.create()
    a.replicates_to(b, "p")
    a.replicates_to(c, "q")
    a.cluster.network.partition("a", "b")
    a.cluster.network.partition("a", "c")
    for row in ROWS:
        a.put(row)
    a.cluster.kill("rs1")
    runtime.sleep(30.0)
    a.cluster.restart("rs1")
    a.cluster.network.heal()
    runtime.sleep(150.0)
    assert list(b.rows()) == list(c.rows()) == ROWS
    assert recovered(a) == []


def test_disable_and_enable_during_a_recovery_lose_nothing(side: MakeSide, runtime: SimRuntime) -> None:
    a, b = pair(side)
    a.cluster.network.partition("a", "b")
    for row in ROWS:
        a.put(row)
    a.cluster.kill("rs1")
    runtime.sleep(30.0)
    assert len(recovered(a)) == 1
    a.disable()
    a.cluster.network.heal()
    runtime.sleep(30.0)
    assert b.rows() == {}
    a.enable()
    runtime.sleep(60.0)
    assert list(b.rows()) == ROWS
    assert recovered(a) == []


@pytest.mark.parametrize("behaviour", ["2.6", "3.0"])
def test_peer_that_is_removed_and_added_again_gets_later_edits(
    side: MakeSide, runtime: SimRuntime, behaviour: str
) -> None:
    a, b = pair(side, behaviour=behaviour)
    a.cluster.replication.remove("p")
    a.put(b"00")
    for host in a.cluster.servers():
        a.cluster.server_named(host).wal.roll()
    a.replicates_to(b)
    a.put(b"01")
    runtime.sleep(20.0)
    assert list(b.rows()) == [b"01"]


def test_killing_servers_while_edits_are_written_loses_none(side: MakeSide, runtime: SimRuntime) -> None:
    a, b = pair(side)
    for number, row in enumerate(ROWS):
        a.put(row)
        if number % 10 == 5:
            host = f"rs{1 + number // 10 % 3}"
            a.cluster.kill(host)
            runtime.sleep(1.0)
            a.cluster.restart(host)
    runtime.sleep(120.0)
    assert list(b.rows()) == ROWS
    assert recovered(a) == []


def test_removing_a_peer_that_cannot_be_reached_ends_its_sources(side: MakeSide, runtime: SimRuntime) -> None:
    a, b = pair(side)
    a.cluster.network.partition("a", "b")
    for row in ROWS:
        a.put(row)
    runtime.sleep(20.0)
    began = runtime.now()
    a.cluster.replication.remove("p")
    assert runtime.now() - began < 60.0
    assert a.cluster.peer_replication.queues.all_queues() == []
    assert a.loads() == []
    a.cluster.network.heal()
    runtime.sleep(30.0)
    assert b.rows() == {}


def test_logs_of_an_unreachable_peer_pile_up_and_go_when_it_is_back(side: MakeSide, runtime: SimRuntime) -> None:
    a, b = pair(side, servers=1)
    a.cluster.network.partition("a", "b")
    for row in ROWS[:5]:
        a.put(row)
        a.cluster.flush()
        a.cluster.server_named("rs1").wal.roll()
    runtime.sleep(20.0)
    (load,) = a.loads()
    assert (load.edits_shipped, load.log_queue > 1) == (0, True)
    (queue,) = a.cluster.peer_replication.queues.all_queues()
    assert len(a.cluster.peer_replication.queues.positions(queue)) == 6
    a.cluster.network.heal()
    runtime.sleep(120.0)
    assert list(b.rows()) == ROWS[:5]
    (load,) = a.loads()
    assert load.log_queue == 1
    assert len(a.cluster.peer_replication.queues.positions(queue)) == 1
    assert len(list(a.files())) == 1


def test_a_server_that_starts_while_the_peer_is_disabled_ships_nothing_until_enable(
    side: MakeSide, runtime: SimRuntime
) -> None:
    a, b = pair(side, servers=1)
    a.disable()
    a.cluster.add_server()
    a.cluster.balance()
    for row in ROWS:
        a.put(row)
    runtime.sleep(30.0)
    assert b.rows() == {}
    a.enable()
    runtime.sleep(30.0)
    assert list(b.rows()) == ROWS


def test_a_hung_server_that_wakes_up_does_not_ship_on(side: MakeSide, runtime: SimRuntime) -> None:
    """Its queue was claimed meanwhile: what it ships now could come after newer edits."""
    a, b = pair(side)
    a.disable()
    for row in ROWS:
        a.put(row)
    a.cluster.pause("rs1")
    runtime.sleep(40.0)
    assert len(recovered(a)) == 1
    a.cluster.resume("rs1")
    a.enable()
    runtime.sleep(60.0)
    assert list(b.rows()) == ROWS
    assert not a.cluster.server_named("rs1").is_running
    assert recovered(a) == []
