"""Stores the rows of one table of the scripted backend: puts, delete markers, and the cells that each mutation writes.

The versions of a column that a read returns, newest first (NormalUserScanQueryMatcher of HBase 2.6):

1. A marker of a column or a family hides all puts up to its timestamp, a marker of one version the put of its
   timestamp. The order of writing does not matter: a marker also hides puts that are written after it.
2. Of two puts with one timestamp the last one counts.
3. Within the time range, at most as many versions are returned as the read requests and the family keeps. Expired
   versions are returned only up to the family's MIN_VERSIONS.

With KEEP_DELETED_CELLS, a marker later than the time range hides nothing: a read of the past returns deleted cells.

DIVERGENCES: nothing is compacted, so markers and surplus versions are kept. There are no sequence ids: a put replaces
an earlier put of the same timestamp. Raw scans and filters are refused.
"""

from __future__ import annotations

import operator
from bisect import bisect_left, bisect_right, insort
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
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
    FamilyDescriptor,
    Get,
    Increment,
    Mutation,
    Put,
    RegionInfo,
    Result,
    RowMutations,
    Scan,
    TableDescriptor,
)

__all__ = ["TableRows"]

#: Older than any timestamp.
NEVER = -1
COUNTER_BYTES = 8

_SPANS = (CellType.DELETE_COLUMN, CellType.DELETE_FAMILY)
_OF_FAMILIES = (CellType.DELETE_FAMILY, CellType.DELETE_FAMILY_VERSION)
_COMPARE: Mapping[CompareOp, Callable[[bytes, bytes], bool]] = {
    CompareOp.LESS: operator.lt,
    CompareOp.LESS_OR_EQUAL: operator.le,
    CompareOp.EQUAL: operator.eq,
    CompareOp.NOT_EQUAL: operator.ne,
    CompareOp.GREATER_OR_EQUAL: operator.ge,
    CompareOp.GREATER: operator.gt,
}


@dataclass(slots=True)
class _Column:
    """The versions of one column, oldest first, and its markers."""

    puts: list[Cell] = field(default_factory=list)
    spans: list[int] = field(default_factory=list)  # each hides all timestamps up to its own
    points: set[int] = field(default_factory=set)  # each hides its own timestamp

    def add(self, cell: Cell) -> None:
        if cell.type in _SPANS:
            insort(self.spans, cell.timestamp)
        elif cell.type != CellType.PUT:
            self.points.add(cell.timestamp)
        else:
            at = bisect_left(self.puts, cell.timestamp, key=_timestamp_of)
            is_there = at < len(self.puts) and self.puts[at].timestamp == cell.timestamp
            self.puts[at : at + is_there] = [cell]

    def hidden_until(self, horizon: int) -> int:
        """Return the timestamp up to which markers from before ``horizon`` hide everything."""
        at = bisect_left(self.spans, horizon)
        return self.spans[at - 1] if at else NEVER


#: ``cf:q`` -> its versions; ``cf`` -> the markers of the whole family.
_StoredRow: TypeAlias = dict[bytes, _Column]
_NOTHING = _Column()


class TableRows:
    """The rows of one table. The caller holds the lock, and passes the time.

    >>> rows = TableRows(TableDescriptor(b"t", (FamilyDescriptor(b"cf"),)))
    >>> rows.mutate(Put(b"r", (Cell(b"cf:a", LATEST_TIMESTAMP, b"1"),)), 1000)
    >>> rows.get(Get(b"r"), 1001).cells
    (Cell(column=b'cf:a', timestamp=1000, value=b'1', type=<CellType.PUT: 4>),)
    """

    def __init__(self, descriptor: TableDescriptor) -> None:
        self._table = descriptor.name
        self._families = {family.name: family for family in descriptor.families}
        self._rows: dict[bytes, _StoredRow] = {}
        self._order: list[bytes] = []  # the keys of _rows, sorted

    def __delitem__(self, row: bytes) -> None:
        """Remove a row with its markers, as a major compaction removes a deleted row."""
        del self._rows[row]
        self._order.remove(row)

    # -- reads -----------------------------------------------------------------------------------------------------

    def get(self, get: Get, now_ms: int, *, is_stale: bool = False) -> Result:
        """Return the row; a result without cells if there is none."""
        self._check_query(get)
        cells = self._seen(get.row, get, now_ms)
        if get.existence_only:
            return Result(get.row, (), is_stale, exists=bool(cells))
        return Result(get.row, tuple(cells), is_stale)

    def scan(
        self, scan: Scan, now_ms: int, *, region: RegionInfo | None = None, is_stale: bool = False
    ) -> list[Result]:
        """Return all rows of the range that are in the region, in the scan's direction, split by the scan's batch."""
        self._check_query(scan)
        found = ((row, cells) for row in self._range(scan, region) if (cells := self._seen(row, scan, now_ms)))
        limit = scan.limit if scan.batch is None else None  # with a batch, the client counts partial results
        return [
            piece
            for row, cells in islice(found, limit)
            for piece in _pieces(Result(row, tuple(cells), is_stale), scan.batch)
        ]

    def _check_query(self, query: Get | Scan) -> None:
        for column in query.columns:
            self._column(column)
        if query.filter is not None or (isinstance(query, Scan) and query.is_raw):
            raise RequestRefused("the scripted backend has neither filters nor raw scans")

    def _range(self, scan: Scan, region: RegionInfo | None) -> list[bytes]:
        low, high = (scan.start_row, scan.include_start), (scan.stop_row, scan.include_stop)
        if scan.is_reversed:
            low, high = high, low
        order = self._order
        first = bisect_left(order, low[0]) if low[1] else bisect_right(order, low[0])
        last = len(order) if not high[0] else (bisect_right if high[1] else bisect_left)(order, high[0])
        rows = order[first:last]
        if region is not None:
            rows = [row for row in rows if region.contains(row)]
        return rows[::-1] if scan.is_reversed else rows

    def _seen(self, row: bytes, query: Get | Scan, now_ms: int) -> list[Cell]:
        columns = self._rows.get(row)
        if columns is None:
            return []
        wanted = frozenset(query.columns)
        seen: list[Cell] = []
        for name in sorted(columns, key=keys.column_sort_key):
            family = name.partition(b":")[0]
            if not wanted or name in wanted or family in wanted:
                seen += _versions(columns, name, self._families[family], query, now_ms)
        return seen

    def _newest(self, row: bytes, column: bytes, count: int, now_ms: int) -> list[Cell]:
        """Return the newest versions of one column, newest first."""
        columns = self._rows.get(row, {})
        if column not in columns:
            return []
        family = self._families[column.partition(b":")[0]]
        return _versions(columns, column, family, Get(row, max_versions=count), now_ms)

    # -- writes ----------------------------------------------------------------------------------------------------

    def mutate(self, mutation: Mutation, now_ms: int, *, put_ms: int = 0) -> Result | None:
        """Apply a mutation, or raise without a change; return the new values of an increment or append.

        ``put_ms``: the timestamp of puts without one, if it is not ``now_ms``.
        """
        if isinstance(mutation, Increment | Append):
            cells = self._changed(mutation, now_ms)
            self._apply(mutation.row, cells)
            return Result(mutation.row, tuple(cells))
        parts = mutation.mutations if isinstance(mutation, RowMutations) else (mutation,)
        if any(part.row != mutation.row for part in parts):
            raise RequestRefused(f"row mutations of {keys.printable(mutation.row)!r} hold one of another row")
        made: list[Cell] = []
        for part in parts:
            made += self._put(part, put_ms or now_ms) if isinstance(part, Put) else self._markers(part, now_ms)
        self._apply(mutation.row, made)
        return None

    def check_and_mutate(self, check: Check, mutation: Mutation, now_ms: int) -> bool:
        """Apply the mutation if the check holds; return True if it did."""
        if check.row != mutation.row:
            raise RequestRefused(f"a check of row {keys.printable(check.row)!r} guards a mutation of another row")
        stored = self._newest(check.row, self._column(check.column), 1, now_ms)
        if not _holds(check, stored):
            return False
        # The put is not older than the checked value, even if the clock is behind (HBASE-14054).
        self.mutate(mutation, now_ms, put_ms=max([now_ms, *(cell.timestamp for cell in stored)]))
        return True

    def _apply(self, row: bytes, cells: Sequence[Cell]) -> None:
        """Store the cells; this cannot fail."""
        columns = self._rows.get(row)
        if columns is None:
            columns = self._rows[row] = {}
            insort(self._order, row)
        for cell in cells:
            column = columns.get(cell.column)
            if column is None:
                column = columns[cell.column] = _Column()
            column.add(cell)

    def _column(self, name: bytes) -> bytes:
        """Return the name that a column is stored under: ``cf`` is the column without a qualifier, ``cf:``."""
        family, _, qualifier = name.partition(b":")
        if family not in self._families:
            raise NoSuchFamily(f"no column family {keys.printable(family)!r} in {keys.printable(self._table)!r}")
        return family + b":" + qualifier

    def _put(self, put: Put, now_ms: int) -> list[Cell]:
        return [Cell(self._column(cell.column), _stamp(cell.timestamp, now_ms), cell.value) for cell in put.cells]

    def _markers(self, delete: Delete, now_ms: int) -> list[Cell]:
        if not delete.cells:
            stamp = _stamp(delete.timestamp, now_ms)
            return [Cell(family, stamp, b"", CellType.DELETE_FAMILY) for family in self._families]
        latest: Counter[bytes] = Counter()  # column -> number of "latest version" markers so far
        markers: list[Cell] = []
        for cell in delete.cells:
            if cell.type == CellType.PUT:
                raise RequestRefused(f"a delete of row {keys.printable(delete.row)!r} holds a put")
            column, stamp = self._column(cell.column), _stamp(cell.timestamp, now_ms)
            if cell.type in _OF_FAMILIES:
                column = column.partition(b":")[0]
            elif cell.type == CellType.DELETE and cell.timestamp == LATEST_TIMESTAMP:
                latest[column] += 1
                stamp = self._nth_timestamp(delete.row, column, latest[column], now_ms)
            markers.append(Cell(column, stamp, b"", cell.type))
        return markers

    def _nth_timestamp(self, row: bytes, column: bytes, nth: int, now_ms: int) -> int:
        """Return the timestamp of the n-th newest version, or the server's time if there is none."""
        versions = self._newest(row, column, nth, now_ms)
        return versions[-1].timestamp if len(versions) == nth else now_ms

    def _changed(self, mutation: Increment | Append, now_ms: int) -> list[Cell]:
        """Return the new cells in order, each at least a millisecond later than the replaced one (HBASE-18546)."""
        changes: Sequence[tuple[bytes, int | bytes]]
        changes = mutation.amounts if isinstance(mutation, Increment) else mutation.values
        cells: list[Cell] = []
        for name, change in changes:
            column = self._column(name)
            old = next(iter(self._newest(mutation.row, column, 1, now_ms)), None)
            value = _counted(old, change) if isinstance(change, int) else (old.value if old else b"") + change
            cells.append(Cell(column, max(now_ms, old.timestamp + 1) if old else now_ms, value))
        return sorted(cells, key=lambda cell: keys.column_sort_key(cell.column))


def _versions(columns: _StoredRow, name: bytes, family: FamilyDescriptor, query: Get | Scan, now_ms: int) -> list[Cell]:
    """Return the visible versions of one column, newest first, by the rules of the module's docstring."""
    column, whole = columns[name], columns.get(family.name, _NOTHING)
    horizon = LATEST_TIMESTAMP if family.keep_deleted_cells == "FALSE" else query.max_timestamp
    hidden = max(column.hidden_until(horizon), whole.hidden_until(horizon), query.min_timestamp - 1)
    expired = NEVER if family.time_to_live_s is None else now_ms - family.time_to_live_s * 1000 - 1
    count = min(query.max_versions, family.max_versions)
    shown: list[Cell] = []
    for cell in reversed(column.puts):
        timestamp = cell.timestamp
        if timestamp <= hidden or len(shown) == count or (timestamp <= expired and len(shown) >= family.min_versions):
            break
        if timestamp < query.max_timestamp and timestamp not in column.points and timestamp not in whole.points:
            shown.append(cell)
    return shown


def _pieces(result: Result, batch: int | None) -> list[Result]:
    cells = result.cells
    if batch is None or len(cells) <= batch:
        return [result]
    starts = range(0, len(cells), batch)
    return [result._replace(cells=cells[at : at + batch], is_partial=at + batch < len(cells)) for at in starts]


def _holds(check: Check, stored: Sequence[Cell]) -> bool:
    """Return *stored* OP *given* as HRegion.checkAndMutate of HBase 2.6: empty bytes on either side count as absent."""
    value = stored[0].value if stored else b""
    if not check.value:
        return bool(value) is (check.op is CompareOp.NOT_EQUAL)
    return bool(stored) and _COMPARE[check.op](value, check.value)


def _counted(old: Cell | None, amount: int) -> bytes:
    """Return the sum as a Java long, which wraps around."""
    if old is not None and len(old.value) != COUNTER_BYTES:
        raise RequestRefused(
            f"the value of {keys.printable(old.column)!r} has {len(old.value)} bytes, a counter has {COUNTER_BYTES}"
        )
    total = amount + (int.from_bytes(old.value, "big", signed=True) if old is not None else 0)
    return (total % 2**64).to_bytes(COUNTER_BYTES, "big")


def _stamp(timestamp: int, now_ms: int) -> int:
    return now_ms if timestamp == LATEST_TIMESTAMP else timestamp


def _timestamp_of(cell: Cell) -> int:
    return cell.timestamp
