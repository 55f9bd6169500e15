"""Publishes servers of this process in a real ZooKeeper, so that a real HBase can have them as its replication peer.

Below the parent of the cluster key stand HBase's nodes (:mod:`metaclient.wire.rpc.cluster_nodes`): ``hbaseid``,
``master``, and ``rs/HOST,PORT,STARTCODE`` per live server, with the address at which it listens. HBase 2.x and 3.0 (to
beta-1) read ``hbaseid`` and ``rs``; later versions ask the master, and clients read the locations of hbase:meta. The
nodes of a publication are ephemeral. Processes that publish their servers below the same parent leave ``hbaseid`` out,
because it must outlive each of them.

The nodes follow the servers: once per second they are compared with the live servers. A node that ZooKeeper removed,
because the session broke off for longer than its timeout, is created again. The parent and ``rs`` stay when the
publication ends, so that the watches of HBase's sources on ``rs`` stay in force for the next one.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence

from metaclient.config.cluster_keys import ClusterKey
from metaclient.errors import ConnectionClosed, MetaClientError, RequestRefused, ServerNotRunning
from metaclient.model import ServerName
from metaclient.runtime import Runtime
from metaclient.wire.rpc.cluster_nodes import cluster_id_node, server_node
from metaclient.wire.zookeeper import ZooKeeperClient

__all__ = ["Publication"]

logger = logging.getLogger(__name__)

#: How long one comparison of the nodes may take: longer than the session, so that a lost one can be replaced.
COMPARE_S_MAX = 15.0
#: The time between two comparisons. HBase's sources react to a change after about as long.
PERIOD_S = 1.0


class Publication:
    """The nodes of one cluster, or of one process of several, in one ZooKeeper."""

    def __init__(
        self,
        runtime: Runtime,
        key: str,
        *,
        cluster_id: str,
        servers: Callable[[], Sequence[ServerName]],
        nodes: Callable[[], Mapping[str, bytes]] = dict,
    ) -> None:
        """``servers`` have the names that are published; ``nodes`` are further ones below the parent, by name."""
        parsed = ClusterKey.parse(key)
        self.key = key
        self._runtime = runtime
        self._parent = parsed.parent
        self._id_node = cluster_id_node(cluster_id)
        self._nodes = nodes
        self._written: dict[str, bytes] = {}  # of the comparing task
        self._servers = servers
        self._client = ZooKeeperClient(
            parsed.hosts, runtime, needed_by="publishing a cluster in ZooKeeper", read_only=False
        )
        self._published: frozenset[str] = frozenset()  # names below rs; of the comparing task
        self._closing = runtime.condition()
        self._is_closed = False  # guarded by _closing

    def __repr__(self) -> str:
        return f"<Publication {self.key}>"

    def start(self) -> None:
        """Publish the nodes and return; then keep them up to date. Raises if ZooKeeper refuses or cannot be reached."""
        try:
            self._refuse_other_cluster()
            self._compare()
        except BaseException:
            self._client.close()
            raise
        self._runtime.start_daemon(self._follow, name="publication")

    def withdraw(self, timeout_s: float) -> None:
        """Delete the nodes of the servers now, instead of with the end of the session; call :meth:`close` then."""
        with self._closing:
            self._is_closed = True
            self._closing.notify_all()
        until = self._runtime.now() + timeout_s
        for name in sorted(self._published):
            self._client.delete(f"{self._parent}/rs/{name}", until)

    def close(self) -> None:
        """Withdraw the nodes: they end with the session. Idempotent."""
        with self._closing:
            self._is_closed = True
            self._closing.notify_all()
        self._client.close()

    # -- nodes ---------------------------------------------------------------------------------------------------------

    def _refuse_other_cluster(self) -> None:
        """Refuse a parent that belongs to another cluster: a source would ship to the servers of both."""
        try:
            found = self._client.get(f"{self._parent}/hbaseid", self._until())
        except ServerNotRunning:
            return
        if found != self._id_node:
            raise RequestRefused(
                f"{self._parent} in this ZooKeeper belongs to another cluster (see its node hbaseid): choose another "
                "parent, or wait until the session of the cluster that was published there has ended"
            )

    def _follow(self) -> None:
        while self._wait():
            try:
                self._compare()
            except ConnectionClosed:
                return
            except MetaClientError as error:
                logger.warning("%r cannot be brought up to date: %s", self, error)

    def _wait(self) -> bool:
        """Wait for the next comparison; return False after close()."""
        until = self._runtime.now() + PERIOD_S
        with self._closing:
            while not self._is_closed and self._closing.wait(until):
                pass
            return not self._is_closed

    def _compare(self) -> None:
        """Create the nodes that are missing, and delete those of servers that have ended."""
        client, until, folder = self._client, self._until(), f"{self._parent}/rs"
        client.create(folder, b"", until)
        found, running = (frozenset(client.children(path, until)) for path in (self._parent, folder))
        for name, data in sorted(self._nodes().items()):
            if name not in found:
                client.create(f"{self._parent}/{name}", data, until, is_ephemeral=True)
            elif self._written.get(name, data) != data:
                client.set(f"{self._parent}/{name}", data, until)
            self._written[name] = data
        wanted = frozenset(map(str, self._servers()))
        for name in sorted(wanted - running):
            client.create(f"{folder}/{name}", server_node(), until, is_ephemeral=True)
        for name in sorted(self._published & running - wanted):
            client.delete(f"{folder}/{name}", until)
        self._published = wanted

    def _until(self) -> float:
        return self._runtime.now() + COMPARE_S_MAX
