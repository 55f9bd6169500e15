"""Parses cluster keys, by which a replication peer names a cluster (HBase's ``ZKConfig``, 2.6.1)."""

from __future__ import annotations

import re
from typing import NamedTuple

from metaclient.errors import ConfigError

__all__ = ["ClusterKey"]


class ClusterKey(NamedTuple):
    """The addresses of a ZooKeeper and the node of one cluster in it.

    >>> ClusterKey.parse("zk1,zk2:2181:/hbase")
    ClusterKey(hosts='zk1:2181,zk2:2181', parent='/hbase')
    >>> ClusterKey.parse("zk1:2182,zk2:2181:/west").url
    'hbase://zk1:2182,zk2:2181/west'
    """

    hosts: str
    parent: str

    @classmethod
    def parse(cls, text: str) -> ClusterKey:
        """Read ``zk1,zk2:2181:/parent``, also with a port per host; raise ConfigError for anything else."""
        quorum, port, parent = text.rsplit(":", 2) if text.count(":") >= 2 else ("", "", "")
        hosts = [host if ":" in host else f"{host}:{port}" for host in quorum.split(",")]
        if not (all(quorum.split(",")) and re.fullmatch(r"\d{1,5}", port) and re.fullmatch(r"/.*[^/]", parent)):
            raise ConfigError(
                f"{text!r} is not a cluster key: write ZOOKEEPER,...:PORT:/PARENT, as zk1,zk2:2181:/hbase"
            )
        return cls(",".join(hosts), parent)

    @property
    def url(self) -> str:
        """The url by which a client reaches the cluster."""
        return f"hbase://{self.hosts}{self.parent}"
