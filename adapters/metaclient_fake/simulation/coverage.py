"""Stores which kinds of faults and which transitions of state machines a run has covered, and lists the others.

During a run, the methods that change the state of each machine are wrapped, to record its transitions. Transitions that
the machines' tables allow and no run has recorded are not covered.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Any
from unittest.mock import patch

from metaclient.meta.health import HealthState, ReplicaHealth
from metaclient_fake.master import region_states
from metaclient_fake.master.region_states import RegionNode
from metaclient_fake.region_replication import replica_queue
from metaclient_fake.region_replication.read_gate import GateState, ReadGate
from metaclient_fake.region_replication.replica_queue import ReplicaQueue
from metaclient_fake.server import region_server
from metaclient_fake.server.region_server import RegionServer
from metaclient_fake.simulation.injector import Struck
from metaclient_fake.simulation.schedule import KINDS

__all__ = ["Coverage", "known_transitions", "watching"]

Transition = tuple[str, str, str]

_GATE = {
    GateState.WAITING: (GateState.STARTED, GateState.OPEN),
    GateState.STARTED: (GateState.OPEN,),
}
_HEALTH = {
    HealthState.HEALTHY: (HealthState.DOUBTED, HealthState.EJECTED),
    HealthState.DOUBTED: (HealthState.HEALTHY, HealthState.EJECTED),
    HealthState.EJECTED: (HealthState.HEALTHY,),
}


def known_transitions() -> list[Transition]:
    """Return all transitions that the machines allow: (machine, from, to)."""
    tables: Mapping[str, Mapping[Any, Any]] = {
        "server": region_server._TRANSITIONS,
        "region": region_states._TRANSITIONS,
        "replica queue": replica_queue._TRANSITIONS,
        "read gate": _GATE,
        "meta replica health": _HEALTH,
    }
    return sorted(
        (machine, before.value, after.value)
        for machine, table in tables.items()
        for before, following in table.items()
        for after in following
        if before is not after
    )


@dataclass(slots=True)
class Coverage:
    """How often each kind of fault was applied or refused, and how often each transition was recorded."""

    faults: Counter[str] = field(default_factory=Counter)
    refused: Counter[str] = field(default_factory=Counter)
    transitions: Counter[Transition] = field(default_factory=Counter)
    kinds: tuple[str, ...] = tuple(KINDS)  # of the faults that could have been injected

    def add(self, other: Coverage) -> None:
        self.kinds = other.kinds
        self.faults.update(other.faults)
        self.refused.update(other.refused)
        self.transitions.update(other.transitions)

    def faults_never_tried(self) -> list[str]:
        return [kind for kind in self.kinds if not self.faults[kind]]

    def transitions_never_seen(self) -> list[Transition]:
        return [transition for transition in known_transitions() if not self.transitions[transition]]

    def as_json(self) -> dict[str, object]:
        return {
            "faults": {kind: {"struck": self.faults[kind], "refused": self.refused[kind]} for kind in self.kinds},
            "faults_never_tried": self.faults_never_tried(),
            "transitions": [
                {"machine": machine, "from": before, "to": after, "seen": self.transitions[machine, before, after]}
                for machine, before, after in known_transitions()
            ],
            "transitions_never_seen": [list(transition) for transition in self.transitions_never_seen()],
        }


class _Watch:
    """Collects during one run."""

    def __init__(self) -> None:
        self._transitions: Counter[tuple[str, Any, Any]] = Counter()  # with the states themselves
        self._faults: Counter[str] = Counter()
        self._refused: Counter[str] = Counter()

    def saw(self, machine: str, before: Any, after: Any) -> None:
        if before is not after:
            self._transitions[machine, before, after] += 1

    def struck(self, struck: Struck) -> None:
        (self._refused if struck.refusal else self._faults)[struck.fault.kind] += 1

    def coverage(self, kinds: Iterable[str] = KINDS) -> Coverage:
        named = {(machine, old.value, new.value): seen for (machine, old, new), seen in self._transitions.items()}
        return Coverage(self._faults, self._refused, Counter(named), tuple(kinds))


@contextmanager
def watching() -> Iterator[_Watch]:
    """Record all transitions in this process until the end of the block."""
    watch = _Watch()
    with ExitStack() as patches:
        for owner, method, machine in (
            (RegionServer, "_become", "server"),
            (RegionNode, "become", "region"),
            (ReplicaQueue, "become", "replica queue"),
            (ReadGate, "observe", "read gate"),
        ):
            wrapped = _wrapped(getattr(owner, method), machine, watch)
            patches.enter_context(patch.object(owner, method, wrapped))
        for method in ("after_success", "after_failure"):
            value = _wrapped_value(getattr(ReplicaHealth, method), "meta replica health", watch)
            patches.enter_context(patch.object(ReplicaHealth, method, value))
        yield watch


def _wrapped(method: Callable[..., Any], machine: str, watch: _Watch) -> Callable[..., Any]:
    def become(self: Any, *arguments: Any, **options: Any) -> Any:
        before = self.state
        answer = method(self, *arguments, **options)
        watch.saw(machine, before, self.state)
        return answer

    return become


def _wrapped_value(method: Callable[..., Any], machine: str, watch: _Watch) -> Callable[..., Any]:
    """Record the transitions of a machine that is a value: the function returns its next state."""

    def become(self: Any, *arguments: Any, **options: Any) -> Any:
        after = method(self, *arguments, **options)
        watch.saw(machine, self.state, after.state)
        return after

    return become
