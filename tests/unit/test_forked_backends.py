"""A connection in a parent and its children after ``os.fork()``, over TCP to a served fake, by every way there is.

The fake lives in the parent: in a child its memory is a dead copy, and only the sockets lead to it.
"""

from __future__ import annotations

import multiprocessing
import os
import shutil
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

import pytest

import metaclient
from metaclient import Connection, ConnectionClosed, MetaClientError
from metaclient.metarow import MetaRegionServer, encode_meta_region_server
from metaclient.runtime import Lock, Pending, ThreadRuntime
from metaclient_fake import FakeCluster
from tests.unit.bridges import ZooKeeper, http_bridge, tls_bridge
from tests.unit.forked import CHILD_S, Child, descriptors, fork, in_child, in_children

pytestmark = pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")

ROWS = [b"r%03d" % number for number in range(30)]
VALUES = {row: b"value of " + row for row in ROWS}
SCHEMES = ["thrift2", "thrift2-compact", "thrift2+http", "thrift2+tls", "thrift1", "hbase+rpc", "hbase"]
#: The same machinery is below the others: one of each kind is enough for the finer hazards.
KINDS = ["thrift2", "thrift1", "hbase+rpc"]
PATIENCE_S = 30.0
#: Between two signals to a thread that has not handled the first one.
SIGNAL_S = 0.1


class World:
    """A served fake, and what a connection by each scheme is given."""

    def __init__(self, folder: Path, ways: ExitStack) -> None:
        self.cluster = ways.enter_context(FakeCluster(servers=3, meta_replicas=3))
        self.front = self.cluster.serve(rpc_port=0)
        self.tls_ends: list[str] = []
        with self.cluster.connect() as connection:
            connection.create_table("t", {"cf": {}}, splits=[b"r010", b"r020"])
            connection.create_table("counters", {"cf": {}})
            table = connection.table("t")
            for row, value in VALUES.items():
                table.put(row, {b"cf:a": value})
        port = self.front.thrift2_port
        assert port is not None
        self.urls = {
            "thrift2": f"thrift2://127.0.0.1:{port}",
            "thrift2-compact": f"thrift2://127.0.0.1:{port}?protocol=compact&transport=framed",
            "thrift2+http": f"thrift2+http://127.0.0.1:{ways.enter_context(http_bridge(port))}",
            "thrift1": f"{self.front.thrift1_url}",
            "hbase+rpc": f"{self.front.rpc_url}",
        }
        certificate = _certificate(folder)
        if certificate is not None:
            tls = ways.enter_context(tls_bridge(port, certificate, self.tls_ends))
            self.urls["thrift2+tls"] = f"thrift2+tls://127.0.0.1:{tls}?ca={certificate[0]}"
        with metaclient.connect(self.urls["hbase+rpc"]) as connection:
            replicas = connection._backend.meta_replicas(connection.engine.deadline())
        nodes = {
            f"/hbase/meta-region-server{f'-{one.replica_id}' if one.replica_id else ''}": encode_meta_region_server(
                MetaRegionServer(one.server)
            )
            for one in replicas
            if one.server is not None
        }
        self.zookeeper = ZooKeeper(nodes)
        ways.callback(self.zookeeper.close)
        self.urls["hbase"] = f"hbase://127.0.0.1:{self.zookeeper.port}"

    def connect(self, scheme: str, runtime: ThreadRuntime | None = None) -> Connection:
        if scheme == "hbase":
            pytest.importorskip("kazoo")
        if scheme not in self.urls:
            pytest.skip("making a certificate needs openssl")
        return metaclient.connect(self.urls[scheme], runtime=runtime)


def _certificate(folder: Path) -> tuple[Path, Path] | None:
    if shutil.which("openssl") is None:
        return None
    key, cert = folder / "key.pem", folder / "cert.pem"
    made = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=localhost"]
    names = ["-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1"]
    subprocess.run([*made, *names, "-keyout", str(key), "-out", str(cert)], check=True, capture_output=True)
    return cert, key


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    with ExitStack() as ways:
        yield World(tmp_path_factory.mktemp("tls"), ways)


@pytest.fixture
def connection(world: World, request: pytest.FixtureRequest) -> Iterator[Connection]:
    with world.connect(request.param) as made:
        read_all(made)
        yield made


def read_all(connection: Connection, times: int = 1) -> int:
    """Read every row; how many answers were not the row's own."""
    table = connection.table("t")
    return sum(table.row(row) != {b"cf:a": value} for _ in range(times) for row, value in VALUES.items())


def count_up(connection: Connection, row: bytes, times: int = 20) -> int:
    table = connection.table("counters")
    for _ in range(times):
        table.counter_inc(row, b"cf:n")
    return times


# -- answers -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("connection", SCHEMES, indirect=True)
def test_parent_and_children_never_read_each_others_answers(connection: Connection) -> None:
    wrong: list[int] = []
    read = partial(read_all, connection, 3)
    assert in_children([read] * 3, lambda: wrong.append(read())) == [0, 0, 0]
    assert wrong == [0]
    assert read() == 0


@pytest.mark.parametrize("connection", SCHEMES, indirect=True)
def test_no_increment_of_parent_or_child_is_dropped_as_a_repetition(
    connection: Connection, request: pytest.FixtureRequest
) -> None:
    row = request.node.name.encode()
    count = partial(count_up, connection, row)
    count()
    assert sum(in_children([count] * 3, count)) == 60
    assert connection.table("counters").counter_get(row, b"cf:n") == 100


@pytest.mark.parametrize("connection", KINDS, indirect=True)
def test_children_of_a_pool_of_processes_read_right(connection: Connection) -> None:
    global _shared
    _shared = connection
    with multiprocessing.get_context("fork").Pool(3) as pool:
        assert pool.map_async(_value, ROWS * 3, chunksize=5).get(PATIENCE_S) == list(VALUES.values()) * 3
    assert read_all(connection) == 0


_shared: Connection


def _value(row: bytes) -> bytes:
    return _shared.table("t").row(row)[b"cf:a"]


@pytest.mark.parametrize("connection", KINDS, indirect=True)
def test_fork_of_a_fork_is_a_process_of_its_own(connection: Connection) -> None:
    def child() -> tuple[int, list[int]]:
        return read_all(connection), in_children([partial(read_all, connection)] * 2, partial(read_all, connection))

    assert in_child(child) == (0, [0, 0])


# -- the parent --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("scheme", SCHEMES)
def test_child_leaves_the_parents_sockets_and_sessions_open(world: World, scheme: str) -> None:
    with world.connect(scheme) as connection:
        read_all(connection)
        mine, ends, closed = descriptors(), list(world.tls_ends), world.zookeeper.closed

        def child() -> int:
            wrong = read_all(connection)
            if connection.capabilities.meta_replicas:
                connection.meta_replicas()
            connection.close()
            return wrong

        assert in_child(child) == 0
        has_session = scheme == "hbase"
        assert world.zookeeper.closed == closed + has_session, "the child closes its own session and no other"
        assert read_all(connection) == 0
        assert mine <= descriptors(), "a connection of the parent was closed under it"
        if scheme == "thrift2+tls":
            assert len(world.tls_ends) == len(ends) + 1, "only the child's own connection ended"


@pytest.mark.skipif(not Path("/proc/self/fd").is_dir(), reason="looks at descriptors in /proc")
@pytest.mark.parametrize("scheme", ["thrift2", "thrift2+http", "thrift2+tls", "thrift1", "hbase+rpc", "hbase"])
def test_child_keeps_no_socket_of_its_parent(world: World, scheme: str) -> None:
    with world.connect(scheme) as connection:
        read_all(connection)
        theirs = {f"socket:[{os.fstat(number).st_ino}]" for number in _sockets(connection)}
        assert theirs, "the connection has sockets, which the child must not have"
        assert theirs <= descriptors()
        assert in_child(lambda: descriptors() & theirs) == set()


def _sockets(connection: Connection) -> list[int]:
    """The descriptors of a connection's sockets, of its own and of kazoo's."""
    backend: Any = connection._backend
    if hasattr(backend, "gateways"):
        states = backend._channel.gateways._states.values()
        return [link.transport._stream._socket.fileno() for state in states for link in state.idle]
    opened = [one._stream._socket for one in backend._connections._open.values()]
    return [one.fileno() for one in (*opened, *getattr(backend._registry, "_sockets", ()))]


@pytest.mark.parametrize("scheme", SCHEMES)
def test_child_that_only_closes_its_copy_disturbs_nobody(world: World, scheme: str) -> None:
    with world.connect(scheme) as connection:
        read_all(connection)
        closed = world.zookeeper.closed
        mine = descriptors()
        begun = time.monotonic()
        in_child(connection.close)
        assert time.monotonic() - begun < 5.0
        assert read_all(connection) == 0
        assert mine <= descriptors()
        assert world.zookeeper.closed == closed


# -- in the middle of something ----------------------------------------------------------------------------------------


class LockKeeper(ThreadRuntime):
    """Remembers every lock that it hands out, and can hold all of them."""

    def __init__(self) -> None:
        super().__init__(seed=7)
        self.handed_out: list[Lock] = []
        self._held: list[Any] = []

    def lock(self) -> Lock:
        made = super().lock()
        self.handed_out.append(made)
        return made

    def hold_all(self) -> None:
        """In a thread that is gone in the child, as other threads of the parent are."""
        locks: list[Any] = [*self.handed_out, self._mutex, self._timers._mutex]
        thread = threading.Thread(target=lambda: self._held.extend(lock for lock in locks if lock.acquire(False)))
        thread.start()
        thread.join()

    def release_all(self) -> None:
        for lock in self._held:
            lock.release()


@pytest.mark.parametrize("scheme", SCHEMES)
def test_fork_while_another_thread_holds_every_lock(world: World, scheme: str) -> None:
    with LockKeeper() as runtime, world.connect(scheme, runtime) as connection:
        read_all(connection)
        runtime.call_later(3600.0, print)

        def child() -> tuple[int, int, int]:
            wrong, counted = read_all(connection), count_up(connection, b"held " + scheme.encode())
            rows = len(list(connection.table("t").scan(batch_size=7)))
            if connection.capabilities.meta_replicas:
                connection.locate("t", b"r015", reload=True)
                connection.meta_replicas()
            connection.stats()
            runtime.call_later(3600.0, print).cancel()
            connection.close()
            return wrong, counted, rows

        runtime.hold_all()
        started = Child(child)
        runtime.release_all()
        assert started.result() == (0, 20, 30)
        assert read_all(connection) == 0


def until(is_so: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not is_so():
        assert time.monotonic() < deadline
        time.sleep(0.002)  # the other side is a real socket


@pytest.mark.parametrize("scheme", KINDS)
def test_fork_while_another_thread_waits_for_its_answer(world: World, scheme: str) -> None:
    """The reply of the parent's thread is the parent's: the child neither reads it nor waits for it."""
    row = b"r005"
    with world.connect(scheme) as connection, ThreadRuntime() as runtime, world.cluster.connect() as inside:
        read_all(connection)
        server = inside.locate("t", row).server
        world.cluster.pause(server.host, keeps_session=True)
        try:
            waiting = runtime.start(connection.table("t").row, row)
            until(lambda: _is_in_flight(connection))
            elsewhere = next(one for one in ROWS if inside.locate("t", one).server.host != server.host)
            value = in_child(lambda: connection.table("t").row(elsewhere))
            assert value == {b"cf:a": VALUES[elsewhere]}
            late = Child(partial(read_all, connection))
        finally:
            world.cluster.resume(server.host)
        assert late.result() == 0
        assert waiting.result(runtime.now() + PATIENCE_S) == {b"cf:a": VALUES[row]}
        assert read_all(connection) == 0


def _is_in_flight(connection: Connection) -> bool:
    backend = connection._backend
    if hasattr(backend, "gateways"):
        return any(state["in_use"] for state in backend.gateways().values())
    return any(state["calls"] for state in backend.connections().values())  # type: ignore[attr-defined]


def test_child_waits_for_no_lookup_that_a_thread_of_its_parent_makes(world: World) -> None:
    """Nobody in the child would ever end that flight; the deadline would be the answer."""
    with world.connect("hbase+rpc") as connection, ThreadRuntime() as runtime:
        connection.meta_replicas()
        hosts = list(world.cluster.servers_by_host)
        for host in hosts:
            world.cluster.pause(host, keeps_session=True)
        try:
            waiting = runtime.start(connection.locate, "t", b"r005")
            until(lambda: bool(connection.engine.locator._flights))
            child = Child(lambda: (connection.locate("t", b"r005").region.start_key, connection.stats()["lookups"]))
        finally:
            for host in hosts:
                world.cluster.resume(host)
        start_key, lookups = child.result()
        assert start_key == b""
        assert lookups == {"flights": 1, "joined": 0}
        assert waiting.result(runtime.now() + PATIENCE_S).region.start_key == b""


@pytest.mark.parametrize("scheme", KINDS)
def test_fork_in_a_signal_handler_in_the_middle_of_a_call(world: World, scheme: str) -> None:
    """The thread that makes the call forks between send and receive; both processes go on with the call."""
    row, parent = b"r005", os.getpid()
    read, write = os.pipe()
    with world.connect(scheme) as connection, world.cluster.connect() as inside, ThreadRuntime() as runtime:
        read_all(connection)
        host = inside.locate("t", row).server.host

        forked: Pending[None] = runtime.pending()

        def fork_in_handler(number: int, frame: object) -> None:
            if forked.is_done:
                return
            if fork() == 0:
                signal.alarm(CHILD_S)
            else:
                forked.complete(None)
                runtime.start(world.cluster.resume, host)

        def interrupt(thread: int) -> None:
            """Send the signal until it is handled: CPython misses one that arrives right before it waits for bytes."""
            until(lambda: _is_in_flight(connection))
            while not forked.is_done:
                signal.pthread_kill(thread, signal.SIGUSR1)
                runtime.wait_first([forked], runtime.now() + SIGNAL_S)

        before = signal.signal(signal.SIGUSR1, fork_in_handler)
        world.cluster.pause(host, keeps_session=True)
        try:
            interrupting = runtime.start(interrupt, threading.get_ident())
            value = connection.table("t").row(row)[b"cf:a"]
        except MetaClientError as error:
            value = repr(error).encode()
        finally:
            if os.getpid() != parent:
                os.write(write, value)
                os._exit(0)
            interrupting.result(runtime.now() + PATIENCE_S)  # before the handler is gone
            signal.signal(signal.SIGUSR1, before)
            os.close(write)
        with os.fdopen(read, "rb") as pipe:
            assert pipe.read() == VALUES[row]
        os.wait()
        assert value == VALUES[row]
        assert read_all(connection) == 0


# -- scans and batches -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("connection", KINDS, indirect=True)
def test_child_neither_goes_on_with_nor_closes_a_scan_of_its_parent(connection: Connection) -> None:
    rows = connection.table("t").scan(batch_size=4)
    seen = [next(rows)[0] for _ in range(6)]

    def child() -> str:
        try:
            list(rows)
        except ConnectionClosed as error:
            connection.close()
            return str(error)
        return "went on"

    assert "the open scan of table 't' belongs to the parent" in in_child(child)
    in_child(rows.close)  # type: ignore[attr-defined]  # a generator
    assert [*seen, *(row for row, _ in rows)] == ROWS


@pytest.mark.parametrize("connection", KINDS, indirect=True)
def test_queued_mutations_are_sent_by_the_parent_alone(connection: Connection) -> None:
    table = connection.table("counters")
    batch = table.batch()
    empty = table.batch()
    batch.put(b"queued", {b"cf:by": b"parent"})

    def child() -> list[str]:
        said = []
        for use in (batch.send, partial(batch.put, b"other", {b"cf:by": b"child"})):
            with pytest.raises(ConnectionClosed, match="1 queued rows") as caught:
                use()
            said.append(str(caught.value))
        empty.put(b"of child", {b"cf:by": b"child"})
        empty.send()
        return [*said, str(table.row(b"queued"))]

    assert in_child(child)[2] == "{}"
    batch.send()
    assert table.row(b"queued") == {b"cf:by": b"parent"}
    assert table.row(b"of child") == {b"cf:by": b"child"}
    table.delete(b"queued")


# -- numbers -----------------------------------------------------------------------------------------------------------


def test_children_draw_nonces_and_groups_of_their_own(world: World) -> None:
    with LockKeeper() as runtime, world.connect("hbase+rpc", runtime) as connection:
        backend = connection._backend

        def drawn() -> tuple[int, int, int]:
            return (
                backend._nonce_group,  # type: ignore[attr-defined]
                backend.direct._nonce_group,  # type: ignore[attr-defined]
                runtime.rng.getrandbits(63),
            )

        before = backend._nonce_group  # type: ignore[attr-defined]
        found = [*in_children([drawn] * 3), drawn()]
        assert all(group == direct for group, direct, _ in found)
        assert len({group for group, _, _ in found}) == 4
        assert len({nonce for _, _, nonce in found}) == 4
        assert found[-1][0] == before, "the parent's group stays"


def test_counters_of_a_child_begin_at_zero_and_locations_are_kept(world: World) -> None:
    with world.connect("hbase+rpc") as connection:
        connection.warm_up("t")
        connection.locate("t", b"r005")

        def child() -> tuple[object, object, object]:
            before = connection.stats()
            connection.locate("t", b"r015")
            return before["lookups"], before["cache"], connection.stats()["cache"]["hits"]

        lookups, cache, hits = in_child(child)
        assert lookups == {"flights": 0, "joined": 0}
        assert cache == {"hits": 0, "misses": 0, "regions": 3, "evictions": 0, "lost": 0, "moved": 0}
        assert hits == 1
