"""The quick way from a record batch to puts writes exactly what the general way writes."""

from __future__ import annotations

import datetime

import pytest

pytest.importorskip("pyarrow", reason="needs the extra 'spark'")

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from spark_connector.catalog import Catalog
from spark_connector.codecs.base import BadValueError
from spark_connector.mutations import _Columns, rows_from_batch
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
    general = _Columns(batch, CATALOG, options, 7)
    try:
        keys = [CATALOG.key[0].encode(row["id"]) for row in given_rows]
        expected = list(general._puts_and_deletes(keys))
    except BadValueError:
        with pytest.raises(BadValueError):
            list(rows_from_batch(batch, CATALOG, options, 7))
        return
    assert list(rows_from_batch(batch, CATALOG, options, 7)) == expected


@pytest.mark.parametrize(
    ("key", "message"), [(None, "null has no place"), ("", "1 to 32767 bytes"), ("x" * 40_000, "1 to 32767")]
)
def test_a_wrong_key_is_told_as_before(key: str | None, message: str) -> None:
    batch = pa.record_batch([pa.array(["a", key]), pa.array(["x", "y"])], names=["id", "s"])
    with pytest.raises(BadValueError, match=f"row 2 of a batch.*{message}"):
        list(rows_from_batch(batch, CATALOG, Options(), 7))


def test_a_timestamp_of_each_row() -> None:
    options = Options.parse({"hbase.spark.write.timestamp": "column:at"})
    at = pa.array([datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC), None], pa.timestamp("us", "UTC"))
    batch = pa.record_batch([pa.array(["a", "b"]), pa.array(["x", "y"]), at], names=["id", "s", "at"])
    assert [put.cells[0].timestamp for put in rows_from_batch(batch, CATALOG, options, 7)] == [1767225600000, 7]
