"""Moves, splits and merges, and what a client with an old location is told."""

from __future__ import annotations

from typing import Any

import pytest

from metaclient.backend import Action, MetaScan
from metaclient.errors import (
    NotServingRegion,
    RegionMoved,
    RegionOpening,
    RegionUnavailable,
    RequestRefused,
    WrongRegion,
)
from metaclient.model import Cell, Get, Put, RowMutations, Scan


def _seen_during(world: Any, change: Any, probe: Any, steps: int = 200) -> list[str]:
    """What a client is told, every few milliseconds, while a change goes on (each answer once, in order)."""
    task = world.runtime.start(change, name="change")
    seen: list[str] = []
    for _ in range(steps):
        try:
            probe()
            answer = "served"
        except RegionUnavailable as error:
            answer = type(error).__name__
        if not seen or seen[-1] != answer:
            seen.append(answer)
        if task.is_done and answer == "served":
            break
        world.runtime.sleep(0.005)
    task.result()
    return seen


def test_moved_region_is_served_elsewhere_and_the_old_server_says_where(world: Any) -> None:
    world.create(b"t")
    world.put(b"t", b"r", b"kept")
    old = world.place(b"t")
    region = world.cluster.regions("t")[0]
    target = next(name for name in world.cluster.servers() if name != old.server.host)
    world.cluster.move(region, target)
    assert world.place(b"t").server.host == target
    assert world.value(b"t", b"r") == b"kept"
    with pytest.raises(RegionMoved) as error:
        world.get(b"t", b"r", place=old)
    assert error.value.server.host == target
    assert f"hostname={target} port=16020" in str(error.value)
    assert error.value.java_class == "org.apache.hadoop.hbase.exceptions.RegionMovedException"


def test_memory_of_a_move_ends_after_two_minutes(world: Any) -> None:
    world.create(b"t")
    old = world.place(b"t")
    world.cluster.move(world.cluster.regions("t")[0])
    world.runtime.sleep(115)
    with pytest.raises(RegionMoved):
        world.get(b"t", b"r", place=old)
    world.runtime.sleep(10)
    with pytest.raises(NotServingRegion) as error:
        world.get(b"t", b"r", place=old)
    assert type(error.value) is NotServingRegion
    assert "is not online on" in str(error.value)


def test_move_seen_step_by_step_at_the_old_server(world: Any) -> None:
    """Served, "is closing", then RegionMoved before the new server has opened it (seen on HBase 2.6.1)."""
    world.create(b"t")
    place, region = world.place(b"t"), world.cluster.regions("t")[0]
    seen = _seen_during(world, lambda: world.cluster.move(region), lambda: world.get(b"t", b"r", place=place), 100)
    assert seen == ["served", "NotServingRegion", "RegionMoved"]


def test_move_seen_step_by_step_at_the_new_server(world: Any) -> None:
    world.create(b"t")
    region, old = world.cluster.regions("t")[0], world.place(b"t")
    target = next(name for name in world.cluster.servers() if name != old.server.host)
    new = type(old)(old.region, world.cluster.server_named(target).name)
    seen = _seen_during(world, lambda: world.cluster.move(region, target), lambda: world.get(b"t", b"r", place=new))
    assert seen == ["NotServingRegion", "RegionOpening", "served"]


def test_region_that_comes_back_points_to_its_old_target_while_it_opens(world: Any) -> None:
    """A server that gets a region back answers "moved to <old target>" until the region is open."""
    world.create(b"t")
    region, home = world.cluster.regions("t")[0], world.place(b"t")
    away = next(name for name in world.cluster.servers() if name != home.server.host)
    world.cluster.move(region, away)
    seen = _seen_during(
        world, lambda: world.cluster.move(region, home.server.host), lambda: world.get(b"t", b"r", place=home)
    )
    assert seen == ["RegionMoved", "served"]


def test_opening_region_says_so(world: Any) -> None:
    world.create(b"t")
    place = world.place(b"t")
    server = world.cluster.server_named(place.server)
    server.assignments.begin_open([b"t,x,1.ffffffffffffffffffffffffffffffff."])
    with pytest.raises(RegionOpening) as error:
        raise server.assignments.unavailable(b"t,x,1.ffffffffffffffffffffffffffffffff.")
    assert error.value.java_class.endswith("RegionOpeningException")


def test_nonsense_names_are_not_served(world: Any) -> None:
    """Unknown table, wrong replica, malformed name: the same NotServingRegionException."""
    world.create(b"t")
    place = world.place(b"t")
    for name in (b"x,,1.", b"nonsense", place.region.replica(7).name, place.region.encoded_name.encode()):
        with pytest.raises(NotServingRegion):
            world.backend.get(
                type(place)(place.region, place.server, region_name=name), b"t", Get(b"r"), world.deadline()
            )


def test_split_daughters_take_over_and_the_parent_stays_in_meta(world: Any) -> None:
    world.create(b"t")
    for row in (b"a", b"m", b"z"):
        world.put(b"t", row, row)
    parent = world.place(b"t")
    left, right = world.cluster.split(world.cluster.regions("t")[0], b"m")
    assert world.cluster.regions("t") == [left, right]
    for row, start in ((b"a", b""), (b"m", b"m"), (b"z", b"m")):
        place = world.place(b"t", row)
        assert place.region.start_key == start
        assert place.server == parent.server
        assert world.value(b"t", row) == row
    with pytest.raises(NotServingRegion):
        world.get(b"t", b"a", place=parent)
    rows = world.rows_of(b"t")
    parents = [row for row in rows if row.split_daughters]
    assert len(rows) == 3
    assert [info.encoded_name for info in parents[0].split_daughters] == [left, right]
    assert parents[0].locations.region.is_split_parent
    assert parents[0].locations.region.is_offline


def test_split_finds_the_middle_by_itself(world: Any) -> None:
    world.create(b"t")
    for number in range(100):
        world.put(b"t", b"%03d" % number)
    world.cluster.split(world.cluster.regions("t")[0])
    assert world.place(b"t", b"999").region.start_key in [b"%03d" % number for number in range(40, 61)]


def test_split_refuses_borders_outside_and_regions_without_a_middle(world: Any) -> None:
    world.create(b"t", [b"m"])
    first = world.cluster.regions("t")[0]
    for border in (b"", b"m", b"z"):
        with pytest.raises(RequestRefused):
            world.cluster.split(first, border)
    with pytest.raises(RequestRefused, match="no row to split"):
        world.cluster.split(first)


def test_parents_of_splits_leave_meta_when_nothing_refers_to_them(world: Any) -> None:
    world.create(b"t")
    world.put(b"t", b"a")
    world.put(b"t", b"z")
    world.cluster.split(world.cluster.regions("t")[0], b"m")
    assert len(world.rows_of(b"t")) == 3
    world.runtime.sleep(650)
    assert len(world.rows_of(b"t")) == 2
    assert world.value(b"t", b"a") == world.value(b"t", b"z") == b"1"


def test_merge_joins_neighbours_and_forgets_them(world: Any) -> None:
    world.create(b"t", [b"g", b"p"])
    for row in (b"a", b"h", b"z"):
        world.put(b"t", row, row)
    first, second, third = world.cluster.regions("t")
    with pytest.raises(RequestRefused, match="non-adjacent"):
        world.cluster.merge(first, third)
    merged = world.cluster.merge(second, first)
    assert world.cluster.regions("t") == [merged, third]
    assert [world.value(b"t", row) for row in (b"a", b"h", b"z")] == [b"a", b"h", b"z"]
    row = world.rows_of(b"t")[0]
    assert [info.encoded_name for info in row.merge_parents] == [first, second]


def test_split_and_merge_again_and_again_lose_nothing(world: Any) -> None:
    world.create(b"t")
    rows = [b"%02d" % number for number in range(40)]
    for row in rows:
        world.put(b"t", row, row)
    for border in (b"20", b"10", b"30", b"05"):
        region = world.place(b"t", border).region
        world.cluster.split(region.encoded_name, border)
        world.put(b"t", border, b"new")
    while len(world.cluster.regions("t")) > 1:
        left, right, *_ = world.cluster.regions("t")
        world.cluster.merge(left, right)
    expected = [b"new" if row in (b"20", b"10", b"30", b"05") else row for row in rows]
    assert [world.value(b"t", row) for row in rows] == expected


def test_copies_of_a_split_region_split_with_it(world: Any) -> None:
    """6 -> 9 regions, distributed (TestRegionReplicaSplit)."""
    world.create(b"t", [b"m"], copies=3)
    world.cluster.split(world.cluster.regions("t")[0], b"g")
    rows = [row for row in world.rows_of(b"t") if not row.split_daughters]
    assert sum(len(row.locations.placed()) for row in rows) == 9
    for row in rows:
        assert len({copy.server for copy in row.locations.placed()}) == 3
    with pytest.raises(RequestRefused, match="secondary"):
        world.cluster.split(rows[0].locations.region.replica(1).encoded_name, b"c")


def test_row_outside_of_the_region_wrong_region_for_reads_final_for_writes(world: Any) -> None:
    """As HBase 2.6.1: get -> WrongRegion, put -> FailedSanityCheck (final), scan -> no check at all."""
    world.create(b"t", [b"m"])
    first = world.place(b"t", b"a")
    with pytest.raises(WrongRegion):
        world.get(b"t", b"z", place=first)
    with pytest.raises(RequestRefused) as error:
        world.put(b"t", b"z", place=first)
    assert error.value.detail.endswith("FailedSanityCheckException")
    page = world.backend.scan_open(first, b"t", Scan(start_row=b"x"), world.deadline())
    assert list(page.rows) == []
    assert page.is_end_of_region


def test_batch_has_an_outcome_for_each_action_and_gets_do_not_wait(world: Any) -> None:
    """As HBase's Multi: a get after a put of the same row in one batch does not see the put."""
    world.create(b"t", [b"m"])
    world.put(b"t", b"a", b"old")
    here = world.place(b"t", b"a")
    wrong = type(here)(here.region, here.server, region_name=b"t,gone,1.")
    put = Put(b"a", (Cell(b"f:q", 2**62, b"new"),))
    actions = [
        Action(here, put),
        Action(here, Get(b"a")),
        Action(here, Put(b"b", (Cell(b"nope:q", 2**62, b""),))),
        Action(wrong, Get(b"a")),
        Action(here, RowMutations(b"c", (Put(b"c", (Cell(b"f:q", 2**62, b"c"),)),))),
        Action(here, Put(b"z", (Cell(b"f:q", 2**62, b""),))),
    ]
    outcomes = world.backend.batch(here.server, b"t", actions, world.deadline())
    assert outcomes[0] is None
    assert outcomes[1].cells[0].value == b"old"
    assert [type(outcome).__name__ for outcome in outcomes[2:4]] == ["NoSuchFamily", "NotServingRegion"]
    assert outcomes[4] is None
    assert isinstance(outcomes[5], RequestRefused)
    assert world.value(b"t", b"a") == b"new"
    assert world.value(b"t", b"c") == b"c"


def test_registry_and_lookups_follow_a_moved_meta(world: Any) -> None:
    """As TestMetaReplicasAddressChange of HBase."""
    world.create(b"t")
    old = world.replica(0)
    world.cluster.move("hbase:meta")
    assert world.replica(0).server != old.server
    with pytest.raises(RegionMoved):
        world.backend.read_meta(old, MetaScan(b"", b"", False, 1), world.deadline())
    assert world.lookup(b"t") is not None
    world.create(b"u")
    assert world.lookup(b"u") is not None


def test_names_that_are_not_there_teach_the_right_ones(world: Any) -> None:
    world.create(b"t")
    with pytest.raises(RequestRefused, match=r"no server 'rs11'.*rs1"):
        world.cluster.kill("rs11")
    with pytest.raises(RequestRefused, match="no region"):
        world.cluster.move("beef", "rs1")
    with pytest.raises(RequestRefused, match="no server 'rs99'"):
        world.cluster.move(world.cluster.regions("t")[0], "rs99")
    with pytest.raises(RequestRefused, match="replicas 0 to 0"):
        world.cluster.move(world.cluster.regions("t")[0], "rs1", replica_id=2)
