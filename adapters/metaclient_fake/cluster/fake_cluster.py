"""Stores a whole HBase in memory: makes its parts and forwards the calls of users to them.

    with FakeCluster(servers=5, meta_replicas=3) as cluster:
        connection = cluster.connect()
        cluster.kill(cluster.meta_server(0))

Servers are named ``rs1``, ``rs2``, ...; regions by their encoded names (``status()`` shows both). Methods take those,
a server's ``host:port`` or ``host,port,startcode``, and a region's full name.

It has more than 600 lines because all calls of users are in one class; each forwards to the part that does the work.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from types import TracebackType
from typing import TYPE_CHECKING
from weakref import ref

from metaclient import keys
from metaclient.backend import ReplicationAdmin
from metaclient.errors import ConfigError, ConnectionClosed, RequestRefused
from metaclient.model import RegionInfo, ServerName, TableDescriptor
from metaclient.replication import Replication as PeerAdministration
from metaclient.runtime import Closing, Runtime, SimRuntime, ThreadRuntime
from metaclient.wording import counted
from metaclient_fake.backend import FakeBackend
from metaclient_fake.chores import Chores, Sessions
from metaclient_fake.cluster.housekeeping import Housekeeping
from metaclient_fake.cluster.identity import ZNODE_PARENT, checked_name, cluster_key, made_cluster_id
from metaclient_fake.cluster.names import Names
from metaclient_fake.cluster.peer_replication import PeerReplication
from metaclient_fake.cluster.peers import ClusterPeers
from metaclient_fake.cluster.regions import Regions, Rows
from metaclient_fake.cluster.replication import Replication, sink_of
from metaclient_fake.cluster.servers import Servers
from metaclient_fake.cluster.shipping import Shipping
from metaclient_fake.cluster.tables import TableAdmin
from metaclient_fake.config.cluster import ClusterConfig
from metaclient_fake.coordination.published import publish_cluster
from metaclient_fake.coordination.registry import Registry
from metaclient_fake.coordination.znodes import Znodes
from metaclient_fake.faults import Faults
from metaclient_fake.grants import Grants
from metaclient_fake.inherited import PartOfParent
from metaclient_fake.master.master import Master
from metaclient_fake.master.region_states import RegionNode
from metaclient_fake.network.handlers import Handlers
from metaclient_fake.network.network import CLIENT, Network
from metaclient_fake.region_replication import Sink
from metaclient_fake.region_replication.observation import observe
from metaclient_fake.replication.subscribers import Subscribers
from metaclient_fake.replication_admin import PeerAdmin, administration_of
from metaclient_fake.server.region_server import RegionServer
from metaclient_fake.status import cluster_status
from metaclient_fake.storage import FileSystem
from metaclient_fake.user_backend import UserBackend

if TYPE_CHECKING:
    from metaclient.connection import Connection
    from metaclient_fake.front.serving import Front, FrontLimits

__all__ = ["FakeCluster"]

#: The attributes that a child process must not use after ``os.fork()``.
_PARTS = (
    "network",
    "filesystem",
    "znodes",
    "registry",
    "registry_handlers",
    "master",
    "sessions",
    "faults",
    "servers_by_host",
    "subscribers",
    "peers",
    "peer_replication",
    "replication_admin",
    "_chores",
    "_housekeeping",
    "_names",
    "_regions",
    "_replication",
    "_servers",
    "_shipping",
    "_tables",
)


class FakeCluster:
    """Master, region servers, registry and file system of one fake HBase, and the faults that can befall them.

    ``config`` is a mapping of our settings or of HBase's properties, or a :class:`ClusterConfig`; the argument
    ``meta_replicas`` goes before its ``hbase.meta.replica.count``.

    ``network=other.network`` puts the cluster beside another one, on the same network and runtime. It then needs a
    ``name``: its parties are ``NAME/rs1``, ``NAME/master``, ... in partitions and faults, and ``NAME`` is all of them.

    It has more than 30 methods because it is the one handle that tests hold: each forwards to the part that does the
    work, in a line or two.

    A cluster that is dropped without ``close()`` is closed in the background, with a ResourceWarning. For that no
    thread may refer to the handle: parts and fronts get ``inside``, a second object with the same attributes.
    """

    __slots__ = ("__dict__", "__weakref__", "_front")  # _front is the only attribute that the handle has for itself

    _is_closed = True  # until all parts are there

    def __init__(
        self,
        servers: int = 5,
        meta_replicas: int | None = None,
        seed: int = 0,
        runtime: Runtime | None = None,
        config: ClusterConfig | Mapping[str, object] | None = None,
        *,
        network: Network | None = None,
        name: str = "",
    ) -> None:
        if servers < 1 or (meta_replicas is not None and meta_replicas < 1):
            raise ConfigError(f"servers and meta_replicas must be at least 1, got {servers} and {meta_replicas}")
        settings = ClusterConfig.of(config)
        if meta_replicas is not None:
            settings = settings.replace(meta_replicas=meta_replicas)
        settings.warn_of_settings_without_effect()
        self._front: Front | None = None
        #: What threads refer to instead of the handle.
        self.inside: FakeCluster = object.__new__(_Inside)
        self.inside.__dict__ = self.__dict__
        #: For callers that get ConnectionClosed.
        self.closing = Closing()
        self.name = checked_name(name)
        #: By this key a replication peer of another cluster finds the cluster (:meth:`Network.cluster`).
        self.cluster_key = cluster_key(name)
        self._join_network(network, runtime, seed, settings)
        #: As the cluster id in HBase's root directory: each cluster has another one.
        self.cluster_id = made_cluster_id(self.runtime, seed, name)
        self._make_master()
        self.faults = Faults(self.inside)
        #: The rights of users.
        self.grants = Grants()
        #: Host -> the incarnation that listens there (or the last one that did); the backends' address book.
        self.servers_by_host: dict[str, RegionServer] = {}
        self._front_ref: Callable[[], Front | None] = _no_front
        self._make_parts()
        #: True in a child process after ``os.fork()``, which cannot use the cluster; see ``inherited.py``.
        self.is_inherited = False
        self.runtime.on_fork(self._leave_to_parent)
        publish_cluster(self.znodes, ZNODE_PARENT, self.cluster_id, self.master.name)
        for _ in range(servers):
            self._servers.add()
        self.master.start(self.config.meta_replicas)
        self._chores.start()
        self._tables.let_replicas_open(is_start=True)
        observe(self)
        self.network.join(self.inside)
        self._is_closed = False

    def _make_master(self) -> None:
        """Make the master and everything that it needs before there is a server."""
        #: What the cluster keeps in ZooKeeper, but for the locations of hbase:meta (``registry``).
        self.znodes = Znodes(self.runtime)
        self.filesystem = FileSystem()
        self.registry = Registry(self.runtime, self.network, self.config.registry_lag_s)
        self.registry_handlers = Handlers(
            self.runtime, self.config.handlers, self.config.call_queue_max, self.registry.party
        )
        self.master = Master(self.runtime, self.config, self.network, self.filesystem, self.registry)
        self.sessions = Sessions(
            self.runtime,
            self.network,
            self.config.session_timeout_s,
            znodes=self.znodes,
            expire=self.master.expire,
            is_dead=self.inside._is_dead,
        )

    def _join_network(
        self, network: Network | None, runtime: Runtime | None, seed: int, settings: ClusterConfig
    ) -> None:
        """Set the runtime, the settings and the network: new ones, or those of other clusters."""
        if network is None:
            self.runtime = runtime or ThreadRuntime(seed=seed, name="fake-hbase")
        else:
            if network.is_closed:
                raise ConfigError("the cluster of this network is closed: take the network of an open one")
            if runtime is not None and runtime is not network.runtime:
                raise ConfigError("clusters on one network have one runtime: leave out runtime=")
            self.runtime = network.runtime
        self.config = settings.settled(isinstance(self.runtime, SimRuntime))
        self.network = Network(
            self.runtime,
            self.config.latency_s_min or 0.0,
            self.config.latency_s_max or 0.0,
            name=self.name,
            shared_with=network,
            owns_runtime=runtime is None,
        )

    def _make_parts(self) -> None:
        runtime, config, master, by_host = self.runtime, self.config, self.master, self.servers_by_host
        self.peers = ClusterPeers(
            runtime,
            config,
            self.network,
            master,
            by_host,
            on_waiting=self.inside._wake_chores,
            restart=self.inside._restart_soon,
        )
        self.peer_replication = PeerReplication(
            self.cluster_id,
            runtime=runtime,
            config=config.peer_replication,
            network=self.network,
            znodes=self.znodes,
            master=master,
        )
        #: The subscriptions to changes of this cluster.
        self.subscribers = Subscribers(runtime, self.network)
        self._shipping = Shipping(self.inside, config.peer_replication)
        self.peer_replication.make_sources = self._shipping.make_sources
        self.filesystem.needed_wals = self.peer_replication.cleaner.needed
        #: The replication peers as the master changes them, without a call; None if the cluster cannot have peers.
        self.replication_admin: ReplicationAdmin | None = PeerAdmin(self.peer_replication)
        self._servers = Servers(
            by_host,
            runtime=runtime,
            config=config,
            network=self.network,
            filesystem=self.filesystem,
            sessions=self.sessions,
            master=master,
            peers=self.peers,
            znodes=self.znodes,
            replication=self.peer_replication,
        )
        self.network.on_change(self._servers.update_quick)
        self._names = Names(self.network, master, by_host)
        self._tables = TableAdmin(runtime, config, master, self._servers)
        self._regions = Regions(config, master, self._names, self._servers)
        self._replication = Replication(runtime, config.replication, master, by_host, self.peers.flush_primary_of)
        self._housekeeping = Housekeeping(
            by_host,
            runtime=runtime,
            config=config,
            filesystem=self.filesystem,
            sessions=self.sessions,
            master=master,
            servers=self._servers,
            balance=self._regions.balance,
            clean_barriers=self.peer_replication.barrier_cleaner.run,
            expire_front=self.inside._expire_front,
        )
        self._chores = Chores(runtime, self._housekeeping.chores())

    def _is_dead(self, server: ServerName) -> bool:
        return server in self.master.dead

    def _restart_soon(self, server: RegionServer) -> None:
        self._servers.restart_soon(server)

    def _wake_chores(self) -> None:
        self._chores.wake()

    @property
    def front(self) -> Front | None:
        """What :meth:`serve` returned, until it is closed."""
        return self._front or self._front_ref()

    @front.setter
    def front(self, front: Front | None) -> None:
        self._front = front
        self._front_ref = _no_front if front is None else ref(front)

    def _expire_front(self) -> None:
        if self.front is not None:
            self.front.expire()

    def _leave_to_parent(self) -> None:
        self.is_inherited = True
        for server in self.servers_by_host.values():
            server.is_quick = False  # backends then go through the network, which refuses the call
        for name in _PARTS:
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
        if self.is_inherited or not self.closing.begin():
            return
        self._is_closed = True
        try:
            self._close_parts()
        finally:
            self.closing.end()

    def _close_parts(self) -> None:
        if self.front is not None:
            self.front.close()
        self._chores.stop()
        closes_runtime = self.network.close()
        self.master.handlers.close()
        self.registry_handlers.close()
        for server in self.servers_by_host.values():
            server.disconnect()
        self._shipping.close()
        if closes_runtime:
            self.runtime.close()

    def __del__(self) -> None:
        # Attributes only, before a property or a method: their statements would count as those of a simulated task.
        if self._is_closed or isinstance(self.runtime, SimRuntime):
            return
        if not self.is_inherited:
            self.runtime.close_dropped(repr(self), self.close)

    # -- clients -----------------------------------------------------------------------------------------------

    def backend(self, client: str = "", *, user: str | None = None) -> FakeBackend:
        """Return the SPI on this cluster; ``client`` names it for partitions, as ``client/NAME``.

        The calls of a ``user`` need rights; see :meth:`grant`.
        """
        party = f"{CLIENT}/{client}" if client else CLIENT
        return FakeBackend(self, party=party) if user is None else UserBackend(self, user, party=party)

    def connect(self, *, client: str = "", user: str | None = None, **options: object) -> Connection:
        """Return a connection to this cluster, on its runtime; options as for ``metaclient.connect``."""
        from metaclient.connection import connect_to

        backend = self.backend(client, user=user)
        return connect_to(backend, runtime=self.runtime, **options)  # type: ignore[arg-type]  # passed on

    # -- users -------------------------------------------------------------------------------------------------

    def grant(self, user: str, rights: str, scope: str | bytes | None = None) -> None:
        """Give a user rights on a table, on ``@namespace``, or on all tables; as ``grant`` of HBase's shell.

        The letters are R (read), W (write), C (create, alter, delete), A (admin). From the first grant on, users
        without the right get AccessDenied: those of ``connect(user=)``, and those of the RPC front. Connections
        without a user, the user ``hbase`` and the user of this process are superusers.

        >>> with FakeCluster(servers=1) as cluster:
        ...     cluster.grant("bob", "RW", "orders")
        ...     cluster.connect(user="bob").create_table("other", {"cf": {}})
        Traceback (most recent call last):
        ...
        metaclient.errors.AccessDenied: ...: grant 'bob', 'C', 'other'
        """
        self.grants.grant(user, rights, scope)

    def revoke(self, user: str, scope: str | bytes | None = None) -> None:
        """Take the rights of a user in this scope away; rights in a wider scope stay."""
        self.grants.revoke(user, scope)

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
        is_secure: bool = False,
        cert: str | None = None,
        key: str | None = None,
        client_ca: str | None = None,
        allow_insecure: bool = False,
    ) -> Front:
        """Listen on TCP, until :meth:`close`: HBase's Thrift gateways, and a status page. What is None is not served.

        Port 0 takes a free one; the front tells which (``.thrift2_port``, ``.thrift2_url``, ...), and so does the
        cluster. Clients may speak framed or unframed, binary or compact, unless ``transport`` and ``protocol`` say
        which. ``gateway`` are HBase's properties for the client inside of the gateways. With ``is_secure`` clients of
        HBase's RPC need a token of ``front.issue_token``.

        ``cert`` (a PEM file with certificate and key, unless ``key`` names another file) makes TLS on all fronts; with
        ``client_ca`` clients need a certificate of that authority. An address other than loopback needs TLS, and tokens
        or client certificates, or ``allow_insecure=True``.
        """
        from metaclient_fake.front.protection import FrontProtection
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
            protection=FrontProtection(is_secure, cert, key, client_ca, allow_insecure),
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
        """Return all servers, dead ones too."""
        return list(self.servers_by_host)

    def kill(self, server: str) -> None:
        """Kill a server as kill -9 does. The master notices when the session ends (``session_timeout_s``)."""
        self.server_named(server).crash()

    def stop(self, server: str) -> None:
        """Stop a server as SIGTERM does: it closes its regions, then ends."""
        self._servers.stop(self.server_named(server))

    def restart(self, server: str) -> None:
        """Start a new incarnation at the same address; a living one is killed first."""
        self._servers.restart(self.server_named(server))

    def add_server(self) -> str:
        """Start one more server; return its name."""
        return self._servers.add().host

    def pause(self, server: str, *, keeps_session: bool = False) -> None:
        """Hang a server as SIGSTOP does: it accepts connections and answers nothing.

        When its session times out, the master assigns its regions to other servers. With ``keeps_session`` the server
        goes on renewing the session, so that only callers notice.
        """
        self.server_named(server).pause(keeps_session=keeps_session)

    def resume(self, server: str) -> int:
        """Wake a server up; return the number of calls that waited in its sockets and are run now."""
        return self.server_named(server).resume()

    def slow(self, server: str, seconds: float) -> None:
        """Make each call on a server take ``seconds`` longer; 0 ends it."""
        found = self.server_named(server)
        found.slow_s = seconds
        found.update_quick()

    def partition(self, one: str, other: str) -> None:
        """Cut the wire between two parties: servers, ``client``, ``client/NAME``, ``master``, ``registry``, ``*``.

        A party of another cluster on the network has its name in front (``west/rs1``); ``west`` is all of ``west``.
        """
        self.network.partition(self.party_named(one), self.party_named(other))

    def heal(self) -> None:
        """End all partitions, losses and delays, of all clusters on the network."""
        self.network.heal()

    def meta_server(self, replica_id: int = 0) -> str:
        """Return the server that has this copy of hbase:meta, or had it last."""
        node = self.node_named("hbase:meta", replica_id)
        assert node.server is not None, "meta was placed when the cluster started"
        return node.server.host

    def server_of(self, region: str, replica_id: int = 0) -> str | None:
        """Return the server that has this copy of a region, or had it last."""
        server = self.node_named(region, replica_id).server
        return server.host if server is not None else None

    # -- tables ------------------------------------------------------------------------------------------------

    def create_table(self, descriptor: TableDescriptor, splits: Sequence[bytes] = ()) -> None:
        self._tables.create(descriptor, splits)

    def delete_table(self, table: str | bytes) -> None:
        self._tables.delete(table)

    def truncate_table(self, table: str | bytes, *, preserve_splits: bool = False) -> None:
        self._tables.truncate(table, preserve_splits=preserve_splits)

    def enable_table(self, table: str | bytes) -> None:
        self._tables.enable(table)

    def disable_table(self, table: str | bytes) -> None:
        self._tables.disable(table)

    def alter_table(self, descriptor: TableDescriptor) -> None:
        """New families, fewer families, more or fewer copies; ``hbase:meta`` takes a new number of copies."""
        self._tables.alter(descriptor)

    def create_namespace(self, name: str) -> None:
        self.master.create_namespace(name.encode())

    def delete_namespace(self, name: str) -> None:
        self.master.delete_namespace(name.encode())

    # -- regions -----------------------------------------------------------------------------------------------

    def regions(self, table: str | bytes) -> list[str]:
        """Return the table's regions in order of their keys (primaries; a secondary is region and replica id)."""
        return [group.primary.encoded for group in self.master.states.table(keys.table_name(table))]

    def move(self, region: str, server: str | ServerName | None = None, *, replica_id: int = 0) -> None:
        """Move a copy; without a server the balancer chooses. An unknown ``host,port,startcode`` is accepted."""
        self._regions.move(region, server, replica_id=replica_id)

    def split(self, region: str, at: bytes | None = None) -> tuple[str, str]:
        """Split before row ``at``, or in the middle; return the names of the daughters."""
        return self._regions.split(region, at)

    def merge(self, left: str, right: str) -> str:
        """Merge two neighbours; return the name of the new region."""
        return self._regions.merge(left, right)

    def flush(self, table: str | bytes | None = None) -> int:
        """Flush a table (without a name: all tables and hbase:meta); return the number of flushed regions."""
        return self._regions.flush(table)

    def compact(self, table: str | bytes, major: bool = False) -> int:
        """Compact a table; return the number of regions that were compacted."""
        return self._regions.compact(table, major)

    def balance(self) -> int:
        """Run the balancer once; return the number of regions that it moved."""
        return self._regions.balance()

    def bulk_load(self, table: str | bytes, rows: Rows) -> int:
        """Add rows (row -> column -> value) as store files, without memstore and log; return the number of rows."""
        return self._regions.bulk_load(table, rows)

    def wait_until_replicated(self, timeout: float = 10.0) -> None:
        """Return when every secondary has all that was written before; DeadlineExceeded names the others.

        A primary with failed replicas, or with edits that are not replicated, is flushed at most once per second.
        """
        self._replication.wait(timeout)

    def sink_of(self, primary: RegionNode) -> Sink | None:
        """Return the sink of a primary; None if it is on no live server or does not push."""
        return sink_of(self.master, primary)

    def sinks(self) -> Iterator[tuple[str, str, Sink]]:
        """Yield server, table and sink of every open primary that pushes."""
        return self._replication.sinks()

    def buffers(self) -> Iterator[tuple[str, int]]:
        """Yield each server and the bytes that wait there to be pushed."""
        return self._replication.buffers()

    def status(self, *, znodes: bool = False) -> dict[str, object]:
        """JSON-able: servers, regions, meta, replication, network; with ``znodes`` also all nodes of ZooKeeper."""
        return cluster_status(self, znodes=znodes)

    @property
    def replication(self) -> PeerAdministration:
        """The peers to which this cluster replicates: add, remove, enable, disable, update, list, get, status."""
        return administration_of(self.backend().replication_admin, self.runtime)

    # -- names -------------------------------------------------------------------------------------------------

    def server_named(self, name: str | ServerName) -> RegionServer:
        """Return the present incarnation of a server by host, address or full name."""
        return self._names.server_named(name)

    def party_named(self, name: str) -> str:
        """Return the name on the network of a server or of another party."""
        return self._names.party_named(name)

    def node_named(self, name: str | bytes | RegionInfo, replica_id: int = 0) -> RegionNode:
        """Return a copy of a region by encoded name, full name, or ``hbase:meta``."""
        return self._names.node_named(name, replica_id)

    def host_of(self, node: RegionNode) -> RegionServer:
        """Return the live server that has this copy open, else raise RegionUnavailable."""
        return self._names.host_of(node)

    # -- counters and chores -----------------------------------------------------------------------------------

    def next_scanner_id(self) -> int:
        return self.peers.next_scanner_id()

    @property
    def meta_reads(self) -> dict[int, int]:
        """The number of reads of each copy of hbase:meta since the start of the cluster."""
        return self.peers.meta_reads

    def refresh_meta(self) -> None:
        """Run the refresher for hbase:meta once; a changed primary is flushed first (``meta_flush_on_refresh``)."""
        self._housekeeping.refresh_meta()

    def refresh(self) -> None:
        """Run the refresher for user tables once: replicas load new files, primaries are not flushed."""
        self._housekeeping.refresh()


class _Inside(FakeCluster):
    """A cluster as its own parts and fronts refer to it: all attributes are the handle's, and it may be dropped.

    ``_front`` is None in this class. The front refers to the handle, so that the cluster stays open while a program
    keeps only the front. If ``inside`` referred to the front, Python could never collect the handle.
    """

    __slots__ = ()

    _front = None

    def __del__(self) -> None:
        """Nothing: the handle closes the cluster."""


def _no_front() -> None:
    return None
