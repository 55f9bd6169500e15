"""Seeds of consumers of changes: no edit is lost, serial ones keep the order, and planted bugs are reported."""

import pytest

from metaclient_fake.simulation.consumers import CONSUMER_DEFECTS, late_changes, run_consumers

SEEDS = range(8)
#: The seeds that are tried, in this order, until the bug is reported.
LIKELY = {
    "call_is_answered_when_it_arrives": (0, 1, 2),
    "everything_below_the_newest_is_a_repeat": (6, 5, 0),
    "serial_order_is_not_checked": (1, 3, 4),
}


@pytest.mark.parametrize("seed", SEEDS)
def test_no_edit_is_lost_when_consumers_die_hang_and_commit_late(seed: int) -> None:
    report = run_consumers(seed)
    assert report.violations == [], f"python -c 'from {run_consumers.__module__} import *; run_consumers({seed})'"
    assert report.written > 100
    assert report.delivered >= report.written


def test_seeds_have_faults_of_every_kind() -> None:
    reports = [run_consumers(seed) for seed in (0, 1)]
    assert {report.is_serial for report in reports} == {False, True}
    assert all(report.killed and report.hung and report.faults for report in reports)


def test_seed_runs_the_same_way_twice() -> None:
    assert run_consumers(3) == run_consumers(3)


@pytest.mark.parametrize("defect", sorted(CONSUMER_DEFECTS))
def test_planted_bug_is_reported(defect: str) -> None:
    caught_by = CONSUMER_DEFECTS[defect].caught_by
    for seed in LIKELY[defect]:
        kinds = {violation.partition(":")[0] for violation in run_consumers(seed, defect).violations}
        if kinds & set(caught_by):
            return
    pytest.fail(f"no seed of {LIKELY[defect]} reports {defect}")


def test_checker_of_the_order_knows_a_repeat_from_a_late_change() -> None:
    assert late_changes([(b"r", 1), (b"r", 2), (b"r", 1), (b"s", 1)]) == []
    assert late_changes([(b"r", 2), (b"r", 1)]) == ["order: change 1 of row b'r' came after 2"]
