"""Stores every limit and delay of replication between clusters, in our units; the comments give HBase's names.

The first settings are those of the server that ships (source), the last ones of the server that applies (sink).
"""

from __future__ import annotations

from dataclasses import dataclass

from metaclient.errors import ConfigError

__all__ = ["BEHAVIOURS", "PeerReplicationConfig", "parse_base_config"]

#: The versions of HBase whose behaviours differ: 2.6 ships the whole current log again after a source was recreated,
#: and lets SKIP_WAL lose edits of replicated families silently.
BEHAVIOURS = ("2.6", "3.0")


@dataclass(frozen=True, slots=True)
class PeerReplicationConfig:
    """How a cluster ships its logs to its peers, and how it applies what its peers ship."""

    behaviour: str = "3.0"  # one of BEHAVIOURS

    # -- reading ----------------------------------------------------------------------------------------------
    batch_bytes: int = 64 * 1024 * 1024  # replication.source.size.capacity
    batch_entries: int = 25_000  # replication.source.nb.capacity
    batches_ahead: int = 1  # replication.source.nb.batches: read but not yet taken by the shipper
    buffer_bytes_max: int = 256 * 1024 * 1024  # replication.total.buffer.quota, over all peers of a server
    retry_pause_s: float = 1.0  # replication.source.sleepforretries
    retry_multiplier_max: int = 300  # replication.source.maxretriesmultiplier: the longest pause, in retry_pause_s
    serial_pause_s: float = 10.0  # hbase.serial.replication.waiting.ms

    # -- shipping ---------------------------------------------------------------------------------------------
    ship_timeout_s: float = 60.0  # replication.source.shipedits.timeout, of one call; it grows after each failure
    calls_max: int = 10  # hbase.replication.source.maxthreads: calls in flight per log group
    request_bytes_max: int = 256 * 1024 * 1024  # hbase.ipc.max.request.size; a call takes at most 95 % of it
    sink_ratio: float = 0.5  # replication.source.ratio: the share of the peer's servers that a source uses
    bad_sink_threshold: int = 3  # replication.bad.sink.threshold: more failures in a row remove a sink
    bandwidth: int = 0  # replication.source.per.peer.node.bandwidth, bytes per second; 0 = no limit
    drops_deleted_tables: bool = False  # hbase.replication.drop.on.deleted.table
    drops_deleted_families: bool = False  # hbase.replication.drop.on.deleted.columnfamily
    source_stop_timeout_s: float = 300.0  # HBase: sleepforretries x maxretriesmultiplier
    sleep_before_failover_s: float = 30.0  # replication.sleep.before.failover
    base_config: str = ""  # hbase.replication.peer.base.config: k=v;k=v, in the configuration of every peer

    # -- applying ---------------------------------------------------------------------------------------------
    sink_batch_rows: int = 5_000  # hbase.rpc.rows.warning.threshold: mutations per call of the sink's client
    sink_retries: int = 4  # replication.sink.client.retries.number
    sink_timeout_s: float = 10.0  # replication.sink.client.ops.timeout

    def __post_init__(self) -> None:
        parse_base_config(self.base_config)
        if self.behaviour not in BEHAVIOURS:
            raise ConfigError(f"replication behaves as HBase {' or '.join(BEHAVIOURS)}, not {self.behaviour!r}")
        if not 0.0 < self.sink_ratio <= 1.0:
            raise ConfigError(f"replication.source.ratio is above 0 and at most 1, not {self.sink_ratio}")
        for name in (
            "batch_bytes",
            "batch_entries",
            "batches_ahead",
            "buffer_bytes_max",
            "calls_max",
            "sink_batch_rows",
        ):
            if getattr(self, name) < 1:
                raise ConfigError(f"{name} of cluster replication is at least 1, not {getattr(self, name)}")
        if self.retry_pause_s <= 0.0 or self.retry_multiplier_max < 1:
            raise ConfigError("pauses of cluster replication are above 0: a source that never pauses is a busy loop")


def parse_base_config(text: str) -> dict[str, str]:
    """Read ``hbase.replication.peer.base.config``: ``k1=v1;k2=v2``. Raises ConfigError for a part without "=".

    >>> parse_base_config("a=1; b=")
    {'a': '1', 'b': ''}
    """
    found: dict[str, str] = {}
    for part in filter(None, map(str.strip, text.split(";"))):
        name, equals, value = part.partition("=")
        if not equals or not name.strip():
            raise ConfigError(f"hbase.replication.peer.base.config is k=v;k=v, got {part!r}")
        found[name.strip()] = value.strip()
    return found
