"""How many versions are kept and shown: max and min versions, time to live, time ranges, equal timestamps."""

from __future__ import annotations

import pytest

from metaclient.errors import NoSuchFamily, RequestRefused, WrongRegion
from metaclient.model import Cell, CellType, FamilyDescriptor, Get, Put, RegionInfo, TableDescriptor
from tests.unit.fake_storage.bench import Bench, put, values, versions


def test_reader_gets_no_more_versions_than_the_family_keeps(bench: Bench) -> None:
    region = bench.open()
    for stamp in range(1, 6):
        put(region, b"r", stamp, a=b"%d" % stamp)
    assert [stamp for stamp, _ in versions(region, b"r")] == [5, 4, 3]
    assert [stamp for stamp, _ in versions(region, b"r", max_versions=2)] == [5, 4]
    region.flush()
    assert [stamp for stamp, _ in versions(region, b"r")] == [5, 4, 3]


def test_versions_are_counted_for_each_column(bench: Bench) -> None:
    region = bench.open()
    for stamp in (1, 2):
        put(region, b"r", stamp, a=b"x", b=b"x")
    assert [stamp for stamp, _ in versions(region, b"r", max_versions=2)] == [2, 1, 2, 1]


@pytest.mark.parametrize("is_flushed", [False, True])
def test_newer_write_wins_an_equal_timestamp(bench: Bench, is_flushed: bool) -> None:
    region = bench.open()
    put(region, b"r", 7, a=b"first")
    if is_flushed:
        region.flush()
    put(region, b"r", 7, a=b"second")
    assert versions(region, b"r") == [(7, b"second")]
    region.flush()
    region.compact(major=True)
    assert versions(region, b"r") == [(7, b"second")]


def test_older_timestamp_written_later_does_not_win(bench: Bench) -> None:
    region = bench.open()
    put(region, b"r", 9, a=b"new")
    region.flush()
    put(region, b"r", 5, a=b"old")
    assert values(region, b"r") == {b"cf:a": b"new"}


def test_same_column_twice_in_one_put_keeps_the_last(bench: Bench) -> None:
    region = bench.open()
    region.mutate(Put(b"r", (Cell(b"cf:a", 5, b"1"), Cell(b"cf:a", 5, b"2"))))
    assert versions(region, b"r") == [(5, b"2")]


def test_time_range_is_half_open(bench: Bench) -> None:
    region = bench.open()
    for stamp in (1, 2, 3):
        put(region, b"r", stamp, a=b"x")
    assert [stamp for stamp, _ in versions(region, b"r", min_timestamp=1, max_timestamp=3)] == [2, 1]


def test_time_range_finds_an_old_version_behind_newer_ones(bench: Bench) -> None:
    region = bench.open()
    for stamp in (10, 20):
        put(region, b"r", stamp, a=b"%d" % stamp)
    assert values(region, b"r", max_timestamp=15) == {b"cf:a": b"10"}


@pytest.mark.parametrize("is_flushed", [False, True])
def test_expired_cells_are_gone_at_the_millisecond(bench: Bench, is_flushed: bool) -> None:
    bench.family(time_to_live_s=10)
    region = bench.open()
    put(region, b"r", a=b"1")
    if is_flushed:
        region.flush()
    bench.now_ms += 10_000
    assert values(region, b"r") == {b"cf:a": b"1"}
    bench.now_ms += 1
    assert values(region, b"r") == {}


def test_min_versions_outlive_the_time_to_live(bench: Bench) -> None:
    bench.family(max_versions=3, min_versions=1, time_to_live_s=10)
    region = bench.open()
    for stamp in (100, 200):
        put(region, b"r", stamp, a=b"%d" % stamp)
    bench.now_ms = 100_000
    assert versions(region, b"r") == [(200, b"200")]
    region.flush()
    region.compact(major=True)
    assert versions(region, b"r") == [(200, b"200")]


def test_columns_are_chosen_by_family_or_by_name(bench: Bench) -> None:
    region = bench.open()
    region.mutate(Put(b"r", (Cell(b"cf:a", 5, b"1"), Cell(b"cf:b", 5, b"2"), Cell(b"g:x", 5, b"3"))))
    assert values(region, b"r", columns=(b"g",)) == {b"g:x": b"3"}
    assert values(region, b"r", columns=(b"cf:b",)) == {b"cf:b": b"2"}
    assert values(region, b"r", columns=(b"cf:b", b"cf", b"g:none")) == {b"cf:a": b"1", b"cf:b": b"2"}


def test_empty_qualifier_is_a_column_like_any_other(bench: Bench) -> None:
    region = bench.open()
    region.mutate(Put(b"r", (Cell(b"cf:", 5, b"1"), Cell(b"cf:a", 5, b"2"))))
    assert values(region, b"r", columns=(b"cf:",)) == {b"cf:": b"1"}


def test_families_come_in_the_order_of_their_names_not_of_joined_columns(bench: Bench) -> None:
    """``a!`` sorts after ``a``, but ``a!:x`` before ``a:x``."""
    bench.table = TableDescriptor(b"t", (FamilyDescriptor(b"a!"), FamilyDescriptor(b"a")))
    region = bench.open()
    region.mutate(Put(b"r", (Cell(b"a!:x", 5, b"1"), Cell(b"a:x", 5, b"2"))))
    assert [cell.column for cell in region.get(Get(b"r")).cells] == [b"a:x", b"a!:x"]


def test_unknown_family_is_named_in_the_error(bench: Bench) -> None:
    region = bench.open()
    with pytest.raises(NoSuchFamily, match=r"nope.*'cf'.*'g'"):
        region.mutate(Put(b"r", (Cell(b"nope:a", 5, b""),)))
    with pytest.raises(NoSuchFamily, match="nope"):
        region.get(Get(b"r", (b"nope:a",)))


def test_row_of_another_region_is_refused(bench: Bench) -> None:
    region = bench.open(RegionInfo(b"t", b"b", b"d", region_id=2))
    for row in (b"a", b"d"):
        with pytest.raises(WrongRegion):
            put(region, row, a=b"1")
        with pytest.raises(WrongRegion):
            region.get(Get(row))


def test_existence_only_get_answers_without_cells(bench: Bench) -> None:
    region = bench.open()
    put(region, b"r", a=b"1")
    found = region.get(Get(b"r", existence_only=True))
    assert (found.exists, found.cells) == (True, ())
    assert region.get(Get(b"none", existence_only=True)).exists is False


def test_put_with_a_marker_inside_is_refused(bench: Bench) -> None:
    region = bench.open()
    with pytest.raises(RequestRefused):
        region.mutate(Put(b"r", (Cell(b"cf:a", 5, b"", CellType.DELETE),)))
