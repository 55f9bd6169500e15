"""C9: the peak of requests when hbase:meta returns after five seconds.

500 clients begin a lookup at the instant at which hbase:meta fails: the worst case, because all of them retry at the
same times. The figure counts the meta requests per 100 ms from meta's return until the last client has its result. For
comparison: this client with the Java client's jitter of 1 %, and a model of the Java client's lookups.
"""

from __future__ import annotations

from statistics import mean
from typing import Any

from metaclient.connection import Connection
from metaclient.errors import ServerUnreachable
from metaclient.runtime import SimRuntime
from metaclient.testing.scripted import ScriptedBackend
from metaclient_bench.figure import Figure, Lines, Outcome
from metaclient_bench.scenario import Scenario
from metaclient_bench.virtual import JAVA, TABLE, client, per_interval

CLIENTS = 500
OUTAGE_S = 5.0
INTERVAL_S = 0.1
LATENCY_S = 0.005
IN_STEP: dict[str, Any] = {"retry_jitter": 0.01}


def run(quick: bool) -> Outcome:
    seeds = range(1, 2 if quick else 5)
    others = 100 if quick else CLIENTS  # without jitter, peak and mean do not depend on the number of clients
    ours = [requests(seed) for seed in seeds]
    jitter, java = requests(1, others, **IN_STEP), requests(1, others, **JAVA)
    hung = requests(1, others, is_hung=True)
    figure = Figure.of(
        "C9",
        f"peak beside mean of meta requests per 100 ms, {CLIENTS} clients after {OUTAGE_S:g} s without meta",
        mean(peak_to_mean(each) for each in ours),
        "<= 3",
        jitter_1_percent=peak_to_mean(jitter),
        java=peak_to_mean(java),
        ours_worst_run=max(peak_to_mean(each) for each in ours),
        ours_if_meta_hung_silently=peak_to_mean(hung),
    )
    shown = {
        f"ours, {CLIENTS} clients": ours[0],
        f"1 % jitter, {others} clients": jitter,
        f"java (LoadBalance), {others} clients": java,
    }
    series = {name: (_seconds(each), each) for name, each in shown.items()}
    chart = Lines("meta requests after meta's return", "seconds", "requests in 100 ms", series, is_steps=True)
    return Outcome((figure,), {"requests_per_100_ms": {**shown, f"ours, {others} clients, meta hung": hung}}, (chart,))


def peak_to_mean(per_100_ms: list[int]) -> float:
    return max(per_100_ms) / mean(per_100_ms)


def _seconds(per_100_ms: list[int]) -> list[float]:
    return [round(index * INTERVAL_S, 1) for index in range(len(per_100_ms))]


def requests(seed: int, clients: int = CLIENTS, *, is_hung: bool = False, **options: Any) -> list[int]:
    """Return the meta requests per 100 ms from meta's return until the last client has its result."""
    with SimRuntime(seed) as runtime:
        backend = ScriptedBackend(runtime, meta_replicas=3, latency_s=LATENCY_S)
        backend.add_table(TABLE)
        connections = [client(backend, runtime, **options) for _ in range(clients)]
        back_at = runtime.now() + OUTAGE_S
        outage = backend.on("read_meta", when=lambda call: call.at_s < back_at)
        if is_hung:
            outage.hangs()
        else:
            outage.raises(lambda: ServerUnreachable("connection refused"))
        for task in [runtime.start(_look_up, connection) for connection in connections]:
            task.result()
        asked = [call.at_s for call in backend.calls if call.method == "read_meta"]
        intervals = int((runtime.now() - back_at) / INTERVAL_S) + 1
        return per_interval(asked, INTERVAL_S, back_at, back_at + intervals * INTERVAL_S)


def _look_up(connection: Connection) -> None:
    connection.locate(TABLE, b"r")


SCENARIO = Scenario("thundering-herd", ("C9",), "clients spread their retries after an outage", run)
