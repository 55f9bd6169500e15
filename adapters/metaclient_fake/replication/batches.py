"""Stores what a reader hands to a shipper, and decides how much all readers of a server may hold.

Mirrors ``WALEntryBatch`` and the buffer quota of ``ReplicationSourceManager`` (HBase 2.6.1). A batch ends when it has
enough bytes or entries, when the quota of the server is used up, at the end of the data and at the end of a file. A
batch without entries is passed on, too: it carries the position and the pushed ids.

Bound: a reader looks at the quota before it begins a batch and after each entry. So the bytes of all peers are at most
quota + (readers x one entry), which HBase's test states as quota x (peers + 1).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol

from metaclient.runtime import Runtime
from metaclient.wire.rpc.replication import ShippedEntry

__all__ = ["BufferQuota", "EntryBatch", "StorePosition"]


@dataclass(slots=True)
class EntryBatch:
    """Entries of one log file, in order, and the position behind them. The reader fills it, the shipper takes it."""

    wal: str
    position: int  # behind the last entry that was read, shipped or filtered out
    entries: list[ShippedEntry] = field(default_factory=list)
    size: int = 0  # bytes of ``entries``, counted in the quota
    #: Region -> the last sequence id, for serial peers: also of entries that have no cells for the peer.
    pushed_ids: dict[str, int] = field(default_factory=dict)
    is_end_of_file: bool = False
    entries_before: int = 0  # entries of the file before ``position``, also those that a crash lost
    last_write_time_ms: int = 0  # of the last entry that was read

    def add(self, entry: ShippedEntry, size: int) -> None:
        self.entries.append(entry)
        self.size += size


class StorePosition(Protocol):
    """Called after the peer has acknowledged everything in ``wal`` before ``position``."""

    def __call__(
        self, wal: str, position: int, pushed_ids: Mapping[str, int] | None = None, *, is_end_of_file: bool = False
    ) -> None: ...


class BufferQuota:
    """The bytes that all sources of a server hold in batches. ``_lock`` guards ``used``."""

    def __init__(self, runtime: Runtime, limit: int) -> None:
        self._lock = runtime.lock()
        self.limit = limit
        self.used = 0
        self.peak = 0  # the highest value of ``used``

    def acquire(self, size: int) -> bool:
        """Count bytes of an entry that was read; return True if the quota is used up, so that the batch must end."""
        with self._lock:
            self.used += size
            self.peak = max(self.peak, self.used)
            return self.used >= self.limit

    def release(self, size: int) -> None:
        with self._lock:
            self.used -= size
            assert self.used >= 0, f"released {-self.used} bytes more than were acquired"

    @property
    def is_exceeded(self) -> bool:
        """True while readers must not begin a batch."""
        return self.used > self.limit
