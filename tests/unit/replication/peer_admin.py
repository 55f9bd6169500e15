"""A ReplicationAdmin in memory that records its calls, and refuses as HBase does."""

from __future__ import annotations

import re

from metaclient.errors import MetaClientError, RequestRefused
from metaclient.replication_peers import Peer, PeerConfig, PeerState, ReplicationStatus

__all__ = ["MemoryAdmin"]

NOT_FOUND = "org.apache.hadoop.hbase.ReplicationPeerNotFoundException"


class MemoryAdmin:
    def __init__(self) -> None:
        self.by_id: dict[str, Peer] = {}
        self.calls: list[str] = []
        self.statuses: list[ReplicationStatus] = []
        self.error: MetaClientError | None = None  # raised by the next call

    def _begin(self, call: str) -> None:
        self.calls.append(call)
        error, self.error = self.error, None
        if error is not None:
            raise error

    def add_peer(self, peer_id: str, config: PeerConfig, state: PeerState, deadline: float) -> None:
        self._begin("add")
        if peer_id in self.by_id:
            raise RequestRefused(f"Replication peer {peer_id} already exists")
        self.by_id[peer_id] = Peer(peer_id, state, config)

    def remove_peer(self, peer_id: str, deadline: float) -> None:
        self._begin("remove")
        del self.by_id[self._known(peer_id).id]

    def set_peer_state(self, peer_id: str, state: PeerState, deadline: float) -> None:
        self._begin(state.name)
        peer = self._known(peer_id)
        if peer.state is state:
            raise RequestRefused(f"Replication peer {peer_id} has already been {state.name.lower()}")
        self.by_id[peer_id] = Peer(peer_id, state, peer.config)

    def update_peer(self, peer_id: str, config: PeerConfig, deadline: float) -> None:
        self._begin("update")
        self.by_id[peer_id] = Peer(peer_id, self._known(peer_id).state, config)

    def peers(self, pattern: str | None, deadline: float) -> list[Peer]:
        self._begin("list")
        return [peer for _, peer in sorted(self.by_id.items()) if re.fullmatch(pattern or ".*", peer.id)]

    def peer(self, peer_id: str, deadline: float) -> Peer:
        self._begin("get")
        return self._known(peer_id)

    def _known(self, peer_id: str) -> Peer:
        if peer_id not in self.by_id:
            raise RequestRefused(peer_id, detail=NOT_FOUND)
        return self.by_id[peer_id]

    def replication_status(self, deadline: float) -> list[ReplicationStatus]:
        self._begin("status")
        return self.statuses
