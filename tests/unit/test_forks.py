"""After ``os.fork()``: what runtimes, pools and clusters in memory are in a child process."""

from __future__ import annotations

import gc
import logging
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator

import pytest

import metaclient
from metaclient import Connection, ConnectionPool
from metaclient.runtime import SimRuntime, ThreadRuntime, forks
from metaclient.wire.listener import Listener
from metaclient_fake import FakeCluster
from metaclient_fake.factory import close_named_clusters
from metaclient_local_hbase import LocalHBase
from metaclient_local_hbase import cluster as local_cluster
from spark_connector import clients, lookup_counts
from tests.unit.forked import Child, in_child, in_children

pytestmark = pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")

PATIENCE_S = 30.0


@pytest.fixture
def runtime() -> Iterator[ThreadRuntime]:
    with ThreadRuntime(seed=1) as made:
        yield made


def error_of(function: Callable[[], object]) -> str:
    try:
        return f"returned {function()!r}"
    except Exception as error:
        return f"{type(error).__name__}: {error}"


def in_a_thread(function: Callable[[], object]) -> None:
    """In a thread that is over, and whose locks stay held, when the process forks."""
    thread = threading.Thread(target=function)
    thread.start()
    thread.join()


# -- the runtime -------------------------------------------------------------------------------------------------------


def test_children_of_a_seeded_runtime_draw_different_numbers(runtime: ThreadRuntime) -> None:
    expected = ThreadRuntime(seed=1).rng.getrandbits(63)
    drawn = in_children([lambda: runtime.rng.getrandbits(63)] * 3)
    assert len({*drawn, expected}) == 4
    assert runtime.rng.getrandbits(63) == expected, "the parent's numbers are those of its seed"


def test_tasks_and_timers_of_the_parent_do_not_run_or_hang_in_the_child(runtime: ThreadRuntime) -> None:
    gate = runtime.pending(name="gate")
    running, daemon = runtime.start(gate.result, name="running"), runtime.start_daemon(gate.result, name="daemon")
    timer = runtime.call_later(3600.0, print)

    def child() -> tuple[str, str, bool, dict[str, int], int]:
        theirs = error_of(running.result), error_of(daemon.result)
        return (*theirs, timer.cancel(), runtime.stats(), runtime.start(lambda: 7).result(runtime.now() + PATIENCE_S))

    first, second, is_cancelled, stats, answer = in_child(child)
    assert first.startswith("ConnectionClosed: task running belongs to the parent of this process")
    assert second.startswith("ConnectionClosed: task daemon belongs to the parent of this process")
    assert not is_cancelled
    assert stats == dict.fromkeys(stats, 0)
    assert answer == 7
    gate.complete("still here")
    assert running.result(runtime.now() + PATIENCE_S) == "still here"
    assert timer.cancel()


def test_queued_task_of_the_parent_fails_in_the_child() -> None:
    with ThreadRuntime(max_tasks=1) as runtime:
        gate = runtime.pending()
        runtime.start(gate.result)
        queued = runtime.start(lambda: "ran", name="queued")
        assert "task queued belongs to the parent" in in_child(lambda: error_of(queued.result))
        gate.complete(None)
        assert queued.result(runtime.now() + PATIENCE_S) == "ran"


def test_task_that_forks_goes_on_in_both_processes(runtime: ThreadRuntime) -> None:
    """The thread that forked is the child's only thread, and still a worker: it may start and await other tasks."""

    def fork_and_start() -> str:
        return in_child(lambda: runtime.start(lambda: "started").result(runtime.now() + PATIENCE_S))

    for start in (runtime.start, runtime.start_daemon):
        assert start(fork_and_start).result(runtime.now() + PATIENCE_S) == "started"


def test_closing_in_the_child_waits_for_no_thread_of_the_parent(runtime: ThreadRuntime) -> None:
    gate = runtime.pending()
    running = runtime.start(gate.result)

    def child() -> float:
        begun = time.monotonic()
        runtime.close(timeout_s=PATIENCE_S)
        return time.monotonic() - begun

    assert in_child(child) < PATIENCE_S / 3
    assert not runtime.closed
    gate.complete(None)
    running.result(runtime.now() + PATIENCE_S)


def test_fork_count_tells_how_many_forks_lie_between(runtime: ThreadRuntime) -> None:
    assert in_child(lambda: (runtime.fork_count, in_child(lambda: runtime.fork_count))) == (1, 2)
    assert runtime.fork_count == 0


class Holder:
    def __init__(self, runtime: ThreadRuntime, said: list[str], name: str) -> None:
        self.said, self.name = said, name
        runtime.on_fork(self.renew)

    def renew(self) -> None:
        self.said.append(self.name)
        if self.name == "broken":
            raise ValueError("on purpose")


def test_holders_are_renewed_in_order_while_they_live_though_one_fails(
    runtime: ThreadRuntime, caplog: pytest.LogCaptureFixture
) -> None:
    said: list[str] = []
    kept = [Holder(runtime, said, name) for name in ("first", "gone", "broken", "last")]
    registered = len(forks._methods)
    del kept[1]
    gc.collect()
    assert len(forks._methods) < registered, "what is gone is not kept in the registry"
    with caplog.at_level(logging.ERROR):
        assert in_child(lambda: (said, [record.name for record in caplog.records])) == (
            ["first", "broken", "last"],
            ["metaclient.runtime.forks"],
        )
    assert said == []


def test_registry_is_silent_when_the_interpreter_ends() -> None:
    program = "import metaclient; connection = metaclient.connect('fake:'); connection.tables()"
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, timeout=PATIENCE_S, check=True)
    assert ended.stderr == b""


def test_world_on_virtual_time_is_copied_whole() -> None:
    with (
        SimRuntime(seed=3) as runtime,
        FakeCluster(servers=2, runtime=runtime) as cluster,
        cluster.connect() as connection,
    ):
        connection.create_table("t", {"cf": {}})
        connection.table("t").put(b"r", {b"cf:a": b"1"})
        assert in_child(lambda: dict(connection.table("t").row(b"r"))) == {b"cf:a": b"1"}


# -- pools -------------------------------------------------------------------------------------------------------------


def test_permits_of_the_parents_threads_are_free_in_the_child() -> None:
    with FakeCluster(servers=1) as cluster:
        url = cluster.serve().thrift2_url
        with ConnectionPool(2, url=url) as pool:
            in_a_thread(lambda: pool._acquire(None))  # another thread of the parent has one
            with pool.connection():

                def child() -> tuple[int, list[bytes]]:
                    return pool._free, pool._connection.tables()

                assert in_child(child) == (1, []), "this thread's own permit is in use in the child, too"

            def lock_held() -> int:
                with pool.connection(timeout=1.0) as one, pool._returned:
                    assert one.tables() == []
                    return pool._free

            in_a_thread(pool._returned._lock.acquire)
            started = Child(lock_held)
            pool._returned._lock.release()
            assert started.result() == 1


# -- clusters in memory ------------------------------------------------------------------------------------------------


def uses(connection: Connection) -> list[str]:
    table = connection.table("t")
    return [
        error_of(lambda: table.row(b"r")),
        error_of(lambda: table.put(b"r", {b"cf:a": b"2"})),
        error_of(lambda: list(table.scan())),
        error_of(connection.tables),
        error_of(lambda: connection.locate("t", b"r", reload=True)),
    ]


@pytest.mark.parametrize("url", ["fake:", "fake:forked", "scripted:"])
def test_child_is_refused_by_a_cluster_in_the_parents_memory(url: str) -> None:
    """A write to the child's copy would be acknowledged and lost; a read would miss what the parent writes."""
    try:
        with metaclient.connect(url) as connection:
            connection.create_table("t", {"cf": {}})
            connection.table("t").put(b"r", {b"cf:a": b"1"})

            def child() -> list[str]:
                said = uses(connection)
                connection.close()
                return said

            for said in in_child(child):
                assert said.startswith("ConnectionClosed: "), said
                assert "belongs to the parent of this process (os.fork)" in said
            assert connection.table("t").row(b"r") == {b"cf:a": b"1"}
    finally:
        close_named_clusters()


def test_name_of_a_parents_cluster_is_refused_and_another_is_not() -> None:
    try:
        with metaclient.connect("fake:forked") as connection:
            connection.create_table("t", {"cf": {}})

        def child() -> tuple[str, list[bytes], list[bytes]]:
            refused = error_of(lambda: metaclient.connect("fake:forked"))
            with metaclient.connect("fake:other") as other, metaclient.connect("fake:") as unnamed:
                return refused, other.tables(), unnamed.tables()

        refused, *others = in_child(child)
        assert "FakeCluster.serve" in refused
        assert others == [[], []]
    finally:
        close_named_clusters()


def test_parents_cluster_refuses_every_handle_and_closes_at_once() -> None:
    with FakeCluster(servers=2) as cluster:
        front = cluster.serve()
        with cluster.connect() as connection:
            connection.create_table("t", {"cf": {}})

        def child() -> tuple[list[str], str, str | None, float]:
            handles: list[Callable[[], object]] = [
                cluster.servers,
                cluster.status,
                cluster.balance,
                cluster.connect,
                lambda: cluster.kill("rs1"),
                lambda: cluster.regions("t"),
                lambda: cluster.wait_until_replicated(),
                lambda: cluster.serve(),
            ]
            said = [error_of(handle) for handle in handles]
            begun = time.monotonic()
            front.close()
            cluster.close()
            return said, repr(cluster), front.thrift2_url, time.monotonic() - begun

        said, name, url, closing_s = in_child(child)
        assert [one for one in said if "belongs to the parent" not in one] == []
        assert name == "FakeCluster(of the parent of this process)"
        assert closing_s < 5.0
        assert url == front.thrift2_url
        assert url is not None

        def by_tcp() -> list[bytes]:
            with metaclient.connect(url) as way:
                return way.tables()

        assert in_child(by_tcp) == [b"t"]


def test_port_of_a_served_fake_closes_with_the_parent_though_a_child_lives(runtime: ThreadRuntime) -> None:
    (is_ready, ready), (end, stop) = os.pipe(), os.pipe()
    with Listener("127.0.0.1", 0, runtime=runtime, name="echo", serve=lambda sock: None) as listener:
        port = listener.port
        child = Child(lambda: (os.write(ready, b"x"), os.read(end, 1)))
        os.read(is_ready, 1)
    try:
        with Listener("127.0.0.1", port, runtime=runtime, name="again", serve=lambda sock: None):
            pass
    finally:
        os.write(stop, b"x")
        assert child.result() == (1, b"x")
        for one in (is_ready, ready, end, stop):
            os.close(one)


# -- programs around them ----------------------------------------------------------------------------------------------


def test_child_of_the_starter_does_not_take_a_local_hbase_down(monkeypatch: pytest.MonkeyPatch) -> None:
    killed: list[str] = []
    monkeypatch.setattr(local_cluster, "kill_all", killed.append)
    cluster = LocalHBase.__new__(LocalHBase)
    runtime = ThreadRuntime()
    cluster._runtime, cluster._children, cluster._watch = runtime, {}, None
    runtime.on_fork(cluster._leave_to_parent)

    def child() -> list[str]:
        cluster.down()
        return killed

    assert in_child(child) == []


def test_spark_worker_forked_while_the_clients_lock_is_held_gets_clients_of_its_own() -> None:
    name = clients.process_name()
    in_a_thread(clients._lock.acquire)
    in_a_thread(lookup_counts._guard.acquire)
    try:
        child = Child(lambda: (clients.process_name(), clients.lookups_made(), lookup_counts._guard.acquire()))
    finally:
        clients._lock.release()
        lookup_counts._guard.release()
    theirs, lookups, is_free = child.result()
    assert theirs != name
    assert (lookups, is_free) == ({}, True)
    assert clients.process_name() == name
