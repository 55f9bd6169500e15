"""Decides which modules a seed preempts between statements, and how often.

Tasks are otherwise switched at locks and waits only, so that code without locks would never be interrupted in the
middle. One group of modules per seed: a run in which everything is preempted spends its time in the scheduler.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass

from metaclient.runtime import SimRuntime
from metaclient.runtime.line_preemption import modules_below, preempted_lines
from metaclient_fake.simulation.chance import Chance

__all__ = ["GROUPS", "LinePreemption", "drawn_lines", "preempting"]


@dataclass(frozen=True, slots=True)
class _Group:
    packages: tuple[str, ...]
    leave_out: tuple[str, ...] = ()


GROUPS: Mapping[str, _Group] = {
    "storage": _Group(("metaclient_fake.storage",)),
    "replication": _Group(("metaclient_fake.region_replication",)),
    "cluster": _Group(
        ("metaclient_fake",),
        (
            "metaclient_fake.storage",
            "metaclient_fake.region_replication",
            "metaclient_fake.front",
            "metaclient_fake.simulation",
        ),
    ),
    # Values and the checks of arguments have no state but caches of the whole process, and what was cached by earlier
    # seeds would change how many statements a seed runs.
    "client": _Group(
        ("metaclient",),
        (
            "metaclient.__main__",
            "metaclient.arguments",
            "metaclient.cli",
            "metaclient.errors",
            "metaclient.keys",
            "metaclient.metarow",
            "metaclient.model",
            "metaclient.runtime",
            "metaclient.testing",
        ),
    ),
}

#: The share of seeds that are preempted between statements.
_SEEDS_SHARE = 0.25


@dataclass(frozen=True, slots=True)
class LinePreemption:
    """A group of modules, and the share of their statements before which a task gives way."""

    group: str
    share: float


def drawn_lines(dice: Chance) -> LinePreemption | None:
    """Draw what a seed preempts; None for most seeds."""
    if dice.random() >= _SEEDS_SHARE:
        return None
    return LinePreemption(dice.choice(tuple(GROUPS)), dice.choice((0.01, 0.1, 0.3)))


@contextmanager
def preempting(runtime: SimRuntime, lines: LinePreemption | None) -> Iterator[None]:
    """Preempt what was drawn, within the block."""
    if lines is None:
        yield
        return
    group = GROUPS[lines.group]
    modules = modules_below(*group.packages, leave_out=group.leave_out)
    with preempted_lines(runtime, modules, lines.share):
        yield
