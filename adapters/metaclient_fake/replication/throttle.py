"""Decides how long a shipper waits so that a peer gets at most its bandwidth.

Mirrors ``ReplicationThrottler`` (HBase 2.6.1). Time is cut into cycles of 100 ms, each with a tenth of the bandwidth. A
batch is never cut: the first batch of a cycle may be larger than the cycle, and the next batch then waits as many
cycles as the first one took.
"""

from __future__ import annotations

import math

__all__ = ["CYCLES_PER_SECOND", "Throttle"]

CYCLES_PER_SECOND = 10
_CYCLE_S = 1.0 / CYCLES_PER_SECOND


class Throttle:
    """The bytes that were pushed in the current cycle. Used by one task at a time."""

    def __init__(self, cycle_bytes: float, now: float) -> None:
        """``cycle_bytes`` is a tenth of the bandwidth in bytes per second; 0 is no limit."""
        self._cycle_bytes = cycle_bytes
        self._cycle_start = now
        self._pushed = 0

    def change(self, cycle_bytes: float, now: float) -> None:
        """Set another bandwidth, from now on. What was pushed in this cycle still counts."""
        if cycle_bytes != self._cycle_bytes:
            self._cycle_bytes = cycle_bytes
            self._cycle_start = now

    def pause_s(self, size: int, now: float) -> float:
        """Return the seconds to wait before ``size`` bytes are pushed. After a wait, call :meth:`waited`."""
        if self._cycle_bytes <= 0:
            return 0.0
        if self._pushed > self._cycle_bytes:
            until = self._cycle_start + math.ceil(self._pushed / self._cycle_bytes) * _CYCLE_S
            self._pushed = 0
            if until > now:
                return until - now
            self._cycle_start = now
            return 0.0
        next_cycle = self._cycle_start + _CYCLE_S
        if now >= next_cycle:
            self._cycle_start = now
            self._pushed = 0
        elif self._pushed > 0 and self._pushed + size >= self._cycle_bytes:
            self._pushed = 0
            return next_cycle - now
        return 0.0

    def waited(self, now: float) -> None:
        """Begin a cycle, because the wait is over."""
        self._cycle_start = now

    def pushed(self, size: int) -> None:
        """Count bytes that are being pushed."""
        self._pushed += size
