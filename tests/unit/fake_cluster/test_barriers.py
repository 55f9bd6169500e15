"""The barriers and parents that the master writes to hbase:meta for serial replication, and their cleaner."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from metaclient import keys
from metaclient.errors import CallTimeout, RegionUnavailable
from metaclient.model import Cell, FamilyDescriptor, Get, RegionLocation, TableDescriptor
from metaclient_fake.master.barrier_rows import MetaBarrierRows
from metaclient_fake.master.meta_table import META_INFO
from metaclient_fake.master.serial_tables import make_serial, regions_with_barriers
from metaclient_fake.replication.barrier_cleaner import BarrierCleaner
from metaclient_fake.replication.barriers import BARRIER, Barriers, MetaBarriers, barriers_in
from metaclient_fake.replication.serial import SerialChecker
from metaclient_fake.server.barrier_reads import barrier_rows, barriers_for
from metaclient_fake.storage.wal import WalEntry


def create(world: Any, *scopes: int, table: bytes = b"t", copies: int = 1, splits: tuple[bytes, ...] = ()) -> None:
    families = tuple(
        FamilyDescriptor(name, replication_scope=scope) for name, scope in zip((b"f", b"g"), scopes, strict=False)
    )
    world.cluster.create_table(TableDescriptor(table, families, region_replication=copies), splits)


def cells(world: Any, row: bytes, *columns: bytes) -> list[Cell]:
    meta = RegionLocation(META_INFO, world.replica(0).server)
    get = Get(row, columns, max_versions=1000)
    return list(world.backend.get_meta(meta, get, world.deadline()).cells)


def barriers(world: Any, row: bytes) -> Barriers:
    return barriers_in(cells(world, row, b"rep_barrier", b"info:state"))


def names(world: Any, table: bytes = b"t") -> list[bytes]:
    return [row.locations.region.name for row in world.rows_of(table)]


def rows_with_barriers(world: Any) -> list[bytes]:
    found: list[bytes] = world.cluster.master.meta.read(barrier_rows)
    return found


def move(world: Any, row: bytes) -> None:
    world.cluster.move(keys.encoded_region_name(row))


def test_barrier_is_written_in_the_same_put_as_the_state_open(world: Any) -> None:
    create(world, 1)
    row = names(world)[0]
    found = {cell.column: cell for cell in reversed(cells(world, row))}
    assert found[BARRIER].value == found[b"info:seqnumDuringOpen"].value
    assert found[BARRIER].timestamp == found[b"info:seqnumDuringOpen"].timestamp == found[b"info:state"].timestamp
    assert found[b"info:state"].value == b"OPEN"


def test_every_open_leaves_a_barrier_above_all_earlier_edits(world: Any) -> None:
    """hbase:meta keeps three versions of other columns."""
    create(world, 0, 1)
    row = names(world)[0]
    for number in range(6):
        world.put(b"t", b"r", b"%d" % number)
        move(world, row)
    found = barriers(world, row)
    assert len(found.barriers) == 7
    assert found.state == "OPEN"
    gaps = [after - before for before, after in zip(found.barriers, found.barriers[1:], strict=False)]
    assert min(gaps) > 1, "an edit lies between two barriers"


@pytest.mark.parametrize("scope", [0, 2])
def test_table_that_is_not_replicated_has_no_barriers(world: Any, scope: int) -> None:
    """HBase accepts the scope 2 and replicates nothing of such a family."""
    create(world, scope)
    world.cluster.split(world.cluster.regions("t")[0], b"m")
    world.cluster.disable_table("t")
    assert rows_with_barriers(world) == []


def test_table_that_becomes_replicated_gets_barriers_when_it_reopens(world: Any) -> None:
    create(world, 0)
    row = names(world)[0]
    world.cluster.alter_table(TableDescriptor(b"t", (FamilyDescriptor(b"f", replication_scope=1),)))
    assert len(barriers(world, row).barriers) == 1


def test_open_of_a_secondary_writes_no_barrier(world: Any) -> None:
    create(world, 1, copies=3)
    row = names(world)[0]
    world.cluster.move(keys.encoded_region_name(row), replica_id=1)
    assert len(cells(world, row, BARRIER)) == 1


def test_split_ends_the_range_of_the_parent_where_the_daughters_begin(world: Any) -> None:
    create(world, 1)
    parent = names(world)[0]
    world.put(b"t", b"r")
    world.cluster.split(world.cluster.regions("t")[0], b"m")
    daughters = [name for name in names(world) if name != parent]
    assert len(daughters) == 2
    ended = barriers(world, parent)
    assert ended.state == "SPLIT"
    for name in daughters:
        found = barriers(world, name)
        assert found.parents == (parent,)
        assert found.barriers == ended.barriers[-1:]


def test_merged_region_names_its_parents_whose_barriers_outlive_them(world: Any) -> None:
    create(world, 1, splits=(b"\xff\x00",))
    parents = names(world)
    for row in (b"a", b"\xff\xff"):
        world.put(b"t", row)
    world.cluster.merge(*world.cluster.regions("t"))
    (merged,) = names(world)
    found = barriers(world, merged)
    assert found.parents == tuple(parents)
    for name in parents:
        left = barriers(world, name)
        assert left.state is None
        assert len(left.barriers) == 2
        assert left.barriers[-1] <= found.barriers[0]
        assert not cells(world, name, b"info")


@pytest.mark.parametrize("row", [b"", b"a", b"m", b"z"])
def test_lookup_steps_over_the_barriers_of_merged_regions(world: Any, row: bytes) -> None:
    create(world, 1, splits=(b"m",))
    world.cluster.merge(*world.cluster.regions("t"))
    found = world.lookup(b"t", row)
    assert found is not None
    assert found.locations.region.name == names(world)[0]


def test_janitor_keeps_the_barriers_of_a_split_parent(make: Callable[..., Any]) -> None:
    world = make(config={"catalog_janitor_s": 5.0})
    create(world, 1)
    parent = names(world)[0]
    world.cluster.split(world.cluster.regions("t")[0], b"m")
    world.runtime.sleep(30)
    assert not cells(world, parent, b"info")
    assert len(barriers(world, parent).barriers) == 2


def test_disabled_table_has_ended_ranges(world: Any) -> None:
    """A serial peer that is added meanwhile starts behind what was written before."""
    create(world, 1, splits=(b"m",))
    world.put(b"t", b"r")
    rows = names(world)
    world.cluster.disable_table("t")
    ended = [barriers(world, row) for row in rows]
    assert [len(one.barriers) for one in ended] == [2, 2]
    world.cluster.enable_table("t")
    assert [barriers(world, row).barriers for row in rows] == [one.barriers for one in ended]


def test_dropped_table_leaves_no_barriers_of_split_and_merged_regions(world: Any) -> None:
    create(world, 1, splits=(b"m",))
    create(world, 1, table=b"u")
    world.cluster.merge(*world.cluster.regions("t"))
    world.cluster.split(world.cluster.regions("t")[0], b"k")
    world.cluster.disable_table("t")
    world.cluster.delete_table("t")
    assert rows_with_barriers(world) == names(world, b"u")


def test_open_after_a_crash_has_a_barrier_above_the_recovered_edits(world: Any) -> None:
    create(world, 1)
    row = names(world)[0]
    host = next(host for host in world.cluster.servers() if host != world.cluster.meta_server(0))
    world.cluster.move(keys.encoded_region_name(row), host)
    for number in range(5):
        world.put(b"t", b"r", b"%d" % number)
    before = barriers(world, row).barriers
    world.cluster.kill(host)
    world.runtime.sleep(60)
    found = barriers(world, row)
    assert found.barriers[:-1] == before
    assert found.barriers[-1] > before[-1] + 5
    assert world.value(b"t", b"r") == b"4"


@pytest.mark.parametrize("is_all", [False, True])
def test_barriers_are_not_pushed_to_replicas_of_meta_unless_all_families_are(
    make: Callable[..., Any], is_all: bool
) -> None:
    world = make(config={"replication_all_meta_families": is_all}, meta_replicas=2)
    world.runtime.sleep(1)
    create(world, 1)
    world.runtime.sleep(1)
    server = world.cluster.server_named(world.cluster.meta_server(1))
    copy = server.regions[keys.meta_region_name(1)]
    found = {cell.column for cell in copy.get(Get(names(world)[0])).cells}
    assert b"info:server" in found
    assert (BARRIER in found) == is_all


# -- reads of a source -----------------------------------------------------------------------------------------------


def reads_of(world: Any, host: str) -> MetaBarriers:
    cluster = world.cluster
    return barriers_for(
        cluster.server_named(host),
        cluster.network,
        world.runtime,
        meta_server=cluster.master.meta_primary_server,
        timeout_s=1.0,
    )


def test_source_holds_the_edits_of_daughters_until_their_parent_is_pushed(world: Any) -> None:
    create(world, 1)
    parent = names(world)[0]
    daughter, _ = world.cluster.split(world.cluster.regions("t")[0], b"m")
    last = barriers(world, parent).barriers[-1]
    pushed: dict[str, int] = {}
    checker = SerialChecker(reads_of(world, "rs1"), lambda region: pushed.get(region, -1))
    entry = WalEntry(daughter, b"t", last + 5, 0)
    assert not checker.may_push(entry)
    pushed[keys.encoded_region_name(parent)] = last - 1
    assert checker.may_push(entry)


def test_source_that_cannot_reach_meta_gets_an_error_and_pushes_nothing(world: Any) -> None:
    create(world, 1)
    holder = world.cluster.meta_server(0)
    host = next(host for host in world.cluster.servers() if host != holder)
    checker = SerialChecker(reads_of(world, host), lambda region: -1)
    entry = WalEntry(keys.encoded_region_name(names(world)[0]), b"t", 50, 0)
    world.cluster.partition(host, holder)
    with pytest.raises(CallTimeout):
        checker.may_push(entry)
    world.cluster.heal()
    world.cluster.kill(holder)
    world.cluster.master.expire(world.cluster.server_named(holder).name)
    with pytest.raises(RegionUnavailable):
        checker.may_push(entry)
    world.runtime.sleep(60)
    assert checker.may_push(entry)


# -- the cleaner -----------------------------------------------------------------------------------------------------


def clean(world: Any, pushed: dict[str, int] | None = None) -> int:
    """Run the cleaner as the master does; ``pushed`` are the ids of the only serial peer."""
    forgotten = pushed if pushed is not None else {}
    cleaner = BarrierCleaner(
        MetaBarrierRows(world.cluster.master.meta),
        serial_peers_of=lambda table: [] if pushed is None else ["p"],
        pushed=lambda region, peer: forgotten.get(region, -1),
        forget_pushed=lambda region, peer: forgotten.__delitem__(region),
    )
    number: int = world.cluster.master.run(cleaner.run)
    return number


def test_cleaner_leaves_the_newest_barrier_of_regions_and_nothing_of_gone_ones(world: Any) -> None:
    create(world, 1, splits=(b"m",))
    first = names(world)[0]
    move(world, first)
    move(world, first)
    newest = barriers(world, first).barriers[-1]
    assert clean(world) == 2
    assert barriers(world, first).barriers == (newest,)
    world.cluster.merge(*world.cluster.regions("t"))
    clean(world)
    assert rows_with_barriers(world) == names(world)
    assert world.lookup(b"t", b"z") is not None


def test_cleaner_keeps_what_a_serial_peer_waits_for_and_forgets_pushed_parents(world: Any) -> None:
    create(world, 1, splits=(b"m",))
    parents = names(world)
    world.cluster.merge(*world.cluster.regions("t"))
    assert clean(world, {}) == 0
    ended = {name: barriers(world, name).barriers[-1] for name in parents}
    pushed = {keys.encoded_region_name(parents[0]): ended[parents[0]] - 1}
    assert clean(world, pushed) == 2
    assert pushed == {}
    assert rows_with_barriers(world) == [names(world)[0], parents[1]]


# -- a new serial peer -------------------------------------------------------------------------------------------------


def encoded(rows: list[bytes]) -> list[str]:
    return [keys.encoded_region_name(row) for row in rows]


def test_edits_older_than_a_serial_peer_count_as_pushed(world: Any) -> None:
    """Their logs may be gone: after a move, nobody could ever push them."""
    create(world, 1)
    row = names(world)[0]
    world.put(b"t", b"r", b"1")
    move(world, row)
    world.put(b"t", b"r", b"2")
    before = barriers(world, row).barriers
    ids = make_serial(world.cluster.master, [b"t"])
    found = barriers(world, row).barriers
    assert found[:-1] == before, "the region was reopened"
    assert ids == {keys.encoded_region_name(row): found[-1] - 1}
    checker = SerialChecker(reads_of(world, "rs1"), lambda region: ids.get(region, -1))
    assert checker.may_push(WalEntry(keys.encoded_region_name(row), b"t", found[-1] + 2, 0))
    assert world.value(b"t", b"r") == b"2"


def test_disabled_table_is_not_opened_for_a_serial_peer(world: Any) -> None:
    create(world, 1)
    row = names(world)[0]
    world.put(b"t", b"r")
    world.cluster.disable_table("t")
    ended = barriers(world, row)
    assert make_serial(world.cluster.master, [b"t"]) == {keys.encoded_region_name(row): ended.barriers[-1] - 1}
    assert barriers(world, row) == ended
    world.cluster.enable_table("t")
    ids = regions_with_barriers(world.cluster.master, [b"t"])
    assert ids == encoded([row])


def test_merged_parents_count_as_pushed_for_a_new_serial_peer(world: Any) -> None:
    create(world, 1, splits=(b"m",))
    parents = names(world)
    world.cluster.merge(*world.cluster.regions("t"))
    ids = make_serial(world.cluster.master, [b"t"])
    assert set(ids) == set(encoded([*parents, *names(world)]))
    for name in parents:
        assert ids[keys.encoded_region_name(name)] == barriers(world, name).barriers[-1] - 1


def test_table_that_is_not_replicated_or_unknown_is_not_reopened_for_a_serial_peer(world: Any) -> None:
    create(world, 0)
    place = world.place(b"t")
    assert make_serial(world.cluster.master, [b"t", b"unknown"]) == {}
    assert world.place(b"t") == place
