"""A checker that cannot fail checks nothing: seeded faults, and the tests of the contract and the model that see them.

The first faults are those that happybase's own test suite does not find.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis.stateful import run_state_machine_as_test

from metaclient import MetaClientError, Table
from metaclient.backend import Action, MetaPage, MetaReplica, MetaScan, Outcome, ScanPage
from metaclient.connection import Connection, connect_to
from metaclient.errors import NoSuchFamily, TableExists
from metaclient.model import (
    Append,
    Cell,
    Check,
    CompareOp,
    Delete,
    Get,
    Increment,
    Mutation,
    Put,
    RegionLocation,
    Result,
    RowMutations,
    Scan,
    TableDescriptor,
)
from metaclient.runtime import SimRuntime
from metaclient.testing import BackendContract
from metaclient.testing.contract import FAMILIES, LETTER_SPLITS, LETTERS, fill
from metaclient_fake import FakeCluster
from metaclient_fake.backend import FakeBackend
from metaclient_fake.server.data_calls import DataCalls
from metaclient_fake.storage import FileSystem, Region
from tests.contract.test_table_model import TableMachine

Place = RegionLocation | None


class InclusiveBound(FakeBackend):
    def get(self, place: Place, table: bytes, get: Get, deadline: float) -> Result:
        return super().get(place, table, replace(get, max_timestamp=min(get.max_timestamp + 1, 2**63 - 1)), deadline)


class VersionsOfTheFamilyIgnored(FakeBackend):
    def create_table(self, descriptor: TableDescriptor, splits: Sequence[bytes], deadline: float) -> None:
        families = tuple(replace(family, max_versions=1000) for family in descriptor.families)
        super().create_table(replace(descriptor, families=families), splits, deadline)


class DeleteSparesItsOwnTimestamp(FakeBackend):
    def mutate(self, place: Place, table: bytes, mutation: Mutation, deadline: float) -> Result | None:
        if isinstance(mutation, Delete) and mutation.cells:
            cells = tuple(cell._replace(timestamp=cell.timestamp - 1) for cell in mutation.cells)
            mutation = replace(mutation, cells=cells)
        return super().mutate(place, table, mutation, deadline)


class FilterIgnored(FakeBackend):
    def scan_open(self, place: Place, table: bytes, scan: Scan, deadline: float) -> ScanPage:
        return super().scan_open(place, table, replace(scan, filter=None), deadline)


class FilterDropsRowsWithoutTheColumn(FakeBackend):
    def scan_open(self, place: Place, table: bytes, scan: Scan, deadline: float) -> ScanPage:
        if scan.filter is not None and scan.filter.endswith(b"'binary:red')") and b"Single" in scan.filter:
            scan = replace(scan, filter=scan.filter[:-1] + b", true, true)")
        return super().scan_open(place, table, scan, deadline)


class MissingRowIsAnEmptyRow(FakeBackend):
    def scan_open(self, place: Place, table: bytes, scan: Scan, deadline: float) -> ScanPage:
        page = super().scan_open(place, table, scan, deadline)
        return replace(page, rows=[*page.rows, Result(b"ghost")])


class DisabledTableIsReadable(FakeBackend):
    def disable_table(self, table: bytes, deadline: float) -> None:
        self.disabled = table

    def is_table_enabled(self, table: bytes, deadline: float) -> bool:
        return table != getattr(self, "disabled", None)


class TableMadeTwice(FakeBackend):
    def create_table(self, descriptor: TableDescriptor, splits: Sequence[bytes], deadline: float) -> None:
        with suppress(TableExists):
            super().create_table(descriptor, splits, deadline)


class EnabledTableIsDeleted(FakeBackend):
    def delete_table(self, table: bytes, deadline: float) -> None:
        if self.is_table_enabled(table, deadline):
            self.disable_table(table, deadline)
        super().delete_table(table, deadline)


class UnknownFamilyIsIgnored(FakeBackend):
    def mutate(self, place: Place, table: bytes, mutation: Mutation, deadline: float) -> Result | None:
        with suppress(NoSuchFamily):
            return super().mutate(place, table, mutation, deadline)
        return None


class IncrementIsNotAtomic(FakeBackend):
    def mutate(self, place: Place, table: bytes, mutation: Mutation, deadline: float) -> Result | None:
        if not isinstance(mutation, Increment):
            return super().mutate(place, table, mutation, deadline)
        [(column, amount)] = mutation.amounts
        found = self.get(place, table, Get(mutation.row, (column,)), deadline).cells
        total = (int.from_bytes(found[0].value, "big", signed=True) if found else 0) + amount
        cell = Cell(column, 2**63 - 1, total.to_bytes(8, "big", signed=True))
        super().mutate(place, table, Put(mutation.row, (cell,)), deadline)
        return Result(mutation.row, (cell,))


class RegionMissingInMeta(FakeBackend):
    def read_meta(self, replica: MetaReplica, scan: MetaScan, deadline: float) -> MetaPage:
        page = super().read_meta(replica, scan, deadline)
        return page if scan.is_reversed else replace(page, rows=page.rows[:-1])


class RowsInAnyOrder(FakeBackend):
    def batch(self, server: Any, table: bytes, actions: Sequence[Action], deadline: float) -> Sequence[Outcome]:
        outcomes = super().batch(server, table, actions, deadline)
        return outcomes[::-1] if isinstance(actions[0].operation, Get) else outcomes


class CheckTurnedRound(FakeBackend):
    """The wire's own way: given OP stored."""

    def check_and_mutate(self, place: Place, table: bytes, check: Check, mutation: Mutation, deadline: float) -> bool:
        turned = {CompareOp.LESS: CompareOp.GREATER, CompareOp.GREATER: CompareOp.LESS}
        op = turned.get(check.op, check.op)
        return super().check_and_mutate(place, table, replace(check, op=op), mutation, deadline)


class RowMutationsOneByOne(FakeBackend):
    def mutate(self, place: Place, table: bytes, mutation: Mutation, deadline: float) -> Result | None:
        if not isinstance(mutation, RowMutations):
            return super().mutate(place, table, mutation, deadline)
        for part in mutation.mutations:
            super().mutate(place, table, part, deadline)
        return None


class BatchFailsAsOne(FakeBackend):
    def batch(self, server: Any, table: bytes, actions: Sequence[Action], deadline: float) -> Sequence[Outcome]:
        outcomes = super().batch(server, table, actions, deadline)
        error = next((outcome for outcome in outcomes if isinstance(outcome, MetaClientError)), None)
        return outcomes if error is None else [error] * len(outcomes)


class BatchNeverFails(FakeBackend):
    def batch(self, server: Any, table: bytes, actions: Sequence[Action], deadline: float) -> Sequence[Outcome]:
        outcomes = super().batch(server, table, actions, deadline)
        return [None if isinstance(outcome, NoSuchFamily) else outcome for outcome in outcomes]


class EmptyValueIsNoValue(FakeBackend):
    def get(self, place: Place, table: bytes, get: Get, deadline: float) -> Result:
        result = super().get(place, table, get, deadline)
        return result._replace(cells=tuple(cell for cell in result.cells if cell.value))


class EmptyQualifierIsTheFamily(FakeBackend):
    def get(self, place: Place, table: bytes, get: Get, deadline: float) -> Result:
        columns = tuple(column.removesuffix(b":") for column in get.columns)
        return super().get(place, table, replace(get, columns=columns), deadline)


class AppendReplaces(FakeBackend):
    def mutate(self, place: Place, table: bytes, mutation: Mutation, deadline: float) -> Result | None:
        if isinstance(mutation, Append):
            cells = tuple(Cell(column, 2**63 - 1, value) for column, value in mutation.values)
            super().mutate(place, table, Put(mutation.row, cells), deadline)
            return Result(mutation.row, cells)
        return super().mutate(place, table, mutation, deadline)


class ReplicaIdIgnored(FakeBackend):
    def get(self, place: Place, table: bytes, get: Get, deadline: float) -> Result:
        if place is not None and place.replica_id:
            primary = place.region.replica(0)
            node = self.cluster.node_named(primary)
            assert node.server is not None
            place = RegionLocation(primary, node.server)
        return super().get(place, table, get, deadline)


class StopIsInclusive(FakeBackend):
    def scan_open(self, place: Place, table: bytes, scan: Scan, deadline: float) -> ScanPage:
        return super().scan_open(place, table, replace(scan, include_stop=True), deadline)


class SplitsIgnored(FakeBackend):
    def create_table(self, descriptor: TableDescriptor, splits: Sequence[bytes], deadline: float) -> None:
        super().create_table(descriptor, [], deadline)


FAULTS: list[tuple[type[FakeBackend], str, dict[str, Any]]] = [
    (InclusiveBound, "test_timestamp_is_an_exclusive_upper_bound", {}),
    (VersionsOfTheFamilyIgnored, "test_family_keeps_as_many_versions_as_it_says", {"max_versions": 2}),
    (DeleteSparesItsOwnTimestamp, "test_delete_hides_a_put_of_the_same_timestamp_whichever_came_first", {}),
    (
        FilterIgnored,
        "test_filter_is_applied_and_not_ignored",
        {"text": "ValueFilter (=, 'binary:red')", "left": {b"a1": [b"x"], b"b2": [b"x"]}},
    ),
    (
        FilterDropsRowsWithoutTheColumn,
        "test_filter_is_applied_and_not_ignored",
        {
            "text": "SingleColumnValueFilter ('cf', 'x', =, 'binary:red')",
            "left": {b"a1": [b"n", b"x"], b"b1": [b"n"], b"b2": [b"n", b"x", b"y"]},
        },
    ),
    (MissingRowIsAnEmptyRow, "test_empty_table_scans_to_nothing", {}),
    (DisabledTableIsReadable, "test_disabled_table_answers_nothing", {"kind": "row"}),
    (TableMadeTwice, "test_creating_a_table_twice_is_an_error_and_harms_nothing", {}),
    (EnabledTableIsDeleted, "test_enabled_table_cannot_be_deleted", {}),
    (UnknownFamilyIsIgnored, "test_unknown_family_in_a_put_writes_nothing_of_it", {}),
    (IncrementIsNotAtomic, "test_concurrent_increments_lose_nothing", {}),
    (RegionMissingInMeta, "test_splits_become_borders_in_order", {}),
    (RowsInAnyOrder, "test_rows_come_in_the_order_asked_for", {}),
    (
        CheckTurnedRound,
        "test_check_compares_stored_with_given_and_not_the_other_way",
        {"op": CompareOp.LESS, "holds": (True, False, False)},
    ),
    (RowMutationsOneByOne, "test_row_mutation_with_one_bad_part_applies_none", {}),
    (RowMutationsOneByOne, "test_reader_never_sees_half_of_a_row_mutation", {}),
    (BatchFailsAsOne, "test_failed_rows_of_a_batch_are_named_and_the_others_stand", {}),
    (BatchNeverFails, "test_failed_rows_of_a_batch_are_named_and_the_others_stand", {}),
    (EmptyValueIsNoValue, "test_empty_value_is_a_value_and_not_a_missing_column", {}),
    (EmptyQualifierIsTheFamily, "test_empty_qualifier_is_a_column_of_its_own", {}),
    (AppendReplaces, "test_append_makes_and_extends_and_returns_the_new_values", {}),
    (ReplicaIdIgnored, "test_named_replica_answers_itself_and_is_marked_stale", {}),
    (
        StopIsInclusive,
        "test_start_is_inclusive_and_stop_exclusive_wherever_the_borders_are",
        {"start": b"c", "stop": b"h"},
    ),
    (SplitsIgnored, "test_splits_become_borders_in_order", {}),
]


def run_contract(backend_class: type[FakeBackend], test: str, arguments: dict[str, Any]) -> None:
    """One test of the contract on one backend, with the fixtures that it asks for."""
    with (
        SimRuntime(seed=2) as runtime,
        FakeCluster(servers=3, meta_replicas=1, runtime=runtime) as cluster,
        connect_to(backend_class(cluster), runtime=runtime) as connection,
    ):
        function = getattr(BackendContract(), test)
        wanted = inspect.signature(function).parameters
        made = {name: make for name, make in _fixtures(connection).items() if name in wanted}
        function(**{name: make() for name, make in made.items()}, **arguments)


def _fixtures(connection: Connection) -> dict[str, Callable[[], Any]]:
    def make(families: Any = FAMILIES, *, splits: Sequence[bytes] = (), region_replication: int = 1) -> Table:
        connection.create_table("t", families, splits=splits, region_replication=region_replication)
        return connection.table("t")

    def wide() -> Table:
        table = make(splits=LETTER_SPLITS)
        fill(table, LETTERS)
        return table

    return {"table": make, "checked": make, "wide_table": wide, "make_table": lambda: make}


@pytest.mark.parametrize(
    ("fault", "test", "arguments"), FAULTS, ids=[f"{fault.__name__}-{test}" for fault, test, _ in FAULTS]
)
def test_contract_sees_a_seeded_fault(fault: type[FakeBackend], test: str, arguments: dict[str, Any]) -> None:
    run_contract(FakeBackend, test, arguments)
    with pytest.raises((AssertionError, pytest.fail.Exception, MetaClientError)):
        run_contract(fault, test, arguments)


# -- the model -------------------------------------------------------------------------------------------------


def _crash_loses_the_log(patch: pytest.MonkeyPatch) -> None:
    whole = Region.open
    patch.setattr(Region, "open", lambda *args, **options: whole(*args, **{**options, "recovered": ()}))


def _merge_loses_a_parent(patch: pytest.MonkeyPatch) -> None:
    whole = FileSystem.merge
    patch.setattr(FileSystem, "merge", lambda self, left, right, merged: whole(self, left, merged))


def _split_shares_out_the_wrong_half(patch: pytest.MonkeyPatch) -> None:
    whole = FileSystem.split
    patch.setattr(
        FileSystem, "split", lambda self, parent, left, right, at: whole(self, parent, left, right, at + b"z")
    )


def _compaction_keeps_delete_markers(patch: pytest.MonkeyPatch) -> None:
    from metaclient_fake.storage import query_matcher, store

    whole = query_matcher.compacted

    def compacted(*args: Any, **options: Any) -> Any:
        return whole(*args, **{**options, "drops_deletes": False})

    for module in (query_matcher, store):
        if hasattr(module, "compacted"):
            patch.setattr(module, "compacted", compacted)


def _increment_is_applied_twice(patch: pytest.MonkeyPatch) -> None:
    whole = DataCalls.mutate

    def mutate(self: DataCalls, name: bytes, mutation: Mutation) -> Result | None:
        if isinstance(mutation, Increment):
            whole(self, name, mutation)
        return whole(self, name, mutation)

    patch.setattr(DataCalls, "mutate", mutate)


@pytest.mark.parametrize(
    "seed_fault",
    [
        _crash_loses_the_log,
        _merge_loses_a_parent,
        _split_shares_out_the_wrong_half,
        _compaction_keeps_delete_markers,
        _increment_is_applied_twice,
    ],
)
def test_model_sees_a_seeded_fault(
    seed_fault: Callable[[pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    seed_fault(monkeypatch)
    quick = settings(
        max_examples=100,
        stateful_step_count=40,
        deadline=None,
        derandomize=True,
        database=None,
        phases=[Phase.generate],
        report_multiple_bugs=False,
        suppress_health_check=list(HealthCheck),
    )
    with pytest.raises((AssertionError, MetaClientError)):
        run_state_machine_as_test(TableMachine, settings=quick)
