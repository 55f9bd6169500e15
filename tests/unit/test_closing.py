"""Callers that come during a close wait for its end; what is dropped without close() is closed, with a warning."""

from __future__ import annotations

import gc
import threading
import warnings
from collections.abc import Iterator
from typing import Any
from urllib.request import urlopen

import pytest

import metaclient
from metaclient.errors import ConnectionClosed
from metaclient.runtime import Closing, SimRuntime, ThreadRuntime, close_dropped
from metaclient.testing import FakeCluster

#: For threads that end at once, or never; a slow machine must not miss it.
JOIN_S = 60.0


class WatchedGate:
    """A lock that tells when a second thread begins to wait for it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.is_waited_for = threading.Event()

    def acquire(self, blocking: bool = True, timeout: float = -1) -> bool:
        if blocking:
            self.is_waited_for.set()
        return self._lock.acquire(blocking, JOIN_S if blocking else -1)

    def release(self) -> None:
        self._lock.release()


def watched(closing: Closing) -> WatchedGate:
    gate = closing._gate = WatchedGate()  # type: ignore[assignment]  # for the test
    return gate  # type: ignore[return-value]  # the same


def test_callers_that_call_again_at_once_wait_for_the_end_of_close() -> None:
    """200 of them took the interpreter's lock from the closing thread, which then took 14 s to close 32 sockets."""
    connection = metaclient.connect("scripted:")
    gate = watched(connection.engine.closing)
    order: list[str] = []

    def call() -> None:
        with pytest.raises(ConnectionClosed):
            connection.tables()
        order.append("raised")

    caller = threading.Thread(target=call)
    close_backend = connection._backend.close

    def close() -> None:
        caller.start()
        assert gate.is_waited_for.wait(JOIN_S), "the caller went on without waiting"
        close_backend()
        order.append("closed")

    connection._backend.close = close  # type: ignore[method-assign]
    connection.close()
    caller.join(JOIN_S)
    assert order == ["closed", "raised"]


def test_callers_of_a_pool_wait_for_the_end_of_its_close() -> None:
    pool = metaclient.ConnectionPool(1, url="scripted:")
    gate = watched(pool._closing)

    def borrow() -> None:
        with pytest.raises(ConnectionClosed), pool.connection():
            pass

    caller = threading.Thread(target=borrow)
    close_connection = pool._connection.close_for_good

    def close() -> None:
        caller.start()
        assert gate.is_waited_for.wait(JOIN_S), "the caller went on without waiting"
        close_connection()

    pool._connection.close_for_good = close  # type: ignore[method-assign]
    pool.close()
    caller.join(JOIN_S)
    assert not caller.is_alive()


def test_callers_of_a_fake_cluster_wait_for_the_end_of_its_close() -> None:
    """200 of them made the close of the cluster take 40 s."""
    cluster = FakeCluster(servers=1)
    connection = cluster.connect()
    gate = watched(cluster.closing)

    def call() -> None:
        with pytest.raises(ConnectionClosed):
            connection.tables()

    caller = threading.Thread(target=call)
    close_network = cluster.network.close

    def close() -> None:
        close_network()
        caller.start()
        assert gate.is_waited_for.wait(JOIN_S), "the caller went on without waiting"

    cluster.network.close = close  # type: ignore[method-assign]
    cluster.close()
    caller.join(JOIN_S)
    assert not caller.is_alive()
    connection.close()


def test_a_close_that_calls_its_own_connection_does_not_wait_for_itself() -> None:
    connection = metaclient.connect("scripted:")

    def close() -> None:
        connection.close()
        with pytest.raises(ConnectionClosed):
            connection.tables()

    connection.engine.closing._gate = WatchedGate()  # type: ignore[assignment]  # it would wait for a minute
    connection._backend.close = close  # type: ignore[method-assign]
    connection.close()


def test_an_interrupted_close_leaves_no_caller_waiting() -> None:
    connection = metaclient.connect("scripted:")

    def close() -> None:
        raise KeyboardInterrupt

    connection._backend.close = close  # type: ignore[method-assign]
    with pytest.raises(KeyboardInterrupt):
        connection.close()
    assert connection.engine.closing._stage.value == "closed"
    with pytest.raises(ConnectionClosed):
        connection.tables()


# -- dropped without close() ------------------------------------------------------------------------------------------


def started_since(before: set[threading.Thread]) -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread not in before and thread.ident is not None]


def join(threads: list[threading.Thread]) -> None:
    for thread in threads:
        thread.join(JOIN_S)
        assert not thread.is_alive(), f"{thread.name} goes on, although its owner was dropped"


@pytest.fixture(scope="module")
def urls() -> Iterator[dict[str, str]]:
    with FakeCluster(servers=1) as cluster:
        front = cluster.serve(rpc_port=0)
        assert front.rpc_url is not None
        with metaclient.connect(front.rpc_url) as connection:
            connection.create_table("t", {"cf": {}})
            connection.table("t").row(b"r")  # the region server listens from here on
        yield {**front.addresses(), "fake": "fake:?servers=1", "scripted": "scripted:"}


def drop(held: list[object]) -> None:
    held.clear()
    gc.collect()


@pytest.mark.parametrize("backend", ["thrift1", "thrift2", "rpc", "fake", "scripted"])
def test_threads_and_sockets_of_a_dropped_connection_end(urls: dict[str, str], backend: str) -> None:
    """The served fake's thread of a client ends when the socket of the client is closed."""
    before = set(threading.enumerate())
    held: list[object] = [metaclient.connect(urls[backend])]
    threads = started_since(before)
    assert threads or backend == "scripted"
    with pytest.warns(ResourceWarning, match=r"unclosed <metaclient.Connection .* open>: call its close\(\)"):
        drop(held)
    join(threads)


@pytest.mark.parametrize("backend", ["thrift2", "rpc", "fake"])
def test_threads_and_sockets_of_a_dropped_pool_end(urls: dict[str, str], backend: str) -> None:
    before = set(threading.enumerate())
    held: list[object] = [metaclient.ConnectionPool(2, url=urls[backend])]
    threads = started_since(before)
    assert threads
    with pytest.warns(ResourceWarning, match=r"unclosed ConnectionPool\(size=2\)") as caught:
        drop(held)
    assert len([one for one in caught if urls[backend] in str(one.message)]) == 1
    join(threads)


@pytest.mark.parametrize("is_served", [False, True])
def test_threads_and_sockets_of_a_dropped_cluster_end(is_served: bool) -> None:
    before = set(threading.enumerate())
    held: list[Any] = [FakeCluster(servers=2, meta_replicas=2)]
    with held[0].connect() as connection:
        connection.create_table("t", {"cf": {}}, region_replication=2)
        connection.table("t").put(b"r", {b"cf:q": b"v"})
    if is_served:
        front = held[0].serve(rpc_port=0, status_port=0)
        for url in (front.thrift1_url, front.thrift2_url, front.rpc_url):
            with metaclient.connect(url) as connection:
                assert connection.table("t").row(b"r") == {b"cf:q": b"v"}
        with urlopen(f"{front.status_url}/watch.json", timeout=JOIN_S) as page:  # from now on figures are collected
            assert b"rs1" in page.read()
        del front
    threads = started_since(before)
    assert threads
    del connection
    with pytest.warns(ResourceWarning, match=r"unclosed FakeCluster\(2 of 2 servers live, .*: call its close\(\)"):
        drop(held)
    join(threads)


def test_a_front_and_a_connection_keep_their_cluster() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        front, connection = FakeCluster(servers=1).serve(), FakeCluster(servers=1).connect()
        gc.collect()
        with metaclient.connect(front.thrift2_url) as served:
            assert served.tables() == connection.tables() == []
        assert front.cluster.front is front
        front.cluster.close()
        connection._backend.cluster.close()  # type: ignore[attr-defined]  # of the fake
        connection.close()


def test_a_table_keeps_its_connection(urls: dict[str, str]) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        table = metaclient.connect(urls["thrift2"]).table("t")
        gc.collect()
        assert table.row(b"r") == {}
        table.connection.close()


def test_closed_and_failed_connections_do_not_warn() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        metaclient.connect("scripted:").close()
        with pytest.raises(ValueError, match="compat"):
            metaclient.Connection(compat="1.0")
        with SimRuntime() as runtime:
            metaclient.connect("scripted:", runtime=runtime)
        gc.collect()


def test_a_collector_that_runs_under_a_lock_does_not_deadlock() -> None:
    """A cycle may be collected in a thread that holds a lock which close() needs."""
    with ThreadRuntime() as runtime:
        lock = runtime.lock()
        is_closed = threading.Event()

        def close() -> None:
            with lock:
                is_closed.set()

        with lock, pytest.warns(ResourceWarning, match="unclosed it"):
            close_dropped("it", close)
        assert is_closed.wait(JOIN_S)


def test_a_warning_that_is_an_error_does_not_prevent_the_close() -> None:
    is_closed = threading.Event()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(ResourceWarning):
            close_dropped("it", is_closed.set)
    assert is_closed.wait(JOIN_S)
