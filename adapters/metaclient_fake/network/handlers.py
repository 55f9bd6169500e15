"""Decides whether a region server can take one more call: a bounded number of handlers and a bounded queue.

Mirrors HBase's RpcExecutor with one FIFO queue (``SimpleRpcScheduler`` has one for user calls and one for meta).
A free handler is an object in a list: ``list.pop`` and ``list.append`` are atomic, so that an idle server costs no
lock, and a call that owns its handler may count on it without one.

A call is interrupted (KeyboardInterrupt, or what a signal handler raises) when a function returns or begins. So
``take`` moves the handler into a list of the caller, in one step: the caller gives back what is in that list.

DIVERGENCES: a handler that becomes free may be taken by a call that has just arrived before one that waits.
"""

from __future__ import annotations

from itertools import starmap

from metaclient.errors import CallQueueTooBig
from metaclient.runtime import Runtime

__all__ = ["ONCE", "Handler", "Handlers"]

#: For ``starmap``: call it once, without arguments.
ONCE: tuple[tuple[()], ...] = ((),)


class Handler:
    """One worker. Only the call that holds it changes its counters."""

    __slots__ = ("reads", "writes")

    def __init__(self) -> None:
        self.reads = 0
        self.writes = 0


class Handlers:
    """A server's workers of one kind and the calls that wait for them."""

    def __init__(self, runtime: Runtime, count: int, queue_max: int, server: str) -> None:
        self._all = tuple(Handler() for _ in range(count))
        self._queue_max = queue_max
        self._server = server
        self._freed = runtime.condition()
        #: The idle ones. Hot paths pop and append here directly, then look at ``waiting``.
        self.free: list[Handler] = list(self._all)
        #: Calls in the queue; changed under ``_freed``.
        self.waiting = 0
        #: A fault: the queue is full whatever it holds.
        self.is_stuffed = False
        self.is_closed = False
        self.refused = 0

    def take(self, deadline: float | None, taken: list[Handler]) -> bool:
        """Put a handler into ``taken``, after waiting in the queue; False at the deadline.

        HBase drops such a call unexecuted.
        """
        if self.is_stuffed:
            raise self._full()
        return self._is_taken(taken) or self._queued(deadline, taken)

    def _is_taken(self, taken: list[Handler]) -> bool:
        """Take a free handler; return False if there is none.

        ``free`` is not looked at first: another call may take the last handler between the look and the ``pop``.
        """
        try:
            taken.extend(starmap(self.free.pop, ONCE))
        except IndexError:
            return False
        return True

    def _queued(self, deadline: float | None, taken: list[Handler]) -> bool:
        with self._freed:
            if self.waiting >= self._queue_max:
                raise self._full()
            self.waiting += 1
            try:
                # Counted as waiting first and only then tried again: a release between the two is not missed.
                is_over = False
                while not self._is_taken(taken):
                    if is_over:
                        return False
                    is_over = self.is_closed or not self._freed.wait(deadline)
                return True
            finally:
                self.waiting -= 1

    def give_back(self, handler: Handler) -> None:
        """Free the handler of a task; a caller that may be interrupted appends to ``free`` itself."""
        self.free.append(handler)
        if self.waiting:
            self.wake()

    def wake(self) -> None:
        with self._freed:
            self._freed.notify()

    def close(self) -> None:
        """End the queue, because the server is gone; waiting calls return."""
        self.is_closed = True
        with self._freed:
            self._freed.notify_all()

    def _full(self) -> CallQueueTooBig:
        self.refused += 1
        return CallQueueTooBig(
            f"Call queue is full on {self._server}, too many items queued ?", detail=CallQueueTooBig.java_class
        )

    @property
    def busy(self) -> int:
        return len(self._all) - len(self.free)

    def counts(self) -> tuple[int, int]:
        """Reads and writes that these handlers have run."""
        return sum(handler.reads for handler in self._all), sum(handler.writes for handler in self._all)
