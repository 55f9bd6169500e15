"""Provides a seed's random sources: one per purpose, independent of each other.

The numbers of a workload must not depend on how many faults were drawn before it. Otherwise a shrunk schedule would
change the rest of the run, and the failure would not occur again.
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
    """Return the random source of one purpose of one seed.

    >>> chance(7, "faults").randrange(1000) == chance(7, "faults").randrange(1000)
    True
    >>> chance(7, "faults").random() == chance(7, "clients").random()
    False
    """
    mixed = hashlib.sha256(f"{seed}/{purpose}".encode()).digest()
    return SimRuntime(int.from_bytes(mixed[:8], "big")).rng
