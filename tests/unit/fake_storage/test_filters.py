"""HBase's filter language on real cells: every filter that its parser knows, combined and alone."""

from __future__ import annotations

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from metaclient.errors import RequestRefused
from metaclient.model import Cell, CellType, Delete, Get, Put, Scan
from metaclient_fake.storage import Region
from metaclient_fake.storage.filters import FILTERS, FilterSyntaxError, parse
from tests.unit.fake_storage.bench import Bench, scanned


@pytest.fixture
def region(bench: Bench) -> Region:
    """Four rows: cf:a cf:ab cf:b in all, g:x in the even ones; r1 has a second version of cf:a."""
    region = bench.open()
    for index in range(1, 5):
        cells = [Cell(b"cf:a", 10, b"%d" % index), Cell(b"cf:ab", 20, b"AB"), Cell(b"cf:b", 10, b"b%d" % index)]
        if index % 2 == 0:
            cells.append(Cell(b"g:x", 10, b"even"))
        region.mutate(Put(b"r%d" % index, tuple(cells)))
    region.mutate(Put(b"r1", (Cell(b"cf:a", 30, b"9"),)))
    return region


def passed(region: Region, text: str, **options: object) -> dict[str, str]:
    """Row -> columns, in one word each."""
    scan = Scan(filter=text.encode(), **options)  # type: ignore[arg-type]  # tests pass a Scan's own fields
    return {
        result.row.decode(): " ".join(cell.column.decode() for cell in result.cells) for result in scanned(region, scan)
    }


ODD, EVEN = "cf:a cf:ab cf:b", "cf:a cf:ab cf:b g:x"
B_AND_X = {"r1": "cf:b", "r2": "cf:b g:x", "r3": "cf:b", "r4": "cf:b g:x"}
ALL = {"r1": ODD, "r2": EVEN, "r3": ODD, "r4": EVEN}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("FirstKeyOnlyFilter()", dict.fromkeys(ALL, "cf:a")),
        ("PrefixFilter('r2')", {"r2": EVEN}),
        ("PrefixFilter('r')", ALL),
        ("ColumnPrefixFilter('a')", dict.fromkeys(ALL, "cf:a cf:ab")),
        ("ColumnPrefixFilter('ab')", dict.fromkeys(ALL, "cf:ab")),
        ("MultipleColumnPrefixFilter('b', 'x')", B_AND_X),
        ("PageFilter(2)", {"r1": ODD, "r2": EVEN}),
        ("ColumnPaginationFilter(1, 1)", dict.fromkeys(ALL, "cf:ab")),
        ("ColumnPaginationFilter(2, 2)", B_AND_X),
        ("InclusiveStopFilter('r2')", {"r1": ODD, "r2": EVEN}),
        ("TimestampsFilter(20)", dict.fromkeys(ALL, "cf:ab")),
        ("TimestampsFilter(30, 20)", dict.fromkeys(ALL, "cf:ab") | {"r1": "cf:a cf:ab"}),
        ("RowFilter(=, 'binary:r3')", {"r3": ODD}),
        ("RowFilter(>=, 'binary:r3')", {"r3": ODD, "r4": EVEN}),
        ("RowFilter(=, 'regexstring:[24]$')", {"r2": EVEN, "r4": EVEN}),
        ("RowFilter(=, 'substring:R1')", {"r1": ODD}),
        ("RowFilter(!=, 'binaryprefix:r1')", {"r2": EVEN, "r3": ODD, "r4": EVEN}),
        ("FamilyFilter(=, 'binary:g')", {"r2": "g:x", "r4": "g:x"}),
        ("QualifierFilter(>, 'binary:ab')", B_AND_X),
        ("ValueFilter(=, 'binary:even')", {"r2": "g:x", "r4": "g:x"}),
        ("ValueFilter(<, 'binary:3')", {"r1": "cf:a", "r2": "cf:a"}),
        ("ColumnRangeFilter('ab', true, 'b', false)", dict.fromkeys(ALL, "cf:ab")),
        ("ColumnRangeFilter('ab', false, 'c', true)", dict.fromkeys(ALL, "cf:b")),
        ("ColumnRangeFilter('', true, 'a', true)", dict.fromkeys(ALL, "cf:a")),
        ("SingleColumnValueFilter('cf', 'a', =, 'binary:3')", {"r3": ODD}),
        ("SingleColumnValueFilter('g', 'x', =, 'binary:odd')", {"r1": ODD, "r3": ODD}),
        ("SingleColumnValueFilter('g', 'x', =, 'binary:even', true, true)", {"r2": EVEN, "r4": EVEN}),
        ("SingleColumnValueExcludeFilter('cf', 'a', =, 'binary:3')", {"r3": "cf:ab cf:b"}),
        ("ColumnValueFilter('cf', 'b', =, 'binary:b2')", {"r2": "cf:b"}),
        ("DependentColumnFilter('g', 'x')", {"r2": "cf:a cf:b g:x", "r4": "cf:a cf:b g:x"}),
        ("DependentColumnFilter('g', 'x', true)", {"r2": "cf:a cf:b", "r4": "cf:a cf:b"}),
        ("DependentColumnFilter('cf', 'a', false, =, 'binary:2')", {"r2": "cf:a cf:b g:x"}),
        ("RowFilter(=, 'binary:r1') OR RowFilter(=, 'binary:r4')", {"r1": ODD, "r4": EVEN}),
        ("PrefixFilter('r') AND ColumnPrefixFilter('b')", dict.fromkeys(ALL, "cf:b")),
        (
            "ColumnPrefixFilter('b') OR ColumnPrefixFilter('x')",
            {"r1": "cf:b", "r2": "cf:b g:x", "r3": "cf:b", "r4": "cf:b g:x"},
        ),
        ("SKIP ValueFilter(!=, 'binary:even')", {"r1": ODD, "r3": ODD}),
        ("WHILE RowFilter(!=, 'binary:r3')", {"r1": ODD, "r2": EVEN}),
        ("(RowFilter(=, 'binary:r1') OR RowFilter(=, 'binary:r2')) AND FamilyFilter(=, 'binary:g')", {"r2": "g:x"}),
    ],
)
def test_filter_passes_what_hbase_passes(region: Region, text: str, expected: dict[str, str]) -> None:
    assert passed(region, text) == expected


def test_families_that_a_filter_does_not_need_are_read_for_rows_that_passed(region: Region) -> None:
    """hbase.hregion.scan.loadColumnFamiliesOnDemand: a row without a cell in a family that it needs is never seen."""
    wants_x = "SingleColumnValueFilter('g', 'x', =, 'binary:even', true, true)"
    assert passed(region, wants_x) == {"r2": EVEN, "r4": EVEN}
    assert passed(region, f"SKIP {wants_x}") == {"r2": EVEN, "r4": EVEN}
    assert passed(region, f"SKIP {wants_x}", columns=(b"cf",)) == {}
    assert passed(region, f"SKIP {wants_x} OR PageFilter(9)", columns=(b"cf",)) == dict.fromkeys(ALL, ODD)


def test_and_binds_tighter_than_or(region: Region) -> None:
    text = "RowFilter(=, 'binary:r1') OR RowFilter(=, 'binary:r2') AND FamilyFilter(=, 'binary:g')"
    assert passed(region, text) == {"r1": ODD, "r2": "g:x"}


def test_part_behind_one_that_refuses_does_not_see_the_cell(region: Region) -> None:
    """Seen on a real HBase: FirstKeyOnlyFilter takes the first cell that it is shown, so that the order matters."""
    assert passed(region, "ColumnPrefixFilter('ab') AND FirstKeyOnlyFilter()") == dict.fromkeys(ALL, "cf:ab")
    assert passed(region, "FirstKeyOnlyFilter() AND ColumnPrefixFilter('ab')") == {}
    assert passed(region, "QualifierFilter(=, 'binary:ab') AND FirstKeyOnlyFilter()") == dict.fromkeys(ALL, "cf:ab")


def test_key_only_keeps_columns_and_drops_values(region: Region) -> None:
    results = scanned(region, Scan(filter=b"KeyOnlyFilter()"))
    assert {cell.value for result in results for cell in result.cells} == {b""}
    results = scanned(region, Scan(filter=b"KeyOnlyFilter(true)"))
    assert results[0].cells[2].value == (2).to_bytes(4, "big")


def test_filter_sees_the_family_s_versions_and_the_reader_gets_the_first_that_passes(region: Region) -> None:
    """HBASE-17125: versions are counted after the filter."""
    result = region.get(Get(b"r1", (b"cf:a",), filter=b"ValueFilter(=, 'binary:1')"))
    assert [(cell.timestamp, cell.value) for cell in result.cells] == [(10, b"1")]


def test_column_count_get_filter_takes_the_first_columns(region: Region) -> None:
    result = region.get(Get(b"r2", filter=b"ColumnCountGetFilter(2)"))
    assert [cell.column for cell in result.cells] == [b"cf:a", b"cf:ab"]


def test_column_count_get_filter_ends_the_scan_of_a_family_and_not_of_the_others(region: Region) -> None:
    """Its count is forgotten with each row, but the scanner of a family that met it when it was full is closed."""
    assert passed(region, "ColumnCountGetFilter(3)") == {"r1": ODD, "r2": ODD, "r3": ODD, "r4": ODD}
    assert passed(region, "ColumnCountGetFilter(1)") == {"r1": "cf:a", "r2": "g:x", "r4": "g:x"}


def test_prefix_filter_ends_the_scan_behind_its_rows(region: Region) -> None:
    scanner = region.scanner(Scan(filter=b"PrefixFilter('r1')"))
    results, is_end = scanner.next(10, 1 << 20)
    assert (len(results), is_end, scanner.is_filter_done) == (1, True, True)


@pytest.mark.parametrize("text", ["PrefixFilter('r3')", "RowFilter(=, 'binary:r3')"])
def test_row_filters_work_backwards(region: Region, text: str) -> None:
    assert passed(region, text, is_reversed=True) == {"r3": ODD}


@pytest.mark.parametrize("wrapped", ["{}", "SKIP {}", "({} AND {})"])
def test_filter_that_leaves_families_unread_is_refused_backwards(region: Region, wrapped: str) -> None:
    """HBase reads them on demand, and cannot do so in a reversed scan: not even where nothing would be found."""
    text = wrapped.replace("{}", "SingleColumnValueFilter('cf', 'a', !=, 'binary:none', true, true)").encode()
    assert scanned(region, Scan(filter=text))
    for scan in (Scan(filter=text, is_reversed=True), Scan(b"a", b"", filter=text, is_reversed=True)):
        with pytest.raises(RequestRefused, match="Reverse scan with loading CFs on demand"):
            region.scanner(scan)
    assert scanned(region, Scan(columns=(b"cf",), filter=text, is_reversed=True))
    seen_anyway = (
        b"SingleColumnValueFilter('cf', 'a', !=, 'binary:none')"  # also of rows without the column: all is read
    )
    assert scanned(region, Scan(filter=seen_anyway, is_reversed=True))


def test_inclusive_stop_works_backwards(region: Region) -> None:
    assert list(passed(region, "InclusiveStopFilter('r3')", is_reversed=True)) == ["r4", "r3"]


def test_pagination_counts_only_cells_that_those_before_it_let_pass(region: Region) -> None:
    assert passed(region, "ColumnPrefixFilter('b') AND ColumnPaginationFilter(1, 0)")["r1"] == "cf:b"
    assert "r1" not in passed(region, "ColumnPrefixFilter('b') AND ColumnPaginationFilter(1, 1)")


def test_or_does_not_show_a_filter_the_cells_that_it_has_skipped(region: Region) -> None:
    text = "ColumnPaginationFilter(1, 0) OR QualifierFilter(=, 'binary:b')"
    assert passed(region, text)["r1"] == "cf:a cf:b"


# -- what a filter is shown --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("is_reversed", [False, True])
@pytest.mark.parametrize("hidden", ["deleted", "other column", "other time"])
def test_row_of_which_nothing_is_seen_still_ends_a_scan(region: Region, hidden: str, is_reversed: bool) -> None:
    """Seen on HBase 2.6.1: its scanner looks at what is stored before it looks at what is visible."""
    options: dict[str, object] = {"is_reversed": is_reversed}
    if hidden == "deleted":
        region.mutate(Delete(b"r3"))
    elif hidden == "other column":
        region.mutate(Delete(b"r3", (Cell(b"cf:a", 10, b"", CellType.DELETE_COLUMN),)))
        options["columns"] = (b"cf:a",)
    else:
        region.mutate(Delete(b"r3"))
        region.mutate(Put(b"r3", (Cell(b"cf:a", 99, b"late"),)))
        options["max_timestamp"] = 90
    expected = ["r4"] if is_reversed else ["r1", "r2"]
    assert list(passed(region, "WHILE RowFilter(!=, 'binary:r3')", **options)) == expected


def test_row_that_is_stored_in_no_family_that_is_read_is_not_shown(region: Region) -> None:
    assert list(passed(region, "WHILE RowFilter(!=, 'binary:r3')", columns=(b"g",))) == ["r2", "r4"]


def test_cells_of_a_row_whose_key_was_dropped_are_shown_forwards_only(region: Region) -> None:
    text = "WHILE ValueFilter(!=, 'binary:3') AND RowFilter(!=, 'binary:r3')"
    assert list(passed(region, text)) == ["r1", "r2"]
    assert list(passed(region, text, is_reversed=True)) == ["r4", "r2", "r1"]


def test_while_ends_in_the_middle_of_a_row(region: Region) -> None:
    assert passed(region, "WHILE ValueFilter(!=, 'binary:AB')") == {"r1": "cf:a"}


def test_filter_sees_one_version_more_than_the_reader(region: Region) -> None:
    """The version that is too many is counted after the filter has judged it."""
    assert "r1" in passed(region, "SKIP ValueFilter(!=, 'binary:9')", columns=(b"cf:ab",))
    assert "r1" not in passed(region, "SKIP ValueFilter(!=, 'binary:1')", columns=(b"cf:a",))


def test_and_goes_to_the_hint_of_a_part_behind_one_that_refuses(region: Region) -> None:
    """ColumnPaginationFilter does not see cf:ab and cf:b: ColumnPrefixFilter, behind it, has asked to skip them."""
    region.mutate(Put(b"r5", tuple(Cell(b"cf:" + name, 1, b"v") for name in (b"a", b"b", b"x", b"y"))))
    assert passed(region, "ColumnPaginationFilter(1, 1) AND ColumnPrefixFilter('x')")["r5"] == "cf:x"


def test_reversed_scan_follows_no_hint(region: Region) -> None:
    region.mutate(Put(b"r5", tuple(Cell(b"cf:" + name, 1, b"v") for name in (b"a", b"b", b"x", b"y"))))
    text = "ColumnPaginationFilter(1, 1) AND ColumnPrefixFilter('x')"
    assert "r5" not in passed(region, text, is_reversed=True)


def test_or_in_a_reversed_scan_takes_a_passed_hint_for_one_that_is_to_come(region: Region) -> None:
    """FilterListBase.compareCell turns the order of cells round, too, although they come in the same order."""
    text = "ColumnPrefixFilter('ab') OR ColumnPrefixFilter('x')"
    assert passed(region, text)["r2"] == "cf:ab g:x"
    assert passed(region, text, is_reversed=True) == {}


def test_column_without_a_qualifier_is_not_skipped(region: Region) -> None:
    """Its next version is the next cell: a marker of the whole family could stand before it (HBASE-18471)."""
    region.mutate(Put(b"r5", (Cell(b"cf:", 2, b"new"), Cell(b"cf:", 1, b"old"), Cell(b"cf:a", 2, b"v"))))
    found = scanned(region, Scan(b"r5", filter=b"ColumnPaginationFilter(2, 0)", max_versions=3))
    assert [(cell.column, cell.timestamp) for cell in found[0].cells] == [(b"cf:", 2), (b"cf:", 1)]


def test_family_whose_scanner_is_closed_follows_no_piece(region: Region) -> None:
    """The first row closes the scanner of g; what g has stored of the next row is not looked at any more."""
    for row in (b"r7", b"r8", b"r9"):
        region.mutate(Put(row, (Cell(b"cf:a", 1, b"v"), Cell(b"g:x", 1, b"v"))))
    pieces = scanned(region, Scan(b"r7", b"r9", filter=b"ColumnCountGetFilter(1)", batch=1, caching=1))
    assert [(piece.row, piece.is_partial) for piece in pieces] == [(b"r7", True), (b"r8", False)]


@pytest.mark.parametrize("word", ["SKIP", "WHILE"])
def test_filter_inside_of_skip_and_while_is_not_told_that_the_scan_is_reversed(region: Region, word: str) -> None:
    """PrefixFilter then takes the first row for one behind its prefix: WHILE ends the scan, SKIP drops every row."""
    assert passed(region, f"{word} PrefixFilter('r3')", is_reversed=True) == {}


def test_column_value_filter_needs_only_its_family(region: Region) -> None:
    with pytest.raises(RequestRefused, match="Reverse scan with loading CFs on demand"):
        region.scanner(Scan(filter=b"ColumnValueFilter('cf', 'a', =, 'binary:1')", is_reversed=True))


def test_row_whose_tested_column_was_all_it_had_keeps_its_other_families(region: Region) -> None:
    region.mutate(Put(b"r5", (Cell(b"cf:a", 1, b"1"), Cell(b"g:x", 1, b"v"))))
    text = "SingleColumnValueExcludeFilter('cf', 'a', =, 'binary:1', true, true)"
    assert passed(region, text)["r5"] == "g:x"


def test_regular_expressions_are_javas_in_what_a_word_is(bench: Bench) -> None:
    region = bench.open()
    region.mutate(Put(b"r", (Cell(b"cf:a", 5, "\u00e4".encode()),)))
    assert passed(region, "ValueFilter(=, 'regexstring:\\w')") == {}
    assert passed(region, "ValueFilter(=, 'regexstringnocase:\u00c4')") == {}


@pytest.mark.parametrize("name", ["SingleColumnValueFilter", "ColumnValueFilter", "DependentColumnFilter"])
def test_family_with_a_colon_is_not_another_column(bench: Bench, name: str) -> None:
    region = bench.open()
    region.mutate(Put(b"r", (Cell(b"cf:a:b", 5, b"1"),)))
    rest = {"DependentColumnFilter": "", "ColumnValueFilter": ", =, 'binary:1'"}.get(
        name, ", =, 'binary:1', true, true"
    )
    assert passed(region, f"{name}('cf', 'a:b'{rest})") == {"r": "cf:a:b"}
    assert passed(region, f"{name}('cf:a', 'b'{rest})") == {}


def test_quote_is_written_twice(bench: Bench) -> None:
    region = bench.open()
    region.mutate(Put(b"it's", (Cell(b"cf:a", 5, b"1"),)))
    assert list(passed(region, "PrefixFilter('it''s')")) == ["it's"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "a filter's name should be here"),
        ("PrefixFilter", r"'\(' should be here"),
        ("PrefixFilter('a'", "behind the closing quote"),
        ("PrefixFilter(", "an argument"),
        ("MultipleColumnPrefixFilter('a', 'a')", "distinct"),
        ("PrefixFilter('a", "quote may be open"),
        ("PrefixFiler('a')", "did you mean PrefixFilter"),
        ("PrefixFilter('a') PrefixFilter('b')", "AND or OR"),
        ("PrefixFilter('a') AND", "AND or OR"),
        ("PrefixFilter('a') AND ", "a filter's name should be here"),
        ("(PrefixFilter('a')", r"'\)' should be here"),
        ("PrefixFilter(a)", "single quotes"),
        ("PrefixFilter('a', 'b')", "takes 1 arguments, got 2"),
        ("PageFilter('x')", "not a number"),
        ("PageFilter(-1)", "negative"),
        ("RowFilter(~, 'binary:a')", "comparison operator"),
        ("RowFilter(=, 'a')", "no comparator"),
        ("RowFilter(=, 'regexstring:(')", "regular expression"),
        ("RowFilter(<, 'substring:a')", "= and != only"),
        ("KeyOnlyFilter(maybe)", "neither true nor false"),
        ("(" * 200 + "PageFilter(1)" + ")" * 200, "levels"),
    ],
)
def test_wrong_text_is_refused_with_the_place_or_the_name(text: str, message: str) -> None:
    with pytest.raises(FilterSyntaxError, match=message) as caught:
        parse(text.encode())
    assert isinstance(caught.value, RequestRefused)
    assert isinstance(caught.value, ValueError)


def test_wrong_filter_is_refused_when_the_scanner_is_opened(region: Region) -> None:
    with pytest.raises(RequestRefused):
        region.scanner(Scan(filter=b"nonsense"))


def test_every_filter_of_hbase_s_parser_is_known() -> None:
    assert len(FILTERS) == 19


OTHER_WORDS = ["AND", "OR", "SKIP", "WHILE", "(", ")", ",", "'", "'a'", "=", "'binary:1'", "5", "true", " "]
WORDS = st.sampled_from([*FILTERS, *OTHER_WORDS])


@given(st.lists(WORDS, max_size=12).map(" ".join) | st.text(max_size=30))
def test_any_text_is_parsed_or_refused_and_never_breaks(text: str) -> None:
    with contextlib.suppress(FilterSyntaxError):
        parse(text.encode())
