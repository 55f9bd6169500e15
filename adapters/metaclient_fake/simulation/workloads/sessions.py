"""Clients that read and write registers in sessions, a few rows at a time, and carry sessions on by tokens.

A client works with two registers for a while, so that its reads follow its own writes and earlier reads of the same
rows. Now and then it continues its session from a token, as another process would, or starts a new session.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from metaclient.errors import MetaClientError
from metaclient.model import Row
from metaclient.session import Session, SessionTable
from metaclient_fake.simulation.history import Operation
from metaclient_fake.simulation.spec import ClientSpec
from metaclient_fake.simulation.workloads.registers import COLUMN, TABLE, Registers

if TYPE_CHECKING:
    from metaclient_fake.simulation.world import World

__all__ = ["SessionReads"]


class SessionReads(Registers):
    """Puts, and reads by replicas, of one session after the other."""

    kind = "sessions"

    def __init__(self, world: World, spec: ClientSpec) -> None:
        super().__init__(world, spec)
        self._number = 0
        self.session: Session = self.connection.session()
        self._rows = list(world.registers[:2])

    def table(self, name: str) -> SessionTable:
        return self.session.table(name)

    def begin(self, kind: str, table: str = "", row: bytes = b"", *, of: Operation | None = None) -> Operation:
        operation = super().begin(kind, table, row, of=of)
        operation.session = f"{self.name}/{self._number}"
        return operation

    def step(self) -> None:
        turn = self.dice.random()
        if turn < 0.1:
            self._rows = self._some_rows()[:2]
        elif turn < 0.15:
            self.session = self.connection.session(token=self.session.token())
        elif turn < 0.2:
            self.session = self.connection.session()
            self._number += 1
        row = self.dice.choice(self._rows)
        turn = self.dice.random()
        if turn < 0.35:
            self._put(row)
        elif turn < 0.45:
            self._batch(self._rows)
        elif turn < 0.5 and self.world.spec.has_deletes:
            self._delete(row)
        elif turn < 0.6:
            self._scan()
        elif turn < 0.7:
            self._multi_get(self._rows)
        for _ in range(1 + self.dice.randrange(3)):
            operation = self.begin("timeline_get", TABLE, row)
            self.read(operation, lambda: self.table(TABLE).row(row), COLUMN)

    def _multi_get(self, rows: list[bytes]) -> None:
        operations = self.begin_all("timeline_rows", TABLE, rows)
        try:
            found = dict(self.table(TABLE).rows(list(operations)))
        except MetaClientError as error:
            self.ended(operations.values(), error)
            return
        self.ended(operations.values())
        for row, operation in operations.items():
            if row in found:
                self.saw(operation, found[row], COLUMN)
            else:
                operation.kind = "timeline_missing"  # a missing row does not name the replica that answered

    def _scan(self) -> None:
        operations = self.begin_all("session_scan", TABLE, self._rows)
        found: dict[bytes, Row] = {}
        try:
            for row, cells in self.table(TABLE).scan(min(self._rows), max(self._rows) + b"\0"):
                if row in operations and isinstance(cells, Row):
                    found[row] = cells
        except MetaClientError as error:
            self.ended(operations.values(), error)
            return
        self.ended(operations.values())
        for row, cells in found.items():
            self.saw(operations[row], cells, COLUMN)
