"""Collects puts and deletes and sends them together: happybase's Batch, with an outcome per row.

Mutations of one row keep their order and are applied atomically if the backend supports it. When rows fail, the other
rows are applied, :class:`~metaclient.errors.BatchError` names each failed row with its error, and the failed rows stay
in the batch: as in happybase, sending the batch again retries them.

Queued mutations belong to the process that queued them: after ``os.fork()`` both processes would send them, so that
using the child's copy raises ConnectionClosed. An empty batch can be used in the child.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import groupby
from types import TracebackType
from typing import TYPE_CHECKING

from metaclient import keys
from metaclient.arguments import Data, amount_of, make_delete, make_put, timestamp_of
from metaclient.errors import BatchError, MetaClientError
from metaclient.model import Delete, Increment, Put, RowMutations
from metaclient.runtime import inherited_error

if TYPE_CHECKING:
    from metaclient.engine import Engine
    from metaclient.session import SessionEngine
    from metaclient.table import Table

__all__ = ["Batch"]


class Batch:
    """A batch of a table; a context manager that sends the batch at its end (with ``transaction`` not after an error).

    >>> import metaclient
    >>> with metaclient.connect("scripted:") as connection:
    ...     connection.create_table("t", {"cf": {}})
    ...     with connection.table("t").batch() as batch:
    ...         batch.put(b"a", {b"cf:x": b"1"})
    ...         batch.put(b"b", {b"cf:x": b"2"})
    ...     [key for key, row in connection.table("t").scan()]
    [b'a', b'b']
    """

    def __init__(
        self,
        table: Table,
        timestamp: int | None = None,
        batch_size: int | None = None,
        transaction: bool = False,
        wal: bool = True,
        *,
        engine: Engine | SessionEngine | None = None,
    ) -> None:
        if batch_size is not None:
            if transaction:
                raise TypeError("'transaction' cannot be used when 'batch_size' is specified")
            if not isinstance(batch_size, int) or isinstance(batch_size, bool):
                raise TypeError(f"'batch_size' must be a whole number > 0, got {batch_size!r}")
            if not batch_size > 0:
                raise ValueError(f"'batch_size' must be > 0, got {batch_size!r}")
        self._table = table
        self._engine = table.connection.engine if engine is None else engine
        self._timestamp = timestamp_of(timestamp)
        self._batch_size = batch_size
        self._transaction = transaction
        self._wal = wal
        self._rows: dict[bytes, list[Put | Delete | Increment]] = {}
        self._count = 0
        self._fork_count = 0  # of the runtime, when the first of the rows was added

    def put(self, row: bytes | str, data: Data, wal: bool | None = None) -> None:
        """Add a put; sends when ``batch_size`` is reached. A put without columns adds nothing, as in happybase."""
        if not data and isinstance(data, Mapping):
            keys.row_key(row)
            return
        self._add(make_put(row, data, self._timestamp, self._wal if wal is None else wal))

    def delete(self, row: bytes | str, columns: Sequence[bytes | str] | None = None, wal: bool | None = None) -> None:
        """Add a delete of the row or of these columns; sends when ``batch_size`` is reached."""
        self._add(make_delete(row, columns, self._timestamp, self._wal if wal is None else wal))

    def counter_inc(self, row: bytes | str, column: bytes | str, value: int = 1) -> None:
        """Add an increment of a counter; sends when ``batch_size`` is reached. The new value is not returned.

        Increments of one row follow its puts and deletes in the order in which they were added. A failed increment
        that may have been applied (``may_have_applied``) does not stay in the batch: sent again, it would count twice.
        """
        name = keys.column_name(column, "column", family_only_ok=False)
        self._add(Increment(keys.row_key(row), ((name, amount_of(value)),)))

    def counter_dec(self, row: bytes | str, column: bytes | str, value: int = 1) -> None:
        """Add a decrement of a counter, as :meth:`counter_inc`."""
        self.counter_inc(row, column, -amount_of(value))

    def _add(self, mutation: Put | Delete | Increment) -> None:
        if self._rows:
            self._check_process()
        else:
            self._fork_count = self._engine.runtime.fork_count
        queued = self._rows.get(mutation.row)
        if queued is None:
            self._rows[mutation.row] = [mutation]
        else:
            queued.append(mutation)
        self._count += _weight(mutation)
        if self._batch_size is not None and self._count >= self._batch_size:
            self.send()

    def send(self) -> None:
        """Send the collected mutations; failed mutations stay in the batch (and are in ``BatchError.failed``)."""
        rows = self._rows
        if not rows:
            return
        self._check_process()
        can_combine = self._engine.capabilities.row_mutations
        operations: list[Put | Delete | Increment | RowMutations] = []
        for row, mutations in rows.items():
            for is_count, run in groupby(mutations, lambda one: isinstance(one, Increment)):
                some = list(run)
                if is_count:
                    operations += _summed(row, some, can_combine)
                else:
                    operations += _combined(row, some) if can_combine else some
        with self._engine.observed("batch", self._table.name):
            outcomes = self._engine.batch(self._table.name, operations)
            failed = {
                operation.row: outcome
                for operation, outcome in zip(operations, outcomes, strict=True)
                if isinstance(outcome, MetaClientError)
            }
            self._rows = {row: left for row, error in failed.items() if (left := _resent(rows[row], error))}
            self._count = sum(_weight(mutation) for mutations in self._rows.values() for mutation in mutations)
            if failed:
                error = BatchError(_summary(failed, len(rows), self._table.name), failed=failed)
                self._engine.adapt(error)
                raise error

    def _check_process(self) -> None:
        if self._fork_count != self._engine.runtime.fork_count:
            raise inherited_error(
                f"a batch of {len(self._rows)} queued rows on '{keys.printable(self._table.name)}'",
                "the parent sends them; make a new batch in this process, or send() before the fork",
            )

    def __enter__(self) -> Batch:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._transaction and kind is not None:
            return
        self.send()


def _resent(mutations: list[Put | Delete | Increment], error: MetaClientError) -> list[Put | Delete | Increment]:
    """Return the mutations of a failed row that may be sent again."""
    if not error.may_have_applied:
        return mutations
    return [mutation for mutation in mutations if not isinstance(mutation, Increment)]


def _summed(
    row: bytes, increments: Iterable[Put | Delete | Increment], is_joint: bool
) -> list[Put | Delete | Increment | RowMutations]:
    """Return the sum per column: in one increment, or (Thrift 1) in one for each column."""
    sums: dict[bytes, int] = {}
    for increment in increments:
        assert isinstance(increment, Increment)
        for column, amount in increment.amounts:
            sums[column] = sums.get(column, 0) + amount
    amounts = [(column, amount_of(amount)) for column, amount in sums.items()]
    return [Increment(row, tuple(amounts))] if is_joint else [Increment(row, (each,)) for each in amounts]


def _weight(mutation: Put | Delete | Increment) -> int:
    """Return how much a mutation adds to the batch size: its cells; 1 for a whole row (happybase: 1 per family)."""
    return len(mutation.amounts if isinstance(mutation, Increment) else mutation.cells) or 1


def _combined(row: bytes, mutations: list[Put | Delete | Increment]) -> list[Put | Delete | Increment | RowMutations]:
    """Return one operation per row: one put, or atomic row mutations in the given order if there are deletes."""
    if len(mutations) == 1:
        return list(mutations)
    first = mutations[0]
    puts = [mutation for mutation in mutations if isinstance(mutation, Put)]
    if isinstance(first, Put) and len(puts) == len(mutations) and all(p.durability == first.durability for p in puts):
        # The last value of a column wins, as if the puts were sent one after the other.
        cells = {cell.column: cell for put in puts for cell in put.cells}
        return [Put(row, tuple(cells.values()), first.durability)]
    return [RowMutations(row, tuple(one for one in mutations if not isinstance(one, Increment)))]


def _summary(failed: Mapping[bytes, MetaClientError], total: int, table: bytes) -> str:
    row, error = next(iter(failed.items()))
    return (
        f"{len(failed)} of {total} rows of a batch on '{keys.printable(table)}' failed, "
        f"the first is '{keys.printable(row)}': {type(error).__name__}: {error}; see .failed"
    )
