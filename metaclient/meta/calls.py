"""Carries out the plan of one read of hbase:meta: sends the calls and lets the reading judge the answers."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import takewhile
from typing import TypeVar, cast

from metaclient.attempts.budget import HedgeBudget
from metaclient.attempts.executor import Executor
from metaclient.attempts.plan import Leg, one_replica
from metaclient.backend import Answer, Backend, DirectBackend, MetaPage, MetaScan
from metaclient.config import Config
from metaclient.errors import LocationUnknown, MetaClientError, RegionOffline
from metaclient.meta.reading import Reading
from metaclient.meta.registry import MetaRegistry
from metaclient.model import MetaReplica
from metaclient.telemetry import Telemetry

__all__ = ["MetaCalls"]

T = TypeVar("T")
#: More meta replicas than any cluster has: HBase's guide recommends three.
REPLICAS_MAX = 100


class MetaCalls:
    """The calls of one connection to hbase:meta, with their budget of hedges."""

    def __init__(
        self, backend: Backend, config: Config, executor: Executor, telemetry: Telemetry, registry: MetaRegistry
    ) -> None:
        self._backend = backend
        is_direct = backend.capabilities.direct and isinstance(backend, DirectBackend)
        self._read_direct = cast("DirectBackend", backend).direct.read_meta if is_direct else None
        self._config = config
        self._executor = executor
        self._telemetry = telemetry
        self._registry = registry
        # The delay of hedged lookups is fixed, so that few lookups hedge. Each may hedge once, and more often where
        # the configuration allows it for all reads. With HBase's plan each calls all replicas.
        is_staged = config.hedge_plan == "staged"
        ratio = max(1.0, config.hedge_budget) if is_staged else float(REPLICAS_MAX)
        self._hedge_budget = HedgeBudget(ratio=ratio, burst=config.hedge_budget_burst if is_staged else REPLICAS_MAX)

    def primary_only(self, replicas: Sequence[MetaReplica]) -> Sequence[Leg[MetaReplica]]:
        """Return the plan that asks the primary alone."""
        if not self._registry.is_addressable(replicas[0]):
            raise self._registry.primary_missing()
        return one_replica(replicas[0], timeout_s=self._config.meta_rpc_timeout_s)

    def run(
        self, legs: Sequence[Leg[MetaReplica]], scan: MetaScan, reading: Reading[T], deadline: float
    ) -> tuple[T, int]:
        """Read one page; return its meaning and the id of the replica that sent it."""
        self._hedge_budget.on_call()
        has_places = all(self._registry.is_addressable(leg.place) for leg in legs)
        try:
            won = self._executor.race(
                legs,
                self._backend.read_meta if has_places else self._read_placed,
                scan,
                direct=self._read_direct if has_places else None,
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
                f"only secondaries of hbase:meta answered, and none of them has the region of the row: {error}"
            ) from error
        reading.settle(won.leg.place)
        asked_before = takewhile(lambda place: place != won.leg.place, (leg.place for leg in legs))
        reading.record_outran([place for place in asked_before if place in won.outran], won.leg.after_s + won.latency_s)
        if won.hedges:
            self._telemetry.count("metaclient.meta.hedges", won.hedges)
        return reading.meanings[won.leg.place.replica_id], won.leg.place.replica_id

    def _read_placed(self, replica: MetaReplica, scan: MetaScan, until: float) -> Answer[MetaPage]:
        """Read a page; raise RegionOffline for a replica without a server, which Java's selector may choose."""
        if not self._registry.is_addressable(replica):
            raise RegionOffline(f"the registry has no server for replica {replica.replica_id} of hbase:meta")
        return self._backend.read_meta(replica, scan, until)
