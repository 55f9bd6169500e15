"""C4: the share of each meta replica without faults: none at the primary, even shares at the secondaries."""

from __future__ import annotations

from collections import Counter
from statistics import mean
from typing import Any

from metaclient.runtime import SimRuntime
from metaclient.testing.scripted import ScriptedBackend
from metaclient_bench.figure import Bars, Figure, Outcome
from metaclient_bench.scenario import Scenario
from metaclient_bench.virtual import JAVA, TABLE, client

META_REPLICAS = 3
TASKS = 8
#: Few enough for random choice to show: over 60 lookups, uniform random over 3 replicas has a max/mean of about 1.19.
SHORT = 60


def run(quick: bool) -> Outcome:
    lookups = 1600 if quick else 8000
    ours, java = served(lookups, seed=1), served(lookups, seed=1, **JAVA)
    clients = range(5 if quick else 20)
    short_ours = mean(imbalance(served(SHORT, seed), without_primary=True) for seed in clients)
    short_java = mean(imbalance(served(SHORT, seed, **JAVA)) for seed in clients)
    figures = (
        Figure.of("C4", "share of lookups served by the primary", share(ours, 0), "<= 0.01", java=share(java, 0)),
        Figure.of(
            "C4b",
            f"busiest secondary beside the mean, {SHORT} lookups, mean of {len(clients)} clients",
            short_ours,
            "<= 1.05",
            java=short_java,
            ours_over_all_lookups=imbalance(ours, without_primary=True),
        ),
    )
    shown = {
        f"{who} {name(i)}": share(by, i) for who, by in (("ours", ours), ("java", java)) for i in range(META_REPLICAS)
    }
    chart = Bars(f"share of {lookups} lookups by meta replica", "share", shown)
    return Outcome(figures, {"served_by_replica": {"ours": dict(ours), "java": dict(java)}}, (chart,))


def served(lookups: int, seed: int, **options: Any) -> Counter[int]:
    """Return the number of lookups that each meta replica served; no lookup uses the cache."""
    with SimRuntime(seed) as runtime:
        backend = ScriptedBackend(runtime, meta_replicas=META_REPLICAS, latency_s=0.005)
        backend.add_table(TABLE)
        connection = client(backend, runtime, **options)
        tasks = [
            runtime.start(_look_up, connection, lookups // TASKS + (task < lookups % TASKS)) for task in range(TASKS)
        ]
        for task in tasks:
            task.result()
        return Counter(
            call.replica_id for call in backend.calls if call.method == "read_meta" and call.replica_id is not None
        )


def _look_up(connection: Any, count: int) -> None:
    for number in range(count):
        connection.locate(TABLE, b"%d" % number, reload=True)


def share(by_replica: Counter[int], replica_id: int) -> float:
    return by_replica[replica_id] / by_replica.total()


def imbalance(by_replica: Counter[int], *, without_primary: bool = False) -> float:
    """Return the load of the busiest replica divided by the mean; 1.0 is perfectly even."""
    loads = [by_replica[replica_id] for replica_id in range(without_primary, META_REPLICAS)]
    return max(loads) / mean(loads)


def name(replica_id: int) -> str:
    return f"replica {replica_id}" if replica_id else "primary"


SCENARIO = Scenario(
    "meta-balance", ("C4", "C4b"), "the secondaries of hbase:meta share the lookups, and the primary serves none", run
)
