"""Finds servers, parties of the network and regions by the names that people use for them."""

from __future__ import annotations

from collections.abc import Mapping

from metaclient.errors import RegionUnavailable, RequestRefused
from metaclient.model import META_TABLE, RegionInfo, ServerName
from metaclient_fake.config.cluster import nearest
from metaclient_fake.master.master import Master
from metaclient_fake.master.region_states import RegionNode
from metaclient_fake.network.network import CLIENT, EVERYBODY, MASTER, REGISTRY, Network
from metaclient_fake.server.region_server import RegionServer

__all__ = ["Names"]


class Names:
    """The names of one cluster. An unknown name raises RequestRefused with the nearest known one."""

    def __init__(self, network: Network, master: Master, servers_by_host: Mapping[str, RegionServer]) -> None:
        self._network = network
        self._master = master
        self._servers_by_host = servers_by_host

    def server_named(self, name: str | ServerName) -> RegionServer:
        """Return the present incarnation of a server by host, address or full name."""
        text = str(name)
        own = self._network.party("")
        host = text.removeprefix(own).partition(",")[0].partition(":")[0]
        found = self._servers_by_host.get(host)
        if found is None:
            raise RequestRefused(f"there is no server {text!r}{nearest(text, list(self._servers_by_host))}")
        return found

    def party_named(self, name: str) -> str:
        """Return the name on the network of a party: of this cluster, or of another one with its name in front.

        The name of a cluster stands for all of its parties, ``*`` for the parties of all clusters.
        """
        if name == EVERYBODY:
            return name
        head, slash, rest = name.partition("/")
        named = next((cluster for cluster in self._network.clusters() if cluster.name == head), None)
        if named is not None:
            return named.party_named(rest) if slash else head
        if name in (MASTER, REGISTRY, CLIENT) or head == CLIENT:
            return self._network.party(name)
        if name == "zookeeper":
            return self._network.party(REGISTRY)
        return self.server_named(name).party

    def node_named(self, name: str | bytes | RegionInfo, replica_id: int = 0) -> RegionNode:
        """Return a copy of a region by encoded name, full name, or ``hbase:meta``."""
        found = self._node(name)
        if found is None:
            text = name.decode(errors="replace") if isinstance(name, bytes) else str(name)
            known = list(self._master.states.by_encoded)
            raise RequestRefused(f"there is no region {text!r}{nearest(text, known[:1000])}")
        if replica_id == 0:
            return found
        nodes = self._master.states.group_of(found).nodes
        if not 0 < replica_id < len(nodes):
            raise RequestRefused(f"region {found.encoded} has replicas 0 to {len(nodes) - 1}, not {replica_id}")
        return nodes[replica_id]

    def _node(self, name: str | bytes | RegionInfo) -> RegionNode | None:
        states = self._master.states
        if isinstance(name, RegionInfo):
            return states.by_name.get(name.name)
        if name in ("hbase:meta", META_TABLE):
            return self._master.meta_node(0)
        if isinstance(name, str):
            return states.by_encoded.get(name) or states.by_name.get(name.encode())
        return states.by_name.get(name)

    def target_named(self, server: str | ServerName) -> ServerName:
        """Return the target of a move; ``host,port,startcode`` of an unknown host is taken as it is."""
        text = str(server)
        if text.count(",") == 2 and text.partition(",")[0] not in self._servers_by_host:
            return ServerName.parse(text)
        return self.server_named(server).name

    def host_of(self, node: RegionNode) -> RegionServer:
        """Return the live server that has this copy open, else raise RegionUnavailable."""
        server = self._master.live_server_of(node)
        if server is None or node.name not in server.regions:
            raise RegionUnavailable(f"region {node.encoded} is {node.state.value} and on no live server")
        return server
