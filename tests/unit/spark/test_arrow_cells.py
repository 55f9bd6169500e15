"""Batches made of cells in Arrow are the batches made of rows: every layout, codec, version, null and bad value."""

from __future__ import annotations

import contextlib
import re
import struct
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

pytest.importorskip("numpy")
pytest.importorskip("pyarrow")
pytest.importorskip("pyspark")

import pyarrow as pa
from pyspark.sql.types import StructType

from metaclient.backend import CellPage
from metaclient.columns import page_batches as arrow_cells
from metaclient.columns.codecs import BadValueError, Codec, codec_named
from metaclient.columns.decoding import BadCellError, BadCells, ColumnDecoder, matrix_of
from metaclient.columns.page_batches import batches_from_cells
from metaclient.columns.row_batches import batches_from_results
from metaclient.columns.types import parse_type
from metaclient.errors import BackendFault
from metaclient.model import Cell, CellType, RegionInfo, RegionLocation, Result, ServerName
from metaclient.wire.rpc.arrow import cells_to_arrow
from metaclient.wire.rpc.cellblock import encode_results
from spark_connector.planning.read_schema import schema_of
from spark_connector.reading.batch_shape import arrow_schema, spark_shape
from spark_connector.schema.catalog import Catalog
from spark_connector.schema.types import to_spark
from spark_connector.settings.options import Options
from tests.unit.spark.strategies import CODECS, TYPES, World, values, worlds

CATALOG = Catalog.parse(
    {
        "table": {"name": "t"},
        "rowkey": "a:b",
        "columns": {
            "a": {"cf": "rowkey", "col": "a", "type": "int"},
            "b": {"cf": "rowkey", "col": "b", "type": "string"},
            "i": {"cf": "f", "col": "i", "type": "int"},
            "s": {"cf": "f", "col": "s", "type": "string", "coder": "phoenix"},
            "d": {"cf": "g", "col": "i", "type": "double"},
            "j": {"cf": "g", "col": "j", "type": "int", "coder": "json"},
            "rest": {"cf": "f", "type": "map<string,binary>"},
            "m": {"cf": "h", "type": "map<binary,bigint>"},
        },
    }
)
#: Keys of parts with fixed lengths; a string in the first one is filled up.
PADDED = Catalog.parse(
    {
        "table": {"name": "t"},
        "rowkey": "s:n",
        "columns": {
            "s": {"cf": "rowkey", "col": "s", "type": "string", "length": 3},
            "n": {"cf": "rowkey", "col": "n", "type": "smallint"},
            "v": {"cf": "f", "col": "i", "type": "binary"},
        },
    }
)
COLUMNS = [b"f:i", b"f:s", b"f:", b"f:\xff", b"f:x:y", b"g:i", b"g:j", b"h:", b"h:k", b"h:\0", b"other:i"]
INT, LONG, DOUBLE = struct.pack(">i", 7), struct.pack(">q", -9), struct.pack(">d", 0.5)
VALUES = [INT, LONG, DOUBLE, b"", b"text", b"\xff\xfe", b"12", b"null", "\u00e9".encode()]
GOOD = {b"f:i": INT, b"f:s": b"text", b"g:i": DOUBLE, b"g:j": b"12", b"h:": LONG, b"h:k": LONG, b"h:\0": LONG}
EXTRAS = {
    "hbase.spark.query.readreplica": "true",
    "hbase.spark.query.stalecolumn": "stale",
    "hbase.spark.query.replicacolumn": "replica",
}

Pages = list[tuple[list[Result], int]]  # rows and the replica that they come from


def place(replica_id: int) -> RegionLocation:
    return RegionLocation(RegionInfo(b"t", replica_id=replica_id), ServerName("h", 1))


def page_of(rows: Sequence[Result]) -> CellPage:
    cells = cells_to_arrow(encode_results(rows))
    return CellPage(cells, len(rows), rows[0].row, rows[-1].row, None, True, rows[0].is_stale)


def by_rows(pages: Pages, catalog: Catalog, schema: StructType, options: Options) -> list[pa.RecordBatch]:
    results = [(result, place(replica)) for rows, replica in pages for result in rows]
    return list(batches_from_results(results, spark_shape(catalog, schema, options)))


def by_cells(pages: Pages, catalog: Catalog, schema: StructType, options: Options) -> list[pa.RecordBatch]:
    return list(
        batches_from_cells([(page_of(rows), place(at)) for rows, at in pages], spark_shape(catalog, schema, options))
    )


def same(pages: Pages, catalog: Catalog, schema: StructType, options: Options) -> None:
    """The same rows, or the same error."""
    failure, wanted = None, []
    try:
        wanted = by_rows(pages, catalog, schema, options)
    except BadCellError as error:
        failure = str(error)
    if failure is not None:
        # With several pages another bad cell may be found first.
        with pytest.raises(BadCellError, match=re.escape(failure) if len(pages) == 1 else None):
            by_cells(pages, catalog, schema, options)
        return
    found = by_cells(pages, catalog, schema, options)
    for batch in found:
        batch.validate(full=True)
        assert batch.schema == arrow_schema(schema)
    assert repr(listed(found)) == repr(listed(wanted))  # repr: NaN is NaN, and -0.0 is not 0.0
    assert sum(batch.num_rows for batch in found) == sum(batch.num_rows for batch in wanted)


def listed(batches: Sequence[pa.RecordBatch]) -> list[dict[str, Any]]:
    return [row for batch in batches for row in batch.to_pylist()]


def cut(draw: st.DrawFn, rows: list[Result]) -> Pages:
    """Any pages of these rows; what is stale, and the replica, is a page's."""
    pages: Pages = []
    while rows:
        count = draw(st.integers(1, len(rows)))
        is_stale, replica = draw(st.booleans()), draw(st.integers(0, 2))
        pages.append(([row._replace(is_stale=is_stale) for row in rows[:count]], replica))
        rows = rows[count:]
    return pages


@st.composite
def random_pages(draw: st.DrawFn, keys: st.SearchStrategy[bytes], *, is_good: bool) -> Pages:
    rows = []
    for key in sorted(draw(st.sets(keys, max_size=8))):
        cells = []
        for column in sorted(draw(st.sets(st.sampled_from(COLUMNS), min_size=1, max_size=6))):
            for version in range(draw(st.sampled_from([1, 1, 1, 3]))):
                value = GOOD.get(column, b"v") if is_good else draw(st.sampled_from([GOOD.get(column, b"v"), *VALUES]))
                type_ = draw(st.sampled_from([CellType.PUT, CellType.PUT, CellType.DELETE_COLUMN]))
                cells.append(Cell(column, 100 - version, value, type_))
        rows.append(Result(key, cells))
    return cut(draw, rows)


def key(number: int, text: bytes) -> bytes:
    return struct.pack(">i", number) + text


KEYS = st.builds(key, st.integers(-2, 2), st.sampled_from([b"", b"k", b"\xc3\xa9", b"kk"]))
BAD_KEYS = st.sampled_from([b"ab", key(1, b"\xff"), key(0, b"k")])
PADDED_KEYS = st.builds(
    lambda text, number: text.ljust(3, b"\0") + struct.pack(">h", number),
    st.sampled_from([b"", b"a", b"ab", b"abc", b"\0b", b"a\0c"]),
    st.integers(-1, 1),
)


@pytest.mark.parametrize("layout", ["columns", "map", "cells", "raw"])
@pytest.mark.parametrize("bad", ["error", "null"])
@given(data=st.data())
@settings(max_examples=60, suppress_health_check=[HealthCheck.too_slow])
def test_any_cells_make_the_same_rows_in_every_layout(layout: str, bad: str, data: st.DataObject) -> None:
    is_good = bad == "error" and data.draw(st.booleans())
    pages = data.draw(random_pages(KEYS if is_good else KEYS | BAD_KEYS, is_good=is_good))
    extras = EXTRAS if data.draw(st.booleans()) else {}
    options = Options.parse({"hbase.spark.query.layout": layout, "hbase.spark.query.badvalue": bad, **extras})
    fields = data.draw(st.permutations(schema_of(CATALOG, options).fields))
    same(pages, CATALOG, StructType(fields[: data.draw(st.integers(0, len(fields)))]), options)


@given(data=st.data())
@settings(max_examples=60)
def test_keys_of_fixed_lengths_are_cut_alike(data: st.DataObject) -> None:
    keys = PADDED_KEYS if data.draw(st.booleans()) else PADDED_KEYS | st.sampled_from([b"x", b"abcdefg"])
    options = Options.parse({"hbase.spark.query.badvalue": data.draw(st.sampled_from(["error", "null"]))})
    same(data.draw(random_pages(keys, is_good=False)), PADDED, schema_of(PADDED, options), options)


@pytest.mark.parametrize("is_null", [False, True])
@given(data=st.data())
@settings(max_examples=60, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
def test_every_codec_and_type_decodes_alike(is_null: bool, data: st.DataObject) -> None:
    world: World = data.draw(worlds(bad_values=data.draw(st.booleans())))
    options = Options.parse({"hbase.spark.query.badvalue": "null" if is_null else "error"})
    rows = [
        Result(row, [Cell(column, 1, value) for column, value in sorted(cells.items())])
        for row, cells in sorted(world.stored.items())
    ]
    same(cut(data.draw, rows), world.catalog, world.catalog.schema(), options)


@pytest.mark.parametrize("codec", CODECS)
@given(data=st.data())
@settings(max_examples=60)
def test_many_values_at_once_are_what_they_are_one_by_one(codec: str, data: st.DataObject) -> None:
    """Whatever the codec writes, empty values (which Phoenix takes for null), absent ones and nonsense."""
    coder = codec_named(codec)
    type_ = data.draw(st.sampled_from([kind for kind in map(parse_type, TYPES) if coder.supports(kind)]))
    written = []
    for value in data.draw(st.lists(values(type_, stored=True), max_size=6)):
        with contextlib.suppress(BadValueError):  # unsigned types have no bytes for all of them
            written.append(coder.encode(value, type_))
    odd = [None, b""] if data.draw(st.booleans()) else [None, b"", b"\xff" * 4]
    found = data.draw(st.lists(st.sampled_from([*written, *odd]), max_size=8))
    schema = arrow_schema(StructType().add("c", to_spark(type_)))
    fast, slow = (
        ColumnDecoder("c", type_, coder, schema.field("c").type, BadCells(are_null=True, advice=""), fast=is_fast)
        for is_fast in (True, False)
    )
    array = pa.array([b"before", *found], pa.binary()).slice(1)
    wanted = slow.array(found, lambda _: b"row")
    assert repr(fast.arrow_array(array, lambda _: b"row").to_pylist()) == repr(wanted.to_pylist())
    assert repr(fast.array(found, lambda _: b"row").to_pylist()) == repr(wanted.to_pylist())


def test_bytes_of_a_part_of_an_array_are_found() -> None:
    values = pa.array([b"xx", b"ab", b"cd", b"long"])
    found = matrix_of(values.slice(1, 2), 2)
    assert found is not None
    assert found.tobytes() == b"abcd"
    assert matrix_of(values, 2) is None
    assert matrix_of(values.slice(0, 0), 3).shape == (0, 3)


# -- batches -----------------------------------------------------------------------------------------------------------


def simple_page(first: int, count: int) -> list[Result]:
    return [Result(key(number, b"k"), [Cell(b"f:i", 1, INT)]) for number in range(first, first + count)]


@pytest.mark.parametrize("names", [["a", "i"], []])
def test_small_pages_are_put_together_and_large_ones_are_cut(monkeypatch: pytest.MonkeyPatch, names: list[str]) -> None:
    monkeypatch.setattr(arrow_cells, "ROWS_MIN", 4)
    monkeypatch.setattr(arrow_cells, "ROWS_MAX", 5)
    options = Options.parse({})
    schema = CATALOG.select(names).schema()
    pages: Pages = [(simple_page(at, 1), 0) for at in range(6)]
    assert [batch.num_rows for batch in by_cells(pages, CATALOG, schema, options)] == [4, 2]
    pages = [(simple_page(0, 12), 0), (simple_page(12, 1), 0)]
    made = by_cells(pages, CATALOG, schema, options)
    assert [batch.num_rows for batch in made] == [5, 5, 2, 1]
    if names:
        assert [row["a"] for row in listed(made)] == list(range(13))
    monkeypatch.setattr(arrow_cells, "BYTES_MAX", 1)
    assert [
        b.num_rows for b in by_cells([(simple_page(0, 1), 0), (simple_page(1, 1), 0)], CATALOG, schema, options)
    ] == [
        1,
        1,
    ]


def test_no_pages_are_no_batches() -> None:
    options = Options.parse({})
    assert by_cells([], CATALOG, schema_of(CATALOG, options), options) == []


def test_pages_are_asked_for_one_after_the_other() -> None:
    """A batch is given out before the next page is fetched: what is read is bounded, whoever stops, stops the scan."""
    asked: list[int] = []

    def pages() -> Any:
        for number in range(3):
            asked.append(number)
            yield page_of(simple_page(number * arrow_cells.ROWS_MIN, arrow_cells.ROWS_MIN)), None

    options = Options.parse({})
    batches = batches_from_cells(pages(), spark_shape(CATALOG, CATALOG.select(["i"]).schema(), options))
    assert next(batches).num_rows == arrow_cells.ROWS_MIN
    assert asked == [0]


def test_a_page_whose_rows_are_not_those_it_tells_of_is_the_backends_fault() -> None:
    options = Options.parse({})
    cells = cells_to_arrow(encode_results(simple_page(0, 3)))
    page = CellPage(cells, 2, b"", b"", None, True)
    with pytest.raises(BackendFault, match="3 rows on a page that should have 2"):
        list(batches_from_cells([(page, None)], spark_shape(CATALOG, schema_of(CATALOG, options), options)))


def test_more_columns_than_numbers_of_sixteen_bits_hold(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(arrow_cells, "_SHORT_MAX", 1)
    options = Options.parse({})
    rows = [Result(key(1, b"k"), [Cell(column, 1, GOOD.get(column, b"v")) for column in sorted(COLUMNS)])]
    same([(rows, 0)], CATALOG, schema_of(CATALOG, options), options)


def test_good_values_of_a_fixed_width_are_not_looked_at_one_by_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """No Python object for a cell or a row: strings, binaries and what numpy decodes never reach Codec.decode."""
    catalog = CATALOG.select(["i", "s", "d", "rest", "m"])

    def never(self: Codec, data: bytes, type: object) -> object:
        raise AssertionError(f"{self.name} was asked for {data!r}")

    for field in catalog.columns:
        monkeypatch.setattr(type(field.codec), "decode", never)
    rows = [
        Result(key(at, b"k"), [Cell(column, 1, value) for column, value in sorted(GOOD.items()) if column != b"g:j"])
        for at in range(3)
    ]
    options = Options.parse({})
    found = by_cells([(rows, 0)], catalog, catalog.schema(), options)
    assert [row["i"] for row in listed(found)] == [7] * 3
