"""Clusters on virtual time for scenarios about behaviour: every client under test runs in the same conditions."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Any, Final

from metaclient.connection import Connection, connect_to
from metaclient.runtime import SimRuntime
from metaclient.testing.scripted import ScriptedBackend

__all__ = ["JAVA", "TABLE", "client", "per_interval"]

TABLE: Final = b"t"
#: Options with which this client reads hbase:meta as the Java client does.
JAVA: Final[dict[str, Any]] = {"meta_selector": "simple"}


def client(backend: ScriptedBackend, runtime: SimRuntime, **options: Any) -> Connection:
    """Return a client that spreads its lookups over the meta replicas; closing it does not close the cluster."""
    return connect_to(backend, runtime=runtime, owns_backend=False, meta_mode="LoadBalance", **options)


def per_interval(instants: Iterable[float], length_s: float, begin_s: float, end_s: float) -> list[int]:
    """Return how many instants of [begin, end) fall into each interval.

    >>> per_interval([0.0, 0.5, 2.9, 3.0], 1.0, 0.0, 3.0)
    [2, 0, 1]
    """
    found = Counter(int((instant - begin_s) / length_s) for instant in instants if begin_s <= instant < end_s)
    return [found[index] for index in range(round((end_s - begin_s) / length_s))]
