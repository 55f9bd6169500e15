"""The progress of a long scan, as one line on a terminal."""

from __future__ import annotations

from collections.abc import Callable
from typing import TextIO

__all__ = ["SHOWN_AFTER_S", "ScanProgress"]

#: A scan that takes less shows nothing.
SHOWN_AFTER_S = 2.0
#: The interval between two updates.
_EVERY_S = 0.2
_BAR = 24


class ScanProgress:
    """Counts the rows of a scan and shows them: a bar if the scan has a limit, else the number of rows and their rate.

    ``stream`` is written only if it is a terminal. The line is removed at the end.
    """

    def __init__(self, what: str, stream: TextIO | None, now: Callable[[], float], *, limit: int | None = None) -> None:
        self._what = what
        self._stream = stream if stream is not None and stream.isatty() else None
        self._now = now
        self._limit = limit
        self._begun = now()
        self._shown_at: float | None = None
        self._rows = 0
        self._bytes = 0
        self._width = 0

    def add(self, rows: int, byte_count: int) -> None:
        """Count rows; show the line if the scan is long and the last update is old enough."""
        self._rows += rows
        self._bytes += byte_count
        if self._stream is None:
            return
        now = self._now()
        due = self._begun + SHOWN_AFTER_S if self._shown_at is None else self._shown_at + _EVERY_S
        if now >= due:
            self._shown_at = now
            self._write(self._line(now - self._begun))

    def close(self) -> None:
        """Remove the line."""
        if self._shown_at is not None:
            self._write("")
            self._shown_at = None

    def _line(self, seconds: float) -> str:
        rate = self._rows / max(seconds, 1e-9)
        counts = f"{self._rows:,} rows, {self._bytes / 1e6:,.0f} MB, {rate:,.0f} rows/s"
        if self._limit is None:
            return f"{self._what}: {counts}"
        done = min(1.0, self._rows / self._limit)
        bar = ("#" * round(done * _BAR)).ljust(_BAR, ".")
        return f"{self._what}: [{bar}] {done:4.0%}, {counts}"

    def _write(self, line: str) -> None:
        stream = self._stream
        assert stream is not None
        try:
            stream.write("\r" + line.ljust(self._width) + ("" if line else "\r"))
            stream.flush()
        except OSError:  # the terminal is gone: the scan must not end with it
            self._stream = None
            self._shown_at = None
        self._width = len(line)
