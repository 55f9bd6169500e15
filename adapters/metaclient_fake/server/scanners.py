"""Stores a region server's open scanners and decides which calls on them are in order and in time.

Mirrors RSRpcServices' scanner map: a lease that each call renews, a call sequence that must grow by one, a scanner
that is lost when its region is.

DIVERGENCES: the number of scanners is bounded; a ``next`` after an error is OutOfOrderScannerNext as in 2.6 (3.0 may
answer an empty success, which loses rows).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from metaclient.backend import ScanPage
from metaclient.errors import NotServingRegion, Overloaded, ScannerLost
from metaclient.model import Result, Scan, ServerName
from metaclient.row_limit import row_limit
from metaclient.runtime import Runtime
from metaclient_fake.storage.stand_ins import HostedScanner

__all__ = ["ScannerHandle", "Scanners"]

_LEASE = "org.apache.hadoop.hbase.regionserver.LeaseException"
_OUT_OF_ORDER = "org.apache.hadoop.hbase.exceptions.OutOfOrderScannerNextException"


@dataclass(frozen=True, slots=True)
class ScannerHandle:
    """The client's handle: server, scanner id, region, and the number of answered calls."""

    server: ServerName
    scanner_id: int
    sequence: int
    region_name: bytes


class _OpenScanner:
    """One scanner; only the call that has set ``is_busy`` touches the rest."""

    __slots__ = (
        "bytes_max",
        "complete_as_of",
        "hosted",
        "is_busy",
        "is_stale",
        "lease_until",
        "limit",
        "region_name",
        "rows",
        "sequence",
    )

    def __init__(
        self, hosted: HostedScanner, region_name: bytes, scan: Scan, is_stale: bool, complete_as_of: float | None
    ) -> None:
        self.hosted = hosted
        self.region_name = region_name
        self.limit = row_limit(scan)
        self.rows = scan.caching
        self.bytes_max = scan.max_result_bytes
        self.is_stale = is_stale
        #: The scanner returns all edits that were acknowledged before this instant; None when it is not known.
        self.complete_as_of = complete_as_of
        self.sequence = 0
        self.is_busy = True
        self.lease_until = 0.0

    @property
    def is_at_limit(self) -> bool:
        return self.limit is not None and self.limit.left <= 0


class Scanners:
    """The scanners of one incarnation of a server. The map is guarded by the lock, a busy scanner by its caller."""

    def __init__(
        self,
        runtime: Runtime,
        server: ServerName,
        *,
        new_id: Callable[[], int],
        lease_s: float,
        scanners_max: int,
        page_bytes_max: int,
    ) -> None:
        self._runtime = runtime
        self._server = server
        self._new_id = new_id
        self._lease_s = lease_s
        self._scanners_max = scanners_max
        self._page_bytes_max = page_bytes_max
        self._lock = runtime.lock()
        self._open: dict[int, _OpenScanner] = {}

    def __len__(self) -> int:
        return len(self._open)

    def open(
        self,
        hosted: HostedScanner,
        region_name: bytes,
        scan: Scan,
        is_stale: bool,
        complete_as_of: float | None = None,
    ) -> ScanPage:
        """Register the scanner and return its first page; a scanner that ends with it is not registered.

        A scanner that is not registered is closed; otherwise its region would keep it and its old versions.
        """
        scanner = _OpenScanner(hosted, region_name, scan, is_stale, complete_as_of)
        scanner_id: int | None = None
        try:
            rows, is_end, lag_s = self._read(scanner, scanner.rows)
            if not is_end and not scanner.is_at_limit:
                scanner_id = self._register(scanner)
        finally:
            if scanner_id is None:
                hosted.close()
        if scanner_id is None:
            return ScanPage(rows, None, is_end, is_stale, lag_s=lag_s)
        self._rest(scanner)
        return ScanPage(rows, ScannerHandle(self._server, scanner_id, 0, region_name), False, is_stale, lag_s=lag_s)

    def _register(self, scanner: _OpenScanner) -> int:
        scanner_id = self._new_id()
        with self._lock:
            if len(self._open) >= self._scanners_max:
                raise Overloaded(f"{self._server.host} has {len(self._open)} open scanners, which is its limit")
            self._open[scanner_id] = scanner
        return scanner_id

    def next(self, handle: ScannerHandle, rows: int, is_online: Callable[[bytes], bool]) -> ScanPage:
        scanner = self._taken(handle, is_online)
        try:
            results, is_end, lag_s = self._read(scanner, rows)
            if handle.scanner_id not in self._open:  # it was closed while it was read, which looks like its end
                raise ScannerLost(f"scanner {handle.scanner_id} was closed by another call", detail=_LEASE)
        except BaseException:
            self._drop(handle.scanner_id)
            raise
        if is_end or scanner.is_at_limit:
            self._drop(handle.scanner_id)
            return ScanPage(results, None, is_end, scanner.is_stale, lag_s=lag_s)
        scanner.sequence += 1
        self._rest(scanner)
        following = ScannerHandle(self._server, handle.scanner_id, scanner.sequence, handle.region_name)
        return ScanPage(results, following, False, scanner.is_stale, lag_s=lag_s)

    def renew(self, handle: ScannerHandle, is_online: Callable[[bytes], bool]) -> ScannerHandle:
        """Begin a new lease without reading; it counts as a call."""
        scanner = self._taken(handle, is_online)
        scanner.sequence += 1
        self._rest(scanner)
        return ScannerHandle(self._server, handle.scanner_id, scanner.sequence, handle.region_name)

    def close(self, handle: ScannerHandle) -> None:
        """Close a scanner. An unknown one is ignored; HBase returns an error, which clients ignore."""
        self._drop(handle.scanner_id)

    def expire(self) -> int:
        """Drop the scanners whose lease has expired; return their number."""
        now = self._runtime.now()
        with self._lock:
            late = [key for key, scanner in self._open.items() if not scanner.is_busy and scanner.lease_until <= now]
        for scanner_id in late:
            self._drop(scanner_id)
        return len(late)

    def clear(self) -> None:
        """Remove all scanners: the server has ended, and its regions close them."""
        with self._lock:
            self._open.clear()

    def _read(self, scanner: _OpenScanner, rows: int) -> tuple[list[Result], bool, float | None]:
        """Return the next results, True at the end of the region, and an upper bound of the lag of a secondary."""
        limit = scanner.limit
        wanted = rows if limit is None else min(rows, limit.left)
        results, is_end = scanner.hosted.next(max(1, wanted), min(scanner.bytes_max, self._page_bytes_max))
        if limit is not None:
            taken = limit.take(results)
            results, is_end = taken, is_end and len(taken) == len(results)
        if scanner.complete_as_of is None:
            return results, is_end, None
        lag_s = self._runtime.now() - scanner.complete_as_of
        return [result._replace(lag_s=lag_s) for result in results], is_end, lag_s

    def _rest(self, scanner: _OpenScanner) -> None:
        scanner.lease_until = self._runtime.now() + self._lease_s
        scanner.is_busy = False

    def _taken(self, handle: ScannerHandle, is_online: Callable[[bytes], bool]) -> _OpenScanner:
        """Return the scanner, marked as busy until :meth:`_rest`; close a lost one."""
        with self._lock:
            scanner = self._open.get(handle.scanner_id)
            if scanner is None or (not scanner.is_busy and scanner.lease_until <= self._runtime.now()):
                self._close_lost(handle.scanner_id)
                raise ScannerLost(
                    f"Unknown scanner {handle.scanner_id} on {self._server.host}: its lease ran out, or the server "
                    "was restarted",
                    detail=ScannerLost.java_class,
                )
            if scanner.is_busy:
                raise ScannerLost(f"scanner {handle.scanner_id} is busy with another call", detail=_LEASE)
            if handle.sequence != scanner.sequence:
                raise ScannerLost(
                    f"Expected nextCallSeq: {scanner.sequence} But the nextCallSeq got from client: {handle.sequence}",
                    detail=_OUT_OF_ORDER,
                )
            if not is_online(scanner.region_name):
                self._close_lost(handle.scanner_id)
                raise NotServingRegion(
                    "Region has changed on the scanner: it is not online here any more",
                    detail=NotServingRegion.java_class,
                )
            scanner.is_busy = True
            return scanner

    def _drop(self, scanner_id: int) -> None:
        with self._lock:
            self._close_lost(scanner_id)

    def _close_lost(self, scanner_id: int) -> None:
        """Remove a scanner and close it, which never blocks; the lock is held."""
        scanner = self._open.pop(scanner_id, None)
        if scanner is not None:
            scanner.hosted.close()
