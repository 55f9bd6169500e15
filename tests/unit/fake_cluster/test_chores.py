"""The cluster's chores: each at its period; one that is needed now and then costs nothing in between."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from metaclient.runtime import SimRuntime
from metaclient_fake.chores import Chore, Chores


class Log:
    """When each chore ran."""

    def __init__(self, runtime: SimRuntime) -> None:
        self.runtime = runtime
        self.runs: list[tuple[str, float]] = []
        self.is_needed = False

    def chore(self, name: str, period_s: float) -> Chore:
        return Chore(name, period_s, lambda: self.note(name))

    def rare(self, name: str, period_s: float) -> Chore:
        return Chore(name, period_s, lambda: self.note(name), lambda: self.is_needed)

    def note(self, name: str) -> None:
        self.runs.append((name, round(self.runtime.now(), 3)))


def test_chores_run_at_their_periods_until_they_are_stopped(runtime: SimRuntime) -> None:
    log = Log(runtime)
    chores = Chores(runtime, [log.chore("a", 2.0), log.chore("b", 3.0), log.chore("off", 0.0)])
    chores.start()
    runtime.run_for(6.5)
    chores.stop()
    runtime.run_for(10.0)
    assert sorted(log.runs) == [("a", 2.0), ("a", 4.0), ("a", 6.0), ("b", 3.0), ("b", 6.0)]


def test_chore_that_nobody_needs_does_not_even_wake_the_loop(runtime: SimRuntime) -> None:
    log = Log(runtime)
    chores = Chores(runtime, [log.chore("a", 100.0), log.rare("rare", 0.05)])
    chores.start()
    runtime.run_for(0.0)
    before = runtime.stats()["switches"]
    runtime.run_for(90.0)
    assert (log.runs, runtime.stats()["switches"]) == ([], before)


def test_chore_runs_one_period_after_it_is_needed_and_while_it_is(runtime: SimRuntime) -> None:
    log = Log(runtime)
    chores = Chores(runtime, [log.chore("a", 100.0), log.rare("rare", 0.5)])
    chores.start()
    runtime.run_for(10.0)
    log.is_needed = True
    chores.wake()
    runtime.run_for(1.2)
    log.is_needed = False
    runtime.run_for(20.0)
    assert log.runs == [("rare", 10.5), ("rare", 11.0)]
    log.is_needed = True
    chores.wake()
    runtime.run_for(0.6)
    assert log.runs[2:] == [("rare", round(31.2 + 0.5, 3))]


def test_secondary_that_waits_is_looked_at_and_then_nobody_looks(make: Any, runtime: SimRuntime) -> None:
    world = make()
    world.create(b"t", copies=2)
    world.cluster.wait_until_replicated(60.0)
    place = world.place(b"t", replica_id=1)
    secondaries = world.cluster.server_named(place.server).secondaries
    looks: list[float] = []
    look = secondaries.look
    secondaries.look = lambda: (looks.append(runtime.now()), look())  # watched
    runtime.run_for(5.0)
    assert looks == [], "nothing waits"
    began = runtime.now()
    secondaries.disable_reads(place.region_name, 1.0)
    runtime.run_for(5.0)
    assert not secondaries.are_waiting
    assert looks, "somebody has looked"
    assert began + 1.0 <= looks[-1] < began + 1.2, "until its time had come, and not for longer"


@pytest.mark.parametrize("is_needed", [False, True])
def test_old_log_is_gone_after_the_log_cleaner_s_time_unless_a_queue_needs_it(
    make: Callable[..., Any], is_needed: bool
) -> None:
    world = make(config={"hbase.master.logcleaner.ttl": "5000"})
    world.create(b"t")
    world.put(b"t", b"r")
    server = world.cluster.servers_by_host[world.place(b"t").server.host]
    file = server.wal.files[-1]
    assert file.name.startswith(str(server.name).replace(",", "%2C") + ".")
    filesystem = world.cluster.filesystem
    if is_needed:
        filesystem.needed_wals = lambda: {file.name}
    for region in list(server.regions.values()):
        region.flush()
    server.wal.roll()
    assert file in filesystem.old_wals
    world.runtime.sleep(4.0)
    assert file in filesystem.old_wals
    world.runtime.sleep(4.0)
    assert (file in filesystem.old_wals) is is_needed
    assert (filesystem.find_wal_file(file.name) is file) is is_needed
