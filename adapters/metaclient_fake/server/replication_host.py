"""Decides what a region server does for region replication: receives batches for its secondaries, sends its own.

Mirrors RSRpcServices.replicateToReplica and replay (3.x).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

from metaclient.errors import RequestRefused, ServerUnreachable, Unsupported
from metaclient.runtime import Runtime
from metaclient_fake.network.call import Call
from metaclient_fake.network.network import Network
from metaclient_fake.region_replication.server import ReplicaHost
from metaclient_fake.server.peers import Peers
from metaclient_fake.storage import Region
from metaclient_fake.storage.stand_ins import ClosingRegion
from metaclient_fake.storage.wal import LoggedEntry

if TYPE_CHECKING:
    from metaclient_fake.server.region_server import RegionServer

__all__ = ["ReplicationHost"]


class ReplicationHost:
    """One server as the sender and the receiver of replicated edits (PrimaryHost and ReplicaHost)."""

    def __init__(self, server: RegionServer, runtime: Runtime, network: Network, peers: Peers) -> None:
        self._server = server
        self._runtime = runtime
        self._network = network
        self._peers = peers

    @property
    def regions(self) -> Mapping[bytes, Region]:
        return self._server.regions

    def flush_region(self, region: Region) -> bool:
        return self._server.flusher.flush_region(region)

    def replicate_to_replica(self, name: bytes, epoch: int, entries: Sequence[LoggedEntry], deadline: float) -> None:
        """Apply a batch of a primary to a secondary on this server (RSRpcServices.replicateToReplica)."""
        if not self._server.knows_replicate_to_replica:
            raise Unsupported(f"{self._server.name} does not know replicateToReplica")
        self._replay(name, epoch, entries, deadline)

    def replay(self, name: bytes, epoch: int, entries: Sequence[LoggedEntry], deadline: float) -> None:
        """Apply a batch that a primary of an older version has sent (RSRpcServices.replay)."""
        self._replay(name, epoch, entries, deadline)

    def _replay(self, name: bytes, epoch: int, entries: Sequence[LoggedEntry], deadline: float) -> None:
        if not entries:
            return
        region = self._server.regions.get(name)
        if region is None or isinstance(self._server.online.get(name), ClosingRegion):
            raise self._server.assignments.unavailable(name)
        if region.is_primary:
            raise RequestRefused(f"{region} is a primary: batches are for secondaries")
        self._server.secondaries.replay(name, epoch, entries, deadline)

    def replica_opened(self, name: bytes, replica_id: int) -> None:
        """Notify the sink of a primary on this server that a replica has opened and waits for a flush marker."""
        if name not in self._server.regions:
            raise self._server.assignments.unavailable(name)
        self._server.replication.replica_opened(name, replica_id)

    def is_running_or_wakes(self) -> bool:
        """Wait while the server hangs; return False if it has stopped."""
        if self._server.is_hung:
            self._network.wait_until(lambda: not self._server.is_hung or self._network.is_closed, None)
        return self._server.is_running and not self._network.is_closed

    def call_server(self, host: str, function: Callable[[ReplicaHost], None], deadline: float) -> None:
        """Run a function on another server, with its handlers for replication; on this server, call it directly."""
        target = self._peers.server_at(host)
        if target is None:
            raise ServerUnreachable(f"there is no server {host}")
        if target is self._server:
            function(self)
            return
        Call(
            self._network,
            self._runtime,
            self._server,
            target,
            lambda: function(target.replication_host),
            handlers=target.replication_handlers,
            deadline=deadline,
            service_s=target.slow_s,
            is_write=True,
            may_repeat=True,
        ).run()
