"""Decides whether a server may buffer one more edit for replicas: one limit for all of its sinks, soft and hard.

Mirrors RegionReplicationBufferManager. Above the soft limit the region with the most pending bytes is flushed, by one
worker without a queue: the start of the flush lets its sink drop its pending edits. At the hard limit the sink that
asks is refused.

DIVERGENCES:

- a sink that is refused makes the sink with the most pending bytes drop edits (HBASE-26233), and asks again. HBase 3.x
  drops the edits of the sink that asks, so that one edit of a quiet region fails its replicas while a busy region
  fills the memory;
- an edit that would cross the hard limit is not counted first and subtracted later, so that the total never exceeds
  the limit.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from typing import Protocol

from metaclient.errors import ConnectionClosed, Overloaded
from metaclient.runtime import Runtime

__all__ = ["BufferManager", "Holder"]

logger = logging.getLogger(__name__)


class Holder(Protocol):
    """The methods of a sink that the buffer calls."""

    @property
    def droppable_bytes(self) -> int: ...

    def give_way(self, size: int) -> None: ...


class BufferManager:
    """The bytes that all sinks of one server hold. ``_lock`` guards the numbers; it is the innermost lock."""

    def __init__(
        self,
        runtime: Runtime,
        soft_bytes: int,
        hard_bytes: int,
        flush_biggest: Callable[[], object],
        holders: Callable[[], Iterable[Holder]] = tuple,
    ) -> None:
        self._runtime = runtime
        self._soft_bytes = min(soft_bytes, hard_bytes)
        self._hard_bytes = hard_bytes
        self._flush_biggest = flush_biggest
        self._holders = holders
        self._lock = runtime.lock()
        self._is_flushing = False
        self.pending_bytes = 0
        self.peak_bytes = 0
        self.refused = 0
        self.flushes = 0

    def reserve(self, size: int) -> bool:
        """Reserve ``size`` bytes; return False if they would exceed the hard limit."""
        with self._lock:
            total = self.pending_bytes + size
            if total <= self._soft_bytes:
                self.pending_bytes = total
                if total > self.peak_bytes:
                    self.peak_bytes = total
                return True
        return self._reserve_tight(size)

    def _reserve_tight(self, size: int) -> bool:
        """Reserve ``size`` bytes above the soft limit: the slow path, which also starts a flush."""
        with self._lock:
            has_room = self.pending_bytes + size <= self._hard_bytes
            if has_room:
                self.pending_bytes += size
                self.peak_bytes = max(self.peak_bytes, self.pending_bytes)
            else:
                self.refused += 1
            is_wanted = self._begin_flush()
        if is_wanted:
            self._start_flush()
        return has_room

    def has_room(self, size: int) -> bool:
        """Return True if ``size`` more bytes are within the hard limit."""
        return self.pending_bytes + size <= self._hard_bytes

    def make_room(self, size: int) -> None:
        """Make sinks drop edits, the one with the most bytes first, until ``size`` bytes are within the hard limit.

        Each sink is asked at most once. The caller holds no sink's lock.
        """
        holders = list(self._holders())
        while holders and not self.has_room(size):
            biggest = max(holders, key=_droppable_bytes)
            if not _droppable_bytes(biggest):
                return
            biggest.give_way(size)
            holders.remove(biggest)

    @property
    def is_tight(self) -> bool:
        """Return True if buffered edits should be dropped, because a flush will bring them as store files."""
        return self.pending_bytes > self._soft_bytes

    def release(self, size: int) -> None:
        with self._lock:
            self.pending_bytes -= size
            assert self.pending_bytes >= 0, "more bytes were released than reserved"

    def _begin_flush(self) -> bool:
        """Return True if a flush is to be started; False while another one runs. The lock is held."""
        if self._is_flushing:
            return False
        self._is_flushing = True
        self.flushes += 1
        return True

    def _start_flush(self) -> None:
        logger.warning(
            "%d bytes wait for replicas (soft limit %d): flushing the biggest", self.pending_bytes, self._soft_bytes
        )
        try:
            self._runtime.start(self._flush, name="replication-buffer-flush")
        except (Overloaded, ConnectionClosed):
            self._is_flushing = False  # the next edit over the limit asks again

    def _flush(self) -> None:
        try:
            self._flush_biggest()
        finally:
            self._is_flushing = False


def _droppable_bytes(holder: Holder) -> int:
    return holder.droppable_bytes
