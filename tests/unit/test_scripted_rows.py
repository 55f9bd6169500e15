"""The rows of the scripted backend, directly: the edges of its clock, and what no client can ask for."""

from __future__ import annotations

from typing import Any

import pytest

from metaclient.connection import connect_to
from metaclient.errors import MetaClientError, NoSuchFamily, RequestRefused
from metaclient.model import (
    LATEST_TIMESTAMP,
    Append,
    Cell,
    CellType,
    Check,
    Delete,
    FamilyDescriptor,
    Get,
    Increment,
    Put,
    RegionInfo,
    RowMutations,
    Scan,
    TableDescriptor,
)
from metaclient.runtime import SimRuntime
from metaclient.testing import ScriptedBackend
from metaclient.testing.rows import TableRows

NOW_MS = 1_000_000
ROW = b"r"


def rows_of(*families: FamilyDescriptor) -> TableRows:
    return TableRows(TableDescriptor(b"t", families or (FamilyDescriptor(b"cf", max_versions=5),)))


def put(rows: TableRows, *timestamps: int, column: bytes = b"cf:a", row: bytes = ROW, now_ms: int = NOW_MS) -> None:
    """A version at each timestamp; its value is the timestamp in decimal."""
    for timestamp in timestamps:
        rows.mutate(Put(row, (Cell(column, timestamp, b"%d" % timestamp),)), now_ms)


def delete(rows: TableRows, kind: CellType, column: bytes, timestamp: int, times: int = 1) -> None:
    rows.mutate(Delete(ROW, (Cell(column, timestamp, b"", kind),) * times), NOW_MS)


def seen(rows: TableRows, now_ms: int = NOW_MS, **query: Any) -> list[tuple[bytes, int]]:
    """(column, timestamp) of all versions that a reader gets."""
    get = Get(ROW, **{"max_versions": 100, **query})
    return [(cell.column, cell.timestamp) for cell in rows.get(get, now_ms).cells]


# -- markers ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("is_put_first", [True, False])
@pytest.mark.parametrize(
    ("kind", "column", "left"),
    [
        (CellType.DELETE, b"cf:a", [(b"cf:a", 30), (b"cf:a", 10), (b"cf:b", 20)]),
        (CellType.DELETE_COLUMN, b"cf:a", [(b"cf:a", 30), (b"cf:b", 20)]),
        (CellType.DELETE_FAMILY_VERSION, b"cf", [(b"cf:a", 30), (b"cf:a", 10)]),
        (CellType.DELETE_FAMILY, b"cf", [(b"cf:a", 30)]),
    ],
)
def test_marker_hides_its_own_and_no_more_whichever_came_first(
    kind: CellType, column: bytes, left: list[tuple[bytes, int]], is_put_first: bool
) -> None:
    rows = rows_of()
    if not is_put_first:
        delete(rows, kind, column, 20)
    put(rows, 10, 20, 30)
    put(rows, 20, column=b"cf:b")
    if is_put_first:
        delete(rows, kind, column, 20)
    assert seen(rows) == left


def test_delete_of_the_latest_version_twice_takes_two_and_on_nothing_hides_nothing_older() -> None:
    rows = rows_of()
    delete(rows, CellType.DELETE, b"cf:a", LATEST_TIMESTAMP)
    put(rows, 10, 20, 30)
    delete(rows, CellType.DELETE, b"cf:a", LATEST_TIMESTAMP, times=2)
    assert seen(rows) == [(b"cf:a", 10)]


@pytest.mark.parametrize(("keeps", "past"), [("FALSE", []), ("TRUE", [(b"cf:a", 10)])])
def test_reader_of_the_past_sees_through_a_later_delete_only_if_deleted_cells_are_kept(
    keeps: str, past: list[tuple[bytes, int]]
) -> None:
    rows = rows_of(FamilyDescriptor(b"cf", keep_deleted_cells=keeps))
    put(rows, 10)
    delete(rows, CellType.DELETE_COLUMN, b"cf:a", 20)
    assert seen(rows, max_timestamp=20) == past
    assert seen(rows) == []


# -- versions and times ----------------------------------------------------------------------------------------


def test_last_put_of_a_timestamp_replaces_and_does_not_count_as_a_version() -> None:
    rows = rows_of(FamilyDescriptor(b"cf", max_versions=2))
    put(rows, 10, 20)
    rows.mutate(Put(ROW, (Cell(b"cf:a", 20, b"first"), Cell(b"cf:a", 20, b"last"))), NOW_MS)
    assert [cell.value for cell in rows.get(Get(ROW, max_versions=9), NOW_MS).cells] == [b"last", b"10"]


def test_hidden_versions_do_not_use_up_what_the_family_shows() -> None:
    rows = rows_of(FamilyDescriptor(b"cf", max_versions=2))
    put(rows, 10, 20, 30, 40)
    delete(rows, CellType.DELETE, b"cf:a", 30)
    assert seen(rows) == [(b"cf:a", 40), (b"cf:a", 20)]


def test_cell_expires_a_millisecond_after_its_time_to_live_and_the_minimum_of_versions_stays() -> None:
    rows = rows_of(FamilyDescriptor(b"gone", 3, time_to_live_s=1), FamilyDescriptor(b"kept", 3, 1, time_to_live_s=1))
    for column in (b"gone:a", b"kept:a"):
        put(rows, 1000, 2000, column=column)
    assert seen(rows, 2000) == [(b"gone:a", 2000), (b"gone:a", 1000), (b"kept:a", 2000), (b"kept:a", 1000)]
    assert seen(rows, 2001) == [(b"gone:a", 2000), (b"kept:a", 2000)]
    assert seen(rows, 9000) == [(b"kept:a", 2000)]


def test_columns_come_by_family_and_not_by_the_bytes_of_the_whole_name() -> None:
    rows = rows_of(FamilyDescriptor(b"f-x"), FamilyDescriptor(b"f"))
    for column in (b"f-x:q", b"f:z", b"f:"):
        put(rows, 10, column=column)
    assert [column for column, _ in seen(rows)] == [b"f:", b"f:z", b"f-x:q"]


def test_clock_that_goes_back_hides_no_increment_and_no_append() -> None:
    rows = rows_of()
    for now_ms in (NOW_MS, NOW_MS - 500, NOW_MS - 500):
        rows.mutate(Increment(ROW, ((b"cf:n", 2),)), now_ms)
        rows.mutate(Append(ROW, ((b"cf:a", b"x"),)), now_ms)
    newest = rows.get(Get(ROW), NOW_MS).cells
    assert [(cell.value, cell.timestamp) for cell in newest] == [
        (b"xxx", NOW_MS + 2),
        ((6).to_bytes(8, "big"), NOW_MS + 2),
    ]


def test_checked_put_is_not_written_behind_what_was_checked_but_a_checked_delete_may_be() -> None:
    rows = rows_of()
    put(rows, NOW_MS + 10)
    check = Check(ROW, b"cf:a", b"%d" % (NOW_MS + 10))
    assert rows.check_and_mutate(check, Delete(ROW), NOW_MS)
    assert seen(rows) == [(b"cf:a", NOW_MS + 10)]
    new = Put(ROW, (Cell(b"cf:a", LATEST_TIMESTAMP, b"new"),))
    assert rows.check_and_mutate(check, new, NOW_MS)
    assert rows.get(Get(ROW), NOW_MS).cells == (Cell(b"cf:a", NOW_MS + 10, b"new"),)


def test_put_is_seen_after_a_delete_and_after_counters_although_virtual_time_stands_still() -> None:
    with SimRuntime(seed=1) as runtime:
        backend = ScriptedBackend(runtime)
        backend.add_table("t")
        table = connect_to(backend, runtime=runtime).table("t")
        table.delete(ROW)
        table.put(ROW, {b"cf:a": b"seen"})
        for _ in range(3):
            table.counter_inc(ROW, b"cf:n")
        table.counter_set(ROW, b"cf:n", 40)
        assert runtime.now() == 0
        assert table.row(ROW, columns=[b"cf:a"]) == {b"cf:a": b"seen"}
        assert table.counter_inc(ROW, b"cf:n", 2) == 42


# -- all or nothing --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("mutation", "error"),
    [
        (RowMutations(ROW, (Delete(ROW), Put(ROW, (Cell(b"nope:a", 1, b""),)))), NoSuchFamily),
        (RowMutations(ROW, (Delete(ROW), Delete(ROW, (Cell(b"nope", 1, b"", CellType.DELETE_FAMILY),)))), NoSuchFamily),
        (RowMutations(ROW, (Delete(ROW), Delete(b"another"))), RequestRefused),
        (Delete(ROW, (Cell(b"cf:a", 90, b"", CellType.DELETE_COLUMN), Cell(b"cf:a", 99, b"put"))), RequestRefused),
        (Increment(ROW, ((b"cf:new", 1), (b"cf:a", 1))), RequestRefused),
        (Append(ROW, ((b"cf:a", b"x"), (b"nope:a", b"x"))), NoSuchFamily),
    ],
    ids=["put", "delete", "row", "kind", "counter", "append"],
)
def test_mutation_that_fails_in_its_last_part_leaves_nothing_of_the_first(
    mutation: Any, error: type[MetaClientError]
) -> None:
    rows = rows_of()
    put(rows, 10)
    with pytest.raises(error):
        rows.mutate(mutation, NOW_MS)
    assert seen(rows) == [(b"cf:a", 10)]
    assert [result.row for result in rows.scan(Scan(), NOW_MS)] == [ROW]


# -- scans -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("scan", "found"),
    [
        (Scan(b"b", b"d"), b"bc"),
        (Scan(b"b", b"d", include_start=False, include_stop=True), b"cd"),
        (Scan(is_reversed=True), b"edcb"),
        (Scan(b"d", b"b", is_reversed=True), b"dc"),
        (Scan(b"d", b"b", include_start=False, include_stop=True, is_reversed=True), b"cb"),
        (Scan(b"d", b"b"), b""),
        (Scan(limit=2), b"bc"),
        (Scan(limit=2, is_reversed=True), b"ed"),
    ],
)
def test_scan_keeps_both_ends_its_direction_and_the_borders_of_the_region(scan: Scan, found: bytes) -> None:
    rows = rows_of()
    for key in b"fadcbe":
        put(rows, 10, row=bytes((key,)))
    region = RegionInfo(b"t", b"b", b"f")
    assert b"".join(result.row for result in rows.scan(scan, NOW_MS, region=region)) == found


def test_forgotten_row_leaves_no_marker_behind() -> None:
    rows = rows_of()
    put(rows, 10)
    rows.mutate(Delete(ROW), NOW_MS)
    del rows[ROW]
    assert rows.scan(Scan(), NOW_MS) == []
    put(rows, 10)
    assert seen(rows) == [(b"cf:a", 10)]


def test_deleted_rows_use_up_no_limit() -> None:
    rows = rows_of()
    for key in (b"a", ROW, b"s"):
        put(rows, 10, row=key)
    rows.mutate(Delete(b"a"), NOW_MS)
    assert [result.row for result in rows.scan(Scan(limit=2), NOW_MS)] == [ROW, b"s"]


def test_row_in_pieces_says_of_each_but_the_last_that_more_comes() -> None:
    rows = rows_of()
    for column in (b"cf:a", b"cf:b", b"cf:c"):
        put(rows, 10, column=column)
    pieces = rows.scan(Scan(batch=2), NOW_MS, is_stale=True)
    assert [(len(piece.cells), piece.is_partial, piece.is_stale) for piece in pieces] == [
        (2, True, True),
        (1, False, True),
    ]


@pytest.mark.parametrize("query", [Scan(is_raw=True), Scan(filter=b"KeyOnlyFilter ()")])
def test_what_it_cannot_do_is_refused_and_not_answered_with_everything(query: Scan) -> None:
    with pytest.raises(RequestRefused):
        rows_of().scan(query, NOW_MS)
