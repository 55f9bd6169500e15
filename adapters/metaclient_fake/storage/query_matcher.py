"""Decides which cells of a row a reader sees and which a compaction keeps (ScanQueryMatcher and its kinds).

For each column, from the newest version on (NormalUserScanQueryMatcher):

1. older than the time to live, and no minimum of versions: the column is done;
2. a delete marker inside the time range or after it is remembered and not returned. With KEEP_DELETED_CELLS only
   markers inside of the range count, so that a reader of the past sees what was there then;
3. a put that a remembered marker covers is skipped: a family or column marker covers all timestamps up to its own, a
   version marker its own only. Sequence ids play no part, so a marker hides a put that was written after it;
4. outside of the time range: not counted;
5. the same timestamp and type again: an older write of the same version, skipped;
6. the n-th version that is left is shown while n <= max_versions and it is unexpired or n <= min_versions.

A raw scan leaves out steps 2 and 3 and does not count markers as versions.

DIVERGENCES: HBase walks a heap of scanners cell by cell and seeks; here a row is in memory, and is decided as a whole.
Compactions see every cell (no open scanner needs the old files: it holds them), so ``maxReadPointToTrackVersions`` has
no counterpart.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from metaclient.model import LATEST_TIMESTAMP, Cell, CellType, FamilyDescriptor
from metaclient_fake.storage.cells import Columns, PlainRow, RowVersions, Version, newest_cells

__all__ = ["NEVER", "StoreQuery", "compacted", "merged_plain", "plain_cells", "resolved"]

#: Older than any timestamp.
NEVER = -1
#: Java's Integer.MAX_VALUE: no limit.
INTEGER_MAX = 2**31 - 1

PUT = int(CellType.PUT)
DELETE = int(CellType.DELETE)
DELETE_FAMILY_VERSION = int(CellType.DELETE_FAMILY_VERSION)
DELETE_COLUMN = int(CellType.DELETE_COLUMN)
DELETE_FAMILY = int(CellType.DELETE_FAMILY)
FAMILY_KINDS = (DELETE_FAMILY, DELETE_FAMILY_VERSION)


@dataclass(frozen=True, slots=True)
class StoreQuery:
    """The query of one family: the options of the request and those of the family (ScanInfo) together."""

    columns: frozenset[bytes] | None = None  # None = all
    max_versions: int = 1
    min_timestamp: int = 0
    max_timestamp: int = LATEST_TIMESTAMP
    is_raw: bool = False
    time_to_live_ms: int | None = None
    min_versions: int = 0
    sees_past_deletes: bool = False
    has_range: bool = False  # of timestamps
    is_trivial: bool = True  # a plain row is returned unchanged

    @classmethod
    def of(
        cls,
        family: FamilyDescriptor,
        *,
        columns: frozenset[bytes] | None,
        max_versions: int,
        min_timestamp: int,
        max_timestamp: int,
        is_raw: bool,
        has_filter: bool,
    ) -> StoreQuery:
        """Return the query of a family.

        A filter sees all of the family's versions (HBASE-17125), and in a raw scan all that are stored
        (ScanQueryMatcher.getTrackers).
        """
        if is_raw:
            versions = INTEGER_MAX if has_filter else max_versions
        else:
            versions = family.max_versions if has_filter else min(max_versions, family.max_versions)
        time_to_live_ms = None if family.time_to_live_s is None else family.time_to_live_s * 1000
        has_range = min_timestamp > 0 or max_timestamp < LATEST_TIMESTAMP
        return cls(
            columns,
            versions,
            min_timestamp,
            max_timestamp,
            is_raw,
            time_to_live_ms,
            family.min_versions,
            family.keep_deleted_cells != "FALSE",
            has_range,
            columns is None and not has_range and time_to_live_ms is None,
        )

    def oldest_unexpired(self, now_ms: int) -> int:
        return NEVER if self.time_to_live_ms is None else now_ms - self.time_to_live_ms


class _Deletes:
    """The markers met so far in a family, and in the current column (ScanDeleteTracker)."""

    __slots__ = ("_column", "_column_versions", "_family", "_family_versions", "is_empty")

    def __init__(self) -> None:
        self.is_empty = True
        self._family = NEVER
        self._family_versions: set[int] = set()
        self._column = NEVER
        self._column_versions: set[int] = set()

    def next_column(self) -> None:
        self._column = NEVER
        self._column_versions.clear()

    def add(self, timestamp: int, kind: int) -> None:
        self.is_empty = False
        if kind == DELETE_FAMILY:
            self._family = max(self._family, timestamp)
        elif kind == DELETE_FAMILY_VERSION:
            self._family_versions.add(timestamp)
        elif kind == DELETE_COLUMN:
            self._column = max(self._column, timestamp)
        else:
            self._column_versions.add(timestamp)

    def covers(self, timestamp: int) -> bool:
        return (
            timestamp <= self._family
            or timestamp <= self._column
            or timestamp in self._column_versions
            or timestamp in self._family_versions
        )


def plain_cells(row: PlainRow, query: StoreQuery, now_ms: int) -> tuple[Cell, ...]:
    """Return the cells of a plain row that match ``query``: no cell hides another, so each is tested by itself."""
    if query.is_trivial:
        return row.cells
    # One version each: a minimum of versions, where there is one, protects all of them.
    unexpired = NEVER if query.min_versions > 0 else query.oldest_unexpired(now_ms)
    low, high = max(query.min_timestamp, unexpired), query.max_timestamp
    columns = query.columns
    if columns is None:
        return tuple([cell for cell in row.cells if low <= cell[1] < high])
    return tuple([cell for cell in row.cells if cell[0] in columns and low <= cell[1] < high])


def merged_plain(rows: Iterable[PlainRow]) -> tuple[Cell, ...]:
    """Return the newest cell of each column over several plain rows; the newer sequence id wins a tie."""
    return newest_cells(sorted(rows, key=_sequence_id))


def _sequence_id(row: RowVersions) -> int:
    return row.sequence_id


def resolved(columns: Columns, query: StoreQuery, now_ms: int) -> list[Cell]:
    """Return the versions of one row that match ``query``, in order."""
    shown: list[Cell] = []
    deletes = _Deletes()
    oldest = query.oldest_unexpired(now_ms)
    wanted = query.columns
    for column in sorted(columns):
        deletes.next_column()
        is_wanted = wanted is None or column in wanted
        versions = sorted(columns[column], reverse=True)
        if column.endswith(b":"):
            _note_family_markers(versions, query, oldest, deletes)
        _show_column(versions, query, oldest, deletes, shown if is_wanted else None)
    return shown


def _note_family_markers(versions: list[Version], query: StoreQuery, oldest: int, deletes: _Deletes) -> None:
    """Remember the markers of the whole family before its first column is shown.

    The markers are in the column without a qualifier, by timestamp, so puts of that column may come before them. If
    enough puts come before a marker to end the column, the marker would not be applied to the other columns.
    """
    for timestamp, kind, _, _ in versions:
        if kind in FAMILY_KINDS and not query.is_raw and (timestamp >= oldest or query.min_versions > 0):
            _note(timestamp, kind, query, deletes)


def _note(timestamp: int, kind: int, query: StoreQuery, deletes: _Deletes) -> None:
    """Remember a marker inside the time range or after it; with KEEP_DELETED_CELLS only inside."""
    if query.min_timestamp <= timestamp and (timestamp < query.max_timestamp or not query.sees_past_deletes):
        deletes.add(timestamp, kind)


def _show_column(
    versions: list[Version], query: StoreQuery, oldest: int, deletes: _Deletes, shown: list[Cell] | None
) -> None:
    """Append the visible versions of one column; None = only its markers matter."""
    count = 0
    previous: tuple[int, int] | None = None
    is_normal = not query.is_raw
    for timestamp, kind, _, cell in versions:
        if timestamp < oldest and query.min_versions <= 0:
            return
        if kind != PUT and is_normal:
            _note(timestamp, kind, query, deletes)
            continue
        if timestamp >= query.max_timestamp or (is_normal and not deletes.is_empty and deletes.covers(timestamp)):
            continue
        if timestamp < query.min_timestamp:
            return
        if shown is None or previous == (timestamp, kind):
            continue
        count += kind == PUT
        if count > query.max_versions or (timestamp < oldest and count > query.min_versions):
            return
        previous = (timestamp, kind)
        shown.append(cell)


def compacted(
    columns: Columns, family: FamilyDescriptor, now_ms: int, *, drops_deletes: bool, earliest_put: int
) -> tuple[Cell, ...]:
    """Return the cells of one row that a flush or compaction writes; one of all files drops delete markers.

    ``earliest_put``: no put of the compacted files is older; a marker with an older timestamp hides no put.
    """
    kept: list[Cell] = []
    deletes = _Deletes()
    oldest = NEVER if family.time_to_live_s is None else now_ms - family.time_to_live_s * 1000
    for column in sorted(columns):
        deletes.next_column()
        versions = sorted(columns[column], reverse=True)
        _keep_column(versions, family, oldest, deletes, kept, earliest_put if drops_deletes else None)
    return tuple(kept)


def _keep_column(
    versions: list[Version],
    family: FamilyDescriptor,
    oldest: int,
    deletes: _Deletes,
    kept: list[Cell],
    earliest_put: int | None,
) -> None:
    """Append the kept cells of one column (Minor- and DropDeletesCompactionScanQueryMatcher)."""
    count = 0
    previous: tuple[int, int] | None = None
    for timestamp, kind, _, cell in versions:
        if timestamp < oldest and family.min_versions <= 0:
            return
        if kind != PUT:
            keeps_deleted = _keeps_deleted(family, timestamp, oldest)
            if not keeps_deleted:
                deletes.add(timestamp, kind)
            if earliest_put is not None and (not keeps_deleted or timestamp < earliest_put):
                continue
        elif deletes.covers(timestamp):
            continue
        if previous == (timestamp, kind):
            continue
        count += kind == PUT
        is_surplus = count > family.max_versions or (timestamp < oldest and count > family.min_versions)
        if is_surplus and kind == PUT:
            continue  # not the end: a marker further down may hide what is in other files
        previous = (timestamp, kind)
        kept.append(cell)


def _keeps_deleted(family: FamilyDescriptor, timestamp: int, oldest: int) -> bool:
    kind = family.keep_deleted_cells
    return kind == "TRUE" or (kind == "TTL" and timestamp >= oldest)
