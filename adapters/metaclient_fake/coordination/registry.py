"""Stores the published locations of the copies of hbase:meta, and when clients see a change (ZooKeeper's part).

The master publishes a location when it *sends* a copy to a server, before that server can answer (HBase 2.6.1: the
registry is ahead of the server by 0.1 to 0.4 s). Clients may see it later still: after ``lag_s``, or never while the
registry is held.
"""

from __future__ import annotations

from metaclient.model import MetaReplica, ServerName
from metaclient.runtime import Runtime
from metaclient_fake.network.network import REGISTRY, Network

__all__ = ["Registry"]


class Registry:
    """The locations that clients see, and those that they will see. Snapshots are replaced, under ``_lock``."""

    is_hung = False

    def __init__(self, runtime: Runtime, network: Network, lag_s: float) -> None:
        self._runtime = runtime
        self._network = network
        self.party = network.party(REGISTRY)
        self._lock = runtime.lock()
        self.lag_s = lag_s
        self._truth: dict[int, ServerName | None] = {}
        self._published: tuple[MetaReplica, ...] = (MetaReplica(0),)
        #: (instant, snapshot) still on their way to the clients, oldest first.
        self._coming: list[tuple[float, tuple[MetaReplica, ...]]] = []
        self._is_held = False

    def publish(self, replica_id: int, server: ServerName | None) -> None:
        with self._lock:
            self._truth[replica_id] = server
            self._announce()

    def withdraw(self, replica_id: int) -> None:
        """Remove a copy that does not exist any more (hbase.meta.replica.count went down)."""
        with self._lock:
            self._truth.pop(replica_id, None)
            self._announce()

    def _announce(self) -> None:
        snapshot = tuple(MetaReplica(replica_id, server) for replica_id, server in sorted(self._truth.items()))
        if self._is_held or self.lag_s:
            instant = float("inf") if self._is_held else self._runtime.now() + self.lag_s
            self._coming.append((instant, snapshot))
        else:
            self._published = snapshot
            self._coming.clear()

    def hold(self) -> None:
        """Freeze the locations that clients see."""
        with self._lock:
            self._is_held = True

    def release(self) -> None:
        with self._lock:
            self._is_held = False
            if self._coming:
                self._published = self._coming[-1][1]
                self._coming.clear()

    def replicas(self) -> tuple[MetaReplica, ...]:
        """Return the locations that clients see now."""
        if not self._coming:
            return self._published
        with self._lock:
            now = self._runtime.now()
            while self._coming and self._coming[0][0] <= now:
                self._published = self._coming.pop(0)[1]
            return self._published

    # -- as the target of a call -------------------------------------------------------------------------------

    @property
    def is_listening(self) -> bool:
        return not self._network.is_closed

    def check_running(self) -> None:
        pass

    def keep_for_wake_up(self, call: object) -> None:
        pass
