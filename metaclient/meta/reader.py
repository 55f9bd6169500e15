"""Reads pages of hbase:meta at the replicas that the policy names, and keeps their health.

One read of meta:

1. The registry's replicas (known, refreshed in the background) and their health make a view; the selector answers an
   order of ids; ids without a server are skipped and the primary is added as the last resort.
2. LoadBalance and None ask one after the other, each within its own time. HedgedRead asks the primary now, the first
   secondary after the delay, and so on (``hedge_plan`` staged), or all secondaries after the delay (all_at_once). After
   a fault of a server its other replicas are not tried in this read.
3. An answer of a secondary that ``judge`` finds negative (no rows, a hole, garbage) proves nothing: a re-opened replica
   answers "no rows, no error" for a minute. The primary is asked next, whatever stood next on the list; only what it
   says reaches the caller. The secondary is blamed when it was contradicted some times in a row, not for a moment's lag
   and not when it was right.
4. Failures, such lies and time-outs eject the replica for a growing time, and its server with it when the fault is the
   server's. When its time is over, one background call probes it, so that no user waits for the experiment.

The try time is ``4 * p99`` of recent successes within [min, max]: long enough for a busy replica, short for a dead one.
The last one that is asked, normally the primary, has all the time of a call: in a slow cluster its successes make the
try time grow.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from math import sqrt
from typing import Generic, TypeVar

from metaclient import metarow
from metaclient.attempts.budget import HedgeBudget
from metaclient.attempts.delay import LatencyWindow
from metaclient.attempts.executor import Executor
from metaclient.attempts.plan import Leg, all_at_once, one_replica, staged
from metaclient.attempts.retry import pause_s
from metaclient.backend import Addressing, Backend, MetaPage, MetaScan
from metaclient.config import Config, MetaMode
from metaclient.errors import (
    BackendFault,
    CallTimeout,
    ConfigError,
    ConnectionClosed,
    DeadlineExceeded,
    Disposition,
    LocationUnknown,
    MetaClientError,
    Overloaded,
    RegionOffline,
    ServerUnreachable,
    translated,
)
from metaclient.keys import REPLICA_ID_MAX
from metaclient.meta import HealthState, Lookup, MetaView, ReplicaHealth, ReplicaView, StaleRanges, selector_named
from metaclient.model import META_TABLE, MetaReplica, RegionInfo, ServerName
from metaclient.runtime import Pending, Runtime
from metaclient.telemetry import Telemetry

__all__ = ["Judge", "MetaReader", "MetaReplicaStatus"]

T = TypeVar("T")
#: Understands a page and the id of the replica that it came from: what it means, or the error that it amounts to.
Judge = Callable[[MetaPage, int], "T | MetaClientError"]

#: Reads until the adaptive try time rests on measurements; before that it is the middle of its range.
TRY_SAMPLES_MIN = 8
#: Negative answers in a row that others refuted before a copy is out. One is what a new table does to each copy that
#: lags by a moment, and sending everything to the primary for it would be the hotspot that this module avoids.
REFUTATIONS_MAX = 3
TRY_FACTOR = 4.0
TRY_QUANTILE = 0.99
#: A call that ended before this share of its time was cut short by the caller's deadline.
CUT_SHORT = 0.99
#: A probe reads one row from the start of meta: the cheapest call that a replica may not refuse.
PROBE = MetaScan(b"", b"", is_reversed=False, limit=1)


@dataclass(frozen=True, slots=True)
class MetaReplicaStatus:
    """One line of ``Connection.meta_replicas()``."""

    id: int
    server: str | None
    state: str  # "healthy", "ejected", "unplaced"
    lookups: int
    errors: int
    latency_ms: float | None
    ejected_until: float | None
    last_error: str | None = None
    lag_ms: float | None = None  # how far behind it last said that it was, where the backend tells


class MetaReader:
    """The meta replicas of one connection."""

    def __init__(
        self, backend: Backend, runtime: Runtime, config: Config, executor: Executor, telemetry: Telemetry
    ) -> None:
        self._backend = backend
        self._runtime = runtime
        self._config = config
        self._executor = executor
        self._telemetry = telemetry
        self._by_gateway = backend.capabilities.addressing is Addressing.GATEWAY
        self._can_choose = backend.capabilities.meta_replicas
        # A lookup waits for the fixed delay, so that few hedge: each may, once, and more often where all reads may.
        self._hedge_budget = HedgeBudget(ratio=max(1.0, config.hedge_budget), burst=config.hedge_budget_burst)
        self._latency = LatencyWindow()
        self._lags_s: dict[int, float] = {}  # as the replicas last told; one store a page, no lock
        self._turn = 0  # whom to ask next while all are out; a race between threads only repeats one
        # Guarded by the lock; the tuple and the health values are replaced, never changed:
        self._replicas: tuple[MetaReplica, ...] = ()
        self._health: dict[int, ReplicaHealth] = {}
        self._server_health: dict[ServerName, ReplicaHealth] = {}
        self._refreshed_at = float("-inf")
        self._begin()
        runtime.on_fork(self._begin)

    def _begin(self) -> None:
        """No question is under way: at first, and in a child process, which keeps the places and health of replicas.

        The selector is a new one: children that a process forks must not start with the same replica.
        """
        config = self._config
        # Guards the selector and its marks: a user's code must not hold up the health.
        self._selector_lock = self._runtime.lock()
        self._stale = StaleRanges(
            base_s=config.meta_stale_mark_s, max_s=config.meta_stale_mark_max_s, marks_max=config.meta_stale_marks_max
        )
        self._selector = selector_named(config.meta_selector, self._stale)
        self._is_final = bool(getattr(self._selector, "is_final", False))
        self._lock = self._runtime.lock()
        # Guarded by the lock:
        self._refutations: dict[int, int] = {}  # by replica id, in a row
        self._probing: set[int] = set()
        self._refreshing: Pending[tuple[MetaReplica, ...]] | None = None

    # -- what others see -------------------------------------------------------------------------------------

    @property
    def mode(self) -> MetaMode:
        """The mode in force: the configured one, or LoadBalance where there is something to balance over."""
        if not self._can_choose:
            return MetaMode.NONE
        if self._config.meta_mode is not None:
            return self._config.meta_mode
        return MetaMode.LOAD_BALANCE if len(self._replicas) > 1 else MetaMode.NONE

    def status(self) -> list[MetaReplicaStatus]:
        with self._lock:
            return [self._status_of(replica) for replica in self._replicas]

    def _status_of(self, replica: MetaReplica) -> MetaReplicaStatus:
        health = self._health.get(replica.replica_id, ReplicaHealth())
        of_server = self._server_health.get(replica.server, ReplicaHealth()) if replica.server else ReplicaHealth()
        worst = health if health.state is HealthState.EJECTED else of_server
        is_out = worst.state is HealthState.EJECTED
        unplaced = replica.server is None and not self._by_gateway
        lag_s = self._lags_s.get(replica.replica_id)
        return MetaReplicaStatus(
            id=replica.replica_id,
            server=str(replica.server) if replica.server else None,
            state="unplaced" if unplaced else worst.state.value,
            lookups=self._telemetry.total("metaclient.meta.reads", replica=replica.replica_id),
            errors=health.failures,
            latency_ms=round(health.latency_s * 1000, 3) if health.latency_s is not None else None,
            ejected_until=worst.ejected_until if is_out else None,
            last_error=health.last_error,
            lag_ms=round(lag_s * 1000, 3) if lag_s is not None else None,
        )

    @property
    def confirms(self) -> bool:
        """Whether negative answers are the primary's own; with Java's selector they are anybody's."""
        return not (self._is_final and self.mode is MetaMode.LOAD_BALANCE)

    def on_wrong_location(self, region: RegionInfo) -> None:
        """A location that meta gave proved wrong: ask the primary about this range for a while."""
        with self._selector_lock:
            self._selector.on_wrong_location(region, self._runtime.now())

    # -- the registry ----------------------------------------------------------------------------------------

    def replicas(self, deadline: float) -> tuple[MetaReplica, ...]:
        """The replicas as last heard; waits for the registry only when nothing is known yet."""
        if not self._can_choose:
            return (MetaReplica(0),)
        known = self._replicas
        if known:
            if self._runtime.now() - self._refreshed_at >= self._config.meta_refresh_s:
                self._refresh_soon()
            return known
        if self._by_gateway:
            return self._replicas_behind_gateway(deadline)
        return self.refresh(deadline)

    def _replicas_behind_gateway(self, deadline: float) -> tuple[MetaReplica, ...]:
        """A gateway finds the primary by itself: nobody waits longer than one try for the number of replicas."""
        pending = self._refresh_soon()
        self._runtime.wait_first((pending,), min(deadline, self._runtime.now() + self._try_s()))
        return self._replicas or (MetaReplica(0),)

    def known(self) -> tuple[MetaReplica, ...]:
        """The replicas as last heard; nothing when nobody has asked yet."""
        return self._replicas

    def assume(self, replicas: Sequence[MetaReplica]) -> None:
        """Take another client's word for where they are, unless we know ourselves: the registry is spared a question.

        It is asked when the word proves wrong, and in the background when it is as old as ``meta_refresh_s``.
        """
        if not replicas or not self._can_choose:
            return
        with self._lock:
            if not self._replicas:
                self._replicas = _in_order(replicas)
                self._refreshed_at = self._runtime.now()

    def refresh(self, deadline: float) -> tuple[MetaReplica, ...]:
        """Ask the registry now (joining whoever already does)."""
        while True:
            pending, is_ours = self._refresh_flight()
            if is_ours:
                self._fetch(pending, deadline)
            if self._runtime.wait_first((pending,), deadline) is None:
                raise DeadlineExceeded("the registry did not say in time where hbase:meta is")
            # Whoever asked may have had less time than we have: that says nothing about the registry.
            if is_ours or not isinstance(pending.error(), CallTimeout):
                return pending.result()

    def refresh_on_evidence(self) -> None:
        """Something suggests that the replicas changed; asks at most once per ``meta_refresh_min_s``."""
        if self._runtime.now() - self._refreshed_at >= self._config.meta_refresh_min_s:
            self._refresh_soon()

    def _refresh_soon(self) -> Pending[tuple[MetaReplica, ...]]:
        pending, is_ours = self._refresh_flight()
        if is_ours:
            deadline = self._runtime.now() + self._config.meta_rpc_timeout_s
            try:
                self._runtime.start(self._fetch, pending, deadline, name="meta-refresh")
            except MetaClientError as error:  # no thread free: the next lookup will try again
                self._refresh_done(pending, None, error)
        return pending

    def _refresh_flight(self) -> tuple[Pending[tuple[MetaReplica, ...]], bool]:
        with self._lock:
            if self._refreshing is not None:
                return self._refreshing, False
            self._refreshing = self._runtime.pending(name="registry")
            return self._refreshing, True

    def _fetch(self, pending: Pending[tuple[MetaReplica, ...]], deadline: float) -> None:
        self._telemetry.count("metaclient.meta.refreshes")
        until = min(deadline, self._runtime.now() + self._config.meta_rpc_timeout_s)
        try:
            replicas = _in_order(self._executor.call(self._backend.meta_replicas, deadline=until))
        except BaseException as error:  # whatever it is, nobody may wait for this fetch for ever
            self._refresh_done(pending, None, translated(error))
            if not isinstance(error, Exception):
                raise
        else:
            self._refresh_done(pending, replicas, None)

    def _refresh_done(
        self,
        pending: Pending[tuple[MetaReplica, ...]],
        replicas: tuple[MetaReplica, ...] | None,
        error: MetaClientError | None,
    ) -> None:
        with self._lock:
            self._refreshing = None
            self._refreshed_at = self._runtime.now()
            before = self._replicas
            if replicas is not None:
                self._replicas = replicas
                self._forget_gone(replicas)
        if before and replicas is not None and before != replicas:
            self._telemetry.emit("meta_replicas_changed", before=len(before), after=len(replicas))
        if replicas is None and not before:
            pending.fail(error or ServerUnreachable("the registry knows no meta replica"))
        else:
            pending.complete(replicas or before)

    def _forget_gone(self, replicas: Sequence[MetaReplica]) -> None:
        ids = {replica.replica_id for replica in replicas}
        servers = {replica.server for replica in replicas}
        self._health = {key: value for key, value in self._health.items() if key in ids}
        self._server_health = {key: value for key, value in self._server_health.items() if key in servers}

    # -- reading ---------------------------------------------------------------------------------------------

    def read(self, lookup: Lookup, scan: MetaScan, judge: Judge[T], deadline: float) -> tuple[T, int]:
        """Read one page and understand it; returns the meaning and the id of the replica that it came from."""
        if lookup.table == META_TABLE:
            raise LocationUnknown("hbase:meta is not in hbase:meta; ask meta_replicas()")
        legs = self._plan(lookup, self.replicas(deadline))
        if self.confirms:
            return self._read_once(legs, scan, judge, deadline)
        return self._read_as_java(legs, scan, judge, deadline)

    def _read_as_java(
        self, legs: Sequence[Leg[MetaReplica]], scan: MetaScan, judge: Judge[T], deadline: float
    ) -> tuple[T, int]:
        """One pick, kept for every retry of this lookup, as AsyncNonMetaRegionLocator's meta scan does.

        What the pick answers is believed: only calls that failed are repeated.
        """
        failures = 0
        while True:
            try:
                page, replica_id = self._read_once(legs, scan, lambda page, _: page, deadline)
                break
            except MetaClientError as error:
                failures += 1
                wait_s = pause_s(failures, unit_s=self._config.pause_s)
                over = failures > self._config.retries or self._runtime.now() + wait_s >= deadline
                if over or error.disposition is Disposition.FATAL:
                    raise
            self._runtime.sleep(wait_s)
        meaning = _judged(judge, page, replica_id)
        if isinstance(meaning, MetaClientError):
            raise meaning
        return meaning, replica_id

    def _read_once(
        self, legs: Sequence[Leg[MetaReplica]], scan: MetaScan, judge: Judge[T], deadline: float
    ) -> tuple[T, int]:
        self._hedge_budget.on_call()
        reading = _Reading(self, legs, judge)

        def call(replica: MetaReplica, until: float) -> MetaPage | Pending[MetaPage]:
            if not self._is_addressable(replica):
                raise RegionOffline(f"the registry knows no server for replica {replica.replica_id} of hbase:meta")
            return self._backend.read_meta(replica, scan, until)

        try:
            won = self._executor.race(
                legs,
                call,
                deadline=deadline,
                observer=reading,
                accept=reading.accept,
                allow_hedge=self._hedge_budget.take,
                reorder=reading.reorder,
            )
        except MetaClientError as error:
            reading.settle(None)
            if reading.is_from_primary(error):
                raise
            raise LocationUnknown(
                f"only secondaries of hbase:meta answered, and none placed the row: {error}"
            ) from error
        reading.settle(won.leg.place)
        if won.hedges:
            self._telemetry.count("metaclient.meta.hedges", won.hedges)
        return reading.meanings[won.leg.place.replica_id], won.leg.place.replica_id

    def read_primary(self, scan: MetaScan, judge: Judge[T], deadline: float) -> T:
        """Read at the primary and nowhere else, for what must not be stale (a table's state)."""
        primary = self.replicas(deadline)[0]
        if not self._is_addressable(primary):
            raise self._nowhere()
        legs = one_replica(primary, timeout_s=self._config.meta_rpc_timeout_s)
        return self._read_once(legs, scan, judge, deadline)[0]

    def _nowhere(self) -> MetaClientError:
        self.refresh_on_evidence()
        return ServerUnreachable("the registry names no server for hbase:meta; the cluster may be starting")

    def _plan(self, lookup: Lookup, replicas: tuple[MetaReplica, ...]) -> tuple[Leg[MetaReplica], ...]:
        """Times are those that each is granted; the deadline cuts them when they run."""
        rpc_s = self._config.meta_rpc_timeout_s
        by_id = {replica.replica_id: replica for replica in replicas if self._is_addressable(replica)}
        mode = self.mode if len(replicas) > 1 else MetaMode.NONE
        if mode is MetaMode.LOAD_BALANCE and self._is_final:
            pick = self._selected(lookup, self._view(replicas))[0]
            return one_replica(by_id.get(pick, MetaReplica(pick)), timeout_s=self._config.meta_lookup_timeout_s)
        if mode is MetaMode.NONE:
            order: Iterable[int] = (0,)
        else:
            self._probe_due()
            view = self._view(replicas)
            order = self._order(lookup, view, mode)
        places = [by_id[replica_id] for replica_id in dict.fromkeys(order) if replica_id in by_id]
        if not places:
            raise self._nowhere()
        if mode is MetaMode.HEDGED_READ:
            make = staged if self._config.hedge_plan == "staged" else all_at_once
            return make(places, delay_s=self._config.meta_hedge_delay_s, timeout_s=rpc_s)
        return self._in_turn(places, rpc_s)

    def _selected(self, lookup: Lookup, view: MetaView) -> tuple[int, ...]:
        try:
            with self._selector_lock:
                return tuple(self._selector.select(lookup, view))
        except Exception as error:
            raise ConfigError(f"meta_selector failed with {type(error).__name__}: {error}") from error

    def _order(self, lookup: Lookup, view: MetaView, mode: MetaMode) -> tuple[int, ...]:
        """Whom to ask; in an outage of all, one a try and in turn: asking everybody would triple its cost."""
        if not any(replica.is_usable for replica in view.replicas):
            self._turn += 1
            return (view.replicas[self._turn % len(view.replicas)].replica_id,)
        if mode is MetaMode.HEDGED_READ:
            return (0, *self._last_resort(view))
        primary = next((replica for replica in view.replicas if replica.replica_id == 0), None)
        is_primary_in = primary is not None and primary.is_usable
        return (*self._selected(lookup, view), 0, *(() if is_primary_in else self._last_resort(view)))

    def _last_resort(self, view: MetaView) -> list[int]:
        """Whom else to ask when the primary may be out: everybody, the healthy ones first."""
        return [replica.replica_id for replica in sorted(view.secondaries(), key=lambda one: not one.is_usable)]

    def _in_turn(self, places: Sequence[MetaReplica], rpc_s: float) -> tuple[Leg[MetaReplica], ...]:
        """One after the other, each with its own time; the last one with all that a call may take."""
        legs: list[Leg[MetaReplica]] = []
        after_s = 0.0
        for place in places:
            # Where the primary comes before others it was asked for on purpose: it gets the longest of all tries.
            try_s = max(self._try_s(), self._config.meta_try_timeout_max_s) if place.replica_id == 0 else self._try_s()
            timeout_s = rpc_s if place is places[-1] else min(try_s, rpc_s)
            legs.append(Leg(place, after_s, timeout_s))
            after_s += timeout_s
        return tuple(legs)

    def _try_s(self) -> float:
        config = self._config
        if config.meta_try_timeout_s is not None:
            return config.meta_try_timeout_s
        if len(self._latency) < TRY_SAMPLES_MIN:
            return sqrt(config.meta_try_timeout_min_s * config.meta_try_timeout_max_s)
        wanted = TRY_FACTOR * self._latency.quantile(TRY_QUANTILE)
        return min(max(wanted, config.meta_try_timeout_min_s), config.meta_try_timeout_max_s)

    def _view(self, replicas: Sequence[MetaReplica]) -> MetaView:
        with self._lock:
            return MetaView(
                tuple(
                    ReplicaView(
                        replica.replica_id,
                        replica.server,
                        self._health.get(replica.replica_id, HEALTHY),
                        self._server_health.get(replica.server, HEALTHY) if replica.server else HEALTHY,
                        self._is_addressable(replica),
                    )
                    for replica in replicas
                ),
                self._runtime.now(),
                self._runtime.rng,
            )

    def _is_addressable(self, replica: MetaReplica) -> bool:
        return self._by_gateway or not self._can_choose or replica.server is not None

    # -- health ------------------------------------------------------------------------------------------------

    def _answered(self, place: MetaReplica, latency_s: float, outcome: str = "ok") -> None:
        """It answered, and so far as we know truthfully."""
        self._telemetry.count("metaclient.meta.reads", replica=place.replica_id, outcome=outcome)
        with self._lock:
            self._latency.add(latency_s)
            self._refutations.pop(place.replica_id, None)
            before = self._health.get(place.replica_id, HEALTHY)
            self._health[place.replica_id] = before.after_success(latency_s)
            if place.server is not None:
                of_server = self._server_health.get(place.server)
                if of_server is not None:
                    self._server_health[place.server] = of_server.after_success(latency_s)
        if before.state is HealthState.EJECTED:
            self._telemetry.emit("meta_replica_healed", replica=place.replica_id, server=str(place.server))

    def _not_blamed(self, place: MetaReplica, outcome: str) -> None:
        """It did not help, which proves nothing against it."""
        self._telemetry.count("metaclient.meta.reads", replica=place.replica_id, outcome=outcome)
        self._count_fallback(place, outcome)

    def _failed(self, place: MetaReplica, error: MetaClientError) -> None:
        outcome = type(error).__name__
        self._not_blamed(place, outcome)
        # One that is overloaded lives: the next one is asked this time only. Java's client ejects nobody.
        if self.confirms and not isinstance(error, Overloaded):
            self._eject(place, outcome, with_server=error.blames_server)
        if error.disposition is Disposition.RELOCATE or error.blames_server:
            self.refresh_on_evidence()

    def _eject(self, place: MetaReplica, reason: str, *, with_server: bool) -> None:
        with self._lock:
            before = self._health.get(place.replica_id, HEALTHY)
            after = self._health[place.replica_id] = self._after_failure(before, reason)
            if with_server and place.server is not None:
                of_server = self._server_health.get(place.server, HEALTHY)
                self._server_health[place.server] = self._after_failure(of_server, reason)
        if after.ejected_until > before.ejected_until and place.replica_id != 0:
            self._telemetry.count("metaclient.meta.ejections", replica=place.replica_id)
            self._telemetry.emit(
                "meta_replica_ejected", replica=place.replica_id, until=after.ejected_until, reason=reason
            )

    def _note_lag(self, replica: MetaReplica, page: MetaPage) -> None:
        if isinstance(page, MetaPage) and page.lag_s is not None:
            self._lags_s[replica.replica_id] = page.lag_s

    def _refuted(self, place: MetaReplica, reason: str) -> None:
        """It did not know what another copy knows: it lags a little, as all do, or it has lost its data."""
        with self._lock:
            refuted = self._refutations.get(place.replica_id, 0) + 1
            self._refutations[place.replica_id] = refuted
        if refuted >= REFUTATIONS_MAX:
            self._eject(place, reason, with_server=False)

    def _after_failure(self, health: ReplicaHealth, reason: str) -> ReplicaHealth:
        return health.after_failure(
            now=self._runtime.now(),
            base_s=self._config.meta_ejection_s,
            max_s=self._config.meta_ejection_max_s,
            chance=self._runtime.rng.random(),
            error=reason,
        )

    def _count_fallback(self, place: MetaReplica, reason: str) -> None:
        if place.replica_id != 0 and self.confirms:
            self._telemetry.count("metaclient.meta.fallbacks", reason=reason)
            self._telemetry.emit("meta_fallback", replica=place.replica_id, reason=reason)

    def _probe_due(self) -> None:
        """Start one background call to each replica whose ejection is over."""
        if not self._health and not self._server_health:
            return
        now = self._runtime.now()
        with self._lock:
            due = [replica for replica in self._replicas if self._is_probe_due(replica, now)]
            self._probing.update(replica.replica_id for replica in due)
        for replica in due:
            try:
                self._runtime.start(self._probe, replica, name="meta-probe")
            except MetaClientError:  # no thread free: a later lookup will start it
                with self._lock:
                    self._probing.discard(replica.replica_id)

    def _is_probe_due(self, replica: MetaReplica, now: float) -> bool:
        if replica.replica_id in self._probing or not self._is_addressable(replica):
            return False
        health = self._health.get(replica.replica_id, HEALTHY)
        of_server = self._server_health.get(replica.server, HEALTHY) if replica.server else HEALTHY
        out = [one for one in (health, of_server) if one.state is HealthState.EJECTED]
        return bool(out) and all(one.may_probe(now) for one in out)

    def _probe(self, replica: MetaReplica) -> None:
        """A readable row heals; an empty answer, as a re-opened copy gives, only if the primary has no row either."""
        begun = self._runtime.now()
        try:
            if not self._shows_rows(replica) and replica.replica_id != 0 and self._shows_rows(self._replicas[0]):
                raise LocationUnknown("the replica answered a probe of hbase:meta with no row that can be read")
            self._answered(replica, self._runtime.now() - begun)
        except Exception as error:
            self._failed(replica, translated(error))
        finally:
            with self._lock:
                self._probing.discard(replica.replica_id)

    def _shows_rows(self, replica: MetaReplica) -> bool:
        until = self._runtime.now() + self._try_s()
        page = self._executor.call(self._backend.read_meta, replica, PROBE, deadline=until)
        return any(metarow.decode(row.row, row.columns).locations is not None for row in page.rows)


HEALTHY = ReplicaHealth()


class _Unconfirmed(MetaClientError):
    """A secondary's negative answer, which only the primary can confirm."""

    disposition = Disposition.NEXT_REPLICA

    def __init__(self, meaning: MetaClientError) -> None:
        super().__init__(f"not confirmed: {meaning}")
        self.meaning = meaning


class _Reading(Generic[T]):
    """One read of meta, as the executor's observer: who said what, who is to be believed, who is to blame."""

    def __init__(self, reader: MetaReader, legs: Sequence[Leg[MetaReplica]], judge: Judge[T]) -> None:
        self._reader = reader
        self._judge = judge
        self._try_s = {leg.place.replica_id: leg.timeout_s for leg in legs}
        self._servers_out: set[ServerName] = set()
        self._doubted: list[tuple[MetaReplica, _Unconfirmed, float]] = []
        self._primary_said: MetaClientError | None = None
        self._primary_failed = False
        self.meanings: dict[int, T] = {}

    def accept(self, replica: MetaReplica, page: MetaPage) -> MetaClientError | None:
        self._reader._note_lag(replica, page)
        meaning = _judged(self._judge, page, replica.replica_id)
        if not isinstance(meaning, MetaClientError):
            self.meanings[replica.replica_id] = meaning
            return None
        if isinstance(meaning, BackendFault):
            return meaning
        if replica.replica_id != 0:
            return _Unconfirmed(meaning)
        self._primary_said = meaning
        return meaning

    def leg_succeeded(self, place: MetaReplica, latency_s: float) -> None:
        self._reader._answered(place, latency_s)

    def leg_failed(self, place: MetaReplica, error: MetaClientError, latency_s: float) -> None:
        if isinstance(error, _Unconfirmed):
            self._doubted.append((place, error, latency_s))
            return
        if place.replica_id == 0:
            self._primary_failed = True
        if error is self._primary_said or (place.replica_id == 0 and error.disposition is Disposition.FATAL):
            self._reader._answered(place, latency_s, type(error).__name__)
        elif isinstance(error, CallTimeout) and latency_s < CUT_SHORT * self._try_s[place.replica_id]:
            self._reader._not_blamed(place, type(error).__name__)  # the caller's time was up, not the replica's
        else:
            if error.blames_server and place.server is not None:
                self._servers_out.add(place.server)
            self._reader._failed(place, error)

    def reorder(self, error: MetaClientError, waiting: list[Leg[MetaReplica]]) -> list[Leg[MetaReplica]]:
        """After a negative answer of a secondary only the primary can say whether it is true; what it says is final."""
        if error is self._primary_said:
            return []
        if isinstance(error, _Unconfirmed):
            return sorted(waiting, key=lambda leg: leg.place.replica_id != 0)
        return [leg for leg in waiting if leg.place.replica_id == 0 or leg.place.server not in self._servers_out]

    def is_from_primary(self, error: MetaClientError) -> bool:
        """Whether this may be told as the truth; what only secondaries say may not end an operation."""
        if isinstance(error, _Unconfirmed):
            return False
        if self._primary_failed or error.disposition is not Disposition.FATAL or not self._reader.confirms:
            return True
        return isinstance(error, DeadlineExceeded | ConnectionClosed)

    def settle(self, winner: MetaReplica | None) -> None:
        """Whoever was doubted has lied if somebody placed the row, and was right if the primary did not either."""
        for place, error, latency_s in self._doubted:
            reason = type(error.meaning).__name__
            if self._primary_said is not None:
                self._reader._answered(place, latency_s, reason)
                continue
            self._reader._not_blamed(place, reason)
            if winner is not None:
                self._reader._refuted(place, reason)


def _judged(judge: Judge[T], page: MetaPage, replica_id: int) -> T | MetaClientError:
    """The meaning of a page; a page that is none (a backend answers anything) is a fault of the backend."""
    try:
        return judge(page, replica_id)
    except MetaClientError:
        raise
    except Exception as error:
        fault = BackendFault(f"the answer of hbase:meta cannot be read: {type(error).__name__}: {error}")
        fault.__cause__ = error
        return fault


def _in_order(found: Sequence[MetaReplica]) -> tuple[MetaReplica, ...]:
    """By id, the primary always there, each id once."""
    by_id = {replica.replica_id: replica for replica in found if 0 <= replica.replica_id <= REPLICA_ID_MAX}
    by_id.setdefault(0, MetaReplica(0))
    return tuple(by_id[replica_id] for replica_id in sorted(by_id))
