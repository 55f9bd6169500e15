"""A fake cluster on virtual time, with a client that does exactly one attempt per call."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import pytest

from metaclient import keys, metarow
from metaclient.backend import MetaPage, MetaScan
from metaclient.metarow import DecodedMetaRow
from metaclient.model import (
    LATEST_TIMESTAMP,
    Cell,
    FamilyDescriptor,
    Get,
    MetaReplica,
    Put,
    RegionLocation,
    Result,
    TableDescriptor,
)
from metaclient.runtime import Runtime, SimRuntime
from metaclient_fake import FakeBackend, FakeCluster


class World:
    """A cluster, one client of it, and the few calls that tests make all the time."""

    def __init__(self, runtime: Runtime, **options: object) -> None:
        self.runtime = runtime
        self.cluster = FakeCluster(runtime=runtime, **options)  # type: ignore[arg-type]
        self.backend: FakeBackend = self.cluster.backend()

    def deadline(self, seconds: float = 5.0) -> float:
        return self.runtime.now() + seconds

    def create(self, name: bytes, splits: Sequence[bytes] = (), *, copies: int = 1, families: str = "f") -> None:
        descriptors = tuple(FamilyDescriptor(family.encode()) for family in families)
        self.cluster.create_table(TableDescriptor(name, descriptors, region_replication=copies), splits)

    def meta(self, replica_id: int, scan: MetaScan, seconds: float = 5.0) -> MetaPage:
        return self.backend.read_meta(self.replica(replica_id), scan, self.deadline(seconds))

    def replica(self, replica_id: int) -> MetaReplica:
        return self.backend.meta_replicas(self.deadline())[replica_id]

    def lookup(self, table: bytes, row: bytes = b"", *, at: int = 0) -> DecodedMetaRow | None:
        """One lookup of the kind that a client makes, at one copy of meta."""
        start, stop = keys.meta_search_key(table, row), keys.meta_table_start(table)
        page = self.meta(at, MetaScan(start, stop, is_reversed=True, limit=1))
        return metarow.decode(page.rows[0].row, page.rows[0].columns) if page.rows else None

    def rows_of(self, table: bytes, *, at: int = 0) -> list[DecodedMetaRow]:
        scan = MetaScan(keys.meta_table_start(table), keys.meta_table_stop(table), is_reversed=False, limit=100_000)
        return [metarow.decode(row.row, row.columns) for row in self.meta(at, scan).rows]

    def place(self, table: bytes, row: bytes = b"", replica_id: int = 0) -> RegionLocation:
        found = self.lookup(table, row)
        assert found is not None, f"no region for {row!r}"
        assert found.locations is not None, f"a broken row for {row!r}"
        location = found.locations.at(replica_id)
        assert location is not None, f"replica {replica_id} of {found} is nowhere"
        return location

    def put(self, table: bytes, row: bytes, value: bytes = b"1", *, place: RegionLocation | None = None) -> None:
        mutation = Put(row, (Cell(b"f:q", LATEST_TIMESTAMP, value),))
        self.backend.mutate(place or self.place(table, row), table, mutation, self.deadline())

    def get(
        self,
        table: bytes,
        row: bytes,
        *,
        replica_id: int = 0,
        place: RegionLocation | None = None,
        seconds: float = 5.0,
    ) -> Result:
        return self.backend.get(place or self.place(table, row, replica_id), table, Get(row), self.deadline(seconds))

    def value(self, table: bytes, row: bytes, *, replica_id: int = 0) -> bytes | None:
        cells = self.get(table, row, replica_id=replica_id).cells
        return cells[0].value if cells else None


@pytest.fixture
def runtime() -> Iterator[SimRuntime]:
    with SimRuntime(seed=1) as made:
        yield made


@pytest.fixture
def make(runtime: SimRuntime) -> Iterator[Callable[..., World]]:
    """Make worlds on the test's runtime; closed at its end."""
    worlds: list[World] = []

    def make(**options: object) -> World:
        worlds.append(World(runtime, **options))
        return worlds[-1]

    yield make
    for world in worlds:
        world.cluster.close()


@pytest.fixture
def world(make: Callable[..., World]) -> World:
    return make()
