"""Counters, appends, checks, row mutations and batches: atomic, and honest about each row."""

from __future__ import annotations

import pytest

from metaclient.errors import NoSuchFamily, RegionTooBusy, RequestRefused, WrongRegion
from metaclient.model import (
    LATEST_TIMESTAMP,
    Append,
    Cell,
    CellType,
    Check,
    CompareOp,
    Delete,
    Get,
    Increment,
    Put,
    RegionInfo,
    RowMutations,
    Scan,
)
from metaclient_fake.storage import StorageConfig
from tests.unit.fake_storage.bench import Bench, put, values, versions


def long(number: int) -> bytes:
    return number.to_bytes(8, "big", signed=True)


def test_increment_adds_and_answers_the_new_value(bench: Bench) -> None:
    region = bench.open()
    region.mutate(Increment(b"r", ((b"cf:n", 5),)))
    result = region.mutate(Increment(b"r", ((b"cf:n", -7), (b"cf:m", 1))))
    assert result is not None
    assert [(cell.column, cell.value) for cell in result.cells] == [(b"cf:m", long(1)), (b"cf:n", long(-2))]
    assert values(region, b"r") == {b"cf:n": long(-2), b"cf:m": long(1)}


def test_increment_wraps_as_a_java_long(bench: Bench) -> None:
    region = bench.open()
    put(region, b"r", n=long(2**63 - 1))
    region.mutate(Increment(b"r", ((b"cf:n", 1),)))
    assert values(region, b"r") == {b"cf:n": long(-(2**63))}


def test_increment_of_a_value_that_is_no_counter_is_refused_and_changes_nothing(bench: Bench) -> None:
    region = bench.open()
    put(region, b"r", n=b"5")
    with pytest.raises(RequestRefused, match="1 bytes wide") as caught:
        region.mutate(Increment(b"r", ((b"cf:m", 1), (b"cf:n", 1))))
    assert caught.value.java_class == "org.apache.hadoop.hbase.DoNotRetryIOException"
    assert values(region, b"r") == {b"cf:n": b"5"}


def test_counter_does_not_go_back_when_the_clock_does(bench: Bench) -> None:
    region = bench.open()
    region.mutate(Increment(b"r", ((b"cf:n", 1),)))
    begun_ms = bench.now_ms
    bench.now_ms -= 500
    region.mutate(Increment(b"r", ((b"cf:n", 1),)))
    assert versions(region, b"r") == [(begun_ms + 1, long(2)), (begun_ms, long(1))]


def test_checked_put_is_not_written_behind_the_value_it_was_checked_against(bench: Bench) -> None:
    """HBASE-14054: the server's clock may have been set back."""
    region = bench.open()
    put(region, b"r", bench.now_ms + 500, a=b"1")
    mutation = Put(b"r", (Cell(b"cf:a", LATEST_TIMESTAMP, b"2"),))
    assert region.check_and_mutate(Check(b"r", b"cf:a", b"1"), mutation)
    assert values(region, b"r") == {b"cf:a": b"2"}
    assert region.check_and_mutate(Check(b"r", b"cf:a", b"2"), RowMutations(b"r", (mutation,)))
    assert versions(region, b"r", max_versions=1) == [(bench.now_ms + 500, b"2")]


def test_hot_counter_does_not_grow_the_memstore(bench: Bench) -> None:
    region = bench.open()
    region.mutate(Increment(b"r", ((b"g:n", 1),)))
    region.mutate(Increment(b"r", ((b"g:n", 1),)))
    size = region.memstore_bytes
    for _ in range(100):
        bench.now_ms += 1
        region.mutate(Increment(b"r", ((b"g:n", 1),)))
    assert region.memstore_bytes == size


def test_open_scanner_still_sees_the_counter_that_it_began_with(bench: Bench) -> None:
    region = bench.open()
    region.mutate(Increment(b"r", ((b"g:n", 1),)))
    scanner = region.scanner(Scan())
    for _ in range(5):
        bench.now_ms += 1
        region.mutate(Increment(b"r", ((b"g:n", 1),)))
    results, _ = scanner.next(10, 1 << 20)
    assert results[0].cells[0].value == long(1)


def test_append_extends_what_is_there(bench: Bench) -> None:
    region = bench.open()
    region.mutate(Append(b"r", ((b"cf:a", b"one"),)))
    region.flush()
    result = region.mutate(Append(b"r", ((b"cf:a", b", two"),)))
    assert result is not None
    assert result.cells[0].value == b"one, two"
    assert values(region, b"r") == {b"cf:a": b"one, two"}


def test_repeated_nonce_is_not_applied_again(bench: Bench) -> None:
    region = bench.open()
    increment = Increment(b"r", ((b"cf:n", 1),), nonce=7)
    for is_repetition in (False, True):
        result = region.mutate(increment, is_repetition=is_repetition)
        assert result is not None
        assert result.cells[0].value == long(1)


@pytest.mark.parametrize(
    ("op", "given", "holds"),
    [
        (CompareOp.EQUAL, b"5", True),
        (CompareOp.EQUAL, b"6", False),
        (CompareOp.NOT_EQUAL, b"6", True),
        (CompareOp.LESS, b"6", True),
        (CompareOp.LESS, b"5", False),
        (CompareOp.LESS_OR_EQUAL, b"5", True),
        (CompareOp.GREATER, b"4", True),
        (CompareOp.GREATER, b"5", False),
        (CompareOp.GREATER_OR_EQUAL, b"5", True),
        (CompareOp.EQUAL, None, False),
        (CompareOp.NOT_EQUAL, None, True),
    ],
)
def test_check_compares_stored_with_given(bench: Bench, op: CompareOp, given: bytes | None, holds: bool) -> None:
    region = bench.open()
    put(region, b"r", a=b"5")
    bench.now_ms += 1
    done = region.check_and_mutate(Check(b"r", b"cf:a", given, op), Put(b"r", (Cell(b"cf:b", LATEST_TIMESTAMP, b"x"),)))
    assert done is holds
    assert (b"cf:b" in values(region, b"r")) is holds


@pytest.mark.parametrize(
    ("op", "given", "holds"),
    [
        (CompareOp.EQUAL, None, True),
        (CompareOp.EQUAL, b"", True),
        (CompareOp.NOT_EQUAL, None, False),
        (CompareOp.NOT_EQUAL, b"x", False),
        (CompareOp.EQUAL, b"x", False),
    ],
)
def test_check_of_an_absent_column(bench: Bench, op: CompareOp, given: bytes | None, holds: bool) -> None:
    region = bench.open()
    mutation = Put(b"r", (Cell(b"cf:b", LATEST_TIMESTAMP, b"x"),))
    assert region.check_and_mutate(Check(b"r", b"cf:a", given, op), mutation) is holds


def test_check_of_one_row_cannot_guard_another(bench: Bench) -> None:
    region = bench.open()
    with pytest.raises(RequestRefused):
        region.check_and_mutate(Check(b"r", b"cf:a", None), Delete(b"s"))


def test_row_mutations_apply_together_or_not_at_all(bench: Bench) -> None:
    region = bench.open()
    put(region, b"r", 5, a=b"1")
    parts = (
        Delete(b"r", (Cell(b"cf:a", 5, b"", CellType.DELETE_COLUMN),)),
        Put(b"r", (Cell(b"cf:b", 6, b"2"),)),
    )
    region.mutate(RowMutations(b"r", parts))
    assert values(region, b"r") == {b"cf:b": b"2"}
    bad = (Delete(b"r"), Put(b"r", (Cell(b"nope:b", 6, b"2"),)))
    with pytest.raises(NoSuchFamily):
        region.mutate(RowMutations(b"r", bad))
    assert values(region, b"r") == {b"cf:b": b"2"}


def test_row_mutations_of_another_row_are_refused(bench: Bench) -> None:
    region = bench.open()
    with pytest.raises(RequestRefused):
        region.mutate(RowMutations(b"r", (Delete(b"s"),)))


def test_batch_tells_what_became_of_each_row(bench: Bench) -> None:
    region = bench.open(RegionInfo(b"t", b"", b"m", region_id=3))
    good = Put(b"a", (Cell(b"cf:a", 5, b"1"),))
    outcomes = region.batch(
        [
            good,
            Put(b"b", (Cell(b"nope:a", 5, b"1"),)),
            Put(b"z", (Cell(b"cf:a", 5, b"1"),)),
            Increment(b"c", ((b"cf:n", 2),)),
            Delete(b"a", (Cell(b"cf:x", 5, b"", CellType.DELETE_COLUMN),)),
        ]
    )
    assert outcomes[0] is None
    assert isinstance(outcomes[1], NoSuchFamily)
    assert isinstance(outcomes[2], WrongRegion)
    assert outcomes[3] is not None
    assert outcomes[4] is None
    assert values(region, b"a") == {b"cf:a": b"1"}


def test_batch_of_puts_is_one_entry_and_one_sync(bench: Bench) -> None:
    region = bench.open()
    syncs: list[int] = []
    bench.wal.before_sync = lambda: syncs.append(1)
    region.batch([Put(b"%d" % i, (Cell(b"cf:a", 5, b"1"),)) for i in range(10)])
    assert len(syncs) == 1
    assert len(list(bench.wal.entries())[-1].edits) == 10


def test_later_put_of_a_batch_wins_its_row(bench: Bench) -> None:
    region = bench.open()
    region.batch([Put(b"r", (Cell(b"cf:a", LATEST_TIMESTAMP, value),)) for value in (b"1", b"2", b"3")])
    assert versions(region, b"r") == [(bench.now_ms, b"3")]


def test_full_memstore_refuses_writes_until_it_is_flushed(bench: Bench) -> None:
    region = bench.open(config=StorageConfig(flush_bytes=1000, blocking_multiplier=2))
    while region.memstore_bytes <= 2000:
        put(region, b"r", a=b"x" * 100)
        bench.now_ms += 1
    assert region.needs_flush
    with pytest.raises(RegionTooBusy):
        put(region, b"r", a=b"x")
    assert isinstance(region.batch([Put(b"r", (Cell(b"cf:a", 5, b"1"),))])[0], RegionTooBusy)
    region.flush()
    put(region, b"r", a=b"y")


def test_read_only_table_refuses_writes_and_serves_reads(bench: Bench) -> None:
    bench.table = type(bench.table)(b"t", bench.table.families, is_read_only=True)
    region = bench.open()
    with pytest.raises(RequestRefused, match="read only"):
        put(region, b"r", a=b"1")
    assert region.get(Get(b"r")).cells == ()


def test_cell_beyond_the_limit_is_refused_and_the_row_stays(bench: Bench) -> None:
    region = bench.open(config=StorageConfig(cell_bytes_max=1000))
    put(region, b"r", a=b"x" * 900, b=b"y" * 900)
    with pytest.raises(RequestRefused, match="bigger than 1000 bytes"):
        put(region, b"r", a=b"new", b=b"y" * 1000)
    assert values(region, b"r")[b"cf:a"] == b"x" * 900


def test_results_of_increments_and_appends_are_in_the_order_of_columns(bench: Bench) -> None:
    """By family first, as HRegion goes through its stores, and not as the client named them."""
    region = bench.open()
    counted = region.mutate(Increment(b"r", ((b"g:z", 1), (b"cf:z", 1), (b"cf:a", 1))))
    appended = region.mutate(Append(b"s", ((b"g:z", b"v"), (b"cf:z", b"v"), (b"cf:a", b"v"))))
    for result in (counted, appended):
        assert result is not None
        assert [cell.column for cell in result.cells] == [b"cf:a", b"cf:z", b"g:z"]
