"""The values that selectors of meta replicas get, and the interface that they have."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol, runtime_checkable

from metaclient.meta.health import HealthState, ReplicaHealth
from metaclient.model import RegionInfo, ServerName

__all__ = ["Chance", "Lookup", "MetaReplicaSelector", "MetaView", "ReplicaView", "SelectFunction"]


class Chance(Protocol):
    """The part of ``random.Random`` that selectors use."""

    def random(self) -> float: ...

    def randrange(self, stop: int, /) -> int: ...


@dataclass(frozen=True, slots=True)
class Lookup:
    """The object of a lookup: one row of a table, or the whole table when ``row`` is None."""

    table: bytes
    row: bytes | None = None
    before: bool = False  # the region *before* the row, as a reversed scan needs it
    reload: bool = False  # the caller has evidence that the cached location is wrong


@dataclass(frozen=True, slots=True)
class ReplicaView:
    """One meta replica as a selector sees it.

    ``is_usable`` is True if the replica is addressable, and neither it nor its server is doubted or ejected. It is
    stored, because one lookup reads it many times.
    """

    replica_id: int
    server: ServerName | None
    health: ReplicaHealth = field(default_factory=ReplicaHealth)
    server_health: ReplicaHealth = field(default_factory=ReplicaHealth)
    is_addressable: bool = True  # a server hosts it, or a gateway finds it
    is_usable: bool = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        is_healthy = self.health.state is HealthState.HEALTHY and self.server_health.state is HealthState.HEALTHY
        object.__setattr__(self, "is_usable", self.is_addressable and is_healthy)

    def as_of(self, now: float) -> ReplicaView:
        """Return the replica without ejections that ended long ago (``ReplicaHealth.as_of``)."""
        health, server_health = self.health.as_of(now), self.server_health.as_of(now)
        if health is self.health and server_health is self.server_health:
            return self
        return replace(self, health=health, server_health=server_health)


@dataclass(frozen=True, slots=True)
class MetaView:
    """The input of a selector: the replicas, the time, and a source of random numbers."""

    replicas: tuple[ReplicaView, ...]
    now: float
    rng: Chance

    def secondaries(self) -> list[ReplicaView]:
        return [replica for replica in self.replicas if replica.replica_id != 0]


SelectFunction = Callable[[Lookup, MetaView], Sequence[int]]


@runtime_checkable
class MetaReplicaSelector(Protocol):
    """The interface of the policy; ``on_wrong_location`` reports that a location proved wrong."""

    def select(self, lookup: Lookup, view: MetaView) -> Sequence[int]: ...

    def on_wrong_location(self, region: RegionInfo, now: float) -> None: ...
