"""Runs a scan over the regions of a table: opens scanners, fetches pages, and reopens scanners that were lost.

The subclasses in :mod:`metaclient.scanner` interpret the pages.

1. The next region is found by the row at which the scan continues. A TIMELINE scan opens it as a race over the
   replicas, primary first; the winner's scanner serves all further pages of that region. Losers' scanners are closed.
2. A scanner that is lost (lease, restart, move, split) is reopened after the last row that was returned: no row is
   lost or repeated. Within a row that is returned in parts, the scanner is reopened *at* the row, and the cells that
   were returned are skipped.
3. A ``next`` is never sent twice: HBase 3 answers a repeated ``next`` with an empty success.
4. Each page has its own deadline and attempts: a whole scan may take days, a single page may not. A page without rows
   is a heartbeat and counts as an answer, unless heartbeats arrive faster than any server sends them.
5. An open scan belongs to the process that began it. In a child process after ``os.fork()`` the next page of the scan
   raises ConnectionClosed. The child does not close the scanner, which the parent still uses.
6. The next page may be requested ahead, while the caller uses the current one (:mod:`metaclient.calls.page_ahead`).
   At the end of a region that request opens the scanner of the next region, if the scan is STRONG and the location is
   in the cache. The scanner is used if it begins where the scan continues, and closed otherwise. An error of the
   request is handled as that of an open which the caller waits for.
7. Behind a gateway a STRONG scan is one scanner for the whole range. A TIMELINE scan is cut at the regions' borders, so
   that each region has its own race and each row has a location.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import replace
from typing import Generic, Protocol, TypeVar

from metaclient import keys
from metaclient.attempts import ReadGuard
from metaclient.backend import Answer, CellPage, ScanPage, SentPage
from metaclient.calls.answers import lag_of
from metaclient.calls.operations import Operations
from metaclient.calls.page_ahead import PageAhead, count_rows
from metaclient.calls.staleness import StalenessLimit
from metaclient.errors import (
    Attempt,
    BackendFault,
    MetaClientError,
    RetriesExhausted,
    ScannerLost,
)
from metaclient.model import META_TABLE, Consistency, RegionLocation, Scan
from metaclient.row_runs import RowRuns
from metaclient.runtime import Pending, inherited_error

__all__ = ["RegionWalk", "ScanGuard"]

_log = logging.getLogger(__name__)

P = TypeVar("P", bound=ScanPage | CellPage)
#: HBase sends a heartbeat after half of the scanner's time-out: a thousand heartbeats per second are a fault.
HEARTBEATS_MAX = 1000
HEARTBEATS_S = 1.0


class ScanGuard(ReadGuard, Protocol):
    """Decides which secondaries may open a scanner, and is notified of each page."""

    def saw_page(self, place: RegionLocation | None, lag_s: float | None, *, since: float) -> None:
        """Record a page of rows; ``place`` is None for a gateway's scanner, which reads primaries of many regions."""


class RegionWalk(Generic[P]):
    """The position of a scan, and the calls that fetch its pages.

    A subclass gets pages from :meth:`_fetch` and :meth:`_after`, advances the position (``_at_row``, ``_at_inclusive``)
    and ``_left`` as it returns their rows, and calls :meth:`close` at the end. ``open_page`` and ``next_page`` are
    the backend's calls, which answer a ``page_type``; ``send_next`` is that of a SendingBackend.

    It has more than 30 methods because the position decides about pages, borders and opens alike.
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
        page_type: type[P],
        open_page: Callable[[RegionLocation | None, bytes, Scan, float], Answer[P]],
        next_page: Callable[[object, int, float], Answer[P]],
        send_next: Callable[[object, int, float], SentPage[P] | None] | None = None,
        guard: ScanGuard | None = None,
    ) -> None:
        if consistency is Consistency.TIMELINE and not operations.backend.capabilities.region_replicas:
            raise operations.no_replicas()
        self._operations = operations
        self._fork_count = operations.runtime.fork_count
        self._table = table
        self._scan = scan
        self._page_type = page_type
        self._open_page = open_page
        self._next_page = next_page
        # The position: both change with each row, and become a Scan only when a scanner is opened.
        self._at_row = scan.start_row
        self._at_inclusive = scan.include_start
        self._is_timeline = consistency is Consistency.TIMELINE
        self._replica_id = replica_id
        self._max_staleness_s = max_staleness_s
        self._limit_of_place: StalenessLimit | None = None  # what was known of the replica before it was opened
        self._guard = guard
        self._left = scan.limit  # results that may still be returned
        self._timeout_s = min(operations.timeout_s(table), operations.config.scanner_timeout_s)
        self._scanner: object | None = None
        self._place: RegionLocation | None = None
        self._losses: list[MetaClientError] = []  # since the last row
        self._page_ahead: PageAhead[P] = PageAhead(
            operations,
            table,
            scan.caching,
            self._timeout_s,
            open_page=open_page,
            next_page=next_page,
            send_next=send_next,
        )
        if table == META_TABLE:
            self._is_ahead = self._is_ahead_in_meta  # type: ignore[method-assign]  # free for the scans of other tables

    def close(self) -> None:
        scanner, self._scanner = self._scanner, None
        requested = self._page_ahead.take()
        if requested is not None:
            if not self._is_inherited:
                self._close_after(requested, scanner)
        elif scanner is not None:
            self._close_scanner(scanner)

    def _close_after(self, page: Pending[P], scanner: object) -> None:
        """Close the scanner when the page that was requested from it has arrived, or cannot arrive any more."""

        def close(_: object) -> None:
            self._close_in_a_task(scanner if page.error() is not None else page.result().scanner)

        self._operations.executor.abandon(page, is_watched=True)
        page.on_done(close)

    @property
    def _is_inherited(self) -> bool:
        return self._fork_count != self._operations.runtime.fork_count

    def _close_scanner(self, scanner: object) -> None:
        operations = self._operations
        if self._is_inherited:
            return
        deadline = operations.runtime.now() + operations.config.rpc_timeout_s
        try:
            operations.executor.call(operations.backend.scan_close, scanner, deadline=deadline)
        except MetaClientError as error:
            # The scanner is closed when its lease expires. The scan itself has ended without an error.
            _log.debug("a scanner of table %s was left to its lease: %s", keys.printable(self._table), error)

    def _discard(self, page: object) -> None:
        """Close the scanner of a late or outrun page."""
        if isinstance(page, self._page_type):
            self._close_in_a_task(page.scanner)

    def _close_in_a_task(self, scanner: object | None) -> None:
        """Close a scanner, unless the server has, in a task: the calling thread must not wait."""
        if scanner is not None:
            try:
                self._operations.runtime.start(self._close_scanner, scanner, name="scan_close")
            except MetaClientError as error:
                _log.debug("a scanner was left to its lease: %s", error)

    def _is_ahead(self, row: bytes) -> bool:
        at = self._at_row
        if row == at:
            return self._at_inclusive
        return row > at if not self._scan.is_reversed else not at or row < at

    def _is_ahead_in_meta(self, row: bytes) -> bool:
        """``_is_ahead`` in the order of hbase:meta, which is not the order of bytes (HBase's MetaCellComparator)."""
        at = self._at_row
        if row == at:
            return self._at_inclusive
        if not at:
            return True
        return (keys.meta_sort_key(row) > keys.meta_sort_key(at)) is not self._scan.is_reversed

    # -- pages -----------------------------------------------------------------------------------------------

    def _after(self, page: P) -> P | None:
        """Return the following page, in this region or the next one; None at the end of the scan."""
        if page.is_end_of_scan:
            return None
        if page.is_end_of_region:
            scanner, self._scanner = self._scanner, None
            if scanner is not None:
                self._close_scanner(scanner)
            if not self._move_on():
                return None
        elif self._scanner is None:
            self._resume()  # the server closed the scanner in the middle of the region
        return self._fetch()

    def _move_on(self) -> bool:
        """Move to the next region; return False if the range or the table ends here."""
        border = self._border()
        if border is None:
            return False
        self._at_row = border
        self._at_inclusive = not self._scan.is_reversed
        return True

    def _border(self) -> bytes | None:
        """Return the key between this region and the next one; None if the range or the table ends here."""
        if self._place is None:
            return None  # a gateway's scanner covers the whole range
        region = self._place.region
        is_reversed = self._scan.is_reversed
        at = region.start_key if is_reversed else region.end_key
        if not at or (self._ends_after(at) if is_reversed else self._ends_in(at)):
            return None
        return at

    def _ends_in(self, end_key: bytes) -> bool:
        """Return True if a forward scan has no rows at or after this end of a region."""
        return keys.ends_before_or_at(self._scan.stop_row, end_key) and not self._stops_at(end_key)

    def _ends_after(self, start_key: bytes) -> bool:
        """Return True if a reversed scan has no rows before this start of a region."""
        return not start_key or keys.ends_before_or_at(start_key, self._scan.stop_row)

    def _stops_at(self, row: bytes) -> bool:
        """Return True if the stop row is the first row of the next region and belongs to the scan."""
        return self._scan.include_stop and self._scan.stop_row == row

    def _resume(self) -> None:
        """Prepare to open another scanner at the current position, after the scanner was lost."""

    def _fetch(self) -> P:
        """Return the next page that has rows or ends its region; open a new scanner after a loss."""
        if self._is_inherited:
            raise inherited_error(
                f"the open scan of table '{keys.printable(self._table)}'", "begin a new scan in this process"
            )
        now = self._operations.runtime.now
        heartbeats, since = 0, now()
        self._losses.clear()
        while True:
            page = self._page(now() + self._timeout_s)
            if page.rows or page.is_end_of_region or page.is_end_of_scan:
                return page
            if len(self._losses) > self._operations.config.retries:
                raise self._gave_up()
            heartbeats += 1
            if heartbeats == HEARTBEATS_MAX:
                if now() - since < HEARTBEATS_S:
                    raise BackendFault(f"the backend answered {heartbeats} pages without rows in {now() - since:g} s")
                heartbeats, since = 0, now()

    def _gave_up(self) -> RetriesExhausted:
        """Return the error of a scan that lost more than ``retries`` scanners and got no row."""
        last = self._losses[-1]
        made = RetriesExhausted(
            f"scan of table '{keys.printable(self._table)}' at '{keys.printable(self._at_row)}': "
            f"{len(self._losses)} scanners were lost before they answered a row, "
            f"the last with {type(last).__name__}: {last}",
            attempts=[Attempt(n, 0.0, f"{type(e).__name__}: {e}") for n, e in enumerate(self._losses, 1)],
        )
        made.__cause__ = last
        return made

    def _page(self, deadline: float) -> P:
        return self._operations.retried(
            lambda: self._page_once(deadline),
            deadline,
            self._table,
            "scan",
            self._at_row,
            knows_place=True,
        )

    def _page_once(self, deadline: float) -> P:
        scanner, self._scanner = self._scanner, None
        begun = self._operations.runtime.now() if self._page_ahead.begun is None else self._page_ahead.begun
        try:
            page = self._next_fresh(scanner, deadline) if scanner is not None else self._open(deadline)
        except MetaClientError as error:
            self._resume()
            self._losses.append(error)
            if scanner is not None and not error.loses_scanner and not error.ends_connection:
                self._close_scanner(scanner)  # still open, but useless, because a next is never repeated
            raise
        self._scanner = page.scanner
        if self._guard is not None:
            self._guard.saw_page(self._place, lag_of(page), since=begun)
        is_over = page.is_end_of_region or page.is_end_of_scan
        if page.scanner is None and not is_over and not page.rows:
            self._resume()
            raise ScannerLost("the server closed the scanner before it answered a row")
        if self._page_ahead.is_due(page, self._left):
            if not is_over and page.scanner is not None:
                self._page_ahead.request_next(page.scanner)
            elif page.is_end_of_region and not page.is_end_of_scan:
                self._open_ahead(count_rows(page))
        if isinstance(page.rows, RowRuns):
            self._decode(page.rows)
        return page

    def _decode(self, rows: RowRuns) -> None:
        """Decode the rows of a page; if that fails, prepare to open another scanner at the current position.

        The following page was requested first, so that the server works on it meanwhile.
        """
        try:
            rows.decode()
        except MetaClientError as error:
            self.close()
            self._resume()
            self._losses.append(error)
            raise

    def _next_fresh(self, scanner: object, deadline: float) -> P:
        """Return the next page; open the region again if the page is too stale: a scanner keeps its age."""
        page = self._next(scanner, deadline)
        limit = self._limit_of_place
        if limit is None or limit.refuse(self._place, page) is None:
            return page
        if page.scanner is not None:
            self._close_scanner(page.scanner)
        self._resume()
        return self._open(deadline)

    def _next(self, scanner: object, deadline: float) -> P:
        requested = self._page_ahead.take()
        if requested is not None:
            return self._at(self._place, lambda _: requested, deadline=deadline)
        return self._at(self._place, self._next_page, scanner, self._rows_wanted(), deadline=deadline)

    def _rows_wanted(self) -> int:
        return self._scan.caching if self._left is None else min(self._scan.caching, self._left)

    def _at(self, place: RegionLocation | None, call: Callable[..., Answer[P]], *args: object, deadline: float) -> P:
        try:
            return self._operations.at(place, self._page_type, call, *args, deadline=deadline, discard=self._discard)
        except MetaClientError as error:
            if place is not None:
                self._operations.hedging.on_error(place, error)
            raise

    # -- opening ---------------------------------------------------------------------------------------------

    def _open(self, deadline: float) -> P:
        scan = self._scan_from(self._at_row, self._at_inclusive, self._limit(), self._rows_wanted())
        opened = self._page_ahead.opened
        if opened is not None:
            if opened.scan == scan:
                self._place = opened.place
                return self._at(opened.place, self._take_opened, deadline=deadline)
            self._close_after(self._take_opened(), None)  # the scan does not continue where it was expected to
        staleness = self._operations.hedging.staleness
        self._limit_of_place = staleness.limit(self._max_staleness_s) if self._is_timeline else None
        if self._is_timeline and self._replica_id is None:
            page, self._place = self._race(scan, deadline)
            return page
        self._place = self._locate(deadline)
        if self._limit_of_place is not None:
            self._limit_of_place.admit((self._place,))
        cut = self._cut(scan, self._place)
        page = self._at(self._place, self._open_page, self._place, self._table, cut, deadline=deadline)
        if self._limit_of_place is not None:
            self._limit_of_place.refuse(self._place, page)  # a scan of one replica has no limit; its lag is recorded
        return page

    def _take_opened(self, _: float = 0.0) -> Pending[P]:
        """Return the request that opens a scanner ahead; called by the executor, which may refuse the call instead."""
        requested = self._page_ahead.take()
        assert requested is not None, "requested with ``opened``"
        return requested

    def _scan_from(self, row: bytes, is_inclusive: bool, limit: int | None, caching: int) -> Scan:
        return replace(self._scan, start_row=row, include_start=is_inclusive, limit=limit, caching=caching)

    def _open_ahead(self, rows: int) -> None:
        """Request the first page of the next region, whose location must be in the cache: the caller does not wait.

        ``rows`` is the number of rows that the caller gets before that page. TIMELINE scans are excluded: their open
        is a race, and the staleness of their replicas is checked when the page is needed.
        """
        border = None if self._is_timeline else self._border()
        if border is None:
            return
        is_reversed = self._scan.is_reversed
        place = self._operations.locator.cached(self._table, border, self._replica_id or 0, before=is_reversed)
        if place is not None:
            limit = None if self._left is None else self._left - rows
            self._page_ahead.request_open(place, self._scan_from(border, not is_reversed, limit, self._scan.caching))

    def _limit(self) -> int | None:
        """Return the row limit of the next scanner."""
        return self._left

    def _target(self) -> tuple[bytes, bool]:
        """Return the row to look up, and True if the region *before* it is needed (reversed scans)."""
        return self._at_row, self._scan.is_reversed and (not self._at_row or not self._at_inclusive)

    def _locate(self, deadline: float) -> RegionLocation | None:
        if self._operations.by_gateway and not self._is_timeline:
            return None
        row, before = self._target()
        replica_id = self._replica_id or 0
        entry = self._operations.locator.locate_region(
            self._table, row, deadline=deadline, replica_id=replica_id, before=before
        )
        return entry.at(replica_id)

    def _race(self, scan: Scan, deadline: float) -> tuple[P, RegionLocation]:
        row, before = self._target()
        return self._operations.hedging.race(
            "scan",
            lambda place, until: self._open_page(place, self._table, self._cut(scan, place), until),
            table=self._table,
            row=row,
            answer=self._page_type,
            deadline=deadline,
            before=before,
            discard=self._discard,
            limit=self._limit_of_place,
            guard=self._guard,
        )

    def _cut(self, scan: Scan, place: RegionLocation | None) -> Scan:
        """Return the part of the scan in the region of ``place``; only a gateway needs that."""
        if place is None or not self._operations.by_gateway:
            return scan
        region = place.region
        if scan.is_reversed:
            is_inside = self._ends_after(region.start_key)
            return scan if is_inside else replace(scan, stop_row=region.start_key, include_stop=True)
        is_inside = not region.end_key or self._ends_in(region.end_key)
        return scan if is_inside else replace(scan, stop_row=region.end_key, include_stop=False)
