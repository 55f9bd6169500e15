"""Stores the position of a scan in one region: its read point, its remaining rows and the state of its filter."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING

from metaclient.errors import RequestRefused
from metaclient.model import Cell, Result, Scan
from metaclient_fake.storage.cells import Columns, cells_size
from metaclient_fake.storage.filters import FamilyCells, Filter, RowFiltering, parse
from metaclient_fake.storage.memstore import RowOrder
from metaclient_fake.storage.pieces import pieces_of
from metaclient_fake.storage.query_matcher import StoreQuery
from metaclient_fake.storage.store import CellSource, CellSources, read_row, stored_columns

if TYPE_CHECKING:
    from metaclient_fake.storage.region import Region

__all__ = ["RegionScanner", "RowReader"]

#: Rows looked at together: few at first, so that a lookup of one row costs no more than that.
ROWS_FIRST, ROWS_MAX = 16, 1024

_new_result: Callable[..., Result] = tuple.__new__


class RegionScanner:
    """Reads a range of one region as it was when the scanner was opened (RegionScannerImpl).

    The sources and the read point are taken together and kept: later writes have later sequence ids, and a flush or
    compaction makes new files beside the ones held here.

    DIVERGENCE: a page ends between rows, never inside one, unless ``Scan.batch`` asks for pieces.
    """

    def __init__(
        self,
        region: Region,
        scan: Scan,
        families: Sequence[bytes],
        queries: Sequence[tuple[CellSources, StoreQuery]],
        read_point: int,
    ) -> None:
        """``families`` are the names of the families that are read, in the order of ``queries``."""
        self._region = region
        self._scan = scan
        self.read_point = read_point
        self._now_ms = region.time_ms()
        self._stores = [(tuple(source for source in sources if source.rows), query) for sources, query in queries]
        self._is_stale = not region.is_primary
        self._families = tuple(families)
        self._filter = _filter_of(scan, families)
        self._filtering: RowFiltering | None = None
        if self._filter is not None:
            self._filtering = RowFiltering(self._filter, scan.max_versions, is_reversed=scan.is_reversed)
        self._pieces: list[Result] = []  # of a row that is handed out in batches, last one first
        self._is_closed = False
        #: The filter has ended the scan, for this region and all others.
        self.is_filter_done = False
        self._rows = _rows_of(self._stores, scan, region)
        self._waiting: list[bytes] = []  # the next rows, last one first

    def next(self, max_rows: int, max_bytes: int) -> tuple[list[Result], bool]:
        """Return up to ``max_rows`` results or about ``max_bytes``, and True if the region has no more rows."""
        self._region.check_readable()
        results: list[Result] = []
        is_end = self._is_closed or self._fill(results, max_rows, max_bytes)
        if is_end:
            # A region that closes meanwhile closes its scanners. That must not look like the end of the region.
            self._region.check_readable()
            if results and results[-1].is_partial:
                results[-1] = results[-1]._replace(is_partial=False)  # nothing followed, after all (HBASE-21206)
            self.close()
        return results, is_end

    def _fill(self, results: list[Result], max_rows: int, max_bytes: int) -> bool:
        plain = self._plain_source()
        room = max_bytes
        while len(results) < max_rows and room > 0:
            if self._pieces:
                results.append(self._pieces.pop())
                continue
            if self._filter is not None and self._filter.all_remaining():
                self.is_filter_done = True
                return True
            if not self._waiting:
                rows = next(self._rows, None)
                if rows is None:
                    return True
                rows.reverse()
                self._waiting = rows
            if plain is not None:
                room = self._take_plain(plain, results, max_rows, room)
            else:
                room = self._take(results, max_rows, room)
        return False

    def _plain_source(self) -> CellSource | None:
        """Return the only source to read, if its plain rows can be returned unchanged; otherwise None."""
        if len(self._stores) != 1 or self._filter is not None or self._scan.batch is not None:
            return None
        sources, query = self._stores[0]
        return sources[0] if len(sources) == 1 and query.is_trivial else None

    def _take_plain(self, source: CellSource, results: list[Result], max_rows: int, room: int) -> int:
        """Append plain rows as they are, until a row is not plain; return the remaining bytes."""
        rows, waiting, read_point = source.rows, self._waiting, self.read_point
        is_stale, append = self._is_stale, results.append
        for _ in range(min(len(waiting), max_rows - len(results))):
            row = waiting.pop()
            found = rows[row]
            if found.is_plain:
                if found.sequence_id <= read_point:
                    append(
                        _new_result(Result, (row, found.cells, is_stale, False, None, None))  # type: ignore[union-attr]  # plain
                    )
                    room -= found.size
            else:
                room -= self._add(row, results)
            if room <= 0:
                break
        return room

    def _take(self, results: list[Result], max_rows: int, room: int) -> int:
        waiting = self._waiting
        while waiting and len(results) < max_rows and room > 0 and not self._pieces:
            room -= self._add(waiting.pop(), results)
            if self._filter is not None:
                self._filter.reset()  # the row ends before the filter is asked whether the scan ends (nextRaw)
                if self._filter.all_remaining():
                    break
        return room

    def _add(self, row: bytes, results: list[Result]) -> int:
        """Append the result of one row, if it has any cells; return its size."""
        closed = frozenset[bytes]() if self._filtering is None else self._filtering.closed
        cells = self._cells(row)
        if not cells:
            return 0
        batch = self._scan.batch
        if batch is None or len(cells) < batch:
            results.append(Result(row, tuple(cells), self._is_stale))
        else:
            stores = [
                (query, self._stored(sources, row))
                for name, (sources, query) in zip(self._families, self._stores, strict=True)
                if name not in closed
            ]
            codes = {} if self._filtering is None else self._filtering.codes
            self._pieces = pieces_of(row, cells, batch, stores, codes=codes, is_stale=self._is_stale)[::-1]
        return cells_size(len(row), cells)

    def _cells(self, row: bytes) -> Sequence[Cell]:
        families = [self._read(sources, row, query) for sources, query in self._stores]
        if self._filtering is not None:
            return self._filtering.row(row, self._as_stored(row, families))
        if len(families) == 1:
            return families[0]
        return [cell for cells in families for cell in cells]

    def _as_stored(self, row: bytes, families: Sequence[Sequence[Cell]]) -> list[FamilyCells]:
        """Return the families of a row, with the families that have stored cells but no visible ones."""
        return [
            FamilyCells(name, cells, bool(cells) or bool(self._stored(sources, row)))
            for name, cells, (sources, _) in zip(self._families, families, self._stores, strict=True)
        ]

    def _stored(self, sources: CellSources, row: bytes) -> Columns:
        return stored_columns(sources, row, read_point=self.read_point, lock=self._region.update_lock)

    def _read(self, sources: CellSources, row: bytes, query: StoreQuery) -> Sequence[Cell]:
        return read_row(
            sources, row, query, read_point=self.read_point, now_ms=self._now_ms, lock=self._region.update_lock
        )

    def close(self) -> None:
        """Release the sources; idempotent."""
        if not self._is_closed:
            self._is_closed = True
            self._region.scanner_closed(self)
            self._rows = iter(())
            self._stores = []


class RowReader:
    """Reads single rows of one region, all as they were when the reader was opened: an edit of many rows is seen whole.

    It is closed after use, so that the region can drop the versions that only this reader sees.
    """

    def __init__(self, region: Region, queries: Sequence[tuple[CellSources, StoreQuery]], read_point: int) -> None:
        self._region = region
        self._queries = queries
        self.read_point = read_point

    def row(self, row: bytes) -> Sequence[Cell]:
        """Return the cells of the row; an empty sequence when there is no such row."""
        self._region.check_readable()
        now_ms, lock = self._region.time_ms(), self._region.update_lock
        return [
            cell
            for sources, query in self._queries
            for cell in read_row(sources, row, query, read_point=self.read_point, now_ms=now_ms, lock=lock)
        ]

    def close(self) -> None:
        self._region.scanner_closed(self)

    def __enter__(self) -> RowReader:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _rows_of(stores: Sequence[tuple[CellSources, StoreQuery]], scan: Scan, region: Region) -> Iterator[list[bytes]]:
    """Yield the rows of the scan's range that some source has, in chunks that grow, in the scan's direction."""
    lists: list[tuple[list[bytes], int, int]] = []
    for sources, _ in stores:
        for source in sources:
            rows = source.sorted_rows()
            low, high = _bounds(rows, scan, region)
            if low < high:
                lists.append((rows, low, high))
    if not lists:
        return iter(())
    if len(lists) == 1:
        return _chunks(*lists[0], is_reversed=scan.is_reversed)
    return _merged(lists, region.row_order, is_reversed=scan.is_reversed)


def _bounds(rows: list[bytes], scan: Scan, region: Region) -> tuple[int, int]:
    """Return the positions of the scan's range, clipped to the region, in rows that are in order."""
    order = region.row_order
    first, last = (scan.stop_row, scan.start_row) if scan.is_reversed else (scan.start_row, scan.stop_row)
    with_first, with_last = (
        (scan.include_stop, scan.include_start) if scan.is_reversed else (scan.include_start, scan.include_stop)
    )
    low, high = 0, len(rows)
    if first:
        low = _position(rows, first, order, after=not with_first)
    if last:
        high = _position(rows, last, order, after=with_last)
    return low, high


def _position(rows: list[bytes], row: bytes, order: RowOrder, *, after: bool) -> int:
    bisect = bisect_right if after else bisect_left
    if order is None:
        return bisect(rows, row)
    return bisect(rows, order(row), key=order)


def _chunks(rows: list[bytes], low: int, high: int, *, is_reversed: bool) -> Iterator[list[bytes]]:
    size = ROWS_FIRST
    while low < high:
        if is_reversed:
            chunk = rows[max(low, high - size) : high]
            high -= len(chunk)
            chunk.reverse()
        else:
            chunk = rows[low : min(high, low + size)]
            low += len(chunk)
        yield chunk
        size = min(size * 2, ROWS_MAX)


def _merged(lists: list[tuple[list[bytes], int, int]], order: RowOrder, *, is_reversed: bool) -> Iterator[list[bytes]]:
    """Yield chunks of the union of several ordered lists, each row once.

    Each round looks at the next rows of every list, and yields those up to the nearest end of these windows: after that
    row, the list whose window ended could have a smaller row than the others.
    """
    size = ROWS_FIRST
    while lists:
        if is_reversed:
            border = max([rows[max(low, high - size)] for rows, low, high in lists], key=order)
        else:
            border = min([rows[min(high, low + size) - 1] for rows, low, high in lists], key=order)
        union: set[bytes] = set()
        remaining: list[tuple[list[bytes], int, int]] = []
        for rows, low, high in lists:
            cut = _position(rows, border, order, after=not is_reversed)
            union.update(rows[cut:high] if is_reversed else rows[low:cut])
            low, high = (low, cut) if is_reversed else (cut, high)
            if low < high:
                remaining.append((rows, low, high))
        lists = remaining
        yield sorted(union, key=order, reverse=is_reversed)
        size = min(size * 2, ROWS_MAX)


def _filter_of(scan: Scan, families: Sequence[bytes]) -> Filter | None:
    if scan.filter is None:
        return None
    made = parse(scan.filter)
    made.set_reversed(scan.is_reversed)
    if scan.batch is not None and made.has_row_step:
        raise RequestRefused("this filter decides on whole rows: it cannot be combined with batch")
    if scan.is_reversed and not all(map(made.needs_family, families)):
        raise RequestRefused("Reverse scan with loading CFs on demand is not supported")
    return made
