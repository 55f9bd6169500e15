"""Each planted bug is caught within 200 seeds, by a checker that is meant to catch it: the checkers can fire."""

import dataclasses

import pytest

from metaclient.errors import ConfigError
from metaclient_fake.simulation.checkers import AFTER_CLOSE, CHECKERS
from metaclient_fake.simulation.defects import DEFECTS, planted
from metaclient_fake.simulation.spec import drawn
from metaclient_fake.simulation.trial import run

SEEDS = 200
#: Seeds that caught them when they were planted: tried first, to save time, and nothing else hangs on them.
LIKELY = {
    "canary_counts_to_its_last_sight": 68,
    "hedge_ignores_budget": 3,
    "hedge_returns_first_error": 6,
    "increment_takes_no_lock": 3,
    "lag_counts_from_the_last_batch": 3,
    "lag_is_read_after_the_row": 111,
    "lag_leaves_out_what_is_on_its_way": 6,
    "lease_never_ends": 45,
    "limit_counts_in_milliseconds": 1,
    "log_is_archived_too_early": 4,
    "log_is_not_replayed": 2,
    "log_rolls_take_no_turns": 19,
    "lookup_believes_secondary": 45,
    "loser_keeps_its_scanner": 46,
    "pin_moves_back_too_early": 3,
    "replica_opens_before_flush": 15,
    "retry_ignores_budget": 2,
    "retry_repeats_increment": 13,
    "scan_repeats_a_row": 9,
    "scan_skips_first_row_of_region": 6,
    "sink_forgets_failed_batch": 28,
    "zombie_is_not_fenced": 14,
}


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(DEFECTS))
def test_defect_is_caught(name: str) -> None:
    meant = set(DEFECTS[name].caught_by)
    likely = LIKELY.get(name, 0)
    for seed in sorted(range(SEEDS), key=lambda seed: (seed != likely, seed)):
        report = run(drawn(seed, defect=name))
        found = {violation.checker for violation in report.violations}
        if found & meant:
            return
    pytest.fail(f"{SEEDS} seeds did not notice: {DEFECTS[name].story}")


RACES = sorted(name for name, defect in DEFECTS.items() if defect.race_in)


def test_two_races_are_planted() -> None:
    assert RACES == ["increment_takes_no_lock", "log_rolls_take_no_turns"]


@pytest.mark.parametrize("name", RACES)
def test_race_is_invisible_while_tasks_switch_at_locks_and_waits_only(name: str) -> None:
    """The seeds that catch a planted race do so because statements are preempted."""
    for seed in (LIKELY[name], 19):
        spec = drawn(seed, defect=name)
        assert spec.lines is not None
        assert spec.lines.group == DEFECTS[name].race_in
        found = {violation.checker for violation in run(dataclasses.replace(spec, lines=None)).violations}
        assert found & set(DEFECTS[name].caught_by) == set()


def test_there_are_at_least_twelve_defects_each_with_a_story() -> None:
    assert len(DEFECTS) >= 12
    assert [defect.name for defect in DEFECTS.values() if not defect.story.endswith(".")] == []


def test_every_defect_names_checkers_that_exist() -> None:
    known = {*CHECKERS, *AFTER_CLOSE, "convergence", "liveness", "ownership", "crash"}
    assert {name for defect in DEFECTS.values() for name in defect.caught_by} <= known


def test_a_defect_is_gone_after_its_run() -> None:
    for defect in DEFECTS.values():
        before = getattr(defect.owner, defect.method)
        with planted(defect.name):
            assert getattr(defect.owner, defect.method) is not before
        assert getattr(defect.owner, defect.method) is before


def test_unknown_defect_is_refused_with_the_known_ones() -> None:
    with pytest.raises(ConfigError, match="split_loses_queue"), planted("nonsense"):
        pass
