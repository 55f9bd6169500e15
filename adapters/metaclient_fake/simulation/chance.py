"""Decides what a seed's dice are: a source of chance for each purpose, none of which disturbs the others.

What a workload draws must not depend on how many faults were drawn before it: a shrunk schedule would change everything
else in the run, and no failure would survive its shrinking.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Protocol, TypeVar

from metaclient.runtime import SimRuntime

__all__ = ["Chance", "chance"]

T = TypeVar("T")


class Chance(Protocol):
    """The part of ``random.Random`` that gives the same numbers on every machine and in every Python from 3.11 on."""

    def random(self) -> float: ...

    def randrange(self, stop: int, /) -> int: ...

    def uniform(self, a: float, b: float) -> float: ...

    def choice(self, seq: Sequence[T]) -> T: ...


def chance(seed: int, purpose: str) -> Chance:
    """Return the dice of one purpose of one seed.

    >>> chance(7, "faults").randrange(1000) == chance(7, "faults").randrange(1000)
    True
    >>> chance(7, "faults").random() == chance(7, "clients").random()
    False
    """
    mixed = hashlib.sha256(f"{seed}/{purpose}".encode()).digest()
    return SimRuntime(int.from_bytes(mixed[:8], "big")).rng
