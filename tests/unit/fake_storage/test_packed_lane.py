"""The packed-row lane and the ordinary lane leave the same behind, whatever is written in whatever order."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from metaclient.errors import MetaClientError
from metaclient.model import (
    LATEST_TIMESTAMP,
    Append,
    Cell,
    CellType,
    Check,
    Delete,
    Durability,
    FamilyDescriptor,
    Get,
    Increment,
    Mutation,
    Put,
    Result,
    RowMutations,
    Scan,
    TableDescriptor,
)
from metaclient.runtime import ThreadRuntime
from metaclient_fake.storage import Region, WalEntry, packed_row
from metaclient_fake.storage.packed_lane import PackedLane
from metaclient_fake.storage.packed_row import PackedRow
from metaclient_fake.storage.wal import LoggedEntry
from tests.unit.fake_storage.bench import INFO, Bench, scanned

ROWS = [b"a", b"b", b"c"]
#: The last two are too long to be packed.
COLUMNS = [b"cf:a", b"cf:b", b"g:x", b"g:" + b"y" * packed_row.COLUMN_BYTES_MAX]
VALUES = [b"", b"1", (7).to_bytes(8, "big"), b"v" * packed_row.ROW_BYTES_MAX]
TIMES = [1, 5, 1001, 1002, LATEST_TIMESTAMP - 1, LATEST_TIMESTAMP, -1]
TABLE = TableDescriptor(b"t", (FamilyDescriptor(b"cf", max_versions=3), FamilyDescriptor(b"g", max_versions=1)))

rows = st.sampled_from(ROWS)
durabilities = st.sampled_from(list(Durability))
cells = st.builds(Cell, st.sampled_from(COLUMNS), st.sampled_from(TIMES), st.sampled_from(VALUES))
one_cell = st.builds(lambda row, cell, durability: Put(row, (cell,), durability), rows, cells, durabilities)
puts = one_cell | st.builds(
    lambda row, many, durability: Put(row, tuple(many), durability),
    rows,
    st.lists(cells, min_size=1, max_size=6),
    durabilities,
)
markers = st.builds(
    lambda column, timestamp, kind: Cell(column, timestamp, b"", kind),
    st.sampled_from(COLUMNS),
    st.sampled_from(TIMES),
    st.sampled_from([CellType.DELETE, CellType.DELETE_COLUMN, CellType.DELETE_FAMILY]),
)
deletes = st.builds(lambda row, many: Delete(row, tuple(many)), rows, st.lists(markers, max_size=2))
counters = st.builds(lambda row: Increment(row, ((b"cf:a", 1),), nonce=5), rows)
appends = st.builds(lambda row: Append(row, ((b"cf:b", b"x"),)), rows)
several = st.builds(
    lambda row, value: RowMutations(row, (Put(row, (Cell(b"cf:a", 5, value),)), Delete(row))),
    rows,
    st.sampled_from(VALUES),
)
mutations: st.SearchStrategy[Mutation] = one_cell | puts | deletes | counters | appends | several
steps = st.lists(
    st.tuples(st.just("mutate"), mutations)
    | st.tuples(st.just("mutate"), one_cell)
    | st.tuples(st.just("batch"), st.lists(puts | deletes, max_size=4))
    | st.tuples(st.just("check"), one_cell)
    | st.tuples(st.sampled_from(["tick", "flush", "compact", "crash"]), st.none()),
    max_size=12,
)


@dataclass
class Lane:
    """A primary, what it told its replica, and the replica."""

    bench: Bench
    outcomes: list[object] = field(default_factory=list)
    told: list[WalEntry] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.bench.table = TABLE
        self.primary = self.bench.open(on_commit=self.told.append)
        self.replica = self.bench.open(INFO.replica(1))
        self.packed = 0

    def run(self, kind: str, what: Any) -> None:
        try:
            self.outcomes.append(self._do(kind, what))
        except MetaClientError as error:
            self.outcomes.append(str(error))
        for entry in self.told:
            self.packed += sum(isinstance(row, PackedRow) for row in entry.rows)
            self.replica.replay(entry)
        self.outcomes.append([seen(entry) for entry in self.told])
        self.told.clear()

    def _do(self, kind: str, what: Any) -> object:
        if kind == "mutate":
            return self.primary.mutate(what)
        if kind == "batch":
            return [str(outcome) for outcome in self.primary.batch(what)]
        if kind == "check":
            return self.primary.check_and_mutate(Check(what.row, b"cf:a", None), what)
        if kind == "tick":
            self.bench.now_ms += 1
        elif kind == "flush":
            return self.primary.flush().outcome
        elif kind == "compact":
            return self.primary.compact(major=True)
        else:
            self.primary = self.bench.crash()
            self.primary.log.on_commit = self._hear
            self.replica.follow_anew(self.primary.read_point)
        return None

    def _hear(self, entry: LoggedEntry, sequence_id: int, size: int) -> None:
        assert entry.sequence_id == sequence_id
        if isinstance(entry, PackedRow):
            assert entry.size == size
            entry = WalEntry(INFO.encoded_name, INFO.table, sequence_id, self.bench.now_ms, (entry,), None, size)
        self.told.append(entry)

    def state(self) -> list[object]:
        """Everything that can be seen of both regions, of the log and of what is counted."""
        wal = self.bench.wal
        return [
            self.outcomes,
            [seen(entry) for entry in wal.entries()],
            [
                (file.size, len(file), {name: edits.highest for name, edits in file.regions.items()})
                for file in wal.files
            ],
            wal.unsynced,
            *[part for region in (self.primary, self.replica) for part in state_of(region)],
        ]


def seen(entry: WalEntry) -> tuple[object, ...]:
    return entry.sequence_id, entry.write_time_ms, entry.edits, entry.marker, entry.data_bytes, entry.size, entry.nonce


def state_of(region: Region) -> Iterator[object]:
    yield region.read_point, region.log.mvcc.write_point, region.memstore_bytes, region.store_file_bytes
    yield [store.memstore.active.oldest_sequence_id for store in region.stores]
    yield region.split_point()
    for get in (Get(row, max_versions=versions) for row in ROWS for versions in (1, 10)):
        yield cells_of(region.get(get))
    for scan in (
        Scan(),
        Scan(max_versions=10, is_reversed=True),
        Scan(is_raw=True, max_versions=10),
        Scan(columns=(b"cf:a",), max_timestamp=1001),
        Scan(filter=b"ValueFilter(!=, 'binary:1')"),
    ):
        yield [cells_of(result) for result in scanned(region, scan)]


def cells_of(result: Result) -> tuple[object, ...]:
    return result.row, tuple(result.cells), result.is_stale


@contextmanager
def ordinary_lane_only() -> Iterator[None]:
    """No row is packed, wherever it comes from."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(PackedLane, "put", lambda *_: False)
        patch.setattr(packed_row, "ROW_BYTES_MAX", -1)
        yield


@given(steps)
def test_lanes_leave_the_same_in_memstore_log_files_and_replicas(script: list[tuple[str, Any]]) -> None:
    with ThreadRuntime() as runtime:
        packed, ordinary = Lane(Bench(runtime)), Lane(Bench(runtime))
        for kind, what in script:
            packed.run(kind, what)
            with ordinary_lane_only():
                ordinary.run(kind, what)
        assert packed.state() == ordinary.state()
        assert ordinary.packed == 0


def test_put_of_one_small_cell_takes_the_packed_lane(bench: Bench) -> None:
    """Else the comparison above compares the ordinary lane with itself."""
    lane = Lane(bench)
    lane.run("mutate", Put(b"a", (Cell(b"cf:a", 5, b"v"),)))  # the first write of a column makes it known
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("metaclient_fake.storage.writer.Writer._apply", None)
        lane.run("mutate", Put(b"b", (Cell(b"cf:a", 5, b"v"),)))
    assert lane.packed == 2
