"""Decides what a page of hbase:meta means, and how many rows the next page asks for.

Pages of lookups grow from ``locate_prefetch`` to ``locate_prefetch_max`` rows, fourfold, while misses follow each
other, and are small again after a pause.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from metaclient import keys, metarow
from metaclient.backend import MetaPage, MetaScan
from metaclient.errors import LocationUnknown, MetaClientError, RegionOffline, TableNotFound
from metaclient.meta import Lookup
from metaclient.model import RegionInfo, RegionLocations

__all__ = [
    "Located",
    "PageGrowth",
    "covers",
    "described",
    "last_row_of",
    "listed",
    "located",
    "placed",
    "regions_on",
    "why_unplaced",
]

#: After this time without a miss, the next page is small again.
PREFETCH_MEMORY_S = 10.0
#: How fast pages grow: 10, 40, 160, 640, 1000 rows. Doubling takes two more calls until 1000 regions are known.
PREFETCH_GROWTH = 4


@dataclass(frozen=True, slots=True)
class Located:
    """The meaning of a page of a lookup: the region of the row, and the other regions of the page."""

    entry: RegionLocations
    neighbours: tuple[RegionLocations, ...]


def located(page: MetaPage, lookup: Lookup) -> Located | MetaClientError:
    """Return the region that a reversed page gives for a lookup, or the error that the page amounts to.

    The first acceptable row is taken, as in HBase. Split parents are skipped, rows that cannot be decoded never become
    locations, and a region that does not contain the row means that hbase:meta has a hole.
    """
    if not page.rows:
        return TableNotFound(f"table {keys.printable(lookup.table)!r} does not exist: hbase:meta has no region of it")
    regions, faults = regions_on(page, lookup.table)
    if not regions:
        why = "; ".join(faults[:3]) or "only split parents"
        return LocationUnknown(f"hbase:meta has no usable region for {described(lookup)}: {why}")
    nearest = regions[0]
    if not covers(nearest.region, lookup):
        bounds = f"[{keys.printable(nearest.region.start_key)}, {keys.printable(nearest.region.end_key)})"
        return LocationUnknown(
            f"hbase:meta has a hole: no region contains {described(lookup)}; the nearest is {bounds}"
        )
    return Located(nearest, placed(regions[1:]))


def regions_on(page: MetaPage, table: bytes) -> tuple[list[RegionLocations], list[str]]:
    """Return the table's regions in the order of the page, without split parents, and the faults of the other rows."""
    regions: list[RegionLocations] = []
    faults: list[str] = []
    for row in page.rows:
        decoded = metarow.decode(row.row, row.columns)
        entry = decoded.locations
        if entry is None or entry.region.table != table:
            faults.append(f"{keys.printable(row.row)}: {decoded.fault or 'a row of another table'}")
        elif not entry.region.is_split_parent:
            regions.append(entry)
    return regions, faults


def placed(regions: Iterable[RegionLocations]) -> tuple[RegionLocations, ...]:
    """Return the regions worth caching: a region that is offline or has no primary would only be a hole."""
    return tuple(entry for entry in regions if entry.primary is not None and not entry.region.is_offline)


def covers(region: RegionInfo, lookup: Lookup) -> bool:
    row = lookup.row or b""
    if not lookup.before:
        return region.contains(row)
    return keys.contains_before(region.start_key, region.end_key, row)


def described(lookup: Lookup) -> str:
    which = "the region before " if lookup.before else ""
    return f"{which}row {keys.printable(lookup.row or b'')!r} of table {keys.printable(lookup.table)!r}"


def why_unplaced(region: RegionLocations, replica_id: int, lookup: Lookup) -> str:
    """Return why a replica has no place: it waits for a server (its columns are empty), or it does not exist."""
    known = len(region.replicas)
    if replica_id < known:
        return f"there is no server for replica {replica_id} of {described(lookup)}"
    has = f"replicas 0 to {known - 1}" if known > 1 else "replica 0 only"
    return f"there is no replica {replica_id} of {described(lookup)}: its region has {has}"


def listed(
    page: MetaPage, table: bytes, *, expected_start: bytes, is_last: bool
) -> tuple[RegionLocations, ...] | MetaClientError:
    """Return the regions of a forward page; an error if it has a hole, a bad row, or a primary without a server."""
    regions: list[RegionLocations] = []
    next_start = expected_start
    for row in page.rows:
        decoded = metarow.decode(row.row, row.columns)
        entry = decoded.locations
        if entry is None or entry.region.table != table:
            return LocationUnknown(f"hbase:meta row {keys.printable(row.row)}: {decoded.fault or 'another table'}")
        if entry.region.is_split_parent:
            continue
        if entry.region.start_key != next_start:
            return LocationUnknown(f"hbase:meta has a hole before {keys.printable(entry.region.start_key)!r}")
        if entry.primary is None:
            return RegionOffline(f"region {keys.printable(row.row)} has no server")
        next_start = entry.region.end_key
        regions.append(entry)
    if not page.rows and not expected_start:
        return TableNotFound(f"table {keys.printable(table)!r} does not exist: hbase:meta has no region of it")
    if is_last and (next_start or not (regions or expected_start)):
        return LocationUnknown(f"hbase:meta has a hole after {keys.printable(next_start)!r}")
    return tuple(regions)


def last_row_of(page: MetaPage, scan: MetaScan) -> bytes | None:
    """Return the last row of a page, None for an empty page.

    Raise ValueError if the row is outside of the scan: a listing that continued there might never end.
    """
    if not page.rows:
        return None
    last_row = page.rows[-1].row
    if not keys.meta_sort_key(scan.start_row) <= keys.meta_sort_key(last_row) <= keys.meta_sort_key(scan.stop_row):
        raise ValueError(f"row {keys.printable(last_row)!r} is not in the range that was asked for")
    return last_row


class PageGrowth:
    """The number of rows that the next lookup of a table asks for."""

    __slots__ = ("_base", "_last_miss", "_max", "_page", "reaches_down")

    def __init__(self, base: int, maximum: int) -> None:
        self._base = base
        self._max = max(base, maximum)
        self._page = base
        self._last_miss = float("-inf")
        self.reaches_down = False  # the last page was longer than the unknown range below its row

    def next(self, now: float) -> int:
        """Return the number of rows for a miss at this time."""
        if now - self._last_miss > PREFETCH_MEMORY_S:
            self._page = self._base
            self.reaches_down = False
        page, self._page = self._page, min(self._page * PREFETCH_GROWTH, self._max)
        self._last_miss = now
        return page
