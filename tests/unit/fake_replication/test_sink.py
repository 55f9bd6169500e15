"""The sink, its batches answered by hand: the cases of HBase's TestRegionReplicationSink, and more."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from metaclient.errors import NotServingRegion
from metaclient.runtime import SimRuntime
from metaclient_fake.region_replication import SinkState
from metaclient_fake.storage import MarkerKind
from tests.unit.fake_replication.rig import SinkRig, edit, marker, start_flush

BOTH = [True, False]


@pytest.mark.parametrize("lock_step", BOTH)
def test_memory_is_held_until_both_replicas_have_answered(runtime: SimRuntime, lock_step: bool) -> None:
    """As HBase's testNormal."""
    rig = SinkRig(runtime, lock_step=lock_step)
    rig.add(edit(1, 1000))
    assert [(sent.replica_id, sent.numbers) for sent in rig.out()] == [(1, [1]), (2, [1])]
    size = rig.sink.pending_bytes
    assert size > 1000
    rig.sent[0].succeed()
    assert rig.sink.pending_bytes == size <= rig.buffer.pending_bytes
    rig.sent[1].succeed()
    assert (rig.sink.pending_bytes, rig.buffer.pending_bytes) == (0, 0)


@pytest.mark.parametrize("lock_step", BOTH)
def test_edit_over_the_limit_drops_the_queue_and_fails_all_but_keeps_what_is_in_flight(
    runtime: SimRuntime, lock_step: bool
) -> None:
    """As HBase's testDropEdits."""
    rig = SinkRig(runtime, lock_step=lock_step, buffer_bytes=4000)
    rig.add(edit(1, 1000))
    in_flight = rig.sink.pending_bytes
    rig.add(edit(2, 1000), edit(3, 2000))
    assert rig.sink.pending_bytes == in_flight
    assert rig.sink.failed_replicas == [1, 2]
    assert rig.flushes == 1
    rig.settle()
    rig.add(edit(4))
    assert (rig.buffer.pending_bytes, rig.out()) == (0, [])
    assert [replica.edits_dropped for replica in rig.sink.replicas()] == [4, 4]


def test_replica_that_is_furthest_behind_pays_for_the_limit_alone(runtime: SimRuntime) -> None:
    """Own pace: the healthy one goes on where HBase would fail both."""
    rig = SinkRig(runtime, buffer_bytes=4000)
    for number in range(1, 20):
        rig.add(edit(number, 500))
        for sent in rig.out(2):
            sent.succeed()
        assert rig.buffer.pending_bytes <= 4000
    assert rig.sink.failed_replicas == [1]
    assert rig.flushes == 1
    assert rig.sink.replicas()[1].lag_edits == 0


@pytest.mark.parametrize("lock_step", BOTH)
def test_failure_of_a_batch_that_a_later_flush_covers_fails_nobody(runtime: SimRuntime, lock_step: bool) -> None:
    """As HBase's testNotAddToFailedReplicas: the flush has number 2, the batch number 1."""
    rig = SinkRig(runtime, lock_step=lock_step)
    rig.add(edit(1), start_flush(3, 2))
    first, second = rig.out(1)[0], rig.out(2)[0]
    first.succeed()
    second.fail()
    assert rig.sink.failed_replicas == []
    assert [(sent.replica_id, sent.numbers) for sent in rig.out()] == [(1, [3]), (2, [3])]
    assert rig.flushes == 0


@pytest.mark.parametrize("lock_step", BOTH)
def test_failed_replica_is_skipped_until_a_flush_of_all_families_starts(runtime: SimRuntime, lock_step: bool) -> None:
    """As HBase's testAddToFailedReplica."""
    rig = SinkRig(runtime, lock_step=lock_step)
    rig.add(edit(1))
    rig.out(1)[0].succeed()
    rig.out(2)[0].fail()
    runtime.run_for(0)
    assert (rig.sink.failed_replicas, rig.flushes) == ([2], 1)
    rig.add(edit(2))
    assert [sent.replica_id for sent in rig.out()] == [1]
    rig.settle()
    rig.add(start_flush(4, 3, (b"f",)))
    assert rig.sink.failed_replicas == [2], "some families are not all"
    rig.settle()
    rig.add(start_flush(6, 5))
    assert rig.sink.failed_replicas == []
    assert [sent.replica_id for sent in rig.out()] == [1, 2]


@pytest.mark.parametrize("lock_step", BOTH)
def test_when_all_replicas_failed_nothing_is_buffered_and_a_flush_brings_all_back(
    runtime: SimRuntime, lock_step: bool
) -> None:
    """As HBase's testAllReplicaFailed."""
    rig = SinkRig(runtime, lock_step=lock_step)
    rig.add(edit(1), edit(2))
    for sent in rig.out():
        sent.fail()
    rig.add(edit(3))
    assert rig.out() == []
    assert (rig.sink.failed_replicas, rig.sink.pending_bytes, rig.buffer.pending_bytes) == ([1, 2], 0, 0)
    rig.add(start_flush(5))
    assert [sent.numbers for sent in rig.out()] == [[5], [5]]
    rig.settle()
    assert (rig.sink.pending_bytes, rig.buffer.pending_bytes) == (0, 0)


def test_batch_ends_with_the_edit_that_crosses_the_size_limit(runtime: SimRuntime) -> None:
    """As HBase's testSizeCapacity: 600, 1200 and 1800 KB with 1 MiB a batch."""
    rig = SinkRig(runtime, replicas=1)
    rig.add(*(edit(number, number * 600_000) for number in (1, 2, 3)))
    rig.settle()
    assert [sent.numbers for sent in rig.sent] == [[1], [2], [3]]


def test_batch_ends_at_the_count_limit(runtime: SimRuntime) -> None:
    """As HBase's testCountCapacity: seven edits, five a batch; the first went alone."""
    rig = SinkRig(runtime, replicas=1, batch_entries=5)
    rig.add(*(edit(number) for number in range(1, 8)))
    rig.settle()
    assert [sent.numbers for sent in rig.sent] == [[1], [2, 3, 4, 5, 6], [7]]


@pytest.mark.parametrize("kind", [MarkerKind.START_FLUSH, MarkerKind.CANNOT_FLUSH])
def test_late_failure_after_a_flush_started_leaves_the_replica_healthy(runtime: SimRuntime, kind: MarkerKind) -> None:
    """As HBase's TestRegionReplicationSinkCallbackAndFlushConcurrently; for CANNOT_FLUSH HBase fails it once more."""
    rig = SinkRig(runtime, replicas=1)
    rig.add(edit(1))
    late = rig.out()[0]
    rig.add(start_flush(3) if kind is MarkerKind.START_FLUSH else marker(3, kind))
    late.fail()
    assert rig.sink.failed_replicas == []
    assert [sent.numbers for sent in rig.out()] == [[3]]


def test_lost_flush_start_fails_the_replica_again(runtime: SimRuntime) -> None:
    """The marker's own sequence id is higher than that of the flush."""
    rig = SinkRig(runtime, replicas=1)
    rig.add(start_flush(3, 2))
    rig.out()[0].fail()
    assert rig.sink.failed_replicas == [1]


def test_hung_replica_does_not_hold_up_the_other(runtime: SimRuntime) -> None:
    """A queue for each replica, each at its own pace."""
    rig = SinkRig(runtime)
    for number in range(1, 50):
        rig.add(edit(number))
        for sent in rig.out(2):
            sent.succeed()
    assert rig.sink.replicas()[1].lag_edits == 0
    assert rig.sink.replicas()[0].lag_edits == 49
    assert [sent.numbers for sent in rig.out()] == [[1]]


def test_lock_step_waits_for_the_slowest(runtime: SimRuntime) -> None:
    """As HBase's RegionReplicationSink.send does: the setting exists for comparison."""
    rig = SinkRig(runtime, lock_step=True)
    rig.add(edit(1), edit(2))
    rig.out(2)[0].succeed()
    assert [sent.numbers for sent in rig.out()] == [[1]]
    rig.out(1)[0].succeed()
    assert [sent.numbers for sent in rig.out()] == [[2], [2]]


def test_flush_start_keeps_the_short_queue_of_a_healthy_replica(runtime: SimRuntime) -> None:
    """Ours: it is about to be up to date; HBase would open a gap until the flush ends."""
    rig = SinkRig(runtime, replicas=1)
    rig.add(edit(1), edit(2), start_flush(4), edit(5))
    rig.settle()
    assert [sent.numbers for sent in rig.sent] == [[1], [2, 4, 5]]


def test_flush_start_empties_long_queues(runtime: SimRuntime) -> None:
    """The queue is reset when flush events are queued; it is what the soft limit relies on."""
    rig = SinkRig(runtime, replicas=1, batch_entries=3)
    rig.add(*(edit(number) for number in range(1, 9)))
    rig.add(start_flush(10))
    rig.settle()
    assert [sent.numbers for sent in rig.sent] == [[1], [10]]
    assert rig.sink.replicas()[0].lag_edits > 0, "only the end of the flush brings what was dropped"
    rig.add(marker(11, MarkerKind.COMMIT_FLUSH, 9))
    rig.settle()
    assert rig.sink.replicas()[0].lag_edits == 0
    assert rig.buffer.pending_bytes == 0


def test_replica_that_is_not_online_asks_by_itself_so_no_flush_at_once(runtime: SimRuntime) -> None:
    """It requests a flush of the primary itself when it opens again."""
    rig = SinkRig(runtime, replicas=1)
    rig.add(edit(1))
    rig.out()[0].fail(NotServingRegion("closed"))
    runtime.run_for(1)
    assert rig.flushes == 0
    runtime.run_for(30)
    assert rig.flushes == 1, "but it is not forgotten either"


def test_closing_frees_memory_refuses_edits_and_does_not_wait(runtime: SimRuntime) -> None:
    """Unlike HBase, closing does not wait for the batch in flight; late responses only release its memory."""
    rig = SinkRig(runtime)
    rig.add(edit(1, 100), edit(2, 100))
    size_in_flight = rig.sent[0].batch.size
    rig.sink.stop()
    assert rig.sink.state is SinkState.STOPPING
    assert rig.sink.pending_bytes <= 2 * size_in_flight
    rig.add(edit(3))
    assert not rig.sink.wait_until_stopped(runtime.now() + 5)
    rig.out()[0].fail()
    rig.out()[0].succeed()
    assert rig.sink.state is SinkState.STOPPED
    assert (rig.buffer.pending_bytes, rig.flushes, len(rig.sent)) == (0, 0, 2)


def test_number_of_replicas_follows_the_table_at_the_next_flush(runtime: SimRuntime) -> None:
    """The number of replicas is read again at each flush of all families (HBASE-18070)."""
    rig = SinkRig(runtime, replicas=1)
    rig.replicas = 3
    rig.add(start_flush(2))
    assert sorted(sent.replica_id for sent in rig.out()) == [1, 2, 3]
    rig.settle()
    rig.replicas = 2
    rig.add(start_flush(5))
    assert sorted(sent.replica_id for sent in rig.out()) == [1, 2]
    rig.settle()
    assert rig.buffer.pending_bytes == 0


def test_opened_replica_gets_the_marker_though_an_old_batch_still_hangs(runtime: SimRuntime) -> None:
    rig = SinkRig(runtime, replicas=1)
    rig.add(edit(1))
    rig.sink.replica_opened(1)
    runtime.run_for(1)
    assert rig.flushes == 1
    rig.add(marker(2, MarkerKind.CANNOT_FLUSH))
    assert [sent.numbers for sent in rig.out()] == [[1], [2]]
    rig.out()[1].succeed()
    rig.out()[0].fail()
    assert rig.sink.failed_replicas == []
    assert (rig.sink.replicas()[0].lag_edits, rig.buffer.pending_bytes) == (0, 0)


def test_random_answers_keep_the_accounts_straight(runtime: SimRuntime) -> None:
    """2,000 random steps: the total is never over the limit, never negative, and 0 when all is answered."""
    rig = SinkRig(runtime, replicas=3, buffer_bytes=20_000, batch_entries=4)
    number = 0
    for _ in range(2000):
        number += 2
        chance = runtime.rng.random()
        if chance < 0.6:
            rig.add(edit(number, runtime.rng.randrange(1500)))
        elif chance < 0.65:
            rig.add(start_flush(number), marker(number + 1, MarkerKind.COMMIT_FLUSH, number - 1))
            number += 1
        elif rig.out():
            sent = runtime.rng.choice(rig.out())
            sent.succeed() if runtime.rng.random() < 0.8 else sent.fail()
        assert 0 <= rig.buffer.pending_bytes <= 20_000
        assert 0 <= rig.buffer.pending_bytes - rig.sink.pending_bytes <= 20_000 // 1024, "but for a little credit"
    rig.settle()
    assert rig.buffer.pending_bytes == 0


def test_batch_takes_what_came_since_it_was_made_when_it_is_carried(runtime: SimRuntime) -> None:
    """Its limits hold, and what is in it is neither sent again nor forgotten."""
    rig = SinkRig(runtime, replicas=1, batch_entries=3)
    rig.add(edit(1, 100))
    size = rig.sink.pending_bytes
    rig.add(*(edit(number, 100) for number in range(2, 6)))
    first = rig.out()[0]
    rig.sink.fill(first.batch)
    assert first.numbers == [1, 2, 3]
    assert (first.batch.size, first.batch.end) == (3 * size, 3)
    rig.sink.fill(first.batch)
    assert first.numbers == [1, 2, 3], "it is full"
    first.succeed()
    rig.sink.fill(rig.out()[0].batch)
    assert [sent.numbers for sent in rig.out()] == [[4, 5]]
    rig.settle()
    assert (rig.sink.replicas()[0].lag_edits, rig.buffer.pending_bytes) == (0, 0)


def test_batch_that_grows_stops_at_its_bytes(runtime: SimRuntime) -> None:
    rig = SinkRig(runtime, replicas=1, batch_bytes=1000)
    rig.add(*(edit(number, 600) for number in range(1, 5)))
    batch = rig.out()[0].batch
    rig.sink.fill(batch)
    assert rig.out()[0].numbers == [1, 2], "the one that crosses the limit is the last"
    rig.sink.fill(batch)
    assert rig.out()[0].numbers == [1, 2]


@pytest.mark.parametrize(
    ("happens", "settings"),
    [
        (lambda rig: rig.add(start_flush(3)), {}),  # a marker has longer timeouts than this batch
        (lambda rig: rig.sink.replica_opened(1), {}),  # the queue has failed: the batch is an orphan
        (lambda rig: rig.sink.stop(), {}),
        (lambda rig: None, {"lock_step": True}),  # each batch is the same for all
    ],
)
def test_batch_that_may_not_grow_stays_as_it_is(
    runtime: SimRuntime, happens: Callable[[SinkRig], None], settings: dict[str, object]
) -> None:
    rig = SinkRig(runtime, replicas=1, **settings)
    rig.add(edit(1), edit(2))
    sent = rig.out()[0]
    happens(rig)
    rig.sink.fill(sent.batch)
    assert sent.numbers == [1]
    rig.settle()
    assert rig.buffer.pending_bytes == 0


def test_failed_batch_that_had_grown_is_dropped_whole(runtime: SimRuntime) -> None:
    rig = SinkRig(runtime, replicas=1)
    rig.add(edit(1), edit(2))
    sent = rig.out()[0]
    rig.sink.fill(sent.batch)
    rig.add(edit(3))
    sent.fail()
    replica = rig.sink.replicas()[0]
    assert (replica.state, replica.edits_dropped, replica.lag_edits) == ("failed", 3, 3)
    assert rig.buffer.pending_bytes == 0
