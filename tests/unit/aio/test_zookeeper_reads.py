"""Reads of ZooKeeper without kazoo: sessions that end, servers that are down, answers that are not ZooKeeper's."""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator

import pytest

from metaclient.errors import CallTimeout, ConnectionClosed, RequestRefused, ServerNotRunning, ServerUnreachable
from metaclient.runtime import SimRuntime
from metaclient.wire.stream import Stream
from metaclient.wire.zookeeper_reads import SESSION_S, ZooKeeperReads

NODES = {"/hbase": b"", "/hbase/master": b"name", "/hbase/rs": b""}
CHILDREN = {"/hbase": ["master", "rs"], "/hbase/rs": []}


def packet(body: bytes) -> bytes:
    return struct.pack(">i", len(body)) + body


def text(value: bytes) -> bytes:
    return struct.pack(">i", len(value)) + value


class Server:
    """A server of ZooKeeper: one stream per session. ``answer`` may replace the reply to a read."""

    def __init__(self, runtime: SimRuntime) -> None:
        self.runtime = runtime
        self.sessions: list[Session] = []
        self.answer: Callable[[int, int, str], bytes | None] | None = None
        self.is_up = True

    def dial(self, host: str, port: int, now: Callable[[], float], deadline: float) -> Stream:
        if not self.is_up or host == "down":
            raise ServerUnreachable(f"{host}:{port} cannot be reached: refused")
        self.sessions.append(Session(self))
        return self.sessions[-1]


class Session:
    def __init__(self, server: Server) -> None:
        self.server = server
        self.is_open = False
        self.is_ended = False
        self.is_closed = False
        self.replies = b""

    def write(self, data: bytes, deadline: float) -> None:
        if not self.is_open:
            self.is_open = True
            self.replies += packet(struct.pack(">iiq", 0, 10_000, 7) + text(bytes(16)) + b"\0")
            return
        _, xid, kind = struct.unpack_from(">iii", data)
        if kind == -11:
            return
        size = struct.unpack_from(">i", data, 12)[0]
        path = data[16 : 16 + size].decode()
        answer = self.server.answer(xid, kind, path) if self.server.answer is not None else None
        self.replies += reply_of(xid, kind, path) if answer is None else answer

    def read(self, size_max: int, deadline: float) -> bytes | None:
        if self.is_ended:
            return b""
        if not self.replies:
            self.server.runtime.sleep(deadline - self.server.runtime.now())
            return None
        data, self.replies = self.replies[:3], self.replies[3:]  # in pieces
        return data

    def is_silent(self) -> bool:
        return not self.replies

    def close(self) -> None:
        self.is_closed = True

    def leave_to_parent(self) -> None:
        self.is_closed = True


def reply_of(xid: int, kind: int, path: str) -> bytes:
    if path not in NODES:
        return packet(struct.pack(">iqi", xid, 1, -101))
    head = struct.pack(">iqi", xid, 1, 0)
    if kind == 4:
        return packet(head + text(NODES[path]) + bytes(68))
    names = CHILDREN.get(path, [])
    return packet(head + struct.pack(">i", len(names)) + b"".join(text(name.encode()) for name in names))


@pytest.fixture
def runtime() -> Iterator[SimRuntime]:
    with SimRuntime(seed=1) as made:
        yield made


@pytest.fixture
def server(runtime: SimRuntime) -> Server:
    return Server(runtime)


@pytest.fixture
def reads(server: Server, runtime: SimRuntime) -> ZooKeeperReads:
    return ZooKeeperReads([("zk1", 2181)], runtime, server.dial)


def test_reads_share_one_session(server: Server, reads: ZooKeeperReads) -> None:
    assert reads.get("/hbase/master", 10.0) == b"name"
    assert reads.get("/hbase/rs", 10.0) == b""
    assert reads.children("/hbase", 10.0) == ["master", "rs"]
    assert len(server.sessions) == 1


def test_missing_node_is_an_hbase_that_starts(reads: ZooKeeperReads) -> None:
    with pytest.raises(ServerNotRunning, match=r"has no /nobody.*zookeeper\.znode\.parent"):
        reads.get("/nobody", 10.0)
    assert reads.get("/hbase/master", 10.0) == b"name"


def test_session_that_the_server_ended_is_replaced(server: Server, reads: ZooKeeperReads) -> None:
    reads.get("/hbase/master", 10.0)
    server.sessions[0].is_ended = True
    assert reads.get("/hbase/master", 10.0) == b"name"
    assert [session.is_closed for session in server.sessions] == [True, False]


def test_session_is_not_used_when_it_may_have_ended(server: Server, reads: ZooKeeperReads, runtime: SimRuntime) -> None:
    reads.get("/hbase/master", 10.0)
    runtime.run(runtime.sleep, SESSION_S)
    assert reads.get("/hbase/master", runtime.now() + 10.0) == b"name"
    assert len(server.sessions) == 2


def test_server_that_is_down_does_not_hide_the_others(server: Server, runtime: SimRuntime) -> None:
    reads = ZooKeeperReads([("down", 2181), ("zk2", 2181)], runtime, server.dial)
    for _ in range(3):
        assert reads.get("/hbase/master", 10.0) == b"name"


def test_quorum_that_is_down_is_named(server: Server, reads: ZooKeeperReads) -> None:
    server.is_up = False
    with pytest.raises(ServerUnreachable, match="no ZooKeeper can be reached at zk1:2181"):
        reads.get("/hbase/master", 10.0)


def test_silent_server_ends_at_the_deadline(server: Server, reads: ZooKeeperReads, runtime: SimRuntime) -> None:
    server.answer = lambda xid, kind, path: b""
    with pytest.raises(CallTimeout):
        runtime.run(reads.get, "/hbase/master", 10.0)
    assert server.sessions[0].is_closed


def test_late_reply_to_another_read_is_not_taken(server: Server, reads: ZooKeeperReads) -> None:
    server.answer = lambda xid, kind, path: reply_of(xid - 1, kind, "/hbase/rs") + reply_of(xid, kind, path)
    assert reads.get("/hbase/master", 10.0) == b"name"


def test_refused_node_is_told(server: Server, reads: ZooKeeperReads) -> None:
    server.answer = lambda xid, kind, path: packet(struct.pack(">iqi", xid, 1, -102))
    with pytest.raises(RequestRefused, match="NoAuth"):
        reads.get("/hbase/master", 10.0)


@pytest.mark.parametrize(
    "body",
    [
        b"\x7f\xff\xff\xff",
        packet(b"short"),
        packet(struct.pack(">iqi", 1, 1, 0)),
        packet(struct.pack(">iqii", 1, 1, 0, 1 << 30)),
        packet(struct.pack(">iqiii", 1, 1, 0, 2, 1 << 30)),
    ],
)
def test_bytes_that_are_not_zookeepers_are_an_error(server: Server, reads: ZooKeeperReads, body: bytes) -> None:
    server.answer = lambda xid, kind, path: body
    with pytest.raises(ServerUnreachable):
        reads.children("/hbase", 10.0)


def test_data_longer_than_its_answer_is_an_error(server: Server, reads: ZooKeeperReads) -> None:
    server.answer = lambda xid, kind, path: packet(struct.pack(">iqii", xid, 1, 0, 1 << 30))
    with pytest.raises(ServerUnreachable):
        reads.get("/hbase", 10.0)


def test_closed_reader_is_closed(server: Server, reads: ZooKeeperReads) -> None:
    reads.get("/hbase/master", 10.0)
    reads.close()
    assert server.sessions[0].is_closed
    with pytest.raises(ConnectionClosed):
        reads.get("/hbase/master", 10.0)
