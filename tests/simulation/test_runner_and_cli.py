"""``metaclient sim``: many seeds on all cores, one seed again, and what people and machines are told."""

import gc
import json
import weakref
from pathlib import Path

import pytest

from metaclient.cli import main
from metaclient_fake.simulation.cli import sim
from metaclient_fake.simulation.defects import DEFECTS
from metaclient_fake.simulation.runner import _garbage_at_the_end, run_seeds
from tests.command_runner import command_runner

SHORT = 6.0
DEFECT = "balancing_reads_the_primary"  # noticed in the calm of every seed with more than one copy of hbase:meta


def invoke(*arguments: str) -> tuple[int, str, str]:
    result = command_runner().invoke(sim, list(arguments))
    return result.exit_code, result.stdout, result.stderr


def test_processes_give_the_same_digests_as_one() -> None:
    digests: dict[int, str] = {}
    for jobs in (1, 2):
        found: dict[int, str] = {}
        run_seeds(
            range(4), jobs=jobs, duration_s=SHORT, on_result=lambda one, to=found: to.update({one.seed: one.digest})
        )
        digests = digests or found
        assert found == digests
    assert len(set(digests.values())) == 4


class Node:
    """Garbage as soon as nobody knows it: it holds itself, so that only the collector ends it."""

    def __init__(self) -> None:
        self.me = self


@pytest.mark.parametrize("was_enabled", [True, False])
def test_garbage_of_a_seed_is_collected_at_its_end_and_all_is_as_before(was_enabled: bool) -> None:
    before = gc.isenabled()
    gc.unfreeze()  # a test of Spark's workers in this process may have left frozen objects
    gc.disable()
    try:
        old = weakref.ref(Node())
        if was_enabled:
            gc.enable()
        with _garbage_at_the_end():
            assert not gc.isenabled()
            new = weakref.ref(Node())
            assert new() is not None
        assert (new() is None, old() is None) == (True, False), "what was there before the seed is not looked at"
        assert (gc.isenabled(), gc.get_freeze_count()) == (was_enabled, 0)
    finally:
        (gc.enable if before else gc.disable)()


def test_run_stops_at_the_first_failure_when_asked_to() -> None:
    done = run_seeds(range(50), duration_s=SHORT, defect=DEFECT, until_failure=True)
    assert len(done.failures) == 1
    assert done.seeds < 50


def test_run_tells_machines_what_was_tried_and_what_never() -> None:
    code, output, _ = invoke("run", "--seeds", "3", "--jobs", "1", "--duration", str(SHORT), "--json")
    document = json.loads(output)
    assert code == 0
    assert (document["seeds"], document["failures"]) == (3, [])
    assert document["operations"] > 0
    coverage = document["coverage"]
    never = set(coverage["faults_never_tried"])
    assert {kind for kind, counts in coverage["faults"].items() if not counts["struck"]} == never
    assert any(one["seen"] for one in coverage["transitions"])
    assert coverage["transitions_never_seen"]


def test_failing_seed_prints_one_line_that_replays_it_a_schedule_and_a_timeline() -> None:
    code, output, _ = invoke("run", "--seeds", "3", "--jobs", "1", "--duration", str(SHORT), "--defect", DEFECT)
    assert code == 1
    lines = output.splitlines()
    replay = next(line.strip() for line in lines if line.strip().startswith("metaclient sim replay"))
    assert any(line.startswith("schedule:") for line in lines)
    assert any(line.startswith("timeline:") for line in lines)
    code, output, _ = invoke(*replay.split()[2:])
    assert code == 1
    assert "meta_load" in output


def test_replay_draws_and_tells(tmp_path: Path) -> None:
    file = tmp_path / "seed.svg"
    code, output, _ = invoke("replay", "1", "--duration", str(SHORT), "--picture", str(file), "--json")
    document = json.loads(output)
    assert code == 0
    assert document["good"]
    assert document["spec"]["seed"] == 1
    assert file.read_text().startswith("<svg")


def test_defects_are_listed() -> None:
    code, output, _ = invoke("defects", "--json")
    assert code == 0
    assert {one["name"] for one in json.loads(output)["defects"]} == set(DEFECTS)


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (("replay", "x"), "not a valid integer"),
        (("replay", "1", "--defect", "nonsense"), "there is no defect"),
        (("run", "--seeds", "0"), "not in the range"),
        (("run", "--duration", "0"), "not in the range"),
    ],
)
def test_wrong_use_is_told(arguments: tuple[str, ...], told: str) -> None:
    code, _, error = invoke(*arguments)
    assert code == 2
    assert told in error


def test_the_command_is_found_by_its_entry_point() -> None:
    result = command_runner().invoke(main, ["sim", "--help"])
    assert result.exit_code == 0
    assert "replay" in result.stdout
