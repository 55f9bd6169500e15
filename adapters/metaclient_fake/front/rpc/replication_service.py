"""The calls of MasterService for replication peers, and ``ReplicateWALEntry`` of AdminService.

A change of a peer is a procedure, and HBase checks it there: the call itself is never refused. The text of a refusal is
HBase's: for an unknown peer, the bare id.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from metaclient.backend import ReplicationAdmin
from metaclient.errors import BackendFault, RequestRefused, Unsupported
from metaclient.model import ServerName
from metaclient.protobuf import Message, encode
from metaclient.replication_peers import PeerState, ReplicationStatus
from metaclient.runtime import Runtime
from metaclient.wire.rpc import replication_messages as m
from metaclient.wire.rpc.replication import MissingCells, decode_replicate
from metaclient.wire.rpc.replication_peers import (
    config_from,
    config_message,
    peer_message,
    sink_load_message,
    source_load_message,
    state_from,
)
from metaclient_fake.front.java_text import IO_EXCEPTION
from metaclient_fake.replication.peer_rules import PEER_NOT_FOUND
from metaclient_fake.server.region_server import RegionServer

__all__ = ["PeerMethods", "replicate_wal_entry", "replication_load"]

Fields = Mapping[str, Any]
T = TypeVar("T")
#: hbase.client.operation.timeout: a procedure that takes longer has no client any more that waits for it.
PROCEDURE_S = 1200.0


class PeerMethods:
    """The calls for peers. ``admin`` returns the cluster's administration of peers, or None if it has none."""

    def __init__(
        self,
        admin: Callable[[], ReplicationAdmin | None],
        runtime: Runtime,
        start: Callable[[Callable[[], object]], bytes],
    ) -> None:
        self._find_admin = admin
        self._runtime = runtime
        self._start = start
        self.methods: Mapping[str, tuple[Message, Callable[[Fields], bytes]]] = {
            "AddReplicationPeer": (m.ADD_PEER_REQUEST, self._add),
            "RemoveReplicationPeer": (m.PEER_REQUEST, self._remove),
            "EnableReplicationPeer": (m.PEER_REQUEST, lambda asked: self._set_state(asked, PeerState.ENABLED)),
            "DisableReplicationPeer": (m.PEER_REQUEST, lambda asked: self._set_state(asked, PeerState.DISABLED)),
            "UpdateReplicationPeerConfig": (m.UPDATE_PEER_REQUEST, self._update),
            "ListReplicationPeers": (m.LIST_PEERS_REQUEST, self._list),
            "GetReplicationPeerConfig": (m.PEER_REQUEST, self._get_config),
            "IsReplicationPeerEnabled": (m.PEER_REQUEST, self._is_enabled),
        }

    def _admin(self) -> ReplicationAdmin:
        admin = self._find_admin()
        if admin is None:
            raise Unsupported("this fake cluster has no replication peers")
        return admin

    def _deadline(self) -> float:
        return self._runtime.now() + PROCEDURE_S

    def status(self) -> Mapping[ServerName, ReplicationStatus]:
        """Return the replication of each server, for the cluster's status; nothing if the cluster has no peers."""
        admin = self._find_admin()
        return {} if admin is None else {one.server: one for one in admin.replication_status(self._deadline())}

    def _add(self, request: Fields) -> bytes:
        admin, config = self._admin(), config_from(request["peer_config"])
        state = state_from(request["peer_state"]) if "peer_state" in request else PeerState.ENABLED
        return self._start(lambda: admin.add_peer(request["peer_id"], config, state, self._deadline()))

    def _remove(self, request: Fields) -> bytes:
        admin = self._admin()
        return self._start(lambda: _in_hbases_words(admin.remove_peer, request["peer_id"], self._deadline()))

    def _set_state(self, request: Fields, state: PeerState) -> bytes:
        admin = self._admin()
        return self._start(lambda: _in_hbases_words(admin.set_peer_state, request["peer_id"], state, self._deadline()))

    def _update(self, request: Fields) -> bytes:
        admin, config = self._admin(), config_from(request["peer_config"])
        return self._start(lambda: _in_hbases_words(admin.update_peer, request["peer_id"], config, self._deadline()))

    def _list(self, request: Fields) -> bytes:
        peers = self._admin().peers(request.get("regex") or None, self._deadline())
        return encode(m.LIST_PEERS_RESPONSE, {"peer_desc": [peer_message(peer) for peer in peers]})

    def _get_config(self, request: Fields) -> bytes:
        peer = _in_hbases_words(self._admin().peer, request["peer_id"], self._deadline())
        message = {"peer_id": peer.id, "peer_config": config_message(peer.config)}
        return encode(m.GET_PEER_CONFIG_RESPONSE, message)

    def _is_enabled(self, request: Fields) -> bytes:
        peer = _in_hbases_words(self._admin().peer, request["peer_id"], self._deadline())
        return encode(m.GET_PEER_STATE_RESPONSE, {"is_enabled": peer.state is PeerState.ENABLED})


def _in_hbases_words(function: Callable[..., T], peer_id: str, *arguments: object) -> T:
    """Call a function of the administration; an unknown peer is ReplicationPeerNotFoundException with the bare id."""
    try:
        return function(peer_id, *arguments)
    except RequestRefused as error:
        if error.detail != PEER_NOT_FOUND:
            raise
        raise RequestRefused(peer_id, detail=PEER_NOT_FOUND) from error


def replication_load(status: ReplicationStatus | None) -> dict[str, Any]:
    """Return the fields of a ServerLoad for the replication of one server."""
    if status is None:
        return {}
    sink = None if status.sink is None else sink_load_message(status.sink)
    return {"replLoadSource": [source_load_message(load) for load in status.sources], "replLoadSink": sink}


def replicate_wal_entry(server: RegionServer, param: bytes, cells: bytes) -> bytes:
    """Apply the entries of another cluster; the response is empty, and is sent when all entries are applied.

    Entries without their cells are an IOException that may be retried, as in HBase.
    """
    sink = server.replication_sink
    if sink is None:
        raise Unsupported(f"the fake server {server.name} does not take edits of other clusters")
    try:
        entries = decode_replicate(param, cells)
    except MissingCells as error:
        sink.count_failed()
        raise BackendFault(str(error), detail=IO_EXCEPTION) from error
    if entries:
        sink.apply(entries)
    return b""
