"""Decides when a scan requests its next page ahead, and holds that request.

From the second page of a scan on, the following page is requested while the caller uses the current one, so that
client and server work at the same time. The first page is not followed by such a request, because many scans need only
that one. After the last page of a region, that request opens the scanner of the next region. A scan never holds more
than two pages: the one in use and the one that was requested ahead.

Mirrors ClientAsyncPrefetchScanner (HBase 2.x), which is off by default and holds as many bytes as two pages.
DIVERGENCE: there the caller waits at each border of regions until the next scanner is open.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, TypeVar

from metaclient.backend import Answer, CellPage, ScanPage, SentPage
from metaclient.calls.operations import Operations
from metaclient.errors import MetaClientError
from metaclient.model import RegionLocation, Scan
from metaclient.runtime import Pending

__all__ = ["OpenedAhead", "PageAhead", "count_rows"]

P = TypeVar("P", bound=ScanPage | CellPage)
#: Pages that a scan reads before further pages are requested ahead.
PAGES_BEFORE = 2


@dataclass(frozen=True, slots=True)
class OpenedAhead:
    """The arguments of a request that opens a scanner ahead."""

    place: RegionLocation
    scan: Scan


class PageAhead(Generic[P]):
    """At most one request for the next page of a scan.

    ``begun`` is the instant of that request, None if there is none. ``opened`` is not None if the request opens a
    scanner. ``open_page`` and ``next_page`` are the backend's calls; ``send_next`` is that of a SendingBackend.
    """

    def __init__(
        self,
        operations: Operations,
        table: bytes,
        caching: int,
        timeout_s: float,
        *,
        open_page: Callable[[RegionLocation | None, bytes, Scan, float], Answer[P]],
        next_page: Callable[[object, int, float], Answer[P]],
        send_next: Callable[[object, int, float], SentPage[P] | None] | None,
    ) -> None:
        self._operations = operations
        self._table = table
        self._open_page = open_page
        self._next_page = next_page
        self._send_next = send_next
        self._caching = caching
        self._timeout_s = min(timeout_s, operations.read_timeout_s)
        self._is_on = operations.config.scan_prefetch and operations.backend.capabilities.is_remote
        self._pages = 0  # of the scan
        self._requested: Pending[P] | None = None
        self.begun: float | None = None
        self.opened: OpenedAhead | None = None

    def is_due(self, page: P, rows_left: int | None) -> bool:
        """Count a page of the scan; return True if the caller will need another whole page.

        ``rows_left`` is the limit of the scan before the rows of this page are returned.
        """
        self._pages += 1
        if not self._is_on or self._pages < PAGES_BEFORE:
            return False
        return rows_left is None or rows_left >= count_rows(page) + self._caching

    def request_next(self, scanner: object) -> None:
        """Request the next page of this scanner. An error of the request is raised to the caller that takes it."""
        self._request(self._begin_next, scanner, self._caching)

    def request_open(self, place: RegionLocation, scan: Scan) -> None:
        """Request the first page of another scanner, as ``request_next`` does."""
        self._request(self._begin_open, place, scan)
        self.opened = OpenedAhead(place, scan)

    def take(self) -> Pending[P] | None:
        """Return the request and forget it; None if there is none."""
        requested, self._requested, self.begun, self.opened = self._requested, None, None, None
        return requested

    def _begin_next(self, scanner: object, rows: int, deadline: float) -> Pending[P]:
        executor = self._operations.executor
        sent = None if self._send_next is None else self._send_next(scanner, rows, deadline)
        if sent is not None:
            return executor.begin_sent(sent)
        return executor.begin(self._next_page, scanner, rows, deadline)

    def _begin_open(self, place: RegionLocation, scan: Scan, deadline: float) -> Pending[P]:
        return self._operations.executor.begin(self._open_page, place, self._table, scan, deadline)

    def _request(self, begin: Callable[..., Pending[P]], *args: object) -> None:
        runtime = self._operations.runtime
        self.begun = runtime.now()
        requested: Pending[P]
        try:
            requested = begin(*args, self.begun + self._timeout_s)
        except MetaClientError as error:
            requested = runtime.pending(name="a page that could not be requested")
            requested.fail(error)
        requested.on_done(_ignore)  # sends the request, and lets the page be read although no thread waits for it
        self._requested = requested


def count_rows(page: ScanPage | CellPage) -> int:
    return page.rows if isinstance(page.rows, int) else len(page.rows)  # a page of cells has only their number


def _ignore(_: object) -> None:
    """Take no notice of the end of a request: its page is taken later."""
