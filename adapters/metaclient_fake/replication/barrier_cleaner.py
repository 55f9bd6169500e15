"""Decides which barriers of hbase:meta are not needed any more, and deletes them.

- A table without a serial peer: the newest barrier of each region stays, so that a later serial peer can start from it.
- A table with serial peers: of each region, with ``p`` = the least id that its peers have acknowledged, the barriers
  before the range of ``p`` go. A region that is gone (split, merged) and completely pushed loses all of its barriers,
  and its pushed ids.

Mirrors ``ReplicationBarrierCleaner`` (HBase 2.6), which runs every
``hbase.master.cleaner.replication.barrier.interval`` (12 hours).
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterable, Sequence
from enum import Enum
from typing import NamedTuple, Protocol

from metaclient import keys
from metaclient.model import Cell
from metaclient_fake.replication.barriers import BARRIER, NO_SEQUENCE_ID

__all__ = ["BarrierCleaner", "BarrierRow", "BarrierRows", "Verdict", "verdict"]


class BarrierRow(NamedTuple):
    """A row of hbase:meta with barriers: all versions of its family rep_barrier, and whether the region exists."""

    name: bytes
    cells: Sequence[Cell]
    has_region: bool


class BarrierRows(Protocol):
    """The rows with barriers, and their deletion."""

    def rows(self) -> Iterable[BarrierRow]: ...

    def delete_before(self, name: bytes, timestamp: int) -> None:
        """Delete the cells of the family that are older than the timestamp."""
        ...

    def delete_all(self, name: bytes) -> None: ...


class Verdict(Enum):
    """What becomes of the barriers of a region, besides a number of the oldest ones that go."""

    KEEP = "keep"
    DROP_OLD = "drop old barriers"
    DROP_REGION = "drop the barriers and the pushed ids"


def verdict(barriers: Sequence[int], pushed: int | None, *, has_region: bool) -> tuple[Verdict, int]:
    """Return the verdict, and how many of the oldest barriers go.

    ``pushed`` is the least acknowledged id of the serial peers; None when the table has no serial peer.

    >>> verdict([10, 20, 30, 40, 50, 60], 55, has_region=True)
    (<Verdict.DROP_OLD: 'drop old barriers'>, 4)
    """
    if pushed is None:
        if not has_region:
            return Verdict.DROP_REGION, len(barriers)
        return _old(len(barriers) - 1)
    index = bisect_right(barriers, pushed)
    is_finished = index == len(barriers) - 1 and pushed == barriers[-1] - 1
    if index and is_finished and not has_region:
        return Verdict.DROP_REGION, len(barriers)
    return _old(index - 1)


def _old(number: int) -> tuple[Verdict, int]:
    return (Verdict.DROP_OLD, number) if number > 0 else (Verdict.KEEP, 0)


class BarrierCleaner:
    """Cleans the barriers of one cluster."""

    def __init__(
        self,
        rows: BarrierRows,
        *,
        serial_peers_of: Callable[[bytes], Sequence[str]],
        pushed: Callable[[str, str], int],
        forget_pushed: Callable[[str, str], None],
    ) -> None:
        """``serial_peers_of`` takes a table, ``pushed`` and ``forget_pushed`` an encoded region name and a peer."""
        self._rows = rows
        self._serial_peers_of = serial_peers_of
        self._pushed = pushed
        self._forget_pushed = forget_pushed

    def run(self) -> int:
        """Clean all regions once; return the number of deleted barriers."""
        return sum(self._clean(row) for row in self._rows.rows())

    def _clean(self, row: BarrierRow) -> int:
        stamps = _stamps(row.cells)
        if not stamps:
            return 0
        barriers = sorted(stamps)
        peers = self._serial_peers_of(keys.parse_region_name(row.name)[0])
        region = keys.encoded_region_name(row.name)
        pushed = min((self._pushed(region, peer) for peer in peers), default=None)
        what, number = verdict(barriers, pushed, has_region=row.has_region)
        if what is Verdict.DROP_OLD:
            self._rows.delete_before(row.name, stamps[barriers[number]])
        elif what is Verdict.DROP_REGION:
            for peer in peers:
                self._forget_pushed(region, peer)
            self._rows.delete_all(row.name)
        return number


def _stamps(cells: Iterable[Cell]) -> dict[int, int]:
    """Return barrier -> the timestamp of its first version."""
    found: dict[int, int] = {}
    for cell in cells:
        if cell.column == BARRIER:
            barrier = int.from_bytes(cell.value, "big", signed=True)
            if barrier != NO_SEQUENCE_ID:
                found[barrier] = min(cell.timestamp, found.get(barrier, cell.timestamp))
    return found
