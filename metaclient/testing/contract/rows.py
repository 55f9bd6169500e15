"""The contract of backends: reads of many rows by key."""

from __future__ import annotations

from metaclient.table import Table
from metaclient.testing.contract.suite import ContractSuite, TableMaker, fill

__all__ = ["Rows"]


class Rows(ContractSuite):
    def test_rows_come_in_the_order_asked_for(self, wide_table: Table) -> None:
        asked = [b"z", b"a", b"m", b"e", b"d", b"t", b"c", b"b"]
        found = wide_table.rows(asked)
        assert [(key, dict(row)) for key, row in found] == [(key, {b"cf:q": b"<" + key + b">"}) for key in asked]

    def test_rows_that_do_not_exist_are_left_out(self, wide_table: Table) -> None:
        found = wide_table.rows([b"c", b"nobody", b"a", b"zz"])
        assert [(key, dict(row)) for key, row in found] == [(b"c", {b"cf:q": b"<c>"}), (b"a", {b"cf:q": b"<a>"})]
        assert wide_table.rows([b"nobody"]) == []

    def test_row_asked_for_twice_comes_twice(self, wide_table: Table) -> None:
        found = wide_table.rows([b"a", b"z", b"a"])
        assert [(key, row[b"cf:q"]) for key, row in found] == [(b"a", b"<a>"), (b"z", b"<z>"), (b"a", b"<a>")]

    def test_no_rows_asked_for_are_no_rows(self, table: Table) -> None:
        assert not table.rows([])

    def test_rows_take_columns_and_leave_out_rows_without_them(self, table: Table) -> None:
        table.put(b"a", {b"cf:x": b"1", b"cf:y": b"2"})
        table.put(b"b", {b"cf:y": b"3"})
        table.put(b"c", {b"other:x": b"4"})
        self.disturb(table.connection, table)
        found = table.rows([b"a", b"b", b"c"], columns=[b"cf:x", b"other"])
        assert [(key, dict(row)) for key, row in found] == [(b"a", {b"cf:x": b"1"}), (b"c", {b"other:x": b"4"})]

    def test_five_hundred_rows_over_all_regions_in_one_call(self, make_table: TableMaker) -> None:
        table = make_table(splits=[b"1", b"2", b"3", b"4"])
        row_keys = [b"%03d" % number for number in range(500)]
        fill(table, row_keys)
        self.disturb(table.connection, table)
        found = table.rows(row_keys[::-1])
        assert [(key, dict(row)) for key, row in found] == [
            (key, {b"cf:q": b"<" + key + b">"}) for key in row_keys[::-1]
        ]
