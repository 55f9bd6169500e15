"""C5: one of three meta replicas hangs under load: this client continues, the Java client stops.

The load is that of :mod:`meta_failover`: tasks look up without pause and without cache, 5 ms per lookup, and at second
6 one replica stops responding for good. The figure is the rate while it hangs, as a share of the healthy rate of the
same run. For comparison, the same with replicas that have just enough handlers for the healthy load: then capacity is
lost, too.
"""

from __future__ import annotations

from statistics import mean
from typing import Any

from metaclient.connection import Connection
from metaclient.errors import MetaClientError
from metaclient.runtime import SimRuntime
from metaclient.testing.scripted import ScriptedBackend
from metaclient_bench.backends import HandlersBackend
from metaclient_bench.figure import Figure, Lines, Outcome
from metaclient_bench.scenario import Scenario
from metaclient_bench.virtual import JAVA, TABLE, client, per_interval

META_REPLICAS = 3
TASKS = 8
LOOKUP_S = 0.005
HANGS_AT_S = 6
HUNG = 2
#: Eight tasks just keep two secondaries with four handlers each busy.
HANDLERS = 4


def run(quick: bool) -> Outcome:
    length_s = 8 if quick else 60
    ours, java = lookups_per_second(length_s), lookups_per_second(length_s, **JAVA)
    full = lookups_per_second(8 if quick else 15, handlers=HANDLERS)
    figure = Figure.of(
        "C5",
        "lookup rate with one of three meta replicas hung, as a share of the healthy rate",
        hung_share(ours),
        ">= 0.63",
        java=hung_share(java),
        ours_worst_second=min(ours[HANGS_AT_S:]) / mean(ours[1:HANGS_AT_S]),
        ours_at_full_capacity=hung_share(full),
    )
    seconds = list(range(length_s))
    series = {"ours": (seconds, ours), "java (LoadBalance)": (seconds, java)}
    title = f"lookups per second, {TASKS} tasks, {META_REPLICAS} meta replicas, one hangs"
    chart = Lines(title, "second", "lookups", series, marks={" one replica hangs": float(HANGS_AT_S)}, is_steps=True)
    samples = {"lookups_per_second": {"ours": ours, "java": java, "ours_at_full_capacity": full}}
    return Outcome((figure,), samples, (chart,))


def hung_share(per_second: list[int]) -> float:
    """Return the rate during the hang as a share of the healthy rate, without the first second (registry reads)."""
    return mean(per_second[HANGS_AT_S:]) / mean(per_second[1:HANGS_AT_S])


def lookups_per_second(length_s: int, *, handlers: int | None = None, **options: Any) -> list[int]:
    with SimRuntime(1) as runtime:
        backend = _cluster(runtime, handlers)
        backend.on("read_meta", replica=HUNG, when=lambda call: call.at_s >= HANGS_AT_S).hangs()
        connection = client(backend, runtime, **options)
        done: list[float] = []
        for _ in range(TASKS):
            runtime.start(_look_up, connection, runtime, done)
        runtime.run_until(length_s)
        return per_interval(done, 1.0, 0.0, length_s)


def _cluster(runtime: SimRuntime, handlers: int | None) -> ScriptedBackend:
    if handlers is None:
        backend = ScriptedBackend(runtime, meta_replicas=META_REPLICAS, latency_s=LOOKUP_S)
    else:
        backend = HandlersBackend(runtime, meta_replicas=META_REPLICAS, latency_s=LOOKUP_S, handlers=handlers)
    backend.add_table(TABLE)
    return backend


def _look_up(connection: Connection, runtime: SimRuntime, done: list[float]) -> None:
    while not runtime.closed:
        try:
            connection.locate(TABLE, b"r", reload=True)
        except MetaClientError:
            continue
        done.append(runtime.now())


SCENARIO = Scenario("hung-replica", ("C5",), "a hung meta replica interrupts lookups only briefly", run)
