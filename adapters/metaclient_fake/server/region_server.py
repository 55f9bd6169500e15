"""Stores one incarnation of a region server: its state, its logs, its regions, and the parts that work on them.

The parts: :class:`DataCalls` answers clients, :class:`Assignments` opens and closes regions for the master,
:class:`Flusher` flushes, compacts and rolls logs, :class:`ReplicationHost` sends and receives replicated edits. The
master decides which server gets which region.

Mirrors HRegionServer (3.x).
"""

from __future__ import annotations

import enum
import logging
from collections.abc import Callable

from metaclient.errors import RequestRefused, ServerStopped
from metaclient.model import ServerName
from metaclient.runtime import Runtime
from metaclient.wording import counted
from metaclient_fake.config.cluster import ClusterConfig
from metaclient_fake.network.handlers import Handlers
from metaclient_fake.network.network import Network
from metaclient_fake.region_replication import ServerReplication
from metaclient_fake.region_replication.secondaries import Secondaries
from metaclient_fake.replication.manager import SourceManager
from metaclient_fake.replication.sink import EntrySink
from metaclient_fake.server.assignments import Assignments
from metaclient_fake.server.data_calls import DataCalls
from metaclient_fake.server.flusher import Flusher
from metaclient_fake.server.nonces import Nonces
from metaclient_fake.server.peers import Peers
from metaclient_fake.server.replication_host import ReplicationHost
from metaclient_fake.server.scanners import Scanners
from metaclient_fake.storage import FileSystem, Region, Wal
from metaclient_fake.storage.meta_index import MetaIndex
from metaclient_fake.storage.stand_ins import Hosted

__all__ = ["RegionServer", "ServerState"]

logger = logging.getLogger(__name__)

_TORN = "a write was interrupted in the middle"

_ABORTED = "org.apache.hadoop.hbase.regionserver.RegionServerAbortedException"


class ServerState(enum.Enum):
    """The states of a server's process."""

    RUNNING = "running"
    PAUSED = "paused"  # hung: accepts connections, never answers, does not renew its session
    STOPPING = "stopping"  # closes its regions; every call gets ServerStopped
    ABORTING = "aborting"  # has lost its log; every call gets ServerStopped until it ends
    DEAD = "dead"  # connections are refused


_TRANSITIONS: dict[ServerState, frozenset[ServerState]] = {
    ServerState.RUNNING: frozenset({ServerState.PAUSED, ServerState.STOPPING, ServerState.ABORTING, ServerState.DEAD}),
    ServerState.PAUSED: frozenset({ServerState.RUNNING, ServerState.DEAD}),
    ServerState.STOPPING: frozenset({ServerState.DEAD}),
    ServerState.ABORTING: frozenset({ServerState.DEAD}),
    ServerState.DEAD: frozenset(),
}


class RegionServer:
    """One incarnation. Maps are changed entry by entry (atomic); ``_lock`` guards opening, closing and late calls."""

    def __init__(
        self,
        name: ServerName,
        *,
        runtime: Runtime,
        config: ClusterConfig,
        network: Network,
        filesystem: FileSystem,
        peers: Peers,
    ) -> None:
        self.name = name
        self.host = name.host
        self.port = name.port
        self.party = network.party(name.host)
        self.config = config
        self._runtime = runtime
        self._network = network
        #: How far this server's wall clock is off; cell timestamps and TTL follow it, leases do not.
        self.clock_skew_ms = 0
        self.wal: Wal = filesystem.create_wal(str(name), time_ms=self.time_ms)
        self.meta_wal: Wal = filesystem.create_wal(f"{name}.meta", time_ms=self.time_ms)
        self._lock = runtime.lock()
        self._late_calls: list[Callable[[], None]] = []
        #: Full region name -> the region, or its stand-in. Read without a lock.
        self.online: dict[bytes, Hosted] = {}
        self.regions: dict[bytes, Region] = {}
        self.meta_indexes: dict[bytes, MetaIndex] = {}
        self._set(ServerState.RUNNING)
        self.stopped_because = ""
        self.slow_s = 0.0
        self.keeps_session_while_paused = False
        #: A server of an older version does not support ``replicateToReplica``, only ``replay``.
        self.knows_replicate_to_replica = True
        #: The sources that ship this server's logs to other clusters; set before the server gets its first region.
        self.sources: SourceManager | None = None
        #: Applies what other clusters ship; None if the server does not take it. Set before the first region is opened.
        self.replication_sink: EntrySink | None = None
        self._make_handlers()
        self._make_parts(filesystem, peers)
        #: True when no partition, delay or full queue affects calls: the backend then calls the method directly.
        self.is_quick = False
        self.update_quick()

    def _make_handlers(self) -> None:
        runtime, config, host = self._runtime, self.config, self.name.host
        self.handlers = Handlers(runtime, config.handlers, config.call_queue_max, host)
        self.meta_handlers = Handlers(runtime, config.meta_handlers, config.call_queue_max, host)
        #: For the master: a server with full call queues can still close its regions.
        self.admin_handlers = Handlers(runtime, config.meta_handlers, config.call_queue_max, host)
        #: For batches from primaries and from other clusters (hbase.regionserver.replication.handler.count).
        self.replication_handlers = Handlers(runtime, config.replication.handlers, config.call_queue_max, host)

    def _make_parts(self, filesystem: FileSystem, peers: Peers) -> None:
        runtime, config = self._runtime, self.config
        self.scanners = Scanners(
            runtime,
            self.name,
            new_id=peers.next_scanner_id,
            lease_s=config.scanner_lease_s,
            scanners_max=config.scanners_max,
            page_bytes_max=config.scan_page_bytes_max,
        )
        self._nonces = Nonces(runtime, is_stopped=lambda: not self.is_listening or self._is_going_down)
        self.replication_host = ReplicationHost(self, runtime, self._network, peers)
        #: The sinks of this server's primaries.
        self.replication = ServerReplication(self.replication_host, peers, runtime, config.replication, self.host)
        self.secondaries = Secondaries(
            runtime,
            config,
            self.online,
            flush_primary=lambda info: peers.flush_primary_of(self, info),
            tell_primary=lambda info: peers.tell_primary_of(self, info),
            on_waiting=peers.replica_waits,
        )
        self._peers = peers
        self.flusher = Flusher(self, config)
        self.assignments = Assignments(self, self._lock, runtime, filesystem, self._nonces)
        self.calls = DataCalls(self, runtime, peers, self.scanners, self._nonces)

    def __repr__(self) -> str:
        return f"RegionServer({self.name}, {self.state.value}, {counted(len(self.online), 'region')})"

    def time_ms(self) -> int:
        return self._runtime.time_ms() + self.clock_skew_ms

    # -- state -------------------------------------------------------------------------------------------------

    @property
    def is_closed(self) -> bool:
        return self._network.is_closed

    def check_running(self) -> None:
        if self._is_going_down:
            raise ServerStopped(f"{self.name} is {self.stopped_because}", detail=_ABORTED)

    def _become(self, state: ServerState) -> None:
        if state not in _TRANSITIONS[self.state]:
            raise RequestRefused(f"{self.host} is {self.state.value}: it cannot become {state.value}")
        logger.info("%s: %s -> %s (%d regions)", self.name, self.state.value, state.value, len(self.online))
        self._set(state)
        self.update_quick()

    def _set(self, state: ServerState) -> None:
        self.state = state
        # Plain attributes: each call reads them several times.
        self.is_running = state is ServerState.RUNNING
        self.is_listening = state is not ServerState.DEAD
        self.is_hung = state is ServerState.PAUSED
        self._is_going_down = state in (ServerState.STOPPING, ServerState.ABORTING)

    def update_quick(self) -> None:
        self.is_quick = (
            self.state is ServerState.RUNNING
            and self._network.is_quiet
            and not self.slow_s
            and not self.config.service_time_s
            and not self.config.meta_service_time_s
            and not self.handlers.is_stuffed
        )

    def pause(self, *, keeps_session: bool = False) -> None:
        self._become(ServerState.PAUSED)
        self.keeps_session_while_paused = keeps_session
        self._network.announce()

    def resume(self) -> int:
        """Wake up and run the calls that waited in the sockets; return how many there were."""
        self._become(ServerState.RUNNING)
        with self._lock:
            late, self._late_calls = self._late_calls, []
        self._network.announce()
        for call in late:
            call()
        return len(late)

    def keep_for_wake_up(self, call: Callable[[], None]) -> None:
        with self._lock:
            if len(self._late_calls) < self.config.late_calls_max:
                self._late_calls.append(call)

    def crash(self) -> None:
        """Stop as after kill -9: the memory and the log entries that were not synced are lost."""
        self._become(ServerState.DEAD)
        self.wal.crash()
        self.meta_wal.crash()
        self._end()

    def abort(self, why: str) -> None:
        """Stop serving: every call gets ServerStopped until :meth:`crash`."""
        if self.state is ServerState.RUNNING:
            self.stopped_because = f"aborting: {why}"
            self._become(ServerState.ABORTING)
            self._network.announce()

    def write_was_torn(self) -> None:
        """Abort, and be replaced by a new incarnation, because an exception cut a write off in the middle.

        The caller's thread runs the server's code, so KeyboardInterrupt and exceptions of signal handlers can be raised
        between two changes that belong together. HBase, too, aborts a server whose memory may be inconsistent. After
        recovery from the log, the write is applied completely or not at all. If an exception interrupts this method,
        too, a second call completes it.
        """
        if self._network.is_closed:
            return
        if self.is_running:
            logger.warning("%s: %s; the server restarts", self.name, _TORN)
            self.abort(_TORN)
        if self.state is ServerState.ABORTING and self.stopped_because.endswith(_TORN):
            self._peers.restart(self)

    def stop(self) -> None:
        """Stop as after SIGTERM: refuse calls, close the regions, end."""
        self._become(ServerState.STOPPING)
        self.stopped_because = "stopping"
        self.replication.close_all()
        try:
            for region in list(self.regions.values()):
                region.close()
        except ServerStopped as error:  # it was declared dead: the master recovers its regions
            logger.info("%s cannot close its regions in order: %s", self.name, error)
            self.crash()
            return
        self._become(ServerState.DEAD)
        self.wal.close()
        self.meta_wal.close()
        self._end()

    def disconnect(self) -> None:
        """Refuse all calls, because the cluster is closed; servers of other clusters may still send some."""
        self.is_listening = self.is_hung = False
        self._close_handlers()
        self.replication.close_all()
        if self.sources is not None:
            self.sources.stop()

    def _close_handlers(self) -> None:
        self.handlers.close()
        self.meta_handlers.close()
        self.admin_handlers.close()
        self.replication_handlers.close()

    def _end(self) -> None:
        self._close_handlers()
        self._nonces.wake()
        self.replication.close_all()
        if self.sources is not None:
            self.sources.stop()
        self.scanners.clear()
        self.secondaries.clear()
        for region in list(self.regions.values()):
            region.close(abort=True)
        self.online.clear()
        with self._lock:
            self.regions.clear()
            self._late_calls.clear()
        self._network.announce()

    def lost_wal(self, error: ServerStopped) -> ServerStopped:
        """Abort because the master has fenced the log; return the error for the caller (YouAreDeadException)."""
        self.abort("its write-ahead log was fenced")
        return ServerStopped(
            f"{self.name} is {self.stopped_because or 'down'}: {error}",
            may_have_applied=error.may_have_applied,
            detail=_ABORTED,
        )
