"""Decides which tables are made ready when a peer becomes serial, and which pushed ids go when it leaves tables out."""

from __future__ import annotations

from collections.abc import Mapping

from metaclient.replication_peers import PeerConfig
from metaclient_fake.master.master import Master
from metaclient_fake.master.serial_tables import make_serial, regions_with_barriers
from metaclient_fake.replication.filters import wants_table

__all__ = ["SerialRegions"]


class SerialRegions:
    """The regions of a cluster for the procedures of serial peers (``SerialTables``)."""

    def __init__(self, master: Master) -> None:
        self._master = master

    def prepare(self, old: PeerConfig | None, new: PeerConfig) -> Mapping[str, int]:
        """Reopen the tables that become serial with ``new``; return the ids of their regions that count as pushed."""
        was_serial = old if old is not None and old.serial else None
        tables = [
            table
            for table in self._master.table_names()
            if wants_table(new, table) and not (was_serial is not None and wants_table(was_serial, table))
        ]
        return make_serial(self._master, tables)

    def removed(self, old: PeerConfig, new: PeerConfig) -> list[str]:
        """Return the regions of the tables of ``old`` that ``new`` does not replicate any more."""
        tables = [t for t in self._master.table_names() if wants_table(old, t) and not wants_table(new, t)]
        return regions_with_barriers(self._master, tables)
