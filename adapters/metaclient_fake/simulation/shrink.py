"""Decides which faults and clients a failure needs: removes as many as possible while the same promise is broken.

Delta debugging (Zeller's ddmin), first over the faults, then over the clients, then over the faults again. A smaller
run counts only if one of the same checkers reports a violation: another bug is not the one that is searched. Clients
and faults keep their random numbers when others are removed (:mod:`metaclient_fake.simulation.chance`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from metaclient_fake.simulation.kinds import SeedSpec, run_spec
from metaclient_fake.simulation.trial import Report

__all__ = ["minimised", "shrunk"]

T = TypeVar("T")

#: Runs that a shrinking may take: about a minute.
RUNS_MAX = 120


def minimised(items: Sequence[T], fails: Callable[[Sequence[T]], bool]) -> list[T]:
    """Return a subset of the items that still fails, and from which no single item can be removed.

    >>> minimised(range(20), lambda kept: 3 in kept and 17 in kept)
    [3, 17]
    """
    kept = list(items)
    if kept and fails([]):
        return []
    chunks = 2
    while len(kept) >= 2:
        size = max(1, len(kept) // chunks)
        parts = [kept[start : start + size] for start in range(0, len(kept), size)]
        for part in parts:
            rest = [item for other in parts if other is not part for item in other]
            if fails(rest):
                kept, chunks = rest, max(chunks - 1, 2)
                break
        else:
            if size == 1:
                break
            chunks = min(len(kept), chunks * 2)
    return kept


def shrunk(
    report: Report[SeedSpec], *, runs_max: int = RUNS_MAX, on_run: Callable[[int, SeedSpec], None] | None = None
) -> Report[SeedSpec]:
    """Return the smallest run found that breaks one of the same promises; the report itself when nothing can go."""
    wanted = {violation.checker for violation in report.violations}
    search = _Search(report, wanted, runs_max, on_run)
    search.over_faults()
    search.over_clients()
    search.over_faults()
    return search.best


class _Search:
    def __init__(
        self, report: Report[SeedSpec], wanted: set[str], runs_max: int, on_run: Callable[[int, SeedSpec], None] | None
    ) -> None:
        self.best = report
        self._wanted = wanted
        self._runs_left = runs_max
        self._runs_max = runs_max
        self._on_run = on_run

    def over_faults(self) -> None:
        minimised(self.best.spec.faults, lambda kept: self._fails(self.best.spec.with_faults(tuple(kept))))

    def over_clients(self) -> None:
        clients: Sequence[Any] = self.best.spec.clients
        minimised(clients, lambda kept: bool(kept) and self._fails(self.best.spec.with_clients(tuple(kept))))

    def _fails(self, spec: SeedSpec) -> bool:
        if self._runs_left <= 0:
            return False
        self._runs_left -= 1
        if self._on_run is not None:
            self._on_run(self._runs_max - self._runs_left, spec)
        found = run_spec(spec)
        if not self._wanted & {violation.checker for violation in found.violations}:
            return False
        self.best = found
        return True
