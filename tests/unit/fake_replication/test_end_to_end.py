"""A primary and its replica, deliveries by hand.

Cases of HBase's TestReplicateToReplica and of TestRegionReplicationFor{FlushMarker,SkipWAL,WriteException}.
"""

from __future__ import annotations

from dataclasses import replace

import pytest

from metaclient.errors import RequestRefused, ServerStopped
from metaclient.model import Durability
from metaclient.runtime import SimRuntime
from metaclient_fake.storage import MarkerKind
from tests.unit.fake_replication.rig import RegionRig


@pytest.fixture
def rig(runtime: SimRuntime) -> RegionRig:
    made = RegionRig(runtime)
    made.deliver()
    return made


def _flush(rig: RegionRig) -> None:
    rig.primary.flush()
    rig.runtime.run_for(0)


def _same_memory(rig: RegionRig) -> bool:
    return rig.copies[0].region.memstore_bytes == rig.primary.memstore_bytes


def test_put_is_visible_after_one_delivery(rig: RegionRig) -> None:
    """As HBase's testNormalReplicate."""
    rig.put(b"r")
    assert rig.seen(b"r") is None
    rig.deliver(1)
    assert rig.seen(b"r") == b"1"


def test_edit_between_start_and_commit_survives_the_flush(rig: RegionRig) -> None:
    """As HBase's testNormalFlush."""
    rig.put(b"r")
    store = rig.primary.stores[0]
    made = store.flushed_file

    def write_inside(*args: object, **options: object) -> object:
        rig.put(b"s")
        return made(*args, **options)  # type: ignore[arg-type]  # passed on as they came

    store.flushed_file = write_inside  # type: ignore[method-assign,assignment]  # between the locks
    _flush(rig)
    rig.deliver()
    assert (rig.seen(b"r"), rig.seen(b"s")) == (b"1", b"1")
    assert _same_memory(rig)


def test_lost_put_costs_one_flush_which_brings_it(rig: RegionRig) -> None:
    """As HBase's testErrorBeforeFlushStart."""
    rig.put(b"r")
    rig.lose()
    assert rig.flushes == 1
    _flush(rig)
    rig.deliver()
    assert rig.seen(b"r") == b"1"
    assert _same_memory(rig)
    assert rig.sink.replicas()[0].lag_edits == 0


def test_everything_lost_after_the_start_comes_with_the_next_flush(rig: RegionRig) -> None:
    """As HBase's testErrorAfterFlushStartBeforeFlushCommit."""
    rig.put(b"a")
    rig.deliver()
    _flush(rig)
    start = next(sent for sent in rig.out())
    rig.copies[0].apply(1, start.batch.entries[:1], rig.runtime.now() + 1)
    rig.lose()
    rig.put(b"b")
    assert rig.seen(b"b") is None
    _flush(rig)
    rig.deliver()
    assert (rig.seen(b"a"), rig.seen(b"b")) == (b"1", b"1")
    assert rig.copies[0].region.memstore_bytes == 0


def test_flush_markers_lost_and_nothing_left_to_flush_still_delivers_the_row(rig: RegionRig) -> None:
    """As HBase's testCannotFlushMarker, testCatchUpWithCannotFlush."""
    rig.put(b"r")
    rig.lose()
    _flush(rig)
    rig.lose()
    assert rig.sink.failed_replicas == [1]
    rig.runtime.run_for(31)
    assert rig.flushes == 2, "asked again, after the interval"
    assert rig.primary.flush().reason == "the memstore is empty"
    assert rig.sink.failed_replicas == []
    rig.deliver()
    assert rig.seen(b"r") == b"1"


def test_reopened_primary_brings_what_was_lost(rig: RegionRig) -> None:
    """As HBase's testCatchUpWithReopen."""
    rig.put(b"r")
    rig.lose()
    rig.primary.close()
    assert rig.seen(b"r") is None
    rig.reopen_primary()
    rig.deliver()
    assert rig.seen(b"r") == b"1"


@pytest.mark.parametrize("durability", [Durability.SKIP_WAL, Durability.ASYNC_WAL])
def test_edits_that_skip_the_log_reach_the_replica(rig: RegionRig, durability: Durability) -> None:
    """As HBase's TestRegionReplicationForSkipWAL."""
    rig.put(b"r", durability=durability)
    rig.deliver()
    assert rig.seen(b"r") == b"1"


def test_put_whose_sync_failed_is_told_to_nobody(rig: RegionRig) -> None:
    """As HBase's TestRegionReplicationForWriteException, the part about the log."""
    rig.wal.fence()
    with pytest.raises(ServerStopped):
        rig.put(b"r")
    rig.deliver()
    assert rig.seen(b"r") is None


def test_numbers_that_a_dead_primary_used_up_do_not_hide_its_successors_edits(rig: RegionRig) -> None:
    """HBase skips the new primary's entries until their sequence ids have caught up."""
    rig.put(b"old")
    for _ in range(20):
        rig.put(b"lost", durability=Durability.SKIP_WAL)
    rig.deliver()
    assert rig.seen(b"lost") == b"1"
    recovered = rig.wal.entries_for(rig.primary.log.region)
    rig.wal.crash()
    rig.wal = rig.filesystem.create_wal("two")
    before = rig.copies[0].region.last_replayed_sequence_id
    rig.reopen_primary(recovered=recovered)
    assert rig.primary.read_point < before
    rig.put(b"new")
    rig.deliver()
    assert (rig.seen(b"old"), rig.seen(b"new"), rig.seen(b"lost")) == (b"1", b"1", None)


def test_batch_of_a_replaced_primary_is_refused(rig: RegionRig) -> None:
    """A zombie must not feed the replicas of its successor."""
    rig.put(b"r")
    late = rig.out()[0].batch
    rig.primary.close()
    rig.reopen_primary()
    rig.deliver()
    with pytest.raises(RequestRefused, match="replaced"):
        rig.copies[0].apply(late.epoch, late.entries, rig.runtime.now() + 1)


def test_late_batch_after_a_flush_changes_nothing(rig: RegionRig) -> None:
    """A hung replica wakes up and finds the old batch after the new one."""
    rig.put(b"r", b"1")
    late = rig.out()[0]
    late.fail()
    rig.put(b"r", b"2")
    _flush(rig)
    rig.deliver()
    rig.copies[0].apply(late.batch.epoch, late.batch.entries, rig.runtime.now() + 1)
    assert rig.seen(b"r") == b"2"
    assert rig.copies[0].entries_skipped == 1


@pytest.mark.parametrize("seed", range(20))
def test_replica_converges_whatever_is_lost(seed: int) -> None:
    """200 random steps with losses, flushes, compactions, reopened primaries and replicas; then one flush: equal."""
    with SimRuntime(seed=seed) as runtime:
        rig = RegionRig(runtime, replicas=2)
        rng = runtime.rng
        written: dict[bytes, bytes] = {}
        for number in range(200):
            chance = rng.random()
            if chance < 0.5:
                row = b"%d" % rng.randrange(20)
                rig.put(row, b"%d" % number)
                written[row] = b"%d" % number
            elif chance < 0.6:
                rig.primary.flush()
            elif chance < 0.63:
                rig.primary.compact(major=rng.random() < 0.5)
            elif chance < 0.66:
                rig.primary.close()
                rig.reopen_primary()
            elif chance < 0.7:
                which = rng.randrange(2)
                rig.copies[which] = rig.open_replica(which + 1)
                rig.sink.replica_opened(which + 1)
            elif chance < 0.8:
                rig.lose()
            else:
                rig.deliver(rng.randrange(5))
            for replica_id in (1, 2):
                for row in written:
                    rig.seen(row, replica_id)  # never half a row
        rig.deliver()
        rig.primary.flush()
        rig.deliver()
        for replica_id in (1, 2):
            assert {row: rig.seen(row, replica_id) for row in written} == written, f"seed {seed}"
            assert rig.copies[replica_id - 1].gate.is_open
        assert [replica.lag_edits for replica in rig.sink.replicas()] == [0, 0]
        assert rig.buffer.pending_bytes == 0 or rig.sink.pending_bytes == 0


def test_checker_fires_when_a_failed_replica_is_not_skipped(runtime: SimRuntime) -> None:
    """The checks above are worth something: a lost batch without a flush leaves the replica behind."""
    rig = RegionRig(runtime)
    rig.put(b"r")
    rig.lose()
    rig.put(b"s")
    rig.deliver()
    assert rig.seen(b"r") is None
    assert rig.sink.replicas()[0].lag_edits == 3  # the open marker, too


def test_markers_alone_are_sent_without_memstore_replication(runtime: SimRuntime) -> None:
    """As HBase's testRegionReplicaWithoutMemstoreReplication, at the sink."""
    rig = RegionRig(runtime)
    rig.sink.source = replace(rig.sink.source, replicates_data=False)
    rig.deliver()
    rig.put(b"r")
    assert rig.out() == []
    rig.primary.flush()
    assert rig.out()[0].batch.entries[0].marker is not None
    assert rig.out()[0].batch.entries[0].marker.kind is MarkerKind.START_FLUSH
    rig.deliver()
    assert rig.seen(b"r") == b"1"
