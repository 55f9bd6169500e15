"""Servers that die, hang, come back, or are only thought to be dead."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pytest

from metaclient.errors import (
    CallTimeout,
    DeadlineExceeded,
    MetaClientError,
    RegionUnavailable,
    RequestRefused,
    ServerStopped,
    ServerUnreachable,
)
from metaclient.model import LATEST_TIMESTAMP, Cell, Get, Put, TableState
from metaclient_fake.master.assignment import AssignmentManager


def _settle(world: Any, seconds: float = 30.0, *, deaths: int = 1) -> None:
    """Wait until so many servers were declared dead and no region of theirs is left behind."""
    deadline = world.deadline(seconds)
    while world.runtime.now() < deadline:
        world.runtime.sleep(0.1)
        if len(world.cluster.master.dead) >= deaths and not world.cluster.master.is_recovering:
            return
    raise AssertionError("not recovered")


def test_acknowledged_writes_survive_a_crash(world: Any) -> None:
    """Unflushed rows come back from the log (TestRegionReplicaFailover.testPrimaryRegionKill)."""
    world.create(b"t", [b"m"])
    for row in (b"a", b"b", b"z"):
        world.put(b"t", row, row)
    place = world.place(b"t", b"a")
    world.cluster.kill(place.server.host)
    _settle(world)
    assert world.place(b"t", b"a").server != place.server
    assert [world.value(b"t", row) for row in (b"a", b"b", b"z")] == [b"a", b"b", b"z"]


def test_unsynced_writes_are_lost_with_their_server(world: Any) -> None:
    from metaclient.model import Durability

    world.create(b"t")
    place = world.place(b"t")
    put = Put(b"r", (Cell(b"f:q", LATEST_TIMESTAMP, b"x"),), Durability.ASYNC_WAL)
    world.backend.mutate(place, b"t", put, world.deadline())
    assert world.value(b"t", b"r") == b"x"
    world.cluster.kill(place.server.host)
    _settle(world)
    assert world.value(b"t", b"r") is None


def test_crash_is_noticed_after_the_session_timeout_and_not_before(make: Callable[..., Any]) -> None:
    world = make(config={"session_timeout_s": 10.0})
    world.create(b"t")
    place = world.place(b"t")
    host = next(host for host in world.cluster.servers() if host != world.cluster.meta_server(0))
    world.cluster.move(world.cluster.regions("t")[0], host)
    place = world.place(b"t")
    world.cluster.kill(host)
    world.runtime.sleep(9)
    assert world.place(b"t").server == place.server
    world.runtime.sleep(3)
    assert world.place(b"t").server != place.server


def test_meta_primary_comes_back_with_all_its_rows(world: Any) -> None:
    """While the primary is down its replicas answer; then it opens elsewhere (TestMetaWithReplicasShutdownHandling)."""
    world.create(b"t", [b"m"], copies=2)
    world.runtime.sleep(1)
    truth = [row.locations.region for row in world.rows_of(b"t")]
    dead = world.replica(0)
    world.cluster.kill(dead.server.host)
    with pytest.raises(ServerUnreachable):
        world.lookup(b"t")
    for replica_id in (1, 2):
        assert len(world.rows_of(b"t", at=replica_id)) == 2, "secondaries go on answering"
    _settle(world)
    assert world.replica(0).server != dead.server
    assert [row.locations.region for row in world.rows_of(b"t")] == truth
    world.create(b"u")
    assert world.lookup(b"u").state == "OPEN"


def test_lost_meta_replica_is_hosted_again(world: Any) -> None:
    """As TestShutdownOfMetaReplicaHolder of HBase."""
    world.create(b"t")
    dead = world.replica(1)
    world.cluster.kill(dead.server.host)
    _settle(world)
    world.runtime.sleep(1)
    assert world.replica(1).server != dead.server
    assert world.lookup(b"t", at=1).state == "OPEN"


def test_server_with_meta_and_everything_else_recovers(make: Callable[..., Any]) -> None:
    world = make(servers=2, meta_replicas=1)
    world.create(b"t", [b"g", b"p"], copies=2)
    for row in (b"a", b"h", b"z"):
        world.put(b"t", row, row)
    world.cluster.kill(world.cluster.meta_server(0))
    _settle(world)
    assert [world.value(b"t", row) for row in (b"a", b"h", b"z")] == [b"a", b"h", b"z"]


def test_crash_of_all_servers_waits_for_one_to_return(make: Callable[..., Any]) -> None:
    world = make(servers=3)
    world.create(b"t", copies=2)
    world.put(b"t", b"r", b"kept")
    for host in world.cluster.servers():
        world.cluster.kill(host)
    world.runtime.sleep(30)
    world.cluster.restart("rs2")
    _settle(world, deaths=3)
    world.runtime.sleep(1)
    assert world.value(b"t", b"r") == b"kept"
    assert world.place(b"t").server.host == "rs2"


def test_restarted_server_is_a_new_incarnation_and_its_regions_move_at_once(world: Any) -> None:
    world.create(b"t")
    world.put(b"t", b"r", b"kept")
    place = world.place(b"t")
    world.cluster.restart(place.server.host)
    _settle(world, 3)
    assert world.cluster.server_named(place.server.host).name.start_code > place.server.start_code
    assert world.value(b"t", b"r") == b"kept"
    # The new incarnation listens at the old address and does not know the region, unless it got it again.
    with suppress(RegionUnavailable):
        world.get(b"t", b"r", place=place)


def test_two_crashes_in_a_row_lose_nothing(make: Callable[..., Any]) -> None:
    world = make(servers=4)
    world.create(b"t", [b"g", b"p"])
    written: dict[bytes, bytes] = {}
    for round_number in range(3):
        for row in (b"a", b"h", b"z"):
            written[row] = b"%d" % round_number
            world.put(b"t", row, written[row])
        world.cluster.kill(world.place(b"t", b"a").server.host)
        _settle(world, 60, deaths=round_number + 1)
        for row, value in written.items():
            assert world.value(b"t", row) == value


def test_target_that_dies_while_it_opens_regions_is_replaced(world: Any) -> None:
    """Writes that the new server took before the master heard of it must not be lost either."""
    world.create(b"t")
    world.put(b"t", b"r", b"kept")
    region, old = world.cluster.regions("t")[0], world.place(b"t")
    meta_hosts = {world.cluster.meta_server(replica) for replica in range(3)}
    target = next(host for host in world.cluster.servers() if host not in {*meta_hosts, old.server.host})
    move = world.runtime.start(world.cluster.move, region, target)
    while world.cluster.node_named(region).state.value != "OPENING":
        world.runtime.sleep(0.01)
    world.cluster.kill(target)
    move.result(world.deadline(60))
    assert world.place(b"t").server.host != target
    assert world.value(b"t", b"r") == b"kept"


def test_source_that_dies_while_it_closes_a_region_costs_no_data(world: Any) -> None:
    world.create(b"t")
    region, old = world.cluster.regions("t")[0], world.place(b"t")
    if old.server.host == world.cluster.meta_server(0):
        world.cluster.move(region)
        old = world.place(b"t")
    world.put(b"t", b"r", b"kept")
    move = world.runtime.start(world.cluster.move, region)
    while world.cluster.node_named(region).state.value != "CLOSING":
        world.runtime.sleep(0.005)
    world.cluster.kill(old.server.host)
    move.result(world.deadline(60))
    assert world.value(b"t", b"r") == b"kept"


@pytest.mark.parametrize("change", ["split", "disable", "merge"])
def test_crash_during_a_procedure_is_waited_out(world: Any, change: str) -> None:
    world.create(b"t", [b"m"], copies=2)
    for row in (b"a", b"g", b"z"):
        world.put(b"t", row, row)
    first, second = world.cluster.regions("t")
    changes = {
        "split": lambda: world.cluster.split(first, b"d"),
        "merge": lambda: world.cluster.merge(first, second),
        "disable": lambda: world.cluster.disable_table("t"),
    }
    host = world.place(b"t", b"a").server.host
    task = world.runtime.start(changes[change])
    world.runtime.sleep(0.02)
    world.cluster.kill(host)
    task.result(world.deadline(60))
    if change == "disable":
        world.cluster.enable_table("t")
    _settle(world)
    assert [world.value(b"t", row) for row in (b"a", b"g", b"z")] == [b"a", b"g", b"z"]


def test_create_table_waits_for_a_meta_that_is_being_recovered(world: Any) -> None:
    world.cluster.kill(world.cluster.meta_server(0))
    began = world.runtime.now()
    with pytest.raises(CallTimeout) as error:
        from metaclient.model import FamilyDescriptor, TableDescriptor

        descriptor = TableDescriptor(b"t", (FamilyDescriptor(b"f"),))
        world.backend.create_table(descriptor, [], world.deadline(1.0))
    assert error.value.may_have_applied
    assert world.runtime.now() - began < 1.1
    world.runtime.sleep(20)
    assert world.lookup(b"t").state == "OPEN"
    assert world.cluster.master.record(b"t").state is TableState.ENABLED


def test_stopped_server_says_so_and_hands_its_regions_on(world: Any) -> None:
    world.create(b"t", [b"g", b"p"])
    world.put(b"t", b"a", b"kept")
    place = world.place(b"t", b"a")
    server = world.cluster.server_named(place.server.host)
    world.cluster.stop(place.server.host)
    assert server.wal.is_closed
    assert world.cluster.status()["servers"][place.server.host]["state"] == "dead"
    _settle(world, 5)
    assert world.value(b"t", b"a") == b"kept"
    with pytest.raises(RequestRefused, match="cannot become"):
        world.cluster.kill(place.server.host)


def test_hung_server_is_silent_then_replaced(world: Any) -> None:
    """Accepts connections, answers nothing; after its session expires, its regions are elsewhere."""
    world.create(b"t")
    world.put(b"t", b"r", b"kept")
    place = world.place(b"t")
    world.cluster.pause(place.server.host)
    began = world.runtime.now()
    with pytest.raises(CallTimeout):
        world.get(b"t", b"r", place=place, seconds=2.0)
    assert world.runtime.now() - began == pytest.approx(2.0, abs=0.01)
    _settle(world)
    assert world.place(b"t").server != place.server
    assert world.value(b"t", b"r") == b"kept"


def test_short_hang_costs_nothing_but_time(world: Any) -> None:
    world.create(b"t")
    place = world.place(b"t")
    world.cluster.pause(place.server.host)
    task = world.runtime.start(world.backend.get, place, b"t", Get(b"r"), world.deadline(60))
    world.runtime.sleep(3)
    assert not task.is_done
    world.cluster.resume(place.server.host)
    task.result()
    world.runtime.sleep(20)
    assert world.place(b"t").server == place.server


def test_hung_server_that_keeps_its_session_is_never_replaced(world: Any) -> None:
    world.create(b"t")
    place = world.place(b"t")
    world.cluster.pause(place.server.host, keeps_session=True)
    world.runtime.sleep(60)
    assert not world.cluster.master.dead
    world.cluster.resume(place.server.host)
    world.get(b"t", b"r", place=place)


def test_server_cut_from_the_registry_is_fenced_and_cannot_write(world: Any) -> None:
    """It is alive, clients reach it, and its log has been taken away: its writes must fail."""
    world.create(b"t")
    world.put(b"t", b"r", b"old")
    place = world.place(b"t")
    world.cluster.partition(place.server.host, "registry")
    _settle(world)
    assert world.place(b"t").server != place.server
    assert world.get(b"t", b"r", place=place).cells[0].value == b"old", "a zombie still answers reads"
    with pytest.raises(ServerStopped) as error:
        world.put(b"t", b"r", b"zombie", place=place)
    assert error.value.detail.endswith("RegionServerAbortedException")
    world.put(b"t", b"r", b"new")
    world.runtime.sleep(2)
    with pytest.raises(ServerUnreachable):
        world.get(b"t", b"r", place=place)
    assert world.value(b"t", b"r") == b"new"


def test_new_servers_get_regions_only_when_balanced(world: Any) -> None:
    world.create(b"t", [b"%d" % number for number in range(1, 10)])
    name = world.cluster.add_server()
    assert name == "rs6"
    assert world.cluster.status()["servers"][name]["regions"] == 0
    assert world.cluster.balance() > 0
    assert world.cluster.status()["servers"][name]["regions"] > 0
    world.cluster.kill(name)
    _settle(world)
    assert all(world.place(b"t", b"%d" % number).server.host != name for number in range(10))


def test_copies_stay_apart_after_a_crash_and_the_rows_are_there(make: Callable[..., Any]) -> None:
    """As TestRegionReplicasAreDistributed and TestSCPWithReplicas of HBase."""
    world = make(servers=5)
    world.create(b"t", [b"g", b"p"], copies=3)
    for row in (b"a", b"h", b"z"):
        world.put(b"t", row, row)
    world.cluster.kill(world.place(b"t", b"a").server.host)
    _settle(world)
    world.cluster.wait_until_replicated(30)
    for row in world.rows_of(b"t"):
        assert len({copy.server for copy in row.locations.placed()}) == 3
    for row in (b"a", b"h", b"z"):
        for replica_id in range(3):
            assert world.value(b"t", row, replica_id=replica_id) == row


def test_replicas_that_cannot_follow_are_named(world: Any) -> None:
    world.create(b"t", copies=2)
    secondary = world.place(b"t", replica_id=1)
    world.cluster.pause(secondary.server.host, keeps_session=True)
    with pytest.raises(DeadlineExceeded, match=secondary.region.encoded_name):
        world.cluster.wait_until_replicated(1.0)


def test_writes_under_random_crashes_are_never_lost(make: Callable[..., Any]) -> None:
    """Every acknowledged write is there at the end, whatever died in between."""
    world = make(servers=6, config={"session_timeout_s": 2.0})
    world.create(b"t", [b"3", b"6"], copies=2)
    written: dict[bytes, bytes] = {}
    rng = world.runtime.rng
    for step in range(300):
        row, value = b"%d" % rng.randrange(10), b"%d" % step
        try:
            world.put(b"t", row, value)
            written[row] = value
        except (MetaClientError, AssertionError):
            written.pop(row, None)  # it may or may not have happened
            world.runtime.sleep(0.5)
        if step % 60 == 30:
            live = [name.host for name in world.cluster.master.live]
            if len(live) > 3:
                world.cluster.kill(rng.choice(live))
        if step % 60 == 50:
            for host, server in world.cluster.status()["servers"].items():
                if server["state"] == "dead":
                    world.cluster.restart(host)
    world.runtime.sleep(30)
    assert len(written) >= 5
    for row, value in written.items():
        assert world.value(b"t", row) == value


def test_last_server_that_dies_while_regions_are_placed_does_not_end_the_recovery(world: Any) -> None:
    """The set of live servers is looked at once: between two looks the last server may be gone."""
    world.create(b"t")
    master = world.cluster.master
    node = next(node for node in master.states.by_name.values() if node.info.table == b"t")
    alive = dict(master.live)
    looks = iter([alive, {}, {}, {}])

    class Dying:
        """A master whose servers are all gone at the second look."""

        def __getattr__(self, name: str) -> Any:
            return next(looks) if name == "live" else getattr(master, name)

    assignment = AssignmentManager(Dying())  # type: ignore[arg-type]  # as the master, but for its servers
    assert assignment.place([node], avoid=node.server)[node.name] in alive
