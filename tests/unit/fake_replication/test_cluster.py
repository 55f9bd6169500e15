"""Replicas on a whole cluster.

Cases of HBase's TestRegionReplicaReplication, TestRegionReplicaReplicationError, TestRegionReplicaFailover,
TestRegionReplicasWithModifyTable, TestReplicasClient and TestMetaRegionReplicaReplication.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from metaclient.backend import Action, MetaScan
from metaclient.errors import ReadsDisabled
from metaclient.model import LATEST_TIMESTAMP, Cell, Durability, FamilyDescriptor, Put, TableDescriptor
from metaclient_fake.region_replication import QueueState
from metaclient_fake.storage import MarkerKind

ROWS = [b"%03d" % number for number in range(30)]


def _put(world: Any, row: bytes, value: bytes = b"1", durability: Durability = Durability.USE_DEFAULT) -> None:
    mutation = Put(row, (Cell(b"f:q", LATEST_TIMESTAMP, value),), durability=durability)
    world.backend.mutate(world.place(b"t", row), b"t", mutation, world.deadline())


def _sink(world: Any, table: bytes = b"t") -> Any:
    return world.cluster.sink_of(world.cluster.master.states.table(table)[0].primary)


@pytest.mark.parametrize(("copies", "durability"), [(2, 0), (3, 0), (10, 0), (3, 1)])
def test_all_replicas_get_all_rows_within_milliseconds(make: Callable[..., Any], copies: int, durability: int) -> None:
    """As HBase's TestRegionReplicaReplication: 2, 3 and 10 copies on 2 servers; SKIP_WAL."""
    world = make(servers=2)
    world.create(b"t", copies=copies)
    world.create(b"other")
    world.runtime.sleep(1)
    for row in ROWS:
        _put(world, row, durability=[Durability.USE_DEFAULT, Durability.SKIP_WAL][durability])
    world.runtime.sleep(0.1)
    for replica_id in range(copies):
        assert all(world.value(b"t", row, replica_id=replica_id) == b"1" for row in ROWS), replica_id


def test_mixed_durability_in_one_batch_reaches_the_replica(make: Callable[..., Any]) -> None:
    """As HBase's TestRegionReplicationForSkipWAL, the mixed batch."""
    world = make()
    world.create(b"t", copies=2)
    world.runtime.sleep(1)
    place = world.place(b"t")
    actions = [
        Action(place, Put(row, (Cell(b"f:q", LATEST_TIMESTAMP, b"1"),), durability=durability))
        for row, durability in ((b"a", Durability.SKIP_WAL), (b"b", Durability.SYNC_WAL))
    ]
    world.backend.batch(place.server, b"t", actions, world.deadline())
    world.runtime.sleep(0.1)
    assert [world.value(b"t", row, replica_id=1) for row in (b"a", b"b")] == [b"1", b"1"]


def test_without_memstore_replication_rows_come_with_a_flush(make: Callable[..., Any]) -> None:
    """As HBase's testRegionReplicaWithoutMemstoreReplication."""
    world = make()
    attributes = (("REGION_MEMSTORE_REPLICATION", "false"),)
    descriptor = TableDescriptor(b"t", (FamilyDescriptor(b"f"),), region_replication=2, attributes=attributes)
    world.cluster.create_table(descriptor)
    world.runtime.sleep(1)
    _put(world, b"r")
    world.runtime.sleep(5)
    assert world.value(b"t", b"r", replica_id=1) is None
    world.cluster.flush("t")
    world.runtime.sleep(1)
    assert world.value(b"t", b"r", replica_id=1) == b"1"


def test_readable_through_repeated_flush_and_compaction(make: Callable[..., Any]) -> None:
    """As HBase's testRegionReplicaReplicationForFlushAndCompaction."""
    world = make()
    world.create(b"t", copies=3)
    world.runtime.sleep(1)
    for number, row in enumerate(ROWS):
        _put(world, row)
        if number % 3 == 0:
            world.cluster.flush("t")
        if number % 7 == 0:
            world.cluster.compact("t", major=True)
        for replica_id in (1, 2):
            assert world.value(b"t", ROWS[0], replica_id=replica_id) == b"1" or number == 0
    world.runtime.sleep(0.2)
    for replica_id in (1, 2):
        assert all(world.value(b"t", row, replica_id=replica_id) == b"1" for row in ROWS)


@pytest.mark.parametrize("durability", [Durability.USE_DEFAULT, Durability.SKIP_WAL])
def test_a_hundred_lost_deliveries_to_one_replica_leave_both_complete(
    make: Callable[..., Any], durability: Durability
) -> None:
    """As HBase's TestRegionReplicaReplicationError."""
    world = make(servers=6)
    world.create(b"t", copies=3)
    world.runtime.sleep(1)
    primary, victim = world.place(b"t").server.host, world.place(b"t", b"", 1).server.host
    rule = world.cluster.faults.lose_messages(primary, victim)
    for row in ROWS:
        _put(world, row, durability=durability)
        world.runtime.sleep(0.2)
    assert all(world.value(b"t", row, replica_id=2) == b"1" for row in ROWS), "the other one is not held up"
    world.cluster.faults.end(rule)
    world.runtime.sleep(130)
    for replica_id in (1, 2):
        assert all(world.value(b"t", row, replica_id=replica_id) == b"1" for row in ROWS), replica_id


def test_new_table_is_readable_everywhere_and_so_is_a_re_enabled_one(make: Callable[..., Any]) -> None:
    """As HBase's testSecondaryRegionWithEmptyRegion, WithNonEmptyRegion."""
    world = make()
    world.create(b"t", copies=3)
    world.runtime.sleep(0.5)
    assert [world.value(b"t", b"r", replica_id=n) for n in range(3)] == [None] * 3
    _put(world, b"r")
    world.cluster.disable_table("t")
    world.cluster.enable_table("t")
    world.runtime.sleep(0.5)
    assert [world.value(b"t", b"r", replica_id=n) for n in range(3)] == [b"1"] * 3


def test_four_replicas_that_open_together_cost_one_flush(make: Callable[..., Any]) -> None:
    """Flush requests of replicas that open at the same time are merged (HBASE-18070)."""
    world = make(servers=5)
    world.create(b"t", copies=5)
    world.runtime.sleep(2)
    _put(world, b"r")
    sink = _sink(world)
    before = sink.flushes_seen
    nodes = world.cluster.master.states.table(b"t")[0].nodes[1:]
    world.cluster.master.run(
        lambda: (world.cluster.master.assignment.unassign(nodes), world.cluster.master.assignment.assign(nodes))
    )
    world.runtime.sleep(2)
    assert [world.value(b"t", b"r", replica_id=n) for n in range(1, 5)] == [b"1"] * 4
    assert sink.flushes_seen - before == 1


def test_replica_may_be_read_only_after_it_has_seen_the_flush(make: Callable[..., Any]) -> None:
    """It is not enough that the primary has flushed, if its marker does not come."""
    world = make(servers=5, config={"reads_disabled_s": 0.0})
    world.create(b"t", copies=2)
    world.runtime.sleep(1)
    _put(world, b"r")
    world.cluster.move(world.cluster.regions("t")[0], replica_id=1)
    place = world.place(b"t", b"", 1)
    primary = world.place(b"t").server.host
    world.cluster.faults.lose_messages(primary, place.server.host)
    world.runtime.sleep(0.01)
    world.cluster.flush("t")
    world.runtime.sleep(3)
    with pytest.raises(ReadsDisabled):
        world.get(b"t", b"r", place=place)
    world.cluster.heal()
    world.runtime.sleep(3)
    assert world.get(b"t", b"r", place=place).cells[0].value == b"1"


def test_without_the_wait_key_a_replica_is_readable_and_behind(make: Callable[..., Any]) -> None:
    """As HBase's TestRegionReplicaWaitForPrimaryFlushConf."""
    world = make(config={"hbase.region.replica.wait.for.primary.flush": "false", "reads_disabled_s": 0.0})
    world.create(b"t", copies=2)
    world.runtime.sleep(1)
    _put(world, b"r")
    world.cluster.move(world.cluster.regions("t")[0], replica_id=1)
    assert world.value(b"t", b"r", replica_id=1) is None


def test_replicas_of_many_regions_open_without_blocking_handlers(make: Callable[..., Any]) -> None:
    """As HBase's testLotsOfRegionReplicas, with pushes."""
    world = make(servers=4)
    world.create(b"t", [b"%02d" % number for number in range(1, 20)], copies=6)
    world.runtime.sleep(3)
    for server in world.cluster.servers_by_host.values():
        assert not server.secondaries.are_waiting
        assert server.replication_handlers.busy == 0


@pytest.mark.parametrize(("before", "after"), [(1, 3), (2, 3), (3, 2), (3, 1)])
def test_changed_number_of_copies_is_followed(make: Callable[..., Any], before: int, after: int) -> None:
    """As HBase's TestRegionReplicasWithModifyTable."""
    world = make()
    world.create(b"t", copies=before)
    world.runtime.sleep(1)
    _put(world, b"old")
    world.cluster.alter_table(TableDescriptor(b"t", (FamilyDescriptor(b"f"),), region_replication=after))
    _put(world, b"new")
    world.runtime.sleep(2)
    for replica_id in range(after):
        assert [world.value(b"t", row, replica_id=replica_id) for row in (b"old", b"new")] == [b"1", b"1"]
    sink = _sink(world)
    assert (sink is None) if after == 1 else [replica.lag_edits for replica in sink.replicas()] == [0] * (after - 1)


def _servers_of(world: Any) -> list[int]:
    """On how many servers the copies of each region are."""
    return [len({copy.server for copy in row.locations.placed()}) for row in world.rows_of(b"t")]


def test_copies_are_apart_after_disable_enable_and_after_a_server_was_stopped(make: Callable[..., Any]) -> None:
    """As HBase's TestRegionReplicasAreDistributed, WithRestartScenarios."""
    world = make(servers=5)
    world.create(b"t", [b"010", b"020"], copies=3)
    world.runtime.sleep(1)
    for row in ROWS:
        _put(world, row)
    assert _servers_of(world) == [3, 3, 3]
    world.cluster.disable_table("t")
    world.cluster.enable_table("t")
    assert _servers_of(world) == [3, 3, 3]
    host = next(host for host in world.cluster.servers() if host != world.cluster.meta_server(0))
    world.cluster.stop(host)
    world.runtime.sleep(10)
    assert _servers_of(world) == [3, 3, 3]
    for replica_id in range(3):
        assert all(world.value(b"t", row, replica_id=replica_id) == b"1" for row in ROWS), replica_id


def _slow(world: Any, server: str) -> None:
    world.cluster.slow(server, 3.0)


def _hung(world: Any, server: str) -> None:
    world.cluster.pause(server, keeps_session=True)


def _down(world: Any, server: str) -> None:
    world.cluster.kill(server)


@pytest.mark.parametrize("trouble", [_slow, _hung, _down])
def test_timeline_reads_go_on_while_the_primary_is(make: Callable[..., Any], trouble: Callable[..., None]) -> None:
    """As HBase's TestReplicasClient, TestReplicaWithCluster: stale if and only if a secondary has answered."""
    world = make(servers=6)
    world.create(b"t", copies=3)
    region, meta = world.cluster.regions("t")[0], {world.cluster.meta_server(n) for n in range(3)}
    world.cluster.move(region, next(host for host in world.cluster.servers() if host not in meta))
    world.runtime.sleep(1)
    for row in ROWS:
        _put(world, row)
    world.runtime.sleep(1)
    with world.cluster.connect() as connection:
        table = connection.table("t")
        assert not table.row(ROWS[0]).stale
        trouble(world, world.place(b"t").server.host)
        began = world.runtime.now()
        row = table.row(ROWS[0], consistency="TIMELINE")
        assert (row, row.stale) == ({b"f:q": b"1"}, True)
        found = list(table.scan(consistency="TIMELINE"))
        assert [key for key, _ in found] == ROWS
        assert all(row.stale for _, row in found)
        assert world.runtime.now() - began < 3.0, "nobody waited for the primary"


# -- memory ----------------------------------------------------------------------------------------------------


def test_soft_limit_flushes_the_region_with_most_pending(make: Callable[..., Any]) -> None:
    """As HBase's testScheduleFlush, the choice: the other region is left alone."""
    world = make(servers=3, config={"replication_pending_bytes_max": 40_000})
    world.create(b"big", copies=2)
    world.create(b"small", copies=2)
    for table in ("big", "small"):
        world.cluster.move(world.cluster.regions(table)[0], "rs1")
        world.cluster.move(world.cluster.regions(table)[0], "rs2", replica_id=1)
    world.runtime.sleep(2)
    world.cluster.pause("rs2", keeps_session=True)
    flushes = [_sink(world, table).flushes_seen for table in (b"big", b"small")]
    world.put(b"small", b"r", bytes(100))
    for number in range(9):
        world.put(b"big", b"%d" % number, bytes(4000))
    world.runtime.sleep(0.01)
    now = [_sink(world, table).flushes_seen for table in (b"big", b"small")]
    assert now == [flushes[0] + 1, flushes[1]]
    assert world.cluster.server_named("rs1").replication.buffer.peak_bytes <= 40_000


def test_hard_limit_fails_the_region_that_holds_most_and_not_the_one_that_asks(make: Callable[..., Any]) -> None:
    """HBASE-26233; HBase 3.x fails the region whose edit crosses the limit, however little it holds."""
    limits = {"replication_pending_bytes_max": 40_000, "replication_operation_timeout_s": 3600.0}
    world = make(servers=3, config={**limits, "replication_rpc_timeout_s": 3600.0})
    world.create(b"busy", copies=2)
    world.create(b"quiet", copies=2)
    for table in ("busy", "quiet"):
        world.cluster.move(world.cluster.regions(table)[0], "rs1")
        world.cluster.move(world.cluster.regions(table)[0], "rs2", replica_id=1)
    world.runtime.sleep(2)
    world.cluster.faults.stall_flushes("rs1")
    world.cluster.pause("rs2", keeps_session=True)
    for number in range(8):
        world.put(b"busy", b"%d" % number, bytes(4000))
    assert [_sink(world, table).failed_replicas for table in (b"busy", b"quiet")] == [[], []]
    world.put(b"quiet", b"r", bytes(9000))
    buffer = world.cluster.server_named("rs1").replication.buffer
    assert buffer.refused > 0, "the limit was never reached: the test says nothing"
    assert [_sink(world, table).failed_replicas for table in (b"busy", b"quiet")] == [[1], []]
    assert _sink(world, b"quiet").replicas()[0].edits_dropped == 0
    assert buffer.peak_bytes <= 40_000

    world.cluster.faults.stall_flushes("rs1", False)
    world.cluster.resume("rs2")
    world.runtime.sleep(100)
    assert world.value(b"quiet", b"r", replica_id=1) == bytes(9000)
    assert all(world.value(b"busy", b"%d" % number, replica_id=1) == bytes(4000) for number in range(8))


def test_hard_limit_drops_marks_failed_and_heals(make: Callable[..., Any]) -> None:
    """At the limit edits are dropped and replicas are failed; the requested flush heals them."""
    world = make(servers=3, config={"replication_pending_bytes_max": 20_000, "replication_pending_soft_share": 1.0})
    world.create(b"t", copies=2)
    world.cluster.move(world.cluster.regions("t")[0], "rs1")
    world.cluster.move(world.cluster.regions("t")[0], "rs2", replica_id=1)
    world.runtime.sleep(2)
    world.cluster.pause("rs2", keeps_session=True)
    for row in ROWS:
        _put(world, row, bytes(1000))
    buffer = world.cluster.server_named("rs1").replication.buffer
    assert buffer.peak_bytes <= 20_000
    assert _sink(world).replicas()[0].failures >= 1
    world.cluster.resume("rs2")
    world.runtime.sleep(100)
    assert all(world.value(b"t", row, replica_id=1) == bytes(1000) for row in ROWS)
    assert _sink(world).replicas()[0].state == QueueState.IDLE.value


def test_big_secondary_gives_memory_back_under_pressure(make: Callable[..., Any]) -> None:
    """A secondary much bigger than every primary refreshes its store files by itself (HBase's MemStoreFlusher)."""
    world = make(servers=3, config={"memstore_global_bytes": 10_000})
    world.create(b"t", copies=2)
    world.cluster.move(world.cluster.regions("t")[0], "rs1")
    world.cluster.move(world.cluster.regions("t")[0], "rs2", replica_id=1)
    world.runtime.sleep(2)
    secondary = world.cluster.server_named("rs2").regions[world.place(b"t", b"", 1).region_name]
    _put(world, b"r", bytes(20_000))
    world.runtime.sleep(0.1)
    world.cluster.partition("rs1", "rs2")
    world.runtime.sleep(3)
    assert secondary.memstore_bytes == 0, "the primary flushed, its marker was lost, the files were looked at"


# -- hbase:meta ------------------------------------------------------------------------------------------------


def test_created_and_deleted_tables_show_on_every_copy_of_meta(make: Callable[..., Any]) -> None:
    """As HBase's testHBaseMetaReplicates, within milliseconds and without a flush."""
    world = make()
    world.runtime.sleep(1)
    flushes = _sink(world, b"hbase:meta").flushes_seen
    world.create(b"t", [b"m"])
    world.runtime.sleep(0.05)
    assert [len(world.rows_of(b"t", at=n)) for n in range(3)] == [2] * 3
    world.cluster.disable_table("t")
    world.cluster.delete_table("t")
    world.runtime.sleep(0.05)
    assert [len(world.rows_of(b"t", at=n)) for n in range(3)] == [0] * 3
    assert _sink(world, b"hbase:meta").flushes_seen == flushes


def test_copies_of_meta_follow_through_flush_compaction_and_move(make: Callable[..., Any]) -> None:
    """As HBase's testCatalogReplicaReplicationWithFlushAndCompaction, WithReplicaMoved."""
    world = make()
    world.create(b"t", [b"%04d" % number for number in range(1, 500)])
    world.cluster.flush("hbase:meta")
    world.cluster.move("hbase:meta", replica_id=1)
    world.create(b"u", [b"%04d" % number for number in range(1, 100)])
    world.cluster.compact("hbase:meta", major=True)
    world.cluster.move("hbase:meta", replica_id=0)
    world.create(b"v")
    world.runtime.sleep(1)
    for table in (b"t", b"u", b"v"):
        truth = [row.locations for row in world.rows_of(table)]
        for replica_id in (1, 2):
            assert [row.locations for row in world.rows_of(table, at=replica_id)] == truth


@pytest.mark.parametrize("is_all", [False, True])
def test_only_info_is_pushed_unless_all_is_asked_for(make: Callable[..., Any], is_all: bool) -> None:
    """Table, namespace and barriers are not replicated; HBase replicates them."""
    world = make(config={"replication_all_meta_families": is_all})
    world.runtime.sleep(1)
    world.create(b"t")
    world.runtime.sleep(0.1)
    scan = MetaScan(b"t", b"t", False, 10, (b"table",))
    assert len(world.meta(0, scan).rows) == 1
    assert len(world.meta(1, scan).rows) == int(is_all)


@pytest.mark.parametrize(
    "key", ["hbase.region.replica.replication.catalog.enabled", "hbase.region.meta.replica.replication.enabled"]
)
def test_catalog_key_is_for_meta_alone(make: Callable[..., Any], key: str) -> None:
    """ServerRegionReplicaUtil; the second is the name in the design of HBASE-18070."""
    world = make(config={"hbase.region.replica.replication.enabled": "false", key: "true"})
    world.create(b"t", copies=2)
    assert _sink(world) is None
    assert _sink(world, b"hbase:meta") is not None
    off = make(config={"hbase.region.replica.replication.enabled": "false", key: "false"})
    assert _sink(off, b"hbase:meta") is None


def test_meta_gets_more_and_fewer_copies_without_being_reopened(make: Callable[..., Any]) -> None:
    """With pushes, the sink reads the new number at the flush that the new copies request."""
    world = make()
    world.runtime.sleep(1)
    seqnum = world.cluster.master.meta_node(0).seqnum
    for copies in (5, 2):
        descriptor = world.cluster.master.descriptor_of(b"hbase:meta")
        world.cluster.alter_table(TableDescriptor(b"hbase:meta", descriptor.families, region_replication=copies))
        world.create(b"t%d" % copies)
        world.cluster.flush("hbase:meta")
        world.runtime.sleep(2)
        assert len(_sink(world, b"hbase:meta").replicas()) == copies - 1
        assert [len(world.rows_of(b"t%d" % copies, at=n)) for n in range(copies)] == [1] * copies
    assert world.cluster.master.meta_node(0).seqnum == seqnum


def test_load_balance_client_meets_a_lagging_meta_replica_and_is_never_wrong(make: Callable[..., Any]) -> None:
    """The client side of the issue: stale answers of a meta replica are found out, and the primary is asked."""
    world = make(servers=6)
    world.create(b"t", [b"%d" % number for number in range(1, 10)])
    world.runtime.sleep(1)
    for row in ROWS:
        world.put(b"t", row, row)
    primary = world.cluster.meta_server(0)
    for replica_id in (1, 2):
        world.cluster.partition(primary, world.cluster.meta_server(replica_id))
    connection = world.cluster.connect(meta_mode="LoadBalance")
    table = connection.table("t")
    for region in world.cluster.regions("t"):
        world.cluster.move(region)
        for row in ROWS[::5]:
            assert table.row(row) == {b"f:q": row}
    world.cluster.split(world.cluster.regions("t")[0], b"0005")
    assert all(table.row(row) == {b"f:q": row} for row in ROWS)
    assert [key for key, _ in table.scan()] == ROWS
    assert world.lookup(b"t", b"", at=1).locations != world.lookup(b"t", b"", at=0).locations, "it did lag"
    connection.close()


def test_open_marker_reaches_replicas_of_a_moved_primary(make: Callable[..., Any]) -> None:
    """Row 60's sibling: after the move there is a new sink, and nothing of the old one is left."""
    world = make()
    world.create(b"t", copies=2)
    world.runtime.sleep(1)
    old = _sink(world)
    world.cluster.move(world.cluster.regions("t")[0])
    world.runtime.sleep(1)
    new = _sink(world)
    assert new.epoch > old.epoch
    assert old.state.value == "stopped"
    place = world.place(b"t", b"", 1)
    replay = world.cluster.server_named(place.server).secondaries.replay_of(place.region_name)
    assert replay.epoch == new.epoch
    assert MarkerKind.REGION_OPEN.value == "REGION_OPEN"
