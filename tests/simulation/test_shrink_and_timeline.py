"""A failure is made small, and drawn: as text and as a picture."""

from xml.etree import ElementTree

import pytest

from metaclient_fake.simulation.shrink import minimised, shrunk
from metaclient_fake.simulation.spec import drawn
from metaclient_fake.simulation.timeline import picture, text
from metaclient_fake.simulation.trial import Report, run
from metaclient_fake.simulation.world import World

DEFECT = "check_and_put_is_two_steps"  # it needs clients, and no fault at all


@pytest.fixture(scope="module")
def failure() -> Report:
    for seed in range(50):
        spec = drawn(seed, defect=DEFECT)
        if spec.lines is not None:  # with a client less, other statements are preempted: such a failure rarely shrinks
            continue
        report = run(spec)
        if not report.is_good:
            return report
    pytest.fail("nothing failed")


@pytest.mark.parametrize("needed", [set(), {0}, {19}, {3, 4}, {0, 10, 19}, set(range(20))])
def test_minimised_keeps_exactly_what_is_needed(needed: set[int]) -> None:
    assert set(minimised(range(20), lambda kept: needed <= set(kept))) == needed


def test_shrunk_run_breaks_the_same_promise_with_less(failure: Report) -> None:
    small = shrunk(failure, runs_max=40)
    assert {one.checker for one in small.violations} & {one.checker for one in failure.violations}
    assert len(small.spec.faults) <= len(failure.spec.faults)
    assert len(small.spec.clients) < len(failure.spec.clients)


def test_shrinking_stops_at_its_bound(failure: Report) -> None:
    runs: list[int] = []
    shrunk(failure, runs_max=3, on_run=lambda number, spec: runs.append(number))
    assert runs == [1, 2, 3]


def test_timeline_shows_the_violation_and_its_operations(failure: Report) -> None:
    worlds: list[World] = []
    report = run(failure.spec, keep=worlds)
    told = text(worlds[0], report.violations)
    assert "VIOLATION" in told
    first = next(violation for violation in report.violations if violation.operations)
    assert worlds[0].history.operations[first.operations[0]].describe() in told
    starts = [float(line.split()[0]) for line in told.splitlines()]
    assert starts == sorted(starts)


def test_picture_is_a_document_with_a_lane_for_each_client(failure: Report) -> None:
    worlds: list[World] = []
    report = run(failure.spec, keep=worlds)
    drawn_picture = ElementTree.fromstring(picture(worlds[0], report.violations))
    texts = [element.text for element in drawn_picture.iter() if element.tag.endswith("text")]
    assert {client.name for client in failure.spec.clients} <= set(texts)


def test_violation_is_found_again_by_the_same_seed(failure: Report) -> None:
    again = run(failure.spec)
    assert again.digest == failure.digest
    assert again.violations == failure.violations
