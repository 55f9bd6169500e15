"""Reads of many rows at once return what reads of each row return, whatever the cache knows and whatever fails."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from metaclient.backend import Action, Outcome
from metaclient.connection import Connection, connect_to
from metaclient.errors import MetaClientError, RegionMoved, RequestRefused
from metaclient.many_gets import FoundRows, GetActions, Gets, PlacedRows
from metaclient.model import Cell, Get, PutCells, RegionInfo, RegionLocation, Result, ServerName
from metaclient.row_runs import AlikeRows, RowRuns
from metaclient.runtime import SimRuntime
from metaclient.testing import ScriptedBackend

SPLITS = [b"d", b"h", b"m"]
LIKE = Get(b"", (b"cf",), 3, 5, 9, b"KeyOnlyFilter(false)", True)
PLACE = RegionLocation(RegionInfo(b"t", region_id=1), ServerName("rs1", 16020, 1), 1)


class Pages(ScriptedBackend):
    """Answers gets as a backend that decodes whole pages; ``failures`` are raised by its first calls."""

    def __init__(self, runtime: SimRuntime) -> None:
        super().__init__(runtime)
        self.sent: list[list[bytes]] = []
        self.failures: list[MetaClientError] = []

    def batch(
        self, server: ServerName | None, table: bytes, actions: Sequence[Action], deadline: float
    ) -> Sequence[Outcome]:
        outcomes: Any = super().batch(server, table, actions, deadline)
        if not isinstance(actions, GetActions):
            return outcomes  # type: ignore[no-any-return]  # of the scripted backend
        self.sent.append(actions.rows)
        if self.failures:
            raise self.failures.pop(0)
        return found_rows(actions.rows, outcomes)


def found_rows(rows: list[bytes], results: Sequence[Result]) -> FoundRows:
    """The results as runs, with one run for neighbours of the same columns."""
    runs: list[AlikeRows | list[Result]] = []
    there = [index for index, result in enumerate(results) if result.cells]
    for index in there:
        result = results[index]
        columns = tuple(cell.column for cell in result.cells)
        values, stamps = tuple(cell.value for cell in result.cells), tuple(cell.timestamp for cell in result.cells)
        if index % 3:
            runs.append([result])
        else:
            runs.append(AlikeRows([result.row], columns, lambda v=values: iter([v]), lambda s=stamps: iter([s])))  # type: ignore[misc]  # mypy cannot infer defaults of lambdas
    return FoundRows(rows, RowRuns(runs), there if len(there) < len(rows) else None)


def connected(backend: ScriptedBackend) -> Connection:
    backend.add_table("t", families=[b"cf"], splits=SPLITS)
    connection = connect_to(backend, runtime=backend.runtime)
    table = connection.table("t")
    for number, letter in enumerate(b"abcdefghijklmnop"):
        row = bytes([letter])
        table.put(row, {b"cf:q": row.upper()} if number % 4 else {b"cf:q": row, b"cf:r": b"2"}, timestamp=number + 1)
    return connection


@pytest.fixture
def pages() -> Iterator[Pages]:
    with SimRuntime(seed=1) as runtime:
        yield Pages(runtime)


keys = st.lists(
    st.sampled_from([bytes([letter]) for letter in b"abcdefghijklmnopqrz"] + [b"aa", b"m" * 300]), max_size=20
)


@given(asked=keys, known=keys, columns=st.sampled_from([None, [b"cf:r"]]), timed=st.booleans())
def test_pages_return_the_rows_that_single_results_return(
    asked: list[bytes], known: list[bytes], columns: Any, timed: bool
) -> None:
    found = []
    for kind in (Pages, ScriptedBackend):
        with SimRuntime(seed=1) as runtime, connected(kind(runtime)) as connection:
            connection.engine.operations.locator.cache.clear()
            table = connection.table("t")
            for row in known:
                table.row(row)
            rows = table.rows(asked, columns, include_timestamp=timed)
            found.append([(key, row, row.region, row.server, row.why, row.stale) for key, row in rows] if asked else [])
    assert found[0] == found[1]
    with SimRuntime(seed=1) as runtime, connected(Pages(runtime)) as connection:
        single = [(row, connection.table("t").row(row, columns, include_timestamp=timed)) for row in asked]
    assert [(key, row) for key, row, *_ in found[0]] == [(key, row) for key, row in single if row]


def test_rows_after_a_region_that_failed_once_are_read_again_and_in_order(pages: Pages) -> None:
    with connected(pages) as connection:
        table = connection.table("t")
        pages.failures = [RegionMoved("moved")]
        asked = [b"p", b"a", b"e", b"nobody", b"a"]
        assert [key for key, _ in table.rows(asked)] == [b"p", b"a", b"e", b"a"]
        assert sum(map(len, pages.sent)) > len(asked)  # some were sent twice


def test_fatal_error_of_one_call_is_raised_although_others_answered_pages(pages: Pages) -> None:
    with connected(pages) as connection:
        pages.failures = [RequestRefused("refused")]
        with pytest.raises(RequestRefused):
            connection.table("t").rows([b"a", b"z"])


def test_hint_is_confirmed_by_a_page(pages: Pages) -> None:
    with connected(pages) as connection:
        table = connection.table("t")
        table.row(b"a")
        cache = connection.engine.operations.locator.cache
        place = cache.cached(b"t", b"a")
        assert place is not None
        assert cache.moved(place, place.server, place.seqnum)
        assert cache.cached(b"t", b"a").is_hint  # type: ignore[union-attr]  # cached above
        table.rows([b"a", b"b"])
        assert not cache.cached(b"t", b"a").is_hint  # type: ignore[union-attr]  # cached above


def test_row_behind_the_end_of_a_known_region_is_looked_up(pages: Pages) -> None:
    with connected(pages) as connection:
        table, cache = connection.table("t"), connection.engine.operations.locator.cache
        table.row(b"a")
        table.row(b"p")
        place = cache.cached(b"t", b"e")
        if place is not None:
            cache.forget(place)
        assert [key for key, _ in table.rows([b"a", b"e", b"p"])] == [b"a", b"e", b"p"]


def test_gets_are_equal_to_a_list_of_gets() -> None:
    gets = Gets([b"a", b"b"], LIKE)
    expected = [Get(row, (b"cf",), 3, 5, 9, b"KeyOnlyFilter(false)", True) for row in (b"a", b"b")]
    assert gets == expected
    assert (len(gets), gets[-1], gets[:1], repr(gets)) == (2, expected[-1], expected[:1], repr(expected))


def test_actions_have_the_places_of_their_rows() -> None:
    actions = GetActions([b"a", b"b", b"c"], LIKE, [(None, 1), (PLACE, 2)])
    assert [(action.place, action.operation.row) for action in actions] == [
        (None, b"a"), (PLACE, b"b"), (PLACE, b"c")
    ]  # fmt: skip
    assert actions.has_different_regions
    assert not GetActions([b"a", b"b"], LIKE, [(PLACE, 1), (PLACE, 1)]).has_different_regions


def test_placed_rows_are_in_the_order_of_the_gets() -> None:
    first, second = (Result(row, PutCells((b"cf:q",), (1,), (row,))) for row in (b"a", b"b"))
    parts = [
        ([1], [PLACE], FoundRows([b"b"], RowRuns([[second]]))),
        ([2, 0], [None, None], FoundRows([b"c", b"a"], RowRuns([[first]]), [1])),
    ]
    placed = PlacedRows(3, parts)
    assert placed == [(first, None), (second, PLACE), (Result(b"c"), None)]
    assert first.cells == [Cell(b"cf:q", 1, b"a")]
