"""Decides how a client's call reaches the fake: the SPI of :mod:`metaclient.backend` on a cluster in this process.

A call runs in the caller's thread. When nothing is in the way (no latency, no fault, no service time) it takes a
handler and goes straight into the region; otherwise :class:`metaclient_fake.network.call.Call` walks it through the
network.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from itertools import starmap
from typing import TYPE_CHECKING, Any, TypeVar, TypeVarTuple

from metaclient import keys
from metaclient.backend import Action, Capabilities, MetaPage, MetaScan, Outcome, ReplicationAdmin, ScanPage
from metaclient.errors import (
    CallTimeout,
    ConnectionClosed,
    DeadlineExceeded,
    MetaClientError,
    RegionOffline,
    ServerUnreachable,
    Unsupported,
)
from metaclient.model import (
    META_TABLE,
    Check,
    Get,
    MetaReplica,
    Mutation,
    RegionLocation,
    Result,
    Scan,
    ServerName,
    TableDescriptor,
    TableState,
)
from metaclient.replication_peers import Peer, PeerConfig, PeerState, ReplicationStatus
from metaclient.runtime import Task
from metaclient.table_schema import TableChange
from metaclient_fake.change_host import FakeChangeHost
from metaclient_fake.config.cluster import HBASE_VERSION
from metaclient_fake.network.call import Call, Station
from metaclient_fake.network.handlers import ONCE, Handler, Handlers
from metaclient_fake.network.network import party_of
from metaclient_fake.server.data_calls import DataCalls
from metaclient_fake.server.region_server import RegionServer
from metaclient_fake.server.scanners import ScannerHandle

if TYPE_CHECKING:
    from metaclient.connection import Connection
    from metaclient.watch.collecting import Collector, WatchOptions
    from metaclient_fake.cluster import FakeCluster

__all__ = ["FakeBackend"]

Ts = TypeVarTuple("Ts")
T = TypeVar("T")
#: The names of all replicas of the region of hbase:meta begin with it.
_META_REGION = keys.meta_region_name()


class FakeBackend:
    """One client of one cluster; several may share a cluster. ``party`` is its name inside of the cluster.

    It has more than 30 methods because it implements the whole SPI of backends, most of them in a line or two.
    """

    name = "fake"
    capabilities = Capabilities(replica_lag=True, schema=True, replication=True)

    def __init__(self, cluster: FakeCluster, *, party: str = "client", owns_cluster: bool = False) -> None:
        self.cluster = cluster
        self.party = party_of(cluster.name, party)
        self.is_closed = False
        self._owns_cluster = owns_cluster
        self._servers = cluster.servers_by_host

    def __repr__(self) -> str:
        return f"FakeBackend({self.party!r}, {self.cluster!r})"

    @property
    def change_host(self) -> FakeChangeHost:
        """Subscriptions to the changes of this cluster."""
        self._check_open()
        return FakeChangeHost(self.cluster)

    def open(self, deadline: float) -> None:
        self._check_open()

    def close(self) -> None:
        if self.is_closed:
            return
        self.is_closed = True
        if self.cluster.is_inherited:
            return
        self.cluster.network.announce()
        if self._owns_cluster:
            self.cluster.close()

    def _check_open(self) -> None:
        """Raise ConnectionClosed when the connection or the cluster is closed, or the cluster is a parent process's."""
        if self.is_closed or self.cluster.network.is_closed:
            self.cluster.closing.wait()
            raise ConnectionClosed("the connection to the fake cluster is closed")

    # -- hbase:meta --------------------------------------------------------------------------------------------

    def meta_replicas(self, deadline: float) -> Sequence[MetaReplica]:
        registry = self.cluster.registry
        return self._ask(registry, self.cluster.registry_handlers, registry.replicas, deadline)

    def read_meta(self, replica: MetaReplica, scan: MetaScan, deadline: float) -> MetaPage:
        if replica.server is None:
            raise RegionOffline(f"hbase:meta replica {replica.replica_id} is on no server")
        return self._run(replica.server, deadline, False, True, DataCalls.read_meta, replica.replica_id, scan)

    def get_meta(self, place: RegionLocation, get: Get, deadline: float) -> Result:
        """Beyond the SPI, for the fronts: a row of hbase:meta as its users see it, with times and versions."""
        return self._run(place.server, deadline, False, True, DataCalls.get_meta, place.replica_id, get)

    # -- data --------------------------------------------------------------------------------------------------

    def get(self, place: RegionLocation | None, table: bytes, get: Get, deadline: float) -> Result:
        place = place or _no_place()
        return self._run(place.server, deadline, False, False, DataCalls.get, place.region_name, get)

    def mutate(self, place: RegionLocation | None, table: bytes, mutation: Mutation, deadline: float) -> Result | None:
        place = place or _no_place()
        return self._run(place.server, deadline, True, False, DataCalls.mutate, place.region_name, mutation)

    def check_and_mutate(
        self, place: RegionLocation | None, table: bytes, check: Check, mutation: Mutation, deadline: float
    ) -> bool:
        place = place or _no_place()
        return self._run(
            place.server, deadline, True, False, DataCalls.check_and_mutate, place.region_name, check, mutation
        )

    def batch(
        self, server: ServerName | None, table: bytes, actions: Sequence[Action], deadline: float
    ) -> Sequence[Outcome]:
        if server is None:
            _no_place()
        assert server is not None
        is_write = any(not isinstance(action.operation, Get) for action in actions)
        return self._run(server, deadline, is_write, False, DataCalls.batch, actions)

    def scan_open(self, place: RegionLocation | None, table: bytes, scan: Scan, deadline: float) -> ScanPage:
        place = place or _no_place()
        is_meta = table == META_TABLE
        return self._run(place.server, deadline, False, is_meta, DataCalls.scan_open, place.region_name, scan)

    def scan_next(self, scanner: object, rows: int, deadline: float) -> ScanPage:
        assert isinstance(scanner, ScannerHandle), "a scanner of this backend"
        is_meta = scanner.region_name.startswith(_META_REGION)
        return self._run(scanner.server, deadline, False, is_meta, DataCalls.scan_next, scanner, rows)

    def scan_close(self, scanner: object, deadline: float) -> None:
        """Close a scanner without waiting. A lost close does no harm: the lease ends the scanner."""
        assert isinstance(scanner, ScannerHandle), "a scanner of this backend"
        server = self._servers.get(scanner.server.host)
        if server is None or not server.is_running:
            return
        network = self.cluster.network
        if not network.has_partitions or not network.is_cut(self.party, server.party):
            server.calls.scan_close(scanner)

    # -- admin -------------------------------------------------------------------------------------------------

    def hbase_version(self, deadline: float) -> str:
        return self._ask_master(lambda: HBASE_VERSION, deadline)

    def table_names(self, deadline: float) -> Sequence[bytes]:
        return self._ask_master(self.cluster.master.table_names, deadline)

    def describe_table(self, table: bytes, deadline: float) -> TableDescriptor:
        return self._ask_master(lambda: self.cluster.master.descriptor_of(table), deadline)

    def is_table_enabled(self, table: bytes, deadline: float) -> bool:
        state = self._ask_master(lambda: self.cluster.master.record(table).state, deadline)
        return state is TableState.ENABLED

    def create_table(self, descriptor: TableDescriptor, splits: Sequence[bytes], deadline: float) -> None:
        self._procedure(lambda: self.cluster.create_table(descriptor, splits), deadline)

    def delete_table(self, table: bytes, deadline: float) -> None:
        self._procedure(lambda: self.cluster.delete_table(table), deadline)

    def enable_table(self, table: bytes, deadline: float) -> None:
        self._procedure(lambda: self.cluster.enable_table(table), deadline)

    def disable_table(self, table: bytes, deadline: float) -> None:
        self._procedure(lambda: self.cluster.disable_table(table), deadline)

    def compact_table(self, table: bytes, major: bool, deadline: float) -> None:
        self._procedure(lambda: self.cluster.compact(table, major), deadline)

    def alter_table(self, table: bytes, change: TableChange, deadline: float) -> None:
        cluster = self.cluster
        self._procedure(lambda: cluster.alter_table(change.applied_to(cluster.master.descriptor_of(table))), deadline)

    def truncate_table(self, table: bytes, preserve_splits: bool, deadline: float) -> None:
        self._procedure(lambda: self.cluster.truncate_table(table, preserve_splits=preserve_splits), deadline)

    def namespaces(self, deadline: float) -> Sequence[str]:
        found = self._ask_master(lambda: tuple(self.cluster.master.namespaces), deadline)
        return [name.decode() for name in found]

    def create_namespace(self, name: str, deadline: float) -> None:
        self._procedure(lambda: self.cluster.create_namespace(name), deadline)

    def delete_namespace(self, name: str, deadline: float) -> None:
        self._procedure(lambda: self.cluster.delete_namespace(name), deadline)

    @property
    def replication_admin(self) -> ReplicationAdmin:
        """The peers of the cluster, as calls to its master; Unsupported if the cluster cannot have any."""
        admin = self.cluster.replication_admin
        if admin is None:
            raise Unsupported("this fake cluster has no replication peers")
        return _PeerCalls(admin, self.at_master, self._procedure)

    def make_collector(self, connection: Connection, options: WatchOptions) -> Collector:
        """Return the collector of the live view; it starts its load, unless no lookups are wanted."""
        from metaclient_fake.watching import FakeCollector

        return FakeCollector(self.cluster.inside, connection.url, starts_load=options.lookups_per_s > 0)

    # -- calls -------------------------------------------------------------------------------------------------

    def _run(
        self,
        name: ServerName,
        deadline: float,
        is_write: bool,
        is_meta: bool,
        method: Callable[[DataCalls, *Ts], T],
        *arguments: *Ts,
    ) -> T:
        """Run a method of the region server at ``name``: the hot path of everything."""
        server = self._servers.get(name[0])
        if server is None or server.port != name[1]:
            raise ServerUnreachable(f"connection refused: no server listens at {keys.printable(name.address.encode())}")
        handlers = server.meta_handlers if is_meta else server.handlers
        if server.is_quick and not self.is_closed:
            taken: list[Handler] = []
            try:
                taken.extend(starmap(handlers.free.pop, ONCE))
                if is_write:
                    taken[0].writes += 1
                else:
                    taken[0].reads += 1
                return method(server.calls, *arguments)
            except IndexError:
                if taken:
                    raise  # else all are busy: the queue is on the long way
            except MetaClientError:
                raise
            except BaseException:
                # As in _write(). A function for both would be skipped by an interrupt at its entry.
                if is_write:
                    try:
                        server.write_was_torn()
                    except BaseException:  # a second interrupt
                        server.write_was_torn()
                        raise
                raise
            finally:
                handlers.free.extend(taken)
                if handlers.waiting:
                    handlers.wake()
        config = server.config
        service_s = server.slow_s + (config.meta_service_time_s if is_meta else config.service_time_s)
        function = (
            partial(_write, server, method, *arguments) if is_write else partial(method, server.calls, *arguments)
        )
        return self._long_way(server, handlers, function, deadline, service_s, is_write)

    def at_server(
        self,
        name: ServerName,
        method: Callable[[DataCalls, *Ts], T],
        *arguments: *Ts,
        deadline: float,
        is_write: bool = False,
        is_meta: bool = False,
    ) -> T:
        """Beyond the SPI, for the fronts: any method of a region server, as a call over the network."""
        return self._run(name, deadline, is_write, is_meta, method, *arguments)

    def at_replication(self, name: ServerName, function: Callable[[], T], *, deadline: float) -> T:
        """Beyond the SPI, for the fronts: a call of another cluster to a region server, on its replication handlers.

        The function writes through a client of its own. On the handlers for clients it could take the last handler,
        and wait for a write that waits for a handler.
        """
        server = self._servers.get(name.host)
        if server is None or server.port != name.port:
            raise ServerUnreachable(f"connection refused: no server listens at {keys.printable(name.address.encode())}")
        return self._long_way(server, server.replication_handlers, function, deadline, server.slow_s, is_write=True)

    def at_master(self, function: Callable[[], T], *, deadline: float) -> T:
        """Beyond the SPI, for the fronts: a call to the master."""
        return self._ask_master(function, deadline)

    def _long_way(
        self,
        station: Station,
        handlers: Handlers,
        function: Callable[[], T],
        deadline: float,
        service_s: float,
        is_write: bool,
    ) -> T:
        self._check_open()
        return Call(
            self.cluster.network,
            self.cluster.runtime,
            self,
            station,
            function,
            handlers=handlers,
            deadline=deadline,
            service_s=service_s,
            is_write=is_write,
        ).run()

    def _ask(self, station: Station, handlers: Handlers, function: Callable[[], T], deadline: float) -> T:
        return self._long_way(station, handlers, function, deadline, 0.0, False)

    def _ask_master(self, function: Callable[[], T], deadline: float) -> T:
        return self._ask(self.cluster.master, self.cluster.master.handlers, function, deadline)

    def _procedure(self, procedure: Callable[[], object], deadline: float) -> None:
        """Submit it and wait: it goes on in the master when the caller's time is over."""
        runtime = self.cluster.runtime
        master = self.cluster.master

        def submit() -> Task[object]:
            return runtime.start(procedure, name="procedure")

        task = self._long_way(master, master.handlers, submit, deadline, 0.0, is_write=True)
        try:
            task.result(deadline)
        except DeadlineExceeded as error:
            if task.is_done:
                raise
            raise CallTimeout("the master has not finished the procedure", may_have_applied=True) from error
        except MetaClientError:
            raise


class _PeerCalls:
    """A ReplicationAdmin whose changes are procedures of the master; they go on if the caller stops waiting."""

    def __init__(
        self,
        admin: ReplicationAdmin,
        ask: Callable[..., Any],
        run_procedure: Callable[[Callable[[], object], float], None],
    ) -> None:
        self._admin = admin
        self._ask = ask
        self._run_procedure = run_procedure

    def add_peer(self, peer_id: str, config: PeerConfig, state: PeerState, deadline: float) -> None:
        self._run_procedure(lambda: self._admin.add_peer(peer_id, config, state, deadline), deadline)

    def remove_peer(self, peer_id: str, deadline: float) -> None:
        self._run_procedure(lambda: self._admin.remove_peer(peer_id, deadline), deadline)

    def set_peer_state(self, peer_id: str, state: PeerState, deadline: float) -> None:
        self._run_procedure(lambda: self._admin.set_peer_state(peer_id, state, deadline), deadline)

    def update_peer(self, peer_id: str, config: PeerConfig, deadline: float) -> None:
        self._run_procedure(lambda: self._admin.update_peer(peer_id, config, deadline), deadline)

    def peers(self, pattern: str | None, deadline: float) -> Sequence[Peer]:
        found: Sequence[Peer] = self._ask(lambda: self._admin.peers(pattern, deadline), deadline=deadline)
        return found

    def peer(self, peer_id: str, deadline: float) -> Peer:
        found: Peer = self._ask(lambda: self._admin.peer(peer_id, deadline), deadline=deadline)
        return found

    def replication_status(self, deadline: float) -> Sequence[ReplicationStatus]:
        found: Sequence[ReplicationStatus]
        found = self._ask(lambda: self._admin.replication_status(deadline), deadline=deadline)
        return found


def _write(server: RegionServer, method: Callable[[DataCalls, *Ts], T], *arguments: *Ts) -> T:
    """Run a write at a server, which restarts if an exception other than HBase's errors cuts the write off."""
    try:
        return method(server.calls, *arguments)
    except MetaClientError:
        raise
    except BaseException:
        try:
            server.write_was_torn()
        except BaseException:  # a second interrupt
            server.write_was_torn()
            raise
        raise


def _no_place() -> RegionLocation:
    raise Unsupported("the fake addresses servers: pass a RegionLocation")
