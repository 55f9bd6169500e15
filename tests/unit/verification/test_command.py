"""``metaclient replication verify``: two clusters over TCP, by url, by cluster key and by peer id."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest
from click.testing import Result

from metaclient.cli import main
from metaclient.model import FamilyDescriptor, TableDescriptor
from metaclient.runtime import ThreadRuntime
from metaclient_fake import FakeCluster
from tests.command_runner import command_runner
from tests.unit.replication.zookeeper_server import ZooKeeperServer

pytest.importorskip("kazoo")

TABLE = TableDescriptor(b"t", (FamilyDescriptor(b"cf", replication_scope=1), FamilyDescriptor(b"local")))


@dataclass
class Rig:
    """A source and a target with equal rows in ``cf``, and rows of ``local`` in the source alone; all over RPC."""

    source: FakeCluster
    target: FakeCluster
    target_key: str

    @property
    def source_url(self) -> str:
        return _url(self.source)

    @property
    def target_url(self) -> str:
        return _url(self.target)

    def verify(self, target: str, *options: str) -> Result:
        return command_runner().invoke(main, ["replication", "verify", self.source_url, target, "t", *options])

    def document(self, target: str, *options: str) -> dict[str, Any]:
        result = self.verify(target, "--json", *options)
        found: dict[str, Any] = json.loads(result.stdout)
        assert result.exit_code == (0 if found.get("equal") else 1), result.stderr
        return found


def _url(cluster: FakeCluster) -> str:
    assert cluster.front is not None
    return f"hbase+rpc://127.0.0.1:{cluster.front.rpc_port}"


@pytest.fixture
def rig() -> Iterator[Rig]:
    with (
        ThreadRuntime(name="test") as runtime,
        FakeCluster(servers=1, meta_replicas=1, name="east") as source,
        FakeCluster(servers=1, meta_replicas=1, name="west") as target,
    ):
        zookeeper = ZooKeeperServer(runtime)
        for cluster in (source, target):
            cluster.create_table(TABLE)
            cluster.serve(thrift1_port=None, thrift2_port=None, rpc_port=0)
            with cluster.connect() as connection:
                for number in range(5):
                    connection.table("t").put(b"r%d" % number, {b"cf:a": b"1"}, timestamp=7)
        with source.connect() as connection:
            connection.table("t").put(b"r1", {b"local:a": b"1"}, timestamp=7)
        key = zookeeper.key("/west")
        assert target.front is not None
        target.front.publish(key)
        yield Rig(source, target, key)
        zookeeper.close()


def test_exit_code_is_0_only_when_all_rows_are_equal(rig: Rig) -> None:
    equal = rig.verify(rig.target_url, "--families", "cf")
    assert (equal.exit_code, "GOODROWS" in equal.stdout) == (0, True)
    wrong = rig.verify(rig.target_url)
    assert wrong.exit_code == 1
    assert "CONTENT_DIFFERENT" in wrong.stdout
    assert "local:a at 7 is only in the source" in wrong.stdout
    assert "note: replication does not ship family local (scope 0)" in wrong.stdout


def test_a_peer_id_names_the_cluster_and_leaves_out_what_is_not_shipped(rig: Rig) -> None:
    rig.source.replication.add("west", rig.target_key)
    rig.source.replication.disable("west")
    found = rig.document("west")
    assert found["counters"]["GOODROWS"] == 5
    assert found["families"] == ["cf"]
    assert found["notes"] == ["not compared: family local has replication scope 0"]
    by_url = rig.document(rig.target_url, "--peer", "west")
    assert by_url["families"] == ["cf"]


def test_a_cluster_key_is_a_target_too(rig: Rig) -> None:
    assert rig.document(rig.target_key, "--families", "cf")["equal"]


def test_rows_that_differ_are_shown_and_limited(rig: Rig) -> None:
    with rig.target.connect() as connection:
        for number in range(3):
            connection.table("t").put(b"x%d" % number, {b"cf:a": b"1"})
    found = rig.document(rig.target_url, "--families", "cf", "--show", "2")
    assert found["counters"]["ONLY_IN_PEER_TABLE_ROWS"] == 3
    assert [one["row"] for one in found["differences"]] == ["x0", "x1"]
    assert rig.document(rig.target_url, "--families", "cf", "--row-prefixes", "r1,r2")["counters"]["GOODROWS"] == 2
    assert rig.document(rig.target_url, "--families", "cf", "--stop", "x")["equal"]


def test_options_of_hbase_reach_the_comparison(rig: Rig) -> None:
    with rig.target.connect() as connection:
        connection.table("t").delete(b"r1", [b"cf:a"], timestamp=3)
    options = ("--families", "cf", "--recompareSleep", "1", "--recompareTries", "2", "--recompareBackoffExponent", "1")
    assert rig.document(rig.target_url, *options)["counters"]["RECOMPARES"] == 0
    found = rig.document(rig.target_url, *options, "--raw")
    assert found["counters"] | {"RECOMPARES": 2, "FAILED_RECOMPARE": 2, "BADROWS": 1} == found["counters"]
    assert found["differences"][0]["detail"] == "cf:a at 3 (DELETE_COLUMN) is only in the peer"


@pytest.mark.parametrize(
    ("options", "code", "message"),
    [
        (("--recompare", "1", "--recompareSleep", "5"), 2, "give one"),
        (("--url", "fake:"), 2, "No such option"),
        (("--families", "nosuch"), 1, "has no family 'nosuch'"),
        (("--peer", "nosuch"), 1, "nosuch"),
        (("--peer-table", "nosuch"), 1, "nosuch"),
    ],
    ids=str,
)
def test_wrong_use_is_an_error(rig: Rig, options: tuple[str, ...], code: int, message: str) -> None:
    result = rig.verify(rig.target_url, *options)
    assert (result.exit_code, message in result.stderr) == (code, True), result.stderr


def test_two_peer_ids_contradict(rig: Rig) -> None:
    result = rig.verify("west", "--peer", "other")
    assert (result.exit_code, "with --peer, TARGET is a url" in result.stderr) == (2, True)
