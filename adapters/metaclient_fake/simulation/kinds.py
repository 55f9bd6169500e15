"""Decides which kind of run a seed is: one cluster and its clients, or clusters that replicate to each other."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeAlias

from metaclient_fake.simulation import clusters, spec, trial
from metaclient_fake.simulation.clusters.defects import CLUSTERS_DEFECTS
from metaclient_fake.simulation.clusters.spec import ClustersSpec
from metaclient_fake.simulation.clusters.world import ClustersWorld
from metaclient_fake.simulation.defects import DEFECTS, Defect
from metaclient_fake.simulation.spec import Spec
from metaclient_fake.simulation.trial import Report
from metaclient_fake.simulation.world import World

__all__ = ["SeedSpec", "SeedWorld", "defects_of", "drawn_spec", "run_spec"]

SeedSpec: TypeAlias = Spec | ClustersSpec
SeedWorld: TypeAlias = World | ClustersWorld


def drawn_spec(seed: int, *, duration_s: float, defect: str = "", has_clusters: bool = False) -> SeedSpec:
    """Return the run of a seed of this kind."""
    if has_clusters:
        return clusters.drawn(seed, duration_s=duration_s, defect=defect)
    return spec.drawn(seed, duration_s=duration_s, defect=defect)


def run_spec(wanted: SeedSpec, *, keep: list[Any] | None = None) -> Report[SeedSpec]:
    """Run a spec of either kind; the world is added to ``keep``."""
    if isinstance(wanted, ClustersSpec):
        return clusters.run(wanted, keep=keep)
    return trial.run(wanted, keep=keep)


def defects_of(*, has_clusters: bool) -> Mapping[str, Defect]:
    """Return the bugs that can be planted into runs of this kind."""
    return CLUSTERS_DEFECTS if has_clusters else DEFECTS
