"""Makes a process that uses the fake a replication peer of it, without sockets: :class:`metaclient.backend.ChangeHost`.

The arguments ``host``, ``port``, ``bind`` and ``protection`` of a worker have no effect: its calls do not leave
the process.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from metaclient.wire.exposure import ListenerProtection
from metaclient.wire.rpc.receiving import Receiver
from metaclient_fake.replication.subscribers import Subscribers, Worker

if TYPE_CHECKING:
    from metaclient_fake.cluster import FakeCluster

__all__ = ["FakeChangeHost"]


class FakeChangeHost:
    """The subscriptions of one fake cluster."""

    def __init__(self, cluster: FakeCluster) -> None:
        self._cluster = cluster
        self._subscribers: Subscribers = cluster.subscribers

    def cluster_key(self, peer_id: str) -> str:
        return self._subscribers.key(peer_id)

    def prepare(self, peer_id: str, cluster_id: str, deadline: float) -> bool:
        return self._subscribers.prepare(peer_id, cluster_id)

    def withdraw(self, peer_id: str, deadline: float) -> None:
        self._subscribers.withdraw(peer_id)

    def workers(self, peer_id: str, deadline: float) -> list[str]:
        return sorted(worker.address for worker in self._subscribers.workers(peer_id))

    def join(
        self,
        peer_id: str,
        cluster_id: str,
        receiver: Receiver,
        deadline: float,
        *,
        host: str | None = None,
        port: int = 0,
        bind: str | None = None,
        protection: ListenerProtection | None = None,
    ) -> Worker:
        return self._subscribers.join(peer_id, receiver)

    def server_time_ms(self, deadline: float) -> int:
        return self._cluster.runtime.time_ms()

    def pushed_id(self, region: str, peer_id: str, deadline: float) -> int | None:
        found = self._cluster.peer_replication.pushed.get(region, peer_id)
        return None if found < 0 else found

    def set_pushed_id(self, region: str, peer_id: str, sequence_id: int, deadline: float) -> None:
        self._cluster.peer_replication.pushed.set_all(peer_id, {region: sequence_id})

    def queue_positions(self, peer_id: str, deadline: float) -> Mapping[str, int]:
        queues = self._cluster.peer_replication.queues
        return {
            f"{queue.server}/{queue.text}/{wal}": position
            for queue in queues.all_queues(peer_id)
            for wal, position in queues.positions(queue).items()
        }
