"""Stores the replication of one cluster to its peers, and connects its parts: master, servers, logs, nodes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial

from metaclient.model import ServerName
from metaclient.replication_peers import Peer, ReplicationStatus
from metaclient.runtime import Runtime
from metaclient_fake.cluster.identity import ZNODE_PARENT
from metaclient_fake.cluster.serial_regions import SerialRegions
from metaclient_fake.config.replication import PeerReplicationConfig, parse_base_config
from metaclient_fake.coordination.znodes import Znodes
from metaclient_fake.master.barrier_rows import MetaBarrierRows
from metaclient_fake.master.master import Master
from metaclient_fake.network.network import Network
from metaclient_fake.replication.barrier_cleaner import BarrierCleaner
from metaclient_fake.replication.claims import QueueClaims
from metaclient_fake.replication.loads import peers_picture
from metaclient_fake.replication.log_cleaner import LogCleaner
from metaclient_fake.replication.manager import SourceFactory, SourceManager
from metaclient_fake.replication.observation import observe
from metaclient_fake.replication.peer_procedures import PeerProcedures
from metaclient_fake.replication.peer_store import PeerStore
from metaclient_fake.replication.pushed_ids import PushedIds
from metaclient_fake.replication.queues import QueueId, QueueStore
from metaclient_fake.replication.server_tasks import ServerTasks
from metaclient_fake.server.region_server import RegionServer
from metaclient_fake.storage.wal import WalFile

__all__ = ["MakeSources", "PeerReplication"]

#: Returns the function that makes the sources of a server.
MakeSources = Callable[[RegionServer], SourceFactory]


class PeerReplication:
    """The peers of a cluster, the queues of its logs, and a source manager per server."""

    def __init__(
        self,
        cluster_id: str,
        *,
        runtime: Runtime,
        config: PeerReplicationConfig,
        network: Network,
        znodes: Znodes,
        master: Master,
    ) -> None:
        root = f"{ZNODE_PARENT}/replication"
        self.cluster_id = cluster_id
        self._runtime = runtime
        self._config = config
        self._network = network
        self._master = master
        self.store = PeerStore(znodes, root)
        self.pushed = PushedIds(znodes, root)
        self.queues = QueueStore(znodes, self.pushed, root)
        self.cleaner = LogCleaner(self.queues)
        #: Set before the first server starts.
        self.make_sources: MakeSources | None = None
        self._tasks: ServerTasks[RegionServer] = ServerTasks(runtime, master)
        self._claims: QueueClaims[RegionServer] = QueueClaims(runtime, self.queues, master, _claim)
        self._serial = SerialRegions(master)
        self.procedures = PeerProcedures(
            runtime,
            self,
            store=self.store,
            queues=self.queues,
            pushed=self.pushed,
            base_config=parse_base_config(config.base_config),
            serial=self._serial,
        )
        self.barrier_cleaner = BarrierCleaner(
            MetaBarrierRows(master.meta),
            serial_peers_of=self._serial_peers_of,
            pushed=self.pushed.get,
            forget_pushed=lambda region, peer: self.pushed.remove(peer, [region]),
        )
        master.after_recovery = self._claims.run
        observe(self)

    # -- servers -----------------------------------------------------------------------------------------------

    def server_made(self, server: RegionServer) -> None:
        """Give a new server its sources, before it can get a region: no log of it is missed."""
        wal = server.wal
        server.sources = manager = SourceManager(
            server.name,
            runtime=self._runtime,
            config=self._config,
            peers=self.store,
            queues=self.queues,
            current_wals=lambda: [wal.files[-1].name],
            make_source=self.make_sources(server) if self.make_sources is not None else None,
            abort=server.abort,
        )
        wal.on_roll.append(partial(_rolled, manager))
        manager.refresh_all()

    def server_registered(self, server: RegionServer) -> None:
        """Take over what has changed between :meth:`server_made` and the registration at the master."""
        if server.sources is not None:
            server.sources.refresh_all()

    # -- for the procedures ------------------------------------------------------------------------------------

    def cluster_id_of(self, cluster_key: str) -> str | None:
        found = self._network.cluster(cluster_key)
        return found.cluster_id if found is not None else None

    def refresh(self, peer_id: str) -> None:
        self._tasks.run_on_all(partial(_refresh, peer_id), "refresh-peer")

    def pause(self, seconds: float) -> None:
        self._master.pause(seconds)

    # -- what is shown -----------------------------------------------------------------------------------------

    def peers(self) -> list[Peer]:
        return self.procedures.peers()

    def _serial_peers_of(self, table: bytes) -> list[str]:
        return [peer.id for peer in self.peers() if self._serial.is_table_serial(peer.config, table)]

    def managers(self) -> Mapping[ServerName, SourceManager]:
        """Return the source managers of the live servers."""
        live = self._master.live
        return {name: server.sources for name, server in sorted(live.items()) if server.sources is not None}

    def statuses(self) -> Sequence[ReplicationStatus]:
        """Return the sources and the sink of each live server."""
        live = self._master.live
        return [_status(server) for _, server in sorted(live.items())]

    def picture(self) -> dict[str, object]:
        """Return peers, queues and sources, for JSON."""
        return peers_picture(self.peers(), self.queues, self.statuses())


def _status(server: RegionServer) -> ReplicationStatus:
    return ReplicationStatus(
        server=server.name,
        sources=tuple(server.sources.loads()) if server.sources is not None else (),
        sink=server.replication_sink.load() if server.replication_sink is not None else None,
    )


def _rolled(manager: SourceManager, file: WalFile) -> None:
    manager.log_rolled(file.name)


def _refresh(peer_id: str, server: RegionServer) -> None:
    if server.sources is not None:
        server.sources.refresh(peer_id)


def _claim(server: RegionServer, queue: QueueId) -> None:
    if server.sources is not None:
        server.sources.claim(queue)
