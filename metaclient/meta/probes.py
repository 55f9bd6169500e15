"""Probes doubted replicas of hbase:meta, and ejected ones when their time is over: no lookup has to test them."""

from __future__ import annotations

from metaclient import metarow
from metaclient.attempts.executor import Executor
from metaclient.backend import Backend, MetaScan
from metaclient.errors import LocationUnknown, MetaClientError, translated
from metaclient.meta.health import HealthState
from metaclient.meta.health_tracker import HealthTracker
from metaclient.meta.registry import MetaRegistry
from metaclient.model import MetaReplica
from metaclient.runtime import Runtime

__all__ = ["Prober"]

#: A probe reads one row from the start of meta: the cheapest call that a replica may not refuse.
PROBE = MetaScan(b"", b"", is_reversed=False, limit=1)


class Prober:
    """The probes of one connection: at most one in flight per replica."""

    def __init__(
        self, backend: Backend, runtime: Runtime, executor: Executor, registry: MetaRegistry, health: HealthTracker
    ) -> None:
        self._backend = backend
        self._runtime = runtime
        self._executor = executor
        self._registry = registry
        self._health = health
        self._begin()
        runtime.on_fork(self._begin)

    def _begin(self) -> None:
        """Start with no probe in flight, here and in a forked child."""
        self._lock = self._runtime.lock()
        self._probing: set[int] = set()  # guarded by the lock

    def start_due(self) -> None:
        """Start one background call to each replica that is doubted, or whose ejection is over."""
        if not self._health.has_unhealthy:
            return
        now = self._runtime.now()
        with self._lock:
            due = [replica for replica in self._registry.known() if self._is_due(replica, now)]
            self._probing.update(replica.replica_id for replica in due)
        for replica in due:
            try:
                self._runtime.start(self._probe, replica, name="meta-probe")
            except MetaClientError:  # no thread is free: a later lookup starts the probe
                with self._lock:
                    self._probing.discard(replica.replica_id)

    def _is_due(self, replica: MetaReplica, now: float) -> bool:
        if replica.replica_id in self._probing or not self._registry.is_addressable(replica):
            return False
        out = [one for one in self._health.of(replica) if one.state is not HealthState.HEALTHY]
        return bool(out) and all(one.may_probe(now) for one in out)

    def _probe(self, replica: MetaReplica) -> None:
        """Heal the replica if it returns a readable row, or if it is empty and the primary is empty, too.

        A replica that was just re-opened returns no rows and no error.
        """
        begun = self._runtime.now()
        try:
            if (
                not self._shows_rows(replica)
                and replica.replica_id != 0
                and self._shows_rows(self._registry.known()[0])
            ):
                raise LocationUnknown("the replica answered a probe of hbase:meta with no row that can be read")
            self._health.record_success(replica, self._runtime.now() - begun)
        except Exception as error:
            failure = translated(error)
            self._health.record_failure(replica, failure)
            self._registry.refresh_after(failure)
        finally:
            with self._lock:
                self._probing.discard(replica.replica_id)

    def _shows_rows(self, replica: MetaReplica) -> bool:
        until = self._runtime.now() + self._health.try_s()
        page = self._executor.call(self._backend.read_meta, replica, PROBE, deadline=until)
        return any(metarow.decode(row.row, row.columns).locations is not None for row in page.rows)
