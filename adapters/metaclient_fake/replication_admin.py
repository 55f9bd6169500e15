"""Decides how a client administers the peers of a fake cluster: calls to its master, procedures for changes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from metaclient.replication import Replication
from metaclient.replication_peers import Peer, PeerConfig, PeerState, ReplicationStatus
from metaclient.runtime import Runtime

if TYPE_CHECKING:
    from metaclient_fake.backend import FakeBackend
    from metaclient_fake.cluster.peer_replication import PeerReplication

__all__ = ["FakeReplicationAdmin", "administration_of"]

#: hbase.client.operation.timeout: how long ``cluster.replication`` waits for a procedure, which goes on after that.
_TIMEOUT_S = 1200.0


class FakeReplicationAdmin:
    """The :class:`metaclient.backend.ReplicationAdmin` of one client of a fake cluster."""

    def __init__(self, backend: FakeBackend, replication: PeerReplication) -> None:
        self._backend = backend
        self._replication = replication
        self._procedures = replication.procedures

    def add_peer(self, peer_id: str, config: PeerConfig, state: PeerState, deadline: float) -> None:
        self._backend.run_procedure(lambda: self._procedures.add(peer_id, config, state), deadline=deadline)

    def remove_peer(self, peer_id: str, deadline: float) -> None:
        self._backend.run_procedure(lambda: self._procedures.remove(peer_id), deadline=deadline)

    def set_peer_state(self, peer_id: str, state: PeerState, deadline: float) -> None:
        self._backend.run_procedure(lambda: self._procedures.set_state(peer_id, state), deadline=deadline)

    def update_peer(self, peer_id: str, config: PeerConfig, deadline: float) -> None:
        self._backend.run_procedure(lambda: self._procedures.update(peer_id, config), deadline=deadline)

    def peers(self, pattern: str | None, deadline: float) -> Sequence[Peer]:
        return self._backend.at_master(lambda: self._procedures.peers(pattern), deadline=deadline)

    def peer(self, peer_id: str, deadline: float) -> Peer:
        return self._backend.at_master(lambda: self._procedures.peer(peer_id), deadline=deadline)

    def replication_status(self, deadline: float) -> Sequence[ReplicationStatus]:
        return self._backend.at_master(self._replication.statuses, deadline=deadline)


def administration_of(admin: FakeReplicationAdmin, runtime: Runtime) -> Replication:
    """Return the object that users hold, with one deadline for all calls."""

    def call(operation: str, function: Callable[..., object], *arguments: object) -> object:
        return function(*arguments, runtime.now() + _TIMEOUT_S)

    return Replication(admin, call)
