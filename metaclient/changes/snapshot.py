"""Reads what tables had stored since an instant, as changes that come before those of the log (``since=``).

The peer of the subscription is made first, then the tables are scanned, then the changes since the creation of the peer
are delivered: an edit is in the scan, in the log, or in both. The scan is raw: it has delete markers and the cells that
they hide, as far as no compaction has removed them. It selects cells by their *timestamps*: the log of that time is
gone, and nothing else tells when a cell was written.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

from metaclient.changes.change import Change, ChangeCell
from metaclient.engine import Engine
from metaclient.model import Cell, Consistency, Scan

__all__ = ["TableSnapshot"]

_VERSIONS_MAX = 0x7FFFFFFF


class TableSnapshot(Iterator[Change]):
    """The rows of tables with cells since an instant; one change per row. Any thread may commit them."""

    def __init__(self, engine: Engine, tables: Mapping[bytes, Sequence[bytes]], from_ms: int) -> None:
        """``tables`` has the families of each table that are replicated."""
        self._lock = engine.runtime.lock()
        self._open = 0  # changes that are not committed; guarded by _lock
        self._done: Callable[[], None] | None = None  # called when none is open any more; guarded by _lock
        self._changes = self._scan(engine, tables, from_ms)

    def __next__(self) -> Change:
        change = next(self._changes)
        with self._lock:
            self._open += 1
        return change

    def finish(self, done: Callable[[], None]) -> None:
        """Call ``done`` as soon as all changes are committed, in the thread of the last commit."""
        with self._lock:
            is_done = not self._open
            self._done = None if is_done else done
        if is_done:
            done()

    def _commit(self) -> None:
        with self._lock:
            self._open -= 1
            done = None if self._open else self._done
        if done is not None:
            done()

    def _scan(self, engine: Engine, tables: Mapping[bytes, Sequence[bytes]], from_ms: int) -> Iterator[Change]:
        for table, families in tables.items():
            scan = Scan(
                columns=tuple(families),
                max_versions=_VERSIONS_MAX,
                min_timestamp=from_ms,
                is_raw=True,
                cache_blocks=False,
            )
            for result, location in engine.scan_rows(table, scan, Consistency.STRONG):
                cells = tuple([_cell(cell) for cell in result.cells])
                newest = max([cell.timestamp for cell in cells], default=0)
                region = location.region.encoded_name if location is not None else ""
                yield Change(table, result.row, cells, region, 0, newest, commit=self._commit)


def _cell(cell: Cell) -> ChangeCell:
    return ChangeCell(cell.family, cell.qualifier, cell.timestamp, cell.type, cell.value)
