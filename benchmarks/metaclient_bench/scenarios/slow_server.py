"""T5: TIMELINE reads of a running cluster, one of whose servers is slow: it is stopped and continued in turns.

Four tasks read the rows of ten regions, 200 per second together; each read is due at a fixed instant, and its latency
counts from then. The slow server has a third of the primaries. It is stopped for 0.1 s and runs for 0.05 s, all the
time. The reads of the healthy cluster are those of the same client in the same run. ``--backend local-hbase`` runs the
scenario on a real HBase, where the server is a process that gets SIGSTOP and SIGCONT.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from metaclient.connection import Connection
from metaclient.table import Table
from metaclient_bench.figure import Figure, Outcome
from metaclient_bench.latency_table import CLIENTS, LINES, Reads, as_chart, as_text
from metaclient_bench.places import FAKE, NATIVE_CLIENT, ROWS, TABLE, Place, place
from metaclient_bench.scenario import Scenario

TASKS, RATE = 4, 200.0
STOPPED_S, RUNNING_S = 0.1, 0.05
ROW = ROWS[4]  # the server of its primary is the slow one
#: What a call of the fake takes. Without it a read is a function call, and no read of a cluster is like that.
CALL_S = 0.002
#: Reads before the first run: a server that has just started compiles its code, and the healthy cluster would be slow.
CLUSTER_WARM_UP = 5000
WARM_UP = 200  # reads before the first that counts: the hedge delay rests on measurements


def run(quick: bool, backend: str = FAKE) -> Outcome:
    seconds = 10.0 if quick else 60.0
    with place(backend) as where:
        where.breakable()
        connect: Callable[..., Connection] = where.clients.get(NATIVE_CLIENT) or where.connect
        with connect() as connection:
            for row in ROWS:
                connection.table(TABLE).put(row, {b"cf:a": b"1"})
            if where.name == FAKE:
                for server in {connection.locate(TABLE, row).server for row in ROWS}:
                    where.cluster.slow(server.host, CALL_S)
            _warm_up(connection.table(TABLE), CLUSTER_WARM_UP, "TIMELINE")
        # The healthy cluster comes directly before the client that is compared with it: the machine changes with time.
        made = {name: _run(where, connect, seconds, True, *CLIENTS[name]) for name in ("strong", "hbase-10ms")}
        made["healthy"] = _run(where, connect, seconds, False, *CLIENTS["ours"])
        made["ours"] = _run(where, connect, seconds, True, *CLIENTS["ours"])
    return _outcome(where, made)


def _warm_up(table: Table, reads: int, consistency: str) -> None:
    for number in range(reads):
        table.row(ROWS[number % len(ROWS)], consistency=consistency)


def _outcome(where: Place, made: dict[str, Reads]) -> Outcome:
    ours, healthy = made["ours"], made["healthy"]
    title = f"{where.name}, {RATE:.0f} reads per second, one server stopped for {STOPPED_S} s and continued in turns"
    figure = Figure.of(
        "T5",
        "p99 of TIMELINE reads with one server slowed over that of a healthy cluster",
        ours.quantile(0.99) / healthy.quantile(0.99),
        "<= 3",
        **{f"{name.replace('-', '_')}_ms": one.quantile(0.99) * 1e3 for name, one in made.items()},
        extra=ours.extra,
    )
    samples = {name: {line: round(value(one), 2) for line, value in LINES.items()} for name, one in made.items()}
    return Outcome((figure,), samples, (as_chart(title, made),), (as_text(title, made),))


def _run(
    where: Place,
    connect: Callable[..., Connection],
    seconds: float,
    is_slowed: bool,
    consistency: str,
    options: dict[str, Any],
) -> Reads:
    with connect(**options) as connection:
        table = connection.table(TABLE)
        _warm_up(table, WARM_UP, consistency)
        hedges = connection.stats()["hedges"]["started"]
        if is_slowed:
            with _slowed(where, connection):
                taken, elapsed_s = _read(table, consistency, seconds)
        else:
            taken, elapsed_s = _read(table, consistency, seconds)
        extra = (connection.stats()["hedges"]["started"] - hedges) / len(taken)
    return Reads(sorted(taken), elapsed_s, extra)


def _read(table: Table, consistency: str, seconds: float) -> tuple[list[float], float]:
    """Return the latencies of all reads, and the time that all of them took."""
    taken: list[float] = []
    begun = time.monotonic()

    def read(task: int) -> None:
        due, number = begun + task / RATE, task
        while due < begun + seconds:
            time.sleep(max(0.0, due - time.monotonic()))
            table.row(ROWS[number % len(ROWS)], consistency=consistency)
            taken.append(time.monotonic() - due)
            due += TASKS / RATE
            number += 1

    threads = [threading.Thread(target=read, args=(task,), name="reads", daemon=True) for task in range(TASKS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return taken, time.monotonic() - begun


@contextmanager
def _slowed(where: Place, connection: Connection) -> Iterator[None]:
    """Stop and continue the server in turns."""
    cluster, server = where.breakable(), connection.locate(TABLE, ROW, reload=True).server
    name = server.address if where.hbase is not None else server.host
    is_over = threading.Event()

    def alternate() -> None:
        while not is_over.wait(RUNNING_S):
            cluster.pause(name)
            try:
                time.sleep(STOPPED_S)
            finally:
                cluster.resume(name)

    thread = threading.Thread(target=alternate, name="turns", daemon=True)
    thread.start()
    try:
        yield
    finally:
        is_over.set()
        thread.join()


SCENARIO = Scenario(
    "slow-server",
    ("T5",),
    "reads of a running cluster go round a server that is stopped and continued in turns",
    run,
    backend=FAKE,
    run_on=run,
)
