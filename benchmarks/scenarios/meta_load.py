"""Who serves the lookups, in each mode, by the servers' own counts: the primary should be left alone."""

from __future__ import annotations

import time

from benchmarks.figure import Bars, Figure, Outcome
from benchmarks.lookups import CALLERS, lookups
from benchmarks.places import FAKE, ROWS, TABLE, Place, place
from benchmarks.scenario import Scenario

MODES = ("None", "HedgedRead", "LoadBalance")
SECONDS = 8


def run(quick: bool, backend: str = FAKE) -> Outcome:
    seconds = 2 if quick else SECONDS
    with place(backend) as where:
        if where.hbase is not None:
            where.hbase.spread_meta()
        made = {mode: _load(where, mode, seconds) for mode in MODES}
    shares = {mode: served.get(0, 0) / max(1, sum(served.values())) for mode, (_, served) in made.items()}
    rates = {mode: rate for mode, (rate, _) in made.items()}
    figures = (
        Figure.of(
            "M6",
            "share of the reads of hbase:meta that the primary served, LoadBalance",
            shares["LoadBalance"],
            "<= 0.01",
            mode_none=shares["None"],
            hedged_read=shares["HedgedRead"],
        ),
        Figure.of(
            "M7",
            "lookups per second in LoadBalance beside mode None",
            rates["LoadBalance"] / rates["None"],
            ">= 0.5",
            load_balance_per_second=rates["LoadBalance"],
            none_per_second=rates["None"],
            hedged_read_per_second=rates["HedgedRead"],
        ),
    )
    samples = {
        "reads_by_replica": {
            mode: {str(one): count for one, count in served.items()} for mode, (_, served) in made.items()
        }
    }
    chart = Bars(f"lookups per second, {CALLERS} callers ({where.name})", "lookups", rates)
    return Outcome(figures, samples, (chart,))


def _load(where: Place, mode: str, seconds: int) -> tuple[float, dict[int, int]]:
    """Lookups per second, and reads by replica: in the servers' words, or in ours where nobody can be asked."""
    before = where.meta_reads()
    with where.connect(meta_mode=mode) as connection:
        connection.locate(TABLE, ROWS[0], reload=True)
        with lookups(connection) as made:
            time.sleep(seconds)
        ours = connection.stats()["meta"]["reads_by_replica"]
    rate = len(made.ended) / (made.ended[-1] - made.begun)
    after = where.meta_reads()
    if before is None or after is None:
        return rate, {int(replica): count for replica, count in ours.items()}
    return rate, {replica: count - before.get(replica, 0) for replica, count in after.items()}


SCENARIO = Scenario(
    "meta-load",
    ("M6", "M7"),
    "lookups spread over the copies of hbase:meta, by the servers' own counts",
    run,
    backend=FAKE,
    run_on=run,
)
