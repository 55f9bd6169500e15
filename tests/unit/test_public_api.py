"""Freezes the public API: the names that are exported and their signatures."""

from __future__ import annotations

import copy
import inspect
import pickle
from typing import Any

import pytest

import metaclient
from metaclient import Connection, ConnectionPool, MetaClientError, Table

ALL = [
    "Batch",
    "BatchError",
    "Config",
    "ConfigError",
    "ConfigWarning",
    "Connection",
    "ConnectionClosed",
    "ConnectionPool",
    "Consistency",
    "DeadlineExceeded",
    "MetaClientError",
    "MetaReplicaStatus",
    "NoSuchFamily",
    "Overloaded",
    "RegionLocation",
    "RegionLocations",
    "RegionUnavailable",
    "RetriesExhausted",
    "Row",
    "Table",
    "TableDisabled",
    "TableExists",
    "TableNotFound",
    "Unsupported",
    "connect",
]

SIGNATURES: dict[Any, str] = {
    metaclient.connect: "url=None, *, meta_mode=None, config=None, runtime=None, **options",
    Connection.table: "self, name, use_prefix=True",
    Connection.tables: "self",
    Connection.create_table: "self, name, families, *, splits=None, region_replication=1",
    Connection.delete_table: "self, name, disable=False",
    Connection.enable_table: "self, name",
    Connection.disable_table: "self, name",
    Connection.is_table_enabled: "self, name",
    Connection.compact_table: "self, name, major=False",
    Connection.watch_freshness: "self, table, *, family, interval=1.0, read_only=False",
    Connection.open: "self",
    Connection.close: "self",
    Connection.locate: "self, table, row, *, replica_id=0, reload=False",
    Connection.regions: "self, table, *, complete=False",
    Connection.export_locations: "self, *tables",
    Connection.import_locations: "self, data",
    Connection.meta_replicas: "self",
    Connection.stats: "self",
    Connection.on_event: "self, listener",
    ConnectionPool: "size, **kwargs",
    ConnectionPool.connection: "self, timeout=None",
    Table.row: "self, row, columns=None, timestamp=None, include_timestamp=False, *, consistency=None, "
    "replica_id=None, filter=None, max_staleness=None",
    Table.rows: "self, rows, columns=None, timestamp=None, include_timestamp=False, *, consistency=None, "
    "replica_id=None, max_staleness=None",
    Table.cells: "self, row, column, versions=None, timestamp=None, include_timestamp=False, *, consistency=None, "
    "replica_id=None, max_staleness=None",
    Table.exists: "self, row, columns=None, *, consistency=None, replica_id=None, max_staleness=None",
    Table.scan: "self, row_start=None, row_stop=None, row_prefix=None, columns=None, filter=None, timestamp=None, "
    "include_timestamp=False, batch_size=1000, scan_batching=None, limit=None, sorted_columns=False, reverse=False, "
    "*, consistency=None, replica_id=None, max_staleness=None",
    Table.put: "self, row, data, timestamp=None, wal=True",
    Table.delete: "self, row, columns=None, timestamp=None, wal=True",
    Table.batch: "self, timestamp=None, batch_size=None, transaction=False, wal=True",
    Table.append: "self, row, data",
    Table.mutate_row: "self, row, put=None, delete=None, timestamp=None, wal=True",
    Table.check_and_put: "self, row, column, value, data, timestamp=None, wal=True, *, op=<CompareOp.EQUAL: '=='>",
    Table.check_and_delete: "self, row, column, value, columns=None, timestamp=None, wal=True, *, "
    "op=<CompareOp.EQUAL: '=='>",
    Table.counter_get: "self, row, column",
    Table.counter_set: "self, row, column, value=0",
    Table.counter_inc: "self, row, column, value=1",
    Table.counter_dec: "self, row, column, value=1",
    Table.families: "self",
    Table.regions: "self",
}


def plain(function: Any) -> str:
    """A signature without its annotations."""
    signature = inspect.signature(function)
    bare = [each.replace(annotation=inspect.Parameter.empty) for each in signature.parameters.values()]
    return str(signature.replace(parameters=bare, return_annotation=inspect.Signature.empty))[1:-1]


def test_exported_names_are_frozen() -> None:
    assert sorted(metaclient.__all__) == sorted(ALL)
    assert all(hasattr(metaclient, name) for name in ALL)


def test_happybases_other_names_are_there() -> None:
    assert (metaclient.DEFAULT_HOST, metaclient.DEFAULT_PORT) == ("localhost", 9090)
    assert issubclass(metaclient.NoConnectionsAvailable, RuntimeError)


@pytest.mark.parametrize("function", SIGNATURES, ids=lambda function: function.__qualname__)
def test_signatures_are_frozen(function: Any) -> None:
    assert plain(function) == SIGNATURES[function]


def test_connection_takes_happybases_arguments_first() -> None:
    names = list(inspect.signature(Connection).parameters)[:9]
    assert names == [
        "host",
        "port",
        "timeout",
        "autoconnect",
        "table_prefix",
        "table_prefix_separator",
        "compat",
        "transport",
        "protocol",
    ]


def test_warm_up_takes_the_table_first() -> None:
    assert plain(Connection.warm_up).startswith("self, table")


@pytest.mark.parametrize("name", [name for name in ALL if isinstance(getattr(metaclient, name), type)])
def test_errors_have_one_root_and_answer_two_questions(name: str) -> None:
    found = getattr(metaclient, name)
    if issubclass(found, Exception) and not issubclass(found, Warning):
        assert issubclass(found, MetaClientError)
        error = found("text", failed={}) if name == "BatchError" else found("text")
        assert error.disposition.value in ("relocate", "backoff", "next_replica", "fatal")
        assert error.may_have_applied is False
        assert str(error) == "text"


def test_rows_have_the_promised_attributes() -> None:
    row = metaclient.Row({b"cf:a": b"1"})
    assert (row.stale, row.replica_id, row.server, row.region) == (False, 0, None, None)


def test_a_column_as_text_is_a_key_error_that_says_bytes() -> None:
    row = metaclient.Row({b"cf:a": b"1"}, stale=True)
    with pytest.raises(KeyError, match=r"columns are bytes: write row\[b'cf:a'\] instead of row\['cf:a'\]"):
        row["cf:a"]  # type: ignore[index]  # that is the point
    with pytest.raises(KeyError) as caught:
        row[b"cf:b"]
    assert caught.value.args == (b"cf:b",)
    assert b"cf:b" not in row
    assert "cf:a" not in row
    assert row.get(b"cf:b") is None
    for same in (pickle.loads(pickle.dumps(row)), copy.copy(row), copy.deepcopy(row)):
        assert (same, same.stale) == (row, True)
