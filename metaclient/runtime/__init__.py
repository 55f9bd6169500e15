"""Time, tasks, locks and random numbers: the only package that may use Python's own modules for them.

The same blocking code runs on three runtimes:

* :class:`ThreadRuntime` (production): bounded, named daemon threads on the monotonic clock.
* :class:`SimRuntime` (tests, simulation): greenlets on a virtual clock; one seed decides every interleaving.
* :class:`~metaclient.runtime.event_loop.AsyncioRuntime` (``metaclient.aio``): greenlets on an event loop. Its module is
  imported only where it is used, because it needs asyncio and greenlet.

Each runtime implements one primitive, the *waiter*: ``park`` blocks until ``wake`` is called, until a deadline, or
until the runtime closes. :class:`Pending`, :class:`Condition`, ``sleep`` and ``wait_first`` are built on it, once for
all runtimes. Deadlines are instants of ``now()``, never durations; ``None`` waits for ever.
:mod:`metaclient.runtime.forks` describes what happens after ``os.fork()``.

>>> with SimRuntime(seed=7) as runtime:
...     slow = runtime.start(runtime.sleep, 3600.0, name="slow")
...     slow.result()
...     runtime.now()
3600.0
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import Any, Protocol, TypeVar

from metaclient.runtime.closing import Closing, close_dropped
from metaclient.runtime.forks import close_descriptor, inherited_error
from metaclient.runtime.green_threads import refuse_green_threads
from metaclient.runtime.nonces import draw_secret
from metaclient.runtime.running_loops import warn_in_loop
from metaclient.runtime.simulation import SimDeadlock, SimRuntime
from metaclient.runtime.threads import ThreadRuntime
from metaclient.runtime.timers import Timer
from metaclient.runtime.waiting import Condition, Lock, Pending, Task, TaskCancelled

__all__ = [
    "Closing",
    "Condition",
    "Lock",
    "Pending",
    "Runtime",
    "SimDeadlock",
    "SimRuntime",
    "Task",
    "TaskCancelled",
    "ThreadRuntime",
    "Timer",
    "close_descriptor",
    "close_dropped",
    "draw_secret",
    "inherited_error",
    "refuse_green_threads",
    "warn_in_loop",
]

T = TypeVar("T")


class Runtime(Protocol):
    """The source of time, concurrency and random numbers for the client and the fake cluster."""

    rng: random.Random
    #: True if a caller that waits for one answer may do the work of its producer, such as to read the socket.
    callers_help: bool
    #: The number of forks between the process that made the runtime and this process. An object that was made under
    #: another number belongs to a parent process.
    fork_count: int

    def now(self) -> float:
        """Return monotonic seconds; deadlines are instants of this clock."""
        ...

    def time_ms(self) -> int:
        """Return the wall clock in milliseconds: for cell timestamps, region ids, start codes, never for deadlines."""
        ...

    def sleep(self, seconds: float) -> None: ...

    def start(self, function: Callable[..., T], *args: object, name: str = "task") -> Task[T]:
        """Run a function concurrently; raise Overloaded if tasks and queue are full, ConnectionClosed after close."""
        ...

    def start_daemon(self, function: Callable[..., T], *args: object, name: str = "daemon") -> Task[T]:
        """Run a service loop, outside of the bound of ``start``; it ends when a wait raises ConnectionClosed."""
        ...

    def pending(self, on_cancel: Callable[[], None] | None = None, *, name: str = "") -> Pending[Any]: ...

    def wait_first(self, pendings: Sequence[Pending[Any]], deadline: float | None) -> Pending[Any] | None:
        """Wait until a Pending is done and return it (the first in order, if several are), or None at the deadline."""
        ...

    def call_later(self, delay_s: float, function: Callable[[], None]) -> Timer:
        """Call a short function later, unless the timer is cancelled."""
        ...

    def lock(self) -> Lock: ...

    def condition(self, lock: Lock | None = None) -> Condition: ...

    @property
    def closed(self) -> bool: ...

    def close(self, timeout_s: float = 1.0) -> None:
        """Refuse new tasks, end all waits with ConnectionClosed, join threads within ``timeout_s``. Idempotent."""
        ...

    def on_fork(self, renew: Callable[[], None]) -> None:
        """Call ``renew`` in a child process after ``os.fork()``, to replace locks and drop sockets; held weakly."""
        ...

    def close_dropped(self, name: str, close: Callable[[], None]) -> None:
        """Close an object that is being collected, in the background, and warn that it was not closed before."""
        ...

    def stats(self) -> dict[str, int]: ...
