"""C7: TIMELINE reads of a region whose primary is sometimes slow: the gain and the cost of hedging.

Gets take about 2 ms; some of those at the primary take a hundred times that. There are three clients: this one (staged
hedges, adaptive delay, at most 5 % extra calls), HBase's (all replicas at once after a fixed 10 ms, no limit), and
STRONG reads, which wait. They run with 5 % slow gets, which use the whole budget, and with 1 %, which do not.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from metaclient.model import Get, RegionLocation, Result
from metaclient.runtime import Runtime, SimRuntime
from metaclient.table import Table
from metaclient.testing.scripted import ScriptedBackend
from metaclient_bench.figure import Figure, Lines, Outcome
from metaclient_bench.scenario import Scenario
from metaclient_bench.timeline_live import run_on
from metaclient_bench.virtual import TABLE, client

TASKS = 8
GET_S = 0.002
SPREAD = 0.3  # sigma of the logarithm: nine of ten gets are within 1.2 and 3.3 ms
SLOW_FACTOR = 100
OFTEN, SELDOM = 0.05, 0.01
BUDGET, BURST = 0.05, 10
HBASE: dict[str, Any] = {"hedge_plan": "all_at_once", "hedge_delay": "fixed", "hedge_budget": 1000}
QUANTILES = (0.5, 0.9, 0.95, 0.98, 0.99, 0.995, 0.999)


@dataclass(frozen=True, slots=True)
class TailReads:
    """Latencies of one client's reads, sorted, and how many calls they took beyond one each."""

    seconds: Sequence[float]
    extra: float

    def quantile(self, q: float) -> float:
        return self.seconds[min(int(q * len(self.seconds)), len(self.seconds) - 1)]

    def curve_ms(self) -> list[float]:
        return [round(self.quantile(q) * 1e3, 3) for q in QUANTILES]


def run(quick: bool) -> Outcome:
    reads = 4000 if quick else 20_000
    often, seldom = _clients(reads, OFTEN), _clients(reads, SELDOM)
    limit = BUDGET + BURST / reads
    figures = (
        _extra("C7", often, OFTEN, limit),
        _tail("C7b", often, OFTEN, 0.99),
        _extra("C7c", seldom, SELDOM, limit),
        _tail("C7d", seldom, SELDOM, 0.999),
    )
    samples = {
        "quantiles": list(QUANTILES),
        "often_ms": {name: made.curve_ms() for name, made in often.items()},
        "seldom_ms": {name: made.curve_ms() for name, made in seldom.items()},
        "extra_calls": {"often": _extras(often), "seldom": _extras(seldom)},
    }
    return Outcome(figures, samples, (_chart(often, OFTEN), _chart(seldom, SELDOM)))


def _clients(reads: int, slow: float) -> dict[str, TailReads]:
    return {
        "ours": read(reads, slow, "TIMELINE"),
        "hbase": read(reads, slow, "TIMELINE", **HBASE),
        "strong": read(reads, slow, "STRONG"),
    }


def _extra(id: str, made: dict[str, TailReads], slow: float, limit: float) -> Figure:
    what = f"extra calls of TIMELINE reads, {slow:.0%} of the primary's gets slow"
    return Figure.of(id, what, made["ours"].extra, f"<= {limit:.4f}", hbase=made["hbase"].extra)


def _tail(id: str, made: dict[str, TailReads], slow: float, q: float) -> Figure:
    return Figure.of(
        id,
        f"{_name(q)} of TIMELINE reads beside HBase's way, {slow:.0%} of the primary's gets slow",
        made["ours"].quantile(q) / made["hbase"].quantile(q),
        "<= 1",
        ours_ms=made["ours"].quantile(q) * 1e3,
        hbase_ms=made["hbase"].quantile(q) * 1e3,
        strong_ms=made["strong"].quantile(q) * 1e3,
    )


def _name(q: float) -> str:
    return "p" + f"{q * 100:g}".replace(".", "")


def _extras(made: dict[str, TailReads]) -> dict[str, float]:
    return {name: round(one.extra, 5) for name, one in made.items()}


def _chart(made: dict[str, TailReads], slow: float) -> Lines:
    """Return a chart with equal distances between quantiles; a linear scale would hide the tail."""
    places = [float(index) for index in range(len(QUANTILES))]
    series = {f"{name} (+{one.extra:.1%} calls)": (places, one.curve_ms()) for name, one in made.items()}
    ticks = {place: _name(q) for place, q in zip(places, QUANTILES, strict=True)}
    title = f"latency of reads, {slow:.0%} of the primary's gets slow"
    return Lines(title, "quantile", "ms", series, ticks=ticks, is_log_y=True)


def read(reads: int, slow: float, consistency: str, **options: Any) -> TailReads:
    with SimRuntime(1) as runtime:
        backend = _SlowNowAndThen(runtime, slow)
        backend.add_table(TABLE, region_replication=3)
        table = client(backend, runtime, **options).table(TABLE)
        seconds: list[float] = []
        tasks = [runtime.start(_read, table, consistency, runtime, seconds, reads // TASKS) for _ in range(TASKS)]
        for task in tasks:
            task.result()
        return TailReads(sorted(seconds), backend.gets / len(seconds) - 1)


def _read(table: Table, consistency: str, runtime: Runtime, seconds: list[float], count: int) -> None:
    for _ in range(count):
        began = runtime.now()
        table.row(b"r", consistency=consistency)
        seconds.append(runtime.now() - began)


class _SlowNowAndThen(ScriptedBackend):
    """A backend whose gets take random times, some of those at the primary much longer."""

    def __init__(self, runtime: Runtime, slow: float) -> None:
        super().__init__(runtime)
        self._chance = random.Random(1)
        self._slow = slow
        self.gets = 0

    def get(self, place: RegionLocation | None, table: bytes, get: Get, deadline: float) -> Result:
        self.gets += 1
        seconds = GET_S * self._chance.lognormvariate(0.0, SPREAD)
        if place is not None and place.replica_id == 0 and self._chance.random() < self._slow:
            seconds *= SLOW_FACTOR
        self._pass(seconds, deadline)
        return Result(get.row, (), is_stale=place is not None and place.replica_id != 0)


SCENARIO = Scenario(
    "timeline-tail",
    ("C7", "C7b", "C7c", "C7d"),
    "hedged reads cut the tail for a bounded number of extra calls",
    run,
    run_on=run_on,
)
