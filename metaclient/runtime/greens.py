"""Greenlets on an event loop: :class:`Green`, their waits and locks, and the heap of their deadlines."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable
from types import TracebackType
from typing import TYPE_CHECKING, Any

from metaclient.errors import ExtraMissing
from metaclient.runtime.timers import Alarm, Timers
from metaclient.runtime.waiting import WaitState, closed_error
from metaclient.runtime.wakeups import Wakeup

try:
    from greenlet import GreenletExit, getcurrent, greenlet
except ImportError as missing:
    raise ExtraMissing.of("metaclient.aio", missing.name, extra="aio") from missing

if TYPE_CHECKING:
    from metaclient.runtime.event_loop import AsyncioRuntime

__all__ = ["FirmWaiter", "Green", "LoopLock", "LoopTimers", "LoopWaiter", "getcurrent"]

_INFINITY = float("inf")


_FRESH, _PARKED, _WOKEN, _EXPIRED, _CLOSED = WaitState  # the hot path: a global is found faster than an Enum member


class Green(greenlet):  # type: ignore[misc]  # greenlet has no types for every version
    """A greenlet that runs one function after the other; between them it is a spare.

    ``wakeup`` is awaited by the coroutine that continues it; None if callbacks of the loop do. ``cancelled`` is the
    error of its cancelled asyncio task, to be raised at the next wait that can be interrupted.
    """

    def __init__(self) -> None:
        super().__init__()
        self.wakeup: Wakeup | None = None
        self.waiter: LoopWaiter | None = None
        self.cancelled: BaseException | None = None
        self.is_over = False
        self.value: Any = None
        self.error: BaseException | None = None

    def run(self, function: Callable[..., Any], args: tuple[Any, ...], options: dict[str, Any]) -> None:
        while True:
            try:
                self.value = function(*args, **options)
            except GreenletExit:  # no coroutine can continue it any more, and it is being collected
                return
            except BaseException as error:
                self.error = error
            self.is_over = True
            del function, args, options  # a spare must not keep the arguments of its last call alive
            function, args, options = self.parent.switch()

    def take_result(self) -> Any:
        """Return the value of the function that has ended, or raise its error."""
        value, error = self.value, self.error
        self.value = self.error = self.wakeup = None
        self.is_over = False
        if error is None:
            return value
        try:
            raise error
        finally:
            del error, self  # error -> traceback -> this frame -> error would be a cycle for every failed call


class LoopWaiter:
    """A wait of one greenlet, and also its deadline in the heap of timers."""

    __slots__ = ("_green", "_runtime", "_state", "is_armed", "on")
    is_daemon = False
    is_interruptible = True  # by the close of the runtime, and by the cancellation of the asyncio task

    def __init__(self, runtime: AsyncioRuntime) -> None:
        self._runtime = runtime
        self._state = _FRESH
        self._green: Green | None = None
        self.is_armed = False
        self.on: object = None

    def park(self, deadline: float | None, on: object) -> bool:
        if self._state is _WOKEN:
            return True
        runtime = self._runtime
        green = getcurrent()
        if type(green) is not Green:
            raise _explain_outside(on)
        if self.is_interruptible:
            if green.cancelled is not None:
                error, green.cancelled = green.cancelled, None
                raise error
            if runtime._closed:
                raise closed_error()
        if deadline is not None:
            runtime._timers.arm(deadline, self)
        self._state, self._green, self.on = _PARKED, green, on
        green.waiter = self
        try:
            green.parent.switch()
        finally:  # also when the cancellation of the asyncio task is raised here
            green.waiter = None
            if self.is_armed:
                runtime._timers.cancel(self)
            if self._state is _PARKED:
                self._state = _EXPIRED
        if self._state is _CLOSED:
            raise closed_error()
        return self._state is _WOKEN

    @property
    def is_settled(self) -> bool:
        """True if the wait has ended, whether or not its greenlet has been continued."""
        return self._state is not _PARKED

    def wake(self, source: object = None) -> None:
        if self._state is _FRESH:
            self._state = _WOKEN
        else:
            self._settle(_WOKEN)

    def fire(self) -> None:
        self._settle(_EXPIRED)

    def interrupt(self) -> None:
        if self.is_interruptible:
            self._settle(_CLOSED)

    def _settle(self, state: WaitState) -> None:
        if self._state is _PARKED:
            self._state = state
            self._runtime._continue_soon(self)

    def continue_now(self) -> None:
        """Wake the greenlet from a callback of the loop, without another round of the loop where that is possible."""
        green = self._green
        if self._state is _PARKED and green is not None and green.wakeup is None:
            self._state = _WOKEN
            self._runtime._continue(self)
        else:
            self.wake()


class FirmWaiter(LoopWaiter):
    """A wait that nothing interrupts: for a lock, for the write of a frame, for the end of the tasks at close."""

    __slots__ = ()
    is_interruptible = False


class LoopLock:
    """A lock between greenlets. It is taken without a switch unless another greenlet waits while it holds it."""

    __slots__ = ("_is_held", "_runtime", "_waiters")

    def __init__(self, runtime: AsyncioRuntime) -> None:
        self._runtime = runtime
        self._is_held = False
        self._waiters: deque[FirmWaiter] = deque()

    def acquire(self) -> bool:
        while self._is_held:
            waiter = FirmWaiter(self._runtime)
            self._waiters.append(waiter)
            waiter.park(None, self)
        self._is_held = True
        return True

    def release(
        self,
        kind: type[BaseException] | None = None,
        error: BaseException | None = None,
        trace: TracebackType | None = None,
        /,
    ) -> None:
        if not self._is_held:
            raise RuntimeError("release of a lock that is not held")
        self._is_held = False
        if self._waiters:
            self._waiters.popleft().wake()

    __enter__, __exit__ = acquire, release  # the hot path: without a call in between

    def __repr__(self) -> str:
        return f"<Lock: {'held' if self._is_held else 'free'}, {len(self._waiters)} waiting>"


class LoopTimers(Timers):
    """Timers and deadlines with one timer of the loop: most calls end long before their deadline."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__()
        self._loop = loop
        self._alarm: asyncio.TimerHandle | None = None
        self._alarm_at = _INFINITY

    def arm(self, instant: float, alarm: Alarm) -> None:
        super().arm(instant, alarm)
        if instant < self._alarm_at:
            self._ring_at(instant)

    def _ring_at(self, instant: float) -> None:
        if self._alarm is not None:
            self._alarm.cancel()
        self._alarm_at = instant
        self._alarm = self._loop.call_later(max(0.0, instant - time.monotonic()), self._ring)

    def _ring(self) -> None:
        self._alarm, self._alarm_at = None, _INFINITY
        self.fire_due(time.monotonic())
        instant = self.next_instant()
        if instant is not None and instant < self._alarm_at:
            self._ring_at(instant)

    def stop(self) -> None:
        """Cancel the timer of the loop, at the end."""
        self.clear()
        if self._alarm is not None:
            self._alarm.cancel()


def _explain_outside(on: object) -> RuntimeError:
    return RuntimeError(
        f"a blocking call was made on the event loop itself, where it cannot wait (on {on}): await the method of "
        "metaclient.aio instead"
    )
