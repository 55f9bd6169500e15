"""Decides which servers of the peer cluster a source sends to.

Mirrors ``ReplicationSinkManager`` (HBase 2.6.1): a source uses a random sample of the peer's servers, and draws one of
the sample for each call. A sink with more than ``threshold`` failures in a row leaves the sample; a success starts its
count anew. The sample is drawn anew when it is empty, when the peer's servers have changed, and on request.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from metaclient.model import ServerName
from metaclient.runtime import Runtime

__all__ = ["SinkPool"]


class SinkPool:
    """The sample of one source. ``_lock`` guards all fields: the calls of one batch run in several tasks."""

    def __init__(self, runtime: Runtime, *, ratio: float, threshold: int) -> None:
        self._rng = runtime.rng
        self._lock = runtime.lock()
        self._ratio = ratio
        self._threshold = threshold
        self._servers: tuple[ServerName, ...] = ()  # of the peer, sorted
        self._sinks: list[ServerName] = []
        self._failures: dict[ServerName, int] = {}

    @property
    def sinks(self) -> tuple[ServerName, ...]:
        with self._lock:
            return tuple(self._sinks)

    def update(self, servers: Sequence[ServerName]) -> int:
        """Take over the peer's servers; draw a new sample if they have changed. Return the number of sinks."""
        known = tuple(sorted(servers))
        with self._lock:
            if known != self._servers:
                self._servers = known
                self._choose()
            return len(self._sinks)

    def choose_anew(self) -> None:
        """Draw a new sample, because a call has failed in a way that another server may not."""
        with self._lock:
            self._choose()

    def draw(self) -> ServerName | None:
        """Return a random sink; None when the peer has no servers."""
        with self._lock:
            if not self._sinks:
                self._choose()
            return self._rng.choice(self._sinks) if self._sinks else None

    def succeeded(self, sink: ServerName) -> None:
        with self._lock:
            self._failures.pop(sink, None)

    def failed(self, sink: ServerName) -> None:
        """Count a failure; the sink leaves the sample after more than ``threshold`` of them in a row."""
        with self._lock:
            failures = self._failures[sink] = self._failures.get(sink, 0) + 1
            if failures <= self._threshold or sink not in self._sinks:
                return
            self._sinks.remove(sink)
            if not self._sinks:
                self._choose()

    def _choose(self) -> None:
        count = math.ceil(len(self._servers) * self._ratio)
        self._sinks = self._rng.sample(self._servers, count)
        self._failures.clear()
