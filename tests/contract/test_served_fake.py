"""The contract of every backend, on the fake behind its own Thrift gateways, over TCP in this process."""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar

import pytest

import metaclient
from metaclient import Connection, Table
from metaclient.testing import BackendContract
from metaclient_fake import FakeCluster
from tests.contract.known_differences import mark_if_known


@pytest.fixture(scope="module")
def served() -> Iterator[FakeCluster]:
    """One cluster for all tests of this file: each has tables of its own."""
    with FakeCluster(servers=3, meta_replicas=3) as cluster:
        cluster.serve()
        yield cluster


class Served(BackendContract):
    scheme: ClassVar[str]
    cluster: FakeCluster

    @pytest.fixture(autouse=True)
    def _differs(self, request: pytest.FixtureRequest) -> None:
        mark_if_known(request, self.scheme, request.node.name)

    @pytest.fixture
    def backend_connection(self, served: FakeCluster) -> Iterator[Connection]:
        self.cluster = served
        with metaclient.connect(f"{self.scheme}://127.0.0.1:{getattr(served, f'{self.scheme}_port')}") as connection:
            yield connection

    def replicate(self, connection: Connection, table: Table) -> bool:
        self.cluster.wait_until_replicated()
        return True


class TestThrift2(Served):
    scheme = "thrift2"


class TestThrift1(Served):
    """Thrift 1 has no split keys: what needs several regions is made beside it."""

    scheme = "thrift1"

    @pytest.fixture
    def table_connection(self, served: FakeCluster) -> Iterator[Connection]:
        with served.connect() as connection:
            yield connection
