"""The contract of backends: deletes of rows, families, columns and versions."""

from __future__ import annotations

import pytest

from metaclient.table import Table
from metaclient.testing.contract.suite import (
    LETTERS,
    ContractSuite,
    put_versions,
    scanned,
    scanned_keys,
    until_clock_moves,
)

__all__ = ["Deletes"]


class Deletes(ContractSuite):
    def test_delete_of_a_row_takes_all_families_and_versions(self, table: Table) -> None:
        put_versions(table, b"r", b"cf:a", 10, 20)
        table.put(b"r", {b"other:b": b"1"}, timestamp=15)
        self.disturb(table.connection, table)
        table.delete(b"r")
        assert table.row(b"r") == {}
        assert table.cells(b"r", b"cf:a") == []
        assert not table.exists(b"r")
        self.disturb(table.connection, table)
        assert scanned(table) == []

    def test_delete_of_a_family_leaves_the_other_one(self, table: Table) -> None:
        table.put(b"r", {b"cf:a": b"1", b"cf:": b"2", b"other:a": b"3"}, timestamp=10)
        self.disturb(table.connection, table)
        table.delete(b"r", columns=[b"cf"])
        self.disturb(table.connection, table)
        assert table.row(b"r") == {b"other:a": b"3"}

    def test_delete_of_a_column_takes_all_versions_and_no_other_column(self, table: Table) -> None:
        put_versions(table, b"r", b"cf:a", 10, 20, 30)
        table.put(b"r", {b"cf:aa": b"1", b"cf:": b"2"}, timestamp=10)
        self.disturb(table.connection, table)
        table.delete(b"r", columns=[b"cf:a"])
        assert table.cells(b"r", b"cf:a") == []
        self.disturb(table.connection, table)
        assert table.row(b"r") == {b"cf:": b"2", b"cf:aa": b"1"}

    def test_delete_of_the_empty_qualifier_is_not_a_delete_of_the_family(self, table: Table) -> None:
        table.put(b"r", {b"cf:": b"1", b"cf:a": b"2"}, timestamp=10)
        table.delete(b"r", columns=[b"cf:"])
        self.disturb(table.connection, table)
        assert table.row(b"r") == {b"cf:a": b"2"}

    def test_delete_with_a_timestamp_takes_that_version_and_older_ones(self, table: Table) -> None:
        put_versions(table, b"r", b"cf:a", 10, 20, 30)
        self.disturb(table.connection, table)
        table.delete(b"r", columns=[b"cf:a"], timestamp=20)
        self.disturb(table.connection, table)
        assert table.cells(b"r", b"cf:a") == [b"30"]

    def test_delete_of_a_family_with_a_timestamp_keeps_newer_cells(self, table: Table) -> None:
        put_versions(table, b"r", b"cf:a", 10, 20)
        put_versions(table, b"r", b"cf:b", 5, 15)
        put_versions(table, b"r", b"other:c", 5)
        table.delete(b"r", columns=[b"cf"], timestamp=15)
        self.disturb(table.connection, table)
        assert table.row(b"r") == {b"cf:a": b"20", b"other:c": b"5"}
        assert table.cells(b"r", b"cf:a") == [b"20"]

    def test_delete_of_a_row_with_a_timestamp_keeps_newer_cells(self, table: Table) -> None:
        put_versions(table, b"r", b"cf:a", 10, 20)
        put_versions(table, b"r", b"other:b", 10)
        self.disturb(table.connection, table)
        table.delete(b"r", timestamp=10)
        self.disturb(table.connection, table)
        assert table.row(b"r") == {b"cf:a": b"20"}
        assert table.cells(b"r", b"cf:a") == [b"20"]

    def test_older_version_does_not_come_back_when_the_newest_is_deleted(self, table: Table) -> None:
        put_versions(table, b"r", b"other:a", 10, 20)
        self.disturb(table.connection, table)
        table.delete(b"r", columns=[b"other:a"], timestamp=20)
        assert table.row(b"r") == {}
        self.disturb(table.connection, table)
        assert table.row(b"r") == {}

    def test_put_with_a_newer_timestamp_survives_an_earlier_delete(self, table: Table) -> None:
        put_versions(table, b"r", b"cf:a", 10)
        table.delete(b"r", timestamp=20)
        self.disturb(table.connection, table)
        put_versions(table, b"r", b"cf:a", 21)
        self.disturb(table.connection, table)
        assert table.cells(b"r", b"cf:a", include_timestamp=True) == [(b"21", 21)]

    @pytest.mark.parametrize("what", ["row", "family", "column"])
    def test_put_with_an_older_timestamp_stays_hidden_by_an_earlier_delete(self, table: Table, what: str) -> None:
        """A marker hides older timestamps, also those that are written later, until a major compaction removes it."""
        columns = {"row": None, "family": [b"cf"], "column": [b"cf:a"]}[what]
        table.delete(b"r", columns=columns, timestamp=20)
        put_versions(table, b"r", b"cf:a", 19)
        assert table.row(b"r") == {}
        put_versions(table, b"r", b"cf:a", 21)
        assert table.cells(b"r", b"cf:a") == [b"21"]
        self.disturb(table.connection, table)
        assert table.cells(b"r", b"cf:a") == [b"21"]

    def test_delete_hides_a_put_of_the_same_timestamp_whichever_came_first(self, table: Table) -> None:
        put_versions(table, b"before", b"cf:a", 10)
        table.delete(b"before", columns=[b"cf:a"], timestamp=10)
        table.delete(b"after", columns=[b"cf:a"], timestamp=10)
        put_versions(table, b"after", b"cf:a", 10)
        assert table.row(b"before") == {}
        assert table.row(b"after") == {}
        self.disturb(table.connection, table)
        assert scanned(table) == []

    def test_put_after_a_delete_is_seen_when_the_clock_has_moved_on(self, table: Table) -> None:
        table.put(b"r", {b"cf:a": b"old"})
        table.delete(b"r")
        until_clock_moves(table, b"r")
        table.put(b"r", {b"cf:a": b"new"})
        self.disturb(table.connection, table)
        assert table.row(b"r") == {b"cf:a": b"new"}
        assert table.cells(b"r", b"cf:a") == [b"new"]

    def test_delete_of_what_is_not_there_is_no_error(self, table: Table) -> None:
        table.put(b"r", {b"cf:a": b"1"}, timestamp=1)
        table.delete(b"nobody")
        table.delete(b"nobody", columns=[b"cf:a", b"other"])
        table.delete(b"r", columns=[b"cf:nothing"])
        assert scanned(table) == [(b"r", {b"cf:a": b"1"})]

    def test_delete_in_the_past_hides_nothing_newer_from_a_bounded_read(self, table: Table) -> None:
        put_versions(table, b"r", b"cf:a", 10, 20, 30)
        table.delete(b"r", columns=[b"cf:a"], timestamp=10)
        self.disturb(table.connection, table)
        assert table.cells(b"r", b"cf:a", timestamp=30) == [b"20"]
        assert table.row(b"r", timestamp=11) == {}

    def test_deleted_rows_are_gone_from_scans_and_counts(self, wide_table: Table) -> None:
        with wide_table.batch() as batch:
            for key in LETTERS[1:]:
                batch.delete(key)
        self.disturb(wide_table.connection, wide_table)
        assert scanned_keys(wide_table) == [b"a"]
        assert scanned_keys(wide_table, limit=5) == [b"a"]
        assert wide_table.rows(LETTERS[:3]) == [(b"a", {b"cf:q": b"<a>"})]
