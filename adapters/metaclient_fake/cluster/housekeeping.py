"""Decides what a cluster does by itself: the list of its chores, and what each of them does."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress

from metaclient import keys
from metaclient.errors import ConnectionClosed
from metaclient.runtime import Runtime
from metaclient_fake.chores import Chore, Sessions
from metaclient_fake.cluster.servers import Servers
from metaclient_fake.config.cluster import ClusterConfig
from metaclient_fake.master import region_procedures
from metaclient_fake.master.master import Master
from metaclient_fake.server.region_server import RegionServer
from metaclient_fake.storage import FileSystem

__all__ = ["Housekeeping"]

#: How often secondaries are checked whose reads are disabled, or that pretend to be empty.
_REPLICA_CHORE_S = 0.05
_HOUSEKEEPING_S = 1.0


class Housekeeping:
    """The chores of one cluster."""

    def __init__(
        self,
        servers_by_host: dict[str, RegionServer],
        *,
        runtime: Runtime,
        config: ClusterConfig,
        filesystem: FileSystem,
        sessions: Sessions,
        master: Master,
        servers: Servers,
        balance: Callable[[], int],
        clean_barriers: Callable[[], object],
        expire_front: Callable[[], None],
    ) -> None:
        self._servers_by_host = servers_by_host
        self._runtime = runtime
        self._config = config
        self._filesystem = filesystem
        self._sessions = sessions
        self._master = master
        self._servers = servers
        self._balance = balance
        self._clean_barriers = clean_barriers
        self._expire_front = expire_front

    def chores(self) -> list[Chore]:
        """Return all chores; one with a period of 0 is off."""
        config = self._config
        return [
            Chore("sessions", config.session_check_s, self._look_at_sessions),
            Chore("meta-refresher", config.meta_refresh_period_s, self.refresh_meta),
            Chore("refresher", config.refresh_s, self.refresh),
            Chore("replica-reads", _REPLICA_CHORE_S, self._replica_chore, self._has_waiting_replicas),
            Chore("housekeeping", _HOUSEKEEPING_S, self._clean),
            Chore("catalog-janitor", config.catalog_janitor_s, self._janitor),
            Chore("balancer", config.balancer_period_s, self._balance),
            Chore("barrier-cleaner", config.peer_replication.barrier_cleaner_s, self._barrier_cleaner),
        ]

    def _look_at_sessions(self) -> None:
        self._sessions.look(list(self._servers_by_host.values()))
        self._master.start_recoveries()

    def refresh_meta(self) -> None:
        """Run the refresher for hbase:meta once; a changed primary is flushed first (``meta_flush_on_refresh``)."""
        primary = self._master.meta_primary_server()
        flushes = self._config.meta_flush_on_refresh and not self._config.replication.pushes_meta
        if flushes and primary is not None and primary.is_running:
            region = primary.regions.get(keys.meta_region_name(0))
            if region is not None and region.memstore_bytes:
                primary.flusher.flush_region(region)
        for server in self._servers.running():
            server.secondaries.refresh(meta=True)

    def refresh(self) -> None:
        """Run the refresher for user tables once: replicas load new files, primaries are not flushed."""
        for server in self._servers.running():
            server.secondaries.refresh(meta=False)

    def _has_waiting_replicas(self) -> bool:
        return any(server.secondaries.waiting for server in list(self._servers_by_host.values()))

    def _replica_chore(self) -> None:
        for server in list(self._servers_by_host.values()):
            if server.is_running:
                server.secondaries.look()

    def _clean(self) -> None:
        self._expire_front()
        for server in self._servers.running():
            server.scanners.expire()
            server.assignments.forget_moves()
            server.flusher.relieve_memory()
            server.flusher.roll_logs(self._config.wal_roll_entries)
        now = self._runtime.now()
        self._filesystem.clean_archive(now, self._config.storage.archive_ttl_s)
        self._filesystem.clean_old_wals(now, self._config.old_wal_ttl_s)

    def _janitor(self) -> None:
        """Delete split parents that are not needed any more (CatalogJanitor)."""
        if self._master.states.parents:
            self._start(
                "catalog-janitor",
                lambda: region_procedures.clean_parents(self._master, self._config.catalog_janitor_s),
            )

    def _barrier_cleaner(self) -> None:
        """Delete the barriers of hbase:meta that no serial peer needs any more (ReplicationBarrierCleaner)."""
        self._start("barrier-cleaner", self._clean_barriers)

    def _start(self, name: str, function: Callable[[], object]) -> None:
        """Run a procedure of the master as a task, because it writes to hbase:meta and may have to wait for it."""

        def run() -> None:
            with suppress(ConnectionClosed):
                self._master.run(function)

        self._runtime.start(run, name=name)
