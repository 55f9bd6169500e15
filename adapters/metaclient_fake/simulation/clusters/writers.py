"""Writers of one cluster: puts, deletes and batches, each with a timestamp of its own.

A writer writes the rows of its cluster, and the shared rows if its cluster may (:attr:`ClustersSpec.sharing`). Each
put has cells in replicated families, and often one in a family that is not replicated.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from metaclient.connection import Connection
from metaclient.errors import BatchError, MetaClientError
from metaclient_fake.simulation.chance import chance
from metaclient_fake.simulation.clusters.spec import WriterSpec
from metaclient_fake.simulation.history import Operation

if TYPE_CHECKING:
    from metaclient_fake.simulation.clusters.world import ClustersWorld

__all__ = ["LOCAL_FAMILY", "REPLICATED", "TABLE", "UNREPLICATED_TABLE", "ClusterWriter", "Mutation"]

TABLE, UNREPLICATED_TABLE = "t", "u"
#: The columns of TABLE in families of scope 1, and its family of scope 0.
REPLICATED = (b"f:v", b"h:v")
LOCAL_FAMILY = b"g"
LOCAL = b"g:v"
_PAUSE_S = (0.2, 1.0)
_SHARDS = 10


class Mutation(NamedTuple):
    """What an operation does to one row: a put of the columns, or a delete of all their versions up to its timestamp.

    ``origin`` is the cluster of the writer.
    """

    origin: str
    row: bytes
    columns: tuple[bytes, ...]
    timestamp: int
    is_delete: bool
    operation: Operation


class ClusterWriter:
    """One client of one cluster."""

    def __init__(self, world: ClustersWorld, spec: WriterSpec) -> None:
        self.world = world
        self.spec = spec
        self.name = spec.name
        self.dice = chance(world.spec.seed, f"writer/{spec.number}")
        self.connection: Connection = world.sides[spec.cluster].cluster.connect(
            client=spec.name,
            **spec.options,  # type: ignore[arg-type]  # options of metaclient.connect
        )
        self._rows = [b"%d-%s%d" % (shard, spec.cluster.encode(), shard % 2) for shard in range(_SHARDS)]
        if spec.cluster in world.spec.sharing:
            self._rows += [b"%d-x" % shard for shard in range(_SHARDS)]
        self.calls = 0

    def run(self) -> None:
        """Run steps until the world ends them."""
        runtime = self.world.runtime
        runtime.sleep(self.dice.random())
        while not self.world.is_over:
            self.calls += 1
            self.step()
            runtime.sleep(self.dice.uniform(*_PAUSE_S))

    def put_quickly(self, count: int) -> None:
        """Put many rows, one call each, without pauses; stop at the first that fails, or when the run is over."""
        for _ in range(count):
            operation = self._put(self._row())
            if operation.error is not None or self.world.is_over:
                return

    def step(self) -> None:
        """Do and record one call."""
        turn = self.dice.random()
        if turn < 0.2 and self.world.spec.has_deletes:
            self._delete(self._row())
        elif turn < 0.25:
            self._put_unreplicated(self._row())
        elif turn < 0.75:
            self._put(self._row())
        else:
            self._batch(list(dict.fromkeys(self._row() for _ in range(2 + self.dice.randrange(5)))))

    def _row(self) -> bytes:
        return self._rows[self.dice.randrange(len(self._rows))]

    def _columns(self) -> tuple[bytes, ...]:
        return self.dice.choice((REPLICATED[:1], REPLICATED[1:], REPLICATED, (*REPLICATED, LOCAL), (LOCAL,)))

    def _begin(
        self, kind: str, row: bytes, columns: tuple[bytes, ...], timestamp: int, table: str = TABLE
    ) -> Operation:
        operation = self.world.history.begin(self.name, kind, table, row)
        operation.is_write = True
        operation.timestamp = timestamp
        operation.argument = f"{b' '.join(columns).decode()} @{timestamp}"
        if table == TABLE:
            mutation = Mutation(self.spec.cluster, row, columns, timestamp, kind != "put", operation)
            self.world.mutations.append(mutation)
        return operation

    def _timestamp(self) -> int:
        return self.world.next_timestamp(self.spec.cluster)

    def _value(self, timestamp: int) -> bytes:
        return b"%s %d" % (self.spec.cluster.encode(), timestamp)

    def _put(self, row: bytes) -> Operation:
        columns, timestamp = self._columns(), self._timestamp()
        operation = self._begin("put", row, columns, timestamp)
        data = dict.fromkeys(columns, self._value(timestamp))
        try:
            self.connection.table(TABLE).put(row, data, timestamp=timestamp)
        except MetaClientError as error:
            self.world.history.failed(operation, error)
        else:
            self.world.history.ok(operation)
        return operation

    def _put_unreplicated(self, row: bytes) -> None:
        timestamp = self._timestamp()
        operation = self._begin("put", row, (LOCAL,), timestamp, UNREPLICATED_TABLE)
        try:
            self.connection.table(UNREPLICATED_TABLE).put(row, {LOCAL: self._value(timestamp)}, timestamp=timestamp)
        except MetaClientError as error:
            self.world.history.failed(operation, error)
        else:
            self.world.history.ok(operation)

    def _delete(self, row: bytes) -> None:
        """Delete a column, or the row: all columns of all families."""
        timestamp = self._timestamp()
        columns = self.dice.choice((REPLICATED[:1], REPLICATED[1:], (*REPLICATED, LOCAL)))
        operation = self._begin("delete", row, columns, timestamp)
        try:
            wanted = None if LOCAL in columns else list(columns)
            self.connection.table(TABLE).delete(row, wanted, timestamp=timestamp)
        except MetaClientError as error:
            self.world.history.failed(operation, error)
        else:
            self.world.history.ok(operation)

    def _batch(self, rows: list[bytes]) -> None:
        timestamp = self._timestamp()
        batch = self.connection.table(TABLE).batch(timestamp=timestamp)
        operations: list[Operation] = []
        for row in rows:
            is_delete = self.world.spec.has_deletes and self.dice.random() < 0.2
            columns = REPLICATED if is_delete else self._columns()
            operation = self._begin("delete" if is_delete else "put", row, columns, timestamp)
            operations.append(operation)
            operation.group = operations[0].number
            if is_delete:
                batch.delete(row, list(columns))
            else:
                batch.put(row, dict.fromkeys(columns, self._value(timestamp)))
        history = self.world.history
        try:
            batch.send()
        except BatchError as error:
            for operation in operations:
                if operation.row in error.failed:
                    history.failed(operation, error.failed[operation.row])
                else:
                    history.ok(operation)
        except MetaClientError as error:
            for operation in operations:
                history.failed(operation, error)
        else:
            for operation in operations:
                history.ok(operation)
