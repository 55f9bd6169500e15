"""Decides how far a replica of hbase:meta is behind, by comparing its rows with those of the primary.

HBase reports no lag of region replicas. A page of rows is read at the primary and then at each replica. A replica whose
rows are equal is not behind. A replica whose rows differ is behind for at least the time since the difference was seen
first; the same page is read again until it is equal. Otherwise the next page is read, so that all of hbase:meta is
compared in turn, with little load.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TypeAlias

from metaclient.backend import MetaRow

__all__ = ["MetaComparison", "compared"]

MetaRows: TypeAlias = tuple[MetaRow, ...]


def _none() -> Mapping[int, float]:
    return MappingProxyType({})


@dataclass(frozen=True, slots=True)
class MetaComparison:
    """The result so far: since when each replica differs. ``start_row`` begins the page to compare next."""

    start_row: bytes = b""
    differs_since_s: Mapping[int, float] = field(default_factory=_none)
    compared_ids: frozenset[int] = frozenset()

    def lag_s(self, replica_id: int, now: float) -> float | None:
        """Return the lag of a replica, at least; None if it was not compared yet."""
        if replica_id == 0:
            return 0.0
        since = self.differs_since_s.get(replica_id)
        if since is not None:
            return max(0.0, now - since)
        return 0.0 if replica_id in self.compared_ids else None


def compared(
    old: MetaComparison, primary: MetaRows, replicas: Mapping[int, MetaRows | None], now: float, *, page_rows: int
) -> MetaComparison:
    """Return the comparison after one page. A replica that could not be read (None) keeps its last result.

    >>> row, newer = MetaRow(b"t,,1", {b"info:server": b"a"}), MetaRow(b"t,,1", {b"info:server": b"b"})
    >>> one = compared(MetaComparison(), (newer,), {1: (newer,), 2: (row,)}, 10.0, page_rows=100)
    >>> two = compared(one, (newer,), {1: (newer,), 2: (row,)}, 15.0, page_rows=100)
    >>> two.lag_s(1, 15.0), two.lag_s(2, 15.0), two.lag_s(3, 15.0)
    (0.0, 5.0, None)
    """
    since = {replica_id: at for replica_id, at in old.differs_since_s.items() if replica_id in replicas}
    was_read = {replica_id for replica_id, rows in replicas.items() if rows is not None}
    for replica_id in was_read:
        if replicas[replica_id] == primary:
            since.pop(replica_id, None)
        else:
            since.setdefault(replica_id, now)
    start = old.start_row
    if not since:
        start = primary[-1].row + b"\x00" if len(primary) >= page_rows else b""
    return MetaComparison(start, since, old.compared_ids | was_read)
