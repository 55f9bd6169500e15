"""Urls, settings, schedules and the picture of a cluster."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from adapters.fake import (
    ClusterConfig,
    FakeCluster,
    ScheduledFault,
    backend_factory,
    close_named_clusters,
    named_cluster,
)
from metaclient.backend import Backend
from metaclient.errors import ConfigError, ConnectionClosed
from metaclient.runtime import Runtime, SimRuntime, ThreadRuntime


@pytest.fixture(autouse=True)
def _no_clusters_left() -> Iterator[None]:
    yield
    close_named_clusters()


def _backend(url: str, runtime: Runtime, **properties: str) -> Any:
    return backend_factory(
        url, runtime=runtime, properties={name.replace("_", "."): v for name, v in properties.items()}
    )


def test_plain_url_makes_a_cluster_that_ends_with_its_connection(runtime: SimRuntime) -> None:
    backend = _backend("fake:", runtime)
    implemented: Backend = backend
    assert isinstance(implemented, Backend)
    replicas = backend.meta_replicas(runtime.now() + 5)
    assert len(replicas) == 3
    assert len(backend.cluster.servers()) == 5
    backend.close()
    with pytest.raises(ConnectionClosed):
        backend.meta_replicas(runtime.now() + 5)
    assert backend.cluster.network.is_closed
    assert _backend("fake:", runtime).cluster is not backend.cluster


def test_query_sizes_the_cluster_and_sets_settings(runtime: SimRuntime) -> None:
    cluster = _backend("fake:?servers=3&meta_replicas=2&session_timeout_s=1.5&handlers=4", runtime).cluster
    assert len(cluster.servers()) == 3
    assert len(cluster.registry.replicas()) == 2
    assert cluster.config.session_timeout_s == 1.5
    assert cluster.config.handlers == 4


def test_named_cluster_is_shared_and_outlives_its_connections(runtime: SimRuntime) -> None:
    one = _backend("fake:shop?servers=2", runtime)
    cluster = one.cluster
    one.close()
    two = _backend("fake:shop", runtime)
    assert two.cluster is cluster
    assert named_cluster("shop", runtime=runtime) is cluster
    assert _backend("fake:other", runtime).cluster is not cluster
    with pytest.raises(ConfigError, match="there already"):
        _backend("fake:shop?servers=9", runtime)
    cluster.close()
    assert _backend("fake:shop", runtime).cluster is not cluster, "a closed one is made anew"


def test_named_cluster_on_threads_has_a_runtime_of_its_own() -> None:
    with ThreadRuntime() as mine:
        backend = _backend("fake:own?servers=2", mine)
        assert backend.cluster.runtime is not mine


@pytest.mark.parametrize(
    ("url", "hint"),
    [
        ("fake:?server=5", "servers"),
        ("fake:?meta_replica=5", "meta_replicas"),
        ("fake:?servers=many", "whole number"),
        ("fake:?handlers=x", "handlers"),
        ("fake:?servers=0", "at least 1"),
        ("hbase://x", "fake:"),
    ],
)
def test_wrong_urls_teach_the_right_ones(runtime: SimRuntime, url: str, hint: str) -> None:
    with pytest.raises(ConfigError, match=hint):
        _backend(url, runtime)


def test_hbases_own_properties_reach_the_cluster(runtime: SimRuntime) -> None:
    properties = {
        "hbase.meta.replica.count": "2",
        "zookeeper.session.timeout": "3000",
        "hbase.regionserver.meta.storefile.refresh.period": "500",
        "hbase.hregion.memstore.flush.size": "1000",
        "hbase.client.pause": "7",
    }
    cluster = backend_factory("fake:", runtime=runtime, properties=properties).cluster
    assert len(cluster.registry.replicas()) == 2
    assert (cluster.config.session_timeout_s, cluster.config.meta_refresh_s) == (3.0, 0.5)
    assert cluster.config.storage.flush_bytes == 1000


def test_settings_are_checked() -> None:
    for wrong in ({"handler": 3}, {"handlers": 0}, {"refresh_s": -1.0}, {"zookeeper.session.timeout": "soon"}):
        with pytest.raises(ConfigError):
            ClusterConfig.of(wrong)
    with pytest.raises(ConfigError):
        FakeCluster(config=7)  # type: ignore[arg-type]
    assert ClusterConfig.of({"some.other.key": "1"}) == ClusterConfig()
    assert ClusterConfig().settled(is_virtual=False).latency_s_max == 0.0
    assert ClusterConfig(latency_s_max=0.1).settled(is_virtual=True).latency_s_max == 0.1
    assert ClusterConfig().replace(handlers=3).handlers == 3


def test_status_is_json_and_names_what_methods_take(world: Any) -> None:
    world.create(b"t", [b"\xff"], copies=2)
    world.put(b"t", b"r")
    for replica_id in (0, 1, 1):
        world.lookup(b"t", at=replica_id)
    status = json.loads(json.dumps(world.cluster.status()))
    assert set(status) >= {"servers", "regions", "meta", "replication"}
    assert set(status["servers"]) == set(world.cluster.servers())
    assert status["meta"]["reads_by_replica"].keys() == {"0", "1", "2"}
    assert status["meta"]["reads_by_replica"]["1"] == 2
    region = world.cluster.regions("t")[0]
    copies = status["regions"][region]["replicas"]
    assert [copy["replica_id"] for copy in copies] == [0, 1]
    world.cluster.move(copies[1]["region"], status["regions"][region]["server"])
    world.cluster.kill(copies[0]["server"])
    status = world.cluster.status()
    assert status["servers"][copies[0]["server"]]["state"] == "dead"
    json.dumps(status)


def test_scheduled_faults_happen_at_their_times(world: Any) -> None:
    world.create(b"t")
    task = world.cluster.faults.schedule(
        [
            (2.0, "resume", "rs5"),
            (1.0, "pause", "rs5"),
            ScheduledFault(3.0, "kill", ("rs5",)),
            (3.5, "kill", "rs5"),  # refused: it is dead already; the rest goes on
            (4.0, "restart", "rs5"),
        ]
    )
    seen = []
    for _ in range(5):
        world.runtime.sleep(0.9)
        seen.append(world.cluster.status()["servers"]["rs5"]["state"])
    task.result(world.deadline(5))
    assert seen == ["running", "paused", "running", "dead", "running"]


def test_schedules_are_checked_before_they_begin(world: Any) -> None:
    with pytest.raises(ConfigError, match="did you mean 'pause'"):
        world.cluster.faults.schedule([(1.0, "paus", "rs1")])
    with pytest.raises(ConfigError):
        world.cluster.faults.schedule([("pause", 1.0)])


def test_cluster_closes_as_a_context_and_twice(runtime: SimRuntime) -> None:
    with FakeCluster(runtime=runtime, servers=2) as cluster:
        assert "2 of 2 servers" in repr(cluster)
    cluster.close()
    assert cluster.network.is_closed
