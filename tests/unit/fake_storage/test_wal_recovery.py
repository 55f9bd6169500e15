"""What a crash may take: the tail of the log that was not synced, and what never was in the log."""

from __future__ import annotations

import pytest

from metaclient.errors import NotServingRegion, ServerStopped
from metaclient.model import LATEST_TIMESTAMP, Cell, Durability, Get, Put, RegionInfo, RowMutations
from metaclient_fake.storage import FlushOutcome, MarkerKind, RegionPhase, WalEntry
from tests.unit.fake_storage.bench import INFO, Bench, put, values


def write(row: bytes, durability: Durability) -> Put:
    return Put(row, (Cell(b"cf:a", LATEST_TIMESTAMP, b"1"),), durability)


def test_synced_writes_survive_a_crash(bench: Bench) -> None:
    region = bench.open()
    for index in range(10):
        put(region, b"%d" % index, a=b"x")
        if index == 5:
            region.flush()
    region = bench.crash()
    assert all(values(region, b"%d" % index) == {b"cf:a": b"x"} for index in range(10))
    assert region.memstore_bytes == 0


def test_unsynced_tail_is_lost_in_a_crash(bench: Bench) -> None:
    region = bench.open()
    region.mutate(write(b"synced", Durability.SYNC_WAL))
    region.mutate(write(b"tail", Durability.ASYNC_WAL))
    assert bench.wal.unsynced == 1
    region = bench.crash()
    assert (values(region, b"synced"), values(region, b"tail")) == ({b"cf:a": b"1"}, {})


def test_asynchronous_write_before_a_synced_one_survives(bench: Bench) -> None:
    region = bench.open()
    region.mutate(write(b"a", Durability.ASYNC_WAL))
    region.mutate(write(b"b", Durability.SYNC_WAL))
    assert values(bench.crash(), b"a") == {b"cf:a": b"1"}


@pytest.mark.parametrize("is_flushed", [False, True])
def test_write_that_skips_the_log_survives_only_in_a_file(bench: Bench, is_flushed: bool) -> None:
    region = bench.open()
    region.mutate(write(b"r", Durability.SKIP_WAL))
    assert values(region, b"r") == {b"cf:a": b"1"}
    if is_flushed:
        region.flush()
    assert bool(values(bench.crash(), b"r")) is is_flushed


def test_table_attribute_makes_all_writes_skip_the_log(bench: Bench) -> None:
    bench.table = type(bench.table)(b"t", bench.table.families, attributes=(("DURABILITY", "SKIP_WAL"),))
    region = bench.open()
    put(region, b"r", a=b"1")
    assert values(bench.crash(), b"r") == {}


def test_write_whose_sync_fails_is_not_seen(bench: Bench) -> None:
    region = bench.open()

    def fail() -> None:
        raise ServerStopped("disk full")

    bench.wal.before_sync = fail
    with pytest.raises(ServerStopped):
        put(region, b"r", a=b"1")
    bench.wal.before_sync = None
    assert values(region, b"r") == {}
    put(region, b"s", a=b"2")
    assert values(region, b"s") == {b"cf:a": b"2"}


def test_fenced_server_can_neither_write_nor_flush(bench: Bench) -> None:
    """A server that was declared dead still runs: its log is taken away before it is split."""
    zombie = bench.open()
    put(zombie, b"r", a=b"1")
    bench.wal.fence()
    with pytest.raises(ServerStopped):
        put(zombie, b"s", a=b"2")
    with pytest.raises(ServerStopped):
        zombie.flush()
    assert bench.filesystem.region(INFO).all_files() == ()
    region = bench.crash()
    assert (values(region, b"r"), values(region, b"s")) == ({b"cf:a": b"1"}, {})


def test_fenced_in_the_middle_of_a_flush_adds_no_file(bench: Bench) -> None:
    region = bench.open()
    put(region, b"r", a=b"1")
    calls: list[int] = []

    def fence_at_the_second() -> None:
        calls.append(1)
        if len(calls) == 2:
            bench.wal.fence()

    bench.wal.before_sync = fence_at_the_second
    with pytest.raises(ServerStopped):
        region.flush()
    assert bench.filesystem.region(INFO).all_files() == ()
    assert region.state is RegionPhase.CLOSING
    with pytest.raises(NotServingRegion):
        region.get(Get(b"r"))


def test_sequence_ids_go_on_after_close_and_after_a_crash(bench: Bench) -> None:
    region = bench.open()
    put(region, b"r", a=b"1")
    last = region.close()
    region = bench.open()
    assert region.open_seqnum == last + 1
    put(region, b"r", a=b"2")
    newest = region.read_point
    assert bench.crash().open_seqnum > newest


def test_recovery_replays_only_what_each_family_has_not_flushed(bench: Bench) -> None:
    region = bench.open()
    region.mutate(Put(b"r", (Cell(b"cf:a", 5, b"1"), Cell(b"g:x", 5, b"2"))))
    assert region.flush([b"cf"]).outcome is FlushOutcome.FLUSHED
    bench.wal.roll()
    assert any(entry.edits for entry in bench.wal.entries_for(INFO.encoded_name))
    region = bench.crash()
    assert values(region, b"r") == {b"cf:a": b"1", b"g:x": b"2"}
    assert len(bench.filesystem.region(INFO).files(b"cf")) == 1


def test_log_files_are_archived_once_flushed_and_deleted_after_their_time(bench: Bench) -> None:
    region = bench.open()
    put(region, b"r", a=b"1")
    assert bench.wal.roll() == []
    assert bench.wal.regions_to_flush(0) == [INFO.encoded_name]
    region.flush()
    assert len(bench.wal.roll()) == 2
    assert len(bench.filesystem.old_wals) == 2
    assert bench.filesystem.clean_old_wals(100.0) == 0
    assert bench.filesystem.clean_old_wals(701.0) == 2


def test_two_crashes_in_a_row_lose_nothing(bench: Bench) -> None:
    region = bench.open()
    put(region, b"r", a=b"1")
    region = bench.crash()
    put(region, b"s", a=b"2")
    region = bench.crash()
    assert (values(region, b"r"), values(region, b"s")) == ({b"cf:a": b"1"}, {b"cf:a": b"2"})


def test_markers_tell_the_life_of_a_region(bench: Bench) -> None:
    told: list[WalEntry] = []
    region = bench.open(on_commit=told.append)
    put(region, b"r", a=b"1")
    region.mutate(write(b"s", Durability.SKIP_WAL))
    region.flush()
    region.flush()
    region.compact(major=True)
    region.bulk_load({b"b": [Cell(b"cf:a", 5, b"1")]})
    region.close()
    kinds = [entry.marker.kind if entry.marker else entry.edits[0][0] for entry in told]
    assert kinds == [
        MarkerKind.REGION_OPEN,
        b"r",
        b"s",
        MarkerKind.START_FLUSH,
        MarkerKind.COMMIT_FLUSH,
        MarkerKind.CANNOT_FLUSH,
        MarkerKind.COMPACTION,
        MarkerKind.BULK_LOAD,
    ]
    numbers = [entry.sequence_id for entry in told]
    assert numbers == sorted(numbers)
    logged = [entry.marker.kind if entry.marker else entry.edits[0][0] for entry in bench.wal.entries()]
    assert b"s" not in logged
    assert logged[-1] is MarkerKind.REGION_CLOSE


def test_empty_flush_is_told_to_replicas_even_when_it_is_not_logged(bench: Bench) -> None:
    told: list[WalEntry] = []
    region = bench.open(on_commit=told.append)
    before = len(list(bench.wal.entries()))
    result = region.flush(writes_marker=False)
    assert (result.outcome, result.wrote_marker) == (FlushOutcome.CANNOT_FLUSH_EMPTY, False)
    marker = told[-1].marker
    assert marker is not None
    assert (marker.kind, marker.flush_sequence_id) == (MarkerKind.CANNOT_FLUSH, -1)
    assert len(list(bench.wal.entries())) == before


def test_start_and_commit_of_a_flush_carry_one_number_below_their_own(bench: Bench) -> None:
    told: list[WalEntry] = []
    region = bench.open(on_commit=told.append)
    put(region, b"r", a=b"1")
    number = region.flush().sequence_id
    start, commit = told[-2:]
    assert start.marker is not None
    assert commit.marker is not None
    assert start.marker.flush_sequence_id == commit.marker.flush_sequence_id == number
    assert number < start.sequence_id < commit.sequence_id
    assert commit.marker.files == (bench.filesystem.region(INFO).files(b"cf")[0].name,)


def test_mixed_batch_tells_one_entry_and_logs_only_what_wants_it(bench: Bench) -> None:
    told: list[WalEntry] = []
    region = bench.open(on_commit=told.append)
    region.batch([write(b"logged", Durability.SYNC_WAL), write(b"skipped", Durability.SKIP_WAL)])
    assert [row for row, _ in told[-1].edits] == [b"logged", b"skipped"]
    logged = list(bench.wal.entries())[-1]
    assert [row for row, _ in logged.edits] == [b"logged"]
    assert logged.sequence_id == told[-1].sequence_id


def test_edit_is_told_only_after_its_sync(bench: Bench) -> None:
    told: list[WalEntry] = []
    region = bench.open(on_commit=told.append)
    before = len(told)

    def fail() -> None:
        assert len(told) == before
        raise ServerStopped("sync timed out")

    bench.wal.before_sync = fail
    with pytest.raises(ServerStopped):
        put(region, b"r", a=b"1")
    assert len(told) == before


def test_strongest_durability_of_row_mutations_counts(bench: Bench) -> None:
    region = bench.open()
    parts = (write(b"r", Durability.SKIP_WAL), write(b"r", Durability.USE_DEFAULT))
    region.mutate(RowMutations(b"r", parts))
    assert values(bench.crash(), b"r") == {b"cf:a": b"1"}


@pytest.mark.parametrize("cells", [1, 5])
def test_entry_that_meets_a_roll_is_not_archived_unflushed(bench: Bench, cells: int) -> None:
    """Whether the log keeps the entry as a packed row or as an entry."""
    region = bench.open()
    wal = bench.wal
    wrote = dict.fromkeys("abcde"[:cells], b"1")

    class RolledWhileAppending(list[WalEntry]):
        def append(self, entry: WalEntry) -> None:
            super().append(entry)
            wal.roll()

    put(region, b"q", **wrote)
    edits = wal.files[-1].regions[INFO.encoded_name]
    edits.entries = RolledWhileAppending(edits.entries)  # type: ignore[assignment]  # no packed rows: it only counts
    put(region, b"r", **wrote)
    assert len(wal.files) == 2
    recovered = bench.crash()
    assert values(recovered, b"q") == values(recovered, b"r") == {f"cf:{letter}".encode(): b"1" for letter in wrote}


def test_entry_of_a_packed_row_comes_back_whole(bench: Bench) -> None:
    """The log keeps the row alone; what is read from it says the same as what was told."""
    told: list[WalEntry] = []
    region = bench.open(on_commit=told.append)
    for number in range(3):
        bench.now_ms += 10
        put(region, b"%d" % number, a=b"value")
    assert list(bench.wal.entries()) == told
    assert [entry.write_time_ms for entry in told[1:]] == [1010, 1020, 1030]


def test_late_entry_of_one_region_is_synced_by_another_one(bench: Bench) -> None:
    """ASYNC_WAL: one log has all regions of a server, and a sync is of the log."""
    lower, upper = RegionInfo(b"t", b"", b"m", 1), RegionInfo(b"t", b"m", b"", 1)
    one, other = bench.open(lower), bench.open(upper)
    one.mutate(write(b"a", Durability.ASYNC_WAL))
    assert bench.wal.unsynced == 1
    other.mutate(write(b"z", Durability.USE_DEFAULT))
    assert bench.wal.unsynced == 0
    assert values(bench.crash(lower), b"a") == {b"cf:a": b"1"}


def test_crash_during_a_sync_is_not_taken_for_a_success(bench: Bench) -> None:
    region = bench.open()
    bench.wal.before_sync = bench.wal.crash  # type: ignore[assignment]  # its answer is not needed
    with pytest.raises(ServerStopped) as caught:
        put(region, b"r", a=b"1")
    assert caught.value.may_have_applied
