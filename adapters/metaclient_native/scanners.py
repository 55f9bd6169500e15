"""Sends the calls of a backend's open scanners, one at a time per scanner, and renews their leases."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias, TypeVar

from metaclient.backend import CellPage, ScanPage
from metaclient.errors import ConnectionClosed, ScannerLost
from metaclient.runtime import Pending, Runtime
from metaclient.wire.rpc.framing import Response
from metaclient_native.connections import Connections
from metaclient_native.request import Request
from metaclient_native.scans import RENEWALS_MAX, Scanner, encode_close, encode_next, encode_renew

__all__ = ["SYSTEM_PRIORITY", "PageReader", "ScannerCalls", "decode_nothing"]

T = TypeVar("T")
P = TypeVar("P", ScanPage, CellPage)
#: Decodes a page: scanner, response, clock -> page.
PageReader: TypeAlias = Callable[[Scanner, Response, Callable[[], float]], P]
#: HConstants.SYSTEMTABLE_QOS: region servers have separate handlers for calls of system tables.
SYSTEM_PRIORITY = 200
#: The interval between looks for idle scanners, as a share of the lease.
RENEW_SHARE = 0.25
LEASE_S_MIN = 1.0


class ScannerCalls:
    """Sends the calls of scanners, and renews the leases of idle scanners."""

    def __init__(self, connections: Connections, runtime: Runtime) -> None:
        self._call_server = connections.call_server
        self._runtime = runtime
        self._is_closed = False
        self._begin()
        runtime.on_fork(self._begin)

    def _begin(self) -> None:
        """Start without scanners, at first and in a child process, which must not renew the scanners of its parent."""
        self._lock = self._runtime.lock()
        # Guarded by the lock, as _is_closed is:
        self._scanners: set[Scanner] = set()
        self._is_renewing = False

    def forget_all(self) -> None:
        """Close: no lease is renewed any more."""
        with self._lock:
            self._is_closed = True
            self._scanners.clear()

    def fetch_next(self, scanner: Scanner, rows: int, deadline: float, read: PageReader[P]) -> Pending[P]:
        """Ask for the next page; ScannerLost when an earlier call of the scanner failed."""
        with self._lock:
            renewal = scanner.renewal
        if renewal is None or renewal.is_done:
            return self._next(scanner, rows, deadline, read)
        # A renewal is in flight, and two calls of one scanner must not run on the server at once.
        answer: Pending[P] = self._runtime.pending(name="scan after a renewal")
        renewal.on_done(lambda _: _pass_on(lambda: self._next(scanner, rows, deadline, read), answer))
        return answer

    def _next(self, scanner: Scanner, rows: int, deadline: float, read: PageReader[P]) -> Pending[P]:
        with self._lock:
            if scanner.is_lost:
                raise ScannerLost("an earlier call of this scanner failed, so its position is unknown: open another")
            scanner.is_lost = True  # until the response has arrived: a next is never sent twice
            param = encode_next(scanner, rows)
        return self.open(scanner, param, deadline, read)

    def open(self, scanner: Scanner, param: bytes, deadline: float, read: PageReader[P]) -> Pending[P]:
        """Send a call of this scanner that brings a page: the first one, or a ``next``."""

        def decode_page(response: Response) -> P:
            return self._read_page(scanner, response, read)

        request = Request(b"Scan", param, decode_page, deadline, "scan", priority=scanner.priority, keeps_late=True)
        return self._call_server(scanner.server, request)

    def _read_page(self, scanner: Scanner, response: Response, read: PageReader[P]) -> P:
        page = read(scanner, response, self._runtime.now)
        scanner.is_lost = False
        if page.scanner is None:
            self._forget(scanner)
        else:
            self._remember(scanner)
        return page

    def close(self, scanner: Scanner, deadline: float) -> None:
        """Send the close without waiting for its response: a scanner that stays open ends with its lease."""
        self._forget(scanner)
        param = encode_close(scanner.scanner_id)
        request = Request(b"Scan", param, decode_nothing, deadline, "scan (close)", priority=SYSTEM_PRIORITY)
        self._call_server(scanner.server, request).send()

    # -- leases ----------------------------------------------------------------------------------------------------

    def _remember(self, scanner: Scanner) -> None:
        if scanner in self._scanners:
            return
        with self._lock:
            if self._is_closed:
                return
            self._scanners.add(scanner)
            if self._is_renewing:
                return
            self._is_renewing = True
        self._runtime.call_later(max(scanner.lease_s, LEASE_S_MIN) * RENEW_SHARE, self._renew_idle)

    def _forget(self, scanner: Scanner) -> None:
        with self._lock:
            self._scanners.discard(scanner)

    def _renew_idle(self) -> None:
        """Renew the leases of scanners that had no call for half of their lease. Runs on the runtime's timer."""
        now = self._runtime.now()
        with self._lock:
            self._scanners = {one for one in self._scanners if one.renewals < RENEWALS_MAX}
            self._is_renewing = bool(self._scanners) and not self._is_closed
            if not self._is_renewing:
                return
            lease_s = min(one.lease_s for one in self._scanners)
            idle = [one for one in self._scanners if not one.is_lost and now - one.used_at > one.lease_s / 2]
            idle = [one for one in idle if one.renewal is None or one.renewal.is_done]
            for scanner in idle:
                scanner.renewal = self._runtime.pending(name="renewal")
        for scanner in idle:
            self._renew(scanner, now)
        try:
            self._runtime.call_later(max(lease_s, LEASE_S_MIN) * RENEW_SHARE, self._renew_idle)
        except ConnectionClosed:  # the runtime is closing, and all scanners with it
            return

    def _renew(self, scanner: Scanner, now: float) -> None:
        """Send a renewal and complete ``scanner.renewal``, for which the next call waits; that call also fails."""
        assert scanner.renewal is not None
        scanner.renewals += 1
        scanner.used_at = now
        param, deadline = encode_renew(scanner), now + scanner.lease_s
        request = Request(b"Scan", param, decode_nothing, deadline, "scan (renew)", priority=scanner.priority)
        _pass_on(lambda: self._call_server(scanner.server, request), scanner.renewal)


def decode_nothing(response: Response) -> None:
    """Ignore the content of a response: that there is one means success."""


def _pass_on(begin: Callable[[], Pending[T]], answer: Pending[T]) -> None:
    """Make a call, and complete or fail ``answer`` as the call is."""
    try:
        call = begin()
    except Exception as error:
        answer.fail(error)
        return

    def done(_: Any) -> None:
        error = call.error()
        if error is None:
            answer.complete(call.result())
        else:
            answer.fail(error)

    call.on_done(done)
