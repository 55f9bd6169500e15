"""A peer gets at most its bandwidth; the numbers are those of TestReplicationThrottler (HBase 2.6.1)."""

import pytest

from metaclient_fake.replication.throttle import Throttle


def pushed(throttle: Throttle, size: int, now: float) -> float:
    """Ask for the pause before a push, take it, and push; return the pause in milliseconds."""
    pause_s = throttle.pause_s(size, now)
    if pause_s:
        throttle.waited(now)
    throttle.pushed(size)
    return round(pause_s * 1000)


@pytest.mark.parametrize(("cycle_bytes", "pauses"), [(100, [0, 1000, 0, 100]), (10, [0, 10_000, 100, 500])])
def test_push_larger_than_a_cycle_is_paid_back_by_the_next(cycle_bytes: int, pauses: list[int]) -> None:
    throttle = Throttle(cycle_bytes, 0.0)
    assert [pushed(throttle, size, 0.0) for size in (1000, 5, 45, 60)] == pauses


def test_new_cycle_forgets_what_the_last_one_pushed() -> None:
    throttle = Throttle(100, 0.0)
    assert pushed(throttle, 90, 0.0) == 0
    assert pushed(throttle, 90, 0.1) == 0
    assert pushed(throttle, 90, 0.125) == 75


def test_large_push_long_ago_costs_no_pause() -> None:
    throttle = Throttle(100, 0.0)
    assert pushed(throttle, 1000, 0.0) == 0
    assert pushed(throttle, 90, 5.0) == 0
    assert pushed(throttle, 90, 5.0) == 100


def test_peer_without_bandwidth_never_pauses() -> None:
    throttle = Throttle(0, 0.0)
    assert [pushed(throttle, 1 << 30, 0.0) for _ in range(3)] == [0, 0, 0]


def test_bandwidth_that_is_set_while_shipping_limits_the_next_push() -> None:
    throttle = Throttle(0, 0.0)
    assert pushed(throttle, 1000, 0.0) == 0
    throttle.change(100, 2.0)
    assert pushed(throttle, 5, 2.0) == 1000
