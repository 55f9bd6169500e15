"""Stores the health of the meta replicas of one connection, and of the servers that host them.

The tracker records the outcome of each read of hbase:meta. It does not read itself: ``reader`` reports the outcomes,
``probes`` reports the result of each probe.

- A failure ejects the replica for a growing time (``health.ReplicaHealth``), and its server with it when the fault is
  the server's. After a first timeout they are only doubted.
- A negative answer ("no such region") that another replica refuted ejects the replica only when it happened
  ``REFUTATIONS_MAX`` times in a row.
- The latencies of recent successes give the time that one try at a replica may take: ``4 * p99``, within the bounds of
  the configuration. That is long enough for a busy replica and short for a dead one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import sqrt

from metaclient.attempts.delay import LatencyWindow
from metaclient.backend import MetaPage
from metaclient.config import Config
from metaclient.errors import MetaClientError
from metaclient.meta.health import HealthState, ReplicaHealth
from metaclient.meta.selector import MetaView, ReplicaView
from metaclient.model import MetaReplica, ServerName
from metaclient.runtime import Runtime
from metaclient.telemetry import Telemetry

__all__ = ["HealthTracker", "MetaReplicaStatus"]

#: Successful reads before the adaptive try time is computed from latencies; before that it is the middle of its range.
TRY_SAMPLES_MIN = 8
TRY_FACTOR = 4.0
TRY_QUANTILE = 0.99
#: Refuted negative answers in a row before a replica is ejected. A new table causes one at each replica that lags for a
#: moment. Ejecting replicas for that would send all lookups to the primary, which this package exists to avoid.
REFUTATIONS_MAX = 3

HEALTHY = ReplicaHealth()
_SEVERITY = {HealthState.HEALTHY: 0, HealthState.DOUBTED: 1, HealthState.EJECTED: 2}


@dataclass(frozen=True, slots=True)
class MetaReplicaStatus:
    """One line of ``Connection.meta_replicas()``."""

    id: int
    server: str | None
    state: str  # "healthy", "doubted", "ejected", "unplaced"
    lookups: int
    errors: int
    latency_ms: float | None
    ejected_until: float | None
    last_error: str | None = None
    lag_ms: float | None = None  # the lag that the replica last reported, where the backend passes it on


class HealthTracker:
    """The health of the meta replicas of one connection."""

    def __init__(self, runtime: Runtime, config: Config, telemetry: Telemetry) -> None:
        self._runtime = runtime
        self._config = config
        self._telemetry = telemetry
        self._latency = LatencyWindow()
        self._lags_s: dict[int, float] = {}  # by replica id; each page stores one item, without the lock
        # Updated under the lock. The values are immutable, so that single items are read without it.
        self._health: dict[int, ReplicaHealth] = {}
        self._server_health: dict[ServerName, ReplicaHealth] = {}
        self._views: dict[int, ReplicaView] = {}  # by replica id, as last seen by a selector
        self._may_have_unhealthy = False  # saves the look at all replicas; updated under the lock
        self._begin()
        runtime.on_fork(self._begin)

    def _begin(self) -> None:
        """Make a new lock, here and in a forked child, which keeps the health of the replicas."""
        self._lock = self._runtime.lock()
        self._refutations: dict[int, int] = {}  # by replica id, in a row; guarded by the lock

    # -- reading ---------------------------------------------------------------------------------------------------

    @property
    def has_unhealthy(self) -> bool:
        """True if a replica or a server is doubted or ejected, and no probe has succeeded yet."""
        return self._may_have_unhealthy and self._has_unhealthy()

    def _has_unhealthy(self) -> bool:
        found = (*self._health.values(), *self._server_health.values())
        return any(one.state is not HealthState.HEALTHY for one in found)

    def of(self, replica: MetaReplica) -> tuple[ReplicaHealth, ReplicaHealth]:
        """Return the health of a replica and of its server."""
        of_server = self._server_health.get(replica.server, HEALTHY) if replica.server else HEALTHY
        return self._health.get(replica.replica_id, HEALTHY), of_server

    def view(self, replicas: Sequence[MetaReplica], is_addressable: Callable[[MetaReplica], bool]) -> MetaView:
        """Return the replicas and their health as selectors see them."""
        now = self._runtime.now()
        with self._lock:
            found = tuple([self._view_of(replica, is_addressable(replica)) for replica in replicas])
        for one in found:
            if one.is_usable and one.replica_id != 0:
                break
        else:
            found = tuple(one.as_of(now) for one in found)
        return MetaView(found, now, self._runtime.rng)

    def _view_of(self, replica: MetaReplica, is_addressable: bool) -> ReplicaView:
        """Return one replica as selectors see it; the caller holds the lock."""
        health, server_health = self.of(replica)
        known = self._views.get(replica.replica_id)
        if (
            known is not None
            and known.health is health
            and known.server_health is server_health
            and known.server is replica.server
            and known.is_addressable is is_addressable
        ):
            return known
        made = ReplicaView(replica.replica_id, replica.server, health, server_health, is_addressable)
        self._views[replica.replica_id] = made
        return made

    def status(
        self, replicas: Sequence[MetaReplica], is_placed: Callable[[MetaReplica], bool]
    ) -> list[MetaReplicaStatus]:
        """Return the replicas and their health as users see them."""
        with self._lock:
            return [self._status_of(replica, is_placed(replica)) for replica in replicas]

    def _status_of(self, replica: MetaReplica, is_placed: bool) -> MetaReplicaStatus:
        health, of_server = self.of(replica)
        worst = max(health, of_server, key=lambda one: _SEVERITY[one.state])
        lag_s = self._lags_s.get(replica.replica_id)
        return MetaReplicaStatus(
            id=replica.replica_id,
            server=str(replica.server) if replica.server else None,
            state=worst.state.value if is_placed else "unplaced",
            lookups=self._telemetry.total("metaclient.meta.reads", replica=replica.replica_id),
            errors=health.failures,
            latency_ms=round(health.latency_s * 1000, 3) if health.latency_s is not None else None,
            ejected_until=worst.ejected_until if worst.state is HealthState.EJECTED else None,
            last_error=health.last_error,
            lag_ms=round(lag_s * 1000, 3) if lag_s is not None else None,
        )

    def try_s(self) -> float:
        """Return the time that one try at a replica may take before the next replica is asked."""
        config = self._config
        if config.meta_try_timeout_s is not None:
            return config.meta_try_timeout_s
        if len(self._latency) < TRY_SAMPLES_MIN:
            return sqrt(config.meta_try_timeout_min_s * config.meta_try_timeout_max_s)
        wanted = TRY_FACTOR * self._latency.quantile(TRY_QUANTILE)
        return min(max(wanted, config.meta_try_timeout_min_s), config.meta_try_timeout_max_s)

    # -- recording -------------------------------------------------------------------------------------------------

    def record_success(self, place: MetaReplica, latency_s: float, outcome: str = "ok") -> None:
        """Record an answer that, as far as is known, is true. It heals an ejected replica."""
        self.count_read(place, outcome)
        with self._lock:
            self._latency.add(latency_s)
            self._refutations.pop(place.replica_id, None)
            before = self._health.get(place.replica_id, HEALTHY)
            self._health[place.replica_id] = before.after_success(latency_s)
            if place.server is not None:
                of_server = self._server_health.get(place.server)
                if of_server is not None:
                    self._server_health[place.server] = of_server.after_success(latency_s)
            if self._may_have_unhealthy:
                self._may_have_unhealthy = self._has_unhealthy()
        if before.state is HealthState.EJECTED:
            self._telemetry.emit("meta_replica_healed", replica=place.replica_id, server=str(place.server))

    def record_outrun(self, place: MetaReplica, at_least_s: float) -> None:
        """Record that another replica answered first, this long after the call of this replica."""
        with self._lock:
            self._health[place.replica_id] = self._health.get(place.replica_id, HEALTHY).after_slow(at_least_s)

    def record_failure(self, place: MetaReplica, error: MetaClientError) -> None:
        """Record a failed call and eject the replica; an overloaded replica is skipped by this read only."""
        outcome = type(error).__name__
        self.record_unhelpful(place, outcome)
        if not error.is_overload:
            self._eject(place, outcome, with_server=error.blames_server)

    def record_timeout(self, place: MetaReplica, error: MetaClientError, latency_s: float) -> None:
        """Record a call without an answer in its time, which was ``latency_s``; doubt or eject the replica."""
        outcome = type(error).__name__
        self.record_unhelpful(place, outcome)
        self._eject(place, outcome, with_server=error.blames_server, timeout_s=latency_s)

    def record_unhelpful(self, place: MetaReplica, outcome: str) -> None:
        """Record a call that brought no usable answer, through no proven fault of the replica."""
        self.count_read(place, outcome)
        if place.replica_id != 0:
            self._telemetry.count("metaclient.meta.fallbacks", reason=outcome)
            self._telemetry.emit("meta_fallback", replica=place.replica_id, reason=outcome)

    def record_refutation(self, place: MetaReplica, reason: str) -> None:
        """Record that another replica knew the region: this replica lags for a moment, or has lost its data."""
        with self._lock:
            refuted = self._refutations.get(place.replica_id, 0) + 1
            self._refutations[place.replica_id] = refuted
        if refuted >= REFUTATIONS_MAX:
            self._eject(place, reason, with_server=False)

    def record_lag(self, replica: MetaReplica, page: MetaPage) -> None:
        """Record the replication lag that a replica reported with a page."""
        if isinstance(page, MetaPage) and page.lag_s is not None:
            self._lags_s[replica.replica_id] = page.lag_s

    def count_read(self, place: MetaReplica, outcome: str) -> None:
        """Count one call to hbase:meta."""
        self._telemetry.count("metaclient.meta.reads", replica=place.replica_id, outcome=outcome)

    def keep_only(self, replicas: Sequence[MetaReplica]) -> None:
        """Forget replicas and servers that the registry no longer names.

        Each removal is one atomic operation of a dictionary, so that the registry can call this while it holds its own
        lock without nesting the two locks.
        """
        ids = {replica.replica_id for replica in replicas}
        servers = {replica.server for replica in replicas}
        for replica_id in [one for one in [*self._health, *self._views] if one not in ids]:
            self._health.pop(replica_id, None)
            self._views.pop(replica_id, None)
        for server in [one for one in list(self._server_health) if one not in servers]:
            self._server_health.pop(server, None)

    def _eject(self, place: MetaReplica, reason: str, *, with_server: bool, timeout_s: float | None = None) -> None:
        """Eject the replica, and its server with it. After a timeout (of ``timeout_s``) they may be doubted."""
        with self._lock:
            before = self._health.get(place.replica_id, HEALTHY)
            after = self._health[place.replica_id] = self._after_failure(before, reason, timeout_s)
            self._may_have_unhealthy = True
            if with_server and place.server is not None:
                of_server = self._server_health.get(place.server, HEALTHY)
                self._server_health[place.server] = self._after_failure(of_server, reason, timeout_s)
        is_ejected = after.state is HealthState.EJECTED and after.ejected_until > before.ejected_until
        if is_ejected and place.replica_id != 0:
            self._telemetry.count("metaclient.meta.ejections", replica=place.replica_id)
            self._telemetry.emit(
                "meta_replica_ejected", replica=place.replica_id, until=after.ejected_until, reason=reason
            )

    def _after_failure(self, health: ReplicaHealth, reason: str, timeout_s: float | None) -> ReplicaHealth:
        now, config = self._runtime.now(), self._config
        base_s, max_s, chance = config.meta_ejection_s, config.meta_ejection_max_s, self._runtime.rng.random()
        if timeout_s is None:
            return health.after_failure(now=now, base_s=base_s, max_s=max_s, chance=chance, error=reason)
        return health.after_timeout(
            now=now, timeout_s=timeout_s, base_s=base_s, max_s=max_s, chance=chance, error=reason
        )
