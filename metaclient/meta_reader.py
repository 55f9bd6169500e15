"""Reads pages of hbase:meta at the replicas that the policy names, and keeps their health.

One read of meta:

1. The registry's replicas (known, refreshed in the background) and their health make a view; the selector answers an
   order of ids; ids without a server are skipped and the primary is added as the last resort.
2. LoadBalance and None ask one after the other, each within its own time; HedgedRead asks the primary now, the first
   secondary after the delay, and so on.
3. An answer of a secondary that ``judge`` finds negative (no rows, a hole, garbage) proves nothing: a re-opened replica
   answers "no rows, no error" for a minute. The primary is asked next, whatever stood next on the list.
4. Failures, refused answers and time-outs eject the replica for a growing time, and its server with it when the fault
   is the server's. When its time is over, one background call probes it, so that no user waits for the experiment.

The try time is ``4 * p99`` of recent reads within [min, max]: long enough for a busy replica, short for a dead one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import sqrt
from typing import TypeVar

from metaclient.backend import Addressing, Backend, MetaPage, MetaScan
from metaclient.config import Config, MetaMode
from metaclient.errors import (
    DeadlineExceeded,
    Disposition,
    LocationUnknown,
    MetaClientError,
    Overloaded,
    ServerUnreachable,
    translated,
)
from metaclient.model import META_TABLE, MetaReplica, RegionInfo, ServerName
from metaclient.reads.budget import HedgeBudget
from metaclient.reads.delay import LatencyWindow
from metaclient.reads.executor import Executor
from metaclient.reads.plan import Leg, in_turn, one_replica, staged
from metaclient.replicas import (
    HealthState,
    Lookup,
    MetaView,
    ReplicaHealth,
    ReplicaView,
    StaleRanges,
    selector_named,
)
from metaclient.retry import pause_s
from metaclient.runtime import Pending, Runtime
from metaclient.telemetry import Telemetry

__all__ = ["MetaAnswer", "MetaReader", "MetaReplicaStatus"]

T = TypeVar("T")
#: Understands a page: returns what it means, or the error that it amounts to.
Judge = Callable[[MetaPage], "T | MetaClientError"]

#: Reads until the adaptive try time rests on measurements; before that it is the middle of its range.
TRY_SAMPLES_MIN = 8
TRY_FACTOR = 4.0
TRY_QUANTILE = 0.99
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


@dataclass(frozen=True, slots=True)
class MetaAnswer:
    """A page and the replica that it came from."""

    page: MetaPage
    replica_id: int


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
        self._stale = StaleRanges(
            base_s=config.meta_stale_mark_s, max_s=config.meta_stale_mark_max_s, marks_max=config.meta_stale_marks_max
        )
        self._selector = selector_named(config.meta_selector, self._stale)
        self._is_final = bool(getattr(self._selector, "is_final", False))
        self._hedge_budget = HedgeBudget(ratio=1.0, burst=config.hedge_budget_burst)
        self._latency = LatencyWindow()
        self._lock = runtime.lock()
        # Guarded by the lock; the tuple and the health values are replaced, never changed:
        self._replicas: tuple[MetaReplica, ...] = ()
        self._health: dict[int, ReplicaHealth] = {}
        self._server_health: dict[ServerName, ReplicaHealth] = {}
        self._probing: set[int] = set()
        self._refreshed_at = float("-inf")
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
        return MetaReplicaStatus(
            id=replica.replica_id,
            server=str(replica.server) if replica.server else None,
            state="unplaced" if unplaced else worst.state.value,
            lookups=self._telemetry.total("metaclient.meta.reads", replica=replica.replica_id),
            errors=health.failures,
            latency_ms=round(health.latency_s * 1000, 3) if health.latency_s is not None else None,
            ejected_until=worst.ejected_until if is_out else None,
            last_error=health.last_error,
        )

    def on_wrong_location(self, region: RegionInfo) -> None:
        """A location that meta gave proved wrong: ask the primary about this range for a while."""
        with self._lock:
            self._selector.on_wrong_location(region, self._runtime.now())

    # -- the registry ----------------------------------------------------------------------------------------

    def replicas(self, deadline: float) -> tuple[MetaReplica, ...]:
        """The replicas as last heard; waits for the registry only when nothing is known yet."""
        known = self._replicas
        if known:
            if self._runtime.now() - self._refreshed_at >= self._config.meta_refresh_s:
                self._refresh_soon()
            return known
        if not self._can_choose:
            self._replicas = (MetaReplica(0),)
            return self._replicas
        pending, is_ours = self._refresh_flight()
        if is_ours:
            self._fetch(pending, deadline)
        if self._runtime.wait_first((pending,), deadline) is None:
            raise DeadlineExceeded("the registry did not say in time where hbase:meta is")
        return pending.result()

    def refresh(self, deadline: float) -> tuple[MetaReplica, ...]:
        """Ask the registry now (joining whoever already does)."""
        pending, is_ours = self._refresh_flight()
        if is_ours:
            self._fetch(pending, deadline)
        return pending.result(deadline)

    def refresh_on_evidence(self) -> None:
        """Something suggests that the replicas changed; asks at most once per ``meta_refresh_min_s``."""
        if self._runtime.now() - self._refreshed_at >= self._config.meta_refresh_min_s:
            self._refresh_soon()

    def _refresh_soon(self) -> None:
        pending, is_ours = self._refresh_flight()
        if not is_ours:
            return
        deadline = self._runtime.now() + self._config.meta_rpc_timeout_s
        try:
            self._runtime.start(self._fetch, pending, deadline, name="meta-refresh")
        except MetaClientError as error:  # no thread free: the next lookup will try again
            self._refresh_done(pending, None, error)

    def _refresh_flight(self) -> tuple[Pending[tuple[MetaReplica, ...]], bool]:
        with self._lock:
            if self._refreshing is not None:
                return self._refreshing, False
            self._refreshing = self._runtime.pending()
            return self._refreshing, True

    def _fetch(self, pending: Pending[tuple[MetaReplica, ...]], deadline: float) -> None:
        self._telemetry.count("metaclient.meta.refreshes")
        until = min(deadline, self._runtime.now() + self._config.meta_rpc_timeout_s)
        try:
            found = self._executor.call(self._backend.meta_replicas, deadline=until)
            replicas = _in_order(found)
        except MetaClientError as error:
            self._refresh_done(pending, None, error)
        except Exception as error:  # a registry that answers nonsense
            self._refresh_done(pending, None, translated(error))
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
            if replicas is None and self._by_gateway and not before:
                replicas = (MetaReplica(0),)  # a gateway finds the primary by itself: never block on the count
            if replicas is not None:
                self._replicas = replicas
                self._forget_gone(replicas)
            after = self._replicas
        if before and before != after:
            self._telemetry.emit("meta_replicas_changed", before=len(before), after=len(after))
        if after:
            pending.complete(after)
        else:
            pending.fail(error or ServerUnreachable("the registry knows no meta replica"))

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
        if self._is_final and self.mode is MetaMode.LOAD_BALANCE:
            return self._read_as_java(lookup, scan, judge, deadline)
        return self._read_once(self._plan(lookup, self.replicas(deadline), deadline), scan, judge, deadline)

    def _read_as_java(self, lookup: Lookup, scan: MetaScan, judge: Judge[T], deadline: float) -> tuple[T, int]:
        """One pick, kept for every retry of this lookup, as AsyncNonMetaRegionLocator's meta scan does."""
        legs = self._plan(lookup, self.replicas(deadline), deadline)
        failures = 0
        while True:
            try:
                return self._read_once(legs, scan, judge, deadline)
            except MetaClientError as error:
                failures += 1
                wait_s = pause_s(failures, unit_s=self._config.pause_s)
                over = failures > self._config.retries or self._runtime.now() + wait_s >= deadline
                if over or error.disposition is Disposition.FATAL:
                    raise
            self._runtime.sleep(wait_s)

    def _read_once(
        self, legs: Sequence[Leg[MetaReplica]], scan: MetaScan, judge: Judge[T], deadline: float
    ) -> tuple[T, int]:
        self._hedge_budget.on_call()
        meanings: dict[int, T] = {}

        def call(replica: MetaReplica, until: float) -> MetaPage | Pending[MetaPage]:
            return self._backend.read_meta(replica, scan, until)

        def accept(replica: MetaReplica, page: MetaPage) -> MetaClientError | None:
            meaning = judge(page)
            if isinstance(meaning, MetaClientError):
                return meaning if replica.replica_id == 0 or self._is_final else _Unconfirmed(meaning)
            meanings[replica.replica_id] = meaning
            return None

        try:
            won = self._executor.race(
                legs,
                call,
                deadline=deadline,
                observer=self,
                accept=accept,
                allow_hedge=self._hedge_budget.take,
                reorder=_primary_next,
            )
        except _Unconfirmed as error:
            raise error.meaning from None
        if won.hedges:
            self._telemetry.count("metaclient.meta.hedges", won.hedges)
        return meanings[won.leg.place.replica_id], won.leg.place.replica_id

    def read_primary(self, scan: MetaScan, deadline: float) -> MetaPage:
        """Read at the primary, for what must not be stale (a table's state)."""
        primary = self.replicas(deadline)[0]
        until = min(deadline, self._runtime.now() + self._config.meta_rpc_timeout_s)
        begun = self._runtime.now()
        try:
            page = self._executor.call(self._backend.read_meta, primary, scan, deadline=until)
        except MetaClientError as error:
            self.leg_failed(primary, error, self._runtime.now() - begun)
            raise
        self.leg_succeeded(primary, self._runtime.now() - begun)
        return page

    def _plan(self, lookup: Lookup, replicas: tuple[MetaReplica, ...], deadline: float) -> tuple[Leg[MetaReplica], ...]:
        left_s = max(0.0, deadline - self._runtime.now())
        rpc_s = min(self._config.meta_rpc_timeout_s, left_s)
        by_id = {replica.replica_id: replica for replica in replicas}
        mode = self.mode
        if mode is MetaMode.NONE or len(replicas) == 1:
            return one_replica(by_id[0], timeout_s=rpc_s)
        if mode is MetaMode.HEDGED_READ:
            places = [by_id[0], *(by_id[view.replica_id] for view in self._view().secondaries() if view.is_usable)]
            return staged(places, delay_s=self._config.meta_hedge_delay_s, timeout_s=rpc_s)
        with self._lock:
            order = self._selector.select(lookup, self._view_locked())
        if self._is_final:
            return one_replica(by_id.get(order[0], MetaReplica(order[0])), timeout_s=left_s)
        self._probe_due()
        places = [by_id[i] for i in dict.fromkeys((*order, 0)) if i in by_id and self._is_addressable(by_id[i])]
        if not places:
            self.refresh_on_evidence()
            raise ServerUnreachable("the registry names no server for any copy of hbase:meta; it may be starting")
        return in_turn(places, try_s=min(self._try_s(), left_s), last_s=rpc_s)

    def _try_s(self) -> float:
        config = self._config
        if config.meta_try_timeout_s is not None:
            return config.meta_try_timeout_s
        if len(self._latency) < TRY_SAMPLES_MIN:
            return sqrt(config.meta_try_timeout_min_s * config.meta_try_timeout_max_s)
        wanted = TRY_FACTOR * self._latency.quantile(TRY_QUANTILE)
        return min(max(wanted, config.meta_try_timeout_min_s), config.meta_try_timeout_max_s)

    def _view(self) -> MetaView:
        with self._lock:
            return self._view_locked()

    def _view_locked(self) -> MetaView:
        return MetaView(
            tuple(
                ReplicaView(
                    replica.replica_id,
                    replica.server,
                    self._health.get(replica.replica_id, HEALTHY),
                    self._server_health.get(replica.server, HEALTHY) if replica.server else HEALTHY,
                    self._is_addressable(replica),
                )
                for replica in self._replicas
            ),
            self._runtime.now(),
            self._runtime.rng,
        )

    def _is_addressable(self, replica: MetaReplica) -> bool:
        return self._by_gateway or replica.server is not None

    # -- health: the executor's observer -----------------------------------------------------------------------

    def leg_succeeded(self, place: MetaReplica, latency_s: float) -> None:
        self._telemetry.count("metaclient.meta.reads", replica=place.replica_id, outcome="ok")
        with self._lock:
            self._latency.add(latency_s)
            before = self._health.get(place.replica_id, HEALTHY)
            self._health[place.replica_id] = before.after_success(latency_s)
            if place.server is not None and place.server in self._server_health:
                del self._server_health[place.server]
        if before.state is HealthState.EJECTED:
            self._telemetry.emit("meta_replica_healed", replica=place.replica_id, server=str(place.server))

    def leg_failed(self, place: MetaReplica, error: MetaClientError, latency_s: float) -> None:
        name = type(error.meaning if isinstance(error, _Unconfirmed) else error).__name__
        self._telemetry.count("metaclient.meta.reads", replica=place.replica_id, outcome=name)
        if place.replica_id == 0 and error.disposition is Disposition.FATAL:
            return  # an answer, not a fault
        now = self._runtime.now()
        limits = {"base_s": self._config.meta_ejection_s, "max_s": self._config.meta_ejection_max_s}
        with self._lock:
            if isinstance(error, Overloaded):
                ejected = None  # it lives, it is busy: the next one is asked this time only
            else:
                if error.blames_server:
                    self._latency.add(latency_s)  # a slow cluster must make the try time grow
                    if place.server is not None:
                        health = self._server_health.get(place.server, HEALTHY)
                        self._server_health[place.server] = health.after_failure(
                            now=now, chance=self._runtime.rng.random(), error=name, **limits
                        )
                before = self._health.get(place.replica_id, HEALTHY)
                after = before.after_failure(now=now, chance=self._runtime.rng.random(), error=name, **limits)
                self._health[place.replica_id] = after
                ejected = after if after.ejections > before.ejections else None
        if place.replica_id != 0:
            self._telemetry.count("metaclient.meta.fallbacks", reason=name)
            self._telemetry.emit("meta_fallback", replica=place.replica_id, reason=name)
        if ejected is not None and place.replica_id != 0:
            self._telemetry.count("metaclient.meta.ejections", replica=place.replica_id)
            self._telemetry.emit(
                "meta_replica_ejected", replica=place.replica_id, until=ejected.ejected_until, reason=name
            )
        if error.disposition is Disposition.RELOCATE or error.blames_server:
            self.refresh_on_evidence()

    def _probe_due(self) -> None:
        """Start one background call to each replica whose ejection is over."""
        now = self._runtime.now()
        with self._lock:
            due = [replica for replica in self._replicas if self._is_probe_due(replica, now)]
            self._probing.update(replica.replica_id for replica in due)
        for replica in due:
            try:
                self._runtime.start(self._probe, replica, name="meta-probe")
            except MetaClientError:  # no thread free: a later lookup will start it
                self._probing.discard(replica.replica_id)

    def _is_probe_due(self, replica: MetaReplica, now: float) -> bool:
        if replica.replica_id == 0 or replica.replica_id in self._probing or not self._is_addressable(replica):
            return False
        health = self._health.get(replica.replica_id, HEALTHY)
        of_server = self._server_health.get(replica.server, HEALTHY) if replica.server else HEALTHY
        out = [one for one in (health, of_server) if one.state is HealthState.EJECTED]
        return bool(out) and all(one.may_probe(now) for one in out)

    def _probe(self, replica: MetaReplica) -> None:
        """An answer with rows heals; an empty one does not: that is how a re-opened replica lies."""
        begun = self._runtime.now()
        try:
            page = self._executor.call(self._backend.read_meta, replica, PROBE, deadline=begun + self._try_s())
        except MetaClientError as error:
            self.leg_failed(replica, error, self._runtime.now() - begun)
        else:
            if page.rows:
                self.leg_succeeded(replica, self._runtime.now() - begun)
            else:
                empty = _Unconfirmed(LocationUnknown("the replica answered a probe of hbase:meta with no rows"))
                self.leg_failed(replica, empty, self._runtime.now() - begun)
        finally:
            with self._lock:
                self._probing.discard(replica.replica_id)


HEALTHY = ReplicaHealth()


class _Unconfirmed(MetaClientError):
    """A secondary's negative answer, which only the primary can confirm."""

    disposition = Disposition.NEXT_REPLICA

    def __init__(self, meaning: MetaClientError) -> None:
        super().__init__(f"not confirmed: {meaning}")
        self.meaning = meaning


def _primary_next(error: MetaClientError, waiting: list[Leg[MetaReplica]]) -> list[Leg[MetaReplica]]:
    """After a negative answer of a secondary only the primary can say whether it is true."""
    if not isinstance(error, _Unconfirmed):
        return waiting
    return sorted(waiting, key=lambda leg: leg.place.replica_id != 0)


def _in_order(found: Sequence[MetaReplica]) -> tuple[MetaReplica, ...]:
    """By id, the primary always there, each id once."""
    by_id = {replica.replica_id: replica for replica in found}
    by_id.setdefault(0, MetaReplica(0))
    return tuple(by_id[replica_id] for replica_id in sorted(by_id))
