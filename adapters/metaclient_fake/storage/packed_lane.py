"""Decides which puts take the packed-row lane, and applies them: puts of one small cell.

Most writes put one small cell into one row. In the ordinary lane (:meth:`Writer._apply`) such a put makes a list of
edits, a tuple of cells, a cell and a :class:`WalEntry`, and looks at each of them several times. In the packed-row
lane it makes one object, a :class:`PackedRow`, which memstore, log and replicas then share.

Both lanes do the same steps in the same order, and ``tests/unit/fake_storage/test_packed_lane.py`` compares what they
leave behind. What a packed row needs from the rest of the package:

- ``packed_row`` has the layout, and decides which rows are packed;
- ``Segment.add_packed`` and ``VersionedRow.put`` take a packed row where ``add`` takes cells;
- ``Wal.append_logged``, ``CommitHook`` and ``Region.apply_replayed`` take a packed row in place of the
  :class:`WalEntry` that wrote nothing else.

Measured with ``python -m metaclient_bench.storage_floor --lanes`` (CPython 3.12, rows of one cell of 100 bytes, CPU
time per row). *no lane*: puts take the ordinary lane, which packs their rows. *no packing*: rows stay objects::

    row of 1 cell        lane    no lane    no packing
    put              3.1 us     6.1 us        9.5 us
    get              4.9 us     4.8 us        2.3 us
    scan             1.7 us     1.6 us        0.5 us
    memory          286 B      313 B         571 B

The lane halves the cost of a put. Packing halves the memory, but each read must create the cells again.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from metaclient.model import LATEST_TIMESTAMP, CellType, Durability, Put
from metaclient_fake.storage.cells import CELL_OVERHEAD_BYTES
from metaclient_fake.storage.packed_row import COLUMN_BYTES_MAX, ROW_BYTES_MAX, packed_cell
from metaclient_fake.storage.region_log import RegionLog
from metaclient_fake.storage.store import Store

if TYPE_CHECKING:
    from metaclient_fake.storage.region import Region

__all__ = ["PackedLane"]

PUT = CellType.PUT


class PackedLane:
    """Applies puts of one small cell. Guarded by the region's update lock, which every caller holds."""

    def __init__(
        self,
        region: Region,
        known_columns: Mapping[bytes, tuple[Store, bytes]],
        log: RegionLog,
        synced: Iterable[Durability],
    ) -> None:
        """``known_columns`` are those of :class:`Mutations`; ``synced`` are the durabilities that wait for the log."""
        self._region = region
        self._known_columns = known_columns
        self._log = log
        self._synced = tuple(synced)

    def put(self, put: Put, now_ms: int, put_ms: int) -> bool:
        """Apply a put of one cell, as :meth:`Writer._apply` does; return False if the ordinary lane must do it."""
        name, timestamp, value, kind = put.cells[0]
        found = self._known_columns.get(name)
        if found is None or kind is not PUT or put.durability not in self._synced:
            return False
        store, column = found
        row = put.row
        active = store.memstore.active
        size = CELL_OVERHEAD_BYTES + len(row) + len(column) + len(value)
        if size > ROW_BYTES_MAX or len(column) > COLUMN_BYTES_MAX:
            return False
        if timestamp == LATEST_TIMESTAMP:
            timestamp = put_ms
        elif not 0 <= timestamp < LATEST_TIMESTAMP:
            return False  # :meth:`Mutations.put` refuses it
        log = self._log
        mvcc, wal, hook = log.mvcc, log.wal, log.on_commit
        sequence_id = mvcc.begin()
        try:
            stored = packed_cell(row, column, timestamp, value, sequence_id)
            if wal is not None:
                wal.append_logged(log.region, log.table, stored, sequence_id, now_ms, size + log.overhead_bytes)
            active.add_packed(row, stored, sequence_id, size)
            self._region.memstore_bytes += size
        except BaseException:
            mvcc.complete(sequence_id)
            raise
        if hook is None:
            mvcc.complete(sequence_id)
        else:
            mvcc.complete_and_tell(sequence_id, hook, stored, size)
        return True
