"""C1: the cost of a cached ``locate`` compared with the least possible cache lookup: one bisect and one index.

C1b is the same with the table's name as text.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Sequence

from metaclient.connection import connect_to
from metaclient.runtime import ThreadRuntime
from metaclient.testing.scripted import ScriptedBackend
from metaclient_bench.figure import Bars, Figure, Outcome
from metaclient_bench.keyspace import random_rows, splits
from metaclient_bench.scenario import Scenario
from metaclient_bench.timing import Work, best_of, interleaved

REGIONS = 1000
ROWS = 2000
TABLE = b"t"


def run(quick: bool) -> Outcome:
    with ThreadRuntime() as runtime:
        backend = ScriptedBackend(runtime)
        starts = [b"", *splits(REGIONS)]
        backend.add_table(TABLE, splits=starts[1:])
        with connect_to(backend, runtime=runtime) as connection:
            connection.warm_up(TABLE)
            floor = bare_floor(starts, [connection.locate(TABLE, start) for start in starts])
            works = {
                "loop": empty_loop,
                "bisect": over(floor),
                "locate": over_table(connection.locate, TABLE),
                "locate by text": over_table(connection.locate, TABLE.decode()),
            }
            seconds = interleaved(works, random_rows(ROWS, seed=1), rounds=20 if quick else 200)
    best = best_of(seconds, less="loop")
    figures = tuple(
        Figure.of(
            id,
            f"a cached {name} beside a bare bisect, {REGIONS} regions",
            best[name] / best["bisect"],
            "<= 3",
            locate_us=best[name] * 1e6,
            bisect_us=best["bisect"] * 1e6,
        )
        for id, name in (("C1", "locate"), ("C1b", "locate by text"))
    )
    microseconds = {name: value * 1e6 for name, value in best.items()}
    chart = Bars(
        f"one cached lookup of {REGIONS} regions", "microseconds", microseconds, goal=microseconds["bisect"] * 3
    )
    samples = {name: [round(one * 1e6, 4) for one in each] for name, each in seconds.items()}
    return Outcome(figures, {"us_by_round": samples}, (chart,))


def bare_floor(starts: Sequence[bytes], values: Sequence[object]) -> Callable[[bytes], object]:
    """Return the value with the greatest start that is not above the row: the plain function to compare with."""

    def floor(row: bytes) -> object:
        return values[bisect_right(starts, row) - 1]

    return floor


def empty_loop(rows: Sequence[bytes]) -> None:
    for _row in rows:
        pass


def over(function: Callable[[bytes], object]) -> Work:
    def work(rows: Sequence[bytes]) -> None:
        for row in rows:
            function(row)

    return work


def over_table(locate: Callable[[bytes | str, bytes], object], table: bytes | str) -> Work:
    def work(rows: Sequence[bytes]) -> None:
        for row in rows:
            locate(table, row)

    return work


SCENARIO = Scenario("cached-locate", ("C1", "C1b"), "a cached location costs little more than a dictionary lookup", run)
