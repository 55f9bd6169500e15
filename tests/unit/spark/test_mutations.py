"""DataFrames -> mutations: what each operation writes, what nulls become, and what is refused on the driver."""

from __future__ import annotations

import datetime
import struct
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

pytest.importorskip("pyarrow")
pytest.importorskip("pyspark")

import pyarrow as pa

from metaclient.columns.codecs import BadValueError
from metaclient.columns.row_batches import BatchBuilder
from metaclient.errors import ConfigError
from metaclient.model import Cell, CellType, Delete, Durability, Increment, Put, Result
from spark_connector.planning.read_schema import schema_of
from spark_connector.reading.batch_shape import spark_shape
from spark_connector.schema.catalog import Catalog
from spark_connector.settings.options import Options
from spark_connector.writing.mutations import check_writable, rows_from_batch
from tests.unit.spark.strategies import World, worlds

CATALOG = Catalog.from_mapping("t", "id STRING :id, n BIGINT f:n, s STRING f:s, m map<string,string> g:*, p BINARY g:p")
JOB = 1000


def written(
    columns: dict[str, Any], options: dict[str, str] | None = None, types: dict[str, Any] | None = None
) -> list[Any]:
    kinds = {
        "id": pa.string(),
        "n": pa.int64(),
        "s": pa.string(),
        "m": pa.map_(pa.string(), pa.string()),
        **(types or {}),
    }
    batch = pa.RecordBatch.from_pydict({name: pa.array(values, kinds.get(name)) for name, values in columns.items()})
    return list(rows_from_batch(batch, CATALOG, Options.parse(options or {}), JOB))


def one(number: int) -> bytes:
    return struct.pack(">q", number)


def test_puts() -> None:
    found = written({"id": ["a", "b"], "n": [1, 2], "s": ["x", ""], "m": [[("q", "v")], None]})
    assert found == [
        Put(b"a", (Cell(b"f:n", JOB, one(1)), Cell(b"f:s", JOB, b"x"), Cell(b"g:q", JOB, b"v"))),
        Put(b"b", (Cell(b"f:n", JOB, one(2)), Cell(b"f:s", JOB, b""))),
    ]


NULLS = {"id": ["a"], "n": [None], "s": ["x"], "m": [[("q", None)]]}


@pytest.mark.parametrize(
    ("nulls", "expected"),
    [
        ("skip", [Put(b"a", (Cell(b"f:s", JOB, b"x"),))]),
        ("empty", [Put(b"a", (Cell(b"f:n", JOB, b""), Cell(b"f:s", JOB, b"x"), Cell(b"g:q", JOB, b"")))]),
        (
            "delete",
            [
                Put(b"a", (Cell(b"f:s", JOB, b"x"),)),
                Delete(
                    b"a",
                    (
                        Cell(b"f:n", JOB, b"", CellType.DELETE_COLUMN),
                        Cell(b"g:q", JOB, b"", CellType.DELETE_COLUMN),
                    ),
                ),
            ],
        ),
    ],
)
def test_nulls(nulls: str, expected: list[Any]) -> None:
    assert written(NULLS, {"hbase.spark.write.nulls": nulls}) == expected


def test_a_row_of_nulls_writes_nothing() -> None:
    assert written({"id": ["a"], "n": [None]}) == []


def test_timestamps_durability() -> None:
    fixed = written(
        {"id": ["a"], "n": [1]}, {"hbase.spark.write.timestamp": "5", "hbase.spark.write.durability": "SKIP_WAL"}
    )
    assert fixed == [Put(b"a", (Cell(b"f:n", 5, one(1)),), Durability.SKIP_WAL)]
    by_column = {"hbase.spark.write.timestamp": "column:at"}
    moment = datetime.datetime(1970, 1, 1, 0, 0, 2, 3999, tzinfo=datetime.UTC)
    found = written({"id": ["a", "b"], "n": [1, 1], "at": [moment, None]}, by_column, {"at": pa.timestamp("us", "UTC")})
    assert [put.cells[0].timestamp for put in found] == [2003, JOB]
    found = written({"id": ["a"], "n": [1], "at": [77]}, by_column, {"at": pa.int64()})
    assert found[0].cells == (Cell(b"f:n", 77, one(1)),)
    with pytest.raises(BadValueError, match="column at holds -1"):
        written({"id": ["a"], "n": [1], "at": [-1]}, by_column, {"at": pa.int64()})


def test_deletes() -> None:
    delete = {"hbase.spark.write.operation": "delete"}
    assert written({"id": ["a"]}, delete) == [Delete(b"a", (), JOB)]
    found = written({"id": ["a", "b"], "n": [1, None], "m": [[("q", "x")], None]}, delete)
    marker = CellType.DELETE_COLUMN
    assert found == [Delete(b"a", (Cell(b"f:n", JOB, b"", marker), Cell(b"g:q", JOB, b"", marker)), JOB)]


def test_increments() -> None:
    found = written({"id": ["a", "b"], "n": [5, None]}, {"hbase.spark.write.operation": "increment"})
    assert found == [Increment(b"a", ((b"f:n", 5),))]


@pytest.mark.parametrize(
    ("columns", "options", "words"),
    [
        ({"n": pa.int64()}, {}, "the row key's column id is not in the DataFrame (n)"),
        ({"id": pa.string()}, {}, "there is nothing to put"),
        ({"id": pa.string(), "x": pa.int64()}, {}, "the catalog has no column x"),
        (
            {"id": pa.string(), "n": pa.int32()},
            {},
            "column n is bigint in the catalog and int32 in the DataFrame: cast it",
        ),
        ({"id": pa.string(), "n": pa.int64()}, {"hbase.spark.write.timestamp": "column:at"}, "no column at"),
        ({"id": pa.string(), "s": pa.string()}, {"hbase.spark.write.operation": "increment"}, "cannot be incremented"),
        ({"row": pa.binary()}, {"hbase.spark.query.layout": "map"}, "layout map takes the columns row, columns"),
        ({"row": pa.binary()}, {"hbase.spark.query.layout": "cells"}, "layout cells takes the columns row, family"),
    ],
)
def test_what_cannot_be_written_is_refused_on_the_driver(
    columns: dict[str, Any], options: dict[str, str], words: str
) -> None:
    with pytest.raises(ConfigError) as caught:
        check_writable(pa.schema(list(columns.items())), CATALOG, Options.parse(options))
    assert words in str(caught.value)


def test_a_ttl_goes_with_every_put() -> None:
    (put,) = written({"id": ["a"], "n": [1]}, {"hbase.spark.write.ttl": "1000"})
    assert put.ttl_ms == 1000


@pytest.mark.parametrize(
    ("columns", "words"),
    [
        ({"id": [None], "n": [1]}, "row 1 of a batch: row key column id: a row key cannot hold null"),
        ({"id": [""], "n": [1]}, "a row key has 1 to 32767 bytes"),
        ({"id": ["a"], "m": [[("p", "x")]]}, "map m has the key 'p', and g:p is a column of its own"),
    ],
)
def test_a_value_that_cannot_be_written_is_named(columns: dict[str, Any], words: str) -> None:
    with pytest.raises(BadValueError) as caught:
        written(columns)
    assert words in str(caught.value)


def test_decimals_dates_and_binaries_of_arrow() -> None:
    catalog = Catalog.from_mapping("t", "id BINARY :id, d decimal(10,2) f:d, t DATE f:t")
    batch = pa.RecordBatch.from_pydict(
        {
            "id": pa.array([b"\xff"], pa.binary()),
            "d": pa.array([Decimal("1.50")], pa.decimal128(10, 2)),
            "t": pa.array([datetime.date(1970, 1, 2)], pa.date32()),
        }
    )
    (put,) = rows_from_batch(batch, catalog, Options.parse({}), JOB)
    assert put.row == b"\xff"
    assert put.cells == (Cell(b"f:d", JOB, b"\0\0\0\x02\0\x96"), Cell(b"f:t", JOB, struct.pack(">q", 86_400_000)))


def test_cells_are_written_as_they_were_read() -> None:
    options = Options.parse({"hbase.spark.query.layout": "raw"})
    schema = schema_of(CATALOG, options)
    builder = BatchBuilder(spark_shape(CATALOG, schema, options))
    first = (
        Cell(b"f:a", 9, b"x"),
        Cell(b"f:a", 8, b"", CellType.DELETE_COLUMN),
        Cell(b"f:", 0, b"", CellType.DELETE_FAMILY),
    )
    builder.add(Result(b"r1", first))
    builder.add(Result(b"r2", (Cell(b"f:\xff", 7, b""),)))
    assert list(rows_from_batch(builder.build(), CATALOG, options, JOB)) == [
        Put(b"r1", (first[0],)),
        Delete(b"r1", first[1:]),
        Put(b"r2", (Cell(b"f:\xff", 7, b""),)),
    ]


def test_maps_are_written_as_they_were_read() -> None:
    options = Options.parse({"hbase.spark.query.layout": "map"})
    builder = BatchBuilder(spark_shape(CATALOG, schema_of(CATALOG, options), options))
    builder.add(Result(b"r1", (Cell(b"f:\xff:x", 9, b"v"), Cell(b"g:", 9, b""))))
    assert list(rows_from_batch(builder.build(), CATALOG, options, JOB)) == [
        Put(b"r1", (Cell(b"f:\xff:x", JOB, b"v"), Cell(b"g:", JOB, b"")))
    ]


@given(data=st.data())
@settings(max_examples=80, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
def test_what_is_read_can_be_written_back_byte_for_byte(data: st.DataObject) -> None:
    world: World = data.draw(worlds())
    options = Options.parse({})
    builder = BatchBuilder(spark_shape(world.catalog, world.catalog.schema(), options))
    for row, cells in world.stored.items():
        builder.add(Result(row, [Cell(column, 1, value) for column, value in cells.items()]))
    again = {
        put.row: {cell.column: cell.value for cell in put.cells}
        for put in rows_from_batch(builder.build(), world.catalog, options, JOB)
    }
    expected = {
        row: {
            field.column: field.codec.encode(world.read[row][field.name], field.type)
            for field in world.catalog.columns
            if hasattr(field, "column") and world.read[row][field.name] is not None
        }
        for row in world.stored
    }
    assert again == expected == world.stored
