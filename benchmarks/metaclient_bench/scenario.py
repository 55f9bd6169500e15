"""A scenario: its name, what it shows, and the function that runs it; and the document that a run becomes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from metaclient_bench.figure import Outcome

__all__ = ["Run", "Scenario", "as_one"]


@dataclass(frozen=True, slots=True)
class Scenario:
    """One benchmark. ``run(quick)`` takes the figures; ``quick`` takes them from fewer samples.

    ``run_on(quick, backend)`` takes them on another backend, where a scenario can. ``missing`` says what must be
    installed before the scenario can run at all.
    """

    name: str
    ids: tuple[str, ...]
    shows: str
    run: Callable[[bool], Outcome]
    backend: str = "scripted"
    run_on: Callable[[bool, str], Outcome] | None = None
    missing: Callable[[], str | None] = lambda: None

    def on(self, backend: str) -> Scenario:
        """The same on another backend; ValueError when it knows only its own."""
        if self.run_on is None:
            raise ValueError(f"{self.name} runs on its own backend ({self.backend}) only")
        return replace(self, run=partial(_run_on, self.run_on, backend), backend=backend, missing=lambda: None)


def _run_on(run_on: Callable[[bool, str], Outcome], backend: str, quick: bool) -> Outcome:
    return run_on(quick, backend)


@dataclass(frozen=True, slots=True)
class Run:
    """A scenario that was run: its outcome, or why there is none."""

    scenario: Scenario
    outcome: Outcome
    seconds: float
    error: str | None = None

    @property
    def is_met(self) -> bool:
        return self.error is None and self.outcome.is_met

    def as_json(self) -> dict[str, Any]:
        """The promised document of one scenario; ``error`` is there only when it could not be run to its end."""
        document: dict[str, Any] = {
            "scenario": self.scenario.name,
            "backend": self.scenario.backend,
            "figures": [figure.as_json() for figure in self.outcome.figures],
            "samples": dict(self.outcome.samples),
        }
        return document if self.error is None else {**document, "error": self.error}


def as_one(runs: Sequence[Run]) -> dict[str, Any]:
    """The same document for all scenarios together; samples and errors are under the scenario's name."""
    documents = [run.as_json() for run in runs]
    errors: Mapping[str, str] = {run.scenario.name: run.error for run in runs if run.error is not None}
    together: dict[str, Any] = {
        "scenario": "all",
        "backend": ", ".join(sorted({run.scenario.backend for run in runs})),
        "figures": [figure for document in documents for figure in document["figures"]],
        "samples": {document["scenario"]: document["samples"] for document in documents},
    }
    return {**together, "error": errors} if errors else together
