"""Stores a whole HBase in memory and decides nothing: it puts the parts together and gives people the handles.

    with FakeCluster(servers=5, meta_replicas=3) as cluster:
        connection = cluster.connect()
        cluster.kill(cluster.meta_server(0))

Servers are named ``rs1``, ``rs2``, ...; regions by their encoded names (``status()`` shows both). Methods take those,
a server's ``host:port`` or ``host,port,startcode``, and a region's full name.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from types import TracebackType
from typing import TYPE_CHECKING
from uuid import NAMESPACE_URL, uuid5

from metaclient import keys
from metaclient.errors import ConfigError, ConnectionClosed, DeadlineExceeded, RegionUnavailable, RequestRefused
from metaclient.model import LATEST_TIMESTAMP, META_TABLE, Cell, RegionInfo, ServerName, TableDescriptor
from metaclient.runtime import Runtime, SimRuntime, ThreadRuntime
from metaclient.wording import counted
from metaclient_fake.backend import FakeBackend
from metaclient_fake.chores import Chore, Chores, Sessions
from metaclient_fake.config.cluster import STOCHASTIC_BALANCER, ClusterConfig, nearest
from metaclient_fake.coordination.registry import Registry
from metaclient_fake.faults import Faults
from metaclient_fake.inherited import PartOfParent
from metaclient_fake.master import balancer, region_procedures, table_procedures
from metaclient_fake.master.master import Master
from metaclient_fake.master.region_states import RegionGroup, RegionNode, RegionState
from metaclient_fake.network.call import Call
from metaclient_fake.network.handlers import Handlers
from metaclient_fake.network.network import EVERYBODY, MASTER, REGISTRY, Network
from metaclient_fake.region_replication import Acknowledged, SendSlots, Sink, is_on
from metaclient_fake.region_replication.observation import observe
from metaclient_fake.server.region_server import RegionServer, ServerState
from metaclient_fake.status import cluster_status
from metaclient_fake.storage import FileSystem

if TYPE_CHECKING:
    from metaclient.connection import Connection
    from metaclient_fake.front.serving import Front, FrontLimits

__all__ = ["FakeCluster"]

PORT = 16020  # hbase.regionserver.port
#: How often secondaries that may not read yet, or pretend to be empty, are looked at.
_REPLICA_CHORE_S = 0.05
_HOUSEKEEPING_S = 1.0
#: Between two looks at the secondaries while somebody waits for them.
_REPLICATED_PAUSE_S = 0.05
#: Between two flushes of one primary while somebody waits for its secondaries.
_FLUSH_AGAIN_S = 1.0
#: On real threads, how long the maker of a table waits at most until its replicas can be read, and how often it looks.
_REPLICAS_OPEN_S, _REPLICAS_OPEN_PAUSE_S = 0.5, 0.002
_PLACED = frozenset({RegionState.OPENING, RegionState.OPEN, RegionState.CLOSING})

Rows = Mapping[bytes, Mapping[bytes, bytes]] | Iterable[tuple[bytes, Mapping[bytes, bytes]]]


class FakeCluster:
    """Master, region servers, registry and file system of one fake HBase, and the faults that can befall them.

    ``config`` is a mapping of our settings or of HBase's properties, or a :class:`ClusterConfig`; the argument
    ``meta_replicas`` goes before its ``hbase.meta.replica.count``.
    """

    def __init__(
        self,
        servers: int = 5,
        meta_replicas: int | None = None,
        seed: int = 0,
        runtime: Runtime | None = None,
        config: ClusterConfig | Mapping[str, object] | None = None,
    ) -> None:
        if servers < 1 or (meta_replicas is not None and meta_replicas < 1):
            raise ConfigError(f"servers and meta_replicas must be at least 1, got {servers} and {meta_replicas}")
        settings = ClusterConfig.of(config)
        if meta_replicas is not None:
            settings = settings.replace(meta_replicas=meta_replicas)
        settings.warn_of_settings_without_effect()
        self._owns_runtime = runtime is None
        self.runtime: Runtime = ThreadRuntime(seed=seed, name="fake-hbase") if runtime is None else runtime
        self.config = settings.settled(isinstance(self.runtime, SimRuntime))
        self.network = Network(self.runtime, self.config.latency_s_min or 0.0, self.config.latency_s_max or 0.0)
        self.network.on_change(self._update_quick)
        self.filesystem = FileSystem()
        self.registry = Registry(self.runtime, self.config.registry_lag_s)
        self.registry_handlers = Handlers(self.runtime, self.config.handlers, self.config.call_queue_max, REGISTRY)
        self.master = Master(self.runtime, self.config, self.network, self.filesystem, self.registry)
        self.sessions = Sessions(
            self.runtime,
            self.network,
            self.config.session_timeout_s,
            expire=self.master.expire,
            is_dead=lambda name: name in self.master.dead,
        )
        #: How many batches may be on their way to one server at a time.
        self.send_slots = SendSlots(self.runtime, self.config.replication.sends_per_server_max)
        self.faults = Faults(self)
        #: Host -> the incarnation that listens there (or the last one that did); the backends' address book.
        self.servers_by_host: dict[str, RegionServer] = {}
        self._count_lock = self.runtime.lock()
        self._meta_reads: dict[int, int] = {}
        self._scanner_ids = 0
        self._epochs = 0
        self._hosts = 0
        self._last_start_code = 0
        self._is_closed = False
        #: True in a child process after ``os.fork()``, which cannot use the cluster; see ``inherited.py``.
        self.is_inherited = False
        self.runtime.on_fork(self._leave_to_parent)
        self._chores = Chores(self.runtime, self._chore_list())
        for _ in range(servers):
            self._start_server(self._next_host())
        #: As in ``hbase:meta``'s folder of a real cluster: another one with each cluster.
        self.cluster_id = str(uuid5(NAMESPACE_URL, f"fake:{seed}:{self._last_start_code}"))
        self.front: Front | None = None
        self.master.start(self.config.meta_replicas)
        self._chores.start()
        self._let_replicas_open(is_start=True)
        observe(self)

    def _leave_to_parent(self) -> None:
        self.is_inherited = True
        for server in self.servers_by_host.values():
            server.is_quick = False  # backends then take the long way, which asks the network first
        parts = ("network", "filesystem", "registry", "registry_handlers", "master", "sessions", "send_slots", "faults")
        for name in (*parts, "servers_by_host", "_count_lock", "_chores"):
            setattr(self, name, PartOfParent())

    def __repr__(self) -> str:
        if self.is_inherited:
            return "FakeCluster(of the parent of this process)"
        live, servers = len(self.master.live), counted(len(self.servers_by_host), "server")
        return f"FakeCluster({live} of {servers} live, {counted(len(self.master.tables), 'table')})"

    def __enter__(self) -> FakeCluster:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """End everything: calls in progress get ConnectionClosed. Idempotent."""
        if self._is_closed or self.is_inherited:
            return
        self._is_closed = True
        if self.front is not None:
            self.front.close()
        self._chores.stop()
        self.network.close()
        for server in self.servers_by_host.values():
            server.handlers.close()
            server.meta_handlers.close()
            server.replication.close_all()
        if self._owns_runtime:
            self.runtime.close()

    # -- clients -----------------------------------------------------------------------------------------------

    def backend(self, client: str = "") -> FakeBackend:
        """The SPI on this cluster; ``client`` names it for partitions, as ``client/NAME``."""
        return FakeBackend(self, party=f"client/{client}" if client else "client")

    def connect(self, *, client: str = "", **options: object) -> Connection:
        """A connection to this cluster, on its runtime; options as for ``metaclient.connect``."""
        from metaclient.connection import connect_to

        return connect_to(self.backend(client), runtime=self.runtime, **options)  # type: ignore[arg-type]  # passed on

    def serve(
        self,
        host: str = "127.0.0.1",
        thrift1_port: int | None = 0,
        thrift2_port: int | None = 0,
        rpc_port: int | None = None,
        status_port: int | None = None,
        *,
        transport: str = "auto",
        protocol: str = "auto",
        limits: FrontLimits | None = None,
        gateway: Mapping[str, object] | None = None,
    ) -> Front:
        """Listen on TCP, until :meth:`close`: HBase's Thrift gateways, and a status page. What is None is not served.

        Port 0 takes a free one; the front tells which (``.thrift2_port``, ``.thrift2_url``, ...), and so does the
        cluster. Clients may speak framed or unframed, binary or compact, unless ``transport`` and ``protocol`` say
        which. ``gateway`` are HBase's properties for the client inside of the gateways.
        """
        from metaclient_fake.front.serving import Front, FrontLimits

        if self.network.is_closed:
            raise ConnectionClosed("the cluster is closed: it cannot be served any more")
        if self.front is not None:
            raise RequestRefused(f"the cluster is served already: {self.front!r}; close that front first")
        ports = {"thrift1": thrift1_port, "thrift2": thrift2_port, "rpc": rpc_port, "status": status_port}
        self.front = Front(
            self,
            host,
            ports=ports,
            limits=limits or FrontLimits(),
            transport=transport,
            protocol=protocol,
            gateway=gateway,
        )
        return self.front

    @property
    def thrift1_port(self) -> int | None:
        """Where :meth:`serve` listens; None when it does not."""
        return self.front.thrift1_port if self.front is not None else None

    @property
    def thrift2_port(self) -> int | None:
        return self.front.thrift2_port if self.front is not None else None

    @property
    def rpc_port(self) -> int | None:
        return self.front.rpc_port if self.front is not None else None

    @property
    def status_port(self) -> int | None:
        return self.front.status_port if self.front is not None else None

    # -- servers -----------------------------------------------------------------------------------------------

    def servers(self) -> list[str]:
        """All servers, dead ones too."""
        return list(self.servers_by_host)

    def kill(self, server: str) -> None:
        """kill -9. The master notices when the session ends (``session_timeout_s``)."""
        self.server_named(server).crash()

    def stop(self, server: str) -> None:
        """SIGTERM: it closes its regions and leaves."""
        found = self.server_named(server)
        found.stop()
        self.sessions.closed(found.name)

    def restart(self, server: str) -> None:
        """A new incarnation at the same address; a living one is killed first."""
        found = self.server_named(server)
        if found.state is not ServerState.DEAD:
            found.crash()
        self._start_server(found.host)

    def add_server(self) -> str:
        """One more; its name."""
        return self._start_server(self._next_host()).host

    def pause(self, server: str, *, keeps_session: bool = False) -> None:
        """Hang it: connections are accepted and nothing is answered (SIGSTOP).

        Its session lives on until it times out, and then the master takes its regions away; with ``keeps_session`` it
        goes on renewing it, so that nobody but the callers notices.
        """
        self.server_named(server).pause(keeps_session=keeps_session)

    def resume(self, server: str) -> int:
        """Wake it up; the number of calls that had waited in its sockets and are answered now, to nobody."""
        return self.server_named(server).resume()

    def slow(self, server: str, seconds: float) -> None:
        """Each call takes that much longer there; 0 ends it."""
        found = self.server_named(server)
        found.slow_s = seconds
        found.update_quick()

    def partition(self, one: str, other: str) -> None:
        """Cut the wire between two parties: servers, ``client``, ``client/NAME``, ``master``, ``registry``, ``*``."""
        self.network.partition(self.party_named(one), self.party_named(other))

    def heal(self) -> None:
        """End all partitions, losses and delays."""
        self.network.heal()

    def meta_server(self, replica_id: int = 0) -> str:
        """The server that has this copy of hbase:meta, or had it last."""
        node = self.node_named("hbase:meta", replica_id)
        assert node.server is not None, "meta was placed when the cluster started"
        return node.server.host

    def server_of(self, region: str, replica_id: int = 0) -> str | None:
        """The server that has this copy of a region, or had it last."""
        server = self.node_named(region, replica_id).server
        return server.host if server is not None else None

    # -- tables ------------------------------------------------------------------------------------------------

    def create_table(self, descriptor: TableDescriptor, splits: Sequence[bytes] = ()) -> None:
        self.master.run(lambda: table_procedures.create(self.master, descriptor, splits))
        self._let_replicas_open()

    def delete_table(self, table: str | bytes) -> None:
        name = keys.table_name(table)
        self.master.run(lambda: table_procedures.delete(self.master, name))

    def truncate_table(self, table: str | bytes, *, preserve_splits: bool = False) -> None:
        name = keys.table_name(table)
        self.master.run(lambda: table_procedures.truncate(self.master, name, preserve_splits=preserve_splits))

    def enable_table(self, table: str | bytes) -> None:
        name = keys.table_name(table)
        self.master.run(lambda: table_procedures.enable(self.master, name))
        self._let_replicas_open()

    def disable_table(self, table: str | bytes) -> None:
        name = keys.table_name(table)
        self.master.run(lambda: table_procedures.disable(self.master, name))

    def alter_table(self, descriptor: TableDescriptor) -> None:
        """New families, fewer families, more or fewer copies; ``hbase:meta`` takes a new number of copies."""
        self.master.run(lambda: table_procedures.alter(self.master, descriptor))
        self._let_replicas_open()

    def create_namespace(self, name: str) -> None:
        self.master.create_namespace(name.encode())

    def delete_namespace(self, name: str) -> None:
        self.master.delete_namespace(name.encode())

    # -- regions -----------------------------------------------------------------------------------------------

    def regions(self, table: str | bytes) -> list[str]:
        """The table's regions in order of their keys (primaries; a secondary is region and replica id)."""
        return [group.primary.encoded for group in self.master.states.table(keys.table_name(table))]

    def move(self, region: str, server: str | ServerName | None = None, *, replica_id: int = 0) -> None:
        """Move a copy; without a server the balancer chooses. ``host,port,startcode`` is believed even if unknown."""
        node = self.node_named(region, replica_id)
        target = None if server is None else self._target(server)
        self.master.run(lambda: region_procedures.move(self.master, node, target))

    def split(self, region: str, at: bytes | None = None) -> tuple[str, str]:
        """Split before row ``at``, or in the middle; the daughters' names."""
        node = self.node_named(region)
        left, right = self.master.run(lambda: region_procedures.split(self.master, node, at))
        return left.encoded_name, right.encoded_name

    def merge(self, left: str, right: str) -> str:
        """Merge two neighbours; the new region's name."""
        one, other = self.node_named(left), self.node_named(right)
        return self.master.run(lambda: region_procedures.merge(self.master, one, other)).encoded_name

    def flush(self, table: str | bytes | None = None) -> int:
        """Flush a table (all of them without a name, hbase:meta too); how many regions were."""
        name = None if table is None else keys.table_name(table)
        if name is not None:
            self.master.record(name)
        return sum(self._on_running(lambda server: server.flusher.flush_table(name)))

    def compact(self, table: str | bytes, major: bool = False) -> int:
        """Compact a table; how many regions had something to compact."""
        name = keys.table_name(table)
        self.master.record(name)
        return sum(self._on_running(lambda server: server.flusher.compact_table(name, major)))

    def balance(self) -> int:
        """Run the balancer once; the number of regions that moved."""
        keeps_apart = self.config.balancer == STOCHASTIC_BALANCER
        moves = balancer.plan_moves(self.master.picture(), keeps_copies_apart=keeps_apart)
        for move in moves:
            node = self.master.states.by_name.get(move.copy.name)
            if node is not None and node.state is RegionState.OPEN and node.server == move.source:
                self._run_move(node, move.target)
        return len(moves)

    def _run_move(self, node: RegionNode, target: ServerName) -> None:
        self.master.run(lambda: region_procedures.move(self.master, node, target))

    def bulk_load(self, table: str | bytes, rows: Rows) -> int:
        """Add rows (row -> column -> value) as store files, past memstore and log; how many rows."""
        name = keys.table_name(table)
        if name == META_TABLE:
            raise RequestRefused("hbase:meta takes no bulk load: its rows are written by the master alone")
        self.master.check_enabled(name)
        shares: dict[bytes, tuple[RegionGroup, list[tuple[bytes, tuple[Cell, ...]]]]] = {}
        count = 0
        for row, columns in rows.items() if isinstance(rows, Mapping) else rows:
            group = self.master.states.containing(name, row)
            cells = tuple(Cell(column, LATEST_TIMESTAMP, value) for column, value in sorted(columns.items()))
            shares.setdefault(group.primary.name, (group, []))[1].append((row, cells))
            count += 1
        for group, share in shares.values():
            self._load(group, share)
        return count

    def _load(self, group: RegionGroup, share: list[tuple[bytes, tuple[Cell, ...]]]) -> None:
        server = self.host_of(group.primary)

        def load() -> None:
            region = server.regions.get(group.primary.name)
            if region is None:
                raise server.assignments.unavailable(group.primary.name)
            region.bulk_load(share)

        self.master.call(server, load)

    def wait_until_replicated(self, timeout: float = 10.0) -> None:
        """Return when every secondary shows all that was written before; DeadlineExceeded names those that do not.

        A primary whose replicas have failed, or which keeps something to itself, is asked to flush, once a second.
        """
        deadline = self.runtime.now() + timeout
        wanted: dict[Sink, int] = {}
        asked: dict[Sink, float] = {}
        while True:
            behind = self._behind(wanted, asked)
            if not behind:
                return
            if self.runtime.now() >= deadline:
                shown = ", ".join(behind[:5]) + (", ..." if len(behind) > 5 else "")
                raise DeadlineExceeded(
                    f"not up to date after {timeout:g} s: {counted(len(behind), 'replica')}: {shown}"
                )
            self.runtime.sleep(min(_REPLICATED_PAUSE_S, timeout))

    def _behind(self, wanted: dict[Sink, int], asked: dict[Sink, float]) -> list[str]:
        """The secondaries that do not show everything; ``wanted`` keeps what everything is, for each primary."""
        behind: list[str] = []
        for node in self.master.states.nodes():
            record = self.master.tables[node.info.table]
            if not node.info.replica_id or record.state.name != "ENABLED":
                continue
            server = self.master.live.get(node.server) if node.server is not None else None
            region = server.regions.get(node.name) if server is not None and server.is_running else None
            if server is None or region is None:
                behind.append(node.encoded)
                continue
            if is_on(self.config.replication, record.descriptor):
                has_all = self._has_all_pushed(node, wanted, asked)
            else:
                has_all = self.flush_primary_of(server, node.info)
                server.secondaries.refresh_one(node.name)
            if not has_all or not region.reads_enabled or server.secondaries.is_empty(node.name):
                behind.append(node.encoded)
        return behind

    def _has_all_pushed(self, node: RegionNode, wanted: dict[Sink, int], asked: dict[Sink, float]) -> bool:
        primary = self.master.states.group_of(node).primary
        sink = self.sink_of(primary)
        if sink is None:
            return False
        now = self.runtime.now()
        if sink.needs_flush and now - asked.get(sink, float("-inf")) >= _FLUSH_AGAIN_S:
            asked[sink] = now
            server = self.master.live.get(primary.server) if primary.server is not None else None
            region = server.regions.get(primary.name) if server is not None and server.is_running else None
            if server is not None and region is not None:
                server.flusher.flush_region(region)
        if sink not in wanted:
            wanted[sink] = sink.position()
        return sink.has_everything_before(node.info.replica_id, wanted[sink])

    def sink_of(self, primary: RegionNode) -> Sink | None:
        """What this primary pushes with, wherever it is open; None when it does not."""
        server = self.master.live.get(primary.server) if primary.server is not None else None
        return server.replication.sinks.get(primary.name) if server is not None else None

    def sinks(self) -> Iterator[tuple[str, str, Sink]]:
        """What is pushed right now: server, table, sink."""
        for host, server in list(self.servers_by_host.items()):
            for name, sink in list(server.replication.sinks.items()):
                region = server.regions.get(name)
                if region is not None:
                    yield host, region.info.table.decode(errors="replace"), sink

    def buffers(self) -> Iterator[tuple[str, int]]:
        """What waits to be pushed: server, bytes."""
        for host, server in list(self.servers_by_host.items()):
            yield host, server.replication.buffer.pending_bytes

    def status(self) -> dict[str, object]:
        """JSON-able: servers, regions, meta, replication, network."""
        return cluster_status(self)

    # -- names -------------------------------------------------------------------------------------------------

    def server_named(self, name: str | ServerName) -> RegionServer:
        """A server by host, address or full name; the present incarnation of it."""
        text = str(name)
        host = text.partition(",")[0].partition(":")[0]
        found = self.servers_by_host.get(host)
        if found is None:
            raise RequestRefused(f"there is no server {text!r}{nearest(text, self.servers())}")
        return found

    def party_named(self, name: str) -> str:
        """A server's host, or one of the other parties of the network."""
        if name in (EVERYBODY, MASTER, REGISTRY, "client") or name.startswith("client/"):
            return name
        if name == "zookeeper":
            return REGISTRY
        return self.server_named(name).host

    def node_named(self, name: str | bytes | RegionInfo, replica_id: int = 0) -> RegionNode:
        """A copy of a region by encoded name, full name, or ``hbase:meta``."""
        found = self._node(name)
        if found is None:
            text = name.decode(errors="replace") if isinstance(name, bytes) else str(name)
            known = list(self.master.states.by_encoded)
            raise RequestRefused(f"there is no region {text!r}{nearest(text, known[:1000])}")
        if replica_id == 0:
            return found
        nodes = self.master.states.group_of(found).nodes
        if not 0 < replica_id < len(nodes):
            raise RequestRefused(f"region {found.encoded} has replicas 0 to {len(nodes) - 1}, not {replica_id}")
        return nodes[replica_id]

    def _node(self, name: str | bytes | RegionInfo) -> RegionNode | None:
        states = self.master.states
        if isinstance(name, RegionInfo):
            return states.by_name.get(name.name)
        if name in ("hbase:meta", META_TABLE):
            return self.master.meta_node(0)
        if isinstance(name, str):
            return states.by_encoded.get(name) or states.by_name.get(name.encode())
        return states.by_name.get(name)

    def _target(self, server: str | ServerName) -> ServerName:
        text = str(server)
        if text.count(",") == 2 and text.partition(",")[0] not in self.servers_by_host:
            return ServerName.parse(text)
        return self.server_named(server).name

    def host_of(self, node: RegionNode) -> RegionServer:
        """The server object that has this copy open."""
        server = self.master.live.get(node.server) if node.server is not None else None
        if server is None or node.name not in server.regions:
            raise RegionUnavailable(f"region {node.encoded} is {node.state.value} and on no live server")
        return server

    # -- what servers ask of the cluster (Peers) ---------------------------------------------------------------

    def flush_primary_of(self, asker: RegionServer, info: RegionInfo) -> bool:
        node = self.master.states.by_name.get(info.replica(0).name)
        server = self.master.live.get(node.server) if node is not None and node.server is not None else None
        if node is None or server is None or not server.is_running:
            return False
        if self.network.is_cut(asker.party, server.party):
            return False
        region = server.regions.get(node.name)
        return region is not None and server.flusher.flush_region(region)

    def tell_primary_of(self, asker: RegionServer, info: RegionInfo) -> None:
        name = info.replica(0).name
        node = self.master.states.by_name.get(name)
        server = self.master.live.get(node.server) if node is not None and node.server is not None else None
        if server is None:
            raise RegionUnavailable(f"the primary of {info.encoded_name} is on no live server")
        if server is asker:
            server.replication_host.replica_opened(name, info.replica_id)
            return
        Call(
            self.network,
            self.runtime,
            asker,
            server,
            lambda: server.replication_host.replica_opened(name, info.replica_id),
            handlers=server.admin_handlers,
            deadline=self.runtime.now() + self.config.replication.rpc_timeout_s,
        ).run()

    def acknowledged(self, name: bytes, families: frozenset[bytes] | None = None) -> Acknowledged | None:
        node = self.master.states.by_name.get(name)
        sink = self.sink_of(self.master.states.group_of(node).primary) if node is not None else None
        return sink.acknowledged(node.info.replica_id, families) if node is not None and sink is not None else None

    def server_at(self, host: str) -> RegionServer | None:
        return self.servers_by_host.get(host)

    def replica_host(self, name: bytes) -> str | None:
        node = self.master.states.by_name.get(name)
        if node is None or node.server is None or node.state not in _PLACED or node.server not in self.master.live:
            return None
        return node.server.host

    def replica_count(self, table: bytes) -> int:
        record = self.master.tables.get(table)
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

    # -- inside ------------------------------------------------------------------------------------------------

    def _next_host(self) -> str:
        self._hosts += 1
        return f"rs{self._hosts}"

    def _start_server(self, host: str) -> RegionServer:
        self._last_start_code = max(self.runtime.time_ms(), self._last_start_code + 1)
        server = RegionServer(
            ServerName(host, PORT, self._last_start_code),
            runtime=self.runtime,
            config=self.config,
            network=self.network,
            filesystem=self.filesystem,
            peers=self,
        )
        self.servers_by_host[host] = server
        self.sessions.opened(server)
        self.master.server_started(server)
        self.network.announce()
        return server

    def _let_replicas_open(self, *, is_start: bool = False) -> None:
        """Where nothing takes time by itself, a new table's replicas can be read when its creator goes on.

        A cluster is up when the copies of hbase:meta can be read, whatever that takes.
        """
        if not is_start and (self.config.reads_disabled_s or isinstance(self.runtime, SimRuntime)):
            return
        deadline = self.runtime.now() + _REPLICAS_OPEN_S
        while self.runtime.now() < deadline and any(server.secondaries.are_waiting for server in self._running()):
            self.runtime.sleep(_REPLICAS_OPEN_PAUSE_S)

    def _update_quick(self) -> None:
        for server in list(self.servers_by_host.values()):
            server.update_quick()

    def _running(self) -> list[RegionServer]:
        return [server for server in list(self.servers_by_host.values()) if server.is_running]

    def _on_running(self, function: Callable[[RegionServer], int]) -> list[int]:
        answers: list[int] = []
        for server in self._running():
            answers.append(self.master.call(server, lambda: function(server)))  # noqa: B023  # called at once
        return answers

    def _chore_list(self) -> list[Chore]:
        config = self.config
        return [
            Chore("sessions", config.session_check_s, self._look_at_sessions),
            Chore("meta-refresher", config.meta_refresh_period_s, self.refresh_meta),
            Chore("refresher", config.refresh_s, self.refresh),
            Chore("replica-reads", _REPLICA_CHORE_S, self._replica_chore, self._has_waiting_replicas),
            Chore("housekeeping", _HOUSEKEEPING_S, self._housekeeping),
            Chore("catalog-janitor", config.catalog_janitor_s, self._janitor),
            Chore("balancer", config.balancer_period_s, self.balance),
        ]

    def _look_at_sessions(self) -> None:
        self.sessions.look(list(self.servers_by_host.values()))
        self.master.start_recoveries()

    def refresh_meta(self) -> None:
        """One round of the refresher for hbase:meta; a changed primary is flushed first (see config)."""
        primary = self.master.meta_primary_server()
        flushes = self.config.meta_flush_on_refresh and not self.config.replication.pushes_meta
        if flushes and primary is not None and primary.is_running:
            region = primary.regions.get(keys.meta_region_name(0))
            if region is not None and region.memstore_bytes:
                primary.flusher.flush_region(region)
        for server in self._running():
            server.secondaries.refresh(meta=True)

    def refresh(self) -> None:
        """One round of the refresher for user tables: new files only, nothing is flushed for it."""
        for server in self._running():
            server.secondaries.refresh(meta=False)

    def replica_waits(self) -> None:
        """A secondary waits for something: the chore that looks at such ones is needed."""
        self._chores.wake()

    def _has_waiting_replicas(self) -> bool:
        return any(server.secondaries.waiting for server in list(self.servers_by_host.values()))

    def _replica_chore(self) -> None:
        for server in list(self.servers_by_host.values()):
            if server.is_running:
                server.secondaries.look()

    def _housekeeping(self) -> None:
        if self.front is not None:
            self.front.expire()
        for server in self._running():
            server.scanners.expire()
            server.assignments.forget_moves()
            server.flusher.relieve_memory()
            server.flusher.roll_logs(self.config.wal_roll_entries)
        now = self.runtime.now()
        self.filesystem.clean_archive(now, self.config.storage.archive_ttl_s)
        self.filesystem.clean_old_wals(now, self.config.old_wal_ttl_s)

    def _janitor(self) -> None:
        """Started as a task: it writes to hbase:meta and may have to wait for it."""

        def clean() -> None:
            with suppress(ConnectionClosed):
                self.master.run(lambda: region_procedures.clean_parents(self.master, self.config.catalog_janitor_s))

        if self.master.states.parents:
            self.runtime.start(clean, name="catalog-janitor")
