"""Writers against a cluster in which everything happens at once; the seed in a test's name is its reproduction."""

from __future__ import annotations

from contextlib import suppress
from functools import partial
from typing import Any

import pytest

from metaclient.errors import MetaClientError
from metaclient.runtime import SimRuntime
from tests.unit.fake_cluster.conftest import World

STEPS = 40
WRITERS = 3


class Chaos:
    """Random faults and changes on one world, and the checks at its end."""

    def __init__(self, seed: int) -> None:
        self.runtime = SimRuntime(seed=seed)
        self.world = World(self.runtime, servers=6, config={"session_timeout_s": 2.0})
        self.cluster = self.world.cluster
        self.rng = self.runtime.rng
        self.acknowledged: dict[bytes, bytes] = {}
        self.uncertain: dict[bytes, set[bytes]] = {}
        self.is_over = False

    def run(self) -> None:
        self.world.create(b"t", [b"3", b"6"], copies=2)
        writers = [self.runtime.start(self._write, number) for number in range(WRITERS)]
        for _ in range(STEPS):
            self.runtime.sleep(self.rng.random())
            self._tried(self.rng.choice(self._changes()))
        self._calm_down()
        for writer in writers:
            writer.result(self.runtime.now() + 60)
        self.check()
        self.cluster.close()
        self.runtime.close()

    def _write(self, writer: int) -> None:
        number = 0
        while not self.is_over:
            number += 1
            row, value = b"%d-%d" % (self.rng.randrange(10), writer), b"%d" % number
            try:
                self.world.put(b"t", row, value)
                self.acknowledged[row] = value
                self.uncertain[row] = set()
            except MetaClientError as error:
                if error.may_have_applied:
                    self.uncertain.setdefault(row, set()).add(value)
                self.runtime.sleep(0.05)
            except AssertionError:
                self.runtime.sleep(0.05)  # meta knows no place for it right now
            self.runtime.sleep(0.01)

    def _changes(self) -> list[Any]:
        cluster, rng = self.cluster, self.rng
        by_state: dict[str, list[str]] = {"running": [], "paused": [], "dead": []}
        for host, server in cluster.servers_by_host.items():
            by_state.setdefault(server.state.value, []).append(host)
        regions = cluster.regions("t")
        border = b"%d-%d" % (rng.randrange(10), rng.randrange(WRITERS))
        changes = [
            cluster.heal,
            lambda: cluster.move(rng.choice(regions), replica_id=rng.randrange(2)),
            lambda: cluster.move("hbase:meta", replica_id=rng.randrange(3)),
            lambda: cluster.split(cluster.master.states.containing(b"t", border).primary.encoded, border),
            lambda: cluster.flush("t"),
            lambda: cluster.compact("t", major=True),
            cluster.balance,
        ]
        if len(regions) > 1:
            first = rng.randrange(len(regions) - 1)
            changes.append(lambda: cluster.merge(regions[first], regions[first + 1]))
        if len(by_state["running"]) > 3:
            victim = rng.choice(by_state["running"])
            other = rng.choice(["registry", "client", "master", *cluster.servers()])
            changes += [
                lambda: cluster.kill(victim),
                lambda: cluster.pause(victim),
                lambda: cluster.partition(victim, other),
            ]
        changes += [partial(cluster.resume, host) for host in by_state["paused"][:1]]
        changes += [partial(cluster.restart, host) for host in by_state["dead"][:1]]
        return changes

    def _tried(self, change: Any) -> None:
        def run() -> None:
            with suppress(MetaClientError):  # refused, or somebody else was faster
                change()

        self.runtime.start(run)

    def _calm_down(self) -> None:
        self.runtime.sleep(1)  # the last change may only just have been started
        self.cluster.heal()
        for host, server in list(self.cluster.servers_by_host.items()):
            if server.is_hung:
                self.cluster.resume(host)
        self.runtime.sleep(3)
        for host, server in list(self.cluster.servers_by_host.items()):
            if not server.is_listening:
                self.cluster.restart(host)
        self.is_over = True
        self.runtime.sleep(60)

    def check(self) -> None:
        """Nothing is stuck, no acknowledged write is lost, replicas and copies of meta agree with their primaries."""
        assert not self.cluster.master.is_recovering
        assert [node for node in self.cluster.master.states.nodes() if node.state.value != "OPEN"] == []
        for row, value in self.acknowledged.items():
            assert self.world.value(b"t", row) in {value, *self.uncertain[row]}, row
        self.cluster.wait_until_replicated(30)
        for row in self.acknowledged:
            assert self.world.value(b"t", row, replica_id=1) == self.world.value(b"t", row), row
        truth = [row.locations for row in self.world.rows_of(b"t")]
        for replica_id in (1, 2):
            assert [row.locations for row in self.world.rows_of(b"t", at=replica_id)] == truth


@pytest.mark.parametrize("seed", range(3))
def test_acknowledged_writes_and_replicas_survive_chaos(seed: int) -> None:
    Chaos(seed).run()


def test_checker_fires_when_a_log_is_not_replayed(monkeypatch: pytest.MonkeyPatch) -> None:
    """The check above is worth something: without WAL replay, a crash loses acknowledged writes."""
    from adapters.fake.master import Master

    monkeypatch.setattr(Master, "_take_edits", lambda self, server: (server.wal.fence(), server.meta_wal.fence()))
    chaos = Chaos(0)
    chaos.world.create(b"t", copies=2)
    place = chaos.world.place(b"t")
    if place.server.host == chaos.cluster.meta_server(0):
        chaos.cluster.move(chaos.cluster.regions("t")[0])
    chaos.world.put(b"t", b"r", b"1")
    chaos.acknowledged[b"r"], chaos.uncertain[b"r"] = b"1", set()
    chaos.cluster.kill(chaos.world.place(b"t").server.host)
    chaos.runtime.sleep(30)
    with pytest.raises(AssertionError, match="r"):
        chaos.check()
    chaos.cluster.close()
    chaos.runtime.close()
