"""Decides which nodes a cluster publishes about itself (:mod:`metaclient.wire.rpc.cluster_nodes` has their data).

``/hbase/master`` is ephemeral, of the master's session; ``/hbase/rs/SERVER`` is ephemeral, of the server's session.
"""

from __future__ import annotations

from metaclient.model import ServerName
from metaclient.wire.rpc.cluster_nodes import cluster_id_node, master_node, server_node
from metaclient_fake.coordination.znodes import Znodes

__all__ = ["publish_cluster", "publish_server"]


def publish_cluster(znodes: Znodes, parent: str, cluster_id: str, master: ServerName) -> None:
    """Create the nodes of a new cluster. ``parent`` is its ``zookeeper.znode.parent``."""
    znodes.create(f"{parent}/hbaseid", cluster_id_node(cluster_id), make_parents=True)
    znodes.create(f"{parent}/rs")
    znodes.create(f"{parent}/master", master_node(master), ephemeral=master)


def publish_server(znodes: Znodes, parent: str, server: ServerName) -> None:
    """Create the node of a new server. It vanishes with the server's session (``znodes.end_session(server)``)."""
    znodes.create(f"{parent}/rs/{server}", server_node(), ephemeral=server)
