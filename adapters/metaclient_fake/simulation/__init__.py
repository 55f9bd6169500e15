"""The deterministic simulation: client, cluster and faults on virtual time, all of it decided by a seed.

    report = run(drawn(seed=7))
    report.is_good, report.digest

A seed is a spec (:mod:`spec`: cluster, clients, faults). The spec is run (:mod:`trial`, :mod:`world`), and checkers
outside of the system verify the recorded operations (:mod:`checkers`). ``docs/simulation.md`` explains how to read a
failure, and how to add a workload, a checker or a planted bug. ``metaclient sim`` is the command.
"""

from __future__ import annotations

from metaclient_fake.simulation.spec import Spec, drawn
from metaclient_fake.simulation.trial import Report, run

__all__ = ["Report", "Spec", "drawn", "run"]
