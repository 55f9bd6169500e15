"""Plays the sink faults to a source of the fake, over HBase's RPC on virtual time."""

from __future__ import annotations

import uuid
from typing import Any

import pytest

from metaclient.connection import connect_to
from metaclient.model import ServerName
from metaclient.replication_peers import Peer
from metaclient.runtime import SimRuntime
from metaclient_fake import FakeCluster
from metaclient_fake.cluster.shipping import Shipping
from metaclient_fake.front.rpc import RpcFront
from metaclient_fake.front.rpc.virtual import VirtualPorts
from metaclient_fake.replication.remote_endpoint import RemoteEndpoint
from metaclient_fake.server.region_server import RegionServer
from metaclient_native import NativeBackend
from metaclient_native.connections import Connections
from metaclient_native.replication import ReplicationCalls
from metaclient_native.security import Security
from tests.unit.replication.scripted_sink import NormalizedCall, ScriptedSink, normalized
from tests.unit.replication.sink_faults import REACTIONS, ROWS_SHIPPED, descriptor, play, rows_shipped

#: In seconds; those of the local HBase, so that both records are comparable.
SLEEP_S, TIMEOUT_S = 1.0, 3.0
#: Not that of the sink: a cluster ships nothing to itself.
OWN_ID = uuid.UUID(int=1)
SETTINGS = {
    "peer_replication_retry_pause_s": SLEEP_S,
    "peer_replication_ship_timeout_s": TIMEOUT_S,
    "peer_replication_retry_multiplier_max": 5,
}


class SinkRegistry:
    """Stands for the nodes of the sink in a ZooKeeper."""

    def __init__(self, sink: ScriptedSink) -> None:
        self._sink = sink

    def cluster_id(self, deadline: float) -> str:
        return self._sink.cluster_id

    def live_servers(self, deadline: float) -> list[ServerName]:
        return self._sink.servers


def calls_of_the_fake(monkeypatch: pytest.MonkeyPatch, behaviour: str = "3.0", seed: int = 1) -> list[NormalizedCall]:
    """Return the calls that a source of the fake makes to the scripted sink."""
    config = {**SETTINGS, "peer_replication_behaviour": behaviour}
    with SimRuntime(seed=seed) as runtime:
        ports = VirtualPorts(runtime)
        sink = ScriptedSink(runtime, ports.listen, REACTIONS, sleep_s=SLEEP_S)

        def reach(shipping: Shipping, server: RegionServer, peer: Peer) -> RemoteEndpoint:
            connections = Connections(runtime, Security.of({}, user="fake"), dial=ports.dial)
            nothing: Any = None
            calls = ReplicationCalls(nothing, connections, SinkRegistry(sink))
            return RemoteEndpoint(runtime, calls, key="sink", own_id=OWN_ID, disconnect=connections.close)

        monkeypatch.setattr(Shipping, "_endpoint", reach)  # a cluster on virtual time has no sockets
        with FakeCluster(servers=1, meta_replicas=1, runtime=runtime, config=config) as cluster:
            front = RpcFront(cluster, "127.0.0.1", 0, listen=ports.listen)
            cluster.create_table(descriptor(b"t"))
            url = f"hbase+rpc://127.0.0.1:{front.listener.port}"
            with connect_to(NativeBackend(url, runtime=runtime, dial=ports.dial), runtime=runtime) as connection:
                play(sink, connection, b"t", peer="p", key="sink:2181:/hbase", until=runtime.now() + 600.0)
                runtime.sleep(1.0)  # until the source has counted the last answer
                assert rows_shipped(connection, "p") == ROWS_SHIPPED
            front.close()
        sink.close()
        return normalized(sink.received, sleep_s=SLEEP_S, timeout_s=TIMEOUT_S)
