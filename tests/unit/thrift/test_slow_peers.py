"""Gateways that read or answer slowly, always a little in time: a call ends at its deadline all the same."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

import pytest

from metaclient.runtime import ThreadRuntime
from metaclient.wire.stream import dial
from metaclient_thrift.transports import HttpTransport, StreamTransport
from metaclient_thrift.url import Gateway

#: The time of the call, and the pause between two pieces: far less.
CALL_S, PAUSE_S = 0.3, 0.02
#: The gateway would take longer than that for the whole.
TOO_LONG_S = 10.0


@contextmanager
def serving(script: Callable[[socket.socket, threading.Event], None]) -> Iterator[int]:
    """A listener whose first connection runs the script."""
    is_over = threading.Event()
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve() -> None:
            with suppress(OSError):
                connection, _ = listener.accept()
                with connection:
                    script(connection, is_over)

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        yield listener.getsockname()[1]
        is_over.set()
        thread.join(TOO_LONG_S)


def read_slowly(connection: socket.socket, is_over: threading.Event) -> None:
    while not is_over.wait(PAUSE_S) and connection.recv(32 * 1024):
        pass


def drip(connection: socket.socket, is_over: threading.Event) -> None:
    connection.recv(65536)
    connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n")
    while not is_over.wait(PAUSE_S):
        connection.sendall(b"x")


def test_long_request_to_a_gateway_that_reads_slowly_ends_at_its_deadline(runtime: ThreadRuntime) -> None:
    with serving(read_slowly) as port:
        begun = runtime.now()
        stream = StreamTransport(dial("127.0.0.1", port, runtime.now, begun + TOO_LONG_S), runtime.now)
        stream.begin(begun + CALL_S)
        with pytest.raises(TimeoutError):
            stream.write(bytes(40 << 20))
        assert runtime.now() - begun < TOO_LONG_S
        stream.close()


def test_http_reply_that_drips_ends_at_its_deadline(runtime: ThreadRuntime) -> None:
    with serving(drip) as port:
        stream = HttpTransport(Gateway("127.0.0.1", port), "/", dial=dial, now=runtime.now)
        begun = runtime.now()
        stream.begin(begun + CALL_S)
        stream.connect()
        stream.write(b"request")
        with pytest.raises(TimeoutError):
            stream.flush()
        assert runtime.now() - begun < TOO_LONG_S
        stream.close()


def test_long_request_over_http_to_a_gateway_that_reads_slowly_ends_at_its_deadline(runtime: ThreadRuntime) -> None:
    with serving(read_slowly) as port:
        stream = HttpTransport(Gateway("127.0.0.1", port), "/", dial=dial, now=runtime.now)
        begun = runtime.now()
        stream.begin(begun + CALL_S)
        stream.connect()
        stream.write(bytes(40 << 20))
        with pytest.raises(TimeoutError):
            stream.flush()
        assert runtime.now() - begun < TOO_LONG_S
        stream.close()
