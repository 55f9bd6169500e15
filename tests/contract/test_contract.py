"""The contract of every backend, on those that we have: scripted, and the fake in three lives."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import ClassVar

import pytest

from adapters.fake import FakeCluster
from metaclient import Connection, Table
from metaclient.connection import connect_to
from metaclient.runtime import SimRuntime, ThreadRuntime
from metaclient.testing import BackendContract, ScriptedBackend


class Pending:
    """Tests that wait for a fix, by name: they must fail, and the day they pass they must leave this list."""

    pending: ClassVar[Mapping[str, str]] = {}

    @pytest.fixture(autouse=True)
    def _xfail_pending(self, request: pytest.FixtureRequest) -> None:
        name = request.node.name
        reason = self.pending.get(name) or self.pending.get(name.partition("[")[0])
        if reason is not None:
            request.applymarker(pytest.mark.xfail(reason=reason, strict=True))


NO_MARKERS = "deletes are done at once: there are no markers"


class TestScripted(Pending, BackendContract):
    """The scripted backend on real threads; its replicas share the primary's rows, so they are never behind."""

    pending: ClassVar[Mapping[str, str]] = {
        "test_cell_older_than_the_time_to_live_is_not_shown": "no time to live",
        "test_checked_put_is_not_hidden_behind_a_value_from_the_future": "a checked put gets the clock's time only",
        "test_delete_hides_a_put_of_the_same_timestamp_whichever_came_first": NO_MARKERS,
        "test_delete_in_a_batch_hides_a_put_of_the_same_column_and_time": NO_MARKERS,
        "test_put_with_an_older_timestamp_stays_hidden_by_an_earlier_delete": NO_MARKERS,
        "test_empty_value_counts_as_absent_for_checks": "checks look at presence, not at emptiness",
        "test_failed_row_of_a_batch_keeps_none_of_its_mutations": "row mutations are applied one by one",
        "test_row_mutation_with_one_bad_part_applies_none": "row mutations are applied one by one",
        "test_family_keeps_as_many_versions_as_it_says": "every version is kept and shown",
        "test_append_is_a_version_of_its_own_whatever_the_clock_says": "appends get the clock's time",
        "test_increment_is_a_version_of_its_own_whatever_the_clock_says": "increments get the clock's time",
        "test_increment_is_not_hidden_behind_a_value_from_the_future": "increments get the clock's time",
        "test_value_that_is_no_counter_is_refused_and_left_alone[]": "an empty value counts from 0",
    }

    @pytest.fixture
    def backend_connection(self) -> Iterator[Connection]:
        with ThreadRuntime() as runtime:
            backend = ScriptedBackend(runtime, meta_replicas=3)
            with connect_to(backend, runtime=runtime) as connection:
                yield connection

    def replicate(self, connection: Connection, table: Table) -> bool:
        return True


class Fake(Pending, BackendContract):
    cluster: FakeCluster

    def replicate(self, connection: Connection, table: Table) -> bool:
        self.cluster.wait_until_replicated()
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
