"""happybase's pool: at most so many users at a time, nested requests, time-outs and the end."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest

from metaclient import Connection, ConnectionPool, NoConnectionsAvailable
from metaclient.errors import ConfigError, ConnectionClosed, Overloaded
from metaclient.runtime import SimRuntime


@pytest.fixture
def runtime() -> Iterator[SimRuntime]:
    with SimRuntime(seed=1) as made:
        yield made


def pool_of(size: int, runtime: SimRuntime) -> ConnectionPool:
    return ConnectionPool(size, url="scripted:", runtime=runtime)


@pytest.mark.parametrize(
    ("size", "error"), [("3", TypeError), (None, TypeError), (True, TypeError), (0, ValueError), (-1, ValueError)]
)
def test_wrong_size_is_named(size: object, error: type[Exception]) -> None:
    with pytest.raises(error, match="'size'"):
        ConnectionPool(size, url="scripted:")  # type: ignore[arg-type]


def test_wrong_address_is_an_error_when_the_pool_is_made() -> None:
    with pytest.raises(ConfigError, match="no backend"):
        ConnectionPool(2, url="nosuch:")


def test_nested_requests_of_one_user_get_the_same_connection(runtime: SimRuntime) -> None:
    """happybase: with a pool of one, nesting must not wait for itself."""
    with pool_of(1, runtime) as pool, pool.connection() as outer, pool.connection(timeout=0) as inner:
        assert isinstance(outer, Connection)
        assert inner is outer
    two, other = pool_of(1, runtime), pool_of(1, runtime)
    with two.connection() as first, other.connection() as second:
        assert first is not second


def test_nobody_else_gets_in_while_all_are_lent(runtime: SimRuntime) -> None:
    pool = pool_of(2, runtime)

    def hold(seconds: float) -> None:
        with pool.connection():
            runtime.sleep(seconds)

    tasks = [runtime.start(hold, 10.0) for _ in range(2)]
    runtime.run_for(1.0)
    with pytest.raises(NoConnectionsAvailable, match="pool of 2") as caught, pool.connection(timeout=3.0):
        pass
    assert runtime.now() == 4.0
    assert isinstance(caught.value, Overloaded | RuntimeError)
    with pool.connection(timeout=60.0):
        assert runtime.now() == 10.0
    for task in tasks:
        task.result()


def test_connection_is_returned_after_an_error(runtime: SimRuntime) -> None:
    pool = pool_of(1, runtime)
    for _ in range(3):
        with pytest.raises(KeyError), pool.connection(timeout=0):
            raise KeyError("the user's own")


def test_every_user_is_served_and_never_too_many_at_once(runtime: SimRuntime) -> None:
    pool = pool_of(3, runtime)
    inside: list[int] = []
    served: list[int] = []

    def use(number: int) -> None:
        with pool.connection() as connection:
            inside.append(number)
            assert len(inside) <= 3
            connection.tables()
            runtime.sleep(0.1)
            inside.remove(number)
            served.append(number)

    for task in [runtime.start(use, number) for number in range(50)]:
        task.result()
    assert sorted(served) == list(range(50))


def test_closing_wakes_who_waits(runtime: SimRuntime) -> None:
    pool = pool_of(1, runtime)

    def wait() -> None:
        with pool.connection(timeout=100.0):
            pass

    with pool.connection():
        waiting = runtime.start(wait)
        runtime.run_for(1.0)
        pool.close()
        runtime.run_for(1.0)
        assert isinstance(waiting.error(), ConnectionClosed)
    pool.close()
    with pytest.raises(ConnectionClosed), pool.connection():
        pass


@pytest.mark.parametrize("timeout", ["1", -1, True])
def test_wrong_timeout_is_named(runtime: SimRuntime, timeout: object) -> None:
    with pytest.raises(ValueError, match="'timeout'"), pool_of(1, runtime).connection(timeout):  # type: ignore[arg-type]
        pass


def test_threads_share_a_pool() -> None:
    errors: list[BaseException] = []
    with ConnectionPool(2, url="scripted:") as pool:
        with pool.connection() as connection:
            connection.create_table("t", {"cf": {}})

        def use(number: int) -> None:
            try:
                for turn in range(20):
                    with pool.connection(timeout=30) as mine:
                        mine.table("t").put(b"%d-%d" % (number, turn), {b"cf:a": b"1"})
            except BaseException as error:
                errors.append(error)

        threads = [threading.Thread(target=use, args=(number,)) for number in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(30)
        with pool.connection() as connection:
            assert sum(1 for _ in connection.table("t").scan()) == 160
    assert errors == []
