"""Clusters on one network that replicate to each other: real logs, sources, sinks and queues."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, TypeAlias

from metaclient.model import Cell, FamilyDescriptor, TableDescriptor
from metaclient.replication_peers import SourceLoad
from metaclient.runtime import Runtime
from metaclient_fake import FakeCluster
from metaclient_fake.storage.wal import WalEntry, WalFile
from metaclient_fake.storage.wal_reader import WalReader


class Side:
    """One cluster that replicates to others."""

    def __init__(
        self, runtime: Runtime, name: str, beside: Side | None = None, *, servers: int = 2, **settings: object
    ) -> None:
        """``settings`` are those of replication between clusters."""
        network = None if beside is None else beside.cluster.network
        self.runtime = runtime
        self.cluster = FakeCluster(
            servers=servers,
            runtime=None if network else runtime,
            network=network,
            name=name,
            meta_replicas=1,
            config={f"peer_replication_{key}": value for key, value in settings.items()},
        )
        self.connection = self.cluster.connect()

    def create(self, table: bytes = b"t", splits: Sequence[bytes] = (), *, scopes: str = "f1") -> None:
        """Make a table; ``scopes`` are names and scopes of families: ``f1g0``."""
        families = tuple(
            FamilyDescriptor(scopes[at].encode(), max_versions=5, replication_scope=int(scopes[at + 1]))
            for at in range(0, len(scopes), 2)
        )
        self.cluster.create_table(TableDescriptor(table, families), splits)

    def replicates_to(self, other: Side, peer_id: str = "p", **config: Any) -> None:
        """Add a peer."""
        self.cluster.replication.add(peer_id, other.cluster.cluster_key, **config)

    def disable(self) -> None:
        self.cluster.replication.disable("p")

    def enable(self) -> None:
        self.cluster.replication.enable("p")

    def loads(self) -> list[SourceLoad]:
        return [load for status in self.cluster.peer_replication.statuses() for load in status.sources]

    def put(
        self, row: bytes, value: bytes = b"v", *, table: bytes = b"t", column: bytes = b"f:q", at: Any = None
    ) -> None:
        self.connection.table(table).put(row, {column: value}, timestamp=at)

    def delete(self, row: bytes, *, table: bytes = b"t") -> None:
        self.connection.table(table).delete(row)

    def rows(self, table: bytes = b"t") -> dict[bytes, dict[bytes, Any]]:
        """All rows with values and timestamps."""
        return {key: dict(row) for key, row in self.connection.table(table).scan(include_timestamp=True)}

    def files(self) -> Iterator[WalFile]:
        for server in self.cluster.servers_by_host.values():
            yield from server.wal.files
        yield from self.cluster.filesystem.old_wals

    def logged(self, table: bytes = b"t") -> list[WalEntry]:
        """The entries with cells in the logs of all servers."""
        found: list[WalEntry] = []
        for file in self.files():
            reader = WalReader(file)
            while (entry := reader.read()) is not None:
                if entry.table == table and entry.rows:
                    found.append(entry)
        return found

    def cells(self) -> list[tuple[bytes, Cell]]:
        return [edit for entry in self.logged() for edit in entry.edits]


#: Name and settings of replication -> a cluster.
MakeSide: TypeAlias = Callable[..., Side]


@contextmanager
def sides(runtime: Runtime, **defaults: object) -> Iterator[MakeSide]:
    """Give a function that makes clusters, the second and later ones on the network of the first; close them all."""
    made: list[Side] = []

    def make(name: str, **options: object) -> Side:
        made.append(Side(runtime, name, made[0] if made else None, **{**defaults, **options}))  # type: ignore[arg-type]  # servers is a number
        return made[-1]

    yield make
    for one in made:
        one.cluster.close()
