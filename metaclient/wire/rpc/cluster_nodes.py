"""The data of the nodes by which HBase finds a cluster in ZooKeeper, in HBase's bytes.

======================  ======================================================================================
``/hbase/hbaseid``      ``PBUF`` + ClusterId
``/hbase/master``       ``PBUF`` + Master
``/hbase/rs/SERVER``    ``PBUF`` + RegionServerInfo. Readers use only the name of the node
======================  ======================================================================================

Mirrors ZKClusterId, MasterAddressTracker and RegionServerTracker (2.6). DIVERGENCES: ZooKeeper has the bytes ``ff``,
length and id of the writer in front of ``PBUF`` (RecoverableZooKeeper); HBase's readers accept both.
"""

from __future__ import annotations

from metaclient.model import ServerName
from metaclient.protobuf import TEXT, UNSIGNED, Message, encode
from metaclient.wire.rpc.messages import ZK_MASTER
from metaclient.wire.rpc.names import server_message

__all__ = ["cluster_id_node", "master_node", "server_node"]

_MAGIC = b"PBUF"
_CLUSTER_ID = Message("ClusterId", (1, "cluster_id!", TEXT))
_REGION_SERVER_INFO = Message("RegionServerInfo", (1, "info_port", UNSIGNED))

#: hbase.master.info.port and hbase.regionserver.info.port
_MASTER_INFO_PORT, _SERVER_INFO_PORT = 16010, 16030


def cluster_id_node(cluster_id: str) -> bytes:
    """Return the data of ``hbaseid``."""
    return _MAGIC + encode(_CLUSTER_ID, {"cluster_id": cluster_id})


def master_node(master: ServerName) -> bytes:
    """Return the data of ``master``."""
    message = {"master": server_message(master), "rpc_version": 0, "info_port": _MASTER_INFO_PORT}
    return _MAGIC + encode(ZK_MASTER, message)


def server_node() -> bytes:
    """Return the data of a node below ``rs``."""
    return _MAGIC + encode(_REGION_SERVER_INFO, {"info_port": _SERVER_INFO_PORT})
