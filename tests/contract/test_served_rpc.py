"""The contract of every backend, on HBase's own RPC: our native client against the fake's RPC front, over TCP."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

import metaclient
from metaclient import Connection, Table
from metaclient.testing import BackendContract
from metaclient_fake import FakeCluster


@pytest.fixture(scope="module")
def served() -> Iterator[FakeCluster]:
    """One cluster for all tests of this file: each has tables of its own."""
    with FakeCluster(servers=3, meta_replicas=3) as cluster:
        cluster.serve(thrift1_port=None, thrift2_port=None, rpc_port=0)
        yield cluster


class TestNative(BackendContract):
    cluster: FakeCluster

    @pytest.fixture
    def backend_connection(self, served: FakeCluster) -> Iterator[Connection]:
        self.cluster = served
        with metaclient.connect(f"hbase+rpc://127.0.0.1:{served.rpc_port}") as connection:
            yield connection

    def replicate(self, connection: Connection, table: Table) -> bool:
        self.cluster.wait_until_replicated()
        return True
