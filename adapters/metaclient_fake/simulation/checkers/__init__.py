"""What must be true of every run, one module for each family of promises.

A checker is a function of the world that yields violations. It looks from outside: at what clients asked and were told,
at the calls that went over the wire, at what the copies hold; never at what the system says about itself. Those that
need everything closed come last.
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
    tables,
    timeline,
)
from metaclient_fake.simulation.world import Violation

if TYPE_CHECKING:
    from metaclient_fake.simulation.world import World

__all__ = ["AFTER_CLOSE", "CHECKERS", "Checker"]

Checker = Callable[["World"], Iterator[Violation]]

#: Run in the calm after the faults. ``convergence``, ``liveness``, ``ownership`` and ``crash`` report at once.
CHECKERS: Mapping[str, Checker] = {
    "durability": durability.check,
    "linearizability": linearizability.check,
    "timeline": timeline.check,
    "lag": lag.check,
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
