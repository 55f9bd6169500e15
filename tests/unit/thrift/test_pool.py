"""Connections to gateways: deadlines, bounds, failover; against small gateways in this process."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable
from typing import Any

import pytest
from thriftpy2.thrift import TApplicationException

from metaclient.backend import MetaScan
from metaclient.errors import (
    BackendFault,
    CallTimeout,
    ConfigError,
    ConnectionClosed,
    NoConnectionsAvailable,
    RequestRefused,
    ScannerLost,
    ServerUnreachable,
    Unsupported,
)
from metaclient.model import Cell, Get, MetaReplica, Put, Scan
from metaclient.runtime import ThreadRuntime
from metaclient.wire.thrift.idl import thrift2
from metaclient.wire.thrift.structs import scan_of
from metaclient_thrift import Thrift2Backend
from metaclient_thrift.gateways import SILENT_CALLS_MAX

T = thrift2()
#: LONG_S is never waited for; SHORT_S is, and a busy machine must get a call out and a healthy answer back within it.
LONG_S, SHORT_S = 60.0, 0.75
Serve = Callable[..., Any]


class Client:
    """A backend and its calls with deadlines from now."""

    def __init__(self, runtime: ThreadRuntime, *gateways: Any, query: str = "", scheme: str = "thrift2") -> None:
        addresses = ",".join(one if isinstance(one, str) else one.address for one in gateways)
        self.runtime = runtime
        self.backend = Thrift2Backend(f"{scheme}://{addresses}{query}", runtime=runtime)

    def get(self, row: bytes = b"r", within_s: float = LONG_S) -> dict[bytes, bytes]:
        result = self.backend.get(None, b"t", Get(row), self.runtime.now() + within_s)
        return {cell.column: cell.value for cell in result.cells}

    def put(self, within_s: float = LONG_S) -> None:
        self.backend.mutate(None, b"t", Put(b"r", (Cell(b"cf:a", 1, b"v"),)), self.runtime.now() + within_s)


def wait_for_puts(runtime: ThreadRuntime, gateway: Any, count: int) -> None:
    deadline = runtime.now() + LONG_S
    while gateway.calls["put"] < count:
        assert runtime.now() < deadline, f"the gateway has seen {gateway.calls['put']} of {count} puts"
        runtime.sleep(0.005)


@pytest.mark.parametrize("is_framed", [False, True])
@pytest.mark.parametrize("is_compact", [False, True])
def test_all_ways_to_speak(runtime: ThreadRuntime, serve: Serve, is_framed: bool, is_compact: bool) -> None:
    gateway = serve(is_framed=is_framed, is_compact=is_compact)
    query = f"?transport={'framed' if is_framed else 'buffered'}&protocol={'compact' if is_compact else 'binary'}"
    client = Client(runtime, gateway, query=query)
    client.backend.open(runtime.now() + LONG_S)
    assert client.get(b"x" * 100_000)[b"cf:row"] == b"x" * 100_000
    client.put()
    client.backend.close()


def test_late_reply_is_never_read_as_the_next_answer(runtime: ThreadRuntime, serve: Serve) -> None:
    gateway = serve()

    def slow(table: bytes, get: Any) -> Any:
        if get.row == b"late":
            gateway.released.wait(LONG_S)
        return gateway.on_get(table, get)

    gateway.hooks["get"] = slow
    client = Client(runtime, gateway, query="?connections=1")
    with pytest.raises(CallTimeout) as raised:
        client.get(b"late", SHORT_S)
    assert not raised.value.may_have_applied
    gateway.released.set()
    for number in range(20):
        assert client.get(b"%d" % number)[b"cf:row"] == b"%d" % number
    client.backend.close()


def test_write_that_timed_out_may_have_been_applied(runtime: ThreadRuntime, serve: Serve) -> None:
    gateway = serve()
    gateway.hooks["put"] = lambda table, put: gateway.released.wait(LONG_S)
    client = Client(runtime, gateway)
    with pytest.raises(CallTimeout) as raised:
        client.put(SHORT_S)
    assert raised.value.may_have_applied
    client.backend.close()


def test_reply_in_drops_ends_at_the_deadline(runtime: ThreadRuntime) -> None:
    """Each byte arrives in time, the whole never does: the deadline is of the call, not of a read."""
    listener = socket.create_server(("127.0.0.1", 0))
    stop = threading.Event()

    def drip() -> None:
        connection, _ = listener.accept()
        with connection:
            connection.recv(65536)
            for byte in b"\x80\x01\x00\x02\x00\x00\x00\x03get\x00\x00\x00\x01" + b"\x0c" * 1000:
                if stop.wait(0.03):
                    return
                try:
                    connection.sendall(bytes([byte]))
                except OSError:
                    return

    thread = threading.Thread(target=drip, daemon=True)
    thread.start()
    client = Client(runtime, f"127.0.0.1:{listener.getsockname()[1]}")
    begun = runtime.now()
    with pytest.raises(CallTimeout):
        client.get(within_s=SHORT_S)
    assert runtime.now() - begun < 20  # the reply as a whole takes 30 s
    stop.set()
    thread.join(LONG_S)
    client.backend.close()
    listener.close()


def test_connections_are_bounded_and_shared(runtime: ThreadRuntime, serve: Serve) -> None:
    gateway = serve()
    gateway.hooks["put"] = lambda table, put: gateway.released.wait(LONG_S) and None
    client = Client(runtime, gateway, query="?connections=2")
    writers = [runtime.start(client.put) for _ in range(2)]
    wait_for_puts(runtime, gateway, 2)
    with pytest.raises(NoConnectionsAvailable, match="all 2 connections"):
        client.get(within_s=SHORT_S)
    reader = runtime.start(client.get)  # waits for its turn
    gateway.released.set()
    assert reader.result(runtime.now() + LONG_S)[b"cf:gateway"] == b"gw"
    for writer in writers:
        writer.result(runtime.now() + LONG_S)
    assert len(gateway.connections) == 2
    client.backend.close()


def test_gateways_take_turns(runtime: ThreadRuntime, serve: Serve) -> None:
    gateways = [serve(name=b"%d" % number) for number in range(3)]
    client = Client(runtime, *gateways)
    for _ in range(30):
        client.get()
    assert [gateway.calls["get"] for gateway in gateways] == [10, 10, 10]
    client.backend.close()


def test_dead_gateway_is_passed_over_and_left_out(runtime: ThreadRuntime, serve: Serve) -> None:
    dead, alive = serve(name=b"dead"), serve(name=b"alive")
    dead.stop()
    client = Client(runtime, dead, alive)
    for _ in range(10):
        assert client.get()[b"cf:gateway"] == b"alive"
    status = client.backend.gateways()
    assert (status[dead.address]["is_out"], status[dead.address]["failures"]) == (True, 1)
    client.backend.close()


def test_gateway_killed_under_idle_connections(runtime: ThreadRuntime, serve: Serve) -> None:
    """A reset is seen by the read that meets it; the next goes elsewhere, and nobody uses the other idle ones."""
    first, second = serve(name=b"1"), serve(name=b"2")
    client = Client(runtime, first, second)
    for _ in range(4):
        client.get()
    first.stop()
    failures: list[ServerUnreachable] = []
    for _ in range(20):
        try:
            assert client.get()[b"cf:gateway"] == b"2"
        except ServerUnreachable as error:
            failures.append(error)
    assert len(failures) <= 1
    assert not any(error.may_have_applied for error in failures)
    client.backend.close()


def test_all_gateways_dead_says_so_at_once(runtime: ThreadRuntime, serve: Serve) -> None:
    dead = [serve(), serve()]
    for one in dead:
        one.stop()
    client = Client(runtime, *dead)
    for _ in range(3):
        with pytest.raises(ServerUnreachable, match="cannot be reached"):
            client.put()
    client.backend.close()


def test_silent_gateway_is_left_out_after_some_calls(runtime: ThreadRuntime, serve: Serve) -> None:
    """One silent call may be a region server's fault; several in a row are the gateway's."""
    hung, alive = serve(name=b"hung"), serve(name=b"alive")
    hung.hooks["get"] = lambda table, get: hung.released.wait(LONG_S) and hung.on_get(table, get)
    client = Client(runtime, hung, alive)
    timeouts = 0
    for _ in range(20):
        try:
            client.get(within_s=SHORT_S)
        except CallTimeout:
            timeouts += 1
    assert timeouts == SILENT_CALLS_MAX
    client.backend.close()


def test_close_ends_calls_in_progress(runtime: ThreadRuntime, serve: Serve) -> None:
    gateway = serve()
    gateway.hooks["put"] = lambda table, put: gateway.released.wait(LONG_S)
    client = Client(runtime, gateway)
    writer = runtime.start(client.put)
    wait_for_puts(runtime, gateway, 1)
    begun = runtime.now()
    client.backend.close()
    with pytest.raises(ConnectionClosed) as raised:
        writer.result(runtime.now() + LONG_S)
    assert raised.value.may_have_applied
    assert runtime.now() - begun < LONG_S / 2  # the gateway answers after LONG_S
    with pytest.raises(ConnectionClosed):
        client.get()


def test_error_of_the_gateway_keeps_the_connection(runtime: ThreadRuntime, serve: Serve) -> None:
    gateway = serve()

    def refuse(table: bytes, get: Any) -> Any:
        text = "org.apache.hadoop.hbase.DoNotRetryIOException: no\n\tat a.B.c(B.java:1)"
        raise T.TIOError(message=text, canRetry=False)

    gateway.hooks["get"] = refuse
    client = Client(runtime, gateway)
    for _ in range(5):
        with pytest.raises(RequestRefused, match="DoNotRetryIOException: no"):
            client.get()
    assert len(gateway.connections) == 1
    client.backend.close()


def test_protocol_error_drops_the_connection(runtime: ThreadRuntime, serve: Serve) -> None:
    gateway = serve()
    client = Client(runtime, gateway)
    client.get()

    def broken(table: bytes, get: Any) -> Any:
        raise TApplicationException(TApplicationException.PROTOCOL_ERROR, "Required field 'row' was not present!")

    gateway.hooks["get"] = broken
    with pytest.raises(BackendFault, match="Required field"):
        client.get()
    del gateway.hooks["get"]
    assert client.get(b"again")[b"cf:row"] == b"again"
    assert len(gateway.connections) == 2
    client.backend.close()


def test_scan_that_should_leave_the_cache_alone_says_so() -> None:
    assert scan_of(Scan(), b"", b"", None).cacheBlocks is None
    assert scan_of(Scan(cache_blocks=False), b"", b"", None).cacheBlocks is False


def test_scanner_stays_with_its_gateway(runtime: ThreadRuntime, serve: Serve) -> None:
    gateways = [serve(name=b"%d" % number) for number in range(3)]
    client = Client(runtime, *gateways)
    deadline = runtime.now() + LONG_S
    page = client.backend.scan_open(None, b"t", Scan(caching=3), deadline)
    for _ in range(4):
        page = client.backend.scan_next(page.scanner, 3, deadline)
    assert page.scanner is not None
    client.backend.scan_close(page.scanner, deadline)
    assert sorted(gateway.calls["getScannerRows"] for gateway in gateways) == [0, 0, 5]
    assert sorted(gateway.calls["closeScanner"] for gateway in gateways) == [0, 0, 1]
    client.backend.close()


def test_scanner_that_expired_is_lost_not_fatal(runtime: ThreadRuntime, serve: Serve) -> None:
    gateway = serve()

    def gone(number: int, rows: int) -> Any:
        raise T.TIllegalArgument(message="Invalid scanner Id")

    gateway.hooks["getScannerRows"] = gone
    client = Client(runtime, gateway)
    with pytest.raises(ScannerLost):
        client.backend.scan_open(None, b"t", Scan(), runtime.now() + LONG_S)
    client.backend.close()


@pytest.mark.parametrize(("replica_id", "stale", "error"), [(1, False, Unsupported), (0, True, BackendFault)])
def test_gateway_that_ignores_the_replica_is_found_out(
    runtime: ThreadRuntime, serve: Serve, replica_id: int, stale: bool, error: type[Exception]
) -> None:
    """Gateways before 2.4 scan the primary whatever id they are given: that must not pass for a replica's answer."""
    gateway = serve()
    asked: list[Any] = []

    def answer(table: bytes, scan: Any, rows: int) -> Any:
        asked.append(scan)
        cells = [T.TColumnValue(b"info", b"server", b"x:1", 1, None, 4)]
        return [T.TResult(row=b"t,,1.x.", columnValues=cells, stale=stale)]

    gateway.hooks["getScannerResults"] = answer
    client = Client(runtime, gateway)
    scan = MetaScan(b"t,,", b"t ,,", is_reversed=False, limit=5)
    with pytest.raises(error):
        client.backend.read_meta(MetaReplica(replica_id), scan, runtime.now() + LONG_S)
    assert (asked[0].consistency, asked[0].targetReplicaId) == (T.TConsistency.TIMELINE, replica_id)
    client.backend.close()


def test_no_time_left_sends_nothing(runtime: ThreadRuntime, serve: Serve) -> None:
    gateway = serve()
    client = Client(runtime, gateway)
    client.put()
    with pytest.raises(CallTimeout) as raised:
        client.put(within_s=-1.0)
    assert not raised.value.may_have_applied
    assert gateway.calls["put"] == 1
    client.backend.close()


def test_silence_of_the_only_gateway_does_not_put_it_out(runtime: ThreadRuntime, serve: Serve) -> None:
    """It may be one hung region server, and the gateway is the only way to the others."""
    gateway = serve()
    gateway.hooks["get"] = lambda table, get: gateway.released.wait(LONG_S) and gateway.on_get(table, get)
    client = Client(runtime, gateway)
    for _ in range(SILENT_CALLS_MAX + 1):
        with pytest.raises(CallTimeout):
            client.get(within_s=SHORT_S)
    assert client.backend.gateways()[gateway.address]["is_out"] is False
    client.put()
    client.backend.close()


def test_thrift1_gateway_is_recognised(runtime: ThreadRuntime, serve: Serve) -> None:
    gateway = serve()
    gateway.hooks["getThriftServerType"] = lambda: T.TThriftServerType.ONE
    client = Client(runtime, gateway)
    with pytest.raises(ConfigError, match="thrift1:"):
        client.backend.open(runtime.now() + LONG_S)
    client.backend.close()


def test_wrong_transport_is_hinted_at(runtime: ThreadRuntime, monkeypatch: pytest.MonkeyPatch) -> None:
    """A framed gateway takes an unframed call for the start of a huge frame and waits for the rest."""
    monkeypatch.setattr("metaclient.wire.peers.PROBE_S_MAX", 0.01)
    silent = socket.create_server(("127.0.0.1", 0))
    client = Client(runtime, f"127.0.0.1:{silent.getsockname()[1]}")
    with pytest.raises(CallTimeout, match="transport=framed"):
        client.backend.open(runtime.now() + SHORT_S)
    client.backend.close()
    silent.close()
