"""One of three servers of hbase:meta hangs, or is killed, under lookups: this client and the Java client.

Four callers look up without pause and without cache. After some healthy seconds the server of a secondary is stopped
(SIGSTOP) for 24 s and continued. On a real HBase the Java client in LoadBalance mode gets the same fault at the same
time. Before that, this client gets the fault alone: while the Java client waits, this client would have more of the
machine than in the healthy seconds. At the end, ``kill -9`` of the primary's server.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from statistics import mean

from metaclient_bench.figure import Figure, Lines, Outcome
from metaclient_bench.lookups import CALLERS, Lookups, java_lookups, lookups
from metaclient_bench.places import FAKE, Place, place
from metaclient_bench.scenario import Scenario

HEALTHY_S, HUNG_S, AFTER_S = 6, 24, 6
WARM_UP_S = 8
#: A secondary: the Java client reads from all three, this client from the secondaries.
HUNG_REPLICA = 1


@dataclass(frozen=True, slots=True)
class Rates:
    """Lookups per second of one client through the fault."""

    per_second: Sequence[int]
    hung_s: int

    @property
    def healthy(self) -> float:
        """The healthy rate, without the first second, which includes the first read of the registry."""
        return mean(self.per_second[1:HEALTHY_S]) or 1.0

    @property
    def hung(self) -> Sequence[int]:
        return self.per_second[HEALTHY_S : HEALTHY_S + self.hung_s]

    @property
    def worst_share(self) -> float:
        return min(self.hung) / self.healthy


def run(quick: bool, backend: str = FAKE) -> Outcome:
    hung_s = 8 if quick else HUNG_S
    with place(backend) as where:
        where.breakable()
        _spread(where)
        made = {name: _hang(where, name, hung_s, with_java=False)[0] for name in where.clients}
        together, java = (
            _hang(where, next(iter(where.clients)), hung_s, with_java=True) if where.hbase else (None, None)
        )
        killed = _kill(where, HEALTHY_S if quick else 2 * HEALTHY_S)
    return _outcome(where, made, together, java, killed, hung_s)


def _spread(where: Place) -> None:
    """Move the meta replicas to different servers; otherwise two of three would hang together."""
    if where.hbase is not None:
        where.hbase.admin.switch_balancer(False)
        where.hbase.spread_meta()


def _hang(where: Place, name: str, hung_s: int, *, with_java: bool) -> tuple[Lookups, list[int] | None]:
    cluster = where.breakable()
    server = cluster.meta_server(HUNG_REPLICA)
    seconds = HEALTHY_S + hung_s + AFTER_S
    with ExitStack() as stack:
        connection = stack.enter_context(where.clients[name](meta_mode="LoadBalance"))
        with lookups(connection):  # a JVM that has just started is slow, and would make the healthy rate look low
            time.sleep(WARM_UP_S)
        java = stack.enter_context(java_lookups(where.hbase)) if with_java and where.hbase else None
        made = stack.enter_context(lookups(connection))
        _sleep_until(made.begun + HEALTHY_S)
        cluster.pause(server)
        _sleep_until(made.begun + HEALTHY_S + hung_s)
        cluster.resume(server)
        _sleep_until(made.begun + seconds + 1)  # the Java client's seconds begin a moment later
        return made, java.per_second()[:seconds] if java is not None else None


def _kill(where: Place, after_s: int) -> Lookups:
    cluster = where.breakable()
    server = cluster.meta_server(0)
    with where.connect(meta_mode="LoadBalance") as connection, lookups(connection) as made:
        _sleep_until(made.begun + HEALTHY_S)
        cluster.kill(server)
        _sleep_until(made.begun + HEALTHY_S + after_s)
    return made


def _sleep_until(instant: float) -> None:
    time.sleep(max(0.0, instant - time.monotonic()))


def _outcome(
    where: Place,
    made: dict[str, Lookups],
    together: Lookups | None,
    java: list[int] | None,
    killed: Lookups,
    hung_s: int,
) -> Outcome:
    seconds = HEALTHY_S + hung_s + AFTER_S
    rates = {name: Rates(one.per_second(seconds), hung_s) for name, one in made.items()}
    drawn = dict(rates)
    if together is not None and java is not None:
        drawn = {f"{name}, alone": one for name, one in rates.items()}
        drawn[f"{next(iter(rates))}, beside Java"] = Rates(together.per_second(seconds), hung_s)
        drawn["Java client (LoadBalance)"] = Rates(java, hung_s)
    beside = {_key(name): one.worst_share for name, one in drawn.items()} if len(drawn) > 1 else {}
    failed = sum(one.failed for one in made.values()) + (together.failed if together else 0)
    slowest_s = max(one.slowest_s for one in (*made.values(), *([together] if together else [])))
    totals = {f"{_key(name)}_lookups_while_hung": sum(one.hung) for name, one in drawn.items()}
    figures = (
        Figure.of("M1", f"failed lookups, one of three meta servers hung for {hung_s} s", failed, "== 0", **totals),
        Figure.of("M2", "slowest of those lookups, in seconds", slowest_s, "<= 1"),
        Figure.of(
            "M3",
            "rate in the worst second of the hang, as a share of the healthy rate; of ours, the one with the least",
            min(one.worst_share for one in rates.values()),
            ">= 0.5",
            **beside,
        ),
        Figure.of("M4", "failed lookups, server of the meta primary killed", killed.failed, "== 0"),
        Figure.of("M5", "slowest of those lookups, in seconds", killed.slowest_s, "<= 1"),
    )
    samples = {
        "lookups_per_second": {name: list(one.per_second) for name, one in drawn.items()},
        "killed_per_second": killed.per_second(int(killed.ended[-1] - killed.begun)),
    }
    axis = list(range(seconds))
    chart = Lines(
        f"lookups per second, {CALLERS} callers, one of three servers of hbase:meta hangs ({where.name})",
        "second",
        "lookups",
        {name: (axis[: len(one.per_second)], list(one.per_second)) for name, one in drawn.items()},
        marks={" hangs": float(HEALTHY_S), " woken": float(HEALTHY_S + hung_s)},
        is_steps=True,
    )
    return Outcome(figures, samples, (chart,))


def _key(name: str) -> str:
    return "".join(letter if letter.isalnum() else "_" for letter in name.lower()).strip("_").replace("__", "_")


SCENARIO = Scenario(
    "meta-failover",
    ("M1", "M2", "M3", "M4", "M5"),
    "a hung or killed server of hbase:meta does not stop lookups of this client; the Java client waits",
    run,
    backend=FAKE,
    run_on=run,
)
