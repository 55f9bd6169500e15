"""A1 - A3: metaclient.aio compared with the blocking API, over HBase's own RPC on one cluster.

A1 is a ratio of rates, in alternating short rounds: gets by 1,000 tasks of one event loop, to gets by 64 threads. A2 is
the growth of this process's resident memory while 10,000 gets of 10,000 tasks wait for a server that is stopped; it
includes asyncio's own tasks. A3 is a ratio of CPU times: STRONG gets of one task, one after the other, to those of one
thread. The best of many short rounds counts, because noise only adds time.
"""

from __future__ import annotations

import asyncio
import gc
import os
import time
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any

import metaclient
from metaclient import Connection
from metaclient.errors import ConfigError
from metaclient_bench.figure import Bars, Figure, Outcome
from metaclient_bench.places import LOCAL_HBASE
from metaclient_bench.scenario import Scenario
from metaclient_local_hbase import LocalHBase, missing_tools

if TYPE_CHECKING:  # metaclient.aio needs the extra aio, and the list of scenarios does not
    from metaclient import aio

TABLE = b"benchmark_asyncio"
ROWS = [b"%06d" % number for number in range(1000)]
CELLS = 10
TASKS = 1000
THREADS = 64
#: Gets of one round: two per task, and as many by the threads.
CALLS = 2 * TASKS
ALONE = 100
WAITING = 10_000
MEGABYTE = 1024 * 1024
LOOP, BLOCKING = "aio", "blocking"


def run(quick: bool, backend: str = LOCAL_HBASE) -> Outcome:
    rounds = 5 if quick else 20
    with _cluster(backend) as (url, pause, resume):
        with metaclient.connect(url, threads_max=THREADS + 16) as blocking:
            _fill(blocking)
            with asyncio.Runner() as runner:
                connection = runner.run(_connect(url))
                many = _in_turns(_many(connection, runner), _by_threads(blocking), rounds, time.perf_counter)
                alone = _in_turns(_one_task(connection, runner), _one_thread(blocking), rounds * 4, time.process_time)
                runner.run(connection.close())
        waiting_mb = asyncio.run(_memory(url, pause, resume))
    ratio = min(many[BLOCKING]) / min(many[LOOP])
    figures = (
        Figure.of(
            "A1",
            f"gets per second by {TASKS} tasks of one loop, beside {THREADS} threads",
            ratio,
            ">= 1.5",
            of_medians=median(many[BLOCKING]) / median(many[LOOP]),
            aio_per_second=CALLS / min(many[LOOP]),
            threads_per_second=CALLS / min(many[BLOCKING]),
        ),
        Figure.of("A2", f"megabytes of {WAITING} waiting calls (a size)", waiting_mb, "<= 50"),
        Figure.of(
            "A3",
            "CPU time of a STRONG get of one task, beside one thread",
            min(alone[LOOP]) / min(alone[BLOCKING]),
            "<= 1.3",
            of_medians=median(alone[LOOP]) / median(alone[BLOCKING]),
            aio_us=min(alone[LOOP]) / ALONE * 1e6,
            blocking_us=min(alone[BLOCKING]) / ALONE * 1e6,
        ),
    )
    chart = Bars(
        "1,000 tasks of one event loop beside 64 threads, same cluster", "times as fast", {"A1": ratio}, goal=1.5
    )
    return Outcome(figures, {"seconds_by_round": {"many": many, "alone": alone}}, (chart,))


@contextmanager
def _cluster(backend: str) -> Iterator[tuple[str, Callable[[], None], Callable[[], None]]]:
    """Yield the url of a new cluster of one region server, and functions that stop and continue that server."""
    kind, _, version = backend.partition(":")
    if kind != LOCAL_HBASE:
        raise ConfigError(f"asyncio runs on {LOCAL_HBASE}, whose server it stops, got {backend!r}")
    with LocalHBase(version or "2.6.1", meta_replicas=1, region_servers=1) as hbase:
        [server] = hbase.servers()
        yield hbase.native_url, lambda: hbase.pause(server), lambda: hbase.resume(server)


def _fill(connection: Connection) -> None:
    if TABLE not in connection.tables():
        connection.create_table(TABLE, {"cf": {}})
    data = {b"cf:c%d" % number: b"v" * 20 for number in range(CELLS)}
    with connection.table(TABLE).batch(batch_size=500) as batch:
        for row in ROWS:
            batch.put(row, data)


async def _connect(url: str) -> aio.Connection:
    return await metaclient.aio.connect(url)


def _many(connection: aio.Connection, runner: asyncio.Runner) -> Callable[[], None]:
    read = connection.table(TABLE).row

    async def caller(number: int) -> None:
        for at in range(CALLS // TASKS):
            await read(ROWS[(number + at) % len(ROWS)])

    async def work() -> None:
        await asyncio.gather(*(caller(number) for number in range(TASKS)))

    return lambda: runner.run(work())


def _by_threads(connection: Connection) -> Callable[[], None]:
    read, runtime = connection.table(TABLE).row, connection.engine.runtime
    each = CALLS // THREADS

    def caller(number: int) -> None:
        for at in range(each):
            read(ROWS[(number * each + at) % len(ROWS)])

    def work() -> None:
        for task in [runtime.start(caller, number, name="caller") for number in range(THREADS)]:
            task.result()

    return work


def _one_task(connection: aio.Connection, runner: asyncio.Runner) -> Callable[[], None]:
    read = connection.table(TABLE).row

    async def work() -> None:
        for row in ROWS[:ALONE]:
            await read(row)

    return lambda: runner.run(work())


def _one_thread(connection: Connection) -> Callable[[], None]:
    read = connection.table(TABLE).row

    def work() -> None:
        for row in ROWS[:ALONE]:
            read(row)

    return work


def _in_turns(
    loop: Callable[[], None], blocking: Callable[[], None], rounds: int, clock: Callable[[], float]
) -> dict[str, list[float]]:
    seconds: dict[str, list[float]] = {LOOP: [], BLOCKING: []}
    works = {LOOP: loop, BLOCKING: blocking}
    for work in works.values():
        work()
    for _ in range(rounds):
        for name, work in works.items():
            began = clock()
            work()
            seconds[name].append(clock() - began)
    return seconds


async def _memory(url: str, pause: Callable[[], None], resume: Callable[[], None]) -> float:
    """Return the megabytes by which this process grows while gets wait for a server that is stopped."""
    async with metaclient.aio.connect(url, rpc_timeout_s=600.0, operation_timeout_s=600.0) as connection:
        read = connection.table(TABLE).row
        await asyncio.gather(*(read(row) for row in ROWS))
        gc.collect()
        pause()
        try:
            before = _resident_bytes()
            calls = [asyncio.ensure_future(_read(read, number)) for number in range(WAITING)]
            await asyncio.sleep(2.0)
            assert not any(call.done() for call in calls), "the server is stopped"
            grown = _resident_bytes() - before
            for call in calls:  # a server that continues refuses most of so many calls, and their retries take minutes
                call.cancel()
            await asyncio.gather(*calls, return_exceptions=True)
        finally:
            resume()
    return grown / MEGABYTE


async def _read(read: Callable[[bytes], Coroutine[Any, Any, Any]], number: int) -> None:
    await read(ROWS[number % len(ROWS)])


def _resident_bytes() -> int:
    pages = Path("/proc/self/statm").read_text().split()[1]
    return int(pages) * os.sysconf("SC_PAGE_SIZE")


SCENARIO = Scenario(
    "asyncio",
    ("A1", "A2", "A3"),
    "metaclient.aio compared with the blocking API: many tasks, waiting calls, one task",
    run,
    backend=LOCAL_HBASE,
    run_on=run,
    missing=missing_tools,
)
