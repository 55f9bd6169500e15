"""Sorts rows and cells in HBase's order, and merges sorted streams of whole rows.

The order of cells: row, family, qualifier ascending; timestamp, type and sequence id descending (CellComparatorImpl).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from metaclient.hfile.key_values import SEQUENCE
from metaclient.hfile.reader import find_row
from metaclient.wire.cell_arrays import libraries

if TYPE_CHECKING:
    import pyarrow

__all__ = ["changes", "concatenated", "merge_rows", "row_order", "sort_cells"]

T = TypeVar("T")


def concatenated(batches: Sequence[pyarrow.RecordBatch]) -> pyarrow.RecordBatch:
    """Return the rows of all batches as one batch; there is at least one."""
    _, arrow = libraries()
    if len(batches) == 1:
        return batches[0]
    table = arrow.Table.from_batches(batches).combine_chunks()
    columns = [column.chunk(0) if column.num_chunks else arrow.array([], column.type) for column in table.columns]
    return arrow.RecordBatch.from_arrays(columns, schema=table.schema)


def changes(values: pyarrow.Array) -> Any:
    """Return True for each value that differs from the one before, and for the first, as numpy's bool.

    >>> import pyarrow
    >>> changes(pyarrow.array([b"a", b"a", b"b"])).tolist()
    [True, False, True]
    """
    np, arrow = libraries()
    made = np.ones(len(values), dtype=bool)
    made[1:] = arrow.compute.not_equal(values[1:], values[:-1]).to_numpy(zero_copy_only=False)
    return made


def row_order(rows: pyarrow.Array) -> Any:
    """Return the indexes that sort row keys; equal keys keep their order.

    >>> import pyarrow
    >>> row_order(pyarrow.array([b"b", b"a", b"b"], pyarrow.large_binary())).tolist()
    [1, 0, 2]
    """
    _, arrow = libraries()
    return arrow.compute.sort_indices(rows).to_numpy()


def sort_cells(cells: pyarrow.RecordBatch) -> pyarrow.RecordBatch:
    """Return the cells in HBase's order."""
    np, arrow = libraries()
    columns: list[Any] = []
    if SEQUENCE in cells.schema.names:
        columns.append(~cells[SEQUENCE].to_numpy())
    columns += (~cells["type"].to_numpy(), ~cells["timestamp"].to_numpy())
    columns += (_ranks(cells[name]) for name in ("qualifier", "family", "row"))
    order = np.lexsort(columns)
    return cells.take(arrow.array(order))


def _ranks(values: pyarrow.Array) -> Any:
    """Return a number per value, in the order of the values. Adjacent values that are equal are sorted once."""
    np, arrow = libraries()
    is_new = changes(values)
    firsts = values.filter(arrow.array(is_new))
    order = row_order(firsts)
    in_order = firsts.take(arrow.array(order))
    ranks = np.empty(len(firsts), dtype=np.int64)
    ranks[order] = np.cumsum(changes(in_order))
    return ranks[np.cumsum(is_new) - 1]


class _RowStream:
    """A stream of batches with sorted rows, and the rows that were read and not yet taken."""

    def __init__(self, batches: Iterator[pyarrow.RecordBatch]) -> None:
        self._batches = batches
        self.rows: pyarrow.RecordBatch | None = None
        self.is_over = False

    def read(self) -> None:
        """Add the next batch to the rows."""
        batch = next(self._batches, None)
        if batch is None:
            self.is_over = True
        elif batch.num_rows:
            self.rows = batch if self.rows is None else concatenated([self.rows, batch])

    def last_row(self) -> bytes:
        assert self.rows is not None
        row: bytes = self.rows["row"][-1].as_py()
        return row

    def take(self, bound: bytes | None) -> pyarrow.RecordBatch | None:
        """Return the rows before the bound, or all of them, and keep the others; None if there are none."""
        if self.rows is None:
            return None
        count = self.rows.num_rows if bound is None else find_row(self.rows["row"], bound)
        taken = self.rows.slice(0, count) if count else None
        self.rows = self.rows.slice(count) if count < self.rows.num_rows else None
        return taken


def merge_rows(
    streams: Sequence[Iterator[pyarrow.RecordBatch]],
    combine: Callable[[list[tuple[int, pyarrow.RecordBatch]]], T],
) -> Iterator[T]:
    """Merge streams of batches that are sorted by their column ``row``.

    ``combine`` gets the next rows, each row complete, as parts: the number of a stream, and its share. The parts of one
    call overlap; those of later calls have greater rows. Memory holds about one batch per stream.
    """
    sources = [_RowStream(batches) for batches in streams]
    while True:
        for source in sources:
            while source.rows is None and not source.is_over:
                source.read()
        # The last row of a stream may continue in its next batch, so only rows before it are complete.
        lasts = [(source.last_row(), source) for source in sources if source.rows is not None and not source.is_over]
        bound = min((row for row, _ in lasts), default=None)
        parts = [(number, part) for number, source in enumerate(sources) if (part := source.take(bound)) is not None]
        if parts:
            yield combine(parts)
        elif bound is None:
            return
        else:
            for row, source in lasts:
                if row == bound:
                    source.read()
