"""Code of a user, for type checkers only: mypy and pyright accept it; each ``ignore`` is a mistake that they find."""

from __future__ import annotations

from collections import OrderedDict
from typing import TYPE_CHECKING, Any, assert_type

import metaclient
from metaclient import aio
from metaclient import filters as f

if TYPE_CHECKING:
    import pyarrow as pa


def connect() -> metaclient.Connection:
    metaclient.connect("fake:", rpc_timeout_s="5")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    metaclient.connect("fake:", rpc_timeot_s=5.0)  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
    return metaclient.connect("fake:", meta_mode=metaclient.MetaMode.LOAD_BALANCE, rpc_timeout_s=5.0, table_prefix="p")


def read(table: metaclient.Table) -> None:
    assert_type(table.row(b"r", consistency="TIMELINE"), metaclient.Row)
    assert_type(table.row(b"r")[b"d:a"], bytes)
    assert_type(table.row(b"r", include_timestamp=True), metaclient.Row[tuple[bytes, int]])
    assert_type(table.row(b"r", include_timestamp=True)[b"d:a"], tuple[bytes, int])
    assert_type(table.rows([b"r"]), list[tuple[bytes, metaclient.Row]])
    assert_type(table.rows([b"r"], include_timestamp=True), list[tuple[bytes, metaclient.Row[tuple[bytes, int]]]])
    assert_type(table.row(b"r").stale, bool)
    assert_type(table.row(b"r").server, metaclient.ServerName | None)
    assert_type(table.row(b"r").region, metaclient.RegionInfo | None)
    assert_type(table.cells(b"r", b"d:a"), list[bytes])
    assert_type(table.cells(b"r", b"d:a", include_timestamp=True, max_staleness=5.0), list[tuple[bytes, int]])
    for key, row in table.scan(row_prefix="u", filter=f.prefix(b"u") & (f.column(b"d:age") >= 40), replica_id=1):
        assert_type(key, bytes)
        assert_type(row, metaclient.Row)
    for _, timed in table.scan(include_timestamp=True):
        assert_type(timed, metaclient.Row[tuple[bytes, int]])
    for _, ordered in table.scan(sorted_columns=True):
        assert_type(ordered, metaclient.Row[Any] | OrderedDict[bytes, Any])
    table.row(5)  # type: ignore[call-overload]  # pyright: ignore[reportArgumentType, reportCallIssue]
    table.scan(consistncy="STRONG")  # type: ignore[call-overload]  # pyright: ignore[reportCallIssue]


async def read_on_a_loop(table: aio.Table) -> None:
    assert_type(await table.row(b"r"), metaclient.Row)
    assert_type(await table.row(b"r", include_timestamp=True), metaclient.Row[tuple[bytes, int]])
    assert_type(await table.rows([b"r"], include_timestamp=True), list[tuple[bytes, metaclient.Row[tuple[bytes, int]]]])
    assert_type(await table.cells(b"r", b"d:a", include_timestamp=True), list[tuple[bytes, int]])
    async for _, row in table.scan(limit=5):
        assert_type(row, metaclient.Row)
    async for _, timed in table.scan(include_timestamp=True):
        assert_type(timed, metaclient.Row[tuple[bytes, int]])


def columns(table: metaclient.Table) -> None:
    found: pa.Table = table.to_arrow("a", "b", schema={"row": "string", "d:age": "int", "d:s": ("double", "string")})
    assert_type(table.put_arrow(found, {"d:age": "int"}), int)
    options: metaclient.ColumnScanOptions = {"limit": 5, "bad_cells": "null"}
    table.to_pandas(**options)
    table.to_arrow(shcema={})  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
    table.to_arrow(bad_cells="skip")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]


def write(table: metaclient.Table) -> None:
    with table.batch(batch_size=100) as batch:
        batch.put(b"r", {b"d:a": b"1"})
        batch.counter_inc(b"r", b"d:n")
    assert_type(table.counter_inc(b"r", b"d:n"), int)
    assert_type(table.check_and_put(b"r", b"d:a", b"1", {b"d:a": b"2"}, op=metaclient.CompareOp.EQUAL), bool)


def look(connection: metaclient.Connection) -> None:
    def hear(event: metaclient.Event) -> None:
        assert_type(event, metaclient.Event)

    connection.on_event(hear)()
    assert_type(connection.capabilities, metaclient.Capabilities)
    assert_type(connection.meta_mode, metaclient.MetaMode)
    assert_type(connection.locate("t", b"r"), metaclient.RegionLocation)
    assert_type(connection.locate("t", b"r").server, metaclient.ServerName)
    assert_type(connection.regions("t"), list[metaclient.RegionLocations])
    assert_type(connection.meta_replicas(), list[metaclient.MetaReplicaStatus])
    assert_type(connection.describe_table("t"), metaclient.TableDescriptor)
