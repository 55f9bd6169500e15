"""The servers of a cluster and their loads as values, as HBase's master reports them (ClusterStatus.proto)."""

from __future__ import annotations

from dataclasses import dataclass

from metaclient.errors import MetaClientError
from metaclient.model import ServerName

__all__ = ["ClusterStatus", "RegionLoad", "ServerCheck", "ServerLoad"]


@dataclass(frozen=True, slots=True)
class RegionLoad:
    """One region on one server, as of the server's last report to the master. HBase rounds sizes up to a megabyte."""

    region_name: bytes
    store_bytes: int
    memstore_bytes: int
    reads: int
    writes: int
    locality: float


@dataclass(frozen=True, slots=True)
class ServerLoad:
    """One live region server."""

    server: ServerName
    requests: int
    used_heap_bytes: int
    max_heap_bytes: int
    regions: tuple[RegionLoad, ...]
    info_port: int | None = None  # of its web page, which has its JMX metrics; None if it has none


@dataclass(frozen=True, slots=True)
class ServerCheck:
    """The outcome of a small call to a server: its duration, or the error if the server did not answer."""

    duration_s: float
    error: MetaClientError | None = None


@dataclass(frozen=True, slots=True)
class ClusterStatus:
    """The servers of the cluster and their regions, as the master reports them."""

    version: str
    master: ServerName | None
    live_servers: tuple[ServerLoad, ...]
    dead_servers: tuple[ServerName, ...]
