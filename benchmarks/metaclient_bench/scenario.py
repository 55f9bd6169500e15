"""A scenario: its name, what it shows, and the function that runs it; and the JSON document of a run."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from metaclient_bench.figure import Outcome

__all__ = ["Run", "Scenario", "as_one"]


@dataclass(frozen=True, slots=True)
class Scenario:
    """One benchmark. ``run(quick)`` measures the figures; ``quick`` uses fewer samples.

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
        """Return the scenario on another backend; raise ValueError if it supports only its own."""
        if self.run_on is None:
            raise ValueError(f"{self.name} runs on its own backend ({self.backend}) only")
        return replace(self, run=partial(_run_on, self.run_on, backend), backend=backend, missing=lambda: None)


def _run_on(run_on: Callable[[bool, str], Outcome], backend: str, quick: bool) -> Outcome:
    return run_on(quick, backend)


@dataclass(frozen=True, slots=True)
class Run:
    """A run of a scenario: its outcome, or the error."""

    scenario: Scenario
    outcome: Outcome
    seconds: float
    error: str | None = None

    @property
    def is_met(self) -> bool:
        return self.error is None and self.outcome.is_met

    def as_json(self) -> dict[str, Any]:
        """Return the documented JSON form of one scenario; ``error`` is present only if the run failed."""
        document: dict[str, Any] = {
            "scenario": self.scenario.name,
            "backend": self.scenario.backend,
            "figures": [figure.as_json() for figure in self.outcome.figures],
            "samples": dict(self.outcome.samples),
        }
        return document if self.error is None else {**document, "error": self.error}


def as_one(runs: Sequence[Run]) -> dict[str, Any]:
    """Return one document for all scenarios; samples and errors are under the scenario's name."""
    documents = [run.as_json() for run in runs]
    errors: Mapping[str, str] = {run.scenario.name: run.error for run in runs if run.error is not None}
    together: dict[str, Any] = {
        "scenario": "all",
        "backend": ", ".join(sorted({run.scenario.backend for run in runs})),
        "figures": [figure for document in documents for figure in document["figures"]],
        "samples": {document["scenario"]: document["samples"] for document in documents},
    }
    return {**together, "error": errors} if errors else together
