"""Decides in which order the replicas of hbase:meta are asked. A selector returns an order and does not act.

A selector is an object with ``select(lookup, view) -> replica ids, best first``, or a plain function of the two.
Replicas that it omits are not asked, except that the primary is always the last resort (see ``MetaReader``). Ids that
do not exist or have no server are skipped. One thread at a time calls a selector, which must not block. An example::

    def nearest(lookup, view):
        "The secondary with the lowest average latency, others next."
        known = [r for r in view.replicas if r.replica_id and r.is_usable]
        return [r.replica_id for r in sorted(known, key=lambda r: r.health.latency_s or 0.0)]

    conn = metaclient.connect(url, meta_selector=nearest)
"""

from __future__ import annotations

from collections.abc import Sequence

from metaclient.errors import ConfigError
from metaclient.meta.simple import SimpleSelector
from metaclient.meta.slow_replicas import LessToSlow
from metaclient.meta.stale import StaleRanges
from metaclient.meta.view import Chance, Lookup, MetaReplicaSelector, MetaView, ReplicaView, SelectFunction
from metaclient.model import RegionInfo, ServerName

__all__ = [
    "Chance",
    "Lookup",
    "MetaReplicaSelector",
    "MetaView",
    "PrimaryWhereStale",
    "ReplicaView",
    "RoundRobin",
    "SelectFunction",
    "selector_named",
]


class RoundRobin:
    """Selects the usable secondaries in turn, from a random start and on different servers, and then the primary.

    1. Rotate the usable secondaries by one for each lookup, so that the load is spread evenly and not at random.
    2. Put replicas that share a server with an earlier replica last, so that the next replica is on another server.
    3. Put the primary at the end. If no secondary is usable, return the primary alone.

    >>> from random import Random
    >>> view = MetaView(tuple(ReplicaView(i, ServerName(f"rs{i}", 16020)) for i in range(3)), 0.0, Random(1))
    >>> turn = RoundRobin(); a, b, c = (turn.select(Lookup(b"t", b"r"), view) for _ in range(3))
    >>> sorted([a, b]), a == c
    ([[1, 2, 0], [2, 1, 0]], True)
    """

    def __init__(self) -> None:
        self._turn: int | None = None

    def select(self, lookup: Lookup, view: MetaView) -> Sequence[int]:
        usable = [replica for replica in view.secondaries() if replica.is_usable]
        if not usable:
            return [0]
        if self._turn is None:
            self._turn = view.rng.randrange(len(usable))
        self._turn += 1
        start = self._turn % len(usable)
        return [*_spread(usable[start:] + usable[:start]), 0]

    def on_wrong_location(self, region: RegionInfo, now: float) -> None:
        """Do nothing: PrimaryWhereStale remembers stale ranges."""


def _spread(replicas: Sequence[ReplicaView]) -> list[int]:
    seen: set[ServerName] = set()
    first: list[int] = []
    rest: list[int] = []
    for replica in replicas:
        shared = replica.server is not None and replica.server in seen
        (rest if shared else first).append(replica.replica_id)
        if replica.server is not None:
            seen.add(replica.server)
    return first + rest


class PrimaryWhereStale:
    """Wraps a selector: in ranges where a location proved wrong, the primary comes first for a while."""

    def __init__(self, inner: MetaReplicaSelector, stale: StaleRanges) -> None:
        self._inner = inner
        self._stale = stale

    def select(self, lookup: Lookup, view: MetaView) -> Sequence[int]:
        order = self._inner.select(lookup, view)
        if lookup.row is not None and self._stale.covers(lookup.table, lookup.row, view.now, before=lookup.before):
            return [0, *order]
        return order

    def on_wrong_location(self, region: RegionInfo, now: float) -> None:
        self._stale.add(region, now)
        self._inner.on_wrong_location(region, now)


class _Function:
    """Adapts a plain function to the interface of a selector."""

    def __init__(self, function: SelectFunction) -> None:
        self._function = function

    def select(self, lookup: Lookup, view: MetaView) -> Sequence[int]:
        return self._function(lookup, view)

    def on_wrong_location(self, region: RegionInfo, now: float) -> None:
        """Do nothing: a function has no state."""


def selector_named(choice: object, stale: StaleRanges) -> MetaReplicaSelector:
    """Return the selector for ``Config.meta_selector``: a name, a selector, or a plain function."""
    if choice == "round_robin":
        return PrimaryWhereStale(LessToSlow(RoundRobin()), stale)
    if choice == "simple":
        return SimpleSelector()
    if isinstance(choice, MetaReplicaSelector):
        return PrimaryWhereStale(choice, stale)
    if hasattr(choice, "select"):
        return PrimaryWhereStale(_Function(choice.select), stale)
    if callable(choice):
        return PrimaryWhereStale(_Function(choice), stale)
    raise ConfigError(
        f"meta_selector must be 'round_robin', 'simple', an object with select(lookup, view) "
        f"or a function of the two, got {choice!r}"
    )
