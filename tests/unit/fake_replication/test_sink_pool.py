"""Sinks are a random sample of the peer's servers, with the numbers of TestReplicationSinkManager (HBase 2.6.1)."""

import pytest

from metaclient.model import ServerName
from metaclient.runtime import SimRuntime
from metaclient_fake.replication.sinks import SinkPool


def servers(count: int) -> list[ServerName]:
    return [ServerName(f"rs{number}", 16020, 1) for number in range(count)]


def pool_of(count: int, seed: int = 1) -> SinkPool:
    pool = SinkPool(SimRuntime(seed=seed), ratio=0.5, threshold=3)
    pool.update(servers(count))
    return pool


@pytest.mark.parametrize(("count", "sinks"), [(20, 10), (2, 1), (1, 1), (0, 0)])
def test_source_uses_half_of_the_peer_and_at_least_one_server(count: int, sinks: int) -> None:
    assert len(pool_of(count).sinks) == sinks


def test_sink_leaves_after_the_fourth_failure_in_a_row() -> None:
    pool = pool_of(20)
    bad = pool.sinks[0]
    for _ in range(3):
        pool.failed(bad)
    assert bad in pool.sinks
    pool.failed(bad)
    assert bad not in pool.sinks
    assert len(pool.sinks) == 9


def test_success_starts_the_count_of_failures_anew() -> None:
    pool = pool_of(20)
    shaky = pool.sinks[0]
    for _ in range(3):
        pool.failed(shaky)
    pool.succeeded(shaky)
    for _ in range(3):
        pool.failed(shaky)
    assert shaky in pool.sinks


def test_sample_without_sinks_is_drawn_anew_from_all_servers() -> None:
    pool = pool_of(4)
    for sink in pool.sinks:
        for _ in range(4):
            pool.failed(sink)
    assert len(pool.sinks) == 2


def test_failure_of_a_sink_that_has_left_removes_no_other() -> None:
    pool = pool_of(20)
    gone = next(server for server in servers(20) if server not in pool.sinks)
    for _ in range(5):
        pool.failed(gone)
    assert len(pool.sinks) == 10


def test_started_server_of_the_peer_is_drawn_from_the_next_call_on() -> None:
    pool = pool_of(1)
    assert pool.update(servers(2)[1:]) == 1
    assert pool.draw() == servers(2)[1]


def test_unchanged_servers_keep_the_sample() -> None:
    pool = pool_of(20)
    sample = pool.sinks
    pool.update(list(reversed(servers(20))))
    assert pool.sinks == sample


def test_peer_without_servers_has_no_sink() -> None:
    pool = pool_of(0)
    assert pool.draw() is None


def test_calls_are_spread_over_the_whole_sample() -> None:
    """10,000 draws of 3 sinks: each is expected 3,333 times, within 10 %."""
    pool = pool_of(6)
    drawn = [pool.draw() for _ in range(10_000)]
    assert all(abs(drawn.count(sink) - 3333) < 333 for sink in pool.sinks)
