"""Decides how the peers of a fake cluster are administered: by its master, and by the object that users hold."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from metaclient.backend import ReplicationAdmin
from metaclient.replication import Replication
from metaclient.replication_peers import Peer, PeerConfig, PeerState, ReplicationStatus
from metaclient.runtime import Runtime

if TYPE_CHECKING:
    from metaclient_fake.cluster.peer_replication import PeerReplication

__all__ = ["PeerAdmin", "administration_of"]

#: hbase.client.operation.timeout: how long ``cluster.replication`` waits for a procedure, which goes on after that.
_TIMEOUT_S = 1200.0


class PeerAdmin:
    """The :class:`metaclient.backend.ReplicationAdmin` of a master. A change returns when its procedure has ended.

    The deadlines are the caller's: a procedure goes on when they have passed, as in HBase.
    """

    def __init__(self, replication: PeerReplication) -> None:
        self._replication = replication
        self._procedures = replication.procedures

    def add_peer(self, peer_id: str, config: PeerConfig, state: PeerState, deadline: float) -> None:
        self._procedures.add(peer_id, config, state)

    def remove_peer(self, peer_id: str, deadline: float) -> None:
        self._procedures.remove(peer_id)

    def set_peer_state(self, peer_id: str, state: PeerState, deadline: float) -> None:
        self._procedures.set_state(peer_id, state)

    def update_peer(self, peer_id: str, config: PeerConfig, deadline: float) -> None:
        self._procedures.update(peer_id, config)

    def peers(self, pattern: str | None, deadline: float) -> Sequence[Peer]:
        return self._procedures.peers(pattern)

    def peer(self, peer_id: str, deadline: float) -> Peer:
        return self._procedures.peer(peer_id)

    def replication_status(self, deadline: float) -> Sequence[ReplicationStatus]:
        return self._replication.statuses()


def administration_of(admin: ReplicationAdmin, runtime: Runtime) -> Replication:
    """Return the object that users hold, with one deadline for all calls."""

    def call(operation: str, function: Callable[..., object], *arguments: object) -> object:
        return function(*arguments, runtime.now() + _TIMEOUT_S)

    return Replication(admin, call)
