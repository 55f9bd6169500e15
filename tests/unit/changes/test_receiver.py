"""A receiver on a fake cluster, on virtual time: calls go to the spool, then they are answered."""

import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from metaclient import Connection
from metaclient.changes import Subscriptions
from metaclient.changes.receiver import SpoolReceiver, open_receiver
from metaclient.changes.spool import Spool, SpoolError
from metaclient.errors import RequestRefused
from metaclient.runtime import SimRuntime
from metaclient.testing import FakeCluster
from metaclient.wire.rpc.receiving import Delivery
from metaclient.wire.rpc.replication import decode_keys
from tests.unit.changes.spooled import rows_in

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


def opened(connection: Connection, folder: Path, **options: Any) -> SpoolReceiver:
    return open_receiver(connection, folder, **{"name": "lake", "worker": "w", "tables": [b"t"], **options})


def receive(receiver: SpoolReceiver, count: int) -> None:
    """Store until so many new entries are in the spool."""
    while receiver.stats()["delivered"] < count:
        assert receiver.poll(60.0) is not None


def test_calls_are_in_the_spool_before_they_are_answered(
    connection: Connection, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[list[bytes]] = []
    original = Delivery.answer

    def answer(delivery: Delivery) -> bool:
        seen.append(rows_in(tmp_path))
        return original(delivery)

    monkeypatch.setattr(Delivery, "answer", answer)
    with opened(connection, tmp_path) as receiver:
        put(connection, b"a")
        receive(receiver, 1)
        put(connection, b"z")
        receive(receiver, 2)
    assert seen == [[b"a"], [b"a", b"z"]]


def test_killed_receiver_goes_on_without_a_repeat(
    cluster: FakeCluster, connection: Connection, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first receiver stores the calls and dies before it answers: HBase sends them again."""
    with monkeypatch.context() as patched:
        patched.setattr(Delivery, "answer", lambda delivery: False)
        receiver = opened(connection, tmp_path)
        put(connection, b"a", b"z")
        receive(receiver, 2)
        receiver.close()
    with opened(connection, tmp_path) as receiver:
        put(connection, b"b")
        receive(receiver, 1)
        cluster.runtime.sleep(120)
        while receiver.poll(1.0) is not None:
            pass
        assert receiver.stats()["repeated"] >= 2
    assert sorted(rows_in(tmp_path)) == [b"a", b"b", b"z"]


def test_repeats_are_recognised_after_their_segments_are_deleted(
    cluster: FakeCluster, connection: Connection, tmp_path: Path
) -> None:
    with opened(connection, tmp_path, spool_bytes_max=400) as receiver:
        for number in range(12):
            put(connection, b"a%02d" % number)
            receive(receiver, number + 1)
            spool = Spool(tmp_path)
            spool.commit(spool.end())
    before = rows_in(tmp_path)
    assert len(before) < 12
    connection.replication.disable("lake")
    connection.replication.enable("lake")  # HBase 2.x sends the current log again
    with opened(connection, tmp_path, spool_bytes_max=400) as receiver:
        put(connection, b"new")
        receive(receiver, 1)
        cluster.runtime.sleep(60)
        while receiver.poll(1.0) is not None:
            pass
        assert receiver.stats()["repeated"] >= 12
    assert [row for row in rows_in(tmp_path) if row not in before] == [b"new"]


def test_full_spool_holds_the_answers_until_a_consumer_commits(
    cluster: FakeCluster, connection: Connection, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    receiver = opened(connection, tmp_path, spool_bytes_max=600)
    task = cluster.runtime.start(receiver.run)
    for number in range(20):
        put(connection, b"%02d" % number)
        cluster.runtime.sleep(2)
    held = receiver.stats()
    assert held["is_full"] == 1
    assert held["open_calls"] >= 1
    assert held["delivered"] < 20
    assert sum(path.stat().st_size for path in tmp_path.glob("w/*.segment")) <= 800
    assert "the spool is full" in caplog.text
    spool, at, found = Spool(tmp_path), {}, []
    while len(found) < 20:
        end = spool.end()
        for part in spool.slices(at, end):
            found += [one for call in spool.read(part) for one in decode_keys(call.param)]
        spool.commit(at)  # as Spark: a batch is committed when the next one is planned
        at = end
        cluster.runtime.sleep(1)
    assert "has space again" in caplog.text
    receiver.close()
    task.result()
    assert len(found) == 20


def test_snapshot_comes_first_and_once(connection: Connection, tmp_path: Path) -> None:
    put(connection, b"a", b"z")
    with opened(connection, tmp_path, since=0) as receiver:
        receive(receiver, 2)
        put(connection, b"b")
        receive(receiver, 3)
    assert sorted(rows_in(tmp_path)[:2]) == [b"a", b"z"]
    assert Subscriptions(connection).get("lake").snapshot.startswith("done")
    with opened(connection, tmp_path, since=0) as receiver:
        put(connection, b"c")
        receive(receiver, 1)
    assert sorted(rows_in(tmp_path)) == [b"a", b"b", b"c", b"z"]


def test_poison_call_is_kept_and_answered(connection: Connection, tmp_path: Path) -> None:
    with opened(connection, tmp_path) as receiver:
        answered: list[bool] = []
        poison = Delivery(
            b"\xff", b"", size=1, arrived=0.0, deadline=1e9, source="s", send=lambda: not answered.append(True)
        )
        assert receiver._window.reserve(1)
        receiver._window.receive(poison)
        assert receiver.poll(1.0) == 0
        assert answered == [True]
        put(connection, b"a")
        receive(receiver, 1)
    assert (tmp_path / "w" / "dead" / "000001").read_bytes() == bytes(7) + b"\x01\xff"


def test_two_workers_share_a_spool(cluster: FakeCluster, connection: Connection, tmp_path: Path) -> None:
    workers = [opened(connection, tmp_path, worker=name) for name in ("one", "two")]
    tasks = [cluster.runtime.start(worker.run) for worker in workers]
    for number in range(30):
        put(connection, b"%02d" % number)
        cluster.runtime.sleep(1)
    cluster.runtime.sleep(30)
    for worker in workers:
        worker.close()
    for task in tasks:
        task.result()
    assert sorted(rows_in(tmp_path)) == [b"%02d" % number for number in range(30)]
    assert set(Spool(tmp_path).end()) == {"one", "two"}


# -- wrong uses --------------------------------------------------------------------------------------------------------


def test_error_leaves_no_subscription_behind(connection: Connection, tmp_path: Path) -> None:
    Spool.ensure(tmp_path, "other", [b"t"], new_id="1")
    with pytest.raises(SpoolError, match="spool of the subscription 'other'"):
        opened(connection, tmp_path)
    (tmp_path / "file").write_text("")
    with pytest.raises(SpoolError, match="cannot be opened"):
        opened(connection, tmp_path / "file")
    with pytest.raises(ValueError, match="'name' must be"):
        opened(connection, tmp_path / "new", worker="a/b")
    with pytest.raises(RequestRefused, match="no subscription 'lake'"):
        opened(connection, tmp_path / "new", tables=())
    assert connection.replication.list() == []
    assert not (tmp_path / "new").exists()


def test_second_receiver_of_a_worker_is_refused_and_the_first_goes_on(connection: Connection, tmp_path: Path) -> None:
    with opened(connection, tmp_path) as receiver:
        with pytest.raises(SpoolError, match=r"another process receives into .*--worker"):
            opened(connection, tmp_path)
        put(connection, b"a")
        receive(receiver, 1)
