"""What a gateway asks of the cluster goes over the network, and meets its faults."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from metaclient.errors import MetaClientError
from metaclient.runtime import SimRuntime
from metaclient_fake import FakeCluster
from metaclient_fake.front.gateway import GatewayClient

QUICK = {"hbase.client.retries.number": "1", "hbase.client.operation.timeout": "2000", "hbase.rpc.timeout": "1000"}


@pytest.mark.parametrize(
    "ask",
    [
        GatewayClient.namespaces,
        GatewayClient.table_names,
        lambda client: client.describe(b"t"),
        lambda client: client.is_enabled(b"t"),
        lambda client: client.create_namespace("n"),
    ],
    ids=["namespaces", "table_names", "describe", "is_enabled", "create_namespace"],
)
def test_question_to_a_master_that_cannot_be_reached_is_not_answered(ask: Callable[[GatewayClient], object]) -> None:
    """``namespaces`` looked into the master's memory, past every partition."""

    def body() -> None:
        cluster = FakeCluster(servers=2, meta_replicas=1, runtime=runtime)
        client = GatewayClient(cluster, "client/gateway", QUICK)
        assert client.namespaces() == ["default", "hbase"]
        cluster.partition("*", "master")
        with pytest.raises(MetaClientError):
            ask(client)
        client.close()
        cluster.close()

    with SimRuntime(1) as runtime:
        runtime.run(body)
