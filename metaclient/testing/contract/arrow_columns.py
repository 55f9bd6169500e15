"""The contract of backends: columns of Arrow, read and written."""

from __future__ import annotations

import pytest

from metaclient.errors import BatchError
from metaclient.table import Table
from metaclient.testing.contract.suite import LETTER_SPLITS, LETTERS, ContractSuite, TableMaker, scanned

__all__ = ["ArrowColumns"]

SCHEMA = {"row": "string", "cf:age": "int", "cf:note": ("string", "json"), "other:at": ("bigint", "orderedbytes")}


class ArrowColumns(ContractSuite):
    @pytest.fixture(autouse=True)
    def _arrow(self, request: pytest.FixtureRequest) -> None:
        if request.function.__name__.startswith("test_columns"):
            pytest.importorskip("numpy")
            pytest.importorskip("pyarrow")

    def test_columns_are_read_as_they_were_written(self, make_table: TableMaker) -> None:
        """Rows of several regions, unsorted, with nulls; one row without cells is not written."""
        import pyarrow as pa

        table = make_table(splits=LETTER_SPLITS)
        rows = [letter.decode() for letter in reversed(LETTERS)]
        given = pa.table(
            {
                "row": [*rows, "nothing"],
                "cf:age": pa.array([*range(len(rows)), None], pa.int64()),
                "cf:note": [*(None if number % 3 else f"é{number}" for number, _ in enumerate(rows)), None],
                "other:at": [*(-number << 33 for number, _ in enumerate(rows)), None],
            }
        )
        assert table.put_arrow(given, SCHEMA) == len(rows)
        self.disturb(table.connection, table)
        found = table.to_arrow(schema=SCHEMA)
        assert [str(field.type) for field in found.schema] == ["string", "int32", "string", "int64"]
        assert found.to_pylist() == list(reversed(given.to_pylist()[:-1]))
        assert table.row(b"z")[b"cf:age"] == b"\0\0\0\0"
        some = table.to_arrow("c", "x", schema=SCHEMA, limit=3, batch_size=2)
        assert some["row"].to_pylist() == ["c", "d", "e"]
        assert table.to_arrow(row_prefix="nothing", schema=SCHEMA).num_rows == 0

    def test_columns_of_raw_cells_hold_what_rows_hold(self, table: Table) -> None:
        for number in range(20):
            table.put(b"%02d" % number, {b"cf:a": b"v" * (number % 3), b"cf:\xff": b"\0"}, timestamp=7 + number)
            table.put(b"%02d" % number, {b"other:": b"%d" % number}, timestamp=5)
        self.disturb(table.connection, table)
        rows = scanned(table, include_timestamp=True)
        cells = table.to_arrow(batch_size=3)
        assert cells.schema.names == ["row", "family", "qualifier", "timestamp", "value"]
        assert [tuple(cell.values()) for cell in cells.to_pylist()] == [
            (key, *(part.decode() if not at else part for at, part in enumerate(column.split(b":", 1))), stamp, value)
            for key, row in rows
            for column, (value, stamp) in row.items()
        ]
        selected = table.to_arrow("05", "07", columns=["other"])
        assert selected["value"].to_pylist() == [b"5", b"6"]

    def test_columns_of_raw_cells_are_written_with_their_timestamps(self, make_table: TableMaker) -> None:
        one, other = make_table(), make_table()
        for number in range(5):
            one.put(b"%d" % number, {b"cf:a": b"x", b"other:b": b""}, timestamp=number + 3)
        assert other.put_arrow(one.to_arrow()) == 5
        assert scanned(other, include_timestamp=True) == scanned(one, include_timestamp=True)

    def test_columns_of_a_family_are_a_map(self, table: Table) -> None:
        table.put(b"a", {b"cf:x": b"1", b"cf:y": b"22", b"other:z": b"3"})
        table.put(b"b", {b"other:z": b"4"})
        self.disturb(table.connection, table)
        found = table.to_arrow(schema={"cf": "map<string,binary>", "other:z": ("int", "string")})
        assert found.to_pylist() == [
            {"row": b"a", "cf": [("x", b"1"), ("y", b"22")], "other:z": 3},
            {"row": b"b", "cf": None, "other:z": 4},
        ]

    def test_columns_with_a_cell_of_another_type_name_it(self, table: Table) -> None:
        table.put(b"a", {b"cf:n": b"\0\0\0\1"})
        table.put(b"b", {b"cf:n": b"12"})
        with pytest.raises(ValueError, match="column cf:n, row b: int takes 4 bytes, got 2"):
            table.to_arrow(schema={"cf:n": "int"})
        found = table.to_arrow(schema={"cf:n": "int"}, bad_cells="null")
        assert found.to_pylist() == [{"row": b"a", "cf:n": 1}, {"row": b"b", "cf:n": None}]

    def test_columns_of_an_unknown_family_are_refused_row_by_row(self, table: Table) -> None:
        import pyarrow as pa

        with pytest.raises(BatchError) as caught:
            table.put_arrow(pa.table({"row": ["a", "b"], "nofamily:x": ["1", "2"]}))
        assert set(caught.value.failed) == {b"a", b"b"}

    def test_columns_of_the_row_key_alone_have_every_row(self, wide_table: Table) -> None:
        found = wide_table.to_arrow(schema={"row": "string"}, provenance=True)
        assert found["row"].to_pylist() == [letter.decode() for letter in LETTERS]
        assert set(found["stale"].to_pylist()) == {False}

    def test_columns_that_are_a_small_part_of_the_rows_have_the_rows_of_a_scan(self, make_table: TableMaker) -> None:
        """Most bytes are of other columns, some rows have only those; pages are small, so that the read changes."""
        table = make_table(splits=LETTER_SPLITS)
        for number, letter in enumerate(LETTERS):
            cells = {b"cf:big": b"x" * 300} if number % 4 else {b"cf:big": b"x" * 300, b"cf:n": b"%d" % number}
            table.put(letter, cells if number % 5 else {b"cf:n": b"%d" % number})
        self.disturb(table.connection, table)
        for wanted in (["cf:n"], ["cf:big"], ["cf:n", "cf:big"], ["cf:none"]):
            found = table.to_arrow(schema=dict.fromkeys(wanted, "binary"), batch_size=2).to_pylist()
            expected = [
                {"row": key, **{name: row.get(name.encode()) for name in wanted}}
                for key, row in scanned(table, columns=wanted)
            ]
            assert found == expected
