"""The contract of backends: changing and truncating tables, and namespaces."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from metaclient.connection import Connection
from metaclient.errors import MetaClientError, NoSuchFamily, TableNotFound, Unsupported
from metaclient.table import Table
from metaclient.testing.contract.suite import LETTERS, ContractSuite, TableMaker, scanned, scanned_keys

__all__ = ["Schemas"]

#: Of a real HBase that has just started, a copy of hbase:meta can be some seconds behind; a listing takes milliseconds.
LISTINGS_MAX = 10_000


class Schemas(ContractSuite):
    def test_change_of_one_setting_keeps_the_rows_and_all_other_settings(self, make_table: TableMaker) -> None:
        table = make_table({"cf": {"max_versions": 7, "time_to_live": 86_400}, "other": {"in_memory": True}})
        connection = table.connection
        self.check_schema(connection)
        table.put(b"r", {b"cf:a": b"1", b"other:b": b"2"})
        connection.alter_table(table.name, {"cf": {"max_versions": 2}})
        families = table.families()
        assert (families[b"cf"]["max_versions"], families[b"cf"]["time_to_live"]) == (2, 86_400)
        assert families[b"other"]["in_memory"] is True
        assert table.row(b"r") == {b"cf:a": b"1", b"other:b": b"2"}

    def test_added_family_takes_rows_and_a_dropped_one_loses_its_rows(self, make_table: TableMaker) -> None:
        table = make_table({"cf": {}, "old": {}})
        connection = table.connection
        self.check_schema(connection)
        table.put(b"r", {b"cf:a": b"1", b"old:b": b"2"})
        connection.alter_table(table.name, {"new": {"max_versions": 5}}, drop_families=["old"])
        described = connection.describe_table(table.name)
        assert {family.name: family.max_versions for family in described.families} == {b"cf": 3, b"new": 5}
        table.put(b"r", {b"new:c": b"3"})
        assert table.row(b"r") == {b"cf:a": b"1", b"new:c": b"3"}
        with pytest.raises(NoSuchFamily):
            table.put(b"r", {b"old:b": b"2"})
        connection.alter_table(table.name, {"old": None})
        assert table.row(b"r") == {b"cf:a": b"1", b"new:c": b"3"}  # the data of a dropped family does not come back

    def test_family_that_the_table_does_not_have_cannot_be_dropped(self, table: Table) -> None:
        connection = table.connection
        self.check_schema(connection)
        with pytest.raises(NoSuchFamily, match="it has cf, other"):
            connection.alter_table(table.name, {"cf": {"max_versions": 9}}, drop_families=["no_such"])
        assert table.families()[b"cf"]["max_versions"] != 9

    def test_number_of_copies_can_be_changed(self, table: Table) -> None:
        connection = table.connection
        self.check_schema(connection)
        table.put(b"r", {b"cf:a": b"1"})
        connection.alter_table(table.name, region_replication=2)
        assert connection.describe_table(table.name).region_replication == 2
        assert table.row(b"r") == {b"cf:a": b"1"}
        connection.alter_table(table.name, region_replication=1)
        assert connection.describe_table(table.name).region_replication == 1
        assert table.row(b"r") == {b"cf:a": b"1"}

    @pytest.mark.parametrize("is_disabled", [False, True])
    def test_truncated_table_is_empty_and_keeps_its_regions(self, wide_table: Table, is_disabled: bool) -> None:
        connection = wide_table.connection
        self.check_schema(connection)
        regions = len(connection.regions(wide_table.name))
        assert scanned_keys(wide_table) == list(LETTERS)
        if is_disabled:
            connection.disable_table(wide_table.name)
        connection.truncate_table(wide_table.name)
        assert connection.is_table_enabled(wide_table.name)
        assert scanned(wide_table) == []
        assert _regions_in_time(wide_table, regions) == regions
        wide_table.put(b"new", {b"cf:q": b"1"})
        assert wide_table.row(b"new") == {b"cf:q": b"1"}

    def test_truncation_may_forget_the_regions(self, wide_table: Table) -> None:
        connection = wide_table.connection
        self.check_schema(connection)
        connection.truncate_table(wide_table.name, preserve_splits=False)
        assert _regions_in_time(wide_table, 1) == 1
        assert scanned(wide_table) == []

    @pytest.mark.parametrize("kind", ["alter", "truncate", "describe"])
    def test_schema_of_a_missing_table_is_an_error(self, backend_connection: Connection, kind: str) -> None:
        self.check_schema(backend_connection)
        name = self.fresh_name("missing")
        calls: dict[str, Callable[[], object]] = {
            "alter": lambda: backend_connection.alter_table(name, region_replication=2),
            "truncate": lambda: backend_connection.truncate_table(name),
            "describe": lambda: backend_connection.describe_table(name),
        }
        with pytest.raises(TableNotFound):
            calls[kind]()

    def test_namespace_holds_tables_and_is_deleted_empty_only(self, backend_connection: Connection) -> None:
        self.check_schema(backend_connection)
        name = self.fresh_name("ns").decode()
        backend_connection.create_namespace(name)
        assert name in backend_connection.namespaces()
        table = f"{name}:t"
        backend_connection.create_table(table, {"cf": {}})
        try:
            assert table.encode() in backend_connection.tables()
            backend_connection.table(table).put(b"r", {b"cf:a": b"1"})
            with pytest.raises(MetaClientError, match=name):
                backend_connection.delete_namespace(name)
            assert backend_connection.table(table).row(b"r") == {b"cf:a": b"1"}
        finally:
            backend_connection.delete_table(table, disable=True)
        backend_connection.delete_namespace(name)
        assert name not in backend_connection.namespaces()

    def test_namespace_twice_and_unknown_namespaces_are_errors(self, backend_connection: Connection) -> None:
        self.check_schema(backend_connection)
        assert {"default", "hbase"} <= set(backend_connection.namespaces())
        with pytest.raises(MetaClientError, match="default"):
            backend_connection.create_namespace("default")
        missing = self.fresh_name("missing").decode()
        with pytest.raises(MetaClientError, match=missing):
            backend_connection.delete_namespace(missing)

    def test_backend_without_schema_calls_refuses_them_with_the_way_out(self, backend_connection: Connection) -> None:
        if backend_connection.capabilities.schema:
            pytest.skip("the backend has them")
        name = self.fresh_name("t")
        for call in (
            lambda: backend_connection.alter_table(name, region_replication=2),
            lambda: backend_connection.truncate_table(name),
            backend_connection.namespaces,
            lambda: backend_connection.create_namespace("x"),
            lambda: backend_connection.delete_namespace("x"),
        ):
            with pytest.raises(Unsupported, match="hbase://"):
                call()

    def check_schema(self, connection: Connection) -> None:
        """Skip the test if the backend cannot change schemas."""
        if not connection.capabilities.schema:
            pytest.skip("the backend cannot change schemas")


def _regions_in_time(table: Table, expected: int) -> int:
    """Return the number of regions, read until it is the expected one: a copy of hbase:meta may be a moment behind."""
    found = 0
    for _ in range(LISTINGS_MAX):
        found = len(table.connection.regions(table.name))
        if found == expected:
            break
    return found
