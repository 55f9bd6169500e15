"""What the simulated clients do: one module for each habit, one class a client (see ``base.Workload``)."""

from __future__ import annotations

from adapters.fake.simulation.workloads.base import Workload
from adapters.fake.simulation.workloads.cells import Cells
from adapters.fake.simulation.workloads.counters import Counters
from adapters.fake.simulation.workloads.cycle import Cycle
from adapters.fake.simulation.workloads.inserts import Inserts
from adapters.fake.simulation.workloads.registers import Registers
from adapters.fake.simulation.workloads.scans import Scans
from adapters.fake.simulation.workloads.storm import Storm
from adapters.fake.simulation.workloads.tables import Tables
from adapters.fake.simulation.workloads.timeline import Timeline

__all__ = ["WORKLOADS", "Workload"]

#: By the name that ``spec.MIX`` knows them by.
WORKLOADS: dict[str, type[Workload]] = {
    made.kind: made for made in (Registers, Timeline, Scans, Inserts, Cells, Counters, Cycle, Tables, Storm)
}
