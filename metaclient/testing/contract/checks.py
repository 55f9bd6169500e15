"""The contract of backends: check-and-put and check-and-delete."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import pytest

from metaclient.errors import Unsupported
from metaclient.model import CompareOp
from metaclient.table import Table
from metaclient.testing.contract.suite import ContractSuite, needs, put_versions, scanned, server_time_ms, together

__all__ = ["Checks"]

T = TypeVar("T")

#: op -> the result of the check if the stored value is (less than, equal to, greater than) the given value.
OPERATORS = [
    (CompareOp.LESS, (True, False, False)),
    (CompareOp.LESS_OR_EQUAL, (True, True, False)),
    (CompareOp.EQUAL, (False, True, False)),
    (CompareOp.NOT_EQUAL, (True, False, True)),
    (CompareOp.GREATER_OR_EQUAL, (False, True, True)),
    (CompareOp.GREATER, (False, False, True)),
]


class Checks(ContractSuite):
    @pytest.fixture
    def checked(self, table: Table) -> Table:
        needs(table.connection, "check_and_mutate")
        return table

    @pytest.mark.parametrize(("op", "holds"), OPERATORS, ids=[op.name for op, _ in OPERATORS])
    def test_check_compares_stored_with_given_and_not_the_other_way(
        self, checked: Table, op: CompareOp, holds: tuple[bool, bool, bool]
    ) -> None:
        """HBase's protocols compare in the opposite order (given OP stored); adapters reverse the operator."""
        for stored, expected in zip((b"4", b"5", b"6"), holds, strict=True):
            checked.put(stored, {b"cf:a": stored}, timestamp=1)
            self.disturb(checked.connection, checked)
            assert _check(checked, stored, b"cf:a", b"5", op) is expected, stored
            assert (b"cf:done" in checked.row(stored)) is expected, stored

    def test_check_compares_bytes_and_not_numbers_or_letters(self, checked: Table) -> None:
        checked.put(b"r", {b"cf:a": b"10"})
        assert _check(checked, b"r", b"cf:a", b"9", CompareOp.LESS)
        assert _check(checked, b"r", b"cf:a", b"1", CompareOp.GREATER)
        assert _check(checked, b"r", b"cf:a", b"100", CompareOp.LESS)
        checked.put(b"s", {b"cf:a": b"\xff"})
        assert _check(checked, b"s", b"cf:a", b"\x7f", CompareOp.GREATER)

    def test_absence_check_is_true_once(self, checked: Table) -> None:
        assert checked.check_and_put(b"r", b"cf:a", None, {b"cf:a": b"first"})
        self.disturb(checked.connection, checked)
        assert not checked.check_and_put(b"r", b"cf:a", None, {b"cf:a": b"second"})
        assert checked.row(b"r") == {b"cf:a": b"first"}

    def test_absence_check_turned_round_asks_for_presence(self, checked: Table) -> None:
        assert not _check(checked, b"r", b"cf:a", None, CompareOp.NOT_EQUAL)
        checked.put(b"r", {b"cf:a": b"1"})
        assert _check(checked, b"r", b"cf:a", None, CompareOp.NOT_EQUAL)

    @pytest.mark.parametrize("op", list(CompareOp), ids=[op.name for op in CompareOp])
    def test_absent_column_passes_no_check_against_a_value(self, checked: Table, op: CompareOp) -> None:
        """NOT_EQUAL fails, too: HBase compares only a value that exists."""
        checked.put(b"r", {b"cf:other": b"1"})
        assert not _check(checked, b"r", b"cf:a", b"5", op)
        assert checked.row(b"r") == {b"cf:other": b"1"}

    def test_empty_value_counts_as_absent_for_checks(self, checked: Table) -> None:
        """HRegion of HBase 2.6: an empty comparator checks for absence, and an empty stored value counts as absent."""
        checked.put(b"empty", {b"cf:a": b""})
        checked.put(b"full", {b"cf:a": b"1"})
        for given in (None, b""):
            assert _check(checked, b"empty", b"cf:a", given, CompareOp.EQUAL), given
            assert not _check(checked, b"empty", b"cf:a", given, CompareOp.NOT_EQUAL), given
            assert not _check(checked, b"full", b"cf:a", given, CompareOp.EQUAL), given
            assert _check(checked, b"full", b"cf:a", given, CompareOp.NOT_EQUAL), given
            assert not _check(checked, b"nobody", b"cf:a", given, CompareOp.NOT_EQUAL), given
        assert _check(checked, b"nobody", b"cf:a", b"", CompareOp.EQUAL)

    def test_check_looks_at_the_newest_version_and_not_at_the_last_write(self, checked: Table) -> None:
        put_versions(checked, b"r", b"cf:a", 20, 10)
        assert not _check(checked, b"r", b"cf:a", b"10", CompareOp.EQUAL)
        assert _check(checked, b"r", b"cf:a", b"20", CompareOp.EQUAL)

    def test_failed_check_changes_nothing(self, checked: Table) -> None:
        checked.put(b"r", {b"cf:a": b"1"}, timestamp=1)
        assert not checked.check_and_put(b"r", b"cf:a", b"2", {b"cf:a": b"3", b"other:b": b"3"})
        assert not checked.check_and_delete(b"r", b"cf:a", b"2")
        self.disturb(checked.connection, checked)
        assert checked.cells(b"r", b"cf:a") == [b"1"]
        assert checked.row(b"r") == {b"cf:a": b"1"}

    def test_check_and_put_writes_all_columns_with_the_timestamp_given(self, checked: Table) -> None:
        checked.put(b"r", {b"cf:a": b"1"}, timestamp=1)
        assert checked.check_and_put(b"r", b"cf:a", b"1", {b"cf:a": b"2", b"other:b": b"2"}, timestamp=2)
        self.disturb(checked.connection, checked)
        assert checked.row(b"r", include_timestamp=True) == {b"cf:a": (b"2", 2), b"other:b": (b"2", 2)}

    def test_check_and_delete_deletes_the_row_or_the_columns_named(self, checked: Table) -> None:
        for key in (b"a", b"b", b"c"):
            checked.put(key, {b"cf:a": b"1", b"cf:b": b"1", b"other:c": b"1"}, timestamp=1)
        assert _supported(lambda: checked.check_and_delete(b"a", b"cf:a", b"1"))
        assert checked.check_and_delete(b"b", b"cf:a", b"1", columns=[b"cf:b", b"other"])
        assert not checked.check_and_delete(b"c", b"cf:a", b"2")
        self.disturb(checked.connection, checked)
        assert scanned(checked) == [
            (b"b", {b"cf:a": b"1"}),
            (b"c", {b"cf:a": b"1", b"cf:b": b"1", b"other:c": b"1"}),
        ]

    def test_checked_put_is_not_hidden_behind_a_value_from_the_future(self, checked: Table) -> None:
        """HBASE-14054: a put that passed its check is written no earlier than the value that it was checked against."""
        future_ms = server_time_ms(checked, b"r") + 3_600_000
        checked.put(b"r", {b"cf:a": b"1"}, timestamp=future_ms)
        assert checked.check_and_put(b"r", b"cf:a", b"1", {b"cf:a": b"2"})
        assert checked.row(b"r") == {b"cf:a": b"2"}

    def test_one_of_many_concurrent_checks_wins(self, checked: Table) -> None:
        def claim(owner: bytes) -> Callable[[], bool]:
            return lambda: checked.check_and_put(b"r", b"cf:owner", None, {b"cf:owner": owner})

        won = together(checked.connection, *[claim(b"%d" % number) for number in range(6)])
        assert sum(won) == 1
        assert checked.row(b"r") == {b"cf:owner": b"%d" % won.index(True)}


def _supported(call: Callable[[], T]) -> T:
    """Return the result of the call; skip the test if the backend does not support this kind of check."""
    try:
        return call()
    except Unsupported as error:
        pytest.skip(str(error))


def _check(table: Table, row: bytes, column: bytes, given: bytes | None, op: CompareOp) -> bool:
    return _supported(lambda: table.check_and_put(row, column, given, {b"cf:done": b"yes"}, op=op))
