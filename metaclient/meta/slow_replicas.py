"""Decides that slow replicas of hbase:meta get fewer lookups than fast ones.

A replica is slow when its average latency is above ``2 * best + margin_s``, where ``best`` is the lowest average of the
replicas that may be asked. A slow replica is asked first in ``best / its own latency`` of the lookups in which it would
be first, and at least once per ``probe_s``, so that its recovery is noticed; else it comes after the others. A replica
without a measurement is not slow, so that it is asked and measured. An ejected replica is not slow either: the selector
decides about ejected replicas.
"""

from __future__ import annotations

from collections.abc import Sequence

from metaclient.meta.view import Lookup, MetaReplicaSelector, MetaView
from metaclient.model import RegionInfo

__all__ = ["LessToSlow", "SlowLast"]

#: A smaller difference is no reason to ask another replica first: a busy server pauses for about as long.
MARGIN_S = 0.02
PROBE_S = 1.0


class SlowLast:
    """Reorders replica ids by the rule above; remembers when each slow replica was asked last.

    >>> from random import Random
    >>> from metaclient.meta.health import ReplicaHealth
    >>> from metaclient.meta.view import ReplicaView
    >>> replicas = [ReplicaView(i, None, ReplicaHealth(latency_s=s)) for i, s in enumerate((0.001, 0.2, 0.001))]
    >>> slow_last, rng = SlowLast(), Random(1)
    >>> [slow_last.order([1, 2], MetaView(tuple(replicas), now, rng)) for now in (0.0, 0.1, 1.5)]
    [[1, 2], [2, 1], [1, 2]]
    """

    def __init__(self, *, margin_s: float = MARGIN_S, probe_s: float = PROBE_S) -> None:
        self._margin_s = margin_s
        self._probe_s = probe_s
        self._asked_at: dict[int, float] = {}  # bounded by the number of meta replicas

    def order(self, ids: Sequence[int], view: MetaView) -> Sequence[int]:
        """Return the ids; slow replicas come last, unless the first of them gets its share now."""
        known = {
            each.replica_id: at
            for each in view.replicas
            if each.is_usable and (at := each.health.latency_s) is not None and each.replica_id in ids
        }
        if len(known) < 2:
            return ids
        best_s = min(known.values())
        limit_s = 2 * best_s + self._margin_s
        if max(known.values()) <= limit_s:  # the usual case
            return ids
        slow = {each for each, at in known.items() if at > limit_s}
        first = ids[0]
        if first in slow and self._is_turn(first, best_s / known[first], view):
            return ids
        return sorted(ids, key=slow.__contains__)

    def _is_turn(self, replica_id: int, share: float, view: MetaView) -> bool:
        is_due = view.now - self._asked_at.get(replica_id, float("-inf")) >= self._probe_s
        if not is_due and view.rng.random() >= share:
            return False
        self._asked_at[replica_id] = view.now
        return True


class LessToSlow:
    """Wraps a selector: slow secondaries come after the other secondaries. The primary keeps its place."""

    def __init__(self, inner: MetaReplicaSelector) -> None:
        self._inner = inner
        self._slow_last = SlowLast()

    def select(self, lookup: Lookup, view: MetaView) -> Sequence[int]:
        order = self._inner.select(lookup, view)
        secondaries = [replica_id for replica_id in order if replica_id != 0]
        ordered = iter(self._slow_last.order(secondaries, view)) if secondaries else iter(())
        return [replica_id if replica_id == 0 else next(ordered) for replica_id in order]

    def on_wrong_location(self, region: RegionInfo, now: float) -> None:
        self._inner.on_wrong_location(region, now)
