"""The field tables of replication between clusters: peers, their states, and the loads of servers (HBase 2.6, 3.0)."""

from __future__ import annotations

from metaclient.metarow import TABLE_NAME
from metaclient.protobuf import BOOL, BYTES, SIGNED, TEXT, UNSIGNED, Message
from metaclient.wire.rpc.messages import BYTES_PAIR, STRING_PAIR

TABLE_CF = Message("TableCF", (1, "table_name", TABLE_NAME), (2, "families*", BYTES))
PEER = Message(
    "ReplicationPeer",
    (1, "clusterkey", TEXT),
    (2, "replicationEndpointImpl", TEXT),
    (3, "data*", BYTES_PAIR),
    (4, "configuration*", STRING_PAIR),
    (5, "table_cfs*", TABLE_CF),
    (6, "namespaces*", BYTES),
    (7, "bandwidth", SIGNED),
    (8, "replicate_all", BOOL),
    (9, "exclude_table_cfs*", TABLE_CF),
    (10, "exclude_namespaces*", BYTES),
    (11, "serial", BOOL),
    (12, "remoteWALDir", TEXT),
)
STATE = Message("ReplicationState", (1, "state!", UNSIGNED))
PEER_DESCRIPTION = Message("ReplicationPeerDescription", (1, "id!", TEXT), (2, "state!", STATE), (3, "config!", PEER))
#: The position in a log, and the last sequence id that a serial peer has got.
POSITION = Message("ReplicationHLogPosition", (1, "position!", SIGNED))

ADD_PEER_REQUEST = Message(
    "AddReplicationPeerRequest", (1, "peer_id!", TEXT), (2, "peer_config!", PEER), (3, "peer_state", STATE)
)
UPDATE_PEER_REQUEST = Message("UpdateReplicationPeerConfigRequest", (1, "peer_id!", TEXT), (2, "peer_config!", PEER))
#: RemoveReplicationPeer, EnableReplicationPeer, DisableReplicationPeer, GetReplicationPeerConfig,
#: IsReplicationPeerEnabled
PEER_REQUEST = Message("ReplicationPeerRequest", (1, "peer_id!", TEXT))
LIST_PEERS_REQUEST = Message("ListReplicationPeersRequest", (1, "regex", TEXT))
LIST_PEERS_RESPONSE = Message("ListReplicationPeersResponse", (1, "peer_desc*", PEER_DESCRIPTION))
GET_PEER_CONFIG_RESPONSE = Message("GetReplicationPeerConfigResponse", (1, "peer_id!", TEXT), (2, "peer_config!", PEER))
GET_PEER_STATE_RESPONSE = Message("GetReplicationPeerStateResponse", (1, "is_enabled!", BOOL))

SOURCE_LOAD = Message(
    "ReplicationLoadSource",
    (1, "peerID!", TEXT),
    (2, "ageOfLastShippedOp!", UNSIGNED),
    (3, "sizeOfLogQueue!", UNSIGNED),
    (4, "timeStampOfLastShippedOp!", UNSIGNED),
    (5, "replicationLag!", UNSIGNED),
    (6, "timeStampOfNextToReplicate", UNSIGNED),
    (7, "queueId", TEXT),
    (8, "recovered", BOOL),
    (9, "running", BOOL),
    (10, "editsSinceRestart", BOOL),
    (11, "editsRead", UNSIGNED),
    (12, "oPsShipped", UNSIGNED),
)
SINK_LOAD = Message(
    "ReplicationLoadSink",
    (1, "ageOfLastAppliedOp!", UNSIGNED),
    (2, "timeStampsOfLastAppliedOp!", UNSIGNED),
    (3, "timestampStarted", UNSIGNED),
    (4, "totalOpsProcessed", UNSIGNED),
)
