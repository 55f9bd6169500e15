"""Files: what a flush writes, which of them are compacted together, and how long replaced ones stay."""

from __future__ import annotations

import pytest

from metaclient.errors import WrongRegion
from metaclient.model import Cell, Delete, Get, Put, RegionInfo
from metaclient_fake.storage import FlushOutcome, StoreFile
from metaclient_fake.storage.compaction import selected_files
from tests.unit.fake_storage.bench import INFO, Bench, put, rows_of, scanned, values, versions


def file_of(size: int, number: int, is_reference: bool = False) -> StoreFile:
    return StoreFile(f"f{number}", number, {}, [], size, is_reference)


def test_flush_moves_the_memstore_into_a_file(bench: Bench) -> None:
    region = bench.open()
    put(region, b"r", a=b"1")
    assert region.memstore_bytes > 0
    result = region.flush()
    assert (result.outcome, result.is_flushed) == (FlushOutcome.FLUSHED, True)
    assert region.memstore_bytes == 0
    assert values(region, b"r") == {b"cf:a": b"1"}
    assert [file.sequence_id for file in bench.filesystem.region(INFO).files(b"cf")] == [result.sequence_id]
    assert bench.filesystem.region(INFO).files(b"g") == ()


def test_flush_during_a_flush_is_refused_and_leaves_no_marker(bench: Bench) -> None:
    region = bench.open()
    put(region, b"r", a=b"1")
    inner: list[FlushOutcome] = []
    before = sum(1 for entry in bench.wal.entries() if entry.marker)
    made = region.stores[0].flushed_file

    def flush_inside(*args: object, **options: object) -> StoreFile:
        inner.append(region.flush().outcome)
        return made(*args, **options)  # type: ignore[arg-type]  # passed on as they came

    region.stores[0].flushed_file = flush_inside  # type: ignore[method-assign]  # the moment between the two locks
    assert region.flush().is_flushed
    assert inner == [FlushOutcome.CANNOT_FLUSH]
    assert sum(1 for entry in bench.wal.entries() if entry.marker) == before + 2


def test_writes_during_a_flush_are_kept_and_seen(bench: Bench) -> None:
    region = bench.open()
    put(region, b"r", 5, a=b"1")
    made = region.stores[0].flushed_file

    def write_inside(*args: object, **options: object) -> StoreFile:
        put(region, b"r", 6, a=b"2")
        assert versions(region, b"r") == [(6, b"2"), (5, b"1")]
        return made(*args, **options)  # type: ignore[arg-type]  # passed on as they came

    region.stores[0].flushed_file = write_inside  # type: ignore[method-assign]  # the moment between the two locks
    region.flush()
    assert versions(region, b"r") == [(6, b"2"), (5, b"1")]
    assert region.memstore_bytes > 0
    assert versions(bench.crash(), b"r") == [(6, b"2"), (5, b"1")]


def test_third_file_calls_for_a_compaction_and_leaves_one(bench: Bench) -> None:
    region = bench.open()
    outcomes = []
    for index in range(3):
        put(region, b"%d" % index, a=b"1")
        outcomes.append(region.flush().outcome)
    assert outcomes[-1] is FlushOutcome.FLUSHED_COMPACTION_NEEDED
    assert region.compact()
    assert region.store_files == 1
    assert rows_of(scanned(region)) == [b"0", b"1", b"2"]


def test_compaction_with_too_few_files_does_nothing(bench: Bench) -> None:
    region = bench.open()
    put(region, b"r", a=b"1")
    region.flush()
    assert region.compact() is False


@pytest.mark.parametrize(
    ("sizes", "chosen"),
    [
        ([10, 10], []),
        ([10, 10, 10], [0, 1, 2]),
        ([1000, 10, 10, 10], [1, 2, 3]),
        ([10, 10, 10, 10, 10, 10, 10, 10, 10, 10, 10, 10], list(range(10))),
        ([100, 10, 1], []),
    ],
)
def test_selection_takes_neighbours_of_like_size(sizes: list[int], chosen: list[int]) -> None:
    files = [file_of(size, number) for number, size in enumerate(sizes)]
    assert [file.sequence_id for file in selected_files(files, 3, 10)] == chosen


def test_selection_takes_references_first() -> None:
    files = [file_of(10, 0, True), file_of(1000, 1)]
    assert selected_files(files, 3, 10) == tuple(files)


def test_replaced_files_stay_in_the_archive_for_their_time(bench: Bench) -> None:
    region = bench.open()
    for index in range(3):
        put(region, b"%d" % index, a=b"1")
        region.flush()
    region.compact(major=True)
    archived = bench.filesystem.archived
    assert len(archived) == 3
    now = bench.runtime.now()
    assert bench.filesystem.clean_archive(now + 299, 300) == 0
    assert bench.filesystem.clean_archive(now + 301, 300) == 3
    assert all(file.is_deleted for file in archived)


def test_expired_cells_leave_the_files_at_a_compaction(bench: Bench) -> None:
    bench.family(time_to_live_s=10)
    region = bench.open()
    put(region, b"r", a=b"1")
    region.flush()
    assert region.store_file_bytes > 0
    bench.now_ms += 20_000
    region.compact(major=True)
    assert region.store_file_bytes == 0


def test_split_point_is_the_row_in_the_middle_by_bytes(bench: Bench) -> None:
    region = bench.open()
    assert region.split_point() is None
    for row in (b"a", b"b", b"c", b"d"):
        put(region, row, x=b"." * 100)
    put(region, b"e", x=b"." * 400)
    region.flush()
    assert region.split_point() == b"e"


def test_split_point_of_one_row_does_not_exist(bench: Bench) -> None:
    region = bench.open()
    put(region, b"a", x=b"1")
    assert region.split_point() is None


def split(bench: Bench, at: bytes) -> tuple[RegionInfo, RegionInfo]:
    left, right = RegionInfo(b"t", b"", at, region_id=2), RegionInfo(b"t", at, b"", region_id=2)
    bench.filesystem.split(INFO, left, right, at)
    return left, right


def test_daughters_of_a_split_share_the_rows_between_them(bench: Bench) -> None:
    parent = bench.open()
    for row in (b"a", b"b", b"c", b"d"):
        put(parent, row, x=row)
    last = parent.close()
    left, right = (bench.open(info) for info in split(bench, b"c"))
    assert (rows_of(scanned(left)), rows_of(scanned(right))) == ([b"a", b"b"], [b"c", b"d"])
    assert left.open_seqnum > last
    assert left.has_references
    put(left, b"a", x=b"new")
    left.flush()
    left.compact()
    assert not left.has_references
    assert values(left, b"a") == {b"cf:x": b"new"}


def test_merged_region_has_the_rows_of_both(bench: Bench) -> None:
    parent = bench.open()
    for row in (b"a", b"b", b"c", b"d"):
        put(parent, row, x=row)
    parent.close()
    left, right = split(bench, b"c")
    for info in (left, right):
        region = bench.open(info)
        put(region, info.start_key or b"a", y=b"1")
        region.close()
    merged = RegionInfo(b"t", region_id=3)
    bench.filesystem.merge(left, right, merged)
    region = bench.open(merged)
    assert rows_of(scanned(region)) == [b"a", b"b", b"c", b"d"]
    assert values(region, b"c") == {b"cf:x": b"c", b"cf:y": b"1"}


def test_row_deleted_in_one_daughter_does_not_come_back_with_a_merge(bench: Bench) -> None:
    """The other daughter's reference is to the same parent file: it must not show the first one's rows."""
    parent = bench.open()
    for row in (b"a", b"c"):
        put(parent, row, 5, x=row)
    parent.close()
    left, right = split(bench, b"b")
    bench.open(left).close()
    region = bench.open(right)
    region.mutate(Delete(b"c"))
    region.flush()
    region.compact(major=True)
    region.close()
    merged = RegionInfo(b"t", region_id=3)
    bench.filesystem.merge(left, right, merged)
    region = bench.open(merged)
    assert rows_of(scanned(region)) == [b"a"]
    assert region.get(Get(b"c")).cells == ()
    region.compact(major=True)
    assert rows_of(scanned(region)) == [b"a"]


def test_dropped_table_leaves_its_files_to_the_archive(bench: Bench) -> None:
    region = bench.open()
    put(region, b"r", a=b"1")
    region.close()
    assert bench.filesystem.delete_table(b"t", bench.runtime.now()) == 1
    assert len(bench.filesystem.archived) == 1
    assert rows_of(scanned(bench.open())) == []


def test_bulk_loaded_rows_are_newest_and_survive_a_crash_without_the_log(bench: Bench) -> None:
    region = bench.open()
    put(region, b"r", 5, a=b"old")
    region.bulk_load({b"r": [Cell(b"cf:a", 5, b"loaded"), Cell(b"g:x", 5, b"2")], b"s": [Cell(b"cf:a", 1, b"s")]})
    assert values(region, b"r") == {b"cf:a": b"loaded", b"g:x": b"2"}
    region = bench.crash()
    assert values(region, b"r") == {b"cf:a": b"loaded", b"g:x": b"2"}
    assert values(region, b"s") == {b"cf:a": b"s"}


def test_bulk_load_is_checked_before_anything_is_loaded(bench: Bench) -> None:
    region = bench.open(RegionInfo(b"t", b"", b"m", region_id=5))
    with pytest.raises(WrongRegion):
        region.bulk_load([(b"a", [Cell(b"cf:a", 5, b"1")]), (b"z", [Cell(b"cf:a", 5, b"1")])])
    assert scanned(region) == []


def test_wide_row_with_several_versions_survives_flush_and_compaction(bench: Bench) -> None:
    region = bench.open()
    for stamp in range(1, 4):
        region.mutate(Put(b"r", tuple(Cell(b"cf:%03d" % index, stamp, b"%d" % stamp) for index in range(200))))
        region.flush()
    region.compact(major=True)
    result = region.get(Get(b"r", max_versions=3))
    assert len(result.cells) == 600
    assert [cell.timestamp for cell in result.cells[:3]] == [3, 2, 1]
