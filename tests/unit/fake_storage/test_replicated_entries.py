"""What the log's entries say for replication: scopes, cluster ids, nonces, and which writes have no entry."""

from __future__ import annotations

from dataclasses import replace
from uuid import UUID

import pytest

from metaclient.errors import RequestRefused
from metaclient.model import (
    LATEST_TIMESTAMP,
    Append,
    Cell,
    CellType,
    Delete,
    Durability,
    FamilyDescriptor,
    Increment,
    Mutation,
    Put,
    RegionInfo,
    RowMutations,
    TableDescriptor,
)
from metaclient_fake.storage import StorageConfig, WalEntry
from tests.unit.fake_storage.bench import Bench, put, values

EAST, WEST = UUID(int=1), UUID(int=2)
GLOBAL, SERIAL = 1, 2
SKIP = Durability.SKIP_WAL
REFUSED = "org.apache.hadoop.hbase.regionserver.InvalidMutationDurabilityException"


@pytest.fixture
def replicated(bench: Bench) -> Bench:
    """A table with a family of each scope, not in the order of their names."""
    scoped = (FamilyDescriptor(b"s", replication_scope=SERIAL), FamilyDescriptor(b"cf", replication_scope=GLOBAL))
    bench.table = TableDescriptor(b"t", (*scoped, FamilyDescriptor(b"local")))
    return bench


def cell(column: bytes, value: bytes = b"1") -> Cell:
    return Cell(column, LATEST_TIMESTAMP, value)


def data(bench: Bench) -> list[WalEntry]:
    return [entry for entry in bench.wal.entries() if entry.marker is None]


def test_every_entry_names_all_families_that_are_not_local_touched_or_not(replicated: Bench) -> None:
    """Packed rows, rows of objects, deletes, increments and markers alike."""
    region = replicated.open()
    region.mutate(Put(b"a", (cell(b"local:x"),)))
    region.mutate(Put(b"b", tuple(cell(b"cf:%d" % number) for number in range(6))))
    region.mutate(Delete(b"a"))
    region.mutate(Increment(b"n", ((b"cf:n", 1),), nonce=7), nonce_group=3)
    region.flush()
    region.close()
    entries = list(replicated.wal.entries())
    assert len(entries) >= 8
    assert {entry.scopes for entry in entries} == {((b"cf", GLOBAL), (b"s", SERIAL))}
    assert [entry.nonce for entry in entries if entry.nonce] == [(3, 7)]


def test_table_without_replication_has_entries_without_scopes(bench: Bench) -> None:
    put(bench.open(), b"r", a=b"1")
    assert {entry.scopes for entry in bench.wal.entries()} == {()}


@pytest.mark.parametrize("is_rolled", [False, True])
def test_altered_scope_counts_only_for_the_edits_that_follow(bench: Bench, is_rolled: bool) -> None:
    """The log keeps a packed row without its scopes: those of the region at that time must come back."""
    region = bench.open()
    put(region, b"before", a=b"1")
    region.close()
    bench.table = TableDescriptor(b"t", (FamilyDescriptor(b"cf", replication_scope=GLOBAL),))
    region = bench.open()
    put(region, b"between", a=b"1")
    if is_rolled:
        bench.wal.roll()
    put(region, b"rolled", a=b"1")
    region.close()
    bench.table = TableDescriptor(b"t", (FamilyDescriptor(b"cf"),))
    put(bench.open(), b"after", a=b"1")
    bench.table = TableDescriptor(b"t", (FamilyDescriptor(b"cf", replication_scope=GLOBAL),))
    put(bench.open(RegionInfo(b"t", region_id=2)), b"other region", a=b"1")
    scoped = {entry.edits[0][0]: bool(entry.scopes) for entry in data(bench)}
    assert scoped == {b"before": False, b"between": True, b"rolled": True, b"after": False, b"other region": True}


@pytest.mark.parametrize(
    "mutation",
    [
        Put(b"r", (cell(b"cf:a"),), cluster_ids=(EAST, WEST)),
        Put(b"r", tuple(cell(b"cf:%d" % number) for number in range(6)), cluster_ids=(EAST, WEST)),
        Delete(b"r", cluster_ids=(EAST, WEST)),
        RowMutations(b"r", (Put(b"r", (cell(b"cf:a"),), cluster_ids=(EAST, WEST)),)),
    ],
    ids=["one cell", "many cells", "delete", "row mutations"],
)
@pytest.mark.parametrize("is_batch", [False, True])
def test_replicated_change_keeps_its_cluster_ids_and_does_not_go_round_twice(
    bench: Bench, mutation: Mutation, is_batch: bool
) -> None:
    region = bench.open()
    if is_batch:
        assert region.batch([mutation]) == [None]
    else:
        region.mutate(mutation)
    put(region, b"own", a=b"1")
    assert [entry.cluster_ids for entry in data(bench)] == [(EAST, WEST), ()]


def test_batch_does_not_give_cluster_ids_to_its_other_mutations(bench: Bench) -> None:
    """A client's own put in the batch of a replicated one would otherwise never reach the other cluster."""
    region = bench.open()
    ids = [(EAST,), (EAST,), (), (WEST,)]
    batch = [Put(b"%d" % number, (cell(b"cf:a"),), cluster_ids=one) for number, one in enumerate(ids)]
    assert region.batch(batch) == [None] * 4
    found = [(entry.cluster_ids, [row for row, _ in entry.edits]) for entry in data(bench)]
    assert found == [((EAST,), [b"0", b"1"]), ((), [b"2"]), ((WEST,), [b"3"])]


def test_recovery_of_replicated_changes_is_as_of_any(bench: Bench) -> None:
    bench.open().mutate(Put(b"r", (cell(b"cf:a"),), cluster_ids=(EAST,)))
    assert values(bench.crash(), b"r") == {b"cf:a": b"1"}


SKIPPING: list[Mutation] = [
    Put(b"r", (cell(b"cf:a"),), SKIP),
    Put(b"r", (cell(b"local:a"), cell(b"s:a")), SKIP),
    Delete(b"r", (Cell(b"cf:a", LATEST_TIMESTAMP, b"", CellType.DELETE_COLUMN),), durability=SKIP),
    Increment(b"r", ((b"cf:n", 1),), SKIP),
    Append(b"r", ((b"cf:a", b"1"),), SKIP),
    RowMutations(b"r", (Put(b"r", (cell(b"local:a"),)), Put(b"r", (cell(b"cf:a"),), SKIP))),
]


@pytest.mark.parametrize("mutation", SKIPPING, ids=lambda mutation: type(mutation).__name__)
def test_write_that_could_never_be_replicated_is_refused_as_by_3_0(replicated: Bench, mutation: Mutation) -> None:
    region = replicated.open()
    with pytest.raises(RequestRefused, match=r"durability is SKIP_WAL but table's column family (cf|s) need") as caught:
        region.mutate(mutation)
    assert caught.value.detail == REFUSED
    outcome = region.batch([mutation])[0]
    assert isinstance(outcome, RequestRefused)
    assert (values(region, b"r"), data(replicated)) == ({}, [])


def test_write_that_skips_the_log_is_accepted_where_3_0_does(replicated: Bench) -> None:
    """A local family; a delete of the whole row, whose families HRegion.prepareDelete does not check."""
    region = replicated.open()
    region.mutate(Put(b"r", (cell(b"local:a"),), SKIP))
    assert values(region, b"r") == {b"local:a": b"1"}
    region.mutate(Delete(b"r", durability=SKIP))
    assert (values(region, b"r"), data(replicated)) == ({}, [])


def test_table_that_skips_the_log_is_not_refused(replicated: Bench) -> None:
    """HBase looks at the mutation's durability only, not at the table's."""
    replicated.table = replace(replicated.table, attributes=(("DURABILITY", "SKIP_WAL"),))
    region = replicated.open()
    put(region, b"r", a=b"1")
    assert (values(region, b"r"), data(replicated)) == ({b"cf:a": b"1"}, [])


@pytest.mark.parametrize("mutation", SKIPPING[:2] + SKIPPING[3:5], ids=lambda mutation: type(mutation).__name__)
def test_write_that_skips_the_log_is_accepted_silently_as_by_2_6(replicated: Bench, mutation: Mutation) -> None:
    region = replicated.open(config=StorageConfig(refuses_skip_wal_of_replicated=False))
    region.mutate(mutation)
    assert values(region, b"r")
    assert data(replicated) == []
