"""Lookups in hbase:meta whose replicas differ in speed: slow ones get fewer, and none that is healthy starves."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest

from metaclient.connection import Connection, connect_to
from metaclient.runtime import SimRuntime
from metaclient.testing import ScriptedBackend

FAST_S, SLOW_S = 0.001, 0.1


@pytest.fixture
def runtime() -> Iterator[SimRuntime]:
    with SimRuntime(seed=1) as made:
        yield made


def cluster(runtime: SimRuntime, *, meta_replicas: int = 4) -> ScriptedBackend:
    backend = ScriptedBackend(runtime, meta_replicas=meta_replicas, servers=meta_replicas, latency_s=FAST_S)
    backend.add_table("t")
    return backend


def connected(backend: ScriptedBackend, mode: str = "LoadBalance", **options: Any) -> Connection:
    return connect_to(backend, runtime=backend.runtime, meta_mode=mode, **options)


def looked_up(backend: ScriptedBackend, connection: Connection, times: int, *, pause_s: float = 0.01) -> Counter[int]:
    """Return the reads of each replica of hbase:meta."""
    backend.calls.clear()
    for _ in range(times):
        connection.locate("t", b"a", reload=True)
        connection._runtime.sleep(pause_s)
    return Counter(call.replica_id or 0 for call in backend.calls if call.method == "read_meta")


def test_slow_meta_replica_gets_less_and_the_primary_nothing(runtime: SimRuntime) -> None:
    backend = cluster(runtime)
    connection = connected(backend)
    backend.on("read_meta", replica=2).delays(SLOW_S)
    looked_up(backend, connection, 30)
    reads = looked_up(backend, connection, 300)
    assert reads[0] == 0
    assert 1 <= reads[2] <= 20
    assert min(reads[1], reads[3]) > 120


def test_no_healthy_meta_replica_starves(runtime: SimRuntime) -> None:
    """One replica is slow for a while, and each is paused now and then: later all have equal shares again."""
    backend = cluster(runtime)
    connection = connected(backend)
    backend.on("read_meta", replica=2).delays(SLOW_S)
    looked_up(backend, connection, 100)
    backend.clear_rules()
    for replica in (1, 2, 3):
        backend.on("read_meta", replica=replica, times=1).delays(SLOW_S)
    looked_up(backend, connection, 1500)
    reads = looked_up(backend, connection, 300)
    assert reads == {1: 100, 2: 100, 3: 100}


def test_equally_fast_meta_replicas_are_read_in_turn(runtime: SimRuntime) -> None:
    backend = cluster(runtime)
    reads = looked_up(backend, connected(backend), 300)
    assert reads == {1: 100, 2: 100, 3: 100}


def test_hedged_lookups_leave_a_primary_that_is_slow_for_good(runtime: SimRuntime) -> None:
    """Every lookup used to wait for the whole delay, a second, before it asked a replica."""
    backend = cluster(runtime)
    connection = connected(backend, "HedgedRead")
    backend.on("read_meta", replica=0).delays(5.0)
    begun = runtime.now()
    looked_up(backend, connection, 100)
    assert runtime.now() - begun < 10.0


def test_hedged_lookups_return_to_the_primary_when_it_is_fast_again(runtime: SimRuntime) -> None:
    backend = cluster(runtime)
    connection = connected(backend, "HedgedRead")
    backend.on("read_meta", replica=0).delays(5.0)
    looked_up(backend, connection, 100)
    backend.clear_rules()
    looked_up(backend, connection, 1500)
    assert set(looked_up(backend, connection, 100)) == {0}


def test_hedged_lookups_with_hbases_plan_ask_the_primary_first(runtime: SimRuntime) -> None:
    backend = cluster(runtime)
    connection = connected(backend, "HedgedRead", hedge_plan="all_at_once")
    backend.on("read_meta", replica=0).delays(5.0)
    assert looked_up(backend, connection, 20)[0] == 20
