"""Clients that mean no good: none of them takes the fake's memory, its threads, or its answers to others."""

from __future__ import annotations

import contextlib
import select
import socket
import struct
from collections.abc import Iterator

import pytest

from metaclient.model import Cell, FamilyDescriptor, Put, TableDescriptor
from metaclient.runtime import SimRuntime
from metaclient.watch.http import Gate, HttpRefusal, parse_request
from metaclient.wire.rpc import messages
from metaclient.wire.rpc.framing import connection_header, preamble
from metaclient.wire.rpc.mutations import MutationError, mutation_from, mutation_message
from metaclient_fake import FakeCluster
from metaclient_fake.front.pending_bytes import PendingBytes
from metaclient_fake.front.serving import FrontLimits
from tests.unit.fake_front.gateway_client import raw, rest_of, thrift2_client

CONNECTIONS_MAX = 8
#: For what happens at once, or never; a slow machine must not miss it.
JOIN_S = 60.0


@pytest.fixture(scope="module")
def narrow() -> Iterator[FakeCluster]:
    with FakeCluster(servers=1) as made:
        made.serve(rpc_port=0, status_port=0, limits=FrontLimits(connections_max=CONNECTIONS_MAX))
        made.create_table(TableDescriptor(b"t", (FamilyDescriptor(b"cf"),)))
        yield made


@pytest.mark.parametrize("kind", [0, 1, 5, 16])
@pytest.mark.parametrize("is_framed", [False, True])
@pytest.mark.parametrize("method", [b"get", b"nope"])
def test_list_of_two_billion_values_without_bytes_does_not_stop_the_process(
    narrow: FakeCluster, kind: int, is_framed: bool, method: bytes
) -> None:
    hostile = b"\x80\x01\0\1" + struct.pack(">i", len(method)) + method + bytes(4)
    hostile += b"\x0f\0\x63" + struct.pack(">bi", kind, 2**31 - 1) + b"\0"
    with raw(narrow.thrift2_port) as client:
        client.sendall((struct.pack(">i", len(hostile)) if is_framed else b"") + hostile)
        assert rest_of(client) == b""
    with thrift2_client(narrow.thrift2_port) as client:
        assert client.listNamespaces() == ["default", "hbase"]


@pytest.mark.parametrize("front", ["thrift2", "rpc"])
def test_clients_without_a_request_do_not_shut_out_the_others(narrow: FakeCluster, front: str) -> None:
    assert narrow.front is not None
    port = narrow.front.thrift2_port if front == "thrift2" else narrow.front.rpc_port
    idle = [raw(port) for _ in range(3 * CONNECTIONS_MAX)]
    try:
        for one in idle:
            with contextlib.suppress(OSError):  # it was disconnected in favour of a later one
                one.sendall(b"\x80")
        if front == "thrift2":
            with thrift2_client(port) as client:
                assert client.listNamespaces() == ["default", "hbase"]
        else:
            with raw(port) as client:
                client.sendall(b"Regist")
                assert rest_of(client)
    finally:
        for one in idle:
            one.close()


class Peer:
    """Stands for a client's socket."""

    def __init__(self) -> None:
        self.is_shut_down = False

    def shutdown(self, how: int) -> None:
        assert how == socket.SHUT_RDWR
        self.is_shut_down = True


def test_half_frames_of_many_clients_share_one_bound() -> None:
    """Also while a disconnected client has not released its bytes: the others wait for that."""
    step, held = 1 << 20, dict[Peer, int]()
    hostile, small = [Peer() for _ in range(10)], Peer()
    peak = 0
    with SimRuntime(seed=1) as runtime:
        pending = PendingBytes(runtime, 64 << 20)

        def send(peer: Peer, size: int) -> None:
            nonlocal peak
            try:
                for held[peer] in range(step, size, step):
                    peak = max(peak, sum(held.values()))
                    pending.hold(peer, held[peer])  # type: ignore[arg-type]  # all that it uses
                    runtime.sleep(0.001)
            except ConnectionAbortedError:
                assert peer.is_shut_down
                runtime.sleep(1.0)  # its thread is slow to wake up
            finally:
                del held[peer]
                pending.hold(peer, 0)  # type: ignore[arg-type]

        tasks = [runtime.start(send, peer, 60 << 20) for peer in hostile]
        tasks.append(runtime.start(send, small, 5 << 20))
        for task in tasks:
            task.result()
        assert pending.total == 0
    assert not small.is_shut_down, "a small message was lost to a large one"
    assert 0 < sum(one.is_shut_down for one in hostile) < 10, "one alone may send the largest message"
    assert peak <= (48 << 20) + len(tasks) * step


def test_half_frames_of_all_fronts_share_one_bound() -> None:
    with FakeCluster(servers=1) as cluster:
        front = cluster.serve(rpc_port=0, limits=FrontLimits(message_bytes_max=1 << 20))
        with raw(front.thrift1_port) as one, raw(front.thrift2_port) as two, raw(front.rpc_port) as three:
            three.sendall(preamble() + connection_header("ClientMetaService"))
            for client in (one, two, three):
                with contextlib.suppress(OSError):
                    client.sendall(struct.pack(">i", 900_000) + b"\x80\x01" + bytes(500_000))
            assert any(select.select([one, two, three], [], [], JOIN_S)[0]), "none of the three was disconnected"


@pytest.mark.parametrize("framing", ["thrift", "rpc"])
def test_client_with_half_a_frame_gives_its_bytes_back_when_it_leaves(framing: str) -> None:
    limits = FrontLimits(message_bytes_max=1 << 20)
    with FakeCluster(servers=1) as cluster:
        front = cluster.serve(rpc_port=0, limits=limits)
        port = front.thrift2_port if framing == "thrift" else front.rpc_port
        for _ in range(5):  # each alone is within the bound, the sum is not
            with raw(port) as client:
                if framing == "rpc":
                    client.sendall(preamble() + connection_header("ClientMetaService"))
                client.sendall(struct.pack(">i", 900_000) + b"\x80\x01" + bytes(700_000))
                client.shutdown(socket.SHUT_WR)
                rest_of(client)
        with thrift2_client(front.thrift2_port) as client:
            assert client.listNamespaces() == ["default", "hbase"]


@pytest.mark.parametrize(
    "changed",
    [{"durability": 99}, {"durability": 2**63}, {"mutate_type": 77}],
)
def test_unknown_number_in_a_mutation_is_refused_with_a_sentence(changed: dict[str, int]) -> None:
    message, cells = mutation_message(Put(b"r", (Cell(b"cf:a", 1, b"v"),)))
    with pytest.raises(MutationError, match="unknown"):
        mutation_from({**message, **changed}, cells, 0)


def test_unknown_type_of_a_delete_is_refused_with_a_sentence() -> None:
    column = {"family": b"cf", "qualifier_value": [{"qualifier": b"q", "delete_type": 42}]}
    with pytest.raises(MutationError, match="unknown type 42"):
        mutation_from({"row": b"r", "mutate_type": messages.MUTATE_DELETE, "column_value": [column]}, b"", 0)


@pytest.mark.parametrize(
    ("host", "status"),
    [
        (b"evil.example", b"421"),
        (b"evil.example:8080", b"421"),
        (b"127.0.0.1.evil.example", b"421"),
        (b"localhost", b"200"),
        (b"LOCALHOST:1", b"200"),
        (b"127.0.0.1:8080", b"200"),
        (b"[::1]:8080", b"200"),
    ],
)
@pytest.mark.parametrize("path", [b"/", b"/status.json", b"/watch.json"])
def test_page_of_a_stranger_cannot_read_the_status_by_dns_rebinding(
    narrow: FakeCluster, host: bytes, status: bytes, path: bytes
) -> None:
    assert narrow.front is not None
    with raw(narrow.front.status_port) as client:
        client.sendall(b"GET %b HTTP/1.1\r\nHost: %b\r\n\r\n" % (path, host))
        assert rest_of(client)[9:12] == status


def test_status_page_is_served_at_the_name_that_it_was_given() -> None:
    gate = Gate("Box.local", None)
    request = b"GET /status.json HTTP/1.1\r\nhost: %b:80\r\n\r\n"
    gate.check(parse_request(request % b"box.local"), "10.0.0.7")
    gate.check(parse_request(request % b"10.0.0.7"), "10.0.0.7")
    with pytest.raises(HttpRefusal, match="not served as") as refusal:
        gate.check(parse_request(request % b"10.0.0.8"), "10.0.0.7")
    assert refusal.value.status == 421
