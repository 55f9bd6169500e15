"""Decides how a cluster is shown: one JSON-able picture of servers, regions, hbase:meta and replication."""

from __future__ import annotations

from typing import TYPE_CHECKING

from metaclient import keys
from metaclient.model import META_TABLE
from metaclient_fake.coordination.znodes import Znodes
from metaclient_fake.master.region_states import RegionGroup, RegionNode
from metaclient_fake.region_replication.observation import sink_picture
from metaclient_fake.server.region_server import RegionServer

if TYPE_CHECKING:
    from metaclient_fake.cluster import FakeCluster

__all__ = ["cluster_status"]

Picture = dict[str, object]


def cluster_status(cluster: FakeCluster, *, znodes: bool = False) -> Picture:
    """Return what ``FakeCluster.status()`` returns; names in it are what the cluster's methods take."""
    picture: Picture = {
        "servers": {host: _server(cluster, server) for host, server in cluster.servers_by_host.items()},
        "tables": {
            _text(name): {"state": record.state.name, "region_replication": record.descriptor.region_replication}
            for name, record in cluster.master.tables.items()
        },
        "regions": {
            group.primary.encoded: _region(cluster, group)
            for table in cluster.master.states.tables()
            for group in cluster.master.states.table(table)
        },
        "meta": _meta(cluster),
        "replication": _replication(cluster),
        "replication_peers": cluster.peer_replication.picture(),
        "network": cluster.network.describe(),
    }
    if znodes:
        picture["znodes"] = _znodes(cluster.znodes)
    return picture


def _znodes(znodes: Znodes) -> Picture:
    """Return all nodes by path: data as HBase's shell prints bytes, versions, and the session of an ephemeral node."""
    return {
        path: {
            "data": keys.printable(node.data, 1000),
            "version": node.version,
            "children_version": node.children_version,
            "ephemeral": None if owner is None else str(owner),
        }
        for path, (node, owner) in znodes.tree_with_owners().items()
    }


def _text(name: bytes) -> str:
    return name.decode(errors="replace")


def _server(cluster: FakeCluster, server: RegionServer) -> Picture:
    reads, writes = server.handlers.counts()
    meta_reads, meta_writes = server.meta_handlers.counts()
    return {
        "server_name": str(server.name),
        "state": server.state.value,
        "is_live": server.name in cluster.master.live,
        "regions": len(server.online),
        "reads": reads,
        "writes": writes,
        "meta_calls": meta_reads + meta_writes,
        "queued": server.handlers.waiting + server.meta_handlers.waiting,
        "refused": server.handlers.refused + server.meta_handlers.refused,
        "busy_handlers": server.handlers.busy + server.meta_handlers.busy,
        "scanners": len(server.scanners),
        "slow_s": server.slow_s,
        "clock_skew_s": server.clock_skew_ms / 1000,
        "memstore_bytes": sum(region.memstore_bytes for region in list(server.regions.values())),
    }


def _region(cluster: FakeCluster, group: RegionGroup) -> Picture:
    return {
        "table": _text(group.info.table),
        "name": keys.printable(group.primary.name, 1000),
        "start_key": keys.printable(group.info.start_key, 1000),
        "end_key": keys.printable(group.info.end_key, 1000),
        "state": group.primary.state.value,
        "server": _host(group.primary),
        "replicas": [_copy(cluster, node) for node in group.nodes],
    }


def _copy(cluster: FakeCluster, node: RegionNode) -> Picture:
    copy: Picture = {
        "replica_id": node.info.replica_id,
        "region": node.encoded,
        "server": _host(node),
        "state": node.state.value,
    }
    server = cluster.master.live_server_of(node)
    region = server.regions.get(node.name) if server is not None else None
    if region is not None:
        copy["reads_enabled"] = region.reads_enabled
        copy["store_files"] = region.store_files
        copy["memstore_bytes"] = region.memstore_bytes
    return copy


def _host(node: RegionNode) -> str | None:
    return node.server.host if node.server is not None else None


def _meta(cluster: FakeCluster) -> Picture:
    group = cluster.master.states.table(META_TABLE)[0]
    reads = cluster.meta_reads
    return {
        "replicas": [_copy(cluster, node) for node in group.nodes],
        "reads_by_replica": {str(node.info.replica_id): reads.get(node.info.replica_id, 0) for node in group.nodes},
        "registry": {
            str(replica.replica_id): str(replica.server) if replica.server is not None else None
            for replica in cluster.registry.replicas()
        },
    }


def _replication(cluster: FakeCluster) -> Picture:
    """Return the state of each replica as its primary sees it, and when each secondary was last updated."""
    now = cluster.runtime.now()
    ages = {
        keys.encoded_region_name(name): now - at
        for server in cluster.servers_by_host.values()
        for name, at in server.secondaries.refreshed_at().items()
        if server.is_listening
    }
    config = cluster.config.replication
    return {
        "mode": _mode(cluster),
        "lock_step": config.lock_step,
        "regions": {sink.name: sink_picture(host, table, sink, now) for host, table, sink in cluster.sinks()},
        "buffers": {
            host: {
                "pending_bytes": server.replication.buffer.pending_bytes,
                "peak_bytes": server.replication.buffer.peak_bytes,
                "soft_bytes": config.pending_bytes_soft,
                "hard_bytes": config.pending_bytes_max,
                "refused": server.replication.buffer.refused,
                "flushes": server.replication.buffer.flushes,
            }
            for host, server in cluster.servers_by_host.items()
        },
        "meta_refresh_s": cluster.config.meta_refresh_period_s,
        "refresh_s": cluster.config.refresh_s,
        "secondaries": len(ages),
        "oldest_refresh_s": max(ages.values(), default=0.0),
        "refreshed_s_ago": ages,
    }


def _mode(cluster: FakeCluster) -> str:
    """Return what keeps copies up to date; the refresher may run beside pushes."""
    config = cluster.config
    if config.replication.pushes_user_tables:
        return "region replication" if config.replication.pushes_meta else "region replication of user tables"
    if config.replication.pushes_meta:
        return "region replication of hbase:meta"
    return "store file refresher" if config.meta_refresh_period_s else "none"
