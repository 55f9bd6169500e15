"""Pages whose rows are alike: the same rows as one by one, whatever breaks the pattern, and dicts for users."""

from __future__ import annotations

import copy
import json
import pickle
from collections import OrderedDict
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import metaclient
from metaclient.backend import ScanPage
from metaclient.connection import Connection, connect_to
from metaclient.errors import BackendFault
from metaclient.model import Cell, CellType, Result, Row
from metaclient.protobuf import ProtocolError
from metaclient.row_limit import RowLimit
from metaclient.row_runs import AlikeRows, RowRuns
from metaclient.runtime import SimRuntime
from metaclient.testing import ScriptedBackend
from metaclient.wire.rpc.cellblock import decode_results, encode_results
from metaclient.wire.rpc.row_layout import decode_page
from metaclient_fake import FakeCluster

ROWS = 40
KEYS = [b"%04d" % number for number in range(ROWS)]


def alike(rows: int = ROWS, cells: int = 3) -> list[Result]:
    """Rows with the same columns and lengths; keys, timestamps and values differ."""
    return [
        Result(b"%04d" % row, [Cell(b"cf:c%d" % number, row + number, b"%05d" % row) for number in range(cells)])
        for row in range(rows)
    ]


def varied(rows: int = ROWS, cells: int = 3) -> list[Result]:
    """The same rows with values of different lengths."""
    return [
        each._replace(cells=[cell._replace(value=b"x" * ((row * 7 + at) % 11)) for at, cell in enumerate(each.cells)])
        for row, each in enumerate(alike(rows, cells))
    ]


def decoded(results: list[Result]) -> RowRuns:
    block = encode_results(results)
    return decode_page(block, 0, len(block), [len(result.cells) for result in results])


@pytest.mark.parametrize("cells", [1, 2, 3, 10])
def test_rows_that_are_alike_come_back_as_one_run(cells: int) -> None:
    results = alike(cells=cells)
    page = decoded(results)
    assert [type(run) for run in page.runs] == [AlikeRows]
    assert page == results
    assert (page[0], page[-1], page[2:4], len(page)) == (results[0], results[-1], results[2:4], ROWS)


@pytest.mark.parametrize("cells", [1, 2, 3, 10])
def test_rows_of_any_lengths_with_the_same_columns_are_kept_together(cells: int) -> None:
    results = varied(cells=cells)
    page = decoded(results)
    assert {type(run) for run in page.runs} == {AlikeRows}
    assert page == results


def test_rows_with_other_columns_each_are_results() -> None:
    results = [Result(b"%04d" % row, [Cell(b"cf:%04d" % row, row, b"v" * (row % 3))]) for row in range(ROWS)]
    page = decoded(results)
    assert {type(run) for run in page.runs} == {list}
    assert page == results


def odd(cells: list[Cell]) -> dict[str, list[Cell]]:
    """Cells that break the pattern in one way each."""
    first = cells[0]
    return {
        "value": [first._replace(value=b"longer than the others"), *cells[1:]],
        "empty value": [first._replace(value=b""), *cells[1:]],
        "name of the same length": [first._replace(column=b"cf:x0"), *cells[1:]],
        "family of another length": [first._replace(column=b"c:xc0"), *cells[1:]],
        "last name": [*cells[:-1], cells[-1]._replace(column=b"cf:cZ")],
        "type": [*cells[:-1], cells[-1]._replace(type=CellType.DELETE_COLUMN)],
        "number of cells": cells[:-1],
        "bytes moved between two values": [
            first._replace(value=first.value + b"x"),
            cells[1]._replace(value=cells[1].value[1:]),
            *cells[2:],
        ],
    }


@pytest.mark.parametrize("kind", list(odd(alike()[0].cells)))  # type: ignore[arg-type]  # a list
@pytest.mark.parametrize("at", [0, 1, 7, 20, ROWS - 1])
@pytest.mark.parametrize("rows", [alike, varied])
def test_odd_row_among_alike_rows_is_not_read_by_their_layout(
    kind: str, at: int, rows: Callable[[], list[Result]]
) -> None:
    results = rows()
    results[at] = results[at]._replace(cells=odd(list(results[at].cells))[kind])
    assert decoded(results) == results


@given(st.lists(st.tuples(st.integers(1, 30), st.integers(1, 3), st.integers(0, 9)), max_size=8))
def test_runs_of_any_length_come_back(runs: list[tuple[int, int, int]]) -> None:
    results = []
    for rows, cells, size in runs:
        for row in range(rows):
            made = [Cell(b"cf:%d" % number, row, bytes([row]) * size) for number in range(cells)]
            results.append(Result(b"%06d" % len(results), made))
    assert decoded(results) == results


@given(st.data(), st.sampled_from([alike, varied]))
def test_changed_byte_in_a_page_gives_what_one_by_one_gives(
    data: st.DataObject, rows: Callable[..., list[Result]]
) -> None:
    """A byte that is no longer as in the other rows is an error, or another row: the same by both decoders."""
    results = rows(rows=20, cells=2)
    block = bytearray(encode_results(results))
    block[data.draw(st.integers(0, len(block) - 1))] = data.draw(st.integers(0, 255))
    counts = [2] * 20

    def decode(decoder: Any) -> list[Result] | None:
        try:
            return list(decoder(bytes(block), 0, len(block), counts))
        except ProtocolError:
            return None

    assert decode(decode_page) == decode(decode_results)


@pytest.mark.parametrize("cut", [1, 100, -1])
@pytest.mark.parametrize("rows", [alike, varied])
def test_page_with_too_few_or_too_many_bytes_is_an_error(cut: int, rows: Callable[[], list[Result]]) -> None:
    results = rows()
    block = encode_results(results)
    counts = [3] * (ROWS if cut > 0 else ROWS - 1)
    with pytest.raises(ProtocolError):
        decode_page(block[:-cut] if cut > 0 else block, 0, len(block) - max(cut, 0), counts)


def test_rows_longer_than_a_comparison_come_back() -> None:
    results = [Result(b"%04d" % row, [Cell(b"cf:q", row, bytes([row]) * 20_000)]) for row in range(20)]
    assert decoded(results) == results


@pytest.mark.parametrize("left", [ROWS, ROWS + 5, 7])
def test_limit_counts_the_rows_of_a_run(left: int) -> None:
    limit = RowLimit(left)
    page = decoded(alike())
    assert limit.take_all(len(page)) is (left >= ROWS)
    if left < ROWS:
        assert limit.left == left, "a page that is not within the limit is not counted"
        assert limit.take(page) == alike()[:left]
    assert limit.left == max(0, left - ROWS)


# -- scans -------------------------------------------------------------------------------------------------------------


@pytest.fixture
def served() -> Iterator[Connection]:
    with FakeCluster(servers=1, seed=1) as cluster:
        front = cluster.serve(rpc_port=0)
        with metaclient.connect(str(front.rpc_url)) as connection:
            connection.create_table("t", {"cf": {}})
            with connection.table("t").batch() as batch:
                for key in KEYS:
                    batch.put(key, {b"cf:a": key, b"cf:b": b"b"})
            yield connection


def test_scanned_row_is_a_dict_to_every_reader(served: Connection) -> None:
    """Code in C reads a dict's own table, not its methods: equality, pickles, copies, unpacking and json agree."""
    for key, row in served.table("t").scan():
        expected = {b"cf:a": key, b"cf:b": b"b"}
        assert type(row) is Row
        assert row == expected
        assert expected == row
        assert {**row} == dict(row) == row | {} == expected
        assert list(row) == [b"cf:a", b"cf:b"]
        for again in (pickle.loads(pickle.dumps(row)), copy.copy(row), copy.deepcopy(row)):
            assert (type(again), again, again.region, again.why) == (Row, expected, row.region, row.why)
        assert json.dumps({name.decode(): value.decode() for name, value in row.items()})
        assert (row.stale, row.lag_s, row.replica_id, row.why) == (False, None, 0, "primary")
        assert row.region is not None
        assert row.server is not None
        row[b"cf:new"] = b"mine"
    assert [len(row) for _, row in served.table("t").scan()] == [2] * ROWS, "a row of one scan is not shared"


def test_scan_by_runs_keeps_limits_directions_and_options(served: Connection) -> None:
    table = served.table("t")
    assert [key for key, _ in table.scan()] == KEYS
    assert [key for key, _ in table.scan(reverse=True)] == KEYS[::-1]
    assert [key for key, _ in table.scan(limit=13, batch_size=9)] == KEYS[:13]
    assert [key for key, _ in table.scan(row_start=KEYS[5], row_stop=KEYS[30], batch_size=10)] == KEYS[5:30]
    stamped = [row for _, row in table.scan(include_timestamp=True)]
    assert all(row[b"cf:b"][0] == b"b" and row[b"cf:b"][1] > 0 for row in stamped)
    assert all(type(row) is OrderedDict for _, row in table.scan(sorted_columns=True))


@pytest.mark.parametrize("order", [[*KEYS[:20], *KEYS[19:]], [*KEYS[:20], KEYS[0], *KEYS[20:]]])
def test_run_whose_rows_are_out_of_order_is_a_fault(order: list[bytes]) -> None:
    with SimRuntime(seed=1) as runtime:
        backend = ScriptedBackend(runtime)
        backend.add_table("t")
        run = AlikeRows(order, (b"cf:q",), lambda: iter([(b"v",)] * len(order)), lambda: iter([(1,)] * len(order)))
        backend.scan_open = lambda *_: ScanPage(RowRuns([run]), None, True)  # type: ignore[method-assign]  # a bad one
        with connect_to(backend, runtime=runtime) as connection, pytest.raises(BackendFault, match="to a scan at"):
            list(connection.table("t").scan())
