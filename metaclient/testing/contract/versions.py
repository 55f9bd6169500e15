"""The contract of backends: versions, timestamps and time to live."""

from __future__ import annotations

import pytest

from metaclient.table import Table
from metaclient.testing.contract.suite import ContractSuite, TableMaker, put_versions, scanned, server_time_ms

__all__ = ["Versions"]


class Versions(ContractSuite):
    def test_explicit_timestamp_comes_back(self, table: Table) -> None:
        table.put(b"r", {b"cf:a": b"1"}, timestamp=1234567890123)
        self.disturb(table.connection, table)
        assert table.row(b"r", include_timestamp=True) == {b"cf:a": (b"1", 1234567890123)}
        assert table.cells(b"r", b"cf:a", include_timestamp=True) == [(b"1", 1234567890123)]
        assert scanned(table, include_timestamp=True) == [(b"r", {b"cf:a": (b"1", 1234567890123)})]
        assert [dict(row) for _, row in table.rows([b"r"], include_timestamp=True)] == [
            {b"cf:a": (b"1", 1234567890123)}
        ]

    def test_without_a_timestamp_the_server_gives_one_that_does_not_go_back(self, table: Table) -> None:
        stamps = []
        for number in range(5):
            table.put(b"r", {b"cf:a": b"%d" % number})
            value, stamp = table.row(b"r", include_timestamp=True)[b"cf:a"]
            assert value == b"%d" % number
            stamps.append(stamp)
        assert stamps[0] > 0
        assert stamps == sorted(stamps)

    def test_newest_timestamp_wins_and_not_the_last_write(self, table: Table) -> None:
        put_versions(table, b"r", b"cf:a", 20, 10)
        self.disturb(table.connection, table)
        assert table.row(b"r") == {b"cf:a": b"20"}

    def test_of_two_writes_at_one_timestamp_the_last_one_wins(self, table: Table) -> None:
        table.put(b"r", {b"cf:a": b"first"}, timestamp=10)
        self.disturb(table.connection, table)
        table.put(b"r", {b"cf:a": b"second"}, timestamp=10)
        self.disturb(table.connection, table)
        assert table.cells(b"r", b"cf:a", include_timestamp=True) == [(b"second", 10)]

    def test_versions_come_newest_first_whatever_the_order_of_writing(self, table: Table) -> None:
        put_versions(table, b"r", b"cf:a", 30, 10)
        self.disturb(table.connection, table)
        put_versions(table, b"r", b"cf:a", 40, 20)
        assert table.cells(b"r", b"cf:a", include_timestamp=True) == [
            (b"40", 40),
            (b"30", 30),
            (b"20", 20),
            (b"10", 10),
        ]
        assert table.cells(b"r", b"cf:a", versions=2) == [b"40", b"30"]
        assert table.cells(b"r", b"cf:a", versions=100) == [b"40", b"30", b"20", b"10"]

    def test_timestamp_is_an_exclusive_upper_bound(self, table: Table) -> None:
        put_versions(table, b"r", b"cf:a", 10, 20)
        self.disturb(table.connection, table)
        for bound, seen in ((10, {}), (11, {b"cf:a": b"10"}), (20, {b"cf:a": b"10"}), (21, {b"cf:a": b"20"})):
            assert table.row(b"r", timestamp=bound) == seen, bound
            assert dict(table.rows([b"r"], timestamp=bound)) == ({b"r": seen} if seen else {}), bound
            assert dict(scanned(table, timestamp=bound)) == ({b"r": seen} if seen else {}), bound
        assert table.cells(b"r", b"cf:a", timestamp=20) == [b"10"]
        assert table.cells(b"r", b"cf:a", timestamp=10) == []

    def test_timestamp_bound_and_number_of_versions_count_together(self, table: Table) -> None:
        put_versions(table, b"r", b"cf:a", 10, 20, 30, 40)
        self.disturb(table.connection, table)
        assert table.cells(b"r", b"cf:a", versions=2, timestamp=31) == [b"30", b"20"]
        assert table.cells(b"r", b"cf:a", versions=1, timestamp=30) == [b"20"]

    def test_timestamp_zero_is_a_time_like_any_other(self, table: Table) -> None:
        table.put(b"r", {b"cf:a": b"0"}, timestamp=0)
        assert table.row(b"r", include_timestamp=True) == {b"cf:a": (b"0", 0)}
        assert table.row(b"r", timestamp=0) == {}
        assert table.row(b"r", timestamp=1) == {b"cf:a": b"0"}

    @pytest.mark.parametrize("max_versions", [1, 2, 3])
    def test_family_keeps_as_many_versions_as_it_says(self, make_table: TableMaker, max_versions: int) -> None:
        table = make_table({"cf": {"max_versions": max_versions}})
        put_versions(table, b"r", b"cf:a", 10, 30, 20, 50, 40)
        expected = [b"50", b"40", b"30", b"20", b"10"][:max_versions]
        assert table.cells(b"r", b"cf:a") == expected
        self.disturb(table.connection, table)
        assert table.cells(b"r", b"cf:a") == expected
        assert table.families()[b"cf"]["max_versions"] == max_versions

    def test_versions_of_one_column_do_not_count_for_another(self, table: Table) -> None:
        for timestamp in range(1, 6):
            table.put(b"r", {b"cf:a": b"a%d" % timestamp, b"cf:b": b"b%d" % timestamp}, timestamp=timestamp)
        self.disturb(table.connection, table)
        assert table.cells(b"r", b"cf:a") == [b"a5", b"a4", b"a3", b"a2", b"a1"]
        assert table.cells(b"r", b"cf:b", versions=2) == [b"b5", b"b4"]

    def test_cells_of_what_is_not_there_are_no_cells(self, table: Table) -> None:
        assert table.cells(b"nobody", b"cf:a") == []
        table.put(b"r", {b"cf:a": b"1"})
        assert table.cells(b"r", b"cf:nothing") == []

    def test_cell_older_than_the_time_to_live_is_not_shown(self, make_table: TableMaker) -> None:
        table = make_table({"cf": {}, "short": {"time_to_live": 3600, "max_versions": 3}})
        now_ms = server_time_ms(table, b"r")
        table.put(b"r", {b"short:a": b"old"}, timestamp=now_ms - 2 * 3_600_000)
        assert table.row(b"r") == {}
        table.put(b"r", {b"short:a": b"fresh"}, timestamp=now_ms - 60_000)
        self.disturb(table.connection, table)
        assert table.cells(b"r", b"short:a") == [b"fresh"]
        assert dict(scanned(table, columns=[b"short"])) == {b"r": {b"short:a": b"fresh"}}
