"""Comparing two sides of a table by key: every row is judged once, whatever is missing, late or in pieces."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import chain, pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from metaclient.model import Cell, CellType, Result
from metaclient.verification.comparison import (
    Compared,
    RowVerdict,
    blocks,
    digest_of,
    first_difference,
    judged,
    merged,
    whole_rows,
)


def put(timestamp: int, value: bytes = b"v", column: bytes = b"a:q") -> Cell:
    return Cell(column, timestamp, value)


def marker(timestamp: int, kind: CellType = CellType.DELETE_COLUMN, column: bytes = b"a:q") -> Cell:
    return Cell(column, timestamp, b"", kind)


cells = st.builds(Cell, st.sampled_from([b"cf:a", b"cf:b"]), st.integers(0, 3), st.binary(max_size=2))
tables = st.dictionaries(st.binary(min_size=1, max_size=2), st.lists(cells, min_size=1, max_size=3), max_size=12)


def scanned(table: dict[bytes, list[Cell]]) -> list[Result]:
    return [Result(row, tuple(table[row])) for row in sorted(table)]


def expected(source: dict[bytes, list[Cell]], peer: dict[bytes, list[Cell]]) -> list[tuple[RowVerdict, bytes]]:
    def verdict(row: bytes) -> RowVerdict:
        if row not in source:
            return RowVerdict.ONLY_IN_PEER
        if row not in peer:
            return RowVerdict.ONLY_IN_SOURCE
        return RowVerdict.GOODROWS if once(source[row]) == once(peer[row]) else RowVerdict.CONTENT_DIFFERENT

    return [(verdict(row), row) for row in sorted({*source, *peer})]


def once(cells: list[Cell]) -> list[Cell]:
    """Without cells that stand twice in a row."""
    return [cell for at, cell in enumerate(cells) if not at or cells[at - 1] != cell]


def verdicts(found: Iterable[Compared]) -> list[tuple[RowVerdict, bytes]]:
    return [(one.verdict, one.row) for one in found]


@given(tables, tables)
def test_merging_is_what_two_dictionaries_say(source: dict[bytes, list[Cell]], peer: dict[bytes, list[Cell]]) -> None:
    assert verdicts(merged(scanned(source), scanned(peer))) == expected(source, peer)


@given(tables, tables)
def test_pieces_of_rows_change_nothing(source: dict[bytes, list[Cell]], peer: dict[bytes, list[Cell]]) -> None:
    pieces = [Result(one.row, (cell,), is_partial=True) for one in scanned(source) for cell in one.cells]
    assert verdicts(merged(pieces, scanned(peer))) == expected(source, peer)


def test_a_row_of_a_raw_scan_without_cells_is_none() -> None:
    assert list(whole_rows([Result(b"a", ()), Result(b"b", (Cell(b"cf:a", 1, b""),)), Result(b"c", ())])) == [
        Result(b"b", [Cell(b"cf:a", 1, b"")])
    ]


#: (cells of the source, cells of the peer, verdict, the reported difference)
CASES = {
    "equal": ([put(5)], [put(5)], RowVerdict.GOODROWS, None),
    "another value": (
        [put(5)],
        [put(5, b"other")],
        RowVerdict.CONTENT_DIFFERENT,
        "a:q at 5 has another value in the peer",
    ),
    "another timestamp": ([put(5)], [put(6)], RowVerdict.CONTENT_DIFFERENT, "a:q at 6 is only in the peer"),
    "a newer version is late": (
        [put(6), put(5)],
        [put(5)],
        RowVerdict.CONTENT_DIFFERENT,
        "a:q at 6 is only in the source",
    ),
    "an old version is missing": (
        [put(6), put(5)],
        [put(6)],
        RowVerdict.CONTENT_DIFFERENT,
        "a:q at 5 is only in the source",
    ),
    "versions in another order": (
        [put(6), put(5)],
        [put(5), put(6)],
        RowVerdict.CONTENT_DIFFERENT,
        "a:q at 6 is only in the source",
    ),
    "a column more in the peer": (
        [put(5)],
        [put(5), put(5, column=b"a:z")],
        RowVerdict.CONTENT_DIFFERENT,
        "a:z at 5 is only in the peer",
    ),
    "a qualifier before the other": (
        [put(5)],
        [put(5, column=b"a:b"), put(5)],
        RowVerdict.CONTENT_DIFFERENT,
        "a:b at 5 is only in the peer",
    ),
    "a family that sorts before the colon": (
        [put(5), put(5, column=b"a1:a")],
        [put(5)],
        RowVerdict.CONTENT_DIFFERENT,
        "a1:a at 5 is only in the source",
    ),
    "a delete that is late": (
        [marker(6), put(5)],
        [put(5)],
        RowVerdict.CONTENT_DIFFERENT,
        "a:q at 6 (DELETE_COLUMN) is only in the source",
    ),
    "another kind of delete": (
        [marker(6)],
        [marker(6, CellType.DELETE)],
        RowVerdict.CONTENT_DIFFERENT,
        "a:q at 6 (DELETE_COLUMN) is only in the source",
    ),
    "a delete of the family in the peer": (
        [put(5)],
        [marker(6, CellType.DELETE_FAMILY, b"a:"), put(5)],
        RowVerdict.CONTENT_DIFFERENT,
        "a: at 6 (DELETE_FAMILY) is only in the peer",
    ),
    "a put hidden by a delete of its time": (
        [marker(5), put(5)],
        [marker(5)],
        RowVerdict.CONTENT_DIFFERENT,
        "a:q at 5 is only in the source",
    ),
    "a delete that was delivered twice": (
        [marker(6), put(5)],
        [marker(6), marker(6), put(5)],
        RowVerdict.GOODROWS,
        None,
    ),
    "only in the source": ([put(5)], [], RowVerdict.ONLY_IN_SOURCE, None),
    "only in the peer": ([], [put(5)], RowVerdict.ONLY_IN_PEER, None),
    "only a delete in the source": ([marker(5)], [], RowVerdict.ONLY_IN_SOURCE, None),
}


@pytest.mark.parametrize("name", CASES)
def test_each_kind_of_difference_is_found_and_named(name: str) -> None:
    source, peer, verdict, detail = CASES[name]
    assert judged(b"r", Result(b"r", source), Result(b"r", peer)) == Compared(verdict, b"r", detail)


def test_a_row_at_the_end_of_one_side_only_is_not_lost() -> None:
    one, last = Result(b"a", [put(1)]), Result(b"z", [put(1)])
    assert verdicts(merged([one], [one, last])) == [(RowVerdict.GOODROWS, b"a"), (RowVerdict.ONLY_IN_PEER, b"z")]
    assert verdicts(merged([one, last], [one])) == [(RowVerdict.GOODROWS, b"a"), (RowVerdict.ONLY_IN_SOURCE, b"z")]


def test_a_row_before_the_first_of_the_source_is_not_lost() -> None:
    """VerifyReplication of HBase begins its scan of the peer at the first row of the source."""
    first, second = Result(b"a", [put(1)]), Result(b"b", [put(1)])
    assert verdicts(merged([second], [first, second])) == [(RowVerdict.ONLY_IN_PEER, b"a"), (RowVerdict.GOODROWS, b"b")]
    assert verdicts(merged([], [first])) == [(RowVerdict.ONLY_IN_PEER, b"a")]


def test_values_are_not_in_a_report() -> None:
    assert "secret" not in first_difference([put(5, b"secret")], [put(5, b"other secret")])


@given(tables, st.integers(1, 5))
def test_blocks_cover_the_range_without_a_gap(table: dict[bytes, list[Cell]], rows: int) -> None:
    found = list(blocks(scanned(table), b"", b"\xff\xff\xff", rows))
    assert [found[0].start, found[-1].stop] == [b"", b"\xff\xff\xff"]
    assert all(one.stop == other.start for one, other in pairwise(found))
    assert sum(block.rows for block in found) == len(table)
    assert all(0 < block.rows <= rows for block in found[1:])
    for block in found:
        inside = [one for one in scanned(table) if block.start <= one.row < block.stop]
        assert digest_of(inside) == (block.rows, block.digest)


@given(tables, tables)
def test_digests_are_equal_exactly_when_rows_are(
    source: dict[bytes, list[Cell]], peer: dict[bytes, list[Cell]]
) -> None:
    is_equal = all(verdict is RowVerdict.GOODROWS for verdict, _ in expected(source, peer))
    assert (digest_of(scanned(source)) == digest_of(scanned(peer))) == is_equal


def test_digests_tell_where_one_value_ends() -> None:
    """The same bytes, cut elsewhere, are other cells."""
    one = [Result(b"a", (Cell(b"cf:a", 1, b"bc"),))]
    other = [Result(b"a", (Cell(b"cf:ab", 1, b"c"),))]
    assert digest_of(one) != digest_of(other)
    assert digest_of(one) != digest_of(chain(one, [Result(b"b", (Cell(b"cf:a", 1, b""),))]))
