"""What a coroutine awaits on an event loop while a greenlet, or a call of the network, waits: a :class:`Wakeup`.

asyncio's own Future costs a callback of the loop per task that it continues, and so another round of the loop. A
`Wakeup` is continued by its runtime, which continues many tasks in one callback. It is a future in the sense of
``asyncio.isfuture``, for one coroutine, and without a value.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Generator
from contextvars import Context
from typing import Any, Protocol, TypeVar

from metaclient.runtime.waiting import WaitState

__all__ = ["TASKS_PER_TURN", "StartedCall", "Turns", "Wakeup"]

T_co = TypeVar("T_co", covariant=True)
#: Tasks that one callback continues: a user's task may work for a millisecond before it waits again.
TASKS_PER_TURN = 32

_, _PARKED, _WOKEN, _, _CANCELLED = WaitState  # the hot path: a global is found faster than an Enum member


class Turns:
    """Continues the tasks that wait for a `Wakeup`, up to ``TASKS_PER_TURN`` of them in one callback of the loop."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.loop = loop
        self._woken: deque[Wakeup] = deque()
        self._is_due = False  # a callback will continue the tasks, or is doing so

    def add(self, wakeup: Wakeup) -> None:
        """Continue the task of this wakeup soon."""
        self._woken.append(wakeup)
        if not self._is_due:
            self._is_due = True
            self.loop.call_soon(self._take)

    def run(self, read: Callable[[], None]) -> None:
        """Call a function that wakes tasks, as the last step of a callback of the loop, and continue these tasks.

        Where a task runs already (nested event loops), they are continued later.
        """
        if self._is_due or asyncio.current_task(self.loop) is not None:
            read()
            return
        self._is_due = True
        try:
            read()
        finally:
            self._take()

    def _take(self) -> None:
        woken = self._woken
        try:
            for _ in range(min(len(woken), TASKS_PER_TURN)):
                woken.popleft().step()
        finally:  # also if a task raises KeyboardInterrupt, which goes to the loop
            self._is_due = bool(woken)
            if woken:
                self.loop.call_soon(self._take)


class Wakeup:
    """See the module's docstring. Its state is PARKED, then WOKEN, or CLOSED if its task is cancelled."""

    __slots__ = ("_asyncio_future_blocking", "_callback", "_context", "_message", "_turns", "state")

    def __init__(self, turns: Turns) -> None:
        self._turns = turns
        self._asyncio_future_blocking = False
        self._callback: Callable[[Wakeup], object] | None = None
        self._context: Context | None = None
        self._message: Any = None
        self.state = _PARKED

    def __await__(self) -> Generator[Wakeup, None, None]:
        if self.state is _PARKED:
            self._asyncio_future_blocking = True
            yield self

    def wake(self, source: object = None) -> None:
        """Continue the task soon."""
        if self.state is _PARKED:
            self.state = _WOKEN
            self._turns.add(self)

    def step(self) -> None:
        """Continue the task now; only from a callback of the loop, in which no task runs."""
        callback, context = self._callback, self._context
        self._callback = self._context = None
        if callback is not None and context is not None:
            context.run(callback, self)

    # -- as asyncio calls a future -----------------------------------------------------------------------------------

    def get_loop(self) -> asyncio.AbstractEventLoop:
        return self._turns.loop

    def add_done_callback(self, callback: Callable[[Wakeup], object], /, *, context: Context) -> None:
        self._callback, self._context = callback, context

    def cancel(self, msg: Any = None) -> bool:
        """Cancel the wait; False if it has ended, and then the task raises CancelledError when it is continued."""
        if self.state is not _PARKED:
            return False
        self.state, self._message = _CANCELLED, msg
        self._turns.add(self)
        return True

    def result(self) -> None:
        if self.state is _CANCELLED:
            raise asyncio.CancelledError(*(() if self._message is None else (self._message,)))


class StartedCall(Protocol[T_co]):
    """An operation whose first call is in flight, for a coroutine that awaits it without a greenlet."""

    @property
    def wakeup(self) -> Awaitable[None]:
        """Ends when the call has its answer, has failed, or has reached its deadline."""
        ...

    @property
    def is_write(self) -> bool: ...

    def decode(self) -> bool:
        """Decode the answer of a call that has ended; return False if it has failed, and `finish` waits for retries."""
        ...

    def finish(self) -> T_co:
        """Return the result, after `decode`."""
        ...

    def abandon(self) -> None:
        """Forget the call, whose task was cancelled."""
        ...
