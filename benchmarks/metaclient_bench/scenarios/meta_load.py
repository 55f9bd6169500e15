"""The share of each meta replica in each mode, by the servers' counters: in LoadBalance the primary serves no lookup.

On a real HBase this client runs through a gateway and by HBase's RPC, one after the other, and then HBase's Java client
in LoadBalance, after a warm-up for its just-in-time compiler.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

from metaclient import Connection
from metaclient_bench.figure import Bars, Figure, Outcome
from metaclient_bench.lookups import CALLERS, JAVA_SLOT_S, java_lookups, lookups
from metaclient_bench.places import FAKE, NATIVE_CLIENT, ROWS, TABLE, Place, place
from metaclient_bench.scenario import Scenario
from metaclient_local_hbase import LocalHBase

MODES = ("None", "HedgedRead", "LoadBalance")
SECONDS = 8
#: The warm-up of the JVMs (client and servers): their rates rise for this long.
WARM_UP_S = 10
JAVA = "Java client"


@dataclass(frozen=True, slots=True)
class Load:
    """One client in one mode: lookups per second, and the replicas that served them."""

    rate: float
    served: dict[int, int]

    @property
    def primary_share(self) -> float:
        return self.served.get(0, 0) / max(1, sum(self.served.values()))


def run(quick: bool, backend: str = FAKE) -> Outcome:
    seconds = 2 if quick else SECONDS
    with place(backend) as where:
        if where.hbase is not None:
            where.hbase.spread_meta()
            _warm_up(where)
        made = {
            name: {mode: _load(where, connect, mode, seconds) for mode in MODES}
            for name, connect in where.clients.items()
        }
        java = _java_rate(where.hbase, seconds) if where.hbase is not None else None
    balanced = {name: by_mode["LoadBalance"] for name, by_mode in made.items()}
    first = next(iter(made.values()))
    figures = [
        Figure.of(
            "M6",
            "share of the reads of hbase:meta that the primary served, LoadBalance, the client with the most",
            max(one.primary_share for one in balanced.values()),
            "<= 0.01",
            mode_none=first["None"].primary_share,
            hedged_read=first["HedgedRead"].primary_share,
        ),
        Figure.of(
            "M7",
            "lookups per second in LoadBalance beside mode None",
            first["LoadBalance"].rate / first["None"].rate,
            ">= 0.5",
            **{f"{mode.lower()}_per_second": one.rate for mode, one in first.items()},
        ),
    ]
    rates = {f"{name}, {mode}": one.rate for name, by_mode in made.items() for mode, one in by_mode.items()}
    if java is not None:
        rates[f"{JAVA}, LoadBalance"] = java
        figures.append(_beside_java(balanced[NATIVE_CLIENT].rate, java))
    samples = {
        "reads_by_replica": {
            f"{name}, {mode}": {str(one): count for one, count in load.served.items()}
            for name, by_mode in made.items()
            for mode, load in by_mode.items()
        },
        "lookups_per_second": rates,
    }
    return Outcome(
        tuple(figures), samples, (Bars(f"lookups per second, {CALLERS} callers ({where.name})", "lookups", rates),)
    )


def _beside_java(native: float, java: float) -> Figure:
    return Figure.of(
        "M8",
        "lookups per second by HBase's own RPC beside the Java client's, both LoadBalance",
        native / java,
        ">= 0.25",
        native_per_second=native,
        java_per_second=java,
    )


def _warm_up(where: Place) -> None:
    """Warm up with every client: the first one would otherwise meet servers whose code is not compiled yet."""
    for connect in where.clients.values():
        with connect(meta_mode="LoadBalance") as connection, lookups(connection):
            time.sleep(WARM_UP_S)


def _load(where: Place, connect: Callable[..., Connection], mode: str, seconds: int) -> Load:
    """Return the load of one client in one mode; reads are the servers' counters, or else the client's."""
    before = where.meta_reads()
    with connect(meta_mode=mode) as connection:
        connection.locate(TABLE, ROWS[0], reload=True)
        with lookups(connection) as made:
            time.sleep(seconds)
        ours = connection.stats()["meta"]["reads_by_replica"]
    rate = len(made.ended) / (made.ended[-1] - made.begun)
    after = where.meta_reads()
    if before is None or after is None:
        return Load(rate, {int(replica): count for replica, count in ours.items()})
    return Load(rate, {replica: count - before.get(replica, 0) for replica, count in after.items()})


def _java_rate(hbase: LocalHBase, seconds: int) -> float:
    with java_lookups(hbase) as made:
        time.sleep(WARM_UP_S)
        begun = len(made.per_second())
        time.sleep(seconds + JAVA_SLOT_S)
        slots = made.per_second()[begun : begun + seconds]
    return sum(slots) / (len(slots) * JAVA_SLOT_S)


SCENARIO = Scenario(
    "meta-load",
    ("M6", "M7", "M8"),
    "lookups spread over the copies of hbase:meta, by the servers' own counts",
    run,
    backend=FAKE,
    run_on=run,
)
