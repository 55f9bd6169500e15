"""Makes this process a replication peer of a real HBase: nodes in the cluster's ZooKeeper, and a listening socket.

The nodes of a subscription are beside those of the cluster, in the same ZooKeeper:

=========================================  ===========================================================================
``/metaclient-changes/PEER/hbaseid``       the cluster id of the peer; stays until the subscription is removed
``/metaclient-changes/PEER/rs``            watched by every source; stays, too
``/metaclient-changes/PEER/rs/HOST,PORT,START``  one per worker, ephemeral
=========================================  ===========================================================================

HBase 2.x and 3.0 (to beta-1) need nothing else: no master, no hbase:meta, and one method of the listening socket.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from contextlib import suppress

from metaclient.errors import MetaClientError, RequestRefused, ServerNotRunning, Unsupported
from metaclient.model import ServerName
from metaclient.runtime import Runtime
from metaclient.wire.exposure import ListenerProtection, is_loopback
from metaclient.wire.listener import own_address
from metaclient.wire.publication import Publication
from metaclient.wire.rpc.cluster_nodes import cluster_id_node
from metaclient.wire.rpc.receiving import DeliveryServer, Receiver
from metaclient.wire.rpc.replication_peers import position_from_node, position_node
from metaclient.wire.zookeeper import ZooKeeperClient
from metaclient_native.replication import ReplicationCalls
from metaclient_native.url import Endpoint

__all__ = ["ZooKeeperChangeHost"]

logger = logging.getLogger(__name__)

ROOT = "/metaclient-changes"
#: How long a worker that leaves waits for the removal of its node; the end of its session removes the node, too.
_LEAVE_S = 1.0
#: How long the removal of nodes may take after an error: a new session and three requests.
_CLEAN_S = 10.0


class ZooKeeperChangeHost:
    """The subscriptions of one cluster, through its ZooKeeper. Its own session writes; each worker has another one."""

    def __init__(
        self, endpoints: Sequence[Endpoint], parent: str, runtime: Runtime, replication: ReplicationCalls
    ) -> None:
        """``parent`` is the node of the cluster itself."""
        self._endpoints = endpoints
        self._parent = parent
        self._runtime = runtime
        self._replication = replication
        self._client = ZooKeeperClient(
            ",".join(map(str, endpoints)), runtime, needed_by="a subscription to changes", read_only=False
        )

    def close(self) -> None:
        self._client.close()

    # -- the subscription ----------------------------------------------------------------------------------------------

    def cluster_key(self, peer_id: str) -> str:
        """Return ``zk1,zk2:2181:/metaclient-changes/PEER``; with a port per host if they differ."""
        ports = {endpoint.port for endpoint in self._endpoints}
        hosts = [endpoint.host if len(ports) == 1 else str(endpoint) for endpoint in self._endpoints]
        return f"{','.join(hosts)}:{self._endpoints[0].port}:{ROOT}/{peer_id}"

    def prepare(self, peer_id: str, cluster_id: str, deadline: float) -> bool:
        folder = f"{ROOT}/{peer_id}"
        data = cluster_id_node(cluster_id)
        is_made = self._client.create(f"{folder}/hbaseid", data, deadline)
        if not is_made and self._client.get(f"{folder}/hbaseid", deadline) != data:
            raise RequestRefused(
                f"{folder}/hbaseid in ZooKeeper does not hold the id of this subscription: another program uses the "
                "node; choose another name, or delete the node"
            )
        try:
            self._client.create(f"{folder}/rs", b"", deadline)
        except MetaClientError:
            if is_made:
                self._withdraw_quietly(peer_id)
            raise
        return is_made

    def withdraw(self, peer_id: str, deadline: float) -> None:
        folder = f"{ROOT}/{peer_id}"
        for path in (f"{folder}/rs", f"{folder}/hbaseid", folder):
            self._client.delete(path, deadline)

    def _withdraw_quietly(self, peer_id: str) -> None:
        """Remove the nodes after an error, which is reported instead of an error of the removal."""
        try:
            self.withdraw(peer_id, self._runtime.now() + _CLEAN_S)
        except MetaClientError as error:
            logger.warning("%s/%s stays in ZooKeeper, because it cannot be deleted: %s", ROOT, peer_id, error)

    def workers(self, peer_id: str, deadline: float) -> list[str]:
        try:
            names = self._client.children(f"{ROOT}/{peer_id}/rs", deadline)
        except ServerNotRunning:
            return []
        return sorted(":".join(name.split(",")[:2]) for name in names)

    def join(
        self,
        peer_id: str,
        cluster_id: str,
        receiver: Receiver,
        deadline: float,
        *,
        host: str | None = None,
        port: int = 0,
        bind: str | None = None,
        protection: ListenerProtection | None = None,
    ) -> Worker:
        zookeeper = self._endpoints[0]
        published = host or own_address(zookeeper.host, zookeeper.port)
        # A host that the caller has named may be that of a proxy, or a name of several addresses.
        at = bind or (published if host is None or is_loopback(host) else "0.0.0.0")
        protection = protection or ListenerProtection()
        protection.check(at, "the receiver of changes")
        server = DeliveryServer(
            at, port, runtime=self._runtime, receiver=receiver, cluster_id=cluster_id, tls=protection.make_context()
        )
        name = ServerName(published, server.port, self._runtime.time_ms())
        try:
            publication = Publication(
                self._runtime,
                self.cluster_key(peer_id),
                cluster_id=cluster_id,
                servers=lambda: [name],
            )
            publication.start()
        except BaseException:
            server.close()
            raise
        return Worker(name, server, publication)

    # -- the cluster ---------------------------------------------------------------------------------------------------

    def server_time_ms(self, deadline: float) -> int:
        """Return the time of the oldest report of a region server, by that server's own clock."""
        return min(self._replication.report_times(deadline), default=self._runtime.time_ms())

    def pushed_id(self, region: str, peer_id: str, deadline: float) -> int | None:
        """Return the pushed id of HBase 2.x; Unsupported for HBase 3, which has it in the table hbase:replication."""
        try:
            return position_from_node(self._client.get(self._pushed_path(region, peer_id, deadline), deadline))
        except ServerNotRunning:
            return None

    def set_pushed_id(self, region: str, peer_id: str, sequence_id: int, deadline: float) -> None:
        path, data = self._pushed_path(region, peer_id, deadline), position_node(sequence_id)
        if not self._client.create(path, data, deadline):
            self._client.set(path, data, deadline)

    def _pushed_path(self, region: str, peer_id: str, deadline: float) -> str:
        root = f"{self._parent}/replication"
        if "rs" not in self._client.children(root, deadline):
            raise Unsupported("HBase 3 stores the ids of serial peers in the table hbase:replication, not in ZooKeeper")
        return f"{root}/regions/{region[:2]}/{region[2:4]}/{region[4:]}-{peer_id}"

    def queue_positions(self, peer_id: str, deadline: float) -> Mapping[str, int]:
        """Return the positions of HBase 2.x; nothing for HBase 3, which has them in the table hbase:replication."""
        root, client = f"{self._parent}/replication/rs", self._client
        found: dict[str, int] = {}
        with suppress(ServerNotRunning):  # HBase 3, or a queue that ends meanwhile
            for server in client.children(root, deadline):
                if server.startswith("cversion_"):
                    continue
                for queue in client.children(f"{root}/{server}", deadline):
                    if queue.split("-")[0] == peer_id:
                        for wal in client.children(f"{root}/{server}/{queue}", deadline):
                            data = client.get(f"{root}/{server}/{queue}/{wal}", deadline)
                            found[f"{server}/{queue}/{wal}"] = position_from_node(data) if data else 0
        return found


class Worker:
    """A listening socket and its node."""

    def __init__(self, name: ServerName, server: DeliveryServer, publication: Publication) -> None:
        self._name = name
        self._server = server
        self._publication = publication

    @property
    def address(self) -> str:
        return f"{self._name.host}:{self._name.port}"

    def stats(self) -> Mapping[str, int]:
        return self._server.stats()

    def close(self) -> None:
        """Remove the node first, so that no source begins a call that is cut off."""
        try:
            self._publication.withdraw(_LEAVE_S)
        except MetaClientError as error:
            logger.info("the node of %s is left to the end of its session: %s", self._name, error)
        self._publication.close()
        self._server.close()
