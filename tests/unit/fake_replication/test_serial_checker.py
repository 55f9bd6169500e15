"""The check of serial peers: which entries may be pushed (HBase's TestSerialReplicationChecker)."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from metaclient import keys
from metaclient.model import Cell, Get, Result
from metaclient_fake.replication import barriers as format_of
from metaclient_fake.replication import serial
from metaclient_fake.replication.barriers import Barriers, MetaBarriers, barriers_in, parent_column, parents_from
from metaclient_fake.replication.serial import SerialChecker
from metaclient_fake.storage.wal import WalEntry

A = b"t,a,1600000000000.0f66090624927db18e5c2d8176c836d0."
B = b"t,b,1600000000000.1f66090624927db18e5c2d8176c836d1."
C = b"t,,1600000000001.2f66090624927db18e5c2d8176c836d2."


class Meta:
    """Barriers of regions by name, and how often they were read."""

    def __init__(self) -> None:
        self.regions: dict[bytes, Barriers] = {}
        self.pushed: dict[str, int] = {}
        self.reads = 0

    def set(self, name: bytes, *barriers: int, state: str = "OPEN", parents: tuple[bytes, ...] = ()) -> None:
        self.regions[name] = Barriers(barriers, state, parents)

    def push(self, name: bytes, sequence_id: int) -> None:
        self.pushed[keys.encoded_region_name(name)] = sequence_id

    def of_entry(self, entry: WalEntry) -> Barriers:
        self.reads += 1
        found = [one for name, one in self.regions.items() if keys.encoded_region_name(name) == entry.region]
        return found[0] if found else Barriers()

    def of_region(self, name: bytes) -> Barriers:
        return self.regions.get(name, Barriers())


@pytest.fixture
def meta() -> Meta:
    return Meta()


@pytest.fixture
def checker(meta: Meta) -> SerialChecker:
    return SerialChecker(meta, lambda region: meta.pushed.get(region, -1))


def entry(name: bytes, sequence_id: int) -> WalEntry:
    return WalEntry(keys.encoded_region_name(name), b"t", sequence_id, 0)


def test_entry_of_a_region_without_barriers_is_not_held_back(checker: SerialChecker) -> None:
    assert checker.may_push(entry(A, 100))


def test_entry_older_than_the_first_barrier_is_not_held_back(meta: Meta, checker: SerialChecker) -> None:
    meta.set(A, 200, state="OPENING")
    assert checker.may_push(entry(A, 100))


def test_entry_of_the_last_range_waits_while_the_region_is_opening(meta: Meta, checker: SerialChecker) -> None:
    meta.set(A, 10)
    assert checker.may_push(entry(A, 100))
    meta.set(A, 10, state="OPENING")
    assert not checker.may_push(entry(A, 102))
    meta.set(A, 10, 50)
    assert not checker.may_push(entry(A, 102))
    meta.push(A, 49)
    assert checker.may_push(entry(A, 102))
    meta.set(A, 10, 50, state="OPENING")
    assert not checker.may_push(entry(A, 104))


def test_entry_of_a_finished_range_does_not_wait_for_an_open(meta: Meta, checker: SerialChecker) -> None:
    meta.set(A, 10, 50, state="OPENING")
    assert checker.may_push(entry(A, 20))


def test_range_with_a_known_end_costs_one_read(meta: Meta, checker: SerialChecker) -> None:
    meta.set(A, 10, 100)
    meta.push(A, 9)
    assert all(checker.may_push(entry(A, number)) for number in range(20, 100, 2))
    assert meta.reads == 1
    assert not checker.may_push(entry(A, 100))
    assert meta.reads == 2


def test_entries_without_a_gap_cost_one_read(meta: Meta, checker: SerialChecker) -> None:
    meta.set(A, 10)
    meta.push(A, 9)
    assert all(checker.may_push(entry(A, number)) for number in range(20, 100))
    assert meta.reads == 1
    assert checker.may_push(entry(A, 101))
    assert meta.reads == 2


def test_gap_after_a_move_away_and_back_is_checked_anew(meta: Meta, checker: SerialChecker) -> None:
    meta.set(A, 10)
    assert checker.may_push(entry(A, 20))
    meta.set(A, 10, 30, 40)
    meta.push(A, 29)
    assert not checker.may_push(entry(A, 42))
    meta.push(A, 39)
    assert checker.may_push(entry(A, 42))


def test_merged_region_waits_for_both_parents(meta: Meta, checker: SerialChecker) -> None:
    meta.set(A, 10, 100)
    meta.set(B, 20, 200)
    meta.set(C, 200, parents=(A, B))
    assert not checker.may_push(entry(C, 300))
    meta.push(B, 199)
    assert not checker.may_push(entry(C, 300))
    meta.push(A, 99)
    assert checker.may_push(entry(C, 300))


def test_daughters_wait_for_their_parent(meta: Meta, checker: SerialChecker) -> None:
    meta.set(C, 10, 100)
    meta.set(A, 100, 200, parents=(C,))
    meta.set(B, 100, 300, parents=(C,))
    assert not checker.may_push(entry(A, 150))
    assert not checker.may_push(entry(B, 200))
    meta.push(C, 99)
    assert checker.may_push(entry(A, 150))
    assert checker.may_push(entry(B, 200))


def test_parent_whose_barriers_were_cleaned_holds_nothing_back(meta: Meta, checker: SerialChecker) -> None:
    meta.set(A, 100, parents=(C,))
    assert checker.may_push(entry(A, 150))


def test_entry_whose_id_is_a_barrier_belongs_to_the_new_range(meta: Meta, checker: SerialChecker) -> None:
    meta.set(A, 10, 100)
    assert checker.may_push(entry(A, 10))
    assert not checker.may_push(entry(A, 100))
    meta.push(A, 99)
    assert checker.may_push(entry(A, 100))


def test_error_of_hbase_meta_pushes_nothing_unchecked(meta: Meta, checker: SerialChecker) -> None:
    """HBASE-29501: HBase up to 2.6.4 pushes the entry after a failed read."""
    meta.set(A, 10, 100)

    def fail(entry: WalEntry) -> Barriers:
        raise TimeoutError

    read, meta.of_entry = meta.of_entry, fail  # type: ignore[method-assign]  # a fault
    for _ in range(2):
        with pytest.raises(TimeoutError):
            checker.may_push(entry(A, 100))
    meta.of_entry = read  # type: ignore[method-assign]  # as above
    assert not checker.may_push(entry(A, 100))


def test_forgotten_region_is_read_again_and_not_pushed_unchecked(
    meta: Meta, checker: SerialChecker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(serial, "_REGIONS_MAX", 1)
    meta.set(A, 10)
    meta.set(B, 10)
    assert checker.may_push(entry(A, 20))
    assert checker.may_push(entry(B, 20))
    meta.set(A, 10, 21)
    assert not checker.may_push(entry(A, 21))


# -- the rows of hbase:meta --------------------------------------------------------------------------------------


@given(st.lists(st.binary(min_size=1, max_size=6).map(lambda tail: b"t," + tail), min_size=1, max_size=4))
def test_names_of_parents_with_escape_bytes_survive(names: list[bytes]) -> None:
    assert parents_from(parent_column(names)[format_of.PARENT]) == tuple(names)


def test_names_that_contain_the_separator_are_not_cut() -> None:
    names = (b"t,\xff\x00,1.x.", b"t,a\xff,1.y.")
    value = parent_column(names)[format_of.PARENT]
    assert value == b"t,\xff\xff\x00,1.x.\xff\x00t,a\xff\xff,1.y."
    assert parents_from(value) == names


def _barrier(value: int, timestamp: int) -> Cell:
    return Cell(format_of.BARRIER, timestamp, value.to_bytes(8, "big", signed=True))


def test_barriers_are_sorted_and_those_of_empty_regions_left_out() -> None:
    """A disabled table writes -1 for a region that was never written."""
    cells = [
        Cell(b"info:state", 9, b"OPENING"),
        Cell(b"info:state", 8, b"CLOSED"),
        _barrier(28, 9),
        _barrier(-1, 8),
        _barrier(28, 7),
        _barrier(2, 6),
        Cell(format_of.PARENT, 5, A),
    ]
    assert barriers_in(cells) == Barriers((2, 28), "OPENING", (A,))


def test_row_of_a_region_is_looked_for_once(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[bytes] = []
    rows = {A: [_barrier(5, 1)], B: [_barrier(6, 1)]}

    def rows_of(table: bytes) -> list[bytes]:
        asked.append(table)
        return list(rows)

    reads = MetaBarriers(lambda get: _result(rows, get), rows_of)
    assert reads.of_entry(entry(B, 1)).barriers == (6,)
    assert reads.of_entry(entry(B, 2)).barriers == (6,)
    assert asked == [b"t"]
    assert reads.of_entry(entry(C, 1)) == Barriers()
    monkeypatch.setattr(format_of, "_ROWS_MAX", 1)
    reads.of_entry(entry(A, 1))
    reads.of_entry(entry(B, 1))
    assert len(asked) == 4


def _result(rows: dict[bytes, list[Cell]], get: Get) -> Result:
    assert get.max_versions > 1_000_000, "all versions are barriers"
    return Result(get.row, rows.get(get.row, []))
