"""Stores the sinks of one region server, and decides which regions have one.

A primary has a sink when its table has more than one copy and replication is on for it; the sink lives as long as the
region is open here. A sink is not persisted: after a crash or a move, the next open begins with an open marker, and
the replicas get the edits that were not sent as files (HBASE-18070).
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

from metaclient.errors import RequestRefused
from metaclient.model import META_TABLE, RegionInfo, TableDescriptor
from metaclient.runtime import Runtime
from metaclient_fake.config.region_replication import ReplicationConfig
from metaclient_fake.region_replication.buffer_manager import BufferManager
from metaclient_fake.region_replication.flush_requester import FlushRequester
from metaclient_fake.region_replication.replica_queue import Batch
from metaclient_fake.region_replication.sender import ReplicaSender, SendSlots
from metaclient_fake.region_replication.sink import Sink, SinkState
from metaclient_fake.region_replication.sink_source import SinkSource
from metaclient_fake.storage import Region
from metaclient_fake.storage.wal import LoggedEntry

__all__ = ["PrimaryHost", "ReplicaDirectory", "ReplicaHost", "ServerReplication", "has_memstore_replication", "is_on"]

logger = logging.getLogger(__name__)

#: A flush that could not be run (one is running, the region is still opening) is tried again this often ...
_FLUSH_TRIES = 50
#: ... after this pause; then it waits for the requester's interval.
_FLUSH_PAUSE_S = 0.1
_META_FAMILIES = frozenset({b"info"})


def is_on(config: ReplicationConfig, descriptor: TableDescriptor) -> bool:
    """Return True if primaries of this table push edits (ServerRegionReplicaUtil; the general key includes meta)."""
    if descriptor.region_replication < 2:
        return False
    return config.pushes_meta if descriptor.name == META_TABLE else config.pushes_user_tables


def _has_sink(config: ReplicationConfig, descriptor: TableDescriptor) -> bool:
    """Return True if a primary has a sink; ``hbase:meta`` has one even without replicas: they come without a reopen."""
    if descriptor.name == META_TABLE:
        return config.pushes_meta
    return is_on(config, descriptor)


def has_memstore_replication(descriptor: TableDescriptor) -> bool:
    """Return the attribute REGION_MEMSTORE_REPLICATION; if it is false, only markers are sent."""
    return dict(descriptor.attributes).get("REGION_MEMSTORE_REPLICATION", "true").lower() != "false"


class ReplicaHost(Protocol):
    """A region server as the target of batches."""

    def replicate_to_replica(
        self, name: bytes, epoch: int, entries: Sequence[LoggedEntry], deadline: float
    ) -> None: ...

    def replay(self, name: bytes, epoch: int, entries: Sequence[LoggedEntry], deadline: float) -> None: ...


class PrimaryHost(Protocol):
    """The region server that the sinks belong to."""

    @property
    def regions(self) -> Mapping[bytes, Region]: ...

    def flush_region(self, region: Region) -> bool: ...

    def is_running_or_wakes(self) -> bool:
        """Wait while the server hangs; return False if it is not running any more."""
        ...

    def call_server(self, host: str, function: Callable[[ReplicaHost], None], deadline: float) -> None:
        """Run a function on another server, over the network, with that server's handlers for replication."""
        ...


class ReplicaDirectory(Protocol):
    """Finds the servers of replicas: the cluster, in place of a client's cache of hbase:meta."""

    @property
    def send_slots(self) -> SendSlots: ...

    def replica_host(self, name: bytes) -> str | None:
        """Return the server that has, or is opening, this replica."""
        ...

    def replica_count(self, table: bytes) -> int: ...

    def next_epoch(self) -> int:
        """Return a number that grows with each open of a primary."""
        ...


class ServerReplication:
    """The sinks of one server and the limit that they share."""

    def __init__(
        self, host: PrimaryHost, directory: ReplicaDirectory, runtime: Runtime, config: ReplicationConfig, name: str
    ) -> None:
        self._host = host
        self._directory = directory
        self._runtime = runtime
        self._config = config
        self._name = name
        #: Region name -> sink; entries are added and removed whole.
        self.sinks: dict[bytes, Sink] = {}
        self.buffer = BufferManager(
            runtime,
            config.pending_bytes_soft,
            config.pending_bytes_max,
            self._flush_biggest,
            lambda: list(self.sinks.values()),
        )

    def open_sink(self, info: RegionInfo, descriptor: TableDescriptor) -> Sink | None:
        """Return the sink of a primary that is about to open; None if it has no replicas to push to."""
        if info.replica_id or not _has_sink(self._config, descriptor):
            return None
        name = info.name
        wire = _Wire(self._host, self._directory, info)
        kind = "meta" if info.table == META_TABLE else "user"
        requester = FlushRequester(
            self._runtime,
            lambda: self._flush(name, wire),
            interval_s=self._config.flush_interval_s,
            gather_s=self._config.open_flush_gather_s,
            name=info.encoded_name,
        )
        only_info = info.table == META_TABLE and not self._config.all_meta_families
        source = SinkSource(
            info.encoded_name,
            families=frozenset(family.name for family in descriptor.families),
            replica_count=lambda: self._directory.replica_count(info.table),
            replicated_families=_META_FAMILIES if only_info else None,
            replicates_data=has_memstore_replication(descriptor),
            epoch=self._directory.next_epoch(),
        )
        sink = Sink(
            source,
            runtime=self._runtime,
            config=self._config,
            buffer=self.buffer,
            requester=requester,
            send=ReplicaSender(self._runtime, self._config, wire, self._directory.send_slots, kind=kind).send,
        )
        wire.sink = self.sinks[name] = sink
        return sink

    def close_sink(self, name: bytes) -> None:
        sink = self.sinks.pop(name, None)
        if sink is not None:
            sink.stop()

    def close_all(self) -> None:
        for name in list(self.sinks):
            self.close_sink(name)

    def replica_opened(self, name: bytes, replica_id: int) -> None:
        """Request a flush for a replica that has opened; its reads wait for the markers."""
        sink = self.sinks.get(name)
        if sink is None:
            raise RequestRefused(f"{self._name} does not push the edits of this region")
        sink.replica_opened(replica_id)

    # -- flushes -----------------------------------------------------------------------------------------------

    def _flush(self, name: bytes, wire: _Wire) -> bool:
        """Flush until a flush has begun after this call, or the flush is not needed any more."""
        for _ in range(_FLUSH_TRIES):
            if not wire.is_wanted():
                return True
            region = self._host.regions.get(name)
            if region is not None and self._host.flush_region(region):
                return True
            self._runtime.sleep(_FLUSH_PAUSE_S)
        return False

    def _flush_biggest(self) -> None:
        sinks = list(self.sinks.items())
        if not sinks:
            return
        name, _ = max(sinks, key=lambda item: item[1].pending_bytes)
        region = self._host.regions.get(name)
        if region is not None:
            self._host.flush_region(region)


class _Wire:
    """One primary's transport to its replicas (:class:`metaclient_fake.region_replication.sender.ReplicaTransport`)."""

    def __init__(self, host: PrimaryHost, directory: ReplicaDirectory, info: RegionInfo) -> None:
        self._host = host
        self._directory = directory
        self._info = info
        self._names: dict[int, bytes] = {}
        self.sink: Sink | None = None

    def _name(self, replica_id: int) -> bytes:
        found = self._names.get(replica_id)
        if found is None:
            found = self._names[replica_id] = self._info.replica(replica_id).name
        return found

    def place_of(self, replica_id: int) -> str | None:
        return self._directory.replica_host(self._name(replica_id))

    def replicate(self, host: str, batch: Batch, deadline: float, *, is_legacy: bool) -> None:
        name = self._name(batch.replica_id)

        def on_server(server: ReplicaHost) -> None:
            call = server.replay if is_legacy else server.replicate_to_replica
            call(name, batch.epoch, batch.entries, deadline)

        self._host.call_server(host, on_server, deadline)

    def fill(self, batch: Batch) -> None:
        if self.sink is not None:
            self.sink.fill(batch)

    def is_wanted(self) -> bool:
        if not self._host.is_running_or_wakes():
            return False
        return self.sink is None or self.sink.state is SinkState.RUNNING
