"""Decides when a primary flushes for its replicas: soon after a failure, but not more often than allowed.

Mirrors RegionReplicationFlushRequester (3.x): the first request runs at once; one that comes within the
minimum interval of the last waits for its end; a flush that starts meanwhile and covers it makes it superfluous.

DIVERGENCES:

- replicas that open request a flush here, too, and share one: their requests are collected for ``gather_s``. They do
  not wait for the interval, which is for replicas that fail repeatedly;
- a failure of a replica that is not online anywhere waits for the interval even if it is the first: such a replica asks
  by itself when it opens;
- the remaining time is not cut to whole seconds;
- a flush that could not be run (one was running already, and may have begun too early) is tried again, where HBase
  waits for the next flush from any cause.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from contextlib import suppress

from metaclient.errors import ConnectionClosed, Overloaded
from metaclient.runtime import Runtime, Timer

__all__ = ["FlushRequester"]

logger = logging.getLogger(__name__)

#: When no task could be started for a flush, it is tried again that much later.
_BUSY_PAUSE_S = 1.0


class FlushRequester:
    """The flush requests of one sink. ``flush`` runs in its own task and returns True if it has flushed."""

    def __init__(
        self, runtime: Runtime, flush: Callable[[], bool], *, interval_s: float, gather_s: float, name: str = ""
    ) -> None:
        self._runtime = runtime
        self._flush = flush
        self._interval_s = interval_s
        self._gather_s = gather_s
        self._name = name
        self._lock = runtime.lock()
        # Guarded by the lock:
        self._is_stopped = False
        self._timer: Timer | None = None
        self._timer_sequence_id = -1
        self._gather_timer: Timer | None = None
        self._requested_at: float | None = None
        self._flushed_sequence_id = -1
        #: When a flush was last asked for, by a failure or by a replica that opens; for the status.
        self.asked_at: float | None = None
        self.requests = 0
        self.runs = 0

    def request(self, sequence_id: int, *, is_urgent: bool = True) -> None:
        """Request a flush, because a replica lacks edits up to ``sequence_id``."""
        with self._lock:
            if self._is_stopped:
                return
            now = self._runtime.now()
            self.asked_at = now
            self.requests += 1
            if self._timer is not None:
                self._timer_sequence_id = max(self._timer_sequence_id, sequence_id)
                return
            wait_s = self._wait_s(now, is_urgent)
            if wait_s > 0:
                self._timer_sequence_id = sequence_id
                self._timer = self._armed(wait_s, self._timer_fired)
                return
            self._requested_at = now
        self._run()

    def _wait_s(self, now: float, is_urgent: bool) -> float:
        since_s = self._interval_s if self._requested_at is None else now - self._requested_at
        left_s = self._interval_s - since_s
        return left_s if left_s > 0 else 0.0 if is_urgent else self._interval_s

    def request_for_open(self) -> None:
        """Request a flush for a replica that has opened; replicas that open at the same time share it."""
        with self._lock:
            if self._is_stopped:
                return
            self.asked_at = self._runtime.now()
            self.requests += 1
            if self._gather_timer is None:
                self._gather_timer = self._armed(self._gather_s, self._gathered)

    def record(self, sequence_id: int) -> None:
        """Record the start of a flush of all families that covers everything up to ``sequence_id``."""
        with self._lock:
            self._flushed_sequence_id = max(self._flushed_sequence_id, sequence_id)
            if self._timer is not None and sequence_id >= self._timer_sequence_id:
                self._timer.cancel()
                self._timer = None
            # A replica that asked because it opened is online, and gets this marker.
            if self._gather_timer is not None:
                self._gather_timer.cancel()
                self._gather_timer = None

    def stop(self) -> None:
        with self._lock:
            self._is_stopped = True
            for timer in (self._timer, self._gather_timer):
                if timer is not None:
                    timer.cancel()
            self._timer = self._gather_timer = None

    def _armed(self, wait_s: float, function: Callable[[], None]) -> Timer | None:
        with suppress(ConnectionClosed):
            return self._runtime.call_later(wait_s, function)
        return None

    def _timer_fired(self) -> None:
        with self._lock:
            self._timer = None
            if self._is_stopped or self._timer_sequence_id < self._flushed_sequence_id:
                return
            self._requested_at = self._runtime.now()
        self._run()

    def _gathered(self) -> None:
        with self._lock:
            self._gather_timer = None
            if self._is_stopped:
                return
        self._run()

    def _run(self) -> None:
        self.runs += 1
        logger.info("%s: flush for its replicas", self._name)
        try:
            self._runtime.start(self._flush_or_ask_again, name="replica-flush")
        except Overloaded:
            self._ask_again(_BUSY_PAUSE_S)
        except ConnectionClosed:
            pass

    def _flush_or_ask_again(self) -> None:
        if not self._flush():
            self._ask_again(self._interval_s)

    def _ask_again(self, wait_s: float) -> None:
        with self._lock:
            if not self._is_stopped and self._timer is None:
                self._timer_sequence_id = self._flushed_sequence_id
                self._timer = self._armed(wait_s, self._timer_fired)
