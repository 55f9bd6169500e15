"""Clusters on one network that replicate to each other: real logs, sources, sinks and queues."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from metaclient.model import Cell, FamilyDescriptor, ServerName, TableDescriptor
from metaclient.replication_peers import Peer, PeerConfig, PeerState
from metaclient.runtime import Runtime
from metaclient_fake import FakeCluster
from metaclient_fake.cluster.shipping import Shipping
from metaclient_fake.config.replication import PeerReplicationConfig
from metaclient_fake.replication.manager import SourceManager
from metaclient_fake.replication.peer_store import PeerStore
from metaclient_fake.replication.pushed_ids import PushedIds
from metaclient_fake.replication.queues import QueueStore
from metaclient_fake.storage.wal import WalEntry, WalFile
from metaclient_fake.storage.wal_reader import WalReader


class Side:
    """One cluster, and the managers of its servers."""

    def __init__(
        self, runtime: Runtime, name: str, beside: Side | None = None, *, servers: int = 2, **settings: Any
    ) -> None:
        network = None if beside is None else beside.cluster.network
        self.runtime = runtime
        self.cluster = FakeCluster(
            servers=servers, runtime=None if network else runtime, network=network, name=name, meta_replicas=1
        )
        self.config = PeerReplicationConfig(**settings)
        self.store = PeerStore(self.cluster.znodes)
        self.queues = QueueStore(self.cluster.znodes, PushedIds(self.cluster.znodes))
        self.shipping = Shipping(self.cluster.inside, self.config)
        self.managers: dict[ServerName, SourceManager] = {}
        for server in list(self.cluster.master.live.values()):
            self.attach(server)
        self.connection = self.cluster.connect()

    def attach(self, server: Any) -> None:
        """Give a server its sink and its sources."""
        manager = self.managers[server.name] = SourceManager(
            server.name,
            runtime=self.runtime,
            peers=self.store,
            queues=self.queues,
            config=self.config,
            current_wals=lambda: [server.wal.files[-1].name],
            make_source=self.shipping.make_sources(server),
            abort=server.abort,
        )
        server.wal.on_roll.append(lambda file: manager.log_rolled(file.name))
        manager.refresh_all()

    def create(self, table: bytes = b"t", splits: Sequence[bytes] = (), *, scopes: str = "f1") -> None:
        """Make a table; ``scopes`` are names and scopes of families: ``f1g0``."""
        families = tuple(
            FamilyDescriptor(scopes[at].encode(), max_versions=5, replication_scope=int(scopes[at + 1]))
            for at in range(0, len(scopes), 2)
        )
        self.cluster.create_table(TableDescriptor(table, families), splits)

    def replicates_to(self, other: Side, peer_id: str = "p", **config: Any) -> None:
        """Add a peer."""
        made = PeerConfig(cluster_key=other.cluster.cluster_key, **config)
        self.store.add(Peer(peer_id, PeerState.ENABLED, made))
        self.refresh(peer_id)

    def set_state(self, state: PeerState, peer_id: str = "p") -> None:
        self.store.set_state(peer_id, state)
        self.refresh(peer_id)

    def refresh(self, peer_id: str = "p") -> None:
        for manager in self.managers.values():
            manager.refresh(peer_id)

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

    def close(self) -> None:
        self.shipping.close()
        self.cluster.close()
