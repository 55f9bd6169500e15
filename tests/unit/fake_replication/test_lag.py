"""``Row.lag_s`` is an upper bound: whatever an answer lacks was acknowledged at most that long before the row was read.

Each test has a write that a replica lacks, and a reason for which the replica could believe that it lacks nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from metaclient import keys
from metaclient.backend import MetaScan
from metaclient.model import FamilyDescriptor, Get, RegionLocation, Result, Scan, TableDescriptor
from metaclient.runtime import SimRuntime
from metaclient_fake.master.meta_table import META_INFO
from metaclient_fake.region_replication import Batch, Sink
from metaclient_fake.storage import MarkerKind, Region
from tests.unit.fake_replication.rig import SinkRig, edit, marker, start_flush

OFF = {"replication_enabled": False, "replication_catalog_enabled": False}
APART_S = 0.01


def ready(make: Callable[..., Any], config: dict[str, object] | None = None, **attributes: str) -> Any:
    """A table of one region with one replica, on servers of their own, and nothing missing."""
    world = make(servers=4, config=config or {})
    descriptor = TableDescriptor(
        b"t", (FamilyDescriptor(b"f"),), region_replication=2, attributes=tuple(attributes.items())
    )
    world.cluster.create_table(descriptor)
    world.cluster.move(world.cluster.regions("t")[0], "rs1")
    world.cluster.move(world.cluster.regions("t")[0], "rs2", replica_id=1)
    world.runtime.sleep(3)
    return world


def cut(world: Any) -> None:
    world.cluster.partition("rs1", "rs2")


class Missed:
    """A write that was acknowledged now, and answers of a replica that do not have it."""

    def __init__(self, world: Any, row: bytes = b"r", value: bytes = b"new") -> None:
        self._world = world
        self._row, self._value = row, value
        world.put(b"t", row, value)
        self.acknowledged_at = world.runtime.now()

    def lag_s(self, place: Any) -> float | None:
        """What the replica says of an answer without the write."""
        result = self._world.get(b"t", self._row, place=place)
        assert self._value not in [cell.value for cell in result.cells], "the replica has it"
        return result.lag_s

    def is_covered_by(self, lag_s: float | None) -> bool:
        return lag_s is None or lag_s >= self._world.runtime.now() - self.acknowledged_at


def test_write_that_is_replicated_while_the_row_is_read_is_in_the_lag(
    make: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The lag was measured after the read: by then the replica had what the answer lacked, and it said 0.0."""
    world = ready(make)
    place = world.place(b"t", b"", 1)
    right = Region.get

    def get(region: Region, get: Get) -> Result:
        result = right(region, get)
        if not region.is_primary and region.info.table == b"t":
            world.runtime.sleep(0.5)
        return result

    monkeypatch.setattr(Region, "get", get)
    reading = world.runtime.start(lambda: world.get(b"t", b"r", place=place))
    world.runtime.sleep(0.1)
    missed = Missed(world)
    answer = reading.result(world.deadline())
    assert answer.cells == ()
    assert missed.is_covered_by(answer.lag_s)
    assert answer.lag_s is not None
    assert answer.lag_s < 1


def test_primary_that_opens_anew_does_not_hide_what_its_predecessor_did_not_send(make: Callable[..., Any]) -> None:
    """Its first entry is young, but the replica lacks an older one."""
    world = ready(make)
    place = world.place(b"t", b"", 1)
    cut(world)
    missed = Missed(world)
    world.cluster.partition("rs3", "rs2")
    world.runtime.sleep(2)
    world.cluster.move(world.cluster.regions("t")[0], "rs3")
    world.runtime.sleep(0.2)
    assert missed.is_covered_by(missed.lag_s(place))


def test_replica_of_a_dead_primary_counts_from_the_last_files_that_it_knows(make: Callable[..., Any]) -> None:
    """Nobody pushes: the time of the last batch says nothing about what was dropped before it."""
    world = ready(make)
    place = world.place(b"t", b"", 1)
    cut(world)
    missed = Missed(world)
    world.runtime.sleep(3)
    world.cluster.kill("rs1")
    world.runtime.sleep(1)
    assert missed.is_covered_by(missed.lag_s(place))


def test_replica_that_follows_files_knows_nothing_of_the_memstore(make: Callable[..., Any]) -> None:
    """It looked at the files a moment ago; the write was never in them."""
    world = ready(make, {**OFF, "refresh_s": 1.0})
    place = world.place(b"t", b"", 1)
    missed = Missed(world)
    world.runtime.sleep(20)
    lag_s = missed.lag_s(place)
    assert lag_s is not None
    assert missed.is_covered_by(lag_s)
    world.cluster.flush("t")
    world.runtime.sleep(2)
    result = world.get(b"t", b"r", place=place)
    assert result.cells
    assert result.lag_s == pytest.approx(2, abs=0.5)


def test_table_whose_edits_are_not_pushed_is_not_up_to_date(make: Callable[..., Any]) -> None:
    """REGION_MEMSTORE_REPLICATION false: only markers are sent, and all of them are answered."""
    world = ready(make, REGION_MEMSTORE_REPLICATION="false")
    missed = Missed(world)
    world.runtime.sleep(5)
    assert missed.is_covered_by(missed.lag_s(world.place(b"t", b"", 1)))


def test_families_of_meta_that_are_not_pushed_are_not_up_to_date(make: Callable[..., Any]) -> None:
    """``table`` comes with files alone; a read of ``info`` is not held up by it."""
    world = make()
    world.runtime.sleep(5)
    created_at = world.runtime.now()
    world.create(b"t")
    world.runtime.sleep(2)

    def page(*families: bytes) -> Any:
        return world.meta(1, MetaScan(b"t", b"t,zzz", False, 10, families))

    assert page(b"table").rows == ()
    since_s = world.runtime.now() - created_at
    for families in ((b"table",), (b"info", b"table"), ()):
        lag_s = page(*families).lag_s
        assert lag_s is None or lag_s >= since_s - APART_S, families
    assert page(b"info").rows
    assert page(b"info").lag_s == 0.0
    place = RegionLocation(META_INFO.replica(1), world.replica(1).server)
    whole = world.backend.get_meta(place, Get(b"t"), world.deadline())
    assert whole.lag_s is None or whole.lag_s >= since_s - APART_S


def test_copy_that_was_left_behind_does_not_take_its_successors_lag(make: Callable[..., Any]) -> None:
    """Its server was declared dead and goes on; the primary hears of another copy that has everything."""
    world = ready(make)
    old = world.place(b"t", b"", 1)
    for other in ("master", "registry", "rs1", "rs3", "rs4"):
        world.cluster.partition("rs2", other)
    world.runtime.sleep(60)
    now = world.place(b"t", b"", 1)
    assert now.server != old.server
    missed = Missed(world)
    world.runtime.sleep(1)
    assert world.get(b"t", b"r", place=now).lag_s == 0.0
    assert missed.is_covered_by(missed.lag_s(old))


def test_clock_that_jumps_does_not_shorten_the_lag(make: Callable[..., Any]) -> None:
    world = ready(make)
    place = world.place(b"t", b"", 1)
    world.cluster.faults.skew_clock("rs1", 3600)
    cut(world)
    missed = Missed(world)
    world.cluster.faults.skew_clock("rs1", -3600)
    world.runtime.sleep(2)
    assert missed.is_covered_by(missed.lag_s(place))


def test_pages_of_a_scan_are_as_old_as_its_scanner(make: Callable[..., Any]) -> None:
    """A page that is read later shows the same moment, so it is older."""
    world = ready(make)
    for row in (b"a", b"b", b"c"):
        world.put(b"t", row)
    world.runtime.sleep(1)
    place = world.place(b"t", b"", 1)
    first = world.backend.scan_open(place, b"t", Scan(caching=1), world.deadline())
    missed = Missed(world, b"c")
    world.runtime.sleep(5)
    rest = world.backend.scan_next(first.scanner, 10, world.deadline())
    assert first.rows[0].lag_s == 0.0
    assert [row.cells[0].value for row in rest.rows] == [b"1", b"1"]
    assert all(row.lag_s is not None and missed.is_covered_by(row.lag_s) for row in rest.rows)
    assert world.get(b"t", b"c", place=place).lag_s == 0.0, "the replica itself is up to date"


def test_replica_that_pretends_to_be_empty_promises_nothing(make: Callable[..., Any]) -> None:
    world = ready(make)
    world.put(b"t", b"r")
    world.runtime.sleep(1)
    place = world.place(b"t", b"", 1)
    world.cluster.server_named("rs2").secondaries.pretend_empty(place.region_name, 5.0)
    result = world.get(b"t", b"r", place=place)
    assert (result.cells, result.lag_s) == ((), None)
    world.runtime.sleep(6)
    assert world.get(b"t", b"r", place=place).lag_s == 0.0


def test_torn_rows_of_meta_promise_nothing(make: Callable[..., Any]) -> None:
    world = make(config={"meta_rows_torn_s": 5.0})
    world.create(b"t")
    scan = MetaScan(keys.meta_table_start(b"t"), keys.meta_table_stop(b"t"), False, 10)
    assert world.meta(1, scan).lag_s is None
    world.runtime.sleep(6)
    assert world.meta(1, scan).lag_s == 0.0


# -- the sink alone ------------------------------------------------------------------------------------------------


def missing_since(sink: Sink) -> float | None:
    known = sink.acknowledged(1)
    return None if known is None else known.as_of


@pytest.fixture
def rig(runtime: SimRuntime) -> SinkRig:
    """One replica, which has caught up with its primary."""
    made = SinkRig(runtime, replicas=1, batch_entries=2)
    assert missing_since(made.sink) is None, "nothing is known of a replica that has not answered"
    made.add(marker(1, MarkerKind.REGION_OPEN, 1))
    assert missing_since(made.sink) is None
    made.settle()
    assert missing_since(made.sink) == runtime.now()
    return made


def later(rig: SinkRig) -> float:
    rig.runtime.run_for(1.0)
    return rig.runtime.now()


def test_batch_in_flight_counts_when_a_flush_drops_what_is_behind_it(rig: SinkRig, runtime: SimRuntime) -> None:
    """The queue jumps over edits that the flush covers; the batch before them may still be lost."""
    begun = later(rig)
    rig.add(edit(2))
    later(rig)
    rig.add(edit(3), edit(4), edit(5), edit(6), start_flush(8, 7))
    assert rig.out()[0].numbers == [2]
    assert missing_since(rig.sink) == begun
    rig.out()[0].fail()
    assert missing_since(rig.sink) == begun


def test_marker_from_before_a_gap_does_not_close_it(runtime: SimRuntime) -> None:
    """It is on its way while a flush makes the queue jump: the edits behind it come with the end of that flush."""
    rig = SinkRig(runtime, replicas=1, batch_entries=2)
    rig.add(marker(1, MarkerKind.CANNOT_FLUSH))
    in_flight = rig.out()[0]
    begun = later(rig)
    rig.add(edit(2), edit(3), edit(4), edit(5), start_flush(7, 6))
    in_flight.succeed()
    assert missing_since(rig.sink) is None, "the gap is open, and nothing has been complete yet"
    assert rig.sink.replicas()[0].lag_s == runtime.now() - begun or rig.sink.replicas()[0].lag_edits > 0
    rig.add(marker(8, MarkerKind.COMMIT_FLUSH, 6))
    rig.settle()
    assert missing_since(rig.sink) == runtime.now()


def test_stopped_sink_knows_nothing(rig: SinkRig) -> None:
    """It has forgotten what was queued."""
    later(rig)
    rig.add(edit(2))
    rig.sink.stop()
    assert missing_since(rig.sink) is None


def test_failed_replica_lacks_what_was_not_acknowledged(rig: SinkRig) -> None:
    begun = later(rig)
    rig.add(edit(2))
    later(rig)
    batch: Batch = rig.out()[0].batch
    rig.out()[0].fail()
    assert batch.last_sequence_id == 2
    assert missing_since(rig.sink) == begun
    later(rig)
    rig.add(edit(3))
    assert missing_since(rig.sink) == begun
