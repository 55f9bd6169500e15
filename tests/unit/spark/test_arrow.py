"""Record batches: the fast way equals the slow way, nulls and empty values differ, bad cells are named."""

from __future__ import annotations

import struct
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

pytest.importorskip("pyarrow")
pytest.importorskip("pyspark")

from pyspark.sql.types import StructType

from metaclient.columns import row_batches as arrow
from metaclient.columns.decoding import BadCellError
from metaclient.columns.row_batches import BatchBuilder, batches_from_results
from metaclient.errors import ConfigError
from metaclient.model import Cell, CellType, RegionInfo, RegionLocation, Result, ServerName
from spark_connector.planning.read_schema import schema_of
from spark_connector.reading.batch_shape import arrow_schema, spark_shape
from spark_connector.schema.catalog import Catalog
from spark_connector.settings.options import Options
from tests.unit.spark.strategies import World, alike, worlds

CATALOG = Catalog.parse(
    {
        "table": {"name": "t"},
        "rowkey": "a:b",
        "columns": {
            "a": {"cf": "rowkey", "col": "a", "type": "int"},
            "b": {"cf": "rowkey", "col": "b", "type": "string"},
            "i": {"cf": "f", "col": "i", "type": "int"},
            "s": {"cf": "f", "col": "s", "type": "string"},
            "rest": {"cf": "f", "type": "map<string,binary>"},
            "m": {"cf": "g", "type": "map<binary,bigint>"},
        },
    }
)
COLUMNS = Options.parse({"url": "fake:"})


def result(number: int, *cells: tuple[bytes, bytes], stale: bool = False) -> Result:
    return Result(struct.pack(">i", number) + b"k", [Cell(column, 1, value) for column, value in cells], stale)


def rows(results: list[Any], options: Options = COLUMNS, schema: StructType | None = None) -> list[dict[str, Any]]:
    schema = schema_of(CATALOG, options) if schema is None else schema
    batches = list(batches_from_results(results, spark_shape(CATALOG, schema, options)))
    assert all(batch.schema == arrow_schema(schema) for batch in batches)
    return [row for batch in batches for row in batch.to_pylist()]


def test_absent_is_null_and_empty_is_empty() -> None:
    found = rows([result(1, (b"f:s", b"")), result(2, (b"f:i", b"\0\0\0\x07"))])
    assert found == [
        {"a": 1, "b": "k", "i": None, "s": "", "rest": None, "m": None},
        {"a": 2, "b": "k", "i": 7, "s": None, "rest": None, "m": None},
    ]


def test_a_family_is_a_map_of_what_no_other_column_is() -> None:
    (found,) = rows(
        [result(1, (b"f:i", b"\0\0\0\x01"), (b"f:\xff", b"x"), (b"f:z", b""), (b"g:", struct.pack(">q", 9)))]
    )
    assert found["rest"] == [("\\xFF", b"x"), ("z", b"")]
    assert found["m"] == [(b"", 9)]


def test_a_family_leaves_out_named_cells_that_are_not_selected() -> None:
    schema = CATALOG.select(["rest"]).schema()
    assert rows([result(1, (b"f:i", b"\0\0\0\x01"), (b"f:x", b"y"))], schema=schema) == [{"rest": [("x", b"y")]}]


def test_the_newest_version_counts_and_pieces_of_a_row_are_joined() -> None:
    row = result(1).row
    pieces = [
        Result(row, [Cell(b"f:i", 9, b"\0\0\0\x02"), Cell(b"f:i", 8, b"\0\0\0\x01")], is_partial=True),
        Result(row, [Cell(b"f:s", 9, b"new"), Cell(b"f:s", 8, b"old")]),
    ]
    (found,) = rows(pieces)
    assert (found["i"], found["s"]) == (2, "new")


def test_map_layout() -> None:
    options = Options.parse({"hbase.spark.query.layout": "map"})
    assert rows([result(1, (b"f:i", b"\0"), (b"g:\xff", b""))], options) == [
        {"row": b"\0\0\0\x01k", "columns": [("f:i", b"\0"), ("g:\\xFF", b"")]}
    ]


@pytest.mark.parametrize("layout", ["cells", "raw"])
def test_cells_layouts_have_a_row_for_each_cell(layout: str) -> None:
    options = Options.parse({"hbase.spark.query.layout": layout})
    given_result = Result(b"r", [Cell(b"f:q:x", 5, b"v"), Cell(b"f:q:x", 4, b"", CellType.DELETE_COLUMN)])
    common = {"row": b"r", "family": "f", "qualifier": b"q:x"}
    assert rows([given_result], options) == [
        {**common, "timestamp": 5, "type": "PUT", "value": b"v"},
        {**common, "timestamp": 4, "type": "DELETE_COLUMN", "value": b""},
    ]


def test_stale_and_replica_columns() -> None:
    given_options = {
        "hbase.spark.query.readreplica": "true",
        "hbase.spark.query.stalecolumn": "stale",
        "hbase.spark.query.replicacolumn": "replica",
        "hbase.spark.query.columns": "i",
    }
    place = RegionLocation(RegionInfo(b"t", replica_id=2), ServerName("h", 1))
    found = rows([(result(1, stale=True), place), (result(2), None)], Options.parse(given_options))
    assert found == [{"i": None, "stale": True, "replica": 2}, {"i": None, "stale": False, "replica": 0}]


def test_no_columns_are_still_rows() -> None:
    (batch,) = batches_from_results([result(1), result(2)], spark_shape(CATALOG, StructType(), COLUMNS))
    assert (batch.num_rows, batch.num_columns) == (2, 0)


def test_nothing_is_no_batch_and_an_empty_build_is_a_typed_one() -> None:
    schema = schema_of(CATALOG, COLUMNS)
    assert list(batches_from_results([], spark_shape(CATALOG, schema, COLUMNS))) == []
    empty = BatchBuilder(spark_shape(CATALOG, schema, COLUMNS)).build()
    assert empty.num_rows == 0
    assert empty.schema == arrow_schema(schema)


def test_batches_are_bounded_and_never_cut_a_row(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(arrow, "ROWS_MAX", 2)
    pieces = [
        piece for number in range(5) for piece in (result(number, (b"f:s", b"x")), result(number, (b"f:i", b"\0" * 4)))
    ]
    batches = list(
        batches_from_results(pieces, spark_shape(CATALOG, CATALOG.select(["a", "s", "i"]).schema(), COLUMNS))
    )
    assert [batch.num_rows for batch in batches] == [2, 2, 1]
    assert [row["i"] for batch in batches for row in batch.to_pylist()] == [0] * 5
    monkeypatch.setattr(arrow, "BYTES_MAX", 100)
    large = [result(number, (b"f:s", b"x" * 200)) for number in range(3)]
    assert [
        b.num_rows for b in batches_from_results(large, spark_shape(CATALOG, schema_of(CATALOG, COLUMNS), COLUMNS))
    ] == [1, 1, 1]


@pytest.mark.parametrize(
    ("bad", "words"),
    [
        (
            result(1, (b"f:i", b"abc")),
            ["table t", "column i (f:i)", r"row \x00\x00\x00\x01k", "int takes 4 bytes", "abc"],
        ),
        (result(1, (b"f:s", b"\xff")), ["table t", "column s (f:s)", "no UTF-8 at byte 0", r"\xFF"]),
        (result(1, (b"g:x", b"abc")), ["table t", "column m (family g)", "bigint takes 8 bytes"]),
        (Result(b"ab", [Cell(b"f:i", 1, b"")]), ["table t", "row ab", "row key column a takes 4 bytes, 2 left"]),
    ],
)
def test_a_bad_cell_is_named_or_null(bad: Result, words: list[str]) -> None:
    with pytest.raises(BadCellError) as caught:
        rows([result(0), bad])
    assert all(word in str(caught.value) for word in [*words, "hbase.spark.query.badvalue=null"])
    good, broken = rows([result(0, (b"f:i", b"\0\0\0\0")), bad], Options.parse({"hbase.spark.query.badvalue": "null"}))
    assert good["i"] == 0
    assert (broken["i"], broken["s"]) == (None, None)


def test_a_schema_that_is_not_the_catalogs_is_refused() -> None:
    with pytest.raises(ConfigError, match="column i is int in the catalog and bigint in the schema"):
        spark_shape(CATALOG, StructType().add("i", "long"), COLUMNS)
    with pytest.raises(ConfigError, match="no column j"):
        spark_shape(CATALOG, StructType().add("j", "integer"), COLUMNS)
    with pytest.raises(ConfigError, match="layout cells has no column value string"):
        spark_shape(CATALOG, StructType().add("value", "string"), Options.parse({"hbase.spark.query.layout": "cells"}))


@pytest.mark.parametrize("is_null", [False, True])
@given(data=st.data())
@settings(max_examples=60, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
def test_the_fast_way_equals_the_slow_way(is_null: bool, data: st.DataObject) -> None:
    world: World = data.draw(worlds(bad_values=is_null))
    options = Options.parse({"hbase.spark.query.badvalue": "null" if is_null else "error"})
    schema = world.catalog.schema()
    made = []
    for fast in (True, False):
        builder = BatchBuilder(spark_shape(world.catalog, schema, options, fast=fast))
        for row, cells in world.stored.items():
            builder.add(Result(row, [Cell(column, 1, value) for column, value in cells.items()]))
        made.append(builder.build())
        made[-1].validate(full=True)
    assert made[0].schema == made[1].schema == arrow_schema(schema)
    for fast_row, slow_row, read in zip(made[0].to_pylist(), made[1].to_pylist(), world.read.values(), strict=True):
        assert all(alike(fast_row[name], slow_row[name]) and alike(slow_row[name], read[name]) for name in read)
