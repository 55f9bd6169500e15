"""The simulation of clusters that replicate to each other: two or three of them on one network and one virtual clock.

    report = run(drawn(seed=7))
    report.is_good, report.digest

These seeds are a kind of their own, beside those of one cluster: :mod:`spec` draws topology, settings, writers and
faults, :mod:`trial` runs them (:mod:`world`), :mod:`checkers` decides what was broken, :mod:`defects` plants bugs.
``metaclient sim run --clusters`` is the command.
"""

from __future__ import annotations

from metaclient_fake.simulation.clusters.spec import ClustersSpec, drawn
from metaclient_fake.simulation.clusters.trial import run

__all__ = ["ClustersSpec", "drawn", "run"]
