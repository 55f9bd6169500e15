"""Users of the fake and their rights: in the process and over HBase's RPC, the same calls are refused."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

import metaclient
from metaclient import AccessDenied, BatchError, ConfigError, Connection
from metaclient_fake import FakeCluster

Connect = Callable[[str], Connection]


@pytest.fixture(params=["process", "rpc"])
def connect(request: pytest.FixtureRequest) -> Iterator[Connect]:
    """Connects a user to a cluster with the tables ``t`` and ``other``, where bob may read and write ``t``."""
    opened: list[Connection] = []
    with FakeCluster(servers=2) as cluster:
        front = cluster.serve(thrift1_port=None, thrift2_port=None, rpc_port=0, is_secure=True)
        with cluster.connect() as connection:
            for name in ("t", "other"):
                connection.create_table(name, {"f": {}})
                connection.table(name).put(b"r", {b"f:q": b"1"})

        def made(user: str) -> Connection:
            if request.param == "process":
                connection = cluster.connect(user=user)
            else:
                connection = metaclient.connect(front.rpc_url, open_timeout_s=60, token=front.issue_token(user))
            opened.append(connection)
            return connection

        cluster.grant("bob", "RW", "t")
        cluster.grant("reader", "R", "t")
        cluster.grant("carol", "RWC", "@shop")
        cluster.grant("carol", "C", "mine")
        cluster.create_namespace("shop")
        yield made
        for one in opened:
            one.close()


READS = {
    "get": lambda connection: connection.table("other").row(b"r"),
    "scan": lambda connection: list(connection.table("other").scan()),
}
WRITES = {
    "put": lambda connection: connection.table("other").put(b"r", {b"f:q": b"2"}),
    "delete": lambda connection: connection.table("other").delete(b"r"),
    "increment": lambda connection: connection.table("other").counter_inc(b"r", b"f:n"),
}
CHANGES = {
    "create": lambda connection: connection.create_table("new", {"f": {}}),
    "disable": lambda connection: connection.disable_table("other"),
    "truncate": lambda connection: connection.truncate_table("other"),
    "alter": lambda connection: connection.alter_table("other", families={"g": {}}),
    "describe": lambda connection: connection.describe_table("other"),
    "namespace": lambda connection: connection.create_namespace("never"),
}


@pytest.mark.parametrize(
    ("call", "right"),
    [
        *((call, "R") for call in READS.values()),
        *((call, "W") for call in WRITES.values()),
        *((call, "[CA]") for call in CHANGES.values()),
    ],
    ids=[*READS, *WRITES, *CHANGES],
)
def test_call_without_the_right_is_final_and_names_the_grant(
    connect: Connect, call: Callable[[Connection], object], right: str
) -> None:
    with pytest.raises(AccessDenied, match=rf"user=bob.*grant 'bob', '{right}'") as caught:
        call(connect("bob"))
    assert not caught.value.may_have_applied
    assert len(caught.value.attempts) <= 1
    assert len(str(caught.value).splitlines()) == 1


def test_granted_user_reads_writes_and_sees_only_its_table(connect: Connect) -> None:
    bob = connect("bob")
    table = bob.table("t")
    table.put(b"a", {b"f:q": b"1"})
    assert [row for row, _ in table.scan()] == [b"a", b"r"]
    assert bob.tables() == [b"t"]
    assert bob.whoami().username == "bob"
    assert connect("stranger").tables() == []


def test_batch_names_the_rows_that_were_refused_and_does_the_others(connect: Connect) -> None:
    with pytest.raises(BatchError) as caught, connect("reader").table("t").batch() as batch:
        batch.put(b"a", {b"f:q": b"1"})
        batch.delete(b"b")
    assert {row: type(error) for row, error in caught.value.failed.items()} == {b"a": AccessDenied, b"b": AccessDenied}
    assert not caught.value.may_have_applied
    assert [row for row, _ in connect("reader").table("t").scan()] == [b"r"]


def test_reads_of_a_user_that_may_not_write_go_on_after_a_refusal(connect: Connect) -> None:
    table = connect("reader").table("t")
    with pytest.raises(AccessDenied):
        table.put(b"a", {b"f:q": b"1"})
    assert table.row(b"r") == {b"f:q": b"1"}
    assert [row for row, _ in table.rows([b"r"])] == [b"r"]


def test_creator_owns_its_table_and_a_namespace_covers_its_tables(connect: Connect) -> None:
    carol = connect("carol")
    for name in ("mine", "shop:orders"):
        carol.create_table(name, {"f": {}})
        carol.table(name).put(b"r", {b"f:q": b"1"})
        carol.disable_table(name)
        carol.delete_table(name)
    with pytest.raises(AccessDenied, match="scope=theirs"):
        carol.create_table("theirs", {"f": {}})


def test_revoked_right_is_gone_for_open_connections() -> None:
    with FakeCluster(servers=1) as cluster:
        cluster.grant("bob", "RWCA")
        with cluster.connect(user="bob") as connection:
            connection.create_table("t", {"f": {}})
            cluster.revoke("bob")
            connection.table("t").put(b"a", {b"f:q": b"1"})  # the owner's right is left
            cluster.revoke("bob", "t")
            with pytest.raises(AccessDenied):
                connection.table("t").put(b"a", {b"f:q": b"1"})


def test_without_a_grant_every_user_may_do_everything_and_superusers_always() -> None:
    with FakeCluster(servers=1) as cluster:
        with cluster.connect(user="bob") as bob:
            bob.create_table("t", {"f": {}})
            cluster.grant("alice", "R", "t")
            with pytest.raises(AccessDenied):
                bob.table("t").row(b"r")
        for user in (None, "hbase"):
            with cluster.connect(user=user) as connection:
                connection.table("t").put(b"r", {b"f:q": b"1"})


@pytest.mark.parametrize(
    ("user", "rights", "text"), [("bob", "Q", "'Q' in 'Q' is no right"), ("bob", "", "RWXCA"), ("", "R", "a user")]
)
def test_bad_grant_is_refused(user: str, rights: str, text: str) -> None:
    with FakeCluster(servers=1) as cluster, pytest.raises(ConfigError, match=text):
        cluster.grant(user, rights, "t")
