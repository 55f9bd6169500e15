"""Feeds on a fake cluster, on virtual time: commits, repeats, back pressure, late answers, poison, snapshots."""

import logging
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from metaclient import Connection
from metaclient.changes import ChangeBatches, Changes, DeadLetter, Subscriptions, UndecodableCall
from metaclient.changes.window import Window
from metaclient.errors import (
    AccessDenied,
    BackendFault,
    ConnectionClosed,
    MetaClientError,
    RequestRefused,
    Unsupported,
)
from metaclient.model import Cell
from metaclient.replication_peers import PeerState
from metaclient.runtime import SimRuntime
from metaclient.testing import FakeCluster
from metaclient.wire.rpc.receiving import Delivery
from metaclient.wire.rpc.replication import ShippedEntry, WalKey, encode_replicate

FAMILIES = {"d": {"replication_scope": 1}, "local": {}}


@pytest.fixture
def cluster() -> Iterator[FakeCluster]:
    with (
        SimRuntime(seed=3) as runtime,
        FakeCluster(servers=3, meta_replicas=1, runtime=runtime, config={"peer_replication_behaviour": "2.6"}) as made,
    ):
        yield made


@pytest.fixture
def connection(cluster: FakeCluster) -> Iterator[Connection]:
    with cluster.connect() as made:
        made.create_table("t", FAMILIES, splits=[b"m"])
        yield made


def put(connection: Connection, *rows: bytes) -> None:
    for row in rows:
        connection.table("t").put(row, {b"d:q": b"v" + row})


def take(changes: Changes, count: int) -> list[bytes]:
    return [next(changes).row for _ in range(count)]


# -- what is delivered -------------------------------------------------------------------------------------------------


def test_edits_before_the_subscription_and_of_local_families_are_not_delivered(
    cluster: FakeCluster, connection: Connection
) -> None:
    put(connection, b"before")
    cluster.runtime.sleep(1)
    with connection.changes("t", name="n") as changes:
        connection.table("t").put(b"a", {b"d:q": b"1", b"local:q": b"2"})
        change = next(changes)
        assert (change.table, change.row, change.is_snapshot) == (b"t", b"a", False)
        assert [(cell.family, cell.value) for cell in change.cells] == [(b"d", b"1")]
        assert changes.stats()["ignored"] == 1


def test_rows_of_one_batch_are_changes_of_their_own(connection: Connection) -> None:
    with connection.changes("t", name="n") as changes:
        with connection.table("t").batch() as batch:
            batch.put(b"a", {b"d:q": b"1"})
            batch.put(b"b", {b"d:q": b"2", b"d:r": b"3"})
            batch.delete(b"a", [b"d:x"])
        found = [next(changes) for _ in range(2)]
        found += [change] if (change := changes.poll(30)) is not None else []
        by_row: dict[bytes, list[Any]] = {}
        for one in found:
            by_row.setdefault(one.row, []).append(one)
        assert [len(one.puts) for one in by_row[b"b"]] == [2]
        assert sum(len(one.deletes) for one in by_row[b"a"]) == 1


def test_call_is_answered_when_its_last_change_is_committed(cluster: FakeCluster, connection: Connection) -> None:
    with connection.changes("t", name="n", auto_commit=False) as changes:
        put(connection, b"a", b"b", b"c")
        found = [next(changes) for _ in range(3)]
        assert changes.stats()["open_calls"] == 1
        for change in (found[2], found[0]):  # in any order
            change.commit()
        assert changes.stats()["open_calls"] == 1
        found[1].commit()
        found[1].commit()  # the second time does nothing
        assert changes.stats()["open_calls"] == 0
        assert changes.stats()["committed"] == 3


def test_consumer_that_dies_before_its_commit_gets_the_change_again(connection: Connection) -> None:
    with connection.changes("t", name="n") as changes:
        put(connection, b"a", b"b")
        assert take(changes, 2) == [b"a", b"b"]  # the second is not committed
    with connection.changes("t", name="n") as changes:
        assert take(changes, 1) == [b"a"]  # without a state, the whole call comes again


def test_state_removes_repeats_over_a_restart(connection: Connection, tmp_path: Path) -> None:
    state = tmp_path / "state"
    with connection.changes("t", name="n", state=state) as changes:
        put(connection, b"a", b"b", b"c")
        assert take(changes, 2) == [b"a", b"b"]
    with connection.changes("t", name="n", state=state) as changes:
        assert take(changes, 2) == [b"b", b"c"]  # b was delivered and not committed
        assert changes.poll(60) is None
        assert changes.stats()["repeated"] == 1


def test_log_that_is_sent_again_from_its_start_is_delivered_once(connection: Connection) -> None:
    """HBase 2.x sends the current log again after disable and enable."""
    with connection.changes("t", name="n") as changes:
        put(connection, b"a", b"b")
        assert take(changes, 2) == [b"a", b"b"]
        assert changes.poll(5) is None
        connection.replication.disable("n")
        put(connection, b"c")
        connection.replication.enable("n")
        assert take(changes, 1) == [b"c"]
        assert changes.poll(30) is None
        assert changes.stats()["repeated"] == 2


def test_call_that_is_repeated_while_its_changes_are_open_waits_for_the_same_commit(
    cluster: FakeCluster, connection: Connection
) -> None:
    with connection.changes("t", name="n", auto_commit=False) as changes:
        put(connection, b"a")
        change = next(changes)
        assert changes.poll(100) is None  # the source has given up at 60 s, and sent it again
        assert changes.stats()["repeated"] == 1
        assert changes.stats()["open_calls"] == 2
        change.commit()
        assert changes.stats()["open_calls"] == 0
        put(connection, b"b")
        assert next(changes).row == b"b"


# -- limits ------------------------------------------------------------------------------------------------------------


def test_consumer_that_stands_still_holds_the_sources_and_a_bounded_number_of_bytes(
    cluster: FakeCluster, connection: Connection
) -> None:
    value = b"x" * 10_000
    with connection.changes("t", name="n", bytes_max=100_000) as changes:
        table = connection.table("t")
        for number in range(200):
            table.put(b"%03d" % number, {b"d:q": value})
            cluster.runtime.sleep(0.5)
        cluster.runtime.sleep(600)
        stats = changes.stats()
        assert stats["held_bytes_most"] > 0
        assert stats["held_bytes_most"] <= 100_000 or stats["open_calls"] == 1  # one call may be larger than the bound
        rows = {next(changes).row for _ in range(200)}
        assert len(rows) == 200


def test_call_is_not_read_before_there_is_room_for_it() -> None:
    with SimRuntime() as runtime:
        window = Window(runtime, 100)
        assert window.reserve(60)
        waiting = [runtime.start(window.reserve, size) for size in (50, 500)]
        runtime.sleep(1)
        assert [task.is_done for task in waiting] == [False, False]
        assert window.held == 60
        window.release(60)
        runtime.sleep(1)
        assert (waiting[0].is_done, waiting[1].is_done, window.held) == (True, False, 50)
        window.release(50)
        runtime.sleep(1)
        assert (waiting[1].is_done, window.held) == (True, 500)  # larger than the bound: alone
        refused = runtime.start(window.reserve, 1)
        runtime.sleep(1)
        window.close()
        assert refused.result() is False


def test_late_commit_is_reported_and_counted(connection: Connection, caplog: pytest.LogCaptureFixture) -> None:
    with connection.changes("t", name="n", auto_commit=False) as changes:
        put(connection, b"a")
        change = next(changes)
        with caplog.at_level(logging.WARNING, "metaclient.changes"):
            changes.poll(65)
        assert "not committed after" in caplog.text
        assert changes.stats()["overdue"] == 1
        assert changes.stats()["late_answers"] == 0  # not answered yet
        change.commit()
        assert changes.stats()["late_answers"] == 1


# -- poison ------------------------------------------------------------------------------------------------------------


def test_change_that_cannot_be_processed_does_not_block_its_log(connection: Connection) -> None:
    letters: list[DeadLetter] = []
    with connection.changes("t", name="n", dead_letter=letters.append) as changes:
        put(connection, b"a", b"bad", b"c")
        done: list[bytes] = []

        def index(change: Any) -> None:
            if change.row == b"bad":
                raise ValueError("no such field")
            done.append(change.row)
            if change.row == b"c":
                changes.close()

        changes.run(index)
    assert done == [b"a", b"c"]
    assert [(letter.change.row, letter.reason) for letter in letters if letter.change] == [
        (b"bad", "ValueError: no such field")
    ]


def test_skip_commits_without_a_callback(connection: Connection) -> None:
    with connection.changes("t", name="n", auto_commit=False) as changes:
        put(connection, b"a")
        next(changes)
        changes.skip("broken")
        changes.skip("twice")
        assert (changes.stats()["skipped"], changes.stats()["open_calls"]) == (1, 0)


def broken_delivery(changes: Any, answers: list[str], cells: bytes = b"\0\0\0\x05abcde") -> None:
    """Hand a feed a call whose cells are no cells."""
    now = changes._runtime.now()
    changes._window.reserve(10)
    changes._window.receive(
        Delivery(
            b"\x0a\x02\x0a\x00",
            cells,
            size=10,
            arrived=now,
            deadline=now + 60,
            source="s",
            send=lambda: answers.append("answered") is None,
        )
    )


@pytest.mark.parametrize("arrow", [False, True])
def test_call_that_is_not_of_hbase_is_an_error_until_it_is_skipped(connection: Connection, arrow: bool) -> None:
    answers: list[str] = []
    with connection.changes("t", name="n", arrow=arrow) as changes:
        broken_delivery(changes, answers)
        put(connection, b"a")
        for _ in range(2):
            with pytest.raises(UndecodableCall, match="skip"):
                changes.poll(10)
        assert answers == []
        changes.skip()
        assert answers == ["answered"]  # never an error for reasons of data: HBase would send it for ever
        assert changes.poll(10) is not None


def test_calls_behind_one_that_is_not_of_hbase_keep_their_order(connection: Connection) -> None:
    with connection.changes("t", name="n", arrow=True) as changes:
        broken_delivery(changes, [])
        for number in (1, 2, 3):
            key = WalKey("0" * 32, b"t", number, 1 << 41)
            param, cells = encode_replicate([ShippedEntry(key, ((b"r", Cell(b"d:q", number, b"")),))])
            changes._window.reserve(10)
            changes._window.receive(
                Delivery(param, cells, size=10, arrived=0.0, deadline=1e9, source="s", send=lambda: True)
            )
        with pytest.raises(UndecodableCall):
            changes.poll(10)
        changes.skip()
        batch = changes.poll(10)
        assert batch is not None
        assert batch.column("sequence").to_pylist() == [1, 2, 3]


@pytest.mark.parametrize("arrow", [False, True])
def test_call_that_is_not_of_hbase_goes_to_the_dead_letters(connection: Connection, arrow: bool) -> None:
    answers: list[str] = []
    letters: list[DeadLetter] = []
    with connection.changes("t", name="n", arrow=arrow, dead_letter=letters.append) as changes:
        broken_delivery(changes, answers)
        put(connection, b"a")
        assert changes.poll(10) is not None
    assert answers == ["answered"]
    assert [(letter.change, letter.cells) for letter in letters] == [(None, b"\0\0\0\x05abcde")]


# -- Arrow -------------------------------------------------------------------------------------------------------------


def test_batches_have_the_same_cells_as_changes(connection: Connection) -> None:
    feeds = [connection.changes("t", name="rows"), connection.changes("t", name="batches", arrow=True)]
    with feeds[0] as changes, feeds[1] as batches:
        assert isinstance(batches, ChangeBatches)
        put(connection, b"a", b"z")
        connection.table("t").delete(b"a")
        expected, found = [], []
        while (change := changes.poll(20)) is not None:
            for cell in change.cells:
                expected.append(
                    (change.row, cell.qualifier, int(cell.type), cell.value, change.region, change.sequence)
                )
        while (batch := batches.poll(20)) is not None:
            for one in batch.to_pylist():
                found.append(tuple(one[name] for name in ("row", "qualifier", "type", "value", "region", "sequence")))
        assert sorted(found) == sorted(expected)
        assert len(found) == 3
        assert batches.stats()["open_calls"] == 0


def test_batch_leaves_out_repeats(connection: Connection) -> None:
    with connection.changes("t", name="n", arrow=True) as batches:
        put(connection, b"a", b"b")
        assert sum(batch.num_rows for batch in iter(lambda: batches.poll(20), None)) == 2
        connection.replication.disable("n")
        put(connection, b"c")
        connection.replication.enable("n")
        rows = [row for batch in iter(lambda: batches.poll(20), None) for row in batch.column("row").to_pylist()]
        assert rows == [b"c"]


# -- snapshots ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("arrow", [False, True])
def test_snapshot_comes_first_and_leaves_no_gap(connection: Connection, arrow: bool) -> None:
    put(connection, b"a", b"z")
    connection.table("t").delete(b"z")
    with connection.changes("t", name="n", since=0, arrow=arrow) as feed:
        put(connection, b"meanwhile")
        rows: list[bytes] = []
        while (one := feed.poll(20)) is not None:
            rows += one.column("row").to_pylist() if arrow else [one.row]
        assert set(rows) == {b"a", b"z", b"meanwhile"}
        assert feed.stats()["late_answers"] == 0
    with connection.changes("t", name="n", since=0, arrow=arrow) as feed:
        assert feed.poll(20) is None  # the snapshot was processed: it is not read again


def test_snapshot_that_was_not_processed_is_read_again(connection: Connection) -> None:
    put(connection, b"a", b"b")
    with connection.changes("t", name="n", since=0) as changes:
        assert take(changes, 1) == [b"a"]
    with connection.changes("t", name="n", since=0) as changes:
        first = next(changes)
        assert (first.row, first.is_snapshot, first.cells[0].value) == (b"a", True, b"va")


def test_since_selects_by_timestamp(connection: Connection) -> None:
    table = connection.table("t")
    table.put(b"old", {b"d:q": b"1"}, timestamp=1_000_000)
    table.put(b"new", {b"d:q": b"2"}, timestamp=2_000_000)
    with connection.changes("t", name="n", since=datetime.fromtimestamp(1500, UTC)) as changes:
        assert take(changes, 1) == [b"new"]


# -- workers -----------------------------------------------------------------------------------------------------------


def test_workers_of_one_name_share_the_changes_and_leave_without_a_loss(
    cluster: FakeCluster, connection: Connection
) -> None:
    with cluster.connect() as other, connection.changes("t", name="n") as one:
        two = other.changes("t", name="n")
        rows: list[bytes] = []
        expected = []
        for number in range(60):
            expected.append(b"%02d" % number if number % 2 else b"z%02d" % number)
            put(connection, expected[-1])
            cluster.runtime.sleep(0.3)
            for feed in (one, two):
                while not feed.is_closed and (change := feed.poll(0)) is not None:
                    change.commit()
                    rows.append(change.row)
            if number == 30:
                assert two.stats()["committed"] > 0
                two.close()
        while (change := one.poll(30)) is not None:
            rows.append(change.row)
        assert sorted(rows) == sorted(expected)
        assert one.stats()["committed"] > 0


def test_worker_that_joins_and_leaves_is_seen_within_two_seconds(cluster: FakeCluster, connection: Connection) -> None:
    host = connection.engine.backend.change_host  # type: ignore[attr-defined]  # of the fake
    Subscriptions(connection).create("n", ["t"])
    now = cluster.runtime.now
    begun = now()
    changes = connection.changes("t", name="n")
    assert len(host.workers("n", 0.0)) == 1
    assert now() - begun < 2
    put(connection, b"a")
    next(changes)
    begun = now()
    changes.close()
    assert host.workers("n", 0.0) == []
    assert now() - begun < 2
    assert [peer.id for peer in connection.replication.list()] == ["n"]  # the subscription stays


def test_closed_connection_closes_its_feeds(cluster: FakeCluster, connection: Connection) -> None:
    with cluster.connect() as other:
        changes = other.changes("t", name="n")
    assert changes.is_closed
    assert list(changes) == []
    with pytest.raises(ConnectionClosed):
        changes.poll()


# -- bad input ---------------------------------------------------------------------------------------------------------


def names(connection: Connection) -> list[str]:
    return [peer.id for peer in connection.replication.list()]


def test_table_without_a_replicated_family_is_refused_and_nothing_is_left_behind(connection: Connection) -> None:
    connection.create_table("plain", {"d": {}})
    with pytest.raises(RequestRefused, match="REPLICATION_SCOPE => 1"):
        connection.changes("plain", name="n")
    assert names(connection) == []


def test_peer_of_that_name_with_another_key_is_not_taken_over(connection: Connection) -> None:
    connection.replication.add("my_index", "elsewhere:2181:/hbase", enabled=False)
    with pytest.raises(RequestRefused, match="elsewhere:2181:/hbase"):
        connection.changes("t", name="my-index")
    assert names(connection) == ["my_index"]


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ({"name": "a/b"}, "'name'"),
        ({"name": ""}, "'name'"),
        ({"name": "n", "since": "yesterday"}, "'since'"),
        ({"name": "n", "since": datetime(2026, 1, 1)}, "time zone"),  # noqa: DTZ001  # the mistake
        ({"name": "n", "bytes_max": 0}, "'bytes_max'"),
        ({"name": "n", "port": 70_000}, "'port'"),
    ],
)
def test_wrong_argument_is_named_and_nothing_is_made(connection: Connection, arguments: Any, text: str) -> None:
    with pytest.raises(ValueError, match=text):
        connection.changes("t", **arguments)
    assert names(connection) == []


def test_other_tables_or_order_of_an_existing_subscription_are_refused(connection: Connection) -> None:
    connection.create_table("u", FAMILIES)
    connection.changes("t", name="n").close()
    for arguments in ({"table": "u"}, {"table": "t", "serial": True}, {"table": "t", "since": 0}):
        with pytest.raises(RequestRefused, match="not the one that is asked for"):
            connection.changes(**{"name": "n", **arguments})  # type: ignore[call-overload]  # by name
    connection.replication.disable("n")
    with pytest.raises(RequestRefused, match="enable"):
        connection.changes("t", name="n")
    assert connection.replication.get("n").state is PeerState.DISABLED


def test_address_that_no_server_reaches_is_named_by_the_queue_that_does_not_move(
    cluster: FakeCluster, connection: Connection
) -> None:
    cluster.network.partition("rs1", "changes")
    cluster.network.partition("rs2", "changes")
    cluster.network.partition("rs3", "changes")
    changes = connection.changes("t", name="n")
    assert changes.poll(300) is None  # nothing was written: the address may be good
    put(connection, b"a")
    with pytest.raises(RequestRefused, match=r"changes-n:1, the published address .* host="):
        changes.poll(600)
    assert names(connection) == []  # it was made by this feed, and never worked: it must not fill the disk
    with pytest.raises(RequestRefused):
        next(changes)


def test_servers_that_pause_after_the_end_of_a_worker_do_not_end_the_next_one(
    cluster: FakeCluster, connection: Connection, caplog: pytest.LogCaptureFixture
) -> None:
    connection.changes("t", name="n").close()
    cuts = [cluster.network.partition(server, "changes") for server in ("rs1", "rs2", "rs3")]
    with connection.changes("t", name="n") as changes:
        put(connection, b"a")
        assert changes.poll(600) is None
        assert caplog.text.count("the published address") == 1
        for cut in cuts:
            cluster.network.mend(cut)
        assert take(changes, 1) == [b"a"]


@pytest.mark.parametrize(
    ("kind", "raised", "text"),
    [
        (AccessDenied, AccessDenied, "Insufficient permissions (user=x, action=ADMIN)"),
        (BackendFault, RequestRefused, "IOException: Replication peer modification disabled"),
    ],
)
def test_master_that_refuses_the_peer_leaves_no_nodes(
    cluster: FakeCluster,
    connection: Connection,
    monkeypatch: pytest.MonkeyPatch,
    kind: type[MetaClientError],
    raised: type[MetaClientError],
    text: str,
) -> None:
    def refuse(*arguments: object) -> None:
        raise kind(text)

    monkeypatch.setattr(cluster.replication_admin, "add_peer", refuse)
    with pytest.raises(raised, match=r"the subscription 'n' was not made.*needs the right ADMIN") as caught:
        connection.changes("t", name="n")
    assert type(caught.value) is raised
    assert text in str(caught.value)
    assert names(connection) == []
    assert cluster.subscribers.find(cluster.subscribers.key("n")) is None


def test_user_who_must_not_list_peers_is_told_the_right_that_is_needed(
    cluster: FakeCluster, connection: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    def deny(*arguments: object) -> None:
        raise AccessDenied("Insufficient permissions (user=x, action=ADMIN)")

    monkeypatch.setattr(cluster.replication_admin, "peers", deny)
    with pytest.raises(AccessDenied, match=r"subscriptions are replication peers.*user=x.*global right ADMIN"):
        connection.changes("t", name="n")
    assert cluster.subscribers.find(cluster.subscribers.key("n")) is None


def test_state_of_another_subscription_makes_no_subscription(connection: Connection, tmp_path: Path) -> None:
    state = tmp_path / "state"
    with connection.changes("t", name="one", state=state) as changes:
        put(connection, b"a")
        next(changes).commit()
    with pytest.raises(ValueError, match="'one'"):
        connection.changes("t", name="two", state=state)
    assert names(connection) == ["one"]


def test_backend_without_a_log_says_what_to_use() -> None:
    import metaclient

    with metaclient.connect("scripted:") as connection, pytest.raises(Unsupported, match="hbase://"):
        connection.changes("t", name="n")


# -- administration ----------------------------------------------------------------------------------------------------


def test_subscription_with_workers_is_not_removed(connection: Connection) -> None:
    subscriptions = Subscriptions(connection)
    with connection.changes("t", name="n"), pytest.raises(RequestRefused, match="1 workers"):
        subscriptions.remove("n")
    subscriptions.remove("n")
    assert subscriptions.list() == []
    with pytest.raises(RequestRefused, match="no subscription 'n'"):
        subscriptions.remove("n")
