"""Two hundred seeds keep every promise; a failure prints the line that repeats it.

``metaclient sim run --seeds 10000`` is the same for a night.
"""

import pytest

from metaclient_fake.simulation.runner import Summary, cores, run_seeds
from metaclient_fake.simulation.schedule import KINDS
from metaclient_fake.simulation.spec import LIMITED, MIX, drawn

SEEDS = 200
CHUNK = 25


@pytest.mark.slow
@pytest.mark.parametrize("first", range(0, SEEDS, CHUNK))
def test_seeds_keep_every_promise(first: int) -> None:
    done = run_seeds(range(first, first + CHUNK), jobs=cores())
    assert done.seeds == CHUNK
    assert not done.failures, told(done)


def told(done: Summary) -> str:
    return "\n".join(f"{failure.replay_line} --shrink\n    {failure.violations[0]}" for failure in done.failures)


def test_two_hundred_seeds_schedule_every_kind_of_fault() -> None:
    specs = [drawn(seed) for seed in range(SEEDS)]
    scheduled = {fault.kind for spec in specs for fault in spec.faults}
    assert scheduled == set(KINDS)


def test_two_hundred_seeds_switch_each_kind_and_workload_on_and_off() -> None:
    """Swarm: "each seed switches whole kinds of faults and settings on and off"."""
    specs = [drawn(seed) for seed in range(SEEDS)]
    for kind in KINDS:
        assert {kind in spec.kinds for spec in specs} == {True, False}, kind
    for workload in (*MIX, *LIMITED):
        assert {workload in [client.workload for client in spec.clients] for spec in specs} == {True, False}, workload


def test_two_hundred_seeds_have_clients_in_every_mode_and_read_policy() -> None:
    options = [client.options for seed in range(SEEDS) for client in drawn(seed).clients]
    assert {option.get("meta_mode") for option in options} == {"None", "HedgedRead", "LoadBalance", None}
    assert {option["meta_selector"] for option in options} == {"round_robin", "simple"}
    assert {option["hedge_plan"] for option in options} == {"staged", "all_at_once"}
    assert {option["hedge_delay"] for option in options} == {"fixed", "adaptive"}


def test_a_seed_has_five_servers_and_twenty_clients() -> None:
    spec = drawn(0)
    assert (spec.servers, len(spec.clients)) == (5, 20)
