"""REPLICATION_SCOPE of a family: on the command line, in ``create_table``, and in ``families()``."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

import metaclient
from metaclient.cli import main
from metaclient_fake import FakeCluster
from tests.command_runner import command_runner


@pytest.fixture
def cluster() -> Iterator[FakeCluster]:
    with FakeCluster(servers=1, meta_replicas=1) as made:
        made.serve(rpc_port=0)
        yield made


def urls(cluster: FakeCluster) -> dict[str, str]:
    front = cluster.front
    assert front is not None
    return {
        "rpc": f"hbase+rpc://127.0.0.1:{front.rpc_port}",
        "thrift2": f"thrift2://127.0.0.1:{cluster.thrift2_port}",
    }


@pytest.mark.parametrize("backend", ["rpc", "thrift2"])
def test_scope_of_one_family_does_not_become_that_of_all(cluster: FakeCluster, backend: str) -> None:
    url = urls(cluster)[backend]
    created = command_runner().invoke(main, ["create", "t", "cf", "cache", "--scope", "cf=1", "--url", url])
    assert created.exit_code == 0, created.stderr
    with metaclient.connect(url) as connection:
        families = connection.table("t").families()
    assert {name: one["replication_scope"] for name, one in families.items()} == {b"cf": 1, b"cache": 0}


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--scope", "3"], "--scope is 0, 1 or 2"),
        (["--scope", "cf=x"], "--scope is 0, 1 or 2"),
        (["--scope", "other=1"], "'other' is none of the families cf"),
    ],
    ids=str,
)
def test_scope_that_means_nothing_is_refused_by_the_command(options: list[str], message: str) -> None:
    result = command_runner().invoke(main, ["create", "t", "cf", "--url", "scripted:", *options])
    assert (result.exit_code, message in result.stderr) == (2, True), result.stderr


@pytest.mark.parametrize("scope", [3, -1, "1", True, None], ids=repr)
def test_scope_that_hbase_does_not_know_is_refused(scope: object) -> None:
    with (
        metaclient.connect("scripted:") as connection,
        pytest.raises(ValueError, match="replication_scope must be 0"),
    ):
        connection.create_table("t", {"cf": {"replication_scope": scope}})
