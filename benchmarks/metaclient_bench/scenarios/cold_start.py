"""C3: the number of reads of hbase:meta until the cache of a new client answers nearly every lookup.

The Java client reads 10 rows per lookup, backwards; in this client pages grow while misses follow each other. The
figure counts all reads of the run (as the Java client's 213 does), although 99 % of the lookups are hits much earlier.
For comparison, on the same rows: a model of the Java client, and this client with pages of a fixed size.
"""

from __future__ import annotations

from bisect import bisect_right
from statistics import mean
from typing import Any

from metaclient.runtime import SimRuntime
from metaclient.testing.scripted import ScriptedBackend
from metaclient_bench.figure import Figure, Lines, Outcome
from metaclient_bench.keyspace import random_rows, splits
from metaclient_bench.scenario import Scenario
from metaclient_bench.virtual import TABLE, client

REGIONS = 1000
LOOKUPS = 5000
STARTS = [b"", *splits(REGIONS)]
JAVA_PAGE = 10
FIXED: dict[str, Any] = {"locate_prefetch": JAVA_PAGE, "locate_prefetch_max": JAVA_PAGE}


def run(quick: bool) -> Outcome:
    seeds = range(2 if quick else 10)
    ours = [meta_calls(seed) for seed in seeds]
    fixed = [meta_calls(seed, **FIXED) for seed in seeds]
    java = [java_calls(seed) for seed in seeds]
    figure = Figure.of(
        "C3",
        f"meta calls for {LOOKUPS} random rows of {REGIONS} regions, mean of {len(seeds)} runs",
        mean(calls[-1] for calls in ours),
        "<= 15",
        java=mean(calls[-1] for calls in java),
        ours_worst_run=max(calls[-1] for calls in ours),
        ours_with_10_rows_a_page=mean(calls[-1] for calls in fixed),
        ours_hit_share=1 - mean(calls[-1] for calls in ours) / LOOKUPS,
    )
    lookups = list(range(1, LOOKUPS + 1))
    shown = {"ours": ours[0], "ours, 10 rows per page": fixed[0], "java, 10 rows per page": java[0]}
    series = {name: (lookups, calls) for name, calls in shown.items()}
    chart = Lines("meta calls of a cold client", "lookups", "meta calls so far", series, goal=15.0, is_log_y=True)
    samples = {name: calls[99::100] for name, calls in shown.items()}
    return Outcome((figure,), {"calls_after_each_100_lookups": samples}, (chart,))


def meta_calls(seed: int, **options: Any) -> list[int]:
    """Return the number of meta calls after each lookup."""
    with SimRuntime(seed) as runtime:
        backend = ScriptedBackend(runtime, meta_replicas=3, latency_s=0.005)
        backend.add_table(TABLE, splits=STARTS[1:])
        connection = client(backend, runtime, **options)
        calls: list[int] = []
        for row in random_rows(LOOKUPS, seed):
            connection.locate(TABLE, row)
            calls.append(len(backend.calls))
        setup = sum(call.method != "read_meta" for call in backend.calls)
        return [made - setup for made in calls]


def java_calls(seed: int) -> list[int]:
    """Return the same for a model of the Java client: each miss reads the row's region and the nine before it."""
    known = [False] * REGIONS
    calls: list[int] = []
    made = 0
    for row in random_rows(LOOKUPS, seed):
        region = bisect_right(STARTS, row) - 1
        if not known[region]:
            made += 1
            first = max(0, region - JAVA_PAGE + 1)
            known[first : region + 1] = [True] * (region + 1 - first)
        calls.append(made)
    return calls


SCENARIO = Scenario("cold-start", ("C3",), "a cold cache is warm after a few meta calls", run)
