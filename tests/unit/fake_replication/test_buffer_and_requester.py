"""The buffer limit of a server and the flush requests of a sink.

Cases of HBase's TestRegionReplicationBufferManager and TestRegionReplicationFlushRequester, and more.
"""

from __future__ import annotations

from metaclient.runtime import SimRuntime
from metaclient_fake.region_replication import BufferManager, FlushRequester


def test_soft_limit_flushes_once_at_a_time_and_hard_limit_refuses(runtime: SimRuntime) -> None:
    """As HBase's testScheduleFlush, except for the choice of the biggest, which is the server's."""
    flushes: list[float] = []

    def flush() -> None:
        flushes.append(runtime.now())
        runtime.sleep(10)

    buffer = BufferManager(runtime, 80, 100, flush)
    assert buffer.reserve(80)
    runtime.run_for(1)
    assert flushes == []
    assert buffer.reserve(10)
    runtime.run_for(1)
    assert buffer.reserve(10), "at the limit is not over it"
    runtime.run_for(1)
    assert len(flushes) == 1, "while one runs, others are dropped"
    assert not buffer.reserve(1)
    assert buffer.pending_bytes == 100
    runtime.run_for(20)
    buffer.release(1)
    assert buffer.reserve(1)
    runtime.run_for(1)
    assert len(flushes) == 2


def _requester(runtime: SimRuntime, flushes: list[float], outcome: bool = True) -> FlushRequester:
    def flush() -> bool:
        flushes.append(runtime.now())
        return outcome

    return FlushRequester(runtime, flush, interval_s=30.0, gather_s=0.02)


def test_first_request_runs_at_once_the_next_after_the_interval(runtime: SimRuntime) -> None:
    """As HBase's testRequest."""
    flushes: list[float] = []
    requester = _requester(runtime, flushes)
    requester.request(1)
    runtime.run_for(5)
    requester.request(2)
    requester.request(3)
    runtime.run_for(100)
    assert flushes == [0.0, 30.0]
    requester.request(4)
    runtime.run_for(1)
    assert flushes == [0.0, 30.0, 105.0]


def test_flush_that_covers_the_request_cancels_it(runtime: SimRuntime) -> None:
    """As HBase's testCancelFlushRequest."""
    flushes: list[float] = []
    requester = _requester(runtime, flushes)
    requester.request(1)
    requester.request(100)
    requester.record(50)
    runtime.run_for(10)
    requester.record(100)
    runtime.run_for(100)
    assert flushes == [0.0]


def test_flush_that_does_not_cover_the_request_leaves_it(runtime: SimRuntime) -> None:
    flushes: list[float] = []
    requester = _requester(runtime, flushes)
    requester.request(1)
    requester.request(100)
    requester.record(50)
    runtime.run_for(100)
    assert flushes == [0.0, 30.0]


def test_replicas_that_open_together_share_one_flush(runtime: SimRuntime) -> None:
    """1 primary and 4 replicas, 1 flush."""
    flushes: list[float] = []
    requester = _requester(runtime, flushes)
    for _ in range(4):
        requester.request_for_open()
        runtime.run_for(0.004)
    runtime.run_for(100)
    assert len(flushes) == 1
    requester.request_for_open()
    runtime.run_for(0.1)
    assert len(flushes) == 2, "the interval is not for those who open"


def test_flush_that_could_not_run_is_tried_again(runtime: SimRuntime) -> None:
    """HBase's RegionReplicationFlushRequester does not retry: the replica then waits for the next full flush."""
    flushes: list[float] = []
    _requester(runtime, flushes, outcome=False).request(1)
    runtime.run_for(65)
    assert flushes == [0.0, 30.0, 60.0]


def test_stopped_requester_asks_for_nothing_more(runtime: SimRuntime) -> None:
    flushes: list[float] = []
    requester = _requester(runtime, flushes)
    requester.request(1)
    requester.request(2)
    requester.request_for_open()
    runtime.run_for(0)
    requester.stop()
    requester.request(3)
    runtime.run_for(100)
    assert flushes == [0.0]


class Held:
    """A sink that holds some bytes, of which some are on their way."""

    def __init__(self, buffer: BufferManager, size: int, in_flight: int = 0) -> None:
        assert buffer.reserve(size)
        self._buffer = buffer
        self.droppable_bytes = size - in_flight
        self.gave_way = 0

    def give_way(self, size: int) -> None:
        self.gave_way += 1
        self._buffer.release(self.droppable_bytes)
        self.droppable_bytes = 0


def test_room_is_made_by_those_that_hold_most_and_by_no_more_than_it_takes(runtime: SimRuntime) -> None:
    holders: list[Held] = []
    buffer = BufferManager(runtime, 1000, 1000, lambda: None, lambda: holders)
    small, big, middle = (Held(buffer, size) for size in (100, 500, 400))
    holders += [small, big, middle]
    buffer.make_room(100)
    assert (small.gave_way, big.gave_way, middle.gave_way) == (0, 1, 0)
    buffer.make_room(800)
    assert (small.gave_way, big.gave_way, middle.gave_way) == (0, 1, 1)
    buffer.make_room(10_000)
    assert (small.gave_way, big.gave_way, middle.gave_way) == (1, 1, 1)
    buffer.make_room(10_000)
    assert small.gave_way == 1, "nobody gives way for nothing"


def test_sink_whose_bytes_are_all_on_their_way_does_not_give_way(runtime: SimRuntime) -> None:
    """Failing its replicas would free nothing."""
    holders: list[Held] = []
    buffer = BufferManager(runtime, 1000, 1000, lambda: None, lambda: holders)
    sending, queueing = Held(buffer, 700, in_flight=700), Held(buffer, 300)
    holders += [sending, queueing]
    buffer.make_room(200)
    assert (sending.gave_way, queueing.gave_way) == (0, 1)
