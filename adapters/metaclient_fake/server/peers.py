"""Describes what a region server asks of the rest of its cluster."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from metaclient.model import RegionInfo
from metaclient_fake.region_replication import Acknowledged
from metaclient_fake.region_replication.server import ReplicaDirectory

if TYPE_CHECKING:
    from metaclient_fake.server.region_server import RegionServer

__all__ = ["Peers"]


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
