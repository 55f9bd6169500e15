"""TIMELINE reads compared with STRONG reads on a running cluster whose primary hangs from time to time.

Each of four tasks has a read due every 20 ms, independent of earlier reads, and latency is measured from the due time.
So a client that waits does not get fewer slow reads. Every ten seconds the server of the region's primary hangs for
0.4 s, if faults are allowed on the cluster. The three clients are those of ``timeline-tail``.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from typing import Any

from metaclient.table import Table
from metaclient_bench.figure import Figure, Lines, Outcome
from metaclient_bench.places import ROWS, TABLE, Place, place

__all__ = ["run_on"]

TASKS = 4
DUE_S = 0.02
CYCLE_S, HUNG_S = 10.0, 0.4
ROW = ROWS[4]
BUDGET, BURST = 0.05, 10
HBASE: dict[str, Any] = {"hedge_plan": "all_at_once", "hedge_delay": "fixed", "hedge_budget": 1000}
CLIENTS: dict[str, tuple[str, dict[str, Any]]] = {
    "ours": ("TIMELINE", {}),
    "hbase": ("TIMELINE", HBASE),
    "strong": ("STRONG", {}),
}
QUANTILES = (0.5, 0.9, 0.95, 0.98, 0.99, 0.995)


def run_on(quick: bool, backend: str) -> Outcome:
    seconds = CYCLE_S * (1 if quick else 3)
    with place(backend) as where:
        with where.connect() as connection:
            connection.table(TABLE).put(ROW, {b"cf:a": b"1"})
        made: dict[str, Sequence[float]] = {}
        extra: dict[str, float] = {}
        for name, (consistency, options) in CLIENTS.items():
            with where.connect(**options) as connection:
                made[name] = _read(where, connection.table(TABLE), consistency, seconds)
                hedges = connection.stats()["hedges"]["started"]
                extra[name] = hedges / len(made[name])
    limit = BUDGET + BURST / len(made["ours"])
    p99 = {name: _quantile(one, 0.99) for name, one in made.items()}
    figures = (
        Figure.of("C7", "extra calls of TIMELINE reads", extra["ours"], f"<= {limit:.4f}", hbase=extra["hbase"]),
        Figure.of(
            "C7b",
            "p99 of TIMELINE reads beside STRONG ones, the primary silent now and then",
            p99["ours"] / p99["strong"],
            "<= 0.5" if where.cluster is not None else "<= 2",
            **{f"{name}_ms": value * 1e3 for name, value in p99.items()},
        ),
    )
    samples = {
        "quantiles": list(QUANTILES),
        "ms": {name: [round(_quantile(one, q) * 1e3, 3) for q in QUANTILES] for name, one in made.items()},
        "reads": {name: len(one) for name, one in made.items()},
    }
    return Outcome(figures, samples, (_chart(where, made),))


def _read(where: Place, table: Table, consistency: str, seconds: float) -> Sequence[float]:
    """Return the latencies of all reads, sorted."""
    for _ in range(50):  # the hedge's delay rests on measurements
        table.row(ROW, consistency=consistency)
    taken: list[float] = []
    begun = time.monotonic()

    def read(task: int) -> None:
        due = begun + task * DUE_S / TASKS
        while due < begun + seconds:
            time.sleep(max(0.0, due - time.monotonic()))
            table.row(ROW, consistency=consistency)
            taken.append(time.monotonic() - due)
            due += DUE_S

    threads = [threading.Thread(target=read, args=(task,), name="reads", daemon=True) for task in range(TASKS)]
    with _silent_now_and_then(where, table) if where.cluster is not None else nullcontext():
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    return sorted(taken)


@contextmanager
def _silent_now_and_then(where: Place, table: Table) -> Iterator[None]:
    cluster = where.breakable()
    server = table.connection.locate(TABLE, ROW, reload=True).server
    name = server.address if where.hbase is not None else server.host
    is_over = threading.Event()

    def hang() -> None:
        while not is_over.wait(CYCLE_S / 2):
            cluster.pause(name)
            time.sleep(HUNG_S)
            cluster.resume(name)
            is_over.wait(CYCLE_S / 2 - HUNG_S)

    thread = threading.Thread(target=hang, name="hangs", daemon=True)
    thread.start()
    try:
        yield
    finally:
        is_over.set()
        thread.join()


def _quantile(seconds: Sequence[float], q: float) -> float:
    return seconds[min(int(q * len(seconds)), len(seconds) - 1)]


def _chart(where: Place, made: dict[str, Sequence[float]]) -> Lines:
    places = [float(index) for index in range(len(QUANTILES))]
    series = {name: (places, [_quantile(one, q) * 1e3 for q in QUANTILES]) for name, one in made.items()}
    ticks = {at: "p" + f"{q * 100:g}".replace(".", "") for at, q in zip(places, QUANTILES, strict=True)}
    title = f"latency of reads, the primary silent for {HUNG_S} s of {CYCLE_S:.0f} ({where.name})"
    return Lines(title, "quantile", "ms", series, ticks=ticks, is_log_y=True)
