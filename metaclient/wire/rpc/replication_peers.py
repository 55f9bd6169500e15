"""Converts peers and loads to messages and back, and to the contents of their znodes.

A znode of HBase has ``PBUF`` and a message. HBase's processes write a prefix before it (``ff``, int32 length, the
writer's id), which RecoverableZooKeeper.removeMetaData skips when the first byte is ``ff``; so does ``node_content``.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from metaclient.model import ServerName
from metaclient.protobuf import Message, ProtocolError, decode, encode
from metaclient.replication_peers import Peer, PeerConfig, PeerState, SinkLoad, SourceLoad
from metaclient.wire.rpc import replication_messages as m
from metaclient.wire.rpc.names import table_from, table_message

__all__ = [
    "config_from",
    "config_from_node",
    "config_message",
    "config_node",
    "node_content",
    "peer_from",
    "peer_message",
    "position_from_node",
    "position_node",
    "sink_load_from",
    "sink_load_message",
    "source_load_from",
    "source_load_message",
    "state_from",
    "state_from_node",
    "state_message",
    "state_node",
]

MAGIC = b"PBUF"
_METADATA = 0xFF
_METADATA_HEAD_BYTES = 5  # the byte ff and an int32


# -- messages ------------------------------------------------------------------------------------------------------


def config_message(config: PeerConfig) -> dict[str, Any]:
    """Return a ReplicationPeer, with the fields that ReplicationPeerConfigUtil.convert (2.6.1) writes, in its order."""
    return {
        "clusterkey": config.cluster_key,
        "replicationEndpointImpl": config.endpoint,
        "data": [{"first": name, "second": value} for name, value in config.peer_data.items()],
        "configuration": [{"name": name, "value": value} for name, value in config.configuration.items()],
        "table_cfs": _tables_message(config.tables),
        "namespaces": sorted(config.namespaces),
        "bandwidth": config.bandwidth,
        "replicate_all": config.replicate_all,
        "exclude_table_cfs": _tables_message(config.exclude_tables),
        "exclude_namespaces": sorted(config.exclude_namespaces),
        "serial": config.serial,
        "remoteWALDir": config.remote_wal_dir,
    }


def config_from(message: Mapping[str, Any]) -> PeerConfig:
    """
    >>> config = PeerConfig(cluster_key="zk1:2181:/hbase", tables={b"ns:t": (b"cf",)}, serial=True)
    >>> config_from(config_message(config)) == config
    True
    """
    return PeerConfig(
        cluster_key=message.get("clusterkey", ""),
        endpoint=message.get("replicationEndpointImpl") or None,
        replicate_all=message.get("replicate_all", True),
        tables=_tables_from(message.get("table_cfs", ())),
        namespaces=frozenset(message.get("namespaces", ())),
        exclude_tables=_tables_from(message.get("exclude_table_cfs", ())),
        exclude_namespaces=frozenset(message.get("exclude_namespaces", ())),
        bandwidth=message.get("bandwidth", 0),
        serial=message.get("serial", False),
        configuration={one["name"]: one["value"] for one in message.get("configuration", ())},
        peer_data={one["first"]: one["second"] for one in message.get("data", ())},
        remote_wal_dir=message.get("remoteWALDir") or None,
    )


def _tables_message(tables: Mapping[bytes, tuple[bytes, ...]]) -> list[dict[str, Any]]:
    return [{"table_name": table_message(table), "families": list(families)} for table, families in tables.items()]


def _tables_from(messages: Any) -> dict[bytes, tuple[bytes, ...]]:
    made: dict[bytes, tuple[bytes, ...]] = {}
    for one in messages:
        if "table_name" not in one:
            raise ProtocolError("TableCF without its field 'table_name'")
        made[table_from(one["table_name"])] = tuple(one.get("families", ()))
    return made


def state_message(state: PeerState) -> dict[str, Any]:
    return {"state": state.value}


def state_from(message: Mapping[str, Any]) -> PeerState:
    try:
        return PeerState(message["state"])
    except ValueError as error:
        raise ProtocolError(f"a replication peer has the unknown state {message['state']}") from error


def peer_message(peer: Peer) -> dict[str, Any]:
    """Return a ReplicationPeerDescription."""
    return {"id": peer.id, "state": state_message(peer.state), "config": config_message(peer.config)}


def peer_from(message: Mapping[str, Any]) -> Peer:
    return Peer(message["id"], state_from(message["state"]), config_from(message["config"]))


def source_load_message(load: SourceLoad) -> dict[str, Any]:
    return {
        "peerID": load.peer_id,
        "ageOfLastShippedOp": load.age_of_last_shipped_ms,
        "sizeOfLogQueue": load.log_queue,
        "timeStampOfLastShippedOp": load.last_shipped_ms,
        "replicationLag": load.lag_ms,
        "timeStampOfNextToReplicate": load.next_to_replicate_ms,
        "queueId": load.queue_id,
        "recovered": load.is_recovered,
        "running": load.is_running,
        "editsSinceRestart": load.has_edits_since_restart,
        "editsRead": load.edits_read,
        "oPsShipped": load.edits_shipped,
    }


def source_load_from(message: Mapping[str, Any], server: ServerName) -> SourceLoad:
    return SourceLoad(
        peer_id=message["peerID"],
        server=server,
        queue_id=message.get("queueId", message["peerID"]),
        age_of_last_shipped_ms=message["ageOfLastShippedOp"],
        log_queue=message["sizeOfLogQueue"],
        last_shipped_ms=message["timeStampOfLastShippedOp"],
        lag_ms=message["replicationLag"],
        next_to_replicate_ms=message.get("timeStampOfNextToReplicate", 0),
        is_recovered=message.get("recovered", False),
        is_running=message.get("running", False),
        has_edits_since_restart=message.get("editsSinceRestart", False),
        edits_read=message.get("editsRead", 0),
        edits_shipped=message.get("oPsShipped", 0),
    )


def sink_load_message(load: SinkLoad) -> dict[str, Any]:
    return {
        "ageOfLastAppliedOp": load.age_of_last_applied_ms,
        "timeStampsOfLastAppliedOp": load.last_applied_ms,
        "timestampStarted": load.started_ms,
        "totalOpsProcessed": load.edits_applied,
    }


def sink_load_from(message: Mapping[str, Any]) -> SinkLoad:
    return SinkLoad(
        age_of_last_applied_ms=message["ageOfLastAppliedOp"],
        last_applied_ms=message["timeStampsOfLastAppliedOp"],
        started_ms=message.get("timestampStarted", 0),
        edits_applied=message.get("totalOpsProcessed", 0),
    )


# -- znodes --------------------------------------------------------------------------------------------------------


def node_content(data: bytes) -> bytes:
    """Return the message of a znode, without the writer's prefix and ``PBUF``; ProtocolError if it has none.

    >>> node_content(bytes.fromhex("ff00000002") + b"id" + b"PBUF" + b"message")
    b'message'
    """
    at = 0
    if data[:1] == bytes([_METADATA]) and len(data) >= _METADATA_HEAD_BYTES:
        at = _METADATA_HEAD_BYTES + int.from_bytes(data[1:_METADATA_HEAD_BYTES], "big")
    if data[at : at + len(MAGIC)] != MAGIC:
        raise ProtocolError(f"a znode of {len(data)} bytes has no PBUF at byte {at}: HBase did not write it")
    return data[at + len(MAGIC) :]


def _decode_node(message: Message, data: bytes) -> dict[str, Any]:
    return decode(message, node_content(data))


def config_node(config: PeerConfig) -> bytes:
    """Return the content of the znode of a peer, ``replication/peers/PEER``."""
    return MAGIC + encode(m.PEER, config_message(config))


def config_from_node(data: bytes) -> PeerConfig:
    return config_from(_decode_node(m.PEER, data))


def state_node(state: PeerState) -> bytes:
    """Return the content of the znode ``peer-state`` of a peer.

    >>> state_node(PeerState.DISABLED)
    b'PBUF\\x08\\x01'
    """
    return MAGIC + encode(m.STATE, state_message(state))


def state_from_node(data: bytes) -> PeerState:
    return state_from(_decode_node(m.STATE, data))


def position_node(position: int) -> bytes:
    """Return the content of a znode with a position in a log, or with the last sequence id that a serial peer has got.

    HBase never writes position 0: the znode of a log that was not begun is empty.
    """
    return MAGIC + encode(m.POSITION, {"position": position})


def position_from_node(data: bytes) -> int:
    """
    >>> position_from_node(b""), position_from_node(position_node(300))
    (0, 300)
    """
    if not data:
        return 0
    position: int = _decode_node(m.POSITION, data)["position"]
    return position
