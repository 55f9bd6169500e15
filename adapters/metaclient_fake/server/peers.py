"""Describes the calls that a region server makes to the rest of its cluster."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from metaclient.model import RegionInfo
from metaclient_fake.region_replication import Acknowledged
from metaclient_fake.region_replication.server import ReplicaDirectory

if TYPE_CHECKING:
    from metaclient_fake.server.region_server import RegionServer

__all__ = ["Peers"]


class Peers(ReplicaDirectory, Protocol):
    """The rest of the cluster as a region server sees it."""

    def flush_primary_of(self, asker: RegionServer, info: RegionInfo) -> bool:
        """Have the primary flush all families, over the network; return False if it is unreachable."""
        ...

    def tell_primary_of(self, asker: RegionServer, info: RegionInfo) -> None:
        """Notify the primary, over the network, that this replica has opened and waits for a flush."""
        ...

    def replica_waits(self) -> None:
        """Wake the chore that checks waiting secondaries."""
        ...

    def restart(self, server: RegionServer) -> None:
        """Replace an aborting server by a new incarnation, in a task."""
        ...

    def acknowledged(self, name: bytes, families: frozenset[bytes] | None = None) -> Acknowledged | None:
        """Return which edits the primary knows this replica to have; None if that is not known."""
        ...

    def server_at(self, host: str) -> RegionServer | None: ...

    def next_scanner_id(self) -> int: ...

    def count_meta_read(self, replica_id: int) -> None: ...
