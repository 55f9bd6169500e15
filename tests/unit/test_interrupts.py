"""Calls that are interrupted at random instants, as by Ctrl-C, Celery's soft time limit or pytest-timeout.

``METACLIENT_INTERRUPTS=10000`` interrupts that many calls per backend.
"""

from __future__ import annotations

import os
import random
import signal
import time
from collections.abc import Callable, Iterator
from types import FrameType

import pytest

import metaclient
from metaclient import Connection
from metaclient_fake import FakeCluster

# An interrupt in a weak reference's callback (of threading's own sets, say) is swallowed and reported by Python itself.
pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")

INTERRUPTS = int(os.environ.get("METACLIENT_INTERRUPTS", "300"))
BACKENDS = ["fake", "thrift1", "thrift2", "hbase+rpc"]
ROWS = [b"r%03d" % number for number in range(30)]
#: Afterwards no call may have to wait for the rpc timeout of 5 s. A call takes less than a millisecond, and less than a
#: second while a server of the in-process fake restarts because a write was cut off.
SLOW_S = 4.0
#: Tasks of connections that have just been closed and did not get to run since.
ENDING_MAX = 3
#: Delays are drawn up to this many times the duration of a call, so that most instants are within one.
SPREAD = 1.5


class Interrupted(BaseException):
    """What the signal handler raises."""


class Alarm:
    """Raises Interrupted once in the main thread, some time after it was set."""

    def __init__(self) -> None:
        self.is_armed = False

    def __call__(self, number: int, frame: FrameType | None) -> None:
        if self.is_armed:
            self.is_armed = False
            raise Interrupted

    def interrupt(self, call: Callable[[], object], delay_s: float) -> bool:
        """Return whether the call was interrupted."""
        try:
            self.is_armed = True
            signal.setitimer(signal.ITIMER_REAL, delay_s)
            call()
            self.is_armed = False
        except Interrupted:
            return True
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
        return False


@pytest.fixture
def alarm() -> Iterator[Alarm]:
    made = Alarm()
    before = signal.signal(signal.SIGALRM, made)
    yield made
    signal.setitimer(signal.ITIMER_REAL, 0)
    signal.signal(signal.SIGALRM, before)


@pytest.fixture
def cluster() -> Iterator[FakeCluster]:
    with FakeCluster(servers=3, meta_replicas=3) as made:
        with made.connect() as connection:
            connection.create_table("t", {"cf": {}}, splits=[b"r010", b"r020"])
            for row in ROWS:
                connection.table("t").put(row, {b"cf:a": row})
        yield made


def connected(cluster: FakeCluster, backend: str) -> Connection:
    if backend == "fake":
        return cluster.connect()
    front = cluster.serve(rpc_port=0)
    urls = {"thrift1": front.thrift1_url, "thrift2": front.thrift2_url, "hbase+rpc": front.rpc_url}
    return metaclient.connect(str(urls[backend]), rpc_timeout_s=5.0, operation_timeout_s=10.0)


def check_nothing_is_leaked(cluster: FakeCluster, connection: Connection) -> None:
    for server in cluster.servers_by_host.values():
        assert (server.handlers.busy, server.meta_handlers.busy) == (0, 0), f"handlers of {server} are lost"
    backend = connection._backend
    channel, connections = getattr(backend, "_channel", None), getattr(backend, "_connections", None)
    if channel is not None:
        assert {state["in_use"] for state in channel.gateways.status().values()} == {0}
    if connections is not None:
        assert {state["calls"] for state in connections.status().values()} == {0}
        tasks = [task for task in connections._runtime._daemons.values() if task.name.startswith("native-")]
        assert len(tasks) <= len(connections.status()) + ENDING_MAX, "connections that nobody knows are open"


@pytest.mark.parametrize("backend", BACKENDS)
def test_interrupts_at_random_instants_leak_nothing_and_slow_no_later_call(
    cluster: FakeCluster, alarm: Alarm, backend: str
) -> None:
    rng = random.Random(16)
    with connected(cluster, backend) as connection:
        table = connection.table("t")
        slowest_s = interrupted = 0.0

        def call() -> None:
            row = rng.choice(ROWS)
            if rng.random() < 0.7:
                assert table.row(row) == {b"cf:a": row}
            else:
                table.put(row, {b"cf:a": row})

        begun = time.perf_counter()
        for _ in range(200):
            call()
        usual_s = (time.perf_counter() - begun) / 200
        while interrupted < INTERRUPTS:
            begun = time.perf_counter()
            interrupted += alarm.interrupt(call, rng.uniform(1e-6, SPREAD * usual_s))
            slowest_s = max(slowest_s, time.perf_counter() - begun)
        for row in ROWS:
            begun = time.perf_counter()
            assert table.row(row) == {b"cf:a": row}
            slowest_s = max(slowest_s, time.perf_counter() - begun)
        assert slowest_s < SLOW_S
        check_nothing_is_leaked(cluster, connection)
