"""Writers that add rows and never touch them again: what was acknowledged must be there at the end, and at once.

After a row was acknowledged, its writer sometimes reads it back, or reads an older row.
"""

from __future__ import annotations

from metaclient.errors import BatchError, MetaClientError
from metaclient_fake.simulation.history import Operation, Status
from metaclient_fake.simulation.workloads.base import Workload

__all__ = ["Inserts"]

TABLE = "log"
COLUMN = b"f:v"


class Inserts(Workload):
    """Adds rows, one by one or in batches."""

    kind = "inserts"

    def step(self) -> None:
        turn = self.dice.random()
        known = self.world.acknowledged
        if turn < 0.25 and known:
            row = known[self.dice.randrange(len(known))]
            self.read(self.begin("insert_get", TABLE, row), lambda: self.table(TABLE).row(row), COLUMN)
        elif turn < 0.8:
            self._insert(1)
        else:
            self._insert(2 + self.dice.randrange(6))

    def _insert(self, count: int) -> None:
        operations: list[Operation] = []
        for _ in range(count):
            value = self.fresh_value()
            row = b"%d-%s" % (self.dice.randrange(10), value)
            operation = self.begin("insert", TABLE, row, of=operations[0] if operations else None)
            operation.is_write = True
            operation.argument = value
            operations.append(operation)
        if count == 1:
            only = operations[0]
            self.tried(only, lambda: self.table(TABLE).put(only.row, {COLUMN: value}))
        else:
            self._send(operations)
        self.world.acknowledged += [one.row for one in operations if one.outcome is Status.OK]

    def _send(self, operations: list[Operation]) -> None:
        batch = self.table(TABLE).batch()
        for operation in operations:
            assert isinstance(operation.argument, bytes), "as _insert wrote it"
            batch.put(operation.row, {COLUMN: operation.argument})
        try:
            batch.send()
        except BatchError as error:
            for operation in operations:
                self.ended([operation], error.failed.get(operation.row))
        except MetaClientError as error:
            self.ended(operations, error)
        else:
            self.ended(operations)
