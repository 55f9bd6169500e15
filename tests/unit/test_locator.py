"""Looking up rows: what a page means, one flight per region, prefetch, listings, and what failed calls teach."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

from metaclient import keys
from metaclient.backend import MetaPage, MetaRow, MetaScan
from metaclient.connection import connect_to
from metaclient.errors import (
    ConnectionClosed,
    DeadlineExceeded,
    LocationUnknown,
    MetaClientError,
    NoSuchReplica,
    NotServingRegion,
    RegionMoved,
    RegionOffline,
    RegionOpening,
    RetriesExhausted,
    ServerUnreachable,
    TableDisabled,
    TableNotFound,
    WrongRegion,
)
from metaclient.lookup.pages import Located, listed, located
from metaclient.meta import Lookup
from metaclient.model import RegionInfo, RegionLocation, RegionLocations
from metaclient.runtime import ThreadRuntime
from metaclient.testing import ScriptedBackend
from tests.unit.meta_rig import NOWHERE, TABLE, hosts, page_of, placed, region, rig, row_of, without_columns

NINE = [b"%d" % n for n in range(1, 9)]  # nine regions: '', 1, ..., 8


def parent_of(start: bytes, end: bytes) -> RegionLocations:
    return placed(RegionInfo(TABLE, start, end, 1, 0, True, True), "a")


def meaning(page: MetaPage, row: bytes, *, before: bool = False) -> Located | MetaClientError:
    return located(page, Lookup(TABLE, row, before))


# ---- what a page means


def test_first_acceptable_row_is_the_answer_and_the_rest_are_neighbours() -> None:
    found = meaning(page_of(placed(region(b"g", b"m"), "a"), placed(region(b"", b"g"), "b")), b"h")
    assert isinstance(found, Located)
    assert found.entry.region.start_key == b"g"
    assert [entry.region.start_key for entry in found.neighbours] == [b""]


def test_no_rows_are_no_such_table() -> None:
    assert isinstance(meaning(MetaPage(()), b"h"), TableNotFound)


def test_split_parent_is_passed_over() -> None:
    found = meaning(
        page_of(placed(region(b"g", b"m", 2), "a"), parent_of(b"g", b"z"), placed(region(b"", b"g"), "b")), b"h"
    )
    assert isinstance(found, Located)
    assert [entry.region.start_key for entry in (found.entry, *found.neighbours)] == [b"g", b""]


def test_only_split_parents_are_not_a_missing_table() -> None:
    """An error that is tried again, not TableNotFound."""
    assert isinstance(meaning(page_of(parent_of(b"", b"")), b"h"), LocationUnknown)


def test_gap_where_daughters_are_missing_is_a_hole() -> None:
    """The lookup goes on downwards and finds no region that holds the row."""
    found = meaning(page_of(parent_of(b"g", b"z"), placed(region(b"", b"g"), "b")), b"h")
    assert isinstance(found, LocationUnknown)


def test_region_that_does_not_contain_the_row_is_no_answer() -> None:
    assert isinstance(meaning(page_of(placed(region(b"a", b"c"), "a")), b"h"), LocationUnknown)


def test_row_of_another_table_is_no_answer() -> None:
    assert isinstance(meaning(page_of(placed(region(table=b"u"), "a")), b"h"), LocationUnknown)


def test_row_that_lies_about_its_own_name_is_no_answer() -> None:
    """Broken rows give no location."""
    honest = row_of(placed(region(b"g", b"m"), "a"))
    assert isinstance(meaning(MetaPage((MetaRow(b"t,g,99.x.", honest.columns),)), b"h"), LocationUnknown)


@pytest.mark.parametrize("column", [b"info:regioninfo", b"info:server", b"info:serverstartcode"])
def test_torn_row_gives_no_primary(column: bytes) -> None:
    """Missing start code, broken PBUF."""
    found = meaning(without_columns(page_of(placed(region(), "a")), column), b"h")
    assert isinstance(found, LocationUnknown) or (isinstance(found, Located) and found.entry.primary is None)


def test_neighbours_that_are_offline_or_unplaced_are_not_cached() -> None:
    """Null server not cached, offline and split parents not cached."""
    offline = placed(RegionInfo(TABLE, b"b", b"c", 1, 0, True), "a")
    page = page_of(
        placed(region(b"d", b""), "a"), placed(region(b"c", b"d"), None), offline, placed(region(b"a", b"b"), "a")
    )
    found = meaning(page, b"h")
    assert isinstance(found, Located)
    assert [entry.region.start_key for entry in found.neighbours] == [b"a"]


def test_neighbour_with_an_unplaced_secondary_is_cached() -> None:
    """``server_0001`` may be empty for a while after a table was made."""
    found = meaning(page_of(placed(region(b"d", b""), "a"), placed(region(b"", b"d"), "a", None)), b"h")
    assert isinstance(found, Located)
    assert len(found.neighbours) == 1


@pytest.mark.parametrize(
    ("row", "before", "start"),
    [
        *[(b"", False, b""), (b"a", False, b""), (b"g", False, b"g"), (b"gz", False, b"g"), (b"zz", False, b"t")],
        *[(b"a,b", False, b""), (b"g", True, b""), (b"gz", True, b"g"), (b"\0", True, b""), (b"", True, b"t")],
        *[(b"m\0", True, b"m"), (b"g\0", False, b"g")],
    ],
)
def test_search_finds_the_region_of_every_kind_of_key(row: bytes, before: bool, start: bytes) -> None:
    """With regions '', g, m, t; keys with commas and zero bytes, too."""
    with rig(splits=[b"g", b"m", b"t"], meta_replicas=1) as r:
        for _ in range(2):  # from meta, then from the cache
            entry = r.locator.locate_region(TABLE, row, deadline=r.deadline(), before=before)
            assert entry.region.start_key == start
        assert r.reads() == 1


def test_tables_whose_names_begin_alike_are_not_mixed_up() -> None:
    """Commas and zero bytes in keys, ``t-y`` and ``t.x`` beside ``t``."""
    with rig(splits=[b"\0", b"a", b"a\0", b"a\0\0", b"a,b"], meta_replicas=1) as r:
        for name in (b"t-y", b"t.x", b"s", b"t1"):
            r.backend.add_table(name)
        for row, start in [
            (b"", b""),
            (b"\0", b"\0"),
            (b"a", b"a"),
            (b"a\0", b"a\0"),
            (b"a\0\1", b"a\0\0"),
            (b"a,b", b"a,b"),
            (b"a,a", b"a\0\0"),
        ]:
            r.locator.cache.clear()
            assert r.locate(row).region.start_key == start
        for name in (b"t-y", b"t.x", b"s", b"t1"):
            assert r.locate(b"x", name).region.table == name
            assert len(r.connection.regions(name)) == 1
        assert len(r.connection.regions(TABLE)) == 6


# ---- listings


def listing(page: MetaPage, start: bytes = b"", *, is_last: bool = True) -> object:
    return listed(page, TABLE, expected_start=start, is_last=is_last)


def test_listing_passes_over_split_parents_at_both_ends_of_a_page() -> None:
    first = page_of(
        parent_of(b"", b"m"),
        placed(region(b"", b"c", 2), "a"),
        placed(region(b"c", b"m", 2), "a"),
        parent_of(b"m", b""),
    )
    second = page_of(placed(region(b"m", b"t", 2), "a"), placed(region(b"t", b"", 2), "a"))
    assert len(listing(first, is_last=False)) == 2  # type: ignore[arg-type]  # a tuple
    assert len(listing(second, b"m")) == 2  # type: ignore[arg-type]  # a tuple


@pytest.mark.parametrize(
    ("page", "start", "kind"),
    [
        (MetaPage(()), b"", TableNotFound),
        (MetaPage(()), b"m", LocationUnknown),
        (page_of(parent_of(b"", b"")), b"", LocationUnknown),
        (page_of(placed(region(b"", b"m"), "a")), b"", LocationUnknown),
        (page_of(placed(region(b"m", b""), "a")), b"", LocationUnknown),
        (page_of(placed(region(b"", b"c"), "a"), placed(region(b"m", b""), "a")), b"", LocationUnknown),
        (page_of(placed(region(), None)), b"", RegionOffline),
        (page_of(placed(region(table=b"u"), "a")), b"", LocationUnknown),
    ],
)
def test_listing_with_a_hole_is_not_taken_for_the_whole_table(
    page: MetaPage, start: bytes, kind: type[MetaClientError]
) -> None:
    assert isinstance(listing(page, start), kind)


@pytest.mark.parametrize("caching", [1, 2, 3, 7, 1000])
def test_pages_of_a_listing_lose_and_repeat_nothing_when_parents_stand_at_their_borders(caching: int) -> None:
    """HBASE-26942, with split parents still in meta."""
    with rig(splits=NINE, meta_scan_caching=caching) as r:
        for at in (b"05", b"1", b"35", b"36", b"85"):
            if at not in NINE:
                r.backend.split(TABLE, at, keeps_parent=True)
        regions = r.connection.regions(TABLE)
        starts = [entry.region.start_key for entry in regions]
        assert starts == [b"", b"05", b"1", b"2", b"3", b"35", b"36", b"4", b"5", b"6", b"7", b"8", b"85"]
        reads = r.reads()
        for start in starts:
            r.locate(start)
        assert r.reads() == reads
        assert r.reads(0) == 0


def test_listing_at_the_primary_shows_a_region_on_the_move_and_does_not_cache_a_place_for_it() -> None:
    with rig(splits=NINE) as r:
        r.backend.unplace(TABLE, b"3")
        regions = r.connection.regions(TABLE)
        assert [entry.primary is None for entry in regions] == [entry.region.start_key == b"3" for entry in regions]
        assert r.locator.cache.cached(TABLE, b"3") is None
        assert r.locator.cache.cached(TABLE, b"4") is not None


def test_warm_up_pages_through_secondaries() -> None:
    """As HBase's TestMetaRegionReplicaReplication."""
    with rig(splits=[b"%03d" % n for n in range(1, 200)], meta_scan_caching=10) as r:
        pages: list[int] = []
        assert r.connection.warm_up(TABLE, on_page=pages.append) == 200
        assert pages == list(range(10, 201, 10))
        assert r.reads(0) == 0
        assert abs(r.reads(1) - r.reads(2)) <= 1


@pytest.mark.parametrize("how", ["dies", "hangs", "forgets"])
def test_warm_up_goes_on_at_another_replica_when_one_dies_in_the_middle(how: str) -> None:
    """A replica is killed in mid-scan: the scan completes, without a duplicate region."""
    with rig(splits=[b"%03d" % n for n in range(1, 200)], meta_scan_caching=10) as r:

        def on_page(count: int) -> None:
            if count == 100:
                rule = r.backend.on("read_meta", replica=1)
                {"dies": lambda: rule.raises(ServerUnreachable("refused")), "hangs": rule.hangs}.get(
                    how, lambda: rule.answers(MetaPage(()))
                )()

        assert r.connection.warm_up(TABLE, on_page=on_page) == 200
        starts = [entry.region.start_key for entry in r.connection.regions(TABLE)]
        assert starts == [b"", *(b"%03d" % n for n in range(1, 200))]
        assert r.runtime.now() < 5.0


def test_warm_up_in_a_short_page_from_a_replica_is_not_the_end_of_the_table() -> None:
    with rig(splits=NINE, meta_scan_caching=5) as r:
        for replica in (1, 2):
            r.backend.on("read_meta", replica=replica).answers(
                lambda scan: MetaPage(r.backend.true_page(scan).rows[:3])
            )
        assert r.connection.warm_up(TABLE) == 9


def test_listing_never_ends_in_a_loop_on_a_backend_that_repeats_itself() -> None:
    with rig(meta_replicas=1, operation_timeout_s=5.0, meta_scan_caching=1) as r:
        r.backend.on("read_meta").answers(page_of(placed(region(b"", b"m"), "a")))
        with pytest.raises(MetaClientError):
            r.connection.regions(TABLE)
        assert r.runtime.now() <= 5.1


def test_exported_locations_cost_a_fresh_connection_no_lookup() -> None:
    """The second process needs no meta lookup."""
    with rig(splits=[b"%03d" % n for n in range(1, 500)]) as r:
        r.connection.warm_up(TABLE)
        data = r.connection.export_locations()
        with connect_to(r.backend, runtime=r.runtime, owns_backend=False) as other:
            assert other.import_locations(data) == 500
            r.backend.calls.clear()
            for n in range(500):
                other.locate(TABLE, b"%03d" % n)
            assert (r.reads(), r.backend.count("meta_replicas")) == (0, 0)


# ---- kinds of lookups


@pytest.mark.parametrize("mode", ["None", "LoadBalance", "HedgedRead"])
def test_unknown_table_is_not_found_by_any_kind_of_lookup(mode: str) -> None:
    """As HBase's TestAsyncNonMetaRegionLocator."""
    with rig(meta_mode=mode) as r:
        for row in (b"", b"a", b"a\0"):
            with pytest.raises(TableNotFound):
                r.locate(row, b"none")
            with pytest.raises(TableNotFound):
                r.before(row, b"none")
        with pytest.raises(TableNotFound):
            r.connection.regions(b"none")
        assert b"none" not in r.locator.cache.tables


def test_disabled_table_is_located_as_meta_has_it() -> None:
    """No hang; its rows keep their servers (TestAsyncNonMetaRegionLocator)."""
    with rig() as r:
        r.connection.disable_table(TABLE)
        assert r.locate(b"a").region.table == TABLE


def test_single_region_answers_every_kind_of_lookup() -> None:
    """As HBase's TestAsyncNonMetaRegionLocator (HBASE-21961)."""
    with rig() as r:
        place = r.locate(b"")
        for row in (b"", b"\0", b"abc", b"\xff" * 20):
            assert r.locate(row) is place
            assert r.locate(row + b"\0") is place
            assert r.before(row).primary is place
        assert r.reads() == 1


def test_nine_regions_answer_start_keys_and_end_keys_twice() -> None:
    """As HBase's TestAsyncNonMetaRegionLocator."""
    with rig(splits=NINE, locate_prefetch=1, locate_prefetch_max=1) as r:
        for _ in range(2):
            for start in (b"", *NINE):
                assert r.locate(start).region.start_key == start
                assert r.locate(start + b"\0").region.start_key == start
            for end in (*NINE, b""):
                assert r.before(end).region.end_key == end
        assert r.reads() == 9


def test_row_after_a_split_key_is_in_the_second_region_and_comes_from_the_cache() -> None:
    """AFTER(row) is CURRENT(row + zero byte) (TestAsyncNonMetaRegionLocator)."""
    with rig(splits=[b"m\0"]) as r:
        first, second = r.locate(b"m"), r.locate(b"m\0")
        assert (first.region.end_key, second.region.start_key) == (b"m\0", b"m\0")
        assert r.locate(b"m\0") is second


def test_last_region_is_found_although_only_others_are_cached() -> None:
    """HBASE-20822."""
    with rig(splits=NINE, locate_prefetch=1, locate_prefetch_max=1) as r:
        r.locate(b"3")
        assert r.before(b"").region.start_key == b"8"


def test_move_is_not_noticed_until_a_call_fails() -> None:
    """As HBase's TestAsyncNonMetaRegionLocator."""
    with rig() as r:
        place = r.locate(b"a")
        target = r.backend.servers[2]
        r.backend.move(TABLE, b"a", target)
        assert r.locate(b"a") is place
        r.locator.on_error(place, NotServingRegion("gone"))
        assert r.locate(b"a").server == target


def test_reload_sees_the_move_and_replaces_the_cached_place() -> None:
    """As HBase's TestAsyncNonMetaRegionLocator."""
    with rig() as r:
        place = r.locate(b"a")
        target = r.backend.servers[2]
        r.backend.move(TABLE, b"a", target)
        assert r.locate(b"a") is place
        assert r.locate(b"a", reload=True).server == target
        assert r.locate(b"a").server == target


def test_reload_of_a_cached_place_reads_one_row_of_meta_and_not_a_page() -> None:
    with rig(splits=NINE) as r:
        r.connection.warm_up(TABLE)
        r.backend.calls.clear()
        known = [r.locate(row, reload=True) for row in (b"9", b"5", b"5", b"1")]
        scans = [call.argument for call in r.backend.calls if call.method == "read_meta"]
        assert [(scan.start_row, scan.stop_row) for scan in scans] == [(one.region_name,) * 2 for one in known]


def test_reload_of_a_region_that_was_merged_away_reads_the_page() -> None:
    with rig(splits=[b"m"], meta_replicas=1) as r:
        r.connection.warm_up(TABLE)
        r.backend.merge(TABLE, b"a", b"z")
        r.backend.calls.clear()
        assert r.locate(b"z", reload=True).region == r.backend.region_of(TABLE, b"z").region
        assert [call.argument.limit for call in r.backend.calls if call.method == "read_meta"] == [1, 10]


def test_reload_after_the_table_was_dropped_says_that_there_is_no_table() -> None:
    with rig(splits=[b"m"]) as r:
        r.connection.warm_up(TABLE)
        r.backend.disable_table(TABLE, r.deadline())
        r.backend.delete_table(TABLE, r.deadline())
        with pytest.raises(TableNotFound):
            r.locate(b"z", reload=True)


def test_reload_of_a_replica_that_was_removed_says_so() -> None:
    with rig(splits=[b"m"], region_replication=2, meta_replicas=1) as r:
        r.locate(b"a", replica_id=1)
        primary = r.locate(b"a")
        r.backend.on("read_meta").answers(page_of(RegionLocations(primary.region, (primary,))))
        with pytest.raises(NoSuchReplica, match="has replica 0 only"):
            r.locate(b"a", replica_id=1, reload=True)


def test_reload_after_a_failure_reads_the_neighbours_that_failed_too() -> None:
    with rig(splits=NINE) as r:
        r.connection.warm_up(TABLE)
        for row in (b"5", b"4"):
            r.locator.on_error(r.locate(row), NotServingRegion("gone"))
        r.backend.calls.clear()
        r.locate(b"5", reload=True)
        r.locate(b"4")
        assert [call.argument.limit for call in r.backend.calls if call.method == "read_meta"] == [10]


def test_reload_whose_one_row_is_a_split_parent_reads_the_page() -> None:
    with rig(splits=[b"m"], meta_replicas=1) as r:
        place = r.locate(b"a")
        parent = replace(place.region, is_split_parent=True, is_offline=True)
        r.backend.on("read_meta", times=1).answers(page_of(RegionLocations(parent, (place,))))
        r.backend.calls.clear()
        assert r.locate(b"a", reload=True).server == place.server
        assert [call.argument.limit for call in r.backend.calls if call.method == "read_meta"] == [1, 10]


def test_reload_of_a_split_region_finds_the_daughter_of_the_row() -> None:
    for row in (b"a", b"f", b"z"):
        with rig(splits=[b"m"]) as r:
            r.connection.warm_up(TABLE)
            r.backend.split(TABLE, b"f", keeps_parent=True)
            found = r.locate(row, reload=True).region
            assert found.contains(row)
            assert not found.is_split_parent
            assert found == r.backend.region_of(TABLE, row).region


def test_reload_at_a_lagging_secondary_after_a_merge_is_confirmed_at_the_primary() -> None:
    with rig(splits=[b"m"], meta_mode="LoadBalance") as r:
        r.connection.warm_up(TABLE)
        r.backend.freeze_meta(1)
        r.backend.freeze_meta(2)
        r.backend.merge(TABLE, b"a", b"z")
        r.locator.cache.insert(TABLE, [r.backend.region_of(TABLE, b"a")])
        assert r.locate(b"z", reload=True).region == r.backend.region_of(TABLE, b"z").region


def test_reload_asks_meta_although_all_flights_of_the_table_are_taken() -> None:
    """A reload that waited for somebody else's flight must not be satisfied with the old cached place."""
    with rig(splits=NINE, locate_concurrency=1, locate_prefetch=1, locate_prefetch_max=1, latency_s=0.01) as r:
        place = r.locate(b"1")
        target = next(one for one in r.backend.servers if one != place.server)
        r.backend.move(TABLE, b"1", target)
        other = r.runtime.start(r.locate, b"5")
        r.runtime.run_for(0.001)
        assert r.locate(b"1", reload=True).server == target
        assert other.result().region.start_key == b"5"


def test_lagging_secondary_does_not_turn_a_newer_place_back_on_reload() -> None:
    with rig(meta_replicas=2, meta_mode="LoadBalance") as r:
        r.backend.freeze_meta(1)
        place = r.locate(b"a")
        newer = r.backend.move(TABLE, b"a", r.backend.servers[2])
        r.locator.on_error(place, RegionMoved("moved", server=newer.server, seqnum=newer.seqnum))
        assert r.locate(b"a", reload=True).server == newer.server


def test_replicas_of_a_region_are_found_together_and_lost_one_by_one() -> None:
    """As HBase's TestAsyncNonMetaRegionLocator.testLocator."""
    with rig(region_replication=3) as r:
        places = [r.locate(b"a", replica_id=number) for number in range(3)]
        assert len({place.server for place in places}) == 3
        assert r.reads() == 1
        r.backend.move(TABLE, b"a", places[0].server, replica_id=1)
        r.backend.move(TABLE, b"a", places[0].server, replica_id=2)
        r.locator.on_error(places[1], NotServingRegion("gone"))
        assert r.locate(b"a") is places[0]
        assert r.locate(b"a", replica_id=2) is places[2]
        assert r.locate(b"a", replica_id=1).server == places[0].server
        assert r.locate(b"a", replica_id=2).server == places[0].server  # the lookup brought it along
        assert r.reads() == 2


def test_replica_that_does_not_exist_fails_at_once_and_the_region_is_cached_all_the_same() -> None:
    with rig(region_replication=3) as r:
        with pytest.raises(NoSuchReplica, match=r"no replica 7 of row 'a' .* its region has replicas 0 to 2"):
            r.locate(b"a", replica_id=7)
        reads = r.reads()
        r.locate(b"a")
        assert r.reads() == reads


def test_unknown_replica_of_any_read_fails_at_once() -> None:
    with rig(region_replication=3, latency_s=0.001) as r:
        table = r.connection.table(TABLE)
        for read in (
            lambda: table.row(b"a", consistency="TIMELINE", replica_id=7),
            lambda: table.rows([b"a", b"z"], consistency="TIMELINE", replica_id=7),
            lambda: list(table.scan(consistency="TIMELINE", replica_id=7)),
            lambda: r.connection.locate(TABLE, b"a", replica_id=7),
            lambda: list(r.connection.table("hbase:meta").scan(consistency="TIMELINE", replica_id=7)),
        ):
            with pytest.raises(MetaClientError) as caught:
                read()
            failed = getattr(caught.value, "failed", {b"": caught.value})
            assert {type(error) for error in failed.values()} == {NoSuchReplica}
        assert r.runtime.now() < 1.0


def test_replica_that_waits_for_a_server_is_waited_for() -> None:
    """Only a replica that hbase:meta does not have at all is final; one without a server may get one."""
    with rig(region_replication=2, retries=2) as r:
        r.backend.unplace(TABLE, b"a", replica_id=1)
        with pytest.raises(RetriesExhausted) as caught:
            r.locate(b"a", replica_id=1)
        assert len(caught.value.attempts) == 3


# ---- one flight per region


def test_many_rows_of_one_region_of_a_cold_table_cost_one_call() -> None:
    """asynchbase (its issue 162) needs one meta lookup per new key."""
    with rig(latency_s=0.01) as r:
        places = r.at_once(*(b"%04d" % n for n in range(500)))
        assert len({id(place) for place in places}) == 1
        assert r.reads() == 1


def test_many_tasks_after_not_serving_of_a_known_region_cost_one_call() -> None:
    with rig(splits=NINE, latency_s=0.01) as r:
        r.connection.warm_up(TABLE)
        place = r.locate(b"3")
        r.backend.move(TABLE, b"3", next(one for one in r.backend.servers if one != place.server))
        r.backend.calls.clear()
        for _ in range(100):
            r.locator.on_error(place, NotServingRegion("gone"))
        found = r.at_once(*(b"3%03d" % n for n in range(100)))
        assert all(one.server != place.server for one in found)
        assert (r.reads(), r.reads(0)) == (1, 1)


def test_lookups_in_flight_never_exceed_the_limit_and_all_are_right() -> None:
    """256 rows, limit 2 (TestAsyncNonMetaRegionLocatorConcurrenyLimit)."""
    splits = [b"%03d" % n for n in range(1, 256)]
    with rig(splits=splits, locate_concurrency=2, locate_prefetch=1, locate_prefetch_max=1, meta_replicas=1) as r:
        flying, most = 0, 0
        read_meta = r.backend.read_meta

        def counted(*args: object) -> MetaPage:
            nonlocal flying, most
            flying += 1
            most = max(most, flying)
            try:
                return read_meta(*args)  # type: ignore[arg-type]  # as it came
            finally:
                flying -= 1

        r.backend.read_meta = counted  # type: ignore[method-assign]
        rows = [b"%03d" % n for n in range(256)]
        random.Random(3).shuffle(rows)
        places = r.at_once(*rows)
        assert [place.region.start_key or b"000" for place in places] == rows
        assert most == 2


def test_one_stuck_flight_does_not_hold_up_those_who_wait_for_a_free_place() -> None:
    """They wait for any flight of the table to land, not for the first one that was started."""
    with rig(splits=NINE, meta_replicas=1, locate_concurrency=2, locate_prefetch=1, locate_prefetch_max=1) as r:
        r.locate(b"8")
        r.backend.on("read_meta", when=lambda call: call.argument.start_row.startswith(b"t,1")).hangs()
        stuck = r.runtime.start(r.locate, b"1")
        r.runtime.run_for(0.01)
        places = r.at_once(b"3", b"5", b"7")
        assert [place.region.start_key for place in places] == [b"3", b"5", b"7"]
        assert r.runtime.now() < 1.0
        assert not stuck.is_done


def test_thousand_rows_a_hundred_times_with_a_cleared_cache_are_all_right() -> None:
    """HBASE-17402; here 5 rounds of 1000 on virtual time."""
    splits = [b"%03d" % n for n in range(1, 1000)]
    with rig(splits=splits, seed=5) as r:
        rows = [b"%03d" % n for n in range(1000)]
        for _ in range(5):
            r.locator.cache.clear()
            places = r.at_once(*rows)
            assert all(place.region.contains(row) for place, row in zip(places, rows, strict=True))


def test_threads_share_flights_as_well() -> None:
    """HBASE-17402 on real threads: 32 tasks, 600 random rows each of 200 regions, cleared in between."""
    with ThreadRuntime(max_tasks=64) as runtime:
        backend = ScriptedBackend(runtime, meta_replicas=3)
        backend.add_table(TABLE, splits=[b"%03d" % n for n in range(1, 200)])
        with connect_to(backend, runtime=runtime) as connection:

            def work(seed: int) -> None:
                chance = random.Random(seed)
                for count in range(600):
                    row = b"%03d" % chance.randrange(200)
                    place = connection.locate(TABLE, row)
                    assert place.region.contains(row)
                    if count % 200 == 199:
                        connection.engine.locator.cache.clear(TABLE)
                    if count % 100 == 50:
                        connection.engine.locator.on_error(place, NotServingRegion("not really"))

            for task in [runtime.start(work, seed) for seed in range(32)]:
                task.result(runtime.now() + 60)
            assert not connection.engine.locator._flights
            assert backend.count("read_meta") < 32 * 600 / 10


def test_leader_out_of_its_own_time_does_not_fail_those_who_joined() -> None:
    """Only the callers with a short deadline time out; the others start the lookup again."""
    with rig(meta_replicas=1) as r:
        r.backend.on("read_meta", times=1).delays(1.0)
        slow = r.runtime.start(lambda: r.locator.locate(TABLE, b"a", deadline=r.deadline(0.1)))
        r.runtime.run_for(0.01)
        tasks = [
            r.runtime.start(lambda s=s: r.locator.locate(TABLE, b"b", deadline=r.deadline(s))) for s in (0.05, 5.0, 9.0)
        ]
        r.runtime.run_for(10.0)
        assert isinstance(slow.error(), DeadlineExceeded)
        assert isinstance(tasks[0].error(), DeadlineExceeded)
        assert tasks[1].result() is tasks[2].result()
        assert r.reads() == 2
        assert r.runtime.stats()["timers"] == 0


def test_time_that_the_caller_did_not_have_is_not_held_against_the_replica() -> None:
    with rig(meta_mode="LoadBalance") as r:
        r.locate(b"a")
        r.backend.on("read_meta").delays(0.04)  # within the try time of every replica
        with pytest.raises(DeadlineExceeded):
            r.locator.locate(TABLE, b"a", deadline=r.deadline(0.01), reload=True)
        assert {r.replica(number).state for number in range(3)} == {"healthy"}


def test_slow_meta_ends_at_the_callers_deadline_with_one_error_and_works_later() -> None:
    """Between 0.5 and 1 s; later success; error not wrapped twice (TestAsyncRegionLocator)."""
    with rig(meta_replicas=1, operation_timeout_s=0.5) as r:
        r.backend.on("read_meta", times=1).hangs()
        with pytest.raises(DeadlineExceeded) as caught:
            r.locate(b"a")
        assert 0.5 <= r.runtime.now() < 1.0
        assert len(caught.value.attempts) <= 1
        assert r.locate(b"a").region.table == TABLE


def test_joined_row_does_not_hear_of_the_hole_that_the_leader_fell_into() -> None:
    """Meta has a hole at the leader's row; the other row of the same unknown stretch is fine."""
    with rig(splits=[b"m"], meta_replicas=1, retries=0, latency_s=0.01) as r:
        r.backend.on("read_meta", when=lambda call: b"zz" in call.argument.start_row).answers(
            page_of(placed(region(b"", b"m"), "a"))
        )
        leader = r.runtime.start(r.locate, b"zz")
        r.runtime.run_for(0.001)
        joined = r.runtime.start(r.locate, b"a")
        r.runtime.run_for(1.0)
        assert isinstance(leader.error(), MetaClientError)
        assert joined.result().region.start_key == b""


def test_joined_lookup_of_the_primary_does_not_hear_that_a_secondary_is_offline() -> None:
    with rig(meta_replicas=1, retries=0, latency_s=0.01) as r:
        leader = r.runtime.start(lambda: r.locate(b"a", replica_id=1))
        r.runtime.run_for(0.001)
        assert r.locate(b"b").replica_id == 0
        assert isinstance(leader.error(), MetaClientError)


def test_joined_tasks_share_one_failure_of_meta_and_do_not_ask_again_each() -> None:
    """An outage must not be multiplied by the number of those who wait. Each hears an error of its own."""
    with rig(meta_replicas=1, retries=0, latency_s=0.01) as r:
        r.backend.on("read_meta").raises(lambda: ServerUnreachable("refused"))
        errors = r.at_once(*(b"%d" % n for n in range(50)))
        assert all(isinstance(error, MetaClientError) for error in errors)
        assert len({id(error) for error in errors}) == 50
        assert r.reads() == 1


def test_unknown_table_asked_by_many_is_looked_up_once() -> None:
    with rig(latency_s=0.01) as r:
        errors = r.at_once(*(b"%d" % n for n in range(50)), table=b"none")
        assert all(isinstance(error, TableNotFound) for error in errors)
        assert len({id(error) for error in errors}) == 50
        assert r.reads() == 2  # a secondary, and the primary to confirm it


def test_names_that_nobody_has_do_not_pile_up_while_meta_is_down() -> None:
    with rig(meta_replicas=1, retries=0) as r:
        r.backend.on("read_meta").raises(lambda: ServerUnreachable("refused"))
        for number in range(100):
            with pytest.raises(MetaClientError):
                r.locate(b"a", b"t%d" % number)
        assert not r.locator.cache.tables


# ---- generations


def test_waiter_after_an_error_never_gets_the_location_that_failed() -> None:
    """A lookup from before the failure is still under way and brings it."""
    with rig(splits=[b"m"], locate_prefetch=2, latency_s=0.0) as r:
        place = r.locate(b"a")
        r.locate(b"z")
        answered = r.backend.true_page
        old = answered(MetaScan(keys.meta_search_key(TABLE, b"z"), keys.meta_table_start(TABLE), True, 2))
        r.backend.on("read_meta", times=1).delays(0.02).answers(old)
        early = r.runtime.start(lambda: r.locate(b"z", reload=True))
        r.runtime.run_for(0.01)
        target = next(one for one in r.backend.servers if one != place.server)
        r.backend.move(TABLE, b"a", target)
        r.locator.on_error(place, NotServingRegion("gone"))
        early.result()
        assert r.locator.cache.cached(TABLE, b"a") is None
        assert r.locate(b"a").server == target


def test_leader_whose_own_answer_failed_meanwhile_asks_again() -> None:
    with rig(latency_s=0.0) as r:
        place = r.locate(b"a")
        scan = MetaScan(keys.meta_search_key(TABLE, b"a"), keys.meta_table_start(TABLE), True, 2)
        r.backend.on("read_meta", times=1).delays(0.02).answers(r.backend.true_page(scan))
        leader = r.runtime.start(lambda: r.locate(b"a", reload=True))
        r.runtime.run_for(0.01)
        target = next(one for one in r.backend.servers if one != place.server)
        r.backend.move(TABLE, b"a", target)
        r.locator.on_error(place, NotServingRegion("gone"))
        assert leader.result().server == target


@pytest.mark.parametrize("table", [TABLE, None])
def test_clearing_the_cache_orphans_nobody(table: bytes | None) -> None:
    """Waiters end, here with an answer."""
    with rig(latency_s=0.01) as r:
        tasks = [r.runtime.start(r.locate, b"%d" % n) for n in range(10)]
        r.runtime.run_for(0.005)
        r.locator.cache.clear(table)
        r.runtime.run_for(1.0)
        assert all(task.result().region.table == TABLE for task in tasks)


def test_closing_ends_whoever_waits() -> None:
    with rig(meta_replicas=1) as r:
        r.backend.on("read_meta").hangs()
        tasks = [r.runtime.start(r.locate, b"%d" % n) for n in range(10)]
        r.runtime.run_for(0.01)
        r.connection.close()
        r.runtime.run_for(0.01)
        assert all(isinstance(task.error(), ConnectionClosed) for task in tasks)


# ---- prefetch


def test_one_lookup_brings_the_nine_regions_below() -> None:
    with rig(splits=[b"%03d" % n for n in range(1, 100)]) as r:
        r.locate(b"050")
        for n in range(41, 51):
            assert r.locator.cache.cached(TABLE, b"%03d" % n) is not None
        assert r.locator.cache.cached(TABLE, b"040") is None
        assert r.reads() == 1


@pytest.mark.parametrize("seed", range(10))
def test_thousand_regions_are_known_after_at_most_fifteen_calls(seed: int) -> None:
    """1000 regions, 5000 random rows: at most 15 meta calls (Java with 10 rows per page: 213)."""
    with rig(splits=[b"%04d" % n for n in range(1, 1000)], seed=seed) as r:
        chance = random.Random(seed)
        for _ in range(5_000):
            r.locate(b"%04d" % chance.randrange(1_000))
        cache = r.connection.stats()["cache"]
        assert r.reads() <= 15
        assert cache["hits"] / (cache["hits"] + cache["misses"]) >= 0.99


def test_calm_client_asks_for_small_pages_again() -> None:
    with rig(splits=[b"%04d" % n for n in range(1, 10_000)]) as r:
        for row in (b"9000", b"7000", b"5000"):
            r.locate(row)
        r.runtime.run_for(11.0)
        r.locate(b"3000")
        asked = [call.argument.limit for call in r.backend.calls if call.method == "read_meta"]
        assert asked == [10, 40, 160, 10]


def test_single_lost_region_does_not_fetch_a_thousand_rows_from_the_primary() -> None:
    with rig(splits=[b"%04d" % n for n in range(1, 1000)]) as r:
        chance = random.Random(1)
        for _ in range(5_000):
            r.locate(b"%04d" % chance.randrange(1_000))
        r.backend.calls.clear()
        r.locator.on_error(r.locate(b"0500"), NotServingRegion("gone"))
        r.locate(b"0500")
        assert [(call.replica_id, call.argument.limit) for call in r.backend.calls] == [(0, 10)]


def test_two_hundred_regions_of_a_dead_server_cost_few_lookups() -> None:
    """At most 20 meta lookups instead of 200."""
    with rig(splits=[b"%03d" % n for n in range(1, 600)]) as r:
        r.connection.warm_up(TABLE)
        dead = r.backend.servers[0]
        lost = [n for n in range(600) if r.locate(b"%03d" % n).server == dead]
        assert len(lost) == 200
        for n in lost:
            r.backend.move(TABLE, b"%03d" % n, r.backend.servers[1])
        r.backend.kill(dead)
        r.backend.calls.clear()
        r.locator.on_error(r.locate(b"%03d" % lost[0]), ServerUnreachable("refused"))
        random.Random(2).shuffle(lost)
        for n in lost:
            assert r.locate(b"%03d" % n).server == r.backend.servers[1]
        assert r.reads() <= 20


def test_page_from_the_top_that_does_not_come_down_to_the_row_is_followed_by_a_plain_one() -> None:
    with rig(splits=[b"%05d" % n for n in range(1, 5_000)], locate_prefetch=4, locate_prefetch_max=16) as r:
        r.locate(b"00001")  # a page that reaches the start of the table
        assert r.locate(b"02000").region.start_key == b"02000"
        asked = [call.argument.start_row for call in r.backend.calls if call.method == "read_meta"]
        assert asked[1:] == [b"t\0", b"t,02000,99999999999999"]


# ---- after errors


def test_merge_costs_one_miss_and_then_none() -> None:
    """As HBase's TestMetaCache (HBASE-27650)."""
    with rig(splits=NINE) as r:
        r.connection.warm_up(TABLE)
        place = r.locate(b"6")
        r.backend.merge(TABLE, b"5", b"7")
        r.locator.on_error(place, NotServingRegion("merged"))
        r.backend.calls.clear()
        for row in (b"6", b"5", b"7", b"6"):
            assert r.locate(row).region.end_key == b"8"
        assert r.reads() == 1


def test_split_is_followed_by_wrong_region_and_both_daughters_are_found() -> None:
    with rig(splits=NINE) as r:
        place = r.locate(b"55")
        r.backend.split(TABLE, b"55", keeps_parent=True)
        r.locator.on_error(place, WrongRegion("split"))
        assert r.locate(b"55").region.start_key == b"55"
        assert r.locate(b"54").region.end_key == b"55"


def test_secondary_that_still_shows_a_split_parent_is_contradicted_by_the_cache_and_not_believed() -> None:
    with rig(splits=[b"m"], meta_mode="LoadBalance", meta_replicas=2) as r:
        r.backend.freeze_meta(1)
        r.backend.split(TABLE, b"t", keeps_parent=True)
        upper = r.backend.region_of(TABLE, b"z")
        r.locator.cache.insert(TABLE, [upper])  # one daughter is known already
        assert r.locate(b"n").region.end_key == b"t"
        assert (r.reads(1), r.reads(0)) == (1, 1)


def test_region_moved_repairs_the_cache_without_a_lookup_and_without_a_mark() -> None:
    """As HBase's TestMetaRegionReplicaReplication."""
    with rig(meta_mode="LoadBalance") as r:
        place = r.locate(b"a")
        r.backend.move(TABLE, b"a", r.backend.servers[2])
        r.locator.on_error(place, RegionMoved("moved", server=r.backend.servers[2], seqnum=12))
        r.backend.calls.clear()
        moved = r.locate(b"a")
        assert (moved.server, moved.is_hint, r.reads()) == (r.backend.servers[2], True, 0)
        r.locate(b"a", reload=True)
        assert r.reads(0) == 0


def test_region_moved_to_a_server_that_never_existed_is_followed_once_and_then_meta_is_asked_at_the_primary() -> None:
    """RegionMoved names the requested target, right or not, for 120 s (seen on HBase 2.6.1)."""
    with rig(meta_mode="LoadBalance") as r:
        place = r.locate(b"a")
        moved = RegionMoved("moved", server=NOWHERE, seqnum=12)
        r.locator.on_error(place, moved)
        hint = r.locate(b"a")
        assert hint.server == NOWHERE
        r.locator.on_error(hint, ServerUnreachable("refused"))
        r.backend.calls.clear()
        again = r.locate(b"a")
        assert again == place
        assert (r.reads(), r.reads(0)) == (1, 1)
        r.locator.on_error(again, moved)  # the old server says the same again
        assert r.locate(b"a").server == place.server
        assert r.reads(0) == 2
        r.runtime.run_for(121.0)
        r.locator.on_error(r.locate(b"a"), moved)
        assert r.locate(b"a").is_hint


def test_region_moved_at_a_hint_is_not_followed_further() -> None:
    with rig(meta_mode="LoadBalance") as r:
        r.locator.on_error(r.locate(b"a"), RegionMoved("moved", server=r.backend.servers[1], seqnum=12))
        r.locator.on_error(r.locate(b"a"), RegionMoved("moved", server=r.backend.servers[2], seqnum=13))
        assert r.locator.cache.cached(TABLE, b"a") is None


def test_get_ends_although_every_server_points_to_one_that_never_existed() -> None:
    with rig(meta_mode="LoadBalance") as r:
        table = r.connection.table(TABLE)
        table.put(b"a", {b"cf:q": b"v"})
        here = r.locate(b"a").server
        r.backend.kill(NOWHERE)
        r.backend.on("get", server=here, times=3).raises(lambda: RegionMoved("moved", server=NOWHERE, seqnum=12))
        assert table.row(b"a") == {b"cf:q": b"v"}
        assert r.backend.count("get", server=NOWHERE) == 1


def test_not_serving_asks_the_primary_for_three_seconds_and_secondaries_again_afterwards() -> None:
    """As HBase's TestMetaRegionReplicaReplication."""
    with rig(splits=[b"m"], meta_mode="LoadBalance") as r:
        r.connection.warm_up(TABLE)
        r.locator.on_error(r.locate(b"a"), NotServingRegion("gone"))
        r.backend.calls.clear()
        r.locate(b"a")
        r.locate(b"a", reload=True)
        assert (r.reads(0), r.reads()) == (2, 2)
        r.locate(b"z", reload=True)
        assert r.reads(0) == 2
        r.runtime.run_until(3.1)
        r.locate(b"a", reload=True)
        assert r.reads(0) == 2


def test_stale_mark_lives_longer_while_the_range_goes_on_failing() -> None:
    with rig(meta_mode="LoadBalance") as r:
        r.locator.on_error(r.locate(b"a"), NotServingRegion("gone"))
        r.runtime.run_for(3.5)
        r.locator.on_error(r.locate(b"a"), NotServingRegion("gone"))
        r.runtime.run_for(5.9)
        before = r.reads(0)
        r.locate(b"a", reload=True)
        assert r.reads(0) == before + 1
        r.runtime.run_for(0.2)
        r.locate(b"a", reload=True)
        assert r.reads(0) == before + 1


@pytest.mark.parametrize("error", [NotServingRegion, RegionOpening, WrongRegion, ServerUnreachable])
def test_wrong_place_is_marked_whatever_the_error_that_says_so(error: type[MetaClientError]) -> None:
    with rig(meta_mode="LoadBalance") as r:
        r.locator.on_error(r.locate(b"a"), error("no"))
        r.locate(b"a")
        assert r.reads(0) == 1


def test_place_that_was_evicted_before_it_failed_is_marked_all_the_same() -> None:
    with rig(meta_mode="LoadBalance") as r:
        place = r.locate(b"a")
        r.locator.cache.clear()
        r.locator.on_error(place, NotServingRegion("gone"))
        r.locate(b"a")
        assert r.reads(0) == 1


def test_region_without_a_server_is_asked_for_again_at_the_primary_until_it_is_placed() -> None:
    """RegionOffline: retried with back-off; the first seconds at the primary, where the news comes first."""
    with rig(meta_mode="LoadBalance") as r:
        r.backend.unplace(TABLE, b"a")
        task = r.runtime.start(r.locate, b"a")
        r.runtime.run_for(2.0)
        assert not task.is_done
        assert r.reads(1) + r.reads(2) == 1  # the first, which the primary confirmed
        assert 3 <= r.reads(0) <= 10
        r.backend.move(TABLE, b"a", r.backend.servers[1])
        r.runtime.run_for(5.0)
        assert task.result().server == r.backend.servers[1]
        assert {r.replica(number).state for number in range(3)} == {"healthy"}


# ---- the table's state


def test_thousand_not_serving_answers_cost_one_read_of_the_tables_state() -> None:
    with rig(meta_mode="LoadBalance", latency_s=0.005) as r:
        tasks = [r.runtime.start(r.locator.table_states.check_enabled, TABLE, r.deadline()) for _ in range(1_000)]
        r.runtime.run_for(1.0)
        for task in tasks:
            task.result()
        states = [call for call in r.backend.calls if call.method == "read_meta"]
        assert [(call.replica_id, call.argument.families) for call in states] == [(0, (b"table",))]


def test_disabled_table_is_told_from_one_on_the_move() -> None:
    """Disabled -> TableNotEnabled."""
    with rig(meta_mode="LoadBalance") as r:
        table = r.connection.table(TABLE)
        table.row(b"a")
        r.connection.disable_table(TABLE)
        with pytest.raises(TableDisabled):
            table.row(b"a")
        assert r.runtime.now() < 5.0


def test_deleted_table_is_not_found_and_forgotten() -> None:
    """Deleted -> TableNotFound."""
    with rig(meta_mode="LoadBalance") as r:
        table = r.connection.table(TABLE)
        table.row(b"a")
        r.backend.disable_table(TABLE, r.deadline())
        r.backend.delete_table(TABLE, r.deadline())
        with pytest.raises(TableNotFound):
            table.row(b"a")
        assert TABLE not in r.locator.cache.tables


def test_state_is_read_again_when_it_is_old_and_an_unknown_one_is_not_disabled() -> None:
    with rig(meta_mode="LoadBalance", table_state_ttl_s=2.0) as r:
        r.locator.table_states.check_enabled(TABLE, r.deadline())
        r.connection.disable_table(TABLE)
        r.locator.table_states.check_enabled(TABLE, r.deadline())  # within its life
        r.runtime.run_for(2.1)
        with pytest.raises(TableDisabled):
            r.locator.table_states.check_enabled(TABLE, r.deadline())
        r.runtime.run_for(2.1)
        r.backend.on("read_meta").raises(lambda: ServerUnreachable("refused"))
        r.locator.table_states.check_enabled(TABLE, r.deadline())


# ---- TIMELINE reads and the locations they need


def test_region_with_one_known_place_is_read_at_the_primary_without_a_hedge() -> None:
    """1 location -> primary only, no timer."""
    with rig() as r:
        r.backend.on("get").delays(2.0)
        r.connection.table(TABLE).row(b"a", consistency="TIMELINE")
        assert r.backend.count("get") == 1


def test_unplaced_secondary_leaves_the_primary_alone() -> None:
    """A hole is not asked."""
    with rig(region_replication=2) as r:
        r.backend.unplace(TABLE, b"a", replica_id=1)
        r.backend.on("get").delays(2.0)
        row = r.connection.table(TABLE).row(b"a", consistency="TIMELINE")
        assert (row.stale, r.backend.count("get")) == (False, 1)


def test_time_spent_on_locating_counts_towards_the_hedge_delay() -> None:
    """Slow locate -> secondaries at once."""
    with rig(region_replication=2, meta_replicas=1, latency_s=0.0) as r:
        r.backend.on("read_meta").delays(0.5)
        r.backend.on("get", replica=0).hangs()
        row = r.connection.table(TABLE).row(b"a", consistency="TIMELINE")
        assert row.stale
        assert r.runtime.now() < 0.501


# ---- one call is one RPC


def test_lookup_costs_one_call() -> None:
    """Exactly 1 RPC per lookup; HBase's client needs one to open and one to close the scanner."""
    with rig(meta_replicas=1) as r:
        r.locate(b"a")
        assert [call.method for call in r.backend.calls] == ["open", "meta_replicas", "read_meta"]


def test_row_of_any_length_can_be_looked_up() -> None:
    """HBase refuses a search key over 32767 bytes (Short.MAX_VALUE, HConstants.MAX_ROW_LENGTH)."""
    with rig(splits=[b"m"], meta_replicas=1) as r:
        assert r.locate(b"z" * 100_000).region.start_key == b"m"
        assert all(len(call.argument.start_row) <= 32767 for call in r.backend.calls if call.method == "read_meta")


def test_same_seed_gives_the_same_run() -> None:
    def digest() -> str:
        with rig(splits=NINE, seed=11) as r:
            r.at_once(*NINE)
            return r.runtime.digest()

    assert digest() == digest()


def test_late_answer_of_a_call_that_was_given_up_does_not_reach_the_cache() -> None:
    """A pipelined call is completed when nobody waits for it any more."""
    with rig(meta_replicas=1, operation_timeout_s=1.0) as r:
        late = r.runtime.pending()
        ghost = RegionLocation(region(), NOWHERE, 99)
        r.backend.on("read_meta", times=1).answers(lambda scan: late)
        with pytest.raises(DeadlineExceeded):
            r.locate(b"a")
        late.complete(page_of(RegionLocations(ghost.region, (ghost,))))
        assert r.locator.cache.cached(TABLE, b"a") is None
        assert hosts(RegionLocations(ghost.region, (r.locate(b"a"),))) != [NOWHERE.host]
