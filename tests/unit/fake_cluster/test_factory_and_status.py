"""Urls, settings, schedules and the picture of a cluster."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from metaclient.backend import Backend
from metaclient.connection import Connection, connect
from metaclient.errors import ConfigError, ConfigWarning, ConnectionClosed
from metaclient.runtime import Runtime, SimRuntime, ThreadRuntime
from metaclient_fake import (
    ClusterConfig,
    FakeCluster,
    ScheduledFault,
    backend_factory,
    close_named_clusters,
    named_cluster,
)
from metaclient_fake.front.gateway import GatewayClient


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
    with pytest.raises(ConfigError, match="exists already"):
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


# -- settings that would have no effect ------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "near"),
    [
        ("hbase.meta.replica.cuont", "hbase.meta.replica.count"),
        ("hbase.regionserver.handlers.count", "hbase.regionserver.handler.count"),
        ("hbase.master.loadbalancer.clas", "hbase.master.loadbalancer.class"),
        ("zookeeper.sesion.timeout", "zookeeper.session.timeout"),
        ("hbase.region.replica.replication.catlog.enabled", "hbase.region.replica.replication.catalog.enabled"),
    ],
)
def test_misspelt_server_property_is_refused(name: str, near: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(f"{name} (mapping): no such property; did you mean {near}?")):
        FakeCluster(config={name: "1"})


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("hbase.regionserver.thread.compaction.small", "has no effect on a fake cluster"),
        ("hbase.regionserver.global.memstore.size", "write memstore_global_bytes"),
        ("hbase.client.retries.number", "give it to connect(config=...)"),
        ("metaclient.retries", "give it to connect(config=...)"),
        ("hbase.only.ours.to.know", "has no effect on a fake cluster"),
    ],
)
def test_server_property_without_effect_is_told_once(runtime: SimRuntime, name: str, told: str) -> None:
    with pytest.warns(ConfigWarning, match=re.escape(told)) as caught:
        FakeCluster(config={name: "1"}, runtime=runtime).close()
    assert [Path(each.filename).name for each in caught] == [Path(__file__).name]


@pytest.mark.filterwarnings("error")
def test_property_of_another_program_is_nobodys_business(runtime: SimRuntime) -> None:
    FakeCluster(config={"dfs.replication": "3", "com.example.x": "1"}, runtime=runtime).close()


def test_server_property_reaches_a_fake_and_is_told_of_by_others(runtime: SimRuntime) -> None:
    count = {"hbase.meta.replica.count": "2"}
    with connect("fake:", config=count, runtime=runtime) as connection:
        assert len(connection.meta_replicas()) == 2
    for url in ("scripted:", "thrift2://gateway", "hbase+rpc://master"):
        with pytest.warns(ConfigWarning, match="hbase.meta.replica.count .* has no effect"):
            Connection(url=url, config=count, runtime=runtime, autoconnect=False)
    with pytest.warns(ConfigWarning, match="hbase.regionserver.msginterval .* has no effect: a fake cluster"):
        connect("fake:", config={"hbase.regionserver.msginterval": "5"}, runtime=runtime).close()


@pytest.mark.filterwarnings("error")
def test_site_file_of_servers_is_read_without_a_word(runtime: SimRuntime, tmp_path: Path) -> None:
    names = ("hbase.rootdir", "hbase.meta.replica.count", "hbase.regionserver.msginterval", "hbase.zookeeper.quorum")
    lines = "".join(f"<property><name>{name}</name><value>2</value></property>" for name in names)
    (tmp_path / "hbase-site.xml").write_text(f"<configuration>{lines}</configuration>")
    with connect("fake:", config=tmp_path, runtime=runtime) as connection:
        assert len(connection.meta_replicas()) == 2
    for url in ("scripted:", "thrift2://gateway", "hbase+rpc://master"):
        Connection(url=url, config=tmp_path, runtime=runtime, autoconnect=False)


def test_balancer_that_cannot_be_loaded_is_refused_and_in_a_file_replaced(runtime: SimRuntime, tmp_path: Path) -> None:
    key, value = "hbase.master.loadbalancer.class", "org.apache.hadoop.hbase.rsgroup.RSGroupBasedLoadBalancer"
    with pytest.raises(ConfigError, match="Java classes cannot be loaded; allowed: StochasticLoadBalancer, Simple"):
        FakeCluster(config={key: value})
    with pytest.raises(ConfigError, match="Java classes cannot be loaded"):
        _backend("fake:?balancer=Mine", runtime)
    assert _backend("fake:?balancer=SimpleLoadBalancer", runtime).cluster.config.balancer == "SimpleLoadBalancer"
    line = f"<property><name>{key}</name><value>{value}</value></property>"
    (tmp_path / "hbase-site.xml").write_text(f"<configuration>{line}</configuration>")
    with pytest.warns(ConfigWarning, match="StochasticLoadBalancer is used"):
        connect("fake:", config=tmp_path, runtime=runtime).close()


def test_contradictory_settings_are_refused(runtime: SimRuntime) -> None:
    general, catalog = (f"hbase.region.replica.replication.{word}enabled" for word in ("", "catalog."))
    design = "hbase.region.meta.replica.replication.enabled"
    for wrong in (
        {catalog: "true", design: "false"},
        {"latency_s_min": 0.2, "latency_s_max": 0.1},
        {"handlers": 2.5},
        {"handlers": True},
        {"wait_for_primary_flush": 1},
        {"session_timeout_s": float("nan")},
        {"hbase.hregion.memstore.flush.size": "-1"},
        {"hbase.meta.replica.count": "0"},
        {5: 5},
    ):
        with pytest.raises(ConfigError):
            ClusterConfig.of(wrong)  # type: ignore[arg-type]  # that is the point
    with pytest.warns(ConfigWarning, match=f"{catalog}=false has no effect"):
        FakeCluster(config={general: "true", catalog: "false"}, runtime=runtime).close()
    with pytest.warns(ConfigWarning, match="meta.storefile.refresh.period has no effect"):
        FakeCluster(config={"refresh_s": 2, "meta_refresh_s": 1}, runtime=runtime).close()
    for url in ("fake:?servers=2&servers=3", "fake:?replication_retries=1&replication_retries=1"):
        with pytest.raises(ConfigError, match="twice"):
            _backend(url, runtime)


def test_one_latency_alone_takes_the_other_along() -> None:
    assert ClusterConfig(latency_s_min=0.1).settled(is_virtual=True).latency_s_max == 0.1
    assert ClusterConfig(latency_s_max=0.00001).settled(is_virtual=True).latency_s_min == 0.00001


def test_names_of_ours_go_before_those_of_hbase_and_arguments_before_both(runtime: SimRuntime) -> None:
    given = {"hbase.meta.replica.count": "2", "meta_replicas": 4}
    for config in (given, dict(reversed(given.items()))):
        assert ClusterConfig.of(config).meta_replicas == 4
    assert FakeCluster(meta_replicas=1, config=given, runtime=runtime).config.meta_replicas == 1
    url = backend_factory("fake:?meta_replicas=5", runtime=runtime, properties={"hbase.meta.replica.count": "2"})
    assert url.cluster.config.meta_replicas == 5
    assert ClusterConfig().replace(replication_lock_step=True).replication.lock_step


def test_named_cluster_takes_no_other_server_properties_later(runtime: SimRuntime) -> None:
    two, pause = {"hbase.meta.replica.count": "2"}, {"hbase.client.pause": "7"}
    cluster = named_cluster("sized", "meta_replicas=4", runtime=runtime, properties=two)
    for properties in ({}, two, {**two, **pause}, pause):
        assert named_cluster("sized", runtime=runtime, properties=properties) is cluster
    with pytest.raises(ConfigError, match=r"exists already, created with 'hbase.meta.replica.count=2'"):
        named_cluster("sized", runtime=runtime, properties={"hbase.meta.replica.count": "3"})


@pytest.mark.parametrize(("given", "retries"), [({}, 4), ({"hbase.client.retries.number": "15"}, 15)])
def test_gateway_honours_a_property_that_is_our_default(
    runtime: SimRuntime, given: dict[str, str], retries: int
) -> None:
    cluster = FakeCluster(runtime=runtime)
    client = GatewayClient(cluster, "gateway", given)
    assert client.config.retries == retries
    with pytest.warns(ConfigWarning, match="the client inside of a gateway does not read it"):
        GatewayClient(cluster, "another", {"hbase.meta.replica.count": "2"})
