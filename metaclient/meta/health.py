"""Decides when a meta replica, or a server, is ejected: health as a value with pure transitions.

::

    HEALTHY --failure--> EJECTED(until) --time--> (may be probed) --probe ok--> HEALTHY
       |                    ^                                     --probe fails--+
       |                    +--------------------------------------------------- + (for twice as long)
    timeout                 |
       +--> DOUBTED --timeout or failure
               +--answer--> HEALTHY

A replica is ejected for ``base_s * 2**(ejections in a row)``, at most ``max_s``, with a jitter of a tenth so that many
clients do not probe it at the same moment. Ejections are in a row when the next failure comes within one such time
after the last ejection, so that a re-opened replica that passes a probe and then fails again is ejected for longer.
Health belongs to the replica *and* to its server: after a failover, one server may host two replicas, and a hanging
server affects both.

A single timeout is weak evidence: a pause of this process, of a gateway or of the network makes calls to all replicas
time out at once. If it ejected them, all lookups of the next second would read the primary. A *doubted* replica is
probed at once, and lookups ask the healthy secondaries instead. While no secondary is healthy, lookups ask the doubted
ones before the primary. The next timeout ejects the replica, unless the call is of the same pause: it began before the
doubt, or as the second try of a lookup whose first try ended then.

Lookups start the probes. After a time without lookups, all secondaries may still be ejected although their ejections
ended long ago, and the next lookup would read the primary while the probes are in flight. Therefore, while no secondary
is healthy, an ejection that ended long ago does not count any more (``as_of``): the lookup asks the secondary, as the
lookup of a new client does, and the primary after it.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass, replace

__all__ = ["HealthState", "ReplicaHealth"]

#: Weight of the newest sample in the latency average: about the last 10 calls count.
LATENCY_WEIGHT = 0.2
JITTER = 0.1
#: An ejection counts for its own duration after its end, and for this long at most: as the longest stale mark
#: (``meta_stale_mark_max_s``).
REMEMBERED_S_MAX = 30.0


#: A timeout that comes less than this many times of a call after the first one is of the same pause.
SAME_PAUSE = 2


class HealthState(enum.Enum):
    """The states of a replica or a server; the transitions are in the module's docstring."""

    HEALTHY = "healthy"
    DOUBTED = "doubted"
    EJECTED = "ejected"


@dataclass(frozen=True, slots=True)
class ReplicaHealth:
    """The health of one replica or one server.

    >>> sick = ReplicaHealth().after_failure(now=10.0, base_s=1.0, max_s=60.0, chance=0.0)
    >>> sick.state.value, sick.ejected_until
    ('ejected', 11.0)
    >>> sick.may_probe(10.5), sick.may_probe(11.0)
    (False, True)
    >>> sick.after_failure(now=11.0, base_s=1.0, max_s=60.0, chance=0.0).ejected_until
    13.0
    >>> sick.after_success(0.002).state.value
    'healthy'
    """

    state: HealthState = HealthState.HEALTHY
    ejections: int = 0  # in a row
    ejected_until: float = 0.0  # of a doubted replica: the instant of the timeout
    ejection_s: float = 0.0  # the duration of the last ejection
    latency_s: float | None = None  # moving average of successes
    successes: int = 0
    failures: int = 0
    last_error: str | None = None

    def after_success(self, latency_s: float) -> ReplicaHealth:
        """Return the health after an answer: healthy, with the latency in the average."""
        average = (
            latency_s if self.latency_s is None else self.latency_s + LATENCY_WEIGHT * (latency_s - self.latency_s)
        )
        # Every read of hbase:meta runs this. replace() would take four times as long.
        return ReplicaHealth(
            HealthState.HEALTHY,
            self.ejections,
            self.ejected_until,
            self.ejection_s,
            average,
            self.successes + 1,
            self.failures,
            self.last_error,
        )

    def after_slow(self, at_least_s: float) -> ReplicaHealth:
        """Return the health after a call that was outrun by another replica: it takes at least that long."""
        before_s = at_least_s if self.latency_s is None else self.latency_s
        return replace(self, latency_s=max(before_s, before_s + LATENCY_WEIGHT * (at_least_s - before_s)))

    def after_failure(
        self, *, now: float, base_s: float, max_s: float, chance: float, error: str | None = None
    ) -> ReplicaHealth:
        """Return the health after a failure; ``chance`` is a draw from [0, 1).

        A failure during an ejection does not lengthen the ejection.
        """
        failed = self._failed(error)
        if self.state is HealthState.EJECTED and now < self.ejected_until:
            return failed
        ejections = self.ejections if self._goes_on(now, base_s, max_s) else 0
        life_s = min(base_s * 2.0 ** min(ejections, 30), max_s) * (1 + JITTER * chance)
        return replace(
            failed,
            state=HealthState.EJECTED,
            ejections=ejections + 1,
            ejected_until=now + life_s,
            ejection_s=life_s,
        )

    def after_timeout(
        self, *, now: float, timeout_s: float, base_s: float, max_s: float, chance: float, error: str | None = None
    ) -> ReplicaHealth:
        """Return the health after a call that had no answer in its time, which was ``timeout_s``.

        >>> doubted = ReplicaHealth().after_timeout(now=10.0, timeout_s=0.1, base_s=1.0, max_s=60.0, chance=0.0)
        >>> doubted.state.value, doubted.may_probe(10.0)
        ('doubted', True)
        >>> doubted.after_timeout(now=10.1, timeout_s=0.1, base_s=1.0, max_s=60.0, chance=0.0).state.value
        'doubted'
        >>> doubted.after_timeout(now=10.3, timeout_s=0.1, base_s=1.0, max_s=60.0, chance=0.0).ejected_until
        11.3
        """
        if self.state is HealthState.HEALTHY and not self._goes_on(now, base_s, max_s):
            failed = self._failed(error)
            return replace(failed, state=HealthState.DOUBTED, ejections=0, ejected_until=now, ejection_s=0.0)
        if self.state is HealthState.DOUBTED and now < self.ejected_until + SAME_PAUSE * timeout_s:
            return self._failed(error)
        return self.after_failure(now=now, base_s=base_s, max_s=max_s, chance=chance, error=error)

    def _goes_on(self, now: float, base_s: float, max_s: float) -> bool:
        """Return True if a failure at this instant is in a row with the last ejection."""
        if self.state is HealthState.EJECTED:
            return True
        before_s = min(base_s * 2.0 ** min(self.ejections - 1, 30), max_s)
        return self.ejections > 0 and now < self.ejected_until + before_s

    def _failed(self, error: str | None) -> ReplicaHealth:
        return replace(self, failures=self.failures + 1, last_error=error or self.last_error)

    def as_of(self, now: float) -> ReplicaHealth:
        """Return the health that counts for a lookup at this instant if no secondary is healthy.

        Healthy, if the replica is doubted, or if its ejection ended long ago.

        >>> sick = ReplicaHealth().after_failure(now=10.0, base_s=1.0, max_s=60.0, chance=0.0)
        >>> sick.as_of(11.9).state.value, sick.as_of(12.0).state.value
        ('ejected', 'healthy')
        """
        is_over = now >= self.ejected_until + min(self.ejection_s, REMEMBERED_S_MAX)
        if self.state is HealthState.DOUBTED or (self.state is HealthState.EJECTED and is_over):
            return replace(self, state=HealthState.HEALTHY)
        return self

    def may_probe(self, now: float) -> bool:
        """Return True if the replica is doubted, or the time of its ejection is over."""
        return self.state is not HealthState.HEALTHY and now >= self.ejected_until
