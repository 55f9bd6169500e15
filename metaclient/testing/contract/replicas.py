"""The contract of backends: region replicas and TIMELINE reads."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from metaclient.errors import Unsupported
from metaclient.table import Table
from metaclient.testing.contract.suite import LETTERS, ContractSuite, TableMaker, fill, needs, scanned_keys

__all__ = ["Replicas"]


class Replicas(ContractSuite):
    def test_timeline_where_it_cannot_be_done_is_refused_and_not_served_strong(self, table: Table) -> None:
        if table.connection.capabilities.region_replicas:
            pytest.skip("the backend can read replicas")
        with pytest.raises(Unsupported):
            table.row(b"r", consistency="TIMELINE")
        with pytest.raises(Unsupported):
            list(table.scan(consistency="TIMELINE"))

    def test_table_with_replicas_has_them_placed(self, make_table: TableMaker) -> None:
        table = self._replicated(make_table, splits=[b"m"])
        entries = table.connection.regions(table.name)
        assert [len(entry.replicas) for entry in entries] == [2, 2]
        primary = table.connection.locate(table.name, b"r")
        secondary = table.connection.locate(table.name, b"r", replica_id=1)
        assert (primary.replica_id, secondary.replica_id) == (0, 1)
        assert secondary.region_name != primary.region_name
        assert secondary.region.start_key == primary.region.start_key

    def test_named_replica_answers_itself_and_is_marked_stale(self, make_table: TableMaker) -> None:
        table = self._replicated(make_table)
        table.put(b"r", {b"cf:a": b"1"})
        row = table.row(b"r", replica_id=1)
        assert (row.stale, row.replica_id) == (True, 1)
        assert row in ({}, {b"cf:a": b"1"})

    def test_replica_never_shows_what_was_not_written(self, make_table: TableMaker) -> None:
        table = self._replicated(make_table)
        for number in range(10):
            table.put(b"r", {b"cf:a": b"%d" % number, b"cf:b": b"%d" % number}, timestamp=number + 1)
            seen = table.row(b"r", replica_id=1)
            assert len(set(seen.values())) <= 1, "half of a put"
            assert set(seen.values()) <= {b"%d" % past for past in range(number + 1)}

    def test_replica_that_caught_up_shows_everything(self, make_table: TableMaker) -> None:
        table = self._replicated(make_table, splits=[b"m"])
        fill(table, LETTERS)
        table.delete(b"b")
        if not self.replicate(table.connection, table):
            pytest.skip("the suite has no way to wait for this backend's replicas (hook: replicate)")
        expected = [key for key in LETTERS if key != b"b"]
        assert table.row(b"a", replica_id=1) == {b"cf:q": b"<a>"}
        assert table.row(b"b", replica_id=1) == {}
        assert table.exists(b"a", replica_id=1)
        assert table.cells(b"a", b"cf:q", replica_id=1) == [b"<a>"]
        found = list(table.scan(replica_id=1))
        assert [key for key, _ in found] == expected
        assert all(getattr(row, "stale", False) for _, row in found)
        many = table.rows(LETTERS, replica_id=1)
        assert [key for key, _ in many] == expected
        assert all((row.stale, row.replica_id) == (True, 1) for _, row in many)
        if table.connection.capabilities.reversed_scan:
            assert scanned_keys(table, replica_id=1, reverse=True) == expected[::-1]

    def test_timeline_read_of_a_healthy_table_answers(self, make_table: TableMaker) -> None:
        table = self._replicated(make_table)
        table.put(b"r", {b"cf:a": b"1"})
        row = table.row(b"r", consistency="TIMELINE")
        assert row.stale == (row.replica_id != 0)
        assert row == {b"cf:a": b"1"} or row.stale
        assert {key for key, _ in table.scan(consistency="TIMELINE")} <= {b"r"}
        assert {key for key, _ in table.rows([b"r"], consistency="TIMELINE")} <= {b"r"}

    def test_strong_read_sees_the_last_write_of_a_table_with_replicas(self, make_table: TableMaker) -> None:
        table = self._replicated(make_table)
        for number in range(20):
            table.put(b"r", {b"cf:a": b"%d" % number})
            row = table.row(b"r", consistency="STRONG")
            assert row == {b"cf:a": b"%d" % number}
            assert not row.stale

    def _replicated(self, make_table: TableMaker, splits: Sequence[bytes] = ()) -> Table:
        table = make_table(splits=splits, region_replication=2)
        needs(table.connection, "region_replicas")
        return table
