"""The client inside a gateway: locates regions, retries, follows moves; as the Java client does in HBase's gateway.

It is a metaclient connection to the cluster, with settings that make it behave like HBase's client: no reads of
hbase:meta's replicas by default, hedged reads as in HBase, no retry budget. It takes values of the model and returns
Results.

DIVERGENCE: a TIMELINE get of hbase:meta without a replica id goes to the primary.
"""

from __future__ import annotations

import re
from collections.abc import Generator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from metaclient.backend import Outcome
from metaclient.calls.operations import Operation
from metaclient.config import Config, fields_given
from metaclient.config.hbase_properties import warn_unread
from metaclient.connection import connect_to
from metaclient.model import (
    META_TABLE,
    Check,
    Consistency,
    Get,
    Mutation,
    RegionLocation,
    RegionLocations,
    Result,
    Scan,
    TableDescriptor,
)
from metaclient.row_limit import RowLimit
from metaclient.scanner import TableScanner

if TYPE_CHECKING:
    from metaclient_fake.cluster import FakeCluster

__all__ = ["GatewayClient"]

#: The settings in which HBase's Java client differs from metaclient. Retries: as in the gateways of LocalHBase, because
#: a client's own timeout is usually shorter than 15 retries (two minutes).
GATEWAY_SETTINGS: Mapping[str, object] = {
    "meta_mode": "None",
    "meta_selector": "simple",
    "retries": 4,
    "retry_budget": 1000,
    "hedge_delay": "fixed",
    "hedge_plan": "all_at_once",
    "hedge_budget": 1000,
}


class GatewayClient:
    """One client of the cluster, shared by all connections of one gateway.

    ``config`` holds HBase's properties for it (``hbase.client.retries.number``, ``hbase.locator.meta.replicas.mode``).
    """

    def __init__(self, cluster: FakeCluster, name: str, config: Mapping[str, object] | None = None) -> None:
        self.cluster = cluster
        self.runtime = cluster.runtime
        self.backend = cluster.backend(name)
        self.connection = connect_to(self.backend, runtime=cluster.runtime, config=_settings(config or {}))
        self.config = self.connection.config
        self._engine = self.connection.engine
        self._operations = self._engine.operations
        self._locator = self._engine.locator

    def close(self) -> None:
        self.connection.close()

    @property
    def cluster_id(self) -> str:
        return self.cluster.cluster_id

    # -- rows --------------------------------------------------------------------------------------------------

    def get(self, table: bytes, get: Get, *, is_timeline: bool = False, replica_id: int | None = None) -> Result:
        """Return one row; ``replica_id`` has an effect only with TIMELINE, as in HBase's gets."""
        if table == META_TABLE:
            return self._get_meta(get, (replica_id or 0) if is_timeline else 0)
        if is_timeline:
            return self._engine.get(table, get, Consistency.TIMELINE, replica_id)[0]
        return self._engine.get(table, get, Consistency.STRONG, None)[0]

    def _get_meta(self, get: Get, replica_id: int) -> Result:
        operations = self._operations
        deadline = operations.deadline(META_TABLE)

        def attempt() -> Result:
            place = self._meta_place(replica_id, deadline)
            return operations.at(place, Result, self.backend.get_meta, place, get, deadline=deadline)

        return operations.retried(attempt, deadline, META_TABLE, "get", get.row)

    def _meta_place(self, replica_id: int, deadline: float) -> RegionLocation:
        return self._locator.locate(META_TABLE, b"", deadline=deadline, replica_id=replica_id)

    def get_many(self, table: bytes, gets: Sequence[Get], *, is_timeline: bool = False) -> list[Result]:
        """Return a result for each get. TIMELINE is hedged over all replicas, as in HBase's batches."""
        level = Consistency.TIMELINE if is_timeline else Consistency.STRONG
        return [result for result, _ in self._engine.get_many(table, gets, level)]

    def mutate(self, table: bytes, mutation: Mutation) -> Result | None:
        return self._engine.mutate(table, mutation)

    def check_and_mutate(self, table: bytes, check: Check, mutation: Mutation) -> bool:
        return self._engine.check_and_mutate(table, check, mutation)

    def batch(self, table: bytes, actions: Sequence[Operation]) -> list[Outcome]:
        """Return an outcome for each action; none is raised."""
        return self._engine.batch(table, actions)

    # -- scans -------------------------------------------------------------------------------------------------

    def scan(
        self, table: bytes, scan: Scan, *, is_timeline: bool = False, replica_id: int | None = None
    ) -> Generator[Result, None, None]:
        """Yield rows; exhaust or close the generator. A replica id implies TIMELINE, as in HBase 2.4 to 2.6.

        ``limit`` counts rows also where ``batch`` cuts them into pieces, as in HBase.
        """
        level = Consistency.TIMELINE if is_timeline or replica_id is not None else Consistency.STRONG
        if scan.batch is None or scan.limit is None:
            return _results(self._engine.scan_rows(table, scan, level, replica_id))
        pieces = self._engine.scan_rows(table, replace(scan, limit=None), level, replica_id)
        return _whole_rows(_results(pieces), scan.limit)

    # -- places ------------------------------------------------------------------------------------------------

    def locate(self, table: bytes, row: bytes, *, reload: bool) -> RegionLocation:
        return self._locator.locate(table, row, deadline=self._operations.deadline(table), reload=reload)

    def regions(self, table: bytes) -> list[RegionLocations]:
        """Read the locations from hbase:meta (from the registry for hbase:meta itself), not from the cache."""
        return self._locator.regions(table, deadline=self._operations.deadline(table))

    # -- tables ------------------------------------------------------------------------------------------------

    def table_names(self, pattern: str | None = None, *, system: bool = False) -> list[bytes]:
        """Return the names that fully match the pattern, as ``t`` or ``default:t``; ValueError for a bad pattern."""
        names = self.connection.tables()
        if system:
            names.insert(0, META_TABLE)
        if pattern is None:
            return names
        try:
            matcher = re.compile(pattern.encode())
        except re.error as error:
            raise ValueError(f"{pattern!r} is no regular expression: {error}") from error
        return [name for name in names if matcher.fullmatch(name) or matcher.fullmatch(b"default:" + name)]

    def describe(self, table: bytes) -> TableDescriptor:
        return self._engine.describe(table)

    def is_enabled(self, table: bytes) -> bool:
        return bool(self._engine.admin("is_table_enabled", self.backend.is_table_enabled, table))

    def create_table(self, descriptor: TableDescriptor, splits: Sequence[bytes] = ()) -> None:
        self._change("create_table", descriptor.name, lambda: self.cluster.create_table(descriptor, splits))

    def delete_table(self, table: bytes) -> None:
        self._change("delete_table", table, lambda: self.cluster.delete_table(table))

    def enable_table(self, table: bytes) -> None:
        self._change("enable_table", table, lambda: self.cluster.enable_table(table))

    def disable_table(self, table: bytes) -> None:
        self._change("disable_table", table, lambda: self.cluster.disable_table(table))

    def truncate_table(self, table: bytes, *, preserve_splits: bool) -> None:
        self._change(
            "truncate_table", table, lambda: self.cluster.truncate_table(table, preserve_splits=preserve_splits)
        )

    def alter_table(self, descriptor: TableDescriptor) -> None:
        self._change("alter_table", descriptor.name, lambda: self.cluster.alter_table(descriptor))

    def compact_table(self, table: bytes, *, is_major: bool) -> None:
        self._change("compact_table", table, lambda: self.cluster.compact(table, is_major))

    def create_namespace(self, name: str) -> None:
        self._change("create_namespace", b"", lambda: self.cluster.create_namespace(name))

    def delete_namespace(self, name: str) -> None:
        self._change("delete_namespace", b"", lambda: self.cluster.delete_namespace(name))

    def namespaces(self) -> list[str]:
        """Ask the master for the namespaces: over the network, with retries."""
        return self.connection.namespaces()

    def _change(self, what: str, table: bytes, procedure: object) -> None:
        """Run a procedure of the master over the network, wait for it, and clear the table's cached locations."""
        self._engine.admin(what, self.backend._procedure, procedure)
        if table:
            self._locator.cache.clear(table)


def _results(scanner: TableScanner) -> Generator[Result, None, None]:
    for result, _ in scanner:
        yield result


def _whole_rows(pieces: Generator[Result, None, None], rows: int) -> Generator[Result]:
    limit = RowLimit(rows)
    try:
        for result in pieces:
            yield from limit.take([result])
            if limit.left <= 0:
                return
    finally:
        pieces.close()


def _settings(config: Mapping[str, object]) -> Config:
    """Return HBase's settings, except those that a property sets, even to metaclient's default."""
    properties = Config.of(config).properties
    warn_unread(properties, (), "the client inside of a gateway")
    given = fields_given(properties)
    return Config.of(properties, **{name: value for name, value in GATEWAY_SETTINGS.items() if name not in given})
