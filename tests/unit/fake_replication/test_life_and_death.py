"""What may happen to primaries and replicas: after each, all copies are equal and no acknowledged edit is missing.

All the time, writers write (the same value to two families of a row, in one put) and readers read every copy: what a
reader sees is never half a row.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from metaclient.errors import MetaClientError
from metaclient.model import LATEST_TIMESTAMP, Cell, FamilyDescriptor, Get, Put, RegionInfo, TableDescriptor
from metaclient.runtime import SimRuntime
from tests.unit.fake_cluster.conftest import World

COPIES = 3
WRITERS = 2


class NoPlace(Exception):
    """hbase:meta knows no place for the row, right now."""


class Life:
    """A cluster under load, and the checks at the end."""

    def __init__(self, seed: int, **config: object) -> None:
        self.runtime = SimRuntime(seed=seed)
        settings: dict[str, object] = {"session_timeout_s": 2.0, **config}
        self.world = World(self.runtime, servers=7, config=settings)
        self.cluster = self.world.cluster
        self.acknowledged: dict[bytes, bytes] = {}
        self.uncertain: dict[bytes, set[bytes]] = {}
        self.reads = 0
        self.is_over = False
        self.pace_s = 0.01
        families = tuple(FamilyDescriptor(name) for name in (b"f", b"g"))
        self.cluster.create_table(TableDescriptor(b"t", families, region_replication=COPIES), [b"5"])
        self.runtime.sleep(1)
        self._leave_meta_alone()

    def _leave_meta_alone(self) -> None:
        """The hazards here are those of the table: its copies stay off the servers of hbase:meta's primary."""
        meta = self.cluster.meta_server(0)
        for region in self.cluster.regions("t"):
            for replica_id in range(COPIES):
                if self.cluster.server_of(region, replica_id) == meta:
                    taken = {self.cluster.server_of(region, n) for n in range(COPIES)} | {meta}
                    free = next(host for host in self.cluster.servers() if host not in taken)
                    self.cluster.move(region, free, replica_id=replica_id)

    def under(self, hazard: Callable[[Life], None], settle_s: float = 32.0) -> None:
        tasks = [self.runtime.start(self._write, number) for number in range(WRITERS)]
        tasks += [self.runtime.start(self._read, replica_id) for replica_id in range(COPIES)]
        self.runtime.sleep(1)
        hazard(self)
        self.runtime.sleep(2)
        self.cluster.heal()
        self.pace_s = max(self.pace_s, 0.1)
        self.runtime.sleep(settle_s)
        self.is_over = True
        for task in tasks:
            task.result(self.runtime.now() + 60)
        self.check()
        self.cluster.close()
        self.runtime.close()

    def region(self, row: bytes = b"0") -> str:
        encoded: str = self.cluster.master.states.containing(b"t", row).primary.encoded
        return encoded

    def server(self, replica_id: int) -> str:
        found = self.cluster.server_of(self.region(), replica_id)
        assert found is not None
        return found

    def place(self, row: bytes, replica_id: int = 0) -> Any:
        try:
            return self.world.place(b"t", row, replica_id)
        except AssertionError as error:
            raise NoPlace(row) from error

    def _write(self, writer: int) -> None:
        number = 0
        while not self.is_over:
            number += 1
            row, value = b"%d-%d" % (self.runtime.rng.randrange(10), writer), b"%d" % number
            cells = tuple(Cell(name, LATEST_TIMESTAMP, value) for name in (b"f:q", b"g:q"))
            try:
                place = self.place(row)
                self.world.backend.mutate(place, b"t", Put(row, cells), self.world.deadline(1))
                self.acknowledged[row], self.uncertain[row] = value, set()
            except (MetaClientError, NoPlace) as error:
                if getattr(error, "may_have_applied", False):
                    self.uncertain.setdefault(row, set()).add(value)
                self.runtime.sleep(0.05)
            self.runtime.sleep(self.pace_s)

    def _read(self, replica_id: int) -> None:
        while not self.is_over:
            row = b"%d-%d" % (self.runtime.rng.randrange(10), self.runtime.rng.randrange(WRITERS))
            try:
                place = self.place(row, replica_id)
                self.see(self.world.backend.get(place, b"t", Get(row), self.world.deadline(1)).cells)
                self.reads += 1
            except (MetaClientError, NoPlace):
                pass
            self.runtime.sleep(self.pace_s)

    def see(self, cells: Any) -> bytes | None:
        is_whole = len(cells) in (0, 2) and len({cell.value for cell in cells}) <= 1
        assert is_whole, f"half a row: {cells}"
        return cells[0].value if cells else None

    def check(self) -> None:
        assert self.reads > 100
        assert len(self.acknowledged) > 10
        self.cluster.wait_until_replicated(60)
        for row, value in self.acknowledged.items():
            shown = [
                self.see(self.world.get(b"t", row, replica_id=replica_id).cells)
                for replica_id in range(len(self.cluster.master.states.containing(b"t", row).nodes))
            ]
            assert len(set(shown)) == 1, (row, shown)
            assert shown[0] in {value, *self.uncertain[row]}, row
        for _, _, sink in self.cluster.sinks():
            assert [replica.lag_edits for replica in sink.replicas()] == [0] * len(sink.replicas()), sink


def primary_moves(life: Life) -> None:
    """Case 1."""
    for _ in range(3):
        life.cluster.move(life.region())
        life.runtime.sleep(0.5)


def primarys_server_crashes(life: Life) -> None:
    """As HBase's testPrimaryRegionKill."""
    life.cluster.kill(life.server(0))


def replicas_server_crashes(life: Life) -> None:
    """As HBase's testSecondaryRegionKillWhilePrimaryIsAcceptingWrites."""
    life.cluster.kill(life.server(1))


def both_servers_crash_at_once(life: Life) -> None:
    victims = {life.server(0), life.server(1)}
    for victim in victims:
        life.cluster.kill(victim)


def all_copies_crash_at_once(life: Life) -> None:
    for victim in {life.server(n) for n in range(COPIES)}:
        life.cluster.kill(victim)


def region_splits_and_merges(life: Life) -> None:
    """As HBase's TestRegionReplicaSplit, and back."""
    left, right = life.cluster.split(life.region(), b"2")
    life.runtime.sleep(1)
    life.cluster.merge(left, right)


def copies_are_added_and_taken_away(life: Life) -> None:
    families = tuple(FamilyDescriptor(name) for name in (b"f", b"g"))
    for copies in (4, 2, COPIES):
        life.cluster.alter_table(TableDescriptor(b"t", families, region_replication=copies))
        life.runtime.sleep(1)


def primary_and_replica_share_a_server(life: Life) -> None:
    life.cluster.move(life.region(), life.server(0), replica_id=1)


def partition_between_primary_and_replica(life: Life) -> None:
    life.cluster.partition(life.server(0), life.server(1))
    life.runtime.sleep(20)


def replica_is_slow_for_an_hour(life: Life) -> None:
    life.pace_s = 2.0
    life.cluster.slow(life.server(1), 8.0)
    life.runtime.sleep(3600)
    life.cluster.slow(life.server(1), 0.0)


def replica_hangs_and_wakes_up(life: Life) -> None:
    victim = life.server(1)
    life.cluster.pause(victim, keeps_session=True)
    life.runtime.sleep(20)
    life.cluster.resume(victim)


def primary_hangs_is_replaced_and_wakes_up(life: Life) -> None:
    """A zombie: its session ends, another server opens the region, it wakes up with batches in its hands."""
    victim = life.server(0)
    life.cluster.pause(victim)
    life.runtime.sleep(8)
    life.cluster.resume(victim)


def everything_is_flushed_and_compacted(life: Life) -> None:
    for number in range(6):
        life.cluster.flush("t")
        life.cluster.compact("t", major=number % 2 == 0)
        life.runtime.sleep(0.2)


HAZARDS = [
    primary_moves,
    primarys_server_crashes,
    replicas_server_crashes,
    both_servers_crash_at_once,
    all_copies_crash_at_once,
    region_splits_and_merges,
    copies_are_added_and_taken_away,
    primary_and_replica_share_a_server,
    partition_between_primary_and_replica,
    replica_hangs_and_wakes_up,
    primary_hangs_is_replaced_and_wakes_up,
    everything_is_flushed_and_compacted,
]


@pytest.mark.parametrize("hazard", HAZARDS, ids=lambda hazard: hazard.__name__)
@pytest.mark.parametrize("seed", range(1))
def test_copies_converge_after(hazard: Callable[[Life], None], seed: int) -> None:
    Life(seed).under(hazard)


def test_copies_converge_after_a_replica_was_slow_for_long() -> None:
    Life(0).under(replica_is_slow_for_an_hour)


@pytest.mark.parametrize("hazard", [replicas_server_crashes, partition_between_primary_and_replica])
def test_copies_converge_in_lock_step_too(hazard: Callable[[Life], None]) -> None:
    Life(1, replication_lock_step=True).under(hazard, settle_s=150)


def test_copies_converge_at_a_tiny_buffer_limit() -> None:
    Life(1, replication_pending_bytes_max=3000).under(replica_hangs_and_wakes_up, settle_s=150)


def test_checker_fires_on_half_a_row() -> None:
    life = Life(0)
    with pytest.raises(AssertionError, match="half a row"):
        life.see((Cell(b"f:q", 1, b"1"),))
    life.cluster.close()
    life.runtime.close()


def test_replica_of_an_unknown_primary_is_not_told_anything() -> None:
    """Row 56's end: nobody pushes to it, and nobody answers for it."""
    life = Life(0)
    assert life.cluster.peers.acknowledged(RegionInfo(b"nothing", region_id=7).replica(1).name) is None
    life.cluster.close()
    life.runtime.close()
