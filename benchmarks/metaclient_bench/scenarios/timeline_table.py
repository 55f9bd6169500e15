"""T4: STRONG and TIMELINE reads line by line: with and without a limit of the rate, with and without server pauses.

Three clients: STRONG, TIMELINE with HBase's plan (all replicas after 10 ms, no limit), and TIMELINE with ours. On
virtual time a get takes about 4 ms on one of five servers, and each server pauses for about a tenth of a second every
four seconds, as for a garbage collection. ``--backend`` runs the same on the fake in real time, or on a real HBase.
"""

from __future__ import annotations

import random
from bisect import bisect_right
from typing import Any

from metaclient.model import Get, RegionLocation, Result, ServerName
from metaclient.runtime import Runtime, SimRuntime
from metaclient.table import Table
from metaclient.testing.scripted import ScriptedBackend
from metaclient_bench.figure import Outcome
from metaclient_bench.latency_table import CLIENTS, LIMIT_SHARE, Reads, outcome_of
from metaclient_bench.scenario import Scenario
from metaclient_bench.timeline_table_live import run_on
from metaclient_bench.virtual import TABLE, client

TASKS = 8
GET_S, SPREAD = 0.004, 0.5
SERVERS = 5
SEEDS = (1, 101, 201, 301)
SPLITS = tuple(b"r%d" % number for number in range(1, 10))
ROWS = (b"a", *(split + b"x" for split in SPLITS))
PAUSE_EVERY_S, PAUSE_S, PAUSE_SPREAD, HORIZON_S = 4.0, 0.1, 0.4, 2000.0


def run(quick: bool) -> Outcome:
    reads = 20_000 if quick else 100_000
    tables: dict[str, dict[str, Reads]] = {}
    for is_paused in (False, True):
        with_pauses = ", server pauses" if is_paused else ""
        unlimited = {name: read(reads, is_paused, *options) for name, options in CLIENTS.items()}
        rate = LIMIT_SHARE * unlimited["strong"].qps
        tables[f"no limit{with_pauses}"] = unlimited
        tables[f"{rate:.0f} reads per second{with_pauses}"] = {
            name: read(reads, is_paused, *options, rate=rate) for name, options in CLIENTS.items()
        }
    return outcome_of(tables)


def read(reads: int, is_paused: bool, consistency: str, options: dict[str, Any], rate: float | None = None) -> Reads:
    """Return the latencies on virtual time; ``rate`` is that of all tasks together, None: as fast as possible.

    The reads of all seeds count together: p999 depends on which servers happen to pause at the same time.
    """
    runs = [_read_with(seed, reads // len(SEEDS), is_paused, consistency, options, rate) for seed in SEEDS]
    seconds = sorted(each for one in runs for each in one.seconds)
    return Reads(seconds, sum(one.elapsed_s for one in runs), sum(one.extra for one in runs) / len(runs))


def _read_with(
    seed: int, reads: int, is_paused: bool, consistency: str, options: dict[str, Any], rate: float | None
) -> Reads:
    with SimRuntime(seed) as runtime:
        backend = _Pausing(runtime, is_paused, seed)
        backend.add_table(TABLE, splits=SPLITS, region_replication=3)
        connection = client(backend, runtime, **options)
        connection.warm_up(TABLE)
        seconds: list[float] = []
        begun = runtime.now()
        args = (connection.table(TABLE), consistency, runtime, seconds, reads // TASKS, rate)
        for task in [runtime.start(_read, *args) for _ in range(TASKS)]:
            task.result()
        return Reads(sorted(seconds), runtime.now() - begun, backend.gets / len(seconds) - 1)


def _read(
    table: Table, consistency: str, runtime: Runtime, seconds: list[float], count: int, rate: float | None
) -> None:
    due = runtime.now()
    for number in range(count):
        if rate is not None:
            runtime.sleep(max(0.0, due - runtime.now()))
            due += TASKS / rate
        began = runtime.now()
        table.row(ROWS[number % len(ROWS)], consistency=consistency)
        seconds.append(runtime.now() - began)


class _Pausing(ScriptedBackend):
    """Gets take a time of their own; a server that pauses answers nothing, and goes on afterwards."""

    def __init__(self, runtime: Runtime, is_paused: bool, seed: int) -> None:
        super().__init__(runtime, servers=SERVERS)
        self._chance = random.Random(seed)
        self._pauses = {
            server: self._schedule(seed + number) if is_paused else [] for number, server in enumerate(self.servers)
        }
        self.gets = 0

    def _schedule(self, seed: int) -> list[tuple[float, float]]:
        chance, at, pauses = random.Random(seed), 0.0, []
        while at < HORIZON_S:
            at += chance.expovariate(1 / PAUSE_EVERY_S)
            end = at + PAUSE_S * chance.lognormvariate(0.0, PAUSE_SPREAD)
            pauses.append((at, end))
            at = end
        return pauses

    def get(self, place: RegionLocation | None, table: bytes, get: Get, deadline: float) -> Result:
        self.gets += 1
        assert place is not None
        seconds = GET_S * self._chance.lognormvariate(0.0, SPREAD)
        self._pass(self._answered_at(place.server, seconds) - self.runtime.now(), deadline)
        return Result(get.row, (), is_stale=place.replica_id != 0)

    def _answered_at(self, server: ServerName, seconds: float) -> float:
        """Return when a call that comes now is answered: pauses until then come on top."""
        pauses, now = self._pauses[server], self.runtime.now()
        at = max(0, bisect_right(pauses, (now, float("inf"))) - 1)
        answered = now + seconds
        for begin, end in pauses[at:]:
            if begin >= answered:
                break
            answered += max(0.0, end - max(begin, now))
        return answered


SCENARIO = Scenario(
    "timeline-table",
    ("T4", "T4b", "T4c"),
    "STRONG and TIMELINE reads, line by line, with and without a limit and server pauses",
    run,
    run_on=run_on,
)
