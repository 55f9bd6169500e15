"""Converts the row range of a scan for Thrift: start inclusive, stop exclusive, in both directions; pure functions.

A scan may exclude its start, include its stop, and be limited to one region. Forwards every such range has a Thrift
range: the row after ``r`` is ``r + b"\\x00"``. Backwards there is no row key directly *before* ``r``, so one row too
many is requested, and dropped here. The rows of hbase:meta are not sorted as bytes (``keys.meta_sort_key``).
"""

from __future__ import annotations

from dataclasses import dataclass

from metaclient import keys
from metaclient.model import META_TABLE, RegionInfo, Scan

__all__ = ["WireRange", "wire_range"]

#: Few rows can be between this key and the end of its prefix, and those are dropped (as in HBase's ConnectionUtils).
_ALMOST = b"\xff" * 9


@dataclass(frozen=True, slots=True)
class WireRange:
    """The range of a table to send.

    Rows equal to ``dropped``, and rows from the first below ``floor`` on, are not in the scan.
    """

    table: bytes
    start: bytes
    stop: bytes
    is_reversed: bool = False
    dropped: bytes | None = None
    floor: bytes | None = None

    @property
    def is_empty(self) -> bool:
        """Return True if the range holds no row. HBase would refuse some of these ranges, and read others as a get."""
        if self.is_reversed:
            return bool(self.start) and not keys.sorts_before(self.table, self.stop, self.start)
        return bool(self.stop) and not keys.sorts_before(self.table, self.start, self.stop)

    def is_beyond(self, row: bytes) -> bool:
        return self.floor is not None and keys.sorts_before(self.table, row, self.floor)


def wire_range(table: bytes, scan: Scan, region: RegionInfo | None = None) -> WireRange:
    """Return the range of a scan, limited to the region if one is given.

    >>> wire_range(b"t", Scan(b"b", b"d", include_start=False, include_stop=True))
    WireRange(table=b't', start=b'b\\x00', stop=b'd\\x00', is_reversed=False, dropped=None, floor=None)
    """
    return _backwards(table, scan, region) if scan.is_reversed else _forwards(table, scan, region)


def _forwards(table: bytes, scan: Scan, region: RegionInfo | None) -> WireRange:
    start = scan.start_row if scan.include_start or not scan.start_row else keys.next_row(scan.start_row, table)
    stop = keys.next_row(scan.stop_row, table) if scan.include_stop and scan.stop_row else scan.stop_row
    if region is not None:
        start = max(start, region.start_key)
        stop = keys.earlier_end(stop, region.end_key)
    return WireRange(table, start, stop)


def _backwards(table: bytes, scan: Scan, region: RegionInfo | None) -> WireRange:
    start = scan.start_row
    dropped = start if start and not scan.include_start else None
    low, takes_low = scan.stop_row, scan.include_stop
    if region is not None:
        if region.end_key and (not start or keys.ends_before_or_at(region.end_key, start)):
            start = dropped = region.end_key
        if region.start_key > low:
            low, takes_low = region.start_key, True
    if not low or not takes_low:
        return WireRange(table, start, low, True, dropped)
    if table == META_TABLE:
        # The table's name alone sorts before the rows of its regions; before that row, the rows are dropped here.
        return WireRange(table, start, low.partition(b",")[0] if b"," in low else b"", True, dropped, low)
    if low.endswith(b"\0"):
        return WireRange(table, start, low[:-1], True, dropped)
    return WireRange(table, start, low[:-1] + bytes([low[-1] - 1]) + _ALMOST, True, dropped, low)
