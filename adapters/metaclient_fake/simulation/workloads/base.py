"""Stores one simulated client: its connection, its random source, and its current operation.

A workload does one operation at a time, about one per second, and records each before it begins and after it has ended.
Everything that a call may raise is a ``MetaClientError``: anything else is a bug and ends the run.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, TypeVar

from metaclient.connection import Connection, connect_to
from metaclient.errors import MetaClientError
from metaclient.model import Row
from metaclient.table import Table
from metaclient_fake.simulation.chance import chance
from metaclient_fake.simulation.history import Operation
from metaclient_fake.simulation.observed import ObservedBackend
from metaclient_fake.simulation.spec import ClientSpec

if TYPE_CHECKING:
    from metaclient_fake.simulation.world import World

__all__ = ["Workload"]

T = TypeVar("T")

#: The pause after each operation of a client, in simulated seconds: one second on average.
_PAUSE_S = (0.5, 1.5)


class Workload(ABC):
    """One client; subclasses define what one step does."""

    #: As in ``spec.MIX``.
    kind = ""

    def __init__(self, world: World, spec: ClientSpec) -> None:
        self.world = world
        self.spec = spec
        self.name = spec.name
        self.dice = chance(world.spec.seed, f"client/{spec.number}")
        self.backend = self.made_backend()
        self.connection: Connection = connect_to(
            self.backend,
            runtime=world.runtime,
            owns_backend=True,
            owns_runtime=False,
            **spec.options,  # type: ignore[arg-type]  # options of connect, by name
        )
        self._tables: dict[str, Table] = {}
        self.count = 0
        #: Operations so far; those that were one call count once.
        self.calls = 0

    @abstractmethod
    def step(self) -> None:
        """Do and record one operation, or several in sequence."""

    def run(self) -> None:
        """Run steps until the world ends them."""
        runtime = self.world.runtime
        runtime.sleep(self.dice.random())  # they do not start in step
        while not self.world.is_over:
            before = self.calls
            self.step()
            runtime.sleep(max(1, self.calls - before) * self.dice.uniform(*_PAUSE_S))

    def was_misled(self, operation: Operation) -> bool:
        """Return True if a zombie answered a call of the operation (see ``observed``)."""
        return operation.group in self.backend.zombie_operations

    def has_unproven_lag(self, operation: Operation) -> bool:
        """Return True if nothing proves the ``lag_s`` of this answer, so that it may be wrong."""
        return False

    # -- for subclasses ------------------------------------------------------------------------------------------

    def made_backend(self) -> ObservedBackend:
        """Return the backend of the client's connection."""
        return ObservedBackend(self.world.cluster, self.name, self.world.report)

    def table(self, name: str) -> Table:
        """Return the client's table of this name; made once, as users do."""
        made = self._tables.get(name)
        if made is None:
            made = self._tables[name] = self.connection.table(name)
        return made

    def begin(self, kind: str, table: str = "", row: bytes = b"", *, of: Operation | None = None) -> Operation:
        """Record an operation before its call; ``of`` is the first of several operations that are one call."""
        operation = self.world.history.begin(self.name, kind, table, row)
        operation.group = operation.number if of is None else of.number
        self.calls += of is None
        self.backend.operation = operation.group
        return operation

    def begin_all(self, kind: str, table: str, rows: Iterable[bytes]) -> dict[bytes, Operation]:
        """Record operations on several rows before their common call."""
        made: dict[bytes, Operation] = {}
        for row in dict.fromkeys(rows):
            made[row] = self.begin(kind, table, row, of=next(iter(made.values()), None))
        return made

    def tried(self, operation: Operation, call: Callable[[], T]) -> T | None:
        """Make the call and record its outcome; return None when it failed."""
        try:
            value = call()
        except MetaClientError as error:
            self.world.history.failed(operation, error)
            return None
        self.world.history.ok(operation)
        return value

    def read(self, operation: Operation, call: Callable[[], Row], column: bytes) -> Row | None:
        """Make a read of one row and record the value of one column and the replica that answered."""
        row = self.tried(operation, call)
        if row is not None:
            self.saw(operation, row, column)
        return row

    def saw(self, operation: Operation, row: Row, column: bytes) -> None:
        operation.value = row.get(column)
        operation.stale = row.stale
        operation.replica_id = row.replica_id
        operation.server = str(row.server)
        operation.lag_s = row.lag_s

    def ended(self, operations: Iterable[Operation], error: MetaClientError | None = None) -> None:
        """Record the end of operations that were one call."""
        for operation in operations:
            if error is None:
                self.world.history.ok(operation)
            else:
                self.world.history.failed(operation, error)

    def fresh_value(self) -> bytes:
        """Return a value that is written only once in the run."""
        self.count += 1
        return b"%d.%d" % (self.spec.number, self.count)
