"""Decides what a cluster is called: its name on the network, its cluster key and its cluster id."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from itertools import count
from uuid import NAMESPACE_URL, uuid5
from weakref import WeakKeyDictionary

from metaclient.errors import ConfigError
from metaclient.runtime import Runtime, SimRuntime
from metaclient_fake.network.network import CLIENT, MASTER, REGISTRY

__all__ = ["ZNODE_PARENT", "checked_name", "cluster_key", "made_cluster_id"]

#: zookeeper.znode.parent
ZNODE_PARENT = "/hbase"
#: hbase.zookeeper.quorum and hbase.zookeeper.property.clientPort of a cluster without a name.
_QUORUM, _PORT = "localhost", 2181

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,62}")
#: Names that parties of a cluster without a name have, and the host in its cluster key.
_TAKEN = re.compile(rf"rs\d+|{CLIENT}|{MASTER}|{REGISTRY}|zookeeper|{_QUORUM}")

#: How many clusters each runtime has had: two on one virtual clock get two ids.
_made: WeakKeyDictionary[Runtime, Iterator[int]] = WeakKeyDictionary()
#: The same for the process: two runtimes can make a cluster in the same millisecond.
_made_in_process = count()


def checked_name(name: str) -> str:
    """Return the name, or raise ConfigError: it is a part of party names (``west/rs1``) and of the cluster key."""
    if name and (not _NAME.fullmatch(name) or _TAKEN.fullmatch(name)):
        raise ConfigError(
            f"{name!r} cannot be the name of a cluster: use letters, digits, '_', '.' and '-', at most 63 of them, "
            f"and neither the name of a party (rs1, {CLIENT}, {MASTER}, {REGISTRY}, zookeeper) nor {_QUORUM!r}"
        )
    return name


def cluster_key(name: str) -> str:
    """Return the key by which a replication peer names the cluster (HBase's ``ZKConfig.getZooKeeperClusterKey``).

    >>> cluster_key("west"), cluster_key("")
    ('west:2181:/hbase', 'localhost:2181:/hbase')
    """
    return f"{name or _QUORUM}:{_PORT}:{ZNODE_PARENT}"


def made_cluster_id(runtime: Runtime, seed: int, name: str) -> str:
    """Return a new cluster id, as in HBase's file ``hbase.id``. No two clusters have the same.

    On a virtual clock it is stable: the n-th cluster of a runtime gets the same id in every run.
    """
    number = next(_made.setdefault(runtime, count()))
    made_from = f"fake:{seed}:{name}:{number}:{runtime.time_ms()}"
    if not isinstance(runtime, SimRuntime):
        made_from += f":{os.getpid()}:{next(_made_in_process)}"
    return str(uuid5(NAMESPACE_URL, made_from))
