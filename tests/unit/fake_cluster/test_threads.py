"""The same cluster on real threads: nothing here waits for long, and nothing is left behind."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from adapters.fake import FakeCluster
from metaclient.backend import MetaScan
from metaclient.errors import ConnectionClosed, MetaClientError
from metaclient.model import Get
from metaclient.runtime import ThreadRuntime
from tests.unit.fake_cluster.conftest import World


@pytest.fixture
def world() -> Iterator[World]:
    with ThreadRuntime() as runtime:
        made = World(runtime, config={"session_timeout_s": 0.2, "session_check_s": 0.02, "meta_refresh_s": 0.05})
        yield made
        made.cluster.close()


def test_writers_readers_and_moves_at_once_lose_nothing(world: World) -> None:
    world.create(b"t", [b"3", b"6"], copies=2)

    def work(worker: int) -> int:
        done = 0
        for number in range(60):
            row = b"%d-%d-%d" % (number % 10, worker, number)
            for _ in range(50):
                try:
                    world.put(b"t", row)
                    done += 1
                    break
                except (MetaClientError, AssertionError):
                    world.runtime.sleep(0.01)
        return done

    tasks = [world.runtime.start(work, worker) for worker in range(4)]
    for number in range(12):
        regions = world.cluster.regions("t")
        world.cluster.move(regions[number % len(regions)])
    world.cluster.split(world.cluster.regions("t")[0], b"1")
    assert [task.result(world.deadline(60)) for task in tasks] == [60] * 4
    for worker in range(4):
        for number in range(60):
            assert world.value(b"t", b"%d-%d-%d" % (number % 10, worker, number)) == b"1"


def test_secondaries_are_readable_as_soon_as_a_table_is_there(world: World) -> None:
    """Real threads, no delay configured: nobody waits for a chore."""
    for replica_id in range(3):
        world.meta(replica_id, MetaScan(b"", b"", False, 1))
    world.create(b"t", copies=2)
    world.get(b"t", b"r", replica_id=1)


def test_crash_is_recovered_on_real_time(world: World) -> None:
    world.create(b"t", copies=2)
    world.put(b"t", b"r", b"kept")
    world.cluster.kill(world.place(b"t").server.host)
    deadline = world.deadline(20)
    while not world.cluster.master.dead or world.cluster.master.is_recovering:
        assert world.runtime.now() < deadline
        world.runtime.sleep(0.02)
    assert world.value(b"t", b"r") == b"kept"
    world.cluster.wait_until_replicated(10)
    assert world.value(b"t", b"r", replica_id=1) == b"kept"


def test_close_frees_a_caller_that_waits_for_a_hung_server(world: World) -> None:
    world.create(b"t")
    place = world.place(b"t")
    world.cluster.pause(place.server.host, keeps_session=True)
    task = world.runtime.start(world.backend.get, place, b"t", Get(b"r"), world.deadline(3600))
    world.cluster.close()
    with pytest.raises(ConnectionClosed):
        task.result(world.deadline(10))


def test_cluster_with_a_runtime_of_its_own_ends_it() -> None:
    cluster = FakeCluster(servers=2, meta_replicas=1)
    runtime: Any = cluster.runtime
    cluster.close()
    assert runtime.closed


def test_start_up_and_creation_are_linear() -> None:
    """Cost per region at 4,000 regions at most 3 times that at 500 (expected: the same; one run of each)."""

    def cost(regions: int) -> float:
        with ThreadRuntime() as runtime, FakeCluster(servers=20, runtime=runtime) as cluster:
            began = runtime.now()
            from metaclient.model import FamilyDescriptor, TableDescriptor

            splits = [b"%06d" % number for number in range(1, regions)]
            cluster.create_table(TableDescriptor(b"t", (FamilyDescriptor(b"f"),)), splits)
            return (runtime.now() - began) / regions

    cost(100)
    assert cost(4000) <= 3 * cost(500)
