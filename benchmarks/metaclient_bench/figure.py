"""The results of a benchmark: figures with their goals, samples, and charts."""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

__all__ = ["Bars", "Chart", "Figure", "Goal", "Lines", "Outcome"]

_COMPARISONS: Final[Mapping[str, Callable[[float, float], bool]]] = {
    "<=": operator.le,
    ">=": operator.ge,
    "==": operator.eq,
    "<": operator.lt,
    ">": operator.gt,
}
_GOAL = re.compile(r"\s*(<=|>=|==|<|>)\s*([+-]?[0-9]+(?:\.[0-9]+)?)\s*")


@dataclass(frozen=True, slots=True)
class Goal:
    """A bound of a figure, as it is written in an issue.

    >>> Goal.parse("<= 0.01").is_met(0.005), str(Goal.parse(">=  0.63"))
    (True, '>= 0.63')
    """

    comparison: str
    bound: float

    @classmethod
    def parse(cls, text: str) -> Goal:
        found = _GOAL.fullmatch(text)
        if found is None:
            raise ValueError(f"a goal is one of {', '.join(_COMPARISONS)} and a number, got {text!r}")
        return cls(found[1], float(found[2]))

    def is_met(self, value: float) -> bool:
        return _COMPARISONS[self.comparison](value, self.bound)

    def __str__(self) -> str:
        return f"{self.comparison} {self.bound:g}"


@dataclass(frozen=True, slots=True)
class Figure:
    """One number of one run, its goal, and numbers to compare with (the Java client's, a lower bound, ...)."""

    id: str
    what: str
    value: float
    goal: Goal
    beside: Mapping[str, float] = field(default_factory=dict)

    @classmethod
    def of(cls, id: str, what: str, value: float, goal: str, **beside: float) -> Figure:
        return cls(id, what, value, Goal.parse(goal), beside)

    @property
    def is_met(self) -> bool:
        return self.goal.is_met(self.value)

    @property
    def verdict(self) -> str:
        """``yes``, or ``no`` with the distance to the goal, as a share of the goal.

        >>> Figure.of("X", "a share", 0.9, ">= 1.2").verdict, Figure.of("X", "a count", 3, "== 0").verdict
        ('no, by 25 %', 'no, by 3')
        """
        if self.is_met:
            return "yes"
        distance = abs(self.value - self.goal.bound)
        return (
            f"no, by {distance / self.goal.bound:.0%}".replace("%", " %") if self.goal.bound else f"no, by {distance:g}"
        )

    def as_json(self) -> dict[str, Any]:
        """Return the documented JSON form, with rounded numbers."""
        return {
            "id": self.id,
            "what": self.what,
            "value": _short(self.value),
            "goal": str(self.goal),
            "met": self.is_met,
            "beside": {name: _short(value) for name, value in self.beside.items()},
        }


def _short(value: float) -> float:
    return value if isinstance(value, int) else float(f"{value:.6g}")


@dataclass(frozen=True, slots=True)
class Lines:
    """A chart of one or more lines. ``marks`` are labelled instants; ``ticks`` are labels of the x axis.

    ``is_steps``: each value holds until the next one, as a count per second does.
    """

    title: str
    x: str
    y: str
    series: Mapping[str, tuple[Sequence[float], Sequence[float]]]
    goal: float | None = None
    marks: Mapping[str, float] = field(default_factory=dict)
    ticks: Mapping[float, str] = field(default_factory=dict)
    is_log_y: bool = False
    is_steps: bool = False


@dataclass(frozen=True, slots=True)
class Bars:
    """A chart with one bar per name."""

    title: str
    y: str
    values: Mapping[str, float]
    goal: float | None = None
    is_log_y: bool = False


Chart = Lines | Bars


@dataclass(frozen=True, slots=True)
class Outcome:
    """The figures, samples and charts of one run of a scenario; ``texts`` are tables that are printed as they are."""

    figures: tuple[Figure, ...]
    samples: Mapping[str, Any]
    charts: tuple[Chart, ...] = ()
    texts: tuple[str, ...] = ()

    @property
    def is_met(self) -> bool:
        return all(figure.is_met for figure in self.figures)
