"""Reading a log in the order of its appends: what a replication source gets, beside rolls, crashes and other writers.

The other thread's step runs inside of a call that the writer makes, so that each test meets its race every time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

import pytest

from metaclient.errors import ServerStopped
from metaclient.model import LATEST_TIMESTAMP, Cell, Durability, Put, RegionInfo
from metaclient_fake.storage import Region, WalEntry
from metaclient_fake.storage.wal import RegionEdits, Wal, WalFile
from metaclient_fake.storage.wal_reader import WalReader
from tests.unit.fake_storage.bench import Bench, put, values

LOWER, UPPER = RegionInfo(b"t", b"", b"m", 1), RegionInfo(b"t", b"m", b"", 1)


@pytest.fixture
def regions(bench: Bench) -> tuple[Region, Region]:
    return bench.open(LOWER), bench.open(UPPER)


def rows(entries: Iterable[WalEntry]) -> list[bytes]:
    return [row for entry in entries for row, _ in entry.edits]


def rest(reader: WalReader) -> list[bytes]:
    """Read until there is nothing more."""
    found: list[WalEntry] = []
    while (entry := reader.read()) is not None:
        found.append(entry)
    return rows(found)


def write(region: Region, row: bytes, durability: Durability) -> None:
    region.mutate(Put(row, (Cell(b"cf:a", LATEST_TIMESTAMP, b"1"),), durability))


class AfterAppend(list[RegionEdits]):
    """The order of a file in which another thread acts once, right after the next append."""

    def __init__(self, order: list[RegionEdits], step: Callable[[], object]) -> None:
        super().__init__(order)
        self._steps = [step]

    def append(self, edits: RegionEdits) -> None:
        super().append(edits)
        if self._steps:
            self._steps.pop()()


class BeforeAppend(AfterAppend):
    """The same, right before the next append."""

    def append(self, edits: RegionEdits) -> None:
        if self._steps:
            self._steps.pop()()
        super().append(edits)


def test_edits_of_two_regions_come_in_the_order_of_their_appends(bench: Bench, regions: tuple[Region, Region]) -> None:
    """A packed row, a row of objects and a batch, from both regions in turn."""
    lower, upper = regions
    put(upper, b"z", a=b"1")
    put(lower, b"a", a=b"1")
    put(upper, b"y", **dict.fromkeys("abcdef", b"1"))
    lower.batch([Put(row, (Cell(b"cf:a", 5, b"1"),)) for row in (b"c", b"b")])
    put(upper, b"x", a=b"1")
    expected = [b"z", b"a", *[b"y"] * 6, b"c", b"b", b"x"]
    assert rows(bench.wal.entries()) == expected
    assert rest(WalReader(bench.wal.files[-1])) == expected


def test_resumed_reader_neither_repeats_nor_skips_an_edit(bench: Bench, regions: tuple[Region, Region]) -> None:
    """A reader can stop after every entry; its position counts the bytes of the entries before."""
    for number in range(6):
        put(regions[number % 2], b"z%d" % number if number % 2 else b"a%d" % number, a=b"v" * number)
    file = bench.wal.files[-1]
    everything = list(bench.wal.entries())
    position = 0
    for index, entry in enumerate(everything):
        reader = WalReader(file, position)
        assert reader.read() == entry
        position += entry.size
        assert reader.position == position
        assert rest(reader) == rows(everything[index + 1 :])
    assert position == file.durable_size == file.size


@pytest.mark.parametrize("shift", [-1, 1])
def test_position_inside_of_an_entry_is_refused(bench: Bench, regions: tuple[Region, Region], shift: int) -> None:
    put(regions[0], b"a", a=b"1")
    file = bench.wal.files[-1]
    with pytest.raises(ValueError, match=f"cannot resume {file.name} at position"):
        WalReader(file, file.durable_size + shift)


def test_edit_that_is_not_durable_is_not_read_and_holds_back_the_later_ones(
    bench: Bench, regions: tuple[Region, Region]
) -> None:
    lower, upper = regions
    reader = WalReader(bench.wal.files[-1])
    rest(reader)
    seen: list[list[bytes]] = []
    file = bench.wal.files[-1]
    # The other region appends and syncs between the append and the sync of the first one.
    file.order = AfterAppend(file.order, lambda: (put(upper, b"z", a=b"1"), seen.append(rest(reader))))
    put(lower, b"a", a=b"1")
    assert seen == [[]], "z is durable, but a comes before it and is not"
    assert rest(reader) == [b"a", b"z"]


def test_asynchronous_edit_is_read_after_the_next_sync_of_any_region(
    bench: Bench, regions: tuple[Region, Region]
) -> None:
    lower, upper = regions
    reader = WalReader(bench.wal.files[-1])
    rest(reader)
    write(lower, b"a", Durability.ASYNC_WAL)
    before = bench.wal.files[-1].durable_size
    assert (reader.read(), reader.position) == (None, before)
    put(upper, b"z", a=b"1")
    assert rest(reader) == [b"a", b"z"]
    assert bench.wal.files[-1].durable_size > before


def test_edit_whose_sync_failed_does_not_block_the_readers_for_ever(
    bench: Bench, regions: tuple[Region, Region]
) -> None:
    lower, upper = regions
    reader = WalReader(bench.wal.files[-1])
    rest(reader)

    def fail() -> None:
        raise ServerStopped("disk full")

    bench.wal.before_sync = fail
    with pytest.raises(ServerStopped):
        put(lower, b"a", a=b"1")
    bench.wal.before_sync = None
    assert rest(reader) == []
    put(upper, b"z", a=b"1")
    assert rest(reader) == [b"a", b"z"]


def test_end_is_known_only_when_the_file_is_closed_and_read(bench: Bench, regions: tuple[Region, Region]) -> None:
    put(regions[0], b"a", a=b"1")
    file = bench.wal.files[-1]
    reader = WalReader(file)
    assert not reader.is_at_end
    rest(reader)
    assert not reader.is_at_end, "the file is open: more may come"
    bench.wal.roll()
    assert file.is_closed
    assert reader.is_at_end
    assert not WalReader(file).is_at_end
    regions[0].flush()
    regions[1].flush()
    bench.wal.roll()
    assert file in bench.filesystem.old_wals
    archived = WalReader(file, reader.position)
    assert (archived.read(), archived.is_at_end) == (None, True)


def test_crash_loses_the_same_edits_for_recovery_and_for_replication(
    bench: Bench, regions: tuple[Region, Region]
) -> None:
    """An edit that was lost between two durable ones takes no bytes, so positions before it stay valid."""
    lower, upper = regions
    put(lower, b"a", a=b"1")
    file = bench.wal.files[-1]
    position = file.durable_size

    def crash_later() -> None:
        bench.wal.before_sync = None
        put(upper, b"z", a=b"1")
        bench.wal.crash()

    file.order = AfterAppend(file.order, crash_later)
    with pytest.raises(ServerStopped):
        put(lower, b"b", a=b"1")
    reader = WalReader(file, position)
    assert not reader.is_at_end
    assert rest(reader) == [b"z"]
    assert reader.is_at_end
    assert len(file) == len(list(bench.wal.entries()))
    assert [rows(bench.wal.by_region()[info.encoded_name]) for info in (LOWER, UPPER)] == [[b"a"], [b"z"]]
    assert rows(bench.wal.entries_for(LOWER.encoded_name)) == [b"a"]


def test_reader_at_a_lost_tail_is_at_the_end(bench: Bench, regions: tuple[Region, Region]) -> None:
    put(regions[1], b"z", a=b"1")
    write(regions[0], b"a", Durability.ASYNC_WAL)
    reader = WalReader(bench.wal.files[-1])
    rest(reader)
    assert bench.wal.crash() == 1
    assert reader.is_at_end
    assert reader.position == bench.wal.files[-1].durable_size


def test_writer_that_wakes_up_after_a_crash_adds_nothing_to_the_file(
    bench: Bench, regions: tuple[Region, Region]
) -> None:
    """The log is fenced between the check for a closed log and the append: readers and recovery agree on the end."""
    file = bench.wal.files[-1]
    seen: list[WalReader] = []

    def fence() -> None:
        bench.wal.fence()
        seen.append(WalReader(file))
        rest(seen[0])
        assert seen[0].is_at_end

    file.order = BeforeAppend(file.order, fence)
    with pytest.raises(ServerStopped) as caught:
        put(regions[0], b"a", a=b"1")
    assert caught.value.may_have_applied
    assert (seen[0].read(), seen[0].is_at_end) == (None, True)
    assert b"a" not in rows(bench.wal.entries())
    assert values(bench.crash(LOWER), b"a") == {}


@pytest.mark.parametrize("when", [AfterAppend, BeforeAppend])
@pytest.mark.parametrize("cells", [1, 5])
def test_edit_that_meets_a_roll_is_in_one_file_only(
    bench: Bench, regions: tuple[Region, Region], cells: int, when: type[AfterAppend]
) -> None:
    """Appended before the roll it is in the old file, after the roll in the new one: replication ships it once."""
    wrote = dict.fromkeys("abcde"[:cells], b"1")
    old = bench.wal.files[-1]
    old.order = when(old.order, bench.wal.roll)
    put(regions[0], b"a", **wrote)
    assert len(bench.wal.files) == 2
    found = [file for file in bench.wal.files if b"a" in rows(_all(file))]
    assert found == [bench.wal.files[0 if when is AfterAppend else 1]]
    assert [file.size for file in bench.wal.files] == [file.durable_size for file in bench.wal.files]
    assert values(bench.crash(LOWER), b"a") == {f"cf:{letter}".encode(): b"1" for letter in wrote}


def _all(file: WalFile) -> list[WalEntry]:
    reader = WalReader(file)
    return list(iter(reader.read, None))


def test_reader_that_has_ended_a_file_misses_no_edit_that_meets_the_roll(
    bench: Bench, regions: tuple[Region, Region]
) -> None:
    """What comes after the end of the old file is in the new file."""
    old = bench.wal.files[-1]
    reader = WalReader(old)
    seen: list[bytes] = []

    def roll_and_read() -> None:
        bench.wal.roll()
        seen.extend(rest(reader))
        assert reader.is_at_end

    old.order = BeforeAppend(old.order, roll_and_read)
    put(regions[0], b"a", a=b"1")
    assert rest(reader) == []
    assert seen + rest(WalReader(bench.wal.files[-1])) == [b"a"]


def test_roll_announces_a_file_before_an_edit_is_in_it(bench: Bench, regions: tuple[Region, Region]) -> None:
    """A replication queue must know each file before a crash can leave data in it."""
    told: list[tuple[str, int]] = []

    def listen(file: WalFile) -> None:
        put(regions[0], b"a", a=b"1")
        told.append((file.name, len(file)))

    bench.wal.on_roll.append(listen)
    bench.wal.roll()
    assert told == [(bench.wal.files[-1].name, 0)]


def test_listener_that_fails_prevents_the_roll(bench: Bench, regions: tuple[Region, Region]) -> None:
    before = bench.wal.files

    def fail(file: WalFile) -> None:
        raise ServerStopped("no connection to ZooKeeper")

    bench.wal.on_roll.append(fail)
    with pytest.raises(ServerStopped, match="ZooKeeper"):
        bench.wal.roll()
    assert bench.wal.files is before
    put(regions[0], b"a", a=b"1")
    bench.wal.on_roll.remove(fail)
    bench.wal.roll()
    assert len(bench.wal.files) == 2


def test_files_that_are_made_in_one_millisecond_have_different_names() -> None:
    wal = Wal("rs1,16020,1700000000000", time_ms=lambda: 1700000000123)
    wal.roll()
    wal.roll()
    names = [file.name for file in wal.files]
    assert names[-1] == "rs1%2C16020%2C1700000000000.1700000000125"
    assert len(set(names)) == len(names)
    meta = Wal("rs1,16020,1700000000000.meta", time_ms=lambda: 7)
    assert meta.files[0].name == "rs1%2C16020%2C1700000000000.meta.7.meta"


def test_file_is_found_by_its_name_until_the_cleaner_deletes_it(bench: Bench, regions: tuple[Region, Region]) -> None:
    file, find = bench.wal.files[-1], bench.filesystem.find_wal_file
    found: list[WalFile | None] = [find(file.name)]
    bench.wal.roll()
    found.append(find(file.name))
    for region in regions:
        region.flush()
    bench.wal.on_roll.append(lambda made: found.append(find(file.name)))
    archive = bench.wal.on_archive
    assert archive is not None
    bench.wal.on_archive = lambda done: (found.append(find(file.name)), archive(done), found.append(find(file.name)))[1]
    bench.wal.roll()
    found.append(find(file.name))
    assert len(found) > 4
    assert set(found) == {file}
    bench.filesystem.clean_old_wals(0.0)
    bench.filesystem.clean_old_wals(701.0)
    assert find(file.name) is None


def test_empty_file_is_archived_and_not_dropped(bench: Bench) -> None:
    """A replication queue names it: a reader that does not find the file would wait for ever."""
    empty = bench.wal.files[-1]
    assert bench.wal.roll() == [empty]
    assert bench.filesystem.find_wal_file(empty.name) is empty
    assert bench.filesystem.old_wals == (empty,)
    assert WalReader(empty).is_at_end


def test_log_that_a_queue_needs_outlives_its_time(bench: Bench) -> None:
    """The question is asked once per cleaning, and only when a file's time is over."""
    file = bench.wal.files[-1]
    bench.wal.roll()
    needed, asked = {file.name}, []

    def needed_now() -> set[str]:
        asked.append(len(asked))
        return needed

    bench.filesystem.needed_wals = needed_now
    assert [bench.filesystem.clean_old_wals(now) for now in (0.0, 600.0)] == [0, 0]
    assert asked == []
    assert bench.filesystem.clean_old_wals(601.0) == 0
    assert (bench.filesystem.find_wal_file(file.name), asked) == (file, [0])
    needed.clear()
    assert bench.filesystem.clean_old_wals(602.0) == 1
    assert bench.filesystem.find_wal_file(file.name) is None


def test_log_whose_name_is_needed_is_kept_by_a_question_of_the_caller(bench: Bench) -> None:
    bench.wal.roll()
    bench.wal.roll()
    first, second = bench.filesystem.old_wals
    bench.filesystem.clean_old_wals(0.0)
    assert bench.filesystem.clean_old_wals(701.0, is_needed=lambda name: name == second.name) == 1
    assert bench.filesystem.old_wals == (second,)
    assert bench.filesystem.find_wal_file(first.name) is None


def test_file_of_a_roll_that_meets_the_recovery_is_closed_and_archived(
    bench: Bench, regions: tuple[Region, Region]
) -> None:
    """The log is fenced, split and deleted between the announcement of the new file and its first entry.

    A replication queue names the new file: it must be found, and its reader must come to the end.
    """

    def recover(made: WalFile) -> None:
        bench.wal.fence()
        bench.filesystem.delete_wal(bench.wal.name)

    old = bench.wal.files[-1]
    bench.wal.on_roll.append(recover)
    bench.wal.roll()
    made = bench.wal.files[-1]
    assert made is not old
    assert WalReader(made).is_at_end
    assert sorted(file.name for file in bench.filesystem.old_wals) == sorted([old.name, made.name])


def test_roll_that_meets_the_recovery_of_its_server_archives_each_file_once(
    bench: Bench, regions: tuple[Region, Region]
) -> None:
    for region in regions:
        put(region, region.info.start_key + b"a", a=b"1")
        region.flush()
    archive = bench.wal.on_archive
    assert archive is not None

    def recovered_meanwhile(file: WalFile) -> None:
        archive(file)
        bench.wal.fence()
        bench.filesystem.delete_wal(bench.wal.name)

    bench.wal.on_archive = recovered_meanwhile
    bench.wal.roll()
    names = [file.name for file in bench.filesystem.old_wals]
    assert len(names) == len(set(names)) == 2
    assert all(file.is_closed for file in bench.filesystem.old_wals)
