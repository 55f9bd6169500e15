"""Backends on streams that a test makes: whole conversations of HBase's RPC and of Thrift, without a socket."""

from __future__ import annotations

import socket
import struct
from collections.abc import Callable, Iterator
from typing import cast

import pytest
from thriftpy2.protocol import TBinaryProtocol
from thriftpy2.thrift import TMessageType
from thriftpy2.transport import TMemoryBuffer

from metaclient.connection import connect_to
from metaclient.errors import ServerUnreachable
from metaclient.model import FamilyDescriptor, Get, TableDescriptor
from metaclient.runtime import Runtime, SimRuntime, ThreadRuntime
from metaclient.wire.stream import TICKS_S, Dial, SocketStream, Stream
from metaclient.wire.thrift.idl import server_type, thrift2
from metaclient_fake import FakeCluster
from metaclient_fake.front.rpc import RpcFront
from metaclient_fake.front.rpc.virtual import VirtualPorts
from metaclient_native import NativeBackend
from metaclient_thrift import Thrift2Backend

T2 = thrift2()


@pytest.fixture
def runtime() -> Iterator[Runtime]:
    with ThreadRuntime() as made:
        yield made


@pytest.fixture
def no_sockets(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*arguments: object, **options: object) -> None:
        raise AssertionError("a socket was made")

    monkeypatch.setattr(socket, "create_connection", refuse)


@pytest.mark.usefixtures("no_sockets")
def test_native_conversation_on_an_injected_stream_makes_no_socket() -> None:
    with SimRuntime(seed=1) as runtime, FakeCluster(servers=2, seed=1, runtime=runtime) as cluster:
        ports = VirtualPorts(runtime)
        front = RpcFront(cluster, "127.0.0.1", 0, listen=ports.listen)
        cluster.create_table(TableDescriptor(b"t", (FamilyDescriptor(b"f"),)), [b"m"])
        url = f"hbase+rpc://127.0.0.1:{front.listener.port}"
        backend = NativeBackend(url, runtime=runtime, dial=ports.dial)
        with connect_to(backend, runtime=runtime) as connection:
            table = connection.table("t")
            table.put(b"a", {b"f:q": b"1"})
            table.put(b"z", {b"f:q": b"2"})
            assert table.row(b"a") == {b"f:q": b"1"}
            assert [row for row, _ in table.scan()] == [b"a", b"z"]
        front.close()


class Gateway:
    """A Thrift 2 gateway in memory: the reply to each call is made when the call has been written."""

    def __init__(self) -> None:
        self.dialled: list[tuple[str, int]] = []
        self.streams: list[GatewayStream] = []

    def dial(self, host: str, port: int, now: Callable[[], float], deadline: float) -> Stream:
        self.dialled.append((host, port))
        self.streams.append(GatewayStream(self))
        return self.streams[-1]

    def answer(self, data: bytes) -> bytes:
        """Return the reply to one call: to a get, a row whose value is the row key."""
        calls, replies = TBinaryProtocol(TMemoryBuffer(data)), TMemoryBuffer()
        name, _, number = calls.read_message_begin()
        service = server_type() if name == "getThriftServerType" else T2.THBaseService
        args = getattr(service, f"{name}_args")()
        args.read(calls)
        if name == "getThriftServerType":
            success: object = 2
        else:
            cell = T2.TColumnValue(family=b"f", qualifier=b"q", value=args.tget.row, timestamp=1)
            success = T2.TResult(row=args.tget.row, columnValues=[cell])
        written = TBinaryProtocol(replies)
        written.write_message_begin(name, TMessageType.REPLY, number)
        getattr(service, f"{name}_result")(success=success).write(written)
        written.write_message_end()
        return bytes(replies.getvalue())


class GatewayStream:
    """One connection to that gateway. Replies arrive in pieces of three bytes."""

    def __init__(self, gateway: Gateway) -> None:
        self._gateway = gateway
        self._incoming = b""
        self.is_closed = False

    def read(self, size_max: int, deadline: float) -> bytes | None:
        data = self._incoming[: min(size_max, 3)]
        self._incoming = self._incoming[len(data) :]
        return data

    def write(self, data: bytes, deadline: float) -> None:
        self._incoming += self._gateway.answer(data)

    def is_silent(self) -> bool:
        return not self._incoming and not self.is_closed

    def close(self) -> None:
        self.is_closed = True

    def leave_to_parent(self) -> None:
        """Nothing to release."""


@pytest.mark.usefixtures("no_sockets")
def test_thrift_conversation_on_an_injected_stream_makes_no_socket(runtime: Runtime) -> None:
    gateway = Gateway()
    backend = Thrift2Backend("thrift2://somewhere:9090", runtime=runtime, dial=gateway.dial)
    until = runtime.now() + 60
    backend.open(until)
    for row in (b"a", b"b" * 1000):
        assert backend.get(None, b"t", Get(row), until).cells[0].value == row
    assert gateway.dialled == [("somewhere", 9090)], "one connection serves all calls"
    backend.close()
    assert gateway.streams[0].is_closed


def test_injected_dial_that_fails_is_a_gateway_that_cannot_be_reached(runtime: Runtime) -> None:
    def fail(host: str, port: int, now: Callable[[], float], deadline: float) -> Stream:
        raise ServerUnreachable(f"{host}:{port} cannot be reached: no route")

    dial: Dial = fail
    backend = Thrift2Backend("thrift2://somewhere:9090", runtime=runtime, dial=dial)
    with pytest.raises(ServerUnreachable, match="the Thrift gateway somewhere:9090 cannot be reached: no route"):
        backend.open(runtime.now() + 60)
    backend.close()


def test_read_whose_deadline_has_passed_does_not_block(runtime: Runtime) -> None:
    """No time-out of the kernel is set yet: a read would wait for ever."""
    ours, theirs = socket.socketpair()
    with theirs:
        stream = SocketStream(ours, runtime.now)
        assert stream.read(100, runtime.now() - 1) is None
        assert stream.is_silent()
        theirs.sendall(b"abc")
        assert not stream.is_silent()
        assert stream.read(2, runtime.now() + 60) == b"ab"
        assert stream.read(2, runtime.now() + 60) == b"c"
        stream.close()


class SilentSocket:
    """A socket without bytes, on a clock of its own: a kernel time-out ends two ticks late, as with CONFIG_HZ=250."""

    def __init__(self) -> None:
        self.now_s = 100.0
        self.timeout_s = float("inf")
        self.timeouts_set = 0
        self.polled_ms: list[float] = []

    def recv(self, size: int, flags: int = 0) -> bytes:
        self.now_s += self.timeout_s + TICKS_S
        raise BlockingIOError

    def send(self, data: bytes, flags: int = 0) -> int:
        return len(data)

    def setsockopt(self, level: int, option: int, value: bytes) -> None:
        seconds, microseconds = struct.unpack("ll", value)
        self.timeout_s = seconds + microseconds / 1e6
        self.timeouts_set += 1

    def fileno(self) -> int:
        return 0

    def poll(self, timeout_ms: float) -> list[object]:
        self.polled_ms.append(timeout_ms)
        self.now_s += timeout_ms / 1000
        return []


def silent_stream() -> tuple[SilentSocket, SocketStream]:
    sock = SilentSocket()
    stream = SocketStream(cast("socket.socket", sock), lambda: sock.now_s)
    stream._poll = sock.poll  # type: ignore[assignment]  # the method of a poll object
    return sock, stream


@pytest.mark.parametrize("wait_s", [0.01, 0.03, 0.099])
def test_hedge_delay_does_not_end_late_by_ticks_of_the_kernel(wait_s: float) -> None:
    sock, stream = silent_stream()
    deadline = sock.now_s + wait_s
    while sock.now_s < deadline:
        assert stream.read(100, deadline) is None
    assert sock.now_s - deadline < 0.0011, "at most the shortest time-out of the kernel"


def test_reads_with_hedge_delays_of_about_a_millisecond_set_no_time_out_each() -> None:
    """The delay follows the latencies: each read has another one, and a system call for it would cost 2 us."""
    sock, stream = silent_stream()
    for delay_s in (0.001, 0.0016, 0.0052, 0.0012, 0.0089):
        stream._is_late = False  # as after an answer
        stream.read(100, sock.now_s + delay_s)
    assert sock.timeouts_set == 1
    assert not sock.polled_ms


def test_long_wait_needs_no_poll() -> None:
    sock, stream = silent_stream()
    assert stream.read(100, sock.now_s + 10.0) is None
    assert not sock.polled_ms
    assert sock.timeout_s == pytest.approx(10.0)
