"""Scanners on region servers: pages of rows, lost and kept; what a reply says about the scanner's life.

1. The open call already brings rows. Each ``next`` counts one; it is never sent twice.
2. A row may come in pieces (``partial``): they are glued, and the last one of a page is kept back until it is whole,
   unless the scan asked for pieces (``batch``).
3. ``more_results_in_region`` false: the region is done and the server has closed the scanner. ``more_results`` false:
   the limit is reached, or a filter wants nothing more. Neither is said: the scanner is gone.
4. A scanner that nobody asks for half of its lease is renewed, which counts one, too: a ``next`` waits for it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from adapters.native.protocol.arrow import cells_to_arrow
from adapters.native.protocol.calls import ScanAnswer, region_prefix, scan_answer
from adapters.native.protocol.cellblock import decode_results, skip_cells
from adapters.native.protocol.framing import Response
from adapters.native.protocol.messages import SCAN, SCAN_REQUEST
from adapters.native.protocol.protobuf import ProtocolError, delimited, encode, varint
from adapters.native.protocol.queries import scan_message
from metaclient.backend import ScanPage
from metaclient.model import Result, Scan, ServerName
from metaclient.runtime import Pending

if TYPE_CHECKING:
    import pyarrow

__all__ = [
    "LEASE_S",
    "RENEWALS_MAX",
    "CellPage",
    "Scanner",
    "cells_of",
    "close_param",
    "next_param",
    "open_param",
    "page_of",
    "renew_param",
]

#: hbase.client.scanner.timeout.period, when the server does not say.
LEASE_S = 60.0
#: A scanner is kept for so many half leases without a question; then it is left to its lease.
RENEWALS_MAX = 60
#: "I take rows in pieces" and "I take answers without rows": on both hang heartbeats.
_FLAGS = b"\x38\x01\x40\x01"


@dataclass(frozen=True, slots=True)
class CellPage:
    """A page of a scan as cells in Arrow (see ``protocol.arrow``), whole rows only; the rest as in ``ScanPage``."""

    cells: pyarrow.RecordBatch
    scanner: object | None
    is_end_of_region: bool
    is_stale: bool = False
    is_end_of_scan: bool = False


@dataclass(slots=True, eq=False)
class Scanner:
    """A scanner on one server, as the client sees it."""

    server: ServerName
    scan: Scan
    scanner_id: int = 0
    sequence: int = 0
    #: Rows that may still come; None = no limit.
    left: int | None = None
    #: Pieces of a row that is not whole yet.
    kept: Result | None = None
    #: The same, as cells of a block.
    kept_cells: bytes = field(default=b"", repr=False)
    priority: int = 0
    #: A call of it has failed, or is under way: it must not be asked again before an answer came.
    is_lost: bool = False
    lease_s: float = LEASE_S
    used_at: float = 0.0
    renewals: int = 0
    renewal: Pending[Any] | None = field(default=None, repr=False)


def open_param(region_name: bytes, scan: Scan, *, read_type: int = 0) -> bytes:
    """A ScanRequest that opens a scanner and asks for its first page."""
    message = encode(SCAN, scan_message(scan, max_result_bytes=scan.max_result_bytes, read_type=read_type))
    made = region_prefix(region_name) + b"\x12" + delimited(message) + b"\x20" + varint(scan.caching) + _FLAGS
    return made if scan.limit is None else made + b"\x58" + varint(scan.limit)


def next_param(scanner: Scanner, rows: int) -> bytes:
    """The next page; counts one."""
    made = b"\x18" + varint(scanner.scanner_id) + b"\x20" + varint(rows) + b"\x30" + varint(scanner.sequence) + _FLAGS
    scanner.sequence += 1
    return made if scanner.left is None else made + b"\x58" + varint(max(scanner.left, 1))


def renew_param(scanner: Scanner) -> bytes:
    """A new lease and no rows; counts one."""
    fields = {"scanner_id": scanner.scanner_id, "number_of_rows": 0, "next_call_seq": scanner.sequence, "renew": True}
    scanner.sequence += 1
    return encode(SCAN_REQUEST, fields)


def close_param(scanner_id: int) -> bytes:
    return encode(SCAN_REQUEST, {"scanner_id": scanner_id, "number_of_rows": 0, "close_scanner": True})


def page_of(scanner: Scanner, response: Response, now: Callable[[], float]) -> ScanPage:
    """What a reply brings, and how it goes on; moves the scanner's state."""
    data, end = response.data, response.end
    answer = scan_answer(data, response.at, end)
    rows = answer.results or decode_results(
        data, end, len(data), answer.counts, is_stale=answer.is_stale, partials=answer.partials
    )
    if scanner.scan.batch is None:
        rows = _glued(scanner, rows)
    if scanner.left is not None:
        scanner.left -= sum(1 for row in rows if not row.is_partial)
    return _page(scanner, answer, rows, now)


def cells_of(scanner: Scanner, response: Response, now: Callable[[], float]) -> CellPage:
    """The same for readers that want Arrow: no object for a row or a cell."""
    data, end = response.data, response.end
    answer = scan_answer(data, response.at, end)
    if answer.results:
        raise ProtocolError("the server put cells into the message and not into a cell block")
    whole = len(answer.counts)
    while whole and answer.partials[whole - 1]:
        whole -= 1  # the last row's pieces: their end is to come
    cut = skip_cells(data, end, len(data), sum(answer.counts[:whole]))
    if whole:
        block, scanner.kept_cells = scanner.kept_cells + data[end:cut], data[cut:]
    else:
        block, scanner.kept_cells = b"", scanner.kept_cells + data[cut:]
    if scanner.left is not None:
        scanner.left -= sum(1 for is_partial in answer.partials[:whole] if not is_partial)
    page = _page(scanner, answer, [], now)
    return CellPage(
        cells_to_arrow(block), page.scanner, page.is_end_of_region, page.is_stale, is_end_of_scan=page.is_end_of_scan
    )


def _page(scanner: Scanner, answer: ScanAnswer, rows: list[Result], now: Callable[[], float]) -> ScanPage:
    scanner.used_at = now()
    if answer.scanner_id is not None:
        scanner.scanner_id = answer.scanner_id
    if answer.ttl_ms:
        scanner.lease_s = answer.ttl_ms / 1000
    is_limited = scanner.left is not None and scanner.left <= 0
    if answer.more_results is False:
        # At the limit it is over as far as the caller counts rows as we do; else a filter wants nothing more.
        return ScanPage(rows, None, False, answer.is_stale, is_end_of_scan=not is_limited)
    if answer.more_in_region is False:
        return ScanPage(rows, None, True, answer.is_stale)
    if answer.more_in_region is None or not scanner.scanner_id:
        return ScanPage(rows, None, False, answer.is_stale)
    return ScanPage(rows, scanner, False, answer.is_stale)


def _glued(scanner: Scanner, rows: list[Result]) -> list[Result]:
    """Whole rows; what is still missing its end is kept for the next page."""
    if scanner.kept is None and not any(row.is_partial for row in rows):
        return rows
    made: list[Result] = []
    kept = scanner.kept
    for row in rows:
        if kept is not None and kept.row == row.row:
            row = row._replace(cells=[*kept.cells, *row.cells])
        elif kept is not None:
            made.append(kept._replace(is_partial=False))
        kept = row if row.is_partial else None
        if kept is None:
            made.append(row)
    scanner.kept = kept
    return made
