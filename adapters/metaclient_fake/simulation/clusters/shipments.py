"""Records what the clusters of a run ship, store and log: every call of a source, every stored position, every log.

The log files stay here after the clusters have deleted them, so that checkers can read all of them after the run.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, NamedTuple
from unittest.mock import patch

from metaclient.model import ServerName
from metaclient.wire.rpc.replication import ShippedEntry
from metaclient_fake.cluster.shipping import Shipping
from metaclient_fake.replication.endpoint import InProcessEndpoint
from metaclient_fake.replication.queues import QueueId, QueueStore
from metaclient_fake.server.region_server import RegionServer
from metaclient_fake.storage.wal import WalEntry, WalFile
from metaclient_fake.storage.wal_reader import WalReader

__all__ = ["END_OF_LOG", "LoggedEdit", "SentCall", "Shipments", "StoredPosition"]

#: The position of a log that is not in its queue any more.
END_OF_LOG = 1 << 62


@dataclass(slots=True, eq=False)
class SentCall:
    """One call of a source. ``source`` and ``target`` are clusters; ``connection`` is one number per source object."""

    at_s: float
    source: str
    server: ServerName
    is_live: bool  # False for a server that was declared dead and does not know it
    connection: int
    target: str
    entries: Sequence[ShippedEntry]
    is_acknowledged: bool = False


class StoredPosition(NamedTuple):
    """A position that a source has stored, or :data:`END_OF_LOG` when its log has left the queue."""

    at_s: float
    source: str
    target: str  # the name of the peer
    wal: str
    position: int


class LoggedEdit(NamedTuple):
    """An entry with cells in a log of a cluster, and where it ends in the file."""

    cluster: str
    wal: str
    end: int
    entry: WalEntry


class Shipments:
    """The records of one run: ``events`` has calls and stored positions in their order."""

    def __init__(self) -> None:
        self.events: list[SentCall | StoredPosition] = []
        self._clusters: dict[str, Any] = {}  # name -> FakeCluster
        self._stores: dict[int, str] = {}  # id of the QueueStore -> name of its cluster
        self._servers: dict[int, RegionServer] = {}  # id of the endpoint -> the server of its source
        self._endpoints: list[InProcessEndpoint] = []  # kept, so that their ids are unique
        self._files: dict[str, list[WalFile]] = {}

    def know(self, name: str, cluster: Any) -> None:
        """Record the events of this cluster under its name."""
        self._clusters[name] = cluster
        self._stores[id(cluster.peer_replication.queues)] = name

    def logged(self, cluster: str) -> Iterator[LoggedEdit]:
        """Yield the durable entries with cells of all logs that the servers of a cluster have written."""
        for file in self._files.get(cluster, ()):
            reader = WalReader(file)
            while (entry := reader.read()) is not None:
                if entry.rows:
                    yield LoggedEdit(cluster, file.name, reader.position, entry)

    @contextmanager
    def watching(self) -> Iterator[None]:
        """Record all clusters of this process until the end of the block."""
        with (
            patch.object(Shipping, "make_sources", self._make_sources(Shipping.make_sources)),
            patch.object(InProcessEndpoint, "__init__", self._made(InProcessEndpoint.__init__)),
            patch.object(InProcessEndpoint, "replicate", self._replicate(InProcessEndpoint.replicate)),
            patch.object(QueueStore, "set_position", self._set_position(QueueStore.set_position)),
            patch.object(QueueStore, "remove_wal", self._remove_wal(QueueStore.remove_wal)),
        ):
            yield

    # -- wrapped methods -----------------------------------------------------------------------------------------

    def _make_sources(self, right: Any) -> Any:
        def make_sources(shipping: Shipping, server: RegionServer) -> Any:
            files = self._files.setdefault(server.party.partition("/")[0], [])
            files += server.wal.files
            server.wal.on_roll.append(files.append)
            return right(shipping, server)

        return make_sources

    def _made(self, right: Any) -> Any:
        def made(endpoint: InProcessEndpoint, runtime: Any, network: Any, caller: Any, find_cluster: Any) -> None:
            right(endpoint, runtime, network, caller, find_cluster)
            self._endpoints.append(endpoint)
            self._servers[id(endpoint)] = caller

        return made

    def _replicate(self, right: Any) -> Any:
        def replicate(
            endpoint: InProcessEndpoint, server: ServerName, entries: Sequence[ShippedEntry], deadline: float
        ) -> None:
            if endpoint.is_closed:
                right(endpoint, server, entries, deadline)
                return
            sent = self._sent(endpoint, entries)
            self.events.append(sent)
            right(endpoint, server, entries, deadline)
            sent.is_acknowledged = True

        return replicate

    def _sent(self, endpoint: InProcessEndpoint, entries: Sequence[ShippedEntry]) -> SentCall:
        sender = self._servers[id(endpoint)]
        source = sender.party.partition("/")[0]
        cluster = self._clusters[source]
        peer_id = str(endpoint.cluster_id())
        target = next((name for name, one in self._clusters.items() if one.cluster_id == peer_id), "?")
        is_live = cluster.master.live.get(sender.name) is sender
        at_s = cluster.runtime.now()
        return SentCall(at_s, source, sender.name, is_live, self._endpoints.index(endpoint), target, entries)

    def _set_position(self, right: Any) -> Any:
        def set_position(store: QueueStore, queue: QueueId, wal: str, position: int, ids: Any = None) -> None:
            right(store, queue, wal, position, ids)
            self._stored(store, queue, wal, position)

        return set_position

    def _remove_wal(self, right: Any) -> Any:
        def remove_wal(store: QueueStore, queue: QueueId, wal: str) -> None:
            right(store, queue, wal)
            self._stored(store, queue, wal, END_OF_LOG)

        return remove_wal

    def _stored(self, store: QueueStore, queue: QueueId, wal: str, position: int) -> None:
        source = self._stores.get(id(store))
        if source is not None:
            at_s = self._clusters[source].runtime.now()
            self.events.append(StoredPosition(at_s, source, queue.peer, wal, position))
