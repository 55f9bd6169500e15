"""A scanner on a region server: its requests, its pages of rows, and its state after each response.

1. The call that opens a scanner brings the first rows. Each ``next`` increments ``next_call_seq``; it is never sent
   twice.
2. A row may come in pieces (``partial``), which are joined. The last piece of a page is kept until the row is whole,
   unless the scan asked for pieces (``batch``).
3. ``more_results_in_region`` false: the region has no more rows, and the server has closed the scanner.
   ``more_results`` false: the limit is reached, or a filter ended the scan. Neither field is set: the server has no
   such scanner.
4. At the end of a region a kept piece is a whole row: the server did not know yet that no piece would follow.
5. A scanner that had no call for half of its lease is renewed. A renewal increments ``next_call_seq``, too, so the
   following ``next`` waits for it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from metaclient.backend import CellPage, ScanPage
from metaclient.model import Result, Scan, ServerName
from metaclient.protobuf import ProtocolError, delimited, encode, varint
from metaclient.row_limit import RowLimit
from metaclient.row_runs import AlikeRows, RowRuns
from metaclient.runtime import Pending
from metaclient.wire.rpc.arrow import cells_to_arrow
from metaclient.wire.rpc.cellblock import decode_results, skip_cells
from metaclient.wire.rpc.framing import Response
from metaclient.wire.rpc.messages import SCAN, SCAN_REQUEST
from metaclient.wire.rpc.queries import scan_message
from metaclient.wire.rpc.row_layout import decode_runs
from metaclient_native.calls import ScanResponse, decode_scan, encode_region

__all__ = [
    "LEASE_S",
    "RENEWALS_MAX",
    "Scanner",
    "encode_close",
    "encode_next",
    "encode_open",
    "encode_renew",
    "make_empty_cell_page",
    "read_cell_page",
    "read_first_page",
    "read_page",
]

#: hbase.client.scanner.timeout.period; used until a response has the server's own.
LEASE_S = 60.0
#: A scanner without calls is renewed this many times; then its lease expires.
RENEWALS_MAX = 60
#: client_handles_partials and client_handles_heartbeats: a server sends heartbeats only if both are set.
_FLAGS = encode(SCAN_REQUEST, {"client_handles_partials": True, "client_handles_heartbeats": True})
_SCAN, _SCANNER_ID, _ROWS, _SEQUENCE, _LIMIT = map(
    SCAN_REQUEST.tag, ("scan", "scanner_id", "number_of_rows", "next_call_seq", "limit_of_rows")
)


@dataclass(slots=True, eq=False)
class Scanner:
    """The client's state of a scanner that is open on one server."""

    server: ServerName
    scan: Scan
    scanner_id: int = 0
    sequence: int = 0
    #: The rows that the scan may still return; None if it has no limit.
    limit: RowLimit | None = None
    #: The pieces of a row that is not whole yet.
    kept: Result | None = None
    #: The same pieces as bytes of a cell block.
    kept_cells: bytes = field(default=b"", repr=False)
    priority: int = 0
    #: A call has failed or is in flight: no other call may be sent before its response has arrived.
    is_lost: bool = False
    lease_s: float = LEASE_S
    used_at: float = 0.0
    renewals: int = 0
    renewal: Pending[Any] | None = field(default=None, repr=False)


def encode_open(region_name: bytes, scan: Scan, *, read_type: int = 0) -> bytes:
    """Return a ScanRequest that opens a scanner and asks for its first page."""
    message = encode(SCAN, scan_message(scan, max_result_bytes=scan.max_result_bytes, read_type=read_type))
    made = encode_region(region_name) + _SCAN + delimited(message) + _ROWS + varint(scan.caching) + _FLAGS
    return made if scan.limit is None else made + _LIMIT + varint(scan.limit)


def encode_next(scanner: Scanner, rows: int) -> bytes:
    """Return a ScanRequest for the next page, and increment the scanner's sequence."""
    made = (
        _SCANNER_ID + varint(scanner.scanner_id) + _ROWS + varint(rows) + _SEQUENCE + varint(scanner.sequence) + _FLAGS
    )
    scanner.sequence += 1
    return made if scanner.limit is None else made + _LIMIT + varint(max(scanner.limit.left, 1))


def encode_renew(scanner: Scanner) -> bytes:
    """Return a ScanRequest that renews the lease, without rows, and increment the scanner's sequence."""
    fields = {"scanner_id": scanner.scanner_id, "number_of_rows": 0, "next_call_seq": scanner.sequence, "renew": True}
    scanner.sequence += 1
    return encode(SCAN_REQUEST, fields)


def encode_close(scanner_id: int) -> bytes:
    return encode(SCAN_REQUEST, {"scanner_id": scanner_id, "number_of_rows": 0, "close_scanner": True})


def read_page(scanner: Scanner, response: Response, now: Callable[[], float]) -> ScanPage:
    """Return the page of a response, and update the scanner's state.

    The number of rows and the state of the scanner come before the cells. So the cells of whole rows are decoded later
    (``RowRuns.decode``), when the caller has requested the page after this one.
    """
    data, end = response.data, response.end
    answer = decode_scan(data, response.at, end)
    limit = scanner.limit
    rows: Sequence[Result]
    if answer.results or scanner.kept is not None or True in answer.partials:
        rows = answer.results or decode_results(
            data, end, len(data), answer.counts, is_stale=answer.is_stale, partials=answer.partials
        )
        if scanner.scan.batch is None:
            rows = _join_pieces(scanner, rows, is_end=_is_end(answer))
        if limit is not None:
            rows = limit.take(rows)
    else:
        rows = RowRuns.undecoded(len(answer.counts), partial(_decode_rows, scanner, data, end, answer))
        if limit is not None and not limit.take_all(len(rows)):
            rows = limit.take(rows)
    following, is_end_of_region, is_end_of_scan = _move_on(scanner, answer, now)
    return ScanPage(rows, following, is_end_of_region, answer.is_stale, is_end_of_scan=is_end_of_scan)


def read_first_page(scanner: Scanner, response: Response, now: Callable[[], float]) -> ScanPage:
    """Return the page of the response that opened the scanner, decoded: another replica is called if that fails."""
    page = read_page(scanner, response, now)
    if isinstance(page.rows, RowRuns):
        page.rows.decode()
    return page


def _decode_rows(scanner: Scanner, data: bytes, at: int, answer: ScanResponse) -> list[AlikeRows | list[Result]]:
    """Return the whole rows of a cell block; ProtocolError, with the server, for bytes that are none."""
    try:
        return decode_runs(data, at, len(data), answer.counts, is_stale=answer.is_stale)
    except Exception as error:
        host, port, _ = scanner.server
        text = f"scan at {host}:{port}: the response cannot be decoded: {type(error).__name__}: {error}"
        raise ProtocolError(text) from error


def read_cell_page(scanner: Scanner, response: Response, now: Callable[[], float]) -> CellPage:
    """Return the page of a response with its cells in Arrow, without Python objects, and update the scanner's state."""
    answer = decode_scan(response.data, response.at, response.end)
    if answer.results:
        raise ProtocolError("the server sent cells in the message and not in a cell block")
    cells, rows = _take_whole_cells(scanner, response, answer)
    if scanner.limit is not None and rows:
        if rows > scanner.limit.left:
            rows = scanner.limit.left
            cells = cells.slice(0, _find_row_starts(cells)[rows])
        scanner.limit.left -= rows
    first, last = (cells.column(0)[at].as_py() for at in (0, -1)) if rows else (b"", b"")
    following, is_end_of_region, is_end_of_scan = _move_on(scanner, answer, now)
    return CellPage(cells, rows, first, last, following, is_end_of_region, answer.is_stale, is_end_of_scan)


def make_empty_cell_page(*, is_stale: bool) -> CellPage:
    """Return the page of a scan whose range is empty; no call is made for it."""
    return CellPage(cells_to_arrow(b""), 0, b"", b"", None, True, is_stale, is_end_of_scan=True)


def _take_whole_cells(scanner: Scanner, response: Response, answer: ScanResponse) -> tuple[Any, int]:
    """Return the cells of whole rows in Arrow, and the number of these rows; the pieces of the last row are kept."""
    data, end, counts, kept = response.data, response.end, answer.counts, scanner.kept_cells
    if not kept and not any(answer.partials):
        cells = cells_to_arrow(data, end)
        if cells.num_rows != sum(counts):
            raise ProtocolError(f"the page has {cells.num_rows} cells, and its results have {sum(counts)}")
        return cells, len(counts) - counts.count(0)
    is_end, whole = _is_end(answer), len(counts)
    while whole and answer.partials[whole - 1] and not is_end:
        whole -= 1  # a piece of the last row, whose end is on a later page
    cut = skip_cells(data, end, len(data), sum(counts[:whole]))
    if skip_cells(data, cut, len(data), sum(counts[whole:])) != len(data):
        raise ProtocolError(f"the cell block has bytes behind the {sum(counts)} cells of its results")
    if whole or is_end:
        block, scanner.kept_cells = kept + data[end:cut], data[cut:]
    else:
        block, scanner.kept_cells = b"", kept + data[cut:]
    cells = cells_to_arrow(block)
    return cells, len(_find_row_starts(cells))


def _find_row_starts(cells: Any) -> list[int]:
    """Return the index of the first cell of each row, for pages on which a count is not a row."""
    rows = cells.column(0).to_pylist()
    return [at for at, row in enumerate(rows) if not at or row != rows[at - 1]]


def _is_end(answer: ScanResponse) -> bool:
    """Return True if no more rows of this region follow, so that a kept piece is a whole row."""
    return answer.more_in_region is False or answer.more_results is False


def _move_on(scanner: Scanner, answer: ScanResponse, now: Callable[[], float]) -> tuple[Scanner | None, bool, bool]:
    """Return the scanner for the next page or None, if the region has ended, and if the whole scan has ended."""
    scanner.used_at = now()
    if answer.scanner_id is not None:
        scanner.scanner_id = answer.scanner_id
    if answer.ttl_ms:
        scanner.lease_s = answer.ttl_ms / 1000
    is_limited = scanner.limit is not None and scanner.limit.is_reached
    if answer.more_results is False:
        # Below the limit a filter has ended the scan. At the limit the caller, which counts rows, decides.
        return None, False, not is_limited
    if answer.more_in_region is False:
        return None, True, False
    if answer.more_in_region is None or not scanner.scanner_id:
        return None, False, False
    return scanner, False, False


def _join_pieces(scanner: Scanner, rows: Sequence[Result], *, is_end: bool) -> list[Result]:
    """Return the whole rows; the pieces of the last row are kept for the next page unless this ``is_end``."""
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
