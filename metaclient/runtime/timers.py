"""Stores timers and deadlines in a heap by their instants."""

from __future__ import annotations

import heapq
import threading
from collections.abc import Callable
from typing import Protocol


class Alarm(Protocol):
    """An entry of a heap of timers: armed until it is popped or cancelled."""

    is_armed: bool

    @property
    def is_daemon(self) -> bool: ...

    def fire(self) -> None: ...


class Timers:
    """A heap of alarms by (instant, order of arming). For one thread.

    Most alarms are deadlines of calls that end long before. Cancelled alarms are removed as soon as they are the
    majority, so that the heap has at most twice as many entries as there are armed alarms.
    """

    _SWEEP_MIN = 64  # with fewer cancelled alarms, their removal costs more than it frees

    def __init__(self) -> None:
        self.heap: list[tuple[float, int, Alarm]] = []  # (instant, order, alarm), with the cancelled alarms
        self._armed = 0
        self._cancelled = 0

    def __len__(self) -> int:
        return len(self.heap) - self._cancelled

    def arm(self, instant: float, alarm: Alarm) -> None:
        self._armed += 1
        alarm.is_armed = True
        heapq.heappush(self.heap, (instant, self._armed, alarm))

    def cancel(self, alarm: Alarm) -> bool:
        """Cancel an alarm; return False if it has been popped or cancelled before."""
        if not alarm.is_armed:
            return False
        alarm.is_armed = False
        self._cancelled += 1
        if self._cancelled > self._SWEEP_MIN and self._cancelled * 2 > len(self.heap):
            self.heap = [entry for entry in self.heap if entry[2].is_armed]
            heapq.heapify(self.heap)
            self._cancelled = 0
        return True

    def next_instant(self) -> float | None:
        heap = self.heap
        while heap and not heap[0][2].is_armed:
            heapq.heappop(heap)
            self._cancelled -= 1
        return heap[0][0] if heap else None

    def pop_due(self, now: float) -> list[Alarm]:
        """Remove, disarm and return all alarms that are due; a later ``cancel`` of them returns False."""
        due = []
        heap = self.heap
        while heap and heap[0][0] <= now:
            alarm = heapq.heappop(heap)[2]
            if alarm.is_armed:
                alarm.is_armed = False
                due.append(alarm)
            else:
                self._cancelled -= 1
        return due

    def fire_due(self, now: float) -> None:
        """Fire all alarms that are due; only for alarms that neither arm nor cancel others when they fire."""
        heap = self.heap
        while heap and heap[0][0] <= now:
            alarm = heapq.heappop(heap)[2]
            if alarm.is_armed:
                alarm.is_armed = False
                alarm.fire()
            else:
                self._cancelled -= 1

    def has_only_daemons(self) -> bool:
        return not any(alarm.is_armed and not alarm.is_daemon for _, _, alarm in self.heap)

    def clear(self) -> None:
        for _, _, alarm in self.heap:
            alarm.is_armed = False
        self.heap, self._cancelled = [], 0


class SharedTimers(Timers):
    """Timers for many threads."""

    def __init__(self) -> None:
        super().__init__()
        self._mutex = threading.Lock()

    def renew(self) -> None:
        """Remove all timers in a child process, because the thread that would fire them is in the parent."""
        self._mutex = threading.Lock()
        super().clear()

    def arm(self, instant: float, alarm: Alarm) -> None:
        with self._mutex:
            super().arm(instant, alarm)

    def cancel(self, alarm: Alarm) -> bool:
        with self._mutex:
            return super().cancel(alarm)

    def next_instant(self) -> float | None:
        with self._mutex:
            return super().next_instant()

    def pop_due(self, now: float) -> list[Alarm]:
        with self._mutex:
            return super().pop_due(now)

    def clear(self) -> None:
        with self._mutex:
            super().clear()


class Timer:
    """A function that is called at ``instant``, unless the timer is cancelled before."""

    __slots__ = ("_timers", "fire", "instant", "is_armed", "is_daemon")

    def __init__(self, timers: Timers, instant: float, function: Callable[[], None], is_daemon: bool = False) -> None:
        self.instant = instant
        self.is_daemon = is_daemon
        self.is_armed = False
        self.fire = function
        self._timers = timers
        timers.arm(instant, self)

    def cancel(self) -> bool:
        """Prevent the call; return False if it was made, is being made, or was cancelled before."""
        return self._timers.cancel(self)
