"""Comparing two sides of a table by key: every row is judged once, whatever is missing, late or in pieces."""

from __future__ import annotations

from itertools import chain, pairwise

from hypothesis import given
from hypothesis import strategies as st

from metaclient.model import Cell, Result
from metaclient.verification.comparison import RowVerdict, blocks, digest_of, judged, merged, whole_rows

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
        return RowVerdict.GOODROWS if source[row] == peer[row] else RowVerdict.CONTENT_DIFFERENT

    return [(verdict(row), row) for row in sorted({*source, *peer})]


@given(tables, tables)
def test_merging_is_what_two_dictionaries_say(source: dict[bytes, list[Cell]], peer: dict[bytes, list[Cell]]) -> None:
    assert list(merged(scanned(source), scanned(peer))) == expected(source, peer)


@given(tables, tables)
def test_pieces_of_rows_change_nothing(source: dict[bytes, list[Cell]], peer: dict[bytes, list[Cell]]) -> None:
    pieces = [Result(one.row, (cell,), is_partial=True) for one in scanned(source) for cell in one.cells]
    assert list(merged(pieces, scanned(peer))) == expected(source, peer)


def test_a_row_of_a_raw_scan_without_cells_is_none() -> None:
    assert list(whole_rows([Result(b"a", ()), Result(b"b", (Cell(b"cf:a", 1, b""),)), Result(b"c", ())])) == [
        Result(b"b", [Cell(b"cf:a", 1, b"")])
    ]


def test_timestamps_and_types_count() -> None:
    one = Result(b"r", (Cell(b"cf:a", 1, b"x"),))
    assert judged(one, Result(b"r", [Cell(b"cf:a", 1, b"x")])) is RowVerdict.GOODROWS
    assert judged(one, Result(b"r", (Cell(b"cf:a", 2, b"x"),))) is RowVerdict.CONTENT_DIFFERENT
    assert judged(one, Result(b"r")) is RowVerdict.ONLY_IN_SOURCE
    assert judged(Result(b"r"), one) is RowVerdict.ONLY_IN_PEER


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
    assert (digest_of(scanned(source)) == digest_of(scanned(peer))) == (source == peer)


def test_digests_tell_where_one_value_ends() -> None:
    """The same bytes, cut elsewhere, are other cells."""
    one = [Result(b"a", (Cell(b"cf:a", 1, b"bc"),))]
    other = [Result(b"a", (Cell(b"cf:ab", 1, b"c"),))]
    assert digest_of(one) != digest_of(other)
    assert digest_of(one) != digest_of(chain(one, [Result(b"b", (Cell(b"cf:a", 1, b""),))]))
