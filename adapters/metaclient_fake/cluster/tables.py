"""Runs the master's procedures on tables, and waits until new replicas can be read."""

from __future__ import annotations

from collections.abc import Sequence

from metaclient import keys
from metaclient.model import TableDescriptor
from metaclient.runtime import Runtime, SimRuntime
from metaclient_fake.cluster.servers import Servers
from metaclient_fake.config.cluster import ClusterConfig
from metaclient_fake.master import table_procedures
from metaclient_fake.master.master import Master

__all__ = ["TableAdmin"]

#: On real threads: how long the creation of a table waits at most for readable replicas, and the pause between checks.
_REPLICAS_OPEN_S, _REPLICAS_OPEN_PAUSE_S = 0.5, 0.002


class TableAdmin:
    """Creating, changing and deleting the tables of one cluster."""

    def __init__(self, runtime: Runtime, config: ClusterConfig, master: Master, servers: Servers) -> None:
        self._runtime = runtime
        self._config = config
        self._master = master
        self._servers = servers

    def create(self, descriptor: TableDescriptor, splits: Sequence[bytes] = ()) -> None:
        self._master.run(lambda: table_procedures.create(self._master, descriptor, splits))
        self.let_replicas_open()

    def delete(self, table: str | bytes) -> None:
        name = keys.table_name(table)
        self._master.run(lambda: table_procedures.delete(self._master, name))

    def truncate(self, table: str | bytes, *, preserve_splits: bool = False) -> None:
        name = keys.table_name(table)
        self._master.run(lambda: table_procedures.truncate(self._master, name, preserve_splits=preserve_splits))

    def enable(self, table: str | bytes) -> None:
        name = keys.table_name(table)
        self._master.run(lambda: table_procedures.enable(self._master, name))
        self.let_replicas_open()

    def disable(self, table: str | bytes) -> None:
        name = keys.table_name(table)
        self._master.run(lambda: table_procedures.disable(self._master, name))

    def alter(self, descriptor: TableDescriptor) -> None:
        """New families, fewer families, more or fewer copies; ``hbase:meta`` takes a new number of copies."""
        self._master.run(lambda: table_procedures.alter(self._master, descriptor))
        self.let_replicas_open()

    def let_replicas_open(self, *, is_start: bool = False) -> None:
        """Wait until new replicas can be read, at most ``_REPLICAS_OPEN_S``.

        On virtual time, or with a configured delay of reads, only the start of the cluster waits: for the copies of
        hbase:meta.
        """
        if not is_start and (self._config.reads_disabled_s or isinstance(self._runtime, SimRuntime)):
            return
        deadline = self._runtime.now() + _REPLICAS_OPEN_S
        while self._runtime.now() < deadline and any(
            server.secondaries.are_waiting for server in self._servers.running()
        ):
            self._runtime.sleep(_REPLICAS_OPEN_PAUSE_S)
