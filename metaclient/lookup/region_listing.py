"""Finds faults in the list of a table's regions: rows that are in no region, or in two.

A scan that follows such a list would skip rows, or read them twice, without an error.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from metaclient import keys
from metaclient.model import RegionInfo, RegionLocations

__all__ = ["RegionListing", "fault_in"]

_ADVICE = "Repair hbase:meta first (HBCK2 reports and fixes it), then try again"


@dataclass(frozen=True, slots=True)
class RegionListing:
    """Regions in the order of keys, and the first fault of the list; None if each row is in exactly one region."""

    regions: tuple[RegionLocations, ...]
    fault: str | None


def fault_in(regions: Iterable[RegionInfo]) -> str | None:
    """Return the first fault in the regions of a table, without split parents; None if there is none.

    >>> fault_in([RegionInfo(b"t", b"", b"b", 1), RegionInfo(b"t", b"d", b"", 2)])[:73]
    "hbase:meta has a hole: no region of table 't' holds the rows from 'b' to "
    """
    last: RegionInfo | None = None
    for region in regions:
        end = b"" if last is None else last.end_key
        if last is not None and not keys.ends_before_or_at(end, region.start_key):
            return _overlap(last, region)
        if region.start_key != end:
            return _hole(region.table, end, region.start_key)
        last = region
    return _hole(last.table, last.end_key, b"") if last is not None and last.end_key else None


def _hole(table: bytes, start: bytes, stop: bytes) -> str:
    begin = f"from {keys.printable(start)!r}" if start else "from the first one"
    end = f"to {keys.printable(stop)!r}" if stop else "to the last one"
    return (
        f"hbase:meta has a hole: no region of table {keys.printable(table)!r} holds the rows {begin} {end}. {_ADVICE}"
    )


def _overlap(one: RegionInfo, other: RegionInfo) -> str:
    names = " and ".join(keys.printable(region.name) for region in (one, other))
    return f"hbase:meta has regions of table {keys.printable(one.table)!r} that overlap: {names}. {_ADVICE}"
