"""Several clusters in one process: on one network and one runtime, each with its own parties, ids and end."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from uuid import UUID

import pytest

from metaclient.errors import CallTimeout, ConfigError, ConnectionClosed, RequestRefused, ServerUnreachable
from metaclient.model import FamilyDescriptor, TableDescriptor
from metaclient.runtime import SimRuntime, ThreadRuntime
from metaclient_fake import FakeCluster
from metaclient_fake.network.call import Call
from metaclient_fake.network.network import MessageRule, Network
from metaclient_fake.server.region_server import RegionServer


@pytest.fixture
def east(make: Callable[..., Any]) -> Any:
    return make(servers=2, name="east")


@pytest.fixture
def west(make: Callable[..., Any], east: Any) -> Any:
    return make(servers=2, name="west", network=east.cluster.network)


def call(source: RegionServer, target: RegionServer, *, seconds: float = 5.0) -> str:
    """Call a server from a server of any cluster, as replication does."""
    runtime = source._runtime
    deadline = runtime.now() + seconds
    handlers = target.replication_handlers
    return Call(source._network, runtime, source, target, lambda: "ok", handlers=handlers, deadline=deadline).run()


def server(world: Any, host: str) -> RegionServer:
    found: RegionServer = world.cluster.server_named(host)
    return found


# -- cluster ids -----------------------------------------------------------------------------------------------------


def ids_of_one_run() -> list[str]:
    with SimRuntime(seed=3) as runtime:
        started = [runtime.start(lambda: FakeCluster(servers=1, seed=7, runtime=runtime)) for _ in range(3)]
        clusters = [task.result() for task in started]
        found = [cluster.cluster_id for cluster in clusters]
        for cluster in clusters:
            cluster.close()
    return found


def test_clusters_made_at_one_virtual_instant_with_one_seed_have_different_ids() -> None:
    found = ids_of_one_run()
    assert len(set(found)) == 3
    assert [str(UUID(text)) for text in found] == found


def test_cluster_ids_of_a_virtual_clock_are_the_same_in_every_run() -> None:
    assert ids_of_one_run() == ids_of_one_run()


def test_clusters_made_in_one_real_millisecond_have_different_ids(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each cluster has a runtime of its own, so that no count of the runtime tells them apart."""
    monkeypatch.setattr(ThreadRuntime, "time_ms", lambda self: 1_700_000_000_000)
    with FakeCluster(servers=1) as one, FakeCluster(servers=1) as other:
        assert one.cluster_id != other.cluster_id


# -- names -----------------------------------------------------------------------------------------------------------


def test_parties_of_a_cluster_without_a_name_have_no_prefix(world: Any) -> None:
    cluster = world.cluster
    assert [server.party for server in cluster.servers_by_host.values()] == ["rs1", "rs2", "rs3", "rs4", "rs5"]
    assert (cluster.master.party, cluster.registry.party, cluster.backend().party) == ("master", "registry", "client")
    assert cluster.backend("x").party == "client/x"
    assert cluster.cluster_key == "localhost:2181:/hbase"


def test_parties_of_a_named_cluster_carry_its_name(west: Any) -> None:
    cluster = west.cluster
    assert [server.party for server in cluster.servers_by_host.values()] == ["west/rs1", "west/rs2"]
    assert (cluster.master.party, cluster.registry.party) == ("west/master", "west/registry")
    assert cluster.backend("x").party == "west/client/x"
    assert cluster.servers() == ["rs1", "rs2"]
    assert cluster.server_named("west/rs2") is cluster.server_named("rs2")


def test_party_of_another_cluster_is_named_with_its_cluster(east: Any, west: Any) -> None:
    party = east.cluster.party_named
    assert party("rs1") == party("east/rs1") == "east/rs1"
    assert party("west/rs2,16020,1") == "west/rs2"
    assert party("west/zookeeper") == "west/registry"
    assert (party("west"), party("*"), party("client/x")) == ("west", "*", "east/client/x")
    with pytest.raises(RequestRefused, match="no server 'rs3'"):
        party("west/rs3")
    with pytest.raises(RequestRefused, match="no server 'north/rs1'"):
        party("north/rs1")


def test_second_cluster_without_a_name_is_refused(make: Callable[..., Any], world: Any) -> None:
    with pytest.raises(ConfigError, match=r"a cluster without a name already: give this one another name"):
        make(network=world.cluster.network)


def test_second_cluster_of_the_same_name_is_refused_until_the_first_is_closed(
    make: Callable[..., Any], east: Any, west: Any
) -> None:
    with pytest.raises(ConfigError, match="a cluster named 'west' already"):
        make(name="west", network=east.cluster.network)
    west.cluster.close()
    again = make(servers=1, name="west", network=east.cluster.network)
    assert east.cluster.network.cluster("west:2181:/hbase") is again.cluster.inside


@pytest.mark.parametrize(
    "name",
    ["client", "master", "registry", "zookeeper", "rs1", "rs22", "localhost", "*", "a/b", "a:1", "a,b", " ", "-"],
)
def test_name_that_would_be_taken_for_another_party_is_refused(runtime: SimRuntime, name: str) -> None:
    with pytest.raises(ConfigError, match="cannot be the name of a cluster"):
        FakeCluster(runtime=runtime, name=name)


def test_clusters_of_one_network_cannot_have_two_runtimes(east: Any) -> None:
    with SimRuntime(seed=9) as other, pytest.raises(ConfigError, match="one runtime"):
        FakeCluster(runtime=other, name="west", network=east.cluster.network)


def test_network_of_a_closed_cluster_is_refused(runtime: SimRuntime, east: Any) -> None:
    east.cluster.close()
    with pytest.raises(ConfigError, match="is closed"):
        FakeCluster(name="west", network=east.cluster.network)


def test_cluster_is_found_by_its_key_from_every_cluster(east: Any, west: Any) -> None:
    for network in (east.cluster.network, west.cluster.network):
        assert network.cluster("west:2181:/hbase") is west.cluster.inside
        assert network.cluster("north:2181:/hbase") is None
        assert [cluster.name for cluster in network.clusters()] == ["east", "west"]


# -- faults ----------------------------------------------------------------------------------------------------------


def test_clusters_keep_their_tables_apart(east: Any, west: Any) -> None:
    for world, value in ((east, b"e"), (west, b"w")):
        world.create(b"t")
        world.put(b"t", b"r", value)
    assert (east.value(b"t", b"r"), west.value(b"t", b"r")) == (b"e", b"w")


def test_partition_between_clusters_cuts_no_call_inside_of_one(east: Any, west: Any) -> None:
    east.create(b"t")
    west.cluster.network.partition("east", "west")
    for one, other in ((east, west), (west, east)):
        with pytest.raises(CallTimeout, match="no route"):
            call(server(one, "rs1"), server(other, "rs1"), seconds=1)
        assert call(server(one, "rs1"), server(one, "rs2")) == "ok"
    east.put(b"t", b"r", b"1")
    east.cluster.heal()
    assert call(server(west, "rs1"), server(east, "rs1")) == "ok"


def test_partition_of_two_servers_leaves_the_rest_of_their_clusters_connected(east: Any, west: Any) -> None:
    east.cluster.partition("rs1", "west/rs2")
    with pytest.raises(CallTimeout):
        call(server(west, "rs2"), server(east, "rs1"), seconds=1)
    assert call(server(east, "rs1"), server(west, "rs1")) == "ok"
    assert call(server(east, "rs2"), server(west, "rs2")) == "ok"


def test_rule_for_messages_between_clusters_hits_only_its_direction_and_server(east: Any, west: Any) -> None:
    runtime: SimRuntime = east.runtime
    east.cluster.faults.delay_messages("rs1", "west/rs1", seconds=3)

    def seconds(source: RegionServer, target: RegionServer) -> int:
        before = runtime.now()
        call(source, target)
        return round(runtime.now() - before)

    assert seconds(server(east, "rs1"), server(west, "rs1")) == 3
    assert seconds(server(east, "rs2"), server(west, "rs1")) == 0
    assert seconds(server(east, "rs1"), server(east, "rs2")) == 0
    # The answer of a call from west is a message from east's rs1, too.
    assert seconds(server(west, "rs1"), server(east, "rs1")) == 3


def test_cluster_that_joins_later_has_the_faults_of_the_network(make: Callable[..., Any], east: Any) -> None:
    east.cluster.network.partition("east", "north")
    north = make(servers=1, name="north", network=east.cluster.network)
    with pytest.raises(CallTimeout):
        call(server(north, "rs1"), server(east, "rs1"), seconds=1)
    assert not server(north, "rs1").is_quick


def test_cut_registry_ends_sessions_of_its_own_cluster_only(east: Any, west: Any) -> None:
    east.cluster.partition("registry", "*")
    east.runtime.sleep(60)
    assert len(east.cluster.master.live) == 0
    assert len(west.cluster.master.live) == 2


def test_two_threads_that_add_faults_at_once_lose_none() -> None:
    with SimRuntime(seed=1, preempt=1.0) as runtime:
        network = Network(runtime, 0, 0)

        def add(number: int) -> None:
            network.partition(f"a{number}", "b")
            network.add_rule(MessageRule(f"a{number}", "b"))

        for task in [runtime.start(add, number) for number in range(8)]:
            task.result()
        described = network.describe()
        assert len(described["partitions"]) == len(described["rules"]) == 8  # type: ignore[arg-type]  # lists


# -- the end ---------------------------------------------------------------------------------------------------------


def test_closed_cluster_leaves_the_network_of_the_other_open(east: Any, west: Any) -> None:
    west.create(b"t")
    east.cluster.close()
    west.put(b"t", b"r", b"1")
    assert west.value(b"t", b"r") == b"1"
    west.runtime.sleep(30)
    assert len(west.cluster.master.live) == 2
    assert west.cluster.network.cluster("east:2181:/hbase") is None
    with pytest.raises(ConnectionClosed):
        east.cluster.backend().meta_replicas(east.deadline())


def test_call_to_a_server_of_a_closed_cluster_is_refused(east: Any, west: Any) -> None:
    east.cluster.close()
    with pytest.raises(ServerUnreachable, match="connection refused by east/rs1"):
        call(server(west, "rs1"), server(east, "rs1"))


def test_call_that_waits_for_a_hung_server_ends_when_its_cluster_is_closed(east: Any, west: Any) -> None:
    east.cluster.pause("rs1", keeps_session=True)
    task = west.runtime.start(call, server(west, "rs1"), server(east, "rs1"))
    west.runtime.sleep(1)
    assert not task.is_done
    east.cluster.close()
    with pytest.raises(ServerUnreachable):
        task.result()
    assert west.runtime.now() < 5


def test_call_in_the_queue_of_a_server_ends_when_its_cluster_is_closed(east: Any, west: Any) -> None:
    target = server(east, "rs1")
    taken, target.replication_handlers.free[:] = list(target.replication_handlers.free), []
    assert taken
    task = west.runtime.start(call, server(west, "rs1"), target)
    west.runtime.sleep(1)
    east.cluster.close()
    with pytest.raises(ServerUnreachable):
        task.result()
    assert west.runtime.now() < 5


def test_call_in_progress_at_a_server_of_its_own_closed_cluster_is_told_of_the_close(make: Callable[..., Any]) -> None:
    """Not that the server is unreachable, which a client would retry. Sleeps as short as this are not interrupted."""
    world = make(config={"latency_s_min": 0.0, "latency_s_max": 0.0})
    world.create(b"t")
    place = world.place(b"t")
    world.cluster.slow(place.server.host, 0.04)
    task = world.runtime.start(lambda: world.get(b"t", b"r", place=place))
    world.runtime.sleep(0.02)
    assert not task.is_done
    world.cluster.close()
    with pytest.raises(ConnectionClosed):
        task.result()


def test_healed_network_of_a_closed_cluster_serves_no_direct_calls(make: Callable[..., Any]) -> None:
    """A direct call does not look whether the cluster is closed: it takes place only on a quiet network."""
    cluster = make(config={"latency_s_min": 0.0, "latency_s_max": 0.0}).cluster
    assert cluster.network.is_quiet
    cluster.network.partition("rs1", "rs2")
    cluster.close()
    cluster.heal()
    assert not cluster.network.is_quiet
    assert not any(server.is_quick for server in cluster.servers_by_host.values())


@pytest.mark.parametrize("first", [0, 1])
def test_runtime_lives_until_the_last_cluster_is_closed(first: int) -> None:
    one = FakeCluster(servers=1, name="one")
    other = FakeCluster(servers=1, name="other", network=one.network)
    assert other.runtime is one.runtime
    clusters = [one, other]
    clusters.pop(first).close()
    rest = clusters[0]
    rest.create_table(TableDescriptor(b"t", (FamilyDescriptor(b"f"),)))
    with rest.connect() as connection:
        connection.table("t").put(b"r", {b"f:q": b"1"})
    rest.close()
    with pytest.raises(ConnectionClosed):
        rest.runtime.start(lambda: None)


def test_runtime_of_the_caller_is_not_closed_with_the_last_cluster(runtime: SimRuntime) -> None:
    one = FakeCluster(servers=1, runtime=runtime, name="one")
    FakeCluster(servers=1, network=one.network, name="other").close()
    one.close()
    assert runtime.start(lambda: 1).result() == 1
