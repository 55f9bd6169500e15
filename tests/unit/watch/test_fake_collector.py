"""The live view of a fake: its figures from the inside, its buttons and its load; on virtual time."""

from collections.abc import Iterator

import pytest

from metaclient.changes import Subscriptions
from metaclient.errors import RequestRefused
from metaclient.runtime import SimRuntime
from metaclient.testing import FakeCluster
from metaclient.watch import Watcher, collector_for
from metaclient.watch.collecting import WatchOptions
from metaclient.watch.figures import ClusterFigures, WatchEvent
from metaclient_fake.watching import LOOKUP_WORKERS, FakeCollector


@pytest.fixture
def runtime() -> Iterator[SimRuntime]:
    with SimRuntime(seed=3) as made:
        yield made


@pytest.fixture
def cluster(runtime: SimRuntime) -> Iterator[FakeCluster]:
    with FakeCluster(servers=4, meta_replicas=3, runtime=runtime, config={"session_timeout_s": 600.0}) as made:
        yield made


def run(watcher: Watcher, seconds: float) -> dict[str, object]:
    """Collect twice per second for so long; return the last document."""
    for _ in range(round(seconds * 2)):
        watcher.runtime.sleep(0.5)
        watcher.collect()
    return watcher.document


def client(watcher: Watcher, name: str) -> dict[str, float]:
    return next(one for one in watcher.document["clients"] if one["name"] == name)


def test_hung_replica_stops_the_java_client_and_not_ours(runtime: SimRuntime, cluster: FakeCluster) -> None:
    watcher = Watcher(runtime, FakeCollector(cluster, "fake:", starts_load=True))
    run(watcher, 10.0)
    before = {name: client(watcher, name)["lookups_per_s"] for name in ("metaclient", "java")}
    assert min(before.values()) > 15
    watcher.run_action("pause", cluster.meta_server(1))
    run(watcher, 15.0)
    assert client(watcher, "metaclient")["lookups_per_s"] > 15
    assert client(watcher, "java")["lookups_per_s"] == 0
    assert client(watcher, "java")["waiting"] == LOOKUP_WORKERS
    assert client(watcher, "java")["longest_wait_s"] > 5
    hung = next(one for one in watcher.document["meta"] if one["replica_id"] == 1)
    assert hung["state"] in ("ejected", "silent")
    assert hung["ejections"] > 0
    watcher.run_action("heal", None)
    run(watcher, 20.0)
    assert client(watcher, "java")["lookups_per_s"] > 15
    texts = [event["text"] for event in watcher.document["events"]]
    assert f"{cluster.meta_server(1)} was paused" in texts
    assert "all faults were ended" in texts
    assert any("meta replica ejected" in text for text in texts)
    watcher.close()


def test_load_shows_hedges_hot_regions_and_region_replicas(runtime: SimRuntime, cluster: FakeCluster) -> None:
    watcher = Watcher(runtime, FakeCollector(cluster, "fake:", starts_load=True))
    run(watcher, 10.0)
    view = watcher.document
    assert view["regions"][0]["table"] == "watch_demo"
    assert view["regions"][0]["requests_per_s"] > 2 * view["regions"][2]["requests_per_s"]
    assert view["region_replicas_total"] == 10
    assert all(one["lag_s"] is not None for one in view["region_replicas"])
    watcher.run_action("pause", cluster.server_of(cluster.regions("watch_demo")[0]))
    run(watcher, 20.0)
    assert client(watcher, "metaclient")["hedges"] > 0
    watcher.run_action("stop load", None)
    run(watcher, 1.0)
    assert watcher.document["clients"] == []
    assert watcher.document["is_load_running"] is False
    watcher.run_action("start load", None)  # its table exists already
    watcher.run_action("start load", None)
    assert len(run(watcher, 1.0)["clients"]) == 2  # type: ignore[arg-type]
    watcher.close()


@pytest.mark.parametrize(
    ("action", "liveness"), [("kill", "dead"), ("pause", "hung"), ("slow", "slow"), ("partition", "cut off")]
)
def test_each_fault_is_seen_at_the_next_collection(
    runtime: SimRuntime, cluster: FakeCluster, action: str, liveness: str
) -> None:
    watcher = Watcher(runtime, FakeCollector(cluster, "fake:"))
    run(watcher, 1.0)
    watcher.run_action(action, "rs4")
    run(watcher, 0.5)
    assert {one["name"]: one["liveness"] for one in watcher.document["servers"]}["rs4"] == liveness
    assert watcher.document["faults"]
    watcher.run_action("heal", "rs4")
    run(watcher, 5.0)
    assert {one["liveness"] for one in watcher.document["servers"]} == {"up"}
    assert watcher.document["faults"] == []


def test_wrong_actions_are_refused_with_a_sentence(runtime: SimRuntime, cluster: FakeCluster) -> None:
    watcher = Watcher(runtime, FakeCollector(cluster, "fake:"))
    for action, server, words in [
        ("explode", "rs1", "no action 'explode'"),
        ("kill", None, "no action 'kill'"),
        ("kill", "rs9", "no server 'rs9'"),
        ("start load", "rs1", "no action 'start load'"),
    ]:
        with pytest.raises(ValueError, match=words):
            watcher.run_action(action, server)


def test_subscription_without_workers_and_peer_are_listed(runtime: SimRuntime, cluster: FakeCluster) -> None:
    with cluster.connect() as connection:
        connection.create_table("t", {"cf": {"replication_scope": 1}})
        Subscriptions(connection).create("search-index", ["t"])
        cluster.replication.add("west", "zk9:2181:/x")
        watcher = Watcher(runtime, collector_for(connection, WatchOptions(lookups_per_s=0.0)))
        run(watcher, 1.0)
    found = {one["peer_id"]: one for one in watcher.document["peers"]}
    assert found["search_index"]["subscription"] == "search-index"
    assert found["search_index"]["workers"] == ()
    assert found["search_index"]["target"] == "t"
    assert (found["west"]["subscription"], found["west"]["target"]) == (None, "zk9:2181:/x")
    assert watcher.document["is_load_running"] is False


class Broken:
    """A collector with a defect, and without buttons, as those of real clusters."""

    controls = None
    fails = True

    def __init__(self, runtime: SimRuntime) -> None:
        self._runtime = runtime

    def collect(self) -> ClusterFigures:
        if self.fails:
            raise RuntimeError("a defect")
        return ClusterFigures(at_s=self._runtime.now(), time_ms=self._runtime.time_ms())

    def take_events(self) -> tuple[WatchEvent, ...]:
        return ()

    def close(self) -> None:
        pass


def test_defect_of_a_collector_is_shown_and_does_not_end_the_watcher(runtime: SimRuntime) -> None:
    collector = Broken(runtime)
    with Watcher(runtime, collector) as watcher:
        runtime.sleep(2.0)
        assert watcher.document == {"ready": False}
        collector.fails = False
        runtime.sleep(2.0)
        assert any("a defect" in event["text"] for event in watcher.document["events"])
        with pytest.raises(RequestRefused, match="only a fake"):
            watcher.run_action("kill", "rs1")
