"""Seeds of receivers with a spool: nothing is lost, nothing is stored twice, batches can be read again."""

import pytest

from metaclient_fake.simulation.spools import SPOOL_DEFECTS, run_spools

SEEDS = range(6)
#: The seeds that are tried, in this order, until the bug is reported.
LIKELY = (2, 0, 1, 3)


@pytest.mark.parametrize("seed", SEEDS)
def test_killed_receivers_lose_nothing_and_store_nothing_twice(seed: int) -> None:
    report = run_spools(seed)
    assert report.violations == [], f"python -c 'from {run_spools.__module__} import *; run_spools({seed})'"
    assert report.written > 100
    assert report.delivered >= report.written


def test_seeds_have_faults_of_every_kind() -> None:
    reports = [run_spools(seed) for seed in (0, 1)]
    assert all(report.killed and report.faults for report in reports)


def test_seed_runs_the_same_way_twice() -> None:
    assert run_spools(3) == run_spools(3)


@pytest.mark.parametrize("defect", sorted(SPOOL_DEFECTS))
def test_planted_bug_is_reported(defect: str) -> None:
    caught_by = SPOOL_DEFECTS[defect].caught_by
    for seed in LIKELY:
        kinds = {violation.partition(":")[0] for violation in run_spools(seed, defect).violations}
        if kinds & set(caught_by):
            return
    pytest.fail(f"no seed of {LIKELY} reports {defect}")
