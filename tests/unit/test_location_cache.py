"""What the cache keeps, merges, forgets and refuses; pure rules first, then the cache that applies them."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from metaclient import ConfigError, keys
from metaclient.connection import connect_to
from metaclient.errors import (
    CallQueueTooBig,
    CallTimeout,
    MetaClientError,
    NotServingRegion,
    Overloaded,
    RegionMoved,
    RegionTooBusy,
    RequestRefused,
    ServerStopped,
    Throttled,
)
from metaclient.lookup.location_cache import EMPTY, FAILED_PER_REGION, LocationCache, Snapshot, merged, with_regions
from metaclient.lookup.location_export import export_locations, import_locations
from metaclient.model import RegionLocation, RegionLocations
from metaclient.runtime import SimRuntime, ThreadRuntime
from metaclient.testing import ScriptedBackend
from tests.unit.meta_rig import TABLE, hosts, placed, region, rig, server


@pytest.fixture
def cache() -> Iterator[LocationCache]:
    with SimRuntime() as runtime:
        yield LocationCache(runtime, regions_max=1_000)


def numbered(start: int, end: int, region_id: int = 1, host: str | None = "a", table: bytes = TABLE) -> RegionLocations:
    return placed(region(b"%04d" % start, b"%04d" % end, region_id, table), host)


def ranges(snapshot: Snapshot) -> list[tuple[bytes, bytes]]:
    return list(zip(snapshot.starts, snapshot.ends, strict=True))


# ---- merging one region


def test_equal_sequence_number_lets_the_incoming_location_win() -> None:
    """As HBase's TestRegionLocations."""
    info = region()
    assert hosts(merged(placed(info, "a"), placed(info, "b"))) == ["b"]


def test_older_sequence_number_does_not_replace_a_newer_location() -> None:
    """As HBase's TestRegionLocations."""
    info = region()
    assert hosts(merged(placed(info, "a", seqnum=9), placed(info, "b", seqnum=5))) == ["a"]


def test_torn_row_without_sequence_number_does_not_replace_a_known_location() -> None:
    """A re-opened meta secondary shows rows with half of their columns (seen on HBase 2.6.1)."""
    info = region()
    assert hosts(merged(placed(info, "a", seqnum=9), placed(info, "b", seqnum=-1))) == ["a"]
    assert hosts(merged(placed(info, "a", seqnum=-1), placed(info, "b", seqnum=-1))) == ["b"]


def test_location_of_another_region_id_is_dropped_whole() -> None:
    """Other region id dropped (TestRegionLocations)."""
    old, new = placed(region(region_id=1), "a", "b", "c", seqnum=99), placed(region(region_id=2), "d")
    assert hosts(merged(old, new)) == ["d"]


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        ([None, None], ["a"], ["a", None]),
        (["a", "b"], [None, None], ["a", "b"]),
        (["a"], [None, "b"], ["a", "b"]),
        (["a", "b", "c"], ["d"], ["d", "b", "c"]),
        (["a"] * 10, ["b"] * 11, ["b"] * 11),
        (["a"] * 12, ["b"] * 11, ["b"] * 11 + ["a"]),
        ([], [], []),
    ],
)
def test_merge_keeps_the_longer_length_and_never_erases_by_a_hole(
    old: list[str | None], new: list[str | None], expected: list[str | None]
) -> None:
    """Holes and sizes 0, 1, 10, 11, 12 (TestRegionLocations)."""
    info = region()
    assert hosts(merged(placed(info, *old), placed(info, *new))) == expected


def test_merge_that_changes_nothing_keeps_the_object() -> None:
    entry = placed(region(), "a", "b")
    assert merged(entry, placed(region(), "a")) is entry


# ---- regions beside each other


def test_merged_region_drops_all_that_it_covers() -> None:
    """As HBase's TestMetaCache (HBASE-27650)."""
    three = with_regions(EMPTY, [numbered(0, 5), numbered(5, 7), numbered(7, 9), numbered(9, 12)])
    after = with_regions(three, [numbered(0, 9, region_id=2, host="m")])
    assert ranges(after) == [(b"0000", b"0009"), (b"0009", b"0012")]
    covering = after.covering(b"0006")
    assert hosts(covering) == ["m"]


def test_filling_from_high_to_low_drops_nothing() -> None:
    """As HBase's TestMetaCache."""
    snapshot = EMPTY
    for start in range(98, -1, -2):
        snapshot = with_regions(snapshot, [numbered(start, start + 2)])
    assert len(snapshot.regions) == 50


@pytest.mark.parametrize("seed", range(50))
def test_page_that_is_appended_at_once_gives_what_its_regions_give_one_by_one(seed: int) -> None:
    """Pages above the known regions, in and out of order, with gaps, overlaps and newer regions."""
    dice = random.Random(seed)
    at_once = one_by_one = EMPTY
    for _ in range(6):
        lowest = dice.choice((0, 20, 40, 60))
        starts = [lowest + 2 * number for number in range(dice.randint(0, 8))]
        if dice.random() < 0.3:
            dice.shuffle(starts)
        page = [numbered(start, start + dice.choice((2, 2, 2, 3)), dice.choice((1, 1, 2))) for start in starts]
        at_once = with_regions(at_once, page)
        for entry in page:
            one_by_one = with_regions(one_by_one, [entry])
        assert at_once == one_by_one


def test_old_answer_does_not_bring_back_a_split_parent() -> None:
    daughters = with_regions(EMPTY, [numbered(0, 5, 2), numbered(5, 9, 2)])
    assert with_regions(daughters, [numbered(0, 9, 1)]) is daughters


def test_parent_of_a_failed_daughter_may_come_back() -> None:
    lone = with_regions(EMPTY, [numbered(0, 5, 2, None)])
    assert ranges(with_regions(lone, [numbered(0, 9, 1)])) == [(b"0000", b"0009")]


def test_what_the_primary_answers_stays_whatever_is_known() -> None:
    """A restored snapshot brings old region ids back: else each of their reads would cost a lookup for ever."""
    daughters = with_regions(EMPTY, [numbered(0, 5, 2, None), numbered(5, 9, 2)])
    parent = numbered(0, 9, 1)
    assert with_regions(daughters, [parent]) is daughters
    assert ranges(with_regions(daughters, [], parent)) == [(b"0000", b"0009")]


def test_daughter_with_the_start_key_of_its_parent_replaces_it() -> None:
    parent = with_regions(EMPTY, [numbered(0, 9, 1)])
    assert ranges(with_regions(parent, [numbered(0, 5, 2)])) == [(b"0000", b"0005")]


_bounds = st.lists(st.binary(max_size=2), min_size=2, max_size=2, unique=True).map(sorted)
_entries = st.lists(
    st.tuples(_bounds, st.booleans(), st.integers(1, 4), st.sampled_from([None, "a", "b"])).map(
        lambda drawn: placed(region(drawn[0][0], b"" if drawn[1] else drawn[0][1], drawn[2]), drawn[3])
    ),
    max_size=12,
)


@given(_entries)
def test_snapshot_is_sorted_and_never_overlaps_whatever_is_inserted(entries: list[RegionLocations]) -> None:
    snapshot = EMPTY
    for entry in entries:
        before = (list(snapshot.starts), list(snapshot.regions))
        snapshot, old = with_regions(snapshot, [entry]), snapshot
        assert (old.starts, old.regions) == before  # never changed once made
    assert snapshot.starts == sorted(set(snapshot.starts))
    for (_, end), (start, _) in pairwise(ranges(snapshot)):
        assert keys.ends_before_or_at(end, start)
    for index, entry in enumerate(snapshot.regions):
        assert snapshot.primaries[index] == entry.primary
        assert (snapshot.starts[index], snapshot.ends[index]) == (entry.region.start_key, entry.region.end_key)


@given(_entries, st.binary(max_size=3))
def test_gap_holds_the_row_and_nothing_known(entries: list[RegionLocations], row: bytes) -> None:
    snapshot = with_regions(EMPTY, entries)
    start, end = snapshot.gap(row)
    assert keys.contains(start, end, row)
    known = snapshot.covering(row)
    if known is not None:
        assert (start, end) == (known.region.start_key, known.region.end_key)
    else:
        assert not any(keys.overlaps(start, end, *bounds) for bounds in ranges(snapshot))


@pytest.mark.parametrize(
    ("row", "start"), [(b"g", b""), (b"gz", b"g"), (b"\0", b""), (b"", b"t"), (b"m", b"g"), (b"zz", b"t")]
)
def test_region_before_a_row(row: bytes, start: bytes) -> None:
    """With regions '', g, m, t."""
    bounds = [b"", b"g", b"m", b"t", b""]
    snapshot = with_regions(EMPTY, [placed(region(*pair), "a") for pair in pairwise(bounds)])
    found = snapshot.before(row)
    assert found is not None
    assert found.region.start_key == start


def test_before_the_end_needs_the_last_region_and_not_the_last_known_one() -> None:
    """HBASE-20822."""
    assert with_regions(EMPTY, [placed(region(b"", b"g"), "a")]).before(b"") is None


def test_page_for_one_failed_region_does_not_reach_beyond_the_holes() -> None:
    snapshot = with_regions(EMPTY, [numbered(n, n + 1, host=None if n in (20, 90) else "a") for n in range(100)])
    assert snapshot.rows_to_lowest_hole(b"0090", 50) == 1
    assert snapshot.rows_to_lowest_hole(b"0090", 1_000) == 71
    assert snapshot.rows_to_lowest_hole(b"0020", 1_000) == 1


# ---- what is lost, moved, confirmed


def test_region_moved_of_the_primary_keeps_the_secondaries(cache: LocationCache) -> None:
    entry = placed(region(), "a", "b", "c")
    cache.insert(TABLE, [entry])
    assert cache.moved(entry.replicas[0], server("d"), 9)  # type: ignore[arg-type]  # it is placed
    assert hosts(cache.cached_region(TABLE, b"x")) == ["d", "b", "c"]


def test_region_moved_of_a_secondary_keeps_the_primary(cache: LocationCache) -> None:
    entry = placed(region(), "a", "b", "c")
    cache.insert(TABLE, [entry])
    assert cache.moved(entry.replicas[1], server("d"), 9)  # type: ignore[arg-type]  # it is placed
    assert hosts(cache.cached_region(TABLE, b"x")) == ["a", "d", "c"]


def test_replicas_that_arrive_one_by_one_are_all_kept(cache: LocationCache) -> None:
    info = region()
    for entry in (placed(info, "a"), placed(info, None, "b"), placed(info, None, None, "c")):
        cache.insert(TABLE, [entry])
    assert hosts(cache.cached_region(TABLE, b"x")) == ["a", "b", "c"]


def test_error_at_an_older_or_other_location_clears_nothing(cache: LocationCache) -> None:
    cache.insert(TABLE, [placed(region(), "a", seqnum=9)])
    assert not cache.forget(RegionLocation(region(), server("a"), 8))
    assert not cache.forget(RegionLocation(region(), server("b"), 9))
    assert cache.forget(RegionLocation(region(), server("a"), 9))
    assert hosts(cache.cached_region(TABLE, b"x")) == [None]


def test_error_of_a_split_parent_does_not_clear_its_daughter_on_the_same_server(cache: LocationCache) -> None:
    cache.insert(TABLE, [placed(region(b"", b"m", 2), "a", seqnum=2)])
    assert not cache.forget(RegionLocation(region(b"", b"", 1), server("a"), 9))


def test_region_moved_with_an_older_sequence_number_is_not_followed(cache: LocationCache) -> None:
    entry = placed(region(), "a", seqnum=9)
    cache.insert(TABLE, [entry])
    assert not cache.moved(RegionLocation(region(), server("a"), 9), server("d"), 8)
    assert hosts(cache.cached_region(TABLE, b"x")) == ["a"]


def test_hint_becomes_a_fact_when_a_call_there_works_or_meta_says_the_same(cache: LocationCache) -> None:
    entry = placed(region(), "a")
    for settle in ("call", "meta"):
        cache.clear()
        cache.insert(TABLE, [entry])
        cache.moved(entry.replicas[0], server("d"), 9)  # type: ignore[arg-type]  # it is placed
        hint = cache.cached(TABLE, b"x")
        assert hint is not None
        assert hint.is_hint
        if settle == "call":
            cache.confirm(hint)
        else:
            cache.insert(TABLE, [placed(region(), "d", seqnum=9)])
        fact = cache.cached(TABLE, b"x")
        assert fact is not None
        assert (fact.is_hint, fact.server) == (False, server("d"))


def test_answer_from_before_a_failure_does_not_bring_the_failed_location_back(cache: LocationCache) -> None:
    entry = placed(region(), "a", "b")
    cache.insert(TABLE, [entry])
    began = cache.generation
    cache.forget(entry.replicas[0])  # type: ignore[arg-type]  # it is placed
    cache.insert(TABLE, [entry], began)
    assert hosts(cache.cached_region(TABLE, b"x")) == [None, "b"]
    cache.insert(TABLE, [placed(region(), "c", "b", seqnum=6)], began)
    assert hosts(cache.cached_region(TABLE, b"x")) == ["c", "b"]  # a newer place is news even from an old lookup
    cache.forget(RegionLocation(region(), server("c"), 6))
    cache.insert(TABLE, [entry], cache.generation)
    assert hosts(cache.cached_region(TABLE, b"x")) == ["a", "b"]  # meta was asked after the failure


def test_answer_from_before_a_clear_brings_nothing_back(cache: LocationCache) -> None:
    began = cache.generation
    cache.table(TABLE)
    cache.clear(TABLE)
    cache.insert(TABLE, [placed(region(), "a")], began)
    assert cache.cached_region(TABLE, b"x") is None
    cache.insert(TABLE, [placed(region(), "a")], cache.generation)
    assert cache.cached_region(TABLE, b"x") is not None


def test_clearing_a_server_makes_holes_of_its_locations_only(cache: LocationCache) -> None:
    cache.insert(TABLE, [placed(region(b"", b"m"), "a", "b"), placed(region(b"m", b""), "b", "a")])
    cache.insert(b"u", [placed(region(table=b"u"), "a")])
    assert cache.forget_server(server("a")) == 3
    assert hosts(cache.cached_region(TABLE, b"c")) == [None, "b"]
    assert hosts(cache.cached_region(TABLE, b"z")) == ["b", None]
    assert hosts(cache.cached_region(b"u", b"z")) == [None]
    assert cache.forget_server(server("a")) == 0
    known = cache.tables[TABLE].snapshot
    assert known.primaries == [entry.primary for entry in known.regions]


def test_failures_of_regions_that_are_gone_do_not_pile_up(cache: LocationCache) -> None:
    for number in range(2_000):
        entry = numbered(number % 50 * 2, number % 50 * 2 + 1 + number % 2, region_id=number)
        cache.insert(TABLE, [entry], cache.generation)
        assert cache.forget(entry.replicas[0])  # type: ignore[arg-type]  # it is placed
    assert len(cache.tables[TABLE].failed) <= FAILED_PER_REGION * 51


# ---- the bound


def test_cache_stays_within_its_bound_and_drops_what_nobody_reads() -> None:
    """The bound is kept with a clock instead of a list in order of use."""
    with SimRuntime() as runtime:
        cache = LocationCache(runtime, regions_max=100)
        for name in (b"t1", b"t2", b"t3"):
            cache.insert(name, [numbered(n, n + 1, table=name) for n in range(40)])
            cache.tables[name].hits += {b"t1": 50, b"t2": 0, b"t3": 9}[name]
        assert cache.regions_cached() == 80
        assert cache.cached_region(b"t1", b"0001") is not None
        assert cache.cached_region(b"t2", b"0001") is None
        assert cache.evictions == 40


def test_million_regions_visited_leave_the_cache_bounded() -> None:
    """Here 200,000 regions of 200 tables and a bound of 5,000."""
    with SimRuntime() as runtime:
        cache = LocationCache(runtime, regions_max=5_000)
        for number in range(200):
            name = b"t%03d" % number
            cache.insert(name, [numbered(n, n + 1, table=name) for n in range(1_000)])
            assert cache.regions_cached() <= 5_000
        assert cache.regions_cached() == sum(len(one.snapshot.regions) for one in cache.tables.values())


def test_table_larger_than_the_cache_keeps_what_it_has_just_learned() -> None:
    with SimRuntime() as runtime:
        cache = LocationCache(runtime, regions_max=10)
        for start in range(0, 100, 5):
            cache.insert(TABLE, [numbered(n, n + 1) for n in range(start, start + 5)])
            assert cache.cached_region(TABLE, b"%04d" % (start + 2)) is not None
            assert cache.regions_cached() <= 10
        cache.insert(TABLE, [numbered(n, n + 1) for n in range(50)])
        assert cache.regions_cached() == 10


# ---- which errors say that a location is wrong


@pytest.mark.parametrize(
    "error",
    [
        RegionTooBusy("busy"),
        Throttled("slow down", wait_s=1.0),
        Overloaded("too large"),
        CallQueueTooBig("full"),
        RequestRefused("no"),
        CallTimeout("slow"),
    ],
    ids=lambda error: type(error).__name__,
)
def test_error_that_says_nothing_about_the_place_keeps_it(error: MetaClientError) -> None:
    """As HBase's TestMetaCache; a time-out keeps the entry as well, unlike in HBase."""
    with rig(meta_replicas=1) as r:
        place = r.locate(b"a")
        r.locator.on_error(place, error)
        assert r.locate(b"a") is place
        assert r.connection.stats()["cache"]["lost"] == 0


def test_not_serving_drops_the_location() -> None:
    """NSRE drops it (TestMetaCache)."""
    with rig(meta_replicas=1) as r:
        place = r.locate(b"a")
        r.locator.on_error(place, NotServingRegion("gone"))
        assert r.locator.cache.cached(TABLE, b"a") is None
        assert r.connection.stats()["cache"]["lost"] == 1


def test_third_time_out_in_a_row_asks_meta_again_without_a_stale_mark() -> None:
    with rig() as r:
        place = r.locate(b"a")
        for _ in range(3):
            r.locator.on_error(place, CallTimeout("slow"))
        r.locate(b"a")
        assert (r.reads(), r.reads(0)) == (2, 0)


def test_region_moved_without_a_readable_target_is_a_plain_not_serving() -> None:
    """Broken text -> NSRE handling."""
    with rig() as r:
        place = r.locate(b"a")
        r.locator.on_error(place, RegionMoved("Region moved to: ???"))
        assert r.locator.cache.cached(TABLE, b"a") is None
        r.locate(b"a")
        assert r.reads(0) == 1


def test_hundred_tasks_that_hear_of_one_failure_remove_it_once() -> None:
    """HBASE-23155."""
    with ThreadRuntime() as runtime:
        backend = ScriptedBackend(runtime)
        backend.add_table(TABLE)
        with connect_to(backend, runtime=runtime) as connection:
            place = connection.locate(TABLE, b"a")
            error = NotServingRegion("gone")
            tasks = [runtime.start(connection.engine.locator.on_error, place, error) for _ in range(100)]
            for task in tasks:
                task.result(runtime.now() + 60)
            assert connection.stats()["cache"]["lost"] == 1


def test_stopped_server_is_swept_out_of_the_cache_once_and_not_by_each_of_its_regions() -> None:
    """Each sweep walks over all that is cached: a thousand failed calls must not make a thousand of them."""
    with rig(splits=[b"%03d" % n for n in range(1, 300)], meta_replicas=1) as r:
        r.connection.warm_up(TABLE)
        places = [r.locate(b"%03d" % n) for n in range(300)]
        dead = [place for place in places if place.server == r.backend.servers[0]]
        sweeps = []
        sweep = r.locator.cache.forget_server
        r.locator.cache.forget_server = lambda gone: sweeps.append(gone) or sweep(gone)  # type: ignore[method-assign]
        for place in dead:
            r.locator.on_error(place, ServerStopped("going down"))
        assert len(dead) == 100
        assert sweeps == [r.backend.servers[0]]


# ---- shipping it


def test_exported_locations_come_back_the_same(cache: LocationCache) -> None:
    cache.insert(TABLE, [placed(region(b"", b"\xff\0"), "a", None, "c"), placed(region(b"\xff\0", b""), "b")])
    with SimRuntime() as runtime:
        other = LocationCache(runtime, regions_max=10)
        assert import_locations(other, export_locations(cache, [])) == 2
        assert other.tables[TABLE].snapshot == cache.tables[TABLE].snapshot


def test_import_does_not_replace_what_is_newer(cache: LocationCache) -> None:
    cache.insert(TABLE, [placed(region(), "old", seqnum=5)])
    data = export_locations(cache, [TABLE])
    cache.insert(TABLE, [placed(region(), "new", seqnum=6)])
    import_locations(cache, data)
    assert hosts(cache.cached_region(TABLE, b"x")) == ["new"]


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\xff\xfe",
        b"[]",
        b"null",
        b'{"format": 2, "tables": {}}',
        b'{"format": 1}',
        b'{"format": 1, "tables": {"t": [["zz", "", 1, []]]}}',
        b'{"format": 1, "tables": {"t": [["62", "61", 1, []]]}}',
        b'{"format": 1, "tables": {"t": [["", "", 1, [["a", Infinity, 1, 1]]]]}}',
        b'{"format": 1, "tables": {"t": [["", "", 1, 7]]}}',
        b'{"format": 1, "tables": {"no,such,name": []}}',
        b"[" * 100_000,
    ],
)
def test_import_of_something_else_is_refused_and_takes_in_nothing(cache: LocationCache, data: bytes) -> None:
    with pytest.raises(ConfigError):
        import_locations(cache, data)
    assert not cache.tables


@given(st.recursive(st.none() | st.integers() | st.text() | st.floats(), lambda inner: st.lists(inner, max_size=5)))
def test_import_of_any_json_raises_nothing_but_config_error(regions: object) -> None:
    with SimRuntime() as runtime:
        cache = LocationCache(runtime, regions_max=10)
        try:
            import_locations(cache, json.dumps({"format": 1, "tables": {"t": [regions]}}).encode())
        except ConfigError:
            assert not cache.tables


def test_unknown_table_exports_nothing(cache: LocationCache) -> None:
    assert json.loads(export_locations(cache, [b"none"]))["tables"] == {}


def test_inlined_search_of_locate_finds_what_the_cache_finds() -> None:
    """``Connection.locate`` repeats the search of ``cached_primary`` without its call: the two must not part."""
    with rig(splits=[b"d", b"h", b"m"]) as r:
        r.connection.warm_up(TABLE)
        known = r.locator.cache.table(TABLE)
        reads = r.reads()
        for row in (b"", b"a", b"d", b"d\x00", b"g\xff", b"h", b"l", b"m", b"zz"):
            place = known.cached_primary(row)
            assert place is not None
            assert r.locate(row) is place
            assert place.region.contains(row)
        assert r.reads() == reads
        lost = known.cached_primary(b"h")
        assert lost is not None
        r.locator.cache.forget(lost)
        assert known.cached_primary(b"i") is None  # a hole: both leave it to a lookup
        assert r.locate(b"i").region.contains(b"i")
        assert r.reads() == reads + 1
        first = r.locator.cache.cached_region(TABLE, b"a")
        assert first is not None
        r.locator.cache.clear(TABLE)
        r.locator.cache.insert(TABLE, [first])
        assert known.cached_primary(b"d") is None  # the end of a region is not in it
        assert r.locate(b"d").region.contains(b"d")
        assert r.reads() == reads + 2
