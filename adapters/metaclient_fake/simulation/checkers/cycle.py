"""Decides whether each read of a cycle returned a whole cycle, at every replica (:mod:`workloads.cycle`)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from metaclient_fake.simulation.history import Status
from metaclient_fake.simulation.world import Violation

if TYPE_CHECKING:
    from metaclient_fake.simulation.world import World

__all__ = ["check"]


def check(world: World) -> Iterator[Violation]:
    for read in world.history.of_kinds("cycle_get"):
        if read.outcome is Status.OK and read.argument != "a cycle":
            text = f"the cycle in row {read.row.decode()} is broken: {read.describe()}"
            yield Violation("cycle", text, read.called_at, (read.number,))
