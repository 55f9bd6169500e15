"""A ReplicationAdmin in memory that records its calls, and refuses as HBase does."""

from __future__ import annotations

import re

from metaclient.errors import RequestRefused
from metaclient.replication_peers import Peer, PeerConfig, PeerState, ReplicationStatus

__all__ = ["MemoryAdmin"]

NOT_FOUND = "org.apache.hadoop.hbase.replication.ReplicationPeerNotFoundException"


class MemoryAdmin:
    def __init__(self) -> None:
        self.by_id: dict[str, Peer] = {}
        self.calls: list[str] = []
        self.statuses: list[ReplicationStatus] = []

    def add_peer(self, peer_id: str, config: PeerConfig, state: PeerState, deadline: float) -> None:
        self.calls.append("add")
        if peer_id in self.by_id:
            raise RequestRefused(f"Replication peer {peer_id} already exists")
        self.by_id[peer_id] = Peer(peer_id, state, config)

    def remove_peer(self, peer_id: str, deadline: float) -> None:
        self.calls.append("remove")
        del self.by_id[self.peer(peer_id, deadline).id]

    def set_peer_state(self, peer_id: str, state: PeerState, deadline: float) -> None:
        self.calls.append(state.name)
        peer = self.peer(peer_id, deadline)
        if peer.state is state:
            raise RequestRefused(f"Replication peer {peer_id} has already been {state.name.lower()}")
        self.by_id[peer_id] = Peer(peer_id, state, peer.config)

    def update_peer(self, peer_id: str, config: PeerConfig, deadline: float) -> None:
        self.calls.append("update")
        self.by_id[peer_id] = Peer(peer_id, self.peer(peer_id, deadline).state, config)

    def peers(self, pattern: str | None, deadline: float) -> list[Peer]:
        return [peer for _, peer in sorted(self.by_id.items()) if re.fullmatch(pattern or ".*", peer.id)]

    def peer(self, peer_id: str, deadline: float) -> Peer:
        if peer_id not in self.by_id:
            raise RequestRefused(peer_id, detail=NOT_FOUND)
        return self.by_id[peer_id]

    def replication_status(self, deadline: float) -> list[ReplicationStatus]:
        return self.statuses
