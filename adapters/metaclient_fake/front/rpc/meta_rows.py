"""hbase:meta as a client outside reads it: in meta's own order of rows, with addresses that can be connected to."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from metaclient.backend import MetaScan, ScanPage
from metaclient.errors import ScannerLost
from metaclient.model import Cell, Get, Result, Scan, ServerName
from metaclient_fake.front.meta_scan import families_of, row_getter
from metaclient_fake.front.rpc.addresses import Addresses
from metaclient_fake.server.data_calls import DataCalls

if TYPE_CHECKING:
    from metaclient_fake.backend import FakeBackend

__all__ = ["MetaRows", "MetaScanner", "replica_of_meta"]

_META = b"hbase:meta,,1"
#: Whatever a client asks for, a page has no more.
_PAGE_ROWS_MAX = 10_000
_OUT_OF_ORDER = "org.apache.hadoop.hbase.exceptions.OutOfOrderScannerNextException"


def replica_of_meta(region_name: bytes) -> int | None:
    """Which copy of hbase:meta a region's name stands for; None when it is another region.

    >>> replica_of_meta(b"hbase:meta,,1"), replica_of_meta(b"hbase:meta,,1_000A"), replica_of_meta(b"t,,1")
    (0, 10, None)
    """
    if region_name == _META:
        return 0
    head, _, suffix = region_name.rpartition(b"_")
    if head != _META or len(suffix) != 4:
        return None
    try:
        return int(suffix, 16)
    except ValueError:
        return None


@dataclass(slots=True)
class MetaScanner:
    """A scan of one copy: where it goes on, and what it has seen."""

    scanner_id: int
    replica_id: int
    scan: Scan
    start: bytes
    without: frozenset[bytes]  # rows at the borders of the scan, or of its last page
    left: int | None
    sequence: int = 0


class MetaRows:
    """Reads of hbase:meta at one server."""

    def __init__(self, backend: FakeBackend, addresses: Addresses) -> None:
        self._backend = backend
        self._addresses = addresses

    def get(self, server: ServerName, replica_id: int, get: Get, deadline: float) -> Result:
        method = DataCalls.get_meta
        return self._outside(self._backend.at_server(server, method, replica_id, get, deadline=deadline, is_meta=True))

    def open(self, server: ServerName, replica_id: int, scan: Scan, deadline: float) -> ScanPage:
        excluded = set() if scan.include_stop or not scan.stop_row else {scan.stop_row}
        if not scan.include_start:
            excluded.add(scan.start_row)
        scanner_id = self._backend.cluster.next_scanner_id()
        scanner = MetaScanner(scanner_id, replica_id, scan, scan.start_row, frozenset(excluded), scan.limit)
        return self._page(server, scanner, scan.caching, deadline)

    def next(
        self, server: ServerName, scanner: MetaScanner, rows: int, sequence: int | None, deadline: float
    ) -> ScanPage:
        if sequence is not None and sequence != scanner.sequence:
            raise ScannerLost(
                f"Expected nextCallSeq: {scanner.sequence} But the nextCallSeq got from client: {sequence}",
                detail=_OUT_OF_ORDER,
            )
        scanner.sequence += 1
        return self._page(server, scanner, rows, deadline)

    def _page(self, server: ServerName, scanner: MetaScanner, rows: int, deadline: float) -> ScanPage:
        scan = scanner.scan
        wanted = min(max(1, rows), _PAGE_ROWS_MAX if scanner.left is None else scanner.left)
        families = families_of(scan)
        page = MetaScan(scanner.start, scan.stop_row, scan.is_reversed, wanted, families)

        found, is_end = self._backend.at_server(
            server,
            DataCalls.scan_meta,
            scanner.replica_id,
            page,
            scanner.without,
            row_getter(scan),
            deadline=deadline,
            is_meta=True,
        )
        results = [self._outside(result) for result in found if result.cells]
        if found:
            scanner.start = found[-1].row
            scanner.without = frozenset({scanner.start} if scan.include_stop else {scanner.start, scan.stop_row})
        if scanner.left is not None:
            scanner.left -= len(results)
        is_done = is_end or scanner.left == 0
        return ScanPage(results, None if is_done else scanner, is_end, scanner.replica_id > 0)

    def _outside(self, result: Result) -> Result:
        cells = [self._outside_cell(cell) if cell.column.startswith(b"info:s") else cell for cell in result.cells]
        return result._replace(cells=cells)

    def _outside_cell(self, cell: Cell) -> Cell:
        return cell._replace(value=self._addresses.outside_cell(cell.qualifier, cell.value))
