"""hbase:meta in HBase's format and order, and every change to a table."""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import FrameType
from typing import Any

import pytest

import metaclient
from metaclient import keys, metarow
from metaclient.backend import MetaScan
from metaclient.errors import (
    NoSuchFamily,
    NotServingRegion,
    RequestRefused,
    TableDisabled,
    TableExists,
    TableNotDisabled,
    TableNotFound,
)
from metaclient.model import FamilyDescriptor, Get, TableDescriptor, TableState


def _states(world: Any, table: bytes) -> list[TableState | None]:
    page = world.meta(0, MetaScan(table, table, is_reversed=False, limit=1, families=(b"table",)))
    return [metarow.decode_table_state(row.columns[b"table:state"]) for row in page.rows]


def test_new_table_has_a_row_per_region_that_decodes_whole(world: Any) -> None:
    world.create(b"t", [b"g", b"p"], copies=3)
    rows = world.rows_of(b"t")
    assert [row.locations.region.start_key for row in rows] == [b"", b"g", b"p"]
    assert [row.locations.region.end_key for row in rows] == [b"g", b"p", b""]
    for row in rows:
        assert row.fault is None
        assert row.state == "OPEN"
        assert len({location.server for location in row.locations.placed()}) == 3
    assert _states(world, b"t") == [TableState.ENABLED]


def test_row_key_is_the_primarys_full_name(world: Any) -> None:
    world.create(b"t", [b"m"])
    page = world.meta(0, MetaScan(b"t,,", b"t ,,", is_reversed=False, limit=10))
    for row in page.rows:
        decoded = metarow.decode(row.row, row.columns)
        assert decoded.locations is not None
        assert decoded.locations.region.name == row.row
        assert set(row.columns) >= {b"info:regioninfo", b"info:server", b"info:serverstartcode", b"info:state"}


def test_plain_byte_order_of_meta_would_find_the_wrong_region(world: Any) -> None:
    """`t,\\x00,1` sorts before `t,,1` by bytes, after it in meta (MetaCellComparator)."""
    world.create(b"t", [b"\x00", b"a", b"a\x00", b"a,b", b"a\x00\x00"])
    world.create(b"t-y")
    world.create(b"t.x")
    expected = {b"": b"", b"\x00": b"\x00", b"a": b"a", b"a\x00": b"a\x00", b"a\x00\x00z": b"a\x00\x00", b"zz": b"a,b"}
    for row, start in expected.items():
        found = world.lookup(b"t", row)
        assert found.locations.region.start_key == start, row
    starts = [row.locations.region.start_key for row in world.rows_of(b"t")]
    assert starts == sorted(starts)


def test_previous_region_is_found_from_a_border(world: Any) -> None:
    world.create(b"t", [b"g", b"m", b"t"])
    for row, start in ((b"g", b""), (b"gz", b"g"), (b"", b"t")):
        scan = MetaScan(keys.meta_search_key_before(b"t", row), keys.meta_table_start(b"t"), True, 1)
        page = world.meta(0, scan)
        assert metarow.decode(page.rows[0].row, page.rows[0].columns).locations.region.start_key == start


def test_pages_have_limits_and_both_ends_are_inclusive(world: Any) -> None:
    world.create(b"t", [b"b", b"c"])
    rows = world.meta(0, MetaScan(b"t,,", b"t ,,", is_reversed=False, limit=10)).rows
    page = world.meta(0, MetaScan(rows[0].row, rows[1].row, is_reversed=False, limit=10)).rows
    assert [row.row for row in page] == [rows[0].row, rows[1].row]
    page = world.meta(0, MetaScan(rows[2].row, rows[1].row, is_reversed=True, limit=1)).rows
    assert [row.row for row in page] == [rows[2].row]
    assert len(world.meta(0, MetaScan(b"", b"", is_reversed=False, limit=2)).rows) == 2


def test_meta_is_a_region_like_any_other(world: Any) -> None:
    world.create(b"t")
    server = world.replica(0).server
    place = world.cluster.node_named("hbase:meta")
    from metaclient.model import RegionLocation

    result = world.backend.get(
        RegionLocation(place.info, server), b"hbase:meta", Get(b"t", (b"table:state",)), world.deadline()
    )
    assert metarow.decode_table_state(result.cells[0].value) is TableState.ENABLED


def test_disabled_table_keeps_its_servers_in_meta_and_serves_nothing(world: Any) -> None:
    """Rows of a disabled table keep `server`; only `state` = CLOSED."""
    world.create(b"t", copies=2)
    place = world.place(b"t")
    world.backend.disable_table(b"t", world.deadline(60))
    row = world.lookup(b"t")
    assert row.state == "CLOSED"
    assert row.locations.primary.server == place.server
    assert not world.backend.is_table_enabled(b"t", world.deadline())
    assert _states(world, b"t") == [TableState.DISABLED]
    with pytest.raises(NotServingRegion):
        world.get(b"t", b"r", place=place)
    with pytest.raises(TableDisabled) as error:
        world.backend.disable_table(b"t", world.deadline(60))
    assert error.value.detail == "org.apache.hadoop.hbase.TableNotEnabledException"


def test_enabling_brings_regions_back_to_their_servers(world: Any) -> None:
    world.create(b"t", [b"m"], copies=2)
    world.put(b"t", b"r", b"kept")
    before = [row.locations.placed() for row in world.rows_of(b"t")]
    world.cluster.disable_table("t")
    world.cluster.enable_table("t")
    after = [row.locations.placed() for row in world.rows_of(b"t")]
    assert [[copy.server for copy in row] for row in before] == [[copy.server for copy in row] for row in after]
    assert world.value(b"t", b"r") == b"kept"
    with pytest.raises(TableNotDisabled) as error:
        world.backend.enable_table(b"t", world.deadline(60))
    assert error.value.detail.endswith("TableNotDisabledException")


def test_drop_needs_a_disabled_table_and_leaves_nothing(world: Any) -> None:
    world.create(b"t", [b"m"])
    place = world.place(b"t")
    with pytest.raises(TableNotDisabled) as error:
        world.backend.delete_table(b"t", world.deadline(60))
    assert error.value.detail.endswith("TableNotDisabledException")
    world.cluster.disable_table("t")
    world.backend.delete_table(b"t", world.deadline(60))
    assert world.rows_of(b"t") == []
    assert _states(world, b"t") == []
    assert world.backend.table_names(world.deadline()) == []
    with pytest.raises(NotServingRegion):
        world.get(b"t", b"r", place=place)
    with pytest.raises(TableNotFound):
        world.backend.describe_table(b"t", world.deadline())


def test_truncate_empties_and_may_keep_the_borders(world: Any) -> None:
    world.create(b"t", [b"m"])
    world.put(b"t", b"a")
    for keeps, regions in ((True, 2), (False, 1)):
        world.cluster.disable_table("t")
        world.cluster.truncate_table("t", preserve_splits=keeps)
        assert world.value(b"t", b"a") is None
        assert len(world.cluster.regions("t")) == regions


def test_create_refuses_what_hbase_refuses(world: Any) -> None:
    world.create(b"t")
    with pytest.raises(TableExists):
        world.create(b"t")
    for splits in ([b"a", b"a"], [b""]):
        with pytest.raises(RequestRefused):
            world.create(b"u", splits)
    with pytest.raises(RequestRefused, match="at least one column family"):
        world.create(b"u", families="")
    with pytest.raises(RequestRefused) as error:
        world.create(b"nowhere:u")
    assert error.value.detail.endswith("NamespaceNotFoundException")
    assert world.backend.table_names(world.deadline()) == [b"t"]


def test_namespaces_live_in_meta_and_guard_their_tables(world: Any) -> None:
    world.cluster.create_namespace("ns1")
    world.create(b"ns1:t")
    page = world.meta(0, MetaScan(b"ns1", b"ns1", is_reversed=False, limit=1, families=(b"ns",)))
    assert page.rows[0].columns[b"ns:d"] == b"\x0a\x03ns1"
    with pytest.raises(RequestRefused):
        world.cluster.delete_namespace("ns1")
    world.cluster.disable_table("ns1:t")
    world.cluster.delete_table("ns1:t")
    world.cluster.delete_namespace("ns1")
    with pytest.raises(RequestRefused):
        world.cluster.delete_namespace("ns1")


def test_alter_adds_and_drops_families(world: Any) -> None:
    world.create(b"t", families="fg")
    world.put(b"t", b"r", b"kept")
    descriptor = TableDescriptor(b"t", (FamilyDescriptor(b"f", max_versions=3), FamilyDescriptor(b"h")))
    world.cluster.alter_table(descriptor)
    assert world.backend.describe_table(b"t", world.deadline()) == descriptor
    assert world.value(b"t", b"r") == b"kept"
    place = world.place(b"t")
    assert world.backend.get(place, b"t", Get(b"r", (b"h",)), world.deadline()).cells == ()
    with pytest.raises(NoSuchFamily):
        world.backend.get(place, b"t", Get(b"r", (b"g",)), world.deadline())


@pytest.mark.parametrize(("before", "after"), [(1, 3), (2, 3), (3, 2), (3, 1)])
@pytest.mark.parametrize("is_enabled", [True, False])
def test_replica_count_changes_give_exact_region_counts(world: Any, before: int, after: int, is_enabled: bool) -> None:
    """As TestRegionReplicasWithModifyTable of HBase."""
    world.create(b"t", [b"g", b"p"], copies=before)
    if not is_enabled:
        world.cluster.disable_table("t")
    world.cluster.alter_table(TableDescriptor(b"t", (FamilyDescriptor(b"f"),), region_replication=after))
    if not is_enabled:
        world.cluster.enable_table("t")
    rows = world.rows_of(b"t")
    assert [len(row.locations.replicas) for row in rows] == [after] * 3
    assert all(row.fault is None for row in rows)
    for row in rows:
        assert len({copy.server for copy in row.locations.placed()}) == after
    online = sum(len(server.online) for server in world.cluster.servers_by_host.values())
    assert online == 3 * after + 3, "the copies of the table and of meta, and nothing else"


@pytest.mark.parametrize("count", [1, 5])
def test_meta_replica_count_shrinks_and_grows_in_the_registry(world: Any, count: int) -> None:
    """As TestCleanupMetaReplica and TestIncreaseMetaReplicaThroughConfig of HBase."""
    world.create(b"t")
    descriptor = world.backend.describe_table(b"hbase:meta", world.deadline())
    assert descriptor.region_replication == 3
    world.cluster.alter_table(TableDescriptor(b"hbase:meta", descriptor.families, region_replication=count))
    replicas = world.backend.meta_replicas(world.deadline())
    assert [replica.replica_id for replica in replicas] == list(range(count))
    world.cluster.wait_until_replicated(30)
    for replica in replicas:
        assert world.meta(replica.replica_id, MetaScan(b"", b"", False, 1)).rows


def test_meta_starts_with_its_replicas_apart(make: Callable[..., Any]) -> None:
    """As TestMetaWithReplicasBasic of HBase."""
    world = make(servers=4, meta_replicas=3)
    servers = {replica.server for replica in world.backend.meta_replicas(world.deadline())}
    assert len(servers) == 3
    assert None not in servers


def test_more_meta_replicas_than_servers_share(make: Callable[..., Any]) -> None:
    world = make(servers=2, meta_replicas=3)
    world.create(b"t")
    world.cluster.wait_until_replicated(30)
    for replica_id in range(3):
        assert world.lookup(b"t", at=replica_id) is not None


def test_meta_cannot_be_disabled_split_or_dropped(world: Any) -> None:
    for change in (world.cluster.disable_table, world.cluster.delete_table, world.cluster.split):
        with pytest.raises(RequestRefused):
            change("hbase:meta")


def test_table_rows_show_on_every_meta_replica(world: Any) -> None:
    """As TestMetaRegionReplicaReplication.testHBaseMetaReplicates of HBase."""
    world.create(b"t", [b"m"])
    world.runtime.sleep(1.0)
    for replica_id in range(3):
        assert len(world.rows_of(b"t", at=replica_id)) == 2
    world.cluster.disable_table("t")
    world.cluster.delete_table("t")
    world.runtime.sleep(1.0)
    for replica_id in range(3):
        assert world.rows_of(b"t", at=replica_id) == []


def test_meta_replicas_follow_through_flush_compaction_and_moves(make: Callable[..., Any]) -> None:
    """As testCatalogReplicaReplicationWithFlushAndCompaction and ...WithReplicaMoved of HBase."""
    world = make(config={"hbase.hstore.compaction.min": 2})
    world.create(b"t", [b"%04d" % number for number in range(1, 200)])
    world.cluster.compact("hbase:meta", major=True)
    for number in range(10):
        world.cluster.move(world.cluster.regions("t")[number])
        world.runtime.sleep(0.4)
    world.cluster.move("hbase:meta", replica_id=1)
    world.cluster.move("hbase:meta")
    world.runtime.sleep(1.0)
    truth = [row.locations for row in world.rows_of(b"t")]
    assert len(truth) == 200
    for replica_id in (1, 2):
        assert [row.locations for row in world.rows_of(b"t", at=replica_id)] == truth


def test_cost_of_creating_a_table_is_linear_in_its_regions(make: Callable[..., Any]) -> None:
    """Calls of functions per region, which no machine's speed changes; ``benchmarks``' F5 has the seconds."""

    def calls_per_region(regions: int) -> float:
        world = make(servers=20)
        calls = 0

        def count(frame: FrameType, event: str, argument: object) -> None:
            nonlocal calls
            calls += event in ("call", "c_call")

        sys.setprofile(count)
        try:
            world.create(b"t", [b"%06d" % number for number in range(1, regions)])
        finally:
            sys.setprofile(None)
        return calls / regions

    few, many = calls_per_region(200), calls_per_region(1600)
    assert few > 1
    assert many <= 1.05 * few


PREFIXES = [b"t", b"t,", b"t,a", b"t,ab", b"t,b", b"t,b\xff", b"t,\xff", b"t-", b"t,c", b"", b"u"]


@pytest.mark.parametrize("reverse", [False, True])
def test_prefix_scan_of_meta_has_neither_the_next_region_nor_lacks_the_first(reverse: bool) -> None:
    """By bytes `t,a` is before `t,a,1...`, in hbase:meta behind it: a row key of one comma has itself as the id."""
    with metaclient.connect("fake:?servers=1") as connection:
        connection.create_table("t", {"f": {}}, splits=[b"a", b"ab", b"a,x", b"b", b"b\xff\xff", b"\xff", b"\xff\xff"])
        connection.create_table("t-y", {"f": {}}, splits=[b"a"])
        meta = connection.table("hbase:meta")
        everything = [row for row, _ in meta.scan()]
        assert len(everything) > 10
        for prefix in PREFIXES:
            found = [row for row, _ in meta.scan(row_prefix=prefix, reverse=reverse, batch_size=2)]
            expected = [row for row in everything if row.startswith(prefix)]
            assert found == (expected[::-1] if reverse else expected), prefix


def test_prefix_of_meta_whose_rows_are_not_adjacent_is_refused() -> None:
    """Regions of the start key `a` with the ids 1..., and regions of the start keys `a,1...`."""
    with metaclient.connect("fake:?servers=1") as connection, pytest.raises(ValueError, match="two commas"):
        connection.table("hbase:meta").scan(row_prefix=b"t,a,1")
