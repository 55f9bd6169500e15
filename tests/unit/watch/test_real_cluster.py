"""The collector that asks a cluster by calls, against fakes that are served by HBase's RPC and by a Thrift gateway."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest

import metaclient
from metaclient import keys
from metaclient.changes import Subscriptions
from metaclient.cluster_status import ClusterStatus, RegionLoad, ServerLoad
from metaclient.model import ServerName
from metaclient.testing import FakeCluster
from metaclient.watch import Watcher, collector_for
from metaclient.watch.collecting import WatchOptions
from metaclient.watch.figures import Liveness
from metaclient.watch.jmx import parse_beans
from metaclient.watch.reports import Reports, region_figures, replica_figures, server_figures
from metaclient_fake.front.serving import Front

WAIT_S = 60.0


@pytest.fixture(scope="module")
def front() -> Iterator[Front]:
    with FakeCluster(servers=3, meta_replicas=3, config={"session_timeout_s": 600.0}) as cluster:
        served = cluster.serve(rpc_port=0)
        with cluster.connect() as connection:
            connection.create_table("t", {"cf": {"replication_scope": 1}}, splits=[b"m"], region_replication=2)
            connection.table("t").put(b"a", {b"cf:a": b"1"})
            Subscriptions(connection).create("index", ["t"])
        yield served


def watching(url: str | None, **options: Any) -> Watcher:
    connection = metaclient.connect(str(url))
    connection.open()
    return Watcher(connection.engine.runtime, collector_for(connection, WatchOptions(**options)))


def wait_until(watcher: Watcher, holds: Callable[[dict[str, Any]], object], what: str) -> float:
    """Wait until the document has a property; return the seconds that it took."""
    runtime, version = watcher.runtime, 0
    begun = runtime.now()
    while not (watcher.document["ready"] and holds(watcher.document)):
        assert runtime.now() - begun < WAIT_S, f"{what}: {watcher.document}"
        version, _ = watcher.wait_newer(version, runtime.now() + 1.0)
    return runtime.now() - begun


def liveness(view: dict[str, Any]) -> list[str]:
    return sorted(one["liveness"] for one in view["servers"])


def test_native_rpc_shows_servers_replicas_regions_and_peers(front: Front) -> None:
    with watching(front.rpc_url, lookups_per_s=20.0) as watcher:
        wait_until(watcher, lambda view: liveness(view) == ["up"] * 3, "the servers are up")
        wait_until(watcher, lambda view: {one["state"] for one in view["meta"]} == {"healthy"}, "healthy replicas")
        wait_until(watcher, lambda view: {one["lag_s"] for one in view["meta"]} == {0.0}, "compared replicas")
        wait_until(watcher, lambda view: view["peers"], "the subscription")
        wait_until(watcher, lambda view: view["clients"][0]["lookups"] > 3, "lookups")
        wait_until(watcher, lambda view: view["summary"]["meta_reads_per_s"], "reads of hbase:meta")
        view = watcher.document
    assert view["backend"] == "hbase"
    assert view["version"]
    assert sorted(number for one in view["servers"] for number in one["meta"]) == [0, 1, 2]
    assert view["region_replicas_total"] == 2
    assert {one["table"] for one in view["regions"]} == {"t"}
    assert [(one["subscription"], one["target"]) for one in view["peers"]] == [("index", "t")]
    assert view["peers"][0]["workers"] is None  # hbase+rpc:// has no ZooKeeper


def test_hung_and_dead_servers_of_a_network_are_shown_within_two_seconds(front: Front) -> None:
    """ "shows a dead or hung server within 2 s", by calls over TCP; the fastest of three, for busy machines."""
    cluster = front.cluster
    hung, healed = [], []
    with watching(front.rpc_url) as watcher:
        wait_until(watcher, lambda view: liveness(view) == ["up"] * 3, "the servers are up")
        for _ in range(3):
            cluster.pause("rs3", keeps_session=True)
            hung.append(wait_until(watcher, lambda view: "hung" in liveness(view), "a hung server"))
            cluster.resume("rs3")
            healed.append(wait_until(watcher, lambda view: "hung" not in liveness(view), "no hung server"))
    assert min(hung) < 2.0, hung
    assert min(healed) < 2.0, healed


def test_gateway_shows_what_it_can_and_says_why_the_rest_is_unknown(front: Front) -> None:
    with watching(front.thrift2_url, jmx_port=9) as watcher:
        wait_until(watcher, lambda view: {one["state"] for one in view["meta"]} == {"healthy"}, "healthy replicas")
        wait_until(watcher, lambda view: view["region_replicas_total"] == 2, "the replicas of regions")
        wait_until(watcher, lambda view: len(view["servers"]) == 3, "the servers of hbase:meta")
        view = watcher.document
    assert set(liveness(view)) == {"unknown"}
    assert view["summary"]["servers_unknown"] == 3
    assert view["peers"] is None
    assert any("reaches no master" in note for note in view["notes"])


# -- reports, as values ------------------------------------------------------------------------------------------------

OLD, NEW, OTHER = ServerName("a", 1, 100), ServerName("a", 1, 200), ServerName("b", 1, 150)


def load(server: ServerName, *regions: tuple[bytes, int]) -> ServerLoad:
    return ServerLoad(server, 0, 10, 20, tuple(RegionLoad(name, 1, 2, count, 1, 1.0) for name, count in regions))


def test_restarted_server_is_one_row_and_not_dead() -> None:
    status = ClusterStatus("2.6.1", None, (load(NEW),), (OLD, OTHER))
    found = server_figures(Reports(status=status, checks={NEW: (Liveness.UP, "", 1.0)}))
    assert [(one.name, one.liveness) for one in found] == [("a:1", Liveness.UP), ("b:1", Liveness.DEAD)]


def test_regions_of_a_status_are_split_into_hot_ones_replicas_and_meta() -> None:
    primary, secondary = keys.region_name(b"t", b"m", 5), keys.region_name(b"t", b"m", 5, 1)
    regions = ((keys.meta_region_name(1), 7), (primary, 30), (secondary, 40))
    status = ClusterStatus("2.6.1", None, (load(NEW, *regions),), ())
    reports = Reports(status=status, replica_lags_s={"a:1": 2.5})
    assert reports.meta_reads() == {1: 7}
    hot = region_figures(reports)
    assert hot is not None
    assert [(one.start_key, one.requests) for one in hot] == [("m (replica 1)", 41), ("m", 31)]
    replicas = replica_figures(reports)
    assert replicas is not None
    assert [(one.replica_id, one.server, one.lag_s) for one in replicas] == [(1, "a:1", 2.5)]


def test_nothing_is_known_without_a_source() -> None:
    reports = Reports()
    assert (server_figures(reports), region_figures(reports), replica_figures(reports)) == ((), None, None)


def test_beans_of_a_region_server_give_its_counters() -> None:
    """As HBase 2.6.1 sends them, shortened."""
    prefix = "Namespace_default_table_t_a_region_0123456789abcdef0123456789abcdef_metric_"
    found = parse_beans(
        [
            {"name": "Hadoop:service=HBase,name=RegionServer,sub=Server", "regionCount": 4, "readRequestCount": 9},
            {"name": "Hadoop:service=HBase,name=RegionServer,sub=IPC", "numCallsInGeneralQueue": 2},
            {
                "name": "Hadoop:service=HBase,name=RegionServer,sub=Regions",
                prefix + "readRequestCount": 5,
                prefix + "writeRequestCount": 6,
                "Namespace_hbase_table_meta_region_1588230740_metric_readRequestCount": 8,
            },
        ]
    )
    assert (found.regions, found.reads, found.writes, found.queued_calls) == (4, 9, None, 2)
    assert dict(found.meta_reads) == {0: 8}
    assert [(one.table, one.reads, one.writes) for one in found.by_region] == [("t_a", 5, 6)]
