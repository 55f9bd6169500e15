"""A client that creates tables, uses them and drops them, and a second connection whose cache may have old tables.

Each table of a name has values of its own. After a table was created again, no read may return a value of the table
before; after it was dropped, no read may succeed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from metaclient.connection import Connection, connect_to
from metaclient_fake.simulation.history import Operation, Status
from metaclient_fake.simulation.observed import ObservedBackend
from metaclient_fake.simulation.spec import ClientSpec
from metaclient_fake.simulation.workloads.base import Workload

if TYPE_CHECKING:
    from metaclient_fake.simulation.world import World

__all__ = ["COLUMN", "Tables"]

COLUMN = b"f:v"
_ROWS = (b"1", b"5", b"9")
_SPLITS = (b"4", b"7")


class Tables(Workload):
    """Creates, uses and drops one table per step; the name is used again unless the outcome of its drop is unknown."""

    kind = "tables"

    def __init__(self, world: World, spec: ClientSpec) -> None:
        super().__init__(world, spec)
        self._name = self._new_name()
        self._bystander_backend = ObservedBackend(world.cluster, f"{self.name}-2", world.report)
        self.bystander: Connection = connect_to(
            self._bystander_backend,
            runtime=world.runtime,
            owns_backend=True,
            owns_runtime=False,
            **spec.options,  # type: ignore[arg-type]  # options of connect, by name
        )

    def was_misled(self, operation: Operation) -> bool:
        return super().was_misled(operation) or operation.number in self._bystander_backend.zombie_operations

    def _new_name(self) -> str:
        self.count += 1
        return f"x{self.spec.number}-{self.count}"

    def step(self) -> None:
        name, life = self._name, self.fresh_value()
        done = self._create(name) and self._use(name, life) and self._drop(name)
        if done:
            self._read(name, b"", self.bystander)
        else:
            self._name = self._new_name()  # the state of the old table is unknown

    def _create(self, name: str) -> bool:
        operation = self.begin("create", name)
        operation.is_write = True
        splits = _SPLITS[: self.dice.randrange(3)]
        copies = self.world.spec.copies
        create = self.connection.create_table
        self.tried(operation, lambda: create(name, {"f": {}}, splits=splits, region_replication=copies))
        return operation.outcome is Status.OK

    def _use(self, name: str, life: bytes) -> bool:
        """Write a row, read it with both connections; False when a write is in doubt."""
        for row in _ROWS:
            operation = self.begin("table_put", name, row)
            operation.is_write = True
            operation.argument = life
            self.tried(operation, lambda row=row: self.table(name).put(row, {COLUMN: life}))  # type: ignore[misc]  # typed by its default
            if operation.outcome is Status.UNKNOWN:
                return False
            self._read(name, row, self.connection)
        self._read(name, self.dice.choice(_ROWS), self.bystander)
        return True

    def _read(self, name: str, row: bytes, connection: Connection) -> None:
        row = row or self.dice.choice(_ROWS)
        operation = self.begin("table_get", name, row)
        self._bystander_backend.operation = operation.number
        self.read(operation, lambda: connection.table(name).row(row), COLUMN)

    def _drop(self, name: str) -> bool:
        operation = self.begin("drop", name)
        operation.is_write = True
        self.tried(operation, lambda: self.connection.delete_table(name, disable=True))
        return operation.outcome is Status.OK
