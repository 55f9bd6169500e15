"""Decides which barrier ends the edits of a closed region, and gives the cleaner of barriers its rows of hbase:meta."""

from __future__ import annotations

from collections.abc import Iterator

from metaclient.model import Cell, Get, RegionInfo
from metaclient_fake.master.master import Master
from metaclient_fake.master.meta_table import MetaTable
from metaclient_fake.replication.barrier_cleaner import BarrierRow
from metaclient_fake.replication.barriers import BARRIER_FAMILY
from metaclient_fake.server.barrier_reads import barrier_rows

__all__ = ["MetaBarrierRows", "end_barrier"]

_ALL_VERSIONS = 0x7FFFFFFF


def end_barrier(master: Master, info: RegionInfo) -> int | None:
    """Return the barrier that ends the last range of a closed region: its last sequence id + 1.

    None if its table has no barriers, or the region was never written.
    """
    last = master.filesystem.region(info).sequence_id
    return last + 1 if last > 0 and master.has_barriers(info.table) else None


class MetaBarrierRows:
    """The rows with barriers of one cluster. A region is gone if its row has no family ``info``."""

    def __init__(self, meta: MetaTable) -> None:
        self._meta = meta

    def rows(self) -> Iterator[BarrierRow]:
        """Yield the rows one by one; each is read when it is needed."""
        for name in self._meta.read(barrier_rows):
            found = self._get(Get(name, (BARRIER_FAMILY,), max_versions=_ALL_VERSIONS))
            yield BarrierRow(name, found, bool(self._get(Get(name, (b"info",)))))

    def _get(self, get: Get) -> list[Cell]:
        return list(self._meta.read(lambda calls: calls.get_meta(0, get)).cells)

    def delete_before(self, name: bytes, timestamp: int) -> None:
        self._meta.delete_barriers_up_to(name, timestamp - 1)

    def delete_all(self, name: bytes) -> None:
        self._meta.delete_barriers_of(name)
