"""The contract of backends: creating, disabling and deleting tables."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress

import pytest

from metaclient.connection import Connection
from metaclient.errors import MetaClientError, TableDisabled, TableExists, TableNotDisabled, TableNotFound, Unsupported
from metaclient.table import Table
from metaclient.testing.contract.suite import (
    LETTERS,
    ContractSuite,
    TableMaker,
    errors_of,
    put_versions,
    scanned,
    scanned_keys,
)

__all__ = ["Tables"]


class Tables(ContractSuite):
    def test_new_table_is_listed_enabled_and_described(self, make_table: TableMaker) -> None:
        table = make_table({"cf": {"max_versions": 7}, "g:": None})
        connection = table.connection
        assert table.name in connection.tables()
        assert connection.is_table_enabled(table.name)
        families = table.families()
        assert sorted(families) == [b"cf", b"g"]
        assert families[b"cf"]["max_versions"] == 7
        assert families[b"g"]["name"] == b"g:"

    def test_settings_of_a_family_come_back(self, make_table: TableMaker) -> None:
        table = make_table({"cf": {"time_to_live": 86_400, "in_memory": True, "block_cache_enabled": False}})
        family = table.families()[b"cf"]
        assert (family["time_to_live"], family["in_memory"], family["block_cache_enabled"]) == (86_400, True, False)

    def test_replication_scope_of_a_family_comes_back_or_is_refused(self, table: Table, make_table: TableMaker) -> None:
        if not table.connection.capabilities.family_scopes:
            with pytest.raises(Unsupported):
                make_table({"cf": {"replication_scope": 1}})
            return
        families = make_table({"cf": {"replication_scope": 1}, "local": {}}).families()
        assert (families[b"cf"]["replication_scope"], families[b"local"]["replication_scope"]) == (1, 0)

    def test_creating_a_table_twice_is_an_error_and_harms_nothing(self, table: Table) -> None:
        table.put(b"r", {b"cf:a": b"1"})
        with pytest.raises(TableExists):
            table.connection.create_table(table.name, {"different": {}})
        assert table.row(b"r") == {b"cf:a": b"1"}
        assert sorted(table.families()) == [b"cf", b"other"]

    def test_enabled_table_cannot_be_deleted(self, table: Table) -> None:
        table.put(b"r", {b"cf:a": b"1"})
        with pytest.raises(TableNotDisabled):
            table.connection.delete_table(table.name)
        assert table.name in table.connection.tables()
        assert table.row(b"r") == {b"cf:a": b"1"}

    def test_deleted_table_is_gone_for_all_calls(self, table: Table) -> None:
        connection = table.connection
        table.put(b"r", {b"cf:a": b"1"})
        connection.disable_table(table.name)
        connection.delete_table(table.name)
        assert table.name not in connection.tables()
        with pytest.raises(TableNotFound):
            table.row(b"r")
        with pytest.raises(TableNotFound):
            connection.is_table_enabled(table.name)

    def test_table_made_again_under_its_old_name_is_empty(self, table: Table) -> None:
        connection = table.connection
        table.put(b"r", {b"cf:a": b"ghost"})
        self.disturb(connection, table)
        connection.delete_table(table.name, disable=True)
        connection.create_table(table.name, {"cf": {}, "fresh": {}})
        assert scanned(table) == []
        table.put(b"r", {b"fresh:a": b"1"})
        assert table.row(b"r") == {b"fresh:a": b"1"}

    @pytest.mark.parametrize("kind", ["row", "rows", "scan", "put", "delete", "batch", "counter", "exists", "cells"])
    def test_disabled_table_answers_nothing(self, table: Table, kind: str) -> None:
        connection = table.connection
        table.put(b"r", {b"cf:a": b"1"})
        connection.disable_table(table.name)
        assert not connection.is_table_enabled(table.name)
        assert table.name in connection.tables()
        with pytest.raises(MetaClientError) as caught:
            _use(table, kind)
        assert {isinstance(error, TableDisabled) for error in errors_of(caught.value)} == {True}

    def test_table_enabled_again_has_all_its_rows(self, wide_table: Table) -> None:
        connection = wide_table.connection
        connection.disable_table(wide_table.name)
        connection.enable_table(wide_table.name)
        assert connection.is_table_enabled(wide_table.name)
        assert scanned_keys(wide_table) == list(LETTERS)
        wide_table.put(b"new", {b"cf:q": b"1"})
        assert wide_table.row(b"new") == {b"cf:q": b"1"}

    def test_disabling_twice_and_enabling_twice_are_errors(self, table: Table) -> None:
        connection = table.connection
        with pytest.raises(MetaClientError):
            connection.enable_table(table.name)
        connection.disable_table(table.name)
        with pytest.raises(MetaClientError):
            connection.disable_table(table.name)
        connection.enable_table(table.name)
        assert connection.is_table_enabled(table.name)

    @pytest.mark.parametrize("kind", ["row", "rows", "scan", "put", "delete", "batch", "counter", "exists", "cells"])
    def test_missing_table_is_an_error_and_not_an_empty_answer(self, backend_connection: Connection, kind: str) -> None:
        with pytest.raises(MetaClientError) as caught:
            _use(backend_connection.table(self.fresh_name("missing")), kind)
        assert {isinstance(error, TableNotFound) for error in errors_of(caught.value)} == {True}

    @pytest.mark.parametrize("kind", ["delete", "enable", "disable", "is_enabled", "compact", "families", "locate"])
    def test_missing_table_cannot_be_administered(self, backend_connection: Connection, kind: str) -> None:
        name = self.fresh_name("missing")
        calls: dict[str, Callable[[], object]] = {
            "delete": lambda: backend_connection.delete_table(name),
            "enable": lambda: backend_connection.enable_table(name),
            "disable": lambda: backend_connection.disable_table(name),
            "is_enabled": lambda: backend_connection.is_table_enabled(name),
            "compact": lambda: backend_connection.compact_table(name),
            "families": lambda: backend_connection.table(name).families(),
            "locate": lambda: backend_connection.locate(name, b"r"),
        }
        with pytest.raises(TableNotFound):
            calls[kind]()

    def test_tables_with_similar_names_do_not_share_rows(self, backend_connection: Connection) -> None:
        """Their rows in hbase:meta are adjacent, and ``-`` and ``.`` sort close to the comma that ends a table name."""
        base = self.fresh_name("t")
        names = [base, base + b"2", base + b"-1", base + b".x", base + b"_", base + base]
        try:
            for name in names:
                backend_connection.create_table(name, {"cf": {}})
                backend_connection.table(name).put(b"r", {b"cf:a": name})
            for name in names:
                assert scanned(backend_connection.table(name)) == [(b"r", {b"cf:a": name})]
                assert len(backend_connection.regions(name)) == 1
        finally:
            for name in names:
                with suppress(TableNotFound):
                    backend_connection.delete_table(name, disable=True)

    def test_table_with_a_name_beyond_ascii(self, backend_connection: Connection) -> None:
        name = self.fresh_name("t").decode() + "_größe_таблица_表"
        backend_connection.create_table(name, {"cf": {}})
        try:
            assert name.encode() in backend_connection.tables()
            table = backend_connection.table(name)
            table.put(b"r", {b"cf:a": b"1"})
            self.disturb(backend_connection, table)
            assert scanned(table) == [(b"r", {b"cf:a": b"1"})]
        finally:
            backend_connection.delete_table(name, disable=True)

    def test_default_namespace_may_be_written_or_left_out(self, table: Table) -> None:
        table.put(b"r", {b"cf:a": b"1"})
        assert table.connection.table(b"default:" + table.name).row(b"r") == {b"cf:a": b"1"}

    @pytest.mark.parametrize("major", [False, True])
    def test_compaction_changes_nothing_that_can_be_seen(self, wide_table: Table, major: bool) -> None:
        put_versions(wide_table, b"a", b"cf:v", 10, 20, 30)
        wide_table.delete(b"b")
        before = scanned(wide_table, include_timestamp=True)
        wide_table.connection.compact_table(wide_table.name, major=major)
        assert scanned(wide_table, include_timestamp=True) == before
        assert wide_table.cells(b"a", b"cf:v") == [b"30", b"20", b"10"]


def _use(table: Table, kind: str) -> object:
    """Make one call of this kind."""
    calls: dict[str, Callable[[], object]] = {
        "row": lambda: table.row(b"r"),
        "rows": lambda: table.rows([b"r", b"s"]),
        "scan": lambda: list(table.scan()),
        "put": lambda: table.put(b"r", {b"cf:a": b"2"}),
        "delete": lambda: table.delete(b"r"),
        "batch": lambda: _one_row_batch(table),
        "counter": lambda: table.counter_inc(b"r", b"cf:n"),
        "exists": lambda: table.exists(b"r"),
        "cells": lambda: table.cells(b"r", b"cf:a"),
    }
    return calls[kind]()


def _one_row_batch(table: Table) -> None:
    with table.batch() as batch:
        batch.put(b"r", {b"cf:a": b"2"})
