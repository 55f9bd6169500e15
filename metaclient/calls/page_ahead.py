"""Decides when a scan requests its next page ahead, and holds that request.

From the second page of a scanner on, the following page is requested while the caller uses the current one, so that
client and server work at the same time. The first page is not followed by such a request, because many scans need only
that one. A scan never holds more than two pages: the one in use and the one that was requested ahead.

Mirrors ClientAsyncPrefetchScanner (HBase 2.x), which is off by default and holds as many bytes as two pages.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, TypeVar

from metaclient.backend import Answer, CellPage, ScanPage
from metaclient.calls.operations import Operations
from metaclient.errors import MetaClientError
from metaclient.runtime import Pending

__all__ = ["PageAhead"]

P = TypeVar("P", bound=ScanPage | CellPage)
#: Pages that a scanner answers before further pages are requested ahead.
PAGES_BEFORE = 2


class PageAhead(Generic[P]):
    """At most one request for the next page of a scan.

    ``begun`` is the instant of that request, None if there is none. ``next_page`` is the backend's call.
    """

    def __init__(
        self,
        operations: Operations,
        next_page: Callable[[object, int, float], Answer[P]],
        caching: int,
        timeout_s: float,
    ) -> None:
        self._operations = operations
        self._next_page = next_page
        self._caching = caching
        self._timeout_s = min(timeout_s, operations.read_timeout_s)
        self._is_on = operations.config.scan_prefetch and operations.backend.capabilities.is_remote
        self._pages = 0  # that the current scanner has answered
        self._requested: Pending[P] | None = None
        self.begun: float | None = None

    def scanner_opened(self) -> None:
        self._pages = 0

    def follow(self, page: P, rows_left: int | None) -> None:
        """Request the page after this one, if the caller will need a whole page more.

        ``rows_left`` is the limit of the scan before the rows of this page are returned. An error of the request is
        raised by the one that takes it.
        """
        self._pages += 1
        if not self._is_on or self._pages < PAGES_BEFORE:
            return
        rows = page.rows if isinstance(page.rows, int) else len(page.rows)  # a page of cells has only their number
        if rows_left is None or rows_left >= rows + self._caching:
            self._request(page.scanner)

    def take(self) -> Pending[P] | None:
        """Return the request and forget it; None if there is none."""
        requested, self._requested, self.begun = self._requested, None, None
        return requested

    def _request(self, scanner: object) -> None:
        runtime = self._operations.runtime
        self.begun = runtime.now()
        requested: Pending[P]
        try:
            deadline = self.begun + self._timeout_s
            requested = self._operations.executor.begin(self._next_page, scanner, self._caching, deadline)
        except MetaClientError as error:
            requested = runtime.pending(name="a page that could not be requested")
            requested.fail(error)
        requested.on_done(_ignore)  # sends the request, and lets the page be read although no thread waits for it
        self._requested = requested


def _ignore(_: object) -> None:
    """Take no notice of the end of a request: its page is taken later."""
