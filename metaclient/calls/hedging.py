"""Decides when a TIMELINE read calls another replica of its region, runs the race, and records its outcome.

The policies are in :mod:`metaclient.attempts`: the delay, the budget of extra calls, the servers that have stopped
answering, and those that are slow. This module applies them to region replicas: one read of a row or of a page
(``race``), and the parts of a read of many rows, which :mod:`metaclient.calls.multi` races.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Generic, TypeVar, cast

from metaclient.attempts import (
    PINNED,
    Executor,
    HedgeBudget,
    HedgeDelay,
    Leg,
    ReadGuard,
    SilentServers,
    Won,
    all_at_once,
    avoiding,
    explained,
    staged,
)
from metaclient.attempts.contest import Opening
from metaclient.backend import Answer, Backend, DirectBackend
from metaclient.calls.answers import wrong
from metaclient.calls.slow_servers import SlowServers
from metaclient.calls.staleness import Staleness, StalenessLimit, refusal_of
from metaclient.config import Config
from metaclient.errors import Disposition, MetaClientError
from metaclient.lookup.locator import Locator
from metaclient.model import Get, RegionLocation, RegionLocations, Result, ServerName
from metaclient.runtime import Pending, Runtime
from metaclient.telemetry import Telemetry

__all__ = ["ASK_AGAIN_S", "HedgePermit", "Hedging"]

P = TypeVar("P")
T = TypeVar("T")
#: HBase's defaults: hbase.client.primaryCallTimeout.get and .multiget, hbase.client.replicaCallTimeout.scan.
GET_DELAY_S, SCAN_DELAY_S = 0.010, 1.0
#: A server is silent when a response is overdue by more than SILENT_S and by more than SILENT_DELAYS hedge delays.
SILENT_S = 0.05
SILENT_DELAYS = 5
#: After this time, and twice as many delays, a read whose hedge was refused may call another replica without budget.
STALLED_S = 0.25
#: A refused read asks again after 1, 2, 4 delays and so on, at least this often: five times per STALLED_S.
ASK_AGAIN_S = 0.05


@dataclass(frozen=True, slots=True)
class _Read(Generic[T]):
    """One read: the calls ``function(location, *args, deadline)``, the type of their answer, and what may be used."""

    kind: str
    function: Callable[..., Answer[Any]]
    args: tuple[object, ...]
    row: bytes
    answer: type[T]
    deadline: float
    discard: Callable[[T], None] | None = None
    limit: StalenessLimit | None = None
    guard: ReadGuard | None = None


class Hedging:
    """The hedged reads of one connection; a ``kind`` of read ("get", "scan", "rows") has its own delay."""

    def __init__(
        self,
        backend: Backend,
        runtime: Runtime,
        config: Config,
        *,
        executor: Executor,
        locator: Locator,
        telemetry: Telemetry,
    ) -> None:
        self._now = runtime.now
        self._config = config
        self._executor = executor
        self._locator = locator
        self._telemetry = telemetry
        self._cached_tables = locator.cache.tables
        self._backend_get = backend.get
        is_direct = backend.capabilities.direct and isinstance(backend, DirectBackend)
        self._get_until = cast("DirectBackend", backend).direct.get_until if is_direct else None
        self._is_staged = config.hedge_plan == "staged"
        self._read_timeout_s = min(config.rpc_read_timeout_s, config.operation_timeout_s)
        self.budget = HedgeBudget(ratio=config.hedge_budget, burst=config.hedge_budget_burst)
        self._delays = {
            "get": self._delay(config.hedge_delay_get_s, GET_DELAY_S),
            "scan": self._delay(config.hedge_delay_scan_s, SCAN_DELAY_S),
            "rows": self._delay(config.hedge_delay_multiget_s, GET_DELAY_S),
        }
        self.slow = SlowServers(runtime, config, budget=self.budget, delays=self._delays, telemetry=telemetry)
        self._get_delay = self._delays["get"]
        self._slow_servers = self.slow.servers
        self.staleness = Staleness(backend, runtime, executor=executor, budget=self.budget, telemetry=telemetry)
        self._begin()
        runtime.on_fork(self._begin)
        self._turn = 0  # races between threads only make two reads start at the same replica

    def _begin(self) -> None:
        """Start without silent servers, here and in a forked child, where the calls of the parent never end."""
        self._silent = SilentServers()

    def _delay(self, given_s: float | None, default_s: float) -> HedgeDelay:
        """Return the delay of one kind of read; a delay that the user gave is neither lengthened nor shortened."""
        config = self._config
        return HedgeDelay(
            fixed_s=default_s if given_s is None else given_s,
            adaptive=given_s is None and config.hedge_delay == "adaptive",
            quantile=config.hedge_quantile,
            min_s=config.hedge_delay_min_s,
            max_s=config.hedge_delay_max_s,
            samples_min=config.hedge_samples_min,
        )

    # -- one read --------------------------------------------------------------------------------------------

    def get(
        self, table: bytes, get: Get, deadline: float, limit: StalenessLimit | None, guard: ReadGuard | None
    ) -> tuple[Result, RegionLocation]:
        """Read one row at the region's replicas, as :meth:`race` does.

        Usually the primary is first and answers within the hedge delay. Then no plan is needed, and the read costs
        little more than a STRONG one. Otherwise the race continues with the call of the primary.
        """
        if limit is None and guard is None and not self._silent.witnesses and not self._slow_servers:
            known = self._cached_tables.get(table)
            entry = None if known is None else known.cached_region(get.row)
            if entry is not None:
                return self._get_at_primary(entry, table, get, deadline)
        return self._race(self._read_of(table, get, deadline, limit, guard), table, before=False)

    def _get_at_primary(
        self, entry: RegionLocations, table: bytes, get: Get, deadline: float
    ) -> tuple[Result, RegionLocation]:
        """Read one row at the primary; if it does not answer in time, race the other replicas with it."""
        first, delay = entry.replicas[0], self._get_delay
        assert first is not None, "regions in the cache of a table whose primary is unknown are not used here"
        begun = self._now()
        self.budget.on_call()
        delay_s, fixed_s = delay.delay_s(), delay.fixed_s
        if delay_s > fixed_s:
            delay_s = self.slow.delay_s("get", entry.replicas)
        call_deadline, until = begun + self._read_timeout_s, begun + delay_s
        if call_deadline > deadline:
            call_deadline = deadline
        executor = self._executor
        answer: Result | Opening[Result]
        if self._get_until is not None:
            answer = executor.open(self._get_until, (first, table, get, call_deadline, until), until, begun)
        else:
            answer = executor.open(executor.begin, (self._backend_get, first, table, get, call_deadline), until, begun)
        if type(answer) is Result:
            now = self._now()
            latency_s = now - begun
            if latency_s < delay_s and latency_s < fixed_s:  # the usual case: nothing to decide
                self.slow.add_fast_get(first.server, latency_s, now)
            else:
                self.slow.add_first("get", first, latency_s)
                self.slow.add("get", first, latency_s, entry.replicas)
            if first.is_hint:  # saves a call
                self._locator.confirm(first)
            if self._silent.witnesses:
                self.answered(first.server)
            return answer, first
        opening = answer if isinstance(answer, Opening) else Opening(begun, answer)
        places = self._ordered(entry)
        legs = self.legs(places, "get", spent_s=0.0, delay_s=delay_s)
        return self._finish(self._read_of(table, get, deadline), places, legs, begun, opening)

    def _read_of(
        self,
        table: bytes,
        get: Get,
        deadline: float,
        limit: StalenessLimit | None = None,
        guard: ReadGuard | None = None,
    ) -> _Read[Result]:
        return _Read("get", self._backend_get, (table, get), get.row, Result, deadline, limit=limit, guard=guard)

    def race(
        self,
        kind: str,
        function: Callable[..., Answer[Any]],
        *args: object,
        table: bytes,
        row: bytes,
        answer: type[T],
        deadline: float,
        before: bool = False,
        discard: Callable[[T], None] | None = None,
        limit: StalenessLimit | None = None,
        guard: ReadGuard | None = None,
    ) -> tuple[T, RegionLocation]:
        """Call the region's replicas according to the plan; return the first success and its location.

        A call is ``function(location, *args, deadline)``, and must return an ``answer``. Only secondaries that both
        ``limit`` and ``guard`` permit are called, and only their answers that both accept are returned.
        """
        return self._race(_Read(kind, function, args, row, answer, deadline, discard, limit, guard), table, before)

    def _race(self, read: _Read[T], table: bytes, before: bool) -> tuple[T, RegionLocation]:
        begun, kind = self._now(), read.kind
        places, unplaced = self._places(table, read.row, kind, read.deadline, before)
        if read.limit is not None:
            places = read.limit.admit(places)
        fresh, guard = len(places), read.guard
        if guard is not None:
            places = [place for place in places if place.replica_id == 0 or guard.may_call(place, read.row)]
        if not places and unplaced is not None:
            raise unplaced
        sent = self._now()
        self.budget.on_call()
        legs = self.legs(places, kind, spent_s=sent - begun, delay_s=self.slow.delay_s(kind, places))
        try:
            value, place = self._finish(read, places, legs, sent)
        except MetaClientError as error:
            if unplaced is None or error.ends_connection:
                raise
            raise unplaced from error  # the error of the primary counts: it has no location
        is_pinned = len(places) == 1 < fresh and places[0].replica_id == 0
        return value, replace(place, why=PINNED) if is_pinned else place

    def _finish(
        self,
        read: _Read[T],
        places: Sequence[RegionLocation],
        legs: Sequence[Leg[RegionLocation]],
        sent: float,
        opening: Opening[T] | None = None,
    ) -> tuple[T, RegionLocation]:
        """Run the race of a read that began at ``sent``; ``opening`` is its first call, if that was made already."""
        kind = read.kind
        won = self._executor.race(
            legs,
            read.function,
            *read.args,
            deadline=read.deadline,
            observer=_Observer(self, kind, self._locator, places),
            accept=partial(_refusal, read, sent),
            allow_hedge=HedgePermit(self, kind, places[:1], since=sent),
            discard=read.discard,
            watch=partial(self.is_witness, kind),
            ask_again_s=ASK_AGAIN_S,
            opening=opening,
        )
        self.answered(won.leg.place.server)
        if won.outran:
            self.slow.add_race(kind, won, legs, self._now() - sent)
        return won.value, self._winner(won)

    def on_error(self, place: RegionLocation, error: MetaClientError) -> None:
        """Correct what is known of a replica at which a call has failed: its location, and its lag if it left."""
        if place.replica_id and error.disposition is Disposition.RELOCATE:
            self.staleness.forget(place)
        self._locator.on_error(place, error)

    def _winner(self, won: Won[RegionLocation, Any]) -> RegionLocation:
        """Count how a race was won; return the location that answered, with the reason why it was called."""
        if won.leg.is_hedge:
            self.count_win(is_hedge=won.hedges > 0)
        elif won.leg.place.replica_id != 0:
            self._telemetry.count("metaclient.diversions")
        return explained(won.leg.place, is_first=not won.leg.is_hedge, hedges=won.hedges)

    def _places(
        self, table: bytes, row: bytes, kind: str, deadline: float, before: bool
    ) -> tuple[Sequence[RegionLocation], MetaClientError | None]:
        """Return the primary, then the secondaries in rotating order; and the error if there is no primary.

        Replicas on silent and on slow servers come last.
        """
        unplaced: MetaClientError | None = None
        try:
            entry = self._locator.locate_region(table, row, deadline=deadline, before=before)
        except MetaClientError as error:
            # The primary has no location now: the known secondaries can still answer a TIMELINE read.
            known = None if before else self._locator.cache.cached_region(table, row)
            if known is None or not known.placed() or error.disposition is Disposition.FATAL:
                raise
            entry, unplaced = known, error
        places = self._ordered(entry)
        return (avoiding(places, partial(self.is_avoided, kind)) if self.has_avoided else places), unplaced

    def _ordered(self, entry: RegionLocations) -> list[RegionLocation]:
        return [place for at in self.replica_order(entry) if (place := entry.at(at)) is not None]

    # -- the plan --------------------------------------------------------------------------------------------

    def replica_order(self, entry: RegionLocations) -> list[int]:
        """Return the primary first, then the other replicas in rotating order."""
        others = list(range(1, len(entry.replicas)))
        self._turn += 1
        start = self._turn % len(others) if others else 0
        return [0, *others[start:], *others[:start]]

    def legs(
        self,
        places: Sequence[P],
        kind: str,
        *,
        spent_s: float,
        timeout_s: float | None = None,
        delay_s: float | None = None,
    ) -> Sequence[Leg[P]]:
        """Return the plan of a read; time spent on locating counts towards the hedge delay, as in HBase."""
        make = staged if self._is_staged else all_at_once
        timeout_s = self._read_timeout_s if timeout_s is None else timeout_s
        delay_s = self._delays[kind].delay_s() if delay_s is None else delay_s
        return make(places, delay_s=delay_s, timeout_s=timeout_s, spent_s=spent_s)

    # -- silent and slow servers -----------------------------------------------------------------------------

    @property
    def has_avoided(self) -> bool:
        """Return True if any server may be silent or slow; usually False, which saves further checks."""
        return bool(self._silent.witnesses or self.slow.servers)

    def is_avoided(self, kind: str, place: RegionLocation) -> bool:
        """Return True if reads should try another replica before this server."""
        return self._is_silent(kind, place) or self.slow.is_avoided(place)

    def _is_silent(self, kind: str, place: RegionLocation) -> bool:
        normal_s = max(SILENT_S, SILENT_DELAYS * self._delays[kind].delay_s())
        return self._silent.is_silent(place.server, self._now(), normal_s)

    def answered(self, server: ServerName) -> None:
        """Record that the server answered: it is not silent."""
        if self._silent:
            self._silent.answered(server)

    def is_witness(self, kind: str, place: RegionLocation, call: Pending[Any], since: float) -> bool:
        """Return True if an outrun call continues as a witness; HBase's own plan (all at once) needs none."""
        is_late = self._now() - since >= self._delays[kind].delay_s()  # otherwise the call has only just been made
        if not is_late or not self._is_staged:
            return False
        is_witness = self._silent.outran(place.server, call, since, since + self._read_timeout_s)
        if self._silent.has_just_stopped(place.server):
            self.slow.add_silence(place)
        return is_witness

    # -- permission and counters -----------------------------------------------------------------------------

    def allow_hedge(self, calls: int = 1) -> bool:
        """Return True and deduct that many extra calls if the budget allows all of them."""
        if not self.budget.take(calls):
            return False
        self._count_hedges(calls)
        return True

    def can_wait(self, kind: str, places: Sequence[RegionLocation], since: float) -> bool:
        """Return True if a read shall wait another delay, because the budget is low and its servers are at work.

        Hedges of ordinary reads would use up the hedges that reads need when a server pauses. A server that has
        answered another read since ``since`` does not pause. A delay that the user gave is not lengthened.
        """
        is_low = self._delays[kind].is_adaptive and self.budget.is_low()
        return is_low and self.slow.have_answered_since(places, since)

    def turn_away(self, kind: str, places: Sequence[RegionLocation], calls: int) -> bool:
        """Return True if a read that waits for these locations may call another one, whatever the hedge budget is.

        This is for reads in flight when a server stopped answering; later reads call another replica first. The extra
        call is deducted from the budget later. Reads that show how slow a server is may borrow a few calls, too.
        """
        stalled_s = max(STALLED_S, 2 * SILENT_DELAYS * self._delays[kind].delay_s())
        now = self._now()
        if any(self._silent.waiting_s(place.server, now) >= stalled_s for place in places):
            self.budget.owe(calls)
        elif not self.slow.borrow_hedge(kind, places, calls):
            return False
        self._count_hedges(calls)
        return True

    def _count_hedges(self, calls: int) -> None:
        self._telemetry.count("metaclient.hedges", calls)
        self._telemetry.emit("hedge_started", calls=calls)

    def count_win(self, *, is_hedge: bool) -> None:
        """Count an answer of a secondary: as a hedge that won, or as a failover after the primary had failed."""
        self._telemetry.count("metaclient.hedges.won" if is_hedge else "metaclient.failovers")


def _refusal(read: _Read[Any], sent: float, place: RegionLocation, value: object) -> MetaClientError | None:
    """Return the reason not to use an answer; None if it may be returned."""
    if not isinstance(value, read.answer):
        return wrong(read.answer, value)
    return refusal_of(place, value, limit=read.limit, guard=read.guard, row=read.row, since=sent)


class _Stage(enum.Enum):
    """How far one read has used its permission to hedge."""

    FIRST = "first"  # the read has not asked yet
    WITHIN_BUDGET = "within budget"
    REFUSED = "refused"  # one more hedge may be started if a server has stopped answering
    USED_UP = "used up"


class HedgePermit:
    """Decides whether one read may start another hedge.

    1. The first request is refused if the read can wait another delay (:meth:`Hedging.can_wait`).
    2. Hedges are started while the budget allows.
    3. After the first refusal by the budget, only a server that has stopped answering may trigger one more. A read that
       has waited long does not take the hedges of the reads after it: many reads would become slow instead of one.

    ``places`` are the locations that were called first, at the instant ``since``.
    """

    __slots__ = ("_hedging", "_kind", "_places", "_since", "_stage")

    def __init__(self, hedging: Hedging, kind: str, places: Sequence[RegionLocation], *, since: float) -> None:
        self._hedging = hedging
        self._kind = kind
        self._places = places
        self._since = since
        self._stage = _Stage.FIRST

    def __call__(self, calls: int) -> bool:
        if self._stage is _Stage.FIRST:
            self._stage = _Stage.WITHIN_BUDGET
            if self._hedging.can_wait(self._kind, self._places, self._since):
                return False
        if self._stage is _Stage.WITHIN_BUDGET:
            if self._hedging.allow_hedge(calls):
                return True
            self._stage = _Stage.REFUSED
        if self._stage is _Stage.REFUSED and self._hedging.turn_away(self._kind, self._places, calls):
            self._stage = _Stage.USED_UP
            return True
        return False


class _Observer:
    """Updates latencies, hedge delay and location cache with the outcome of each leg of a race."""

    __slots__ = ("_hedging", "_kind", "_locator", "_places")

    def __init__(self, hedging: Hedging, kind: str, locator: Locator, places: Sequence[RegionLocation]) -> None:
        self._hedging = hedging
        self._kind = kind
        self._locator = locator
        self._places = places

    def leg_succeeded(self, place: RegionLocation, latency_s: float) -> None:
        slow = self._hedging.slow
        if place is self._places[0]:
            slow.add_first(self._kind, place, latency_s)
        slow.add(self._kind, place, latency_s, self._places)
        self._locator.confirm(place)

    def leg_failed(self, place: RegionLocation, error: MetaClientError, latency_s: float) -> None:
        error.place = place
        self._hedging.on_error(place, error)
