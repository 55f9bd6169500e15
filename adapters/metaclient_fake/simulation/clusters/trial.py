"""Runs one seed of several clusters, from the start of the clusters to the last checker, and returns a report."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import islice

from metaclient.errors import MetaClientError
from metaclient.runtime import SimDeadlock
from metaclient_fake.simulation import coverage
from metaclient_fake.simulation.clusters.checkers import CLUSTERS_CHECKERS, check_leaks
from metaclient_fake.simulation.clusters.defects import CLUSTERS_DEFECTS
from metaclient_fake.simulation.clusters.faults import LINK_KINDS, SIDE_KINDS
from metaclient_fake.simulation.clusters.shipments import Shipments
from metaclient_fake.simulation.clusters.spec import ClustersSpec
from metaclient_fake.simulation.clusters.world import ClustersWorld
from metaclient_fake.simulation.defects import planted
from metaclient_fake.simulation.lines import preempting
from metaclient_fake.simulation.trial import Report, silenced
from metaclient_fake.simulation.world import Violation

__all__ = ["run"]

#: The number of violations that a checker reports: the first ones are the most useful.
_REPORTS_MAX = 5


def run(spec: ClustersSpec, *, keep: list[ClustersWorld] | None = None) -> Report[ClustersSpec]:
    """Run a spec; the world is added to ``keep``, for example to draw it."""
    shipments = Shipments()
    with (
        silenced(),
        planted(spec.defect, CLUSTERS_DEFECTS),
        shipments.watching(),
        coverage.watching() as watch,
    ):
        world = ClustersWorld(spec, shipments)
        if keep is not None:
            keep.append(world)
        try:
            with world.watching_tasks(), preempting(world.runtime, spec.lines, world.pauses):
                _live(world)
        finally:
            digest = world.history.digest([world.runtime.digest(), *map(str, world.violations)])
            world.close_clusters()
    for struck in world.injector.struck:
        watch.struck(struck)
    operations = sum(writer.calls for writer in world.clients)
    return Report(
        spec, tuple(world.violations), digest, world.active_s, operations, watch.coverage((*SIDE_KINDS, *LINK_KINDS))
    )


def _live(world: ClustersWorld) -> None:
    try:
        world.runtime.run(world.run)
        world.runtime.run(world.calm_down)
        for checker in CLUSTERS_CHECKERS.values():
            _check(world, checker)
        world.runtime.run(world.close)
        _check(world, check_leaks)
    except SimDeadlock as deadlock:
        world.report("crash", f"everybody waits for ever: {deadlock}")
    except MetaClientError as error:
        world.report("crash", f"the run broke off: {type(error).__name__}: {error}")


def _check(world: ClustersWorld, checker: Callable[[ClustersWorld], Iterator[Violation]]) -> None:
    world.runtime.run(lambda: world.violations.extend(islice(checker(world), _REPORTS_MAX)))
