"""The same cluster on real threads: nothing is left behind. Deadlines are for a hung test, not for a slow machine."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

import metaclient_fake.cluster.tables as tables_module
from metaclient.backend import MetaScan
from metaclient.errors import ConnectionClosed, MetaClientError
from metaclient.model import Get
from metaclient.runtime import ThreadRuntime
from metaclient_fake import FakeCluster
from tests.unit.fake_cluster.conftest import World

#: Where a test waits for what must come: long enough for any machine, and finite so that a fault fails, not hangs.
PATIENCE_S = 60.0


class PatientWorld(World):
    """Nothing here is about deadlines."""

    def deadline(self, seconds: float = PATIENCE_S) -> float:
        return super().deadline(max(seconds, PATIENCE_S))


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> Iterator[World]:
    # People get half a second, and may ask again; here a slow machine may take its time.
    monkeypatch.setattr(tables_module, "_REPLICAS_OPEN_S", PATIENCE_S)
    with ThreadRuntime() as runtime:
        made = PatientWorld(runtime, config={"session_timeout_s": 0.2, "session_check_s": 0.02, "meta_refresh_s": 0.05})
        yield made
        made.cluster.close()


def test_writers_readers_and_moves_at_once_lose_nothing(world: World) -> None:
    world.create(b"t", [b"3", b"6"], copies=2)

    def work(worker: int) -> int:
        done = 0
        deadline = world.deadline(PATIENCE_S)
        for number in range(60):
            row = b"%d-%d-%d" % (number % 10, worker, number)
            while world.runtime.now() < deadline:
                try:
                    world.put(b"t", row)
                    done += 1
                    break
                except (MetaClientError, AssertionError):  # on its way to another server, or nowhere
                    world.runtime.sleep(0.01)
        return done

    tasks = [world.runtime.start(work, worker) for worker in range(4)]
    for number in range(12):
        regions = world.cluster.regions("t")
        world.cluster.move(regions[number % len(regions)])
    world.cluster.split(world.cluster.regions("t")[0], b"1")
    assert [task.result(world.deadline(2 * PATIENCE_S)) for task in tasks] == [60] * 4
    for worker in range(4):
        for number in range(60):
            assert world.value(b"t", b"%d-%d-%d" % (number % 10, worker, number)) == b"1"


def test_secondaries_are_readable_as_soon_as_a_table_is_there(world: World) -> None:
    """Real threads, no delay configured: whoever makes a table goes on when its replicas can be read."""
    for replica_id in range(3):
        world.meta(replica_id, MetaScan(b"", b"", False, 1))
    world.create(b"t", copies=2)
    world.get(b"t", b"r", replica_id=1)


def test_crash_is_recovered_on_real_time(world: World) -> None:
    world.create(b"t", copies=2)
    world.put(b"t", b"r", b"kept")
    world.cluster.kill(world.place(b"t").server.host)
    deadline = world.deadline(PATIENCE_S)
    while not world.cluster.master.dead or world.cluster.master.is_recovering:
        assert world.runtime.now() < deadline
        world.runtime.sleep(0.02)
    assert world.value(b"t", b"r") == b"kept"
    world.cluster.wait_until_replicated(PATIENCE_S)
    assert world.value(b"t", b"r", replica_id=1) == b"kept"


def test_close_frees_a_caller_that_waits_for_a_hung_server(world: World) -> None:
    world.create(b"t")
    place = world.place(b"t")
    world.cluster.pause(place.server.host, keeps_session=True)
    task = world.runtime.start(world.backend.get, place, b"t", Get(b"r"), world.deadline(3600))
    world.cluster.close()
    with pytest.raises(ConnectionClosed):
        task.result(world.deadline(PATIENCE_S))


def test_cluster_with_a_runtime_of_its_own_ends_it() -> None:
    cluster = FakeCluster(servers=2, meta_replicas=1)
    runtime: Any = cluster.runtime
    cluster.close()
    assert runtime.closed
