"""Virtual time for the scenarios about behaviour: a world that is the same for every client that is tried in it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Any, Final

from metaclient.connection import Connection, connect_to
from metaclient.runtime import SimRuntime
from metaclient.testing.scripted import ScriptedBackend

__all__ = ["JAVA", "TABLE", "client", "per_interval"]

TABLE: Final = b"t"
#: The options that make our client look meta up as the Java client does.
JAVA: Final[dict[str, Any]] = {"meta_selector": "simple"}


def client(backend: ScriptedBackend, runtime: SimRuntime, **options: Any) -> Connection:
    """A client of the cluster that spreads its lookups, and does not own the cluster."""
    return connect_to(backend, runtime=runtime, owns_backend=False, meta_mode="LoadBalance", **options)


def per_interval(instants: Iterable[float], length_s: float, begin_s: float, end_s: float) -> list[int]:
    """How many instants of [begin, end) fall into each interval.

    >>> per_interval([0.0, 0.5, 2.9, 3.0], 1.0, 0.0, 3.0)
    [2, 0, 1]
    """
    found = Counter(int((instant - begin_s) / length_s) for instant in instants if begin_s <= instant < end_s)
    return [found[index] for index in range(round((end_s - begin_s) / length_s))]
