"""C8: the number of calls per operation when no server responds any more.

Reads begin, evenly distributed, within a minute of an outage that does not end. "Plain" is the Java client's policy, up
to 16 attempts each. The figure counts all calls that reach the cluster. Behind a gateway these are the reads; a client
that locates servers itself also calls hbase:meta and the registry.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

from metaclient.backend import Addressing, Capabilities
from metaclient.errors import MetaClientError, ServerUnreachable
from metaclient.runtime import Runtime, SimRuntime
from metaclient.table import Table
from metaclient.testing.scripted import ScriptedBackend
from metaclient_bench.figure import Bars, Figure, Outcome
from metaclient_bench.scenario import Scenario
from metaclient_bench.virtual import TABLE, client

BEGIN_WITHIN_S = 60.0
LATENCY_S = 0.001
#: HBase's: 15 retries, 20 minutes, a jitter of 1 %, and no budget.
PLAIN: dict[str, Any] = {
    "retry_budget": 1000,
    "retry_budget_burst": 1_000_000_000,
    "operation_timeout_s": 1200.0,
    "retry_jitter": 0.01,
}


def run(quick: bool) -> Outcome:
    operations = 500 if quick else 1000
    few = 50 if quick else 200  # each operation makes 16 attempts, independent of their number
    gateway = {
        "ours": calls_in_outage(operations, by_gateway=True),
        "plain": calls_in_outage(few, by_gateway=True, **PLAIN),
    }
    servers = {"ours": calls_in_outage(operations), "plain": calls_in_outage(few, **PLAIN)}
    figures = (
        Figure.of(
            "C8",
            f"calls per operation in a total outage, {operations} reads behind a gateway",
            gateway["ours"].total() / operations,
            "<= 1.2",
            plain=gateway["plain"].total() / few,
        ),
        Figure.of(
            "C8b",
            "the same for a client that locates servers itself: reads, lookups and registry",
            servers["ours"].total() / operations,
            "<= 1.2",
            plain=servers["plain"].total() / few,
            of_these_meta=servers["ours"]["read_meta"] / operations,
        ),
    )
    shown = {
        "ours, gateway": figures[0].value,
        "plain, gateway": figures[0].beside["plain"],
        "ours, servers": figures[1].value,
        "plain, servers": figures[1].beside["plain"],
    }
    samples = {
        "gateway": {name: dict(calls) for name, calls in gateway.items()},
        "servers": {name: dict(calls) for name, calls in servers.items()},
        "operations": {"ours": operations, "plain": few},
    }
    return Outcome(figures, samples, (Bars("calls per operation in a total outage", "calls", shown, goal=1.2),))


def calls_in_outage(operations: int, *, by_gateway: bool = False, **options: Any) -> Counter[str]:
    """Return the calls by method, from the beginning of the outage until the last operation has failed."""
    addressing = Addressing.GATEWAY if by_gateway else Addressing.SERVER
    with SimRuntime(1) as runtime:
        backend = ScriptedBackend(
            runtime,
            meta_replicas=3,
            latency_s=LATENCY_S,
            capabilities=Capabilities(filters=False, addressing=addressing),
        )
        backend.add_table(TABLE, splits=[b"%d" % number for number in range(1, 10)])
        connection = client(backend, runtime, **options)
        connection.warm_up(TABLE)
        table = connection.table(TABLE)
        table.row(b"1")
        backend.calls.clear()
        backend.on("*").raises(lambda: ServerUnreachable("connection refused"))
        pause_s = BEGIN_WITHIN_S / operations
        tasks = [
            runtime.start(_read, table, runtime, number * pause_s, b"%d" % (number % 10))
            for number in range(operations)
        ]
        for task in tasks:
            task.result()
        return Counter(call.method for call in backend.calls)


def _read(table: Table, runtime: Runtime, after_s: float, row: bytes) -> None:
    runtime.sleep(after_s)
    try:
        table.row(row)
    except MetaClientError:
        return
    raise AssertionError("a read cannot work in a total outage")


SCENARIO = Scenario("total-outage", ("C8", "C8b"), "retries of clients do not make an outage worse", run)
