"""Reads hbase:meta as the Java client does in its LoadBalance mode, for comparisons side by side.

Mirrors the meta scan of ``AsyncNonMetaRegionLocator`` of HBase 3 with ``CatalogReplicaLoadBalanceSimpleSelector``:

- One replica is picked per lookup and kept for every retry of that lookup.
- The answer of that replica is accepted, also a negative one: only failed calls are retried.
- No replica is ejected, and no other replica is asked instead.

The selector "simple" in LoadBalance mode selects this reader; ``reader.MetaReader`` serves all other modes.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

from metaclient.attempts.plan import Leg, one_replica
from metaclient.attempts.retry import pause_s
from metaclient.backend import MetaPage, MetaScan
from metaclient.config import Config
from metaclient.errors import Disposition, MetaClientError
from metaclient.meta.calls import MetaCalls
from metaclient.meta.guarded_selector import GuardedSelector
from metaclient.meta.health_tracker import HealthTracker
from metaclient.meta.reading import Judge, Reading, judged
from metaclient.meta.registry import MetaRegistry
from metaclient.meta.selector import Lookup
from metaclient.model import MetaReplica
from metaclient.runtime import Runtime

__all__ = ["JavaReader", "JavaReading"]

T = TypeVar("T")


class JavaReading(Reading[T]):
    """One read of hbase:meta that ejects no replica and passes on the error of any replica."""

    def is_from_primary(self, error: MetaClientError) -> bool:
        return True

    def _record_unhelpful(self, place: MetaReplica, outcome: str) -> None:
        self._health.count_read(place, outcome)

    def _record_failure(self, place: MetaReplica, error: MetaClientError, latency_s: float) -> None:
        self._health.count_read(place, type(error).__name__)
        self._registry.refresh_after(error)


class JavaReader:
    """The reader of one connection in Java's mode."""

    def __init__(
        self,
        runtime: Runtime,
        config: Config,
        registry: MetaRegistry,
        health: HealthTracker,
        selector: GuardedSelector,
        calls: MetaCalls,
    ) -> None:
        self._runtime = runtime
        self._config = config
        self._registry = registry
        self._health = health
        self._selector = selector
        self._calls = calls

    def read(
        self, lookup: Lookup, replicas: Sequence[MetaReplica], scan: MetaScan, judge: Judge[T], deadline: float
    ) -> tuple[T, int]:
        """Read one page at one replica, with retries; return its meaning and the id of the replica."""
        legs = self._plan(lookup, replicas)
        failures = 0
        while True:
            reading: JavaReading[MetaPage] = JavaReading(self._registry, self._health, legs, lambda page, _: page)
            try:
                page, replica_id = self._calls.run(legs, scan, reading, deadline)
                break
            except MetaClientError as error:
                failures += 1
                wait_s = pause_s(failures, unit_s=self._config.pause_s)
                is_over = failures > self._config.retries or self._runtime.now() + wait_s >= deadline
                if is_over or error.disposition is Disposition.FATAL:
                    raise
            self._runtime.sleep(wait_s)
        meaning = judged(judge, page, replica_id)
        if isinstance(meaning, MetaClientError):
            raise meaning
        return meaning, replica_id

    def _plan(self, lookup: Lookup, replicas: Sequence[MetaReplica]) -> Sequence[Leg[MetaReplica]]:
        if len(replicas) <= 1:
            return self._calls.primary_only(replicas)
        by_id = {replica.replica_id: replica for replica in replicas if self._registry.is_addressable(replica)}
        pick = self._selector.select(lookup, self._health.view(replicas, self._registry.is_addressable))[0]
        return one_replica(by_id.get(pick, MetaReplica(pick)), timeout_s=self._config.meta_lookup_timeout_s)
