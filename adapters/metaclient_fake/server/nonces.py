"""Stores which increments and appends were applied recently, so that one that is sent twice is applied once.

Mirrors ServerNonceManager (2.6, 3.x). An operation is identified by the group of its client and its nonce::


    unknown --begin--> RUNNING --applied--> APPLIED --30 minutes later--> unknown
                          |
                          +-----failed----> unknown

A repetition that arrives while the operation is RUNNING waits for its end. If the operation was applied, the
repetition is not; if the operation failed, the repetition runs in its place.

As in HBase, a server that recovers a dead server's region reads the nonces from its log. After an orderly move there is
no log to read, so that a repetition across a move is applied twice.

DIVERGENCES: a repetition waits at most for one round of HBase's (30 s), then fails instead of waiting again. The number
of nonces is bounded: beyond it, changes with a nonce are refused.
"""

from __future__ import annotations

import enum
from collections.abc import Callable
from typing import TypeAlias, TypeVar

from metaclient.errors import CallTimeout, Overloaded, ServerStopped
from metaclient.runtime import Runtime

__all__ = ["NonceKey", "Nonces"]

T = TypeVar("T")

#: The client's nonce group and the nonce of its operation.
NonceKey: TypeAlias = tuple[int, int]

#: hbase.server.hashNonce.gracePeriod
GRACE_S = 30 * 60.0
#: ServerNonceManager.reportOperationFromWal
CLOCK_SLACK = 1.5
#: ServerNonceManager.conflictWaitIterationMs
CONFLICT_WAIT_S = 30.0
#: About 200 MB. HBase has no limit and estimates 1 GB for 5,000 changes per second.
NONCES_MAX = 1_000_000


class _NonceState(enum.Enum):
    RUNNING = "running"
    APPLIED = "applied"


class Nonces:
    """The nonces of one server. ``_ended`` guards the fields below it and is notified when an operation ends."""

    def __init__(self, runtime: Runtime, *, is_stopped: Callable[[], bool] = lambda: False) -> None:
        self._runtime = runtime
        self._is_stopped = is_stopped
        self._ended = runtime.condition()
        self._states: dict[NonceKey, _NonceState] = {}
        #: When the nonce of each applied operation expires, oldest first.
        self._until: dict[NonceKey, float] = {}
        self._waiting = 0

    def __len__(self) -> int:
        return len(self._states)

    def once(
        self, key: NonceKey, operation: Callable[[bool], T], *, is_applied: Callable[[T], bool] = lambda _: True
    ) -> T:
        """Run ``operation(is_repetition)`` and return its answer.

        The nonce is kept if the operation returns an answer that ``is_applied`` accepts. If it raises, or its answer
        says that nothing was changed, a repetition may run.
        """
        if not self._begin(key):
            return operation(True)
        has_applied = False
        try:
            answer = operation(False)
            has_applied = is_applied(answer)
            return answer
        finally:
            self._end(key, has_applied)

    def report(self, key: NonceKey, age_s: float) -> None:
        """Keep the nonce of a log entry that is replayed, unless it is too old (with slack for clocks that differ)."""
        if age_s <= GRACE_S * CLOCK_SLACK:
            with self._ended:
                if key not in self._states:
                    self._keep(key)

    def wake(self) -> None:
        """Let waiting repetitions notice that the server has stopped."""
        with self._ended:
            self._ended.notify_all()

    def _begin(self, key: NonceKey) -> bool:
        """Return True if the operation may run, False if it was applied; wait while it is running."""
        with self._ended:
            self._forget_expired()
            if key in self._states:
                self._wait_while_running(key)
                if key in self._states:
                    return False
            if len(self._states) >= NONCES_MAX:
                raise Overloaded(
                    f"the server keeps {len(self._states)} nonces, which is its limit; retry later, or without a nonce"
                )
            self._states[key] = _NonceState.RUNNING
            return True

    def _wait_while_running(self, key: NonceKey) -> None:
        deadline = self._runtime.now() + CONFLICT_WAIT_S
        self._waiting += 1
        try:
            while self._states.get(key) is _NonceState.RUNNING:
                is_in_time = self._ended.wait(deadline)
                if self._is_stopped():
                    raise ServerStopped(
                        "the server stopped while the first attempt with this nonce was running", may_have_applied=True
                    )
                if not is_in_time and self._states.get(key) is _NonceState.RUNNING:
                    raise CallTimeout(
                        f"the first attempt with this nonce is still running after {CONFLICT_WAIT_S:g} s",
                        may_have_applied=True,
                    )
        finally:
            self._waiting -= 1

    def _end(self, key: NonceKey, has_applied: bool) -> None:
        with self._ended:
            if has_applied:
                self._keep(key)
            else:
                del self._states[key]
            if self._waiting:
                self._ended.notify_all()

    def _keep(self, key: NonceKey) -> None:
        self._states[key] = _NonceState.APPLIED
        self._until[key] = self._runtime.now() + GRACE_S

    def _forget_expired(self) -> None:
        """Remove the expired operations, oldest first; stop at the first one that has not expired."""
        now = self._runtime.now()
        while self._until:
            oldest = next(iter(self._until))
            if self._until[oldest] > now:
                return
            del self._until[oldest], self._states[oldest]
