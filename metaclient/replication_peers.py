"""Replication between clusters as values: the peers of a cluster, their configuration, and the loads of its servers."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from types import MappingProxyType
from typing import Any

from metaclient.model import ServerName

__all__ = [
    "BlockedRegion",
    "Peer",
    "PeerConfig",
    "PeerState",
    "ReplicationStatus",
    "SinkLoad",
    "SourceLoad",
    "namespace_of",
    "source_load_document",
    "wants_family",
    "wants_table",
]


class PeerState(enum.Enum):
    """The state of a peer; a disabled peer keeps its logs and ships nothing. The values are HBase's numbers."""

    ENABLED = 0
    DISABLED = 1


def _nothing() -> Mapping[Any, Any]:
    return MappingProxyType({})


@dataclass(frozen=True, slots=True, kw_only=True)
class PeerConfig:
    """The other cluster of a peer, and the part of the data that is shipped to it (ReplicationPeerConfig, 2.6 and 3.0).

    ``tables`` and ``exclude_tables`` map a table to its families; ``()`` means all families. With ``replicate_all``,
    every table is shipped except those of ``exclude_tables`` and ``exclude_namespaces``. Without it, only those of
    ``tables`` and ``namespaces`` are shipped. ``bandwidth`` is in bytes per second and server; 0 is unlimited.

    >>> config = PeerConfig(cluster_key="zk1:2181:/hbase", replicate_all=False, tables={b"t": ()})
    >>> config == PeerConfig(cluster_key="zk1:2181:/hbase", replicate_all=False, tables={b"t": []})
    True
    """

    cluster_key: str = ""
    endpoint: str | None = None  # a Java class; None is HBase's own, HBaseInterClusterReplicationEndpoint
    replicate_all: bool = True
    tables: Mapping[bytes, tuple[bytes, ...]] = field(default_factory=_nothing)
    namespaces: frozenset[bytes] = frozenset()
    exclude_tables: Mapping[bytes, tuple[bytes, ...]] = field(default_factory=_nothing)
    exclude_namespaces: frozenset[bytes] = frozenset()
    bandwidth: int = 0
    serial: bool = False
    configuration: Mapping[str, str] = field(default_factory=_nothing)
    peer_data: Mapping[bytes, bytes] = field(default_factory=_nothing)  # for custom endpoints
    remote_wal_dir: str | None = None  # of synchronous replication, HBase 3.x

    def __post_init__(self) -> None:
        for name in ("tables", "exclude_tables"):
            table_families = {table: tuple(families) for table, families in getattr(self, name).items()}
            object.__setattr__(self, name, MappingProxyType(table_families))
        for name in ("configuration", "peer_data"):
            object.__setattr__(self, name, MappingProxyType(dict(getattr(self, name))))
        for name in ("namespaces", "exclude_namespaces"):
            object.__setattr__(self, name, frozenset(getattr(self, name)))

    def __hash__(self) -> int:
        return hash(tuple(frozenset(v.items()) if isinstance(v, Mapping) else v for v in self._values()))

    def __reduce__(self) -> tuple[object, ...]:
        plain = (dict(value) if isinstance(value, Mapping) else value for value in self._values())
        return _rebuilt_config, tuple(plain)

    def _values(self) -> tuple[Any, ...]:
        return tuple(getattr(self, one.name) for one in fields(self))


def _rebuilt_config(*values: Any) -> PeerConfig:
    return PeerConfig(**{one.name: value for one, value in zip(fields(PeerConfig), values, strict=True)})


def namespace_of(table: bytes) -> bytes:
    """Return the namespace of a table.

    >>> namespace_of(b"ns:t"), namespace_of(b"t")
    (b'ns', b'default')
    """
    namespace, colon, _ = table.partition(b":")
    return namespace if colon else b"default"


def wants_table(config: PeerConfig, table: bytes) -> bool:
    """Return True if the peer gets some family of the table (``ReplicationPeerConfig.needToReplicate``)."""
    if config.replicate_all:
        if namespace_of(table) in config.exclude_namespaces:
            return False
        return table not in config.exclude_tables or bool(config.exclude_tables[table])
    return namespace_of(table) in config.namespaces or table in config.tables


def wants_family(config: PeerConfig, table: bytes, family: bytes) -> bool:
    """Return True if the peer gets this family of the table."""
    if not wants_table(config, table):
        return False
    if config.replicate_all:
        return family not in config.exclude_tables.get(table, ())
    if namespace_of(table) in config.namespaces:
        return True
    families = config.tables[table]
    return not families or family in families


@dataclass(frozen=True, slots=True)
class Peer:
    """A cluster to which this cluster ships its edits."""

    id: str
    state: PeerState
    config: PeerConfig


@dataclass(frozen=True, slots=True, kw_only=True)
class BlockedRegion:
    """A region whose next edit a serial peer may not get yet. Every later edit of the same log waits, too."""

    region: str  # its encoded name
    sequence_id: int  # of the edit that waits
    waits_for: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceLoad:
    """One queue of logs on one server (ReplicationLoadSource). Times are milliseconds since the epoch, 0 if unknown.

    A real HBase does not report the last six fields.
    """

    peer_id: str
    server: ServerName
    queue_id: str = ""  # the peer's id, and the names of the dead servers for a claimed queue
    age_of_last_shipped_ms: int = 0
    log_queue: int = 0  # log files that are not shipped completely
    last_shipped_ms: int = 0
    lag_ms: int = 0
    next_to_replicate_ms: int = 0
    is_recovered: bool = False
    is_running: bool = True
    has_edits_since_restart: bool = False
    edits_read: int = 0
    edits_shipped: int = 0  # HBase counts shipped operations here
    queue_edits: int | None = None  # log entries of all tables that the peer has not acknowledged, or need not get
    queue_bytes: int | None = None  # of these entries
    sinks: tuple[ServerName, ...] = ()  # the servers of the peer to which the source sends now
    failed_calls: int | None = None  # calls to sinks that failed
    last_error: str = ""  # why the current batch could not be shipped; empty if nothing failed since the last one
    blocked: tuple[BlockedRegion, ...] = ()  # of a serial peer, one per log at most


@dataclass(frozen=True, slots=True, kw_only=True)
class SinkLoad:
    """The edits of other clusters that one server has applied (ReplicationLoadSink)."""

    age_of_last_applied_ms: int = 0
    last_applied_ms: int = 0
    started_ms: int = 0
    edits_applied: int = 0
    failed_batches: int | None = None  # calls that failed; a real HBase does not report it


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicationStatus:
    """The replication of one live server, as of its last report to the master."""

    server: ServerName
    sources: tuple[SourceLoad, ...] = ()
    sink: SinkLoad | None = None  # None if the server has not reported one


def source_load_document(load: SourceLoad) -> dict[str, object]:
    """Return a load as JSON values; servers are texts.

    >>> rs1, b1 = ServerName("rs1", 16020, 1), ServerName("b1", 16020, 2)
    >>> source_load_document(SourceLoad(peer_id="west", server=rs1, sinks=(b1,)))["sinks"]
    ['b1,16020,2']
    """
    return {**asdict(load), "server": str(load.server), "sinks": [str(sink) for sink in load.sinks]}
