"""Scans: ranges and their ends, both directions, pages, batches, and one moment for a scanner's whole life."""

from __future__ import annotations

import pytest

from metaclient.errors import NotServingRegion, RequestRefused
from metaclient.keys import meta_search_key, meta_table_start
from metaclient.model import META_TABLE, Cell, FamilyDescriptor, Put, RegionInfo, Scan, TableDescriptor
from tests.unit.fake_storage.bench import Bench, put, rows_of, scanned

NINE = [b"%d" % index for index in range(1, 10)]


@pytest.mark.parametrize(
    ("scan", "expected"),
    [
        (Scan(), NINE),
        (Scan(b"3", b"6"), [b"3", b"4", b"5"]),
        (Scan(b"3", b"6", include_start=False, include_stop=True), [b"4", b"5", b"6"]),
        (Scan(b"35", b"45"), [b"4"]),
        (Scan(b"8"), [b"8", b"9"]),
        (Scan(is_reversed=True), NINE[::-1]),
        (Scan(b"6", b"3", is_reversed=True), [b"6", b"5", b"4"]),
        (Scan(b"6", b"3", is_reversed=True, include_start=False, include_stop=True), [b"5", b"4", b"3"]),
        (Scan(b"65", is_reversed=True), NINE[5::-1]),
        (Scan(b"", b"8", is_reversed=True), [b"9"]),
        (Scan(b"5", b"5"), []),
        (Scan(b"5", b"5", include_stop=True), [b"5"]),
    ],
)
@pytest.mark.parametrize("where", ["memstore", "file", "both"])
def test_range_and_direction(bench: Bench, scan: Scan, expected: list[bytes], where: str) -> None:
    region = bench.open()
    for row in NINE[::2]:
        put(region, row, a=b"1")
    if where != "memstore":
        region.flush()
    for row in NINE[1::2]:
        put(region, row, a=b"1")
    if where == "file":
        region.flush()
    assert rows_of(scanned(region, scan)) == expected


@pytest.mark.parametrize("is_reversed", [False, True])
def test_rows_spread_over_many_files_come_once_and_in_order(bench: Bench, is_reversed: bool) -> None:
    region = bench.open()
    rows = [b"%04d" % index for index in range(500)]
    for start in range(5):
        for row in rows[start :: start + 1]:
            put(region, row, a=b"%d" % start)
        region.flush()
    assert rows_of(scanned(region, Scan(is_reversed=is_reversed), page=7)) == (rows[::-1] if is_reversed else rows)


def test_page_ends_at_its_bytes_but_holds_at_least_one_row(bench: Bench) -> None:
    region = bench.open()
    for row in NINE:
        put(region, row, a=b"x" * 1000)
    scanner = region.scanner(Scan())
    assert len(scanner.next(100, 2500)[0]) == 3
    assert len(scanner.next(100, 1)[0]) == 1


def test_end_of_region_is_told_with_the_last_rows_or_after_them(bench: Bench) -> None:
    region = bench.open()
    put(region, b"r", a=b"1")
    scanner = region.scanner(Scan())
    results, is_end = scanner.next(10, 1 << 20)
    assert (len(results), is_end) == (1, True)
    assert scanner.next(10, 1 << 20) == ([], True)


def test_batch_cuts_rows_into_pieces_and_marks_all_but_the_last(bench: Bench) -> None:
    region = bench.open()
    region.mutate(Put(b"r", tuple(Cell(b"cf:%d" % index, 5, b"") for index in range(5))))
    put(region, b"s", a=b"1")
    pieces = scanned(region, Scan(batch=2), page=2)
    assert [(piece.row, len(piece.cells), piece.is_partial) for piece in pieces] == [
        (b"r", 2, True),
        (b"r", 2, True),
        (b"r", 1, False),
        (b"s", 1, False),
    ]


def test_batch_with_a_filter_that_needs_whole_rows_is_refused(bench: Bench) -> None:
    region = bench.open()
    with pytest.raises(RequestRefused, match="batch"):
        region.scanner(Scan(batch=2, filter=b"SingleColumnValueFilter('cf', 'a', =, 'binary:1')"))


def test_scanner_sees_one_moment_through_writes_flushes_and_compactions(bench: Bench) -> None:
    region = bench.open()
    for row in NINE:
        put(region, row, 5, a=b"before")
    scanner = region.scanner(Scan(caching=2))
    first, _ = scanner.next(2, 1 << 20)
    for row in NINE:
        put(region, row, 6, a=b"after")
        put(region, row + b"x", a=b"new row")
    region.flush()
    region.compact(major=True)
    put(region, b"3", 7, a=b"later still")
    rest, is_end = scanner.next(100, 1 << 20)
    assert is_end
    assert [(result.row, result.cells[0].value) for result in first + rest] == [(row, b"before") for row in NINE]


def test_scanner_of_a_closed_region_is_lost(bench: Bench) -> None:
    region = bench.open()
    put(region, b"r", a=b"1")
    scanner = region.scanner(Scan())
    region.close()
    with pytest.raises(NotServingRegion):
        scanner.next(1, 1 << 20)


def test_rows_of_meta_are_in_metas_own_order(bench: Bench) -> None:
    """In hbase:meta the start key ends at the last but one comma: ``t,a,b,1`` is a region that starts at ``a,b``."""
    bench.table = TableDescriptor(META_TABLE, (FamilyDescriptor(b"info"),))
    region = bench.open(RegionInfo(META_TABLE, region_id=1))
    names = [b"t,,1", b"t,a,1", b"t,a,2", b"t,a!,1", b"u,,1"]
    for name in reversed(names):
        region.mutate(Put(name, (Cell(b"info:x", 5, b""),)))
    assert rows_of(scanned(region)) == [b"t,,1", b"t,a,1", b"t,a,2", b"t,a!,1", b"u,,1"]
    region.flush()
    region.mutate(Put(b"t,b,1", (Cell(b"info:x", 5, b""),)))
    lookup = Scan(meta_search_key(b"t", b"a5"), meta_table_start(b"t"), is_reversed=True, include_stop=True, limit=1)
    assert rows_of(scanned(region, lookup))[0] == b"t,a!,1"


def test_raw_scan_counts_versions_as_asked_not_as_the_family_says(bench: Bench) -> None:
    region = bench.open()
    for stamp in range(1, 6):
        put(region, b"r", stamp, a=b"1")
    assert len(scanned(region, Scan(is_raw=True, max_versions=10))[0].cells) == 5
    assert len(scanned(region, Scan(is_raw=True, max_versions=2))[0].cells) == 2


@pytest.mark.parametrize(
    ("condition", "is_partial"),
    [
        (None, True),
        (b"KeyOnlyFilter()", True),
        (b"ColumnCountGetFilter(1)", False),  # the scanner has moved to the next column
        (b"ColumnPaginationFilter(1, 0)", False),
    ],
)
def test_piece_is_partial_unless_the_filter_has_skipped_the_other_versions(
    bench: Bench, condition: bytes | None, is_partial: bool
) -> None:
    region = bench.open()
    put(region, b"r", 5, a=b"old")
    put(region, b"r", 5, a=b"new")  # in the place of the other one, which is stored until a compaction
    put(region, b"s", 5, a=b"1")
    first = scanned(region, Scan(is_raw=True, batch=1, filter=condition))[0]
    assert (len(first.cells), first.is_partial) == (1, is_partial)


def test_filter_of_a_raw_scan_sees_all_versions_that_are_stored(bench: Bench) -> None:
    region = bench.open()
    for stamp in range(1, 6):
        region.mutate(Put(b"r", (Cell(b"cf:", stamp, b"%d" % stamp),)))
    # A column without a qualifier is never skipped: each version counts as a column.
    (found,) = scanned(region, Scan(is_raw=True, filter=b"ColumnPaginationFilter(1, 4)"))
    assert [cell.value for cell in found.cells] == [b"1"]
