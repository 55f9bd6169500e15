"""Reads with ``max_staleness`` under faults, by seed; and what the checker finds: a planted bug, old answers."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from metaclient.runtime import SimRuntime
from metaclient_fake.simulation.checkers import staleness
from metaclient_fake.simulation.history import History
from metaclient_fake.simulation.spec import drawn
from metaclient_fake.simulation.trial import run
from metaclient_fake.simulation.workloads.bounded import Bounded, with_bounded_reads
from metaclient_fake.simulation.world import World

SEEDS = 200


@pytest.mark.parametrize("seed", range(6))
def test_no_answer_is_older_than_max_staleness(seed: int) -> None:
    worlds: list[World] = []
    report = run(with_bounded_reads(drawn(seed)), keep=worlds)
    assert [str(found) for found in report.violations] == []
    assert any(one.max_staleness_s is not None for one in worlds[0].history)


def test_replicas_answer_some_of_the_reads_with_a_limit() -> None:
    """Otherwise the checker would have nothing to look at."""
    worlds: list[World] = []
    for seed in range(4):
        run(with_bounded_reads(drawn(seed)), keep=worlds)
    reads = [one for world in worlds for one in world.history if one.max_staleness_s is not None]
    assert sum(bool(one.stale) for one in reads) > 20


def test_lag_that_is_read_after_the_row_is_caught() -> None:
    """Within 200 seeds; the first one is the seed that caught it when it was planted."""
    for seed in (3, *range(SEEDS)):
        report = run(drawn(seed, defect="lag_is_read_after_the_row"))
        if {"lag", "staleness"} & {found.checker for found in report.violations}:
            return
    pytest.fail(f"{SEEDS} seeds did not notice a lag that is read after the row")


def test_every_run_has_a_writer_and_a_reader_with_a_limit() -> None:
    for seed in range(50):
        names = [client.workload for client in with_bounded_reads(drawn(seed)).clients]
        assert Bounded.kind in names
        assert "registers" in names
        assert len(names) == len(drawn(seed).clients)


@pytest.mark.parametrize(
    ("max_staleness_s", "lag_s", "violations"), [(5.0, 4.0, 0), (3.0, 2.0, 1), (5.0, 6.0, 1), (5.0, None, 1)]
)
def test_checker_reports_old_answers_and_lags_over_the_limit(
    max_staleness_s: float, lag_s: float | None, violations: int
) -> None:
    """A write is acknowledged at 1 s, and a read that begins at 5 s does not show it."""
    with SimRuntime() as runtime:
        history = History(runtime)
        for value in (b"old", b"new"):
            put = history.begin("writer", "put", "t", b"r")
            put.argument, put.timestamp, put.is_write = value, len(history), True
            history.ok(put)
            runtime.sleep(1.0)
        runtime.sleep(3.0)
        read = history.begin("reader", "bounded_get", "t", b"r")
        history.ok(read, b"old")
        read.stale, read.replica_id, read.lag_s, read.max_staleness_s = True, 1, lag_s, max_staleness_s
        world: Any = SimpleNamespace(
            history=history, clients=[SimpleNamespace(name="reader", was_misled=lambda operation: False)]
        )
        assert len(list(staleness.check(world))) == violations
