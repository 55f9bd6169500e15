"""Decides in which order the copies of hbase:meta are asked; a selector answers, it never acts.

A selector is anything with ``select(lookup, view) -> replica ids, best first``, or a plain function of the two. What it
leaves out is not asked, except that the primary is always the last resort (see ``MetaReader``); ids that do not exist
or have no server are skipped. It is called by one thread at a time and must not block. Twenty lines make one's own::

    def nearest(lookup, view):
        "The secondary with the lowest average latency, others next."
        known = [r for r in view.replicas if r.replica_id and r.is_usable]
        return [r.replica_id for r in sorted(known, key=lambda r: r.health.latency_s or 0.0)]

    conn = metaclient.connect(url, meta_selector=nearest)
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Protocol, runtime_checkable

from metaclient.errors import ConfigError
from metaclient.meta.health import HealthState, ReplicaHealth
from metaclient.meta.simple import SimpleSelector
from metaclient.meta.stale import StaleRanges
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


class Chance(Protocol):
    """The part of ``random.Random`` that selectors use."""

    def random(self) -> float: ...

    def randrange(self, stop: int, /) -> int: ...


@dataclass(frozen=True, slots=True)
class Lookup:
    """What is looked up: one row of a table, or (``row`` None) the whole table."""

    table: bytes
    row: bytes | None = None
    before: bool = False  # the region *before* the row, as a reversed scan needs it
    reload: bool = False  # somebody said that what we know is wrong


@dataclass(frozen=True, slots=True)
class ReplicaView:
    """One meta replica as a selector sees it."""

    replica_id: int
    server: ServerName | None
    health: ReplicaHealth = field(default_factory=ReplicaHealth)
    server_health: ReplicaHealth = field(default_factory=ReplicaHealth)
    is_addressable: bool = True  # placed, or behind a gateway that finds it

    @property
    def is_usable(self) -> bool:
        """Placed, and neither it nor its server is out."""
        return (
            self.is_addressable
            and self.health.state is HealthState.HEALTHY
            and self.server_health.state is HealthState.HEALTHY
        )


@dataclass(frozen=True, slots=True)
class MetaView:
    """Everything a selector may look at: the replicas, the time, a source of chance."""

    replicas: tuple[ReplicaView, ...]
    now: float
    rng: Chance

    def secondaries(self) -> list[ReplicaView]:
        return [replica for replica in self.replicas if replica.replica_id != 0]


SelectFunction = Callable[[Lookup, MetaView], Sequence[int]]


@runtime_checkable
class MetaReplicaSelector(Protocol):
    """The policy's interface; ``on_wrong_location`` tells it that an answer proved wrong."""

    def select(self, lookup: Lookup, view: MetaView) -> Sequence[int]: ...

    def on_wrong_location(self, region: RegionInfo, now: float) -> None: ...


class RoundRobin:
    """Healthy, placed secondaries in turn from a random start, one server not twice in a row; then the primary.

    1. Rotate the usable secondaries by one for each lookup (seed 000, 6.2: the load is spread evenly, not at random).
    2. Put those that share a server with an earlier one last: "another replica" must mean "another server".
    3. The primary closes the list. With no usable secondary it is the list.

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
        """Nothing to learn: which ranges are stale is PrimaryWhereStale's idea."""


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
    """Adds to a selector: where a location proved wrong, the primary comes first for a while, before the others."""

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
    """A plain function as a selector."""

    def __init__(self, function: SelectFunction) -> None:
        self._function = function

    def select(self, lookup: Lookup, view: MetaView) -> Sequence[int]:
        return self._function(lookup, view)

    def on_wrong_location(self, region: RegionInfo, now: float) -> None:
        """A function keeps no memory."""


def selector_named(choice: object, stale: StaleRanges) -> MetaReplicaSelector:
    """The selector for ``Config.meta_selector``: a name, a selector, or a plain function."""
    if choice == "round_robin":
        return PrimaryWhereStale(RoundRobin(), stale)
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
