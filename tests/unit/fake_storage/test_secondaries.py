"""Replicas of a region: read-only, stale, fed by the primary's files and by replayed entries."""

from __future__ import annotations

import pytest

from metaclient.errors import NotServingRegion, ReadsDisabled, RequestRefused
from metaclient.model import Cell, Get, Put, Scan
from metaclient_fake.storage import FlushOutcome, MarkerKind, Region, WalEntry
from tests.unit.fake_storage.bench import INFO, Bench, put, scanned, values


class Pair:
    """A primary, its replica, and the entries that are on their way."""

    def __init__(self, bench: Bench) -> None:
        self.entries: list[WalEntry] = []
        self.primary: Region = bench.open(on_commit=self.entries.append)
        self.replica: Region = bench.open(INFO.replica(1))
        self.entries.clear()

    def deliver(self) -> None:
        for entry in self.entries:
            self.replica.replay(entry)
        self.entries.clear()

    def deliver_only(self, *kinds: MarkerKind) -> None:
        self.entries[:] = [entry for entry in self.entries if entry.marker and entry.marker.kind in kinds]
        self.deliver()


@pytest.fixture
def pair(bench: Bench) -> Pair:
    return Pair(bench)


def test_secondary_refuses_writes_flush_and_compaction(bench: Bench) -> None:
    replica = bench.open(INFO.replica(1))
    with pytest.raises(RequestRefused, match="read only"):
        put(replica, b"r", a=b"1")
    assert replica.flush().outcome is FlushOutcome.CANNOT_FLUSH
    assert replica.compact(major=True) is False


def test_results_of_a_secondary_are_stale_and_those_of_the_primary_are_not(bench: Bench) -> None:
    primary = bench.open()
    put(primary, b"r", a=b"1")
    primary.flush()
    replica = bench.open(INFO.replica(2))
    assert [result.is_stale for result in scanned(replica)] == [True]
    assert replica.get(Get(b"r")).is_stale
    assert replica.get(Get(b"none")).is_stale
    assert not primary.get(Get(b"r")).is_stale


def test_secondary_sees_flushed_rows_after_a_refresh_only(bench: Bench) -> None:
    primary, replica = bench.open(), bench.open(INFO.replica(1))
    put(primary, b"r", a=b"1")
    assert values(replica, b"r") == {}
    primary.flush()
    assert values(replica, b"r") == {}
    replica.refresh_store_files()
    assert values(replica, b"r") == {b"cf:a": b"1"}


def test_primary_is_not_refreshed(bench: Bench) -> None:
    assert bench.open().refresh_store_files() is False


def test_reads_disabled_refuses_gets_and_scans_until_enabled(bench: Bench) -> None:
    replica = bench.open(INFO.replica(1))
    replica.reads_enabled = False
    with pytest.raises(ReadsDisabled):
        replica.get(Get(b"r"))
    with pytest.raises(ReadsDisabled):
        replica.scanner(Scan())
    replica.reads_enabled = True
    assert values(replica, b"r") == {}


def test_replay_works_while_reads_are_disabled(pair: Pair) -> None:
    pair.replica.reads_enabled = False
    put(pair.primary, b"r", a=b"1")
    pair.deliver()
    pair.replica.reads_enabled = True
    assert values(pair.replica, b"r") == {b"cf:a": b"1"}


def test_secondary_writes_nothing_to_log_or_directory(bench: Bench) -> None:
    before = len(list(bench.wal.entries())), bench.filesystem.region(INFO).sequence_id
    replica = bench.open(INFO.replica(1))
    replica.close()
    assert (len(list(bench.wal.entries())), bench.filesystem.region(INFO).sequence_id) == before


def test_files_archived_by_a_compaction_stay_readable_on_a_secondary(bench: Bench) -> None:
    primary = bench.open()
    for index in range(3):
        put(primary, b"%d" % index, a=b"1")
        primary.flush()
    replica = bench.open(INFO.replica(1))
    primary.compact(major=True)
    assert len(scanned(replica)) == 3


def test_secondary_that_waits_longer_than_the_archive_loses_its_files(bench: Bench) -> None:
    primary = bench.open()
    put(primary, b"r", a=b"1")
    primary.flush()
    replica = bench.open(INFO.replica(1))
    put(primary, b"s", a=b"1")
    primary.flush()
    primary.compact(major=True)
    bench.filesystem.clean_archive(bench.runtime.now() + 301, 300)
    with pytest.raises(NotServingRegion):
        replica.get(Get(b"r"))
    replica.refresh_store_files()
    assert len(scanned(replica)) == 2


def test_entry_reaches_the_secondary_and_old_ones_are_skipped(pair: Pair) -> None:
    put(pair.primary, b"r", a=b"1")
    entry = pair.entries[0]
    assert pair.replica.replay(entry) is True
    assert pair.replica.replay(entry) is False
    assert values(pair.replica, b"r") == {b"cf:a": b"1"}
    assert pair.replica.memstore_bytes == pair.primary.memstore_bytes


def test_primary_does_not_take_replayed_entries(pair: Pair) -> None:
    put(pair.primary, b"r", a=b"1")
    with pytest.raises(RequestRefused):
        pair.primary.replay(pair.entries[0])


def test_edit_between_start_and_commit_of_a_flush_survives_on_the_secondary(bench: Bench, pair: Pair) -> None:
    put(pair.primary, b"r", a=b"1")
    made = pair.primary.stores[0].flushed_file

    def write_inside(*args: object, **options: object) -> object:
        put(pair.primary, b"s", a=b"2")
        return made(*args, **options)  # type: ignore[arg-type]  # passed on as they came

    pair.primary.stores[0].flushed_file = write_inside  # type: ignore[method-assign,assignment]  # between the locks
    pair.primary.flush()
    pair.deliver()
    assert (values(pair.replica, b"r"), values(pair.replica, b"s")) == ({b"cf:a": b"1"}, {b"cf:a": b"2"})
    assert pair.replica.memstore_bytes == pair.primary.memstore_bytes


def test_lost_edit_comes_with_the_flush_that_follows(pair: Pair) -> None:
    put(pair.primary, b"r", a=b"1")
    pair.entries.clear()
    pair.primary.flush()
    pair.deliver()
    assert values(pair.replica, b"r") == {b"cf:a": b"1"}
    assert pair.replica.memstore_bytes == 0


def test_commit_without_start_drops_memory_when_nothing_is_newer(pair: Pair) -> None:
    put(pair.primary, b"r", a=b"1")
    pair.deliver()
    pair.primary.flush()
    pair.deliver_only(MarkerKind.COMMIT_FLUSH)
    assert pair.replica.memstore_bytes == 0
    assert values(pair.replica, b"r") == {b"cf:a": b"1"}


def test_commit_without_start_keeps_memory_when_something_is_newer(pair: Pair) -> None:
    put(pair.primary, b"r", a=b"1")
    pair.deliver()
    pair.primary.flush()
    pair.entries.clear()
    put(pair.primary, b"s", a=b"2")
    pair.deliver()
    before = pair.replica.memstore_bytes
    pair.replica.refresh_store_files()
    assert pair.replica.memstore_bytes == before
    assert (values(pair.replica, b"r"), values(pair.replica, b"s")) == ({b"cf:a": b"1"}, {b"cf:a": b"2"})


def test_second_start_of_a_flush_is_ignored_and_the_first_kept(pair: Pair) -> None:
    put(pair.primary, b"r", a=b"1")
    pair.primary.flush()
    pair.deliver_only(MarkerKind.START_FLUSH)
    assert pair.replica.is_flushing
    put(pair.primary, b"s", a=b"2")
    pair.primary.flush()
    pair.deliver()
    assert not pair.replica.is_flushing
    assert (values(pair.replica, b"r"), values(pair.replica, b"s")) == ({b"cf:a": b"1"}, {b"cf:a": b"2"})


def test_cannot_flush_brings_what_lost_markers_did_not(pair: Pair) -> None:
    put(pair.primary, b"r", a=b"1")
    pair.primary.flush()
    pair.entries.clear()
    pair.primary.flush()
    pair.deliver()
    assert values(pair.replica, b"r") == {b"cf:a": b"1"}


def test_reopened_primary_brings_what_was_lost(bench: Bench, pair: Pair) -> None:
    put(pair.primary, b"r", a=b"1")
    pair.entries.clear()
    pair.primary.close()
    pair.deliver()
    assert values(pair.replica, b"r") == {}
    bench.open(on_commit=pair.entries.append)
    pair.deliver()
    assert values(pair.replica, b"r") == {b"cf:a": b"1"}


def test_unfinished_flush_of_the_primary_does_not_hold_up_closing(pair: Pair) -> None:
    put(pair.primary, b"r", a=b"1")
    pair.primary.flush()
    pair.deliver_only(MarkerKind.START_FLUSH)
    pair.replica.close()
    with pytest.raises(NotServingRegion):
        pair.replica.get(Get(b"r"))


def test_read_point_passes_the_flush_number_after_its_commit(pair: Pair) -> None:
    put(pair.primary, b"r", a=b"1")
    number = pair.primary.flush().sequence_id
    pair.deliver()
    assert pair.replica.read_point >= number
    assert pair.replica.last_replayed_sequence_id == pair.primary.read_point


def test_compaction_and_bulk_load_reach_the_secondary(pair: Pair) -> None:
    for index in range(3):
        put(pair.primary, b"%d" % index, a=b"1")
        pair.primary.flush()
    pair.primary.compact(major=True)
    pair.deliver()
    assert pair.replica.store_files == 1
    pair.primary.bulk_load({b"loaded": [Cell(b"cf:a", 5, b"1")]})
    pair.deliver()
    assert values(pair.replica, b"loaded") == {b"cf:a": b"1"}


def test_replica_shows_whole_entries_only(pair: Pair) -> None:
    scanner = pair.replica.scanner(Scan())
    pair.primary.mutate(Put(b"r", (Cell(b"cf:a", 5, b"1"), Cell(b"g:x", 5, b"2"))))
    pair.deliver()
    assert scanner.next(10, 1 << 20) == ([], True)
    assert len(scanned(pair.replica)[0].cells) == 2
