"""Rows to be written, in one of two forms with the same interface (sort, cut, write).

:class:`Mutations` holds one object per row, of any kind of mutation. :class:`Page` holds puts of the same columns in
Arrow, and runs no Python code per row.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from itertools import chain
from operator import itemgetter
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from metaclient.calls.put_pages import PageRows
from metaclient.columns.put_sizes import CELL_OVERHEAD, cumulated_bytes
from metaclient.errors import MetaClientError
from metaclient.model import Delete, Increment, Put, PutCells

if TYPE_CHECKING:
    from metaclient.backend import PutPage
    from metaclient.engine import Engine

__all__ = ["Load", "Mutation", "Mutations", "Page", "bytes_of_mutation", "cells_of_mutation"]

Mutation = Put | Delete | Increment
L = TypeVar("L", bound="Load")
_Sized = tuple[bytes, int, Mutation]  # row, bytes, mutation


def cells_of_mutation(mutation: Mutation) -> int:
    """Return the number of cells that a mutation writes; a delete of a whole row counts as one."""
    if isinstance(mutation, Increment):
        return len(mutation.amounts)
    return len(mutation.cells) or 1


def bytes_of_mutation(mutation: Mutation) -> int:
    """Return about the number of bytes of a mutation's KeyValues."""
    row = len(mutation.row) + CELL_OVERHEAD
    if isinstance(mutation, Increment):
        return sum([row + len(column) + 8 for column, _ in mutation.amounts])
    if isinstance(mutation.cells, PutCells):
        columns, values = mutation.cells.columns, mutation.cells.values
        return len(columns) * row + sum(map(len, columns)) + sum(map(len, values))
    return sum([row + len(cell[0]) + len(cell[2]) for cell in mutation.cells]) or row


class Rows(Protocol):
    """Row keys by index; an implementation may convert a key only when it is read."""

    def __len__(self) -> int: ...

    def __getitem__(self, index: int, /) -> bytes: ...


class Load(Protocol):
    """Rows to be written; ``len()`` is their number."""

    @property
    def byte_count(self) -> int: ...

    @property
    def cell_count(self) -> int: ...

    def __len__(self) -> int: ...

    def rows(self) -> Rows: ...

    def sorted(self: L) -> L:
        """Return the same rows sorted by key; mutations of one row keep their order."""
        ...

    def part(self: L, begin: int, end: int) -> L: ...

    def joined(self: L, others: Iterable[L]) -> L:
        """Return this load followed by others of the same kind."""
        ...

    def until(self, begin: int, rows: int, byte_count: int) -> int:
        """Return the end of the part from ``begin`` that first reaches ``rows`` rows or ``byte_count`` bytes."""
        ...

    def write(self, engine: Engine, table: bytes) -> dict[bytes, MetaClientError]:
        """Write all rows; return the rows that could not be written, with their errors."""
        ...


class Mutations:
    """Mutations one by one.

    >>> load = Mutations()
    >>> load.add(Put(b"r2", ())), load.add(Delete(b"r1"))
    (22, 22)
    >>> load.sorted().rows(), load.until(0, rows=10, byte_count=22)
    ([b'r1', b'r2'], 1)
    """

    __slots__ = ("_waiting",)

    def __init__(self, waiting: Iterable[_Sized] = ()) -> None:
        self._waiting = list(waiting)

    def add(self, mutation: Mutation) -> int:
        """Add a mutation; return its number of bytes."""
        size = bytes_of_mutation(mutation)
        self._waiting.append((mutation.row, size, mutation))
        return size

    @property
    def byte_count(self) -> int:
        return sum([size for _, size, _ in self._waiting])

    @property
    def cell_count(self) -> int:
        return sum([cells_of_mutation(mutation) for _, _, mutation in self._waiting])

    def __len__(self) -> int:
        return len(self._waiting)

    def rows(self) -> list[bytes]:
        return [row for row, _, _ in self._waiting]

    def sorted(self) -> Mutations:
        return Mutations(sorted(self._waiting, key=itemgetter(0)))

    def part(self, begin: int, end: int) -> Mutations:
        return Mutations(self._waiting[begin:end])

    def joined(self, others: Iterable[Mutations]) -> Mutations:
        return Mutations(chain(self._waiting, *(other._waiting for other in others)))

    def until(self, begin: int, rows: int, byte_count: int) -> int:
        last = min(begin + rows, len(self._waiting))
        for index in range(begin, last):
            byte_count -= self._waiting[index][1]
            if byte_count <= 0:
                return index + 1
        return last

    def write(self, engine: Engine, table: bytes) -> dict[bytes, MetaClientError]:
        mutations = [mutation for _, _, mutation in self._waiting]
        outcomes = engine.batch(table, mutations)
        return {
            mutation.row: outcome
            for mutation, outcome in zip(mutations, outcomes, strict=True)
            if isinstance(outcome, MetaClientError)
        }


class Page:
    """Puts of the same columns, in Arrow."""

    __slots__ = ("_ends", "_page")

    def __init__(self, page: PutPage, ends: Any = None) -> None:
        self._page = page
        self._ends = cumulated_bytes(page) if ends is None else ends  # bytes before each row, and the sum of all

    @property
    def byte_count(self) -> int:
        return int(self._ends[-1] - self._ends[0])

    @property
    def cell_count(self) -> int:
        return sum(len(values) - values.null_count for values in self._page.values)

    def __len__(self) -> int:
        return len(self._page)

    def rows(self) -> Rows:
        return PageRows(self._page.rows)

    def sorted(self) -> Page:
        import pyarrow.compute as pc

        order = pc.sort_indices(self._page.rows)
        return Page(self._page.changed(lambda array: array.take(order)))

    def part(self, begin: int, end: int) -> Page:
        return Page(self._page.part(begin, end), self._ends[begin : end + 1])

    def joined(self, others: Iterable[Page]) -> Page:
        import pyarrow as pa

        pages = [self._page, *(other._page for other in others)]
        if len(pages) == 1:
            return self
        together = replace(
            self._page,
            rows=pa.concat_arrays([page.rows for page in pages]),
            timestamps=pa.concat_arrays([page.timestamps for page in pages]),
            values=tuple(map(pa.concat_arrays, zip(*(page.values for page in pages), strict=True))),
        )
        return Page(together)

    @property
    def kind(self) -> tuple[object, ...]:
        """Pages with equal kinds can be joined."""
        return self._page.columns, self._page.durability, self._page.ttl_ms

    def until(self, begin: int, rows: int, byte_count: int) -> int:
        full = int(self._ends.searchsorted(self._ends[begin] + byte_count))
        return min(max(full, begin + 1), begin + rows, len(self))

    def write(self, engine: Engine, table: bytes) -> dict[bytes, MetaClientError]:
        return engine.put_page(table, self._page)
