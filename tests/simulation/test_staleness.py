"""Reads with ``max_staleness`` under faults, by seed; and what the checker finds: a planted bug, old answers."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from metaclient.runtime import SimRuntime
from metaclient_fake.simulation.checkers import staleness
from metaclient_fake.simulation.history import History, Operation
from metaclient_fake.simulation.spec import drawn
from metaclient_fake.simulation.trial import run
from metaclient_fake.simulation.workloads.bounded import Bounded, with_bounded_reads
from metaclient_fake.simulation.workloads.canary import Canary
from metaclient_fake.simulation.world import World


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


@pytest.mark.parametrize("seed", range(6))
def test_no_answer_is_older_than_the_lag_that_a_canary_has_measured(seed: int) -> None:
    worlds: list[World] = []
    report = run(with_bounded_reads(drawn(seed), Canary.kind), keep=worlds)
    assert [str(found) for found in report.violations] == []
    assert any(one.max_staleness_s is not None for one in worlds[0].history)


def test_canaries_let_replicas_answer_and_prove_most_of_the_answers() -> None:
    """Otherwise the checkers would have nothing to look at."""
    worlds: list[World] = []
    for seed in (0, 1, 3, 6):
        run(with_bounded_reads(drawn(seed, duration_s=20.0), Canary.kind), keep=worlds)
    stale = [(world, one) for world in worlds for one in world.history if one.max_staleness_s and one.stale]
    unproven = {id(world): world.unproven() for world in worlds}
    assert len(stale) > 20
    assert sum(one.number not in unproven[id(world)] for world, one in stale) > 0.8 * len(stale)


@pytest.mark.parametrize(("instant", "is_unproven"), [(3.9, False), (4.1, True), (5.5, True), (6.1, False)])
def test_answer_of_a_dead_primary_to_the_canary_proves_no_lag(instant: float, is_unproven: bool) -> None:
    """A read from 5 s to 6 s, whose lag is 1 s, is left out if the canary was misled between 4 s and 6 s."""
    client: Any = SimpleNamespace(backend=SimpleNamespace(misled_at=[instant], gap_operations={7}))
    read = Operation(3, "canary-1", "bounded_get", "t", b"r", 5.0)
    read.returned_at, read.lag_s, read.max_staleness_s = 6.0, 1.0, 10.0
    assert Canary.has_unproven_lag(client, read) is is_unproven
    read.group = 7
    assert Canary.has_unproven_lag(client, read)


def test_limit_that_is_taken_for_milliseconds_is_caught_by_no_other_checker() -> None:
    """The answers have their true age, and each is a past state of its row: only the limit of the read is broken."""
    report = run(drawn(1, defect="limit_counts_in_milliseconds"))
    assert {found.checker for found in report.violations} == {"staleness"}


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
        world: Any = SimpleNamespace(history=history, misled=set, unproven=set)
        assert len(list(staleness.check(world))) == violations
