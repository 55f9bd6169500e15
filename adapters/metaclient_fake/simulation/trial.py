"""Runs one seed, from the start of the cluster to the last checker, and returns a report."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

from metaclient.errors import MetaClientError
from metaclient.runtime import SimDeadlock
from metaclient_fake.simulation import coverage, defects
from metaclient_fake.simulation.calm import calm_down
from metaclient_fake.simulation.checkers import AFTER_CLOSE, CHECKERS, Checker
from metaclient_fake.simulation.coverage import Coverage
from metaclient_fake.simulation.lines import preempting
from metaclient_fake.simulation.spec import Spec
from metaclient_fake.simulation.world import Violation, World

__all__ = ["Report", "run", "silenced"]


class AnySpec(Protocol):
    """The part of a spec that a report shows."""

    @property
    def seed(self) -> int: ...

    @property
    def replay_line(self) -> str: ...


S_co = TypeVar("S_co", bound=AnySpec, covariant=True)


@dataclass(frozen=True, slots=True)
class Report(Generic[S_co]):
    """One run: its spec, what was broken, its digest, and how much was done.

    ``simulated_s`` is the time in which the clients worked: what is set up before and waited for after is not counted.
    """

    spec: S_co
    violations: tuple[Violation, ...]
    digest: str
    simulated_s: float
    operations: int
    coverage: Coverage

    @property
    def is_good(self) -> bool:
        return not self.violations

    def as_json(self) -> dict[str, object]:
        return {
            "seed": self.spec.seed,
            "good": self.is_good,
            "violations": [
                {"checker": one.checker, "message": one.message, "at_s": round(one.at_s, 6)} for one in self.violations
            ],
            "digest": self.digest,
            "simulated_s": round(self.simulated_s, 3),
            "operations": self.operations,
            "replay": self.spec.replay_line,
        }


def run(spec: Spec, *, keep: list[World] | None = None) -> Report[Spec]:
    """Run a spec. ``keep`` is called with the world, for example to draw it."""
    with silenced(), defects.planted(spec.defect), coverage.watching() as watch:
        world = World(spec)
        if keep is not None:
            keep.append(world)
        try:
            with world.watching_tasks(), preempting(world.runtime, spec.lines, world.pauses):
                _live(world)
        finally:
            digest = world.history.digest([world.runtime.digest(), *map(str, world.violations)])
            world.cluster.close()
            world.runtime.close()
    for struck in world.injector.struck:
        watch.struck(struck)
    operations = sum(client.calls for client in world.clients)
    return Report(spec, tuple(world.violations), digest, world.active_s, operations, watch.coverage())


def _live(world: World) -> None:
    try:
        world.runtime.run(world.run)
        world.runtime.run(calm_down, world)
        _check(world, CHECKERS)
        world.runtime.run(world.close)
        _check(world, AFTER_CLOSE)
    except SimDeadlock as deadlock:
        world.report("crash", f"everybody waits for ever: {deadlock}")
    except MetaClientError as error:
        world.report("crash", f"the run broke off: {type(error).__name__}: {error}")


def _check(world: World, checkers: Mapping[str, Checker]) -> None:
    def look() -> None:
        for checker in checkers.values():
            for found in checker(world):
                world.violations.append(found)

    world.runtime.run(look)


@contextmanager
def silenced() -> Iterator[None]:
    """Silence the logs of the cluster: the timeline has the same events."""
    logger = logging.getLogger("metaclient_fake")
    client = logging.getLogger("metaclient")
    before, client_before = logger.disabled, client.level
    levels = logger.level
    logger.setLevel(logging.CRITICAL)
    client.setLevel(logging.CRITICAL)
    try:
        yield
    finally:
        logger.setLevel(levels)
        client.setLevel(client_before)
        logger.disabled = before
