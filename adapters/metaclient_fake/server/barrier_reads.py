"""Reads barriers from the primary of hbase:meta: for sources of serial peers, and for the master's cleaner."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from metaclient import keys
from metaclient.backend import MetaScan
from metaclient.errors import RegionUnavailable
from metaclient.runtime import Runtime
from metaclient_fake.network.call import Call
from metaclient_fake.network.network import Network
from metaclient_fake.replication.barriers import BARRIER_FAMILY, MetaBarriers
from metaclient_fake.server.data_calls import DataCalls
from metaclient_fake.server.region_server import RegionServer

__all__ = ["barrier_rows", "barriers_for"]

T = TypeVar("T")
_ALL_ROWS = 0x7FFFFFFF


def barrier_rows(calls: DataCalls, table: bytes | None = None) -> list[bytes]:
    """Return the names of all regions with barriers, also of regions that are gone: of one table, or of all."""
    start, stop = (b"", b"") if table is None else (keys.meta_table_start(table), keys.meta_table_stop(table))
    scan = MetaScan(start, stop, is_reversed=False, limit=_ALL_ROWS, families=(BARRIER_FAMILY,))
    return [row.row for row in calls.read_meta(0, scan).rows]


def barriers_for(
    server: RegionServer,
    network: Network,
    runtime: Runtime,
    *,
    meta_server: Callable[[], RegionServer | None],
    timeout_s: float,
) -> MetaBarriers:
    """Return the barriers as a server reads them: each read is a call to the server of hbase:meta, and may fail."""

    def read(function: Callable[[DataCalls], T]) -> T:
        target = meta_server()
        if target is None:
            raise RegionUnavailable("hbase:meta is on no server")
        if target is server:
            return function(target.calls)
        handlers, deadline = target.meta_handlers, runtime.now() + timeout_s
        return Call(
            network, runtime, server, target, lambda: function(target.calls), handlers=handlers, deadline=deadline
        ).run()

    return MetaBarriers(
        lambda get: read(lambda calls: calls.get_meta(0, get)),
        lambda table: read(lambda calls: barrier_rows(calls, table)),
    )
