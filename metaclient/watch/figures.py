"""The figures of a cluster at one instant, as values. Counters are totals since the start of what counts them.

None means unknown: the cluster, or this way to reach it, does not report the figure.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

__all__ = [
    "ClientFigures",
    "ClusterFigures",
    "Liveness",
    "MetaReplicaFigures",
    "PeerFigures",
    "RegionFigures",
    "RegionReplicaFigures",
    "ServerFigures",
    "WatchEvent",
]


def _nothing() -> Mapping[int, int]:
    return MappingProxyType({})


class Liveness(enum.Enum):
    """What is known about a server's process."""

    UP = "up"
    SLOW = "slow"  # answers, but late
    HUNG = "hung"  # accepts connections and does not answer
    DEAD = "dead"  # refuses connections, or the master has declared it dead
    CUT_OFF = "cut off"  # unreachable from the client: a partition
    STOPPING = "stopping"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerFigures:
    """One region server."""

    name: str
    liveness: Liveness = Liveness.UNKNOWN
    detail: str = ""  # the reason of the liveness, for people
    answer_ms: float | None = None  # of the last small call
    regions: int | None = None
    reads: int | None = None
    writes: int | None = None
    queued_calls: int | None = None
    heap_used_bytes: int | None = None
    heap_max_bytes: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class MetaReplicaFigures:
    """One replica of hbase:meta."""

    replica_id: int
    server: str | None = None
    state: str = "unknown"  # healthy, doubted, ejected, silent, unplaced, opening
    reads: int | None = None  # by all clients
    lag_s: float | None = None
    answer_ms: float | None = None
    errors: int | None = None
    ejections: int | None = None
    ejected_for_s: float | None = None
    detail: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientFigures:
    """The lookups of one client in one mode: of the built-in load, or of the connection of this program."""

    name: str
    title: str
    lookups: int = 0
    failed: int = 0
    waiting: int = 0  # lookups without an answer now
    longest_wait_s: float = 0.0  # of these
    median_ms: float | None = None  # of the last lookups
    slowest_ms: float | None = None
    retries: int = 0
    fallbacks: int = 0
    meta_hedges: int = 0
    hedges: int = 0
    hedges_won: int = 0
    ejections: int = 0
    reads_by_replica: Mapping[int, int] = field(default_factory=_nothing)


@dataclass(frozen=True, slots=True, kw_only=True)
class RegionFigures:
    """One region of a user's table, on the server that hosts its primary."""

    name: str
    table: str
    start_key: str
    server: str | None
    requests: int = 0
    reads: int | None = None
    writes: int | None = None
    size_bytes: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RegionReplicaFigures:
    """A secondary replica of a region."""

    region: str
    table: str
    start_key: str
    replica_id: int
    server: str | None
    state: str = "unknown"
    lag_s: float | None = None
    queue_edits: int | None = None
    queue_bytes: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PeerFigures:
    """A replication peer, or a subscription to changes, which is a peer with a name and workers."""

    peer_id: str
    state: str
    target: str  # the key of the other cluster; the tables of a subscription
    subscription: str | None = None
    workers: tuple[str, ...] | None = None
    logs: int | None = None  # log files that the cluster keeps for it
    queue_edits: int | None = None
    queue_bytes: int | None = None
    lag_ms: int | None = None
    shipped: int | None = None
    error: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class WatchEvent:
    """One line of the list of events. ``level`` is good, info, warning or bad."""

    time_ms: int
    kind: str
    text: str
    level: str = "info"


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterFigures:
    """All figures of a cluster at one instant."""

    at_s: float  # of the runtime's clock
    time_ms: int
    url: str = ""
    backend: str = ""
    version: str | None = None
    is_fake: bool = False
    addresses: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    servers: tuple[ServerFigures, ...] = ()
    meta: tuple[MetaReplicaFigures, ...] = ()
    clients: tuple[ClientFigures, ...] = ()
    regions: tuple[RegionFigures, ...] | None = None
    region_replicas: tuple[RegionReplicaFigures, ...] | None = None
    peers: tuple[PeerFigures, ...] | None = None
    faults: tuple[str, ...] = ()  # that were provoked on a fake and are in force
    notes: tuple[str, ...] = ()  # why some figures are unknown
    is_load_running: bool | None = None  # None: there is no built-in load
