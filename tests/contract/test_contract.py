"""The contract of every backend, on those that we have: scripted, and the fake in three lives."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from metaclient import Connection, Table
from metaclient.connection import connect_to
from metaclient.runtime import SimRuntime, ThreadRuntime
from metaclient.testing import BackendContract, ScriptedBackend
from metaclient_fake import FakeCluster


class TestScripted(BackendContract):
    """The scripted backend on real threads; its replicas share the primary's rows, so they are never behind."""

    @pytest.fixture
    def backend_connection(self) -> Iterator[Connection]:
        with ThreadRuntime() as runtime:
            backend = ScriptedBackend(runtime, meta_replicas=3)
            with connect_to(backend, runtime=runtime) as connection:
                yield connection

    def replicate(self, connection: Connection, table: Table) -> bool:
        return True


class Fake(BackendContract):
    cluster: FakeCluster

    def replicate(self, connection: Connection, table: Table) -> bool:
        self.cluster.wait_until_replicated(60.0)
        return True


class TestFakeOnThreads(Fake):
    """The fake as ``connect("fake:")`` gives it to people."""

    @pytest.fixture
    def backend_connection(self) -> Iterator[Connection]:
        with FakeCluster(servers=3, meta_replicas=3) as cluster, cluster.connect() as connection:
            self.cluster = cluster
            yield connection


class TestFakeOnVirtualTime(Fake):
    """The fake with latency, slow opens and late replicas, as tests get it."""

    @pytest.fixture
    def backend_connection(self) -> Iterator[Connection]:
        with SimRuntime(seed=4) as runtime, FakeCluster(servers=3, meta_replicas=3, runtime=runtime) as cluster:
            self.cluster = cluster
            with cluster.connect() as connection:
                yield connection


class TestFakeDisturbed(TestFakeOnVirtualTime):
    """The same while the table is flushed, compacted, moved and split between the steps of each test."""

    #: So that a test of many steps does not end with hundreds of regions.
    REGIONS_MAX = 12

    def disturb(self, connection: Connection, table: Table) -> None:
        cluster = self.cluster
        cluster.flush(table.name)
        cluster.compact(table.name)
        for region in cluster.regions(table.name):
            cluster.move(region)
        if len(cluster.regions(table.name)) < self.REGIONS_MAX:
            self.split(connection, table)

    def split(self, connection: Connection, table: Table) -> None:
        """Split the region that holds the middle row, before that row."""
        found = [key for key, _ in table.scan(columns=None)]
        middle = found[len(found) // 2] if found else b"m"
        location = connection.locate(table.name, middle, reload=True)
        if len(middle) < 1000 and middle != location.region.start_key:
            self.cluster.split(location.region.encoded_name, middle)
