"""Records the latencies of TIMELINE reads per server, and decides which slow servers such reads avoid.

The policies are :mod:`metaclient.attempts.latencies` (which servers are slow) and :mod:`metaclient.attempts.choice`
(which replica is called first). HBase's own plan (``hedge_plan="all_at_once"``) always calls the primary first: with
this plan no latency per server is recorded.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from metaclient.attempts import IN_TIME, OUTRUN, HedgeBudget, HedgeDelay, Leg, ServerLatencies, Won, is_slow_now
from metaclient.attempts.budget import DEBT_MAX
from metaclient.config import Config
from metaclient.model import RegionLocation, ServerName
from metaclient.runtime import Runtime
from metaclient.telemetry import Telemetry

__all__ = ["SlowServers"]


class SlowServers:
    """The slow servers of one connection."""

    def __init__(
        self,
        runtime: Runtime,
        config: Config,
        *,
        budget: HedgeBudget,
        delays: Mapping[str, HedgeDelay],
        telemetry: Telemetry,
    ) -> None:
        self._now = runtime.now
        self._runtime = runtime
        self._is_on = config.hedge_plan == "staged"
        self._may_compare = self._is_on and config.hedge_budget > 0
        self._budget = budget
        self._delays = delays
        self._get_window = delays["get"].window
        self._telemetry = telemetry
        self._latencies = ServerLatencies()
        self.servers = self._latencies.slow  # not bool(self): STRONG reads check this, and a method costs 50 ns

    def __bool__(self) -> bool:
        """Return True if any server is slow; usually False, which saves further checks."""
        return bool(self._latencies)

    def contains(self, server: ServerName) -> bool:
        return self._latencies.is_slow(server)

    def is_avoided(self, place: RegionLocation) -> bool:
        """Return True if reads should call another replica first; False also when this read is a probe."""
        return is_slow_now(
            self._latencies,
            place,
            now=self._now(),
            chance=self._runtime.rng.random,
            budget=self._budget,
        )

    def have_answered_since(self, places: Sequence[RegionLocation], instant: float) -> bool:
        """Return True if the server of each location has answered a TIMELINE read after this instant."""
        return all(self._latencies.has_answered_since(place.server, instant) for place in places)

    def borrow_hedge(self, kind: str, places: Sequence[RegionLocation], calls: int) -> bool:
        """Return True if a read that waits for these locations may call another one although the budget is spent.

        This is for probes of slow servers, and for the comparison of a server with replicas whose latencies are
        unknown. The debt is limited.
        """
        if not any(self.contains(place.server) for place in places) and (kind != "get" or not self._may_compare):
            return False
        now = self._now()
        return self._budget.allows(calls, debt=DEBT_MAX) and (
            any(self.contains(place.server) or self._latencies.take_comparison(place.server, now) for place in places)
            and self._budget.borrow(calls)
        )

    def delay_s(self, kind: str, places: Sequence[RegionLocation | None]) -> float:
        """Return the hedge delay; at most the fixed delay while only the latencies of the first place are known.

        The measured latencies may be those of a slow server. The first hedges show whether it is slow.
        """
        delay = self._delays[kind]
        delay_s = delay.delay_s()
        if delay_s <= delay.fixed_s or kind != "get" or not self._is_on:
            return delay_s
        others = (place.server for place in places[1:] if place is not None)
        return delay_s if self._latencies.is_known(kind, others, self._now()) else delay.fixed_s

    # -- recording -------------------------------------------------------------------------------------------

    def add_first(self, kind: str, place: RegionLocation, latency_s: float) -> None:
        """Record how long a read waited for the location that it called first: the adaptive delay follows from this."""
        if not self.contains(place.server):  # the delay must not follow from the latencies of slow servers
            self._delays[kind].add(latency_s)

    def add_fast_get(self, server: ServerName, latency_s: float, now: float) -> None:
        """Record a get that a server which is not slow has answered within the hedge delay, as the first one called."""
        self._get_window.add(latency_s)
        if self._is_on:
            self._latencies.add_fast(server, "get", latency_s, now)

    def add(
        self, kind: str, place: RegionLocation, latency_s: float, places: Iterable[RegionLocation | None] = ()
    ) -> None:
        """Record a call that was answered; ``places`` are the replicas of its region."""
        self._add(kind, place, latency_s if kind == "get" else IN_TIME, places)

    def add_outrun(self, kind: str, place: RegionLocation, places: Iterable[RegionLocation] = ()) -> None:
        """Record a call that had not been answered when a replica that was called later answered."""
        self._add(kind, place, OUTRUN, places)

    def add_silence(self, place: RegionLocation) -> None:
        """Record that a server has stopped answering."""
        if self._is_on and self._latencies.add_silence(place.server, now=self._now()):
            self._on_verdict(place.server)

    def add_race(
        self, kind: str, won: Won[RegionLocation, Any], legs: Sequence[Leg[RegionLocation]], elapsed_s: float
    ) -> None:
        """Record the calls of a race that had not been answered when another replica answered."""
        places = [leg.place for leg in legs]
        winner = places.index(won.leg.place)
        for place in won.outran:
            at = places.index(place)
            if at == 0:
                # The call takes at least the delay. Without this sample the delay would only reflect fast responses.
                # With the time until the hedge was answered, the delay would grow with each hedge during a pause.
                self.add_first(kind, place, min(elapsed_s, self._delays[kind].delay_s()))
            if at < winner:
                self.add_outrun(kind, place, places)
            elif kind == "get" and self._is_on:
                bound_s, delay_s = elapsed_s - legs[at].after_s, self._delays[kind].fixed_s
                self._latencies.add_bound(place.server, kind, bound_s, now=self._now(), delay_s=delay_s)

    def _add(self, kind: str, place: RegionLocation, latency_s: float, places: Iterable[RegionLocation | None]) -> None:
        if not self._is_on:
            return
        delay = self._delays[kind]
        is_changed = self._latencies.add(
            place.server,
            kind,
            latency_s,
            now=self._now(),
            rivals=(other.server for other in places if other is not None and other.server != place.server),
            # The measured delay may come from the slow server itself; the configured delay does not.
            delay_s=min(delay.delay_s(), delay.fixed_s),
        )
        if is_changed:
            self._on_verdict(place.server)

    def _on_verdict(self, server: ServerName) -> None:
        is_slow = self.contains(server)
        if is_slow:
            for delay in self._delays.values():
                delay.window.clear()  # the latencies of a slow server must not count as normal
        self._telemetry.emit("server_slow" if is_slow else "server_recovered", server=str(server))
