"""The tables of ``timeline-table`` in real time: on the fake, on a real HBase, or on an existing cluster.

Where the cluster is ours to break, its servers pause in turn for 0.1 s in every two seconds of two of the four tables.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from metaclient.connection import Connection
from metaclient.table import Table
from metaclient_bench.figure import Outcome
from metaclient_bench.latency_table import CLIENTS, LIMIT_SHARE, Reads, outcome_of
from metaclient_bench.places import FAKE, NATIVE_CLIENT, ROWS, TABLE, Place, place

__all__ = ["run_on"]

TASKS = 4
PAUSE_EVERY_S, PAUSE_S = 2.0, 0.1
#: What a call of the fake takes. Without it a STRONG read is a function call, and no read of a cluster is like that.
CALL_S = 0.002
WARM_UP = 200  # reads before the first that counts: the hedge delay rests on measurements


def run_on(quick: bool, backend: str) -> Outcome:
    seconds = 5.0 if quick else 60.0
    tables: dict[str, dict[str, Reads]] = {}
    with place(backend) as where:
        connect: Callable[..., Connection] = where.clients.get(NATIVE_CLIENT) or where.connect
        with connect() as connection:
            for row in ROWS:
                connection.table(TABLE).put(row, {b"cf:a": b"1"})
            if where.name == FAKE:
                for name in _servers(where, connection.table(TABLE)):
                    where.cluster.slow(name, CALL_S)
        for is_paused in (False, True) if where.cluster is not None else (False,):
            with_pauses = ", server pauses" if is_paused else ""
            unlimited = {name: _run(where, connect, seconds, is_paused, *each) for name, each in CLIENTS.items()}
            rate = LIMIT_SHARE * unlimited["strong"].qps
            tables[f"{where.name}, no limit{with_pauses}"] = unlimited
            tables[f"{where.name}, {rate:.0f} reads per second{with_pauses}"] = {
                name: _run(where, connect, seconds, is_paused, *each, rate=rate) for name, each in CLIENTS.items()
            }
    return outcome_of(tables)


def _run(
    where: Place,
    connect: Callable[..., Connection],
    seconds: float,
    is_paused: bool,
    consistency: str,
    options: dict[str, Any],
    rate: float | None = None,
) -> Reads:
    with connect(**options) as connection:
        table = connection.table(TABLE)
        for number in range(WARM_UP):
            table.row(ROWS[number % len(ROWS)], consistency=consistency)
        hedges = connection.stats()["hedges"]["started"]
        with _pauses(where, table) if is_paused else _nothing():
            taken, elapsed_s = _read(table, consistency, seconds, rate)
        extra = (connection.stats()["hedges"]["started"] - hedges) / len(taken)
    return Reads(sorted(taken), elapsed_s, extra)


def _read(table: Table, consistency: str, seconds: float, rate: float | None) -> tuple[list[float], float]:
    taken: list[float] = []
    begun = time.monotonic()

    def read(task: int) -> None:
        due, number = begun + (0.0 if rate is None else task / rate), task
        while time.monotonic() < begun + seconds:
            if rate is not None:
                time.sleep(max(0.0, due - time.monotonic()))
                due += TASKS / rate
            at = time.perf_counter()
            table.row(ROWS[number % len(ROWS)], consistency=consistency)
            taken.append(time.perf_counter() - at)
            number += 1

    threads = [threading.Thread(target=read, args=(task,), name="reads", daemon=True) for task in range(TASKS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return taken, time.monotonic() - begun


def _servers(where: Place, table: Table) -> list[str]:
    """Return the names of the servers of the primaries."""
    servers = sorted({table.connection.locate(TABLE, row).server for row in ROWS})
    return [server.address if where.hbase is not None else server.host for server in servers]


@contextmanager
def _nothing() -> Iterator[None]:
    yield


@contextmanager
def _pauses(where: Place, table: Table) -> Iterator[None]:
    """Pause the servers of the primaries in turn."""
    cluster = where.breakable()
    names = _servers(where, table)
    is_over = threading.Event()

    def pause() -> None:
        number = 0
        while not is_over.wait(PAUSE_EVERY_S - PAUSE_S):
            name = names[number % len(names)]
            cluster.pause(name)
            try:
                time.sleep(PAUSE_S)
            finally:
                cluster.resume(name)
            number += 1

    thread = threading.Thread(target=pause, name="pauses", daemon=True)
    thread.start()
    try:
        yield
    finally:
        is_over.set()
        thread.join()
