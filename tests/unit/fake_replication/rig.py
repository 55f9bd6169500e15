"""A sink whose batches are answered by hand, and a primary with replicas that batches reach when a test says so."""

from __future__ import annotations

from dataclasses import dataclass

from metaclient.errors import CallTimeout
from metaclient.model import LATEST_TIMESTAMP, Cell, FamilyDescriptor, Get, Put, RegionInfo, TableDescriptor
from metaclient.runtime import Pending, SimRuntime
from metaclient_fake.region_replication import (
    Batch,
    BufferManager,
    FlushRequester,
    ReadGate,
    Replay,
    ReplicationConfig,
    Sink,
    SinkSource,
)
from metaclient_fake.storage import FileSystem, Marker, MarkerKind, Region, Wal, WalEntry

FAMILIES = (b"f", b"g")
INFO = RegionInfo(b"t", region_id=1)
TABLE = TableDescriptor(b"t", tuple(FamilyDescriptor(name) for name in FAMILIES), region_replication=3)
LOST = CallTimeout("lost on purpose")


def edit(number: int, size: int = 0) -> WalEntry:
    """An entry with this sequence id, of about this many bytes."""
    return WalEntry("r", b"t", number, 0, ((b"row", (Cell(b"f:q", 1, bytes(size)),)),))


def marker(number: int, kind: MarkerKind, flush_id: int = -1, families: tuple[bytes, ...] = FAMILIES) -> WalEntry:
    return WalEntry("r", b"t", number, 0, (), Marker(kind, flush_id, families))


def start_flush(number: int, flush_id: int | None = None, families: tuple[bytes, ...] = FAMILIES) -> WalEntry:
    return marker(number, MarkerKind.START_FLUSH, number - 1 if flush_id is None else flush_id, families)


@dataclass
class Sent:
    """A batch on its way, and its answer."""

    batch: Batch
    answer: Pending[None]

    @property
    def replica_id(self) -> int:
        return self.batch.replica_id

    @property
    def numbers(self) -> list[int]:
        return [entry.sequence_id for entry in self.batch.entries]

    def succeed(self) -> None:
        assert self.answer.complete(None)

    def fail(self, error: BaseException = LOST) -> None:
        assert self.answer.fail(error)


class SinkRig:
    """One sink alone. Flushes that it asks for are counted, and happen when a test adds the marker."""

    def __init__(
        self,
        runtime: SimRuntime,
        *,
        replicas: int = 2,
        buffer_bytes: int = 1 << 30,
        epoch: int = 1,
        **settings: object,
    ) -> None:
        self.runtime = runtime
        self.replicas = replicas
        self.config = ReplicationConfig(pending_bytes_max=buffer_bytes, **settings)  # type: ignore[arg-type]  # tests
        self.flushes = 0
        self.sent: list[Sent] = []
        self.buffer = BufferManager(runtime, 1 << 40, buffer_bytes, lambda: None)
        self.requester = FlushRequester(runtime, self.flush, interval_s=self.config.flush_interval_s, gather_s=0.02)
        source = SinkSource("r", frozenset(FAMILIES), lambda: self.replicas + 1, epoch=epoch)
        self.sink = Sink(
            source,
            runtime=runtime,
            config=self.config,
            buffer=self.buffer,
            requester=self.requester,
            send=self.send,
        )

    def flush(self) -> bool:
        self.flushes += 1
        return True

    def send(self, batch: Batch) -> Pending[None]:
        sent = Sent(batch, self.runtime.pending())
        self.sent.append(sent)
        return sent.answer

    def add(self, *entries: WalEntry) -> None:
        for entry in entries:
            self.sink.add(entry, entry.sequence_id, entry.data_bytes)
        self.runtime.run_for(0)

    def out(self, replica_id: int | None = None) -> list[Sent]:
        """What is on its way (to one replica), oldest first."""
        return [
            sent
            for sent in self.sent
            if not sent.answer.is_done and (replica_id is None or sent.replica_id == replica_id)
        ]

    def settle(self) -> None:
        """Everything that is on its way, and what follows from it, arrives."""
        while self.out():
            for sent in self.out():
                sent.succeed()
        self.runtime.run_for(0)


class RegionRig(SinkRig):
    """A real primary and real replicas; a batch is replayed when a test delivers it."""

    def __init__(self, runtime: SimRuntime, *, replicas: int = 1, **settings: object) -> None:
        super().__init__(runtime, replicas=replicas, **settings)
        self.filesystem = FileSystem()
        self.wal: Wal = self.filesystem.create_wal("one")
        self.primary = self.open_primary()
        self.copies = [self.open_replica(number) for number in range(1, replicas + 1)]

    def open_primary(self, **options: object) -> Region:
        return Region.open(
            INFO, TABLE, self.filesystem, wal=self.wal, runtime=self.runtime, on_commit=self.sink.add, **options
        )  # type: ignore[call-overload]  # tests

    def open_replica(self, number: int) -> Replay:
        region = Region.open(INFO.replica(number), TABLE, self.filesystem, wal=None, runtime=self.runtime)
        return Replay(region, self.runtime, ReadGate(frozenset(FAMILIES)))

    def reopen_primary(self, **options: object) -> None:
        """A new sink on another server takes over."""
        fresh = SinkRig(self.runtime, replicas=self.replicas, epoch=self.sink.epoch + 1)
        self.sink.stop()
        self.sink, self.sent, self.requester = fresh.sink, fresh.sent, fresh.requester
        fresh.flush = self.flush  # type: ignore[method-assign]  # flushes are counted here
        self.primary = self.open_primary(**options)

    def deliver(self, count: int = 1 << 30) -> None:
        """Replay what is on its way, and what follows, up to ``count`` batches."""
        while self.out() and count:
            sent, count = self.out()[0], count - 1
            copy = self.copies[sent.replica_id - 1]
            copy.apply(sent.batch.epoch, sent.batch.entries, self.runtime.now() + 1)
            sent.succeed()

    def lose(self) -> None:
        """What is on its way never arrives."""
        for sent in self.out():
            sent.fail()
        self.runtime.run_for(0)

    def put(self, row: bytes, value: bytes = b"1", **options: object) -> None:
        """Both families get the value, in one entry."""
        cells = tuple(Cell(name + b":q", LATEST_TIMESTAMP, value) for name in FAMILIES)
        self.primary.mutate(Put(row, cells, **options))  # type: ignore[arg-type]  # a Put's own fields

    def seen(self, row: bytes, replica_id: int = 1) -> bytes | None:
        """The row's value at a replica; half a row is an error."""
        cells = self.copies[replica_id - 1].region.get(Get(row)).cells
        assert len({cell.value for cell in cells}) <= 1, cells
        assert len(cells) in (0, len(FAMILIES)), cells
        return cells[0].value if cells else None
