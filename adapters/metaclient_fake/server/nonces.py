"""Stores which increments and appends were applied lately, so that one that is sent twice counts once.

Mirrors ServerNonceManager. As in HBase, whoever recovers a dead server's region learns the nonces from its log, but a
region that moves in order has no log to be read: a repetition across a move is applied twice.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from metaclient.runtime import Runtime

__all__ = ["Nonces"]

T = TypeVar("T")

#: hbase.server.hashNonce.gracePeriod
GRACE_S = 30 * 60.0
#: ServerNonceManager.reportOperationFromWal
CLOCK_SLACK = 1.5
#: Above this many, those whose time is over are dropped.
NONCES_MAX = 100_000


class Nonces:
    """The nonces of one server; ``_lock`` guards the map."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self._lock = runtime.lock()
        self._until: dict[int, float] = {}

    def once(self, nonce: int, operation: Callable[[Callable[[int], bool]], T]) -> T:
        """Run an operation that asks whether its nonce was seen; one that fails may be tried again."""
        seen = self._register(nonce)
        try:
            return operation(lambda _: seen)
        except BaseException:
            if not seen:
                with self._lock:
                    self._until.pop(nonce, None)
            raise

    def report(self, nonce: int, age_s: float) -> None:
        """An operation found in a log that is replayed, unless it is too old (with slack for clocks that differ)."""
        if age_s <= GRACE_S * CLOCK_SLACK:
            self._register(nonce)

    def _register(self, nonce: int) -> bool:
        now = self._runtime.now()
        with self._lock:
            if self._until.get(nonce, now) > now:
                return True
            if len(self._until) >= NONCES_MAX:
                self._until = {kept: until for kept, until in self._until.items() if until > now}
            self._until[nonce] = now + GRACE_S
            return False
