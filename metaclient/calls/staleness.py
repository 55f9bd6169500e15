"""Decides which replicas a TIMELINE read with a limit of staleness may call, and which of their answers it may return.

1. Before the read, the lag of each replica is looked up. A replica that may be further behind than the limit, or of
   which nothing is known, is not called. The primary always may be called.
2. The lag of an answer is the lag that the backend measured before it read the row (``Capabilities.replica_lag``).
   Other backends do not report a lag. Then it is the time from the instant up to which the replica was known to be
   complete *before* the read, to the arrival of the answer. What is learned during the read is not used: it may be
   about edits that arrived after the row was read.
3. An answer whose lag exceeds the limit is refused, and the next replica of the plan is called; the primary is one.
4. A backend that reports the lag does so in each answer. A replica that is not called would therefore stay unknown:
   at most once per second, and if the budget of hedges allows, a small read is sent to it in the background. On other
   backends a canary measures the lag (:mod:`metaclient.freshness.canary`).
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any, TypeVar

from metaclient.attempts import Executor, ReadGuard
from metaclient.attempts.budget import HedgeBudget
from metaclient.backend import Backend
from metaclient.calls.answers import lag_of
from metaclient.errors import MetaClientError, TooStale
from metaclient.freshness.lag import REPLICAS_MAX, ReplicaLags
from metaclient.model import Get, RegionLocation, Result, ServerName
from metaclient.runtime import Runtime
from metaclient.telemetry import Telemetry

__all__ = ["Staleness", "StalenessLimit", "refusal_of"]

_log = logging.getLogger(__name__)
#: The shortest time between two background reads of one replica that only measure its lag.
PROBE_S = 1.0
PROBE_TIMEOUT_S = 5.0

P = TypeVar("P", bound=RegionLocation | None)


class Staleness:
    """What one connection knows of the lag of replicas."""

    def __init__(
        self,
        backend: Backend,
        runtime: Runtime,
        *,
        executor: Executor,
        budget: HedgeBudget,
        telemetry: Telemetry,
        replicas_max: int = REPLICAS_MAX,
    ) -> None:
        self._backend = backend
        self._runtime = runtime
        self._executor = executor
        self._budget = budget
        self._telemetry = telemetry
        self._replicas_max = replicas_max
        self.is_reported = backend.capabilities.replica_lag
        self._begin()
        runtime.on_fork(self._begin)

    def _begin(self) -> None:
        """Start without knowledge: at first, and in a child process, where the lock of the parent may be held."""
        self._lock = self._runtime.lock()
        # Guarded by the lock:
        self._lags = ReplicaLags(self._replicas_max)
        self._probed: dict[tuple[bytes, ServerName], float] = {}

    def limit(self, max_s: float | None) -> StalenessLimit | None:
        """Return the limit of one read; None if there is neither a limit nor anything to learn or to report."""
        if max_s is None and not self.is_reported and not self._lags:
            return None
        return StalenessLimit(self, max_s, self._runtime)

    def learn(self, place: RegionLocation, as_of: float) -> None:
        """Record that every write acknowledged before ``as_of``, an instant of the runtime, is in this replica."""
        with self._lock:
            self._lags.learn(place, as_of)

    def forget(self, place: RegionLocation) -> None:
        """Drop what is known of a replica that is not open at this location."""
        with self._lock:
            self._lags.forget(place)

    def as_of(self, place: RegionLocation) -> float | None:
        """Return the instant up to which a secondary is known to be complete; None if nothing is known."""
        return self._lags.as_of(place)

    def count_passed_over(self) -> None:
        """Count a replica that a read did not call, because it may be too far behind."""
        self._telemetry.count("metaclient.staleness.passed_over")

    def count_refused(self) -> None:
        """Count an answer that was too old."""
        self._telemetry.count("metaclient.staleness.refused")

    # -- background reads ------------------------------------------------------------------------------------

    def probe(self, place: RegionLocation) -> None:
        """Measure the lag of a replica in the background, where the backend reports it and the budget allows."""
        if not self.is_reported or self._budget.is_low() or not self._is_due(place) or not self._budget.take():
            return
        try:
            self._runtime.start(self._measure, place, name="lag-probe")
        except MetaClientError:
            return  # no thread is free: a later read starts the probe
        self._telemetry.count("metaclient.staleness.probes")

    def _measure(self, place: RegionLocation) -> None:
        region, begun = place.region, self._runtime.now()
        get = Get(region.start_key or b"\x00", existence_only=True)
        try:
            answer = self._executor.call(self._backend.get, place, region.table, get, deadline=begun + PROBE_TIMEOUT_S)
        except MetaClientError as error:
            _log.debug("the lag of replica %d at %s is unknown: %s", place.replica_id, place.server, error)
            return
        if isinstance(answer, Result) and answer.lag_s is not None:
            self.learn(place, begun - answer.lag_s)

    def _is_due(self, place: RegionLocation) -> bool:
        key, now = (place.region_name, place.server), self._runtime.now()
        with self._lock:
            last = self._probed.get(key)
            if last is not None and now - last < PROBE_S:
                return False
            self._probed.pop(key, None)
            self._probed[key] = now
            if len(self._probed) > self._replicas_max:
                del self._probed[next(iter(self._probed))]
        return True


class StalenessLimit:
    """One read: the limit of staleness, and what was known of the replicas before the read."""

    __slots__ = ("_as_of", "_begun", "_lag_s", "_now", "_staleness", "max_s")

    def __init__(self, staleness: Staleness, max_s: float | None, runtime: Runtime) -> None:
        self.max_s = max_s
        self._staleness = staleness
        self._now = runtime.now
        self._begun = self._now()
        self._as_of: dict[bytes, float] = {}
        self._lag_s: float | None = None  # of the answer that arrived last

    def admit(self, places: Sequence[P]) -> Sequence[P]:
        """Record what is known of these replicas before they are called; return those that may be called."""
        self._begun = now = self._now()
        self._as_of = {}
        allowed: list[P] = []
        for place in places:
            if place is not None and place.replica_id:
                as_of = self._staleness.as_of(place)
                if as_of is not None:
                    self._as_of[place.region_name] = as_of
                if self.max_s is not None and (as_of is None or now - as_of > self.max_s):
                    self._staleness.count_passed_over()
                    self._staleness.probe(place)
                    continue
            allowed.append(place)
        return allowed

    def lag_s(self, place: RegionLocation | None, reported_s: float | None) -> float | None:
        """Return an upper bound of the lag of an answer that has just arrived; None if no bound is known."""
        if place is None or not place.replica_id:
            return reported_s
        if not self._staleness.is_reported:
            as_of = self._as_of.get(place.region_name)
            return None if as_of is None else self._now() - as_of
        if reported_s is not None:
            self._staleness.learn(place, self._begun - reported_s)
        return reported_s

    def refusal(self, place: RegionLocation | None, lag_s: float | None) -> TooStale | None:
        """Return the reason not to use an answer of this age; None if it may be returned."""
        if self.max_s is None or place is None or not place.replica_id:
            return None
        if lag_s is not None and lag_s <= self.max_s:
            return None
        self._staleness.count_refused()
        age = "of unknown age" if lag_s is None else f"up to {lag_s:.3f} s old"
        return TooStale(
            f"the answer of replica {place.replica_id} at {place.server} is {age}; max_staleness is {self.max_s:g} s"
        )

    def refuse(self, place: RegionLocation | None, answer: Any) -> TooStale | None:
        """Do the same for a result or a page that has just arrived, and keep its lag for :meth:`marked`."""
        self._lag_s = self.lag_s(place, answer.lag_s)
        return self.refusal(place, self._lag_s)

    def marked(self, result: Result, place: RegionLocation | None) -> Result:
        """Return a result of the answer that arrived last with its lag, where the backend does not report it."""
        if self._staleness.is_reported or place is None or not place.replica_id:
            return result
        return result._replace(lag_s=self._lag_s)


def refusal_of(
    place: RegionLocation | None,
    answer: object,
    *,
    limit: StalenessLimit | None,
    guard: ReadGuard | None,
    row: bytes,
    since: float,
) -> MetaClientError | None:
    """Return the reason of the limit, else of the guard, not to use an answer that has just arrived; None to use it."""
    refusal = None if limit is None else limit.refuse(place, answer)
    if refusal is not None or guard is None or place is None or not place.replica_id:
        return refusal
    return guard.refusal(place, row, lag_of(answer), since=since)
