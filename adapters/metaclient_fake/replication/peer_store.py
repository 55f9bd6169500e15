"""Stores the peers of a cluster in the nodes of ``ZKReplicationPeerStorage`` (HBase 2.6).

``/hbase/replication/peers/PEER`` holds its configuration and ``.../peer-state`` its state, as HBase's bytes. Every
change can be repeated: a procedure that does not know whether its write was stored writes again.
"""

from __future__ import annotations

from contextlib import suppress

from metaclient.replication_peers import Peer, PeerConfig, PeerState
from metaclient.wire.rpc.replication_peers import config_from_node, config_node, state_from_node, state_node
from metaclient_fake.coordination.znodes import Create, NodeExists, NoNode, Set, Znodes

__all__ = ["PeerStore"]


class PeerStore:
    """The stored peers of one cluster, which all of its servers read."""

    def __init__(self, znodes: Znodes, root: str = "/hbase/replication") -> None:
        self._znodes = znodes
        self._root = f"{root}/peers"

    def _path(self, peer_id: str) -> str:
        return f"{self._root}/{peer_id}"

    def _state_path(self, peer_id: str) -> str:
        return f"{self._root}/{peer_id}/peer-state"

    def ids(self) -> list[str]:
        try:
            return self._znodes.children(self._root)
        except NoNode:
            return []

    def get(self, peer_id: str) -> Peer | None:
        """Return a peer; None when there is none."""
        try:
            config = self._znodes.get(self._path(peer_id)).data
            state = self._znodes.get(self._state_path(peer_id)).data
        except NoNode:
            return None
        return Peer(peer_id, state_from_node(state), config_from_node(config))

    def add(self, peer: Peer) -> None:
        """Store a new peer; a peer of this id that is there already is replaced."""
        config, state = config_node(peer.config), state_node(peer.state)
        path, state_path = self._path(peer.id), self._state_path(peer.id)
        try:
            self._znodes.multi([Create(path, config, make_parents=True), Create(state_path, state)])
        except NodeExists:
            self._znodes.multi([Set(path, config), Set(state_path, state)])

    def remove(self, peer_id: str) -> None:
        with suppress(NoNode):
            self._znodes.delete(self._path(peer_id), recursive=True)

    def set_state(self, peer_id: str, state: PeerState) -> None:
        self._znodes.set(self._state_path(peer_id), state_node(state))

    def set_config(self, peer_id: str, config: PeerConfig) -> None:
        self._znodes.set(self._path(peer_id), config_node(config))
