"""Pages of Thrift 2 that are read by runs of rows have the rows that are read one by one, however they arrive."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from metaclient.row_runs import AlikeRows
from metaclient.wire.fixed_layout import ROW_BYTES_MAX, ROWS_MIN
from metaclient.wire.thrift import structs as cells
from metaclient.wire.thrift.idl import thrift2
from metaclient_thrift.binary import Rows2
from metaclient_thrift.row_pages import read_page
from tests.unit.thrift.test_binary import Pieces, reply, results2

T2 = thrift2()
METHOD = "getScannerRows"


def value(family: bytes, qualifier: bytes, data: bytes, timestamp: int = 7, **more: Any) -> Any:
    return T2.TColumnValue(family=family, qualifier=qualifier, value=data, timestamp=timestamp, type=4, **more)


def row(key: bytes, values: list[Any], **more: Any) -> Any:
    return T2.TResult(row=key, columnValues=values, **{"stale": False, "partial": False, **more})


def page_of(wires: list[Any], sizes: list[int] | None = None) -> Any:
    whole = reply(T2.THBaseService, METHOD, success=wires)
    return read_page(Pieces(whole, sizes or [len(whole)]), Rows2())


def one_by_one(wires: list[Any]) -> list[Any]:
    return [cells.result_of(b"", wire) for wire in wires]


def alike(count: int, **more: Any) -> list[Any]:
    return [
        row(b"r%05d" % n, [value(b"f", b"a", b"v%04d" % n, n), value(b"g", b"", b"w%d" % (n % 10))], **more)
        for n in range(count)
    ]


@st.composite
def stretches(draw: st.DrawFn) -> list[Any]:
    """Rows as tables have them: many with the same columns, some with others."""
    wires: list[Any] = []
    for _ in range(draw(st.integers(1, 4))):
        names = draw(st.lists(st.sampled_from([(b"f", b"a"), (b"f", b"b"), (b"g", b"")]), max_size=3, unique=True))
        key, length = draw(st.integers(1, 3)), draw(st.integers(0, 3))
        is_stale = draw(st.booleans())
        for _ in range(draw(st.integers(1, 2 * ROWS_MIN))):
            varies = draw(st.integers(0, 9)) == 0
            values = [
                value(*name, draw(st.binary(min_size=length, max_size=length + varies)), draw(st.integers(0, 2**40)))
                for name in names
            ]
            made = row(draw(st.binary(min_size=key, max_size=key)), values, stale=is_stale)
            wires.append(draw(results2()) if draw(st.integers(0, 19)) == 0 else made)
    return wires


@given(wires=stretches(), sizes=st.lists(st.integers(1, 300), min_size=1, max_size=5))
def test_page_has_the_rows_that_thriftpy2_reads(wires: list[Any], sizes: list[int]) -> None:
    found = page_of(wires, sizes)
    assert list(found) == one_by_one(wires)
    assert len(found) == len(wires)
    assert found.last_row == one_by_one(wires)[-1].row


def test_rows_with_the_same_lengths_are_one_run() -> None:
    wires = alike(1000)
    (run,) = page_of(wires).runs
    assert isinstance(run, AlikeRows)
    assert run.columns == (b"f:a", b"g:")
    assert list(run) == one_by_one(wires)


def test_rows_with_the_same_names_and_other_lengths_are_one_run() -> None:
    wires = [row(b"r%d" % n, [value(b"f", b"a", b"v" * (n % 7))]) for n in range(500)]
    (run,) = page_of(wires).runs
    assert isinstance(run, AlikeRows)
    assert list(run) == one_by_one(wires)


@pytest.mark.parametrize(
    "odd",
    {
        "a tag": row(b"r00020", [value(b"f", b"a", b"v0020", 20, tags=b"t"), value(b"g", b"", b"w0")]),
        "a delete": row(b"r00020", [T2.TColumnValue(b"f", b"a", b"v0020", 20, type=8), value(b"g", b"", b"w0")]),
        "another name": row(b"r00020", [value(b"f", b"b", b"v0020", 20), value(b"g", b"", b"w0")]),
        "another family of the same length": row(b"r00020", [value(b"h", b"a", b"v0020", 20), value(b"g", b"", b"w0")]),
        "stale": row(b"r00020", [value(b"f", b"a", b"v0020", 20), value(b"g", b"", b"w0")], stale=True),
        "partial": row(b"r00020", [value(b"f", b"a", b"v0020", 20), value(b"g", b"", b"w0")], partial=True),
        "no cells": row(b"r00020", []),
    }.items(),
    ids=lambda odd: odd[0],
)
def test_odd_row_among_alike_ones_is_not_taken_for_one_of_them(odd: tuple[str, Any]) -> None:
    wires = alike(40)
    wires[20] = odd[1]
    found = page_of(wires)
    assert list(found) == one_by_one(wires)
    assert len(found.runs) > 1


def test_rows_of_unlike_columns_are_not_tried_again_and_again() -> None:
    wires = [row(b"r%03d" % n, [value(b"f", b"q%03d" % n, b"v")]) for n in range(300)]
    (run,) = page_of(wires).runs
    assert isinstance(run, list)
    assert run == one_by_one(wires)


def test_rows_too_long_for_a_comparison_are_read() -> None:
    wires = [row(b"r%d" % n, [value(b"f", b"a", b"v" * ROW_BYTES_MAX)]) for n in range(9)]
    assert list(page_of(wires)) == one_by_one(wires)


def test_empty_page_waits_for_nothing() -> None:
    assert list(page_of([])) == []


@pytest.mark.parametrize("cut", range(1, 60))
def test_page_that_arrives_in_two_parts_is_read_whole(cut: int) -> None:
    wires = alike(30)
    whole = reply(T2.THBaseService, METHOD, success=wires)
    assert list(read_page(Pieces(whole, [len(whole) * cut // 60, len(whole)]), Rows2())) == one_by_one(wires)
