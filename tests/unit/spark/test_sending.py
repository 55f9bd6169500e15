"""Sending many mutations: batches, the number on their way, the rate, and what cannot be written. On virtual time."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from adapters.fake import FakeCluster
from metaclient import BatchError, Connection, MetaClientError
from metaclient.errors import RegionTooBusy
from metaclient.model import Cell, CellType, Delete, Increment, Put
from metaclient.runtime import SimRuntime
from spark_connector.sending import BATCHES_BUFFERED, Sender, bytes_of_mutation, cells_of_mutation


@pytest.fixture
def cluster() -> Iterator[FakeCluster]:
    with SimRuntime(seed=5) as runtime, FakeCluster(servers=3, meta_replicas=3, runtime=runtime) as made:
        yield made


@pytest.fixture
def connection(cluster: FakeCluster) -> Iterator[Connection]:
    with cluster.connect() as made:
        made.create_table("t", {"cf": {"max_versions": 10}}, splits=[b"3", b"6"])
        made.warm_up("t")
        yield made


class Calls:
    """Every batch that reaches the backend: rows, server, and how many were on their way at that moment."""

    def __init__(self, connection: Connection, monkeypatch: pytest.MonkeyPatch, takes_s: float = 0.0) -> None:
        self.rows: list[list[bytes]] = []
        self.servers: list[object] = []
        self.at: list[float] = []
        self.running = self.running_max = 0
        backend, runtime = connection._backend, connection._runtime
        real = backend.batch

        def batch(server, table, actions, deadline):  # type: ignore[no-untyped-def]  # the SPI's
            self.rows.append([action.operation.row for action in actions])
            self.servers.append(server)
            self.at.append(runtime.now())
            self.running += 1
            self.running_max = max(self.running, self.running_max)
            try:
                runtime.sleep(takes_s)
                return real(server, table, actions, deadline)
            finally:
                self.running -= 1

        monkeypatch.setattr(connection._operations.backend, "batch", batch)


def put(number: int, size: int = 10, timestamp: int = 7) -> Put:
    return Put(b"%03d" % number, (Cell(b"cf:a", timestamp, b"x" * size),))


def test_a_batch_goes_to_one_server_and_has_so_many_rows(
    connection: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = Calls(connection, monkeypatch)
    with Sender(connection, b"t", batch_rows=50) as sender:
        for number in range(900):
            sender.add(put((number * 7) % 900))
    assert sender.sent.rows == sender.sent.cells == 900
    assert sender.sent.batches == len(calls.rows) == 18
    assert all(len(rows) == 50 for rows in calls.rows)
    for rows, server in zip(calls.rows, calls.servers, strict=True):
        assert {connection.locate("t", row).server for row in rows} == {server}
    assert sum(1 for _ in connection.table("t").scan()) == 900


def test_rows_without_order_are_sent_region_by_region(connection: Connection, monkeypatch: pytest.MonkeyPatch) -> None:
    """A server writes its log once for each region of a call."""
    calls = Calls(connection, monkeypatch)
    with Sender(connection, b"t", batch_rows=100) as sender:
        sender.extend(put((number * 7) % 900) for number in range(900))
    regions = [{connection.locate("t", row).region.start_key for row in rows} for rows in calls.rows]
    assert sum(map(len, regions)) <= len(calls.rows) + 2  # at most one batch a server has rows of two
    assert all(rows == sorted(rows) for rows in calls.rows)


def test_two_of_one_row_keep_their_order(connection: Connection) -> None:
    with Sender(connection, b"t", batch_rows=50) as sender:
        for number in range(20):
            sender.add(Put(b"5", (Cell(b"cf:a", 7, b"%d" % number),)))
            sender.add(put(number))
    assert connection.table("t").row(b"5") == {b"cf:a": b"19"}


def test_batches_are_sent_while_the_next_are_collected(connection: Connection, monkeypatch: pytest.MonkeyPatch) -> None:
    """After each cut, one for each batch's worth that is taken."""
    calls = Calls(connection, monkeypatch)
    sent_after = []
    with Sender(connection, b"t", batch_rows=10, concurrency=1) as sender:
        for number in range(160):
            sender.add(put((number * 7) % 900))
            sent_after.append(len(calls.rows))
    assert sent_after[BATCHES_BUFFERED * 10 - 1] == 0
    steps = [sent_after[10 * worth - 1] - sent_after[10 * worth - 11] for worth in range(BATCHES_BUFFERED + 1, 13)]
    assert steps == [1] * len(steps)
    assert sum(map(len, calls.rows)) == 160


def test_a_batch_is_sent_when_it_has_enough_bytes(connection: Connection, monkeypatch: pytest.MonkeyPatch) -> None:
    calls = Calls(connection, monkeypatch)
    with Sender(connection, b"t", batch_rows=1000, batch_bytes=10_000) as sender:
        for number in range(100):
            sender.add(put(number, size=1000))
    assert max(map(len, calls.rows)) == 10
    assert sender.sent.bytes == sum(bytes_of_mutation(put(number, size=1000)) for number in range(100))


def test_memory_is_bounded_by_some_batches(cluster: FakeCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    """More servers than batches may wait: some are sent before they are full, and most not much before."""
    for _ in range(17):
        cluster.add_server()
    with cluster.connect() as connection:
        connection.create_table("wide", {"cf": {}}, splits=[b"%03d" % (number * 10) for number in range(1, 20)])
        connection.warm_up("wide")
        calls = Calls(connection, monkeypatch)
        with Sender(connection, b"wide", batch_rows=10) as sender:
            for number in range(200):
                sender.add(put((number * 10) % 200 + number // 20))
                ready = sum(len(batch.waiting) for batch in sender._ready)
                assert len(sender._waiting) <= BATCHES_BUFFERED * 10
                assert len(sender._waiting) + ready <= 2 * BATCHES_BUFFERED * 10
        assert sum(map(len, calls.rows)) == 200
        assert len(calls.rows) < 100


def test_so_many_batches_are_on_their_way(connection: Connection, monkeypatch: pytest.MonkeyPatch) -> None:
    calls = Calls(connection, monkeypatch, takes_s=1.0)
    with Sender(connection, b"t", batch_rows=10, concurrency=3) as sender:
        for number in range(300):
            sender.add(put(number))
    assert calls.running_max == 3


def test_one_at_a_time_needs_no_thread(connection: Connection, monkeypatch: pytest.MonkeyPatch) -> None:
    calls = Calls(connection, monkeypatch, takes_s=1.0)
    with Sender(connection, b"t", batch_rows=10, concurrency=1) as sender:
        for number in range(60):
            sender.add(put(number))
    assert calls.running_max == 1


def test_rate_is_kept_on_average(connection: Connection, monkeypatch: pytest.MonkeyPatch) -> None:
    calls = Calls(connection, monkeypatch)
    begun = connection._runtime.now()
    with Sender(connection, b"t", batch_rows=100, bytes_per_s=10_000.0) as sender:
        for number in range(300):
            sender.add(put(number, size=1000))
    taken = connection._runtime.now() - begun
    before_last = sender.sent.bytes - len(calls.rows[-1]) * bytes_of_mutation(put(0, size=1000))
    assert taken >= before_last / 10_000.0  # the last batch is sent, and not waited for
    assert taken <= sender.sent.bytes / 10_000.0 + 1.0


def test_rows_that_a_region_refuses_are_tried_again(connection: Connection, monkeypatch: pytest.MonkeyPatch) -> None:
    backend, real = connection._operations.backend, connection._operations.backend.batch
    refusals = iter([True, True])

    def batch(server, table, actions, deadline):  # type: ignore[no-untyped-def]  # the SPI's
        outcomes = list(real(server, table, actions, deadline))
        if next(refusals, False):
            outcomes[0] = RegionTooBusy("over memstore limit")
        return outcomes

    monkeypatch.setattr(backend, "batch", batch)
    with Sender(connection, b"t") as sender:
        for number in range(10):
            sender.add(put(number))
    assert sender.sent.retries >= 1
    assert sum(1 for _ in connection.table("t").scan()) == 10


def test_a_region_that_moved_costs_a_lookup_and_no_row(cluster: FakeCluster, connection: Connection) -> None:
    for entry in connection.regions("t"):
        server = entry.primary.server.host
        other = next(name for name in cluster.servers() if name != server)
        cluster.move(entry.region.encoded_name, other)
    with Sender(connection, b"t", batch_rows=50) as sender:
        for number in range(900):
            sender.add(put(number))
    assert sum(1 for _ in connection.table("t").scan()) == 900


def test_rows_that_cannot_be_written_are_named(connection: Connection) -> None:
    sender = Sender(connection, b"t", batch_rows=10)
    with pytest.raises(BatchError, match=r"could not be written: '010'.*NoSuchFamily") as raised, sender:
        for number in range(30):
            column = b"no:a" if number == 10 else b"cf:a"
            sender.add(Put(b"%03d" % number, (Cell(column, 7, b"1"),)))
    assert set(raised.value.failed) == {b"010"}
    assert not sender._running


def test_an_error_of_the_caller_is_not_hidden_and_sends_no_rest(connection: Connection) -> None:
    with pytest.raises(ZeroDivisionError), Sender(connection, b"t") as sender:
        sender.add(put(1))
        raise ZeroDivisionError
    assert sender.sent.rows == 0
    assert not list(connection.table("t").scan())


def test_the_same_cells_again_are_one_version(connection: Connection) -> None:
    """A task that runs twice writes the same timestamps."""
    for _ in range(3):
        with Sender(connection, b"t") as sender:
            for number in range(20):
                sender.add(put(number, timestamp=1234))
    assert connection.table("t").cells(b"007", "cf:a", include_timestamp=True) == [(b"x" * 10, 1234)]


def test_a_server_that_dies_meanwhile_costs_no_row(cluster: FakeCluster, connection: Connection) -> None:
    with Sender(connection, b"t", batch_rows=20) as sender:
        for number in range(400):
            if number == 200:
                cluster.kill(connection.locate("t", b"100").server.host)
            sender.add(put(number))
    assert sum(1 for _ in connection.table("t").scan()) == 400


def test_sizes_of_mutations() -> None:
    delete = Delete(b"row", (Cell(b"cf:a", 1, b"", CellType.DELETE_COLUMN),))
    assert (cells_of_mutation(delete), cells_of_mutation(Delete(b"row"))) == (1, 1)
    assert cells_of_mutation(Increment(b"r", ((b"cf:a", 1), (b"cf:b", 2)))) == 2
    assert bytes_of_mutation(Delete(b"row")) > 3
    assert bytes_of_mutation(put(1, size=100)) == bytes_of_mutation(put(1, size=0)) + 100


def test_a_closed_connection_ends_the_write(connection: Connection) -> None:
    sender = Sender(connection, b"t")
    sender.add(put(1))
    connection.close()
    with pytest.raises(MetaClientError):
        sender.flush()
