"""Decides which replica a TIMELINE read calls first, and records the reason.

The primary is first while it is healthy, because its answer is fresh. When its server is slow or silent, the other
replicas come first, in the rotating order in which they are given, so that reads and connections spread over all of
them. Such a read makes no extra call and takes nothing from the hedge budget.

A probe calls the primary first although it is slow. Probes start at most every half second, if the budget allows the
hedge that the probe may need. After two seconds without a call of the server, the probe borrows the hedge; after ten
seconds it starts without one. With ``r`` reads per second and a budget of ``b`` hedges per read, the longest time
between two probes is therefore ``min(10, max(2, 1 / (b * r)))`` seconds: two seconds from ten reads per second on, and
up to ten below that, because each probe of a server that is still slow costs a hedge. After the first probe that is
fast, the next reads are probes too, and the fourth ends the verdict.

>>> from metaclient.model import RegionInfo, RegionLocation, ServerName
>>> places = [RegionLocation(RegionInfo(b"t").replica(n), ServerName(f"rs{n}", 16020)) for n in range(3)]
>>> [place.replica_id for place in avoiding(places, lambda place: place.replica_id == 0)]
[1, 2, 0]
>>> avoiding(places, lambda place: True) == places
True
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Final, Protocol

from metaclient.attempts.budget import DEBT_MAX, HedgeBudget
from metaclient.attempts.latencies import ServerLatencies
from metaclient.errors import MetaClientError
from metaclient.model import RegionLocation

__all__ = ["FAILOVER", "FASTEST", "HEDGE", "PINNED", "PRIMARY", "ReadGuard", "avoiding", "explained", "is_slow_now"]

#: The reasons for calling a replica: the values of ``Row.why``.
PRIMARY: Final = "primary"  # the primary was called first and answered
FASTEST: Final = "fastest"  # called first, because the server of the primary is slow or silent
HEDGE: Final = "hedge"  # called because the first replica had not answered after the hedge delay
FAILOVER: Final = "failover"  # called because every replica before it had failed
PINNED: Final = "pinned"  # the caller named the replica, or only the primary may answer the session


class ReadGuard(Protocol):
    """Decides which secondaries may answer one read; the primary always may."""

    def may_call(self, place: RegionLocation, row: bytes) -> bool:
        """Return True if this secondary may be called for the row; a scan asks with the row at which it continues."""

    def refusal(
        self, place: RegionLocation, row: bytes, lag_s: float | None, *, since: float
    ) -> MetaClientError | None:
        """Return None if the answer of a secondary is accepted, else the reason for calling another replica.

        ``lag_s`` as in ``Row``; ``since``: an instant before the call.
        """


def avoiding(
    places: Sequence[RegionLocation], is_avoided: Callable[[RegionLocation], bool]
) -> Sequence[RegionLocation]:
    """Return the locations; those to be avoided come last, both parts in the given order."""
    return sorted(places, key=is_avoided)


def is_slow_now(
    latencies: ServerLatencies,
    place: RegionLocation,
    *,
    now: float,
    chance: Callable[[], float],
    budget: HedgeBudget,
) -> bool:
    """Return True if reads should call another replica before this one: its server is slow, and no probe is due."""
    is_due = latencies.is_probe_due(place.server, now)
    if not latencies.is_slow(place.server):
        return False
    if is_due and not budget.allows():
        is_due = latencies.is_probe_overdue(place.server, now, can_borrow=budget.allows(debt=DEBT_MAX))
    if place.replica_id != 0 or not is_due:
        return True
    latencies.begin_probe(place.server, now=now, chance=chance())
    return False


def explained(place: RegionLocation, *, is_first: bool, hedges: int) -> RegionLocation:
    """Return the location with the reason why it was called; ``is_first``: no other replica was called before it."""
    if is_first and place.replica_id == 0:
        return place
    return replace(place, why=FASTEST if is_first else HEDGE if hedges else FAILOVER)
