"""Serial peers over moves, splits, merges and crashes: each row's edits arrive in the order of the source."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import asdict
from typing import Any

import pytest

from metaclient.errors import RequestRefused
from metaclient.model import Get
from metaclient.replication_peers import PeerState
from metaclient.runtime import SimRuntime
from metaclient_fake.replication.barriers import BARRIER_FAMILY, barriers_in
from tests.unit.fake_replication.cluster_rig import MakeSide, Side, sides


@pytest.fixture
def side(runtime: SimRuntime) -> Iterator[MakeSide]:
    with sides(runtime, sleep_before_failover_s=2.0, retry_multiplier_max=5, serial_pause_s=1.0) as make:
        yield make


def pair(
    side: MakeSide, *, serial: bool = True, splits: tuple[bytes, ...] = (), **options: object
) -> tuple[Side, Side]:
    """Two clusters with a table; the first replicates to the second, which has one region and so one order."""
    a, b = side("a", **{"servers": 3, **options}), side("b", servers=1)
    a.create(splits=splits)
    b.create()
    a.replicates_to(b, serial=serial)
    return a, b


def put_all(side: Side, values: range, *, rows: int = 10) -> None:
    """Write the numbers one by one, each to one of ``rows`` rows."""
    for number in values:
        side.put(b"%d" % (number % rows), b"%d" % number)


def arrived(side: Side) -> list[int]:
    """The values in the log of the peer, in its order."""
    return [int(cell.value) for _, cell in side.cells()]


def holder_of(side: Side, region: str) -> str:
    return str(side.cluster.status()["regions"][region]["server"])  # type: ignore[index]  # a picture


def move(side: Side, region: str) -> None:
    """Move a region to the next server."""
    hosts = side.cluster.servers()
    side.cluster.move(region, hosts[(hosts.index(holder_of(side, region)) + 1) % len(hosts)])


def blocked(side: Side) -> list[str]:
    return [one.waits_for for load in side.loads() for one in load.blocked]


# -- moves -------------------------------------------------------------------------------------------------------------


def hold_back(side: Side, host: str) -> Callable[[], None]:
    """Cut one server of a cluster off from the other cluster; return the function that ends it."""
    network = side.cluster.network
    cut = network.partition(f"a/{host}", "b")
    return lambda: network.mend(cut)


def moved_with_backlog(a: Side, runtime: SimRuntime) -> None:
    """100 puts on a server that cannot reach the peer, then a move, and 100 puts on a server that can."""
    (region,) = a.cluster.regions("t")
    mend = hold_back(a, holder_of(a, region))
    put_all(a, range(100))
    move(a, region)
    put_all(a, range(100, 200))
    runtime.sleep(30.0)
    mend()
    runtime.sleep(200.0)


def test_edits_after_a_move_do_not_pass_those_of_the_old_server(side: MakeSide, runtime: SimRuntime) -> None:
    a, b = pair(side)
    moved_with_backlog(a, runtime)
    assert arrived(b) == list(range(200))


def test_plain_peer_gets_edits_after_a_move_before_those_of_the_old_server(side: MakeSide, runtime: SimRuntime) -> None:
    """The scenario above does need the order: without it, the new edits come first."""
    a, b = pair(side, serial=False)
    moved_with_backlog(a, runtime)
    assert sorted(arrived(b)) == list(range(200))
    assert arrived(b) == [*range(100, 200), *range(100)]


def test_peer_enabled_after_a_move_gets_both_logs_in_order(side: MakeSide, runtime: SimRuntime) -> None:
    """TestSerialReplication: 100 puts, move, 100 puts, the peer is enabled afterwards."""
    a, b = pair(side)
    a.disable()
    put_all(a, range(100))
    move(a, a.cluster.regions("t")[0])
    put_all(a, range(100, 200))
    a.enable()
    runtime.sleep(60.0)
    assert arrived(b) == list(range(200))
    assert blocked(a) == []


def test_region_that_moves_back_and_forth_is_shipped_in_order(side: MakeSide, runtime: SimRuntime) -> None:
    a, b = pair(side)
    (region,) = a.cluster.regions("t")
    for start in range(0, 120, 20):
        put_all(a, range(start, start + 20))
        move(a, region)
    runtime.sleep(120.0)
    assert arrived(b) == list(range(120))


# -- splits and merges -------------------------------------------------------------------------------------------------


def test_daughters_do_not_pass_their_parent(side: MakeSide, runtime: SimRuntime) -> None:
    """TestSerialReplication: first all entries of the parent, then only those of the daughters."""
    a, b = pair(side)
    (parent,) = a.cluster.regions("t")
    a.disable()
    put_all(a, range(100))
    daughters = a.cluster.split(parent, b"5")
    for daughter in daughters:
        move(a, daughter)
    put_all(a, range(100, 200))
    a.enable()
    runtime.sleep(120.0)
    assert sorted(arrived(b)) == list(range(200))
    assert sorted(arrived(b)[:100]) == list(range(100))
    assert [value for value in arrived(b) if value % 10 < 5] == [n for n in range(200) if n % 10 < 5]


def test_merged_region_does_not_pass_its_parents(side: MakeSide, runtime: SimRuntime) -> None:
    a, b = pair(side, splits=(b"5",))
    a.disable()
    put_all(a, range(100))
    merged = a.cluster.merge(*a.cluster.regions("t"))
    move(a, merged)
    put_all(a, range(100, 200))
    a.enable()
    runtime.sleep(120.0)
    assert sorted(arrived(b)[:100]) == list(range(100))
    assert arrived(b)[100:] == list(range(100, 200))


# -- crashes -----------------------------------------------------------------------------------------------------------


def crashed_with_backlog(a: Side, runtime: SimRuntime, *, is_flushed: bool) -> None:
    """100 puts on a server that cannot reach the peer and is killed, and 100 puts on a server that can reach it."""
    (region,) = a.cluster.regions("t")
    hold_back(a, holder_of(a, region))
    put_all(a, range(100))
    if is_flushed:
        a.cluster.flush()
    a.cluster.kill(holder_of(a, region))
    put_all(a, range(100, 200))
    runtime.sleep(15.0)


@pytest.mark.parametrize("is_flushed", [False, True])
def test_edits_after_a_crash_do_not_pass_those_of_the_dead_server(
    side: MakeSide, runtime: SimRuntime, is_flushed: bool
) -> None:
    """TestSerialReplicationFailover: the server is killed between 2 x 100 puts."""
    a, b = pair(side, sleep_before_failover_s=30.0)
    crashed_with_backlog(a, runtime, is_flushed=is_flushed)
    assert arrived(b) == []
    assert len(blocked(a)) == 1
    runtime.sleep(120.0)
    assert arrived(b) == list(range(200))
    assert blocked(a) == []


def test_plain_peer_gets_edits_after_a_crash_before_those_of_the_dead_server(
    side: MakeSide, runtime: SimRuntime
) -> None:
    a, b = pair(side, serial=False, sleep_before_failover_s=30.0)
    crashed_with_backlog(a, runtime, is_flushed=False)
    assert arrived(b) == list(range(100, 200))
    runtime.sleep(120.0)
    assert arrived(b) == [*range(100, 200), *range(100)]


def test_crash_right_after_an_open_does_not_block_the_peer(side: MakeSide, runtime: SimRuntime) -> None:
    a, b = pair(side)
    (region,) = a.cluster.regions("t")
    put_all(a, range(10))
    move(a, region)
    a.cluster.kill(holder_of(a, region))
    put_all(a, range(10, 20))
    runtime.sleep(120.0)
    assert arrived(b) == list(range(20))


@pytest.mark.parametrize("version", ["2.6.1", "3.0.0-alpha-4"])
def test_flush_and_crash_with_unshipped_edits_block_the_peer_of_hbase_for_ever(
    side: MakeSide, runtime: SimRuntime, version: str
) -> None:
    """HBASE-29499: ids of flush markers are given again. The pushed id set by hand to barrier - 1 frees the peer."""
    a, b = pair(side, serial_bugs_of=version)
    (region,) = a.cluster.regions("t")
    a.disable()
    put_all(a, range(3))
    a.cluster.flush()
    a.cluster.kill(holder_of(a, region))
    put_all(a, range(3, 6))
    a.enable()
    runtime.sleep(300.0)
    assert arrived(b) == [0, 1, 2]
    pushed = a.cluster.peer_replication.pushed
    last = pushed.get(region, "p")
    assert set(blocked(a)) == {
        f"region {region} to be shipped up to sequence id {last + 1}; it is shipped up to {last}"
    }
    pushed.set_all("p", {region: last + 1})
    runtime.sleep(30.0)
    assert arrived(b) == list(range(6))
    assert blocked(a) == []


# -- edits that come back ----------------------------------------------------------------------------------------------


def both_ways(side: MakeSide, runtime: SimRuntime, **options: object) -> tuple[Side, Side]:
    """The last edit of A before its server is killed came from B; then A gets an edit of its own."""
    a, b = side("a", servers=3, **options), side("b", servers=1, **options)
    for one in (a, b):
        one.create()
    a.replicates_to(b, serial=True)
    b.replicates_to(a, serial=True)
    (region,) = a.cluster.regions("t")
    a.put(b"r", b"1")
    runtime.sleep(20.0)
    b.put(b"r", b"2")
    runtime.sleep(20.0)
    assert [int(cell.value) for _, cell in a.cells()] == [1, 2]
    a.cluster.kill(holder_of(a, region))
    a.put(b"r", b"3")
    runtime.sleep(120.0)
    return a, b


def test_edit_of_the_peer_before_a_crash_does_not_block_the_way_back(side: MakeSide, runtime: SimRuntime) -> None:
    a, b = both_ways(side, runtime)
    assert arrived(b) == [1, 2, 3]
    assert blocked(a) == []


@pytest.mark.parametrize(("version", "expected"), [("2.6.1", [1, 2]), ("3.0.0-alpha-4", [1, 2]), ("2.6.4", [1, 2, 3])])
def test_edit_of_the_peer_before_a_crash_blocks_the_way_back_of_hbase(
    side: MakeSide, runtime: SimRuntime, version: str, expected: list[int]
) -> None:
    """HBASE-29463, repaired in 2.6.4: the edit is dropped without counting, and what follows waits for it."""
    a, b = both_ways(side, runtime, serial_bugs_of=version)
    assert arrived(b) == expected
    assert bool(blocked(a)) == (expected == [1, 2])


# -- new peers ---------------------------------------------------------------------------------------------------------


def archive_logs(side: Side, runtime: SimRuntime) -> None:
    """Flush everything and roll all logs, so that older edits are in no current log."""
    side.cluster.flush()
    for server in side.cluster.servers_by_host.values():
        server.wal.roll()
    runtime.sleep(5.0)


def moved_without_logs(side: MakeSide, runtime: SimRuntime) -> tuple[Side, Side]:
    """A table with 100 edits before a move, whose logs are gone; no peer yet."""
    a, b = side("a", servers=3), side("b", servers=1)
    for one in (a, b):
        one.create()
    put_all(a, range(100))
    move(a, a.cluster.regions("t")[0])
    archive_logs(a, runtime)
    return a, b


def test_serial_peer_added_after_a_move_does_not_wait_for_logs_that_are_gone(
    side: MakeSide, runtime: SimRuntime
) -> None:
    """TestAddToSerialReplicationPeer: only the 100 new rows come, in order."""
    a, b = moved_without_logs(side, runtime)
    a.replicates_to(b, serial=True)
    put_all(a, range(100, 200))
    runtime.sleep(60.0)
    assert arrived(b) == list(range(100, 200))
    assert blocked(a) == []


def test_peer_that_becomes_serial_after_a_move_goes_on(side: MakeSide, runtime: SimRuntime) -> None:
    a, b = pair(side, serial=False)
    put_all(a, range(100))
    move(a, a.cluster.regions("t")[0])
    archive_logs(a, runtime)
    runtime.sleep(60.0)
    a.cluster.replication.update("p", serial=True)
    put_all(a, range(100, 200))
    runtime.sleep(60.0)
    assert arrived(b) == list(range(200))


def test_table_that_joins_a_serial_peer_after_a_move_goes_on(side: MakeSide, runtime: SimRuntime) -> None:
    a, b = moved_without_logs(side, runtime)
    a.replicates_to(b, serial=True, tables=["other"])
    a.cluster.replication.update("p", tables=["t"])
    put_all(a, range(100, 200))
    runtime.sleep(60.0)
    assert arrived(b) == list(range(100, 200))


def test_table_that_is_disabled_while_the_peer_becomes_serial_goes_on(side: MakeSide, runtime: SimRuntime) -> None:
    a, b = moved_without_logs(side, runtime)
    a.cluster.disable_table("t")
    a.replicates_to(b, serial=True)
    a.cluster.enable_table("t")
    put_all(a, range(100, 200))
    runtime.sleep(60.0)
    assert arrived(b) == list(range(100, 200))


def pushed_id(side: Side) -> int:
    (region,) = side.cluster.regions("t")
    return side.cluster.peer_replication.pushed.get(region, "p")


def test_pushed_ids_are_stored_with_the_position(side: MakeSide, runtime: SimRuntime) -> None:
    a, _ = pair(side)
    before = pushed_id(a)
    put_all(a, range(10))
    runtime.sleep(20.0)
    assert pushed_id(a) == max(entry.sequence_id for entry in a.logged())
    assert pushed_id(a) > before


@pytest.mark.parametrize("change", ["remove", "not serial", "other tables"])
def test_pushed_ids_of_a_peer_that_is_not_serial_any_more_are_gone(
    side: MakeSide, runtime: SimRuntime, change: str
) -> None:
    """TestRemoveFromSerialReplicationPeer: a later serial peer would wait for the old ids, or pass them."""
    a, _ = pair(side)
    put_all(a, range(10))
    runtime.sleep(20.0)
    assert pushed_id(a) > 0
    if change == "remove":
        a.cluster.replication.remove("p")
    elif change == "not serial":
        a.cluster.replication.update("p", serial=False)
    else:
        a.cluster.replication.update("p", tables=["other"])
    put_all(a, range(10))
    runtime.sleep(20.0)
    assert pushed_id(a) == -1


@pytest.mark.parametrize("change", ["disable", "enable"])
def test_serial_peer_waits_for_a_table_that_is_being_disabled_or_enabled(
    side: MakeSide, runtime: SimRuntime, change: str
) -> None:
    """TestAddToSerialReplicationPeer: the call returns when the table is DISABLED or ENABLED."""
    a, b = moved_without_logs(side, runtime)
    if change == "enable":
        a.cluster.disable_table("t")
    changing = runtime.start(a.cluster.disable_table if change == "disable" else a.cluster.enable_table, "t")
    a.replicates_to(b, serial=True)
    assert changing.is_done
    if change == "disable":
        a.cluster.enable_table("t")
    put_all(a, range(100, 200))
    runtime.sleep(60.0)
    assert arrived(b) == list(range(100, 200))


# -- many edits --------------------------------------------------------------------------------------------------------


def test_many_edits_over_rolled_logs_come_in_order(side: MakeSide, runtime: SimRuntime) -> None:
    a, b = pair(side, batch_entries=50)
    for start in range(0, 2000, 500):
        put_all(a, range(start, start + 500))
        for server in a.cluster.servers_by_host.values():
            server.wal.roll()
    runtime.sleep(120.0)
    assert arrived(b) == list(range(2000))


# -- what is shown -----------------------------------------------------------------------------------------------------


def test_status_shows_which_region_waits_for_which(side: MakeSide, runtime: SimRuntime) -> None:
    a, _ = pair(side)
    (region,) = a.cluster.regions("t")
    hold_back(a, holder_of(a, region))
    put_all(a, range(3))
    left, _ = a.cluster.split(region, b"5")
    move(a, left)
    a.put(b"0")
    runtime.sleep(20.0)
    waiting = [one for load in a.loads() for one in load.blocked]
    pairs = {(one.region, one.waits_for.split()[1]) for one in waiting}
    assert (left, left) in pairs, "on its new server it waits for its edits on the old one"
    assert {parent for _, parent in pairs - {(left, left)}} == {region}, "on the old one, for the split region"
    pushed = a.cluster.peer_replication.pushed.get(region, "p")
    assert any(one.waits_for.endswith(f"; it is shipped up to {pushed}") for one in waiting)
    servers: Any = a.cluster.status()["replication_peers"]
    shown = [one for server in servers["servers"].values() for one in server["sources"]["p"]["blocked"]]
    assert shown == [asdict(one) for one in waiting]
    json.dumps(servers)


# -- the barrier cleaner -----------------------------------------------------------------------------------------------


def barriers(side: Side, name: bytes) -> tuple[int, ...]:
    """The barriers of a region in hbase:meta."""
    server = side.cluster.server_named(side.cluster.meta_server(0))
    get = Get(name, (BARRIER_FAMILY,), max_versions=100)
    return barriers_in(server.calls.get_meta(0, get).cells).barriers


def test_cleaner_runs_at_its_interval_and_leaves_what_a_serial_peer_needs(side: MakeSide, runtime: SimRuntime) -> None:
    a, b = pair(side, barrier_cleaner_s=3600.0)
    (region,) = a.cluster.regions("t")
    name = a.cluster.master.states.table(b"t")[0].primary.name
    for start in range(0, 30, 10):
        put_all(a, range(start, start + 10))
        move(a, region)
    runtime.sleep(300.0)
    before = barriers(a, name)
    a.disable()
    put_all(a, range(30, 40))
    move(a, region)
    runtime.sleep(3600.0)
    after = barriers(a, name)
    assert len(after) == 2, "the range of the last pushed id, and the next one"
    assert before[-1] == after[0]
    a.enable()
    runtime.sleep(3700.0)
    assert len(barriers(a, name)) == 1
    assert arrived(b) == list(range(40))


def test_cleaner_drops_a_split_parent_once_it_is_pushed(side: MakeSide, runtime: SimRuntime) -> None:
    a, b = pair(side, barrier_cleaner_s=3600.0)
    (parent,) = a.cluster.regions("t")
    name = a.cluster.master.states.table(b"t")[0].primary.name
    a.disable()
    put_all(a, range(10))
    a.cluster.split(parent, b"5")
    a.cluster.compact("t")
    runtime.sleep(4000.0)
    assert barriers(a, name), "the daughters wait for it"
    a.enable()
    put_all(a, range(10, 20))
    runtime.sleep(4000.0)
    assert barriers(a, name) == ()
    assert a.cluster.peer_replication.pushed.get(parent, "p") == -1
    put_all(a, range(20, 30))
    runtime.sleep(60.0)
    assert sorted(arrived(b)) == list(range(30))


# -- all of it at once -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(5))
def test_random_moves_splits_merges_crashes_and_cuts_keep_the_order_of_each_row(seed: int) -> None:
    """25 faults or changes with puts between them, then rest: the peer has every edit, each row's in order."""
    with SimRuntime(seed=seed) as runtime:
        settings = {"sleep_before_failover_s": 2.0, "retry_multiplier_max": 5, "serial_pause_s": 1.0}
        a = Side(runtime, "a", servers=3, barrier_cleaner_s=7.0, batch_entries=5, **settings)
        b = Side(runtime, "b", a, servers=2, **settings)
        a.create(splits=(b"5",))
        b.create()
        a.replicates_to(b, serial=True)
        for step in range(25):
            put_all(a, range(5 * step, 5 * step + 5), rows=7)
            disturb(a, runtime)
        a.cluster.heal()
        if a.cluster.replication.get("p").state is PeerState.DISABLED:
            a.enable()
        runtime.sleep(600.0)
        assert blocked(a) == []
        assert b.rows() == a.rows()
        firsts = list(dict.fromkeys(arrived(b)))
        assert [[one for one in firsts if one % 7 == row] for row in range(7)] == [
            list(range(row, 125, 7)) for row in range(7)
        ]
        a.cluster.close()
        b.cluster.close()


def disturb(side: Side, runtime: SimRuntime) -> None:
    """Do one of the things that change where edits are logged, or when they are shipped."""
    cluster, choose = side.cluster, runtime.rng.choice
    regions = cluster.regions("t")
    running = [host for host in cluster.servers() if cluster.server_named(host).is_running]
    what = choose(["move", "split", "merge", "kill", "restart", "flush", "roll", "cut", "heal", "state", "rest"])
    if what == "move":
        cluster.move(choose(regions), choose(running))
    elif what == "split":
        with suppress(RequestRefused):  # the key is the start of a region, or outside of it
            cluster.split(choose(regions), b"%d" % choose(range(1, 7)))
    elif what == "merge" and len(regions) > 1:
        first = choose(range(len(regions) - 1))
        cluster.merge(regions[first], regions[first + 1])
    elif what == "kill" and len(running) > 1:
        cluster.kill(choose(running))
    elif what == "restart":
        for host in [host for host in cluster.servers() if host not in running]:
            cluster.restart(host)
    elif what == "flush":
        cluster.flush()
    elif what == "roll":
        for host in running:
            cluster.server_named(host).wal.roll()
    elif what == "cut":
        cluster.network.partition(f"a/{choose(running)}", "b")
    elif what == "heal":
        cluster.heal()
    elif what == "state":
        is_enabled = cluster.replication.get("p").state is PeerState.ENABLED
        (side.disable if is_enabled else side.enable)()
    else:
        runtime.sleep(20.0 * runtime.rng.random())
