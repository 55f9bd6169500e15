"""Decides which party reaches which: latency, partitions; lost, delayed, reordered and repeated messages.

A party is a name: a server's host (``rs1``), ``master``, ``registry``, ``client`` or ``client/NAME``. The parties of a
cluster with a name carry it in front: ``west/rs1``, ``west/client/NAME``. A pattern is a party, a group (``client``
stands for every ``client/...``, ``west`` for every ``west/...``) or ``*``. Faults are symmetric only where they say so:
a partition cuts both ways unless it is said to be one-way, a rule for messages goes one way.

Several clusters can share one network. Each has its own :class:`Network` object, made with ``shared_with=``: faults set
at any of them hold for all, and each is closed alone. A call uses the object of its caller's cluster, with its latency.

The network also owns the one condition on which callers wait (:attr:`Network.changed`): it is notified at every change
of a fault or of a server's state, so that no caller polls.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol

from metaclient.errors import ConfigError
from metaclient.runtime import Condition, Runtime

__all__ = [
    "CLIENT",
    "EVERYBODY",
    "MASTER",
    "REGISTRY",
    "Member",
    "MessageRule",
    "Network",
    "Partition",
    "matches",
    "party_of",
]

EVERYBODY = "*"
MASTER = "master"
REGISTRY = "registry"
CLIENT = "client"


def matches(pattern: str, party: str) -> bool:
    """Return True if the pattern stands for this party.

    >>> matches("client", "client/7"), matches("*", "rs1"), matches("rs1", "rs11")
    (True, True, False)
    """
    return pattern in (EVERYBODY, party) or party.startswith(pattern + "/")


def party_of(cluster: str, name: str) -> str:
    """Return the name on the network of a party of a cluster.

    >>> party_of("west", "rs1"), party_of("", "rs1")
    ('west/rs1', 'rs1')
    """
    return f"{cluster}/{name}" if cluster else name


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


class Member(Protocol):
    """A cluster of the network."""

    @property
    def name(self) -> str: ...

    @property
    def cluster_key(self) -> str: ...

    @property
    def cluster_id(self) -> str: ...

    def party_named(self, name: str) -> str:
        """Return a party of this cluster by its name inside of it; RequestRefused names the nearest known one."""
        ...


@dataclass(slots=True, eq=False)
class _Shared:
    """What the networks of several clusters have in common. Guarded by ``changed``."""

    changed: Condition
    #: True if the last cluster that leaves the network closes the runtime.
    owns_runtime: bool
    partitions: tuple[Partition, ...] = ()
    rules: tuple[MessageRule, ...] = ()
    networks: tuple[Network, ...] = ()
    members: dict[str, Member] = field(default_factory=dict)


class Network:
    """The wires of one cluster. Reading is lock-free (snapshots are replaced); changing goes under :attr:`changed`."""

    def __init__(
        self,
        runtime: Runtime,
        latency_s_min: float,
        latency_s_max: float,
        *,
        name: str = "",
        shared_with: Network | None = None,
        owns_runtime: bool = False,
    ) -> None:
        self.runtime = runtime
        #: The name of the cluster; without one, its parties have no prefix.
        self.name = name
        self._latency_s = (latency_s_min, max(latency_s_min, latency_s_max))
        self._listeners: list[Callable[[], None]] = []
        self._shared: _Shared = (
            _Shared(runtime.condition(), owns_runtime) if shared_with is None else shared_with._shared
        )
        self.changed = self._shared.changed
        self.is_closed = False
        self._cluster_key = ""
        if shared_with is None:
            self._add()
        else:
            with self.changed:
                self._add()

    def _add(self) -> None:
        if any(other.name == self.name for other in self._shared.networks):
            shown = f"named {self.name!r}" if self.name else "without a name"
            raise ConfigError(f"the network has a cluster {shown} already: give this one another name (name=...)")
        self._shared.networks += (self,)
        self._take_faults()

    def _take_faults(self) -> None:
        """Copy the faults into attributes of this object: every message reads them."""
        self._partitions, self._rules = self._shared.partitions, self._shared.rules
        #: Each message asks these before it asks whether it is concerned.
        self.has_partitions, self.has_rules = bool(self._partitions), bool(self._rules)
        has_faults = self.has_partitions or self.has_rules
        self.is_quiet = not has_faults and self._latency_s[1] == 0.0 and not self.is_closed

    def on_change(self, listener: Callable[[], None]) -> None:
        """Call it after every change of the faults (servers keep a flag for their fast path)."""
        self._listeners.append(listener)

    def party(self, name: str) -> str:
        """Return the name on the network of a party of this cluster."""
        return party_of(self.name, name)

    # -- clusters ----------------------------------------------------------------------------------------------

    def join(self, cluster: Member) -> None:
        """Make the cluster of this object known to the others, under its cluster key."""
        self._cluster_key = cluster.cluster_key
        self._shared.members[cluster.cluster_key] = cluster

    def cluster(self, key: str) -> Member | None:
        """Return the open cluster with this cluster key (``west:2181:/hbase``); None if the network has none."""
        return self._shared.members.get(key)

    def clusters(self) -> tuple[Member, ...]:
        """Return the open clusters of the network, in the order in which they joined it."""
        return tuple(self._shared.members.values())

    # -- faults ------------------------------------------------------------------------------------------------

    def partition(self, one: str, other: str, *, is_one_way: bool = False) -> Partition:
        """Cut the wire between two; what this returns can be mended alone, ``heal`` mends all."""
        made = Partition(one, other, is_one_way)
        self._swap(partitions=lambda old: (*old, made))
        return made

    def mend(self, partition: Partition) -> None:
        self._swap(partitions=lambda old: tuple(kept for kept in old if kept is not partition))

    def add_rule(self, rule: MessageRule) -> None:
        self._swap(rules=lambda old: (*old, rule))

    def remove_rule(self, rule: MessageRule) -> None:
        self._swap(rules=lambda old: tuple(kept for kept in old if kept is not rule))

    def heal(self) -> None:
        """Forget all partitions and rules, of all clusters; calls that wait for the other side go on."""
        self._swap(partitions=lambda _: (), rules=lambda _: ())

    def close(self) -> bool:
        """Leave the network: calls of this cluster end. Return True if its runtime is to be closed, too.

        That is so if the network owns the runtime and no other cluster uses the network.
        """
        shared = self._shared
        with self.changed:
            self.is_closed = True
            self.is_quiet = False  # no call takes the direct path any more
            shared.members.pop(self._cluster_key, None)
            shared.networks = tuple(other for other in shared.networks if other is not self)
            closes_runtime = shared.owns_runtime and not shared.networks
            self.changed.notify_all()
        self._call_listeners()
        return closes_runtime

    def _swap(
        self,
        *,
        partitions: Callable[[tuple[Partition, ...]], tuple[Partition, ...]] | None = None,
        rules: Callable[[tuple[MessageRule, ...]], tuple[MessageRule, ...]] | None = None,
    ) -> None:
        shared = self._shared
        with self.changed:
            if partitions is not None:
                shared.partitions = partitions(shared.partitions)
            if rules is not None:
                shared.rules = rules(shared.rules)
            networks = shared.networks
            for network in networks:
                network._take_faults()
        for network in networks:
            network._call_listeners()
        self.announce()

    def _call_listeners(self) -> None:
        for listener in self._listeners:
            listener()

    # -- questions ---------------------------------------------------------------------------------------------

    def is_cut(self, source: str, target: str) -> bool:
        """Return True if a partition holds messages from ``source`` to ``target``."""
        return self.has_partitions and any(partition.cuts(source, target) for partition in self._partitions)

    def message_delay(self, source: str, target: str) -> float | None:
        """Return the delay of one message in seconds; None when the message is lost."""
        low, high = self._latency_s
        delay = low if high == low else low + (high - low) * self.runtime.rng.random()  # uniform(), without its call
        for rule in self._rules:
            if matches(rule.source, source) and matches(rule.target, target) and self._hits(rule.probability):
                if rule.is_lost:
                    return None
                delay += rule.delay_s
                if rule.jitter_s:
                    delay += self.runtime.rng.uniform(0.0, rule.jitter_s)
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
        return probability >= 1.0 or self.runtime.rng.random() < probability

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
