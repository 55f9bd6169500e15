"""Behaviour seen on real clusters (HBase 2.6.1 and 3.0.0-alpha-4), each case provoked on purpose."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from metaclient.backend import MetaScan
from metaclient.errors import (
    CallTimeout,
    ReadsDisabled,
    RegionMoved,
    RegionOpening,
    RegionUnavailable,
    RequestRefused,
    ServerStopped,
    ServerUnreachable,
)
from metaclient.model import LATEST_TIMESTAMP, Cell, Get, Put


def test_secondary_of_meta_reopens_empty_and_says_no_rows_without_an_error(make: Callable[..., Any]) -> None:
    """0.2: "0 rows" from a meta secondary proves nothing."""
    world = make(config={"secondary_reopens_empty_s": 62.0, "meta_rows_torn_s": 5.0})
    world.create(b"t")
    world.runtime.sleep(70)
    assert world.lookup(b"t", at=1).fault is None
    world.cluster.move("hbase:meta", replica_id=1)
    world.runtime.sleep(1)
    page = world.meta(1, MetaScan(b"", b"", False, 10))
    assert page.rows == ()
    assert page.is_stale
    world.runtime.sleep(62)
    torn = world.lookup(b"t", at=1)
    assert torn.fault is not None, "then one torn row of 3 cells"
    world.runtime.sleep(6)
    assert world.lookup(b"t", at=1).fault is None
    assert world.lookup(b"t", at=0).fault is None


def test_user_replica_loses_a_put_that_it_had_shown(world: Any) -> None:
    """0.2: one replica is not even monotonic."""
    world.create(b"t", copies=2)
    world.put(b"t", b"r", b"x")
    world.cluster.wait_until_replicated(5)
    assert world.value(b"t", b"r", replica_id=1) == b"x"
    world.cluster.faults.reopen_empty(world.cluster.regions("t")[0], 1, 1.3)
    world.runtime.sleep(0.5)
    result = world.get(b"t", b"r", replica_id=1)
    assert result.cells == ()
    assert result.is_stale
    world.runtime.sleep(1.5)
    assert world.value(b"t", b"r", replica_id=1) == b"x"
    with pytest.raises(RequestRefused, match="primary"):
        world.cluster.faults.reopen_empty(world.cluster.regions("t")[0], 0, 1.0)


def test_torn_rows_of_one_table_only(world: Any) -> None:
    world.create(b"t")
    world.create(b"u")
    world.runtime.sleep(1)
    world.cluster.faults.tear_meta_rows(1, 10.0, cells=3, table="t")
    page = world.meta(1, MetaScan(b"t,,", b"t ,,", False, 10))
    assert len(page.rows[0].columns) == 3
    assert world.lookup(b"u", at=1).fault is None
    assert world.lookup(b"t", at=2).fault is None
    world.runtime.sleep(11)
    assert world.lookup(b"t", at=1).fault is None


def test_new_table_arrives_on_meta_secondaries_in_pieces(make: Callable[..., Any]) -> None:
    """5.7: rows arrive in pieces; right after create a secondary knows nothing or half of it."""
    world = make(config={"region_open_s": 0.5})
    world.runtime.sleep(1)
    world.runtime.start(world.create, b"t")
    seen: list[str] = []
    for _ in range(400):
        row = world.lookup(b"t", at=1)
        answer = "absent" if row is None else "whole" if row.fault is None else "incomplete"
        if not seen or seen[-1] != answer:
            seen.append(answer)
        world.runtime.sleep(0.005)
    assert seen == ["absent", "incomplete", "whole"]


def test_registry_is_ahead_of_the_server(make: Callable[..., Any]) -> None:
    """5.7: the registry names the new server while that one is still opening meta."""
    world = make(config={"region_open_s": 0.4})
    world.create(b"t")
    old = world.replica(0).server
    task = world.runtime.start(world.cluster.move, "hbase:meta")
    while world.replica(0).server == old:
        world.runtime.sleep(0.005)
    seen = set()
    while not task.is_done:
        try:
            world.lookup(b"t")
        except RegionUnavailable as error:
            seen.add(type(error))
        world.runtime.sleep(0.01)
    assert RegionOpening in seen
    assert world.lookup(b"t") is not None


def test_registry_can_be_late(make: Callable[..., Any]) -> None:
    world = make(config={"registry_lag_s": 3.0})
    world.runtime.sleep(4)
    old = world.replica(1).server
    world.cluster.move("hbase:meta", replica_id=1)
    assert world.replica(1).server == old
    with pytest.raises(RegionMoved):
        world.meta(1, MetaScan(b"", b"", False, 1))
    world.runtime.sleep(3.1)
    assert world.replica(1).server != old


def test_registry_can_be_held_and_released(world: Any) -> None:
    old = world.replica(0).server
    world.cluster.faults.hold_registry()
    world.cluster.move("hbase:meta")
    world.runtime.sleep(100)
    assert world.replica(0).server == old
    world.cluster.faults.release_registry()
    assert world.replica(0).server != old


def test_region_moved_to_nowhere(world: Any) -> None:
    """0.5: it names the requested target, which never existed; the region is elsewhere."""
    world.create(b"t")
    old = world.place(b"t")
    world.cluster.faults.move_to_nowhere(world.cluster.regions("t")[0], "localhost,1,1")
    with pytest.raises(RegionMoved) as error:
        world.get(b"t", b"r", place=old)
    assert error.value.server.address == "localhost:1"
    with pytest.raises(ServerUnreachable):
        world.get(b"t", b"r", place=type(old)(old.region, error.value.server, is_hint=True))
    assert world.place(b"t").server != old.server
    world.get(b"t", b"r")


def test_woken_zombie_answers_late_and_then_aborts(world: Any) -> None:
    """0.4: calls that waited in its sockets are answered; its reads are old, its writes are lost."""
    world.create(b"t")
    world.put(b"t", b"r", b"old")
    place = world.place(b"t")
    if place.server.host == world.cluster.meta_server(0):
        world.cluster.move(world.cluster.regions("t")[0])
        place = world.place(b"t")
    world.cluster.pause(place.server.host)
    late = Put(b"r", (Cell(b"f:q", LATEST_TIMESTAMP, b"zombie"),))
    for call in (
        lambda: world.backend.get(place, b"t", Get(b"r"), world.deadline(1)),
        lambda: world.backend.mutate(place, b"t", late, world.deadline(1)),
    ):
        with pytest.raises(CallTimeout):
            call()
    world.runtime.sleep(14)
    world.put(b"t", b"r", b"new")
    assert world.cluster.resume(place.server.host) == 2
    assert world.value(b"t", b"r") == b"new", "its log was fenced: the late write must not have happened"
    with pytest.raises((ServerStopped, ServerUnreachable)):
        world.get(b"t", b"r", place=place)
    world.runtime.sleep(2)
    with pytest.raises(ServerUnreachable):
        world.get(b"t", b"r", place=place)


def test_zombie_that_was_asked_to_read_answers_even_new_calls_for_a_moment(world: Any) -> None:
    world.create(b"t")
    world.put(b"t", b"r", b"old")
    place = world.place(b"t")
    world.cluster.pause(place.server.host)
    world.runtime.sleep(14)
    world.put(b"t", b"r", b"new")
    world.cluster.resume(place.server.host)
    assert world.get(b"t", b"r", place=place).cells[0].value == b"old", "a strong read of the past"
    world.runtime.sleep(1.1)
    with pytest.raises((ServerStopped, ServerUnreachable)):
        world.get(b"t", b"r", place=place)


def test_late_write_of_a_short_hang_does_happen(world: Any) -> None:
    """A server that woke up in time still owns its log."""
    world.create(b"t")
    place = world.place(b"t")
    world.cluster.pause(place.server.host)
    put = Put(b"r", (Cell(b"f:q", LATEST_TIMESTAMP, b"late"),))
    with pytest.raises(CallTimeout) as error:
        world.backend.mutate(place, b"t", put, world.deadline(1))
    assert error.value.may_have_applied
    assert world.cluster.resume(place.server.host) == 1
    assert world.value(b"t", b"r") == b"late"


def test_replicas_pile_up_on_one_server_after_a_failover_until_balanced(make: Callable[..., Any]) -> None:
    """5.7: "another replica" is not "another server"."""
    world = make(config={"failover_piles_replicas": True})
    world.create(b"t", copies=3)
    world.cluster.faults.pile_replicas("hbase:meta", "rs4")
    world.cluster.kill("rs4")
    world.runtime.sleep(15)
    servers = [world.replica(n).server.host for n in (1, 2)]
    assert servers[0] == servers[1]
    world.cluster.balance()
    world.runtime.sleep(1)
    assert len({world.replica(n).server for n in range(3)}) == 3


def test_reads_are_disabled_after_an_open_and_on_demand(world: Any) -> None:
    """5.8: 30 to 160 ms after each open of a secondary."""
    world.create(b"t", copies=2)
    world.runtime.sleep(1)
    world.cluster.faults.disable_reads(world.cluster.regions("t")[0], 1, 5.0)
    with pytest.raises(ReadsDisabled):
        world.get(b"t", b"r", replica_id=1)
    world.runtime.sleep(4)
    with pytest.raises(ReadsDisabled):
        world.get(b"t", b"r", replica_id=1)
    world.runtime.sleep(1.2)
    world.get(b"t", b"r", replica_id=1)


def test_meta_replica_refuses_reads_while_its_primary_hangs_with_it(make: Callable[..., Any]) -> None:
    """5.7: primary and replica 1 on one hung server: replica 1 re-opens, and may not read before the primary."""
    world = make(servers=4)
    world.create(b"t")
    world.cluster.move("hbase:meta", world.cluster.meta_server(0), replica_id=1)
    world.cluster.pause(world.cluster.meta_server(0))
    seen: list[str] = []
    for _ in range(400):
        try:
            world.meta(1, MetaScan(b"", b"", False, 1), seconds=0.05)
            answer = "served"
        except (RegionUnavailable, CallTimeout, ReadsDisabled) as error:
            answer = type(error).__name__
        if not seen or seen[-1] != answer:
            seen.append(answer)
        world.runtime.sleep(0.05)
    assert seen[0] == "CallTimeout"
    assert "ReadsDisabled" in seen
    assert seen[-1] == "served"
