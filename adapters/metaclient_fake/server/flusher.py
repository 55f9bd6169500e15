"""Decides when a region server flushes and compacts its regions and rolls its logs.

Mirrors MemStoreFlusher, CompactSplit and LogRoller (3.x).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from metaclient.errors import ServerStopped
from metaclient_fake.config.cluster import ClusterConfig
from metaclient_fake.storage import FlushOutcome, Region

if TYPE_CHECKING:
    from metaclient_fake.server.region_server import RegionServer

__all__ = ["Flusher"]


class Flusher:
    """Flushes, compactions and log rolls of one server."""

    def __init__(self, server: RegionServer, config: ClusterConfig) -> None:
        self._server = server
        self._config = config
        #: A fault: no flush of this server is run.
        self.is_stalled = False

    def flush_region(self, region: Region) -> bool:
        """Flush a primary, and compact it if it has too many files; return False if it could not be flushed."""
        if self.is_stalled or not region.is_primary:
            return False
        try:
            result = region.flush()
            if result.needs_compaction:
                region.compact()
        except ServerStopped as error:
            self._server.lost_wal(error)
            return False
        return result.outcome is not FlushOutcome.CANNOT_FLUSH

    def flush_table(self, table: bytes | None) -> int:
        """Flush this server's primaries of a table (None: of all tables); return how many were flushed."""
        self._server.check_running()
        chosen = [
            region for region in list(self._server.regions.values()) if table is None or region.info.table == table
        ]
        return sum(1 for region in chosen if self.flush_region(region))

    def compact_table(self, table: bytes, major: bool) -> int:
        self._server.check_running()
        chosen = [region for region in list(self._server.regions.values()) if region.info.table == table]
        return sum(1 for region in chosen if region.is_primary and region.compact(major=major))

    def relieve_memory(self) -> None:
        """Flush the biggest primaries until all memstores together are under the global limit (MemStoreFlusher).

        A secondary cannot be flushed. A secondary that is much bigger than every primary loads the store files of its
        primary instead, which frees the edits that they contain. On a server that has primaries,
        hbase.region.replica.storefile.refresh = false turns this off.
        """
        regions = sorted(self._server.regions.values(), key=lambda region: region.memstore_bytes, reverse=True)
        primaries = [region for region in regions if region.is_primary]
        secondaries = [region for region in regions if not region.is_primary]
        may_refresh = self._config.replication.refreshes_under_pressure or not primaries
        used = sum(region.memstore_bytes for region in regions)
        while used > self._config.memstore_global_bytes and (primaries or secondaries):
            if secondaries and may_refresh and self._is_secondary_first(secondaries[0], primaries):
                relieved = secondaries.pop(0)
                before = relieved.memstore_bytes
                self._server.secondaries.refresh_one(relieved.info.name)
                used -= before - relieved.memstore_bytes
            elif primaries:
                relieved = primaries.pop(0)
                used -= relieved.memstore_bytes
                self.flush_region(relieved)
            else:
                break

    def _is_secondary_first(self, secondary: Region, primaries: Sequence[Region]) -> bool:
        multiplier = self._config.replication.memstore_multiplier
        return not primaries or secondary.memstore_bytes > multiplier * primaries[0].memstore_bytes

    def roll_logs(self, entries_max: int) -> None:
        """Roll log files that are long; flush the regions that keep old log files from the archive."""
        for wal in (self._server.wal, self._server.meta_wal):
            if wal.is_closed:
                continue
            if len(wal.files[-1]) >= entries_max:
                wal.roll()
            for encoded in wal.regions_to_flush(self._config.storage.wal_files_max):
                for region in list(self._server.regions.values()):
                    if region.info.encoded_name == encoded:
                        self.flush_region(region)
