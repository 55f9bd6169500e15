"""Peers that send hostile bytes without an end, and mutated frames: memory stays bounded and deadlines are kept."""

from __future__ import annotations

import itertools
import os
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress

import pytest

import metaclient
from metaclient import MetaClientError
from metaclient.wire.reply_limit import REPLY_BYTES_MAX
from metaclient_fake import FakeCluster
from tests.attack.conftest import Figure, nothing_leaks
from tests.fuzz.decoders import DECODERS
from tests.fuzz.runs import MEMORY_MAX, checked, peak_bytes, reset_peak_bytes

pytestmark = pytest.mark.attack

SCHEMES = [
    "thrift1://{}",
    "thrift2://{}",
    "thrift2://{}?transport=framed",
    "thrift2://{}?protocol=compact",
    "thrift2+http://{}",
    "hbase+rpc://{}",
]
_GET = b"\x80\x01\x00\x02\x00\x00\x00\x03get\x00\x00\x00\x01"  # a reply's head
#: What a reply begins with, and what is repeated behind it until the connection ends.
STREAMS = {
    "zeros": (b"", bytes(65_536)),
    "ones": (b"", b"\xff" * 65_536),
    "nested lists": (_GET + b"\x0f\x00\x00", b"\x0f\x00\x00\x00\x01" * 13_107),
    "long list": (_GET + b"\x0f\x00\x00\x0c\x7f\xff\xff\xff", bytes(65_536)),
    "long string": (b"\x80\x01\x00\x02\x7f\xff\xff\xff", b"a" * 65_536),
    "HTTP header": (b"HTTP/1.1 200 OK\r\n", b"X-A: bbbbbbbb\r\n" * 4_000),
}
#: The same, of replies that are well-formed as long as they are not longer than the greatest reply.
GREAT_STREAMS = {
    "long frame": (REPLY_BYTES_MAX.to_bytes(4, "big"), b"a" * 65_536),
    "HTTP body": (b"HTTP/1.1 200 OK\r\n\r\n", b"a" * 65_536),
}
#: A reply's bytes, once.
GREAT_MAX = REPLY_BYTES_MAX + MEMORY_MAX
OPERATION_S, GRACE_S = 2.0, 3.0
FUZZ_S = float(os.environ.get("METACLIENT_ATTACK_FUZZ_S", "30"))
_JOIN_S = 10.0


@contextmanager
def endless_peer(head: bytes, repeated: bytes) -> Iterator[int]:
    """A server that answers the first bytes of each connection with a stream without an end."""
    sockets: list[socket.socket] = []
    threads: list[threading.Thread] = []

    def serve(sock: socket.socket) -> None:
        with suppress(OSError):
            sock.recv(65_536)
            sock.sendall(head)
            while True:
                sock.sendall(repeated)

    def accept() -> None:
        with suppress(OSError):
            while True:
                sock, _ = listener.accept()
                sockets.append(sock)
                threads.append(threading.Thread(target=serve, args=(sock,), daemon=True))
                threads[-1].start()

    listener = socket.create_server(("127.0.0.1", 0))
    acceptor = threading.Thread(target=accept, daemon=True)
    acceptor.start()
    try:
        yield listener.getsockname()[1]
    finally:
        for sock in (listener, *sockets):
            with suppress(OSError):
                sock.shutdown(socket.SHUT_RDWR)
            sock.close()
        for thread in (acceptor, *threads):
            thread.join(_JOIN_S)


@pytest.mark.parametrize("scheme", SCHEMES)
def test_stream_without_an_end_costs_no_memory_and_ends_at_the_deadline(scheme: str, figure: Figure) -> None:
    for streams, limit in ((STREAMS, MEMORY_MAX), (GREAT_STREAMS, GREAT_MAX)):
        costs = {name: _cost(scheme, *stream) for name, stream in streams.items()}
        (grown, slowest_s), name = max((cost, name) for name, cost in costs.items())
        figure(f"{scheme:30} {name:12} peak memory {max(grown, 0) >> 20:3} MB of {limit >> 20}")
        assert grown < limit, costs
        assert slowest_s < 2 * OPERATION_S + GRACE_S, costs  # it opens, and reads


def _cost(scheme: str, head: bytes, repeated: bytes) -> tuple[int, float]:
    """Return the bytes and the seconds of a read from a peer that sends this stream."""
    with nothing_leaks(), endless_peer(head, repeated) as port:
        url, before, begun = scheme.format(f"127.0.0.1:{port}"), reset_peak_bytes(), time.monotonic()
        with pytest.raises(MetaClientError):
            _read(url)
        return peak_bytes() - before, time.monotonic() - begun


def _read(url: str) -> None:
    with metaclient.connect(
        url, rpc_timeout_s=0.5, operation_timeout_s=OPERATION_S, open_timeout_s=OPERATION_S
    ) as connection:
        connection.table("t").row(b"r")


def test_half_messages_of_many_clients_cost_no_memory(cluster: FakeCluster, figure: Figure) -> None:
    front = cluster.serve(rpc_port=0)
    for name, port in (("thrift1", front.thrift1_port), ("thrift2", front.thrift2_port), ("rpc", front.rpc_port)):
        before = reset_peak_bytes()
        with nothing_leaks():
            clients = [socket.create_connection(("127.0.0.1", port or 0)) for _ in range(20)]
            for client in clients:
                client.settimeout(0.2)
                with suppress(OSError):  # it is refused, or not read any further
                    if name == "rpc":
                        client.sendall(b"HBas\x00\x50")
                    client.sendall((60 << 20).to_bytes(4, "big"))
                    for _ in range(59):
                        client.sendall(bytes(1 << 20))
            grown = peak_bytes() - before
            for client in clients:
                client.close()
        figure(f"20 half messages of 60 MB to the fake's {name}: peak memory {grown >> 20} MB")
        assert grown < MEMORY_MAX * 3  # what all clients together may have in flight


def test_mutated_frames_break_no_rule_of_their_decoders(figure: Figure) -> None:
    seed = int(time.time())  # other inputs each time; the finding names the seed
    findings: list[str] = []
    tried = 0
    for decoder in DECODERS:
        deadline = time.monotonic() + FUZZ_S / len(DECODERS)
        for found in checked(decoder, seed, itertools.count()):
            tried += 1
            findings += [str(found)] if found else []
            if time.monotonic() > deadline:
                break
    figure(f"{tried} mutated frames on {len(DECODERS)} decoders (seed {seed}), {len(findings)} findings")
    assert findings == []
