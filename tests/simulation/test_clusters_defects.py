"""Each bug that is planted into the replication between clusters is caught within 200 seeds, by the checker meant."""

import pytest

from metaclient.errors import ConfigError
from metaclient_fake.simulation.clusters import drawn, run
from metaclient_fake.simulation.clusters.checkers import CLUSTERS_CHECKERS
from metaclient_fake.simulation.clusters.defects import CLUSTERS_DEFECTS
from metaclient_fake.simulation.defects import planted

SEEDS = 200
#: Seeds that caught them when they were planted: tried first, to save time, and nothing else hangs on them.
LIKELY = {
    "claim_loses_the_first_log": 62,
    "failed_call_repeats_all_calls_of_the_batch": 7,
    "log_cleaner_ignores_queues": 2,
    "own_cluster_id_is_not_added": 2,
    "position_is_stored_before_the_answer": 58,
    "serial_peer_does_not_wait_for_parents": 14,
    "serial_peer_does_not_wait_for_the_old_server": 11,
    "stored_position_is_ignored": 2,
}


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(CLUSTERS_DEFECTS))
def test_defect_of_clusters_is_caught(name: str) -> None:
    meant = set(CLUSTERS_DEFECTS[name].caught_by)
    likely = LIKELY.get(name, 0)
    for seed in sorted(range(SEEDS), key=lambda seed: (seed != likely, seed)):
        report = run(drawn(seed, defect=name))
        if meant & {violation.checker for violation in report.violations}:
            return
    pytest.fail(f"{SEEDS} seeds did not notice: {CLUSTERS_DEFECTS[name].story}")


def test_every_checker_of_clusters_has_a_defect_that_it_catches() -> None:
    caught_by = {checker for defect in CLUSTERS_DEFECTS.values() for checker in defect.caught_by}
    assert caught_by == {*CLUSTERS_CHECKERS, "equality", "convergence"}
    assert [defect.name for defect in CLUSTERS_DEFECTS.values() if not defect.story.endswith(".")] == []


def test_defect_of_clusters_is_gone_after_its_run() -> None:
    for defect in CLUSTERS_DEFECTS.values():
        before = getattr(defect.owner, defect.method)
        with planted(defect.name, CLUSTERS_DEFECTS):
            assert getattr(defect.owner, defect.method) is not before
        assert getattr(defect.owner, defect.method) is before


def test_unknown_defect_of_clusters_is_refused_with_the_known_ones() -> None:
    with pytest.raises(ConfigError, match="claim_loses_the_first_log"), planted("nonsense", CLUSTERS_DEFECTS):
        pass
