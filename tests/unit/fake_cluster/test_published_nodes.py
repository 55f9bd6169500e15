"""The nodes that a cluster publishes in its ZooKeeper: its id, its master, and one ephemeral node per server."""

from __future__ import annotations

import json
from typing import Any

from metaclient.model import ServerName
from metaclient.protobuf import decode
from metaclient.wire.rpc.messages import ZK_MASTER
from metaclient.wire.rpc.names import server_from


def test_cluster_id_is_published_in_the_bytes_that_a_source_of_hbase_reads(world: Any) -> None:
    data = world.cluster.znodes.get("/hbase/hbaseid").data
    assert data == b"PBUF\x0a\x24" + world.cluster.cluster_id.encode()


def test_master_is_published_in_the_bytes_that_a_client_of_hbase_reads(world: Any) -> None:
    data = world.cluster.znodes.get("/hbase/master").data
    assert data.startswith(b"PBUF\x0a")
    message = decode(ZK_MASTER, data[4:])
    assert server_from(message["master"]) == world.cluster.master.name
    assert message["info_port"] == 16010
    assert world.cluster.znodes.owner("/hbase/master") == world.cluster.master.name


def test_each_server_publishes_its_name_as_a_source_parses_it(world: Any) -> None:
    names = world.cluster.znodes.children("/hbase/rs")
    assert {ServerName.parse(name) for name in names} == set(world.cluster.master.live)
    assert world.cluster.znodes.get(f"/hbase/rs/{names[0]}").data == b"PBUF\x08\x9e\x7d"


def _published(world: Any) -> list[str]:
    return [name.partition(",")[0] for name in world.cluster.znodes.children("/hbase/rs")]


def test_killed_server_stays_published_until_its_session_times_out(make: Any) -> None:
    world = make(servers=3, config={"session_timeout_s": 10.0})
    world.cluster.kill("rs2")
    world.runtime.sleep(9)
    assert _published(world) == ["rs1", "rs2", "rs3"]
    world.runtime.sleep(3)
    assert _published(world) == ["rs1", "rs3"]


def test_stopped_server_is_gone_at_once(make: Any) -> None:
    world = make(servers=3, config={"session_timeout_s": 1000.0})
    world.cluster.stop("rs3")
    assert _published(world) == ["rs1", "rs2"]


def test_server_that_lost_only_its_registry_is_unpublished(make: Any) -> None:
    world = make(servers=3, config={"session_timeout_s": 10.0})
    world.cluster.partition("rs1", "registry")
    world.runtime.sleep(30)
    assert _published(world) == ["rs2", "rs3"]


def test_both_incarnations_are_published_until_the_session_of_the_old_one_ends(make: Any) -> None:
    """As in HBase, where the node of a killed server outlives a quick restart."""
    world = make(servers=2, config={"session_timeout_s": 10.0})
    old = world.cluster.server_named("rs1").name
    world.runtime.sleep(1)
    world.cluster.restart("rs1")
    assert _published(world) == ["rs1", "rs1", "rs2"]
    world.runtime.sleep(30)
    assert _published(world) == ["rs1", "rs2"]
    assert not world.cluster.znodes.exists(f"/hbase/rs/{old}")


def test_master_hears_of_a_dead_server_after_its_node_is_gone(make: Any) -> None:
    """A watcher of /hbase/rs that reads the children sees the same servers as the master will."""
    world = make(servers=3, config={"session_timeout_s": 5.0})
    seen: list[tuple[list[str], int]] = []
    world.cluster.znodes.watch("/hbase/rs", lambda _: seen.append((_published(world), len(world.cluster.master.live))))
    world.cluster.kill("rs2")
    world.runtime.sleep(20)
    assert seen == [(["rs1", "rs3"], 3)]
    assert len(world.cluster.master.live) == 2


def test_status_shows_the_nodes_only_when_asked(world: Any) -> None:
    assert "znodes" not in world.cluster.status()
    shown = json.loads(json.dumps(world.cluster.status(znodes=True)))["znodes"]
    server = str(world.cluster.server_named("rs1").name)
    assert shown["/hbase/hbaseid"]["data"] == "PBUF\\x0A$" + world.cluster.cluster_id
    assert shown[f"/hbase/rs/{server}"] == {
        "data": "PBUF\\x08\\x9E}",
        "version": 0,
        "children_version": 0,
        "ephemeral": server,
    }
