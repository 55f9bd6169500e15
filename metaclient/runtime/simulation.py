"""The simulated runtime: greenlets on a virtual clock; one seed decides every interleaving."""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable
from types import TracebackType
from typing import Any, TypeVar

from metaclient.errors import ConnectionClosed, ExtraMissing, Overloaded
from metaclient.runtime.timers import Timer, Timers
from metaclient.runtime.waiting import Blocking, Lock, Task, WaitState, closed_error

T = TypeVar("T")


class SimDeadlock(RuntimeError):
    """No task of the simulation can run any more; the message names the waiting tasks and what they wait on."""


_INFINITY = float("inf")
_MAIN = "the main programme"
_FNV_PRIME, _FNV_MASK = 0x100000001B3, 0xFFFFFFFFFFFFFFFF  # FNV-1a of 64 bits, one number per step


_FRESH, _PARKED, _WOKEN, _EXPIRED, _CLOSED = WaitState  # the hot path: a global is found faster than an Enum member


class _SimWaiter:
    """A task's wait, and also its deadline in the heap of timers: one object, because this is the hot path."""

    __slots__ = ("_runtime", "_state", "_task", "is_armed", "on")
    ends_at_close = True

    def __init__(self, runtime: SimRuntime) -> None:
        self._runtime = runtime
        self._state = _FRESH
        self._task: _SimTask[Any] | None = None
        self.is_armed = False
        self.on: object = None

    @property
    def is_daemon(self) -> bool:
        return self._task is not None and self._task.is_daemon

    def park(self, deadline: float | None, on: object) -> bool:
        if self._state is _WOKEN:
            return True
        runtime = self._runtime
        if runtime._closed and self.ends_at_close:
            raise closed_error()
        task = runtime._current
        if deadline is not None and task is not None and not runtime._ready and runtime._pass(deadline, task):
            self._state = _EXPIRED
            return False
        return self._wait(task, deadline, on)

    def _wait(self, task: _SimTask[Any] | None, deadline: float | None, on: object) -> bool:
        """Let other tasks run until this wait ends; ``task`` is the running task."""
        runtime = self._runtime
        self._task = task
        if deadline is not None:
            runtime._timers.arm(deadline, self)
        self._state = _PARKED
        self.on = on
        try:
            if task is None:
                runtime._drive(self)
            else:
                task.waiter = self
                runtime._to_hub()
        finally:
            if self.is_armed:
                runtime._timers.cancel(self)
        if self._state is _CLOSED:
            raise closed_error()
        return self._state is _WOKEN

    def wake(self, source: object = None) -> None:
        if self._state is _FRESH:
            self._state = _WOKEN
        else:
            self._settle(_WOKEN)

    def fire(self) -> None:
        self._settle(_EXPIRED)  # the deadline has passed

    def interrupt(self) -> None:
        if self.ends_at_close:
            self._settle(_CLOSED)

    def _settle(self, state: WaitState) -> None:
        if self._state is _PARKED:
            self._state = state
            if self._task is not None:
                self._task.waiter = None
                self._runtime._ready.append(self._task)


class _SimLockWaiter(_SimWaiter):
    """A wait for a lock, which close does not interrupt: the holder of the lock is woken and releases it."""

    __slots__ = ()
    ends_at_close = False


class _SimPauseWaiter(_SimWaiter):
    """A wait between two statements, where the program expects no wait: close ends the wait without an error."""

    __slots__ = ()
    ends_at_close = False

    def interrupt(self) -> None:
        self._settle(_EXPIRED)


class _SimLock:
    __slots__ = ("_holder", "_runtime", "_waiters")

    def __init__(self, runtime: SimRuntime) -> None:
        self._runtime = runtime
        self._holder: _SimTask[Any] | str | None = None
        self._waiters: deque[_SimLockWaiter] = deque()

    def acquire(self) -> bool:
        runtime = self._runtime
        if runtime._preempt and runtime._chance.random() < runtime._preempt:
            runtime._give_way()
        while self._holder is not None:  # as with threads, another task may take a released lock before the woken task
            waiter = _SimLockWaiter(runtime)
            self._waiters.append(waiter)
            waiter.park(None, self)
        self._holder = runtime._current or _MAIN
        return True

    def release(
        self,
        kind: type[BaseException] | None = None,
        error: BaseException | None = None,
        trace: TracebackType | None = None,
        /,
    ) -> None:
        if self._holder is None:
            raise RuntimeError("release of a lock that is not held")
        self._holder = None
        if self._waiters:
            self._waiters.popleft().wake()

    __enter__, __exit__ = acquire, release  # the hot path: without a call in between

    @property
    def holder(self) -> str | None:
        """The name of the task that holds the lock."""
        return self._holder.name if isinstance(self._holder, _SimTask) else self._holder

    def __repr__(self) -> str:
        return "<Lock: free>" if self._holder is None else f"<Lock: held by {self.holder}>"


class _SimTask(Task[T]):
    __slots__ = ("greenlet", "number", "switch", "waiter")

    def __init__(
        self, runtime: SimRuntime, function: Callable[..., T], args: tuple[object, ...], name: str, is_daemon: bool
    ) -> None:
        super().__init__(runtime, function, args, name, is_daemon)
        self.number = 0
        self.greenlet: Any = None  # set at the first switch; the hub makes it and so becomes its parent
        self.switch: Callable[[], object] | None = None  # the method of the greenlet, bound once: the hot path
        self.waiter: _SimWaiter | None = None


class SimRuntime(Blocking):
    """Greenlets on a virtual clock; one seed decides every interleaving.

    1. While tasks are ready, the seeded ``_chance`` picks the next task; it runs until it waits.
    2. When no task is ready, the clock jumps to the next timer; all timers that are due at that instant fire at once.
    3. When there is no timer either, the wait of the main program cannot end: it raises :class:`SimDeadlock`.

    The main program (any code outside of a task) may block, too: it then drives the tasks until its wait ends. With
    ``preempt``, tasks also yield at that share of lock acquisitions. A runtime belongs to the thread that uses it. It
    must be closed, because suspended greenlets are invisible to the garbage collector.

    >>> def race(seed):
    ...     with SimRuntime(seed) as runtime:
    ...         order = []
    ...         tasks = [runtime.start(order.append, name) for name in "abc"]
    ...         runtime.run_for(0)
    ...         return "".join(order), runtime.digest()
    >>> race(1) == race(1), len({race(seed)[0] for seed in range(50)})
    (True, 6)
    """

    #: A main program that has waited this long while only daemons ran is stuck (heartbeats of daemons never end).
    STUCK_S = 86_400.0
    #: At close, tasks that continue after ConnectionClosed are ended by force after this many switches per task.
    CLOSE_SWITCHES_MAX = 1000
    #: Spare greenlets that are kept for new tasks. More are rarely needed, and each holds a stack.
    SPARE_MAX = 256

    def __init__(
        self, seed: int = 0, *, start_ms: int = 1_700_000_000_000, preempt: float = 0.0, max_tasks: int = 1_000_000
    ) -> None:
        self._greenlet = import_greenlet()
        self.seed = seed
        self.rng = random.Random(seed)
        # A separate source: the random numbers of the program must not depend on how often its tasks were switched.
        self._chance = random.Random(seed ^ 0x5DEECE66D)
        self._start_ms, self._preempt, self._max_tasks = start_ms, preempt, max_tasks
        self._now = 0.0
        self._timers = Timers()
        self._ready: list[_SimTask[Any]] = []
        self._tasks: dict[int, _SimTask[Any]] = {}
        self._current: _SimTask[Any] | None = None
        self._spare: list[Any] = []  # greenlets without a task: a new greenlet costs as much as several switches
        self._to_hub: Any = None  # switches to the hub, the greenlet that drives the tasks; None while none does
        self._driven: _SimWaiter | None = None  # the wait of the main program that drives the tasks, if it waits
        self._limit = _INFINITY  # the instant up to which the main program drives the tasks
        self._user_ran_at = 0.0
        self._digest = 0
        self._switches = 0
        self._created = 0
        self._peak = 0
        self._abandoned = 0

    def now(self) -> float:
        return self._now

    def time_ms(self) -> int:
        return self._start_ms + int(self._now * 1000)

    def sleep(self, seconds: float) -> None:
        instant = self._now + seconds if seconds > 0 else self._now
        task = self._current
        if self._closed:
            raise closed_error()
        if task is None or self._ready or not self._pass(instant, task):
            _SimWaiter(self)._wait(task, instant, "sleep")

    def lock(self) -> Lock:
        return _SimLock(self)

    def _waiter(self) -> _SimWaiter:
        return _SimWaiter(self)

    def start(self, function: Callable[..., T], *args: object, name: str = "task") -> Task[T]:
        # A task that a daemon starts counts as a daemon: it does not show that the main program makes progress.
        return self._start(function, args, name, self._current is not None and self._current.is_daemon)

    def start_daemon(self, function: Callable[..., T], *args: object, name: str = "daemon") -> Task[T]:
        return self._start(function, args, name, True)

    def _start(self, function: Callable[..., T], args: tuple[object, ...], name: str, is_daemon: bool) -> _SimTask[T]:
        self._check_open()
        if len(self._tasks) >= self._max_tasks:
            raise Overloaded(f"cannot start {name}: all {self._max_tasks} tasks are busy")
        task = _SimTask(self, function, args, name, is_daemon)
        self._created += 1
        task.number = self._created
        self._tasks[task.number] = task
        if len(self._tasks) > self._peak:
            self._peak = len(self._tasks)
        self._ready.append(task)
        return task

    def call_later(self, delay_s: float, function: Callable[[], None]) -> Timer:
        self._check_open()
        is_daemon = self._current is not None and self._current.is_daemon

        def fire() -> None:  # as a task, so that the function may take a lock that is held
            if not self._closed:
                self._start(function, (), "timer", is_daemon)

        return Timer(self._timers, self._now + max(delay_s, 0.0), fire, is_daemon)

    def run(self, function: Callable[..., T], *args: object) -> T:
        """Run the function as the main task until it returns, and all other tasks meanwhile.

        >>> with SimRuntime() as runtime:
        ...     try:
        ...         runtime.run(runtime.pending(name="godot").result)
        ...     except SimDeadlock as deadlock:
        ...         print(deadlock)
        nothing can run at 0.000 s; waiting:
          main on <Pending godot: waiting>
        """
        return self.start(function, *args, name="main").result()

    def run_until(self, instant: float) -> None:
        """Drive all tasks up to and including this instant."""
        if self._current is not None:
            self.sleep(instant - self._now)
            return
        with _Driving(self):
            self._limit = instant
            self._loop(instant, None)
        self._now = max(self._now, instant)

    def run_for(self, seconds: float) -> None:
        self.run_until(self._now + seconds)

    def digest(self) -> str:
        """Return a hash of every scheduling decision so far: equal runs have equal digests, on any machine."""
        return f"{self._digest:016x}"

    # -- the hub: runs in the greenlet in which the main program blocks

    def _drive(self, waiter: _SimWaiter) -> None:
        with _Driving(self):
            self._driven = waiter
            self._loop(None, waiter)
            if waiter._state is _PARKED:
                raise SimDeadlock(self._deadlock_report())

    def _loop(self, limit: float | None, waiter: _SimWaiter | None, switches_max: int = -1) -> None:
        """Run tasks, and move the clock when no task is ready, until neither is possible or the waiter is woken."""
        ready, draw = self._ready, self._chance.random
        while waiter is None or waiter._state is _PARKED:
            count = len(ready)
            if count == 0:
                if self._advance(limit):
                    continue
                return
            if switches_max == 0:
                return
            switches_max -= 1
            if count > 1:
                chosen = int(draw() * count)
                ready[chosen], ready[-1] = ready[-1], ready[chosen]
            task = ready.pop()
            if not task.is_daemon:
                self._user_ran_at = self._now
            self._digest = ((self._digest ^ task.number) * _FNV_PRIME) & _FNV_MASK
            self._switches += 1
            self._current = task
            try:
                if task.switch is not None:
                    task.switch()
                else:
                    self._begin(task)
            finally:
                self._current = None

    def _begin(self, task: _SimTask[Any]) -> None:
        task.greenlet = self._spare.pop() if self._spare else self._greenlet.greenlet(self._body)
        task.switch = task.greenlet.switch
        task.greenlet.switch(task)

    def _advance(self, limit: float | None) -> bool:
        instant = self._timers.next_instant()
        if instant is None or (limit is not None and instant > limit):
            return False
        if limit is None and instant - self._user_ran_at > self.STUCK_S:
            if self._timers.has_only_daemons():
                return False
            self._user_ran_at = instant
        if instant > self._now:
            self._now = instant
        self._digest = ((self._digest ^ int(self._now * 1e9)) * _FNV_PRIME) & _FNV_MASK
        self._timers.fire_due(self._now)
        return True

    def _pass(self, instant: float, task: _SimTask[Any]) -> bool:
        """Move the clock to ``instant`` without a switch, if no other task would run before it; return True if so.

        Most sleeps are the latency of a message, during which no other task runs. No task may be ready. The digest is
        updated as the hub would have updated it. False means that a timer comes first, so that the hub must decide.
        """
        now = self._now
        if instant < now:
            instant = now
        heap = self._timers.heap
        if heap and heap[0][0] <= instant:  # else no timer comes first, not even a cancelled one
            coming = self._timers.next_instant()
            if coming is not None and coming <= instant:
                return False
        if (
            instant > self._limit
            or instant - self._user_ran_at > self.STUCK_S
            or (self._driven is not None and self._driven._state is not _PARKED)
        ):
            return False
        self._now = instant
        self._digest = ((self._digest ^ int(instant * 1e9)) * _FNV_PRIME) & _FNV_MASK
        self._go_on(task)
        return True

    def _go_on(self, task: _SimTask[Any]) -> None:
        """Record, for a task that runs already, what the hub records when it chooses a task."""
        if not task.is_daemon:
            self._user_ran_at = self._now
        self._digest = ((self._digest ^ task.number) * _FNV_PRIME) & _FNV_MASK
        self._switches += 1

    def _body(self, task: _SimTask[Any]) -> None:
        """Run in one greenlet: run the task that is passed with the switch, then wait as a spare for the next task."""
        while True:
            task._run()
            self._tasks.pop(task.number, None)
            if isinstance(task._error, KeyboardInterrupt | SystemExit):
                raise task._error  # to the hub: the user stops the program, not the task that happened to run
            del task  # its result must not live as long as this greenlet
            if self._closed or len(self._spare) >= self.SPARE_MAX:
                return
            self._spare.append(self._greenlet.getcurrent())
            task = self._to_hub()

    def _give_way(self) -> None:
        task = self._current
        if task is None or self._closed:
            return
        if not self._ready and (self._driven is None or self._driven._state is _PARKED):
            self._go_on(task)  # no other task is ready
        else:
            self._ready.append(task)
            self._to_hub()

    def _pause(self, seconds: float) -> None:
        """Pause the running task and let the others run; do nothing in the main program."""
        task = self._current
        if task is not None and not self._closed:
            _SimPauseWaiter(self)._wait(task, self._now + seconds, "a pause between two statements")

    def _deadlock_report(self) -> str:
        tasks = sorted(self._tasks.values(), key=lambda task: (task.is_daemon, task.number))
        lines = [
            f"  {task.name}{' (daemon)' if task.is_daemon else ''} on {task.waiter.on if task.waiter else 'its turn'}"
            for task in tasks[:20]
        ]
        more = [f"  and {len(tasks) - 20} more"] if len(tasks) > 20 else []
        lines = lines or ["  the main programme alone"]
        return "\n".join([f"nothing can run at {self._now:.3f} s; waiting:", *lines, *more])

    def close(self, timeout_s: float = 1.0) -> None:
        """Close the runtime. When the main program calls it, also end by force the tasks that do not end themselves."""
        if not self._closed:
            self._closed = True
            self._timers.clear()
            for task in list(self._tasks.values()):
                if task.waiter is not None:
                    task.waiter.interrupt()
        if self._current is None and self._to_hub is None:
            self._end_tasks()

    def _end_tasks(self) -> None:
        with _Driving(self):
            self._loop(self._now, None, self.CLOSE_SWITCHES_MAX * len(self._tasks))
            for task in list(self._tasks.values()):
                self._end_by_force(task)
            for greenlet in self._spare:
                greenlet.throw(self._greenlet.GreenletExit)
        self._ready.clear()
        self._spare.clear()

    def _end_by_force(self, task: _SimTask[Any]) -> None:
        self._abandoned += 1
        task.fail(ConnectionClosed(f"{task.name} was abandoned at close"))
        self._current = task
        try:
            for _ in range(self.CLOSE_SWITCHES_MAX):
                if task.greenlet is None or task.greenlet.dead:
                    break
                task.greenlet.throw(self._greenlet.GreenletExit)
        finally:
            self._current = None
            self._tasks.pop(task.number, None)

    def stats(self) -> dict[str, int]:
        return {
            "running": len(self._tasks),
            "queued": 0,
            "ready": len(self._ready),
            "timers": len(self._timers),
            "peak": self._peak,
            "abandoned": self._abandoned,
            "switches": self._switches,
        }


class _Driving:
    """A context manager for the time in which the main program drives the tasks."""

    __slots__ = ("_runtime",)

    def __init__(self, runtime: SimRuntime) -> None:
        self._runtime = runtime

    def __enter__(self) -> None:
        if self._runtime._to_hub is not None:
            raise RuntimeError(
                "this SimRuntime is already running: run it from one thread, and do not block in its hub"
            )
        self._runtime._to_hub = self._runtime._greenlet.getcurrent().switch

    def __exit__(self, *_: object) -> None:
        self._runtime._to_hub = None
        self._runtime._driven = None
        self._runtime._limit = _INFINITY


def import_greenlet() -> Any:
    """Return the package greenlet; raise ExtraMissing where it is not installed."""
    try:
        import greenlet
    except ImportError as error:
        raise ExtraMissing.of("virtual time (SimRuntime)", error.name, extra="sim") from error
    return greenlet
