"""One region against a plain model, over random writes, flushes, compactions, reopens and crashes.

The model keeps every write as an event in a list and judges each column by brute force; it shares no code with the
storage. A scanner must show the model as it was when the scanner was opened, whatever happens meanwhile.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from metaclient.model import (
    LATEST_TIMESTAMP,
    Append,
    Cell,
    CellType,
    Delete,
    Durability,
    Get,
    Increment,
    Put,
    Scan,
)
from metaclient.runtime import ThreadRuntime
from metaclient_fake.storage import Region, RegionScanner
from tests.unit.fake_storage.bench import INFO, Bench

ROWS = st.sampled_from([b"a", b"b", b"c", b"d"])
COLUMNS = st.sampled_from([b"cf:", b"cf:p", b"cf:q"])
COUNTER = b"g:n"
STAMPS = st.integers(995, 1010) | st.just(LATEST_TIMESTAMP)
DURABILITIES = st.sampled_from([Durability.USE_DEFAULT, Durability.SKIP_WAL, Durability.ASYNC_WAL])
MAX_VERSIONS = {b"cf": 3, b"g": 1}
FAMILY_KINDS = (CellType.DELETE_FAMILY, CellType.DELETE_FAMILY_VERSION)

Table = dict[bytes, list[tuple[bytes, int, bytes]]]


@dataclass(frozen=True)
class Event:
    """One cell that was written."""

    order: int
    row: bytes
    column: bytes
    timestamp: int
    value: bytes
    kind: CellType = CellType.PUT
    is_flushed: bool = False
    is_logged: bool = True
    is_synced: bool = True

    @property
    def family(self) -> bytes:
        return self.column.partition(b":")[0]

    def hides(self, other: Event) -> bool:
        if self.kind is CellType.PUT or self.row != other.row or self.family != other.family:
            return False
        if self.kind not in FAMILY_KINDS and self.column != other.column:
            return False
        if self.kind in (CellType.DELETE, CellType.DELETE_FAMILY_VERSION):
            return other.timestamp == self.timestamp
        return other.timestamp <= self.timestamp


def survivors(events: list[Event]) -> list[Event]:
    """The puts that are not hidden, newest first in each column, as many as the family keeps."""
    puts = [event for event in events if event.kind is CellType.PUT]
    puts = [event for event in puts if not any(marker.hides(event) for marker in events)]
    newest = {(event.row, event.column, event.timestamp): event for event in sorted(puts, key=lambda e: e.order)}
    kept: list[Event] = []
    for row, column in sorted({(event.row, event.column) for event in newest.values()}):
        versions = [event for event in newest.values() if (event.row, event.column) == (row, column)]
        versions.sort(key=lambda event: -event.timestamp)
        kept += versions[: MAX_VERSIONS[column.partition(b":")[0]]]
    return kept


def table_of(events: list[Event]) -> Table:
    table: Table = {}
    for event in survivors(events):
        table.setdefault(event.row, []).append((event.column, event.timestamp, event.value))
    return table


def shown(scanner: RegionScanner) -> Table:
    table: Table = {}
    is_end = False
    while not is_end:
        results, is_end = scanner.next(2, 1 << 30)
        for result in results:
            table[result.row] = [(cell.column, cell.timestamp, cell.value) for cell in result.cells]
    return table


class RegionMachine(RuleBasedStateMachine):
    """The rules are what can happen to a region; the invariants are what a reader may rely on."""

    def __init__(self) -> None:
        super().__init__()
        self.runtime = ThreadRuntime()
        self.bench = Bench(self.runtime)
        self.region: Region = self.bench.open()
        self.replica: Region = self.bench.open(INFO.replica(1))
        self.events: list[Event] = []
        self.order = 0
        self.scanners: list[tuple[RegionScanner, Table]] = []

    def teardown(self) -> None:
        self.runtime.close()

    def write(self, *events: Event) -> None:
        self.events += events
        if any(event.is_logged and event.is_synced for event in events):
            self.sync()

    def sync(self) -> None:
        self.events = [replace(event, is_synced=True) for event in self.events]

    def event(self, row: bytes, cell: Cell, durability: Durability = Durability.USE_DEFAULT) -> Event:
        self.order += 1
        stamp = self.bench.now_ms if cell.timestamp == LATEST_TIMESTAMP else cell.timestamp
        return Event(
            self.order,
            row,
            cell.column,
            stamp,
            cell.value,
            cell.type,
            is_logged=durability is not Durability.SKIP_WAL,
            is_synced=durability is not Durability.ASYNC_WAL,
        )

    def newest(self, row: bytes, column: bytes) -> Event | None:
        return next((e for e in survivors(self.events) if (e.row, e.column) == (row, column)), None)

    @rule(row=ROWS, columns=st.lists(COLUMNS, min_size=1, max_size=3), stamp=STAMPS, durability=DURABILITIES)
    def put(self, row: bytes, columns: list[bytes], stamp: int, durability: Durability) -> None:
        cells = tuple(Cell(column, stamp, b"%d" % (self.order + i)) for i, column in enumerate(columns))
        self.region.mutate(Put(row, cells, durability))
        self.write(*[self.event(row, cell, durability) for cell in cells])

    @rule(rows=st.lists(ROWS, min_size=1, max_size=4), column=COLUMNS, stamp=STAMPS)
    def put_batch(self, rows: list[bytes], column: bytes, stamp: int) -> None:
        puts = [Put(row, (Cell(column, stamp, b"batch %d" % i),)) for i, row in enumerate(rows)]
        assert self.region.batch(puts) == [None] * len(puts)
        self.write(*[self.event(put.row, put.cells[0]) for put in puts])

    @rule(row=ROWS, column=COLUMNS, kind=st.sampled_from([CellType.DELETE, CellType.DELETE_COLUMN]), stamp=STAMPS)
    def delete_column(self, row: bytes, column: bytes, kind: CellType, stamp: int) -> None:
        self.region.mutate(Delete(row, (Cell(column, stamp, b"", kind),)))
        if kind is CellType.DELETE and stamp == LATEST_TIMESTAMP:
            found = self.newest(row, column)
            stamp = found.timestamp if found is not None else stamp
        self.write(self.event(row, Cell(column, stamp, b"", kind)))

    @rule(row=ROWS, kind=st.sampled_from(FAMILY_KINDS), stamp=STAMPS)
    def delete_family(self, row: bytes, kind: CellType, stamp: int) -> None:
        self.region.mutate(Delete(row, (Cell(b"cf", stamp, b"", kind),)))
        self.write(self.event(row, Cell(b"cf:", stamp, b"", kind)))

    @rule(row=ROWS)
    def delete_row(self, row: bytes) -> None:
        self.region.mutate(Delete(row))
        kind = CellType.DELETE_FAMILY
        self.write(*[self.event(row, Cell(name + b":", LATEST_TIMESTAMP, b"", kind)) for name in MAX_VERSIONS])

    @rule(row=ROWS, amount=st.integers(-3, 3))
    def increment(self, row: bytes, amount: int) -> None:
        found = self.newest(row, COUNTER)
        total = amount + (int.from_bytes(found.value, "big", signed=True) if found else 0)
        value = total.to_bytes(8, "big", signed=True)
        result = self.region.mutate(Increment(row, ((COUNTER, amount),)))
        assert result is not None
        assert [cell.value for cell in result.cells] == [value]
        stamp = max(self.bench.now_ms, found.timestamp + 1) if found else self.bench.now_ms
        self.write(self.event(row, Cell(COUNTER, stamp, value)))

    @rule(row=ROWS, column=COLUMNS)
    def append(self, row: bytes, column: bytes) -> None:
        found = self.newest(row, column)
        value = (found.value if found else b"") + b"+"
        self.region.mutate(Append(row, ((column, b"+"),)))
        stamp = max(self.bench.now_ms, found.timestamp + 1) if found else self.bench.now_ms
        self.write(self.event(row, Cell(column, stamp, value)))

    @rule(step=st.integers(1, 5))
    def wait(self, step: int) -> None:
        self.bench.now_ms += step

    def flush_model(self) -> None:
        """A flush drops what its own markers hide and versions beyond the family's; the markers stay."""
        fresh = [event for event in self.events if not event.is_flushed]
        kept = survivors(fresh) + [event for event in fresh if event.kind is not CellType.PUT]
        old = [event for event in self.events if event.is_flushed]
        self.events = old + [replace(event, is_flushed=True) for event in kept]
        self.sync()

    @rule()
    def flush(self) -> None:
        self.region.flush()
        self.flush_model()

    @rule()
    def flush_and_compact(self) -> None:
        """After it there is one file with what can be seen, and nothing else."""
        self.region.flush()
        self.region.compact(major=True)
        self.flush_model()
        self.events = survivors(self.events)

    @rule()
    def reopen(self) -> None:
        self.drain_scanners()
        self.region.close()
        self.region = self.bench.open()
        self.flush_model()

    @rule()
    def crash(self) -> None:
        """What was neither flushed nor synced to the log is lost."""
        self.drain_scanners()
        self.region = self.bench.crash()
        self.events = [event for event in self.events if event.is_flushed or (event.is_logged and event.is_synced)]
        self.flush_model()

    @precondition(lambda self: len(self.scanners) < 3)
    @rule()
    def open_scanner(self) -> None:
        self.scanners.append((self.region.scanner(Scan(max_versions=10)), table_of(self.events)))

    @rule()
    def drain_scanners(self) -> None:
        for scanner, expected in self.scanners:
            assert shown(scanner) == expected
        self.scanners.clear()

    @rule()
    def refresh_replica(self) -> None:
        self.replica.refresh_store_files()
        assert shown(self.replica.scanner(Scan(max_versions=10))) == table_of([e for e in self.events if e.is_flushed])

    @invariant()
    def scan_shows_the_model(self) -> None:
        assert shown(self.region.scanner(Scan(max_versions=10))) == table_of(self.events)

    @invariant()
    def newest_versions_agree_between_get_and_scan(self) -> None:
        table = table_of(self.events)
        for row in (b"a", b"b", b"c", b"d"):
            seen: dict[bytes, bytes] = {}
            for column, _, value in table.get(row, []):
                seen.setdefault(column, value)
            assert {cell.column: cell.value for cell in self.region.get(Get(row)).cells} == seen


TestRegionMachine = RegionMachine.TestCase
TestRegionMachine.settings = settings(max_examples=60, stateful_step_count=30, deadline=None)
