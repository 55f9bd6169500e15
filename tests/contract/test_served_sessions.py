"""Sessions over TCP, on backends that report no lag: Thrift 2 and HBase's own RPC, against the fake.

Replication to the region replicas is off, so that they lack every write, and no test depends on the speed of the
machine.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count

import pytest

import metaclient
from metaclient import Connection
from metaclient_fake import FakeCluster

_numbers = count()
URLS = {"thrift2": "thrift2://127.0.0.1:{0.thrift2_port}", "hbase+rpc": "hbase+rpc://127.0.0.1:{0.rpc_port}"}


@pytest.fixture(scope="module")
def served() -> Iterator[FakeCluster]:
    """One cluster for all tests of this file: each has a table of its own."""
    with FakeCluster(servers=3, meta_replicas=3, config={"replication_enabled": False}) as cluster:
        cluster.serve(thrift1_port=None, thrift2_port=0, rpc_port=0)
        yield cluster


@pytest.fixture(params=URLS)
def connection(request: pytest.FixtureRequest, served: FakeCluster) -> Iterator[Connection]:
    # Without a delay each TIMELINE read would call the replicas: only the session prevents it.
    url = URLS[request.param].format(served)
    options = {"hbase.client.primaryCallTimeout.get": 0, "hbase.client.primaryCallTimeout.multiget": 0}
    with metaclient.connect(url, config=options, hedge_plan="all_at_once", hedge_budget=1.0) as made:
        yield made


@pytest.fixture
def name(connection: Connection) -> str:
    made = f"sessions{next(_numbers)}"
    connection.create_table(made, {"cf": {}}, splits=["m"], region_replication=3)
    return made


def test_own_writes_are_seen_while_replicas_lack_them(connection: Connection, name: str) -> None:
    with connection.session() as session:
        table = session.table(name)
        for number in range(20):
            value = b"%d" % number
            table.put(b"a", {b"cf:v": value}, timestamp=number + 1)
            with table.batch(timestamp=number + 1) as batch:
                batch.put(b"b", {b"cf:v": value})
                batch.put(b"x", {b"cf:v": value})
            assert table.row(b"a") == {b"cf:v": value}
            assert table.rows([b"a", b"b", b"x"]) == [(row, {b"cf:v": value}) for row in (b"a", b"b", b"x")]
            assert [row[b"cf:v"] for _, row in table.scan()] == [value] * 3
        assert table.counter_inc(b"a", b"cf:n") == 1
        table.delete(b"b")
        assert table.row(b"b") == {}
        assert table.check_and_put(b"c", b"cf:v", None, {b"cf:v": b"new"})
        assert table.row(b"c") == {b"cf:v": b"new"}
        assert session.stats()["replica"] == 0


def test_reads_never_go_back_from_what_the_session_has_seen(connection: Connection, name: str) -> None:
    writer = connection.table(name)
    with connection.session() as session:
        table = session.table(name)
        for number in range(20):
            writer.put(b"a", {b"cf:v": b"%d" % number}, timestamp=number + 1)
            fresh = table.row(b"a", consistency="STRONG")[b"cf:v"]
            seen = [table.row(b"a")[b"cf:v"] for _ in range(3)]
            assert [fresh, *seen] == [b"%d" % number] * 4


def test_token_is_honoured_by_the_connection_of_another_backend(
    connection: Connection, name: str, served: FakeCluster
) -> None:
    with connection.session() as session:
        session.table(name).put(b"a", {b"cf:v": b"1"})
        token = session.token()
    for url in URLS.values():
        with metaclient.connect(url.format(served)) as other, other.session(token=token) as continued:
            assert [continued.table(name).row(b"a") for _ in range(5)] == [{b"cf:v": b"1"}] * 5
