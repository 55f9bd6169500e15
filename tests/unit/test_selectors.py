"""Which copy of hbase:meta is asked: Java's selector to the letter, ours, users' own, stale marks and health."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

import metaclient
from metaclient import ConfigError
from metaclient.config import MetaMode
from metaclient.meta import (
    HealthState,
    Lookup,
    MetaView,
    PrimaryWhereStale,
    ReplicaHealth,
    ReplicaView,
    RoundRobin,
    SimpleSelector,
    StaleRanges,
    selector_named,
)
from metaclient.model import RegionInfo, ServerName
from tests.unit.meta_rig import TABLE, region, rig

SICK = ReplicaHealth().after_failure(now=0.0, base_s=1.0, max_s=60.0, chance=0.0)


def view(count: int = 3, *, now: float = 0.0, seed: int = 0, out: Sequence[int] = ()) -> MetaView:
    return MetaView(
        tuple(
            ReplicaView(i, ServerName(f"rs{i}", 16020, 1), SICK if i in out else ReplicaHealth()) for i in range(count)
        ),
        now,
        Random(seed),
    )


def lookup(row: bytes | None = b"h", *, before: bool = False, table: bytes = TABLE) -> Lookup:
    return Lookup(table, row, before)


def picks(selector: SimpleSelector, count: int, *, row: bytes = b"h", now: float = 0.0, n: int = 99) -> Counter[int]:
    seen = view(count, now=now)
    return Counter(selector.select(lookup(row), seen)[0] for _ in range(n))


# ---- the mode


@pytest.mark.parametrize(
    ("given_mode", "mode"),
    [("none", "None"), ("hedgedread", "HedgedRead"), ("LOADBALANCE", "LoadBalance"), ("LoadBalance", "LoadBalance")],
)
def test_mode_is_read_in_any_case(given_mode: str, mode: str) -> None:
    with rig(meta_mode=given_mode) as r:
        assert r.connection.meta_mode is MetaMode(mode)


def test_unknown_mode_is_refused_when_the_connection_is_made() -> None:
    with pytest.raises(ConfigError), rig(meta_mode="Balanced"):
        pass


def test_old_property_means_hedged_read_unless_a_mode_is_given() -> None:
    old = {"hbase.meta.replicas.use": "true"}
    with pytest.warns(DeprecationWarning, match="hbase.meta.replicas.use"), rig(config=old) as r:
        assert r.connection.meta_mode is MetaMode.HEDGED_READ
    both = {**old, "hbase.locator.meta.replicas.mode": "LoadBalance"}
    with pytest.warns(DeprecationWarning, match="hbase.meta.replicas.use"), rig(config=both) as r:
        assert r.connection.meta_mode is MetaMode.LOAD_BALANCE


# ---- Java's selector


def test_simple_picks_every_id_with_the_primary_among_them_uniformly() -> None:
    """99 picks see all of 3; 30,000 picks of 3: 10,000 each, tolerance 300."""
    assert set(picks(SimpleSelector(), 3)) == {0, 1, 2}
    many = picks(SimpleSelector(), 3, n=30_000)
    assert all(abs(count - 10_000) < 300 for count in many.values())


def test_simple_with_a_single_replica_picks_the_primary() -> None:
    """As HBase's TestCatalogReplicaLoadBalanceSimpleSelector."""
    assert picks(SimpleSelector(), 1) == {0: 99}


def test_simple_asks_the_primary_as_long_as_the_count_is_unknown_and_not_for_a_minute() -> None:
    """The next count that is known is used at once."""
    selector = SimpleSelector()
    assert picks(selector, 0) == {0: 99}
    assert set(picks(selector, 3)) == {0, 1, 2}


def test_simple_keeps_the_old_count_when_a_refresh_fails() -> None:
    selector = SimpleSelector()
    picks(selector, 3)
    assert set(picks(selector, 0, now=61.0)) == {0, 1, 2}


def test_simple_goes_on_picking_vanished_replicas_until_its_minute_is_over() -> None:
    """There is no AFTER here that could be refused: row + zero byte is CURRENT."""
    selector = SimpleSelector()
    picks(selector, 3)
    assert set(picks(selector, 1, now=59.9)) == {0, 1, 2}
    assert picks(selector, 1, now=60.0) == {0: 99}


def test_simple_counts_holes() -> None:
    selector = SimpleSelector()
    gap = MetaView((ReplicaView(0, None), ReplicaView(2, None, is_addressable=False)), 0.0, Random(0))
    assert {selector.select(lookup(), gap)[0] for _ in range(99)} == {0, 1, 2}


def test_simple_inserts_a_mark_only_if_absent_so_that_a_repeated_error_does_not_extend_its_life() -> None:
    selector = SimpleSelector()
    selector.on_wrong_location(region(b"g", b"m"), 0.0)
    selector.on_wrong_location(region(b"g", b"m"), 2.9)
    assert picks(selector, 3, now=2.999) == {0: 99}
    assert set(picks(selector, 3, now=3.0)) == {0, 1, 2}


def test_simple_loses_an_error_that_falls_between_expiry_and_sweep() -> None:
    """An expired entry that is not swept yet swallows a fresh error."""
    selector = SimpleSelector()
    picks(selector, 3)  # the grid of sweeps begins at 0.0: 1.5, 3.0, 4.5, ...
    selector.on_wrong_location(region(b"g", b"m"), 0.5)
    selector.on_wrong_location(region(b"g", b"m"), 3.6)  # expired at 3.5, swept at 4.5: swallowed
    assert set(picks(selector, 3, now=3.7)) == {0, 1, 2}
    selector.on_wrong_location(region(b"g", b"m"), 4.6)
    assert picks(selector, 3, now=4.7) == {0: 99}


def test_simple_loses_half_of_the_errors_in_the_window() -> None:
    """3,000 errors 3.0 to 4.5 s after the last one; half are lost, tolerance 3 %."""
    chance, lost, errors = Random(1), 0, 3_000
    for _ in range(errors):
        selector = SimpleSelector()
        picks(selector, 3, n=1)
        first = chance.uniform(0, 1.5)
        again = first + chance.uniform(3.0, 4.5)
        selector.on_wrong_location(region(b"g", b"m"), first)
        selector.on_wrong_location(region(b"g", b"m"), again)
        lost += selector._marks[TABLE][b"g"][1] == first
    assert abs(lost / errors - 0.5) < 0.03


def test_simple_forgets_a_mark_that_a_lookup_finds_expired() -> None:
    """Removed at once, so that the next error is not lost."""
    selector = SimpleSelector()
    picks(selector, 3)
    selector.on_wrong_location(region(b"g", b"m"), 0.5)
    assert set(picks(selector, 3, now=3.5)) == {0, 1, 2}
    selector.on_wrong_location(region(b"g", b"m"), 3.6)
    assert picks(selector, 3, now=3.7) == {0: 99}


def test_simple_sweep_empties_the_marks() -> None:
    """Sweep every 1.5 s."""
    selector = SimpleSelector()
    for number in range(100):
        selector.on_wrong_location(region(b"%03d" % number, b"%03d" % (number + 1)), 0.0)
    selector.select(lookup(b"z"), view(now=4.5))
    assert not selector._marks[TABLE]


# ---- stale marks: both selectors agree on which rows a mark covers


class Marks:
    """One mark on [start, end) in Java's selector and in ours."""

    def __init__(self, *regions: RegionInfo) -> None:
        self.simple = SimpleSelector()
        self.ours = StaleRanges(base_s=3.0, max_s=30.0, marks_max=100)
        for one in regions:
            self.simple.on_wrong_location(one, 0.0)
            self.ours.add(one, 0.0)

    def covers(self, row: bytes, *, before: bool = False, now: float = 1.0, table: bytes = TABLE) -> bool:
        java = all(
            self.simple.select(Lookup(table, row, before), view(now=now, seed=seed)) == [0] for seed in range(20)
        )
        assert java is self.ours.covers(table, row, now, before=before)
        return java


def test_mark_covers_its_range_and_not_its_end() -> None:
    marks = Marks(region(b"g", b"m"))
    assert [marks.covers(row) for row in (b"f", b"g", b"lzz", b"m")] == [False, True, True, False]


def test_mark_covers_the_row_before_its_end_and_not_before_its_start() -> None:
    marks = Marks(region(b"g", b"m"))
    assert marks.covers(b"m", before=True)
    assert not marks.covers(b"g", before=True)
    assert not marks.covers(b"mm", before=True)


def test_mark_of_the_last_region_covers_all_above_and_before_the_end() -> None:
    marks = Marks(region(b"t", b""))
    assert marks.covers(b"\xff" * 9)
    assert marks.covers(b"", before=True)
    assert not marks.covers(b"a")


def test_mark_before_the_end_of_the_table_needs_the_last_region() -> None:
    assert not Marks(region(b"g", b"m")).covers(b"", before=True)


def test_mark_of_another_table_says_nothing() -> None:
    assert not Marks(region(b"g", b"m")).covers(b"h", table=b"u")


def test_mark_lives_three_seconds() -> None:
    marks = Marks(region(b"g", b"m"))
    assert marks.covers(b"h", now=2.999)
    assert not marks.covers(b"h", now=3.0)


@given(
    st.lists(st.tuples(st.binary(max_size=2), st.binary(max_size=2)), max_size=5, unique_by=lambda pair: pair[0]),
    st.binary(max_size=3),
    st.booleans(),
)
def test_both_selectors_agree_on_what_is_marked(ranges: list[tuple[bytes, bytes]], row: bytes, before: bool) -> None:
    Marks(*(region(start, end) for start, end in ranges if not end or start < end)).covers(row, before=before)


def test_repeated_error_renews_the_mark_even_when_the_first_expired_unswept() -> None:
    """No error is lost, and the mark lives longer each time."""
    marks = StaleRanges(base_s=3.0, max_s=30.0, marks_max=100)
    marks.add(region(b"g", b"m"), 0.5)
    marks.add(region(b"g", b"m"), 3.6)  # Java would lose this one
    assert marks.covers(TABLE, b"h", 9.5)
    assert not marks.covers(TABLE, b"h", 9.6)


def test_mark_grows_to_its_limit_while_errors_go_on_and_starts_small_when_they_stopped() -> None:
    marks = StaleRanges(base_s=3.0, max_s=30.0, marks_max=100)
    now, lives = 0.0, []
    for _ in range(6):
        marks.add(region(b"g", b"m"), now)
        life = next(step for step in range(100) if not marks.covers(TABLE, b"h", now + step))
        lives.append(life)
        now += life
    assert lives == [3, 6, 12, 24, 30, 30]
    marks.add(region(b"g", b"m"), now + 61.0)
    assert not marks.covers(TABLE, b"h", now + 64.0)


def test_dead_server_with_many_regions_does_not_make_marks_without_bound() -> None:
    marks = StaleRanges(base_s=3.0, max_s=30.0, marks_max=100)
    for number in range(5_000):
        marks.add(region(b"%05d" % number, b"%05d" % (number + 1)), 0.0)
    assert len(marks) == 100
    assert marks.covers(TABLE, b"04999", 1.0)
    assert not marks.covers(TABLE, b"00000", 1.0)


# ---- ours


def test_round_robin_is_even_over_sixty_lookups() -> None:
    """max/mean over 60 lookups <= 1.05; here it is 1."""
    turn = RoundRobin()
    first = Counter(turn.select(lookup(), view())[0] for _ in range(60))
    assert first == {1: 30, 2: 30}


def test_round_robin_starts_anywhere_so_that_a_thousand_clients_do_not_start_at_one() -> None:
    """1,000 clients, two secondaries: 500 each, tolerance 60."""
    first = Counter(RoundRobin().select(lookup(), view(seed=seed))[0] for seed in range(1_000))
    assert abs(first[1] - 500) < 60


def test_round_robin_leaves_out_who_is_ejected_or_unplaced_and_ends_with_the_primary() -> None:
    """An unplaced replica is never chosen."""
    turn = RoundRobin()
    assert [turn.select(lookup(), view(4, out=[2])) for _ in range(2)] in (
        [[1, 3, 0], [3, 1, 0]],
        [[3, 1, 0], [1, 3, 0]],
    )
    hole = MetaView((*view(2).replicas, ReplicaView(2, None, is_addressable=False)), 0.0, Random(0))
    assert turn.select(lookup(), hole) == [1, 0]
    assert turn.select(lookup(), view(3, out=[1, 2])) == [0]


def test_two_replicas_on_one_server_are_not_asked_one_after_the_other() -> None:
    same = ServerName("rs1", 16020, 1)
    seen = MetaView(
        (
            ReplicaView(0, ServerName("rs0", 16020, 1)),
            ReplicaView(1, same),
            ReplicaView(2, same),
            ReplicaView(3, ServerName("rs3", 16020, 1)),
        ),
        0.0,
        Random(0),
    )
    turn = RoundRobin()
    for _ in range(3):
        order = turn.select(lookup(), seen)
        assert set(order[:2]) != {1, 2}


def test_replica_on_a_server_that_is_out_is_out_itself() -> None:
    seen = MetaView((ReplicaView(0, None), ReplicaView(1, ServerName("rs1", 1, 1), server_health=SICK)), 0.0, Random(0))
    assert RoundRobin().select(lookup(), seen) == [0]


def test_stale_range_puts_the_primary_before_the_others() -> None:
    stale = StaleRanges(base_s=3.0, max_s=30.0, marks_max=10)
    selector = PrimaryWhereStale(RoundRobin(), stale)
    selector.on_wrong_location(region(b"g", b"m"), 0.0)
    assert selector.select(lookup(b"h"), view())[0] == 0
    assert selector.select(lookup(b"z"), view())[0] != 0
    assert selector.select(lookup(None), view())[0] != 0  # a listing has no row


# ---- health


def test_ejection_doubles_to_its_limit_while_probes_fail() -> None:
    health, now, lives = ReplicaHealth(), 0.0, []
    for _ in range(8):
        health = health.after_failure(now=now, base_s=1.0, max_s=60.0, chance=0.0)
        lives.append(health.ejected_until - now)
        now = health.ejected_until
    assert lives == [1, 2, 4, 8, 16, 32, 60, 60]


def test_failures_while_out_do_not_lengthen_the_ejection() -> None:
    again = SICK.after_failure(now=0.5, base_s=1.0, max_s=60.0, chance=0.9)
    assert (again.ejected_until, again.ejections, again.failures) == (1.0, 1, 2)


def test_ejections_of_many_clients_do_not_end_at_the_same_moment() -> None:
    ends = {ReplicaHealth().after_failure(now=0, base_s=1, max_s=60, chance=c / 10).ejected_until for c in range(10)}
    assert len(ends) == 10
    assert all(1.0 <= end < 1.1 for end in ends)


def test_replica_that_heals_and_lies_again_is_left_alone_for_longer_each_time() -> None:
    health = SICK.after_success(0.001)
    assert health.state is HealthState.HEALTHY
    again = health.after_failure(now=1.5, base_s=1.0, max_s=60.0, chance=0.0)
    assert again.ejected_until == 3.5
    later = health.after_failure(now=100.0, base_s=1.0, max_s=60.0, chance=0.0)
    assert later.ejected_until == 101.0


# ---- a user's own


def test_own_selector_as_a_plain_function() -> None:
    """The example of the docs: the secondary with the lowest average latency."""

    def nearest(lookup: Lookup, view: MetaView) -> list[int]:
        known = [r for r in view.replicas if r.replica_id and r.is_usable]
        return [r.replica_id for r in sorted(known, key=lambda r: r.health.latency_s or 0.0)]

    with rig(meta_mode="LoadBalance", meta_selector=nearest, latency_s=0.0) as r:
        r.backend.on("read_meta", replica=1).delays(0.04)
        r.backend.on("read_meta", replica=2).delays(0.002)
        for _ in range(20):
            r.locate(b"a", reload=True)
        assert r.reads(2) >= 18
        assert r.reads(0) == 0


class _Sticky:
    def __init__(self) -> None:
        self.wrong: list[RegionInfo] = []

    def select(self, lookup: Lookup, view: MetaView) -> Sequence[int]:
        return [2]

    def on_wrong_location(self, region: RegionInfo, now: float) -> None:
        self.wrong.append(region)


def test_own_selector_as_an_object_hears_of_wrong_locations() -> None:
    own = _Sticky()
    with rig(meta_mode="LoadBalance", meta_selector=own) as r:
        place = r.locate(b"a")
        assert (r.reads(2), r.reads()) == (1, 1)
        r.locator.on_error(place, metaclient.errors.NotServingRegion("gone"))
        assert own.wrong == [place.region]
        r.locate(b"a")
        assert r.reads(0) == 1  # what is stale is asked at the primary, whatever the selector says


def test_own_selector_with_select_alone() -> None:
    class OnlySelect:
        def select(self, lookup: Lookup, view: MetaView) -> Sequence[int]:
            return [1]

    with rig(meta_mode="LoadBalance", meta_selector=OnlySelect()) as r:
        r.locate(b"a")
        assert r.reads(1) == 1


def test_own_selector_that_names_nobody_or_nonsense_leaves_the_primary() -> None:
    for answer in ([], [7, -1, "x"], ()):
        with rig(meta_mode="LoadBalance", meta_selector=lambda lookup, view, a=answer: a) as r:
            r.locate(b"a")
            assert (r.reads(0), r.reads()) == (1, 1)


def test_own_selector_that_raises_is_named_in_the_error() -> None:
    def broken(lookup: Lookup, view: MetaView) -> list[int]:
        raise ZeroDivisionError("my bug")

    wanted = "meta_selector failed with ZeroDivisionError: my bug"
    with rig(meta_mode="LoadBalance", meta_selector=broken) as r, pytest.raises(ConfigError, match=wanted):
        r.locate(b"a")


def test_own_selector_may_look_at_the_connection() -> None:
    with rig(
        meta_mode="LoadBalance", meta_selector=lambda lookup, view: [1 + len(r.connection.engine.reader.status()) % 2]
    ) as r:
        r.locate(b"a")
        assert r.reads() == 1


def test_what_is_no_selector_is_refused() -> None:
    with pytest.raises(ConfigError, match="meta_selector"):
        selector_named(42, StaleRanges(base_s=3.0, max_s=30.0, marks_max=10))
