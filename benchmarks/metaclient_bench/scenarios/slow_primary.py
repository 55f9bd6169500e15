"""T1 to T3: TIMELINE reads of a region whose primary is slower for good, by 30, 100 and 200 ms.

Gets take about 1 ms. After two seconds each get of the primary takes longer, for ten seconds, and then no longer. Two
clients: ours, and HBase's plan (all replicas after a fixed 10 ms, no limit). Four tasks read 200 rows per second.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any, NamedTuple

from metaclient.model import Get, RegionLocation, Result
from metaclient.runtime import Runtime, SimRuntime
from metaclient.table import Table
from metaclient.testing.scripted import ScriptedBackend
from metaclient_bench.figure import Figure, Lines, Outcome
from metaclient_bench.scenario import Scenario
from metaclient_bench.virtual import TABLE, client

TASKS, RATE = 4, 200.0
GET_S, SPREAD = 0.001, 0.3
EXTRA_S = (0.03, 0.1, 0.2)
SLOW_FROM_S = 2.0
#: After this time the reads are those of a client that knows of the recovery.
NOTICED_S = 3.0
HBASE: dict[str, Any] = {"hedge_plan": "all_at_once", "hedge_delay": "fixed", "hedge_budget": 1000}


class Read(NamedTuple):
    """When a read began, how long it took, and whether a secondary answered it."""

    at_s: float
    seconds: float
    is_stale: bool


@dataclass(frozen=True, slots=True)
class TimedReads:
    """The reads of one client, in order, and its calls beyond one per read."""

    reads: Sequence[Read]
    extra: float
    slow_until_s: float

    def median_s(self) -> float:
        return median(each.seconds for each in self.reads if SLOW_FROM_S <= each.at_s < self.slow_until_s)

    def fresh_share(self) -> float:
        """The share of the primary in the answers, from three seconds after its recovery."""
        later = [each for each in self.reads if each.at_s >= self.slow_until_s + NOTICED_S]
        return sum(not each.is_stale for each in later) / len(later)


def run(quick: bool) -> Outcome:
    slow_s = 10.0 if quick else 60.0
    ours = {extra_s: read(extra_s, slow_s) for extra_s in EXTRA_S}
    hbase = {extra_s: read(extra_s, slow_s, **HBASE) for extra_s in EXTRA_S}
    ratio = {extra_s: ours[extra_s].median_s() / hbase[extra_s].median_s() for extra_s in EXTRA_S}
    medians = {f"ours_{_ms(extra_s)}_ms": made.median_s() * 1e3 for extra_s, made in ours.items()}
    theirs = {f"hbase_{_ms(extra_s)}_ms": made.median_s() * 1e3 for extra_s, made in hbase.items()}
    figures = (
        Figure.of(
            "T1",
            "median of TIMELINE reads over HBase's plan, slow primary",
            max(ratio.values()),
            "<= 1.1",
            **medians,
            **theirs,
        ),
        Figure.of(
            "T2",
            "extra calls over reads",
            max(one.extra for one in ours.values()),
            "<= 0.05",
            hbase=max(one.extra for one in hbase.values()),
        ),
        Figure.of(
            "T3",
            "reads answered by the primary 3 s after it is fast again",
            min(one.fresh_share() for one in ours.values()),
            ">= 0.95",
        ),
    )
    samples = {"medians_ms": {**medians, **theirs}, "extra": {_ms(extra_s): one.extra for extra_s, one in ours.items()}}
    return Outcome(figures, samples, (_chart(ours[0.1], hbase[0.1]),))


def _ms(extra_s: float) -> str:
    return f"{extra_s * 1e3:.0f}"


def _chart(ours: TimedReads, hbase: TimedReads) -> Lines:
    series = {
        name: ([each.at_s for each in made.reads], [each.seconds * 1e3 for each in made.reads])
        for name, made in (("ours", ours), ("hbase", hbase))
    }
    marks = {"slow": SLOW_FROM_S, "fast again": ours.slow_until_s}
    return Lines("latency of reads, primary +100 ms", "s", "ms", series, marks=marks, is_log_y=True)


def read(extra_s: float, slow_s: float, **options: Any) -> TimedReads:
    slow_until_s = SLOW_FROM_S + slow_s
    with SimRuntime(1) as runtime:
        backend = _SlowForGood(runtime, extra_s, slow_until_s)
        backend.add_table(TABLE, region_replication=3)
        table = client(backend, runtime, **options).table(TABLE)
        reads: list[Read] = []
        until_s = slow_until_s + 2 * NOTICED_S
        for task in [runtime.start(_read, table, runtime, reads, until_s) for _ in range(TASKS)]:
            task.result()
        return TimedReads(sorted(reads), backend.gets / len(reads) - 1, slow_until_s)


def _read(table: Table, runtime: Runtime, reads: list[Read], until_s: float) -> None:
    while runtime.now() < until_s:
        began = runtime.now()
        row = table.row(b"r", consistency="TIMELINE")
        reads.append(Read(began, runtime.now() - began, row.stale))
        runtime.sleep(TASKS / RATE)


class _SlowForGood(ScriptedBackend):
    """Gets take a time of their own, and those at the primary much longer for a while."""

    def __init__(self, runtime: Runtime, extra_s: float, slow_until_s: float) -> None:
        super().__init__(runtime)
        self._chance = random.Random(1)
        self._extra_s = extra_s
        self._slow_until_s = slow_until_s
        self.gets = 0

    def get(self, place: RegionLocation | None, table: bytes, get: Get, deadline: float) -> Result:
        self.gets += 1
        seconds = GET_S * self._chance.lognormvariate(0.0, SPREAD)
        is_primary = place is None or place.replica_id == 0
        if is_primary and SLOW_FROM_S <= self.runtime.now() < self._slow_until_s:
            seconds += self._extra_s
        self._pass(seconds, deadline)
        return Result(get.row, (), is_stale=not is_primary)


SCENARIO = Scenario(
    "slow-primary", ("T1", "T2", "T3"), "reads go to a replica first while the primary is slow for good", run
)
