"""Stores every limit and delay of replication between clusters, in our units; the comments give HBase's names.

The first settings are those of the server that ships (source), the last ones of the server that applies (sink).
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from metaclient.errors import ConfigError

__all__ = ["BEHAVIOURS", "SERIAL_BUGS", "PeerReplicationConfig", "SerialBug", "parse_base_config"]

#: The versions of HBase whose behaviours differ: 2.6 ships the whole current log again after a source was recreated,
#: and lets SKIP_WAL lose edits of replicated families silently.
BEHAVIOURS = ("2.6", "3.0")


class SerialBug(Enum):
    """A bug of HBase that breaks the order of a serial peer, or that blocks the peer for ever."""

    UNCHECKED_AFTER_ERROR = "HBASE-29501"  # an entry whose check failed is pushed after a pause, without a check
    RETURNED_EDITS_UNCOUNTED = "HBASE-29463"  # an edit that came from the peer does not count as pushed
    MARKER_IDS_REUSED = "HBASE-29499"  # ids of flush and open markers are given again after a crash


#: The bugs of a version of HBase. 2.6.4 has repaired HBASE-29463, 2.6.5 and 3.0.0-beta-2 HBASE-29501, too.
SERIAL_BUGS: dict[str, frozenset[SerialBug]] = {
    "": frozenset(),
    "2.6.1": frozenset(SerialBug),
    "2.6.4": frozenset({SerialBug.UNCHECKED_AFTER_ERROR, SerialBug.MARKER_IDS_REUSED}),
    "2.6.5": frozenset({SerialBug.MARKER_IDS_REUSED}),
    "3.0.0-alpha-4": frozenset(SerialBug),
    "3.0.0-beta-2": frozenset({SerialBug.MARKER_IDS_REUSED}),
}


@dataclass(frozen=True, slots=True)
class PeerReplicationConfig:
    """How a cluster ships its logs to its peers, and how it applies what its peers ship."""

    behaviour: str = "3.0"  # one of BEHAVIOURS
    scope_2_is_serial: bool = False  # ship families of scope 2, their tables in order; False: never, as HBase does
    serial_bugs_of: str = ""  # a version of SERIAL_BUGS whose bugs serial peers have; "": none

    # -- reading ----------------------------------------------------------------------------------------------
    batch_bytes: int = 64 * 1024 * 1024  # replication.source.size.capacity
    batch_entries: int = 25_000  # replication.source.nb.capacity
    batches_ahead: int = 1  # replication.source.nb.batches: read but not yet taken by the shipper
    buffer_bytes_max: int = 256 * 1024 * 1024  # replication.total.buffer.quota, over all peers of a server
    retry_pause_s: float = 1.0  # replication.source.sleepforretries
    retry_multiplier_max: int = 300  # replication.source.maxretriesmultiplier: the longest pause, in retry_pause_s
    serial_pause_s: float = 10.0  # hbase.serial.replication.waiting.ms
    barrier_cleaner_s: float = 12 * 3600.0  # hbase.master.cleaner.replication.barrier.interval; 0 = off

    # -- shipping ---------------------------------------------------------------------------------------------
    ship_timeout_s: float = 60.0  # replication.source.shipedits.timeout, of one call; it grows after each failure
    calls_max: int = 10  # hbase.replication.source.maxthreads: calls in flight per log group
    request_bytes_max: int = 256 * 1024 * 1024  # hbase.ipc.max.request.size; a call takes at most 95 % of it
    sink_ratio: float = 0.5  # replication.source.ratio: the share of the peer's servers that a source uses
    bad_sink_threshold: int = 3  # replication.bad.sink.threshold: more failures in a row remove a sink
    bandwidth: int = 0  # replication.source.per.peer.node.bandwidth, bytes per second; 0 = no limit
    drops_deleted_tables: bool = False  # hbase.replication.drop.on.deleted.table
    drops_deleted_families: bool = False  # hbase.replication.drop.on.deleted.columnfamily
    aborts_server: bool = True  # replication.source.regionserver.abort: when a source cannot start; False: start again
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
        if self.serial_bugs_of not in SERIAL_BUGS:
            known = ", ".join(filter(None, SERIAL_BUGS))
            raise ConfigError(f"bugs of serial peers are known of HBase {known}, not of {self.serial_bugs_of!r}")
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

    @property
    def serial_bugs(self) -> frozenset[SerialBug]:
        return SERIAL_BUGS[self.serial_bugs_of]


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
