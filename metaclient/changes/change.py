"""Changes as values: one atomic change of one row, its cells, and a change that was given up."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple
from uuid import UUID

from metaclient.model import CellType

__all__ = ["Change", "ChangeCell", "DeadLetter", "Tag"]

_PUT = CellType.PUT


class Tag(NamedTuple):
    """A tag of a cell: its type (HBase's ``TagType``) and its bytes."""

    type: int
    value: bytes


class ChangeCell(NamedTuple):
    """One cell of a change. ``type`` tells a put from the kinds of deletes; increments and appends come as puts.

    >>> cell = ChangeCell(b"cf", b"q", 7, CellType.DELETE_COLUMN, b"")
    >>> cell.column, cell.is_delete
    (b'cf:q', True)
    """

    family: bytes
    qualifier: bytes
    timestamp: int
    type: CellType
    value: bytes
    tags: tuple[Tag, ...] = ()

    @property
    def column(self) -> bytes:
        return self.family + b":" + self.qualifier

    @property
    def is_delete(self) -> bool:
        return self.type is not _PUT


class Change:
    """One atomic change of one row.

    ``cells`` are all of its cells, in the order in which HBase applied them; ``puts`` and ``deletes`` are the two
    kinds. ``sequence`` rises with each change of a row, also over moves, splits and merges of its region: of two
    changes of a row, the later one has the greater sequence. ``write_time`` is the clock of the region server, in
    milliseconds. ``cluster_ids`` are the clusters that shipped the change, the first one first.

    A change of a snapshot (``since=``) has the cells of a row as they were stored at that time: it has no
    ``sequence`` (0), its ``write_time`` is the newest of its timestamps, and ``is_snapshot`` is True.
    """

    __slots__ = (
        "_commit",
        "cells",
        "cluster_ids",
        "region",
        "row",
        "sequence",
        "table",
        "write_time",
    )

    def __init__(
        self,
        table: bytes,
        row: bytes,
        cells: tuple[ChangeCell, ...],
        region: str = "",
        sequence: int = 0,
        write_time: int = 0,
        *,
        cluster_ids: tuple[UUID, ...] = (),
        commit: Callable[[], None] | None = None,
    ) -> None:
        self.table = table
        self.row = row
        self.cells = cells
        self.region = region
        self.sequence = sequence
        self.write_time = write_time
        self.cluster_ids = cluster_ids
        self._commit = commit

    def __repr__(self) -> str:
        return f"<Change of {self.table!r} {self.row!r}: {len(self.cells)} cells, sequence {self.sequence}>"

    @property
    def is_snapshot(self) -> bool:
        return not self.sequence

    @property
    def puts(self) -> tuple[ChangeCell, ...]:
        """The cells that were written."""
        return tuple([cell for cell in self.cells if cell.type is _PUT])

    @property
    def deletes(self) -> tuple[ChangeCell, ...]:
        """The delete markers: of a version, of a column, or of a family (qualifier b"")."""
        return tuple([cell for cell in self.cells if cell.type is not _PUT])

    @property
    def is_committed(self) -> bool:
        return self._commit is None

    def commit(self) -> None:
        """Declare the change processed: it is not delivered again. Any thread may call it, in any order; idempotent."""
        commit, self._commit = self._commit, None
        if commit is not None:
            commit()

    def as_dict(self) -> dict[str, Any]:
        """Return the change as a dictionary of plain values; bytes stay bytes.

        >>> change = Change(b"t", b"r", (ChangeCell(b"cf", b"q", 7, CellType.PUT, b"v"),), "0" * 32, 4, 1000)
        >>> change.as_dict()["cells"]
        [{'family': b'cf', 'qualifier': b'q', 'timestamp': 7, 'type': 'PUT', 'value': b'v', 'tags': []}]
        """
        return {
            "table": self.table,
            "row": self.row,
            "cells": [
                {**cell._asdict(), "type": cell.type.name, "tags": [tuple(tag) for tag in cell.tags]}
                for cell in self.cells
            ],
            "region": self.region,
            "sequence": self.sequence,
            "write_time": self.write_time,
            "cluster_ids": [str(one) for one in self.cluster_ids],
        }


class DeadLetter(NamedTuple):
    """A change that was given up, for the ``dead_letter`` callback.

    ``change`` is None if the bytes of a whole call could not be decoded; they are then in ``param`` (a
    ReplicateWALEntryRequest) and ``cells`` (its cell block).
    """

    change: Change | None
    reason: str
    param: bytes = b""
    cells: bytes = b""
