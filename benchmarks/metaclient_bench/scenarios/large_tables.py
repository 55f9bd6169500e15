"""V9, V10, V12, V13: a table of 100,000 regions, 1,000 clients in virtual time, and the memory of one client.

V9: a table of 100,000 regions in the fake: it is created, a client reads all its locations, and a Spark job over it is
planned from these locations. Before that, a first client makes the fake index its copies of hbase:meta, which is shown
beside the figure. V10: simulated seconds per second of CPU with 1,000 clients that make a put or a get each
second, the first lookups included. V12: resident memory of 100,000 cached regions in a client by native RPC. V13: the
peak of memory of a scan of a million rows, beyond that of a scan of two pages.
"""

from __future__ import annotations

import json
import random
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from typing import Any

from metaclient.runtime import SimRuntime
from metaclient_bench.figure import Bars, Figure, Outcome
from metaclient_bench.keyspace import splits
from metaclient_bench.scenario import Scenario
from metaclient_fake import FakeCluster

REGIONS, ROWS = 100_000, 1_000_000
CLIENTS, CLIENT_REGIONS = 1_000, 100
PROGRAM = (sys.executable, "-m", "metaclient_bench.large_table")


def run(quick: bool) -> Outcome:
    regions, rows = (REGIONS // 10, ROWS // 10) if quick else (REGIONS, ROWS)
    simulated = simulated_per_core_s(CLIENTS, 10.0 if quick else 20.0)
    with _served(regions, rows) as served:
        cached_mb = _measured("cached", served["native"])
        scanned = {name: _measured("scanned", served[name]) for name in ("native", "thrift2")}
    figures = (
        Figure.of("V9a", f"CPU microseconds per region, creating {regions:,} regions", served["create_us"], "<= 600"),
        Figure.of(
            "V9b",
            "CPU microseconds per region, warm_up of that table",
            served["warm_up_us"],
            "<= 60",
            first_client_of_the_fake=served["first_warm_up_us"],
        ),
        Figure.of(
            "V9c",
            "CPU seconds, a Spark job over it is planned from these locations",
            served["plan_s"],
            "<= 2",
            splits=served["splits"],
            first_plan_that_reads_meta=served["first_plan_s"],
        ),
        Figure.of("V10", f"simulated seconds per CPU second, {CLIENTS:,} clients", simulated, ">= 2"),
        Figure.of("V12", f"MB resident in a client with {regions:,} cached regions", cached_mb, "<= 100"),
        Figure.of(
            "V13",
            f"MB that a scan of {rows:,} rows needs beyond a scan of two pages; the most of both",
            max(scanned.values()),
            "<= 2",
            **scanned,
        ),
    )
    chart = Bars("microseconds per region", "us", {"create": served["create_us"], "warm_up": served["warm_up_us"]})
    return Outcome(figures, {"served": served, "scanned_mb": scanned}, (chart,))


def simulated_per_core_s(clients: int, duration_s: float) -> float:
    """Return how many simulated seconds of that many clients one CPU second takes."""
    with SimRuntime(1) as runtime, FakeCluster(servers=5, meta_replicas=3, runtime=runtime) as cluster:
        return runtime.run(_work, cluster, runtime, clients, duration_s)


def _work(cluster: FakeCluster, runtime: SimRuntime, clients: int, duration_s: float) -> float:
    connections = [cluster.connect(meta_mode="LoadBalance") for _ in range(clients)]
    connections[0].create_table("t", {"cf": {}}, splits=splits(CLIENT_REGIONS))

    def client(number: int) -> None:
        chance, table = random.Random(number), connections[number].table("t")
        runtime.sleep(chance.random())
        while runtime.now() < begun + duration_s:
            row = b"%06d" % chance.randrange(1_000_000)
            if chance.random() < 0.5:
                table.put(row, {b"cf:a": b"v"})
            else:
                table.row(row)
            runtime.sleep(1.0)

    begun, cpu = runtime.now(), time.process_time()
    for task in [runtime.start(client, number, name="client") for number in range(clients)]:
        task.result()
    taken = (runtime.now() - begun) / (time.process_time() - cpu)
    for connection in connections:
        connection.close()
    return taken


@contextmanager
def _served(regions: int, rows: int) -> Iterator[dict[str, Any]]:
    command = [*PROGRAM, "serve", str(regions), str(rows)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            line = process.stdout.readline()
            if not line:
                raise RuntimeError(f"the fake ended with exit code {process.wait()}")
            yield json.loads(line)
        finally:
            process.kill()  # it has no data on disk


def _measured(program: str, url: str) -> float:
    done = subprocess.run([*PROGRAM, program, url], stdout=subprocess.PIPE, text=True, check=True)
    return float(done.stdout)


def _missing() -> str | None:
    """Return what to install before a Spark job can be planned; None if nothing is missing."""
    return None if find_spec("pyspark") else "the plan of a Spark job needs pyspark: pip install 'metaclient[spark]'"


SCENARIO = Scenario(
    "large-tables",
    ("V9a", "V9b", "V9c", "V10", "V12", "V13"),
    "100,000 regions, 1,000 simulated clients, and the memory of one client",
    run,
    backend="fake",
    missing=_missing,
)
