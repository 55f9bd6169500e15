"""Stores the master's state of servers, tables, namespaces and regions, and decides the order of changes.

Procedures run one at a time, under ``procedure_lock``. The one exception is the recovery of hbase:meta's primary: it
takes ``meta_lock`` alone, because the procedure that holds the procedure lock may be waiting for meta. Order of locks:
``procedure_lock``, ``meta_lock``, ``lock``. ``lock`` guards the maps of this class and is never held over a call.

Every change of a region is written to hbase:meta before it takes effect (:mod:`metaclient_fake.master.meta_table`).

DIVERGENCES from HMaster: one procedure at a time instead of locks per table and region; no backup master and no
restart of the master; the table descriptors live in its memory instead of ``.tabledesc`` files.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import TypeVar

from metaclient.errors import (
    ConnectionClosed,
    MetaClientError,
    Overloaded,
    RequestRefused,
    TableDisabled,
    TableExists,
    TableNotDisabled,
    TableNotFound,
)
from metaclient.model import META_TABLE, ServerName, TableDescriptor, TableState
from metaclient.runtime import Runtime
from metaclient_fake.config.cluster import ClusterConfig
from metaclient_fake.coordination.registry import Registry
from metaclient_fake.master import balancer, server_crash
from metaclient_fake.master.assignment import AssignmentManager, copy_of
from metaclient_fake.master.meta_table import META_INFO, MetaTable, meta_descriptor
from metaclient_fake.master.region_states import RegionGroup, RegionNode, RegionState, RegionStates
from metaclient_fake.network.call import Call
from metaclient_fake.network.handlers import Handlers
from metaclient_fake.network.network import MASTER, Network
from metaclient_fake.replication.barriers import has_global_scope, has_serial_scope
from metaclient_fake.server.region_server import RegionServer
from metaclient_fake.storage import FileSystem

__all__ = ["Master", "TableRecord"]

logger = logging.getLogger(__name__)

PORT = 16000  # hbase.master.port
T = TypeVar("T")

_NO_NAMESPACE = "org.apache.hadoop.hbase.NamespaceNotFoundException"
_NAMESPACE_EXISTS = "org.apache.hadoop.hbase.NamespaceExistException"
_CONSTRAINT = "org.apache.hadoop.hbase.constraint.ConstraintException"


class TableRecord:
    """A table as the master keeps it."""

    __slots__ = ("descriptor", "state")

    def __init__(self, descriptor: TableDescriptor, state: TableState) -> None:
        self.descriptor = descriptor
        self.state = state


class Master:
    """The active master; in the network it is both a ``Caller`` and a ``Station``."""

    is_hung = False

    def __init__(
        self,
        runtime: Runtime,
        config: ClusterConfig,
        network: Network,
        filesystem: FileSystem,
        registry: Registry,
    ) -> None:
        self.runtime = runtime
        self.config = config
        self.network = network
        self.party = network.party(MASTER)
        self.name = ServerName(MASTER, PORT, runtime.time_ms())
        self.filesystem = filesystem
        self.registry = registry
        self.procedure_lock = runtime.lock()
        self.meta_lock = runtime.lock()
        self.lock = runtime.lock()
        self.handlers = Handlers(runtime, config.handlers, config.call_queue_max, self.party)
        self.states = RegionStates()
        self.tables: dict[bytes, TableRecord] = {}
        self.namespaces: list[bytes] = [b"default", b"hbase"]
        #: Servers whose session has not expired in the master's view; replaced as a whole, read without a lock.
        self.live: Mapping[ServerName, RegionServer] = {}
        #: Servers that were declared dead, and when; some of them may still be running.
        self.dead: dict[ServerName, float] = {}
        self._crashes: list[ServerName] = []
        self._recovering: set[ServerName] = set()
        self.meta = MetaTable(
            self.meta_primary_server, self.call, self.pause, runtime.time_ms, has_barriers=self.has_barriers
        )
        self.assignment = AssignmentManager(self)
        #: Called when the regions of a dead server are open again and its logs are in the archive.
        self.after_recovery: Callable[[ServerName], None] | None = None

    # -- calls -------------------------------------------------------------------------------------------------

    @property
    def is_closed(self) -> bool:
        return self.network.is_closed

    @property
    def is_listening(self) -> bool:
        return not self.network.is_closed

    def check_running(self) -> None:
        pass

    def keep_for_wake_up(self, call: object) -> None:
        pass

    def call(self, server: RegionServer, function: Callable[[], T]) -> T:
        """Run a function on the server, over the network, with the server's admin handlers."""
        return Call(
            self.network,
            self.runtime,
            self,
            server,
            function,
            handlers=server.admin_handlers,
            deadline=self.runtime.now() + self.config.master_rpc_timeout_s,
            is_write=True,
            runs_late=False,
        ).run()

    def pause(self, seconds: float) -> None:
        """Wait a little, unless the cluster is closed. Every loop of a procedure calls this."""
        if self.is_closed:
            raise ConnectionClosed("the cluster was closed")
        self.runtime.sleep(seconds)

    def run(self, procedure: Callable[[], T]) -> T:
        """Run a procedure, one at a time."""
        with self.procedure_lock:
            return procedure()

    # -- servers -----------------------------------------------------------------------------------------------

    def server_started(self, server: RegionServer) -> None:
        """Register a new server; an older incarnation at its address is expired, even if its session is alive."""
        older = [name for name in self.live if name.address == server.name.address]
        with self.lock:
            self.live = {**self.live, server.name: server}
        for name in older:
            self.expire(name)

    def expire(self, name: ServerName) -> bool:
        """Declare a server dead: fence its logs, so that it cannot write any more, and recover its regions."""
        with self.lock:
            server = self.live.get(name)
            if server is None:
                return False
            self.live = {other: kept for other, kept in self.live.items() if other != name}
            self.dead[name] = self.runtime.now()
            self._take_edits(server)
            self._crashes.append(name)
            self._recovering.add(name)
        logger.warning("%s is dead: %d regions to recover", name, self.states.count_on(name))
        self.start_recoveries()
        return True

    def _take_edits(self, server: RegionServer) -> None:
        """Fence the logs and give each region its unflushed edits in them (WAL splitting)."""
        edits: dict[str, list[object]] = {}
        for wal in (server.wal, server.meta_wal):
            wal.fence()
            edits.update(wal.by_region())  # type: ignore[arg-type]  # entries, kept as they are
        for node in self.states.on_server(server.name):
            if node.info.replica_id == 0:
                node.recovered.extend(edits.get(node.encoded, ()))  # type: ignore[arg-type]  # as above

    def start_recoveries(self) -> None:
        """Start the recoveries of crashed servers; if no task is free, the next chore tries again."""
        while self._crashes:
            name = self._crashes.pop(0)
            try:
                self.runtime.start(self._recover, name, name=f"crash-of-{name.host}")
            except Overloaded:
                self._crashes.insert(0, name)
                return
            except ConnectionClosed:
                return

    def _recover(self, name: ServerName) -> None:
        try:
            server_crash.recover(self, name)
            self._recovering.discard(name)
            if self.after_recovery is not None:
                self.after_recovery(name)
        except ConnectionClosed:
            pass  # the cluster is closed
        except MetaClientError:
            logger.exception("the recovery of %s failed", name)

    @property
    def is_recovering(self) -> bool:
        """Return True if regions of dead servers are not open again."""
        return bool(self._recovering)

    def live_server_of(self, node: RegionNode | None) -> RegionServer | None:
        """Return the live server that a copy of a region is assigned to; None when there is no such copy or server."""
        return self.live.get(node.server) if node is not None and node.server is not None else None

    def meta_primary_server(self) -> RegionServer | None:
        node = self.meta_node(0)
        return self.live_server_of(node) if node is not None and node.state is RegionState.OPEN else None

    def meta_node(self, replica_id: int) -> RegionNode | None:
        group = self.meta_group
        return group.nodes[replica_id] if group and replica_id < len(group.nodes) else None

    @property
    def meta_group(self) -> RegionGroup | None:
        return self.states.table(META_TABLE)[0] if META_TABLE in self.tables else None

    def picture(self) -> dict[ServerName, list[balancer.Copy]]:
        """Return the copies of each server, as the balancer takes them."""
        return {name: [copy_of(node) for node in self.states.on_server(name)] for name in self.live}

    # -- start -------------------------------------------------------------------------------------------------

    def start(self, meta_replicas: int) -> None:
        """Open hbase:meta on the registered servers, then add the namespaces."""
        with self.procedure_lock:
            descriptor = meta_descriptor(meta_replicas)
            self.tables[META_TABLE] = TableRecord(descriptor, TableState.ENABLED)
            group = RegionGroup(META_INFO, meta_replicas)
            self.states.add_table(META_TABLE, [group])
            with self.meta_lock:
                self.assignment.assign(group.nodes)
            for namespace in self.namespaces:
                self.meta.add_namespace(namespace)

    # -- questions ---------------------------------------------------------------------------------------------

    def table_names(self) -> list[bytes]:
        """Return the names of the user tables, in order."""
        return sorted(name for name in self.tables if name != META_TABLE)

    def record(self, table: bytes) -> TableRecord:
        found = self.tables.get(table)
        if found is None:
            raise TableNotFound(_about(table, "does not exist"), detail=TableNotFound.java_class)
        return found

    def descriptor_of(self, table: bytes) -> TableDescriptor:
        return self.record(table).descriptor

    def has_barriers(self, table: bytes) -> bool:
        """Return True if a family of the table is replicated: its regions then have barriers in hbase:meta."""
        descriptor = self.descriptor_of(table)
        ships_scope_2 = self.config.peer_replication.scope_2_is_serial
        return has_global_scope(descriptor) or (ships_scope_2 and has_serial_scope(descriptor))

    def check_new(self, table: bytes) -> None:
        if table in self.tables:
            raise TableExists(_about(table, "is already there"), detail=TableExists.java_class)
        namespace = table.partition(b":")[0] if b":" in table else b"default"
        if namespace not in self.namespaces:
            raise RequestRefused(f"namespace {namespace.decode()!r} does not exist", detail=_NO_NAMESPACE)

    def check_enabled(self, table: bytes) -> TableRecord:
        found = self.record(table)
        if found.state is not TableState.ENABLED:
            raise TableDisabled(_about(table, f"is {found.state.name}"), detail=TableDisabled.java_class)
        return found

    def check_disabled(self, table: bytes) -> TableRecord:
        found = self.record(table)
        if table == META_TABLE:
            raise RequestRefused("hbase:meta cannot be disabled, enabled or dropped", detail=_CONSTRAINT)
        if found.state is not TableState.DISABLED:
            raise TableNotDisabled(
                _about(table, f"is {found.state.name}, disable it first"), detail=TableNotDisabled.java_class
            )
        return found

    def set_table_state(self, table: bytes, state: TableState) -> None:
        self.meta.set_table_state(table, state)
        self.record(table).state = state
        logger.info("table %s: %s", table.decode(errors="replace"), state.name)

    # -- namespaces --------------------------------------------------------------------------------------------

    def create_namespace(self, name: bytes) -> None:
        def create() -> None:
            if name in self.namespaces:
                raise RequestRefused(f"namespace {name.decode()!r} is already there", detail=_NAMESPACE_EXISTS)
            self.meta.add_namespace(name)
            self.namespaces.append(name)

        self.run(create)

    def delete_namespace(self, name: bytes) -> None:
        def delete() -> None:
            if name not in self.namespaces:
                raise RequestRefused(f"namespace {name.decode()!r} does not exist", detail=_NO_NAMESPACE)
            if name in (b"default", b"hbase") or any(table.startswith(name + b":") for table in self.tables):
                raise RequestRefused(f"namespace {name.decode()!r} is reserved or has tables", detail=_CONSTRAINT)
            self.meta.delete_namespace(name)
            self.namespaces.remove(name)

        self.run(delete)


def _about(table: bytes, what: str) -> str:
    return f"table {table.decode(errors='replace')!r} {what}"
