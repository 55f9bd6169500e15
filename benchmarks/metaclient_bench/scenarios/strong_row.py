"""C2: the client's own time in a STRONG ``row``, measured on a backend that answers at once.

The figure is a time, because the goal is one; the cost of a bare call of the same backend is shown with it.
"""

from __future__ import annotations

from collections.abc import Sequence

from metaclient.connection import Connection, connect_to
from metaclient.model import Get
from metaclient.runtime import ThreadRuntime
from metaclient_bench.backends import InstantBackend
from metaclient_bench.figure import Bars, Figure, Outcome
from metaclient_bench.scenario import Scenario
from metaclient_bench.timing import Work, best_of, interleaved

TABLE = b"t"
ROWS = [b"%04d" % number for number in range(1000)]
WIDE = 10


def run(quick: bool) -> Outcome:
    with ThreadRuntime() as runtime, _connected(runtime, 1) as narrow, _connected(runtime, WIDE) as wide:
        works = {"loop": _empty, "call": _bare_call(runtime), "row": _rows_of(narrow), "wide": _rows_of(wide)}
        seconds = interleaved(works, ROWS, rounds=20 if quick else 200)
    best = {name: value * 1e6 for name, value in best_of(seconds, less="loop").items()}
    figure = Figure.of(
        "C2",
        "microseconds of our own work in a STRONG row of one cell (a time)",
        best["row"],
        "<= 15",
        bare_calls=best["row"] / best["call"],
        bare_call_us=best["call"],
        us_with_10_cells=best["wide"],
    )
    shown = {"bare call of the backend": best["call"], "row, 1 cell": best["row"], f"row, {WIDE} cells": best["wide"]}
    chart = Bars("Table.row on a backend that answers at once", "microseconds", shown, goal=15.0)
    samples = {name: [round(one * 1e6, 4) for one in each] for name, each in seconds.items()}
    return Outcome((figure,), {"us_by_round": samples}, (chart,))


def _connected(runtime: ThreadRuntime, cells: int) -> Connection:
    backend = InstantBackend(runtime, cells=cells)
    backend.add_table(TABLE, splits=[b"%02d" % number for number in range(1, 100)])
    connection = connect_to(backend, runtime=runtime)
    connection.warm_up(TABLE)
    return connection


def _rows_of(connection: Connection) -> Work:
    read = connection.table(TABLE).row

    def work(rows: Sequence[bytes]) -> None:
        for row in rows:
            read(row)

    return work


def _bare_call(runtime: ThreadRuntime) -> Work:
    """Return a bare call of the same backend, with prepared arguments and without a client."""
    call = InstantBackend(runtime, cells=1).get
    get = Get(b"r")

    def work(rows: Sequence[bytes]) -> None:
        for _row in rows:
            call(None, TABLE, get, 0.0)

    return work


def _empty(rows: Sequence[bytes]) -> None:
    for _row in rows:
        pass


SCENARIO = Scenario("strong-row", ("C2",), "the client adds only microseconds to a read", run, backend="instant")
