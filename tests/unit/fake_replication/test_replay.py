"""How a replica applies entries: the cases of HBase's TestHRegionReplayEvents that tests/unit/fake_storage lacks."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from metaclient.errors import CallTimeout, NotServingRegion, RequestRefused, Unsupported
from metaclient.model import LATEST_TIMESTAMP, Cell, Delete, Durability, Increment, Put, Scan
from metaclient.runtime import SimRuntime
from metaclient_fake.region_replication import GateState, ReadGate
from metaclient_fake.storage import FileSystem, FlushOutcome, Marker, MarkerKind, Region, WalEntry
from metaclient_fake.storage.mvcc import Mvcc
from metaclient_fake.storage.packed_row import PackedRow
from metaclient_fake.storage.wal import UNKNOWN_BYTES, LoggedEntry, row_key
from tests.unit.fake_replication.rig import FAMILIES, INFO, TABLE, RegionRig, edit
from tests.unit.fake_storage.bench import as_entry


@pytest.fixture
def rig(runtime: SimRuntime) -> RegionRig:
    made = RegionRig(runtime)
    made.deliver()
    return made


def _kinds(rig: RegionRig) -> list[MarkerKind]:
    return [entry.marker.kind for sent in rig.sent for entry in sent.batch.entries if entry.marker is not None]


def test_secondary_cannot_flush_and_closes_without_files(rig: RegionRig) -> None:
    """Nothing is written, and an unfinished flush holds nothing up."""
    replica = rig.copies[0].region
    rig.put(b"r")
    rig.deliver()
    rig.primary.flush()
    rig.copies[0].apply(1, rig.out()[0].batch.entries[:1], 1e9)
    assert replica.is_flushing
    assert replica.flush().outcome is FlushOutcome.CANNOT_FLUSH
    files = rig.filesystem.region(replica.info).all_files()
    replica.close()
    assert rig.filesystem.region(replica.info).all_files() == files


def test_data_stays_visible_through_start_commit_and_compaction(rig: RegionRig) -> None:
    """As HBase's testReplayFlushesAndCompactions: START sets aside, COMMIT frees, a compaction swaps files."""
    replica = rig.copies[0].region
    for number in range(4):
        rig.put(b"r", b"%d" % number)
        rig.deliver()
        rig.primary.flush()
        while rig.out():
            rig.deliver(1)
            assert rig.seen(b"r") == b"%d" % number
        assert replica.memstore_bytes == 0
    rig.primary.compact(major=True)
    rig.deliver()
    assert rig.seen(b"r") == b"3"
    assert replica.store_files == rig.primary.store_files


@pytest.mark.parametrize("offset", [0, -1, 5])
def test_second_start_is_ignored_whatever_its_number(rig: RegionRig, offset: int) -> None:
    """As HBase's testReplayFlushStartMarkers."""
    replica = rig.copies[0].region
    rig.put(b"r")
    rig.deliver()
    number = replica.last_replayed_sequence_id
    region = rig.primary.log.region
    first = edit(0)._replace(
        region=region, sequence_id=number + 2, rows=(), marker=Marker(MarkerKind.START_FLUSH, number + 1, FAMILIES)
    )
    replica.replay(first)
    before = replica.memstore_bytes
    second = first._replace(
        sequence_id=number + 9, marker=Marker(MarkerKind.START_FLUSH, number + 1 + offset, FAMILIES)
    )
    replica.replay(second)
    assert replica.is_flushing
    assert replica.memstore_bytes == before
    assert rig.seen(b"r") == b"1"


def test_open_marker_drops_a_pending_snapshot(rig: RegionRig) -> None:
    """As HBase's testReplayRegionOpenEvent..AfterFlushStart: files replace everything in memory."""
    replica = rig.copies[0].region
    rig.put(b"r")
    rig.deliver()
    rig.primary.flush()
    rig.copies[0].apply(1, rig.out()[0].batch.entries[:1], 1e9)
    rig.primary.close()
    rig.reopen_primary()
    rig.deliver()
    assert rig.seen(b"r") == b"1"
    assert replica.memstore_bytes == 0
    assert not replica.is_flushing


def test_close_and_abort_are_not_sent_at_all(rig: RegionRig) -> None:
    """The next REGION_OPEN marker makes up for them."""
    rig.put(b"r")
    rig.primary.close()
    assert MarkerKind.REGION_CLOSE not in _kinds(rig)


def test_entries_below_the_last_open_are_skipped(rig: RegionRig) -> None:
    """As HBase's testSkippingEditsWithSmallerSeqIdAfterRegionOpenEvent."""
    rig.put(b"r")
    old = rig.out()[0].batch.entries
    rig.primary.close()
    rig.reopen_primary()
    rig.deliver()
    before = rig.copies[0].region.memstore_bytes
    rig.copies[0].apply(rig.sink.epoch, old, 1e9)
    assert rig.copies[0].region.memstore_bytes == before


@pytest.mark.parametrize("kind", [MarkerKind.COMMIT_FLUSH, MarkerKind.COMPACTION, MarkerKind.REGION_OPEN])
def test_files_that_are_gone_already_are_no_matter(rig: RegionRig, kind: MarkerKind) -> None:
    """As HBase's TestHRegionReplayEvents, ..WithFileAlreadyDeleted: a marker's own list of files is not believed."""
    region, number = rig.primary.log.region, rig.copies[0].region.last_replayed_sequence_id
    gone = Marker(kind, number + 1, FAMILIES, ("deadbeef",))
    assert rig.copies[0].region.replay(edit(number + 2)._replace(region=region, rows=(), marker=gone))


def test_bulk_loaded_files_show(rig: RegionRig) -> None:
    """As HBase's testReplayBulkLoadEvent."""
    rig.primary.bulk_load({b"r": [Cell(b"f:q", 5, b"1"), Cell(b"g:q", 5, b"1")]})
    rig.deliver()
    assert rig.seen(b"r") == b"1"


def test_gate_opens_by_what_proves_that_nothing_is_missing_only() -> None:
    """A flush's end counts if its start was seen here."""
    families = frozenset(FAMILIES)

    def after(*markers: Marker) -> GateState:
        gate = ReadGate(families)
        for seen in markers:
            gate.observe(seen)
        return gate.state

    start, end = Marker(MarkerKind.START_FLUSH, 7, FAMILIES), Marker(MarkerKind.COMMIT_FLUSH, 7, FAMILIES)
    assert after(start) is GateState.STARTED
    assert after(start, end) is GateState.OPEN
    assert after(end) is GateState.WAITING
    assert after(start, Marker(MarkerKind.COMMIT_FLUSH, 3, FAMILIES)) is GateState.STARTED
    assert after(start, Marker(MarkerKind.COMMIT_FLUSH, 9, FAMILIES)) is GateState.OPEN
    assert after(Marker(MarkerKind.START_FLUSH, 7, (b"f",)), end) is GateState.WAITING
    assert after(Marker(MarkerKind.CANNOT_FLUSH)) is GateState.OPEN
    assert after(Marker(MarkerKind.REGION_OPEN, 1, FAMILIES)) is GateState.OPEN
    assert after(Marker(MarkerKind.COMPACTION), Marker(MarkerKind.BULK_LOAD)) is GateState.WAITING


def test_entries_of_another_region_are_refused(rig: RegionRig) -> None:
    """As RSRpcServices.replicateToReplica: entries for more than one region are refused."""
    with pytest.raises(NotServingRegion):
        rig.copies[0].apply(1, [edit(99)], 1e9)


def test_batch_waits_for_the_one_before_it_until_its_deadline_only(rig: RegionRig) -> None:
    """The wait for the replay lock is bounded by the call's deadline."""
    rig.put(b"r")
    entries = rig.out()[0].batch.entries
    rig.copies[0]._is_busy = True
    with pytest.raises(CallTimeout):
        rig.copies[0].apply(1, entries, rig.runtime.now() + 2)
    assert rig.runtime.now() == 2.0


def test_primary_refuses_batches_and_an_empty_one_is_fine(make: Callable[..., Any]) -> None:
    """As RSRpcServices.replicateToReplica of HBase."""
    world = make()
    world.create(b"t", copies=2)
    place = world.place(b"t")
    server = world.cluster.server_named(place.server)
    server.replication_host.replicate_to_replica(place.region_name, 1, [], 1e9)
    with pytest.raises(RequestRefused, match="primary"):
        server.replication_host.replicate_to_replica(place.region_name, 1, [edit(1)], 1e9)
    with pytest.raises(NotServingRegion):
        server.replication_host.replicate_to_replica(b"nowhere", 1, [edit(1)], 1e9)


def test_server_that_does_not_know_the_call_gets_replay_instead(make: Callable[..., Any]) -> None:
    """As HBase's TestFallbackToUseReplay."""
    world = make()
    for server in world.cluster.servers_by_host.values():
        server.knows_replicate_to_replica = False
    world.create(b"t", copies=2)
    world.put(b"t", b"r")
    world.runtime.sleep(0.5)
    assert world.value(b"t", b"r", replica_id=1) == b"1"
    with pytest.raises(Unsupported):
        server.replication_host.replicate_to_replica(world.place(b"t", b"", 1).region_name, 1, [edit(1)], 1e9)


# -- markers that come late, early or not at all ---------------------------------------------------------------


class Stream:
    """A primary whose entries reach its replica one by one, in the order and under the numbers that a test wants."""

    def __init__(self, runtime: SimRuntime) -> None:
        self.filesystem = FileSystem()
        self.wal = self.filesystem.create_wal("one")
        self.told: list[WalEntry] = []
        self.primary = Region.open(INFO, TABLE, self.filesystem, wal=self.wal, runtime=runtime, on_commit=self.hear)
        self.replica = Region.open(INFO.replica(1), TABLE, self.filesystem, wal=None, runtime=runtime)

    def hear(self, entry: LoggedEntry, sequence_id: int, size: int) -> None:
        now_ms = self.primary.time_ms() if isinstance(entry, PackedRow) else 0
        self.told.append(as_entry(entry, INFO, now_ms))

    def put(self, row: bytes) -> None:
        """Written, and replayed at once."""
        self.primary.mutate(Put(row, tuple(Cell(name + b":q", LATEST_TIMESTAMP, row) for name in FAMILIES)))
        assert self.replica.replay(self.told[-1])

    def flush(self) -> dict[MarkerKind, WalEntry]:
        """Flushed, and the replica hears nothing of it: its markers."""
        before = len(self.told)
        self.primary.flush()
        return {entry.marker.kind: entry for entry in self.told[before:] if entry.marker is not None}

    def replay_now(self, entry: WalEntry, flush_id: int | None = None) -> None:
        """Replay a marker after everything that was replayed, perhaps with another flush's number."""
        marker = entry.marker
        assert marker is not None
        if flush_id is not None:
            marker = replace(marker, flush_sequence_id=flush_id)
        number = self.primary.log.use_up()
        assert self.replica.replay(entry._replace(sequence_id=number, marker=marker))

    def shown(self) -> list[bytes]:
        return [row.row for row in self.replica.scanner(Scan()).next(100, 1 << 20)[0]]

    def catch_up(self) -> None:
        """One more flush, all of it heard: nothing is left in memory, whatever was before."""
        markers = self.flush()
        for entry in markers.values():
            self.replay_now(entry)
        assert self.replica.memstore_bytes == 0
        assert not self.replica.is_flushing
        assert self.shown() == [row.row for row in self.primary.scanner(Scan()).next(100, 1 << 20)[0]]


@pytest.fixture
def stream(runtime: SimRuntime) -> Stream:
    return Stream(runtime)


def test_end_of_an_older_flush_keeps_what_a_newer_one_has_set_aside(stream: Stream) -> None:
    """As HBase's TestHRegionReplayEvents, ..CommitMarkerSmallerThanFlushStartMarker: the file is loaded."""
    stream.put(b"a")
    older = stream.flush()
    stream.put(b"b")
    number = stream.replica.last_replayed_sequence_id
    stream.replay_now(older[MarkerKind.START_FLUSH], flush_id=number)
    held = stream.replica.memstore_bytes
    stream.replay_now(older[MarkerKind.COMMIT_FLUSH])
    assert stream.replica.store_files == stream.primary.store_files
    assert stream.replica.memstore_bytes == held
    assert stream.shown() == [b"a", b"b"]
    stream.put(b"c")
    for entry in stream.flush().values():
        stream.replay_now(entry)
    assert stream.shown() == [b"a", b"b", b"c"]
    stream.put(b"d")  # the old snapshot was in the way of c, which stays in memory until a flush sets it aside
    stream.catch_up()


def test_end_of_a_newer_flush_frees_the_snapshot_and_keeps_newer_edits(stream: Stream) -> None:
    """As HBase's TestHRegionReplayEvents, ..CommitMarkerLargerThanFlushStartMarker."""
    stream.put(b"a")
    older = stream.flush()
    stream.replay_now(older[MarkerKind.START_FLUSH])
    stream.put(b"b")
    newer = stream.flush()
    stream.put(b"c")
    held = stream.replica.memstore_bytes
    stream.replay_now(newer[MarkerKind.COMMIT_FLUSH])
    assert stream.replica.store_files == stream.primary.store_files
    assert 0 < stream.replica.memstore_bytes < held
    assert not stream.replica.is_flushing
    assert stream.shown() == [b"a", b"b", b"c"]
    stream.catch_up()


def test_end_of_a_flush_whose_start_was_lost_frees_memory_if_nothing_is_newer(stream: Stream) -> None:
    """As HBase's TestHRegionReplayEvents, ..WithoutFlushStartMarkerDroppableMemstore."""
    stream.put(b"a")
    stream.replay_now(stream.flush()[MarkerKind.COMMIT_FLUSH])
    assert stream.replica.memstore_bytes == 0
    assert stream.shown() == [b"a"]


def test_end_of_a_flush_whose_start_was_lost_keeps_memory_if_something_is_newer(stream: Stream) -> None:
    """As HBase's TestHRegionReplayEvents, ..WithoutFlushStartMarkerNonDroppableMemstore."""
    stream.put(b"a")
    lost = stream.flush()
    stream.put(b"b")
    held = stream.replica.memstore_bytes
    stream.replay_now(lost[MarkerKind.COMMIT_FLUSH])
    assert stream.replica.memstore_bytes == held
    assert stream.shown() == [b"a", b"b"]
    stream.catch_up()


def test_read_point_is_at_the_flush_after_its_end(stream: Stream) -> None:
    """As HBase's testReplayFlushSeqIds; ours goes on to the number of the marker itself."""
    stream.put(b"a")
    for entry in stream.flush().values():
        assert stream.replica.replay(entry)
        assert entry.marker is not None
        assert stream.replica.read_point == entry.sequence_id > entry.marker.flush_sequence_id
    assert stream.replica.read_point == stream.primary.read_point


@pytest.mark.parametrize("is_asked_for", [True, False])
def test_marker_of_an_empty_flush_is_logged_only_when_asked_for(stream: Stream, is_asked_for: bool) -> None:
    """As HBase's testWriteFlushRequestMarker; replicas are told either way (HBASE-26960)."""
    logged = len(list(stream.wal.entries()))
    result = stream.primary.flush(writes_marker=is_asked_for)
    assert (result.outcome, result.wrote_marker) == (FlushOutcome.CANNOT_FLUSH_EMPTY, is_asked_for)
    found = [entry.marker.kind for entry in list(stream.wal.entries())[logged:] if entry.marker is not None]
    assert found == [MarkerKind.CANNOT_FLUSH] * is_asked_for
    assert stream.told[-1].marker == Marker(MarkerKind.CANNOT_FLUSH, -1, stream.told[-1].marker.families)


def test_refresh_follows_no_files_many_files_and_compacted_ones_and_frees_memory(stream: Stream) -> None:
    """As HBase's testRefresStoreFiles."""
    assert stream.replica.refresh_store_files() is False
    assert stream.replica.store_files == 0
    for number in range(4):
        stream.put(b"%d" % number)
        stream.flush()
        assert stream.replica.memstore_bytes > 0
        assert stream.replica.refresh_store_files() is True
        assert stream.replica.memstore_bytes == 0
        assert stream.replica.store_files == stream.primary.store_files == (number + 1) * len(FAMILIES)
    stream.primary.compact(major=True)
    assert stream.replica.refresh_store_files() is False, "there was nothing in memory"
    assert stream.replica.store_files == stream.primary.store_files == len(FAMILIES)
    assert stream.shown() == [b"0", b"1", b"2", b"3"]


# -- the hand-over ---------------------------------------------------------------------------------------------


def test_entry_that_is_told_says_what_was_logged_and_knows_its_size(stream: Stream) -> None:
    """What skips the log is told with its bytes counted, too."""
    cells = tuple(Cell(name + b":q", LATEST_TIMESTAMP, b"value") for name in FAMILIES)
    stream.primary.mutate(Put(b"one", cells[:1]))
    stream.primary.mutate(Put(b"both", cells))
    stream.primary.mutate(Delete(b"one"))
    stream.primary.mutate(Increment(b"counter", ((b"f:n", 1),)))
    assert stream.told == list(stream.wal.entries())
    stream.primary.mutate(Put(b"quick", cells, durability=Durability.SKIP_WAL))
    stream.primary.batch([Put(b"quick", cells, durability=Durability.SKIP_WAL), Put(b"slow", cells)])
    assert [row_key(row) for row in stream.told[-1].rows] == [b"slow", b"slow", b"quick", b"quick"]
    for entry in stream.told[1:]:
        assert entry.cell_bytes == entry._replace(cell_bytes=UNKNOWN_BYTES).data_bytes > 0, entry


def test_hooks_run_in_sequence_order_whatever_is_completed_first() -> None:
    """A hook runs just before its sequence id becomes readable, and never before the hook of an older id."""
    mvcc = Mvcc()
    seen: list[tuple[int, int]] = []

    def hook(entry: str, number: int, size: int) -> None:
        seen.append((number, mvcc.read_point))

    first, second, third = mvcc.begin(), mvcc.begin(), mvcc.begin()
    mvcc.complete_and_tell(second, hook, "", 0)
    assert seen == []
    mvcc.complete_and_tell(first, hook, "", 0)
    mvcc.complete_and_tell(third, hook, "", 0)
    assert seen == [(first, 0), (second, first), (third, second)]
    assert mvcc.read_point == third
