"""Writers that count: an increment that is acknowledged counts once, one that is not counts once or not at all."""

from __future__ import annotations

from metaclient.model import Row
from metaclient_fake.simulation.workloads.base import Workload

__all__ = ["COLUMN", "Counters"]

TABLE = "t"
COLUMN = b"f:n"


class Counters(Workload):
    """Increments counters, and sometimes reads them."""

    kind = "counters"

    def step(self) -> None:
        row = self.dice.choice(self.world.counters)
        if self.dice.random() < 0.2:
            self._look(row)
            return
        operation = self.begin("increment", TABLE, row)
        operation.is_write = True
        operation.value = self.tried(operation, lambda: self.table(TABLE).counter_inc(row, COLUMN))

    def _look(self, row: bytes) -> None:
        operation = self.begin("counter_get", TABLE, row)
        found: Row | None = self.read(operation, lambda: self.table(TABLE).row(row), COLUMN)
        if found is not None:
            operation.value = int.from_bytes(found.get(COLUMN, b""), "big")
