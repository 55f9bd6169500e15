"""Region replicas on shared files: what they show, when they show it, what they refuse."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from metaclient.errors import ConfigError, NotServingRegion, ReadsDisabled, RequestRefused
from metaclient.model import FamilyDescriptor, Scan, TableDescriptor

#: No pushes: secondaries follow files.
FILES_ONLY = {"replication_enabled": False, "refresh_s": 1.0}
#: Nothing by itself, as in HBase: tests say when a secondary looks at its primary's files.
BY_HAND = {"replication_enabled": False}


def _refresh(world: Any, table: bytes, replica_id: int, row: bytes = b"") -> None:
    place = world.place(table, row, replica_id)
    assert world.cluster.server_named(place.server).secondaries.refresh_one(place.region_name)


def test_timeline_of_seed_004_three_replicas_at_three_points(make: Callable[..., Any]) -> None:
    """x = 1, 2, 3 were written; replica 1 has seen two of them, replica 2 one."""
    world = make(config=BY_HAND)
    world.create(b"t", copies=3)
    world.runtime.sleep(1)
    for value, followers in ((b"1", (1, 2)), (b"2", (1,)), (b"3", ())):
        world.put(b"t", b"x", value)
        world.cluster.flush("t")
        for replica_id in followers:
            _refresh(world, b"t", replica_id)
    seen = [(world.value(b"t", b"x", replica_id=n), world.get(b"t", b"x", replica_id=n).is_stale) for n in range(3)]
    assert seen == [(b"3", False), (b"2", True), (b"1", True)]


def test_secondary_marks_what_it_answers_as_stale_even_nothing(world: Any) -> None:
    """Stale also for an empty result (TestReplicasClient)."""
    world.create(b"t", copies=2)
    world.runtime.sleep(1)
    assert world.get(b"t", b"r", replica_id=1).is_stale
    page = world.backend.scan_open(world.place(b"t", b"", 1), b"t", Scan(), world.deadline())
    assert page.is_stale
    assert page.is_end_of_region
    assert not world.get(b"t", b"r").is_stale


def test_secondary_refuses_writes_for_good(world: Any) -> None:
    world.create(b"t", copies=2)
    with pytest.raises(RequestRefused, match="read only"):
        world.put(b"t", b"r", place=world.place(b"t", b"", 1))


def test_secondary_shows_new_files_after_the_refresh_period_and_no_memstore(make: Callable[..., Any]) -> None:
    """Rows are absent before the flush, present after the flush and one refresh period."""
    world = make(config={**FILES_ONLY, "refresh_s": 2.0})
    world.create(b"t", copies=2)
    world.runtime.sleep(1)
    world.put(b"t", b"r", b"x")
    world.runtime.sleep(10)
    assert world.value(b"t", b"r", replica_id=1) is None
    world.cluster.flush("t")
    world.runtime.sleep(2.1)
    assert world.value(b"t", b"r", replica_id=1) == b"x"


def test_copies_follow_through_repeated_flush_and_compaction(world: Any) -> None:
    """As TestRegionReplicaReplication.testRegionReplicaReplicationForFlushAndCompaction of HBase."""
    world.create(b"t", copies=3)
    for number in range(12):
        world.put(b"t", b"%02d" % number)
        world.cluster.flush("t")
        if number % 4 == 3:
            world.cluster.compact("t", major=True)
    world.cluster.wait_until_replicated(10)
    for replica_id in (1, 2):
        rows = [world.value(b"t", b"%02d" % number, replica_id=replica_id) for number in range(12)]
        assert rows == [b"1"] * 12


def test_files_that_the_primary_compacted_away_stay_readable(make: Callable[..., Any]) -> None:
    """As TestRegionReplicas.testVerifySecondaryAbilityToReadWithOnFiles of HBase."""
    world = make(config=BY_HAND)
    world.create(b"t", copies=2)
    world.runtime.sleep(1)
    for value in (b"1", b"2"):
        world.put(b"t", b"r", value)
        world.cluster.flush("t")
    _refresh(world, b"t", 1)
    world.put(b"t", b"r", b"3")
    world.cluster.flush("t")
    world.cluster.compact("t", major=True)
    assert world.value(b"t", b"r", replica_id=1) == b"2"
    world.runtime.sleep(400)
    with pytest.raises(NotServingRegion):
        world.value(b"t", b"r", replica_id=1)


def test_refresh_failures_keep_old_data_and_then_end_reads(make: Callable[..., Any]) -> None:
    """As TestStoreFileRefresherChore.testIsStale of HBase."""
    world = make(config={**FILES_ONLY, "hbase.master.hfilecleaner.ttl": 20_000})
    world.create(b"t", copies=2)
    world.put(b"t", b"r", b"old")
    world.cluster.wait_until_replicated(10)
    place = world.place(b"t", b"", 1)
    world.cluster.faults.fail_refresh(place.server.host)
    world.put(b"t", b"r", b"new")
    world.cluster.flush("t")
    world.runtime.sleep(10)
    assert world.get(b"t", b"r", place=place).cells[0].value == b"old"
    world.runtime.sleep(12)
    with pytest.raises(ReadsDisabled):
        world.get(b"t", b"r", place=place)
    world.cluster.faults.fail_refresh(place.server.host, False)
    world.runtime.sleep(2)
    assert world.get(b"t", b"r", place=place).cells[0].value == b"new"


def test_read_only_tables_are_not_refreshed(make: Callable[..., Any]) -> None:
    """As TestStoreFileRefresherChore.testRefreshReadOnlyTable of HBase."""
    world = make(config=FILES_ONLY)
    world.create(b"t", copies=2)
    world.put(b"t", b"r", b"x")
    families = (FamilyDescriptor(b"f"),)
    world.cluster.alter_table(TableDescriptor(b"t", families, region_replication=2, is_read_only=True))
    world.runtime.sleep(1)
    place = world.place(b"t", b"", 1)
    server = world.cluster.server_named(place.server)
    before = server.secondaries.refreshed_at()[place.region_name]
    world.runtime.sleep(10)
    assert server.secondaries.refreshed_at()[place.region_name] == before


def test_refresh_period_beyond_half_of_the_archives_life_is_refused(make: Callable[..., Any]) -> None:
    """As the constructor of HBase's StorefileRefresherChore does."""
    with pytest.raises(ConfigError, match="half"):
        make(config={"hbase.regionserver.storefile.refresh.period": 200_000})


def test_reads_are_off_after_an_open_until_the_primary_has_flushed(world: Any) -> None:
    """ "Reads are disabled" after each open of a secondary; then it has all rows of the primary."""
    world.create(b"t", copies=2)
    world.runtime.sleep(1)
    world.put(b"t", b"r", b"only in the memstore")
    world.cluster.move(world.cluster.regions("t")[0], replica_id=1)
    with pytest.raises(ReadsDisabled, match="reads are disabled"):
        world.get(b"t", b"r", replica_id=1)
    world.runtime.sleep(1)
    assert world.value(b"t", b"r", replica_id=1) == b"only in the memstore"


def test_secondary_waits_for_a_primary_that_cannot_be_asked(world: Any) -> None:
    """No flush, no reads; reads are enabled as soon as the primary answers (TestRegionReplicaFailover)."""
    world.create(b"t", copies=2)
    world.runtime.sleep(1)
    primary = world.place(b"t").server.host
    world.cluster.pause(primary, keeps_session=True)
    world.cluster.move(world.cluster.regions("t")[0], replica_id=1)
    place = world.place(b"t", b"", 1)
    world.runtime.sleep(5)
    with pytest.raises(ReadsDisabled):
        world.get(b"t", b"r", place=place)
    world.cluster.resume(primary)
    world.runtime.sleep(0.5)
    world.get(b"t", b"r", place=place)


def test_without_the_wait_key_reads_are_on_at_once(make: Callable[..., Any]) -> None:
    """As TestRegionReplicaWaitForPrimaryFlushConf of HBase."""
    world = make(config={**FILES_ONLY, "hbase.region.replica.wait.for.primary.flush": "false", "reads_disabled_s": 0.0})
    world.create(b"t", copies=2)
    world.put(b"t", b"r", b"x")
    world.cluster.move(world.cluster.regions("t")[0], replica_id=1)
    assert world.value(b"t", b"r", replica_id=1) is None, "readable, and behind"


def test_secondary_that_dies_comes_back_complete_and_the_other_never_missed_anything(world: Any) -> None:
    """As TestRegionReplicaFailover.testSecondaryRegionKill of HBase."""
    world.create(b"t", copies=3)
    world.put(b"t", b"r", b"x")
    world.cluster.wait_until_replicated(10)
    meta = {world.cluster.meta_server(n) for n in range(3)}
    victim = next((n for n in (1, 2) if world.place(b"t", b"", n).server.host not in meta), 1)
    other = 3 - victim
    world.cluster.kill(world.place(b"t", b"", victim).server.host)
    for _ in range(100):
        place = None
        try:
            place = world.place(b"t", b"", other)
        except Exception:
            world.runtime.sleep(0.1)
            continue
        assert world.get(b"t", b"r", place=place).cells[0].value == b"x"
        world.runtime.sleep(0.1)
    world.cluster.wait_until_replicated(30)
    assert world.value(b"t", b"r", replica_id=victim) == b"x"


def test_primary_that_moves_leaves_its_copies_readable_all_the_time(world: Any) -> None:
    """Between close and open of the primary, replicas serve the rows they have."""
    world.create(b"t", copies=2)
    world.put(b"t", b"r", b"x")
    world.cluster.wait_until_replicated(10)
    place = world.place(b"t", b"", 1)
    task = world.runtime.start(world.cluster.move, world.cluster.regions("t")[0])
    while not task.is_done:
        assert world.get(b"t", b"r", place=place).cells[0].value == b"x"
        world.runtime.sleep(0.01)


def test_bulk_loaded_rows_show_on_copies(world: Any) -> None:
    """As TestReplicaWithCluster of HBase: bulk-loaded rows are visible on replicas."""
    world.create(b"t", [b"m"], copies=2)
    assert world.cluster.bulk_load("t", {b"a": {b"f:q": b"1"}, b"z": {b"f:q": b"2"}}) == 2
    assert [world.value(b"t", row) for row in (b"a", b"z")] == [b"1", b"2"]
    world.runtime.sleep(2)
    assert [world.value(b"t", row, replica_id=1) for row in (b"a", b"z")] == [b"1", b"2"]


@pytest.mark.parametrize("table", ["hbase:meta", b"hbase:meta"])
def test_bulk_load_into_meta_is_refused(world: Any, table: str | bytes) -> None:
    """No lookup would see it: the index of hbase:meta knows what is written, not what is loaded."""
    before = len(world.rows_of(b"t"))
    with pytest.raises(RequestRefused, match="hbase:meta takes no bulk load"):
        world.cluster.bulk_load(table, {b"t,,1.abc.": {b"info:server": b"nowhere:1"}})
    assert len(world.rows_of(b"t")) == before


def test_sixty_regions_of_ten_copies_open_on_few_servers(make: Callable[..., Any]) -> None:
    """More copies than servers: several share a server (TestRegionReplicaFailover.testLotsOfRegionReplicas)."""
    world = make(servers=4)
    world.create(b"t", [b"%02d" % number for number in range(1, 60)], copies=10)
    rows = world.rows_of(b"t")
    assert len(rows) == 60
    assert all(len(row.locations.placed()) == 10 for row in rows)
    world.cluster.wait_until_replicated(10)


def test_wait_until_replicated_means_what_it_says(world: Any) -> None:
    world.create(b"t", [b"m"], copies=3)
    for row in (b"a", b"z"):
        world.put(b"t", row, b"new")
    world.cluster.wait_until_replicated(5)
    for row in (b"a", b"z"):
        assert [world.value(b"t", row, replica_id=n) for n in range(3)] == [b"new"] * 3
    assert len(world.rows_of(b"t", at=1)) == len(world.rows_of(b"t", at=2)) == 2
