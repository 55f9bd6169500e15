"""Delete markers of four kinds, and what they hide until a major compaction."""

from __future__ import annotations

import pytest

from metaclient.model import Cell, CellType, Delete, Put, Scan
from tests.unit.fake_storage.bench import Bench, delete, put, scanned, values, versions


@pytest.mark.parametrize(
    ("kind", "left_of_a", "left_of_b"),
    [
        (CellType.DELETE, [(3, b"a3"), (1, b"a1")], [(3, b"b3"), (2, b"b2"), (1, b"b1")]),
        (CellType.DELETE_COLUMN, [(3, b"a3")], [(3, b"b3"), (2, b"b2"), (1, b"b1")]),
        (CellType.DELETE_FAMILY, [(3, b"a3")], [(3, b"b3")]),
        (CellType.DELETE_FAMILY_VERSION, [(3, b"a3"), (1, b"a1")], [(3, b"b3"), (1, b"b1")]),
    ],
)
@pytest.mark.parametrize("upkeep", ["memstore", "flushed before", "flushed after", "compacted"])
def test_each_kind_of_marker_hides_what_it_should_wherever_the_cells_are(
    bench: Bench,
    kind: CellType,
    left_of_a: list[tuple[int, bytes]],
    left_of_b: list[tuple[int, bytes]],
    upkeep: str,
) -> None:
    region = bench.open()
    for stamp in (1, 2, 3):
        put(region, b"r", stamp, a=b"a%d" % stamp, b=b"b%d" % stamp)
    if upkeep == "flushed before":
        region.flush()
    is_family = kind in (CellType.DELETE_FAMILY, CellType.DELETE_FAMILY_VERSION)
    delete(region, b"r", b"cf" if is_family else b"cf:a", kind, 2)
    if upkeep in ("flushed after", "compacted"):
        region.flush()
    if upkeep == "compacted":
        region.compact(major=True)
    assert versions(region, b"r", columns=(b"cf:a",)) == left_of_a
    assert versions(region, b"r", columns=(b"cf:b",)) == left_of_b


@pytest.mark.parametrize("stamp", [4, 5])
def test_put_not_newer_than_a_delete_stays_hidden_until_major_compaction(bench: Bench, stamp: int) -> None:
    region = bench.open()
    delete(region, b"r", b"cf:a", CellType.DELETE_COLUMN, 5)
    put(region, b"r", stamp, a=b"late")
    assert values(region, b"r") == {}
    region.flush()
    assert values(region, b"r") == {}
    region.compact(major=True)
    put(region, b"r", stamp, a=b"again")
    assert values(region, b"r") == {b"cf:a": b"again"}


def test_put_newer_than_a_delete_is_seen(bench: Bench) -> None:
    region = bench.open()
    delete(region, b"r", b"cf:a", CellType.DELETE_COLUMN, 5)
    put(region, b"r", 6, a=b"new")
    assert values(region, b"r") == {b"cf:a": b"new"}


def test_delete_of_the_latest_version_uncovers_the_one_before(bench: Bench) -> None:
    region = bench.open()
    put(region, b"r", 1, a=b"old")
    put(region, b"r", 2, a=b"new")
    delete(region, b"r", b"cf:a", CellType.DELETE)
    assert values(region, b"r") == {b"cf:a": b"old"}


def test_deleting_the_latest_version_twice_in_one_delete_takes_two(bench: Bench) -> None:
    region = bench.open()
    for stamp in (1, 2, 3):
        put(region, b"r", stamp, a=b"%d" % stamp)
    latest = Cell(b"cf:a", 0x7FFFFFFFFFFFFFFF, b"", CellType.DELETE)
    region.mutate(Delete(b"r", (latest, latest)))
    assert versions(region, b"r") == [(1, b"1")]


def test_delete_of_a_row_covers_every_family_up_to_its_timestamp(bench: Bench) -> None:
    region = bench.open()
    region.mutate(Put(b"r", (Cell(b"cf:a", 5, b"1"), Cell(b"g:x", 5, b"2"), Cell(b"g:y", 9, b"3"))))
    region.mutate(Delete(b"r", timestamp=5))
    assert values(region, b"r") == {b"g:y": b"3"}


def test_delete_of_a_row_that_does_not_exist_makes_no_row(bench: Bench) -> None:
    region = bench.open()
    region.mutate(Delete(b"r"))
    assert scanned(region) == []
    region.flush()
    assert scanned(region) == []


def test_raw_scan_shows_markers_and_what_they_hide(bench: Bench) -> None:
    region = bench.open()
    put(region, b"r", 1, a=b"1")
    delete(region, b"r", b"cf:a", CellType.DELETE_COLUMN, 2)
    put(region, b"r", 3, a=b"3")
    cells = scanned(region, Scan(is_raw=True, max_versions=10))[0].cells
    assert [(cell.timestamp, cell.type) for cell in cells] == [
        (3, CellType.PUT),
        (2, CellType.DELETE_COLUMN),
        (1, CellType.PUT),
    ]


def test_major_compaction_drops_markers_and_minor_keeps_them(bench: Bench) -> None:
    region = bench.open()
    put(region, b"other", 1, a=b"1")
    region.flush()
    put(region, b"r", 1, a=b"1")
    delete(region, b"r", b"cf:a", CellType.DELETE_COLUMN, 2)
    region.flush()
    assert [cell.type for cell in scanned(region, Scan(b"r", is_raw=True))[0].cells] == [CellType.DELETE_COLUMN]
    region.compact(major=True)
    assert scanned(region, Scan(b"r", is_raw=True)) == []


def test_keep_deleted_cells_lets_a_reader_of_the_past_see_what_was_there(bench: Bench) -> None:
    bench.family(max_versions=3, keep_deleted_cells="TRUE")
    region = bench.open()
    put(region, b"r", 1, a=b"1")
    delete(region, b"r", b"cf:a", CellType.DELETE_COLUMN, 5)
    for upkeep in (lambda: None, region.flush, lambda: region.compact(major=True)):
        upkeep()
        assert versions(region, b"r") == []
        assert versions(region, b"r", max_timestamp=5) == [(1, b"1")]


def test_without_keep_deleted_cells_a_marker_after_the_time_range_hides(bench: Bench) -> None:
    region = bench.open()
    put(region, b"r", 1, a=b"1")
    delete(region, b"r", b"cf:a", CellType.DELETE_COLUMN, 5)
    assert versions(region, b"r", max_timestamp=5) == []


def test_keep_deleted_cells_ttl_forgets_them_with_the_time_to_live(bench: Bench) -> None:
    bench.family(max_versions=3, keep_deleted_cells="TTL", time_to_live_s=10)
    region = bench.open()
    put(region, b"r", 900, a=b"1")
    delete(region, b"r", b"cf:a", CellType.DELETE_COLUMN, 950)
    region.flush()
    region.compact(major=True)
    assert versions(region, b"r", max_timestamp=950) == [(900, b"1")]
    bench.now_ms = 900 + 10_001
    assert versions(region, b"r", max_timestamp=950) == []


def test_marker_dropped_by_compaction_does_not_come_back_from_the_log(bench: Bench) -> None:
    """HBASE-6059: an empty file must keep the sequence id, or recovery replays the marker over a newer put."""
    region = bench.open()
    put(region, b"r", 10, a=b"1")
    delete(region, b"r", b"cf:a", CellType.DELETE_COLUMN, 20)
    region.flush()
    region.compact(major=True)
    put(region, b"r", 15, a=b"2")
    assert values(region, b"r") == {b"cf:a": b"2"}
    region = bench.crash()
    assert values(region, b"r") == {b"cf:a": b"2"}


def test_family_marker_below_puts_without_qualifier_still_hides_other_columns(bench: Bench) -> None:
    """The marker stands in the column without qualifier; versions of that column must not end the search for it."""
    region = bench.open()
    delete(region, b"r", b"cf", CellType.DELETE_FAMILY, 5)
    for stamp in (6, 7, 8, 9):
        region.mutate(Put(b"r", (Cell(b"cf:", stamp, b"%d" % stamp),)))
    put(region, b"r", 5, a=b"hidden")
    assert values(region, b"r") == {b"cf:": b"9"}
    region.flush()
    assert values(region, b"r") == {b"cf:": b"9"}
