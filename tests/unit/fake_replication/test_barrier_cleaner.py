"""The cleaner of barriers (HBase's TestReplicationBarrierCleaner): what no serial peer waits for is deleted."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from metaclient import keys
from metaclient.model import Cell
from metaclient_fake.replication.barrier_cleaner import BarrierCleaner, BarrierRow
from metaclient_fake.replication.barriers import BARRIER, PARENT, barriers_in

NAME = b"t,a,1600000000000.0f66090624927db18e5c2d8176c836d0."
REGION = keys.encoded_region_name(NAME)
SIX = (10, 20, 30, 40, 50, 60)


class Rig:
    """One region in hbase:meta, and the ids that peers have acknowledged."""

    def __init__(self, barriers: Sequence[int], pushed: dict[str, int], *, has_region: bool = True) -> None:
        self.cells = [Cell(PARENT, 1, b"t,,1.x.")]
        self.cells += [Cell(BARRIER, 2 + number, value.to_bytes(8, "big")) for number, value in enumerate(barriers)]
        self.pushed = dict(pushed)
        self.has_region = has_region
        self.cleaner = BarrierCleaner(
            self,
            serial_peers_of=lambda table: list(pushed) if table == b"t" else [],
            pushed=lambda region, peer: self.pushed[peer],
            forget_pushed=lambda region, peer: self.forget(region, peer),
        )

    def rows(self) -> list[BarrierRow]:
        return [BarrierRow(NAME, self.cells, self.has_region)]

    def delete_before(self, name: bytes, timestamp: int) -> None:
        assert name == NAME
        self.cells = [cell for cell in self.cells if cell.timestamp >= timestamp]

    def delete_all(self, name: bytes) -> None:
        assert name == NAME
        self.cells = []

    def forget(self, region: str, peer: str) -> None:
        assert region == REGION
        del self.pushed[peer]

    @property
    def barriers(self) -> tuple[int, ...]:
        return barriers_in(self.cells).barriers


def test_table_without_a_serial_peer_keeps_the_newest_barrier_of_each_region() -> None:
    rig = Rig(SIX, {})
    assert rig.cleaner.run() == 5
    assert rig.barriers == (60,)
    assert rig.cleaner.run() == 0


def test_region_that_is_gone_leaves_no_row_behind_without_a_serial_peer() -> None:
    rig = Rig(SIX, {}, has_region=False)
    rig.cleaner.run()
    assert rig.cells == []


@pytest.mark.parametrize(
    ("pushed", "left"),
    [(-1, SIX), (9, SIX), (15, SIX), (20, SIX[1:]), (55, (50, 60)), (59, (50, 60)), (60, (60,)), (70, (60,))],
)
def test_barrier_that_the_slowest_peer_needs_is_kept(pushed: int, left: tuple[int, ...]) -> None:
    rig = Rig(SIX, {"1": 1000, "2": pushed})
    rig.cleaner.run()
    assert rig.barriers == left
    assert rig.pushed == {"1": 1000, "2": pushed}


def test_pushed_region_that_still_exists_keeps_its_last_range() -> None:
    rig = Rig((40, 50, 60), {"1": 59})
    rig.cleaner.run()
    assert rig.barriers == (50, 60)


def test_pushed_region_that_is_gone_loses_row_and_pushed_ids() -> None:
    rig = Rig((40, 50, 60), {"1": 59, "2": 59}, has_region=False)
    rig.cleaner.run()
    assert (rig.cells, rig.pushed) == ([], {})


def test_region_that_is_gone_but_not_pushed_keeps_what_its_daughters_wait_for() -> None:
    rig = Rig((40, 50, 60), {"1": 59, "2": 58}, has_region=False)
    rig.cleaner.run()
    assert rig.barriers == (50, 60)
    assert rig.pushed == {"1": 59, "2": 58}


def test_gone_region_with_one_barrier_and_no_pushed_id_is_kept() -> None:
    rig = Rig((0,), {"1": -1}, has_region=False)
    rig.cleaner.run()
    assert rig.barriers == (0,)


def test_row_without_barriers_is_left_alone() -> None:
    rig = Rig((), {}, has_region=True)
    assert rig.cleaner.run() == 0
    assert len(rig.cells) == 1
