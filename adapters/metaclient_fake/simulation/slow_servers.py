"""Servers that are slow for minutes: a trial of its own, because ordinary runs are over in less than a minute.

A seed decides which server is slow, by how much and for how long. Clients make TIMELINE reads before, during and after
that time. The checker looks at the reads from outside:

- from ``NOTICED_S`` after the server became slow, at most ``SLOW_SHARE_MAX`` of the reads take half of its slowness;
- from ``NOTICED_S`` after it is fast again, at least ``FRESH_SHARE_MIN`` of the answers are fresh;
- hedges are at most the budget's share of the reads, its burst and its debt.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple
from unittest.mock import patch

from metaclient.attempts.budget import DEBT_MAX
from metaclient.attempts.latencies import ServerLatencies
from metaclient.connection import Connection
from metaclient.runtime import Runtime, SimRuntime
from metaclient_fake.cluster import FakeCluster
from metaclient_fake.simulation.chance import chance
from metaclient_fake.simulation.world import Violation

__all__ = ["Read", "SlowTrial", "check", "learned_as_normal", "run"]

TABLE = "t"
ROWS = (b"a", b"h", b"q")
SPLITS = (b"g", b"p")
CLIENTS, READS_PER_S = 2, 20.0
HEALTHY_S, NOTICED_S, AFTER_S = 5.0, 10.0, 20.0
SLOW_SHARE_MAX, FRESH_SHARE_MIN = 0.1, 0.9


class Read(NamedTuple):
    """One read of a row whose primary is on the server that becomes slow."""

    at_s: float
    seconds: float
    is_stale: bool


class SlowTrial(NamedTuple):
    """The result of a trial: when the server was slow, by how much, the reads, and each client's hedges and reads."""

    slow_from_s: float
    slow_until_s: float
    slowness_s: float
    reads: Sequence[Read]
    hedges: Sequence[tuple[int, int]]


def run(seed: int) -> SlowTrial:
    """Run one trial on virtual time."""
    dice = chance(seed, "slow servers")
    slowness_s = dice.choice((0.03, 0.1, 0.2, 0.5))
    lasts_s = dice.uniform(60.0, 180.0)
    with SimRuntime(seed) as runtime, FakeCluster(runtime=runtime, servers=4) as cluster:
        connections = [cluster.connect() for _ in range(CLIENTS)]
        connections[0].create_table(TABLE, {"cf": {}}, splits=list(SPLITS), region_replication=3)
        row = dice.choice(ROWS)
        connections[0].table(TABLE).put(row, {b"cf:a": b"1"})
        server = connections[0].locate(TABLE, row).server.host
        slow_from_s = runtime.now() + HEALTHY_S
        slow_until_s = slow_from_s + lasts_s
        reads: list[Read] = []
        until_s = slow_until_s + AFTER_S
        tasks = [runtime.start(_read, runtime, one, row, until_s, reads) for one in connections]
        runtime.sleep(HEALTHY_S)
        cluster.slow(server, slowness_s)
        runtime.sleep(lasts_s)
        cluster.slow(server, 0.0)
        made = [task.result() for task in tasks]
        hedges = [(one.stats()["hedges"]["started"], count) for one, count in zip(connections, made, strict=True)]
        for connection in connections:
            connection.close()
        return SlowTrial(slow_from_s, slow_until_s, slowness_s, reads, hedges)


def _read(runtime: Runtime, connection: Connection, row: bytes, until_s: float, reads: list[Read]) -> int:
    table = connection.table(TABLE)
    count = 0
    while runtime.now() < until_s:
        begun = runtime.now()
        answer = table.row(row, consistency="TIMELINE")
        reads.append(Read(begun, runtime.now() - begun, answer.stale))
        count += 1
        runtime.sleep(1 / READS_PER_S)
    return count


def check(trial: SlowTrial) -> Iterator[Violation]:
    """Yield a violation for each promise that the reads break."""
    during = [each.seconds for each in trial.reads if trial.slow_from_s + NOTICED_S <= each.at_s < trial.slow_until_s]
    slow = sum(seconds >= trial.slowness_s / 2 for seconds in during) / len(during)
    if slow > SLOW_SHARE_MAX:
        yield Violation("slow_servers", f"{slow:.0%} of the reads waited for a server that was slow for minutes")
    after = [each for each in trial.reads if each.at_s >= trial.slow_until_s + NOTICED_S]
    fresh = sum(not each.is_stale for each in after) / len(after)
    if fresh < FRESH_SHARE_MIN:
        yield Violation("slow_servers", f"only {fresh:.0%} of the answers are fresh after the server has recovered")
    for hedges, reads in trial.hedges:
        if hedges > max(10, 0.05 * reads) + DEBT_MAX:
            yield Violation("slow_servers", f"{hedges} hedges for {reads} reads")


@contextmanager
def learned_as_normal() -> Iterator[None]:
    """Plant a bug: the latencies of a slow primary count as normal, and no server is ever found slow."""

    def deaf(self: ServerLatencies, *args: Any, **kwargs: Any) -> bool:
        return False

    with patch.object(ServerLatencies, "add", deaf):
        yield
