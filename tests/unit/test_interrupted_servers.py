"""An interrupt at each instant of a call on the in-process fake, whose servers run in the caller's thread.

Python runs signal handlers where a function begins and where a C function has returned. A profile function sees the
same instants, so each of them is tried once, in order. Time is virtual: a server that restarts takes none.
"""

from __future__ import annotations

import gc
import sys
from collections.abc import Callable, Iterator
from functools import partial
from itertools import count
from types import FrameType

import greenlet
import pytest

from metaclient import Table
from metaclient.meta.stale import StaleRanges
from metaclient.model import RegionInfo
from metaclient.runtime import SimRuntime
from metaclient_fake import FakeCluster

# An interrupt in a generator that is being closed is swallowed and reported by Python itself.
pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")

ROWS = [b"r%03d" % number for number in range(4)]
CELLS = [b"cf:a", b"cf:b", b"cf:n"]
#: Of two interrupts, the first comes at every third instant, and the second this many functions later.
STRIDE = 3
AGAIN = (1, 2, 3, 5, 9, 17)


class Interrupted(BaseException):
    """What the signal handler raises."""


class Interrupt:
    """Raises Interrupted at one instant of a call, and once more at the ``again``-th function that begins after it.

    Python removes a profile function that raises, so a trace function makes the second interrupt. CPython 3.11 calls
    it by a borrowed pointer, so the object keeps it alive, and no garbage is collected while the call runs: finalizers
    are calls that no one counted.
    """

    def __init__(self, instant: int, again: int = 0) -> None:
        self.left = instant
        self.again = again
        self.tracer = self.trace
        self.caller = greenlet.getcurrent()  # simulated servers have greenlets of their own

    def __call__(self, frame: FrameType, event: str, argument: object) -> None:
        if event not in ("call", "c_return") or greenlet.getcurrent() is not self.caller:
            return
        if not frame.f_globals["__name__"].startswith("metaclient.runtime"):
            self.left -= 1
            if self.left == 0:
                sys.setprofile(None)
                raise Interrupted

    def trace(self, frame: FrameType, event: str, argument: object) -> None:
        if self.left > 0 or self.again == 0 or greenlet.getcurrent() is not self.caller:
            return
        if not frame.f_globals["__name__"].startswith("metaclient.runtime"):
            self.again -= 1
            if self.again == 0:
                raise Interrupted

    def during(self, call: Callable[[], object]) -> bool:
        """Return whether the call was interrupted; False when it had fewer instants."""
        before = sys.gettrace()
        gc.disable()
        try:
            if self.again:
                sys.settrace(self.tracer)
            sys.setprofile(self)
            call()
        except Interrupted:
            return True
        finally:
            sys.setprofile(None)
            sys.settrace(before)
            gc.enable()
        return False


@pytest.fixture
def cluster() -> Iterator[FakeCluster]:
    with SimRuntime() as runtime, FakeCluster(servers=2, meta_replicas=2, runtime=runtime) as made:
        with made.connect() as connection:
            connection.create_table("t", {"cf": {"max_versions": 1}}, region_replication=2)
        yield made


Value = dict[bytes, bytes]
Calls = dict[str, tuple[Callable[[Table, int], object], Callable[[Value, int], Value]]]


def _new(column: bytes) -> Callable[[Value, int], Value]:
    return lambda before, number: before | {column: b"%d" % number}


def _put_row(table: Table, number: int) -> None:
    table.put(ROWS[1], {b"cf:a": b"%d" % number})


def _put_batch(table: Table, number: int) -> None:
    with table.batch() as batch:
        batch.put(ROWS[0], {b"cf:a": ROWS[0]})
        batch.put(ROWS[1], {b"cf:a": b"%d" % number})


CALLS: Calls = {
    "put": (_put_row, _new(b"cf:a")),
    "put of two cells": (
        lambda table, number: table.put(ROWS[1], {b"cf:a": b"%d" % number, b"cf:b": b"x"}),
        lambda before, number: before | {b"cf:a": b"%d" % number, b"cf:b": b"x"},
    ),
    "delete": (
        lambda table, number: table.delete(ROWS[1], [b"cf:b"]),
        lambda before, number: {name: value for name, value in before.items() if name != b"cf:b"},
    ),
    "increment": (
        lambda table, number: table.counter_inc(ROWS[1], b"cf:n"),
        lambda before, number: (
            before | {b"cf:n": (int.from_bytes(before.get(b"cf:n", b"\0"), "big") + 1).to_bytes(8, "big")}
        ),
    ),
    "append": (
        lambda table, number: table.append(ROWS[1], {b"cf:b": b"x"}),
        lambda before, number: before | {b"cf:b": before.get(b"cf:b", b"") + b"x"},
    ),
    "check and put": (
        lambda table, number: table.check_and_put(ROWS[1], b"cf:z", None, {b"cf:a": b"%d" % number}),
        _new(b"cf:a"),
    ),
    "batch": (_put_batch, _new(b"cf:a")),
    "get": (lambda table, number: table.row(ROWS[1]), lambda before, number: before),
    "scan": (lambda table, number: list(table.scan(batch_size=2)), lambda before, number: before),
    "get of many": (lambda table, number: table.rows(ROWS), lambda before, number: before),
}


def check_cluster_is_sound(cluster: FakeCluster, table: Table, allowed: list[Value]) -> Value:
    """Return what the interrupted call has left of the row; check everything that may have been left half done."""
    left = dict(table.row(ROWS[1]))
    assert left in allowed
    assert dict(table.rows([ROWS[1]])[0][1]) == left if left else table.rows([ROWS[1]]) == []
    scanned = list(table.scan())
    assert [row for row, _ in scanned] == sorted({*ROWS[:1], *ROWS[2:], *([ROWS[1]] if left else [])})
    if left:
        assert dict(dict(scanned)[ROWS[1]]) == left
    for server in cluster.servers_by_host.values():
        assert (server.handlers.busy, server.meta_handlers.busy) == (0, 0), f"handlers of {server} are lost"
    return left


def flush_at_next_write(cluster: FakeCluster) -> None:
    for server in cluster.servers_by_host.values():
        for region in server.regions.values():
            region.flush_bytes = 0


@pytest.mark.parametrize("name", CALLS)
@pytest.mark.parametrize("is_flushed", [False, True], ids=["memstore", "flush"])
def test_interrupt_at_any_instant_leaves_a_write_done_or_not_done(
    cluster: FakeCluster, name: str, is_flushed: bool
) -> None:
    run, applied = CALLS[name]
    with cluster.connect() as connection:
        table = connection.table("t")
        for row in ROWS:
            table.put(row, {b"cf:a": row})
        run(table, 0)
        before = dict(table.row(ROWS[1]))
        instant, is_interrupted = 0, True
        while is_interrupted:
            instant += 1
            cluster.flush()
            cluster.compact("t", major=True)  # versions and files that pile up would add instants
            if is_flushed:
                flush_at_next_write(cluster)
            is_interrupted = Interrupt(instant).during(partial(run, table, instant))
            before = check_cluster_is_sound(cluster, table, [before, applied(before, instant)])
            cluster.wait_until_replicated()
            assert dict(table.row(ROWS[1], replica_id=1)) == before
        assert instant > 40, "a call has more instants than that"


def test_interrupt_at_each_instant_of_a_lookup_leaves_no_caller_waiting_for_it(cluster: FakeCluster) -> None:
    with cluster.connect() as connection:
        locator = connection.engine.locator
        for instant in count(1):
            locator.cache.drop(b"t")
            is_over = not Interrupt(instant).during(partial(connection.locate, "t", ROWS[0]))
            assert len(locator._flights) == 0, f"instant {instant}: a lookup is in flight, and nobody makes it"
            begun = cluster.runtime.now()
            assert connection.locate("t", ROWS[0]).region.table == b"t"
            assert cluster.runtime.now() - begun < 1.0, f"instant {instant}"
            if is_over:
                break
    assert instant > 100, "a lookup has more instants: were they seen?"


def test_interrupt_at_each_instant_of_a_mark_leaves_no_start_key_without_a_mark() -> None:
    regions = [RegionInfo(b"t", start, b"", 1) for start in (b"a", b"b", b"a", b"c")]
    for instant in count(1):
        marks = StaleRanges(base_s=1.0, max_s=4.0, marks_max=2)

        def mark_all(marks: StaleRanges = marks) -> None:
            for now, region in enumerate(regions):
                marks.add(region, now)
                marks.covers(b"t", b"z", now + 9.0)  # drops a mark

        is_over = not Interrupt(instant).during(mark_all)
        for row in (b"a", b"b", b"c"):
            assert marks.covers(b"t", row, now=100.0) is False
        for region in regions:
            marks.add(region, now=200.0)
        assert marks.covers(b"t", b"c", now=200.5)
        assert len(marks) <= 2
        if is_over:
            break
    assert instant > 20, "marks have more instants: were they seen?"


@pytest.mark.parametrize("name", ["put", "put of two cells", "delete", "increment", "append", "check and put"])
def test_second_interrupt_within_the_clean_up_of_the_first_leaves_a_write_done_or_not_done(
    cluster: FakeCluster, name: str
) -> None:
    run, applied = CALLS[name]
    seconds = 0
    with cluster.connect() as connection:
        table = connection.table("t")
        for row in ROWS:
            table.put(row, {b"cf:a": row})
        run(table, 0)
        before = dict(table.row(ROWS[1]))
        for again in AGAIN:
            instant, is_interrupted = 0, True
            while is_interrupted:
                instant += STRIDE
                interrupt = Interrupt(instant, again)
                is_interrupted = interrupt.during(partial(run, table, instant))
                seconds += is_interrupted and interrupt.again == 0
                before = check_cluster_is_sound(cluster, table, [before, applied(before, instant)])
                cluster.flush()
                cluster.compact("t", major=True)  # versions and files that pile up would add instants
    assert seconds > 0, "no call was interrupted twice"
