"""Decides which cells a mutation writes: it sets timestamps, finds each cell's family and adds up counters."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise
from operator import itemgetter
from typing import TypeAlias

from metaclient import keys
from metaclient.errors import NoSuchFamily, RequestRefused
from metaclient.model import (
    LATEST_TIMESTAMP,
    Append,
    Cell,
    CellType,
    Check,
    CompareOp,
    Delete,
    Increment,
    Put,
    RowMutations,
    TableDescriptor,
)
from metaclient_fake.storage.cells import CELL_OVERHEAD_BYTES, cells_size
from metaclient_fake.storage.store import Store

__all__ = ["Edit", "Mutations", "ReadVersions", "check_timestamp", "is_met"]

#: (store, row, cells, bytes, is plain): the change that one mutation makes to one row of one family.
Edit: TypeAlias = tuple[Store, bytes, tuple[Cell, ...], int, bool]
#: (row, column, versions) -> the current newest cells of a column, newest first.
ReadVersions: TypeAlias = Callable[[bytes, bytes, int], Sequence[Cell]]

#: Number of column names that are cached, so that each is one object in memory. Further names are not cached.
COLUMNS_MAX = 10_000

PUT = CellType.PUT
FAMILY_KINDS = (CellType.DELETE_FAMILY, CellType.DELETE_FAMILY_VERSION)
LONG_BYTES = 8
_IO_EXCEPTION = "java.io.IOException"

_new_cell: Callable[..., Cell] = tuple.__new__


class Mutations:
    """Turns mutations into edits of one region's stores. Guarded by the region's update lock."""

    def __init__(self, descriptor: TableDescriptor, stores: Sequence[Store], cell_bytes_max: int) -> None:
        self._table = descriptor.name
        self._stores = {store.name: store for store in stores}
        self._cell_bytes_max = cell_bytes_max
        #: The cached results of :meth:`column`.
        self.known_columns: dict[bytes, tuple[Store, bytes]] = {}

    def store(self, family: bytes) -> Store:
        """Return the store of a family; raise NoSuchFamily, which lists the existing families."""
        found = self._stores.get(family)
        if found is None:
            there = ", ".join(f"{{NAME => '{keys.printable(name)}'}}" for name in self._stores)
            table = keys.printable(self._table)
            raise NoSuchFamily(
                f"Column family {keys.printable(family)} does not exist in region of table '{table}', {there}"
            )
        return found

    def column(self, name: bytes) -> tuple[Store, bytes]:
        """Return the store of a column and the shared bytes object of its name; ``cf`` is ``cf:``."""
        found = self.known_columns.get(name)
        if found is None:
            family, _, qualifier = name.partition(b":")
            found = (self.store(family), family + b":" + qualifier)
            if len(self.known_columns) < COLUMNS_MAX:
                self.known_columns[name] = found
        return found

    def put(self, put: Put, now_ms: int) -> list[Edit]:
        """Return one edit per family; a put into one family, the common case, is the fast path."""
        if not put.cells:
            raise RequestRefused(f"a put of row {keys.printable(put.row)} has no cells")
        known = self.known_columns
        cells: list[Cell] = []
        size = 0
        is_sorted = True
        previous = b""
        first: Store | None = None
        for name, timestamp, value, kind in put.cells:
            store, column = known.get(name) or self.column(name)
            if first is not store:
                if first is not None:
                    return self._put_to_families(put, now_ms)
                first = store
            if kind != PUT:
                raise RequestRefused(f"a put of row {keys.printable(put.row)} holds a delete of {keys.printable(name)}")
            if column <= previous:
                is_sorted = False
            previous = column
            if timestamp == LATEST_TIMESTAMP:
                timestamp = now_ms
            elif not 0 <= timestamp < LATEST_TIMESTAMP:
                check_timestamp(put.row, name, timestamp)
            cells.append(_new_cell(Cell, (column, timestamp, value, PUT)))
            size += len(column) + len(value)
        assert first is not None
        size += (CELL_OVERHEAD_BYTES + len(put.row)) * len(cells)
        if size > self._cell_bytes_max:
            self._check_cells(put.row, cells)
        if not is_sorted:
            cells.sort(key=_column_of)  # stable: of two cells of a column and time, the later one counts
            is_sorted = all(one[0] != other[0] for one, other in pairwise(cells))
        return [(first, put.row, tuple(cells), size, is_sorted)]

    def _check_cells(self, row: bytes, cells: Sequence[Cell]) -> None:
        for cell in cells:
            if cells_size(len(row), (cell,)) > self._cell_bytes_max:
                raise RequestRefused(
                    f"column {keys.printable(cell.column)} of row {keys.printable(row)} is bigger than "
                    f"{self._cell_bytes_max} bytes"
                )

    def _put_to_families(self, put: Put, now_ms: int) -> list[Edit]:
        parts: dict[bytes, list[Cell]] = {}
        for cell in put.cells:
            parts.setdefault(self.column(cell.column)[0].name, []).append(cell)
        # In the order of families, as in HBase's family map; results of increments and appends have this order, too.
        return [edit for _, cells in sorted(parts.items()) for edit in self.put(Put(put.row, tuple(cells)), now_ms)]

    def delete(self, delete: Delete, now_ms: int, read: ReadVersions) -> list[Edit]:
        """Return the markers of a delete; without cells, one for each family."""
        row = delete.row
        check_timestamp(row, b"", delete.timestamp)
        stamp = now_ms if delete.timestamp == LATEST_TIMESTAMP else delete.timestamp
        if not delete.cells:
            return [self._marker(row, Cell(name + b":", stamp, b"", CellType.DELETE_FAMILY)) for name in self._stores]
        edits: list[Edit] = []
        versions_deleted: dict[bytes, int] = {}
        for cell in delete.cells:
            if cell.type == PUT:
                raise RequestRefused(f"a delete of row {keys.printable(row)} holds a put")
            column = self.column(cell.column.partition(b":")[0] if cell.type in FAMILY_KINDS else cell.column)[1]
            timestamp = cell.timestamp
            check_timestamp(row, column, timestamp)
            if timestamp == LATEST_TIMESTAMP:
                timestamp = now_ms
                if cell.type == CellType.DELETE:
                    nth = versions_deleted[column] = versions_deleted.get(column, 0) + 1
                    timestamp = _nth_timestamp(read(row, column, nth), nth, now_ms)
            edits.append(self._marker(row, Cell(column, timestamp, b"", cell.type)))
        return edits

    def _marker(self, row: bytes, cell: Cell) -> Edit:
        size = CELL_OVERHEAD_BYTES + len(row) + len(cell.column)
        return (self.column(cell.column)[0], row, (cell,), size, False)

    def check_rows(self, mutations: RowMutations) -> None:
        """Raise RequestRefused unless all parts are of one row."""
        for part in mutations.mutations:
            if part.row != mutations.row:
                raise RequestRefused(
                    f"a mutation of row {keys.printable(part.row)} in RowMutations of {keys.printable(mutations.row)}"
                )

    def increment(self, increment: Increment, now_ms: int, read: ReadVersions) -> tuple[list[Edit], list[Cell]]:
        """Return the edits, and the new values in the order of columns."""
        cells: list[Cell] = []
        # Families first: HBase reports a missing family before it reads any value.
        columns = [self.column(name)[1] for name, _ in increment.amounts]
        for column, (_, amount) in zip(columns, increment.amounts, strict=True):
            current = read(increment.row, column, 1)
            total = amount + (_counter(current[0], increment.row) if current else 0)
            cells.append(Cell(column, _after(now_ms, current), _as_long(total)))
        return self._written(increment.row, cells, now_ms)

    def append(self, append: Append, now_ms: int, read: ReadVersions) -> tuple[list[Edit], list[Cell]]:
        """Return the edits, and the new values in the order of columns."""
        cells: list[Cell] = []
        for name, value in append.values:
            column = self.column(name)[1]
            current = read(append.row, column, 1)
            whole = current[0].value + value if current else value
            cells.append(Cell(column, _after(now_ms, current), whole))
        return self._written(append.row, cells, now_ms)

    def _written(self, row: bytes, cells: list[Cell], now_ms: int) -> tuple[list[Edit], list[Cell]]:
        cells.sort(key=lambda cell: cell.column.partition(b":"))  # by family, then as HRegion.reckonDeltasByStore sorts
        edits = self.put(Put(row, tuple(cells)), now_ms)
        return edits, [cell for _, _, written, _, _ in edits for cell in written]


def check_timestamp(row: bytes, column: bytes, timestamp: int) -> None:
    """Raise RequestRefused unless the time is from 0 to 2^63 - 1, the latter meaning "the server's time".

    HBase refuses negative times where it makes a Delete or a cell (Mutation.setTimestamp, IndividualBytesFieldCell,
    KeyValueUtil.checkKeyValueBytes), with the same text and, seen from a client, as a plain IOException (2.6.1).
    """
    if not 0 <= timestamp <= LATEST_TIMESTAMP:
        where = f"row {keys.printable(row)}" + (f", column {keys.printable(column)}" if column else "")
        problem = "cannot be negative" if timestamp < 0 else f"cannot be greater than {LATEST_TIMESTAMP}"
        raise RequestRefused(f"Timestamp {problem}. ts={timestamp} ({where})", detail=_IO_EXCEPTION)


_column_of = itemgetter(0)


def _nth_timestamp(versions: Sequence[Cell], nth: int, now_ms: int) -> int:
    """Return the timestamp of the nth newest version; without one the server's time, at which nothing is hidden."""
    return versions[nth - 1].timestamp if len(versions) >= nth else now_ms


def _after(now_ms: int, current: Sequence[Cell]) -> int:
    """Return the time of a counter's new value: later than the old one, even if the clock is not (HRegion.reckonDelta).

    DIVERGENCE: nothing follows 2^63 - 2. HBase uses 2^63 - 1 once and hides every change after it; here it is refused.
    """
    if not current:
        return now_ms
    after = current[0].timestamp + 1
    if after >= LATEST_TIMESTAMP:
        raise RequestRefused(
            f"column {keys.printable(current[0].column)} has the time {current[0].timestamp}, the last one that there "
            "is: a change of it would not be seen. Delete the column, then write it with a smaller time"
        )
    return max(now_ms, after)


def _counter(cell: Cell, row: bytes) -> int:
    if len(cell.value) != LONG_BYTES:
        raise RequestRefused(
            f"Field is not a long, it's {len(cell.value)} bytes wide: "
            f"column {keys.printable(cell.column)} of row {keys.printable(row)}"
        )
    return int.from_bytes(cell.value, "big", signed=True)


def _as_long(total: int) -> bytes:
    """Return eight bytes; an overflow wraps, as a Java long does."""
    return (total & 0xFFFFFFFFFFFFFFFF).to_bytes(LONG_BYTES, "big")


def is_met(check: Check, stored: Sequence[Cell]) -> bool:
    """Return True if ``check`` holds for the newest cell (HRegion.checkAndMutateInternal): *stored* OP *given*.

    An empty value in the check means "absent", as None does. For an absent column only absence checks hold; NOT_EQUAL
    with a value does not.
    """
    if not check.value:
        is_absent = not stored or not stored[0].value
        return is_absent == (check.op is not CompareOp.NOT_EQUAL)
    return bool(stored) and _COMPARE[check.op](stored[0].value, check.value)


_COMPARE: dict[CompareOp, Callable[[bytes, bytes], bool]] = {
    CompareOp.LESS: bytes.__lt__,
    CompareOp.LESS_OR_EQUAL: bytes.__le__,
    CompareOp.EQUAL: bytes.__eq__,
    CompareOp.NOT_EQUAL: bytes.__ne__,
    CompareOp.GREATER_OR_EQUAL: bytes.__ge__,
    CompareOp.GREATER: bytes.__gt__,
}
