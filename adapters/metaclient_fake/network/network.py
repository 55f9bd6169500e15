"""Decides which party reaches which: latency, partitions; lost, delayed, reordered and repeated messages.

A party is a name: a server's host (``rs1``), ``master``, ``registry``, ``client`` or ``client/NAME``. A pattern is a
party, a group (``client`` stands for every ``client/...``) or ``*``. Faults are symmetric only where they say so: a
partition cuts both ways unless it is said to be one-way, a rule for messages goes one way.

The network also owns the one condition on which callers wait (:attr:`Network.changed`): it is notified at every change
of a fault or of a server's state, so that no caller polls.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from metaclient.runtime import Runtime

__all__ = ["EVERYBODY", "MASTER", "REGISTRY", "MessageRule", "Network", "Partition", "matches"]

EVERYBODY = "*"
MASTER = "master"
REGISTRY = "registry"


def matches(pattern: str, party: str) -> bool:
    """Return True if the pattern stands for this party.

    >>> matches("client", "client/7"), matches("*", "rs1"), matches("rs1", "rs11")
    (True, True, False)
    """
    return pattern in (EVERYBODY, party) or party.startswith(pattern + "/")


@dataclass(frozen=True, slots=True)
class MessageRule:
    """What happens to messages from one party to another: each is hit with ``probability``.

    ``jitter_s`` delays each message by its own draw from 0 to that, so that they overtake each other. ``is_repeated``:
    a call arrives twice, where the protocol can repeat it (see :mod:`metaclient_fake.network.call`).
    """

    source: str
    target: str
    probability: float = 1.0
    is_lost: bool = False
    delay_s: float = 0.0
    jitter_s: float = 0.0
    is_repeated: bool = False


@dataclass(frozen=True, slots=True, eq=False)
class Partition:
    """A wire that is cut: both ways, or only for what ``one`` sends to ``other``."""

    one: str
    other: str
    is_one_way: bool = False

    def cuts(self, source: str, target: str) -> bool:
        if matches(self.one, source) and matches(self.other, target):
            return True
        return not self.is_one_way and matches(self.one, target) and matches(self.other, source)


class Network:
    """The wires. Reading is lock-free (snapshots are replaced); changing goes under :attr:`changed`."""

    def __init__(self, runtime: Runtime, latency_s_min: float, latency_s_max: float) -> None:
        self._runtime = runtime
        self._latency_s = (latency_s_min, max(latency_s_min, latency_s_max))
        self._partitions: tuple[Partition, ...] = ()
        self._rules: tuple[MessageRule, ...] = ()
        self._listeners: list[Callable[[], None]] = []
        self.changed = runtime.condition()
        self.is_closed = False
        #: Each message asks these before it asks whether it is concerned.
        self.has_partitions = self.has_rules = False
        self.is_quiet = self._computed_quiet()

    def on_change(self, listener: Callable[[], None]) -> None:
        """Call it after every change of the faults (servers keep a flag for their fast path)."""
        self._listeners.append(listener)

    # -- faults ------------------------------------------------------------------------------------------------

    def partition(self, one: str, other: str, *, is_one_way: bool = False) -> Partition:
        """Cut the wire between two; what this returns can be mended alone, ``heal`` mends all."""
        made = Partition(one, other, is_one_way)
        self._swap(partitions=(*self._partitions, made))
        return made

    def mend(self, partition: Partition) -> None:
        self._swap(partitions=tuple(kept for kept in self._partitions if kept is not partition))

    def add_rule(self, rule: MessageRule) -> None:
        self._swap(rules=(*self._rules, rule))

    def remove_rule(self, rule: MessageRule) -> None:
        self._swap(rules=tuple(kept for kept in self._rules if kept is not rule))

    def heal(self) -> None:
        """Forget all partitions and rules; calls that wait for the other side go on."""
        self._swap(partitions=(), rules=())

    def close(self) -> None:
        self.is_closed = True
        self.is_quiet = False  # no call takes the direct path any more
        for listener in self._listeners:
            listener()
        self.announce()

    def _swap(
        self,
        *,
        partitions: tuple[Partition, ...] | None = None,
        rules: tuple[MessageRule, ...] | None = None,
    ) -> None:
        with self.changed:
            if partitions is not None:
                self._partitions = partitions
            if rules is not None:
                self._rules = rules
            self.has_partitions, self.has_rules = bool(self._partitions), bool(self._rules)
            self.is_quiet = self._computed_quiet()
        for listener in self._listeners:
            listener()
        self.announce()

    def _computed_quiet(self) -> bool:
        return not self._partitions and not self._rules and self._latency_s[1] == 0.0

    # -- questions ---------------------------------------------------------------------------------------------

    def is_cut(self, source: str, target: str) -> bool:
        """Return True if a partition holds messages from ``source`` to ``target``."""
        return self.has_partitions and any(partition.cuts(source, target) for partition in self._partitions)

    def message_delay(self, source: str, target: str) -> float | None:
        """Return the delay of one message in seconds; None when the message is lost."""
        low, high = self._latency_s
        delay = low if high == low else low + (high - low) * self._runtime.rng.random()  # uniform(), without its call
        for rule in self._rules:
            if matches(rule.source, source) and matches(rule.target, target) and self._hits(rule.probability):
                if rule.is_lost:
                    return None
                delay += rule.delay_s
                if rule.jitter_s:
                    delay += self._runtime.rng.uniform(0.0, rule.jitter_s)
        return delay

    def repeats(self, source: str, target: str) -> bool:
        """Return True if a message that is sent now arrives twice."""
        return any(
            rule.is_repeated
            and matches(rule.source, source)
            and matches(rule.target, target)
            and self._hits(rule.probability)
            for rule in self._rules
        )

    def _hits(self, probability: float) -> bool:
        return probability >= 1.0 or self._runtime.rng.random() < probability

    def describe(self) -> dict[str, object]:
        """Return the faults in force, for JSON."""
        return {
            "latency_s": list(self._latency_s),
            "partitions": [[cut.one, cut.other] for cut in self._partitions if not cut.is_one_way],
            "one_way_partitions": [[cut.one, cut.other] for cut in self._partitions if cut.is_one_way],
            "rules": [
                {
                    "from": rule.source,
                    "to": rule.target,
                    "lost": rule.is_lost,
                    "delay_s": rule.delay_s,
                    "jitter_s": rule.jitter_s,
                    "repeated": rule.is_repeated,
                }
                for rule in self._rules
            ],
        }

    # -- waiting -----------------------------------------------------------------------------------------------

    def announce(self) -> None:
        """Notify all callers that wait for a change."""
        with self.changed:
            self.changed.notify_all()

    def wait_until(self, holds: Callable[[], bool], deadline: float | None) -> bool:
        """Wait for a claim that only announced changes can make true; False at the deadline."""
        with self.changed:
            while not holds():
                if not self.changed.wait(deadline):
                    return holds()
            return True
