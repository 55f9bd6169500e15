"""Writes that fail half way: refused or broken, none of them hides what is written after it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from metaclient.errors import RequestRefused
from metaclient.model import (
    LATEST_TIMESTAMP,
    Append,
    Cell,
    CellType,
    Check,
    Delete,
    Durability,
    Increment,
    Mutation,
    Put,
    RowMutations,
)
from metaclient_fake.storage import Region, WalEntry, packed_lane
from metaclient_fake.storage import writer as writer_module
from metaclient_fake.storage.mvcc import Mvcc
from tests.unit.fake_storage.bench import Bench, put, values

BAD_TIMES = [2**64 - 1, 2**63, -1, -(2**63)]


def cell(timestamp: int, name: bytes = b"cf:a") -> Cell:
    return Cell(name, timestamp, b"v")


def mutations_at(timestamp: int) -> list[Mutation]:
    """Every kind of mutation that can carry a time."""
    marker = Cell(b"cf:a", timestamp, b"", CellType.DELETE_COLUMN)
    return [
        Put(b"r", (cell(timestamp),)),
        Put(b"r", (cell(timestamp),), Durability.SKIP_WAL),
        Put(b"r", (cell(5), cell(timestamp, b"cf:b"))),
        Put(b"r", (cell(5), cell(timestamp, b"g:x"))),
        Delete(b"r", (), timestamp),
        Delete(b"r", (marker,)),
        RowMutations(b"r", (Put(b"r", (cell(5),)), Put(b"r", (cell(timestamp, b"cf:b"),)))),
    ]


def still_works(region: Region) -> bool:
    """Whether an acknowledged put can be read, and the read point has not stayed behind."""
    put(region, b"after", a=b"1")
    return values(region, b"after") == {b"cf:a": b"1"} and region.read_point == region.log.mvcc.write_point


@pytest.mark.parametrize("timestamp", BAD_TIMES)
def test_bad_timestamp_is_refused_and_blinds_no_region(bench: Bench, timestamp: int) -> None:
    """KeyValueUtil.checkKeyValueBytes and Mutation.setTimestamp refuse them; one used to hide all later puts."""
    region = bench.open()
    put(region, b"before", a=b"1")
    for mutation in mutations_at(timestamp):
        with pytest.raises(RequestRefused, match="Timestamp cannot be"):
            region.mutate(mutation)
        with pytest.raises(RequestRefused, match="Timestamp cannot be"):
            region.check_and_mutate(Check(b"r", b"cf:a", None), mutation)
    assert still_works(region)
    assert values(region, b"r") == {}


@pytest.mark.parametrize("timestamp", BAD_TIMES)
def test_bad_timestamp_in_a_batch_fails_its_mutation_alone(bench: Bench, timestamp: int) -> None:
    region = bench.open()
    outcomes = region.batch([Put(b"a", (cell(5),)), Put(b"b", (cell(timestamp),)), Put(b"c", (cell(5),))])
    assert [isinstance(outcome, RequestRefused) for outcome in outcomes] == [False, True, False]
    assert [bool(values(region, row)) for row in (b"a", b"b", b"c")] == [True, False, True]
    assert still_works(region)


@pytest.mark.parametrize("timestamp", BAD_TIMES)
def test_bad_timestamp_in_a_bulk_load_loads_nothing(bench: Bench, timestamp: int) -> None:
    region = bench.open()
    with pytest.raises(RequestRefused, match="Timestamp cannot be"):
        region.bulk_load({b"a": [cell(5)], b"b": [cell(timestamp)]})
    assert values(region, b"a") == {}
    assert still_works(region)


def test_largest_timestamp_means_now_and_the_one_before_is_a_time(bench: Bench) -> None:
    """As HBase 2.6.1 does: 2^63 - 1 is replaced by the server's time, 2^63 - 2 is kept."""
    region = bench.open()
    put(region, b"r", a=b"now")
    put(region, b"s", LATEST_TIMESTAMP - 1, a=b"kept")
    assert values(region, b"r") == {b"cf:a": b"now"}
    assert values(region, b"s") == {b"cf:a": b"kept"}
    put(region, b"s", a=b"hidden")
    assert values(region, b"s") == {b"cf:a": b"kept"}


@pytest.mark.parametrize("change", [Increment(b"r", ((b"cf:n", 1),)), Append(b"r", ((b"cf:n", b"x"),))])
def test_change_that_nobody_would_see_is_refused(bench: Bench, change: Mutation) -> None:
    """It would be written with the server's time, behind the value that it is a change of."""
    region = bench.open()
    put(region, b"r", LATEST_TIMESTAMP - 1, n=(5).to_bytes(8, "big"))
    with pytest.raises(RequestRefused, match="a change of it would not be seen"):
        region.mutate(change)
    assert still_works(region)


class Broken(Exception):
    """Our own mistake, somewhere between the sequence id and its end."""


def breaks(*_: Any, **__: Any) -> Any:
    raise Broken


def break_packing(region: Region, patch: pytest.MonkeyPatch) -> None:
    patch.setattr(packed_lane, "packed_cell", breaks)
    patch.setattr(writer_module, "_logged", breaks)


def break_log(region: Region, patch: pytest.MonkeyPatch) -> None:
    patch.setattr(region.log.wal, "append_logged", breaks)


def break_memstore(region: Region, patch: pytest.MonkeyPatch) -> None:
    active = type(region.stores[0].memstore.active)
    patch.setattr(active, "add_packed", breaks)
    patch.setattr(active, "add", breaks)


def break_hooks(region: Region, patch: pytest.MonkeyPatch) -> None:
    patch.setattr(region.log, "on_commit", breaks)


@pytest.mark.parametrize("step", [break_packing, break_log, break_memstore, break_hooks])
@pytest.mark.parametrize(
    "mutation",
    [Put(b"r", (cell(5),)), Put(b"r", (cell(5), cell(5, b"cf:b"))), Increment(b"r", ((b"cf:n", 1),))],
    ids=["one cell", "two cells", "increment"],
)
def test_failure_at_any_step_of_a_write_blinds_no_region(
    bench: Bench, step: Callable[[Region, pytest.MonkeyPatch], None], mutation: Mutation
) -> None:
    told: list[WalEntry] = []
    region = bench.open(on_commit=told.append)
    put(region, b"before", a=b"1")
    with pytest.MonkeyPatch.context() as patch:
        step(region, patch)
        with pytest.raises(Broken):
            region.mutate(mutation)
    assert still_works(region)
    assert told[-1].edits[0][0] == b"after"


def test_failure_while_a_marker_is_logged_blinds_no_region(bench: Bench) -> None:
    region = bench.open()
    put(region, b"before", a=b"1")
    with pytest.MonkeyPatch.context() as patch:
        break_log(region, patch)
        with pytest.raises(Broken):
            region.flush()
    assert region.read_point == region.log.mvcc.write_point


def test_action_that_fails_does_not_hold_up_the_writes_behind_it() -> None:
    mvcc = Mvcc()
    first, second, third = mvcc.begin(), mvcc.begin(), mvcc.begin()
    ran: list[int] = []
    mvcc.complete(second, breaks)
    mvcc.complete(third, lambda: ran.append(third))
    with pytest.raises(Broken):
        mvcc.complete(first)
    assert (mvcc.read_point, ran) == (third, [third])
