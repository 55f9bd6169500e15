"""Raw Thrift clients for the tests in this folder: what HBase's protocol says, without anything of ours in between."""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from thriftpy2.protocol import TBinaryProtocol, TCompactProtocol
from thriftpy2.thrift import TClient
from thriftpy2.transport import TBufferedTransport, TFramedTransport, TSocket

from metaclient.runtime import Runtime
from metaclient.wire.thrift.idl import thrift1_gateway, thrift2

__all__ = ["T1", "T2", "WAIT_S", "dialled", "raw", "rest_of", "thrift1_client", "thrift2_client", "wait_until"]

T1, T2 = thrift1_gateway(), thrift2()
#: Generous: the machine may be busy; nothing is asserted about how long anything takes.
WAIT_S = 60.0


def dialled(port: int | None) -> TSocket:
    assert port is not None
    made = TSocket("127.0.0.1", port)
    made.set_timeout(int(WAIT_S * 1000))
    made.open()
    return made


@contextmanager
def _client(service: Any, port: int | None, framed: bool, compact: bool) -> Iterator[Any]:
    transport = (TFramedTransport if framed else TBufferedTransport)(dialled(port))
    protocol = (TCompactProtocol if compact else TBinaryProtocol)(transport)
    client = TClient(service, protocol)
    try:
        yield client
    finally:
        client.close()


def thrift2_client(port: int | None, *, framed: bool = False, compact: bool = False) -> Any:
    return _client(T2.THBaseService, port, framed, compact)


def thrift1_client(port: int | None, *, framed: bool = False, compact: bool = False) -> Any:
    return _client(T1.Hbase, port, framed, compact)


def raw(port: int | None) -> socket.socket:
    assert port is not None
    return socket.create_connection(("127.0.0.1", port), WAIT_S)


def rest_of(sock: socket.socket) -> bytes:
    """All that comes until the other side hangs up, by a reset or politely."""
    found = b""
    try:
        while data := sock.recv(65536):
            found += data
    except ConnectionResetError:
        pass
    return found


def wait_until(runtime: Runtime, holds: Callable[[], bool], what: str) -> None:
    deadline = runtime.now() + WAIT_S
    while not holds():
        assert runtime.now() < deadline, f"{what} did not happen in {WAIT_S:g} s"
        runtime.sleep(0.001)
