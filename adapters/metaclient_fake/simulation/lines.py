"""Decides which modules a seed preempts between statements, and how often.

Tasks are otherwise switched at locks and waits only, so that code without locks would never be interrupted in the
middle. One group of modules per seed: a run in which everything is preempted spends its time in the scheduler.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass

from metaclient.runtime import SimRuntime
from metaclient.runtime.line_preemption import LinePauses, modules_below, preempted_lines
from metaclient_fake.simulation.chance import Chance

__all__ = ["CLUSTERS_GROUPS", "GROUPS", "LinePreemption", "drawn_lines", "lines_of_race", "preempting"]


@dataclass(frozen=True, slots=True)
class _Group:
    packages: tuple[str, ...]
    leave_out: tuple[str, ...] = ()
    #: The shares of statements with a pause, of which a seed draws one: none, some dozens, or some hundreds of pauses
    #: per run. A run executes 100,000 to 500,000 statements of a group, and a tenth of that of the log.
    pause_shares: tuple[float, ...] = (0.0, 0.0003, 0.003)


GROUPS: Mapping[str, _Group] = {
    # Few statements, and none of them under a lock of the log: a group of its own, or pauses would hardly ever hit it.
    "log": _Group(("metaclient_fake.storage.wal",), pause_shares=(0.0, 0.003, 0.01)),
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

#: The groups of runs with several clusters.
CLUSTERS_GROUPS: Mapping[str, _Group] = {
    "log": GROUPS["log"],
    "peer replication": _Group(("metaclient_fake.replication",)),
    "queues": _Group(
        ("metaclient_fake.replication.queues", "metaclient_fake.replication.manager", "metaclient_fake.coordination"),
        pause_shares=(0.0, 0.003, 0.01),
    ),
}

#: The share of seeds that are preempted between statements.
_SEEDS_SHARE = 0.25
#: A client works once per second: only a pause of some tenths of a second often meets another client's operation.
#: Shorter than the shortest rpc_timeout_s (0.5 s), so that one pause alone ends no call.
_PAUSE_S_MAX = 0.4


@dataclass(frozen=True, slots=True)
class LinePreemption:
    """A group of modules, the share of their statements before which a task gives way, and the share with a pause."""

    group: str
    share: float
    pause_share: float

    def pauses(self) -> LinePauses:
        return LinePauses(self.pause_share, _PAUSE_S_MAX)


def drawn_lines(dice: Chance, groups: Mapping[str, _Group] = GROUPS) -> LinePreemption | None:
    """Draw what a seed preempts; None for most seeds."""
    if dice.random() >= _SEEDS_SHARE:
        return None
    group = dice.choice(tuple(groups))
    return LinePreemption(group, dice.choice((0.03, 0.1, 0.3)), dice.choice(groups[group].pause_shares))


def lines_of_race(dice: Chance, group: str) -> LinePreemption:
    """Draw how a seed preempts this group, with pauses: for a race that was planted in it."""
    return LinePreemption(group, dice.choice((0.03, 0.1, 0.3)), dice.choice(GROUPS[group].pause_shares[1:]))


@contextmanager
def preempting(runtime: SimRuntime, lines: LinePreemption | None, pauses: LinePauses) -> Iterator[None]:
    """Preempt the drawn group of modules within the block, with these pauses."""
    if lines is None:
        yield
        return
    group = {**GROUPS, **CLUSTERS_GROUPS}[lines.group]
    modules = modules_below(*group.packages, leave_out=group.leave_out)
    with preempted_lines(runtime, modules, lines.share, pauses):
        yield
