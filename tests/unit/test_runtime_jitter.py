"""METACLIENT_JITTER delays the threads of a runtime at random points, and does nothing at all where it is not set."""

import socket
import threading

import pytest

from metaclient.errors import ConfigError
from metaclient.runtime import Pending, SimRuntime, ThreadRuntime, jitter
from metaclient.runtime.jitter import (
    VARIABLE,
    Jitter,
    JitteredThreadRuntime,
    jittered_process,
    runtime_class,
)

PATIENCE_S = 60.0


class Points:
    """Counts the points at which threads may be delayed, instead of delaying them."""

    def __init__(self) -> None:
        self.threads: list[str] = []

    def delay(self) -> None:
        self.threads.append(threading.current_thread().name)

    def passed(self) -> int:
        """Return how many points this thread has passed since the last call."""
        mine = threading.current_thread().name
        count = self.threads.count(mine)
        self.threads = [name for name in self.threads if name != mine]
        return count


@pytest.fixture
def points(monkeypatch: pytest.MonkeyPatch) -> Points:
    counted = Points()
    monkeypatch.setattr(Jitter, "delay", lambda _: counted.delay())
    monkeypatch.setattr(jitter, "_jitter_process_for_good", lambda: None)  # the other tests go on without it
    monkeypatch.setenv(VARIABLE, "7")
    return counted


def test_no_runtime_is_jittered_without_the_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    for value in (None, ""):
        monkeypatch.delenv(VARIABLE, raising=False)
        if value is not None:
            monkeypatch.setenv(VARIABLE, value)
        assert runtime_class(ThreadRuntime) is ThreadRuntime
        with ThreadRuntime() as runtime:
            assert type(runtime) is ThreadRuntime
            assert type(runtime.lock()) is type(threading.Lock())


def test_every_runtime_is_jittered_with_the_variable(points: Points) -> None:
    with ThreadRuntime(name="jittered", seed=3) as runtime:
        assert type(runtime) is JitteredThreadRuntime
        assert (runtime.jitter.seed, runtime.name) == (7, "jittered")


def test_a_seed_that_is_no_number_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, "often")
    with pytest.raises(ConfigError, match="METACLIENT_JITTER is 'often'; set it to an integer"):
        ThreadRuntime()


def test_delays_are_bounded_and_differ_between_seeds_and_threads() -> None:
    def drawn(seed: int, thread: str) -> list[float | None]:
        found: list[float | None] = []
        source = Jitter(seed)
        worker = threading.Thread(target=lambda: found.extend(source.draw() for _ in range(5000)), name=thread)
        worker.start()
        worker.join()
        return found

    first = drawn(7, "a")
    waits = [seconds for seconds in first if seconds]
    assert first == drawn(7, "a")
    assert first != drawn(8, "a")
    assert first != drawn(7, "b")
    assert 0.02 < len(waits) / len(first) < 0.1
    assert 0.003 < max(waits) < 0.030
    assert sum(waits) / len(first) < 0.0003, "a point costs a fraction of a millisecond in the mean"


def test_lock_is_delayed_before_it_is_taken_and_its_methods_are_the_locks_own(points: Points) -> None:
    """An interrupt in a method written in Python could come after the lock was taken, and the lock would be held."""
    with ThreadRuntime() as runtime:
        lock = runtime.lock()
        points.passed()
        with lock:
            assert points.passed() == 1
            assert lock.locked()  # type: ignore[attr-defined]  # of threading.Lock, and for tests alone
        assert points.passed() == 0
        assert lock.acquire()
        assert points.passed() == 1
        lock.release()
        assert type(lock.acquire) is type(threading.Lock().acquire)
        assert type(lock.__exit__) is type(threading.Lock().__exit__)


def test_condition_task_and_completion_are_delayed(points: Points) -> None:
    with jittered_process(), ThreadRuntime() as runtime:
        changed = runtime.condition()
        points.passed()
        with changed:
            changed.notify()
            assert points.passed() == 2
            assert changed.wait(runtime.now()) is False
        assert points.passed() >= 3, "before the wait, at its begin and its end"
        answer = runtime.pending()
        answer.complete(1)
        assert points.passed() == 1
        assert (
            runtime.start(threading.current_thread, name="work").result(runtime.now() + PATIENCE_S).name
            in points.threads
        )


def test_pendings_of_virtual_time_are_not_delayed(points: Points) -> None:
    with jittered_process(), SimRuntime() as runtime:
        runtime.pending().complete(1)
        assert points.passed() == 0


def test_socket_calls_are_delayed_within_the_block_alone(points: Points) -> None:
    before, finish = dict(vars(socket.socket)), Pending._finish
    with jittered_process():
        left, right = socket.socketpair()
        with left, right:
            points.passed()
            left.sendall(b"abc")
            assert points.passed() == 1
            assert right.recv(10) == b"abc"
            assert points.passed() == 1
    assert dict(vars(socket.socket)) == before
    assert Pending._finish is finish
    assert points.passed() == 0
