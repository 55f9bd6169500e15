"""The contract of backends: scans, and pages of cells and puts."""

from __future__ import annotations

from collections import OrderedDict
from typing import Any

import pytest

from metaclient.backend import PutPage
from metaclient.errors import Unsupported
from metaclient.model import LATEST_TIMESTAMP, Consistency, Durability, Scan
from metaclient.table import Table
from metaclient.testing.contract.suite import (
    LETTER_SPLITS,
    LETTERS,
    MEGABYTE,
    ContractSuite,
    TableMaker,
    fill,
    needs,
    scanned,
    scanned_keys,
)

__all__ = ["Scans"]


class Scans(ContractSuite):
    def test_empty_table_scans_to_nothing(self, make_table: TableMaker) -> None:
        table = make_table(splits=[b"m"])
        self.disturb(table.connection, table)
        assert scanned(table) == []
        assert scanned(table, row_start=b"a", row_stop=b"z", limit=1) == []

    def test_rows_come_in_the_order_of_unsigned_bytes(self, table: Table) -> None:
        row_keys = [bytes((first, second)) for first in (0, 1, 127, 128, 255) for second in (0, 127, 128, 255)]
        fill(table, row_keys[::-1])
        self.disturb(table.connection, table)
        assert scanned_keys(table) == row_keys

    def test_scan_over_all_regions_sees_each_row_once(self, wide_table: Table) -> None:
        assert scanned(wide_table) == [(key, {b"cf:q": b"<" + key + b">"}) for key in LETTERS]

    @pytest.mark.parametrize(
        ("start", "stop"),
        [
            (b"c", b"h"),
            (b"e", b"j"),
            (b"d", b"e"),
            (b"e", b"f"),
            (b"dz", b"ez"),
            (b"", b"e"),
            (b"t", b""),
            (b"zz", b""),
            (b"", b"a"),
            (b"h", b"h"),
            (b"h", b"c"),
        ],
    )
    def test_start_is_inclusive_and_stop_exclusive_wherever_the_borders_are(
        self, wide_table: Table, start: bytes, stop: bytes
    ) -> None:
        expected = [key for key in LETTERS if start <= key and (key < stop or not stop)]
        assert scanned_keys(wide_table, row_start=start or None, row_stop=stop or None) == expected

    @pytest.mark.parametrize("prefix", [b"a", b"aa", b"a\xff", b"\xff", b"\xff\xff", b"nothing", b"b"])
    def test_prefix_takes_all_its_rows_and_no_other(self, make_table: TableMaker, prefix: bytes) -> None:
        table = make_table(splits=[b"a\xff", b"b"])
        row_keys = [
            b"a",
            b"aa",
            b"aaa",
            b"ab",
            b"a\xff",
            b"a\xffa",
            b"a\xff\xff",
            b"b",
            b"\xfe",
            b"\xff",
            b"\xff\xff\x00",
        ]
        fill(table, row_keys)
        self.disturb(table.connection, table)
        expected = sorted(key for key in row_keys if key.startswith(prefix))
        assert scanned_keys(table, row_prefix=prefix) == expected
        if table.connection.capabilities.reversed_scan:
            assert scanned_keys(table, row_prefix=prefix, reverse=True) == expected[::-1]

    def test_reversed_scan_over_all_regions_sees_each_row_once(self, wide_table: Table) -> None:
        needs(wide_table.connection, "reversed_scan")
        assert scanned_keys(wide_table, reverse=True) == list(LETTERS[::-1])
        assert scanned_keys(wide_table, reverse=True, batch_size=1) == list(LETTERS[::-1])

    @pytest.mark.parametrize(
        ("start", "stop"),
        [(b"h", b"c"), (b"j", b"e"), (b"e", b"d"), (b"iz", b"dz"), (b"zz", b"y"), (b"b", b""), (b"c", b"h")],
    )
    def test_reversed_scan_starts_inclusive_at_the_upper_end(
        self, wide_table: Table, start: bytes, stop: bytes
    ) -> None:
        needs(wide_table.connection, "reversed_scan")
        expected = [key for key in LETTERS[::-1] if key <= start and key > stop]
        assert scanned_keys(wide_table, row_start=start, row_stop=stop or None, reverse=True) == expected

    def test_reversed_scan_where_it_cannot_be_done_is_refused(self, table: Table) -> None:
        if table.connection.capabilities.reversed_scan:
            pytest.skip("the backend can scan in reverse")
        with pytest.raises(Unsupported):
            list(table.scan(reverse=True))

    @pytest.mark.parametrize("limit", [1, 4, 5, 25, 26, 1000])
    def test_limit_counts_over_all_regions(self, wide_table: Table, limit: int) -> None:
        assert scanned_keys(wide_table, limit=limit) == list(LETTERS[:limit])
        assert scanned_keys(wide_table, limit=limit, batch_size=3) == list(LETTERS[:limit])
        if wide_table.connection.capabilities.reversed_scan:
            assert scanned_keys(wide_table, limit=limit, reverse=True) == list(LETTERS[::-1][:limit])

    @pytest.mark.parametrize("batch_size", [1, 2, 7, 26, 1000])
    def test_page_size_does_not_change_the_answer(self, wide_table: Table, batch_size: int) -> None:
        assert scanned_keys(wide_table, batch_size=batch_size) == list(LETTERS)
        assert scanned_keys(wide_table, batch_size=batch_size, row_start=b"d", row_stop=b"u") == list(LETTERS[3:20])

    def test_scan_batching_cuts_rows_into_pieces_that_add_up(self, table: Table) -> None:
        for key, count in ((b"a", 5), (b"b", 1), (b"c", 4)):
            table.put(key, {b"cf:%d" % number: key for number in range(count)})
        self.disturb(table.connection, table)
        pieces = scanned(table, scan_batching=2)
        assert [(key, len(piece)) for key, piece in pieces] == [
            (b"a", 2),
            (b"a", 2),
            (b"a", 1),
            (b"b", 1),
            (b"c", 2),
            (b"c", 2),
        ]
        assert [column for key, piece in pieces if key == b"a" for column in piece] == [b"cf:%d" % n for n in range(5)]

    def test_scan_batching_goes_on_where_it_was_after_a_disturbance(self, table: Table) -> None:
        for key in (b"a", b"b"):
            table.put(key, {b"cf:%02d" % number: b"%d" % number for number in range(10)})
        seen: list[tuple[bytes, bytes]] = []
        for number, (key, piece) in enumerate(table.scan(scan_batching=3, batch_size=1)):
            seen += [(key, column) for column in piece]
            if number == 1:
                self.disturb(table.connection, table)
        assert seen == [(key, b"cf:%02d" % number) for key in (b"a", b"b") for number in range(10)]

    def test_scan_goes_on_after_the_last_row_when_regions_move_under_it(self, wide_table: Table) -> None:
        seen = []
        for number, (key, _) in enumerate(wide_table.scan(batch_size=2)):
            seen.append(key)
            if number in (2, 9):
                self.disturb(wide_table.connection, wide_table)
        assert seen == list(LETTERS)

    def test_reversed_scan_goes_on_when_regions_move_under_it(self, wide_table: Table) -> None:
        needs(wide_table.connection, "reversed_scan")
        seen = []
        for number, (key, _) in enumerate(wide_table.scan(batch_size=2, reverse=True)):
            seen.append(key)
            if number in (2, 9):
                self.disturb(wide_table.connection, wide_table)
        assert seen == list(LETTERS[::-1])

    def test_columns_of_a_scan_leave_out_rows_that_have_none_of_them(self, table: Table) -> None:
        table.put(b"a", {b"cf:x": b"1", b"cf:y": b"2"})
        table.put(b"b", {b"cf:y": b"3"})
        table.put(b"c", {b"other:x": b"4"})
        self.disturb(table.connection, table)
        assert scanned(table, columns=[b"cf:x"]) == [(b"a", {b"cf:x": b"1"})]
        assert scanned(table, columns=[b"cf:x"], limit=3) == [(b"a", {b"cf:x": b"1"})]
        assert scanned(table, columns=[b"cf"]) == [(b"a", {b"cf:x": b"1", b"cf:y": b"2"}), (b"b", {b"cf:y": b"3"})]
        assert scanned(table, columns=[b"other", b"cf:y"], limit=2) == [
            (b"a", {b"cf:y": b"2"}),
            (b"b", {b"cf:y": b"3"}),
        ]

    def test_sorted_columns_come_as_an_ordered_dictionary(self, table: Table) -> None:
        table.put(b"r", {b"other:a": b"1", b"cf:b": b"2", b"cf:a": b"3"})
        [(_, row)] = list(table.scan(sorted_columns=True))
        assert isinstance(row, OrderedDict)
        assert list(row) == [b"cf:a", b"cf:b", b"other:a"]

    def test_family_whose_name_begins_with_another_ones_does_not_come_first(self, make_table: TableMaker) -> None:
        """HBase sorts by family and then by qualifier: as one string ``cf1:z`` would come before ``cf:a``."""
        table = make_table({"cf1": {}, "cf": {}, "cf-x": {}})
        columns = [b"cf:", b"cf:a", b"cf:\xff", b"cf-x:m", b"cf1:a", b"cf1:z"]
        for row in (b"r1", b"r2", b"r3"):
            table.put(row, dict.fromkeys(reversed(columns), row))
        self.disturb(table.connection, table)
        for row in (b"r1", b"r2", b"r3"):
            assert list(table.row(row)) == columns
        assert [list(row) for _, row in table.scan(sorted_columns=True)] == [columns] * 3
        assert [list(row) for _, row in table.rows([b"r1", b"r3"])] == [columns] * 2
        assert list(table.row(b"r1", columns=[b"cf1:z", b"cf:a"])) == [b"cf:a", b"cf1:z"]

    def test_scan_that_is_left_in_the_middle_disturbs_nobody(self, wide_table: Table) -> None:
        scan = wide_table.scan(batch_size=2)
        assert next(iter(scan))[0] == b"a"
        scan.close()  # type: ignore[attr-defined]  # a generator, which the signature need not promise
        assert scanned_keys(wide_table) == list(LETTERS)

    def test_two_scans_at_once_do_not_share_a_position(self, wide_table: Table) -> None:
        first, second = wide_table.scan(batch_size=2), wide_table.scan(batch_size=3, row_start=b"n")
        pairs = list(zip(first, second, strict=False))
        assert [key for (key, _), _ in pairs] == list(LETTERS[:13])
        assert [key for _, (key, _) in pairs] == list(LETTERS[13:])

    def test_page_with_more_than_fits_into_one_answer_comes_whole(self, table: Table) -> None:
        value = b"v" * (MEGABYTE // 2)
        row_keys = [b"%02d" % number for number in range(12)]
        for key in row_keys:
            table.put(key, {b"cf:a": value, b"cf:b": key})
        self.disturb(table.connection, table)
        found = scanned(table)
        assert [key for key, _ in found] == row_keys
        assert all(row == {b"cf:a": value, b"cf:b": key} for key, row in found)

    @pytest.mark.parametrize(
        "options",
        [
            {},
            {"limit": 7},
            {"limit": 3, "caching": 3},
            {"start_row": b"05", "stop_row": b"20", "include_start": False, "include_stop": True},
            {"columns": (b"cf:b", b"other")},
            {"max_versions": 3},
            {"start_row": b"zz"},
        ],
        ids=lambda options: "-".join(options) or "all",
    )
    def test_pages_of_cells_hold_what_rows_hold(self, table: Table, options: dict[str, Any]) -> None:
        needs(table.connection, "cell_pages")
        pytest.importorskip("numpy")
        pytest.importorskip("pyarrow")
        for number in range(30):
            row = {b"cf:a": b"v" * (number % 4), b"cf:b": b"\x0b\0\1" * number, b"other:": b"%d" % number}
            table.put(b"%02d" % number, {column: row[column] for column in list(row)[number % 2 :]}, timestamp=5)
            table.put(b"%02d" % number, {b"cf:a": b"older"}, timestamp=4)
        self.disturb(table.connection, table)
        scan = Scan(**{"caching": 4, **options})
        engine = table.connection.engine
        rows = [
            (result.row, cell.family, cell.qualifier, cell.timestamp, int(cell.type), cell.value)
            for result, _ in engine.scan_rows(table.name, scan, Consistency.STRONG)
            for cell in result.cells
        ]
        pages = [page for page, _ in engine.scan_cells(table.name, scan, Consistency.STRONG)]
        assert [tuple(cell.values()) for page in pages for cell in page.cells.to_pylist()] == rows
        assert sum(page.rows for page in pages) == len({row for row, *_ in rows})

    @pytest.mark.parametrize("is_timed", [True, False])
    def test_pages_of_puts_write_what_puts_write(self, make_table: TableMaker, is_timed: bool) -> None:
        """Rows of several regions, with an empty value and missing values."""
        by_page, by_rows = make_table(splits=LETTER_SPLITS), make_table(splits=LETTER_SPLITS)
        needs(by_page.connection, "put_pages")
        pytest.importorskip("numpy")
        arrow = pytest.importorskip("pyarrow")
        rows = sorted([*LETTERS, b"\x00", b"\xff\xff", b"k" * 200])
        values = [
            [None if number % 5 == 1 else b"1-" + row for number, row in enumerate(rows)],
            [None if number % 7 == 2 else b"" for number, _ in enumerate(rows)],
            rows,
        ]
        page = PutPage(
            arrow.array(rows, arrow.large_binary()),
            arrow.array([5 + number % 2 if is_timed else LATEST_TIMESTAMP for number, _ in enumerate(rows)]),
            (b"cf:a", b"cf:", b"other:b"),
            tuple(arrow.array(column, arrow.large_binary()) for column in values),
            Durability.SKIP_WAL,
        )
        self.disturb(by_page.connection, by_page)
        assert by_page.connection.engine.put_page(by_page.name, page) == {}
        assert by_rows.connection.engine.batch(by_rows.name, page.puts()) == [None] * len(rows)
        assert scanned(by_page, include_timestamp=is_timed) == scanned(by_rows, include_timestamp=is_timed)
        there = [3 - given.count(None) for given in zip(*values, strict=True)]
        assert [len(row) for _, row in scanned(by_page)] == there

    def test_rows_written_during_a_scan_do_not_repeat_or_hide_others(self, wide_table: Table) -> None:
        seen = []
        for number, (key, _) in enumerate(wide_table.scan(batch_size=1)):
            seen.append(key)
            wide_table.put(b"a%d" % number, {b"cf:q": b"behind"})
            wide_table.put(key, {b"cf:new": b"x"})
        assert [key for key in seen if key in LETTERS] == list(LETTERS)
        assert len(seen) == len(set(seen))
