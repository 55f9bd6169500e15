"""The contract of backends: atomic mutations of one row."""

from __future__ import annotations

import pytest

from metaclient.errors import NoSuchFamily
from metaclient.table import Table
from metaclient.testing.contract.suite import ContractSuite, needs, together

__all__ = ["AtomicRows"]


class AtomicRows(ContractSuite):
    def test_row_mutation_puts_and_deletes_together(self, table: Table) -> None:
        needs(table.connection, "row_mutations")
        table.put(b"r", {b"cf:a": b"1", b"other:b": b"1"}, timestamp=1)
        table.mutate_row(b"r", put={b"cf:c": b"2"}, delete=[b"cf:a", b"other"], timestamp=2)
        self.disturb(table.connection, table)
        assert table.row(b"r") == {b"cf:c": b"2"}

    def test_row_mutation_with_one_bad_part_applies_none(self, table: Table) -> None:
        needs(table.connection, "row_mutations")
        table.put(b"r", {b"cf:a": b"1"}, timestamp=1)
        with pytest.raises(NoSuchFamily):
            table.mutate_row(b"r", put={b"nope:x": b"2"}, delete=[b"cf:a"])
        with pytest.raises(NoSuchFamily):
            table.mutate_row(b"r", put={b"cf:a": b"2"}, delete=[b"nope:x"])
        assert table.row(b"r") == {b"cf:a": b"1"}

    def test_reader_never_sees_half_of_a_put(self, table: Table) -> None:
        columns = [b"cf:a", b"cf:b", b"other:c"]
        table.put(b"r", dict.fromkeys(columns, b"0"))

        seen: list[set[bytes]] = []

        def write() -> None:
            for number in range(1, 40):
                table.put(b"r", dict.fromkeys(columns, b"%d" % number), timestamp=10**13 + number)

        def read() -> None:
            seen.extend(set(table.row(b"r").values()) for _ in range(40))

        def scan() -> None:
            seen.extend(set(row.values()) for _ in range(20) for _, row in table.scan())

        together(table.connection, write, read, scan)
        assert len(seen) == 60
        assert all(len(values) == 1 for values in seen)

    def test_reader_never_sees_half_of_a_row_mutation(self, table: Table) -> None:
        """A token moves between two columns: at any time exactly one of them has it."""
        needs(table.connection, "row_mutations")
        places = [b"cf:left", b"cf:right"]
        table.put(b"r", {places[0]: b"token"}, timestamp=1)
        seen: list[int] = []

        def move() -> None:
            for number in range(2, 40):
                source, target = places[number % 2], places[(number + 1) % 2]
                table.mutate_row(b"r", put={target: b"token"}, delete=[source], timestamp=number)

        def read() -> None:
            seen.extend(len(table.row(b"r")) for _ in range(60))

        together(table.connection, move, read)
        assert len(seen) == 60
        assert set(seen) == {1}
