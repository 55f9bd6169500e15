"""Writers that check what they overwrite: check-and-put on values that they have read."""

from __future__ import annotations

from metaclient_fake.simulation.workloads.base import Workload

__all__ = ["COLUMN", "Cells"]

TABLE = "t"
COLUMN = b"f:v"


class Cells(Workload):
    """Reads a cell and replaces it if it is still what was read."""

    kind = "cells"

    def step(self) -> None:
        row = self.dice.choice(self.world.cells)
        known = self.read(self.begin("get", TABLE, row), lambda: self.table(TABLE).row(row), COLUMN)
        if known is None or self.dice.random() < 0.3:
            return
        operation = self.begin("check_and_put", TABLE, row)
        operation.is_write = True
        operation.expected = expected = known.get(COLUMN)
        operation.argument = value = self.fresh_value()
        operation.value = self.tried(
            operation, lambda: self.table(TABLE).check_and_put(row, COLUMN, expected, {COLUMN: value})
        )
