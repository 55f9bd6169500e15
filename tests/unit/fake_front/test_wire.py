"""The wire: one write a reply, every dialect of Thrift, and bytes from people who mean no good."""

from __future__ import annotations

import socket
import struct
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from thriftpy2.protocol import TBinaryProtocol
from thriftpy2.thrift import TClient
from thriftpy2.transport import TMemoryBuffer

import metaclient
from metaclient.backend import PutPage
from metaclient.calls.put_pages import put_page
from metaclient.errors import ConfigError
from metaclient.model import FamilyDescriptor, TableDescriptor
from metaclient.runtime import ThreadRuntime
from metaclient_fake import FakeCluster
from metaclient_fake.front.pending_bytes import PendingBytes
from metaclient_fake.front.serving import FrontLimits
from metaclient_fake.front.wire import ClientTransport
from tests.unit.fake_front.gateway_client import T2, WAIT_S, raw, rest_of, thrift2_client, wait_until

DIALECTS = [(framed, compact) for framed in (False, True) for compact in (False, True)]
MESSAGE_BYTES_MAX = 100_000


class CountingSocket:
    """A socket that notes how large each of its writes is."""

    def __init__(self, sock: socket.socket) -> None:
        self._sock = sock
        self.writes: list[int] = []

    def recv(self, size: int) -> bytes:
        return self._sock.recv(size)

    def sendall(self, data: bytes) -> None:
        self.writes.append(len(data))
        self._sock.sendall(data)


@pytest.mark.parametrize(("framed", "compact"), DIALECTS)
@pytest.mark.parametrize("size", [0, 4_000, 4_200, 100_000])
def test_reply_of_any_size_is_one_write(
    cluster: FakeCluster, table: bytes, monkeypatch: pytest.MonkeyPatch, framed: bool, compact: bool, size: int
) -> None:
    """Two writes above 4 KiB would wait 40 ms for the client's delayed acknowledgement."""
    counted: list[CountingSocket] = []
    init = ClientTransport.__init__

    def counting(self: ClientTransport, sock: Any, **options: Any) -> None:
        counted.append(CountingSocket(sock))
        init(self, counted[-1], **options)  # type: ignore[arg-type]  # all that it uses

    monkeypatch.setattr(ClientTransport, "__init__", counting)
    with thrift2_client(cluster.thrift2_port, framed=framed, compact=compact) as client:
        client.put(table, T2.TPut(b"r", [T2.TColumnValue(b"cf", b"q", bytes(size))]))
        assert len(client.get(table, T2.TGet(b"r")).columnValues[0].value) == size
    (sock,) = counted
    assert len(sock.writes) == 2
    assert sock.writes[1] > size


@pytest.mark.parametrize(("framed", "compact"), DIALECTS)
def test_every_dialect_is_understood_without_being_told(cluster: FakeCluster, framed: bool, compact: bool) -> None:
    with thrift2_client(cluster.thrift2_port, framed=framed, compact=compact) as client:
        for _ in range(3):
            assert client.listNamespaces() == ["default", "hbase"]


@pytest.mark.parametrize(("framed", "compact"), DIALECTS)
def test_pages_of_puts_in_every_dialect(cluster: FakeCluster, table: bytes, framed: bool, compact: bool) -> None:
    """Written by hand where the client knows the dialect, and by thriftpy2 where it does not."""
    arrow = pytest.importorskip("pyarrow", reason="needs the extra 'spark'")
    rows = arrow.array([b"a", b"b", b"z"], arrow.large_binary())
    page = PutPage(rows, arrow.array([5, 6, 7]), (b"cf:a",), (rows,))
    dialect = f"transport={'framed' if framed else 'buffered'}&protocol={'compact' if compact else 'binary'}"
    with metaclient.connect(f"thrift2://127.0.0.1:{cluster.thrift2_port}?{dialect}") as connection:
        assert put_page(connection.engine.operations, table, page) == {}
        assert connection.engine.telemetry.total("metaclient.retries") == 0
        found = dict(connection.table(table).scan(include_timestamp=True))
    assert found == {row: {b"cf:a": (row, stamp)} for row, stamp in zip((b"a", b"b", b"z"), (5, 6, 7), strict=True)}


@pytest.mark.parametrize("option", ["transport", "protocol"])
def test_dialect_must_be_one_that_there_is(option: str) -> None:
    with FakeCluster(servers=1, meta_replicas=1) as cluster:
        with pytest.raises(ConfigError, match=f"{option} must be one of auto"):
            cluster.serve(**{option: "pigeon"})
        assert cluster.front is None
        cluster.serve()


@pytest.mark.parametrize(("transport", "protocol"), [("framed", "binary"), ("buffered", "compact")])
def test_gateway_of_one_dialect_speaks_that(transport: str, protocol: str) -> None:
    options = {"framed": transport == "framed", "compact": protocol == "compact"}
    with FakeCluster(servers=1, meta_replicas=1) as cluster:
        front = cluster.serve(thrift1_port=None, transport=transport, protocol=protocol)
        with thrift2_client(front.thrift2_port, **options) as client:
            assert client.getThriftServerType() == T2.TThriftServerType.TWO
        with raw(front.thrift2_port) as stranger:
            stranger.sendall(b"\x80\x01\x00\x01" + bytes(20) if protocol == "compact" else b"\xff" * 8)
            stranger.shutdown(socket.SHUT_WR)
            assert rest_of(stranger) == b""


# -- people who mean no good ---------------------------------------------------------------------------------------


def call_of(method: str, *args: Any) -> bytes:
    """The bytes of a call, binary and unframed."""
    buffer = TMemoryBuffer()
    client = TClient(T2.THBaseService, TBinaryProtocol(buffer))
    names = [spec[1] for spec in getattr(T2.THBaseService, f"{method}_args").thrift_spec.values()]
    client._send(method, **dict(zip(names, args, strict=False)))
    return bytes(buffer.getvalue())


def begin_of(method: bytes) -> bytes:
    return b"\x80\x01\x00\x01" + struct.pack(">i", len(method)) + method + bytes(4)


GET = call_of("get", b"table", T2.TGet(b"row", columns=[T2.TColumn(b"cf", b"q")]))
DEEP = b"".join(b"\x0c\x00\x63" for _ in range(20_000))

BAD = {
    "noise": b"\x13\x37" * 100,
    "http": b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n",
    "tls": bytes.fromhex("16030100f8010000f40303"),
    "frame of zero bytes": b"\x00\x00\x00\x00" + GET,
    "frame of a gigabyte": b"\x3f\xff\xff\xff" + GET,
    "frame that ends too early": struct.pack(">i", len(GET) - 10) + GET,
    "frame that never comes": struct.pack(">i", 5000) + GET,
    "half a length": b"\x00\x00",
    "half a call": GET[:-7],
    "name of two gigabytes": b"\x80\x01\x00\x01\x7f\xff\xff\xff" + b"x" * 10,
    "name of negative length": b"\x80\x01\x00\x01\xff\xff\xff\xf0" + b"x" * 10,
    "row of two gigabytes": begin_of(b"get") + b"\x0b\x00\x01\x7f\xff\xff\xf0" + b"x" * 1000,
    "list of two billion": begin_of(b"getMultiple") + b"\x0f\x00\x02\x0c\x7f\xff\xff\xff" + bytes(50_000),
    "nested too deep": begin_of(b"get") + DEEP,
    "nested too deep in an unknown call": begin_of(b"nothing") + DEEP,
    "a reply": b"\x80\x01\x00\x02" + GET[4:],
    "wrong version": b"\x80\x07\x00\x01" + GET[4:],
    "more than may be sent": begin_of(b"get") + b"\x0b\x00\x01\x00\x7f\xff\xff" + bytes(200_000),
    "compact noise": b"\x82\xff\xff\xff\xff\xff",
    "compact row of gigabytes": b"\x82\x21\x01\x03get\x18\xff\xff\xff\xff\x07" + bytes(100),
}


@pytest.fixture(scope="module")
def small() -> Iterator[FakeCluster]:
    with FakeCluster(servers=1, meta_replicas=1) as made:
        made.serve(limits=FrontLimits(message_bytes_max=MESSAGE_BYTES_MAX))
        made.create_table(TableDescriptor(b"table", (FamilyDescriptor(b"cf"),)))
        yield made


def still_serves(cluster: FakeCluster) -> None:
    with thrift2_client(cluster.thrift2_port) as client:
        assert client.listNamespaces() == ["default", "hbase"]
    assert cluster.front is not None
    assert {name: stats["broken"] for name, stats in cluster.front.stats().items()} == {"thrift1": 0, "thrift2": 0}


@pytest.mark.parametrize("port", ["thrift1_port", "thrift2_port"])
@pytest.mark.parametrize("name", BAD)
def test_bad_bytes_end_their_own_connection_and_nothing_else(small: FakeCluster, name: str, port: str) -> None:
    with raw(getattr(small, port)) as client:
        try:
            client.sendall(BAD[name])
            client.shutdown(socket.SHUT_WR)
        except OSError:
            pass  # it has hung up already
        said = rest_of(client)
    assert said == b"" or b"Invalid method name" in said
    still_serves(small)


@settings(max_examples=150, deadline=None)
@given(data=st.data())
def test_damaged_calls_are_answered_or_hung_up_on(small: FakeCluster, data: st.DataObject) -> None:
    damaged = bytearray(GET)
    for _ in range(data.draw(st.integers(1, 4))):
        # The type of a list's elements stays: thriftpy2 skips two billion elements of a type without bytes one by one.
        damaged[data.draw(st.integers(0, len(GET) - 1).filter(lambda at: GET[at] != 0x0C))] = data.draw(
            st.sampled_from([0x00, 0x01, 0x0B, 0x0F, 0x7F, 0x80, 0xFF])
        )
    with raw(small.thrift2_port) as client:
        client.sendall(bytes(damaged))
        client.shutdown(socket.SHUT_WR)
        rest_of(client)
    assert small.front is not None
    assert small.front.stats()["thrift2"]["broken"] == 0


def test_client_that_leaves_in_the_middle_of_an_answer_hurts_nobody(small: FakeCluster) -> None:
    value = bytes(90_000)
    with thrift2_client(small.thrift2_port) as client:
        client.put(b"table", T2.TPut(b"row", [T2.TColumnValue(b"cf", b"q", value)]))
    for _ in range(5):
        with raw(small.thrift2_port) as leaving:
            leaving.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))  # by a reset
            leaving.sendall(GET * 20)
            leaving.recv(1)
    still_serves(small)


def test_slow_client_takes_its_thread_and_no_more(small: FakeCluster) -> None:
    with raw(small.thrift2_port) as slow:
        for at in range(len(GET) - 1):
            slow.sendall(GET[at : at + 1])
            if at == 30:
                still_serves(small)
        slow.sendall(GET[-1:])
        slow.settimeout(WAIT_S)
        assert slow.recv(4)[:2] == b"\x80\x01"


class Drip(socket.socket):
    """A socket that gives one byte for each read."""

    def recv(self, size: int, flags: int = 0) -> bytes:
        return super().recv(1, flags)


def test_message_must_be_complete_in_time() -> None:
    ours, accepted = socket.socketpair()
    clock = iter([0.0, 59.0, 61.0])
    with ours, Drip(fileno=accepted.detach()) as theirs, ThreadRuntime() as runtime:
        pending = PendingBytes(runtime, MESSAGE_BYTES_MAX)
        wire = ClientTransport(theirs, now=lambda: next(clock), pending=pending)
        ours.sendall(b"\x80\x01\x00")
        assert wire.open() is not None  # 0.0: the first byte is here
        with pytest.raises(Exception, match="not complete after 60 s"):
            wire.read(10)  # 59.0: one more byte; 61.0: too late


def test_pipelined_calls_are_answered_in_order(small: FakeCluster) -> None:
    with raw(small.thrift2_port) as client:
        client.sendall(call_of("listNamespaces") + GET + call_of("getThriftServerType"))
        client.shutdown(socket.SHUT_WR)
        said = rest_of(client)
    names = [b"listNamespaces", b"get", b"getThriftServerType"]
    assert [said.find(name) for name in names] == sorted(said.find(name) for name in names)
    assert -1 not in [said.find(name) for name in names]


def test_many_clients_at_once(small: FakeCluster) -> None:
    runtime = small.runtime

    def work(number: int) -> int:
        with thrift2_client(small.thrift2_port) as client:
            row = b"many-%d" % number
            for _ in range(10):
                client.increment(b"table", T2.TIncrement(row, [T2.TColumnIncrement(b"cf", b"n", 1)]))
            return int.from_bytes(client.get(b"table", T2.TGet(row)).columnValues[0].value, "big")

    tasks = [runtime.start(work, number, name="client") for number in range(30)]
    assert [task.result(runtime.now() + WAIT_S) for task in tasks] == [10] * 30
    assert small.front is not None
    stats = small.front.stats
    wait_until(runtime, lambda: stats()["thrift2"]["clients"] == 0, "the end of all clients")
