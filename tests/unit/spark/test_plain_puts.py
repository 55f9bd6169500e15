"""Pages of puts, the quick way from a record batch, hold exactly what the general way makes row by row."""

from __future__ import annotations

import datetime

import pytest

pytest.importorskip("pyarrow", reason="needs the extra 'spark'")

import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from metaclient.columns.codecs.base import BadValueError
from metaclient.model import Cell, Put
from spark_connector.schema.catalog import Catalog, CellColumn
from spark_connector.settings.options import Options
from spark_connector.writing.mutations import pages_from_batch, rows_from_batch

COLUMNS = (
    "id STRING :id, s STRING cf:s, i INT cf:i, l BIGINT cf:l, d DOUBLE cf:d, b BINARY cf:b, f BOOLEAN cf:f, "
    "h SMALLINT cf:h, y TINYINT cf:y, e FLOAT cf:e, day DATE cf:day, at TIMESTAMP cf:at, then TIMESTAMP_NTZ cf:then"
)
CATALOG = Catalog.from_mapping("t", COLUMNS)
rows = st.fixed_dictionaries(
    {
        "id": st.text(min_size=1, max_size=5),
        "s": st.none() | st.text(max_size=5),
        "i": st.none() | st.integers(-(2**31), 2**31 - 1),
        "l": st.none() | st.integers(-(2**63), 2**63 - 1),
        "d": st.none() | st.floats(),
        "b": st.none() | st.binary(max_size=5),
        "f": st.none() | st.booleans(),
        "h": st.none() | st.integers(-(2**15), 2**15 - 1),
        "y": st.none() | st.integers(-(2**7), 2**7 - 1),
        "e": st.none() | st.floats(width=32, allow_nan=False),
        "day": st.none() | st.dates(),
        "at": st.none() | st.datetimes(timezones=st.just(datetime.UTC)),
        "then": st.none() | st.datetimes(),
    }
)
SCHEMA = pa.schema(
    [
        ("id", pa.string()),
        ("s", pa.string()),
        ("i", pa.int32()),
        ("l", pa.int64()),
        ("d", pa.float64()),
        ("b", pa.binary()),
        ("f", pa.bool_()),
        ("h", pa.int16()),
        ("y", pa.int8()),
        ("e", pa.float32()),
        ("day", pa.date32()),
        ("at", pa.timestamp("us", "UTC")),
        ("then", pa.timestamp("us")),
    ]
)


def encoded_one_by_one(batch: pa.RecordBatch, catalog: Catalog, nulls: str) -> list[Put]:
    """What must come out, by nothing but each codec's ``encode``."""
    made = []
    for row in batch.to_pylist():
        key = catalog.key[0]
        cells = []
        for name, value in row.items():
            field = catalog.field(name)
            if not isinstance(field, CellColumn) or (value is None and nulls == "skip"):
                continue
            cells.append(Cell(field.column, 7, b"" if value is None else field.codec.encode(value, field.type)))
        if cells:
            made.append(Put(key.codec.encode(row[key.name], key.type), tuple(cells)))
    return made


@pytest.mark.parametrize("coder", ["naive", "orderedbytes", "phoenix", "json"])
@given(st.lists(rows, max_size=5), st.sampled_from(["skip", "empty"]))
@settings(max_examples=50)
def test_pages_hold_what_the_codec_makes_of_each_value(
    coder: str, given_rows: list[dict[str, object]], nulls: str
) -> None:
    catalog = Catalog.from_mapping("t", COLUMNS, default_coder=coder)
    options = Options.parse({"hbase.spark.write.nulls": nulls})
    batch = pa.RecordBatch.from_pylist(given_rows, schema=SCHEMA)
    try:
        expected = encoded_one_by_one(batch, catalog, nulls)
    except BadValueError:
        with pytest.raises(BadValueError, match="write to t"):
            pages_from_batch(batch, catalog, options, 7)
        with pytest.raises(BadValueError, match="write to t"):
            list(rows_from_batch(batch, catalog, options, 7))
        return
    (page,) = pages_from_batch(batch, catalog, options, 7) or ()
    assert page.puts() == expected
    assert list(rows_from_batch(batch, catalog, options, 7)) == expected


def test_numbers_are_keys_all_at_once() -> None:
    catalog = Catalog.from_mapping("t", "id BIGINT :id, s STRING cf:s")
    batch = pa.record_batch([pa.array([-1, 258]), pa.array(["x", "y"])], names=["id", "s"])
    (page,) = pages_from_batch(batch, catalog, Options(), 7) or ()
    assert page.rows.to_pylist() == [b"\xff" * 8, b"\0" * 6 + b"\1\2"]
    missing = pa.record_batch([pa.array([1, None], pa.int64()), pa.array(["x", "y"])], names=["id", "s"])
    with pytest.raises(BadValueError, match="row 2 of a batch"):
        pages_from_batch(missing, catalog, Options(), 7)


@pytest.mark.parametrize(
    "column",
    [
        pa.array([2**31 - 1], pa.int32()).cast(pa.date32()),
        pa.array([2**62], pa.int64()).cast(pa.timestamp("us", "UTC")),
    ],
    ids=["day", "at"],
)
def test_years_that_python_has_not_are_refused(column: pa.Array) -> None:
    name = "day" if pa.types.is_date(column.type) else "at"
    batch = pa.record_batch([pa.array(["a"]), column], names=["id", name])
    with pytest.raises(BadValueError, match=f"write to t, column {name}: .* outside of the years 1 to 9999"):
        pages_from_batch(batch, CATALOG, Options(), 7)


@pytest.mark.parametrize(
    ("key", "message"), [(None, "cannot hold null"), ("", "1 to 32767 bytes"), ("x" * 40_000, "1 to 32767")]
)
def test_a_wrong_key_is_told_as_before(key: str | None, message: str) -> None:
    batch = pa.record_batch([pa.array(["a", key]), pa.array(["x", "y"])], names=["id", "s"])
    with pytest.raises(BadValueError, match=f"row 2 of a batch.*{message}"):
        pages_from_batch(batch, CATALOG, Options(), 7)


def test_a_timestamp_of_each_row() -> None:
    options = Options.parse({"hbase.spark.write.timestamp": "column:at"})
    at = pa.array([datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC), None], pa.timestamp("us", "UTC"))
    batch = pa.record_batch([pa.array(["a", "b"]), pa.array(["x", "y"]), at], names=["id", "s", "at"])
    (page,) = pages_from_batch(batch, CATALOG, options, 7) or ()
    assert page.timestamps.to_pylist() == [1767225600000, 7]
    assert page.puts() == list(rows_from_batch(batch, CATALOG, options, 7))


@pytest.mark.parametrize(
    ("options", "schema"),
    [
        ({"hbase.spark.write.nulls": "delete"}, "id STRING :id, s STRING cf:s"),
        ({"hbase.spark.write.operation": "delete"}, "id STRING :id, s STRING cf:s"),
    ],
)
def test_what_is_not_all_puts_is_no_page(options: dict[str, str], schema: str) -> None:
    batch = pa.record_batch([pa.array(["a"]), pa.array([None], pa.string())], names=["id", "s"])
    assert pages_from_batch(batch, Catalog.from_mapping("t", schema), Options.parse(options), 7) is None


def test_families_as_maps_are_no_page() -> None:
    catalog = Catalog.from_mapping("t", "id STRING :id, m map<string,string> cf:*")
    batch = pa.record_batch(
        [pa.array(["a"]), pa.array([[("q", "v")]], pa.map_(pa.string(), pa.string()))], names=["id", "m"]
    )
    assert pages_from_batch(batch, catalog, Options(), 7) is None
    (put,) = rows_from_batch(batch, catalog, Options(), 7)
    assert isinstance(put, Put)
    assert list(put.cells) == [Cell(b"cf:q", 7, b"v")]
