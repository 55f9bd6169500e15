"""A sink applies what another cluster ships; the numbers are those of TestReplicationSink (HBase 2.6.1)."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from metaclient.errors import CallTimeout, MetaClientError, NoSuchFamily, TableNotFound
from metaclient.model import Cell, CellType, Delete, Put
from metaclient.runtime import SimRuntime
from metaclient.wire.rpc.replication import ShippedEntry, WalKey
from metaclient_fake.replication.sink import PeerSink, mutations_of

A, B = uuid.UUID(int=1), uuid.UUID(int=2)
PUT, DELETE_COLUMN, DELETE_FAMILY = CellType.PUT, CellType.DELETE_COLUMN, CellType.DELETE_FAMILY


def entry_of(
    *edits: tuple[bytes, CellType], table: bytes = b"t", cluster_ids: tuple[uuid.UUID, ...] = (A,), at_ms: int = 10
) -> ShippedEntry:
    """An entry with one cell for each row and type."""
    cells = [(row, Cell(b"f:" if kind == DELETE_FAMILY else b"f:q", at_ms, b"v", kind)) for row, kind in edits]
    return ShippedEntry(WalKey("r" * 32, table, 1, at_ms, ((b"f", 1),), cluster_ids), tuple(cells))


def row(number: int) -> bytes:
    return b"%05d" % number


class Rig:
    """A sink in front of a real cluster of the fake."""

    def __init__(self, world: Any, **options: Any) -> None:
        self.world = world
        self.connection = world.cluster.connect(retries=1, operation_timeout_s=10.0)
        self.batches: list[int] = []
        self.sink = PeerSink(world.runtime, self.write, batch_rows=5000, **options)

    def write(self, table: bytes, mutations: Sequence[Put | Delete]) -> Sequence[object]:
        self.batches.append(len(mutations))
        found: Sequence[object] = self.connection.engine.batch(table, mutations)
        return found

    def rows(self, table: bytes = b"t") -> list[bytes]:
        return [key for key, _ in self.connection.table(table).scan()]


@pytest.fixture
def rig(make: Callable[..., Any]) -> Rig:
    world = make(servers=2)
    world.create(b"t", splits=[row(2000)])
    return Rig(world)


def test_ten_entries_of_one_call_are_ten_rows(rig: Rig) -> None:
    rig.sink.apply([entry_of((row(number), PUT)) for number in range(10)])
    assert len(rig.rows()) == 10


def test_deletes_and_puts_of_one_call_do_not_mix(rig: Rig) -> None:
    rig.sink.apply([entry_of((row(number), PUT)) for number in range(5)])
    mixed = [entry_of((row(number), DELETE_COLUMN if number % 2 else PUT), at_ms=20) for number in range(10)]
    rig.sink.apply(mixed)
    assert rig.rows() == [row(number) for number in range(0, 10, 2)]
    rig.sink.apply([entry_of((row(number), DELETE_COLUMN), at_ms=30) for number in range(0, 10, 2)])
    assert rig.rows() == []


def test_large_call_is_cut_into_batches_and_loses_nothing(rig: Rig) -> None:
    rig.sink.apply([entry_of((row(number), PUT)) for number in range(5510)])
    assert rig.batches == [5000, 510]
    assert len(rig.rows()) == 5510


def test_large_call_of_puts_and_deletes_keeps_their_order(rig: Rig) -> None:
    edits = [
        entry_of((row(number // 2), PUT if number % 2 == 0 or number % 4 == 1 else DELETE_COLUMN), at_ms=10 + number)
        for number in range(11_000)
    ]
    rig.sink.apply(edits)
    assert len(rig.rows()) == 2750  # of every second row the last edit is a delete


def test_entries_that_alternate_between_tables_reach_their_tables(rig: Rig) -> None:
    rig.world.create(b"u")
    rig.sink.apply([entry_of((row(number), PUT), table=b"tu"[number % 2 :][:1]) for number in range(10)])
    assert rig.rows(b"t") == [row(number) for number in range(0, 10, 2)]
    assert rig.rows(b"u") == [row(number) for number in range(1, 10, 2)]


def test_deletes_of_columns_and_families_empty_the_table(rig: Rig) -> None:
    rig.sink.apply([entry_of((row(number), PUT)) for number in range(3)])
    kinds = (DELETE_COLUMN, DELETE_FAMILY, DELETE_COLUMN)
    rig.sink.apply([entry_of((row(number), kind)) for number, kind in enumerate(kinds)])
    assert rig.rows() == []


def test_delete_behind_its_put_in_one_call_and_millisecond_wins(rig: Rig) -> None:
    kinds = [(0, PUT), (1, PUT), (1, DELETE_FAMILY), (3, PUT), (4, PUT)]
    rig.sink.apply([entry_of((row(number), kind)) for number, kind in kinds])
    assert rig.rows() == [row(0), row(3), row(4)]


def test_missing_table_fails_the_call_as_such_and_is_counted(rig: Rig) -> None:
    with pytest.raises(TableNotFound):
        rig.sink.apply([entry_of((row(1), PUT), table=b"nope")])
    assert (rig.sink.failed_batches, rig.sink.edits_applied) == (1, 0)


def test_disabled_table_fails_the_call_and_is_counted(rig: Rig) -> None:
    rig.world.cluster.disable_table(b"t")
    with pytest.raises(MetaClientError):
        rig.sink.apply([entry_of((row(1), PUT))])
    assert rig.sink.failed_batches == 1


def test_missing_family_is_reported_before_other_errors(runtime: SimRuntime) -> None:
    errors = [CallTimeout("late"), NoSuchFamily("x"), None]
    sink = PeerSink(runtime, lambda table, mutations: errors, batch_rows=5000)
    with pytest.raises(NoSuchFamily):
        sink.apply([entry_of((row(1), PUT))])


def test_failure_of_one_table_is_repaired_by_the_whole_call_sent_again(rig: Rig) -> None:
    """Some of the call was applied. The same cells again make no second version."""
    call = [entry_of((row(1), PUT)), entry_of((row(2), PUT), table=b"u")]
    with pytest.raises(TableNotFound):
        rig.sink.apply(call)
    rig.world.create(b"u")
    rig.sink.apply(call)
    assert rig.rows(b"t") == [row(1)]
    assert rig.rows(b"u") == [row(2)]
    assert len(rig.connection.table(b"t").cells(row(1), b"f:q", versions=3)) == 1


def test_sink_filter_skips_entries_and_the_following_ones_keep_their_cells(make: Callable[..., Any]) -> None:
    world = make(servers=1)
    world.create(b"t")
    rig = Rig(world, sink_filter=lambda entry: entry.key.write_time_ms < 20)
    rig.sink.apply([entry_of((row(number), PUT), at_ms=20 if number % 2 else 10) for number in range(6)])
    assert rig.rows() == [row(0), row(2), row(4)]


def test_empty_call_is_applied(rig: Rig) -> None:
    rig.sink.apply([])
    assert (rig.sink.edits_applied, rig.sink.failed_batches) == (0, 0)


def test_edits_of_other_origins_are_not_marked_with_each_others_clusters() -> None:
    """The ids of a mutation reach the sink's own log: a wrong list would stop an edit, or send it round."""
    found = mutations_of([entry_of((b"x", PUT), cluster_ids=(A,)), entry_of((b"y", PUT), cluster_ids=(A, B))])
    assert {key[1]: [mutation.cluster_ids for mutation in group] for key, group in found.items()} == {
        (A,): [(A,)],
        (A, B): [(A, B)],
    }


def test_new_mutation_begins_with_each_row_and_each_type() -> None:
    edits = entry_of((b"x", PUT), (b"x", PUT), (b"x", DELETE_COLUMN), (b"y", DELETE_COLUMN), (b"x", PUT))
    found = mutations_of([edits])[b"t", (A,)]
    assert [(type(mutation).__name__, mutation.row, len(mutation.cells)) for mutation in found] == [
        ("Put", b"x", 2),
        ("Delete", b"x", 1),
        ("Delete", b"y", 1),
        ("Put", b"x", 1),
    ]


def test_load_shows_the_age_of_the_last_applied_edit(rig: Rig) -> None:
    written_ms = rig.world.runtime.time_ms() - 3000
    rig.sink.apply([entry_of((row(1), PUT), at_ms=written_ms)])
    load, age_ms = rig.sink.load(), rig.world.runtime.time_ms() - written_ms
    assert (load.age_of_last_applied_ms, load.last_applied_ms, load.edits_applied) == (age_ms, written_ms, 1)


def test_markers_of_a_real_cluster_do_not_stop_the_queue() -> None:
    """ReplicationMarkerChore and bulk loads write cells of METAFAMILY, for tables that have no such family."""
    marker = ShippedEntry(
        WalKey("0" * 32, b"t", 1, 1000), ((b"rs1_7", Cell(b"METAFAMILY:HBASE::REPLICATION_MARKER", 7, b"x")),)
    )
    edit = entry_of((b"r", PUT))
    assert [[one.row for one in found] for found in mutations_of([marker, edit]).values()] == [[b"r"]]
    assert mutations_of([marker]) == {}
