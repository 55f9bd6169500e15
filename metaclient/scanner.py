"""Walks a scan over the regions of a table: opens, pages, reopens after a loss, and moves on.

1. The next region is found from the row to go on with. A TIMELINE scan opens it as a race over the replicas, primary
   first; the winner's scanner serves all further pages of that region. Losers' scanners are closed.
2. A scanner that is lost (lease, restart, move, split) is reopened after the last row that was returned: nothing is
   lost, nothing repeated. Within a row that came in pieces, it is reopened *at* the row, and what was returned is
   skipped.
3. A ``next`` is never sent twice: HBase 3 answers a repeated one with an empty success.
4. Behind a gateway there is one scanner for the whole range, and the same rules of resuming.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from metaclient import keys
from metaclient.backend import ScanPage
from metaclient.errors import ConnectionClosed, MetaClientError
from metaclient.model import Consistency, RegionLocation, Result, Scan
from metaclient.operations import Operations

__all__ = ["TableScanner"]


class TableScanner:
    """An iterator over (result, place); close it, or exhaust it, and the server's scanner is closed."""

    def __init__(
        self, operations: Operations, table: bytes, scan: Scan, consistency: Consistency, replica_id: int | None
    ) -> None:
        self._operations = operations
        self._table = table
        self._position = scan  # start row and its inclusion move on, the rest stays
        self._consistency = consistency
        self._replica_id = replica_id
        self._left = scan.limit
        self._scanner: object | None = None
        self._place: RegionLocation | None = None
        # Of the row that is being returned in pieces: its key and how many cells of it are out already.
        self._piece_row: bytes | None = None
        self._piece_cells = 0
        self._skip_cells = 0
        if consistency is Consistency.TIMELINE and not operations.backend.capabilities.region_replicas:
            raise operations.no_replicas()

    def __iter__(self) -> Iterator[tuple[Result, RegionLocation | None]]:
        try:
            page: ScanPage | None = self._open()
            while page is not None:
                for result in page.rows:
                    whole = self._unseen(result)
                    if whole is None:
                        continue
                    yield whole, self._place
                    if self._left is not None and self._left <= 0:
                        return
                page = self._after(page)
        finally:
            self.close()

    def close(self) -> None:
        scanner, self._scanner = self._scanner, None
        if scanner is not None:
            self._close_scanner(scanner)

    def _close_scanner(self, scanner: object) -> None:
        runtime = self._operations.runtime
        deadline = runtime.now() + self._operations.config.rpc_timeout_s
        try:
            self._operations.executor.call(self._operations.backend.scan_close, scanner, deadline=deadline)
        except MetaClientError as error:
            # The lease will close it; the scan itself is over and was right.
            self._operations.telemetry.emit("retry", what="scan_close", error=str(error))

    # -- rows ------------------------------------------------------------------------------------------------

    def _unseen(self, result: Result) -> Result | None:
        """The result without cells that were returned before a reopening; moves the position on."""
        if self._skip_cells:
            if result.row != self._piece_row:
                self._skip_cells = 0
            elif len(result.cells) <= self._skip_cells:
                self._skip_cells -= len(result.cells)
                return None
            else:
                result = result._replace(cells=result.cells[self._skip_cells :])
                self._skip_cells = 0
        if result.is_partial:
            is_same = result.row == self._piece_row
            self._piece_cells = (self._piece_cells if is_same else 0) + len(result.cells)
            self._piece_row = result.row
        else:
            self._piece_row = None
            self._piece_cells = 0
            if self._left is not None:
                self._left -= 1
        self._position = replace(self._position, start_row=result.row, include_start=result.is_partial)
        return result

    # -- pages -----------------------------------------------------------------------------------------------

    def _after(self, page: ScanPage) -> ScanPage | None:
        """The page that follows, in this region or the next one; None at the end of the scan."""
        if page.is_end_of_region:
            self._scanner = None
            if page.scanner is not None:
                self._close_scanner(page.scanner)
            return self._open() if self._move_on() else None
        if self._scanner is None:
            return self._open()  # the server let go of it in the middle of the region
        return self._next()

    def _move_on(self) -> bool:
        """Go to the region after this one; False when the range or the table ends here."""
        if self._place is None:
            return False  # a gateway's scanner covers the whole range
        region = self._place.region
        scan = self._position
        if scan.is_reversed:
            at = region.start_key
            if not at or at <= scan.stop_row:
                return False
            self._position = replace(scan, start_row=at, include_start=False)
        else:
            at = region.end_key
            if not at or (keys.ends_before_or_at(scan.stop_row, at) and not self._stops_at(at)):
                return False
            self._position = replace(scan, start_row=at, include_start=True)
        self._piece_row = None
        return True

    def _stops_at(self, row: bytes) -> bool:
        """True when the stop row is the first row of the next region and belongs to the scan."""
        return self._position.include_stop and self._position.stop_row == row

    def _next(self) -> ScanPage:
        operations = self._operations
        deadline = operations.runtime.now() + operations.config.operation_timeout_s
        scanner, self._scanner = self._scanner, None
        try:
            page = operations._at(
                self._place, operations.backend.scan_next, scanner, self._rows_wanted(), deadline=self._page_deadline()
            )
        except ConnectionClosed:
            raise
        except MetaClientError as error:
            return self._reopen(error, deadline)
        self._scanner = page.scanner
        return page

    def _page_deadline(self) -> float:
        return self._operations.runtime.now() + self._operations.config.scanner_timeout_s

    def _rows_wanted(self) -> int:
        return self._position.caching if self._left is None else min(self._position.caching, self._left)

    # -- opening ---------------------------------------------------------------------------------------------

    def _open(self) -> ScanPage:
        operations = self._operations
        deadline = operations.runtime.now() + operations.config.operation_timeout_s
        return operations._retried(
            lambda: self._open_once(deadline), deadline, self._table, "scan", self._position.start_row
        )

    def _reopen(self, error: MetaClientError, deadline: float) -> ScanPage:
        operations = self._operations
        self._skip_cells = self._piece_cells if self._piece_row is not None else 0
        return operations.retrier.resume(
            error,
            lambda: self._open_once(deadline),
            deadline=deadline,
            what=lambda: f"scan of {keys.printable(self._table)!r} from {keys.printable(self._position.start_row)!r}",
            on_failure=operations._learner(self._table, deadline),
        )

    def _open_once(self, deadline: float) -> ScanPage:
        operations = self._operations
        scan = replace(self._position, limit=self._left, caching=self._rows_wanted())
        if operations.by_gateway and self._consistency is Consistency.STRONG:
            place = None
            page = operations._at(
                None,
                operations.backend.scan_open,
                None,
                self._table,
                scan,
                deadline=min(deadline, self._page_deadline()),
            )
        elif self._consistency is Consistency.TIMELINE and self._replica_id is None:
            page, place = self._race(scan, deadline)
        else:
            place = self._locate(deadline)
            page = operations._at(
                place,
                operations.backend.scan_open,
                place,
                self._table,
                scan,
                deadline=min(deadline, self._page_deadline()),
            )
        self._place = place
        self._scanner = page.scanner
        return page

    def _target(self) -> tuple[bytes, bool]:
        """The row to look up, and whether the region *before* it is meant (reversed scans)."""
        scan = self._position
        return scan.start_row, scan.is_reversed and (not scan.start_row or not scan.include_start)

    def _locate(self, deadline: float) -> RegionLocation:
        row, before = self._target()
        replica_id = self._replica_id or 0
        entry = self._operations.locator.locate_region(
            self._table, row, deadline=deadline, replica_id=replica_id, before=before
        )
        place = entry.at(replica_id)
        assert place is not None
        return place

    def _race(self, scan: Scan, deadline: float) -> tuple[ScanPage, RegionLocation]:
        row, before = self._target()

        def discard(page: ScanPage) -> None:
            if page.scanner is not None:
                self._close_scanner(page.scanner)

        return self._operations.race(
            self._table,
            row,
            "scan",
            lambda place, until: self._operations.backend.scan_open(place, self._table, scan, until),
            deadline=deadline,
            before=before,
            discard=discard,
        )
