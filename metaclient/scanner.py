"""Scans of a table: :class:`TableScanner` returns rows, :class:`CellScanner` pages of cells in Arrow for bulk readers.

:mod:`metaclient.calls.region_walk` decides how a scan continues in the next region, and after a lost scanner.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator, Sequence
from itertools import islice
from operator import gt, lt

from metaclient import keys
from metaclient.backend import CellBackend, CellPage, ScanPage
from metaclient.calls.operations import Operations
from metaclient.calls.region_walk import RegionWalk, ScanGuard
from metaclient.calls.staleness import StalenessLimit
from metaclient.errors import BackendFault, Unsupported
from metaclient.model import META_TABLE, Consistency, RegionLocation, Result, Scan
from metaclient.row_runs import AlikeRows, RowRuns

__all__ = ["CellScanner", "TableScanner"]


class TableScanner(RegionWalk[ScanPage]):
    """An iterator over (result, location); the server's scanner is closed with it, or at the last row."""

    def __init__(
        self,
        operations: Operations,
        table: bytes,
        scan: Scan,
        consistency: Consistency,
        replica_id: int | None,
        max_staleness_s: float | None = None,
        *,
        guard: ScanGuard | None = None,
    ) -> None:
        backend = operations.backend
        super().__init__(
            operations,
            table,
            scan,
            consistency,
            replica_id,
            max_staleness_s,
            page_type=ScanPage,
            open_page=backend.scan_open,
            next_page=backend.scan_next,
            send_next=None if operations.sending is None else operations.sending.send_next,
            guard=guard,
        )
        # The key of the row that is being returned in pieces, and the number of its cells that were returned.
        self._piece_row: bytes | None = None
        self._piece_cells = 0
        self._skip_cells = 0  # the number of those cells that the reopened scanner will repeat

    def __iter__(self) -> Iterator[tuple[Result, RegionLocation | None]]:
        for run, place in self.runs():
            for result in run:
                yield result, place

    def runs(self) -> Iterator[tuple[AlikeRows | Sequence[Result], RegionLocation | None]]:
        """Iterate over (results, location): the results of a page, with rows of the same columns kept together."""
        try:
            page: ScanPage | None = self._fetch()
            while page is not None:
                rows, limit = page.rows, self._limit_of_place
                for run in rows.runs if type(rows) is RowRuns else (rows,):
                    if limit is None and type(run) is AlikeRows and self._take_run(run):
                        yield run, self._place
                    elif unseen := self._take_results(run):
                        yield self._marked(unseen, limit), self._place
                    if self._left is not None and self._left <= 0:
                        return
                page = self._after(page)
        finally:
            self.close()

    def _take_run(self, run: AlikeRows) -> bool:
        """Advance the position to the end of the run; return False if its results must be checked one by one."""
        rows = run.keys
        is_next = gt if self._scan.is_reversed else lt
        if (
            self._piece_row is not None
            or self._table == META_TABLE  # which is not in the order of bytes
            or (self._left is not None and self._left < len(rows))
            or not self._is_ahead(rows[0])
            or not all(map(is_next, rows, islice(rows, 1, None)))
        ):
            return False
        self._at_row = rows[-1]
        self._at_inclusive = False
        if self._left is not None:
            self._left -= len(rows)
        return True

    def _take_results(self, results: Sequence[Result]) -> list[Result]:
        """Advance the position over the results, up to the limit; return those that were not returned before."""
        made: list[Result] = []
        for result in results:
            if (unseen := self._unseen(result)) is not None:
                made.append(unseen)
                if self._left is not None and self._left <= 0:
                    break
        return made

    def _marked(self, results: list[Result], limit: StalenessLimit | None) -> list[Result]:
        """Return the results with the lag of their page, where the backend does not report it."""
        return results if limit is None else [limit.marked(result, self._place) for result in results]

    def _unseen(self, result: Result) -> Result | None:
        """Return the result without cells that were returned before the scanner was reopened; advance the position."""
        if type(result) is Result and not result.is_partial and self._piece_row is None and self._is_ahead(result.row):
            self._at_row = result.row
            self._at_inclusive = False
            if self._left is not None:
                self._left -= 1
            return result
        return self._unseen_piece(result)

    def _unseen_piece(self, result: Result) -> Result | None:
        """``_unseen`` for a row that is returned in pieces; raise BackendFault for an object that is not a result."""
        if not isinstance(result, Result) or not self._is_ahead(result.row):
            what = f"row '{keys.printable(result.row)}'" if isinstance(result, Result) else type(result).__name__
            raise BackendFault(f"the backend answered {what} to a scan at '{keys.printable(self._at_row)}'")
        is_same = result.row == self._piece_row
        skipped = min(self._skip_cells, len(result.cells)) if is_same else 0
        self._skip_cells = self._skip_cells - skipped if is_same else 0
        fresh = result._replace(cells=result.cells[skipped:]) if skipped else result
        if result.is_partial:
            self._piece_cells = (self._piece_cells if is_same else 0) + len(fresh.cells)
            self._piece_row = result.row
        else:
            self._piece_row = None
            self._skip_cells = 0
        self._at_row = result.row
        self._at_inclusive = result.is_partial
        if skipped and not fresh.cells:
            return None
        if self._left is not None:
            self._left -= 1
        return fresh

    def _resume(self) -> None:
        """Record that the next scanner repeats the cells of a partial row that were already returned."""
        self._skip_cells = self._piece_cells if self._piece_row is not None else 0

    def _limit(self) -> int | None:
        """Return the row limit of the next scanner: one more if a row is incomplete.

        The server counts the incomplete row again and may repeat all of it. A piece that is marked as partial may be
        the last piece of its row.
        """
        return self._left if self._left is None or self._piece_row is None else self._left + 1

    def _move_on(self) -> bool:
        self._piece_row = None
        return super()._move_on()


class CellScanner(RegionWalk[CellPage]):
    """An iterator over (page, location) of a backend with ``Capabilities.cell_pages``; every page has rows.

    Each row of the scan is in exactly one page, complete and in order, also when scanners are lost and regions move:
    the scan continues after the last row of the last page. Only forward scans of whole rows are supported. Closing the
    iterator closes the server's scanner.
    """

    def __init__(
        self,
        operations: Operations,
        table: bytes,
        scan: Scan,
        consistency: Consistency,
        replica_id: int | None,
        max_staleness_s: float | None = None,
        *,
        guard: ScanGuard | None = None,
    ) -> None:
        backend = operations.backend
        if not backend.capabilities.cell_pages or not isinstance(backend, CellBackend):
            raise Unsupported(
                f"the backend {backend.name!r} has no pages of cells: scan rows (Capabilities.cell_pages)"
            )
        if scan.is_reversed or scan.batch is not None:
            raise Unsupported("pages of cells are of whole rows, forward: scan rows for pieces or the other direction")
        super().__init__(
            operations,
            table,
            scan,
            consistency,
            replica_id,
            max_staleness_s,
            page_type=CellPage,
            open_page=backend.scan_open_cells,
            next_page=backend.scan_next_cells,
            send_next=None if operations.sending is None else operations.sending.send_next_cells,
            guard=guard,
        )

    def __iter__(self) -> Generator[tuple[CellPage, RegionLocation | None], None, None]:
        try:
            page: CellPage | None = self._fetch()
            while page is not None:
                if page.rows:
                    self._take(page)
                    yield page, self._place
                    if self._left is not None and self._left <= 0:
                        return
                page = self._after(page)
        finally:
            self.close()

    def _take(self, page: CellPage) -> None:
        """Advance the position to the end of this page, which must be ahead of the position."""
        if not self._is_ahead(page.first_row) or page.last_row < page.first_row:
            raise BackendFault(
                f"the backend answered rows '{keys.printable(page.first_row)}' to '{keys.printable(page.last_row)}' "
                f"to a scan at '{keys.printable(self._at_row)}'"
            )
        if self._left is not None:
            if page.rows > self._left:
                raise BackendFault(f"the backend answered {page.rows} rows to a scan with {self._left} left")
            self._left -= page.rows
        self._at_row = page.last_row
        self._at_inclusive = False
