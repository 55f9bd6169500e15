"""The contract of backends: single cells: columns, values and row keys of any bytes."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from metaclient.errors import NoSuchFamily
from metaclient.table import Table
from metaclient.testing.contract.suite import (
    MEGABYTE,
    ROW_LENGTH_MAX,
    UGLY_KEYS,
    UGLY_SPLITS,
    ContractSuite,
    TableMaker,
    fill,
    needs,
    scanned,
    scanned_keys,
)

__all__ = ["Cells"]


class Cells(ContractSuite):
    def test_put_then_row_returns_what_was_written(self, table: Table) -> None:
        table.put(b"r", {b"cf:a": b"1", b"cf:b": b"2", b"other:c": b"3"})
        self.disturb(table.connection, table)
        assert table.row(b"r") == {b"cf:a": b"1", b"cf:b": b"2", b"other:c": b"3"}

    def test_missing_row_is_empty_and_not_an_error(self, table: Table) -> None:
        assert table.row(b"nobody") == {}
        table.put(b"r", {b"cf:a": b"1"})
        assert table.row(b"nobody") == {}
        assert table.row(b"nobody", columns=[b"cf:a"]) == {}

    def test_missing_column_is_left_out(self, table: Table) -> None:
        table.put(b"r", {b"cf:a": b"1"})
        assert table.row(b"r", columns=[b"cf:a", b"cf:nothing"]) == {b"cf:a": b"1"}
        assert table.row(b"r", columns=[b"cf:nothing"]) == {}

    def test_text_is_the_same_as_its_utf8(self, table: Table) -> None:
        table.put("zeile-ß", {"cf:größe": "groß"})
        assert table.row("zeile-ß".encode()) == {"cf:größe".encode(): "groß".encode()}
        assert table.row("zeile-ß", columns=["cf:größe"]) == {"cf:größe".encode(): "groß".encode()}

    def test_empty_value_is_a_value_and_not_a_missing_column(self, table: Table) -> None:
        table.put(b"r", {b"cf:empty": b""})
        self.disturb(table.connection, table)
        assert table.row(b"r") == {b"cf:empty": b""}
        assert table.cells(b"r", b"cf:empty") == [b""]
        assert table.exists(b"r")
        assert scanned(table) == [(b"r", {b"cf:empty": b""})]

    def test_empty_qualifier_is_a_column_of_its_own(self, table: Table) -> None:
        table.put(b"r", {b"cf:": b"empty", b"cf:a": b"a"})
        self.disturb(table.connection, table)
        assert table.row(b"r") == {b"cf:": b"empty", b"cf:a": b"a"}
        assert table.row(b"r", columns=[b"cf:"]) == {b"cf:": b"empty"}
        assert table.row(b"r", columns=[b"cf"]) == {b"cf:": b"empty", b"cf:a": b"a"}
        assert scanned(table, columns=[b"cf:"]) == [(b"r", {b"cf:": b"empty"})]

    def test_family_means_all_its_columns_and_none_of_another(self, table: Table) -> None:
        table.put(b"r", {b"cf:a": b"1", b"cf:b": b"2", b"other:a": b"3"})
        assert table.row(b"r", columns=[b"cf"]) == {b"cf:a": b"1", b"cf:b": b"2"}
        assert table.row(b"r", columns=[b"other", b"cf:b"]) == {b"cf:b": b"2", b"other:a": b"3"}

    def test_family_and_one_of_its_columns_is_the_family(self, table: Table) -> None:
        table.put(b"r", {b"cf:a": b"1", b"cf:b": b"2"})
        assert table.row(b"r", columns=[b"cf:a", b"cf"]) == {b"cf:a": b"1", b"cf:b": b"2"}
        assert table.row(b"r", columns=[b"cf", b"cf:a"]) == {b"cf:a": b"1", b"cf:b": b"2"}

    def test_names_that_are_prefixes_of_others_are_not_mixed_up(self, make_table: TableMaker) -> None:
        table = make_table({"f": {}, "ff": {}})
        table.put(b"r", {b"f:q": b"1", b"f:qq": b"2", b"ff:q": b"3"})
        table.put(b"rr", {b"f:q": b"4"})
        self.disturb(table.connection, table)
        assert table.row(b"r", columns=[b"f"]) == {b"f:q": b"1", b"f:qq": b"2"}
        assert table.row(b"r", columns=[b"f:q"]) == {b"f:q": b"1"}
        assert table.row(b"r", columns=[b"ff"]) == {b"ff:q": b"3"}
        assert table.row(b"rr") == {b"f:q": b"4"}

    def test_qualifiers_of_any_bytes_survive(self, table: Table) -> None:
        columns: dict[bytes | str, bytes | str] = {
            b"cf:" + name: name
            for name in (b":", b"a:b", b"\x00", b"\xff", b",", b" ", bytes(range(256)), "Maß".encode())
        }
        table.put(b"r", columns)
        self.disturb(table.connection, table)
        assert table.row(b"r") == columns
        for column, value in columns.items():
            assert table.row(b"r", columns=[column]) == {column: value}

    def test_put_leaves_columns_that_it_does_not_name(self, table: Table) -> None:
        table.put(b"r", {b"cf:a": b"old", b"cf:b": b"old", b"other:c": b"old"}, timestamp=1)
        self.disturb(table.connection, table)
        table.put(b"r", {b"cf:b": b"new"}, timestamp=2)
        assert table.row(b"r") == {b"cf:a": b"old", b"cf:b": b"new", b"other:c": b"old"}

    def test_values_of_any_bytes_survive(self, table: Table) -> None:
        every_byte = bytes(range(256)) * 3
        table.put(b"r", {b"cf:a": every_byte})
        self.disturb(table.connection, table)
        assert table.row(b"r") == {b"cf:a": every_byte}

    def test_value_of_a_megabyte_survives(self, table: Table) -> None:
        big = bytes(range(256)) * (MEGABYTE // 256)
        table.put(b"r", {b"cf:big": big, b"cf:small": b"s"})
        self.disturb(table.connection, table)
        assert table.row(b"r") == {b"cf:big": big, b"cf:small": b"s"}
        assert scanned(table) == [(b"r", {b"cf:big": big, b"cf:small": b"s"})]

    def test_row_of_two_thousand_columns_comes_back_whole_and_in_order(self, table: Table) -> None:
        columns = {b"cf:%05d" % number: b"%d" % number for number in range(2000)}
        table.put(b"r", dict(reversed(columns.items())))
        self.disturb(table.connection, table)
        assert list(table.row(b"r").items()) == list(columns.items())

    def test_row_keys_of_any_bytes_survive_over_borders_of_any_bytes(self, make_table: TableMaker) -> None:
        table = make_table(splits=UGLY_SPLITS)
        fill(table, UGLY_KEYS)
        self.disturb(table.connection, table)
        for key in UGLY_KEYS:
            assert table.row(key) == {b"cf:q": b"<" + key + b">"}
        assert scanned_keys(table) == sorted(UGLY_KEYS)
        assert [key for key, _ in table.rows(UGLY_KEYS[::-1])] == list(UGLY_KEYS[::-1])

    def test_longest_row_key_can_be_written_found_and_passed(self, make_table: TableMaker) -> None:
        table = make_table(splits=[b"k" * 100])
        longest = [b"a" * ROW_LENGTH_MAX, b"k" * ROW_LENGTH_MAX, b"\xff" * ROW_LENGTH_MAX]
        fill(table, [b"a", b"z", *longest])
        self.disturb(table.connection, table)
        for key in longest:
            assert table.row(key, columns=[b"cf:q"]) == {b"cf:q": b"<" + key + b">"}
        assert scanned_keys(table, batch_size=1) == sorted([b"a", b"z", *longest])

    def test_row_key_that_hbase_cannot_hold_is_refused_before_it_is_sent(self, table: Table) -> None:
        for key in (b"", b"a" * (ROW_LENGTH_MAX + 1)):
            with pytest.raises(ValueError, match="row"):
                table.put(key, {b"cf:q": b"1"})
        assert scanned_keys(table) == []

    def test_rows_whose_keys_are_prefixes_of_each_other_are_different_rows(self, table: Table) -> None:
        row_keys = [b"a", b"a\x00", b"aa", b"aaa", b"b"]
        fill(table, row_keys)
        table.delete(b"aa")
        self.disturb(table.connection, table)
        assert scanned_keys(table) == [b"a", b"a\x00", b"aaa", b"b"]

    def test_put_that_skips_the_log_is_readable_at_once(self, table: Table) -> None:
        table.put(b"r", {b"cf:a": b"1"}, wal=False)
        assert table.row(b"r") == {b"cf:a": b"1"}

    def test_unknown_family_in_a_put_writes_nothing_of_it(self, table: Table) -> None:
        with pytest.raises(NoSuchFamily) as caught:
            table.put(b"r", {b"cf:a": b"1", b"nope:a": b"1"})
        assert not caught.value.may_have_applied
        assert table.row(b"r") == {}

    @pytest.mark.parametrize(
        "kind", ["row", "rows", "cells", "exists", "scan", "delete", "increment", "append", "check"]
    )
    def test_unknown_family_is_an_error_and_not_an_empty_answer(self, table: Table, kind: str) -> None:
        table.put(b"r", {b"cf:a": b"1"})
        if kind in ("append", "check"):
            needs(table.connection, "append" if kind == "append" else "check_and_mutate")
        calls: dict[str, Callable[[], object]] = {
            "row": lambda: table.row(b"r", columns=[b"nope:a"]),
            "rows": lambda: table.rows([b"r"], columns=[b"nope"]),
            "cells": lambda: table.cells(b"r", b"nope:a"),
            "exists": lambda: table.exists(b"r", columns=[b"nope:a"]),
            "scan": lambda: list(table.scan(columns=[b"nope:a"])),
            "delete": lambda: table.delete(b"r", columns=[b"nope:a"]),
            "increment": lambda: table.counter_inc(b"r", b"nope:a"),
            "append": lambda: table.append(b"r", {b"nope:a": b"x"}),
            "check": lambda: table.check_and_put(b"r", b"nope:a", b"1", {b"cf:a": b"2"}),
        }
        with pytest.raises(NoSuchFamily):
            calls[kind]()
        assert table.row(b"r") == {b"cf:a": b"1"}

    def test_exists_tells_rows_and_columns_apart_without_reading_values(self, table: Table) -> None:
        table.put(b"r", {b"cf:a": b""})
        self.disturb(table.connection, table)
        assert table.exists(b"r")
        assert table.exists(b"r", columns=[b"cf"])
        assert table.exists(b"r", columns=[b"cf:nothing", b"cf:a"])
        assert not table.exists(b"r", columns=[b"cf:nothing"])
        assert not table.exists(b"r", columns=[b"other"])
        assert not table.exists(b"nobody")

    def test_row_says_where_it_came_from_and_a_strong_read_is_never_stale(self, table: Table) -> None:
        table.put(b"r", {b"cf:a": b"1"})
        row = table.row(b"r", consistency="STRONG")
        assert (row.stale, row.replica_id) == (False, 0)
