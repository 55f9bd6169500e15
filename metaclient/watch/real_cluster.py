"""Collects the figures of a cluster by calls, as far as its backend can make them.

============  =========  ===============================================================================================
source        every      what it gives
============  =========  ===============================================================================================
servers       0.3 s      a small call to each region server: up, hung (no answer within 1 s) or dead; JMX via a gateway
meta          1 s        a read of one row at each replica of hbase:meta: latency, or silent
status        2 s        the master's ClusterStatus: servers, regions, requests, heap (native RPC only)
lag           5 s        a page of hbase:meta, compared between the replicas
peers         5 s        replication peers, their queues, subscriptions and workers
jmx           5 s        the info pages of region servers: queued calls; all counters where there is no ClusterStatus
places        30 s       tables; where there is no ClusterStatus, also their regions
============  =========  ===============================================================================================
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from metaclient.backend import MetaPage, MetaScan, ObservableBackend
from metaclient.changes.subscription import change_host
from metaclient.cluster_status import ClusterStatus
from metaclient.config.url_secrets import masked_url
from metaclient.connection import Connection
from metaclient.errors import CallTimeout, ConnectionClosed, MetaClientError, Unsupported
from metaclient.meta import HealthState
from metaclient.model import META_TABLE, MetaReplica, RegionLocations, ServerName
from metaclient.runtime import Pending
from metaclient.watch.background import BackgroundSource
from metaclient.watch.collecting import WatchOptions
from metaclient.watch.event_log import EventLog
from metaclient.watch.figures import ClusterFigures, Liveness, MetaReplicaFigures, PeerFigures, WatchEvent
from metaclient.watch.jmx import DEFAULT_INFO_PORT, JmxServer, read_jmx
from metaclient.watch.lookup_load import LookupLoad, LookupMode
from metaclient.watch.meta_lag import MetaComparison, MetaRows, compared
from metaclient.watch.peer_figures import peer_figures
from metaclient.watch.reports import Reports, region_figures, replica_figures, server_figures

__all__ = ["RealClusterCollector"]

#: Together at most 2 s, with the interval of the watcher: see ``watcher.INTERVAL_S``.
PING_PERIOD_S = 0.3
PING_TIMEOUT_S = 1.0
META_PERIOD_S = 1.0
STATUS_PERIOD_S = 2.0
SLOW_PERIOD_S = 5.0
PLACES_PERIOD_S = 30.0
CALL_TIMEOUT_S = 5.0
JMX_TIMEOUT_S = 2.0
#: Info pages that are read in parallel, and at all.
JMX_PARALLEL = 8
JMX_SERVERS_MAX = 100
LAG_PAGE_ROWS = 100
#: Tables whose regions are listed where the master cannot be asked.
TABLES_MAX = 20
#: A tenth of the servers' checks would be lost among thousands of servers: those beyond this number are not checked.
SERVERS_MAX = 500

#: The peer by which HBase 2.x replicates to region replicas (ServerRegionReplicaUtil); HBase 3.0 has none.
REGION_REPLICA_PEER = "region_replica_replication"
_EVERYTHING = b"\xff" * 16


class RealClusterCollector:
    """The figures of the cluster of a connection. The connection is the caller's, and is closed by this collector."""

    controls = None

    def __init__(self, connection: Connection, options: WatchOptions) -> None:
        self._connection = connection
        self._engine = connection.engine
        self._backend = connection.engine.backend
        self._runtime = connection.engine.runtime
        self._options = options
        self._events = EventLog(self._runtime)
        self._observation = self._backend.observation if isinstance(self._backend, ObservableBackend) else None
        self._comparison = MetaComparison()  # replaced by the source `lag` alone
        self._replica_lags_s: Mapping[str, float] = {}  # replaced by the source `peers` alone
        self._pages_seen: set[ServerName] = set()  # whose info page has answered; used by the source `servers` alone
        self._load = self._start_load()
        self._status = self._source("status", self._read_status, STATUS_PERIOD_S)
        self._servers = self._source("servers", self._check_servers, PING_PERIOD_S, PING_TIMEOUT_S)
        self._meta = self._source("meta", self._probe_meta, META_PERIOD_S, PING_TIMEOUT_S)
        self._lag = self._source("lag", self._compare_meta, SLOW_PERIOD_S)
        self._peers = self._source("peers", self._read_peers, SLOW_PERIOD_S)
        self._jmx = self._source("jmx", self._read_jmx, SLOW_PERIOD_S)
        self._places = self._source("places", self._read_places, PLACES_PERIOD_S)
        for one in self._sources():
            one.start()

    def _source(
        self, name: str, read: Any, period_s: float, timeout_s: float = CALL_TIMEOUT_S
    ) -> BackgroundSource[Any]:
        return BackgroundSource(name, read, self._runtime, period_s=period_s, timeout_s=timeout_s)

    def _sources(self) -> tuple[BackgroundSource[Any], ...]:
        every = (self._servers, self._meta, self._lag, self._peers, self._jmx, self._places)
        return every if self._observation is None else (self._status, *every)

    def _start_load(self) -> LookupLoad | None:
        if not self._options.lookups_per_s:
            return None
        modes = [LookupMode("metaclient", "metaclient, {mode}", lambda: self._connection)]
        if self._options.connect_java is not None:
            modes.append(LookupMode("java", "Java client's LoadBalance", self._options.connect_java))
        load = LookupLoad(modes, self._next_row, self._runtime, self._events)
        load.start(max(1, min(4, round(self._options.lookups_per_s / 5))), self._options.lookups_per_s)
        return load

    def close(self) -> None:
        for one in self._sources():
            one.close()
        if self._load is not None:
            self._load.close()
        self._connection.close()

    def take_events(self) -> tuple[WatchEvent, ...]:
        return self._events.take()

    def collect(self) -> ClusterFigures:
        reports = Reports(
            status=self._status.value,
            checks=self._servers.value or {},
            jmx=self._jmx.value or {},
            places=self._places.value or {},
            meta_servers=frozenset(one.server for one in self._replicas() if one.server is not None),
            replica_lags_s=self._replica_lags_s,
        )
        return ClusterFigures(
            at_s=self._runtime.now(),
            time_ms=self._runtime.time_ms(),
            url=masked_url(self._connection.url),
            backend=self._backend.name,
            version=reports.status.version if reports.status is not None else None,
            servers=server_figures(reports),
            meta=self._meta_figures(reports),
            clients=() if self._load is None else self._load.figures(),
            regions=region_figures(reports),
            region_replicas=replica_figures(reports),
            peers=self._peers.value,
            notes=tuple(self._notes()),
        )

    def _notes(self) -> list[str]:
        notes = [f"{one.name}: {one.error}" for one in self._sources() if one.error is not None]
        if self._observation is None:
            notes.append(
                f"the backend {self._backend.name!r} reaches no master: figures of servers come from their info pages "
                "(JMX); connect with hbase:// or hbase+rpc:// to see all"
            )
        if self._load is not None and not self._tables():
            notes.append("the cluster has no tables: no rows are looked up")
        return notes

    # -- hbase:meta ----------------------------------------------------------------------------------------------------

    def _replicas(self) -> Sequence[MetaReplica]:
        return self._engine.reader.registry.known()

    def _read_row(self, replica: MetaReplica, start: bytes, rows: int, deadline: float) -> MetaPage:
        scan = MetaScan(start, _EVERYTHING, is_reversed=False, limit=rows)
        answer = self._backend.read_meta(replica, scan, deadline)
        if not isinstance(answer, Pending):
            return answer
        if self._runtime.wait_first((answer,), deadline) is None:
            answer.cancel()
            raise CallTimeout(f"replica {replica.replica_id} of hbase:meta did not answer in time")
        return answer.result()

    def _probe_meta(self, deadline: float) -> dict[int, tuple[float, str | None]]:
        """Return the duration of a read at each replica, and its error."""
        begun = self._runtime.now()
        self._engine.reader.registry.refresh(deadline)
        tasks = {
            one.replica_id: self._runtime.start(self._timed_read, one, deadline, name="watch-probe")
            for one in self._replicas()
        }
        found: dict[int, tuple[float, str | None]] = {}
        for replica_id, task in tasks.items():
            if self._runtime.wait_first((task,), deadline) is None:
                found[replica_id] = (self._runtime.now() - begun, "no answer in time")
            else:
                found[replica_id] = task.result()
        return found

    def _timed_read(self, replica: MetaReplica, deadline: float) -> tuple[float, str | None]:
        begun, error = self._runtime.now(), None
        try:
            self._read_row(replica, b"", 1, deadline)
        except ConnectionClosed:
            raise
        except MetaClientError as failure:
            error = f"{type(failure).__name__}: {failure}"
        return self._runtime.now() - begun, error

    def _compare_meta(self, deadline: float) -> MetaComparison:
        old = self._comparison
        primary: MetaRows | None = None
        others: dict[int, MetaRows | None] = {}
        for replica in self._replicas():
            try:
                rows = self._read_row(replica, old.start_row, LAG_PAGE_ROWS, deadline).rows
            except ConnectionClosed:
                raise
            except MetaClientError:
                if replica.replica_id == 0:
                    raise
                rows = None
            if replica.replica_id == 0:
                primary = rows
            else:
                others[replica.replica_id] = rows
        if primary is not None:
            self._comparison = compared(old, primary, others, self._runtime.now(), page_rows=LAG_PAGE_ROWS)
        return self._comparison

    def _meta_figures(self, reports: Reports) -> tuple[MetaReplicaFigures, ...]:
        probes: Mapping[int, tuple[float, str | None]] = self._meta.value or {}
        comparison: MetaComparison = self._lag.value or MetaComparison()
        now, reads = self._runtime.now(), reports.meta_reads()
        made = []
        for seen in self._engine.reader.status():
            duration_s, error = probes.get(seen.id, (None, None))
            is_ejected = seen.state == HealthState.EJECTED.value
            state = (
                "silent" if error else "ejected" if is_ejected else seen.state if duration_s is not None else "unknown"
            )
            client = None if self._load is None else self._load.clients[0]
            made.append(
                MetaReplicaFigures(
                    replica_id=seen.id,
                    server=None if seen.server is None else ServerName.parse(seen.server).address,
                    state=state,
                    reads=reads.get(seen.id),
                    lag_s=comparison.lag_s(seen.id, now),
                    answer_ms=None if duration_s is None or error else duration_s * 1000,
                    errors=seen.errors,
                    ejections=None if client is None else client.ejections_of(seen.id),
                    ejected_for_s=max(0.0, seen.ejected_until - now) if seen.ejected_until else None,
                    detail=error or (seen.last_error or "" if is_ejected else ""),
                )
            )
        return tuple(made)

    # -- servers and regions -------------------------------------------------------------------------------------------

    def _read_status(self, deadline: float) -> ClusterStatus:
        assert self._observation is not None, "this source runs only where the backend is observable"
        return self._observation.cluster_status(deadline)

    def _known_servers(self) -> list[ServerName]:
        """Return the servers that the master or the registry of hbase:meta names."""
        status: ClusterStatus | None = self._status.value
        live = [load.server for load in status.live_servers] if status is not None else []
        meta = [one.server for one in self._replicas() if one.server is not None]
        return list(dict.fromkeys([*live, *meta]))[:SERVERS_MAX]

    def _check_servers(self, deadline: float) -> dict[ServerName, tuple[Liveness, str, float | None]]:
        """Return whether each server answers, and how fast."""
        if self._observation is None:
            return self._check_pages(deadline)
        found = self._observation.check_servers(self._known_servers(), deadline)
        return {server: _liveness(check.error, check.duration_s) for server, check in found.items()}

    def _check_pages(self, deadline: float) -> dict[ServerName, tuple[Liveness, str, float | None]]:
        """Return whether the info page of each server answers. A page that never answered may have another port."""
        port, now = self._options.jmx_port or DEFAULT_INFO_PORT, self._runtime.now
        servers = self._servers_of_meta()[:JMX_SERVERS_MAX]
        tasks = {
            one: self._runtime.start(_timed_page, one.host, port, deadline - now(), now, name="watch-page")
            for one in servers
        }
        found: dict[ServerName, tuple[Liveness, str, float | None]] = {}
        for server, task in tasks.items():
            found[server] = liveness, detail, answer_ms = task.result()
            if liveness is Liveness.UP:
                self._pages_seen.add(server)
            elif server not in self._pages_seen:
                found[server] = (Liveness.UNKNOWN, detail, answer_ms)
        return found

    def _servers_of_meta(self) -> list[ServerName]:
        """Return the servers that hbase:meta and its registry name."""
        return Reports(places=self._places.value or {}, meta_servers=frozenset(self._known_servers())).named_servers()

    def _info_ports(self) -> dict[str, tuple[str, int]]:
        """Return host and port of the info page of each server, by its address."""
        status: ClusterStatus | None = self._status.value
        if status is not None:
            chosen = self._options.jmx_port
            return {
                load.server.address: (load.server.host, chosen or load.info_port or DEFAULT_INFO_PORT)
                for load in status.live_servers
            }
        port = self._options.jmx_port or DEFAULT_INFO_PORT
        return {one.address: (one.host, port) for one in self._servers_of_meta()}

    def _read_jmx(self, deadline: float) -> dict[str, JmxServer | str]:
        """Return the metrics of each server whose info page answers, else the reason."""
        wanted = list(self._info_ports().items())[:JMX_SERVERS_MAX]
        found: dict[str, JmxServer | str] = {}
        for first in range(0, len(wanted), JMX_PARALLEL):
            tasks = {
                address: self._runtime.start(_jmx_or_reason, *place, name="watch-jmx")
                for address, place in wanted[first : first + JMX_PARALLEL]
            }
            for address, task in tasks.items():
                found[address] = task.result()
        return found

    def _tables(self) -> Sequence[bytes]:
        places: Mapping[bytes, Sequence[RegionLocations]] = self._places.value or {}
        return list(places)

    def _read_places(self, deadline: float) -> dict[bytes, Sequence[RegionLocations]]:
        """Return the tables; where the master cannot be asked, with their regions."""
        names = [name for name in self._connection.tables() if name != META_TABLE][:TABLES_MAX]
        if self._observation is not None:
            return dict.fromkeys(names, ())
        return {name: self._engine.regions(name) for name in names}

    def _next_row(self) -> tuple[bytes, bytes] | None:
        tables = self._tables()
        if not tables:
            return None
        rng = self._runtime.rng
        return tables[rng.randrange(len(tables))], bytes([rng.randrange(256), rng.randrange(256)])

    # -- peers ---------------------------------------------------------------------------------------------------------

    def _read_peers(self, deadline: float) -> tuple[PeerFigures, ...] | None:
        try:
            replication = self._connection.replication
        except Unsupported:
            return None  # a gateway has no calls for peers
        statuses = replication.status()
        self._replica_lags_s = {
            status.server.address: load.lag_ms / 1000
            for status in statuses
            for load in status.sources
            if load.peer_id == REGION_REPLICA_PEER
        }
        return peer_figures(replication.list(), statuses, self._workers)

    def _workers(self, peer_id: str) -> Sequence[str] | None:
        try:
            return change_host(self._connection).workers(peer_id, self._runtime.now() + CALL_TIMEOUT_S)
        except Unsupported:
            return None


def _liveness(error: MetaClientError | None, took_s: float) -> tuple[Liveness, str, float | None]:
    """
    >>> _liveness(CallTimeout("late"), 1.0)[0], _liveness(None, 0.002)
    (<Liveness.HUNG: 'hung'>, (<Liveness.UP: 'up'>, '', 2.0))
    """
    if error is None:
        return Liveness.UP, "", took_s * 1000
    if isinstance(error, CallTimeout):
        return Liveness.HUNG, f"no answer within {PING_TIMEOUT_S:g} s", None
    return Liveness.DEAD, str(error).partition(": ")[0], None  # what follows is advice to programs


def _timed_page(host: str, port: int, timeout_s: float, now: Callable[[], float]) -> tuple[Liveness, str, float | None]:
    """Ask an info page for a few metrics."""
    begun = now()
    try:
        read_jmx(host, port, max(0.05, timeout_s), part="IPC")
    except MetaClientError as error:
        return _liveness(error, now() - begun)
    return _liveness(None, now() - begun)


def _jmx_or_reason(host: str, port: int) -> JmxServer | str:
    try:
        return read_jmx(host, port, JMX_TIMEOUT_S)
    except MetaClientError as error:
        return str(error)
