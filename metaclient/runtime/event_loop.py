"""The asyncio runtime: blocking code in greenlets on an event loop, without a thread.

1. A coroutine runs a blocking function in a greenlet (:meth:`AsyncioRuntime.call`). Where the function waits, its
   greenlet switches back to the loop, and the coroutine awaits a future. When the wait ends, the coroutine continues
   the greenlet. The greenlet therefore runs in the step of its asyncio task, with the context variables of that task.
2. Tasks, daemons and timers of the runtime run in greenlets, too. Callbacks of the loop continue them.
3. A cancelled asyncio task raises CancelledError at once. The same error is raised in its greenlet, at its wait. If the
   greenlet has to wait again while it cleans up, or waits for a lock, it continues in the background: the
   :attr:`stats` count it as ``unwinding``. A wait for a lock is never interrupted, as no other runtime interrupts it.
4. Tasks that wait are continued by one callback of the loop, up to ``TASKS_PER_TURN`` of them: see ``wakeups.py``. A
   stream that has read answers continues their tasks in the same callback (:meth:`AsyncioRuntime.deliver`).
5. A call of the network may be a wakeup itself (`StartedCall`). A coroutine awaits it without a greenlet, so that ten
   thousand waiting calls need no stacks.
6. Deadlines are in one heap with one timer of the loop: most calls end long before their deadline.

All of it belongs to the thread of the loop. Only :meth:`AsyncioRuntime.close_dropped` may be called in another thread.
"""

from __future__ import annotations

import asyncio
import logging
import random
import time
import warnings
from collections import deque
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, TypeVar

from metaclient.errors import ConnectionClosed, Overloaded
from metaclient.runtime.forks import inherited_error, on_fork
from metaclient.runtime.greens import FirmWaiter, Green, LoopLock, LoopTimers, LoopWaiter, getcurrent
from metaclient.runtime.timers import Timer
from metaclient.runtime.waiting import Blocking, Lock, Task, closed_error
from metaclient.runtime.wakeups import StartedCall, Turns, Wakeup

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

__all__ = ["AsyncioRuntime"]

T = TypeVar("T")
_log = logging.getLogger(__name__)
#: Spare greenlets that are kept for new calls: a new greenlet maps 16 KB of memory for its frames.
SPARE_MAX = 1024
#: Rows that an iteration makes before other tasks of the loop run: about a millisecond of work.
ROWS_PER_TURN = 100


class AsyncioRuntime(Blocking):
    """Blocking code in greenlets on the running event loop; see the module's docstring.

    It has more than 30 methods because coroutines, tasks, timers and the end share the greenlets that run.

    >>> async def program():
    ...     runtime = AsyncioRuntime()
    ...     answer = runtime.pending()
    ...     waiting = asyncio.ensure_future(runtime.call(answer.result))
    ...     await asyncio.sleep(0)
    ...     answer.complete(42)
    ...     print(await waiting)
    ...     await runtime.call(runtime.close)
    >>> asyncio.run(program())
    42
    """

    callers_help = False  # a caller that reads for other callers could not be cancelled without harm to them

    def __init__(
        self, *, max_tasks: int = 10_000, seed: int | None = None, loop: asyncio.AbstractEventLoop | None = None
    ) -> None:
        self.now: Callable[[], float] = time.monotonic
        self.rng = random.Random(seed)
        self.loop = asyncio.get_running_loop() if loop is None else loop
        self._max_tasks = max_tasks
        self.turns = Turns(self.loop)
        self._timers = LoopTimers(self.loop)
        self._tasks: dict[Green, Task[Any]] = {}  # running
        self._new_tasks: dict[Task[Any], None] = {}  # not begun yet
        self._calls: set[Green] = set()  # that wait
        self._started = 0  # calls that wait without a greenlet
        self._unwinding: set[Green] = set()
        self._spare: list[Green] = []
        self._ended: FirmWaiter | None = None  # of close(), which waits until all tasks have ended
        self._peak = 0
        self._abandoned = 0
        on_fork(self._leave_to_parent)

    def _leave_to_parent(self) -> None:
        """In a child process: end here; the loop and its greenlets belong to the parent."""
        self.fork_count += 1
        self._closed = True
        self.rng.seed()
        for task in (*self._tasks.values(), *self._new_tasks):
            task._orphan(inherited_error(f"task {task.name}", "use the blocking API, or a new event loop"))

    def on_fork(self, renew: Callable[[], None]) -> None:
        on_fork(renew)

    def time_ms(self) -> int:
        return time.time_ns() // 1_000_000

    def sleep(self, seconds: float) -> None:
        LoopWaiter(self).park(self.now() + seconds, "sleep")

    def lock(self) -> Lock:
        return LoopLock(self)

    def _waiter(self) -> LoopWaiter:
        return LoopWaiter(self)

    # -- coroutines ----------------------------------------------------------------------------------------------------

    async def call(self, function: Callable[..., T], /, *args: Any, **options: Any) -> T:
        """Run a blocking function in a greenlet, and return its result. Cancelling the task ends the call.

        The CancelledError has the attribute ``may_have_applied``, as the errors of this package have: True if a write
        was sent whose outcome is unknown.
        """
        green = self._begin_call(function, args, options)
        try:
            while not green.is_over:
                await self._wakeup_of(green)
                green.switch()
        except BaseException as error:  # CancelledError, or GeneratorExit of a coroutine that is closed
            self._cancel(green, error)
            raise
        result: T = self._end_call(green)
        return result

    @property
    def is_here(self) -> bool:
        """True if the caller runs in the event loop of this runtime."""
        return asyncio.get_running_loop() is self.loop

    async def finish(self, started: StartedCall[T]) -> T:
        """Return the result of a call that was started without a greenlet. Retries of it run in a greenlet."""
        self._started += 1
        try:
            await started.wakeup
        except BaseException as error:
            started.abandon()
            if not hasattr(error, "may_have_applied"):
                error.may_have_applied = started.is_write  # type: ignore[attr-defined]  # as in _cancel
            raise
        finally:
            self._started -= 1
        return started.finish() if started.decode() else await self.call(started.finish)

    def _end_call(self, green: Green) -> Any:
        self._calls.discard(green)
        self._keep(green)
        return green.take_result()

    def _begin_call(self, function: Callable[..., Any], args: tuple[Any, ...], options: dict[str, Any]) -> Green:
        if not self.is_here:
            raise RuntimeError(
                "this connection belongs to another event loop: call metaclient.aio.connect() in the loop that uses it"
            )
        green = self._spare.pop() if self._spare else Green()
        driver = getcurrent()
        green.parent = driver
        green.gr_context = driver.gr_context
        green.switch(function, args, options)
        if not green.is_over:
            self._calls.add(green)
        return green

    def _wakeup_of(self, green: Green) -> Wakeup:
        wakeup = green.wakeup = Wakeup(self.turns)
        return wakeup

    def _cancel(self, green: Green, error: BaseException) -> None:
        """End a call: raise the error at its wait, and let it continue in the background if it waits again."""
        self._calls.discard(green)
        self._unwinding.add(green)
        green.wakeup = None
        waiter = green.waiter
        if waiter is not None and not waiter.is_interruptible:
            green.cancelled = error
            if waiter.is_settled:  # its wait has ended, and the coroutine that would have continued it is cancelled
                self.loop.call_soon(self._continue, waiter)
        else:
            green.throw(error)
            self._check_unwound(green)
        if not hasattr(error, "may_have_applied"):
            error.may_have_applied = False  # type: ignore[attr-defined]  # an attribute for callers that catch it

    def _check_unwound(self, green: Green) -> None:
        if green.is_over:
            self._unwinding.discard(green)
            if isinstance(green.error, Exception):
                _log.debug("a cancelled call ended with an error", exc_info=green.error)
            self._note_end()

    async def iterate(self, rows: Iterator[T]) -> AsyncGenerator[T, None]:
        """Iterate over a blocking iterator, which is closed at the end; rows that are there are returned in one go.

        While the caller works on these rows, callbacks of the loop continue the iterator up to ``ROWS_PER_TURN``.
        """
        made: deque[T] = deque()
        is_over = False
        green: Green | None = None
        try:
            while not is_over:
                green = self._begin_call(_fill, (rows, made), {})
                while True:
                    green.wakeup = None
                    while made:
                        yield made.popleft()
                    if green.is_over:
                        break
                    await self._wakeup_of(green)
                    if not green.is_over:
                        green.switch()
                is_over = self._end_call(green)
        except BaseException as error:
            if green is not None and green in self._calls:
                if green.is_over:
                    self._calls.discard(green)
                else:
                    self._cancel(green, error)
                    is_over = True  # the error closes the iterator in its greenlet
            raise
        finally:
            close = getattr(rows, "close", None)
            if not is_over and close is not None and not self._closed:
                await self.call(close)

    # -- tasks and timers ----------------------------------------------------------------------------------------------

    def start(self, function: Callable[..., T], *args: object, name: str = "task") -> Task[T]:
        return self._start(Task(self, function, args, name, False))

    def start_daemon(self, function: Callable[..., T], *args: object, name: str = "daemon") -> Task[T]:
        return self._start(Task(self, function, args, name, True))

    def _start(self, task: Task[T]) -> Task[T]:
        self._check_open()
        count = len(self._tasks) + len(self._new_tasks)
        if count >= self._max_tasks:
            raise Overloaded(f"cannot start {task.name}: all {self._max_tasks} tasks are busy")
        self._peak = max(self._peak, count + 1)
        self._new_tasks[task] = None
        self.loop.call_soon(self._begin, task)
        return task

    def _begin(self, task: Task[Any]) -> None:
        del self._new_tasks[task]
        green = self._spare.pop() if self._spare else Green()
        driver = getcurrent()
        green.parent = driver
        green.gr_context = driver.gr_context
        self._tasks[green] = task
        green.switch(task._run, (), {})
        self._check_task(green)

    def _continue_soon(self, waiter: LoopWaiter) -> None:
        green = waiter._green
        assert green is not None, "a wait that is parked has a greenlet"
        wakeup = green.wakeup
        if wakeup is None:
            self.loop.call_soon(self._continue, waiter)
        else:
            wakeup.wake()

    def deliver(self, reader: LoopWaiter) -> None:
        """Continue the reader of a stream, and the tasks that it wakes, in this callback of the loop."""
        self.turns.run(reader.continue_now)

    def deliver_by(self, receive: Callable[[], None]) -> None:
        """As `deliver`, with a function that reads. It runs in a greenlet, because it may have to wait."""
        self.turns.run(lambda: self._run_in_green(receive))

    def _run_in_green(self, function: Callable[[], None]) -> None:
        green = self._spare.pop() if self._spare else Green()
        driver = getcurrent()
        green.parent = driver
        green.gr_context = driver.gr_context
        green.switch(function, (), {})
        if green.is_over:
            self._keep(green)
            green.take_result()
        else:
            self._unwinding.add(green)

    def _continue(self, waiter: LoopWaiter) -> None:
        """Continue a greenlet for which no coroutine waits: a task, an iteration, or a cancelled call."""
        green = waiter._green
        if green is None or green.waiter is not waiter:
            return  # it was continued already
        green.switch()
        if green in self._tasks:
            self._check_task(green)
        elif green in self._unwinding:
            self._check_unwound(green)
        elif green.is_over and green.wakeup is not None:
            green.wakeup.wake()  # an iteration whose coroutine has begun to wait meanwhile

    def _check_task(self, green: Green) -> None:
        if not green.is_over:
            return
        task = self._tasks.pop(green)
        green.take_result()  # None: a Task keeps its own outcome
        self._keep(green)
        self._note_end()
        if isinstance(task._error, KeyboardInterrupt | SystemExit):
            raise task._error  # to the loop: the user stops the program, not the task that happened to run

    def _keep(self, green: Green) -> None:
        if len(self._spare) < SPARE_MAX and not self._closed:
            self._spare.append(green)

    def _note_end(self) -> None:
        if self._ended is not None:
            self._ended.wake()

    def call_later(self, delay_s: float, function: Callable[[], None]) -> Timer:
        self._check_open()

        def fire() -> None:  # as a task, so that the function may take a lock that is held
            if not self._closed:
                self._start(Task(self, function, (), "timer", True))

        return Timer(self._timers, self.now() + max(delay_s, 0.0), fire, True)

    def alarm(self, instant: float, function: Callable[[], None]) -> Timer:
        """Call a function at an instant, in a callback of the loop: it must not wait. `call_later` starts a task."""
        return Timer(self._timers, instant, lambda: self._call_soon(function), True)

    def _call_soon(self, function: Callable[[], None]) -> None:
        self.loop.call_soon(function)

    # -- the end -------------------------------------------------------------------------------------------------------

    def close(self, timeout_s: float = 1.0) -> None:
        if self._closed:
            return
        self._closed = True
        self._timers.clear()
        me = getcurrent()
        for task in list(self._new_tasks):
            task.fail(closed_error())
        for green in (*self._tasks, *self._calls, *self._unwinding):
            if green is not me and green.waiter is not None:
                green.waiter.interrupt()
        if type(me) is Green:
            self._wait_for_end(me, self.now() + timeout_s)
        self._abandon(me)
        self._timers.stop()

    def _wait_for_end(self, me: Green, deadline: float) -> None:
        while self._new_tasks or any(green is not me for green in (*self._tasks, *self._unwinding)):
            self._ended = FirmWaiter(self)
            if not self._ended.park(deadline, "the end of all tasks"):
                return

    def _abandon(self, me: object) -> None:
        """Fail the tasks that still run, so that no caller waits for them."""
        left = [task for green, task in self._tasks.items() if green is not me]
        left = [task for task in left if task.fail(ConnectionClosed(f"{task.name} was abandoned at close"))]
        self._abandoned = len(left)
        self._spare.clear()
        if left:
            _log.warning("closed with %d tasks still running: %s", len(left), ", ".join(t.name for t in left[:10]))

    def close_dropped(self, name: str, close: Callable[[], None]) -> None:
        """Close an object that is being collected, on the loop, and warn that it was not closed before."""
        if self.loop.is_closed():
            self._closed = True
        elif not self._closed:
            self.loop.call_soon_threadsafe(self._close_soon, close)
        warnings.warn(
            f"unclosed {name}: await its close(), or use it in an async with statement", ResourceWarning, stacklevel=3
        )

    def _close_soon(self, close: Callable[[], None]) -> None:
        if not self._closed:
            self._start(Task(self, close, (), "close-dropped", True))

    def stats(self) -> dict[str, int]:
        return {
            "running": len(self._tasks),
            "queued": len(self._new_tasks),
            "calls": len(self._calls) + self._started,
            "unwinding": len(self._unwinding),
            "timers": len(self._timers),
            "peak": self._peak,
            "abandoned": self._abandoned,
        }


def _fill(rows: Iterator[T], made: deque[T]) -> bool:
    """Make the rows of one turn; return True at the end."""
    for _ in range(ROWS_PER_TURN):
        try:
            made.append(next(rows))
        except StopIteration:
            return True
    return False
