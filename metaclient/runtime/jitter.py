"""Random delays for the threads of a process, to find races in tests: ``METACLIENT_JITTER=7 make test``.

While the environment variable is set, each :class:`ThreadRuntime` is a :class:`JitteredThreadRuntime`. Its threads wait
for a random time, which is most often zero,

- before they take a lock or a condition, before they wait or notify, and after a wait;
- before a :class:`Pending` is completed, and before the result of a task is stored;
- at the start of a thread and of a task;
- before each call of a socket, of any library in the process.

Each thread has a random source of its own, which depends on the seed and the thread's name alone. A thread that takes
the same path is therefore delayed at the same points by equal seeds. The operating system still decides when threads
run.

Without the variable there is no cost: the class is chosen when a runtime is made, and there is no check afterwards.

A delay is drawn when a method is *looked up* (:class:`_Point`). The method itself stays CPython's own, so that
KeyboardInterrupt cannot come between the taking of a lock, or the reading of bytes, and the return to the caller.
"""

from __future__ import annotations

import functools
import os
import random
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any, TypeVar

from metaclient.errors import ConfigError
from metaclient.runtime.threads import ThreadRuntime, _ThreadWaiter
from metaclient.runtime.waiting import Condition, Lock, Pending, Task

__all__ = ["VARIABLE", "Jitter", "JitteredThreadRuntime", "jitter_seed", "jittered_process", "runtime_class"]

T = TypeVar("T")
#: The environment variable with the seed; an empty text counts as not set.
VARIABLE = "METACLIENT_JITTER"

#: The shares of the points at which a thread waits for a short time, for a long time, or only yields to another thread.
#: With these shares a point costs 0.1 ms on average, and the unit tests take about twice as long.
_SHORT_SHARE, _LONG_SHARE, _YIELD_SHARE = 0.05, 0.001, 0.2
_SHORT_S_MAX, _LONG_S_MAX = 0.003, 0.030

#: The calls of a socket before which a thread waits.
_SOCKET_CALLS = ("accept", "connect", "recv", "recv_into", "recvmsg", "send", "sendall", "sendmsg", "shutdown")


def jitter_seed() -> int | None:
    """Return the seed of the environment variable, None where it is not set; raise ConfigError if it is no number."""
    value = os.environ.get(VARIABLE, "")
    if not value:
        return None
    try:
        return int(value)
    except ValueError as error:
        raise ConfigError(
            f"{VARIABLE} is {value!r}; set it to an integer, the seed of the delays, or unset it"
        ) from error


class Jitter:
    """Draws the delays of a seed, for each thread from its own random source.

    >>> first, second = Jitter(7), Jitter(7)
    >>> [first.draw() for _ in range(1000)] == [second.draw() for _ in range(1000)]
    True
    """

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self._local = threading.local()

    def draw(self) -> float | None:
        """Return the seconds that the running thread is to wait at this point; None, most often, for no wait."""
        source = getattr(self._local, "source", None)
        if source is None:
            source = self._local.source = random.Random(f"{self.seed}/{threading.current_thread().name}")
        drawn = source.random()
        if drawn < _LONG_SHARE:
            return _LONG_S_MAX * float(source.random())
        drawn -= _LONG_SHARE
        if drawn < _SHORT_SHARE:
            return _SHORT_S_MAX * float(source.random())
        return 0.0 if drawn - _SHORT_SHARE < _YIELD_SHARE else None

    def delay(self) -> None:
        """Let the running thread wait at this point."""
        seconds = self.draw()
        if seconds is not None:
            time.sleep(seconds)


class _Point:
    """A method before which the thread may be delayed: ``find`` returns the method itself."""

    __slots__ = ("_delay", "_find")

    def __init__(self, find: Callable[[Any], Any], delay: Callable[[Any], None]) -> None:
        self._find = find
        self._delay = delay

    def __get__(self, owner: Any, kind: type | None = None) -> Any:
        if owner is not None:
            self._delay(owner)
        return self._find(owner)


class _StoredPoint(_Point):
    """A point in place of a method that the base class stores in the object: the method is looked up each time."""

    __slots__ = ()

    def __set__(self, owner: Any, method: Any) -> None:
        pass


def _of_lock(name: str) -> Any:
    return _Point(lambda owner: getattr(owner._lock, name), lambda owner: owner._jitter.delay())


class _JitteredLock:
    """A lock whose callers are delayed before they take it."""

    __slots__ = ("__weakref__", "_jitter", "_lock")

    def __init__(self, jitter: Jitter) -> None:
        self._jitter = jitter
        self._lock = threading.Lock()

    acquire = _of_lock("acquire")
    __enter__ = _of_lock("__enter__")
    release = property(lambda self: self._lock.release)
    __exit__ = property(lambda self: self._lock.__exit__)
    locked = property(lambda self: self._lock.locked)

    def __repr__(self) -> str:
        return f"<jittered {self._lock!r}>"


class _JitteredCondition(Condition):
    """A condition whose callers are delayed before they take its lock, wait or notify."""

    __slots__ = ()
    _runtime: JitteredThreadRuntime
    __enter__ = _StoredPoint(lambda owner: owner._lock.__enter__, lambda owner: None)  # the lock delays

    def wait(self, deadline: float | None = None) -> bool:
        self._runtime.jitter.delay()
        return super().wait(deadline)

    def notify(self, n: int = 1) -> None:
        self._runtime.jitter.delay()
        super().notify(n)


class _JitteredWaiter(_ThreadWaiter):
    """A wait that begins late, or returns late after it has ended."""

    __slots__ = ()
    _runtime: JitteredThreadRuntime

    def park(self, deadline: float | None, on: object) -> bool:
        self._runtime.jitter.delay()
        is_woken = super().park(deadline, on)
        self._runtime.jitter.delay()
        return is_woken


class JitteredThreadRuntime(ThreadRuntime):
    """A :class:`ThreadRuntime` whose threads are delayed at random."""

    def __init__(self, **options: Any) -> None:
        seed = jitter_seed()
        self.jitter = Jitter(0 if seed is None else seed)
        super().__init__(**options)

    def _begin(self) -> None:
        super()._begin()
        self._mutex = _JitteredLock(self.jitter)  # type: ignore[assignment]  # the same methods

    def lock(self) -> Lock:
        return _JitteredLock(self.jitter)

    def condition(self, lock: Lock | None = None) -> Condition:
        return _JitteredCondition(self, self.lock() if lock is None else lock)

    def _waiter(self) -> _ThreadWaiter:
        return _JitteredWaiter(self)

    def start(self, function: Callable[..., T], *args: object, name: str = "task") -> Task[T]:
        return super().start(functools.partial(self._delayed, function), *args, name=name)

    def start_daemon(self, function: Callable[..., T], *args: object, name: str = "daemon") -> Task[T]:
        return super().start_daemon(functools.partial(self._delayed, function), *args, name=name)

    def _delayed(self, function: Callable[..., T], *args: object) -> T:
        self.jitter.delay()
        try:
            return function(*args)
        finally:
            self.jitter.delay()

    def _launch(self, target: Callable[..., None], task: Task[Any] | None, name: str) -> threading.Thread:
        def begin_late(first: Task[Any] | None) -> None:
            self.jitter.delay()
            target(first)

        thread = super()._launch(begin_late, task, name)
        self.jitter.delay()
        return thread


def runtime_class(asked: type[ThreadRuntime]) -> type[ThreadRuntime]:
    """Return the class of a new runtime: the jittered one while the environment variable is set, else ``asked``."""
    seed = jitter_seed()
    if seed is None or asked is not ThreadRuntime:
        return asked
    _jitter_process_for_good()
    return JitteredThreadRuntime


@functools.cache
def _jitter_process_for_good() -> None:
    ExitStack().enter_context(jittered_process())


@contextmanager
def jittered_process() -> Iterator[None]:
    """Delay the completions of Pendings and the calls of sockets, within the block.

    Pendings and sockets are made by their users and not by a runtime, so that a runtime cannot choose another class for
    them. Pendings of other runtimes are not delayed.
    """
    seed = jitter_seed()
    jitter = Jitter(0 if seed is None else seed)
    with ExitStack() as undo:
        finish = Pending._finish

        def delay_completion(pending: Pending[Any]) -> None:
            if isinstance(pending._runtime, JitteredThreadRuntime):
                pending._runtime.jitter.delay()

        point = _Point(lambda owner: finish if owner is None else finish.__get__(owner), delay_completion)
        undo.callback(setattr, Pending, "_finish", finish)
        setattr(Pending, "_finish", point)  # noqa: B010  # an assignment would be checked for its type
        for name in _SOCKET_CALLS:
            _delay_socket_call(name, jitter, undo)
        yield


def _delay_socket_call(name: str, jitter: Jitter, undo: ExitStack) -> None:
    own = vars(socket.socket).get(name)
    method = getattr(socket.socket, name)
    point = _Point(
        lambda owner: method if owner is None else method.__get__(owner, type(owner)), lambda owner: jitter.delay()
    )
    if own is None:
        undo.callback(delattr, socket.socket, name)
    else:
        undo.callback(setattr, socket.socket, name, own)
    setattr(socket.socket, name, point)
