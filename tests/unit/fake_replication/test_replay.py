"""What a replica makes of entries (server.md 9, rows 23 to 41, as far as tests/unit/fake_storage has not got them)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from adapters.fake.replication import GateState, ReadGate
from adapters.fake.storage import FlushOutcome, Marker, MarkerKind
from metaclient.errors import CallTimeout, NotServingRegion, RequestRefused, Unsupported
from metaclient.model import Cell
from metaclient.runtime import SimRuntime
from tests.unit.fake_replication.rig import FAMILIES, RegionRig, edit


@pytest.fixture
def rig(runtime: SimRuntime) -> RegionRig:
    made = RegionRig(runtime)
    made.deliver()
    return made


def _kinds(rig: RegionRig) -> list[MarkerKind]:
    return [entry.marker.kind for sent in rig.sent for entry in sent.batch.entries if entry.marker is not None]


def test_secondary_cannot_flush_and_closes_without_files(rig: RegionRig) -> None:
    """Rows 23 and 24: nothing is written, and an unfinished flush holds nothing up."""
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
    """Row 25 (testReplayFlushesAndCompactions): START sets aside, COMMIT frees, a compaction swaps files."""
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
    """Row 26 (testReplayFlushStartMarkers)."""
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
    """Rows 31 and 32 (testReplayRegionOpenEvent..AfterFlushStart): files replace everything in memory."""
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
    """server.md 1.3: the next open makes up for them."""
    rig.put(b"r")
    rig.primary.close()
    assert MarkerKind.REGION_CLOSE not in _kinds(rig)


def test_entries_below_the_last_open_are_skipped(rig: RegionRig) -> None:
    """Row 33 (testSkippingEditsWithSmallerSeqIdAfterRegionOpenEvent)."""
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
    """Row 41 (..WithFileAlreadyDeleted): a marker's own list of files is not believed."""
    region, number = rig.primary.log.region, rig.copies[0].region.last_replayed_sequence_id
    gone = Marker(kind, number + 1, FAMILIES, ("deadbeef",))
    assert rig.copies[0].region.replay(edit(number + 2)._replace(region=region, rows=(), marker=gone))


def test_bulk_loaded_files_show(rig: RegionRig) -> None:
    """Row 40 (testReplayBulkLoadEvent)."""
    rig.primary.bulk_load({b"r": [Cell(b"f:q", 5, b"1"), Cell(b"g:q", 5, b"1")]})
    rig.deliver()
    assert rig.seen(b"r") == b"1"


def test_gate_opens_by_what_proves_that_nothing_is_missing_only() -> None:
    """Row 38, for our way: a flush's end counts if its start was seen here."""
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
    """server.md 2.9: entries for more than one region."""
    with pytest.raises(NotServingRegion):
        rig.copies[0].apply(1, [edit(99)], 1e9)


def test_batch_waits_for_the_one_before_it_until_its_deadline_only(rig: RegionRig) -> None:
    """server.md 3.3: the replay lock, bounded by the call's deadline."""
    rig.put(b"r")
    entries = rig.out()[0].batch.entries
    rig.copies[0]._is_busy = True
    with pytest.raises(CallTimeout):
        rig.copies[0].apply(1, entries, rig.runtime.now() + 2)
    assert rig.runtime.now() == 2.0


def test_primary_refuses_batches_and_an_empty_one_is_fine(make: Callable[..., Any]) -> None:
    """server.md 2.9."""
    world = make()
    world.create(b"t", copies=2)
    place = world.place(b"t")
    server = world.cluster.server_named(place.server)
    server.replicate_to_replica(place.region_name, 1, [], 1e9)
    with pytest.raises(RequestRefused, match="primary"):
        server.replicate_to_replica(place.region_name, 1, [edit(1)], 1e9)
    with pytest.raises(NotServingRegion):
        server.replicate_to_replica(b"nowhere", 1, [edit(1)], 1e9)


def test_server_that_does_not_know_the_call_gets_replay_instead(make: Callable[..., Any]) -> None:
    """Row 16 (TestFallbackToUseReplay)."""
    world = make()
    for server in world.cluster.servers_by_host.values():
        server.knows_replicate_to_replica = False
    world.create(b"t", copies=2)
    world.put(b"t", b"r")
    world.runtime.sleep(0.5)
    assert world.value(b"t", b"r", replica_id=1) == b"1"
    with pytest.raises(Unsupported):
        server.replicate_to_replica(world.place(b"t", b"", 1).region_name, 1, [edit(1)], 1e9)
