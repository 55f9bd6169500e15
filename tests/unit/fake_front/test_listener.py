"""The listener: limits, time-outs, clients that break, and an end that leaves nothing behind."""

import socket
from collections.abc import Iterator

import pytest

from metaclient.errors import ConfigError, Unsupported
from metaclient.runtime import SimRuntime, ThreadRuntime
from metaclient.wire.listener import Listener
from tests.unit.fake_front.gateway_client import WAIT_S, raw, rest_of, wait_until


@pytest.fixture
def runtime() -> Iterator[ThreadRuntime]:
    with ThreadRuntime() as made:
        yield made


def echo(sock: socket.socket) -> None:
    while data := sock.recv(100):
        sock.sendall(data)


def listening(runtime: ThreadRuntime, serve=echo, **options) -> Listener:
    return Listener("127.0.0.1", 0, runtime=runtime, name="test", serve=serve, **options)


def test_every_client_has_its_own_conversation(runtime: ThreadRuntime) -> None:
    with listening(runtime) as listener, raw(listener.port) as one, raw(listener.port) as other:
        one.sendall(b"one")
        other.sendall(b"other")
        assert (one.recv(100), other.recv(100)) == (b"one", b"other")


def test_accepted_sockets_do_not_wait_for_acknowledgements(runtime: ThreadRuntime) -> None:
    def tell(sock: socket.socket) -> None:
        sock.sendall(b"%d" % sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY))

    with listening(runtime, tell) as listener, raw(listener.port) as client:
        assert rest_of(client) != b"0"


def test_one_client_too_many_is_told_so_and_hung_up_on(runtime: ThreadRuntime) -> None:
    options = {"connections_max": 1, "refuse": lambda sock: sock.sendall(b"full")}
    with listening(runtime, **options) as listener:
        with raw(listener.port) as first:
            first.sendall(b"x")
            assert first.recv(1) == b"x"
            with raw(listener.port) as second:
                assert rest_of(second) == b"full"
        wait_until(runtime, lambda: listener.stats()["clients"] == 0, "the end of the first client")
        with raw(listener.port) as third:
            third.sendall(b"y")
            assert third.recv(1) == b"y"
        assert (listener.stats()["accepted"], listener.stats()["refused"]) == (2, 1)


def test_client_that_says_nothing_is_hung_up_on(runtime: ThreadRuntime) -> None:
    with listening(runtime, idle_timeout_s=0.02) as listener, raw(listener.port) as client:
        assert rest_of(client) == b""


def test_client_that_takes_nothing_is_hung_up_on(runtime: ThreadRuntime) -> None:
    ended: list[bool] = []

    def flood(sock: socket.socket) -> None:
        try:
            while True:
                sock.sendall(bytes(1 << 20))
        finally:
            ended.append(True)

    with listening(runtime, flood, send_timeout_s=0.02) as listener, raw(listener.port):
        wait_until(runtime, lambda: bool(ended), "the end of the flood")


def test_fault_of_one_conversation_is_not_the_others(runtime: ThreadRuntime, caplog: pytest.LogCaptureFixture) -> None:
    def serve(sock: socket.socket) -> None:
        if sock.recv(1) == b"!":
            raise ZeroDivisionError("ours")
        sock.sendall(b"fine")

    with listening(runtime, serve) as listener:
        with raw(listener.port) as bad:
            bad.sendall(b"!")
            assert rest_of(bad) == b""
        with raw(listener.port) as good:
            good.sendall(b".")
            assert rest_of(good) == b"fine"
        assert listener.stats()["broken"] == 1
    assert "ZeroDivisionError" in caplog.text


def test_close_wakes_every_client_and_leaves_no_thread(runtime: ThreadRuntime) -> None:
    listener = listening(runtime)
    clients = [raw(listener.port) for _ in range(5)]
    wait_until(runtime, lambda: listener.stats()["clients"] == 5, "five clients")
    listener.close()
    listener.close()
    assert [rest_of(client) for client in clients] == [b""] * 5
    wait_until(runtime, lambda: runtime.stats()["daemons"] == 0, "the end of all threads")
    with pytest.raises(ConnectionRefusedError):
        raw(listener.port)
    for client in clients:
        client.close()


def test_listener_ends_with_its_runtime() -> None:
    runtime = ThreadRuntime()
    listener = listening(runtime)
    with raw(listener.port) as client:
        client.settimeout(WAIT_S)
        runtime.close()
        assert rest_of(client) == b""
    listener.close()


def test_virtual_time_has_no_sockets() -> None:
    with SimRuntime(seed=1) as runtime, pytest.raises(Unsupported, match="ThreadRuntime"):
        Listener("127.0.0.1", 0, runtime=runtime, name="test", serve=echo)


def test_port_that_is_taken_is_named(runtime: ThreadRuntime) -> None:
    with listening(runtime) as listener, pytest.raises(ConfigError, match=str(listener.port)):
        Listener("127.0.0.1", listener.port, runtime=runtime, name="test", serve=echo)
    with pytest.raises(ConfigError, match="at least 1"):
        listening(runtime, connections_max=0)
