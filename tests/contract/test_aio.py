"""The contract of every backend through ``metaclient.aio``: over TCP to a served fake, and the fake on the loop."""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar

import pytest

from metaclient import Connection, Table
from metaclient.testing import BackendContract
from metaclient_fake import FakeCluster
from tests.contract.known_differences import mark_if_known
from tests.contract.loop_facade import connected


@pytest.fixture(scope="module")
def served() -> Iterator[FakeCluster]:
    """One cluster for all tests of this file: each has tables of its own."""
    with FakeCluster(servers=3, meta_replicas=3) as cluster:
        cluster.serve(rpc_port=0)
        yield cluster


class Served(BackendContract):
    scheme: ClassVar[str]
    port: ClassVar[str]
    cluster: FakeCluster

    @pytest.fixture(autouse=True)
    def _differs(self, request: pytest.FixtureRequest) -> None:
        mark_if_known(request, self.scheme, request.node.name)

    @pytest.fixture
    def backend_connection(self, served: FakeCluster) -> Iterator[Connection]:
        self.cluster = served
        with connected(f"{self.scheme}://127.0.0.1:{getattr(served, self.port)}") as connection:
            yield connection

    def replicate(self, connection: Connection, table: Table) -> bool:
        self.cluster.wait_until_replicated()
        return True


class TestNative(Served):
    scheme, port = "hbase+rpc", "rpc_port"


class TestThrift2(Served):
    scheme, port = "thrift2", "thrift2_port"


class TestThrift1(Served):
    """Thrift 1 has no split keys: tables of several regions are created by another connection."""

    scheme, port = "thrift1", "thrift1_port"

    @pytest.fixture
    def table_connection(self, served: FakeCluster) -> Iterator[Connection]:
        with served.connect() as connection:
            yield connection


class TestFakeOnTheLoop(BackendContract):
    @pytest.fixture
    def backend_connection(self) -> Iterator[Connection]:
        with connected("fake:?servers=3&meta_replicas=3") as connection:
            yield connection
