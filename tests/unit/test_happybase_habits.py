"""What happybase programs do beyond its documentation: empty puts, closed and opened connections, closed pools."""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from typing import Any

import happybase  # noqa: F401  # it makes the module Hbase_thrift
import Hbase_thrift
import pytest
from thriftpy2.thrift import TException
from thriftpy2.transport import TTransportException

import metaclient
from metaclient.errors import ServerUnreachable
from metaclient.testing import FakeCluster
from metaclient_fake.front import thrift1


@pytest.fixture(scope="module")
def served() -> Iterator[FakeCluster]:
    with FakeCluster(servers=2) as cluster:
        cluster.serve(rpc_port=0)
        with cluster.connect() as connection:
            connection.create_table("t", {"cf": {"max_versions": 3}, "d": {}})
        yield cluster


@pytest.fixture(params=["thrift1", "thrift2", "hbase+rpc"])
def url(served: FakeCluster, request: pytest.FixtureRequest) -> str:
    scheme: str = request.param
    port = {"thrift1": served.thrift1_port, "thrift2": served.thrift2_port, "hbase+rpc": served.rpc_port}[scheme]
    return f"{scheme}://127.0.0.1:{port}"


@pytest.fixture
def connection(url: str) -> Iterator[metaclient.Connection]:
    with metaclient.connect(url) as made:
        yield made


def test_put_without_columns_writes_nothing(connection: metaclient.Connection) -> None:
    table = connection.table("t")
    table.put(b"empty", {})
    with table.batch() as batch:
        batch.put(b"empty", {})
    assert table.row(b"empty") == {}
    with pytest.raises(ValueError, match="row"):
        table.put(b"", {})


def test_cells_of_a_family_are_the_versions_of_its_columns(connection: metaclient.Connection) -> None:
    table = connection.table("t")
    for stamp in (5, 6):
        table.put(b"versions", {b"cf:a": b"a%d" % stamp, b"cf:b": b"b%d" % stamp}, timestamp=stamp)
    assert table.cells(b"versions", b"cf", versions=2) == [b"a6", b"a5", b"b6", b"b5"]
    assert table.cells(b"versions", b"cf", versions=2, timestamp=6) == [b"a5", b"b5"]


def test_closed_connection_is_opened_again_with_its_tables(url: str) -> None:
    connection = metaclient.connect(url)
    table, batch = connection.table("t"), connection.table("t").batch()
    table.put(b"again", {b"cf:a": b"1"})
    connection.close()
    with pytest.raises(metaclient.ConnectionClosed, match=r"open\(\) it, or make a new one"):
        table.row(b"again")
    connection.open()
    connection.open()
    assert table.row(b"again") == {b"cf:a": b"1"}
    batch.put(b"again", {b"cf:a": b"2"})
    batch.send()
    assert connection.table("t").row(b"again") == {b"cf:a": b"2"}
    assert connection.locate("t", b"again").server
    connection.close()


def test_open_of_a_closed_connection_fails_like_the_first_open() -> None:
    cluster = FakeCluster(servers=1)
    cluster.serve()
    connection = metaclient.Connection("127.0.0.1", cluster.thrift1_port, operation_timeout_s=2.0)
    connection.close()
    cluster.close()
    for _ in range(2):
        with pytest.raises((ServerUnreachable, metaclient.RetriesExhausted)):
            connection.open()
    connection.close()


def test_user_who_closes_a_borrowed_connection_does_not_end_the_pool(url: str) -> None:
    with metaclient.ConnectionPool(2, url=url) as pool:
        with pool.connection() as connection:
            connection.close()
        with pool.connection() as connection, connection:
            connection.table("t").put(b"pool", {b"cf:a": b"1"})
        with pool.connection() as connection:
            assert connection.table("t").row(b"pool") == {b"cf:a": b"1"}
    with pytest.raises(metaclient.ConnectionClosed):
        connection.tables()


@pytest.mark.parametrize("timeout", [0, None])
def test_timeout_zero_is_no_timeout_of_the_program(timeout: Any) -> None:
    with metaclient.Connection(url="scripted:", timeout=timeout) as connection:
        assert connection.config.rpc_timeout_s == metaclient.Config().rpc_timeout_s


def test_increments_of_a_batch_are_summed_and_follow_its_puts(connection: metaclient.Connection) -> None:
    table = connection.table("t")
    row = b"counters of " + connection.url.encode()
    with table.batch() as batch:
        batch.put(row, {b"d:name": b"x"})
        for _ in range(3):
            batch.counter_inc(row, b"d:n", 2)
        batch.counter_dec(row, b"d:n")
        batch.counter_inc(row, b"d:m")
    assert table.counter_get(row, b"d:n") == 5
    assert table.row(row)[b"d:m"] == b"\0" * 7 + b"\1"
    assert table.row(row)[b"d:name"] == b"x"
    with table.batch(batch_size=2) as batch:
        for _ in range(5):
            batch.counter_inc(row, b"d:n")
    assert table.counter_get(row, b"d:n") == 10


def test_increment_that_may_be_applied_is_not_sent_again(monkeypatch: pytest.MonkeyPatch) -> None:
    with metaclient.connect("scripted:") as connection:
        connection.create_table("t", {"d": {}})
        table = connection.table("t")
        batch = table.batch()
        batch.counter_inc(b"r", b"d:n")
        batch.put(b"r", {b"d:a": b"1"})
        late = metaclient.errors.CallTimeout("late", may_have_applied=True)
        with monkeypatch.context() as patch:
            patch.setattr(connection.engine, "batch", lambda table, actions: [late] * len(actions))
            with pytest.raises(metaclient.BatchError):
                batch.send()
        batch.send()
        assert table.row(b"r") == {b"d:a": b"1"}


def test_version_is_ordered_by_its_numbers() -> None:
    assert "0.0.9" < metaclient.__version__ < "99.0"
    assert metaclient.__version__ >= "0.1"
    assert isinstance(metaclient.__version__, str)


@pytest.mark.parametrize("text", ["PrefixFilter('a' AND x", "PrefixFiler('a')"])
def test_filter_that_does_not_parse_is_shown_with_its_place(connection: metaclient.Connection, text: str) -> None:
    table = connection.table("t")
    calls = [
        lambda: list(table.scan(filter=text)),
        lambda: table.row(b"r", filter=text),
        lambda: table.to_arrow(filter=text),
    ]
    for call in calls:
        with pytest.raises(metaclient.MetaClientError, match=r"byte [0-9]+ of the filter, .*<here>"):
            call()  # type: ignore[no-untyped-call]


# -- Thrift 1: happybase's errors and its client --------------------------------------------------------------------


@pytest.fixture
def program(served: FakeCluster) -> Iterator[metaclient.Connection]:
    """The connection of a happybase program whose import was changed."""
    with metaclient.Connection("127.0.0.1", served.thrift1_port) as connection:
        yield connection


def test_errors_of_happybase_catch_ours(program: metaclient.Connection) -> None:
    with pytest.raises(Hbase_thrift.AlreadyExists) as exists:
        program.create_table("t", {"cf": {}})
    assert isinstance(exists.value, metaclient.TableExists)
    missing = program.table("missing")
    calls = [
        lambda: missing.row(b"r"),
        lambda: missing.put(b"r", {b"cf:a": b"1"}),
        lambda: missing.rows([b"r"]),
        lambda: list(missing.scan()),
        lambda: program.disable_table("missing"),
        lambda: program.table("t").put(b"r", {b"nofamily:a": b"1"}),
    ]
    for call in calls:
        with pytest.raises(Hbase_thrift.IOError) as caught:
            call()  # type: ignore[no-untyped-call]
        assert isinstance(caught.value, metaclient.MetaClientError)
        assert str(caught.value) == caught.value.message != ""
        assert repr(caught.value).startswith(type(caught.value).__name__ + "(")
    batch = missing.batch()
    batch.put(b"r", {b"cf:a": b"1"})
    with pytest.raises(TException) as failed:
        batch.send()
    assert isinstance(failed.value, metaclient.BatchError)


def test_illegal_argument_of_a_gateway_is_happybases(monkeypatch: pytest.MonkeyPatch) -> None:
    """A gateway that refuses an argument which this client accepts."""

    def refuse(self: object, *arguments: object) -> None:
        raise thrift1.T.IllegalArgument(message="java.lang.IllegalArgumentException: KeyValue size too large")

    for call in ("mutateRow", "mutateRows"):
        monkeypatch.setattr(thrift1.Thrift1Handler, call, refuse)
    with FakeCluster(servers=1) as cluster:
        cluster.serve()
        with metaclient.Connection("127.0.0.1", cluster.thrift1_port) as program:
            program.create_table("t", {"cf": {}})
            with pytest.raises(Hbase_thrift.IllegalArgument, match="KeyValue size too large") as caught:
                program.table("t").put(b"r", {b"cf:a": b"1"})
            assert isinstance(caught.value, metaclient.MetaClientError)
            assert isinstance(caught.value, TException)
            with pytest.raises(Hbase_thrift.IllegalArgument):
                program.client.createTable(b"u", [Hbase_thrift.ColumnDescriptor(name=b":")])


def test_error_of_happybase_survives_pickle(program: metaclient.Connection) -> None:
    with pytest.raises(Hbase_thrift.AlreadyExists) as caught:
        program.create_table("t", {"cf": {}})
    again = pickle.loads(pickle.dumps(caught.value))
    assert type(again) is type(caught.value)
    assert str(again) == str(caught.value)


def test_unreachable_gateway_is_a_transport_exception() -> None:
    with pytest.raises(TTransportException) as caught:
        metaclient.Connection("127.0.0.1", 1, operation_timeout_s=1.0)
    assert isinstance(caught.value, metaclient.MetaClientError)


def test_errors_of_other_backends_are_none_of_thrift(served: FakeCluster) -> None:
    with (
        metaclient.connect(f"thrift2://127.0.0.1:{served.thrift2_port}") as connection,
        pytest.raises(metaclient.TableExists) as caught,
    ):
        connection.create_table("t", {"cf": {}})
    assert not isinstance(caught.value, TException)


def test_bare_calls_of_thrift_by_the_client(program: metaclient.Connection) -> None:
    client = program.client
    assert b"t" in client.getTableNames()
    client.mutateRow(b"t", b"bare", [Hbase_thrift.Mutation(column=b"cf:a", value=b"1")], {})
    (row,) = client.getRow(tableName=b"t", row=b"bare", attributes={})
    assert row.columns[b"cf:a"].value == b"1"
    with pytest.raises(Hbase_thrift.IOError):
        client.getRow(b"missing", b"bare", {})
    with pytest.raises(AttributeError, match="Thrift 1 has no call 'getRowz'"):
        _ = client.getRowz
    with pytest.raises(TypeError, match="takes the arguments tableName, row, attributes"):
        client.getRow(b"t", b"bare", {}, 5)


def test_transport_and_refreshed_client(program: metaclient.Connection) -> None:
    assert program.transport.is_open()
    program._refresh_thrift_client()
    assert not program.transport.is_open()
    program.open()
    assert program.transport.is_open()
    assert b"t" in program.tables()


def test_client_of_another_backend_names_the_url() -> None:
    with (
        metaclient.connect("scripted:") as connection,
        pytest.raises(metaclient.Unsupported, match="needs thrift1://host:port"),
    ):
        _ = connection.client
