"""``ReplicateWALEntry`` at the fake's front: the entries reach the server's sink, and errors have HBase's classes."""

from collections.abc import Callable, Iterator, Sequence

import pytest

from metaclient.errors import TableNotFound
from metaclient.model import Cell, FamilyDescriptor, TableDescriptor
from metaclient.replication_peers import SinkLoad
from metaclient.wire.rpc import framing
from metaclient.wire.rpc.replication import ShippedEntry, WalKey, encode_replicate
from metaclient_fake import FakeCluster
from metaclient_fake.front.serving import Front
from tests.unit.fake_rpc.test_rpc import Client, place_of

ENTRY = ShippedEntry(
    WalKey("0" * 32, b"t", 4, 1000, ((b"f", 1),)), ((b"r", Cell(b"f:q", 7, b"v")), (b"s", Cell(b"f:q", 7, b"w")))
)


class RecordingSink:
    def __init__(self) -> None:
        self.batches: list[list[ShippedEntry]] = []
        self.failed = 0
        self.error: Exception | None = None
        self.on_apply: Callable[[], None] = lambda: None

    def apply(self, entries: Sequence[ShippedEntry]) -> None:
        self.on_apply()
        if self.error is not None:
            raise self.error
        self.batches.append(list(entries))

    def count_failed(self) -> None:
        self.failed += 1

    def load(self) -> SinkLoad:
        return SinkLoad(edits_applied=len(self.batches))


@pytest.fixture
def cluster() -> Iterator[FakeCluster]:
    with FakeCluster(servers=1, meta_replicas=1) as made:
        made.serve(thrift1_port=None, thrift2_port=None, rpc_port=0)
        made.create_table(TableDescriptor(b"t", (FamilyDescriptor(b"f"),)), [])
        yield made


@pytest.fixture
def sink(cluster: FakeCluster) -> RecordingSink:
    made = RecordingSink()
    cluster.servers_by_host["rs1"].replication_sink = made
    return made


def _ship(cluster: FakeCluster, param: bytes, cells: bytes) -> framing.Response:
    front = cluster.front
    assert isinstance(front, Front)
    _, port = place_of(front, b"r")
    with Client(port, "AdminService") as client:
        return client.call("ReplicateWALEntry", param, cells)


def test_entries_reach_the_sink_in_order_and_the_answer_is_empty(cluster: FakeCluster, sink: RecordingSink) -> None:
    answer = _ship(cluster, *encode_replicate([ENTRY, ENTRY._replace(cells=())]))

    assert (answer.exception, answer.param) == (None, b"")
    assert sink.batches == [[ENTRY, ENTRY._replace(cells=())]]


def test_entries_leave_the_handlers_for_clients_free(cluster: FakeCluster, sink: RecordingSink) -> None:
    """The sink writes through a client: with the last handler taken by the entries, the write would wait for ever."""
    server, free = cluster.servers_by_host["rs1"], []
    sink.on_apply = lambda: free.append(len(server.handlers.free))

    assert _ship(cluster, *encode_replicate([ENTRY])).exception is None

    assert free == [server.config.handlers]


def test_missing_cells_are_an_error_that_sources_retry_and_nothing_is_applied(
    cluster: FakeCluster, sink: RecordingSink
) -> None:
    param, cells = encode_replicate([ENTRY])
    for block, text in ((cells[: len(cells) // 2], "Expected=2, index=1"), (b"", 'because "cells" is null')):
        answer = _ship(cluster, param, block)
        assert answer.exception is not None
        assert answer.exception["exception_class_name"] == "java.io.IOException"
        assert text in answer.exception["stack_trace"]
        assert not answer.exception.get("do_not_retry")
    assert (sink.batches, sink.failed) == ([], 2)


def test_call_with_missing_cells_is_counted_as_failed_and_leaves_the_table_empty(cluster: FakeCluster) -> None:
    param, cells = encode_replicate([ENTRY])
    assert _ship(cluster, param, cells[: len(cells) // 2]).exception is not None
    (status,) = cluster.replication.status()
    assert status.sink is not None
    assert (status.sink.failed_batches, status.sink.edits_applied) == (1, 0)
    with cluster.connect() as connection:
        assert list(connection.table("t").scan()) == []


def test_tagged_cells_of_a_real_cluster_are_applied_without_their_tags(cluster: FakeCluster) -> None:
    """KeyValueCodecWithTags: coprocessors of a real cluster set tags. The fake has neither, and keeps the cells."""
    param, cells = encode_replicate([ENTRY])
    first, tags = cells[: len(cells) // 2], bytes.fromhex("0004") + b"\x00\x02\x08x"
    tagged = (len(first) - 4 + len(tags)).to_bytes(4, "big") + first[4:] + tags
    assert _ship(cluster, param, tagged + cells[len(first) :]).exception is None
    with cluster.connect() as connection:
        rows = dict(connection.table("t").scan(include_timestamp=True))
    assert rows == {b"r": {b"f:q": (b"v", 7)}, b"s": {b"f:q": (b"w", 7)}}


def test_an_empty_request_is_a_success(cluster: FakeCluster, sink: RecordingSink) -> None:
    assert _ship(cluster, b"", b"").exception is None
    assert sink.batches == []


def test_the_error_of_a_sink_keeps_its_class(cluster: FakeCluster, sink: RecordingSink) -> None:
    sink.error = TableNotFound("'nope'")
    answer = _ship(cluster, *encode_replicate([ENTRY]))
    assert answer.exception is not None
    assert answer.exception["exception_class_name"] == TableNotFound.java_class
    assert "'nope'" in answer.exception["stack_trace"]


def test_a_server_without_a_sink_refuses_entries(cluster: FakeCluster) -> None:
    cluster.servers_by_host["rs1"].replication_sink = None
    answer = _ship(cluster, *encode_replicate([ENTRY]))
    assert answer.exception is not None
    assert "does not take edits of other clusters" in answer.exception["stack_trace"]
