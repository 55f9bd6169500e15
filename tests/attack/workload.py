"""Threads that write and read their own rows, and know which answers are wrong.

A value is its row, a number and a checksum. A thread's number for a row grows with each put. A read must return a
number that is at least that of the last acknowledged put and at most that of the last attempted one.
"""

from __future__ import annotations

import itertools
import threading
import time
import zlib
from collections.abc import Callable
from dataclasses import dataclass, field

from metaclient import Connection, MetaClientError, Table

__all__ = ["COLUMN", "THREADS", "Report", "Workload", "run_for", "value_of"]

THREADS = 4
ROWS_EACH = 5
COLUMN = b"cf:a"
_JOIN_S = 60.0


@dataclass
class Report:
    """What happened; ``wrong`` is empty if the client kept its promises."""

    succeeded: int = 0
    failed: int = 0
    slowest_s: float = 0.0
    wrong: list[str] = field(default_factory=list)


def value_of(row: bytes, number: int) -> bytes:
    body = b"%s/%d" % (row, number)
    return b"%s/%d" % (body, zlib.crc32(body))


def number_of(row: bytes, value: bytes) -> int | None:
    """Return the number of a row's value; None if it was damaged on its way. AssertionError: it is another row's."""
    body, _, checksum = value.rpartition(b"/")
    if checksum != b"%d" % zlib.crc32(body):
        return None
    owner, _, number = body.rpartition(b"/")
    assert owner == row, f"the value of {owner!r} was returned for {row!r}"
    return int(number)


class Workload:
    """One thread's rows: what was attempted and what was acknowledged."""

    def __init__(self, connection: Connection, thread: int, *, checks_presence: bool = True) -> None:
        self._table: Table = connection.table("t")
        self._rows = [b"r%02d-%02d" % (thread, one) for one in range(ROWS_EACH)]
        self._attempted = dict.fromkeys(self._rows, 0)
        self._acknowledged = dict.fromkeys(self._rows, 0)
        self._checks_presence = checks_presence
        self.report = Report()

    def run(self, is_over: threading.Event) -> None:
        """Write and read until the event is set."""
        for row in itertools.cycle(self._rows):
            if is_over.is_set():
                return
            self._timed(self._put, row)
            self._timed(self._check, row)

    def check_all(self) -> None:
        """Read every row once more; an error is wrong here."""
        for row in self._rows:
            failed = self.report.failed
            self._timed(self._check, row)
            if self.report.failed > failed:
                self.report.wrong.append(f"{row!r} cannot be read after the network has healed")

    def _timed(self, call: Callable[[bytes], None], row: bytes) -> None:
        begun = time.monotonic()
        try:
            call(row)
            self.report.succeeded += 1
        except MetaClientError:
            self.report.failed += 1
        except Exception as error:
            self.report.wrong.append(f"{type(error).__name__}: {error}")
        self.report.slowest_s = max(self.report.slowest_s, time.monotonic() - begun)

    def _put(self, row: bytes) -> None:
        self._attempted[row] += 1
        self._table.put(row, {COLUMN: value_of(row, self._attempted[row])})
        self._acknowledged[row] = self._attempted[row]

    def _check(self, row: bytes) -> None:
        found = self._table.row(row).get(COLUMN)
        number = 0 if found is None else number_of(row, found)
        if number is None or not self._checks_presence:
            return
        low, high = self._acknowledged[row], self._attempted[row]
        assert low <= number <= high, f"{row!r} has {number}, acknowledged is {low}, attempted {high}"


def run_for(workloads: list[Workload], seconds: float) -> None:
    """Run them in threads of their own for some time."""
    is_over = threading.Event()
    threads = [threading.Thread(target=one.run, args=(is_over,), daemon=True) for one in workloads]
    for thread in threads:
        thread.start()
    is_over.wait(seconds)
    is_over.set()
    for thread in threads:
        thread.join(_JOIN_S)
        assert not thread.is_alive(), "an operation does not end"
