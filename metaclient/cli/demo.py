"""The command ``demo``: compares the meta modes in one minute, on an embedded fake cluster and virtual time.

The same scenario runs four times from the same seed: 5 servers, 3 replicas of hbase:meta, a table of 200 regions, 20
clients. First all clients start at once with empty caches. Then the server of the primary meta replica is killed and
the server of a secondary hangs while the clients look up rows. The runs differ only in how clients read hbase:meta.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import click
from rich.console import Console, Group
from rich.live import Live
from rich.table import Table as RichTable
from rich.text import Text

from metaclient.cli.picture import bar, sparkline
from metaclient.cli.session import CommandSession, clusterless
from metaclient.connection import Connection
from metaclient.errors import MetaClientError
from metaclient.runtime import SimRuntime
from metaclient.runtime.simulation import import_greenlet
from metaclient.testing.clusters import cluster_class

__all__ = ["demo"]

SERVERS, META_REPLICAS, REGIONS, CLIENTS = 5, 3, 200, 20
#: Lookups per client in the start-up storm.
STORM_LOOKUPS = 25
#: The second part: its virtual seconds, the times of its faults, and the lookups per second and client.
PART_S, KILL_AT_S, HANG_AT_S, LOOKUPS_PER_S = 28, 4, 16, 4
SEED = 7


@dataclass(frozen=True, slots=True)
class _Mode:
    name: str
    meta_mode: str
    selector: str
    color: str


MODES = (
    _Mode("None (the default)", "None", "round_robin", "red"),
    _Mode("HedgedRead", "HedgedRead", "round_robin", "yellow"),
    _Mode("Java's LoadBalance", "LoadBalance", "simple", "blue"),
    _Mode("LoadBalance", "LoadBalance", "round_robin", "green"),
)


@dataclass(slots=True)
class _DemoReads:
    """The measurements of one mode."""

    mode: _Mode
    storm_reads: dict[int, int] = field(default_factory=dict)
    per_second: Counter[int] = field(default_factory=Counter)
    waits_s: list[float] = field(default_factory=list)
    failed: int = 0
    done: int = 0

    def share(self, replica: int) -> float:
        return self.storm_reads.get(replica, 0) / (sum(self.storm_reads.values()) or 1)

    def longest_s(self) -> float:
        return max(self.waits_s, default=0.0)

    def slow(self) -> int:
        """Return the number of lookups that took longer than 100 ms."""
        return sum(wait > 0.1 for wait in self.waits_s)

    def as_json(self) -> dict[str, Any]:
        return {
            "mode": self.mode.name,
            "meta_mode": self.mode.meta_mode,
            "selector": self.mode.selector,
            "storm_reads_by_replica": {
                str(replica): self.storm_reads.get(replica, 0) for replica in range(META_REPLICAS)
            },
            "primary_share": round(self.share(0), 4),
            "lookups_per_second": [self.per_second.get(second, 0) for second in range(PART_S)],
            "lookups_done": self.done,
            "lookups_failed": self.failed,
            "lookups_over_100_ms": self.slow(),
            "longest_wait_s": round(self.longest_s(), 3),
        }


class _Scenario:
    """The scenario in one mode, on its own cluster."""

    def __init__(self, mode: _Mode, cluster_type: Callable[..., Any]) -> None:
        self.seen = _DemoReads(mode)
        self._runtime = SimRuntime(seed=SEED)
        self._cluster = cluster_type(servers=SERVERS, meta_replicas=META_REPLICAS, seed=SEED, runtime=self._runtime)
        self._clients: list[Connection] = []

    def close(self) -> None:
        for client in self._clients:
            client.close()
        self._cluster.close()
        self._runtime.close()

    def prepare(self) -> None:
        with self._cluster.connect() as admin:
            splits = [b"%04d" % number for number in range(1, REGIONS)]
            admin.create_table("demo", {"cf": {}}, splits=splits)
        self._cluster.wait_until_replicated(60.0)
        self._clients = [
            self._cluster.connect(
                meta_mode=self.seen.mode.meta_mode,
                meta_selector=self.seen.mode.selector,
                locate_prefetch=1,
                locate_prefetch_max=1,
                operation_timeout_s=60.0,
            )
            for _ in range(CLIENTS)
        ]

    def storm(self) -> None:
        """Start all clients at once with empty caches, and count their reads of hbase:meta."""
        before = self._reads()
        tasks = [self._runtime.start(self._storm_client, client, name="client") for client in self._clients]
        for task in tasks:
            task.result()
        after = self._reads()
        self.seen.storm_reads = {replica: after[replica] - before.get(replica, 0) for replica in after}

    def _reads(self) -> dict[int, int]:
        return {int(replica): count for replica, count in self._cluster.status()["meta"]["reads_by_replica"].items()}

    def _storm_client(self, client: Connection) -> None:
        for _ in range(STORM_LOOKUPS):
            client.locate("demo", self._row())

    def _row(self) -> bytes:
        return b"%04d" % self._runtime.rng.randrange(REGIONS)

    def trouble(self, on_second: Callable[[], None]) -> None:
        """Kill the primary's server, then hang a secondary's, while all clients look up rows."""
        begun = self._runtime.now()
        tasks = [self._runtime.start(self._steady_client, client, begun, name="client") for client in self._clients]
        for second in range(PART_S):
            if second == KILL_AT_S:
                self._cluster.kill(self._cluster.meta_server(0))
            if second == HANG_AT_S:
                self._cluster.pause(self._replica_server())
            self._runtime.sleep(begun + second + 1 - self._runtime.now())
            on_second()
        self._count_waiting(tasks, begun)

    def _replica_server(self) -> str:
        """Return the server of a secondary, if possible one that does not hold the primary."""
        primary = self._cluster.meta_server(0)
        servers = [self._cluster.meta_server(replica) for replica in range(1, META_REPLICAS)]
        return str(next((server for server in servers if server != primary), servers[0]))

    def _steady_client(self, client: Connection, begun: float) -> None:
        runtime = self._runtime
        runtime.sleep(runtime.rng.random() / LOOKUPS_PER_S)
        while runtime.now() < begun + PART_S:
            started = runtime.now()
            try:
                client.locate("demo", self._row(), reload=True)
            except MetaClientError:
                self.seen.failed += 1
            else:
                self.seen.done += 1
                self.seen.per_second[int(runtime.now() - begun)] += 1
            self.seen.waits_s.append(runtime.now() - started)
            runtime.sleep(max(0.0, started + 1 / LOOKUPS_PER_S - runtime.now()))

    def _count_waiting(self, tasks: list[Any], begun: float) -> None:
        """Count the lookups that are still in flight at the end with the time that they have waited so far."""
        waiting = sum(not task.is_done for task in tasks)
        expected = CLIENTS * LOOKUPS_PER_S * PART_S
        missed = expected - self.seen.done - self.seen.failed
        if waiting and missed > waiting:
            self.seen.waits_s += [missed / waiting / LOOKUPS_PER_S] * waiting


@click.command()
@clusterless
def demo(session: CommandSession) -> None:
    """Compare the meta modes on a fake cluster, in under a minute."""
    import_greenlet()  # virtual time needs it: fail before anything is drawn
    cluster_type = cluster_class("fake")
    results = [_DemoReads(mode) for mode in MODES]
    if not session.is_for_people:
        for number, mode in enumerate(MODES):
            results[number] = _run(mode, cluster_type, lambda seen: None)
        found = [seen.as_json() for seen in results]
        session.document({"modes": found}, rows="modes")
        session.table("", list(found[0]), [list(one.values()) for one in found])
        return
    console = Console(highlight=False)
    console.print(
        f"\n[bold]metaclient demo[/bold]: {SERVERS} servers, {META_REPLICAS} replicas of hbase:meta, "
        f"{REGIONS} regions, {CLIENTS} clients; four runs of one scenario, on virtual time\n"
    )
    with Live(_picture(results, None), console=console, refresh_per_second=8, transient=False) as live:
        for number, mode in enumerate(MODES):

            def show(seen: _DemoReads, number: int = number) -> None:
                results[number] = seen
                live.update(_picture(results, number))

            results[number] = _run(mode, cluster_type, show)
        live.update(_picture(results, None))
    _print_summary(console, results)


def _run(mode: _Mode, cluster_type: Callable[..., Any], show: Callable[[_DemoReads], None]) -> _DemoReads:
    scenario = _Scenario(mode, cluster_type)
    try:
        show(scenario.seen)
        scenario.prepare()
        scenario.storm()
        show(scenario.seen)
        scenario.trouble(lambda: show(scenario.seen))
    finally:
        scenario.close()
    return scenario.seen


def _picture(results: list[_DemoReads], running: int | None) -> Group:
    storm = _table("1. Start-up storm: share of the reads of hbase:meta per replica")
    for replica in range(META_REPLICAS):
        storm.add_column("primary" if replica == 0 else f"replica {replica}", width=18)
    trouble = _table(
        f"\n2. Lookups per second; the primary's server is killed at {KILL_AT_S} s, "
        f"a replica's hangs from {HANG_AT_S} s"
    )
    trouble.add_column(f"second 0 to {PART_S}", width=PART_S)
    for title in ("done", "failed", "longest wait"):
        trouble.add_column(title, justify="right", no_wrap=True)
    top = float(CLIENTS * LOOKUPS_PER_S)
    for number, seen in enumerate(results):
        name = Text(seen.mode.name + (" …" if number == running else ""), style=seen.mode.color)
        shares = [bar(seen.share(replica), 10) if seen.storm_reads else "" for replica in range(META_REPLICAS)]
        storm.add_row(name, *(Text(share, style=seen.mode.color) for share in shares))
        line = sparkline([seen.per_second.get(second, 0) for second in range(PART_S)], top)
        figures = (str(seen.done), str(seen.failed), f"{seen.longest_s():.2f} s")
        trouble.add_row(name, Text(line, style=seen.mode.color), *(figures if seen.waits_s else ("",) * 3))
    return Group(storm, trouble)


def _table(title: str) -> RichTable:
    """Return an empty table that fits into 80 columns: no lines, little padding."""
    made = RichTable(title=title, title_justify="left", title_style="bold", box=None, padding=(0, 2, 0, 0))
    made.add_column("mode", width=20, no_wrap=True)
    return made


def _print_summary(console: Console, results: list[_DemoReads]) -> None:
    ours = next(
        seen for seen in results if seen.mode.selector == "round_robin" and seen.mode.meta_mode == "LoadBalance"
    )
    default = results[0]
    console.print(
        f"\nThe primary served [red]{default.share(0):.0%}[/red] of the reads in mode None and "
        f"[green]{ours.share(0):.0%}[/green] in LoadBalance. The longest wait was "
        f"[red]{default.longest_s():.1f} s[/red] and [green]{ours.longest_s():.1f} s[/green].\n\n[bold]Next:[/bold]\n"
    )
    console.print(
        "    import metaclient\n"
        '    connection = metaclient.connect("fake:?servers=5&meta_replicas=3")\n'
        "    print(connection.meta_replicas())\n",
        style="cyan",
        markup=False,
    )
