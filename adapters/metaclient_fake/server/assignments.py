"""Decides how a region server opens and closes the regions that the master assigns to it.

Mirrors AssignRegionHandler and UnassignRegionHandler (3.x). A region that is not online answers, in this order (as
``HRegionServer.getRegionByEncodedName`` does): RegionMoved for ``moved_memory_s`` after a move (120 s; it names the
*requested* target, right or not, even while the region is moving back), RegionOpening, NotServingRegion.

DIVERGENCE: a region that opens with references to a parent's files is compacted in the opening call, not soon after.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from metaclient import keys
from metaclient.errors import MetaClientError, NotServingRegion, RegionMoved, RegionOpening, ServerStopped
from metaclient.model import META_TABLE, RegionInfo, ServerName, TableDescriptor
from metaclient.runtime import Lock, Runtime
from metaclient_fake.region_replication import Sink
from metaclient_fake.server.nonces import Nonces
from metaclient_fake.storage import FileSystem, Region, WalEntry
from metaclient_fake.storage.meta_index import MetaIndex
from metaclient_fake.storage.stand_ins import ClosingRegion

if TYPE_CHECKING:
    from metaclient_fake.server.region_server import RegionServer

__all__ = ["Assignments", "OpenRequest"]


@dataclass(frozen=True, slots=True)
class OpenRequest:
    """The master's request to open a region; ``recovered`` are its entries in the log of a dead server."""

    info: RegionInfo
    name: bytes
    descriptor: TableDescriptor
    recovered: Sequence[WalEntry] = ()


@dataclass(frozen=True, slots=True)
class _Moved:
    target: ServerName
    seqnum: int
    until: float


class Assignments:
    """Opens and closes the regions of one server, and remembers the regions that it opens or has moved away.

    ``_lock`` is the server's: it guards the set of opening regions and the server's map of regions.
    """

    def __init__(
        self, server: RegionServer, lock: Lock, runtime: Runtime, filesystem: FileSystem, nonces: Nonces
    ) -> None:
        self._server = server
        self._runtime = runtime
        self._filesystem = filesystem
        self._nonces = nonces
        self._lock = lock
        self._opening: set[bytes] = set()
        self._moved: dict[bytes, _Moved] = {}

    def begin_open(self, names: Sequence[bytes]) -> None:
        self._server.check_running()
        with self._lock:
            self._opening.update(names)

    def complete_open(self, requests: Sequence[OpenRequest]) -> list[int | MetaClientError]:
        """Open the regions; return the sequence number of each open, or its error."""
        self._server.check_running()
        return [self._open(request) for request in requests]

    def _open(self, request: OpenRequest) -> int | MetaClientError:
        info, name = request.info, request.name
        if name in self._server.regions:
            return self._server.regions[name].open_seqnum  # a repeated request: the first answer was lost
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
            self._server.regions[name] = region
        if info.table == META_TABLE:
            self._server.meta_indexes[name] = MetaIndex(region, self._runtime)
            self._server.meta_indexes[name].mark_files(listed)
        if info.replica_id == 0:
            self._server.online[name] = region
            if region.has_references:
                region.compact(major=True)  # as HBase: the parent's files are needed until this is done
        else:
            index = self._server.meta_indexes.get(name)
            self._server.secondaries.opened(name, region, self._filesystem.region(info), index)
        return region.open_seqnum

    def _opened_region(self, request: OpenRequest) -> Region:
        info = request.info
        now_ms = self._server.time_ms()
        for entry in request.recovered:
            if entry.nonce is not None:
                self._nonces.report(entry.nonce, (now_ms - entry.write_time_ms) / 1000)
        sink = self._server.replication.open_sink(info, request.descriptor)
        try:
            return self._region_with(sink, request)
        except BaseException:
            self._server.replication.close_sink(request.name)
            raise

    def _region_with(self, sink: Sink | None, request: OpenRequest) -> Region:
        info = request.info
        wal = None if info.replica_id else self._server.meta_wal if info.table == META_TABLE else self._server.wal
        return Region.open(
            info,
            request.descriptor,
            self._filesystem,
            wal=wal,
            runtime=self._runtime,
            config=self._server.config.storage,
            recovered=request.recovered,
            on_commit=sink.add if sink is not None else None,
            time_ms=self._server.time_ms,
        )

    def begin_close(self, names: Sequence[bytes]) -> Sequence[None]:
        """Stop serving the regions; one that is not here is closed already (the master may repeat the request)."""
        self._server.check_running()
        for name in names:
            region = self._server.regions.get(name)
            if region is not None:
                self._server.online[name] = ClosingRegion(region)
        return []

    def complete_close(self, names: Sequence[bytes], target: ServerName | None) -> list[int]:
        """Flush and close the regions; remember for ``moved_memory_s`` which server the master moves them to."""
        self._server.check_running()
        return [self._close(name, target) for name in names]

    def _close(self, name: bytes, target: ServerName | None) -> int:
        region = self._server.regions.get(name)
        if region is None:
            return -1
        self._server.replication.close_sink(name)
        try:
            seqnum = region.close()
        except ServerStopped as error:
            raise self._server.lost_wal(error) from error
        self._forget(name)
        if target is not None and target != self._server.name:
            until = self._runtime.now() + self._server.config.moved_memory_s
            self._moved[name] = _Moved(target, seqnum, until)
        return seqnum

    def _forget(self, name: bytes) -> None:
        self._server.online.pop(name, None)
        with self._lock:
            self._server.regions.pop(name, None)
        self._server.meta_indexes.pop(name, None)
        self._server.secondaries.closed(name)

    # -- regions that are not here -----------------------------------------------------------------------------

    def is_serving(self, region_name: bytes) -> bool:
        hosted = self._server.online.get(region_name)
        return hosted is not None and not isinstance(hosted, ClosingRegion)

    def unavailable(self, region_name: bytes) -> NotServingRegion:
        """Return the error for a call on a region that is not online here."""
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
            return RegionOpening(f"Region {shown} is opening on {self._server.name}", detail=RegionOpening.java_class)
        return NotServingRegion(f"{shown} is not online on {self._server.name}", detail=NotServingRegion.java_class)

    def forget_moves(self) -> None:
        now = self._runtime.now()
        for name, moved in list(self._moved.items()):
            if moved.until <= now:
                self._moved.pop(name, None)
