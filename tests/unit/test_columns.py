"""Columns of a table: schemas, data that cannot be written, the progress of long scans, missing packages."""

from __future__ import annotations

import io
import subprocess
import sys
from typing import Any

import pytest

import metaclient
from metaclient import BatchError, ConfigError, Table
from metaclient.columns import progress as progress_module
from metaclient.columns.progress import ScanProgress
from metaclient.columns.schema import parse_schema
from metaclient.errors import ExtraMissing

pa = pytest.importorskip("pyarrow")
pandas = pytest.importorskip("pandas")
polars = pytest.importorskip("polars")


@pytest.fixture
def table() -> Any:
    with metaclient.connect("scripted:") as connection:
        connection.create_table("t", {"d": {}})
        yield connection.table("t")


# -- schemas ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("schema", "message"),
    [
        ({"age": "int"}, "schema: column 'age' has no family: write 'FAMILY:age', or 'row' for the row key"),
        ({"d:age": "itn"}, "schema: column 'd:age': type 'itn': there is no type itn; did you mean int?"),
        ({"d:age": ("int", "naiv")}, "schema: column 'd:age': no codec is called 'naiv'; did you mean naive?"),
        ({"d:age": {"typ": "int"}}, "schema: column 'd:age': {'typ': 'int'} must have 'type', may have 'coder'"),
        ({"d:x": "array<int>"}, "the coder naive cannot hold array<int>; json can: ('array<int>', 'json')"),
        ({"d": "map<int,int>"}, "the keys of a family's map are qualifiers: string or binary, not int"),
        ({"d:a": "int", b"d:a": "int"}, "schema: columns 'd:a' and 'd:a' are the same"),
        ({"d:\\q": "int"}, "a backslash must begin"),
    ],
)
def test_wrong_schema_is_named_with_the_correction(schema: Any, message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        parse_schema(schema)
    assert message in str(caught.value)


@pytest.mark.parametrize(("schema", "message"), [("d:age int", "must map columns"), ({"d:a": 5}, "a type such as")])
def test_object_that_is_no_schema_is_refused(schema: Any, message: str) -> None:
    with pytest.raises(TypeError, match=message):
        parse_schema(schema)


def test_arguments_are_checked_before_the_first_batch(table: Table) -> None:
    with pytest.raises(TypeError, match="have no option 'shcema'"):
        table.scan_arrow(shcema={})  # type: ignore[call-arg]
    with pytest.raises(TypeError, match="'columns' cannot be combined with 'schema'"):
        table.scan_arrow(schema={"d:a": "int"}, columns=["d:a"])
    with pytest.raises(ValueError, match="'bad_cells' must be 'raise' or 'null'"):
        table.scan_arrow(bad_cells="skip")  # type: ignore[arg-type]
    table.connection.close()
    with pytest.raises(metaclient.ConnectionClosed):
        table.scan_arrow()


# -- frames ----------------------------------------------------------------------------------------------------------


def test_missing_cell_makes_no_float_of_a_large_number(table: Table) -> None:
    large = 2**53 + 1
    table.put_pandas(pandas.DataFrame({"row": ["a", "b"], "d:n": pandas.array([large, None], "Int64"), "d:s": "x"}))
    frame = table.to_pandas(schema={"row": "string", "d:n": "bigint", "d:s": "string"})
    assert frame["d:n"].tolist() == [large, pandas.NA]
    assert str(frame["d:n"].dtype) == "Int64"


def test_frame_with_the_row_keys_as_index_is_written(table: Table) -> None:
    frame = pandas.DataFrame({"d:n": [1.5, float("nan")], "d:s": ["x", "y"]}, index=["a", "b"]).rename_axis("row")
    assert table.put_pandas(frame) == 2
    assert table.row(b"b") == {b"d:s": b"y"}
    with pytest.raises(ValueError, match=r"needs the row keys in a column or an index called 'row'"):
        table.put_pandas(frame.rename_axis(None))
    with pytest.raises(TypeError, match=r"put_pandas\(\) takes a DataFrame, got Table"):
        table.put_pandas(pa.table({"row": ["a"]}))


def test_frame_of_polars_goes_both_ways(table: Table) -> None:
    given = polars.DataFrame({"row": ["a", "b"], "d:n": [1, None], "d:s": ["é", "y"]})
    assert table.put_arrow(given) == 2
    assert table.to_polars(schema={"row": "string", "d:n": "bigint", "d:s": "string"}).equals(given)


# -- data that cannot be written -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("data", "schema", "message"),
    [
        ({"d:a": [1]}, None, "put_arrow on t: there is no column 'row', the row key; the columns are d:a"),
        ({"row": ["a"]}, None, "put_arrow on t: there is only the row key: nothing to write"),
        ({"row": ["a"], "age": [1]}, None, "put_arrow on t: column 'age' has no family: write 'FAMILY:age'"),
        ({"row": ["a"], "d:a": [[1]]}, None, "column 'd:a' is list<item: int64>, for which there is no default"),
        ({"row": ["a"], "d:a": [1]}, {"d:b": "int"}, "column 'd:a' is not in the schema, which has row, d:b"),
        ({"row": ["a"], "d:a": [1 << 40]}, {"d:a": "int"}, "is int64, and int is wanted: Integer value 1099511627776"),
        ({"row": ["a"], "d": [1]}, {"d": "map<string,int>"}, "is a whole family, which cannot be written"),
        ({"row": ["a", None], "d:a": [1, 2]}, None, "put_arrow on t, row 2 of a batch: a row key cannot hold null"),
        ({"row": ["a", ""], "d:a": [1, 2]}, None, "put_arrow on t, row 2 of a batch: "),
    ],
)
def test_data_that_cannot_be_written_is_named(table: Table, data: Any, schema: Any, message: str) -> None:
    with pytest.raises(ValueError, match="put_arrow") as caught:
        table.put_arrow(pa.table(data), schema)
    assert message in str(caught.value)
    assert list(table.scan()) == []


@pytest.mark.parametrize("data", [5, "rows", {"row": ["a"]}, [1]])
def test_object_without_batches_is_refused(table: Table, data: Any) -> None:
    with pytest.raises(TypeError, match="put_arrow"):
        table.put_arrow(data)


def test_rows_after_a_refused_call_are_not_sent(table: Table, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("metaclient.table_columns.PUT_ROWS", 1)
    batches = [pa.record_batch({"row": [row], f"{family}:a": ["1"]}) for row, family in ("ad", "bx", "cd")]
    with pytest.raises(BatchError, match="after 1 rows were written") as caught:
        table.put_arrow(batches)
    assert list(caught.value.failed) == [b"b"]
    assert [key for key, _ in table.scan()] == [b"a"]


# -- progress --------------------------------------------------------------------------------------------------------


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_progress_is_shown_for_long_scans_only_and_removed_at_the_end() -> None:
    clock = [0.0]
    stream = Terminal()
    line = ScanProgress("scan of t", stream, lambda: clock[0], limit=1000)
    line.add(100, 1_000_000)
    assert stream.getvalue() == ""
    clock[0] = progress_module.SHOWN_AFTER_S
    line.add(400, 4_000_000)
    assert "scan of t: [############............]  50%, 500 rows, 5 MB, 250 rows/s" in stream.getvalue()
    clock[0] += 0.1
    line.add(1, 1)
    shown = stream.getvalue()
    assert shown.count("scan of t") == 1
    line.close()
    assert stream.getvalue().endswith("\r" + " " * (len(shown) - 1) + "\r")


def test_progress_goes_to_terminals_only() -> None:
    clock = [0.0]
    stream = io.StringIO()
    line = ScanProgress("scan of t", stream, lambda: clock[0])
    clock[0] = 100.0
    line.add(1, 1)
    line.close()
    assert stream.getvalue() == ""


# -- packages --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("package", "call", "extra"),
    [
        ("pyarrow", "to_arrow()", "arrow"),
        ("numpy", "scan_arrow()", "arrow"),
        ("pandas", "to_pandas()", "pandas"),
        ("polars", "to_polars()", "polars"),
    ],
)
def test_missing_package_is_named_with_the_command(
    table: Table, monkeypatch: pytest.MonkeyPatch, package: str, call: str, extra: str
) -> None:
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(ExtraMissing) as caught:
        getattr(table, call.rstrip("()"))()
    assert str(caught.value) == f"{call} needs {package}: pip install 'hbase-metaclient[{extra}]'"


def test_import_of_metaclient_does_not_pay_for_arrow() -> None:
    program = "import sys, metaclient; print([n for n in ('pyarrow', 'numpy', 'pandas', 'polars') if n in sys.modules])"
    made = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=300)
    assert made.stdout.strip() == "[]"
