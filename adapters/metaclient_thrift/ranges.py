"""Converts the row range of a scan for Thrift: start inclusive, stop exclusive, in both directions; pure functions.

A scan may exclude its start, include its stop, and be limited to one region. Forwards every such range has a Thrift
range: the row after ``r`` is ``r + b"\\x00"``. Backwards there is no row key directly *before* ``r``, so one row too
many is requested, and dropped here.
"""

from __future__ import annotations

from dataclasses import dataclass

from metaclient.model import RegionInfo, Scan

__all__ = ["WireRange", "wire_range"]

#: Few rows can be between this key and the end of its prefix, and those are dropped (as in HBase's ConnectionUtils).
_ALMOST = b"\xff" * 9


@dataclass(frozen=True, slots=True)
class WireRange:
    """The range to send. Rows equal to ``dropped``, and rows from the first below ``floor`` on, are not in the scan."""

    start: bytes
    stop: bytes
    is_reversed: bool = False
    dropped: bytes | None = None
    floor: bytes | None = None

    @property
    def is_empty(self) -> bool:
        """Return True if the range holds no row. HBase would refuse some of these ranges, and read others as a get."""
        if self.is_reversed:
            return bool(self.start) and self.start <= self.stop
        return bool(self.stop) and self.start >= self.stop

    def is_beyond(self, row: bytes) -> bool:
        return self.floor is not None and row < self.floor


def wire_range(scan: Scan, region: RegionInfo | None = None) -> WireRange:
    """Return the range of a scan, limited to the region if one is given.

    >>> wire_range(Scan(b"b", b"d", include_start=False, include_stop=True))
    WireRange(start=b'b\\x00', stop=b'd\\x00', is_reversed=False, dropped=None, floor=None)
    """
    return _backwards(scan, region) if scan.is_reversed else _forwards(scan, region)


def _forwards(scan: Scan, region: RegionInfo | None) -> WireRange:
    start = scan.start_row if scan.include_start or not scan.start_row else scan.start_row + b"\0"
    stop = scan.stop_row + b"\0" if scan.include_stop and scan.stop_row else scan.stop_row
    if region is not None:
        start = max(start, region.start_key)
        if region.end_key and (not stop or region.end_key < stop):
            stop = region.end_key
    return WireRange(start, stop)


def _backwards(scan: Scan, region: RegionInfo | None) -> WireRange:
    start = scan.start_row
    dropped = start if start and not scan.include_start else None
    low, takes_low = scan.stop_row, scan.include_stop
    if region is not None:
        if region.end_key and (not start or start >= region.end_key):
            start = dropped = region.end_key
        if region.start_key > low:
            low, takes_low = region.start_key, True
    if not low or not takes_low:
        return WireRange(start, low, True, dropped)
    if low.endswith(b"\0"):
        return WireRange(start, low[:-1], True, dropped)
    return WireRange(start, low[:-1] + bytes([low[-1] - 1]) + _ALMOST, True, dropped, low)
