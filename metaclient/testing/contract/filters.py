"""The contract of backends: HBase's filter language."""

from __future__ import annotations

import pytest

from metaclient import filters as f
from metaclient.errors import MetaClientError, Unsupported
from metaclient.table import Table
from metaclient.testing.contract.suite import LETTERS, ContractSuite, needs, put_versions, scanned, scanned_keys

__all__ = ["Filters"]

FILTERED_ROWS: dict[bytes, dict[bytes | str, bytes | str]] = {
    b"a1": {b"cf:n": b"1", b"cf:x": b"red"},
    b"a2": {b"cf:n": b"2", b"cf:x": b"green"},
    b"b1": {b"cf:n": b"3"},
    b"b2": {b"cf:n": b"4", b"cf:x": b"red", b"cf:y": b"blue"},
}
#: Filter in HBase's filter language, and the cells of FILTERED_ROWS that pass it (row -> qualifiers).
FILTERS: list[tuple[str, dict[bytes, list[bytes]]]] = [
    ("PrefixFilter ('b')", {b"b1": [b"n"], b"b2": [b"n", b"x", b"y"]}),
    ("RowFilter (>, 'binary:a2')", {b"b1": [b"n"], b"b2": [b"n", b"x", b"y"]}),
    ("RowFilter (=, 'substring:1')", {b"a1": [b"n", b"x"], b"b1": [b"n"]}),
    ("RowFilter (=, 'regexstring:^a.*')", {b"a1": [b"n", b"x"], b"a2": [b"n", b"x"]}),
    ("ValueFilter (=, 'binary:red')", {b"a1": [b"x"], b"b2": [b"x"]}),
    ("ValueFilter (>=, 'binary:3')", {b"a1": [b"x"], b"a2": [b"x"], b"b1": [b"n"], b"b2": [b"n", b"x", b"y"]}),
    ("QualifierFilter (!=, 'binary:n')", {b"a1": [b"x"], b"a2": [b"x"], b"b2": [b"x", b"y"]}),
    ("ColumnPrefixFilter ('x')", {b"a1": [b"x"], b"a2": [b"x"], b"b2": [b"x"]}),
    (
        "FamilyFilter (=, 'binary:cf')",
        {b"a1": [b"n", b"x"], b"a2": [b"n", b"x"], b"b1": [b"n"], b"b2": [b"n", b"x", b"y"]},
    ),
    ("FirstKeyOnlyFilter ()", {b"a1": [b"n"], b"a2": [b"n"], b"b1": [b"n"], b"b2": [b"n"]}),
    ("InclusiveStopFilter ('b1')", {b"a1": [b"n", b"x"], b"a2": [b"n", b"x"], b"b1": [b"n"]}),
    # A row without the column passes, unless the last argument (filterIfMissing) is true.
    (
        "SingleColumnValueFilter ('cf', 'x', =, 'binary:red')",
        {b"a1": [b"n", b"x"], b"b1": [b"n"], b"b2": [b"n", b"x", b"y"]},
    ),
    (
        "SingleColumnValueFilter ('cf', 'x', =, 'binary:red', true, true)",
        {b"a1": [b"n", b"x"], b"b2": [b"n", b"x", b"y"]},
    ),
    ("SingleColumnValueFilter ('cf', 'n', <, 'binary:2')", {b"a1": [b"n", b"x"]}),
    ("PrefixFilter ('a') AND ValueFilter (=, 'substring:r')", {b"a1": [b"x"], b"a2": [b"x"]}),
    ("PrefixFilter ('a') OR RowFilter (=, 'binary:b1')", {b"a1": [b"n", b"x"], b"a2": [b"n", b"x"], b"b1": [b"n"]}),
    ("SKIP ValueFilter (!=, 'binary:red')", {b"a2": [b"n", b"x"], b"b1": [b"n"]}),
    ("WHILE RowFilter (<, 'binary:b1')", {b"a1": [b"n", b"x"], b"a2": [b"n", b"x"]}),
    ("PrefixFilter ('nothing')", {}),
]
#: The same, built in Python.
BUILT: list[tuple[f.Filter, dict[bytes, list[bytes]]]] = [
    (f.prefix("b") & (f.column("cf:n") == "4"), {b"b2": [b"n", b"x", b"y"]}),
    ((f.row() <= b"a1") | (f.column(b"cf:x") == b"green"), {b"a1": [b"n", b"x"], b"a2": [b"n", b"x"]}),
    (
        (f.row() > b"a1") & ((f.row() < b"b1") | (f.row().startswith("b2") & f.qualifier().matches("^[xy]$"))),
        {b"a2": [b"n", b"x"], b"b2": [b"x", b"y"]},
    ),
    (f.column("cf:x", missing=True) != b"red", {b"a2": [b"n", b"x"], b"b1": [b"n"]}),
    (f.column("cf:x", hide=True) == b"red", {b"a1": [b"n"], b"b2": [b"n", b"y"]}),
    (f.cell("cf:x").contains("RE"), {b"a1": [b"x"], b"a2": [b"x"], b"b2": [b"x"]}),
    (f.column_range("x", "y", include_stop=True), {b"a1": [b"x"], b"a2": [b"x"], b"b2": [b"x", b"y"]}),
    (f.while_(f.row() != b"b1") & f.first_cell(), {b"a1": [b"n"], b"a2": [b"n"]}),
    (f.skip(f.value() != b"red") & f.column_prefix("n", "y"), {b"a2": [b"n"], b"b1": [b"n"]}),
]


class Filters(ContractSuite):
    @pytest.mark.parametrize(("text", "left"), FILTERS, ids=[text for text, _ in FILTERS])
    def test_filter_is_applied_and_not_ignored(self, table: Table, text: str, left: dict[bytes, list[bytes]]) -> None:
        needs(table.connection, "filters")
        for key, columns in FILTERED_ROWS.items():
            table.put(key, columns, timestamp=1)
        self.disturb(table.connection, table)
        expected = [
            (key, {b"cf:" + name: FILTERED_ROWS[key][b"cf:" + name] for name in names}) for key, names in left.items()
        ]
        assert scanned(table, filter=text) == expected
        assert scanned(table, filter=text.encode(), batch_size=1) == expected

    @pytest.mark.parametrize(("built", "left"), BUILT, ids=[str(built) for built, _ in BUILT])
    def test_built_filter_gives_what_its_text_says(
        self, table: Table, built: f.Filter, left: dict[bytes, list[bytes]]
    ) -> None:
        needs(table.connection, "filters")
        for key, columns in FILTERED_ROWS.items():
            table.put(key, columns, timestamp=1)
        expected = [
            (key, {b"cf:" + name: FILTERED_ROWS[key][b"cf:" + name] for name in names}) for key, names in left.items()
        ]
        assert scanned(table, filter=built) == expected

    def test_built_filter_compares_counters_as_numbers(self, table: Table) -> None:
        needs(table.connection, "filters")
        for number in (9, 10, 300):
            table.counter_set(b"r%d" % number, b"cf:n", number)
        assert scanned_keys(table, filter=f.column(b"cf:n") >= 10) == [b"r10", b"r300"]
        assert table.row(b"r9", filter=f.column(b"cf:n") >= 10) == {}

    def test_filter_and_limit_count_rows_that_pass(self, wide_table: Table) -> None:
        needs(wide_table.connection, "filters")
        text = "RowFilter (=, 'regexstring:[bdfuvz]')"
        assert scanned_keys(wide_table, filter=text) == [b"b", b"d", b"f", b"u", b"v", b"z"]
        assert scanned_keys(wide_table, filter=text, limit=4) == [b"b", b"d", b"f", b"u"]
        assert scanned_keys(wide_table, filter=text, limit=4, batch_size=1) == [b"b", b"d", b"f", b"u"]

    def test_filter_works_in_reverse_over_all_regions(self, wide_table: Table) -> None:
        needs(wide_table.connection, "filters")
        needs(wide_table.connection, "reversed_scan")
        text = "RowFilter (=, 'regexstring:[bdfuvz]')"
        assert scanned_keys(wide_table, filter=text, reverse=True) == [b"z", b"v", b"u", b"f", b"d", b"b"]

    def test_keys_alone_come_without_values(self, wide_table: Table) -> None:
        needs(wide_table.connection, "filters")
        assert scanned(wide_table, filter="KeyOnlyFilter ()") == [(key, {b"cf:q": b""}) for key in LETTERS]

    def test_timestamps_filter_takes_exactly_those_versions(self, table: Table) -> None:
        needs(table.connection, "filters")
        for number in (1, 2, 3):
            put_versions(table, b"%d" % number, b"cf:a", number)
        assert scanned_keys(table, filter="TimestampsFilter (1, 3)") == [b"1", b"3"]

    def test_filter_of_a_single_row(self, table: Table) -> None:
        needs(table.connection, "filters")
        table.put(b"r", {b"cf:a": b"1", b"cf:b": b"2"})
        assert table.row(b"r", filter="ValueFilter (=, 'binary:2')") == {b"cf:b": b"2"}
        assert table.row(b"r", filter="ColumnCountGetFilter (1)") == {b"cf:a": b"1"}
        assert table.row(b"r", filter="PrefixFilter ('x')") == {}

    @pytest.mark.parametrize("text", ["NoSuchFilter ('a')", "PrefixFilter ('a'", "RowFilter (~, 'binary:a')"])
    def test_filter_that_nobody_understands_is_an_error_and_not_everything(self, table: Table, text: str) -> None:
        needs(table.connection, "filters")
        table.put(b"r", {b"cf:a": b"1"})
        with pytest.raises((MetaClientError, ValueError)):
            scanned(table, filter=text)

    def test_filter_where_it_cannot_be_done_is_refused_and_not_ignored(self, table: Table) -> None:
        if table.connection.capabilities.filters:
            pytest.skip("the backend can filter")
        table.put(b"r", {b"cf:a": b"1"})
        with pytest.raises(Unsupported):
            scanned(table, filter="PrefixFilter ('x')")
        with pytest.raises(Unsupported):
            table.row(b"r", filter="PrefixFilter ('x')")
