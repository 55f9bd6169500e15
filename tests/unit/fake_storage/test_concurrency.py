"""Many readers and writers at once: rows are whole, counters lose nothing, scans stay at their moment."""

from __future__ import annotations

import pytest

from metaclient.model import LATEST_TIMESTAMP, Cell, FamilyDescriptor, Get, Increment, Put, Scan, TableDescriptor
from metaclient.runtime import Runtime, SimRuntime, ThreadRuntime
from metaclient_fake.storage import FileSystem, Region
from metaclient_fake.storage.mvcc import Mvcc
from tests.unit.fake_storage.bench import INFO, scanned

WRITERS, WRITES = 4, 150


def opened(runtime: Runtime) -> Region:
    filesystem = FileSystem()
    table = TableDescriptor(b"t", (FamilyDescriptor(b"cf"), FamilyDescriptor(b"g")))
    return Region.open(INFO, table, filesystem, wal=filesystem.create_wal("one"), runtime=runtime)


def write_whole_rows(region: Region, runtime: Runtime, writer: int) -> None:
    for index in range(WRITES):
        value = b"%d-%d" % (writer, index)
        cells = tuple(Cell(column, LATEST_TIMESTAMP, value) for column in (b"cf:a", b"cf:b", b"g:x"))
        region.mutate(Put(b"row", cells))
        region.mutate(Increment(b"count", ((b"g:n", 1),)))
        if index % 50 == writer:
            region.flush()
            region.compact(major=True)
        runtime.sleep(0)


def read_whole_rows(region: Region, runtime: Runtime) -> None:
    for _ in range(WRITES):
        seen = {cell.value for cell in region.get(Get(b"row")).cells}
        assert len(seen) <= 1
        for result in scanned(region, Scan(b"row")):
            assert len(result.cells) == 3
            assert len({cell.value for cell in result.cells}) == 1
        runtime.sleep(0)


def run_everybody(runtime: Runtime) -> Region:
    region = opened(runtime)
    tasks = [runtime.start(write_whole_rows, region, runtime, writer) for writer in range(WRITERS)]
    tasks += [runtime.start(read_whole_rows, region, runtime) for _ in range(2)]
    for task in tasks:
        task.result()
    return region


def test_rows_are_never_torn_and_counters_lose_nothing_on_threads() -> None:
    with ThreadRuntime() as runtime:
        region = run_everybody(runtime)
        assert int.from_bytes(region.get(Get(b"count")).cells[0].value, "big") == WRITERS * WRITES


@pytest.mark.parametrize("seed", range(3))
def test_rows_are_never_torn_and_counters_lose_nothing_on_virtual_time(seed: int) -> None:
    with SimRuntime(seed, preempt=0.1) as runtime:
        region = runtime.run(run_everybody, runtime)
        count = runtime.run(lambda: region.get(Get(b"count")))
        assert int.from_bytes(count.cells[0].value, "big") == WRITERS * WRITES


def test_read_point_waits_for_the_oldest_unfinished_write() -> None:
    mvcc = Mvcc(5)
    first, second, third = mvcc.begin(), mvcc.begin(), mvcc.begin()
    mvcc.complete(third)
    mvcc.complete(second)
    assert mvcc.read_point == 5
    mvcc.complete(first)
    assert mvcc.read_point == third


def test_actions_run_in_sequence_order_before_their_number_is_readable() -> None:
    mvcc = Mvcc()
    seen: list[tuple[int, int]] = []
    first, second = mvcc.begin(), mvcc.begin()
    mvcc.complete(second, lambda: seen.append((second, mvcc.read_point)))
    mvcc.complete(first, lambda: seen.append((first, mvcc.read_point)))
    assert seen == [(first, 0), (second, first)]


def test_sequence_cannot_jump_over_a_write_in_flight() -> None:
    mvcc = Mvcc()
    mvcc.begin()
    mvcc.advance_to(1)
    with pytest.raises(RuntimeError, match="cannot advance to 9: read 0, write 1"):
        mvcc.advance_to(9)
