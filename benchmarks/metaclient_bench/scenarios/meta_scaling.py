"""F1: k meta secondaries serve k times the lookups of the primary alone, up to k = 8.

Virtual time; k + 2 servers, each of which serves a fixed number of reads of hbase:meta per second (handlers / service
time), and more clients than they can serve. The figure is lookups per second in LoadBalance over those of the primary
alone, divided by k.
"""

from __future__ import annotations

from metaclient.connection import Connection
from metaclient.errors import MetaClientError
from metaclient.runtime import SimRuntime
from metaclient_bench.figure import Figure, Lines, Outcome
from metaclient_bench.scenario import Scenario
from metaclient_fake import FakeCluster

HANDLERS = 2
SERVICE_S = 0.01  # 200 reads per second and server: few enough to simulate; only the ratio counts
TASKS_PER_SERVER = 24  # twelve times the number that keeps the handlers busy: no server waits for clients
K = (1, 2, 3, 4, 5, 6, 7, 8)


def run(quick: bool) -> Outcome:
    length_s = 2.0 if quick else 6.0
    ks = (1, 4, 8) if quick else K
    alone = lookups_per_second(1, "None", length_s)
    spread = {k: lookups_per_second(k, "LoadBalance", length_s) for k in ks}
    worst = min(rate / alone / k for k, rate in spread.items())
    figure = Figure.of(
        "F1",
        "lookups per second with k meta secondaries, over k times those of the primary alone; the worst k",
        worst,
        ">= 0.95",
        **{f"k{k}": rate / alone / k for k, rate in spread.items()},
    )
    series = {
        "LoadBalance": (list(spread), [rate / alone for rate in spread.values()]),
        "ideal": (list(spread), [float(k) for k in spread]),
    }
    chart = Lines("lookups per second, primary alone = 1", "meta secondaries", "times", series)
    return Outcome((figure,), {"primary_alone": alone, "load_balance": spread}, (chart,))


def lookups_per_second(secondaries: int, mode: str, length_s: float) -> float:
    config = {
        "meta_handlers": HANDLERS,
        "meta_service_time_s": SERVICE_S,
        "latency_s_min": 0.0,
        "latency_s_max": 0.0,
        "call_queue_max": 10_000,
    }
    with (
        SimRuntime(seed=1) as runtime,
        FakeCluster(servers=secondaries + 2, meta_replicas=secondaries + 1, runtime=runtime, config=config) as cluster,
    ):
        with cluster.connect() as admin:
            admin.create_table("t", {"cf": {}}, splits=[b"%03d" % number for number in range(1, 100)])
        cluster.wait_until_replicated(60.0)
        clients = [
            cluster.connect(meta_mode=mode, locate_prefetch=1, locate_prefetch_max=1, meta_try_timeout_s=10.0)
            for _ in range(TASKS_PER_SERVER * secondaries)
        ]
        done = [0]
        for client in clients:
            runtime.start(_look_up, client, runtime, done)
        runtime.run_for(1.0)  # by now all clients have read the registry and started
        before = done[0]
        runtime.run_for(length_s)
        return (done[0] - before) / length_s


def _look_up(client: Connection, runtime: SimRuntime, done: list[int]) -> None:
    while not runtime.closed:
        try:
            client.locate(b"t", b"%03d" % runtime.rng.randrange(100), reload=True)
        except MetaClientError:
            continue
        done[0] += 1


SCENARIO = Scenario(
    "meta-scaling", ("F1",), "each further copy of hbase:meta adds the capacity of one", run, backend="fake"
)
