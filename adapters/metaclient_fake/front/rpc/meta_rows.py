"""Reads of hbase:meta by clients outside: ordinary gets and scans, with addresses that can be connected to.

DIVERGENCE: a filter is applied before the addresses are rewritten, so it compares the names of servers inside.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from metaclient.backend import ScanPage
from metaclient.model import Cell, Get, Result, Scan, ServerName
from metaclient_fake.front.rpc.addresses import Addresses
from metaclient_fake.server.data_calls import DataCalls
from metaclient_fake.server.scanners import ScannerHandle

if TYPE_CHECKING:
    from metaclient_fake.backend import FakeBackend

__all__ = ["MetaRows", "replica_of_meta"]

_META = b"hbase:meta,,1"


def replica_of_meta(region_name: bytes) -> int | None:
    """Return the replica id of a region name of hbase:meta; None when it is another region.

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


class MetaRows:
    """Reads of hbase:meta at one server."""

    def __init__(self, backend: FakeBackend, addresses: Addresses) -> None:
        self._backend = backend
        self._addresses = addresses

    def get(self, server: ServerName, replica_id: int, get: Get, deadline: float) -> Result:
        method = DataCalls.get_meta
        return self._outside(self._backend.at_server(server, method, replica_id, get, deadline=deadline, is_meta=True))

    def open(self, server: ServerName, region_name: bytes, scan: Scan, deadline: float) -> ScanPage:
        return self._outside_page(
            self._backend.at_server(server, DataCalls.scan_open, region_name, scan, deadline=deadline, is_meta=True)
        )

    def next(self, handle: ScannerHandle, rows: int, deadline: float) -> ScanPage:
        return self._outside_page(
            self._backend.at_server(handle.server, DataCalls.scan_next, handle, rows, deadline=deadline, is_meta=True)
        )

    def _outside_page(self, page: ScanPage) -> ScanPage:
        return replace(page, rows=[self._outside(result) for result in page.rows])

    def _outside(self, result: Result) -> Result:
        cells = [self._outside_cell(cell) if cell.column.startswith(b"info:s") else cell for cell in result.cells]
        return result._replace(cells=cells)

    def _outside_cell(self, cell: Cell) -> Cell:
        return cell._replace(value=self._addresses.outside_cell(cell.qualifier, cell.value))
