"""Decides which replicas of hbase:meta one read asks, in which order, and how long each may take.

One read of meta:

1. The replicas of the registry and their health make a view. The selector returns an order of ids. Ids without a server
   are skipped, and the primary is added as the last resort.
2. LoadBalance and None ask one replica after the other, each within its own time. HedgedRead asks the primary now and
   the first secondary after the delay, and so on (``hedge_plan`` staged), or all secondaries after the delay
   (all_at_once). Slow replicas come last and get fewer lookups (``slow_replicas``), except with all_at_once, where the
   primary is first as in HBase.
3. ``reading.Reading`` judges the answers. A negative answer of a secondary is confirmed at the primary.
4. ``health_tracker.HealthTracker`` records the outcome. ``probes.Prober`` probes ejected replicas when their time is
   over.

The last replica of the order, normally the primary, has all the time of a call: in a slow cluster its successes make
the try time grow.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TypeVar

from metaclient.attempts.executor import Executor
from metaclient.attempts.plan import Leg, all_at_once, staged
from metaclient.backend import Backend, MetaScan
from metaclient.config import Config, MetaMode
from metaclient.errors import LocationUnknown
from metaclient.meta.calls import MetaCalls
from metaclient.meta.guarded_selector import GuardedSelector
from metaclient.meta.health_tracker import HealthTracker, MetaReplicaStatus
from metaclient.meta.java_reader import JavaReader, JavaReading
from metaclient.meta.probes import Prober
from metaclient.meta.reading import Judge, Reading
from metaclient.meta.registry import MetaRegistry
from metaclient.meta.slow_replicas import PROBE_S, SlowLast
from metaclient.meta.view import Lookup, MetaView
from metaclient.model import META_TABLE, MetaReplica, RegionInfo
from metaclient.runtime import Runtime
from metaclient.telemetry import Telemetry

__all__ = ["MetaReader"]

T = TypeVar("T")
#: A lookup that probes a slow replica waits for the hedge delay: at most one in ten such times does.
HEDGED_PROBE_DELAYS = 10


class MetaReader:
    """The reader of hbase:meta of one connection."""

    def __init__(
        self, backend: Backend, runtime: Runtime, config: Config, executor: Executor, telemetry: Telemetry
    ) -> None:
        self._config = config
        self.health = HealthTracker(runtime, config, telemetry)
        self.registry = MetaRegistry(backend, runtime, config, executor, telemetry, self.health)
        self._prober = Prober(backend, runtime, executor, self.registry, self.health)
        self._selector = GuardedSelector(runtime, config)
        self._calls = MetaCalls(backend, config, executor, telemetry, self.registry)
        self._java: JavaReader | None = None
        if config.meta_selector == "simple":
            self._java = JavaReader(runtime, config, self.registry, self.health, self._selector, self._calls)
        # In HedgedRead a lookup waits for the first replica for the whole delay, so that only a longer time counts.
        delay_s = config.meta_hedge_delay_s
        self._slow_last = SlowLast(margin_s=0.9 * delay_s, probe_s=max(PROBE_S, HEDGED_PROBE_DELAYS * delay_s))
        self._turn = 0  # the next replica while all are ejected; a race between threads only repeats a replica

    @property
    def mode(self) -> MetaMode:
        """The mode in force: the configured mode, or LoadBalance where there is more than one replica."""
        if not self.registry.can_choose:
            return MetaMode.NONE
        if self._config.meta_mode is not None:
            return self._config.meta_mode
        return MetaMode.LOAD_BALANCE if len(self.registry.known()) > 1 else MetaMode.NONE

    @property
    def confirms(self) -> bool:
        """True if each negative answer is the primary's own; in Java's mode it may be any replica's."""
        return self._java_in_force() is None

    def _java_in_force(self) -> JavaReader | None:
        return self._java if self._java is not None and self.mode is MetaMode.LOAD_BALANCE else None

    def status(self) -> list[MetaReplicaStatus]:
        """Return the replicas, their places and their health."""
        return self.health.status(self.registry.known(), self.registry.is_placed)

    def on_wrong_location(self, region: RegionInfo) -> None:
        """Report that a location of this region proved wrong: its range is looked up at the primary for a while."""
        self._selector.on_wrong_location(region)

    def read(self, lookup: Lookup, scan: MetaScan, judge: Judge[T], deadline: float) -> tuple[T, int]:
        """Read one page and judge it; return its meaning and the id of the replica that sent it."""
        if lookup.table == META_TABLE:
            raise LocationUnknown("hbase:meta is not in hbase:meta; ask meta_replicas()")
        replicas = self.registry.replicas(deadline)
        java = self._java_in_force()  # after the read of the registry, which may change the mode
        if java is not None:
            return java.read(lookup, replicas, scan, judge, deadline)
        legs = self._plan(lookup, replicas)
        return self._calls.run(legs, scan, Reading(self.registry, self.health, legs, judge), deadline)

    def read_primary(self, scan: MetaScan, judge: Judge[T], deadline: float) -> T:
        """Read at the primary only, for facts that must not be stale (a table's state)."""
        legs = self._calls.primary_only(self.registry.replicas(deadline))
        kind = Reading if self.confirms else JavaReading
        return self._calls.run(legs, scan, kind(self.registry, self.health, legs, judge), deadline)[0]

    def _plan(self, lookup: Lookup, replicas: Sequence[MetaReplica]) -> Sequence[Leg[MetaReplica]]:
        """Return the replicas to ask and the time of each; the deadline cuts the times when the calls run."""
        mode = self.mode if len(replicas) > 1 else MetaMode.NONE
        if mode is MetaMode.NONE:
            return self._calls.primary_only(replicas)
        self._prober.start_due()
        view = self.health.view(replicas, self.registry.is_addressable)
        by_id = {seen.replica_id: one for seen, one in zip(view.replicas, replicas, strict=True) if seen.is_addressable}
        order = self._order(lookup, view, mode)
        places = [by_id[replica_id] for replica_id in dict.fromkeys(order) if replica_id in by_id]
        if not places:
            raise self.registry.primary_missing()
        if mode is MetaMode.HEDGED_READ:
            make = staged if self._config.hedge_plan == "staged" else all_at_once
            return make(places, delay_s=self._config.meta_hedge_delay_s, timeout_s=self._config.meta_rpc_timeout_s)
        return in_turn(places, self.health.try_s(), self._config)

    def _order(self, lookup: Lookup, view: MetaView, mode: MetaMode) -> Iterable[int]:
        """Return the ids to ask. While all replicas are ejected, each read asks one of them, in turn.

        Asking all of them would multiply the load of an outage.
        """
        usable = [replica.replica_id for replica in view.replicas if replica.is_usable]
        if not usable:
            self._turn += 1
            return (view.replicas[self._turn % len(view.replicas)].replica_id,)
        if mode is MetaMode.HEDGED_READ:
            order = (0, *healthy_first(view))
            return self._slow_last.order(order, view) if self._config.hedge_plan == "staged" else order
        return (*self._selector.select(lookup, view), 0, *(() if 0 in usable else healthy_first(view)))


def healthy_first(view: MetaView) -> list[int]:
    """Return all secondaries, the usable ones first: the order when the primary may be down."""
    return [replica.replica_id for replica in sorted(view.secondaries(), key=lambda one: not one.is_usable)]


def in_turn(places: Sequence[MetaReplica], try_s: float, config: Config) -> tuple[Leg[MetaReplica], ...]:
    """Return the plan that asks one replica after the other; the last one has all the time of a call."""
    legs: list[Leg[MetaReplica]] = []
    after_s = 0.0
    for place in places:
        # A selector that puts the primary before others wants its answer: the primary gets the longest time of a try.
        wanted_s = max(try_s, config.meta_try_timeout_max_s) if place.replica_id == 0 else try_s
        timeout_s = config.meta_rpc_timeout_s if place is places[-1] else min(wanted_s, config.meta_rpc_timeout_s)
        legs.append(Leg(place, after_s, timeout_s))
        after_s += timeout_s
    return tuple(legs)
