"""The fake beside a real HBase: the same random operations to both, every answer compared cell by cell.

An example is a list of operations on a few rows of its own.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator

import pytest
from hypothesis import HealthCheck, event, given, settings
from hypothesis import strategies as st

from metaclient.model import Cell, Get, Put, Scan
from metaclient_local_hbase import LocalHBase
from tests.live.random_operations import FILTERED_SCANS, OPERATIONS, PIECES, PLAIN_WRITES
from tests.live.two_sides import EVERYTHING, Both, both_sides

#: What the fake mirrors. On 3.0.0-alpha-4 random scans over deleted rows find a difference that is not explained yet.
MIRRORED = "2.6.1"
#: Examples of one run; more are a matter of patience: METACLIENT_DIFFERENTIAL_EXAMPLES.
EXAMPLES = int(os.environ.get("METACLIENT_DIFFERENTIAL_EXAMPLES", "60"))


@pytest.fixture(scope="module")
def both(hbase: LocalHBase) -> Iterator[Callable[[], Both]]:
    with both_sides(hbase) as begin:
        yield begin


@pytest.mark.essential
@settings(max_examples=EXAMPLES, suppress_health_check=list(HealthCheck))
@given(operations=st.lists(OPERATIONS, min_size=1, max_size=20))
def test_fake_and_real_hbase_give_the_same_answers(both: Callable[[], Both], operations: list[object]) -> None:
    sides = both()
    for operation in operations:
        event(f"{type(operation).__name__}: {sides.compare(operation)}")
        if not isinstance(operation, Get | Scan):
            sides.compare(EVERYTHING)


@pytest.mark.essential
@pytest.mark.parametrize("reads", [FILTERED_SCANS, PIECES], ids=["filters", "pieces"])
@settings(max_examples=EXAMPLES, suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_scans_over_what_is_deleted_give_the_same_answers(
    both: Callable[[], Both], hbase: LocalHBase, reads: st.SearchStrategy[list[Scan]], data: st.DataObject
) -> None:
    """A scanner meets what is stored, and a filter and a piece of a row can tell."""
    if hbase.version != MIRRORED:
        pytest.skip(f"the fake's filters and pieces of rows are those of HBase {MIRRORED}")
    sides = both()
    for write in data.draw(PLAIN_WRITES):
        sides.compare(write)
    for scan in data.draw(reads):
        event(f"{type(scan).__name__}: {sides.compare(scan)}")


@pytest.mark.parametrize("text", ["PageFilter(2)", "SKIP ValueFilter(=, 'binary:1')", "ColumnCountGetFilter(2)"])
def test_pieces_of_rows_and_filters_of_whole_rows(both: Callable[[], Both], text: str) -> None:
    """HBase refuses most such pairs, and its gateway takes a second for it: too slow for the search above."""
    sides = both()
    sides.compare(Put(b"1", (Cell(b"a:p", 1, b"1"), Cell(b"a:q", 1, b"2"), Cell(b"b:p", 1, b"3"))))
    sides.compare(Scan(b"1", b"2", batch=2, filter=text.encode()))


@pytest.mark.essential
@pytest.mark.parametrize("is_reversed", [False, True])
@pytest.mark.parametrize("columns", [(), (b"a",), (b"b",)])
@pytest.mark.parametrize("rest", ["", ", true, true", ", false, true"])
def test_families_that_a_filter_does_not_need(
    both: Callable[[], Both], is_reversed: bool, columns: tuple[bytes, ...], rest: str
) -> None:
    """They are read on demand, which HBase refuses in a reversed scan; the search above meets it too seldom."""
    sides = both()
    sides.compare(Put(b"1", (Cell(b"a:p", 1, b"1"), Cell(b"a:q", 1, b"2"), Cell(b"b:p", 1, b"3"))))
    first, last = (b"2", b"1") if is_reversed else (b"1", b"2")
    text = f"SingleColumnValueFilter('a', 'p', =, 'binary:1'{rest})".encode()
    sides.compare(Scan(first, last, include_stop=True, is_reversed=is_reversed, columns=columns, filter=text))


@pytest.mark.essential
@pytest.mark.parametrize(
    "first", ["ColumnPrefixFilter('pq')", "QualifierFilter(=, 'binary:pq')", "ValueFilter(=, 'binary:2')"]
)
@pytest.mark.parametrize("second", ["FirstKeyOnlyFilter()", "ColumnPaginationFilter(1, 0)", "ColumnCountGetFilter(1)"])
def test_order_of_filters_in_an_and(both: Callable[[], Both], first: str, second: str) -> None:
    """A part that counts is shown only what those before it let pass."""
    sides = both()
    sides.compare(Put(b"1", (Cell(b"a:p", 1, b"1"), Cell(b"a:pq", 1, b"2"), Cell(b"b:p", 1, b"2"))))
    for text in (f"{first} AND {second}", f"{second} AND {first}"):
        sides.compare(Scan(b"1", b"2", filter=text.encode()))
