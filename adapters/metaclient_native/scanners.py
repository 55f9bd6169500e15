"""The open scanners of one backend: their calls, one at a time, and their leases."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias, TypeVar

from metaclient.backend import CellPage, ScanPage
from metaclient.errors import ConnectionClosed, ScannerLost
from metaclient.runtime import Pending, Runtime
from metaclient.wire.rpc.framing import Response
from metaclient_native.connections import CLIENT_SERVICE, Connections
from metaclient_native.scans import RENEWALS_MAX, Scanner, close_param, next_param, renew_param

__all__ = ["SYSTEM_PRIORITY", "PageReader", "Scanners"]

T = TypeVar("T")
P = TypeVar("P", ScanPage, CellPage)
#: Understands a page: its scanner, the answer, the clock.
PageReader: TypeAlias = Callable[[Scanner, Response, Callable[[], float]], P]
#: HConstants.SYSTEMTABLE_QOS: handlers of their own serve hbase:meta, however busy the others are.
SYSTEM_PRIORITY = 200
#: How often scanners that nobody asks are looked after, as a share of the lease.
RENEW_SHARE = 0.25
LEASE_S_MIN = 1.0


class Scanners:
    """Sends the calls of scanners and renews those that nobody asks."""

    def __init__(self, connections: Connections, runtime: Runtime) -> None:
        self._call = connections.call
        self._runtime = runtime
        self._is_closed = False
        self._begin()
        runtime.on_fork(self._begin)

    def _begin(self) -> None:
        """No scanner is open: at first, and in a child process, which must not renew the parent's."""
        self._lock = self._runtime.lock()
        # Guarded by the lock, as _is_closed is:
        self._scanners: set[Scanner] = set()
        self._is_renewing = False

    def forget_all(self) -> None:
        """The end: nothing is renewed any more."""
        with self._lock:
            self._is_closed = True
            self._scanners.clear()

    def following(self, scanner: Scanner, rows: int, deadline: float, read: PageReader[P]) -> Pending[P]:
        """Ask for the next page; ScannerLost when the scanner is out of step."""
        with self._lock:
            renewal = scanner.renewal
        if renewal is None or renewal.is_done:
            return self._next(scanner, rows, deadline, read)
        # A renewal is on its way, and two calls of one scanner must not meet on the server.
        answer: Pending[P] = self._runtime.pending(name="scan after a renewal")
        renewal.on_done(lambda _: _passed_on(lambda: self._next(scanner, rows, deadline, read), answer))
        return answer

    def _next(self, scanner: Scanner, rows: int, deadline: float, read: PageReader[P]) -> Pending[P]:
        with self._lock:
            if scanner.is_lost:
                raise ScannerLost("a call of this scanner failed before: it is out of step")
            scanner.is_lost = True  # until an answer says otherwise: a next is never sent twice
            param = next_param(scanner, rows)
        return self.open(scanner, param, deadline, read)

    def open(self, scanner: Scanner, param: bytes, deadline: float, read: PageReader[P]) -> Pending[P]:
        """Send a call of this scanner: the first one, or what ``following`` made."""
        host, port, _ = scanner.server
        return self._call(
            host,
            port,
            CLIENT_SERVICE,
            b"Scan",
            param,
            lambda response: self._page(scanner, response, read),
            deadline,
            priority=scanner.priority,
            keeps=True,
            what="scan",
        )

    def _page(self, scanner: Scanner, response: Response, read: PageReader[P]) -> P:
        page = read(scanner, response, self._runtime.now)
        scanner.is_lost = False
        if page.scanner is None:
            self._forget(scanner)
        else:
            self._remember(scanner)
        return page

    def close(self, scanner: Scanner, deadline: float) -> None:
        """Nobody waits for the answer: a scanner that is not closed ends with its lease."""
        self._forget(scanner)
        host, port, _ = scanner.server
        closing = self._call(
            host,
            port,
            CLIENT_SERVICE,
            b"Scan",
            close_param(scanner.scanner_id),
            _nothing,
            deadline,
            priority=SYSTEM_PRIORITY,
            what="scan (close)",
        )
        closing.send()

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
        self._runtime.call_later(max(scanner.lease_s, LEASE_S_MIN) * RENEW_SHARE, self._look_after)

    def _forget(self, scanner: Scanner) -> None:
        with self._lock:
            self._scanners.discard(scanner)

    def _look_after(self) -> None:
        """Renew the leases of scanners that nobody has asked for half of it; on the runtime's timer."""
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
            self._runtime.call_later(max(lease_s, LEASE_S_MIN) * RENEW_SHARE, self._look_after)
        except ConnectionClosed:  # the runtime is closing, and all scanners with it
            return

    def _renew(self, scanner: Scanner, now: float) -> None:
        """Its ``renewal`` is set, so that no other call of it is made meanwhile. That it fails, the next call tells."""
        assert scanner.renewal is not None
        scanner.renewals += 1
        scanner.used_at = now
        host, port, _ = scanner.server
        param = renew_param(scanner)

        def begin() -> Pending[None]:
            return self._call(
                host,
                port,
                CLIENT_SERVICE,
                b"Scan",
                param,
                _nothing,
                now + scanner.lease_s,
                priority=scanner.priority,
                what="scan (renew)",
            )

        _passed_on(begin, scanner.renewal)


def _nothing(response: Response) -> None:
    """It was done: that is all there is to know."""


def _passed_on(begin: Callable[[], Pending[T]], answer: Pending[T]) -> None:
    """Begin a call and complete ``answer`` with what becomes of it."""
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
