"""Decides how the family ``rep_barrier`` of hbase:meta is written and read: barriers and parents of regions.

A barrier is the sequence number with which a region was opened. The barriers of a region cut its sequence ids into
ranges ``[barrier, next barrier)``; all edits of one range are in the logs of one server. The row is the region's name:

================================  =============================================================================
``rep_barrier:seqnumDuringOpen``  8 bytes, big-endian; one version per open, none is dropped before it is pushed
``rep_barrier:parent``            the names of the regions that were split or merged into this one
================================  =============================================================================

Mirrors ``ReplicationBarrierFamilyFormat`` (HBase 2.6). The rows of merged and of split regions outlive their ``info``
family, because edits of these regions may not be pushed yet.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

from metaclient import keys
from metaclient.model import Cell, Get, Result, TableDescriptor
from metaclient_fake.storage.wal import WalEntry

__all__ = [
    "BARRIER",
    "BARRIER_FAMILY",
    "NO_SEQUENCE_ID",
    "PARENT",
    "Barriers",
    "MetaBarriers",
    "barrier_column",
    "barriers_in",
    "has_global_scope",
    "has_serial_scope",
    "parent_column",
    "parents_from",
]

BARRIER_FAMILY = b"rep_barrier"
BARRIER = b"rep_barrier:seqnumDuringOpen"
PARENT = b"rep_barrier:parent"
STATE = b"info:state"
#: HConstants.NO_SEQNUM: the barrier of a region that was never written, in a disabled table. It is ignored.
NO_SEQUENCE_ID = -1
#: HConstants.REPLICATION_SCOPE_GLOBAL
_GLOBAL = 1
#: HConstants.REPLICATION_SCOPE_SERIAL
_SERIAL = 2
_ALL_VERSIONS = 0x7FFFFFFF
_ESCAPE, _SEPARATOR = b"\xff", b"\xff\x00"
#: Rows that are remembered; a row that is not is found by a scan of its table's rows.
_ROWS_MAX = 10_000


class Barriers(NamedTuple):
    """What hbase:meta has about the order of a region's edits (ReplicationBarrierResult)."""

    barriers: tuple[int, ...] = ()  # sorted, each once
    state: str | None = None  # of the region, as info:state spells it; None when the region is gone
    parents: tuple[bytes, ...] = ()  # the names of the regions that it was made of


def has_global_scope(descriptor: TableDescriptor) -> bool:
    """Return True if a family of the table is replicated: only such tables have barriers."""
    return any(family.replication_scope == _GLOBAL for family in descriptor.families)


def has_serial_scope(descriptor: TableDescriptor) -> bool:
    """Return True if a family of the table has scope 2, which ``scope_2_is_serial`` replicates in order."""
    return any(family.replication_scope == _SERIAL for family in descriptor.families)


def barrier_column(sequence_id: int) -> dict[bytes, bytes]:
    """Return the column of a new barrier.

    >>> barrier_column(28)
    {b'rep_barrier:seqnumDuringOpen': b'\\x00\\x00\\x00\\x00\\x00\\x00\\x00\\x1c'}
    """
    return {BARRIER: sequence_id.to_bytes(8, "big", signed=True)}


def parent_column(parents: Sequence[bytes]) -> dict[bytes, bytes]:
    """Return the column with the parents of a region, by their names.

    >>> parent_column([b"t,a,1.x.", b"t,\\xff,1.y."])
    {b'rep_barrier:parent': b't,a,1.x.\\xff\\x00t,\\xff\\xff,1.y.'}
    """
    return {PARENT: _SEPARATOR.join(name.replace(_ESCAPE, _ESCAPE * 2) for name in parents)}


def parents_from(value: bytes) -> tuple[bytes, ...]:
    """Return the names in a ``rep_barrier:parent``.

    >>> parents_from(b"t,a,1.x.\\xff\\x00t,\\xff\\xff,1.y.")
    (b't,a,1.x.', b't,\\xff,1.y.')
    """
    names, name, position = [], bytearray(), 0
    while position < len(value):
        pair = value[position : position + 2]
        if pair == _SEPARATOR:
            names.append(bytes(name))
            name.clear()
        else:
            name += pair[:1]
        position += 2 if pair[:1] == _ESCAPE else 1
    if name:
        names.append(bytes(name))
    return tuple(names)


def barriers_in(cells: Iterable[Cell]) -> Barriers:
    """Return what a row of hbase:meta says, from all versions of its cells, newest first."""
    barriers: set[int] = set()
    newest: dict[bytes, bytes] = {}
    for cell in cells:
        if cell.column == BARRIER:
            barriers.add(int.from_bytes(cell.value, "big", signed=True))
        else:
            newest.setdefault(cell.column, cell.value)
    state = newest.get(STATE)
    return Barriers(
        tuple(sorted(barriers - {NO_SEQUENCE_ID})),
        None if state is None else state.decode(),
        parents_from(newest.get(PARENT, b"")),
    )


class MetaBarriers:
    """Reads barriers from hbase:meta, for one source.

    ``get`` reads a row of hbase:meta's primary. ``rows_of`` lists the names of all rows of a table, also of rows that
    have nothing but barriers. Errors of both are raised to the caller.
    """

    def __init__(self, get: Callable[[Get], Result], rows_of: Callable[[bytes], Iterable[bytes]]) -> None:
        self._get = get
        self._rows_of = rows_of
        #: Encoded name -> row, the most recently used last. A region's name never changes.
        self._rows: OrderedDict[str, bytes] = OrderedDict()

    def of_entry(self, entry: WalEntry) -> Barriers:
        """Return the barriers of the region of an entry; empty ones if hbase:meta does not have the region."""
        row = self._row(entry)
        return Barriers() if row is None else self.of_region(row)

    def of_region(self, name: bytes) -> Barriers:
        return barriers_in(self._get(Get(name, (BARRIER_FAMILY, STATE), max_versions=_ALL_VERSIONS)).cells)

    def _row(self, entry: WalEntry) -> bytes | None:
        """Return the row of an entry's region.

        DIVERGENCE: HBase scans backwards from the first row of the entry until the encoded name fits.
        """
        found = self._rows.get(entry.region)
        if found is None:
            found = next((row for row in self._rows_of(entry.table) if _encoded(row) == entry.region), None)
            if found is None:
                return None
            self._rows[entry.region] = found
            if len(self._rows) > _ROWS_MAX:
                self._rows.popitem(last=False)
        self._rows.move_to_end(entry.region)
        return found


def _encoded(row: bytes) -> str:
    return keys.encoded_region_name(row)
