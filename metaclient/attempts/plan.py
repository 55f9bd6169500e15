"""Decides which replicas are called, and when: a read plan is a sequence of legs.

A leg starts ``after_s`` seconds into the read, or at once when every leg before it has failed. The staged plan, the
default, calls the primary now, one replica after d and the next after 2d: a slow moment of the primary costs one extra
call, not n - 1. The plan all_at_once, as in HBase's TIMELINE reads, calls every replica after d.

>>> [(leg.place, leg.after_s) for leg in staged(["primary", "r1", "r2"], delay_s=0.01, timeout_s=1.0)]
[('primary', 0.0), ('r1', 0.01), ('r2', 0.02)]
>>> [(leg.place, leg.after_s) for leg in all_at_once(["primary", "r1", "r2"], delay_s=0.01, timeout_s=1.0)]
[('primary', 0.0), ('r1', 0.01), ('r2', 0.01)]
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Generic, TypeVar

__all__ = ["Leg", "all_at_once", "one_replica", "postponed", "staged"]

P = TypeVar("P")
#: The resolution of timers and threads.
WAIT_S_MIN = 0.001


@dataclass(frozen=True, slots=True)
class Leg(Generic[P]):
    """One call of a plan; ``is_hedge`` marks extra calls, which need the budget's permission to start by time."""

    place: P
    after_s: float
    timeout_s: float
    is_hedge: bool = False


def one_replica(place: P, *, timeout_s: float) -> tuple[Leg[P], ...]:
    return (Leg(place, 0.0, timeout_s),)


def staged(places: Sequence[P], *, delay_s: float, timeout_s: float, spent_s: float = 0.0) -> list[Leg[P]]:
    """Return a plan that calls the first place now and each further place one delay after the one before.

    ``spent_s`` is the part of the delay that has passed before the first call.
    """
    return [Leg(place, max(0.0, delay_s * index - spent_s), timeout_s, index > 0) for index, place in enumerate(places)]


def all_at_once(places: Sequence[P], *, delay_s: float, timeout_s: float, spent_s: float = 0.0) -> list[Leg[P]]:
    """Return a plan that calls the first place now and all others together after one delay, as HBase does."""
    after_s = max(0.0, delay_s - spent_s)
    return [Leg(place, after_s if index else 0.0, timeout_s, index > 0) for index, place in enumerate(places)]


def postponed(legs: Sequence[Leg[P]], elapsed_s: float, *, wait_s_max: float) -> list[Leg[P]]:
    """Return the legs after the first of them was refused ``elapsed_s`` into the read: all of them start later.

    The wait is as long as the read has waited so far, so that the budget is asked after 1, 2, 4 and 8 delays, and
    ``wait_s_max`` at most. An infinite ``wait_s_max`` means that the budget is not asked again.

    >>> legs = staged(["primary", "r1", "r2"], delay_s=0.01, timeout_s=1.0)[1:]
    >>> [round(leg.after_s, 3) for leg in postponed(legs, 0.01, wait_s_max=0.25)]
    [0.02, 0.03]
    >>> [round(leg.after_s, 3) for leg in postponed(legs, 0.4, wait_s_max=0.25)]
    [0.65, 0.66]
    """
    wait_s = wait_s_max if wait_s_max == float("inf") else min(max(elapsed_s, WAIT_S_MIN), wait_s_max)
    shift_s = elapsed_s + wait_s - legs[0].after_s
    return [replace(leg, after_s=leg.after_s + shift_s) for leg in legs]
