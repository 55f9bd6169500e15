"""TIMELINE reads beside servers that are slow for minutes, by seed; and the planted bug that the checker finds."""

from __future__ import annotations

import pytest

from metaclient_fake.simulation.slow_servers import Read, SlowTrial, check, learned_as_normal, run


@pytest.mark.parametrize("seed", range(6))
def test_reads_leave_a_server_that_is_slow_for_minutes_and_come_back(seed: int) -> None:
    assert [str(found) for found in check(run(seed))] == []


@pytest.mark.parametrize("seed", range(3))
def test_slow_primary_that_is_learned_as_normal_is_caught(seed: int) -> None:
    with learned_as_normal():
        found = list(check(run(seed)))
    assert any("waited for a server that was slow" in str(one) for one in found)


def test_answers_that_stay_stale_and_hedges_beyond_the_budget_are_caught() -> None:
    reads = [Read(float(second), 0.001, is_stale=True) for second in range(300)]
    found = [str(one) for one in check(SlowTrial(10.0, 200.0, 0.1, reads, [(40, 300)]))]
    assert len(found) == 2
    assert "fresh" in found[0]
    assert "40 hedges for 300 reads" in found[1]
