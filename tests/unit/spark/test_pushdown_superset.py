"""What is pushed to HBase, followed by the condition itself, gives the same rows as the condition alone.

The condition is evaluated in Python with SQL's three values. The ranges, points, filters and pruned columns are
executed by the filters of the fake HBase: in great number by themselves, and in a smaller number by a whole fake
cluster.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

pytest.importorskip("pyarrow")
pytest.importorskip("pyspark")

from metaclient import Connection
from metaclient.columns.row_batches import batches_from_results
from metaclient.model import Cell, Result
from metaclient.runtime import SimRuntime
from metaclient_fake import FakeCluster
from metaclient_fake.storage.filters import filtered_row, parse
from spark_connector.conditions import filter_text
from spark_connector.conditions.condition import Expression, IsNull, columns_of, evaluate, opaque_parts
from spark_connector.conditions.dialect import Dialect
from spark_connector.conditions.expressions import bind
from spark_connector.conditions.pushdown import Pushed, ScanColumns, push, scan_columns
from spark_connector.reading.batch_shape import spark_shape
from spark_connector.schema.catalog import Catalog
from spark_connector.settings.options import Options
from tests.unit.spark.strategies import World, alike, conditions, reading, worlds

HEALTH = [HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.function_scoped_fixture]
CONDITIONS_A_WORLD = 8
ANSI = Dialect(is_ansi=True)

#: Runs one scan or get of a pushed read: the rows with the cells that come back.
Fetch = Callable[[Pushed, ScanColumns], list[Result]]


# ---- two ways to execute


def by_filters(world: World) -> Fetch:
    """The fake's filters on the stored cells, without a cluster around them."""

    def passed(row: bytes, asked: ScanColumns) -> list[Cell]:
        wanted = {
            family: [
                Cell(column, 1, value)
                for column, value in sorted(world.stored[row].items())
                if column.startswith(family + b":") and (not asked.columns or {column, family} & set(asked.columns))
            ]
            for family in (b"f", b"g")
        }
        families = [cells for cells in wanted.values() if cells]
        if asked.filter is None or not families:
            return [cell for cells in families for cell in cells]
        return filtered_row(parse(asked.filter), row, families, 1)

    def fetch(pushed: Pushed, asked: ScanColumns) -> list[Result]:
        scanned = [row for each in pushed.ranges for row in sorted(world.stored) if each.contains(row)]
        found = [(row, passed(row, asked)) for row in [*scanned, *(p for p in pushed.points if p in world.stored)]]
        return [Result(row, cells) for row, cells in found if cells]

    return fetch


@pytest.fixture(scope="module")
def connection() -> Iterator[Connection]:
    with SimRuntime(seed=0) as runtime, FakeCluster(servers=1, meta_replicas=1, runtime=runtime) as cluster:
        yield cluster.connect()


def by_cluster(connection: Connection, world: World) -> Fetch:
    """A table with these rows in a fake cluster, read by scans and gets."""
    name = f"t{len(connection.tables())}"
    connection.create_table(name, {"f": {}, "g": {}})
    table: Any = connection.table(name)
    with table.batch() as batch:
        for row, cells in world.stored.items():
            batch.put(row, cells)

    def fetch(pushed: Pushed, asked: ScanColumns) -> list[Result]:
        options = {"columns": list(asked.columns) or None, "filter": asked.filter}
        found = []
        for each in pushed.ranges:
            found += list(table.scan(row_start=each.start or None, row_stop=each.stop or None, **options))
        found += [(point, table.row(point, **options)) for point in pushed.points]
        return [Result(row, [Cell(c, 1, v) for c, v in cells.items()]) for row, cells in found if cells]

    return fetch


# ---- the property


def decoded(
    results: Sequence[Result], catalog: Catalog, names: list[str], options: Options
) -> dict[bytes, dict[str, object]]:
    batches = batches_from_results(results, spark_shape(catalog, catalog.select(names).schema(), options))
    rows = [row for batch in batches for row in batch.to_pylist()]
    return {result.row: row for result, row in zip(results, rows, strict=True)}


def check(world: World, fetch: Fetch, condition: Expression, chosen: set[str], bad_is_null: bool) -> None:
    catalog = world.catalog
    names = [name for name in catalog.names if name in chosen | set(columns_of(condition))]
    condition = bind(condition, catalog, ANSI)
    if list(opaque_parts(condition)):
        return  # evaluated by Spark only
    pushed = push(condition, catalog, bad_values_are_null=bad_is_null)
    expected = {row for row, read in world.read.items() if evaluate(condition, read) is True}
    results = fetch(pushed, scan_columns(catalog, names, pushed))
    assert len({result.row for result in results}) == len(results), "a row was fetched twice"
    options = Options.parse({"hbase.spark.query.badvalue": "null" if bad_is_null else "error"})
    read = decoded(results, catalog, names, options)
    kept = {row for row, values in read.items() if evaluate(condition, values) is True}
    assert kept == expected
    assert all(alike(read[row][name], world.read[row][name]) for row in kept for name in names)


def draw_checks(data: st.DataObject, world: World) -> Iterator[tuple[Expression, set[str]]]:
    for _ in range(CONDITIONS_A_WORLD):
        yield data.draw(conditions(world.catalog)), data.draw(st.sets(st.sampled_from(world.catalog.names)))


@pytest.mark.slow
@given(data=st.data())
@settings(max_examples=100, suppress_health_check=HEALTH)
def test_pushed_then_tested_is_the_same_as_tested(data: st.DataObject) -> None:
    world = data.draw(worlds())
    for condition, chosen in draw_checks(data, world):
        check(world, by_filters(world), condition, chosen, bad_is_null=False)


@pytest.mark.slow
@given(data=st.data())
@settings(max_examples=40, suppress_health_check=HEALTH)
def test_values_that_cannot_be_decoded_are_null_for_the_filter_too(data: st.DataObject) -> None:
    world = data.draw(worlds(bad_values=True))
    for condition, chosen in draw_checks(data, world):
        check(world, by_filters(world), condition, chosen, bad_is_null=True)


@pytest.mark.slow
@given(data=st.data())
@settings(max_examples=15, suppress_health_check=HEALTH)
def test_the_same_in_a_fake_cluster(connection: Connection, data: st.DataObject) -> None:
    world = data.draw(worlds())
    fetch = by_cluster(connection, world)
    for condition, chosen in draw_checks(data, world):
        check(world, fetch, condition, chosen, bad_is_null=False)


@pytest.mark.slow
@given(data=st.data())
@settings(max_examples=30, suppress_health_check=HEALTH)
def test_selecting_fewer_columns_never_loses_a_row(data: st.DataObject) -> None:
    world = data.draw(worlds())
    chosen = data.draw(st.sets(st.sampled_from(world.catalog.names)))
    names = [name for name in world.catalog.names if name in chosen]
    results = by_filters(world)(Pushed(), scan_columns(world.catalog, names, Pushed()))
    assert {result.row for result in results} == set(world.stored)


def test_the_check_fires_when_too_little_is_let_through(monkeypatch: pytest.MonkeyPatch) -> None:
    catalog = Catalog.from_mapping("t", "k STRING :k, a STRING f:a, b STRING f:b")
    stored = {b"1": {b"f:a": b"x"}, b"2": {b"f:b": b"y"}}
    read = {row: reading(catalog, row, cells) for row, cells in stored.items()}
    world = World(catalog, stored, read)
    check(world, by_filters(world), IsNull("a"), set(), bad_is_null=False)
    monkeypatch.setattr(filter_text, "absent", filter_text.present)
    with pytest.raises(AssertionError):
        check(world, by_filters(world), IsNull("a"), set(), bad_is_null=False)
