"""Reaches a peer that is a real cluster, or a fake one in another process: by ZooKeeper and HBase's RPC.

Mirrors ``HBaseReplicationEndpoint`` (HBase 2.6.1): the id of the peer is in ``<parent>/hbaseid``, its servers are the
children of ``<parent>/rs``, which are watched, and entries go to ``AdminService.ReplicateWALEntry``.

DIVERGENCE: partitions, delays and pauses of the fake's network do not act on these calls.
"""

from __future__ import annotations

import logging
import uuid
from collections.abc import Callable, Sequence

from metaclient.backend import ReplicationSinks
from metaclient.errors import ConnectionClosed, MetaClientError, RequestRefused
from metaclient.model import ServerName
from metaclient.runtime import Runtime
from metaclient.wire.rpc.replication import ShippedEntry

__all__ = ["RemoteEndpoint"]

logger = logging.getLogger(__name__)

#: How long a source waits for ZooKeeper; it asks again after its pauses. The end of a source may wait as long.
ASK_S = 3.0


class RemoteEndpoint:
    """A peer over TCP. All methods may be called by several tasks at once."""

    def __init__(
        self, runtime: Runtime, sinks: ReplicationSinks, *, key: str, own_id: uuid.UUID, disconnect: Callable[[], None]
    ) -> None:
        """``own_id`` is the id of the source's cluster; ``disconnect`` ends what ``sinks`` uses."""
        self._runtime = runtime
        self._sinks = sinks
        self._key = key
        self._own_id = own_id
        self._disconnect = disconnect
        self._servers: Sequence[ServerName] = ()
        self._is_closed = False

    def cluster_id(self) -> uuid.UUID | None:
        """Return the peer's id; RequestRefused if the peer is the source's own cluster, published in a ZooKeeper."""
        text = self._sinks.cluster_id(self._runtime.now() + ASK_S)
        found = None if text is None else uuid.UUID(text)
        if found == self._own_id:
            raise RequestRefused(f"the cluster key {self._key} is that of the cluster itself: nothing is shipped to it")
        return found

    def servers(self) -> Sequence[ServerName]:
        """Return the live servers, or while ZooKeeper cannot be reached, those that were live last."""
        if not self._is_closed:
            try:
                self._servers = self._sinks.live_servers(self._runtime.now() + ASK_S)
            except ConnectionClosed:
                return ()
            except MetaClientError as error:
                logger.warning("the servers of the peer %s cannot be listed: %s", self._key, error)
        return self._servers

    def replicate(self, server: ServerName, entries: Sequence[ShippedEntry], deadline: float) -> None:
        self._sinks.replicate(server, entries, deadline)

    def close(self) -> None:
        self._is_closed = True
        self._disconnect()
