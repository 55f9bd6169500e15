"""The production runtime: bounded, named daemon threads on the monotonic clock."""

from __future__ import annotations

import contextlib
import logging
import random
import threading
import time
from collections import deque
from collections.abc import Callable
from typing import Any, Self, TypeVar, cast

from metaclient.errors import ConnectionClosed, Overloaded
from metaclient.runtime.closing import close_dropped
from metaclient.runtime.forks import inherited_error, on_fork
from metaclient.runtime.green_threads import refuse_green_threads
from metaclient.runtime.running_loops import warn_in_loop
from metaclient.runtime.timers import SharedTimers, Timer
from metaclient.runtime.waiting import Blocking, Lock, Task, closed_error

T = TypeVar("T")
_log = logging.getLogger(__name__)


class _ThreadWaiter:
    __slots__ = ("_gate", "_is_woken", "_runtime")

    def __init__(self, runtime: ThreadRuntime) -> None:
        self._runtime = runtime
        self._gate = threading.Lock()
        self._gate.acquire()
        self._is_woken = False

    def park(self, deadline: float | None, on: object) -> bool:
        runtime = self._runtime
        runtime._parked.add(self)  # before _closed is read: close() first sets _closed and then reads _parked
        try:
            if runtime._closed and not self._is_woken:
                raise closed_error()
            warn_in_loop()
            wait_s = -1.0 if deadline is None else min(max(deadline - runtime.now(), 0.0), threading.TIMEOUT_MAX)
            is_open = self._gate.acquire(timeout=wait_s)
        finally:
            runtime._parked.discard(self)
        if is_open and not self._is_woken:
            raise closed_error()
        return self._is_woken

    def wake(self, source: object = None) -> None:
        self._is_woken = True
        self.interrupt()

    def interrupt(self) -> None:
        try:
            self._gate.release()
        except RuntimeError:  # open already: only the first wake or interrupt counts
            return


class _IdleWorker(_ThreadWaiter):
    """A worker's wait for its next task; ``task`` is set before the wake."""

    __slots__ = ("task", "thread")

    def __init__(self, runtime: ThreadRuntime) -> None:
        super().__init__(runtime)
        self.thread = threading.current_thread()
        self.task: Task[Any] | None = None


class ThreadRuntime(Blocking):
    """Bounded, named daemon threads on the monotonic clock.

    No thread is started before the first task or timer; an idle thread ends after ``idle_s``. The idle worker that
    worked last gets the next task, so that the other workers can end. In a child process after ``os.fork()`` the
    runtime starts with no thread, no task, no timer and new random state, whatever its seed was.

    >>> with ThreadRuntime() as runtime:
    ...     runtime.start(sum, [1, 2, 3]).result(deadline=runtime.now() + 10)
    6
    """

    def __new__(cls, *_args: object, **_options: object) -> Self:
        from metaclient.runtime.jitter import runtime_class  # which imports this module

        return super().__new__(cast("type[Self]", runtime_class(cls)))

    def __init__(
        self,
        *,
        max_tasks: int = 128,
        max_queued: int = 1024,
        max_daemons: int = 4096,
        idle_s: float = 10.0,
        name: str = "metaclient",
        seed: int | None = None,
    ) -> None:
        self.now: Callable[[], float] = time.monotonic  # not methods around them: every operation calls them
        self.thread_id: Callable[[], int] = threading.get_ident
        self.rng = random.Random(seed)
        self.name = name
        self._max_tasks, self._max_queued, self._max_daemons = max_tasks, max_queued, max_daemons
        self._idle_s = idle_s
        self._timers = SharedTimers()
        self._threads_started = 0
        self._workers: dict[threading.Thread, Task[Any] | None] = {}
        self._daemons: dict[threading.Thread, Task[Any]] = {}
        self._begin()
        on_fork(self._renew)

    def _begin(self) -> None:
        """Start with no task and no waiter, here and in a forked child."""
        self._parked: set[_ThreadWaiter] = set()  # updated by the waiters without the mutex: add and discard are atomic
        self._mutex = threading.Lock()  # guards the fields below, _workers, _daemons, and writes of _closed
        self._queue: deque[Task[Any]] = deque()
        self._idle: list[_IdleWorker] = []
        self._ending: list[threading.Thread] = []  # no longer in the other fields, but still alive
        self._timer_thread: threading.Thread | None = None
        self._timer_waiter = _ThreadWaiter(self)
        self._peak = 0
        self._abandoned = 0

    def _renew(self) -> None:
        """Drop the parent's threads and tasks in a child process. The thread that forked may be one of this runtime."""
        self.fork_count += 1
        self.rng.seed()
        self._timers.renew()
        me = threading.current_thread()
        theirs = [task for thread, task in (*self._workers.items(), *self._daemons.items()) if thread is not me]
        for task in (*self._queue, *theirs):
            if task is not None:
                task._orphan(inherited_error(f"task {task.name}", "start it again in this process"))
        self._workers = {thread: task for thread, task in self._workers.items() if thread is me}
        self._daemons = {thread: task for thread, task in self._daemons.items() if thread is me}
        self._begin()

    def close_dropped(self, name: str, close: Callable[[], None]) -> None:
        close_dropped(name, close)

    def on_fork(self, renew: Callable[[], None]) -> None:
        on_fork(renew)

    def time_ms(self) -> int:
        return time.time_ns() // 1_000_000

    def sleep(self, seconds: float) -> None:
        _ThreadWaiter(self).park(self.now() + seconds, "sleep")

    def runs_signal_handlers(self) -> bool:
        return self.thread_id() == threading.main_thread().ident

    def lock(self) -> Lock:
        return threading.Lock()

    def _waiter(self) -> _ThreadWaiter:
        return _ThreadWaiter(self)

    def start(self, function: Callable[..., T], *args: object, name: str = "task") -> Task[T]:
        task = Task(self, function, args, name, False)
        with self._mutex:
            self._check_open()
            idle = self._idle[-1] if self._idle else None
            if idle is not None:
                # In this order, an interrupt in between leaves an idle worker, or a worker that finds its task.
                idle.task = self._workers[idle.thread] = task
                del self._idle[-1]
            elif len(self._workers) < self._max_tasks:
                self._threads_started += 1
                self._workers[self._launch(self._work, task, f"{self.name}-{self._threads_started}")] = task
                self._peak = max(self._peak, len(self._workers))
            elif len(self._queue) < self._max_queued:
                self._queue.append(task)
            else:
                raise Overloaded(
                    f"cannot start {name}: all {self._max_tasks} tasks are busy and {self._max_queued} are queued"
                )
        if idle is not None:
            idle.wake()  # outside of the mutex, or the worker would wake only to wait for the mutex
        return task

    def start_daemon(self, function: Callable[..., T], *args: object, name: str = "daemon") -> Task[T]:
        task = Task(self, function, args, name, True)
        with self._mutex:
            self._check_open()
            if len(self._daemons) >= self._max_daemons:
                raise Overloaded(f"cannot start {name}: all {self._max_daemons} daemons are running")
            self._daemons[self._launch(self._serve, task, f"{self.name}-{name}")] = task
        return task

    def _launch(self, target: Callable[..., None], task: Task[Any] | None, name: str) -> threading.Thread:
        refuse_green_threads()
        thread = threading.Thread(target=target, args=(task,), name=name, daemon=True)
        try:
            thread.start()
        except RuntimeError as error:
            raise Overloaded(f"cannot start thread {name}: {error}") from error
        return thread

    def _serve(self, task: Task[Any]) -> None:
        task._run()
        with self._mutex:
            self._note_ending()
            self._daemons.pop(threading.current_thread(), None)  # absent if it forked before it was entered there

    def _note_ending(self) -> None:
        """Let close() join this thread, which is about to end; the caller holds the mutex."""
        self._ending = [*(thread for thread in self._ending if thread.is_alive()), threading.current_thread()]

    def _work(self, first: Task[Any]) -> None:
        task: Task[Any] | None = first
        while task is not None:
            task._run()
            task = self._next_task()

    def _next_task(self) -> Task[Any] | None:
        """Return the next task of this worker; None if the worker has to end."""
        idle = _IdleWorker(self)
        with self._mutex:
            if self._queue:
                self._workers[idle.thread] = task = self._queue.popleft()
                return task
            self._workers[idle.thread] = None
            self._idle.append(idle)
        with contextlib.suppress(ConnectionClosed):
            if idle.park(self.now() + self._idle_s, "work"):
                return idle.task
        with self._mutex:
            if idle.task is None:  # else the task was set at the moment at which this wait ended
                self._note_ending()
                self._idle.remove(idle)
                del self._workers[idle.thread]
        return idle.task

    def call_later(self, delay_s: float, function: Callable[[], None]) -> Timer:
        with self._mutex:
            self._check_open()
            timer = Timer(self._timers, self.now() + delay_s, function)
            if self._timer_thread is None:
                self._timer_thread = self._launch(self._keep_time, None, f"{self.name}-timer")
            elif self._timers.next_instant() == timer.instant:
                self._timer_waiter.wake()
        return timer

    def _keep_time(self, _task: None) -> None:
        while True:
            for timer in self._timers.pop_due(self.now()):
                try:
                    timer.fire()
                except Exception:
                    _log.exception("a timer's function failed")
            with self._mutex:
                waiter = self._timer_waiter = _ThreadWaiter(self)
                instant = self._timers.next_instant()
            try:
                is_woken = waiter.park(self.now() + self._idle_s if instant is None else instant, "timers")
            except ConnectionClosed:
                return
            if instant is None and not is_woken and self._is_timer_thread_done():
                return

    def _is_timer_thread_done(self) -> bool:
        with self._mutex:
            if self._timers.next_instant() is not None:
                return False
            self._note_ending()
            self._timer_thread = None
            return True

    def close(self, timeout_s: float = 1.0) -> None:
        deadline = self.now() + timeout_s
        with self._mutex:
            if self._closed:
                return
            self._closed = True
            queued = list(self._queue)
            self._queue.clear()
            threads = [*self._workers, *self._daemons, *self._ending]
            if self._timer_thread is not None:
                threads.append(self._timer_thread)
        self._timers.clear()
        for task in queued:
            task.fail(closed_error())
        for waiter in list(self._parked):
            waiter.interrupt()
        for thread in threads:
            if thread is not threading.current_thread():
                thread.join(max(0.0, deadline - self.now()))
        self._abandon()

    def _abandon(self) -> None:
        """Fail the tasks that still run, so that no caller waits for them; their threads end with the process."""
        me = threading.current_thread()
        with self._mutex:
            running = {**self._workers, **self._daemons}
        left = [task for thread, task in running.items() if task is not None and thread is not me]
        left = [task for task in left if task.fail(ConnectionClosed(f"{task.name} was abandoned at close"))]
        self._abandoned = len(left)
        if left:
            _log.warning("closed with %d tasks still running: %s", len(left), ", ".join(t.name for t in left[:10]))

    def stats(self) -> dict[str, int]:
        with self._mutex:
            return {
                "running": len(self._workers) - len(self._idle),
                "queued": len(self._queue),
                "idle": len(self._idle),
                "daemons": len(self._daemons),
                "timers": len(self._timers),
                "peak": self._peak,
                "abandoned": self._abandoned,
            }
