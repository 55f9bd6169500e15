"""Describes how a source reaches the peer cluster (``ReplicationEndpoint``), and reaches one in this process.

DIVERGENCE: the servers of a peer and its cluster id are read from its nodes without a message, as from a ZooKeeper that
no partition separates from the source.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Sequence
from typing import Protocol

from metaclient.errors import ServerUnreachable
from metaclient.model import ServerName
from metaclient.runtime import Runtime
from metaclient.wire.rpc.replication import ShippedEntry
from metaclient_fake.network.call import Call, Caller, Station
from metaclient_fake.network.handlers import Handlers
from metaclient_fake.network.network import Network
from metaclient_fake.replication.sink import EntrySink

__all__ = ["InProcessEndpoint", "PeerEndpoint", "ReachedCluster", "SinkServer"]


class PeerEndpoint(Protocol):
    """A peer cluster as its sources see it."""

    def cluster_id(self) -> uuid.UUID | None:
        """Return the id of the peer cluster; None while it is not known."""
        ...

    def servers(self) -> Sequence[ServerName]:
        """Return the peer's live servers; empty while they are not known."""
        ...

    def replicate(self, server: ServerName, entries: Sequence[ShippedEntry], deadline: float) -> None:
        """Apply entries through this server, in one call; return when they are applied, else raise MetaClientError.

        After an error some of the entries may have been applied.
        """
        ...

    def close(self) -> None:
        """Give up what the endpoint holds. Idempotent."""
        ...


class SinkServer(Station, Protocol):
    """A region server of the peer cluster, in this process."""

    @property
    def replication_sink(self) -> EntrySink: ...

    @property
    def replication_handlers(self) -> Handlers: ...

    @property
    def slow_s(self) -> float: ...


class ReachedCluster(Protocol):
    """The peer cluster, in this process."""

    @property
    def cluster_id(self) -> str: ...

    def live_servers(self) -> Sequence[ServerName]:
        """Return the servers that have a node below ``/hbase/rs``."""
        ...

    def sink_server(self, name: ServerName) -> SinkServer | None:
        """Return this incarnation of a server; None if it is gone."""
        ...


class InProcessEndpoint:
    """Calls the sinks of another cluster of the same network: partitions, delays and hangs apply."""

    def __init__(
        self, runtime: Runtime, network: Network, caller: Caller, find_cluster: Callable[[], ReachedCluster | None]
    ) -> None:
        """``network`` and ``caller`` belong to the source's server; ``find_cluster`` returns None if there is none."""
        self._runtime = runtime
        self._network = network
        self._caller = caller
        self._find_cluster = find_cluster
        self._is_closed = False

    @property
    def party(self) -> str:
        return self._caller.party

    @property
    def is_closed(self) -> bool:
        """True when calls in flight must end: they are made with this object as their caller."""
        return self._is_closed or self._caller.is_closed

    def cluster_id(self) -> uuid.UUID | None:
        cluster = self._find_cluster()
        return None if cluster is None else uuid.UUID(cluster.cluster_id)

    def servers(self) -> Sequence[ServerName]:
        cluster = self._find_cluster()
        return () if cluster is None else cluster.live_servers()

    def replicate(self, server: ServerName, entries: Sequence[ShippedEntry], deadline: float) -> None:
        cluster = self._find_cluster()
        target = None if cluster is None else cluster.sink_server(server)
        if target is None:
            raise ServerUnreachable(f"connection refused by {server}: it is not running any more")
        Call(
            self._network,
            self._runtime,
            self,
            target,
            lambda: target.replication_sink.apply(entries),
            handlers=target.replication_handlers,
            deadline=deadline,
            service_s=target.slow_s,
            is_write=True,
            may_repeat=True,
        ).run()

    def close(self) -> None:
        self._is_closed = True
        self._network.announce()
