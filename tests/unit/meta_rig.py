"""What the tests of lookups share: a scripted cluster on virtual time, a connection to it, and pages made by hand."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from metaclient import metarow
from metaclient.backend import MetaPage, MetaRow
from metaclient.connection import Connection, connect_to
from metaclient.lookup.locator import Locator
from metaclient.meta.health_tracker import MetaReplicaStatus
from metaclient.model import RegionInfo, RegionLocation, RegionLocations, ServerName
from metaclient.runtime import SimRuntime
from metaclient.telemetry import Event
from metaclient.testing import ScriptedBackend

TABLE = b"t"
NOWHERE = ServerName("never.example.com", 1, 1)


@dataclass
class Rig:
    runtime: SimRuntime
    backend: ScriptedBackend
    connection: Connection
    events: list[Event]

    @property
    def locator(self) -> Locator:
        return self.connection.engine.locator

    def deadline(self, seconds: float = 10.0) -> float:
        return self.runtime.now() + seconds

    def locate(self, row: bytes, table: bytes = TABLE, **options: Any) -> RegionLocation:
        return self.connection.locate(table, row, **options)

    def before(self, row: bytes, table: bytes = TABLE) -> RegionLocations:
        return self.locator.locate_region(table, row, deadline=self.deadline(), before=True)

    def reads(self, replica: int | None = None) -> int:
        """Calls to hbase:meta, by all or by one replica."""
        return self.backend.count("read_meta", **({} if replica is None else {"replica_id": replica}))

    def at_once(self, *rows: bytes, table: bytes = TABLE, **options: Any) -> list[Any]:
        """Locate all rows from tasks of their own; each task's location or error."""
        tasks = [self.runtime.start(lambda row=row: self.locate(row, table, **options)) for row in rows]
        self.runtime.wait_first([self.runtime.start(self._join, tasks)], None)
        return [task.error() or task.result() for task in tasks]

    def _join(self, tasks: Sequence[Any]) -> None:
        for task in tasks:
            self.runtime.wait_first((task,), None)

    def replica(self, replica_id: int) -> MetaReplicaStatus:
        return next(one for one in self.connection.engine.reader.status() if one.id == replica_id)

    def seen(self, kind: str) -> list[dict[str, object]]:
        return [dict(event.details) for event in self.events if event.kind == kind]


@contextmanager
def rig(
    *,
    splits: Sequence[bytes] = (),
    servers: int = 3,
    meta_replicas: int = 3,
    region_replication: int = 1,
    seed: int = 0,
    latency_s: float = 0.001,
    table: bytes | None = TABLE,
    backend: dict[str, Any] | None = None,
    **options: Any,
) -> Iterator[Rig]:
    with SimRuntime(seed=seed) as runtime:
        scripted = ScriptedBackend(
            runtime, servers=servers, meta_replicas=meta_replicas, latency_s=latency_s, **(backend or {})
        )
        if table is not None:
            scripted.add_table(table, splits=splits, region_replication=region_replication)
        with connect_to(scripted, runtime=runtime, **options) as connection:
            events: list[Event] = []
            connection.on_event(events.append)
            yield Rig(runtime, scripted, connection, events)


def region(start: bytes = b"", end: bytes = b"", region_id: int = 1, table: bytes = TABLE) -> RegionInfo:
    return RegionInfo(table, start, end, region_id)


def server(name: str) -> ServerName:
    return ServerName(name, 16020, 1)


def placed(info: RegionInfo, *servers: str | None, seqnum: int = 5) -> RegionLocations:
    """``info`` with a replica on each of these servers; None = a hole."""
    return RegionLocations(
        info,
        tuple(
            RegionLocation(info.replica(replica_id), server(name), seqnum) if name is not None else None
            for replica_id, name in enumerate(servers)
        ),
    )


def row_of(entry: RegionLocations) -> MetaRow:
    return MetaRow(entry.region.name, metarow.region_columns(entry))


def page_of(*entries: RegionLocations) -> MetaPage:
    return MetaPage(tuple(row_of(entry) for entry in entries))


def without_columns(page: MetaPage, *names: bytes) -> MetaPage:
    """A torn page: rows with some of their columns."""
    return MetaPage(
        tuple(
            MetaRow(row.row, {name: value for name, value in row.columns.items() if name not in names})
            for row in page.rows
        )
    )


def hosts(entry: RegionLocations | None) -> list[str | None]:
    assert entry is not None
    return [at.server.host if at is not None else None for at in entry.replicas]
