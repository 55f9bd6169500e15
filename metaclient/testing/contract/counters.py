"""The contract of backends: counters and appends."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from metaclient.errors import MetaClientError
from metaclient.table import Table
from metaclient.testing.contract.suite import (
    ContractSuite,
    TableMaker,
    needs,
    server_time_ms,
    together,
    until_clock_moves,
)

__all__ = ["Counters"]

INT64_MIN, INT64_MAX = -(2**63), 2**63 - 1


class Counters(ContractSuite):
    def test_missing_counter_starts_at_zero_and_reading_it_makes_it(self, table: Table) -> None:
        assert table.counter_get(b"r", b"cf:n") == 0
        assert table.row(b"r") == {b"cf:n": bytes(8)}
        assert table.counter_inc(b"s", b"cf:n") == 1

    def test_counter_goes_up_and_down_and_below_zero(self, table: Table) -> None:
        assert table.counter_inc(b"r", b"cf:n", 5) == 5
        self.disturb(table.connection, table)
        assert table.counter_dec(b"r", b"cf:n", 7) == -2
        assert table.counter_inc(b"r", b"cf:n", -1) == -3
        assert table.counter_inc(b"r", b"cf:n", 0) == -3
        self.disturb(table.connection, table)
        assert table.counter_get(b"r", b"cf:n") == -3

    def test_counter_is_eight_bytes_big_endian_shared_with_puts(self, table: Table) -> None:
        table.put(b"r", {b"cf:n": (1000).to_bytes(8, "big")})
        assert table.counter_inc(b"r", b"cf:n") == 1001
        assert table.row(b"r") == {b"cf:n": (1001).to_bytes(8, "big")}
        table.counter_inc(b"r", b"cf:n", -1002)
        assert table.row(b"r") == {b"cf:n": b"\xff" * 8}

    def test_counter_can_be_set_and_then_counts_on(self, table: Table) -> None:
        table.counter_set(b"r", b"cf:n", -40)
        self.disturb(table.connection, table)
        assert table.counter_inc(b"r", b"cf:n", 42) == 2

    def test_counter_holds_sixty_four_bits_and_wraps_as_java_does(self, table: Table) -> None:
        table.counter_set(b"r", b"cf:n", INT64_MAX)
        assert table.counter_get(b"r", b"cf:n") == INT64_MAX
        assert table.counter_inc(b"r", b"cf:n") == INT64_MIN
        assert table.counter_dec(b"r", b"cf:n") == INT64_MAX
        assert table.counter_inc(b"s", b"cf:n", INT64_MIN) == INT64_MIN

    @pytest.mark.parametrize("value", [b"7", b"", b"123456789"])
    def test_value_that_is_no_counter_is_refused_and_left_alone(self, table: Table, value: bytes) -> None:
        table.put(b"r", {b"cf:n": value, b"cf:other": b"x"})
        with pytest.raises(MetaClientError) as caught:
            table.counter_inc(b"r", b"cf:n")
        assert not caught.value.may_have_applied
        assert table.row(b"r") == {b"cf:n": value, b"cf:other": b"x"}

    def test_empty_qualifier_counts(self, table: Table) -> None:
        assert table.counter_inc(b"r", b"cf:") == 1
        assert table.counter_inc(b"r", b"cf:") == 2
        assert table.row(b"r") == {b"cf:": (2).to_bytes(8, "big")}

    def test_counters_of_one_row_do_not_disturb_each_other(self, table: Table) -> None:
        for number in range(1, 4):
            table.counter_inc(b"r", b"cf:n%d" % number, number)
        self.disturb(table.connection, table)
        assert [table.counter_inc(b"r", b"cf:n%d" % number) for number in range(1, 4)] == [2, 3, 4]

    def test_deleted_counter_starts_again_at_zero(self, table: Table) -> None:
        table.counter_set(b"r", b"cf:n", 10)
        table.delete(b"r", columns=[b"cf:n"])
        until_clock_moves(table, b"r")
        assert table.counter_inc(b"r", b"cf:n") == 1
        self.disturb(table.connection, table)
        assert table.counter_get(b"r", b"cf:n") == 1

    def test_concurrent_increments_lose_nothing(self, table: Table) -> None:
        def count() -> list[int]:
            return [table.counter_inc(b"r", b"cf:n") for _ in range(20)]

        seen = together(table.connection, count, count, count, count)
        assert sorted(value for values in seen for value in values) == list(range(1, 81))
        assert table.counter_get(b"r", b"cf:n") == 80

    def test_increment_is_not_hidden_behind_a_value_from_the_future(self, table: Table) -> None:
        future_ms = server_time_ms(table, b"r") + 3_600_000
        table.put(b"r", {b"cf:n": (5).to_bytes(8, "big")}, timestamp=future_ms)
        assert table.counter_inc(b"r", b"cf:n") == 6
        assert table.row(b"r") == {b"cf:n": (6).to_bytes(8, "big")}
        assert table.counter_inc(b"r", b"cf:n") == 7

    def test_increment_is_a_version_of_its_own_whatever_the_clock_says(self, table: Table) -> None:
        """HBASE-18546: an increment is written at least a millisecond after the value that it replaces."""
        future_ms = server_time_ms(table, b"r") + 3_600_000
        table.put(b"r", {b"cf:n": (5).to_bytes(8, "big")}, timestamp=future_ms)
        table.counter_inc(b"r", b"cf:n")
        table.counter_inc(b"r", b"cf:n")
        assert table.cells(b"r", b"cf:n", include_timestamp=True) == [
            ((7).to_bytes(8, "big"), future_ms + 2),
            ((6).to_bytes(8, "big"), future_ms + 1),
            ((5).to_bytes(8, "big"), future_ms),
        ]

    def test_append_is_a_version_of_its_own_whatever_the_clock_says(self, table: Table) -> None:
        needs(table.connection, "append")
        future_ms = server_time_ms(table, b"r") + 3_600_000
        table.put(b"r", {b"cf:a": b"a"}, timestamp=future_ms)
        table.append(b"r", {b"cf:a": b"b"})
        assert table.cells(b"r", b"cf:a", include_timestamp=True) == [(b"ab", future_ms + 1), (b"a", future_ms)]

    def test_append_makes_and_extends_and_returns_the_new_values(self, table: Table) -> None:
        needs(table.connection, "append")
        assert table.append(b"r", {b"cf:a": b"one"}) == {b"cf:a": b"one"}
        self.disturb(table.connection, table)
        assert table.append(b"r", {b"cf:a": b" two", b"cf:b": b"new"}) == {b"cf:a": b"one two", b"cf:b": b"new"}
        assert table.append(b"r", {b"cf:a": b""}) == {b"cf:a": b"one two"}
        assert table.row(b"r") == {b"cf:a": b"one two", b"cf:b": b"new"}

    def test_append_to_several_families_answers_each_value_under_its_own_column(self, make_table: TableMaker) -> None:
        table = make_table({"cf1": {}, "cf": {}})
        columns = [b"cf:a", b"cf:b", b"cf1:a"]
        for times in (1, 2):
            found = table.append(b"r", {column: column for column in reversed(columns)})
            assert list(found.items()) == [(column, column * times) for column in columns]

    def test_append_after_a_delete_starts_anew(self, table: Table) -> None:
        needs(table.connection, "append")
        table.append(b"r", {b"cf:a": b"old"})
        table.delete(b"r")
        until_clock_moves(table, b"r")
        assert table.append(b"r", {b"cf:a": b"new"}) == {b"cf:a": b"new"}

    def test_concurrent_appends_lose_nothing(self, table: Table) -> None:
        needs(table.connection, "append")

        def write(mark: bytes) -> Callable[[], None]:
            def run() -> None:
                for _ in range(10):
                    table.append(b"r", {b"cf:a": mark})

            return run

        together(table.connection, write(b"a"), write(b"b"), write(b"c"))
        value: bytes = table.row(b"r")[b"cf:a"]
        assert sorted(value) == sorted(b"a" * 10 + b"b" * 10 + b"c" * 10)
