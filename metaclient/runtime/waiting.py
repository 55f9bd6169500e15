"""The objects that code can wait for, the same on all runtimes: Pending, Task, Condition, and their base Blocking."""

from __future__ import annotations

import enum
import logging
import random
import threading
from collections import deque
from collections.abc import Callable, Sequence
from itertools import starmap
from types import TracebackType
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar, cast

from metaclient.errors import ConnectionClosed, DeadlineExceeded, MetaClientError

T = TypeVar("T")
_log = logging.getLogger(__name__)
_ONCE: tuple[tuple[()], ...] = ((),)  # for starmap: one call without arguments


class TaskCancelled(MetaClientError):
    """The task was cancelled before it began, and never ran."""


class Waiter(Protocol):
    """A single wait of one task. ``wake`` may be called before ``park``, and more than once."""

    def park(self, deadline: float | None, on: object) -> bool:
        """Block until woken (True) or until the deadline (False); raise ConnectionClosed when the runtime closes."""
        ...

    def wake(self, source: object = None) -> None: ...


class WaitState(enum.Enum):
    """The state of one wait of a greenlet.

    FRESH -> PARKED -> WOKEN, EXPIRED or CLOSED; or FRESH -> WOKEN at once, on virtual time also FRESH -> EXPIRED.
    """

    FRESH = enum.auto()
    PARKED = enum.auto()
    WOKEN = enum.auto()
    EXPIRED = enum.auto()
    CLOSED = enum.auto()


class Lock(Protocol):
    """A non-reentrant lock and context manager."""

    def acquire(self) -> bool: ...

    def release(self) -> None: ...

    def __enter__(self) -> bool: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None, /
    ) -> None: ...


class Pending(Generic[T]):
    """A value that arrives later; completed by hand (async backends, single flights) or by a task.

    The first completion wins; later ones return False and are ignored. Made by ``runtime.pending()``.

    >>> from metaclient.runtime import SimRuntime
    >>> answer = SimRuntime().pending()
    >>> answer.complete(1), answer.complete(2), answer.result()
    (True, False, 1)
    """

    __slots__ = (
        "__weakref__",
        "_callbacks",
        "_cancel_asked",
        "_error",
        "_is_done",
        "_mutex",
        "_on_cancel",
        "_runtime",
        "_value",
        "name",
    )

    def __init__(self, runtime: Blocking, on_cancel: Callable[[], None] | None = None, name: str = "") -> None:
        self.name = name
        self._runtime = runtime
        self._on_cancel = on_cancel
        self._mutex = threading.Lock()  # guards the fields below; not held during callbacks, so SimRuntime can use it
        self._callbacks: list[Callable[[Pending[T]], object]] = []
        self._is_done = False
        self._cancel_asked = False
        self._value: T | None = None
        self._error: BaseException | None = None

    def complete(self, value: T) -> bool:
        """Store the value and wake all waiters; return False if the Pending was done already."""
        return self._finish(value, None)

    def fail(self, error: BaseException) -> bool:
        """Store an error, which ``result`` will raise; return False if the Pending was done already."""
        return self._finish(None, error)

    def _finish(self, value: T | None, error: BaseException | None) -> bool:
        callbacks: list[Callable[[Pending[T]], object]] = []
        try:
            with self._mutex:
                if self._is_done:
                    return False
                self._value, self._error = value, error
                self._is_done = True
                callbacks, self._callbacks = self._callbacks, []
            while callbacks:
                self._call(callbacks[0])
                del callbacks[0]
        except BaseException:  # an interrupt: the interrupted callback is called again, or its waiter would hang
            while callbacks:
                self._call(callbacks.pop(0))
            raise
        return True

    def _call(self, callback: Callable[[Pending[T]], object]) -> None:
        try:
            callback(self)
        except Exception:  # an error of a callback must affect neither the producer nor other callbacks
            _log.exception("a callback of %r failed", self)

    @property
    def is_done(self) -> bool:
        return self._is_done

    @property
    def is_cancel_asked(self) -> bool:
        """True once ``cancel`` was called; long-running producers may check it and stop."""
        return self._cancel_asked

    def result(self, deadline: float | None = None) -> T:
        """Wait for the value; raise the stored error, or DeadlineExceeded when the deadline comes first."""
        if not self._is_done and self._runtime.wait_first((self,), deadline) is None:
            raise DeadlineExceeded(f"no result of {self!r} by its deadline")
        if self._error is None:
            return cast(T, self._value)
        try:
            raise self._error
        finally:
            del self  # error -> traceback -> this frame -> error would be a cycle for every failed call

    def error(self) -> BaseException | None:
        """Return the stored error, None after a success; raise RuntimeError if the Pending is not done."""
        if not self._is_done:
            raise RuntimeError(f"{self!r} is not done: it has no error yet")
        return self._error

    def on_done(self, callback: Callable[[Pending[T]], object]) -> None:
        """Call ``callback`` once, in the task that completes this Pending, or now if it is done. No lock is held."""
        with self._mutex:
            if not self._is_done:
                self._callbacks.append(callback)
                return
        self._call(callback)

    def _forget(self, callback: Callable[[Pending[T]], object]) -> None:
        with self._mutex:
            if callback in self._callbacks:
                self._callbacks.remove(callback)

    def help(self, deadline: float | None) -> None:
        """Let the producer use the thread of a caller that waits for this Pending alone; called before it parks.

        So an answer needs no switch of threads. Returns when the Pending is done, at the deadline, or at once when
        another thread does the work already; then the caller parks as usual.
        """

    def cancel(self) -> None:
        """Ask the producer to stop; this does not complete the Pending. Idempotent; without effect after completion."""
        with self._mutex:
            if self._is_done or self._cancel_asked:
                return
            self._cancel_asked = True
            hook, self._on_cancel = self._on_cancel, None
        if hook is not None:
            hook()

    def _orphan(self, error: BaseException) -> None:
        """Fail in a child process, because the producer is a thread of the parent. No callback is called.

        The mutex may be held by a thread that does not exist here, so it is replaced.
        """
        self._mutex = threading.Lock()
        self._callbacks = []
        if not self._is_done:
            self._error = error
            self._is_done = True

    def __repr__(self) -> str:
        state = "waiting" if not self._is_done else "done" if self._error is None else f"failed: {self._error!r}"
        return f"<{type(self).__name__} {self.name or 'unnamed'}: {state}>"


class Task(Pending[T]):
    """A function that runs concurrently; a Pending of its result or its exception.

    A task that is cancelled before it began never runs and fails with :class:`TaskCancelled`.
    """

    __slots__ = ("_args", "_function", "is_daemon")

    def __init__(
        self, runtime: Blocking, function: Callable[..., T], args: tuple[object, ...], name: str, is_daemon: bool
    ) -> None:
        super().__init__(runtime, None, name)
        self.is_daemon = is_daemon
        self._function: Callable[..., T] | None = function
        self._args = args

    def _run(self) -> None:
        function, args = cast("Callable[..., T]", self._function), self._args
        self._function, self._args = None, ()  # a finished task must not keep its arguments alive
        if self._cancel_asked:
            self.fail(TaskCancelled(f"task {self.name} was cancelled before it began"))
        elif self._runtime.closed:
            self.fail(closed_error())
        else:
            try:
                self.complete(function(*args))
            except BaseException as error:  # any exception is stored, because no caller of this thread can catch it
                self._fail_aloud(error)

    def _fail_aloud(self, error: BaseException) -> None:
        if not self._callbacks:
            _log.debug("task %s failed, and no caller waits for its result yet", self.name, exc_info=error)
        self.fail(error)


class Condition:
    """A condition variable: a wait for a change of the state that a lock guards; a context manager over that lock.

    When ``wait`` returns, the awaited state may not hold yet or no longer: check it in a loop, or use ``wait_for``.
    """

    # The lock's own methods: CPython raises the exception of a signal handler (KeyboardInterrupt) when a function
    # written in Python begins. An __exit__ written in Python would then keep the lock for ever.
    __slots__ = ("__enter__", "__exit__", "_lock", "_runtime", "_waiters")
    if TYPE_CHECKING:

        def __enter__(self) -> bool: ...

        def __exit__(
            self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None, /
        ) -> None: ...

    def __init__(self, runtime: Blocking, lock: Lock) -> None:
        self._runtime = runtime
        self._lock = lock
        self.__enter__ = lock.__enter__  # type: ignore[method-assign]  # a slot: see above
        self.__exit__ = lock.__exit__  # type: ignore[method-assign]  # a slot: see above
        self._waiters: deque[Waiter] = deque()  # guarded by the lock, which every caller holds

    def wait(self, deadline: float | None = None) -> bool:
        """Release the lock, wait for a notification, take the lock again; return False at the deadline.

        An exception that interrupts the wait is raised with the lock held, and its notification goes to another waiter.
        """
        waiter = self._runtime._waiter()
        is_over = False
        try:
            self._waiters.append(waiter)
            self._release_and_park(waiter, deadline)
            is_over = True
        finally:
            # A waiter that is no longer queued has been notified, even if the deadline passed at the same moment.
            is_notified = waiter not in self._waiters
            if not is_notified:
                self._waiters.remove(waiter)
            elif not is_over:
                self.notify()
        return is_notified

    def _release_and_park(self, waiter: Waiter, deadline: float | None) -> None:
        acquired: list[bool] = []
        acquire = self._lock.acquire
        try:
            self._lock.release()
            waiter.park(deadline, self)
            acquired.extend(starmap(acquire, _ONCE))
        except BaseException:
            # An interrupt comes before the lock is taken, or after it is recorded: extend() does both in one step.
            if not acquired:
                acquire()
            raise

    def wait_for(self, predicate: Callable[[], bool], deadline: float | None = None) -> bool:
        """Wait until the predicate holds; at the deadline return the value of the predicate."""
        while not predicate():
            if not self.wait(deadline):
                return predicate()
        return True

    def notify(self, n: int = 1) -> None:
        for _ in range(min(n, len(self._waiters))):
            self._waiters.popleft().wake()

    def notify_all(self) -> None:
        self.notify(len(self._waiters))

    def __repr__(self) -> str:
        return f"<Condition: {len(self._waiters)} waiting>"


def closed_error() -> ConnectionClosed:
    return ConnectionClosed("the runtime is closed")


class Blocking:
    """The base class of all runtimes: the methods that need only a waiter and a lock."""

    rng: random.Random
    fork_count = 0
    _closed = False
    callers_help = True

    def _waiter(self) -> Waiter:
        raise NotImplementedError

    def waiter(self) -> Waiter:
        """Return a single wait, for a thread that another one wakes directly, without a Pending."""
        return self._waiter()

    def runs_signal_handlers(self) -> bool:
        """Return True if other code of this thread, a signal handler, may run while it waits or before it resumes."""
        return True

    def thread_id(self) -> int:
        """Return a number of this thread; 0 where tasks are no threads, so that equal numbers say nothing."""
        return 0

    def lock(self) -> Lock:
        raise NotImplementedError

    def close(self, timeout_s: float = 1.0) -> None:
        raise NotImplementedError

    @property
    def closed(self) -> bool:
        return self._closed

    def _check_open(self) -> None:
        if self._closed:
            raise closed_error()

    def close_dropped(self, name: str, close: Callable[[], None]) -> None:
        """Do nothing: on virtual time nothing is left open."""

    def on_fork(self, renew: Callable[[], None]) -> None:
        """Do nothing: a simulation has no threads and no sockets, and a fork copies it as a whole."""

    def pending(self, on_cancel: Callable[[], None] | None = None, *, name: str = "") -> Pending[Any]:
        return Pending(self, on_cancel, name)

    def condition(self, lock: Lock | None = None) -> Condition:
        return Condition(self, self.lock() if lock is None else lock)

    def wait_first(self, pendings: Sequence[Pending[Any]], deadline: float | None) -> Pending[Any] | None:
        for pending in pendings:
            if pending._is_done:
                return pending
        if not pendings and deadline is None:
            raise ValueError("a wait for the first of no tasks, without a deadline, would never end")
        if len(pendings) == 1 and self.callers_help:
            pendings[0].help(deadline)
            if pendings[0]._is_done:
                return pendings[0]
        wake = (waiter := self._waiter()).wake
        for pending in pendings:
            pending.on_done(wake)
        try:
            waiter.park(deadline, pendings[0] if len(pendings) == 1 else pendings)
        finally:  # a call that never ends must not keep the waiters of callers that stopped waiting
            for pending in pendings:
                pending._forget(wake)
        return next((pending for pending in pendings if pending._is_done), None)

    def __enter__(self: _R) -> _R:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None, /
    ) -> None:
        self.close()


_R = TypeVar("_R", bound=Blocking)
