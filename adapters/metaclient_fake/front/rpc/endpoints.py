"""Opens and closes the listening sockets of the RPC front, and decides which server has which services.

A region server's port is opened when its name is first sent to a client (in hbase:meta, in the registry), so that
servers can be added later. The port stays open when the server dies: new connections are then closed at once, and the
next incarnation answers at the same port, as it would on a real machine.
"""

from __future__ import annotations

import ssl
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

from metaclient.metarow import MetaRegionServer, encode_meta_region_server
from metaclient.model import MetaReplica, ServerName
from metaclient.wire.listener import CONNECTIONS_MAX, Client, Listener, Listening
from metaclient.wire.rpc.cluster_nodes import cluster_id_node, master_node
from metaclient.wire.rpc.framing import FRAME_BYTES_MAX
from metaclient.wire.tls_server import serve_tls
from metaclient_fake.front.pending_bytes import PendingBytes
from metaclient_fake.front.rpc.addresses import Addresses
from metaclient_fake.front.rpc.channel import Channel, Endpoint, Methods
from metaclient_fake.front.rpc.client_service import ClientService
from metaclient_fake.front.rpc.master_service import MasterService
from metaclient_fake.front.rpc.region_admin import RegionAdminService
from metaclient_fake.front.rpc.registry_service import RegistryService
from metaclient_fake.front.rpc.tokens import IssuedTokens

if TYPE_CHECKING:
    from metaclient_fake.cluster import FakeCluster
    from metaclient_fake.server.region_server import RegionServer

__all__ = ["RpcFront"]

#: Longer than hbase.ipc.client.connection.maxidletime (two minutes): the Java client hangs up, not the server.
_IDLE_TIMEOUT_S = 600.0


class _MasterEndpoint:
    """The master's endpoint."""

    is_quick = True

    def __init__(self, services: Mapping[str, Methods]) -> None:
        self.services = services

    def listens(self) -> bool:
        return True


class _RegionServerEndpoint:
    """A region server's endpoint, for all its incarnations."""

    def __init__(self, cluster: FakeCluster, host: str, services: Mapping[str, Methods]) -> None:
        self._cluster = cluster
        self._host = host
        self.services = services

    @property
    def _server(self) -> RegionServer:
        return self._cluster.servers_by_host[self._host]

    def listens(self) -> bool:
        return self._server.is_listening

    @property
    def is_quick(self) -> bool:
        return self._server.is_quick


class RpcFront:
    """All listening sockets of a cluster that speaks HBase's RPC; ``listener`` is the master's.

    ``listen`` makes them: sockets, or pipes on virtual time (:mod:`metaclient_fake.front.rpc.virtual`).
    """

    def __init__(
        self,
        cluster: FakeCluster,
        host: str,
        port: int,
        *,
        connections_max: int = CONNECTIONS_MAX,
        pending: PendingBytes | None = None,
        listen: Callable[..., Listening] = Listener,
        is_secure: bool = False,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        self._cluster = cluster
        self._tls = tls
        #: The tokens that clients need, if the front is secure.
        self.tokens = IssuedTokens(cluster.runtime, cluster.cluster_id) if is_secure else None
        self._host = host
        self._connections_max = connections_max
        self._pending = pending or PendingBytes(cluster.runtime, FRAME_BYTES_MAX)
        self._make_listener = listen
        self._backend = cluster.backend("rpc")
        self._start_code = cluster.runtime.time_ms()
        self._lock = cluster.runtime.lock()  # guards both maps
        self._listeners: dict[str, Listening] = {}
        self._servers: dict[int, tuple[str, int]] = {}
        self.addresses = Addresses(host, self._port_of, self._servers.get)
        registry = self._registry(self._backend.meta_replicas, lambda _: list(cluster.master.live))
        master = MasterService(self._backend, self.master_name, self.addresses)
        self.listener = self._listen(
            "rpc-master", port, _MasterEndpoint({"ClientMetaService": registry, "MasterService": master})
        )

    def clients(self) -> int:
        """Return the number of connected clients of all servers."""
        with self._lock:
            return sum(one.stats()["clients"] for one in (self.listener, *self._listeners.values()))

    def master_name(self) -> ServerName:
        """Return the address at which clients outside reach the master."""
        return ServerName(self._host, self.listener.port, self._start_code)

    def live_servers(self) -> list[ServerName]:
        """Return the addresses at which clients outside reach the live servers."""
        return [self.addresses.outside(server) for server in list(self._cluster.master.live)]

    def published_nodes(self) -> dict[str, bytes]:
        """Return the data of the nodes by which ZooKeeper's clients find the cluster, without those of its servers."""
        made = {"hbaseid": cluster_id_node(self._cluster.cluster_id), "master": master_node(self.master_name())}
        for replica in self._cluster.registry.replicas():
            if replica.server is not None:
                name = f"meta-region-server-{replica.replica_id}" if replica.replica_id else "meta-region-server"
                made[name] = encode_meta_region_server(MetaRegionServer(self.addresses.outside(replica.server)))
        return made

    def close(self) -> None:
        """Close all listeners and connections, also the master's. Idempotent."""
        self._backend.close()
        with self._lock:
            listeners, self._listeners = list(self._listeners.values()), {}
        for listener in (self.listener, *listeners):
            listener.close()

    def _port_of(self, host: str) -> int:
        """Return the port of a server; 1, where no server listens, for one that never existed (a move's bad target)."""
        with self._lock:
            listener = self._listeners.get(host)
            if listener is None:
                if host not in self._cluster.servers_by_host:
                    return 1
                listener = self._listeners[host] = self._listen(f"rpc-{host}", 0, self._endpoint(host))
                self._servers[listener.port] = (host, self._cluster.servers_by_host[host].port)
        return listener.port

    def _endpoint(self, host: str) -> Endpoint:
        cluster, backend = self._cluster, self._backend

        def replicas(deadline: float) -> Sequence[MetaReplica]:
            server = cluster.servers_by_host[host].name
            return backend.at_server(server, lambda _: cluster.registry.replicas(), deadline=deadline, is_meta=True)

        def servers(deadline: float) -> Sequence[ServerName]:
            server = cluster.servers_by_host[host].name
            return backend.at_server(server, lambda _: list(cluster.master.live), deadline=deadline, is_meta=True)

        return _RegionServerEndpoint(
            cluster,
            host,
            {
                "ClientService": ClientService(backend, host, self.addresses),
                "AdminService": RegionAdminService(backend, host, self.addresses),
                "ClientMetaService": self._registry(replicas, servers),
            },
        )

    def _registry(
        self, replicas: Callable[[float], Sequence[MetaReplica]], servers: Callable[[float], Sequence[ServerName]]
    ) -> RegistryService:
        return RegistryService(
            cluster_id=self._cluster.cluster_id,
            master=self.master_name,
            replicas=replicas,
            servers=servers,
            addresses=self.addresses,
        )

    def _listen(self, name: str, port: int, endpoint: Endpoint) -> Listening:
        cluster = self._cluster

        def serve(sock: Client) -> None:
            Channel(
                endpoint,
                cluster.runtime,
                self.addresses,
                cluster_id=cluster.cluster_id,
                pending=self._pending,
                tokens=self.tokens,
            ).serve(sock)

        encrypted: Callable[[Client], None] = serve
        if self._tls is not None:
            encrypted = serve_tls(serve, self._tls, cluster.runtime.lock, cluster.runtime.now)
        return self._make_listener(
            self._host,
            port,
            runtime=cluster.runtime,
            name=name,
            serve=encrypted,
            connections_max=self._connections_max,
            idle_timeout_s=_IDLE_TIMEOUT_S,
        )
