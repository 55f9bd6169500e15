"""Stores an upper bound of the lag of each region replica.

A replica applies the edits of its primary in order. What is known of a replica is therefore one instant: every write
that was acknowledged before that instant is in the replica (``as_of``). The instant never becomes wrong while the
replica stays open on its server, so that::

    lag_s(now) = now - as_of

is an upper bound of the lag at any later time. A replica that was L seconds behind at the time t is at most
L + (now - t) seconds behind now: it has either caught up, which is not known yet, or stood still.

A replica that was opened again, on the same or another server, starts from the store files. HBase lets it answer only
after it has seen a flush of its primary, unless ``hbase.region.replica.wait.for.primary.flush`` is false. What is known
belongs to a region, a replica id and a server with its start code, so that a replica that moved, and a server that was
restarted, are unknown.

>>> from metaclient.model import RegionInfo, RegionLocation, ServerName
>>> replica = RegionLocation(RegionInfo(b"t").replica(1), ServerName("rs1", 16020))
>>> lags = ReplicaLags()
>>> lags.lag_s(replica, now=100.0) is None
True
>>> lags.learn(replica, as_of=98.0)  # at the instant 99 it was one second behind
>>> lags.lag_s(replica, now=100.0), lags.lag_s(replica, now=103.0)
(2.0, 5.0)
>>> lags.learn(replica, as_of=97.0)  # the answer of a slower call: the replica does not lose edits
>>> lags.lag_s(replica, now=100.0)
2.0
"""

from __future__ import annotations

from metaclient.model import RegionLocation, ServerName

__all__ = ["REPLICAS_MAX", "ReplicaLags"]

#: How many replicas are remembered, about 10 MB. The replica whose last lesson is oldest is forgotten first: reads with
#: a limit of staleness then call the primary until the replica is learned again.
REPLICAS_MAX = 50_000


class ReplicaLags:
    """The instant up to which each replica is known to be complete; not thread-safe, its owner has the lock."""

    __slots__ = ("_as_of", "_replicas_max")

    def __init__(self, replicas_max: int = REPLICAS_MAX) -> None:
        self._as_of: dict[tuple[bytes, ServerName], float] = {}
        self._replicas_max = replicas_max

    def __len__(self) -> int:
        return len(self._as_of)

    def learn(self, place: RegionLocation, as_of: float) -> None:
        """Record that every write acknowledged before ``as_of`` is in this replica."""
        key = (place.region_name, place.server)
        known = self._as_of.pop(key, None)  # added again at the end: the order is that of the last lesson
        self._as_of[key] = as_of if known is None else max(known, as_of)
        while len(self._as_of) > self._replicas_max:
            del self._as_of[next(iter(self._as_of))]

    def forget(self, place: RegionLocation) -> None:
        """Drop what is known of a replica, because a call has shown that the replica is not open there."""
        self._as_of.pop((place.region_name, place.server), None)

    def as_of(self, place: RegionLocation) -> float | None:
        """Return the latest instant up to which the replica is known to be complete; None if nothing is known."""
        return self._as_of.get((place.region_name, place.server))

    def lag_s(self, place: RegionLocation, now: float) -> float | None:
        """Return an upper bound of the replica's lag; None if nothing is known."""
        as_of = self.as_of(place)
        return None if as_of is None else now - as_of
