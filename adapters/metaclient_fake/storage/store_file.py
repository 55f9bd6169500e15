"""Stores the rows of one family that were flushed, loaded or compacted together: immutable, shared by all replicas."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping
from dataclasses import dataclass, field

from metaclient.model import LATEST_TIMESTAMP, CellType
from metaclient_fake.storage.cells import PlainRow
from metaclient_fake.storage.memstore import RowOrder

__all__ = ["StoreFile"]


@dataclass(slots=True, eq=False)
class StoreFile:
    """An HFile: rows in order, and the sequence id of the flush that made it.

    Everything but ``is_deleted`` is fixed. A daughter's file holds the parent's own rows (HBase's reference files,
    ``HalfStoreFileReader``), but only those of its half: after a later merge the other rows must not reappear.
    """

    name: str
    sequence_id: int
    rows: Mapping[bytes, PlainRow] = field(repr=False)
    keys: list[bytes] = field(repr=False)
    size: int
    is_reference: bool = False
    is_bulk_loaded: bool = False
    #: Set when the archive's cleaner deleted the file: a replica that still lists it has waited too long to refresh.
    is_deleted: bool = False

    @classmethod
    def of(
        cls,
        name: str,
        sequence_id: int,
        rows: Mapping[bytes, PlainRow],
        *,
        keys: list[bytes],
        is_bulk_loaded: bool = False,
    ) -> StoreFile:
        """Return a file over these rows; ``keys`` are theirs, in order."""
        size = sum([row.size for row in rows.values()])
        return cls(name, sequence_id, rows, keys, size, is_bulk_loaded=is_bulk_loaded)

    def earliest_put(self) -> int:
        """Return the oldest timestamp of a put in this file (HBase keeps it in the file's metadata)."""
        stamps = [cell[1] for row in self.rows.values() for cell in row.cells if cell[3] == CellType.PUT]
        return min(stamps, default=LATEST_TIMESTAMP)

    def sorted_rows(self) -> list[bytes]:
        return self.keys

    def half(self, name: str, start: bytes, stop: bytes, order: RowOrder) -> StoreFile | None:
        """Return the part ``[start, stop)`` as a reference; None when nothing of it is in this file."""
        low = position(self.keys, start, order) if start else 0
        high = position(self.keys, stop, order) if stop else len(self.keys)
        if low >= high:
            return None
        keys = self.keys[low:high]
        rows = self.rows if len(keys) == len(self.keys) else {row: self.rows[row] for row in keys}
        half = StoreFile.of(name, self.sequence_id, rows, keys=keys, is_bulk_loaded=self.is_bulk_loaded)
        half.is_reference = True
        return half


def position(rows: list[bytes], row: bytes, order: RowOrder) -> int:
    """Return where ``row`` is, or would be, in rows that are in ``order``."""
    if order is None:
        return bisect_left(rows, row)
    return bisect_left(rows, order(row), key=order)
