"""Decides who reaches whom: latency, partitions, lost and delayed messages between the parties of a cluster.

A party is a name: a server's host (``rs1``), ``master``, ``registry``, ``client`` or ``client/NAME``. A pattern is a
party, a group (``client`` stands for every ``client/...``) or ``*``. Faults are symmetric only where they say so: a
partition cuts both ways, a rule for messages goes one way.

The network also owns the one condition on which callers wait for better times (:attr:`Network.changed`): it is
notified at every change of a fault or of a server's state, so that nobody has to poll.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from metaclient.runtime import Runtime

__all__ = ["EVERYBODY", "MASTER", "REGISTRY", "MessageRule", "Network", "matches"]

EVERYBODY = "*"
MASTER = "master"
REGISTRY = "registry"


def matches(pattern: str, party: str) -> bool:
    """Does the pattern stand for this party?

    >>> matches("client", "client/7"), matches("*", "rs1"), matches("rs1", "rs11")
    (True, True, False)
    """
    return pattern in (EVERYBODY, party) or party.startswith(pattern + "/")


@dataclass(frozen=True, slots=True)
class MessageRule:
    """What happens to messages from one party to another: each is hit with ``probability``."""

    source: str
    target: str
    probability: float = 1.0
    is_lost: bool = False
    delay_s: float = 0.0


class Network:
    """The wires. Reading is lock-free (snapshots are replaced); changing goes under :attr:`changed`."""

    def __init__(self, runtime: Runtime, latency_s_min: float, latency_s_max: float) -> None:
        self._runtime = runtime
        self._latency_s = (latency_s_min, max(latency_s_min, latency_s_max))
        self._partitions: tuple[tuple[str, str], ...] = ()
        self._rules: tuple[MessageRule, ...] = ()
        self._listeners: list[Callable[[], None]] = []
        self.changed = runtime.condition()
        self.is_closed = False
        self.is_quiet = self._computed_quiet()

    def on_change(self, listener: Callable[[], None]) -> None:
        """Call it after every change of the faults (servers keep a flag for their fast path)."""
        self._listeners.append(listener)

    # -- faults ------------------------------------------------------------------------------------------------

    def partition(self, one: str, other: str) -> None:
        self._swap(partitions=(*self._partitions, (one, other)))

    def add_rule(self, rule: MessageRule) -> None:
        self._swap(rules=(*self._rules, rule))

    def remove_rule(self, rule: MessageRule) -> None:
        self._swap(rules=tuple(kept for kept in self._rules if kept is not rule))

    def heal(self) -> None:
        """Forget all partitions and rules; calls that wait for the other side go on."""
        self._swap(partitions=(), rules=())

    def close(self) -> None:
        self.is_closed = True
        self.is_quiet = False  # nobody goes straight in any more
        for listener in self._listeners:
            listener()
        self.announce()

    def _swap(
        self,
        *,
        partitions: tuple[tuple[str, str], ...] | None = None,
        rules: tuple[MessageRule, ...] | None = None,
    ) -> None:
        with self.changed:
            if partitions is not None:
                self._partitions = partitions
            if rules is not None:
                self._rules = rules
            self.is_quiet = self._computed_quiet()
        for listener in self._listeners:
            listener()
        self.announce()

    def _computed_quiet(self) -> bool:
        return not self._partitions and not self._rules and self._latency_s[1] == 0.0

    # -- questions ---------------------------------------------------------------------------------------------

    def is_cut(self, one: str, other: str) -> bool:
        """Is there a partition between the two?"""
        return any(
            (matches(a, one) and matches(b, other)) or (matches(a, other) and matches(b, one))
            for a, b in self._partitions
        )

    def message_delay(self, source: str, target: str) -> float | None:
        """How long one message takes, or None when it is lost on the way."""
        low, high = self._latency_s
        delay = low if high == low else self._runtime.rng.uniform(low, high)
        for rule in self._rules:
            if matches(rule.source, source) and matches(rule.target, target) and self._hits(rule.probability):
                if rule.is_lost:
                    return None
                delay += rule.delay_s
        return delay

    def _hits(self, probability: float) -> bool:
        return probability >= 1.0 or self._runtime.rng.random() < probability

    def describe(self) -> dict[str, object]:
        """JSON-able: the faults in force."""
        return {
            "latency_s": list(self._latency_s),
            "partitions": [list(pair) for pair in self._partitions],
            "rules": [
                {"from": rule.source, "to": rule.target, "lost": rule.is_lost, "delay_s": rule.delay_s}
                for rule in self._rules
            ],
        }

    # -- waiting -----------------------------------------------------------------------------------------------

    def announce(self) -> None:
        """Wake everybody who waits for a change."""
        with self.changed:
            self.changed.notify_all()

    def wait_until(self, holds: Callable[[], bool], deadline: float | None) -> bool:
        """Wait for a claim that only announced changes can make true; False at the deadline."""
        with self.changed:
            while not holds():
                if not self.changed.wait(deadline):
                    return holds()
            return True
