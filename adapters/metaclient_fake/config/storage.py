"""Stores the limits of a region, with HBase's defaults."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["StorageConfig"]


@dataclass(frozen=True, slots=True)
class StorageConfig:
    """When a region flushes, refuses writes, compacts; how long the archive keeps files."""

    flush_bytes: int = 128 * 1024 * 1024  # hbase.hregion.memstore.flush.size
    blocking_multiplier: int = 4  # hbase.hregion.memstore.block.multiplier
    compaction_min_files: int = 3  # hbase.hstore.compaction.min
    compaction_max_files: int = 10  # hbase.hstore.compaction.max
    archive_ttl_s: float = 300.0  # hbase.master.hfilecleaner.ttl
    wal_files_max: int = 32  # hbase.regionserver.maxlogs
    cell_bytes_max: int = 10 * 1024 * 1024  # hbase.server.keyvalue.maxsize
    #: Refuse SKIP_WAL writes to families that are replicated, as HBase 3.0 does (HBASE-21365). False: such writes are
    #: accepted and never replicated, as in 2.6. False if cluster replication behaves as 2.6.
    refuses_skip_wal_of_replicated: bool = True
    #: Never give the sequence id of a region's marker again after a crash. False, as in HBase 2.6.1 and 3.0.0-alpha-4
    #: (HBASE-29499, open): the ids of flush and open markers are given again, which can block a serial peer for ever.
    #: False if ``serial_bugs_of`` of cluster replication is a version with this bug.
    counts_markers_on_recovery: bool = True

    @property
    def blocking_bytes(self) -> int:
        return self.flush_bytes * self.blocking_multiplier
