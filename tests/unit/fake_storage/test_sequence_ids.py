"""The sequence ids of markers and of a region's opens, as HBase numbers them: serial replication depends on them.

An open has the number b: its marker b + 1, the first edit b + 2. A close with data: the flush has f and no entry,
START_FLUSH f + 1, COMMIT_FLUSH f + 2, REGION_CLOSE f + 3; the next open f + 4.
"""

from __future__ import annotations

import pytest

from metaclient.model import RegionInfo
from metaclient_fake.storage import MarkerKind, StorageConfig, Wal
from tests.unit.fake_storage.bench import INFO, Bench, put

AS_HBASE = StorageConfig(counts_markers_on_recovery=False)


def numbered(wal: Wal) -> list[tuple[object, int]]:
    return [(entry.marker.kind if entry.marker else "edit", entry.sequence_id) for entry in wal.entries()]


@pytest.mark.parametrize("config", [StorageConfig(), AS_HBASE], ids=["default", "as HBase"])
def test_open_and_close_of_a_region_take_the_numbers_of_hbase(bench: Bench, config: StorageConfig) -> None:
    region = bench.open(config=config)
    assert region.open_seqnum == 2
    put(region, b"r", a=b"1")
    region.close()
    assert numbered(bench.wal) == [
        (MarkerKind.REGION_OPEN, 3),
        ("edit", 4),
        (MarkerKind.START_FLUSH, 6),
        (MarkerKind.COMMIT_FLUSH, 7),
        (MarkerKind.REGION_CLOSE, 8),
    ]
    assert bench.open(config=config).open_seqnum == 9


@pytest.mark.parametrize("config", [StorageConfig(), AS_HBASE], ids=["default", "as HBase"])
def test_daughters_start_above_their_parent(bench: Bench, config: StorageConfig) -> None:
    parent = bench.open(config=config)
    put(parent, b"r", a=b"1")
    last = parent.close()
    left, right = RegionInfo(b"t", b"", b"m", 2), RegionInfo(b"t", b"m", b"", 2)
    bench.filesystem.split(INFO, left, right, b"m")
    assert {bench.open(one, config=config).open_seqnum for one in (left, right)} == {last + 1}


def test_crash_after_a_flush_gives_no_id_of_a_marker_again(bench: Bench) -> None:
    """HBASE-29499: with the id of START_FLUSH in the range of the new open, a serial source waits for ever."""
    region = bench.open()
    put(region, b"r", a=b"1")
    region.flush()
    highest = max(number for _, number in numbered(bench.wal))
    assert bench.crash().open_seqnum == highest + 1


@pytest.mark.parametrize("is_flushed", [False, True], ids=["open marker", "flush markers"])
def test_crash_gives_no_id_of_a_marker_again_whose_log_is_archived(bench: Bench, is_flushed: bool) -> None:
    """A source may still read the archived log, although recovery does not need it."""
    region = bench.open()
    if is_flushed:
        put(region, b"r", a=b"1")
        region.flush()
    highest = max(number for _, number in numbered(bench.wal))
    assert len(bench.wal.roll()) == 1
    assert bench.crash().open_seqnum == highest + 1


def test_crash_after_a_flush_gives_ids_of_markers_again_as_hbase_does(bench: Bench) -> None:
    """Edits to 4, flush number 5: HBase reopens with 6, which is the id of START_FLUSH."""
    region = bench.open(config=AS_HBASE)
    put(region, b"r", a=b"1")
    assert region.flush().sequence_id == 5
    assert numbered(bench.wal)[-2:] == [(MarkerKind.START_FLUSH, 6), (MarkerKind.COMMIT_FLUSH, 7)]
    bench.wal.crash()
    dead, bench.wal = bench.wal, bench.new_wal()
    region = bench.open(config=AS_HBASE, recovered=dead.entries_for(INFO.encoded_name))
    assert region.open_seqnum == 6
