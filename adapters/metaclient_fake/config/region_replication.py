"""Stores every limit and delay of region replication, in our units; ``config.cluster`` has HBase's names for them.

DIVERGENCES from HBase's defaults: replication is on (HBase: both keys false); each replica has its own pace (HBase:
lock step); of hbase:meta only ``info`` is pushed (HBase: all four families; the design of HBASE-18070 decides).
"""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["ReplicationConfig"]


@dataclass(frozen=True, slots=True)
class ReplicationConfig:
    """How primaries push and how replicas take it; the sink's keys begin with ``hbase.region.read-replica.sink.``."""

    #: hbase.region.replica.replication.enabled. True: all tables, hbase:meta too, as in HBase; False: no user table;
    #: None: user tables, so that the catalog's key alone can switch hbase:meta off.
    enabled: bool | None = None
    catalog_enabled: bool = True  # hbase.region.replica.replication.catalog.enabled: hbase:meta alone
    all_meta_families: bool = False  # push table, ns and rep_barrier too, as HBase does today
    lock_step: bool = False  # each batch to all replicas, the next when all have answered: HBase's way

    # -- the sink ---------------------------------------------------------------------------------------------
    batch_bytes: int = 1024 * 1024  # size.capacity
    batch_entries: int = 100  # nb.capacity
    retries: int = 3  # retries.number: up to four attempts
    rpc_timeout_s: float = 1.0  # rpc.timeout.ms
    operation_timeout_s: float = 5.0  # operation.timeout.ms
    marker_rpc_timeout_s: float = 15.0  # meta-edit.rpc.timeout.ms
    marker_operation_timeout_s: float = 60.0  # meta-edit.operation.timeout.ms
    retry_pause_s: float = 0.1  # hbase.client.pause
    pending_bytes_max: int = 100 * 1024 * 1024  # max-pending-size, of all sinks of a server
    pending_soft_share: float = 0.8  # max-pending-size.soft-limit-percentage
    flush_interval_s: float = 30.0  # flush.min-interval.secs
    #: Sends in progress to one server; more wait in line. HBase's calls are asynchronous, ours hold a task each, and a
    #: hung server must not hold all of them.
    sends_per_server_max: int = 8

    # -- the replicas -----------------------------------------------------------------------------------------
    handlers: int = 3  # hbase.regionserver.replication.handler.count
    #: How long a primary collects the flush requests of replicas that open before it runs one flush for all of them.
    open_flush_gather_s: float = 0.02
    refreshes_under_pressure: bool = True  # hbase.region.replica.storefile.refresh
    memstore_multiplier: float = 4.0  # hbase.region.replica.storefile.refresh.memstore.multiplier

    @property
    def pushes_user_tables(self) -> bool:
        return self.enabled is not False

    @property
    def pushes_meta(self) -> bool:
        return self.enabled is True or self.catalog_enabled

    @property
    def pending_bytes_soft(self) -> int:
        return int(self.pending_bytes_max * self.pending_soft_share)
