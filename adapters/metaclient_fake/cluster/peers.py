"""Answers what region servers ask of the rest of their cluster (:class:`metaclient_fake.server.peers.Peers`)."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from metaclient.errors import RegionUnavailable
from metaclient.model import RegionInfo
from metaclient.runtime import Runtime
from metaclient_fake.cluster.replication import sink_of
from metaclient_fake.config.cluster import ClusterConfig
from metaclient_fake.master.master import Master
from metaclient_fake.master.region_states import RegionState
from metaclient_fake.network.call import Call
from metaclient_fake.network.network import Network
from metaclient_fake.region_replication import Acknowledged, SendSlots
from metaclient_fake.server.region_server import RegionServer

__all__ = ["ClusterPeers"]

_PLACED = frozenset({RegionState.OPENING, RegionState.OPEN, RegionState.CLOSING})


class ClusterPeers:
    """The cluster as its servers see it. ``_count_lock`` guards the counters."""

    def __init__(
        self,
        runtime: Runtime,
        config: ClusterConfig,
        network: Network,
        master: Master,
        servers_by_host: Mapping[str, RegionServer],
        on_waiting: Callable[[], None],
        restart: Callable[[RegionServer], None],
    ) -> None:
        self._runtime = runtime
        self._config = config
        self._network = network
        self._master = master
        self._servers_by_host = servers_by_host
        self._on_waiting = on_waiting
        self.restart = restart
        #: Limits how many batches are in flight to one server.
        self.send_slots = SendSlots(runtime, config.replication.sends_per_server_max)
        self._count_lock = runtime.lock()
        self._meta_reads: dict[int, int] = {}
        self._scanner_ids = 0
        self._epochs = 0

    def flush_primary_of(self, asker: RegionServer, info: RegionInfo) -> bool:
        node = self._master.states.by_name.get(info.replica(0).name)
        server = self._master.live_server_of(node)
        if node is None or server is None or not server.is_running:
            return False
        if self._network.is_cut(asker.party, server.party):
            return False
        region = server.regions.get(node.name)
        return region is not None and server.flusher.flush_region(region)

    def tell_primary_of(self, asker: RegionServer, info: RegionInfo) -> None:
        name = info.replica(0).name
        node = self._master.states.by_name.get(name)
        server = self._master.live_server_of(node)
        if server is None:
            raise RegionUnavailable(f"the primary of {info.encoded_name} is on no live server")
        if server is asker:
            server.replication_host.replica_opened(name, info.replica_id)
            return
        Call(
            self._network,
            self._runtime,
            asker,
            server,
            lambda: server.replication_host.replica_opened(name, info.replica_id),
            handlers=server.admin_handlers,
            deadline=self._runtime.now() + self._config.replication.rpc_timeout_s,
        ).run()

    def acknowledged(self, name: bytes, families: frozenset[bytes] | None = None) -> Acknowledged | None:
        node = self._master.states.by_name.get(name)
        sink = sink_of(self._master, self._master.states.group_of(node).primary) if node is not None else None
        return sink.acknowledged(node.info.replica_id, families) if node is not None and sink is not None else None

    def server_at(self, host: str) -> RegionServer | None:
        return self._servers_by_host.get(host)

    def replica_host(self, name: bytes) -> str | None:
        node = self._master.states.by_name.get(name)
        if node is None or node.server is None or node.state not in _PLACED or node.server not in self._master.live:
            return None
        return node.server.host

    def replica_count(self, table: bytes) -> int:
        record = self._master.tables.get(table)
        return record.descriptor.region_replication if record is not None else 1

    def next_epoch(self) -> int:
        with self._count_lock:
            self._epochs += 1
            return self._epochs

    def next_scanner_id(self) -> int:
        with self._count_lock:
            self._scanner_ids += 1
            return self._scanner_ids

    def count_meta_read(self, replica_id: int) -> None:
        with self._count_lock:
            self._meta_reads[replica_id] = self._meta_reads.get(replica_id, 0) + 1

    @property
    def meta_reads(self) -> dict[int, int]:
        """Reads of hbase:meta that each copy has been asked for, over all servers and times."""
        with self._count_lock:
            return dict(self._meta_reads)

    def replica_waits(self) -> None:
        self._on_waiting()
