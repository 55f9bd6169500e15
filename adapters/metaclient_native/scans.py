"""Scanners on region servers: pages of rows, lost and kept; what a reply says about the scanner's life.

1. The open call already brings rows. Each ``next`` counts one; it is never sent twice.
2. A row may come in pieces (``partial``): they are glued, and the last one of a page is kept back until it is whole,
   unless the scan asked for pieces (``batch``).
3. ``more_results_in_region`` false: the region is done and the server has closed the scanner. ``more_results`` false:
   the limit is reached, or a filter wants nothing more. Neither is said: the scanner is gone.
4. When no more is to come of a region, what was kept back is whole: the server did not know it yet when it sent it.
5. A scanner that nobody asks for half of its lease is renewed, which counts one, too: a ``next`` waits for it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from metaclient.backend import CellPage, ScanPage
from metaclient.model import Result, Scan, ServerName
from metaclient.row_limit import RowLimit
from metaclient.runtime import Pending
from metaclient.wire.rpc.cellblock import decode_results, skip_cells
from metaclient.wire.rpc.framing import Response
from metaclient.wire.rpc.messages import SCAN, SCAN_REQUEST
from metaclient.wire.rpc.protobuf import ProtocolError, delimited, encode, varint
from metaclient.wire.rpc.queries import scan_message
from metaclient_native.arrow import cells_to_arrow
from metaclient_native.calls import ScanAnswer, region_prefix, scan_answer

__all__ = [
    "LEASE_S",
    "RENEWALS_MAX",
    "Scanner",
    "cells_of",
    "close_param",
    "next_param",
    "no_cells",
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


@dataclass(slots=True, eq=False)
class Scanner:
    """A scanner on one server, as the client sees it."""

    server: ServerName
    scan: Scan
    scanner_id: int = 0
    sequence: int = 0
    #: Rows that may still come; None = no limit.
    limit: RowLimit | None = None
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
    return made if scanner.limit is None else made + b"\x58" + varint(max(scanner.limit.left, 1))


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
        rows = _glued(scanner, rows, is_end=_is_end(answer))
    if scanner.limit is not None:
        rows = scanner.limit.take(rows)
    following, is_end_of_region, is_end_of_scan = _state(scanner, answer, now)
    return ScanPage(rows, following, is_end_of_region, answer.is_stale, is_end_of_scan=is_end_of_scan)


def cells_of(scanner: Scanner, response: Response, now: Callable[[], float]) -> CellPage:
    """The same for readers that want Arrow: no object for a row or a cell."""
    answer = scan_answer(response.data, response.at, response.end)
    if answer.results:
        raise ProtocolError("the server put cells into the message and not into a cell block")
    cells, rows = _whole_cells(scanner, response, answer)
    if scanner.limit is not None and rows:
        if rows > scanner.limit.left:
            rows = scanner.limit.left
            cells = cells.slice(0, _row_starts(cells)[rows])
        scanner.limit.left -= rows
    first, last = (cells.column(0)[at].as_py() for at in (0, -1)) if rows else (b"", b"")
    following, is_end_of_region, is_end_of_scan = _state(scanner, answer, now)
    return CellPage(cells, rows, first, last, following, is_end_of_region, answer.is_stale, is_end_of_scan)


def no_cells(*, is_stale: bool) -> CellPage:
    """The answer to a scan of nothing, for which no server is asked."""
    return CellPage(cells_to_arrow(b""), 0, b"", b"", None, True, is_stale, is_end_of_scan=True)


def _whole_cells(scanner: Scanner, response: Response, answer: ScanAnswer) -> tuple[Any, int]:
    """The cells of whole rows, in Arrow, and how many rows they are; what is still missing its end is kept."""
    data, end, counts, kept = response.data, response.end, answer.counts, scanner.kept_cells
    if not kept and not any(answer.partials):
        cells = cells_to_arrow(data, end)
        if cells.num_rows != sum(counts):
            raise ProtocolError(f"a page of {cells.num_rows} cells whose results have {sum(counts)}")
        return cells, len(counts) - counts.count(0)
    is_end, whole = _is_end(answer), len(counts)
    while whole and answer.partials[whole - 1] and not is_end:
        whole -= 1  # the last row's pieces: their end is to come
    cut = skip_cells(data, end, len(data), sum(counts[:whole]))
    if skip_cells(data, cut, len(data), sum(counts[whole:])) != len(data):
        raise ProtocolError(f"the cell block has bytes behind the {sum(counts)} cells of its results")
    if whole or is_end:
        block, scanner.kept_cells = kept + data[end:cut], data[cut:]
    else:
        block, scanner.kept_cells = b"", kept + data[cut:]
    cells = cells_to_arrow(block)
    return cells, len(_row_starts(cells))


def _row_starts(cells: Any) -> list[int]:
    """Where each row begins; for the few pages on which the server's counts do not tell it."""
    rows = cells.column(0).to_pylist()
    return [at for at, row in enumerate(rows) if not at or row != rows[at - 1]]


def _is_end(answer: ScanAnswer) -> bool:
    """No more will come of this region: also what was said to be a piece is all there is of its row."""
    return answer.more_in_region is False or answer.more_results is False


def _state(scanner: Scanner, answer: ScanAnswer, now: Callable[[], float]) -> tuple[Scanner | None, bool, bool]:
    """The scanner for the next page, whether the region has no more, whether the whole scan has no more."""
    scanner.used_at = now()
    if answer.scanner_id is not None:
        scanner.scanner_id = answer.scanner_id
    if answer.ttl_ms:
        scanner.lease_s = answer.ttl_ms / 1000
    is_limited = scanner.limit is not None and scanner.limit.is_reached
    if answer.more_results is False:
        # At the limit it is over as far as the caller counts rows as we do; else a filter wants nothing more.
        return None, False, not is_limited
    if answer.more_in_region is False:
        return None, True, False
    if answer.more_in_region is None or not scanner.scanner_id:
        return None, False, False
    return scanner, False, False


def _glued(scanner: Scanner, rows: list[Result], *, is_end: bool) -> list[Result]:
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
    if kept is not None and is_end:
        made.append(kept._replace(is_partial=False))
        kept = None
    scanner.kept = kept
    return made
