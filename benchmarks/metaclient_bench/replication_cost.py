"""Measures what a region's sink costs: in a real cluster on real threads, and alone in one thread.

On threads (:func:`on_threads`): two tables, one of them with replicas, get the same puts in turns, as fast as one
thread can send them. The sink's work has two parts. The part inside a put is the CPU time of the putting thread with a
sink minus that without. The part on the threads that send batches is their CPU time minus the calls to the replicas
(network and replay are the replicas' work): batching, accounting, handling of responses.

Alone (:func:`alone`): queueing edits, batching, responses and accounting for two replicas, without network and replay.
"""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Sequence
from statistics import median
from typing import Any

from metaclient import Table
from metaclient.model import LATEST_TIMESTAMP, Cell, FamilyDescriptor, Put, RegionInfo, TableDescriptor
from metaclient.runtime import Pending, ThreadRuntime
from metaclient_bench.virtual import TABLE
from metaclient_fake import FakeCluster
from metaclient_fake.region_replication import (
    Batch,
    BufferManager,
    FlushRequester,
    ReplicationConfig,
    Sink,
    SinkSource,
)
from metaclient_fake.region_replication.sender import ReplicaSender
from metaclient_fake.storage import FileSystem, Region
from metaclient_fake.storage.region_log import CommitHook

__all__ = ["COPIES", "alone", "on_threads", "put_of"]

COPIES = 3
VALUE = bytes(100)
#: Edits of one turn.
SLICE = 500
ROUND_EDITS = 2_000


def put_of(row: bytes) -> Put:
    return Put(row, (Cell(b"f:q", LATEST_TIMESTAMP, VALUE),))


# -- on threads ------------------------------------------------------------------------------------------------


def on_threads(edits: int) -> dict[str, float]:
    """Return CPU seconds of a put without a sink, of the sink's part in it, and of its threads per edit; and shares."""
    with FakeCluster(servers=6) as cluster, cluster.connect() as connection:
        for name, copies in ((b"alone", 1), (b"copied", COPIES)):
            cluster.create_table(TableDescriptor(name, (FamilyDescriptor(b"f"),), region_replication=copies))
        sink = cluster.sink_of(cluster.master.states.table(b"copied")[0].primary)
        assert sink is not None
        meter = _Meter(sink)
        tables = [connection.table("alone"), connection.table("copied")]
        turns: list[tuple[float, float]] = []
        for turn in range(max(1, edits // SLICE)):
            rows = [b"%06d-%04d" % (turn, number) for number in range(SLICE)]
            spent = {table.name: _cpu(table, rows) for table in tables}
            turns.append((spent[b"alone"], spent[b"copied"]))
            tables.reverse()
        cluster.wait_until_replicated(120.0)
        # The median batch: a batch during which the machine suspended the thread says nothing about the sink.
        carried = median(meter.batches) * len(meter.batches) / (len(turns) * SLICE)
    put = median(plain for plain, _ in turns)
    inside = median(told - plain for plain, told in turns)
    return {
        "put": put,
        "inside": inside,
        "threads": carried,
        "batch_edits": len(turns) * SLICE * (COPIES - 1) / max(1, len(meter.batches)),
        "inside_share": inside / put,
        "sink_share": (inside + carried) / put,
    }


def _cpu(table: Table, rows: Sequence[bytes]) -> float:
    """Return the CPU seconds of this thread per put."""
    data = {b"f:q": VALUE}
    began = time.thread_time()
    for row in rows:
        table.put(row, data)
    return (time.thread_time() - began) / len(rows)


class _Meter:
    """Measures the threads that send one sink's batches: the time per batch minus the calls to replicas."""

    def __init__(self, sink: Sink) -> None:
        sender: Any = sink._send.__self__  # type: ignore[attr-defined]  # a bound method
        assert isinstance(sender, ReplicaSender)
        wire: Any = sender._wire
        carry: Any = sender._carried
        replicate = wire.replicate
        calls: dict[int, float] = {}  # by batch; one thread sends a batch
        self.batches: list[float] = []  # several threads append, which is atomic

        def called(host: str, batch: Batch, *arguments: object, **options: object) -> None:
            began = time.thread_time()
            try:
                replicate(host, batch, *arguments, **options)
            finally:
                calls[id(batch)] = calls.get(id(batch), 0.0) + time.thread_time() - began

        def carried(answer: object, batch: Batch, *arguments: object) -> Callable[[], object]:
            began = time.thread_time()
            tell: Callable[[], object] = carry(answer, batch, *arguments)
            own = time.thread_time() - began - calls.pop(id(batch), 0.0)

            def told() -> None:
                began = time.thread_time()
                tell()
                self.batches.append(own + time.thread_time() - began)

            return told

        wire.replicate = called
        sender._carried = carried  # type: ignore[method-assign, assignment]  # to be timed


# -- alone -----------------------------------------------------------------------------------------------------


def alone(edits: int) -> dict[str, float]:
    """Return seconds of a write to a region without a sink, of one with a sink, and of the sink alone; and shares.

    Medians of many short rounds. A share compares what was timed within one round, milliseconds apart: the machine's
    speed changes by a third from second to second, and best times of different moments do not compare.
    """
    puts = [(put_of(b"%08d" % number),) for number in range(ROUND_EDITS)]
    rounds: list[tuple[float, float, float]] = []
    with ThreadRuntime(name="bench") as runtime:
        for number in range(max(1, edits // ROUND_EDITS)):
            answers: list[Pending[None]] = []
            handed: list[tuple[object, ...]] = []
            _hand_over(runtime, puts, handed)
            sink = _bare_sink(runtime, answers)
            works: Sequence[tuple[Callable[..., object], Sequence[tuple[object, ...]]]] = (
                (_nothing, puts),
                (_region(runtime).mutate, puts),
                (_region(runtime, on_commit=sink.add).mutate, puts),
                (_nothing, handed),
                (_bare_sink(runtime, answers).add, handed),
            )
            spent = [0.0] * len(works)
            # The first one finds warm memory, so the order alternates.
            for index in range(len(works)) if number % 2 else reversed(range(len(works))):
                spent[index] = _spent(*works[index], answers)
            loop, write, told, handing, taking = spent
            rounds.append((write - loop, told - loop, taking - handing))
    return {
        "write": median(write for write, _, _ in rounds) / ROUND_EDITS,
        "told": median(told for _, told, _ in rounds) / ROUND_EDITS,
        "sink": median(taking for _, _, taking in rounds) / ROUND_EDITS,
        "told_share": median(told / write for write, told, _ in rounds) - 1,
        "sink_share": median(taking / write for write, _, taking in rounds),
    }


def _hand_over(runtime: ThreadRuntime, puts: Sequence[tuple[Put]], handed: list[tuple[object, ...]]) -> None:
    """Pass these puts to the sink, as a region does."""
    region = _region(runtime, on_commit=lambda *told: handed.append(told))
    handed.clear()  # of the marker of its opening and its first put
    for (put,) in puts:
        region.mutate(put)


def _nothing(*_: object) -> None:
    """Run an empty loop, whose cost is subtracted."""


def _spent(add: Callable[..., object], given: Sequence[tuple[object, ...]], answers: list[Pending[None]]) -> float:
    """Pass edits to the sink, and complete the replicas' calls every hundred edits, as with full batches."""
    gc.collect()
    gc.disable()
    try:
        began = time.thread_time()  # of this thread: other work of the machine does not count
        for number, arguments in enumerate(given):
            add(*arguments)
            if number % 100 == 99:
                done, answers[:] = answers[:], []
                for answer in done:
                    answer.complete(None)
        return time.thread_time() - began
    finally:
        gc.enable()


def _region(runtime: ThreadRuntime, on_commit: CommitHook | None = None) -> Region:
    filesystem = FileSystem()
    table = TableDescriptor(TABLE, (FamilyDescriptor(b"f"),))
    wal = filesystem.create_wal("bench")
    made = Region.open(RegionInfo(TABLE, region_id=1), table, filesystem, wal=wal, runtime=runtime, on_commit=on_commit)
    made.mutate(put_of(b"first"))  # the column is known from here on
    return made


def _bare_sink(runtime: ThreadRuntime, answers: list[Pending[None]]) -> Sink:
    config = ReplicationConfig()

    def send(batch: Batch) -> Pending[None]:
        answer: Pending[None] = runtime.pending()
        answers.append(answer)
        return answer

    buffer = BufferManager(runtime, config.pending_bytes_soft, config.pending_bytes_max, lambda: None)
    requester = FlushRequester(runtime, lambda: True, interval_s=30.0, gather_s=0.02)
    return Sink(
        SinkSource("bench", frozenset({b"f"}), lambda: COPIES),
        runtime=runtime,
        config=config,
        buffer=buffer,
        requester=requester,
        send=send,
    )
