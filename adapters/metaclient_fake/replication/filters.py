"""Decides which entries of a log, and which of their cells, a peer gets.

Mirrors the filters of HBase 2.6.1, in their order: whole entries first, then cells.

1. ``SystemTableWALEntryFilter``: entries of ``hbase:*`` are dropped, except ``hbase:acl`` and ``hbase:labels``.
2. ``NamespaceTableCfWALEntryFilter``: entries of tables that the peer does not want are dropped.
3. ``ClusterMarkingEntryFilter``: entries that have passed the peer are dropped. The source adds its own cluster id to
   all others. This ends every cycle of clusters. For a serial peer a dropped entry counts as pushed, as in HBase 2.6.4
   (HBASE-29463). Otherwise the edits after it would wait for ever when the region moves. DIVERGENCE: such an entry
   waits for its turn as others do. HBase counts it at once, so that its id can be stored before older edits are pushed.
4. ``ScopeWALEntryFilter`` and the families of 2.: cells of families that are not GLOBAL in the entry's own scopes, or
   that the peer does not want, are left out. Scope 2 is shipped only with ``scope_2_is_serial``. Markers and replayed
   edits have no cells.

An entry without cells survives: its sequence id counts as pushed for a serial peer. It is not sent.
"""

from __future__ import annotations

import uuid

from metaclient.model import Cell
from metaclient.replication_peers import PeerConfig, namespace_of, wants_family, wants_table
from metaclient.wire.rpc.replication import Scope, ShippedEntry, WalKey
from metaclient_fake.storage.packed_row import PackedRow
from metaclient_fake.storage.wal import Scopes, WalEntry

__all__ = ["EntryFilter", "has_scope_2"]

_SYSTEM = b"hbase"
_SHIPPED_SYSTEM_TABLES = frozenset({b"hbase:acl", b"hbase:labels"})
#: Tables and scopes whose decisions are kept; beyond that all are decided anew.
_DECISIONS_MAX = 10_000


def has_scope_2(scopes: Scopes) -> bool:
    """Return True if a family has scope 2; with ``scope_2_is_serial`` such entries are shipped in order."""
    return any(scope == Scope.SERIAL for _, scope in scopes)


class EntryFilter:
    """The filters of one source. Used by the readers of its log groups at once: decisions are only added."""

    def __init__(
        self,
        config: PeerConfig,
        *,
        cluster_id: uuid.UUID,
        peer_cluster_id: uuid.UUID,
        counts_returned: bool = True,
        scope_2_is_serial: bool = False,
    ) -> None:
        """``counts_returned``: edits that a serial peer has made or passed count as pushed."""
        self._config = config
        self._counts_returned = counts_returned and (config.serial or scope_2_is_serial)
        self._shipped_scopes = (Scope.GLOBAL, Scope.SERIAL) if scope_2_is_serial else (Scope.GLOBAL,)
        self._cluster_id = cluster_id
        self._peer_cluster_id = peer_cluster_id
        self._own = (cluster_id,)
        self._tables: dict[bytes, bool] = {}
        self._families: dict[tuple[bytes, Scopes], frozenset[bytes]] = {}

    def shipped(self, entry: WalEntry) -> ShippedEntry | None:
        """Return what the peer gets of an entry, perhaps without cells; None if the entry is dropped as a whole."""
        table, cluster_ids, scopes = entry.table, entry.cluster_ids, entry.scopes
        wanted = self._tables.get(table)
        if wanted is None:
            wanted = self._decide_table(table)
        if not wanted:
            return None
        is_returned = self._peer_cluster_id in cluster_ids
        if is_returned and not self._counts_returned:
            return None
        cells: tuple[tuple[bytes, Cell], ...] = ()
        if scopes and entry.marker is None and not is_returned:
            families = self._families.get((table, scopes))
            if families is None:
                families = self._decide_families(table, scopes)
            cells = _cells_of(entry, families)
        marked = (*cluster_ids, self._cluster_id) if cluster_ids else self._own
        return ShippedEntry(
            WalKey(entry.region, table, entry.sequence_id, entry.write_time_ms, scopes, marked, entry.nonce), cells
        )

    def _decide_table(self, table: bytes) -> bool:
        is_shippable = namespace_of(table) != _SYSTEM or table in _SHIPPED_SYSTEM_TABLES
        wanted = is_shippable and wants_table(self._config, table)
        if len(self._tables) >= _DECISIONS_MAX:
            self._tables.clear()
        self._tables[table] = wanted
        return wanted

    def _decide_families(self, table: bytes, scopes: Scopes) -> frozenset[bytes]:
        families = frozenset(
            family
            for family, scope in scopes
            if scope in self._shipped_scopes and wants_family(self._config, table, family)
        )
        if len(self._families) >= _DECISIONS_MAX:
            self._families.clear()
        self._families[table, scopes] = families
        return families


def _cells_of(entry: WalEntry, families: frozenset[bytes]) -> tuple[tuple[bytes, Cell], ...]:
    """Return (row, cell) of these families, in the order of the entry. A logged row has cells of one family."""
    rows = entry.rows
    if len(rows) == 1 and isinstance(rows[0], PackedRow):  # the common case: one small put
        only = rows[0]
        _, row, family, _ = only.parts()
        return tuple([(row, cell) for cell in only.cells]) if family in families else ()
    found: list[tuple[bytes, Cell]] = []
    for logged in rows:
        row, cells = (logged.row, logged.cells) if isinstance(logged, PackedRow) else logged
        if cells[0].family in families:
            found += [(row, cell) for cell in cells]
    return tuple(found)
