"""Stores the counters of the reader and the shipper of one log group (``MetricsSource``, HBase 2.6.1)."""

from __future__ import annotations

from dataclasses import dataclass

from metaclient.replication_peers import BlockedRegion

__all__ = ["SourceMetrics"]


@dataclass(slots=True)
class SourceMetrics:
    """Counters of one log group. The reading task writes the first ones, the shipping task the others."""

    edits_read: int = 0  # entries of the log
    edits_filtered: int = 0  # of those: entries of which the peer gets nothing
    blocked: BlockedRegion | None = None  # the region whose next entry a serial peer may not get yet

    edits_shipped: int = 0  # rows of entries, as HBase counts operations
    batches_shipped: int = 0
    bytes_shipped: int = 0
    failed_calls: int = 0
    last_error: str = ""  # of the batch that is being shipped
    last_shipped_ms: int = 0  # write time of the last entry that was shipped
    age_of_last_shipped_ms: int = 0  # how old it was then
    next_to_replicate_ms: int = 0  # write time of the last entry of the batch that is being shipped

    def count_read(self, read: int, filtered: int) -> None:
        self.edits_read += read
        self.edits_filtered += filtered

    def lag_ms(self, now_ms: int) -> int:
        """Return how long the batch in hand has waited; 0 if there is none (``getReplicationDelay``)."""
        return 0 if self.last_shipped_ms >= self.next_to_replicate_ms else now_ms - self.next_to_replicate_ms
