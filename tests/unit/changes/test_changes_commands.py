"""``metaclient changes``: what each command prints, and the warning about a subscription that fills the disk."""

import json
import signal
from collections.abc import Iterator
from pathlib import Path

import click
import pytest
from click.testing import CliRunner, Result

from metaclient import Connection
from metaclient.changes.doctor import examine, repair
from metaclient.cli import main
from metaclient.testing import FakeCluster

NAME = "changes-commands"
URL = f"fake:{NAME}"


def run(*arguments: str) -> Result:
    return CliRunner().invoke(main, ["changes", *arguments, "--url", URL])


@pytest.fixture
def connection() -> Iterator[Connection]:
    import metaclient
    from metaclient_fake.factory import close_named_clusters

    with metaclient.connect(URL) as made:
        made.create_table("t", {"d": {"replication_scope": 1}})
        yield made
    close_named_clusters()


def test_forgotten_subscription_is_warned_of_with_its_queue(connection: Connection) -> None:
    assert run("create", "my-index", "t").exit_code == 0
    listed = run("list")
    assert "warning: my-index has no workers, and the cluster keeps" in listed.output
    document = json.loads(run("list", "--json").stdout)
    (found,) = document["subscriptions"]
    assert (found["name"], found["tables"], found["is_forgotten"]) == ("my-index", ["t"], True)
    assert found["logs_kept"] >= 1
    assert "no workers" in run("doctor").output
    assert "workers: none" in run("status", "my-index").output
    assert run("remove", "my-index", "--yes").exit_code == 0
    assert "0 subscriptions" in run("list").output


def test_tail_prints_one_document_per_change(connection: Connection) -> None:
    assert run("create", "look", "t").exit_code == 0
    connection.table("t").put(b"a", {b"d:q": b"1"})
    connection.table("t").delete(b"b")
    output = run("tail", "t", "--name", "look", "--count", "2", "--json").stdout
    one, two = [json.loads(line) for line in output.splitlines()]
    assert (one["row"], one["cells"][0]["value"]) == ("a", "1")
    assert two["cells"][0]["type"] == "DELETE_FAMILY"


@pytest.mark.parametrize("ending", [signal.SIGINT, signal.SIGTERM])
def test_tail_says_that_it_waits_and_ends_with_a_signal(
    connection: Connection, ending: signal.Signals, monkeypatch: pytest.MonkeyPatch
) -> None:
    echo = click.echo

    def echo_and_end(text: str, *, err: bool = False) -> None:
        echo(text, err=err)
        if text.startswith("waiting"):
            signal.raise_signal(ending)

    monkeypatch.setattr(click, "echo", echo_and_end)
    ended = run("tail", "t", "--name", "look")
    assert (ended.exit_code, ended.stdout) == (0, "")  # standard output is for changes
    assert "waiting for changes of t as look; Ctrl-C ends it" in ended.stderr
    assert "look" in run("list").stdout


def test_tail_ends_when_no_change_comes_for_some_time(connection: Connection) -> None:
    assert run("create", "look", "t").exit_code == 0
    connection.table("t").put(b"a", {b"d:q": b"1"})
    ended = run("tail", "t", "--name", "look", "--for", "2", "--json")
    assert (ended.exit_code, json.loads(ended.stdout)["row"]) == (0, "a")


def test_subscription_whose_peer_is_disabled_is_refused_with_the_command_that_enables_it(
    connection: Connection,
) -> None:
    assert run("create", "look", "t").exit_code == 0
    (peer,) = connection.replication.list()
    connection.replication.disable(peer.id)
    refused = run("tail", "t", "--name", "look", "--count", "1")
    assert refused.exit_code == 1
    assert f"metaclient replication enable {peer.id}" in refused.output


def test_state_file_in_a_folder_that_does_not_exist_is_refused_before_anything_is_made(
    connection: Connection, tmp_path: Path
) -> None:
    refused = run("tail", "t", "--name", "look", "--state", str(tmp_path / "missing" / "state.json"))
    assert (refused.exit_code, connection.replication.list()) == (1, [])
    assert f"there is no folder {tmp_path / 'missing'}; make it first" in refused.output


def test_wrong_use_makes_nothing(connection: Connection) -> None:
    assert run("tail", "t", "--name", "a/b").exit_code == 2
    assert run("create", "n", "nowhere").exit_code == 1
    assert connection.replication.list() == []


def test_serial_region_that_is_stuck_is_found_and_freed(sim_hbase: FakeCluster) -> None:
    """The edits of a region wait for an id that no source will push, as after a crash (HBASE-29499)."""
    runtime = sim_hbase.runtime
    with sim_hbase.connect() as connection:
        connection.create_table("t", {"d": {"replication_scope": 1}})
        with connection.changes("t", name="n", serial=True) as changes:
            connection.table("t").put(b"a", {b"d:q": b"1"})
            assert changes.poll(120) is not None
            assert examine(connection, "n") == []
            (region,) = [one.region.encoded_name for one in connection.regions("t")]
            while changes.poll(30) is not None:
                pass
            pushed = sim_hbase.peer_replication.pushed
            server = connection.locate("t", b"a").server.host
            others = [name for name in sim_hbase.servers() if name != server]
            sim_hbase.move(region, others[0])
            runtime.sleep(30)
            path = pushed.path(region, "n")
            sim_hbase.znodes.set(path, _node(pushed.get(region, "n") - 4))  # a marker's id was given again
            connection.table("t").put(b"b", {b"d:q": b"2"})
            found = examine(connection, "n")
            stuck = [one for one in found if one.region == region]
            if stuck:
                repair(connection, stuck[0])
            assert changes.poll(300) is not None
            assert [one.pushed_id is not None for one in stuck] == [True]


def _node(sequence_id: int) -> bytes:
    from metaclient.wire.rpc.replication_peers import position_node

    return position_node(sequence_id)
