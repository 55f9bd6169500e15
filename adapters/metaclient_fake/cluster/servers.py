"""Stores the region servers of a cluster, and starts, stops and restarts them."""

from __future__ import annotations

from metaclient.model import ServerName
from metaclient.runtime import Runtime
from metaclient_fake.chores import Sessions
from metaclient_fake.cluster.identity import ZNODE_PARENT
from metaclient_fake.cluster.peer_replication import PeerReplication
from metaclient_fake.cluster.peers import ClusterPeers
from metaclient_fake.config.cluster import ClusterConfig
from metaclient_fake.coordination.published import publish_server
from metaclient_fake.coordination.znodes import Znodes
from metaclient_fake.master.master import Master
from metaclient_fake.network.network import Network
from metaclient_fake.server.region_server import RegionServer, ServerState
from metaclient_fake.storage import FileSystem

__all__ = ["Servers"]

PORT = 16020  # hbase.regionserver.port


class Servers:
    """The servers of one cluster, dead ones too. ``by_host`` has the present or last incarnation of each host."""

    def __init__(
        self,
        by_host: dict[str, RegionServer],
        *,
        runtime: Runtime,
        config: ClusterConfig,
        network: Network,
        filesystem: FileSystem,
        sessions: Sessions,
        master: Master,
        peers: ClusterPeers,
        znodes: Znodes,
        replication: PeerReplication,
    ) -> None:
        self._by_host = by_host
        self._runtime = runtime
        self._config = config
        self._network = network
        self._filesystem = filesystem
        self._sessions = sessions
        self._master = master
        self._peers = peers
        self._znodes = znodes
        self._replication = replication
        self._hosts = 0
        self.last_start_code = 0

    def running(self) -> list[RegionServer]:
        return [server for server in list(self._by_host.values()) if server.is_running]

    def add(self) -> RegionServer:
        """Start a server on a new host."""
        self._hosts += 1
        return self._start(f"rs{self._hosts}")

    def restart(self, server: RegionServer) -> None:
        """Start a new incarnation at the same address; a living one is killed first."""
        if server.state is not ServerState.DEAD:
            server.crash()
        self._start(server.host)

    def restart_soon(self, server: RegionServer) -> None:
        """Restart a server in a task of its own, which no signal handler can interrupt."""

        def restart() -> None:
            if self._by_host.get(server.host) is server:
                self.restart(server)

        self._runtime.start(restart, name="restart-server")

    def stop(self, server: RegionServer) -> None:
        """Have the server close its regions and end its session."""
        server.stop()
        self._sessions.closed(server.name)

    def update_quick(self) -> None:
        for server in list(self._by_host.values()):
            server.update_quick()

    def _start(self, host: str) -> RegionServer:
        self.last_start_code = max(self._runtime.time_ms(), self.last_start_code + 1)
        server = RegionServer(
            ServerName(host, PORT, self.last_start_code),
            runtime=self._runtime,
            config=self._config,
            network=self._network,
            filesystem=self._filesystem,
            peers=self._peers,
        )
        self._by_host[host] = server
        self._sessions.opened(server)
        publish_server(self._znodes, ZNODE_PARENT, server.name)
        self._replication.server_made(server)
        self._master.server_started(server)
        self._replication.server_registered(server)
        self._network.announce()
        return server
