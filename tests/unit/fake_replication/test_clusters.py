"""Whole clusters replicate to each other: what is put in one arrives in the other, once, with its timestamp."""

from __future__ import annotations

from collections.abc import Iterator
from uuid import UUID

import pytest

from metaclient.model import Cell, CellType
from metaclient.runtime import SimRuntime
from metaclient.wire.rpc.replication import ShippedEntry, WalKey
from tests.unit.fake_replication.cluster_rig import MakeSide, Side, sides


@pytest.fixture
def side(runtime: SimRuntime) -> Iterator[MakeSide]:
    with sides(runtime) as make:
        yield make


@pytest.fixture
def pair(side: MakeSide) -> tuple[Side, Side]:
    """A table of a GLOBAL and a LOCAL family in two clusters; the first replicates to the second."""
    a, b = side("a"), side("b")
    for one in (a, b):
        one.create(scopes="f1g0")
    a.replicates_to(b)
    return a, b


def test_put_arrives_with_its_timestamp(pair: tuple[Side, Side], runtime: SimRuntime) -> None:
    a, b = pair
    a.put(b"r", b"1")
    a.put(b"s", b"2", at=17)
    runtime.run_for(5.0)
    assert b.rows() == a.rows()
    assert b.rows()[b"s"] == {b"f:q": (b"2", 17)}


def test_family_of_scope_0_never_leaves_the_cluster(pair: tuple[Side, Side], runtime: SimRuntime) -> None:
    a, b = pair
    a.put(b"r", column=b"g:q")
    a.connection.table(b"t").put(b"s", {b"f:q": b"1", b"g:q": b"2"})
    runtime.run_for(5.0)
    assert [list(row) for row in b.rows().values()] == [[b"f:q"]]
    assert list(b.rows()) == [b"s"]


def test_versions_and_deletes_arrive_as_they_were_made(pair: tuple[Side, Side], runtime: SimRuntime) -> None:
    """Versions t, t+1, t+2; the delete of version t leaves two, the delete up to t+2 leaves none."""
    a, b = pair
    for at in (100, 101, 102):
        a.put(b"r", b"%d" % at, at=at)
    a.connection.table(b"t").delete(b"r", columns=[b"f:q"], timestamp=100)
    runtime.run_for(5.0)
    assert b.connection.table(b"t").cells(b"r", b"f:q", versions=5) == a.connection.table(b"t").cells(
        b"r", b"f:q", versions=5
    )
    a.connection.table(b"t").delete(b"r", timestamp=102)
    runtime.run_for(5.0)
    assert b.rows() == a.rows() == {}


def test_increment_arrives_as_its_result(pair: tuple[Side, Side], runtime: SimRuntime) -> None:
    a, b = pair
    for _ in range(3):
        a.connection.table(b"t").counter_inc(b"r", b"f:n", 5)
    runtime.run_for(5.0)
    assert b.connection.table(b"t").counter_get(b"r", b"f:n") == 15


def test_two_way_replication_does_not_echo(side: MakeSide, runtime: SimRuntime) -> None:
    """TestMasterReplication: one put in each cluster is seen twice by each log; deletes the same."""
    a, b = side("a"), side("b")
    for one in (a, b):
        one.create()
    a.replicates_to(b)
    b.replicates_to(a)
    a.put(b"from a")
    b.put(b"from b")
    runtime.run_for(60.0)
    assert [len(one.cells()) for one in (a, b)] == [2, 2]
    assert list(a.rows()) == list(b.rows()) == [b"from a", b"from b"]
    a.delete(b"from a")
    b.delete(b"from b")
    runtime.run_for(60.0)
    deletes = [sum(cell.type != CellType.PUT for _, cell in one.cells()) for one in (a, b)]
    assert deletes == [2, 2]
    assert a.rows() == b.rows() == {}


def test_edit_goes_round_a_ring_of_three_once(side: MakeSide, runtime: SimRuntime) -> None:
    """TestMasterReplication: A -> B -> C -> A, one put in each: three puts in each log, and three deletes."""
    ring = [side("a"), side("b"), side("c")]
    for one in ring:
        one.create()
    for number, one in enumerate(ring):
        one.replicates_to(ring[(number + 1) % 3])
    for one in ring:
        one.put(one.cluster.name.encode())
    runtime.run_for(120.0)
    assert [len(one.cells()) for one in ring] == [3, 3, 3]
    assert all(list(one.rows()) == [b"a", b"b", b"c"] for one in ring)
    for one in ring:
        one.delete(one.cluster.name.encode())
    runtime.run_for(120.0)
    assert [len(one.cells()) for one in ring] == [6, 6, 6]
    assert all(one.rows() == {} for one in ring)


def test_chain_with_a_way_back_counts_each_edit_once(side: MakeSide, runtime: SimRuntime) -> None:
    """TestMasterReplication: A -> B -> C -> B: one put in each, and the logs have 1, 3 and 3 puts."""
    a, b, c = side("a"), side("b"), side("c")
    for one in (a, b, c):
        one.create()
    a.replicates_to(b)
    b.replicates_to(c)
    c.replicates_to(b)
    for one in (a, b, c):
        one.put(one.cluster.name.encode())
    runtime.run_for(120.0)
    assert [len(one.cells()) for one in (a, b, c)] == [1, 3, 3]


def test_edits_of_two_origins_in_one_batch_keep_their_own_clusters(side: MakeSide, runtime: SimRuntime) -> None:
    """C -> A is disabled; A's put and C's own put wait in one batch; enabled, only C's put reaches A."""
    a, b, c = side("a"), side("b"), side("c", servers=1)
    for one in (a, b, c):
        one.create()
    a.replicates_to(b)
    b.replicates_to(c)
    c.replicates_to(a)
    c.disable()
    a.put(b"of a")
    runtime.run_for(60.0)
    c.put(b"of c")
    assert list(c.rows()) == [b"of a", b"of c"]
    c.enable()
    runtime.run_for(60.0)
    assert list(a.rows()) == list(b.rows()) == [b"of a", b"of c"]
    assert [len(one.cells()) for one in (a, b, c)] == [2, 2, 2]


def test_log_of_the_sink_names_the_clusters_that_the_edit_has_passed(
    pair: tuple[Side, Side], runtime: SimRuntime
) -> None:
    a, b = pair
    a.put(b"r")
    runtime.run_for(5.0)
    assert [entry.cluster_ids for entry in a.logged()] == [()]
    assert [entry.cluster_ids for entry in b.logged()] == [(UUID(a.cluster.cluster_id),)]


def test_disabled_peer_gets_its_edits_when_it_is_enabled(pair: tuple[Side, Side], runtime: SimRuntime) -> None:
    a, b = pair
    a.disable()
    a.put(b"r")
    runtime.run_for(60.0)
    assert b.rows() == {}
    a.enable()
    runtime.run_for(5.0)
    assert b.rows() == a.rows()


def test_recreated_source_ships_only_what_is_new(pair: tuple[Side, Side], runtime: SimRuntime) -> None:
    """HBase 3.0: 40 edits shipped, disable, put, enable: one entry comes."""
    a, b = pair
    for number in range(40):
        a.put(b"%02d" % number)
    runtime.run_for(10.0)
    a.disable()
    a.put(b"x")
    a.enable()
    runtime.run_for(10.0)
    assert len(b.cells()) == 41


def test_recreated_source_of_hbase_2_6_ships_the_current_log_again(side: MakeSide, runtime: SimRuntime) -> None:
    """HBase 2.6: 40 edits shipped, disable, put, enable: 41 entries come."""
    a, b = side("a", servers=1, behaviour="2.6"), side("b")
    for one in (a, b):
        one.create()
    a.replicates_to(b)
    for number in range(40):
        a.put(b"%02d" % number)
    runtime.run_for(10.0)
    a.disable()
    a.put(b"x")
    a.enable()
    runtime.run_for(10.0)
    assert len(b.cells()) == 40 + 41
    assert b.rows() == a.rows()


@pytest.mark.parametrize("behaviour", ["2.6", "3.0"])
def test_changed_bandwidth_repeats_nothing_and_changed_tables_the_current_log_in_2_6(
    side: MakeSide, runtime: SimRuntime, behaviour: str
) -> None:
    a, b = side("a", servers=1, behaviour=behaviour), side("b")
    for one in (a, b):
        one.create()
        one.create(b"u")
    a.replicates_to(b, tables=[b"t"])
    for number in range(10):
        a.put(b"%d" % number)
    runtime.run_for(10.0)
    a.cluster.replication.update("p", bandwidth=1_000_000)
    a.put(b"x")
    runtime.run_for(10.0)
    assert len(b.cells()) == 11
    a.cluster.replication.update("p", tables=[b"t", b"u"])
    a.put(b"y")
    runtime.run_for(10.0)
    assert len(b.cells()) == (12 if behaviour == "3.0" else 11 + 12)
    assert b.rows() == a.rows()


def test_entry_that_names_the_peer_is_applied_and_goes_no_further(side: MakeSide, runtime: SimRuntime) -> None:
    """Entries of a third cluster: one has passed the peer already, the other has not."""
    a, b = side("a", servers=1), side("b")
    for one in (a, b):
        one.create()
    a.replicates_to(b)
    other, peer = UUID(int=7), UUID(b.cluster.cluster_id)
    sink = a.cluster.servers_by_host["rs1"].replication_sink
    assert sink is not None
    for number, passed in enumerate([(other, peer), (other,)]):
        key = WalKey("0" * 32, b"t", number, runtime.time_ms(), ((b"f", 1),), passed)
        sink.apply([ShippedEntry(key, ((b"%d" % number, Cell(b"f:q", 7, b"v")),))])
    runtime.run_for(10.0)
    assert list(a.rows()) == [b"0", b"1"]
    assert list(b.rows()) == [b"1"]
    assert [entry.cluster_ids for entry in b.logged()] == [(other, UUID(a.cluster.cluster_id))]


def test_new_peer_gets_the_current_log_and_not_the_rolled_one(side: MakeSide, runtime: SimRuntime) -> None:
    a, b = side("a", servers=1), side("b")
    for one in (a, b):
        one.create()
    a.put(b"rolled")
    for server in a.cluster.servers_by_host.values():
        server.wal.roll()
    a.put(b"current")
    a.replicates_to(b)
    runtime.run_for(10.0)
    assert list(b.rows()) == [b"current"]


def test_new_peer_is_not_stuck_after_many_rolls_of_the_log(side: MakeSide, runtime: SimRuntime) -> None:
    """It gets what is in the current log, which may be nothing, and everything that is written later.

    Rolled logs are not shipped, as in HBase: only edits since the last roll of each server reach a new peer.
    """
    a, b = side("a", servers=1, retry_multiplier_max=5), side("b")
    for one in (a, b):
        one.create()
    server = a.cluster.server_named("rs1")
    for number in range(1000):
        a.put(b"%04d" % number)
        server.flusher.roll_logs(100)
    assert len(server.wal.files) > 5
    current = len(server.wal.files[-1])
    a.replicates_to(b)
    runtime.run_for(20.0)
    assert len(b.rows()) == current
    for number in range(1000, 1500):
        a.put(b"%04d" % number)
        server.flusher.roll_logs(100)
    runtime.run_for(60.0)
    assert list(b.rows()) == [b"%04d" % number for number in range(1000 - current, 1500)]


def test_missing_table_keeps_the_queue_until_it_is_made(side: MakeSide, runtime: SimRuntime) -> None:
    a, b = side("a"), side("b")
    a.create()
    a.replicates_to(b)
    a.put(b"r")
    runtime.run_for(60.0)
    assert max(load.lag_ms for load in a.loads()) > 50_000
    b.create()
    runtime.run_for(60.0)
    assert b.rows() == a.rows()


def test_partition_between_clusters_delays_edits_and_loses_none(pair: tuple[Side, Side], runtime: SimRuntime) -> None:
    a, b = pair
    cut = a.cluster.network.partition("a", "b")
    for number in range(10):
        a.put(b"%d" % number)
    runtime.run_for(100.0)
    assert b.rows() == {}
    a.cluster.network.mend(cut)
    runtime.run_for(200.0)
    assert b.rows() == a.rows()


def test_hung_sink_is_replaced_and_its_late_answer_changes_nothing(
    pair: tuple[Side, Side], runtime: SimRuntime
) -> None:
    a, b = pair
    for host in b.cluster.servers():
        b.cluster.pause(host, keeps_session=True)
    a.put(b"r")
    runtime.run_for(70.0)
    for host in b.cluster.servers():
        b.cluster.resume(host)
    runtime.run_for(300.0)
    assert b.rows() == a.rows()


def test_sink_server_that_is_killed_loses_no_edit(pair: tuple[Side, Side], runtime: SimRuntime) -> None:
    a, b = pair
    for number in range(30):
        a.put(b"%02d" % number)
        if number == 15:
            b.cluster.kill(b.cluster.servers()[0])
        runtime.run_for(1.0)
    runtime.run_for(300.0)
    assert b.rows() == a.rows()


@pytest.mark.parametrize("serial", [False, True])
def test_peer_whose_servers_come_and_go_gets_every_put(side: MakeSide, runtime: SimRuntime, serial: bool) -> None:
    """TestReplicationEndpoint: the peer has one server, then two; one stops, another starts."""
    a, b = side("a"), side("b", servers=1)
    for one in (a, b):
        one.create()
    a.replicates_to(b, serial=serial)
    started: list[str] = []

    def stop_the_first() -> None:
        b.cluster.stop(b.cluster.servers()[0])

    steps = [lambda: None, lambda: started.append(b.cluster.add_server()), stop_the_first, b.cluster.add_server]
    for number, step in enumerate(steps):
        step()
        a.put(b"%d" % number)
        runtime.run_for(60.0)
        assert b.rows() == a.rows(), f"after step {number}"
        assert len(b.rows()) == number + 1
    applied = {
        status.server.host: status.sink.edits_applied
        for status in b.cluster.replication.status()
        if status.sink is not None
    }
    assert b.cluster.servers()[0] not in applied
    assert sum(applied.values()) >= 2, "the servers that started have taken over"


def test_tables_of_the_peer_select_what_arrives(side: MakeSide, runtime: SimRuntime) -> None:
    a, b = side("a"), side("b")
    for one in (a, b):
        one.create(b"t", scopes="f1g1")
        one.create(b"u")
    a.replicates_to(b, replicate_all=False, tables={b"t": (b"g",)})
    a.put(b"r", column=b"f:q")
    a.put(b"r", column=b"g:q")
    a.put(b"r", table=b"u")
    runtime.run_for(10.0)
    assert [list(row) for row in b.rows().values()] == [[b"g:q"]]
    assert b.rows(b"u") == {}


def test_rows_of_many_regions_and_rolled_logs_all_arrive(side: MakeSide, runtime: SimRuntime) -> None:
    a, b = side("a", servers=3), side("b", servers=3)
    splits = [b"%03d" % number for number in range(20, 200, 20)]
    a.create(splits=splits)
    b.create(splits=splits[::2])
    a.replicates_to(b)
    for number in range(200):
        a.put(b"%03d" % number)
        if number % 50 == 0:
            for server in a.cluster.servers_by_host.values():
                server.wal.roll()
    runtime.run_for(60.0)
    assert b.rows() == a.rows()
    assert len(b.cells()) == 200
    queues = a.cluster.peer_replication.queues
    queued = {wal for queue in queues.all_queues() for wal in queues.positions(queue)}
    assert queued == {server.wal.files[-1].name for server in a.cluster.servers_by_host.values()}


def test_killed_source_server_loses_no_edit(side: MakeSide, runtime: SimRuntime) -> None:
    """Its queues are claimed by the others, which ship its logs to their end."""
    a, b = side("a", servers=3), side("b")
    splits = [b"%02d" % number for number in range(10, 60, 10)]
    for one in (a, b):
        one.create(splits=splits)
    a.replicates_to(b)
    cut = a.cluster.network.partition("a", "b")
    for number in range(60):
        a.put(b"%02d" % number)
    a.cluster.kill(a.cluster.servers()[0])
    runtime.run_for(120.0)
    a.cluster.network.mend(cut)
    runtime.run_for(600.0)
    assert b.rows() == a.rows()
    assert len(b.rows()) == 60
    assert not any(load.is_recovered for load in a.loads())


def test_status_shows_the_sink_that_applied_edits(pair: tuple[Side, Side], runtime: SimRuntime) -> None:
    a, b = pair
    a.put(b"r")
    runtime.run_for(5.0)
    sinks = [status.sink for status in b.cluster.peer_replication.statuses()]
    assert sum(sink.edits_applied for sink in sinks if sink is not None) == 1
    assert sum(load.edits_shipped for load in a.loads()) == 1


def test_closed_cluster_ends_its_sources_and_the_other_goes_on(pair: tuple[Side, Side], runtime: SimRuntime) -> None:
    a, b = pair
    b.replicates_to(a)
    a.put(b"r")
    runtime.run_for(5.0)
    a.cluster.close()
    b.put(b"s")
    runtime.run_for(100.0)
    assert list(b.rows()) == [b"r", b"s"]
