"""Stores the scanners that a gateway's clients have opened: numbered, bounded, and closed when their lease expires.

A scanner's number is valid on all connections of the gateway. A scanner that is not used during the lease (HBase's
hbase.client.scanner.timeout.period) is closed by the next call that opens or misses a scanner, or by the sweeper.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import Generic, TypeVar

from metaclient.errors import ConnectionClosed, Overloaded
from metaclient.model import Result
from metaclient.runtime import Lock, Runtime

__all__ = ["LEASE_S", "SCANNERS_MAX", "GatewayScanner", "GatewayScanners"]

_log = logging.getLogger(__name__)
LEASE_S = 60.0
#: Each scanner may hold a page of rows and a scanner on a server; HBase's gateway is bounded only by its heap.
SCANNERS_MAX = 10_000
O = TypeVar("O")  # noqa: E741 - the options of a protocol


class GatewayScanner(Generic[O]):
    """One scanner; ``lock`` is held by the call that reads from it. ``options`` are the protocol's own."""

    __slots__ = ("_rows", "lease_until", "lock", "number", "options")

    def __init__(self, number: int, rows: Iterator[Result], options: O, lock: Lock) -> None:
        self.number = number
        self.options = options
        self.lock = lock
        self.lease_until = 0.0
        self._rows = rows

    def next(self, count: int) -> list[Result]:
        """Return at most ``count`` results; fewer results mean the end of the scan."""
        found: list[Result] = []
        with self.lock:
            while len(found) < count:
                result = next(self._rows, None)
                if result is None:
                    break
                found.append(result)
        return found

    def close(self) -> None:
        with self.lock:
            close = getattr(self._rows, "close", None)
            if close is not None:
                close()


class GatewayScanners(Generic[O]):
    """The scanners of one gateway."""

    def __init__(self, runtime: Runtime, *, lease_s: float = LEASE_S, scanners_max: int = SCANNERS_MAX) -> None:
        self._runtime = runtime
        self._lease_s = lease_s
        self._scanners_max = scanners_max
        self._lock = runtime.lock()  # guards all below
        self._open: dict[int, GatewayScanner[O]] = {}
        self._last = -1

    def __len__(self) -> int:
        return len(self._open)

    def add(self, rows: Iterator[Result], options: O) -> int:
        """Add a scanner and return its number; raise Overloaded when there are too many."""
        self.expire()
        with self._lock:
            if len(self._open) >= self._scanners_max:
                raise Overloaded(f"the gateway has {len(self._open)} open scanners, which is its limit: close some")
            self._last = (self._last + 1) % 2**31
            made = GatewayScanner(self._last, rows, options, self._runtime.lock())
            made.lease_until = self._runtime.now() + self._lease_s
            self._open[made.number] = made
            return made.number

    def take(self, number: int) -> GatewayScanner[O] | None:
        """Return the scanner of that number and renew its lease; None if it does not exist or has expired."""
        with self._lock:
            found = self._open.get(number)
            now = self._runtime.now()
            if found is not None and found.lease_until > now:
                found.lease_until = now + self._lease_s
                return found
        self.expire()
        return None

    def drop(self, number: int) -> None:
        """Remove a scanner that has failed: its lost rows must not look like the end of the scan."""
        with self._lock:
            self._open.pop(number, None)

    def remove(self, number: int) -> bool:
        """Close a scanner; return False when there is none of that number."""
        with self._lock:
            found = self._open.pop(number, None)
        if found is None:
            return False
        found.close()
        return True

    def expire(self) -> int:
        """Close the scanners whose lease has expired, except those that are being read; return their number."""
        now = self._runtime.now()
        with self._lock:
            late = [one for one in self._open.values() if one.lease_until <= now]
            for one in late:
                del self._open[one.number]
        for one in late:
            self._close_late(one)
        return len(late)

    def _close_late(self, scanner: GatewayScanner[O]) -> None:
        try:
            scanner.close()
        except ConnectionClosed:
            _log.debug("scanner %d was closed with its cluster", scanner.number)

    def close(self) -> None:
        """Remove all scanners; the leases of the cluster close their scanners on the servers."""
        with self._lock:
            self._open.clear()
