"""Collects the figures of a fake cluster from the inside, and runs the buttons of its page.

The load is made of the cluster's own clients: two that look up rows in the two ways that the page compares, and readers
and writers of the table ``watch_demo``, so that hedges, replicas and hot regions can be seen.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, cast

from metaclient import keys
from metaclient.connection import Connection
from metaclient.errors import ConnectionClosed, MetaClientError, TableExists
from metaclient.meta import HealthState
from metaclient.model import META_TABLE, FamilyDescriptor, TableDescriptor
from metaclient.watch.event_log import EventLog
from metaclient.watch.figures import (
    ClusterFigures,
    Liveness,
    MetaReplicaFigures,
    PeerFigures,
    RegionFigures,
    RegionReplicaFigures,
    ServerFigures,
    WatchEvent,
)
from metaclient.watch.lookup_load import LookupLoad, LookupMode
from metaclient.watch.peer_figures import peer_figures
from metaclient_fake.master.region_states import RegionGroup, RegionNode, RegionState
from metaclient_fake.region_replication.replica_queue import ReplicaStatus
from metaclient_fake.server.region_server import RegionServer, ServerState

if TYPE_CHECKING:
    from metaclient_fake.cluster import FakeCluster

__all__ = ["FakeCollector"]

DEMO_TABLE = b"watch_demo"
_FAMILY = b"cf"
_SPLITS = [b"%d" % digit for digit in range(1, 10)]
_ROWS = 1000
#: The load: small, so that a laptop does not notice it.
LOOKUP_WORKERS = 4
LOOKUPS_PER_S = 20.0
READS_PER_S = 20.0
WRITES_PER_S = 10.0
WRITERS = 4
#: A lookup of the Java client waits up to a minute for a replica that hangs; a read of the load ends earlier.
OPERATION_TIMEOUT_S = 5.0
#: What ``slow`` adds to each call.
SLOW_S = 0.5
#: Regions and replicas that are looked at: clusters of benchmarks have hundreds of thousands.
REGIONS_MAX = 2000

_LIVENESS: Mapping[ServerState, tuple[Liveness, str]] = {
    ServerState.RUNNING: (Liveness.UP, ""),
    ServerState.PAUSED: (Liveness.HUNG, "accepts connections and answers nothing"),
    ServerState.STOPPING: (Liveness.STOPPING, "closes its regions"),
    ServerState.ABORTING: (Liveness.STOPPING, "has lost its log"),
    ServerState.DEAD: (Liveness.DEAD, "refuses connections"),
}


class DemoLoad:
    """The clients that look up, read and write while the load runs. Creates the table that they use."""

    def __init__(self, cluster: FakeCluster, events: EventLog) -> None:
        self._cluster = cluster
        self._runtime = cluster.runtime
        self._is_stopping = False
        try:
            families = (FamilyDescriptor(_FAMILY),)
            cluster.create_table(TableDescriptor(DEMO_TABLE, families, min(2, len(cluster.servers()))), _SPLITS)
        except TableExists:
            pass  # of an earlier run of the load
        modes = [
            LookupMode("metaclient", "metaclient, LoadBalance", self._connect_ours),
            LookupMode("java", "Java client's LoadBalance", self._connect_java),
        ]
        self.lookups = LookupLoad(modes, self._next_row, self._runtime, events)
        self.lookups.start(LOOKUP_WORKERS, LOOKUPS_PER_S)
        self._data = self.lookups.clients[0].connection
        self._runtime.start_daemon(self._repeat, self._read, READS_PER_S, name="watch-reads")
        for _ in range(WRITERS):  # some of them wait for a server that hangs
            self._runtime.start_daemon(self._repeat, self._write, WRITES_PER_S / WRITERS, name="watch-writes")

    def _connect_ours(self) -> Connection:
        return self._cluster.connect(client="watch", meta_mode="LoadBalance", operation_timeout_s=OPERATION_TIMEOUT_S)

    def _connect_java(self) -> Connection:
        return self._cluster.connect(client="watch-java", meta_mode="LoadBalance", selector="simple")

    def _next_row(self) -> tuple[bytes, bytes]:
        return DEMO_TABLE, b"%03d" % self._runtime.rng.randrange(_ROWS)

    def _repeat(self, call: Callable[[bytes], object], per_s: float) -> None:
        while not self._is_stopping:
            try:
                call(self._next_row()[1])
            except ConnectionClosed:
                return
            except MetaClientError:
                pass  # the counters of the connection show it
            self._runtime.sleep(1.0 / per_s)

    def _read(self, row: bytes) -> object:
        # Half of the reads are in the first region, so that there is a hot one.
        chosen = row if self._runtime.rng.random() < 0.5 else b"0" + row[1:]
        return self._data.table(DEMO_TABLE).row(chosen, consistency="TIMELINE")

    def _write(self, row: bytes) -> None:
        self._data.table(DEMO_TABLE).put(row, {_FAMILY + b":n": row})

    def close(self) -> None:
        self._is_stopping = True
        self.lookups.close()


class FakeControls:
    """The buttons of a fake: faults of one server, repair of all, and the load."""

    server_actions: Mapping[str, str] = MappingProxyType(
        {
            "kill": "end the process, as kill -9 does",
            "pause": "hang the process: it accepts connections, keeps its session, and answers nothing",
            "slow": f"make each call take {SLOW_S} s longer",
            "partition": "cut the network between this server and all clients",
            "heal": "restart it if it is dead, let it go on if it hangs, and end its delay; end all partitions",
        }
    )
    cluster_actions: Mapping[str, str] = MappingProxyType(
        {
            "heal": "end all faults, and restart all servers that are dead",
            "start load": f"look up rows of {DEMO_TABLE.decode()} in both ways, {LOOKUPS_PER_S:g} per second each",
            "stop load": "end these lookups; the table stays",
        }
    )

    def __init__(self, cluster: FakeCluster, start_load: Callable[[], None], stop_load: Callable[[], None]) -> None:
        self._cluster = cluster
        self._start_load = start_load
        self._stop_load = stop_load

    def run(self, action: str, server: str | None) -> str:
        known = self.cluster_actions if server is None else self.server_actions
        if action not in known:
            raise ValueError(f"there is no action {action!r}; known are {', '.join(known)}")
        if server is None:
            return self._run_on_cluster(action)
        if server not in self._cluster.servers_by_host:
            raise ValueError(f"there is no server {server!r}")
        return self._run_on_server(action, server)

    def _run_on_cluster(self, action: str) -> str:
        if action == "start load":
            self._start_load()
            return "the load was started"
        if action == "stop load":
            self._stop_load()
            return "the load was stopped"
        self._cluster.heal()
        for name in list(self._cluster.servers_by_host):
            self._repair(name)
        return "all faults were ended"

    def _run_on_server(self, action: str, name: str) -> str:
        cluster = self._cluster
        if action == "kill":
            cluster.kill(name)
            return f"{name} was killed"
        if action == "pause":
            cluster.pause(name, keeps_session=True)
            return f"{name} was paused"
        if action == "slow":
            cluster.slow(name, SLOW_S)
            return f"{name} was slowed down by {SLOW_S} s per call"
        if action == "partition":
            cluster.partition("client", name)
            return f"{name} was cut off from all clients"
        cluster.heal()
        self._repair(name)
        return f"{name} was healed"

    def _repair(self, name: str) -> None:
        server = self._cluster.servers_by_host[name]
        if server.slow_s:
            self._cluster.slow(name, 0.0)
        if server.state is ServerState.PAUSED:
            self._cluster.resume(name)
        elif server.state is ServerState.DEAD:
            self._cluster.restart(name)


class FakeCollector:
    """The figures of one fake cluster. ``addresses`` are where its fronts listen."""

    def __init__(
        self,
        cluster: FakeCluster,
        url: str,
        *,
        addresses: Callable[[], Mapping[str, str]] = dict,
        starts_load: bool = False,
    ) -> None:
        self._cluster = cluster
        self._url = url
        self._addresses = addresses
        self._events = EventLog(cluster.runtime)
        self._lock = cluster.runtime.lock()  # guards the load
        self._load: DemoLoad | None = None
        self.controls = FakeControls(cluster, self.start_load, self.stop_load)
        if starts_load:
            self.start_load()

    def start_load(self) -> None:
        with self._lock:
            if self._load is None:
                self._load = DemoLoad(self._cluster, self._events)

    def stop_load(self) -> None:
        with self._lock:
            load, self._load = self._load, None
        if load is not None:
            load.close()

    def take_events(self) -> tuple[WatchEvent, ...]:
        return self._events.take()

    def close(self) -> None:
        self.stop_load()

    def collect(self) -> ClusterFigures:
        cluster, runtime, load = self._cluster, self._cluster.runtime, self._load
        return ClusterFigures(
            at_s=runtime.now(),
            time_ms=runtime.time_ms(),
            url=self._url,
            backend="fake",
            version="fake",
            is_fake=True,
            addresses=dict(self._addresses()),
            servers=tuple(self._server(name, server) for name, server in list(cluster.servers_by_host.items())),
            meta=self._meta(load),
            clients=() if load is None else load.lookups.figures(),
            regions=self._regions(),
            region_replicas=tuple(self._region_replicas()),
            peers=self._peers(),
            faults=tuple(self._faults()),
            is_load_running=load is not None,
        )

    # -- servers -----------------------------------------------------------------------------------------------

    def _server(self, name: str, server: RegionServer) -> ServerFigures:
        liveness, detail = self._liveness(name, server)
        reads, writes = server.handlers.counts()
        meta_reads, meta_writes = server.meta_handlers.counts()
        return ServerFigures(
            name=name,
            liveness=liveness,
            detail=detail,
            answer_ms=server.slow_s * 1000 if liveness in (Liveness.UP, Liveness.SLOW) else None,
            regions=len(server.online),
            reads=reads + meta_reads,
            writes=writes + meta_writes,
            queued_calls=server.handlers.waiting + server.meta_handlers.waiting,
        )

    def _liveness(self, name: str, server: RegionServer) -> tuple[Liveness, str]:
        liveness, detail = _LIVENESS[server.state]
        if liveness is not Liveness.UP:
            return liveness, detail
        if any(name in pair for pair in self._cuts()):
            return Liveness.CUT_OFF, "a partition is between it and others"
        if server.slow_s:
            return Liveness.SLOW, f"each call takes {server.slow_s:g} s longer"
        return liveness, detail

    def _cuts(self) -> list[list[str]]:
        network = cast(dict[str, list[list[str]]], self._cluster.network.describe())
        return [*network["partitions"], *network["one_way_partitions"]]

    def _faults(self) -> Iterator[str]:
        for one, other in self._cuts():
            yield f"partition between {one} and {other}"
        for name, server in list(self._cluster.servers_by_host.items()):
            liveness, detail = self._liveness(name, server)
            if liveness not in (Liveness.UP, Liveness.CUT_OFF):
                yield f"{name} is {liveness.value}: {detail}"

    # -- hbase:meta --------------------------------------------------------------------------------------------

    def _meta(self, load: DemoLoad | None) -> tuple[MetaReplicaFigures, ...]:
        group = self._cluster.master.states.table(META_TABLE)[0]
        health = (
            {} if load is None else {one.id: one for one in load.lookups.clients[0].connection.engine.reader.status()}
        )
        reads, now = self._cluster.meta_reads, self._cluster.runtime.now()
        pushed = self._pushed(group)
        made = []
        for node in group.nodes:
            replica_id = node.info.replica_id
            seen = health.get(replica_id)
            is_ejected = seen is not None and seen.state == HealthState.EJECTED.value
            queue = pushed.get(replica_id)
            made.append(
                MetaReplicaFigures(
                    replica_id=replica_id,
                    server=_host(node),
                    state="ejected" if is_ejected else self._state(node),
                    reads=reads.get(replica_id, 0),
                    lag_s=0.0 if replica_id == 0 else None if queue is None else queue.lag_s,
                    answer_ms=None if seen is None else seen.latency_ms,
                    errors=None if seen is None else seen.errors,
                    ejections=None if load is None else load.lookups.clients[0].ejections_of(replica_id),
                    ejected_for_s=max(0.0, seen.ejected_until - now) if seen and seen.ejected_until else None,
                    detail="" if seen is None or not is_ejected else seen.last_error or "",
                )
            )
        return tuple(made)

    def _state(self, node: RegionNode) -> str:
        """Return the state of a replica as its server knows it, whatever clients believe."""
        if node.server is None:
            return "unplaced"
        server = self._cluster.servers_by_host.get(node.server.host)
        if server is None or server.name != node.server or server.state is ServerState.DEAD:
            return "unplaced"
        if server.state is ServerState.PAUSED:
            return "silent"
        region = server.regions.get(node.name)
        if node.state is not RegionState.OPEN or region is None or not region.reads_enabled:
            return "opening"
        return "healthy"

    def _pushed(self, group: RegionGroup) -> dict[int, ReplicaStatus]:
        sink = self._cluster.sink_of(group.primary)
        return {} if sink is None else {one.replica_id: one for one in sink.replicas()}

    # -- regions -----------------------------------------------------------------------------------------------

    def _regions(self) -> tuple[RegionFigures, ...]:
        """Return the regions of users' tables that were called, the most called ones first."""
        by_name = self._cluster.master.states.by_name
        counted: dict[bytes, int] = {}
        for server in list(self._cluster.servers_by_host.values()):
            for name, count in server.calls.requests_by_region().items():
                counted[name] = counted.get(name, 0) + count
        most = sorted(counted, key=lambda name: -counted[name])[:REGIONS_MAX]
        nodes = [(by_name[name], counted[name]) for name in most if name in by_name]
        return tuple(
            RegionFigures(
                name=node.encoded,
                table=_text(node.info.table),
                start_key=_start_key(node),
                server=_host(node),
                requests=count,
            )
            for node, count in nodes
            if node.info.table != META_TABLE
        )

    def _region_replicas(self) -> Iterator[RegionReplicaFigures]:
        for group in self._replicated_groups():
            pushed = self._pushed(group)
            for node in group.nodes[1:]:
                queue = pushed.get(node.info.replica_id)
                yield RegionReplicaFigures(
                    region=group.primary.encoded,
                    table=_text(node.info.table),
                    start_key=keys.printable(node.info.start_key, 60),
                    replica_id=node.info.replica_id,
                    server=_host(node),
                    state=self._state(node) if queue is None or queue.failed_s is None else "failed",
                    lag_s=None if queue is None else queue.lag_s,
                    queue_edits=None if queue is None else queue.queue_edits + queue.in_flight_edits,
                    queue_bytes=None if queue is None else queue.queue_bytes + queue.in_flight_bytes,
                )

    def _replicated_groups(self) -> Sequence[RegionGroup]:
        master = self._cluster.master
        found: list[RegionGroup] = []
        for table, record in list(master.tables.items()):
            if table != META_TABLE and record.descriptor.region_replication > 1:
                found += master.states.table(table)[: REGIONS_MAX - len(found)]
        return found

    # -- peers -------------------------------------------------------------------------------------------------

    def _peers(self) -> tuple[PeerFigures, ...]:
        host = self._cluster.backend().change_host
        peers = self._cluster.peer_replication
        return peer_figures(peers.peers(), peers.statuses(), lambda peer_id: host.workers(peer_id, 0.0))


def _host(node: RegionNode) -> str | None:
    return node.server.host if node.server is not None else None


def _start_key(node: RegionNode) -> str:
    replica_id = node.info.replica_id
    return keys.printable(node.info.start_key, 60) + (f" (replica {replica_id})" if replica_id else "")


def _text(name: bytes) -> str:
    return name.decode(errors="replace")
