"""Checks that hold for every run, one module per group of promises.

A checker is a function of the world that yields violations. It uses only what is visible from outside: the requests and
responses of clients, the calls on the wire, the content of the copies; not the system's own statistics. Checkers that
need closed connections come last.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING

from metaclient_fake.simulation.checkers import (
    answers,
    budgets,
    counters,
    cycle,
    deadlines,
    durability,
    errors,
    lag,
    leaks,
    linearizability,
    meta_load,
    scans,
    sessions,
    staleness,
    tables,
    timeline,
)
from metaclient_fake.simulation.world import Violation

if TYPE_CHECKING:
    from metaclient_fake.simulation.world import World

__all__ = ["AFTER_CLOSE", "CHECKERS", "Checker"]

Checker = Callable[["World"], Iterator[Violation]]

#: Run after the heal. ``convergence``, ``liveness``, ``ownership`` and ``crash`` report at once.
CHECKERS: Mapping[str, Checker] = {
    "durability": durability.check,
    "linearizability": linearizability.check,
    "timeline": timeline.check,
    "lag": lag.check,
    "staleness": staleness.check,
    "sessions": sessions.check,
    "answers": answers.check,
    "scans": scans.check,
    "counters": counters.check,
    "cycle": cycle.check,
    "tables": tables.check,
    "errors": errors.check,
    "deadlines": deadlines.check,
    "budgets": budgets.check,
    "meta_load": meta_load.check,
}
#: Run when all connections are closed.
AFTER_CLOSE: Mapping[str, Checker] = {"leaks": leaks.check}
