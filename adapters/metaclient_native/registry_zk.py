"""The registry in ZooKeeper: znodes with the addresses of the master and of the servers of hbase:meta's copies.

``<parent>/meta-region-server`` is the primary's znode, ``meta-region-server-N`` that of replica N; a copy whose state
is not OPEN exists but has no server.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from metaclient import metarow
from metaclient.errors import MetaClientError, ServerNotRunning
from metaclient.model import MetaReplica, ServerName
from metaclient.protobuf import ProtocolError, decode
from metaclient.runtime import Runtime
from metaclient.wire.dials import choose_dial
from metaclient.wire.rpc.messages import ZK_MASTER
from metaclient.wire.rpc.names import server_from
from metaclient.wire.zookeeper import ZooKeeperClient
from metaclient.wire.zookeeper_reads import ZooKeeperReads
from metaclient_native.url import Endpoint

__all__ = ["ZooKeeperRegistry"]

#: A list of servers is read again after this time, too: a watch is lost when its session is replaced.
SERVERS_S_MAX = 10.0
_META = re.compile(r"meta-region-server(?:-(\d{1,5}))?")
_SERVER = re.compile(r"[^,]+,\d{1,5},\d{1,19}")
_MAGIC = b"PBUF"


class _ServerList:
    """The servers that ZooKeeper listed. ``is_old`` is set by the watch, which may fire before the list is stored."""

    def __init__(self, until: float) -> None:
        self.until = until
        self.is_old = False
        self.servers: list[ServerName] = []

    def expire(self) -> None:
        self.is_old = True


class ZooKeeperRegistry:
    """Reads HBase's nodes."""

    def __init__(self, endpoints: Sequence[Endpoint], parent: str, runtime: Runtime) -> None:
        self._hosts = ",".join(map(str, endpoints))
        self._parent = parent
        self._runtime = runtime
        self._listed: _ServerList | None = None
        self._client: ZooKeeperClient | ZooKeeperReads
        if runtime.callers_help:
            self._client = ZooKeeperClient(
                self._hosts, runtime, needed_by="hbase:// asks ZooKeeper (hbase+rpc://MASTER:16000 does not), which"
            )
        else:  # kazoo blocks the thread of the caller
            addresses = [(endpoint.host, endpoint.port) for endpoint in endpoints]
            self._client = ZooKeeperReads(addresses, runtime, choose_dial(runtime))

    def __repr__(self) -> str:
        return f"<ZooKeeperRegistry {self._hosts}{self._parent}>"

    def explain(self, error: MetaClientError) -> MetaClientError:
        """Return the error as it is: the errors of ZooKeeper name its servers."""
        return error

    def close(self) -> None:
        self._client.close()

    def meta_replicas(self, deadline: float) -> list[MetaReplica]:
        names = self._client.children(self._parent, deadline)
        found: dict[int, MetaReplica] = {}
        for name in names:
            match = _META.fullmatch(name)
            if match is not None:
                replica_id = int(match[1] or 0)
                found[replica_id] = MetaReplica(replica_id, self._meta_server(f"{self._parent}/{name}", deadline))
        if not found:
            raise ServerNotRunning(
                f"{self!r} has no location of hbase:meta: HBase is starting, or this is not its parent znode"
            )
        return [found[replica_id] for replica_id in sorted(found)]

    def _meta_server(self, path: str, deadline: float) -> ServerName | None:
        try:
            value = metarow.decode_meta_region_server(self._client.get(path, deadline))
        except (ServerNotRunning, ValueError):
            return None  # deleted meanwhile, or incomplete: the copy exists but has no server
        return value.server if value.state == "OPEN" else None

    def active_master(self, deadline: float) -> ServerName:
        data = self._client.get(f"{self._parent}/master", deadline)
        at = data.find(_MAGIC)
        if at < 0:
            raise ProtocolError(f"{self._parent}/master does not hold a server's name")
        return server_from(decode(ZK_MASTER, data, at + len(_MAGIC))["master"])

    def cluster_id(self, deadline: float) -> str | None:
        found = re.search(
            rb"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}", self._client.get(f"{self._parent}/hbaseid", deadline)
        )
        return found[0].decode() if found else None

    def live_servers(self, deadline: float) -> list[ServerName]:
        """Return the servers that have a node below ``<parent>/rs``, from memory until ZooKeeper reports a change."""
        listed, now = self._listed, self._runtime.now()
        if listed is None or listed.is_old or now >= listed.until:
            listed = _ServerList(now + SERVERS_S_MAX)
            names = self._client.children(f"{self._parent}/rs", deadline, on_change=listed.expire)
            listed.servers = sorted(ServerName.parse(name) for name in names if _SERVER.fullmatch(name))
            self._listed = listed
        return listed.servers
