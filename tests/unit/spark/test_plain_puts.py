"""Pages of puts, the quick way from a record batch, hold exactly what the general way makes row by row."""

from __future__ import annotations

import datetime
import re

import pytest

pytest.importorskip("pyarrow", reason="needs the extra 'spark'")

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from metaclient.model import Cell, Put
from spark_connector.catalog import Catalog
from spark_connector.codecs.base import BadValueError
from spark_connector.mutations import page_from_batch, rows_from_batch
from spark_connector.options import Options

CATALOG = Catalog.from_mapping(
    "t", "id STRING :id, s STRING cf:s, i INT cf:i, l BIGINT cf:l, d DOUBLE cf:d, b BINARY cf:b, f BOOLEAN cf:f"
)
rows = st.fixed_dictionaries(
    {
        "id": st.text(min_size=1, max_size=5),
        "s": st.none() | st.text(max_size=5),
        "i": st.none() | st.integers(-(2**31), 2**31 - 1),
        "l": st.none() | st.integers(-(2**63), 2**63 - 1),
        "d": st.none() | st.floats(),
        "b": st.none() | st.binary(max_size=5),
        "f": st.none() | st.booleans(),
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
    ]
)


@given(
    st.lists(rows, max_size=5),
    st.sampled_from(["skip", "empty"]),
    st.sampled_from(["naive", "orderedbytes", "phoenix"]),
)
def test_quick_is_general(given_rows: list[dict[str, object]], nulls: str, encoder: str) -> None:
    options = Options.parse({"hbase.spark.write.nulls": nulls, "hbase.spark.query.encoder": encoder})
    batch = pa.RecordBatch.from_pylist(given_rows, schema=SCHEMA)
    try:
        expected = list(rows_from_batch(batch, CATALOG, options, 7))
    except BadValueError as error:
        with pytest.raises(BadValueError, match=re.escape(str(error))):
            page_from_batch(batch, CATALOG, options, 7)
        return
    page = page_from_batch(batch, CATALOG, options, 7)
    assert page is not None
    assert page.puts() == expected


@pytest.mark.parametrize(
    ("key", "message"), [(None, "null has no place"), ("", "1 to 32767 bytes"), ("x" * 40_000, "1 to 32767")]
)
def test_a_wrong_key_is_told_as_before(key: str | None, message: str) -> None:
    batch = pa.record_batch([pa.array(["a", key]), pa.array(["x", "y"])], names=["id", "s"])
    with pytest.raises(BadValueError, match=f"row 2 of a batch.*{message}"):
        page_from_batch(batch, CATALOG, Options(), 7)


def test_a_timestamp_of_each_row() -> None:
    options = Options.parse({"hbase.spark.write.timestamp": "column:at"})
    at = pa.array([datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC), None], pa.timestamp("us", "UTC"))
    batch = pa.record_batch([pa.array(["a", "b"]), pa.array(["x", "y"]), at], names=["id", "s", "at"])
    page = page_from_batch(batch, CATALOG, options, 7)
    assert page is not None
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
    assert page_from_batch(batch, Catalog.from_mapping("t", schema), Options.parse(options), 7) is None


def test_families_as_maps_are_no_page() -> None:
    catalog = Catalog.from_mapping("t", "id STRING :id, m map<string,string> cf:*")
    batch = pa.record_batch(
        [pa.array(["a"]), pa.array([[("q", "v")]], pa.map_(pa.string(), pa.string()))], names=["id", "m"]
    )
    assert page_from_batch(batch, catalog, Options(), 7) is None
    (put,) = rows_from_batch(batch, catalog, Options(), 7)
    assert isinstance(put, Put)
    assert list(put.cells) == [Cell(b"cf:q", 7, b"v")]
