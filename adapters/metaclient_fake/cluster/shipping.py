"""Connects the sources and the sinks of a cluster's servers with the rest of the cluster, and with other clusters.

The cluster key of a peer decides how its sources reach it: another cluster of the same network is called in process;
any other key is that of a real cluster, over TCP, which a cluster on virtual time cannot reach. A sink writes with a
client of its own cluster, which is a party of the network under the name of the sink's server.
"""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, cast

from metaclient.backend import ReplicatingBackend, ReplicationSinks
from metaclient.backends import backend_for
from metaclient.config import Config
from metaclient.config.cluster_keys import ClusterKey
from metaclient.connection import Connection, connect_to
from metaclient.errors import Unsupported
from metaclient.model import Delete, Put, ServerName
from metaclient.replication_peers import Peer
from metaclient.runtime import SimRuntime
from metaclient_fake.backend import FakeBackend
from metaclient_fake.config.replication import PeerReplicationConfig
from metaclient_fake.replication.batches import BufferQuota
from metaclient_fake.replication.endpoint import InProcessEndpoint, PeerEndpoint, SinkServer
from metaclient_fake.replication.manager import SourceFactory
from metaclient_fake.replication.reader import OrderCheck
from metaclient_fake.replication.remote_endpoint import RemoteEndpoint
from metaclient_fake.replication.serial import SerialChecker
from metaclient_fake.replication.sink import PeerSink
from metaclient_fake.replication.source import SourceHost
from metaclient_fake.replication.subscribers import SubscriberEndpoint
from metaclient_fake.server.barrier_reads import barriers_for
from metaclient_fake.server.region_server import RegionServer

if TYPE_CHECKING:
    from metaclient_fake.cluster.fake_cluster import FakeCluster

__all__ = ["InProcessCluster", "Shipping"]


class InProcessCluster:
    """A cluster of the network as the sources of another one see it."""

    def __init__(self, cluster: FakeCluster) -> None:
        self._cluster = cluster

    @property
    def cluster_id(self) -> str:
        return self._cluster.cluster_id

    def live_servers(self) -> Sequence[ServerName]:
        return list(self._cluster.master.live)

    def sink_server(self, name: ServerName) -> SinkServer | None:
        server = self._cluster.master.live.get(name)
        return None if server is None or server.replication_sink is None else cast(SinkServer, server)


class SinkClient:
    """The client of one server's sink, made at the first write. ``_lock`` guards the connection."""

    def __init__(self, cluster: FakeCluster, server: RegionServer, config: PeerReplicationConfig) -> None:
        self._cluster = cluster
        self._server = server
        self._config = config
        self._lock = cluster.runtime.lock()
        self._connection: Connection | None = None

    def __call__(self, table: bytes, mutations: Sequence[Put | Delete]) -> Sequence[object]:
        with self._lock:
            if self._connection is None:
                self._connection = self._connect()
            engine = self._connection.engine
        return engine.batch(table, mutations)

    def _connect(self) -> Connection:
        timeout_s = self._config.sink_timeout_s
        return connect_to(
            FakeBackend(self._cluster, party=self._server.host),
            runtime=self._cluster.runtime,
            operation_timeout_s=timeout_s,
            rpc_timeout_s=timeout_s,
            retries=self._config.sink_retries,
        )

    def close(self) -> None:
        """Close the connection, if one was made. The server has ended, so that no write makes one any more."""
        if self._connection is not None:
            self._connection.close()


class Shipping:
    """The sources and sinks of one cluster. ``_clients`` has the clients of the sinks of live servers."""

    def __init__(self, cluster: FakeCluster, config: PeerReplicationConfig) -> None:
        """``cluster`` is the object without the handle (``FakeCluster.inside``)."""
        self._cluster = cluster
        self._config = config
        self._clients: dict[ServerName, SinkClient] = {}

    def make_sources(self, server: RegionServer) -> SourceFactory:
        """Give a new server its sink; return the function that makes its sources."""
        cluster, config = self._cluster, self._config
        self._drop_dead_clients()
        client = self._clients[server.name] = SinkClient(cluster, server, config)
        server.replication_sink = PeerSink(cluster.runtime, client, batch_rows=config.sink_batch_rows)
        return SourceHost(
            runtime=cluster.runtime,
            config=config,
            cluster_id=uuid.UUID(cluster.cluster_id),
            quota=BufferQuota(cluster.runtime, config.buffer_bytes_max),
            find_wal=cluster.filesystem.find_wal_file,
            make_endpoint=partial(self._endpoint, server),
            make_order_check=partial(self._order_check, server),
            families_of=self._families_of,
            is_running=lambda: server.is_running,
            abort=server.abort,
        ).make_source

    def close(self) -> None:
        for client in list(self._clients.values()):
            client.close()

    def _drop_dead_clients(self) -> None:
        """Close the clients of servers that have ended, so that restarts do not add up."""
        by_host = self._cluster.servers_by_host
        for name in list(self._clients):
            server = by_host.get(name.host)
            if server is None or server.name != name or not server.is_listening:
                self._clients.pop(name).close()

    def _endpoint(self, server: RegionServer, peer: Peer) -> PeerEndpoint:
        """Return the way to a peer. A peer that does not answer yet is an error: it may still join this network."""
        cluster, key = self._cluster, peer.config.cluster_key
        if cluster.subscribers.find(key) is not None:
            find = partial(cluster.subscribers.find, key)
            return SubscriberEndpoint(cluster.runtime, cluster.network, server, find)
        if self._find(key) is not None:
            return InProcessEndpoint(cluster.runtime, cluster.network, server, partial(self._find, key))
        if isinstance(cluster.runtime, SimRuntime):
            raise Unsupported(
                f"no cluster of this network has the cluster key {key}, and a cluster on virtual time cannot replicate "
                "to a real one: make both clusters with the same network, or this one with a ThreadRuntime"
            )
        endpoint = self._remote_endpoint(key)
        try:
            endpoint.cluster_id()
        except BaseException:
            endpoint.close()
            raise
        return endpoint

    def _remote_endpoint(self, key: str) -> RemoteEndpoint:
        cluster = self._cluster
        backend = backend_for(ClusterKey.parse(key).url, cluster.runtime, Config())
        sinks: object = backend.replication_admin if isinstance(backend, ReplicatingBackend) else None
        if not isinstance(sinks, ReplicationSinks):
            backend.close()
            raise Unsupported(f"the backend {backend.name!r} cannot ship log entries to the cluster {key}")
        own_id = uuid.UUID(cluster.cluster_id)
        return RemoteEndpoint(cluster.runtime, sinks, key=key, own_id=own_id, disconnect=backend.close)

    def _order_check(self, server: RegionServer, peer_id: str) -> OrderCheck:
        """Return the check of one log group of a serial peer."""
        cluster, pushed = self._cluster, self._cluster.peer_replication.pushed
        barriers = barriers_for(
            server,
            cluster.network,
            cluster.runtime,
            meta_server=cluster.master.meta_primary_server,
            timeout_s=cluster.config.master_rpc_timeout_s,
        )
        return SerialChecker(barriers, lambda region: pushed.get(region, peer_id)).blocked_by

    def _find(self, key: str) -> InProcessCluster | None:
        found = self._cluster.network.cluster(key)
        return None if found is None else InProcessCluster(cast("FakeCluster", found))

    def _families_of(self, table: bytes) -> frozenset[bytes] | None:
        record = self._cluster.master.tables.get(table)
        return None if record is None else frozenset(family.name for family in record.descriptor.families)
