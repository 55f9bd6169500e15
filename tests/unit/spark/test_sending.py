"""Sending many mutations: batches, the number on their way, the rate, and what cannot be written. On virtual time."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from random import Random

import pytest

pytest.importorskip("pyarrow", reason="needs the extra 'spark'")

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from metaclient import BatchError, Connection, MetaClientError
from metaclient.backend import PutPage
from metaclient.errors import RegionTooBusy
from metaclient.model import Cell, CellType, Delete, Increment, Put
from metaclient.runtime import SimRuntime
from metaclient_fake import FakeCluster
from spark_connector.writing.loads import Mutations, Page, bytes_of_mutation, cells_of_mutation
from spark_connector.writing.sending import BATCHES_BUFFERED, Sender
from tests.unit.pages import put_pages


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

        monkeypatch.setattr(connection.engine.operations.backend, "batch", batch)


def put(number: int, size: int = 10, timestamp: int = 7) -> Put:
    return Put(b"%03d" % number, (Cell(b"cf:a", timestamp, b"x" * size),))


def page(puts: Sequence[Put]) -> PutPage:
    """Puts of one cell each."""
    binary = pa.large_binary()
    cells = [one.cells[0] for one in puts]
    return PutPage(
        pa.array([one.row for one in puts], binary),
        pa.array([cell.timestamp for cell in cells], pa.int64()),
        (b"cf:a",),
        (pa.array([cell.value for cell in cells], binary),),
    )


def one_by_one(sender: Sender, puts: Sequence[Put]) -> None:
    sender.extend(puts)


def by_pages(sender: Sender, puts: Sequence[Put]) -> None:
    for begin in range(0, len(puts), 130):
        sender.extend_page(page(puts[begin : begin + 130]))


def in_turns(sender: Sender, puts: Sequence[Put]) -> None:
    for begin in range(0, len(puts), 130):
        (by_pages if begin % 260 else one_by_one)(sender, puts[begin : begin + 130])


Give = Callable[[Sender, Sequence[Put]], None]
shapes = pytest.mark.parametrize("give", [one_by_one, by_pages])


@shapes
def test_a_batch_goes_to_one_server_and_has_so_many_rows(
    connection: Connection, monkeypatch: pytest.MonkeyPatch, give: Give
) -> None:
    calls = Calls(connection, monkeypatch)
    with Sender(connection, b"t", batch_rows=50) as sender:
        give(sender, [put((number * 7) % 900) for number in range(900)])
    assert sender.sent.rows == sender.sent.cells == 900
    assert sender.sent.batches == len(calls.rows) == 18
    assert all(len(rows) == 50 for rows in calls.rows)
    for rows, server in zip(calls.rows, calls.servers, strict=True):
        assert {connection.locate("t", row).server for row in rows} == {server}
    assert sum(1 for _ in connection.table("t").scan()) == 900


def test_pages_and_mutations_together_are_all_sent(connection: Connection) -> None:
    puts = [put((number * 7) % 900) for number in range(900)]
    with Sender(connection, b"t", batch_rows=50) as sender:
        in_turns(sender, puts)
    assert sender.sent.rows == sender.sent.cells == 900
    assert sender.sent.bytes == sum(map(bytes_of_mutation, puts))
    assert sum(1 for _ in connection.table("t").scan()) == 900


@shapes
def test_rows_without_order_are_sent_region_by_region(
    connection: Connection, monkeypatch: pytest.MonkeyPatch, give: Give
) -> None:
    """A server writes its log once for each region of a call."""
    calls = Calls(connection, monkeypatch)
    with Sender(connection, b"t", batch_rows=100) as sender:
        give(sender, [put((number * 7) % 900) for number in range(900)])
    regions = [{connection.locate("t", row).region.start_key for row in rows} for rows in calls.rows]
    assert sum(map(len, regions)) <= len(calls.rows) + 2  # at most one batch a server has rows of two
    assert all(rows == sorted(rows) for rows in calls.rows)


@shapes
def test_two_of_one_row_keep_their_order(connection: Connection, give: Give) -> None:
    with Sender(connection, b"t", batch_rows=50) as sender:
        for number in range(20):
            give(sender, [Put(b"5", (Cell(b"cf:a", 7, b"%d" % number),)), put(number)])
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


@shapes
def test_a_batch_is_sent_when_it_has_enough_bytes(
    connection: Connection, monkeypatch: pytest.MonkeyPatch, give: Give
) -> None:
    calls = Calls(connection, monkeypatch)
    with Sender(connection, b"t", batch_rows=1000, batch_bytes=10_000) as sender:
        give(sender, [put(number, size=1000) for number in range(100)])
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
                ready = sum(map(len, sender._ready))
                assert len(sender._mutations) <= BATCHES_BUFFERED * 10
                assert len(sender._mutations) + ready <= 2 * BATCHES_BUFFERED * 10
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
    backend, real = connection.engine.operations.backend, connection.engine.operations.backend.batch
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


@shapes
def test_a_region_that_moved_costs_a_lookup_and_no_row(
    cluster: FakeCluster, connection: Connection, give: Give
) -> None:
    for entry in connection.regions("t"):
        server = entry.primary.server.host
        other = next(name for name in cluster.servers() if name != server)
        cluster.move(entry.region.encoded_name, other)
    with Sender(connection, b"t", batch_rows=50) as sender:
        give(sender, [put(number) for number in range(900)])
    assert sum(1 for _ in connection.table("t").scan()) == 900


def test_rows_that_cannot_be_written_are_named(connection: Connection) -> None:
    sender = Sender(connection, b"t", batch_rows=10)
    with pytest.raises(BatchError, match=r"could not be written: '010'.*NoSuchFamily") as raised, sender:
        for number in range(30):
            column = b"no:a" if number == 10 else b"cf:a"
            sender.add(Put(b"%03d" % number, (Cell(column, 7, b"1"),)))
    assert set(raised.value.failed) == {b"010"}
    assert not sender._running


def test_rows_of_a_page_that_cannot_be_written_are_named(connection: Connection) -> None:
    wrong = page([put(number) for number in range(30)])
    sender = Sender(connection, b"t", batch_rows=10)
    with (
        pytest.raises(BatchError, match=r"10 of 10 rows .*could not be written: '0.0'.*NoSuchFamily") as raised,
        sender,
    ):
        sender.extend_page(PutPage(wrong.rows, wrong.timestamps, (b"no:a",), wrong.values))
    assert len(raised.value.failed) == 10
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


@given(put_pages(), st.randoms(use_true_random=False), st.integers(1, 4), st.integers(1, 500))
def test_pages_are_sorted_cut_and_counted_as_mutations_are(
    ordered: PutPage, random: Random, rows: int, byte_count: int
) -> None:
    order = list(range(len(ordered)))
    random.shuffle(order)
    shuffled = ordered.changed(lambda array: array.take(pa.array(order, pa.int64())))
    puts = shuffled.puts()
    mutations = Mutations()
    for one in puts:
        mutations.add(one)
    halves = [Page(shuffled.part(0, len(puts) // 2)), Page(shuffled.part(len(puts) // 2, len(puts)))]
    loads = (mutations, Page(shuffled), halves[0].joined(halves[1:]))
    for load in loads:
        assert len(load) == len(puts)
        assert load.byte_count == sum(map(bytes_of_mutation, puts))
        assert load.cell_count == sum(map(cells_of_mutation, puts))
    in_order = [load.sorted() for load in loads]
    for load in in_order:
        assert [load.rows()[index] for index in range(len(load))] == sorted(one.row for one in puts)
    begin = 0
    while begin < len(puts):
        (end,) = {load.until(begin, rows, byte_count) for load in in_order}
        assert begin < end <= begin + rows
        assert len({load.part(begin, end).byte_count for load in in_order}) == 1
        begin = end


def test_a_closed_connection_ends_the_write(connection: Connection) -> None:
    sender = Sender(connection, b"t")
    sender.add(put(1))
    connection.close()
    with pytest.raises(MetaClientError):
        sender.flush()
