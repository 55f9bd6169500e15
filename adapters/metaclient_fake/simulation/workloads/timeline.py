"""Readers that accept stale data: TIMELINE gets, hedged or at one replica, and TIMELINE multi-gets."""

from __future__ import annotations

from metaclient.errors import MetaClientError
from metaclient_fake.simulation.workloads.base import Workload
from metaclient_fake.simulation.workloads.registers import COLUMN, TABLE

__all__ = ["Timeline"]


class Timeline(Workload):
    """Reads registers at any replica, or at a given one."""

    kind = "timeline"

    def step(self) -> None:
        turn = self.dice.random()
        row = self.dice.choice(self.world.registers)
        if turn < 0.6:
            call = self.table(TABLE).row
            self.read(self.begin("timeline_get", TABLE, row), lambda: call(row, consistency="TIMELINE"), COLUMN)
        elif turn < 0.85:
            self._at_replica(row, self.dice.randrange(max(1, self.world.spec.copies)))
        else:
            self._multi_get()

    def _at_replica(self, row: bytes, replica_id: int) -> None:
        operation = self.begin("replica_get", TABLE, row)
        operation.expected = replica_id
        call = self.table(TABLE).row
        self.read(operation, lambda: call(row, consistency="TIMELINE", replica_id=replica_id), COLUMN)

    def _multi_get(self) -> None:
        start = self.dice.randrange(len(self.world.registers))
        rows = [self.world.registers[(start + n) % len(self.world.registers)] for n in range(4)]
        operations = self.begin_all("timeline_rows", TABLE, rows)
        try:
            found = dict(self.table(TABLE).rows(rows, consistency="TIMELINE"))
        except MetaClientError as error:
            self.ended(operations.values(), error)
            return
        self.ended(operations.values())
        for row, operation in operations.items():
            if row in found:
                self.saw(operation, found[row], COLUMN)
            else:
                operation.kind = "timeline_missing"  # a missing row does not name the replica that answered
