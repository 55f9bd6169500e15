"""Makes the figures of servers and regions from what a real cluster reports: ClusterStatus, checks, JMX, hbase:meta."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from metaclient import keys
from metaclient.cluster_status import ClusterStatus, RegionLoad, ServerLoad
from metaclient.model import META_TABLE, RegionLocations, ServerName
from metaclient.watch.figures import Liveness, RegionFigures, RegionReplicaFigures, ServerFigures
from metaclient.watch.jmx import JmxServer

__all__ = ["Reports", "region_figures", "replica_figures", "server_figures"]

#: Regions of which figures are kept: the most called ones.
REGIONS_MAX = 2000


@dataclass(frozen=True, slots=True, kw_only=True)
class Reports:
    """What is known of a cluster from each source; None or empty where a source gave nothing."""

    status: ClusterStatus | None = None
    #: Liveness, its reason, and the duration of the check in milliseconds.
    checks: Mapping[ServerName, tuple[Liveness, str, float | None]] = field(default_factory=dict)
    #: By address: the metrics, or why there are none.
    jmx: Mapping[str, JmxServer | str] = field(default_factory=dict)
    places: Mapping[bytes, Sequence[RegionLocations]] = field(default_factory=dict)
    meta_servers: frozenset[ServerName] = frozenset()
    #: By the address of the primary's server: how far its queue to region replicas is behind (HBase 2.x).
    replica_lags_s: Mapping[str, float] = field(default_factory=dict)

    def metrics(self, address: str) -> JmxServer | None:
        found = self.jmx.get(address)
        return found if isinstance(found, JmxServer) else None

    def named_servers(self) -> list[ServerName]:
        """Return all servers that a source names, sorted."""
        named = set(self.meta_servers)
        named |= {one.server for regions in self.places.values() for place in regions for one in place.placed()}
        if self.status is not None:
            named |= {load.server for load in self.status.live_servers}
        return sorted(named)

    def meta_reads(self) -> dict[int, int]:
        """Return the reads of each replica of hbase:meta, by all clients."""
        if self.status is not None:
            return {
                replica_id: load.reads
                for server in self.status.live_servers
                for load in server.regions
                if (replica_id := _meta_replica_id(load.region_name)) is not None
            }
        found: dict[int, int] = {}
        for one in self.jmx.values():
            if isinstance(one, JmxServer):
                found.update(one.meta_reads)
        return found


def _meta_replica_id(region_name: bytes) -> int | None:
    if not region_name.startswith(META_TABLE + b","):
        return None
    return keys.parse_region_name(region_name)[3]


def server_figures(reports: Reports) -> tuple[ServerFigures, ...]:
    """Return a line per server. A dead one stays as long as the master names it, unless it was restarted."""
    loads = {load.server: load for load in reports.status.live_servers} if reports.status is not None else {}
    dead = set(reports.status.dead_servers) if reports.status is not None else set()
    by_address: dict[str, ServerName] = {}
    for server in sorted({*dead, *reports.named_servers()}, key=lambda one: one.start_code):
        by_address[server.address] = server  # the newest incarnation
    return tuple(
        _server(server, loads.get(server), reports, is_dead=server in dead) for _, server in sorted(by_address.items())
    )


def _server(server: ServerName, load: ServerLoad | None, reports: Reports, *, is_dead: bool) -> ServerFigures:
    metrics = reports.metrics(server.address)
    liveness, detail, answer_ms = _liveness_of(server, reports, is_dead=is_dead)
    return ServerFigures(
        name=server.address,
        liveness=liveness,
        detail=detail,
        answer_ms=answer_ms,
        regions=len(load.regions) if load is not None else None if metrics is None else metrics.regions,
        reads=sum(one.reads for one in load.regions)
        if load is not None
        else None
        if metrics is None
        else metrics.reads,
        writes=(
            sum(one.writes for one in load.regions) if load is not None else None if metrics is None else metrics.writes
        ),
        queued_calls=None if metrics is None else metrics.queued_calls,
        heap_used_bytes=load.used_heap_bytes or None if load is not None else None,
        heap_max_bytes=load.max_heap_bytes or None if load is not None else None,
    )


def _liveness_of(server: ServerName, reports: Reports, *, is_dead: bool) -> tuple[Liveness, str, float | None]:
    if is_dead:
        return Liveness.DEAD, "the master has declared it dead", None
    checked = reports.checks.get(server)
    if checked is not None:
        return checked
    found = reports.jmx.get(server.address)
    if isinstance(found, JmxServer):
        return Liveness.UP, "its info page answers", None
    return Liveness.UNKNOWN, found or "not asked yet", None


# -- regions -----------------------------------------------------------------------------------------------------------


def _user_loads(reports: Reports) -> list[tuple[ServerName, RegionLoad]]:
    if reports.status is None:
        return []
    return [
        (server.server, load)
        for server in reports.status.live_servers
        for load in server.regions
        if not load.region_name.startswith(b"hbase:")
    ]


def region_figures(reports: Reports) -> tuple[RegionFigures, ...] | None:
    """Return the most called regions of users' tables; None if no source counts the calls."""
    if reports.status is None:
        return _jmx_regions(reports)
    loads = sorted(_user_loads(reports), key=lambda pair: -(pair[1].reads + pair[1].writes))[:REGIONS_MAX]
    made = []
    for server, load in loads:
        table, start, _, replica_id = keys.parse_region_name(load.region_name)
        made.append(
            RegionFigures(
                name=keys.encoded_region_name(load.region_name),
                table=keys.printable(table),
                start_key=keys.printable(start, 60) + (f" (replica {replica_id})" if replica_id else ""),
                server=server.address,
                requests=load.reads + load.writes,
                reads=load.reads,
                writes=load.writes,
                size_bytes=load.store_bytes + load.memstore_bytes,
            )
        )
    return tuple(made)


def _jmx_regions(reports: Reports) -> tuple[RegionFigures, ...] | None:
    found = [
        RegionFigures(
            name=one.encoded_name,
            table=one.table,
            start_key="",
            server=address,
            requests=one.reads + one.writes,
            reads=one.reads,
            writes=one.writes,
            size_bytes=one.store_bytes,
        )
        for address, metrics in reports.jmx.items()
        if isinstance(metrics, JmxServer)
        for one in metrics.by_region
        if not one.table.startswith("hbase:")
    ]
    if not found and not any(isinstance(one, JmxServer) for one in reports.jmx.values()):
        return None
    return tuple(sorted(found, key=lambda one: -one.requests)[:REGIONS_MAX])


def replica_figures(reports: Reports) -> tuple[RegionReplicaFigures, ...] | None:
    """Return the secondary replicas of regions and their servers.

    HBase 3.0 does not report their lag. HBase 2.x reports the lag of each server's queue to replicas, which bounds that
    of the replicas of its regions.
    """
    if reports.status is not None:
        pairs = [(load.region_name, server) for server, load in _user_loads(reports)]
    elif any(reports.places.values()):
        pairs = [
            (one.region_name, one.server)
            for regions in reports.places.values()
            for place in regions
            for one in place.placed()
        ]
    else:
        return None
    parsed = [(*keys.parse_region_name(name), name, server) for name, server in pairs]
    primaries = {
        (table, start, region_id): server for table, start, region_id, number, _, server in parsed if not number
    }
    made = []
    for table, start, region_id, replica_id, name, server in parsed:
        if replica_id:
            primary = primaries.get((table, start, region_id))
            made.append(
                RegionReplicaFigures(
                    region=keys.encoded_region_name(name),
                    table=keys.printable(table),
                    start_key=keys.printable(start, 60),
                    replica_id=replica_id,
                    server=server.address,
                    state="open",
                    lag_s=None if primary is None else reports.replica_lags_s.get(primary.address),
                )
            )
    return tuple(sorted(made, key=lambda one: (one.table, one.start_key, one.replica_id))[:REGIONS_MAX])
