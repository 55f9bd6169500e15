"""Readers and writers of single cells: put, get, delete, batches and multi-gets, all STRONG.

Each register is one column of one row. Writers bring their own timestamps, one counter for the whole run, so that a put
that is repeated or arrives late never hides a later one (see ``spec``); with them each row must behave as one register
(:mod:`metaclient_fake.simulation.checkers.linearizability`).
"""

from __future__ import annotations

from metaclient.errors import BatchError, MetaClientError
from metaclient_fake.simulation.history import Operation
from metaclient_fake.simulation.workloads.base import Workload

__all__ = ["COLUMN", "Registers"]

COLUMN = b"f:v"
TABLE = "t"
_BATCH_ROWS_MAX = 4


class Registers(Workload):
    """Puts and gets single registers, and sometimes several at once."""

    kind = "registers"

    def step(self) -> None:
        turn = self.dice.random()
        row = self.dice.choice(self.world.registers)
        if turn < 0.40:
            self._put(row)
        elif turn < 0.75:
            self.read(self.begin("get", TABLE, row), lambda: self.table(TABLE).row(row), COLUMN)
        elif turn < 0.85:
            self._batch(self._some_rows())
        elif turn < 0.95 or not self.world.spec.has_deletes:
            self._multi_get(self._some_rows())
        else:
            self._delete(row)

    def _some_rows(self) -> list[bytes]:
        count = 2 + self.dice.randrange(_BATCH_ROWS_MAX - 1)
        start = self.dice.randrange(len(self.world.registers))
        return [self.world.registers[(start + 3 * n) % len(self.world.registers)] for n in range(count)]

    def _writes(self, operation: Operation, value: bytes | None, timestamp: int) -> Operation:
        operation.is_write = True
        operation.argument = value
        operation.timestamp = timestamp
        return operation

    def _put(self, row: bytes) -> None:
        value, timestamp = self.fresh_value(), self.world.next_timestamp()
        operation = self._writes(self.begin("put", TABLE, row), value, timestamp)
        self.tried(operation, lambda: self.table(TABLE).put(row, {COLUMN: value}, timestamp=timestamp))

    def _delete(self, row: bytes) -> None:
        timestamp = self.world.next_timestamp()
        operation = self._writes(self.begin("delete", TABLE, row), None, timestamp)
        self.tried(operation, lambda: self.table(TABLE).delete(row, [COLUMN], timestamp=timestamp))

    def _batch(self, rows: list[bytes]) -> None:
        timestamp = self.world.next_timestamp()
        operations = self.begin_all("put", TABLE, rows)
        batch = self.table(TABLE).batch(timestamp=timestamp)
        for row, operation in operations.items():
            value = self.fresh_value()
            self._writes(operation, value, timestamp)
            batch.put(row, {COLUMN: value})
        try:
            batch.send()
        except BatchError as error:
            for row, operation in operations.items():
                failed = error.failed.get(row)
                self.ended([operation], failed)
        except MetaClientError as error:
            self.ended(operations.values(), error)
        else:
            self.ended(operations.values())

    def _multi_get(self, rows: list[bytes]) -> None:
        operations = self.begin_all("get", TABLE, rows)
        try:
            found = dict(self.table(TABLE).rows(list(operations)))
        except MetaClientError as error:
            self.ended(operations.values(), error)
            return
        self.ended(operations.values())
        for row, operation in operations.items():
            if row in found:
                self.saw(operation, found[row], COLUMN)
