"""``connection.replication`` and ``metaclient replication``: in the process, and over HBase's RPC to the fake."""

import json
from collections.abc import Iterator
from dataclasses import asdict
from typing import Any

import pytest
from click.testing import Result

import metaclient
from metaclient import Connection, PeerConfig, PeerState, Replication, ReplicationStatus, SinkLoad, SourceLoad
from metaclient.cli import main
from metaclient.errors import BackendFault, Disposition, MetaClientError, RequestRefused, Unsupported
from metaclient.model import ServerName
from metaclient.replication import _changed
from metaclient.replication_peers import BlockedRegion
from metaclient_fake import FakeCluster
from tests.command_runner import command_runner
from tests.unit.replication.peer_admin import MemoryAdmin

KEY = "zk1,zk2:2181:/west"


@pytest.fixture
def admin() -> MemoryAdmin:
    return MemoryAdmin()


@pytest.fixture
def cluster(admin: MemoryAdmin) -> Iterator[FakeCluster]:
    with FakeCluster(servers=2, meta_replicas=1) as made:
        made.inside.replication_admin = admin
        yield made


@pytest.fixture
def url(cluster: FakeCluster) -> str:
    front = cluster.serve(thrift1_port=None, thrift2_port=None, rpc_port=0)
    return f"hbase+rpc://127.0.0.1:{front.rpc_port}"


@pytest.fixture(params=["in process", "over RPC"])
def connection(request: pytest.FixtureRequest, cluster: FakeCluster) -> Iterator[Connection]:
    if request.param == "in process":
        made = cluster.connect()
    else:
        made = metaclient.connect(request.getfixturevalue("url"))
    with made:
        yield made


@pytest.fixture
def replication(connection: Connection) -> Replication:
    return connection.replication


def test_a_peer_lives_through_all_its_changes(replication: Replication) -> None:
    replication.add("west", KEY, tables={"t": ["cf"], b"ns:u": None}, bandwidth=7, configuration={"a": "b"})
    peer = replication.get("west")
    assert peer.state is PeerState.ENABLED
    assert peer.config == PeerConfig(
        cluster_key=KEY,
        replicate_all=False,
        tables={b"t": (b"cf",), b"ns:u": ()},
        bandwidth=7,
        configuration={"a": "b"},
    )

    replication.disable("west")
    assert replication.get("west").state is PeerState.DISABLED
    replication.enable("west")
    replication.update("west", tables=["v"], serial=True)
    assert replication.list() == [replication.get("west")]
    assert replication.list("nothing") == []
    changed = replication.get("west").config
    assert (dict(changed.tables), changed.serial, changed.bandwidth) == ({b"v": ()}, True, 7)

    replication.remove("west")
    assert replication.list() == []


def test_refusals_of_procedures_have_hbases_text_and_are_not_retried(
    replication: Replication, admin: MemoryAdmin
) -> None:
    replication.add("west", KEY, enabled=False)

    for call, text in (
        (lambda: replication.add("west", KEY), "Replication peer west already exists"),
        (lambda: replication.disable("west"), "Replication peer west has already been disabled"),
        (lambda: replication.remove("east"), "east"),
        (lambda: replication.get("east"), "east"),
    ):
        with pytest.raises(RequestRefused) as raised:
            call()
        assert str(raised.value).endswith(text)
        assert raised.value.disposition is Disposition.FATAL
        assert not raised.value.may_have_applied
    assert [call for call in admin.calls if call != "get"] == ["add", "add", "DISABLED", "remove"]


@pytest.mark.parametrize("read", ["list", "get", "status"])
def test_a_read_is_repeated_after_a_failure_and_a_change_is_not(
    cluster: FakeCluster, admin: MemoryAdmin, read: str
) -> None:
    with cluster.connect(pause_s=0.001) as connection:
        replication = connection.replication
        replication.add("west", KEY)
        admin.error = BackendFault("the answer was lost", may_have_applied=True)
        assert getattr(replication, read)(*["west"][: read == "get"]) is not None
        assert admin.calls == ["add", read, read]
        admin.error = BackendFault("the answer was lost", may_have_applied=True)
        with pytest.raises(MetaClientError, match="the answer was lost") as raised:
            replication.disable("west")
        assert raised.value.may_have_applied
        assert admin.calls[3:] == ["DISABLED"]


def test_an_update_keeps_what_it_does_not_name(replication: Replication) -> None:
    replication.add("p", KEY, exclude_tables=["logs"], exclude_namespaces=["n"], bandwidth=5, configuration={"a": "b"})
    before = replication.get("p").config

    replication.update("p", bandwidth=0)

    assert replication.get("p").config == PeerConfig(
        cluster_key=KEY,
        exclude_tables={b"logs": ()},
        exclude_namespaces=frozenset({b"n"}),
        configuration={"a": "b"},
    )
    assert before.bandwidth == 5


@pytest.mark.parametrize(
    ("changes", "replicate_all"),
    [
        ({"tables": ["t"]}, False),
        ({"namespaces": ["n"]}, False),
        ({"exclude_tables": ["t"]}, True),
        ({"serial": 1}, False),
    ],
)
def test_a_list_of_tables_decides_whether_all_are_shipped(changes: dict[str, Any], replicate_all: bool) -> None:
    assert _changed(PeerConfig(replicate_all=False), changes).replicate_all is replicate_all


def test_status_shows_every_source_and_sink(connection: Connection, cluster: FakeCluster, admin: MemoryAdmin) -> None:
    name = cluster.servers_by_host["rs1"].name
    source = SourceLoad(peer_id="west", server=name, queue_id="west", lag_ms=9, log_queue=2, edits_shipped=3)
    admin.statuses = [ReplicationStatus(server=name, sources=(source,), sink=SinkLoad(edits_applied=4))]

    found = connection.replication.status()

    shown = [load for server in found for load in server.sources]
    assert [(one.peer_id, one.lag_ms, one.log_queue, one.edits_shipped) for one in shown] == [("west", 9, 2, 3)]
    assert [server.sink.edits_applied for server in found if server.sink is not None] == [4]


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        ({"id": "", "key": KEY}, ValueError),
        ({"id": 7, "key": KEY}, ValueError),
        ({"id": "p", "key": None}, ValueError),
        ({"id": "p", "key": KEY, "bandwidth": -1}, ValueError),
        ({"id": "p", "key": KEY, "bandwidth": 1.5}, ValueError),
        ({"id": "p", "key": KEY, "tables": "t"}, TypeError),
        ({"id": "p", "key": KEY, "tables": {"t": "cf"}}, TypeError),
        ({"id": "p", "key": KEY, "namespaces": b"n"}, TypeError),
    ],
)
def test_wrong_arguments_are_refused_before_any_call(
    arguments: dict[str, Any], error: type[Exception], admin: MemoryAdmin
) -> None:
    with pytest.raises(error):
        Replication(admin, lambda what, call, *args: call(*args, 0.0)).add(**arguments)
    assert admin.calls == []


def test_an_unknown_change_is_named(admin: MemoryAdmin) -> None:
    replication = Replication(admin, lambda what, call, *args: call(*args, 0.0))
    replication.add("p", KEY)
    with pytest.raises(TypeError, match="'table': known are"):
        replication.update("p", table=["t"])
    assert admin.calls == ["add", "get"]


def test_a_backend_without_peers_names_one_that_has_them() -> None:
    with metaclient.connect("scripted:") as connection, pytest.raises(Unsupported, match="hbase://"):
        _ = connection.replication


def test_a_fake_without_peers_says_so_in_process_and_over_rpc() -> None:
    with FakeCluster(servers=1, meta_replicas=1) as cluster:
        cluster.inside.replication_admin = None
        with cluster.connect() as connection, pytest.raises(Unsupported, match="no replication peers"):
            _ = connection.replication
        front = cluster.serve(thrift1_port=None, thrift2_port=None, rpc_port=0)
        with metaclient.connect(f"hbase+rpc://127.0.0.1:{front.rpc_port}") as connection:
            with pytest.raises(RequestRefused, match="no replication peers"):
                connection.replication.list()
            assert [status.sources for status in connection.replication.status()] == [()]


# -- the command line ----------------------------------------------------------------------------------------------


def _run(url: str, *arguments: str) -> Result:
    return command_runner().invoke(main, ["replication", *arguments, "--url", url])


def _document(url: str, *arguments: str) -> dict[str, Any]:
    result = _run(url, *arguments, "--json")
    assert result.exit_code == 0, result.stdout + result.stderr
    found: dict[str, Any] = json.loads(result.stdout)
    return found


def test_commands_add_show_change_and_remove_a_peer(url: str, admin: MemoryAdmin) -> None:
    added = _run(url, "add", "west", KEY, "--table", "ns:t=cf,d", "--table", "u", "--serial", "--set", "a=b=c")
    assert (added.exit_code, added.stdout) == (0, "peer west added\n")
    (peer,) = _document(url, "list")["peers"]
    assert peer["tables"] == {"ns:t": ["cf", "d"], "u": []}
    assert (peer["state"], peer["serial"], peer["configuration"]) == ("ENABLED", True, {"a": "b=c"})
    assert "ns:t=cf,d, u" in _run(url, "list").stdout
    _document(url, "disable", "west")
    assert admin.by_id["west"].state is PeerState.DISABLED
    _document(url, "enable", "west")
    _document(url, "update", "west", "--all-tables", "--exclude-table", "logs", "--no-serial")
    config = admin.by_id["west"].config
    assert (config.replicate_all, dict(config.tables), dict(config.exclude_tables)) == (True, {}, {b"logs": ()})
    assert not config.serial
    assert _document(url, "remove", "west", "--yes") == {"removed": "west"}
    assert _document(url, "list") == {"peers": []}


def test_status_command_shows_lag_per_server(url: str, cluster: FakeCluster, admin: MemoryAdmin) -> None:
    name = cluster.servers_by_host["rs1"].name
    loads = tuple(SourceLoad(peer_id=peer, server=name, queue_id=peer, lag_ms=1234) for peer in ("east", "west"))
    admin.statuses = [ReplicationStatus(server=name, sources=loads, sink=SinkLoad(edits_applied=44))]

    found = _document(url, "status", "--peer", "west")

    assert [(load["peer_id"], load["lag_ms"]) for load in found["sources"]] == [("west", 1234)]
    text = _run(url, "status").stdout
    assert "1234" in text
    assert "44" in text
    assert text.endswith("2 servers, 2 sources\n")


def test_status_command_shows_what_a_blocked_region_waits_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a fake cluster only: HBase's ServerLoad has no field for it."""
    blocked = BlockedRegion(region="ab12", sequence_id=7, waits_for="region cd34")
    load = SourceLoad(peer_id="west", server=ServerName("rs1", 16020, 1), blocked=(blocked,))
    status = ReplicationStatus(server=load.server, sources=(load,))
    monkeypatch.setattr(Replication, "status", lambda self: [status])
    assert _document("fake:", "status")["sources"][0]["blocked"] == [asdict(blocked)]
    text = _run("fake:", "status").stdout
    assert "west on rs1:16020: region ab12 waits for region cd34\n" in text


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (("update", "west"), "nothing to change"),
        (("update", "west", "--all-tables", "--table", "t"), "--all-tables contradicts"),
        (("add", "west", KEY, "--set", "a"), "--set takes NAME=VALUE"),
        (("remove", "west", "--json"), "needs --yes"),
    ],
)
def test_wrong_use_of_a_command_is_explained(arguments: tuple[str, ...], text: str) -> None:
    result = _run("fake:", *arguments)
    assert result.exit_code == 2
    assert text in result.stderr


def test_a_refusal_ends_the_command_with_hbases_text(url: str, admin: MemoryAdmin) -> None:
    result = _run(url, "remove", "west", "--yes")
    assert result.exit_code == 1
    assert "ReplicationPeerNotFoundException: west" in result.stderr
    assert admin.calls == ["remove"]
