"""The experiment of "Replication in HBase": the table LOCATION with one replicated and one local family."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from metaclient.runtime import SimRuntime
from metaclient_fake import FakeCluster

#: Cluster 2 as its own servers see it.
LOCATION = {
    b"No1": {b"State:": b"VA", b"City:": b"Arlington"},
    b"No2": {b"State:": b"NY", b"City:": b"NYC"},
    b"No3": {b"City:": b"Fairfax"},
    b"No4": {b"State:": b"MA"},
}
#: Cluster 1, to which cluster 2 ships.
REPLICATED = {b"No1": {b"State:": b"VA"}, b"No2": {b"State:": b"NY"}, b"No4": {b"State:": b"MA"}}


@pytest.fixture
def runtime() -> Iterator[SimRuntime]:
    with SimRuntime(seed=2) as made:
        yield made


@pytest.fixture
def clusters(runtime: SimRuntime) -> Iterator[tuple[FakeCluster, FakeCluster]]:
    """Bt-1 alone is cluster 1; Bt-2 and Bt-3 are cluster 2."""
    with (
        FakeCluster(servers=2, meta_replicas=1, runtime=runtime, name="cluster-2") as second,
        FakeCluster(servers=1, meta_replicas=1, network=second.network, name="cluster-1") as first,
    ):
        for cluster in (first, second):
            with cluster.connect() as connection:
                connection.create_table("LOCATION", {"State": {"replication_scope": 1}, "City": {}})
        second.replication.add("1", first.cluster_key)
        yield first, second


def put_all(cluster: FakeCluster) -> None:
    with cluster.connect() as connection:
        for row, data in LOCATION.items():
            connection.table("LOCATION").put(row, data)


def rows(cluster: FakeCluster) -> dict[bytes, dict[bytes, object]]:
    with cluster.connect() as connection:
        return {row: dict(data) for row, data in connection.table("LOCATION").scan(include_timestamp=True)}


def values(cluster: FakeCluster) -> dict[bytes, dict[bytes, object]]:
    return {row: {c: v[0] for c, v in data.items()} for row, data in rows(cluster).items()}  # type: ignore[index]


def test_local_city_never_leaves_its_cluster_and_a_row_of_cities_is_not_there(
    clusters: tuple[FakeCluster, FakeCluster], runtime: SimRuntime
) -> None:
    first, second = clusters
    put_all(second)
    runtime.sleep(10.0)
    assert values(second) == LOCATION
    assert values(first) == REPLICATED


def test_states_have_the_timestamps_of_the_cluster_that_wrote_them(
    clusters: tuple[FakeCluster, FakeCluster], runtime: SimRuntime
) -> None:
    first, second = clusters
    put_all(second)
    runtime.sleep(10.0)
    written = rows(second)
    assert rows(first) == {row: {b"State:": written[row][b"State:"]} for row in REPLICATED}


def test_region_server_that_fails_and_restarts_changes_nothing_in_the_result(
    clusters: tuple[FakeCluster, FakeCluster], runtime: SimRuntime
) -> None:
    first, second = clusters
    put_all(second)
    host = second.server_of(second.regions("LOCATION")[0])
    assert host is not None
    second.kill(host)
    runtime.sleep(5.0)
    second.restart(host)
    runtime.sleep(200.0)
    assert values(first) == REPLICATED
