"""C6: calls on a backend that hangs and ignores deadlines: threads stay bounded, and close() still returns.

Half of the calls read a row, half look one up. There are two kinds of backend: one whose close() ends its calls, as the
SPI requires, and one whose close() does not. The connection is closed while further calls run.
"""

from __future__ import annotations

import itertools
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from metaclient.connection import Connection, connect_to
from metaclient.errors import ConnectionClosed, MetaClientError
from metaclient.runtime import ThreadRuntime
from metaclient_bench.backends import DeafBackend, ForgetfulBackend, HangingBackend
from metaclient_bench.figure import Bars, Figure, Outcome
from metaclient_bench.scenario import Scenario

CALLERS = 64
OPERATION_S = 0.02
#: How long the connection is used before it hangs, at most; a busy machine may be slow for a moment.
WARM_UP_TRIES = 50
TABLE = b"t"
#: Threads of the client that are no workers: the timer's thread, and a small margin.
FEW = 4
SAMPLE_S = 0.005
UNDER_WAY_S = 0.1
#: Callers have this long to notice that the connection was closed.
COME_BACK_S = 2.0


@dataclass(frozen=True, slots=True)
class Hung:
    """The measurements with one hung backend."""

    threads_peak: int  # beyond the callers and the threads that existed before
    threads_max: int
    close_s: float
    callers_left: int  # callers that had not returned a while after close()
    errors: Counter[str]
    seconds: float


def run(quick: bool) -> Outcome:
    calls = 4000 if quick else 100_000
    polite, deaf = hung_calls(calls, HangingBackend), hung_calls(calls // 10, DeafBackend)
    figures = (
        Figure.of(
            "C6",
            f"threads beyond the {CALLERS} callers at the peak of {calls} calls on a hung backend",
            max(polite.threads_peak, deaf.threads_peak),
            f"<= {polite.threads_max + FEW}",
            threads_max=polite.threads_max,
            callers_not_back_after_close=polite.callers_left + deaf.callers_left,
        ),
        Figure.of("C6b", "seconds of close() amid hung calls (a time)", polite.close_s, "<= 1"),
        Figure.of("C6c", "the same on a backend whose close() ends no call (a time)", deaf.close_s, "<= 1"),
    )
    samples = {
        "errors": dict(polite.errors),
        "errors_deaf": dict(deaf.errors),
        "seconds": round(polite.seconds, 3),
        "calls_per_second": round(calls / polite.seconds),
    }
    shown = {"close(), hung": polite.close_s, "close(), hung and deaf": deaf.close_s}
    return Outcome(figures, samples, (Bars("close() amid hung calls", "seconds", shown, goal=1.0),))


def hung_calls(calls: int, kind: type[ForgetfulBackend]) -> Hung:
    """Make the calls, then close the connection while more calls run."""
    before = threading.active_count()
    runtime = ThreadRuntime()
    backend = kind(runtime, meta_replicas=3)
    backend.add_table(TABLE)
    connection = connect_to(
        backend,
        runtime=runtime,
        owns_runtime=True,
        autoconnect=False,
        meta_mode="LoadBalance",
        operation_timeout_s=OPERATION_S,
    )
    _warm_up(connection)
    backend.is_hung = True
    try:
        with _peak_of_threads() as peak:
            began = time.perf_counter()
            errors: Counter[str] = Counter()
            for caller in _callers(connection, iter(range(calls)), errors):
                caller.join()
            seconds = time.perf_counter() - began
            callers = _callers(connection, itertools.count(), errors)
            time.sleep(UNDER_WAY_S)
            began = time.perf_counter()
            connection.close()
            close_s = time.perf_counter() - began
        callers_left = _left(callers)
    finally:
        backend.release()
    beyond = peak[0] - before - CALLERS - 1  # the thread that counts them
    return Hung(beyond, connection.config.threads_max, close_s, callers_left, errors, seconds)


def _warm_up(connection: Connection) -> None:
    for _ in range(WARM_UP_TRIES):
        try:
            connection.open()
            connection.warm_up(TABLE)
            return
        except MetaClientError:
            continue
    raise RuntimeError(f"the machine is too busy: {WARM_UP_TRIES} tries of {OPERATION_S} s were not enough to begin")


def _callers(connection: Connection, numbers: Iterator[int], errors: Counter[str]) -> list[threading.Thread]:
    """Start threads that call until all numbers are used, or the connection is closed."""
    mutex = threading.Lock()
    table = connection.table(TABLE)

    def call() -> None:
        while True:
            with mutex:
                number = next(numbers, None)
            if number is None:
                return
            try:
                table.row(b"r") if number % 2 else connection.locate(TABLE, b"r", reload=True)
            except ConnectionClosed:
                return
            except MetaClientError as error:
                with mutex:
                    errors[type(error).__name__] += 1

    threads = [threading.Thread(target=call, name=f"caller-{number}", daemon=True) for number in range(CALLERS)]
    for thread in threads:
        thread.start()
    return threads


@contextmanager
def _peak_of_threads() -> Iterator[list[int]]:
    """Sample the number of live threads; yield a list with the maximum."""
    peak = [0]
    is_over = threading.Event()

    def sample() -> None:
        while not is_over.wait(SAMPLE_S):
            peak[0] = max(peak[0], threading.active_count())

    sampler = threading.Thread(target=sample, name="sampler", daemon=True)
    sampler.start()
    try:
        yield peak
    finally:
        is_over.set()
        sampler.join()


def _left(callers: list[threading.Thread]) -> int:
    deadline = time.monotonic() + COME_BACK_S
    for caller in callers:
        caller.join(max(0.0, deadline - time.monotonic()))
    return sum(caller.is_alive() for caller in callers)


SCENARIO = Scenario(
    "hung-backend",
    ("C6", "C6b", "C6c"),
    "a backend that hangs holds a bounded number of threads",
    run,
    backend="hanging",
)
