"""Stores how much of a server's buffer limit one sink has reserved, and how much of that it has not used yet."""

from __future__ import annotations

from metaclient_fake.region_replication.buffer_manager import BufferManager

__all__ = ["Reservation"]

#: A sink reserves this part of the server's limit at a time, so that not every edit takes the lock of all sinks.
_CREDITS = 1024


class Reservation:
    """The share of one sink in its server's buffer. Guarded by the sink's lock.

    ``reserved`` counts the bytes of pending entries, of orphaned batches, and the credit. ``credit`` counts the bytes
    that are reserved and not used yet; it is public because every put subtracts from it.
    """

    def __init__(self, buffer: BufferManager, pending_bytes_max: int) -> None:
        self._buffer = buffer
        self._credit_bytes = pending_bytes_max // _CREDITS
        self.reserved = 0
        self.credit = 0

    @property
    def used(self) -> int:
        return self.reserved - self.credit

    def reserve(self, size: int) -> bool:
        """Reserve bytes for an entry, and some more while memory is not short; return False if the limit is reached.

        The surplus is given back when nothing is pending, or as soon as memory is short.
        """
        granted = size if self._buffer.is_tight else max(size, self._credit_bytes)
        if self._buffer.reserve(granted):
            self.reserved += granted
            self.credit += granted - size
            return True
        if granted > size and self._buffer.reserve(size):
            self.reserved += size
            return True
        return False

    def give_back(self, size: int, *, is_empty: bool) -> None:
        """Release the bytes of dropped entries; ``is_empty``: the sink has no pending entries."""
        self.credit += size
        if is_empty or self._buffer.is_tight:
            size, self.credit = self.credit, 0
        else:
            size = max(0, self.credit - self._credit_bytes)
            self.credit -= size
        if size:
            self.reserved -= size
            self._buffer.release(size)
