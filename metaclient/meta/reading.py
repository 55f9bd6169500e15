"""Judges the answers of one read of hbase:meta: which answer is accepted, and which replica is counted as faulty.

A negative answer of a secondary (no rows, a hole, a row that cannot be decoded) proves nothing: a replica that was just
re-opened answers "no rows, no error" for up to a minute. The primary is asked next, and only the primary's own negative
answer reaches the caller.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Generic, TypeVar

from metaclient.attempts.plan import Leg
from metaclient.backend import MetaPage
from metaclient.errors import (
    BackendFault,
    CallTimeout,
    Disposition,
    MetaClientError,
)
from metaclient.meta.health_tracker import HealthTracker
from metaclient.meta.registry import MetaRegistry
from metaclient.model import MetaReplica, ServerName

__all__ = ["Judge", "Reading", "Unconfirmed", "judged"]

T = TypeVar("T")
#: Takes a page and the id of the replica that sent it; returns what the page means, or the error that it amounts to.
Judge = Callable[[MetaPage, int], "T | MetaClientError"]

#: A call that ended before this share of its time was cut short by the caller's deadline.
CUT_SHORT = 0.99


class Unconfirmed(MetaClientError):
    """A secondary's negative answer, which only the primary can confirm."""

    disposition = Disposition.NEXT_REPLICA

    def __init__(self, meaning: MetaClientError) -> None:
        super().__init__(f"not confirmed: {meaning}")
        self.meaning = meaning


class Reading(Generic[T]):
    """One read of hbase:meta, as the observer of the executor's race."""

    def __init__(
        self, registry: MetaRegistry, health: HealthTracker, legs: Sequence[Leg[MetaReplica]], judge: Judge[T]
    ) -> None:
        self._registry = registry
        self._health = health
        self._judge = judge
        self._try_s = {leg.place.replica_id: leg.timeout_s for leg in legs}
        self._servers_out: set[ServerName] = set()
        self._doubted: list[tuple[MetaReplica, Unconfirmed, float]] = []
        self._primary_said: MetaClientError | None = None
        self._primary_failed = False
        self.meanings: dict[int, T] = {}

    def accept(self, replica: MetaReplica, page: MetaPage) -> MetaClientError | None:
        """Judge a page; return None to accept it, or the error with which the race continues."""
        self._health.record_lag(replica, page)
        meaning = judged(self._judge, page, replica.replica_id)
        if not isinstance(meaning, MetaClientError):
            self.meanings[replica.replica_id] = meaning
            return None
        if isinstance(meaning, BackendFault):
            return meaning
        if replica.replica_id != 0:
            return Unconfirmed(meaning)
        self._primary_said = meaning
        return meaning

    def leg_succeeded(self, place: MetaReplica, latency_s: float) -> None:
        self._health.record_success(place, latency_s)

    def leg_failed(self, place: MetaReplica, error: MetaClientError, latency_s: float) -> None:
        if isinstance(error, Unconfirmed):
            self._doubted.append((place, error, latency_s))
            return
        if place.replica_id == 0:
            self._primary_failed = True
        if error is self._primary_said or (place.replica_id == 0 and error.disposition is Disposition.FATAL):
            self._health.record_success(place, latency_s, type(error).__name__)
        elif isinstance(error, CallTimeout) and latency_s < CUT_SHORT * self._try_s[place.replica_id]:
            self._record_unhelpful(place, type(error).__name__)  # the caller's deadline passed, not the replica's time
        else:
            if error.blames_server and place.server is not None:
                self._servers_out.add(place.server)
            self._record_failure(place, error, latency_s)

    def record_outran(self, places: Sequence[MetaReplica], elapsed_s: float) -> None:
        """Record the replicas that were asked before the winner and had not answered when it did."""
        for place in places:
            self._health.record_outrun(place, elapsed_s)

    def reorder(self, error: MetaClientError, waiting: list[Leg[MetaReplica]]) -> list[Leg[MetaReplica]]:
        """Return the replicas to ask after a failure.

        The primary's negative answer is final. After a negative answer of a secondary the primary is next. After a
        fault of a server, its other replicas are not asked in this read.
        """
        if error is self._primary_said:
            return []
        if isinstance(error, Unconfirmed):
            return sorted(waiting, key=lambda leg: leg.place.replica_id != 0)
        return [leg for leg in waiting if leg.place.replica_id == 0 or leg.place.server not in self._servers_out]

    def is_from_primary(self, error: MetaClientError) -> bool:
        """Return True if the caller may see this error; an error of secondaries alone must not end an operation."""
        if isinstance(error, Unconfirmed):
            return False
        if self._primary_failed or error.disposition is not Disposition.FATAL:
            return True
        return error.is_deadline or error.ends_connection

    def settle(self, winner: MetaReplica | None) -> None:
        """Record the negative answers of secondaries, now that the read has ended.

        If the primary gave a negative answer too, they were right. If another replica found the region, they count as
        refuted. Otherwise nothing is known against them.
        """
        for place, error, latency_s in self._doubted:
            reason = type(error.meaning).__name__
            if self._primary_said is not None:
                self._health.record_success(place, latency_s, reason)
                continue
            self._record_unhelpful(place, reason)
            if winner is not None:
                self._health.record_refutation(place, reason)

    def _record_unhelpful(self, place: MetaReplica, outcome: str) -> None:
        self._health.record_unhelpful(place, outcome)

    def _record_failure(self, place: MetaReplica, error: MetaClientError, latency_s: float) -> None:
        if isinstance(error, CallTimeout):
            self._health.record_timeout(place, error, latency_s)
        else:
            self._health.record_failure(place, error)
        self._registry.refresh_after(error)


def judged(judge: Judge[T], page: MetaPage, replica_id: int) -> T | MetaClientError:
    """Return the meaning of a page; a page that cannot be read (a backend may return anything) is a BackendFault."""
    try:
        return judge(page, replica_id)
    except MetaClientError:
        raise
    except Exception as error:
        fault = BackendFault(f"the answer of hbase:meta cannot be read: {type(error).__name__}: {error}")
        fault.__cause__ = error
        return fault
