"""A page as Arrow is the page as rows: whatever stands in its values, and however it arrives."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from metaclient.wire.thrift.idl import thrift2
from metaclient_thrift.binary import NotOurs, Rows2, read_rows, rows_begin
from metaclient_thrift.cell_pages import CellRows, cells_of_rows, read_cells
from tests.unit.thrift.test_binary import Pieces, reply, results2

pytest.importorskip("numpy")
pytest.importorskip("pyarrow")

T = thrift2()
#: What looks like the beginning of a row, of a cell, of a tail; and what looks like the end of a page.
HEADS = [
    b"\x0b\0\1\0\0\0\1r\x0f\0\2\x0c\0\0\0\1",
    b"\x0b\0\1\0\0\0\1f\x0b\0\2\0\0\0\1q\x0b\0\3\0\0\0\0\x0a\0\4\0\0\0\0\0\0\0\7\3\0\6\4\0",
    b"\x02\0\3\0\2\0\4\0\0",
    b"\x0b\0\1",
    b"\0\0\0",
]
VALUES = st.lists(st.sampled_from(HEADS) | st.binary(max_size=8), max_size=4).map(b"".join)


def cell(qualifier: bytes, value: bytes, timestamp: int = 7) -> Any:
    return T.TColumnValue(b"cf", qualifier, value, timestamp, None, 4)


def row(key: bytes, *cells: Any, stale: bool = False, partial: bool = False) -> Any:
    return T.TResult(row=key, columnValues=list(cells), stale=stale, partial=partial)


def page(rows: list[Any]) -> bytes:
    return reply(T.THBaseService, "getScannerRows", success=rows)


def by_rows(data: bytes) -> CellRows:
    return CellRows.of(read_rows(Pieces(data, [len(data)]), Rows2()))


def same(one: CellRows, other: CellRows) -> None:
    assert one.cells.to_pylist() == other.cells.to_pylist()
    assert one.cells.schema.names == other.cells.schema.names
    assert (one.rows, one.first_row, one.last_row, one.is_stale) == (
        other.rows,
        other.first_row,
        other.last_row,
        other.is_stale,
    )


@st.composite
def pages(draw: st.DrawFn) -> bytes:
    rows = [
        row(
            draw(VALUES),
            *(cell(draw(VALUES), draw(VALUES), draw(st.integers(0, 2**62))) for _ in range(draw(st.integers(1, 3)))),
            stale=draw(st.booleans()),
        )
        for _ in range(draw(st.integers(1, 5)))
    ]
    return page(rows)


@given(pages(), st.lists(st.integers(1, 200), min_size=1, max_size=5))
@example(page([row(b"r", cell(b"q", HEADS[0] + HEADS[1] + HEADS[2]))]), [1])
def test_cells_are_the_rows_cells_whatever_they_look_like(data: bytes, sizes: list[int]) -> None:
    same(read_cells(Pieces(data, sizes), Rows2()), by_rows(data))


@given(st.lists(results2(), max_size=4), st.lists(st.integers(1, 40), min_size=1, max_size=5))
def test_pages_of_any_shape_are_read_one_way_or_the_other(rows: list[Any], sizes: list[int]) -> None:
    data = page(rows)
    same(read_cells(Pieces(data, sizes), Rows2()), by_rows(data))


def test_ordinary_pages_are_read_at_once() -> None:
    data = page([row(b"%04d" % n, cell(b"a", b"v" * (n % 7)), cell(b"b", b"%d" % n)) for n in range(300)])
    at, count = rows_begin(Pieces(data, [len(data)]).started())
    found = cells_of_rows(data, at, count)
    assert isinstance(found, tuple)
    cells, end = found
    assert end == len(data) - 1
    assert (cells.rows, cells.cells.num_rows, cells.first_row, cells.last_row) == (300, 600, b"0000", b"0299")


def test_a_row_that_goes_on_is_not_taken_for_a_whole_one() -> None:
    data = page([row(b"r", cell(b"q", b"v"), partial=True)])
    at, count = rows_begin(Pieces(data, [len(data)]).started())
    assert cells_of_rows(data, at, count) is None


@pytest.mark.parametrize("cut", [1, 5, 20, 60])
def test_what_is_not_all_there_is_not_read(cut: int) -> None:
    data = page([row(b"%d" % n, cell(b"q", b"v")) for n in range(5)])
    at, count = rows_begin(Pieces(data, [len(data)]).started())
    assert cells_of_rows(data[:-cut], at, count) is None


def test_an_error_is_left_to_thrift() -> None:
    data = reply(T.THBaseService, "getScannerRows", io=T.TIOError(message="gone"))
    with pytest.raises(NotOurs):
        read_cells(Pieces(data, [len(data)]).started(), Rows2())
