"""Decides how a change of a region gets its sequence id, is logged, and is reported to the replicas.

Guarded by the region's update lock: nothing here takes a lock. The order for data is HRegion's: begin, append, sync,
memstore, complete. ``on_commit`` is attached only after the sync, so that an edit that is not durable is never
reported; an edit that skips the log is reported, too. For a marker it is attached before the sync: a marker whose
sync failed may be reported.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TypeAlias
from uuid import UUID

from metaclient.model import TableDescriptor
from metaclient_fake.storage.mvcc import Mvcc
from metaclient_fake.storage.wal import LoggedEntry, LoggedRow, Marker, Scopes, Wal, WalEntry, entry_overhead_bytes

__all__ = ["CommitHook", "RegionLog", "Rows", "replication_scopes"]

#: Called with (entry, sequence id, bytes of its cells) for each committed entry. A packed row stands for the entry that
#: wrote nothing else: most puts then make no :class:`WalEntry`.
CommitHook: TypeAlias = Callable[[LoggedEntry, int, int], None]
Rows: TypeAlias = tuple[LoggedRow, ...]

_new_entry: Callable[..., WalEntry] = tuple.__new__


def replication_scopes(descriptor: TableDescriptor) -> Scopes:
    """Return the families of a table that are not LOCAL, in the order of their names."""
    families = sorted(descriptor.families, key=lambda family: family.name)
    return tuple((family.name, family.replication_scope) for family in families if family.replication_scope)


class RegionLog:
    """Writes one region's entries to its server's log; without a log (secondaries) it only assigns sequence ids."""

    def __init__(
        self,
        region: str,
        table: bytes,
        *,
        wal: Wal | None,
        on_commit: CommitHook | None,
        time_ms: Callable[[], int],
        scopes: Scopes = (),
        on_marker: Callable[[int], None] | None = None,
    ) -> None:
        self.region = region
        self.mvcc = Mvcc()
        self.wal = wal
        self.on_commit = on_commit
        self._on_marker = on_marker
        self.table = table
        self.scopes = scopes
        if wal is not None:
            wal.set_scopes(region, scopes)
        #: The bytes that the log counts per entry in addition to its cells.
        self.overhead_bytes = entry_overhead_bytes(region, table)
        self._time_ms = time_ms

    def entry(
        self,
        sequence_id: int,
        rows: Rows,
        now_ms: int,
        size: int,
        nonce: tuple[int, int] | None = None,
        cluster_ids: tuple[UUID, ...] = (),
    ) -> WalEntry:
        """Return the data as one entry, for the log and for the replicas."""
        place = (self.region, self.table, sequence_id, now_ms)
        return _new_entry(WalEntry, (*place, rows, None, size, nonce, self.scopes, cluster_ids))

    def append(self, entry: WalEntry, *, is_synced: bool) -> None:
        """Log data, and sync if ``is_synced``. After a failure the caller must complete the sequence id."""
        if self.wal is not None:
            self.wal.append(entry, is_synced=is_synced)

    def mark(self, marker: Marker, *, is_told: bool = True, is_logged: bool = True) -> int:
        """Log a marker under its own sequence id (if ``is_logged``), and report it to the replicas (if ``is_told``)."""
        now_ms = self._time_ms()
        hook = self.on_commit if is_told else None
        sequence_id = self.mvcc.begin()
        # HBase's markers carry the scopes, too (WALUtil.writeMarker): a serial source counts their sequence ids.
        entry = WalEntry(self.region, self.table, sequence_id, now_ms, (), marker, scopes=self.scopes)
        try:
            if self.wal is not None and is_logged:
                if self._on_marker is not None:  # before the append: a crash in between only leaves a gap
                    self._on_marker(sequence_id)
                self.wal.append(entry)
        finally:
            self.mvcc.complete(sequence_id, None if hook is None else partial(hook, entry, sequence_id, 0))
        return sequence_id

    def use_up(self) -> int:
        """Return a sequence id that no entry has: for the files of a flush or bulk load."""
        sequence_id = self.mvcc.begin()
        self.mvcc.complete(sequence_id)
        return sequence_id

    def sync(self) -> None:
        """Sync the log. Raises if the log was fenced: a fenced server must not change files either."""
        if self.wal is not None:
            self.wal.sync()

    def flushed(self, sequence_id: int) -> None:
        if self.wal is not None:
            self.wal.flushed(self.region, sequence_id)

    def forget(self) -> None:
        if self.wal is not None:
            self.wal.forget(self.region)
