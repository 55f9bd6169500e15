"""The calls of the master for replication peers, the replication of the servers by the cluster's status, and shipping.

Changes are procedures. HBase checks a change inside of the procedure, so that a refusal is in the procedure's result.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

from metaclient.errors import MetaClientError, NoSuchFamily
from metaclient.model import ServerName
from metaclient.replication_peers import Peer, PeerConfig, PeerState, ReplicationStatus
from metaclient.wire.rpc import admin_messages
from metaclient.wire.rpc import replication_messages as m
from metaclient.wire.rpc.names import server_from
from metaclient.wire.rpc.replication import REPLICATE_WAL_ENTRY, ShippedEntry, encode_replicate
from metaclient.wire.rpc.replication_peers import (
    config_from,
    config_message,
    peer_from,
    sink_load_from,
    source_load_from,
    state_message,
)
from metaclient_native.admin import ADMIN_SERVICE, Admin, wait_for
from metaclient_native.connections import Connections
from metaclient_native.request import Request, ServiceAddress
from metaclient_native.scanners import decode_nothing

__all__ = ["ReplicationCalls"]

_STATE_METHODS = {PeerState.ENABLED: "EnableReplicationPeer", PeerState.DISABLED: "DisableReplicationPeer"}


#: HBase's sink retries a missing family inside, so that the class of its error is another one.
_NO_SUCH_FAMILY = "NoSuchColumnFamilyException"


class ClusterRegistry(Protocol):
    """What the calls need of the registry."""

    def cluster_id(self, deadline: float) -> str | None: ...

    def live_servers(self, deadline: float) -> list[ServerName] | None: ...


class ReplicationCalls:
    """A :class:`~metaclient.backend.ReplicationAdmin` and its ``ReplicationSinks`` over HBase's RPC."""

    def __init__(self, admin: Admin, connections: Connections, registry: ClusterRegistry) -> None:
        self._admin = admin
        self._connections = connections
        self._registry = registry

    def add_peer(self, peer_id: str, config: PeerConfig, state: PeerState, deadline: float) -> None:
        request = {"peer_id": peer_id, "peer_config": config_message(config), "peer_state": state_message(state)}
        self._admin.run_procedure("AddReplicationPeer", m.ADD_PEER_REQUEST, request, deadline)

    def remove_peer(self, peer_id: str, deadline: float) -> None:
        self._admin.run_procedure("RemoveReplicationPeer", m.PEER_REQUEST, {"peer_id": peer_id}, deadline)

    def set_peer_state(self, peer_id: str, state: PeerState, deadline: float) -> None:
        self._admin.run_procedure(_STATE_METHODS[state], m.PEER_REQUEST, {"peer_id": peer_id}, deadline)

    def update_peer(self, peer_id: str, config: PeerConfig, deadline: float) -> None:
        request = {"peer_id": peer_id, "peer_config": config_message(config)}
        self._admin.run_procedure("UpdateReplicationPeerConfig", m.UPDATE_PEER_REQUEST, request, deadline)

    def peers(self, pattern: str | None, deadline: float) -> list[Peer]:
        answer = self._admin.ask(
            "ListReplicationPeers", m.LIST_PEERS_REQUEST, {"regex": pattern}, m.LIST_PEERS_RESPONSE, deadline
        )
        return sorted((peer_from(one) for one in answer.get("peer_desc", ())), key=lambda peer: peer.id)

    def peer(self, peer_id: str, deadline: float) -> Peer:
        request = {"peer_id": peer_id}
        config = self._admin.ask(
            "GetReplicationPeerConfig", m.PEER_REQUEST, request, m.GET_PEER_CONFIG_RESPONSE, deadline
        )
        state = self._admin.ask(
            "IsReplicationPeerEnabled", m.PEER_REQUEST, request, m.GET_PEER_STATE_RESPONSE, deadline
        )
        is_enabled = state["is_enabled"]
        return Peer(
            peer_id, PeerState.ENABLED if is_enabled else PeerState.DISABLED, config_from(config["peer_config"])
        )

    def replication_status(self, deadline: float) -> list[ReplicationStatus]:
        made = []
        for one in self._server_loads(deadline):
            server, load = server_from(one["server"]), one["server_load"]
            sink = load.get("replLoadSink")
            made.append(
                ReplicationStatus(
                    server=server,
                    sources=tuple(source_load_from(source, server) for source in load.get("replLoadSource", ())),
                    sink=None if sink is None else sink_load_from(sink),
                )
            )
        return sorted(made, key=lambda status: status.server)

    def report_times(self, deadline: float) -> list[int]:
        """Return when each live server last reported to the master, in milliseconds of the server's clock."""
        loads = [one["server_load"] for one in self._server_loads(deadline)]
        return [int(load["report_end_time"]) for load in loads if load.get("report_end_time")]

    def _server_loads(self, deadline: float) -> Sequence[Any]:
        status = self._admin.ask(
            "GetClusterStatus",
            admin_messages.GET_CLUSTER_STATUS_REQUEST,
            {"options": [admin_messages.OPTION_LIVE_SERVERS]},
            admin_messages.GET_CLUSTER_STATUS_RESPONSE,
            deadline,
        )["cluster_status"]
        found: Sequence[Any] = status.get("live_servers", ())
        return found

    # -- the cluster as the peer of another one ------------------------------------------------------------------------

    def cluster_id(self, deadline: float) -> str | None:
        return self._registry.cluster_id(deadline)

    def live_servers(self, deadline: float) -> list[ServerName]:
        known = self._registry.live_servers(deadline)
        return known if known is not None else [server_from(one["server"]) for one in self._server_loads(deadline)]

    def replicate(self, server: ServerName, entries: Sequence[ShippedEntry], deadline: float) -> None:
        param, cells = encode_replicate(entries)
        request: Request[None] = Request(
            REPLICATE_WAL_ENTRY.encode(), param, decode_nothing, deadline, REPLICATE_WAL_ENTRY, cells, is_write=True
        )
        call = self._connections.call(ServiceAddress(server.host, server.port, ADMIN_SERVICE), request)
        try:
            wait_for(call, deadline)
        except MetaClientError as error:
            if _NO_SUCH_FAMILY in f"{error}{error.detail or ''}" and not isinstance(error, NoSuchFamily):
                raise NoSuchFamily(str(error), may_have_applied=True, detail=error.detail) from error
            raise
