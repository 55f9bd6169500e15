"""The workloads of the simulated clients: one module per kind, one class per client (see ``base.Workload``)."""

from __future__ import annotations

from metaclient_fake.simulation.workloads.base import Workload
from metaclient_fake.simulation.workloads.bounded import Bounded
from metaclient_fake.simulation.workloads.canary import Canary
from metaclient_fake.simulation.workloads.cells import Cells
from metaclient_fake.simulation.workloads.counters import Counters
from metaclient_fake.simulation.workloads.cycle import Cycle
from metaclient_fake.simulation.workloads.inserts import Inserts
from metaclient_fake.simulation.workloads.registers import Registers
from metaclient_fake.simulation.workloads.scans import Scans
from metaclient_fake.simulation.workloads.sessions import SessionReads
from metaclient_fake.simulation.workloads.storm import Storm
from metaclient_fake.simulation.workloads.tables import Tables
from metaclient_fake.simulation.workloads.timeline import Timeline

__all__ = ["WORKLOADS", "Workload"]

#: The workload classes by their names in ``spec.MIX`` and ``spec.LIMITED``.
WORKLOADS: dict[str, type[Workload]] = {
    made.kind: made
    for made in (
        Registers,
        Timeline,
        Scans,
        Inserts,
        Cells,
        Counters,
        Cycle,
        Tables,
        Storm,
        Bounded,
        Canary,
        SessionReads,
    )
}
