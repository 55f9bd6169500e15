"""Stores one incarnation of a region server: the regions it has online, its logs, its scanners, its state.

Methods are what runs *on* the server, called through :class:`metaclient_fake.network.call.Call` (or, when nothing is in
the way, directly by the backend's fast path). Which region goes where is the master's business.

Mirrors HRegionServer and RSRpcServices (3.x). A region that is not online answers, in this order (as
``getRegionByEncodedName`` does): RegionMoved while the memory of a move lasts (120 s, naming the *requested* target,
right or not, even while the region is on its way back), RegionOpening, NotServingRegion.

DIVERGENCES:

- a region over its flush size is flushed by the writer that crossed the line, not by a flusher thread;
- a region that opens with references to a parent's files is compacted in the opening call, not soon after.
"""

from __future__ import annotations

import enum
import logging
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Protocol

from metaclient import keys
from metaclient.backend import Action, MetaPage, MetaScan, Outcome, ScanPage
from metaclient.errors import (
    MetaClientError,
    NotServingRegion,
    RegionMoved,
    RegionOpening,
    RequestRefused,
    ServerStopped,
    ServerUnreachable,
    Unsupported,
    WrongRegion,
)
from metaclient.model import (
    META_TABLE,
    Append,
    Check,
    Delete,
    Get,
    Increment,
    Mutation,
    Put,
    RegionInfo,
    Result,
    Scan,
    ServerName,
    TableDescriptor,
)
from metaclient.runtime import Runtime
from metaclient.wording import counted
from metaclient_fake.config.cluster import ClusterConfig
from metaclient_fake.network.call import Call
from metaclient_fake.network.handlers import Handlers
from metaclient_fake.network.network import Network
from metaclient_fake.region_replication import Acknowledged, ServerReplication, Sink
from metaclient_fake.region_replication.secondaries import Secondaries
from metaclient_fake.region_replication.server import ReplicaDirectory, ReplicaHost
from metaclient_fake.server.multi import run_batch
from metaclient_fake.server.nonces import Nonces
from metaclient_fake.server.scanners import ScannerHandle, Scanners
from metaclient_fake.storage import FileSystem, FlushOutcome, Region, Wal, WalEntry
from metaclient_fake.storage.meta_index import MetaIndex, Tear
from metaclient_fake.storage.stand_ins import ClosingRegion, EmptyRegion, Hosted
from metaclient_fake.storage.wal import LoggedEntry

__all__ = ["OpenRequest", "Peers", "RegionServer", "ServerState"]

logger = logging.getLogger(__name__)

_WITH_NONCE = (Increment, Append)
_SANITY = "org.apache.hadoop.hbase.exceptions.FailedSanityCheckException"
#: A counter that is further ahead was given its time by a client, who must live with it.
COUNTER_AHEAD_MS_MAX = 100
_ABORTED = "org.apache.hadoop.hbase.regionserver.RegionServerAbortedException"


class ServerState(enum.Enum):
    """What a server's process is doing."""

    RUNNING = "running"
    PAUSED = "paused"  # hung: connects, never answers, does not renew its session
    STOPPING = "stopping"  # told to stop: says so to everybody while it closes its regions
    ABORTING = "aborting"  # found out that it must not go on: says so to everybody, then ends
    DEAD = "dead"  # nobody listens


_TRANSITIONS: dict[ServerState, frozenset[ServerState]] = {
    ServerState.RUNNING: frozenset({ServerState.PAUSED, ServerState.STOPPING, ServerState.ABORTING, ServerState.DEAD}),
    ServerState.PAUSED: frozenset({ServerState.RUNNING, ServerState.DEAD}),
    ServerState.STOPPING: frozenset({ServerState.DEAD}),
    ServerState.ABORTING: frozenset({ServerState.DEAD}),
    ServerState.DEAD: frozenset(),
}


@dataclass(frozen=True, slots=True)
class OpenRequest:
    """What the master sends to open a region: who it is, and what its old server's log still holds of it."""

    info: RegionInfo
    name: bytes
    descriptor: TableDescriptor
    recovered: Sequence[WalEntry] = ()


@dataclass(frozen=True, slots=True)
class _Moved:
    target: ServerName
    seqnum: int
    until: float


class Peers(ReplicaDirectory, Protocol):
    """Whom a server asks about others: the cluster."""

    def flush_primary_of(self, asker: RegionServer, info: RegionInfo) -> bool:
        """Have the primary flush all families, over the network; False when it could not be reached."""
        ...

    def tell_primary_of(self, asker: RegionServer, info: RegionInfo) -> None:
        """Tell the primary, over the network, that this replica has opened and waits for a flush."""
        ...

    def replica_waits(self) -> None:
        """One of its secondaries waits for something: have it looked at."""
        ...

    def acknowledged(self, name: bytes, families: frozenset[bytes] | None = None) -> Acknowledged | None:
        """What its primary knows that the replica of this name has; None when that is not known."""
        ...

    def server_at(self, host: str) -> RegionServer | None: ...

    def next_scanner_id(self) -> int: ...

    def count_meta_read(self, replica_id: int) -> None: ...


class RegionServer:
    """One incarnation. Maps are replaced entry by entry (atomic); ``_lock`` guards opening and closing."""

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
        self.party = name.host
        self.config = config
        self._runtime = runtime
        self._network = network
        self._filesystem = filesystem
        self._peers = peers
        #: How far this server's wall clock is off; cell timestamps and TTL follow it, leases do not.
        self.clock_skew_ms = 0
        self.wal: Wal = filesystem.create_wal(str(name))
        self.meta_wal: Wal = filesystem.create_wal(f"{name}.meta")
        self.handlers = Handlers(runtime, config.handlers, config.call_queue_max, name.host)
        self.meta_handlers = Handlers(runtime, config.meta_handlers, config.call_queue_max, name.host)
        #: For the master: a server that drowns in calls can still be told to close its regions.
        self.admin_handlers = Handlers(runtime, config.meta_handlers, config.call_queue_max, name.host)
        self.scanners = Scanners(
            runtime,
            name,
            new_id=peers.next_scanner_id,
            lease_s=config.scanner_lease_s,
            scanners_max=config.scanners_max,
            page_bytes_max=config.scan_page_bytes_max,
        )
        self._nonces = Nonces(runtime, is_stopped=lambda: not self.is_listening or self._is_going_down)
        self._lock = runtime.lock()
        #: Full region name -> the region, or what stands in for it. Read without a lock.
        self.online: dict[bytes, Hosted] = {}
        self.regions: dict[bytes, Region] = {}
        self._opening: set[bytes] = set()
        self._moved: dict[bytes, _Moved] = {}
        self._meta_indexes: dict[bytes, MetaIndex] = {}
        #: For batches from primaries (hbase.regionserver.replication.handler.count).
        self.replication_handlers = Handlers(runtime, config.replication.handlers, config.call_queue_max, name.host)
        #: What this server's primaries push.
        self.replication = ServerReplication(self, peers, runtime, config.replication, name.host)
        #: A server of an older version does not know ``replicateToReplica``, only ``replay``.
        self.knows_replicate_to_replica = True
        self.secondaries = Secondaries(
            runtime,
            config,
            self.online,
            flush_primary=lambda info: peers.flush_primary_of(self, info),
            tell_primary=lambda info: peers.tell_primary_of(self, info),
            on_waiting=peers.replica_waits,
        )
        self._late_calls: list[Callable[[], None]] = []
        self._set(ServerState.RUNNING)
        self.stopped_because = ""
        self.slow_s = 0.0
        self.keeps_session_while_paused = False
        self.flushes_stalled = False
        #: True when a call meets no wait on the way: the backend then goes straight in.
        self.is_quick = False
        self.update_quick()

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
        # Plain values: each call looks at them several times.
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
        """Wake up: whoever still waits goes on, and what waited in the sockets is answered; how much that was."""
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
        """kill -9: what was not synced is gone, and so is everything in memory."""
        self._become(ServerState.DEAD)
        self.wal.crash()
        self.meta_wal.crash()
        self._end()

    def abort(self, why: str) -> None:
        """The server found out that it must not go on; it answers ServerStopped until :meth:`crash`."""
        if self.state is ServerState.RUNNING:
            self._become(ServerState.ABORTING)
            self.stopped_because = f"aborting: {why}"
            self._network.announce()

    def stop(self) -> None:
        """SIGTERM: refuse calls, close the regions in order, end."""
        self._become(ServerState.STOPPING)
        self.stopped_because = "stopping"
        self.replication.close_all()
        try:
            for region in list(self.regions.values()):
                region.close()
        except ServerStopped as error:  # it was declared dead, and its regions are others' business now
            logger.info("%s cannot close its regions in order: %s", self.name, error)
            self.crash()
            return
        self._become(ServerState.DEAD)
        self.wal.close()
        self.meta_wal.close()
        self._end()

    def _end(self) -> None:
        self.handlers.close()
        self.meta_handlers.close()
        self.admin_handlers.close()
        self.replication_handlers.close()
        self._nonces.wake()
        self.replication.close_all()
        self.scanners.clear()
        self.secondaries.clear()
        for region in list(self.regions.values()):
            region.close(abort=True)
        self.online.clear()
        with self._lock:
            self.regions.clear()
            self._late_calls.clear()
        self._network.announce()

    # -- reads and writes --------------------------------------------------------------------------------------

    def get(self, region_name: bytes, get: Get) -> Result:
        return self._get(region_name, self._hosted(region_name), get)

    def _get(self, region_name: bytes, hosted: Hosted, get: Get) -> Result:
        if hosted.is_primary:
            return hosted.get(get)
        as_of = self._complete_as_of(region_name, hosted, get.columns)
        result = hosted.get(get)
        return result._replace(lag_s=self.lag_s(as_of))

    def complete_as_of(self, region_name: bytes, families: frozenset[bytes] | None = None) -> float | None:
        """Everything that was acknowledged before this instant is in a read of a secondary that begins after this call.

        None when no such instant is known. The primary is asked first, then this copy whether it is the one that the
        primary means, then the row is read: what comes in between only makes the answer better.
        """
        return self.secondaries.complete_as_of(region_name, self._peers.acknowledged(region_name, families))

    def _complete_as_of(self, region_name: bytes, hosted: Hosted, columns: Sequence[bytes]) -> float | None:
        if isinstance(hosted, EmptyRegion):
            return None
        # Of user tables all families are pushed.
        is_meta = columns and region_name in self._meta_indexes
        families = frozenset([name.partition(b":")[0] for name in columns]) if is_meta else None
        return self.complete_as_of(region_name, families)

    def lag_s(self, as_of: float | None) -> float | None:
        """How long ago that was; asked after the read, so that what was acknowledged during it is covered."""
        return None if as_of is None else self._runtime.now() - as_of

    def mutate(self, region_name: bytes, mutation: Mutation, nonce_group: int = 0) -> Result | None:
        hosted = self.online.get(region_name) or self._hosted(region_name)
        try:
            if type(mutation) in _WITH_NONCE:
                result = self._mutate_once(hosted, mutation, nonce_group)  # type: ignore[arg-type]  # was looked at
            else:
                result = hosted.mutate(mutation)
        except WrongRegion as error:
            raise _insane(error) from error
        except ServerStopped as error:
            raise self._lost_wal(error) from error
        region = self.regions.get(region_name)
        if region is not None and (region.memstore_bytes > region.flush_bytes or region_name in self._meta_indexes):
            self._written(region_name, (mutation.row,))
        if result is not None and result.cells:
            self._let_clock_catch_up(result)
        return result

    def _mutate_once(self, hosted: Hosted, mutation: Increment | Append, nonce_group: int) -> Result | None:
        if mutation.nonce is None:
            return hosted.mutate(mutation)
        return self._nonces.once(
            (nonce_group, mutation.nonce),
            lambda is_repetition: hosted.mutate(mutation, nonce_group=nonce_group, is_repetition=is_repetition),
        )

    def _let_clock_catch_up(self, result: Result) -> None:
        """A counter's new value is a millisecond newer than the old one, and so may be ahead of the clock.

        A real server's log takes longer than that. Here the answer waits, or a put that follows it would be older than
        the counter that it replaces.
        """
        ahead_ms = max(cell.timestamp for cell in result.cells) - self.time_ms()
        if 0 < ahead_ms <= COUNTER_AHEAD_MS_MAX:
            self._runtime.sleep(ahead_ms / 1000)

    def check_and_mutate(self, region_name: bytes, check: Check, mutation: Mutation, nonce_group: int = 0) -> bool:
        if check.row != mutation.row:
            raise RequestRefused(
                f"the check is on row {keys.printable(check.row)}, the mutation on {keys.printable(mutation.row)}"
            )
        hosted = self._hosted(region_name)
        try:
            applied = self._check_once(hosted, check, mutation, nonce_group)
        except WrongRegion as error:
            raise _insane(error) from error
        except ServerStopped as error:
            raise self._lost_wal(error) from error
        if applied:
            self._written(region_name, (mutation.row,))
        return applied

    def _check_once(self, hosted: Hosted, check: Check, mutation: Mutation, nonce_group: int) -> bool:
        """A check that fails applies nothing, so that its nonce may be used again."""
        nonce = mutation.nonce if isinstance(mutation, _WITH_NONCE) else None
        if nonce is None:
            return hosted.check_and_mutate(check, mutation)
        return self._nonces.once(
            (nonce_group, nonce),
            lambda is_repetition: hosted.check_and_mutate(
                check, mutation, nonce_group=nonce_group, is_repetition=is_repetition
            ),
            is_applied=bool,
        )

    def batch(self, actions: Sequence[Action], nonce_group: int = 0) -> list[Outcome]:
        """Multi: an outcome for each action."""
        mutate = partial(self.mutate, nonce_group=nonce_group) if nonce_group else self.mutate
        return run_batch(actions, find=self._hosted, get=self._get, mutate=mutate, apply=self._apply)

    def _apply(self, region_name: bytes, hosted: Hosted, mutations: Sequence[Put | Delete]) -> list[Outcome]:
        outcomes = [self._told(outcome) for outcome in hosted.batch(mutations)]
        self._written(region_name, [mutation.row for mutation in mutations])
        return outcomes

    def _told(self, outcome: Outcome) -> Outcome:
        """An outcome as clients see it."""
        if isinstance(outcome, ServerStopped):
            return self._lost_wal(outcome)
        return _insane(outcome) if isinstance(outcome, WrongRegion) else outcome

    def _hosted(self, region_name: bytes) -> Hosted:
        hosted = self.online.get(region_name)
        if hosted is None:
            raise self.unavailable(region_name)
        return hosted

    def unavailable(self, region_name: bytes) -> NotServingRegion:
        """Why this server does not have the region, as far as it remembers."""
        moved = self._moved.get(region_name)
        if moved is not None:
            if self._runtime.now() < moved.until:
                target = moved.target
                return RegionMoved(
                    f"Region moved to: hostname={target.host} port={target.port} startCode={target.start_code}. "
                    f"As of locationSeqNum={moved.seqnum}.",
                    server=target,
                    seqnum=moved.seqnum,
                    detail=RegionMoved.java_class,
                )
            self._moved.pop(region_name, None)
        shown = keys.printable(region_name, 200)
        if region_name in self._opening:
            return RegionOpening(f"Region {shown} is opening on {self.name}", detail=RegionOpening.java_class)
        return NotServingRegion(f"{shown} is not online on {self.name}", detail=NotServingRegion.java_class)

    def _lost_wal(self, error: ServerStopped) -> ServerStopped:
        """The log was taken away: the master thinks that we are dead, and it is right to (YouAreDeadException)."""
        self.abort("its write-ahead log was fenced")
        return ServerStopped(
            f"{self.name} is {self.stopped_because or 'down'}: {error}",
            may_have_applied=error.may_have_applied,
            detail=_ABORTED,
        )

    def _written(self, region_name: bytes, rows: Sequence[bytes]) -> None:
        region = self.regions.get(region_name)
        if region is None:
            return
        index = self._meta_indexes.get(region_name)
        if index is not None:
            index.mark(rows)
        if region.memstore_bytes > region.flush_bytes:
            self.flush_region(region)

    # -- scans -------------------------------------------------------------------------------------------------

    def scan_open(self, region_name: bytes, scan: Scan) -> ScanPage:
        hosted = self._hosted(region_name)
        is_stale = not hosted.is_primary
        # A scanner shows the moment at which it was opened, however late its pages are read.
        as_of = self._complete_as_of(region_name, hosted, scan.columns) if is_stale else None
        return self.scanners.open(hosted.scanner(scan), region_name, scan, is_stale, as_of)

    def scan_next(self, handle: ScannerHandle, rows: int) -> ScanPage:
        return self.scanners.next(handle, rows, self.is_serving)

    def scan_renew(self, handle: ScannerHandle) -> ScannerHandle:
        return self.scanners.renew(handle, self.is_serving)

    def scan_close(self, handle: ScannerHandle) -> None:
        self.scanners.close(handle)

    def is_serving(self, region_name: bytes) -> bool:
        hosted = self.online.get(region_name)
        return hosted is not None and not isinstance(hosted, ClosingRegion)

    # -- hbase:meta --------------------------------------------------------------------------------------------

    def read_meta(self, replica_id: int, scan: MetaScan) -> MetaPage:
        name = keys.meta_region_name(replica_id)
        hosted = self._hosted(name)
        self._peers.count_meta_read(replica_id)
        is_stale = replica_id > 0
        if isinstance(hosted, ClosingRegion | EmptyRegion):
            hosted.scanner(_WHOLE)
            return MetaPage((), is_stale)
        self.regions[name].check_readable()
        index = self._meta_indexes[name]
        as_of = self.complete_as_of(name, frozenset(scan.families) or None) if is_stale else None
        was_torn = index.is_torn
        rows = index.page(scan)
        return MetaPage(rows, is_stale, None if was_torn or index.is_torn else self.lag_s(as_of))

    def get_meta(self, replica_id: int, get: Get) -> Result:
        """One row of hbase:meta with its versions and times, as any client may ask for it; a lookup like others."""
        self._peers.count_meta_read(replica_id)
        return self.get(keys.meta_region_name(replica_id), get)

    def scan_meta(
        self, replica_id: int, scan: MetaScan, without: Collection[bytes], get: Callable[[bytes], Get]
    ) -> tuple[list[Result], bool]:
        """A page of hbase:meta with versions and times, and whether it is the last; not the rows of ``without``.

        Which rows, and in which order, is the index's business; what is in them is read by ``get(row)``.
        """
        limit = scan.limit + len(without)
        page = self.read_meta(replica_id, replace(scan, limit=limit))
        name = keys.meta_region_name(replica_id)
        found: list[Result] = []
        for row in [row for row in page.rows if row.row not in without][: scan.limit]:
            result = self.get(name, get(row.row))
            # A torn row shows its first cells only.
            found.append(result._replace(cells=[cell for cell in result.cells if cell.column in row.columns]))
        return found, len(page.rows) < limit

    def tear_meta(self, replica_id: int, tear: Tear) -> None:
        index = self._meta_indexes.get(keys.meta_region_name(replica_id))
        if index is not None:
            index.tear(tear)

    # -- opening and closing -----------------------------------------------------------------------------------

    def begin_open(self, names: Sequence[bytes]) -> None:
        self.check_running()
        with self._lock:
            self._opening.update(names)

    def complete_open(self, requests: Sequence[OpenRequest]) -> list[int | MetaClientError]:
        """Open the regions; for each the sequence number of its open, or why it did not."""
        self.check_running()
        return [self._open(request) for request in requests]

    def _open(self, request: OpenRequest) -> int | MetaClientError:
        info, name = request.info, request.name
        if name in self.regions:
            return self.regions[name].open_seqnum  # asked twice: the first answer was lost
        listed = self._filesystem.region(info).all_files() if info.table == META_TABLE else ()
        try:
            region = self._opened_region(request)
        except MetaClientError as error:
            return error
        finally:
            with self._lock:
                self._opening.discard(name)
        with self._lock:
            self._moved.pop(name, None)
            self.regions[name] = region
        if info.table == META_TABLE:
            self._meta_indexes[name] = MetaIndex(region, self._runtime)
            self._meta_indexes[name].mark_files(listed)
        if info.replica_id == 0:
            self.online[name] = region
            if region.has_references:
                region.compact(major=True)  # HBase asks for it here, too: a parent's files are needed until it is done
        else:
            index = self._meta_indexes.get(name)
            self.secondaries.opened(name, region, self._filesystem.region(info), index)
        return region.open_seqnum

    def _opened_region(self, request: OpenRequest) -> Region:
        info = request.info
        now_ms = self.time_ms()
        for entry in request.recovered:
            if entry.nonce is not None:
                self._nonces.report(entry.nonce, (now_ms - entry.write_time_ms) / 1000)
        sink = self.replication.open_sink(info, request.descriptor)
        try:
            return self._region_with(sink, request)
        except BaseException:
            self.replication.close_sink(request.name)
            raise

    def _region_with(self, sink: Sink | None, request: OpenRequest) -> Region:
        info = request.info
        wal = None if info.replica_id else self.meta_wal if info.table == META_TABLE else self.wal
        return Region.open(
            info,
            request.descriptor,
            self._filesystem,
            wal=wal,
            runtime=self._runtime,
            config=self.config.storage,
            recovered=request.recovered,
            on_commit=sink.add if sink is not None else None,
            on_row=sink.on_row if sink is not None else None,
            time_ms=self.time_ms,
        )

    def begin_close(self, names: Sequence[bytes]) -> Sequence[None]:
        """Stop serving; a region that is not here is closed already (the master may ask twice)."""
        self.check_running()
        for name in names:
            region = self.regions.get(name)
            if region is not None:
                self.online[name] = ClosingRegion(region)
        return []

    def complete_close(self, names: Sequence[bytes], target: ServerName | None) -> list[int]:
        """Flush and close; remember for two minutes where the master wanted them to go."""
        self.check_running()
        return [self._close(name, target) for name in names]

    def _close(self, name: bytes, target: ServerName | None) -> int:
        region = self.regions.get(name)
        if region is None:
            return -1
        self.replication.close_sink(name)
        try:
            seqnum = region.close()
        except ServerStopped as error:
            raise self._lost_wal(error) from error
        self._forget(name)
        if target is not None and target != self.name:
            until = self._runtime.now() + self.config.moved_memory_s
            self._moved[name] = _Moved(target, seqnum, until)
        return seqnum

    def _forget(self, name: bytes) -> None:
        self.online.pop(name, None)
        with self._lock:
            self.regions.pop(name, None)
        self._meta_indexes.pop(name, None)
        self.secondaries.closed(name)

    # -- region replication ------------------------------------------------------------------------------------

    def replicate_to_replica(self, name: bytes, epoch: int, entries: Sequence[LoggedEntry], deadline: float) -> None:
        """A batch of a primary for a secondary here (RSRpcServices.replicateToReplica)."""
        if not self.knows_replicate_to_replica:
            raise Unsupported(f"{self.name} does not know replicateToReplica")
        self._replay(name, epoch, entries, deadline)

    def replay(self, name: bytes, epoch: int, entries: Sequence[LoggedEntry], deadline: float) -> None:
        """The same for primaries of older versions."""
        self._replay(name, epoch, entries, deadline)

    def _replay(self, name: bytes, epoch: int, entries: Sequence[LoggedEntry], deadline: float) -> None:
        if not entries:
            return
        region = self.regions.get(name)
        if region is None or isinstance(self.online.get(name), ClosingRegion):
            raise self.unavailable(name)
        if region.is_primary:
            raise RequestRefused(f"{region} is a primary: batches are for secondaries")
        self.secondaries.replay(name, epoch, entries, deadline)

    def replica_opened(self, name: bytes, replica_id: int) -> None:
        """A replica of a primary here has opened, and waits for a flush or word that there is nothing to flush."""
        if name not in self.regions:
            raise self.unavailable(name)
        self.replication.replica_opened(name, replica_id)

    def is_running_or_wakes(self) -> bool:
        """What a hung server has begun goes on when it wakes up; False when it has stopped."""
        if self.is_hung:
            self._network.wait_until(lambda: not self.is_hung or self._network.is_closed, None)
        return self.is_running and not self._network.is_closed

    def call_server(self, host: str, function: Callable[[ReplicaHost], None], deadline: float) -> None:
        """Run it on another server, in its handlers for replication; on this one there is no network in between."""
        target = self._peers.server_at(host)
        if target is None:
            raise ServerUnreachable(f"there is no server {host}")
        if target is self:
            function(self)
            return
        Call(
            self._network,
            self._runtime,
            self,
            target,
            lambda: function(target),
            handlers=target.replication_handlers,
            deadline=deadline,
            service_s=target.slow_s,
            is_write=True,
            may_repeat=True,
        ).run()

    # -- chores ------------------------------------------------------------------------------------------------

    def flush_region(self, region: Region) -> bool:
        """Flush a primary, and compact it when its files have become many; False when it could not."""
        if self.flushes_stalled or not region.is_primary:
            return False
        try:
            result = region.flush()
            if result.needs_compaction:
                region.compact()
        except ServerStopped as error:
            self._lost_wal(error)
            return False
        return result.outcome is not FlushOutcome.CANNOT_FLUSH

    def flush_table(self, table: bytes | None) -> int:
        """Flush this server's primaries of a table (None = of all); how many could be."""
        self.check_running()
        chosen = [region for region in list(self.regions.values()) if table is None or region.info.table == table]
        return sum(1 for region in chosen if self.flush_region(region))

    def compact_table(self, table: bytes, major: bool) -> int:
        self.check_running()
        chosen = [region for region in list(self.regions.values()) if region.info.table == table]
        return sum(1 for region in chosen if region.is_primary and region.compact(major=major))

    def relieve_memory(self) -> None:
        """MemStoreFlusher above the global mark: flush the biggest primaries until the server is under it.

        A secondary cannot be flushed; one that is much bigger than every primary looks at its primary's files instead,
        which frees what they cover. Where the server has primaries, hbase.region.replica.storefile.refresh switches it
        off.
        """
        regions = sorted(self.regions.values(), key=lambda region: region.memstore_bytes, reverse=True)
        primaries = [region for region in regions if region.is_primary]
        secondaries = [region for region in regions if not region.is_primary]
        may_refresh = self.config.replication.refreshes_under_pressure or not primaries
        used = sum(region.memstore_bytes for region in regions)
        while used > self.config.memstore_global_bytes and (primaries or secondaries):
            if secondaries and may_refresh and self._is_secondary_first(secondaries[0], primaries):
                relieved = secondaries.pop(0)
                before = relieved.memstore_bytes
                self.secondaries.refresh_one(relieved.info.name)
                used -= before - relieved.memstore_bytes
            elif primaries:
                relieved = primaries.pop(0)
                used -= relieved.memstore_bytes
                self.flush_region(relieved)
            else:
                break

    def _is_secondary_first(self, secondary: Region, primaries: Sequence[Region]) -> bool:
        multiplier = self.config.replication.memstore_multiplier
        return not primaries or secondary.memstore_bytes > multiplier * primaries[0].memstore_bytes

    def roll_logs(self, entries_max: int) -> None:
        """Begin new log files when the current ones are long, and flush what keeps old ones from the archive."""
        for wal in (self.wal, self.meta_wal):
            if wal.is_closed:
                continue
            if len(wal.files[-1]) >= entries_max:
                wal.roll()
            for encoded in wal.regions_to_flush(self.config.storage.wal_files_max):
                for region in list(self.regions.values()):
                    if region.info.encoded_name == encoded:
                        self.flush_region(region)

    def forget_moves(self) -> None:
        now = self._runtime.now()
        for name, moved in list(self._moved.items()):
            if moved.until <= now:
                self._moved.pop(name, None)


_WHOLE = Scan()


def _insane(error: WrongRegion) -> RequestRefused:
    """A write to a row outside of the region is no wrong region in HBase but a final no (2.6.1)."""
    return RequestRefused(str(error), detail=_SANITY)
