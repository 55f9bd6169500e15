"""Stores the batches in flight that do not belong to their queue any more (see ``replica_queue``).

The sink's log may drop their entries; the bytes stay counted here until the batches are answered, each entry once
even if several batches contain it.
"""

from __future__ import annotations

from collections.abc import Sequence

from metaclient_fake.region_replication.replica_queue import Batch

__all__ = ["Orphans"]


class Orphans:
    """The orphans of one sink, usually none; guarded by the sink's lock."""

    __slots__ = ("_batches", "_held", "held_bytes")

    def __init__(self) -> None:
        self._batches: list[Batch] = []
        #: Entries that the log has dropped: position -> size, number of batches that contain it.
        self._held: dict[int, tuple[int, int]] = {}
        #: The bytes of those entries.
        self.held_bytes = 0

    def __bool__(self) -> bool:
        return bool(self._batches)

    def __contains__(self, batch: Batch) -> bool:
        return batch in self._batches

    def add(self, batch: Batch) -> None:
        if batch not in self._batches:
            self._batches.append(batch)

    def hold(self, first: int, sizes: Sequence[int]) -> int:
        """Count the entries in flight from position ``first`` on, which the log drops; return their bytes."""
        bytes_before = self.held_bytes
        for position, size in enumerate(sizes, first):
            holders = sum(1 for batch in self._batches if batch.end - len(batch.entries) <= position < batch.end)
            if holders:
                self._held[position] = (size, holders)
                self.held_bytes += size
        return self.held_bytes - bytes_before

    def forget(self, batch: Batch) -> int:
        """Remove an answered batch; return the bytes that no batch holds any more."""
        self._batches.remove(batch)
        freed = 0
        for position in range(batch.end - len(batch.entries), batch.end):
            size, holders = self._held.pop(position, (0, 0))
            if holders > 1:
                self._held[position] = (size, holders - 1)
            else:
                freed += size
        self.held_bytes -= freed
        return freed
