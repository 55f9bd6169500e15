"""Decides which nodes a cluster publishes about itself, in HBase's bytes.

======================  ======================================================================================
``/hbase/hbaseid``      ``PBUF`` + ClusterId
``/hbase/master``       ``PBUF`` + Master; ephemeral, of the master's session
``/hbase/rs/SERVER``    ``PBUF`` + RegionServerInfo; ephemeral, of the server's session. Readers use only its name
======================  ======================================================================================

Mirrors ZKClusterId, MasterAddressTracker and RegionServerTracker (2.6). DIVERGENCES: ZooKeeper has the bytes ``ff``,
length and id of the writer in front of ``PBUF`` (RecoverableZooKeeper); HBase's readers accept both.
"""

from __future__ import annotations

from metaclient.model import ServerName
from metaclient.protobuf import TEXT, UNSIGNED, Message, encode
from metaclient.wire.rpc.messages import ZK_MASTER
from metaclient.wire.rpc.names import server_message
from metaclient_fake.coordination.znodes import Znodes

__all__ = ["publish_cluster", "publish_server"]

_MAGIC = b"PBUF"
_CLUSTER_ID = Message("ClusterId", (1, "cluster_id!", TEXT))
_REGION_SERVER_INFO = Message("RegionServerInfo", (1, "info_port", UNSIGNED))

#: hbase.master.info.port and hbase.regionserver.info.port
_MASTER_INFO_PORT, _SERVER_INFO_PORT = 16010, 16030


def publish_cluster(znodes: Znodes, parent: str, cluster_id: str, master: ServerName) -> None:
    """Create the nodes of a new cluster. ``parent`` is its ``zookeeper.znode.parent``."""
    znodes.create(f"{parent}/hbaseid", _MAGIC + encode(_CLUSTER_ID, {"cluster_id": cluster_id}), make_parents=True)
    znodes.create(f"{parent}/rs")
    message = {"master": server_message(master), "rpc_version": 0, "info_port": _MASTER_INFO_PORT}
    znodes.create(f"{parent}/master", _MAGIC + encode(ZK_MASTER, message), ephemeral=master)


def publish_server(znodes: Znodes, parent: str, server: ServerName) -> None:
    """Create the node of a new server. It vanishes with the server's session (``znodes.end_session(server)``)."""
    info = encode(_REGION_SERVER_INFO, {"info_port": _SERVER_INFO_PORT})
    znodes.create(f"{parent}/rs/{server}", _MAGIC + info, ephemeral=server)
