"""Where HBase stores how far a peer has got: in ZooKeeper (2.x), or in the table hbase:replication (3.0).

In the table, the row ``PEER`` has the pushed ids of a serial peer (``sid:REGION``, 8 bytes), and each row
``PEER-SERVER`` the positions of a queue (``queue:GROUP``, the text ``WAL:OFFSET``).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from metaclient.changes.subscription import change_host, host_deadline
from metaclient.errors import Unsupported

if TYPE_CHECKING:
    from metaclient.connection import Connection
    from metaclient.table import Table

__all__ = ["PushedIds"]

_TABLE = b"hbase:replication"


class PushedIds:
    """The progress of one peer."""

    def __init__(self, connection: Connection, peer_id: str) -> None:
        self._connection = connection
        self._engine = connection.engine
        self._host = change_host(connection)
        self._peer_id = peer_id

    def get(self, region: str) -> int | None:
        """Return the number of the last edit of a region that was pushed; None if there is none."""
        try:
            return self._host.pushed_id(region, self._peer_id, host_deadline(self._engine))
        except Unsupported:
            column = _column(region)
            value = self._table.row(self._peer_id.encode(), columns=[column]).get(column)
            return None if value is None else int.from_bytes(value, "big", signed=True)

    def set(self, region: str, sequence_id: int) -> None:
        try:
            self._host.set_pushed_id(region, self._peer_id, sequence_id, host_deadline(self._engine))
        except Unsupported:
            value = sequence_id.to_bytes(8, "big", signed=True)
            self._table.put(self._peer_id.encode(), {_column(region): value})

    def positions(self) -> Mapping[str, int]:
        """Return the position in each log that is being shipped; two equal results mean that nothing moves."""
        found = dict(self._host.queue_positions(self._peer_id, host_deadline(self._engine)))
        if not found and _TABLE in self._connection.tables():
            for row, columns in self._table.scan(row_prefix=self._peer_id.encode() + b"-", columns=[b"queue"]):
                for column, value in columns.items():
                    log, _, offset = value.decode().rpartition(":")
                    found[f"{row.decode()}/{column.decode()}/{log}"] = int(offset)
        return found

    @property
    def _table(self) -> Table:
        return self._connection.table(_TABLE, use_prefix=False)


def _column(region: str) -> bytes:
    return b"sid:" + region.encode()
