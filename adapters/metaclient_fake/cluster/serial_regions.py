"""Decides which tables are made ready when a peer becomes serial, and which pushed ids go when it leaves tables out."""

from __future__ import annotations

from collections.abc import Mapping

from metaclient.replication_peers import PeerConfig, wants_table
from metaclient_fake.master.master import Master
from metaclient_fake.master.serial_tables import make_serial, regions_with_barriers
from metaclient_fake.replication.barriers import has_serial_scope

__all__ = ["SerialRegions"]


class SerialRegions:
    """The regions of a cluster for the procedures of serial peers (``SerialTables``)."""

    def __init__(self, master: Master) -> None:
        self._master = master

    def prepare(self, old: PeerConfig | None, new: PeerConfig) -> Mapping[str, int]:
        """Reopen the tables that become serial with ``new``; return the ids of their regions that count as pushed."""
        known = [] if old is None else self._tables(old)
        return make_serial(self._master, [table for table in self._tables(new) if table not in known])

    def removed(self, old: PeerConfig, new: PeerConfig) -> list[str]:
        """Return the regions of the tables that are serial with ``old`` and not with ``new``."""
        kept = self._tables(new)
        return regions_with_barriers(self._master, [table for table in self._tables(old) if table not in kept])

    def is_serial(self, config: PeerConfig) -> bool:
        """Return True if a peer has serial tables, or gets them when they are made."""
        return config.serial or bool(self._tables(config))

    def is_table_serial(self, config: PeerConfig, table: bytes) -> bool:
        """Return True if a peer gets the edits of a table in order."""
        if not wants_table(config, table):
            return False
        if config.serial or not self._master.config.peer_replication.scope_2_is_serial:
            return config.serial
        record = self._master.tables.get(table)
        return record is not None and has_serial_scope(record.descriptor)

    def _tables(self, config: PeerConfig) -> list[bytes]:
        return [table for table in self._master.table_names() if self.is_table_serial(config, table)]
