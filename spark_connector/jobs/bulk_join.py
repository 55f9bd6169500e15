"""Joins a DataFrame with an HBase table by row key: sorted multi-gets for each record batch, no scan and no shuffle.

Use it for a DataFrame that is small compared with the table. Each task encodes the keys of a batch as row keys, gets
each row once, sorted and ``hbase.spark.bulkget.size`` rows per multi-get, and appends the columns to the batch.

Options that choose rows (``hbase.spark.query.where``, ``.prefix``, ``.filter``, ...) restrict the rows of the table. A
key whose row is excluded by them counts as a key without a row, for ``how="left"``, too.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from metaclient.columns.layouts import Layout
from metaclient.columns.row_batches import BatchBuilder
from metaclient.errors import ConfigError
from spark_connector import clients, lookup_counts
from spark_connector.dataframe import given_options, known_name
from spark_connector.jobs.region_partitions import by_regions, key_columns
from spark_connector.planning.location_map import Learner, LocationMap, ship_locations
from spark_connector.planning.query import Query
from spark_connector.planning.read_schema import schema_of
from spark_connector.reading.batch_shape import arrow_schema, spark_shape
from spark_connector.reading.split_reader import get_rows, passing
from spark_connector.reading.tasks import attempt_number, connected
from spark_connector.schema.catalog import Catalog
from spark_connector.schema.ranges import rows_within
from spark_connector.settings.option_uses import Use, check_read
from spark_connector.settings.options import Options
from spark_connector.writing.mutations import row_keys_of

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame
    from pyspark.sql.types import StructType

    from metaclient import Connection

__all__ = ["join"]

HOW = ("inner", "left")


@dataclass(frozen=True, slots=True)
class _Join:
    """The arguments of a task, pickled with its function."""

    query: Query  # its schema has the columns to add
    on: tuple[str, ...]  # columns of the DataFrame, one for each part of the row key
    how: str
    schema: StructType  # of the result
    points: frozenset[bytes]  # single rows that the condition allows, beside the query's ranges
    locations: LocationMap
    planned: lookup_counts.Report


def join(
    df: DataFrame,
    catalog: str | Mapping[str, object],
    *,
    on: str | Sequence[str] | Mapping[str, str],
    url: str | None = None,
    how: str = "inner",
    columns: Sequence[str] | None = None,
    repartitioned: bool = False,
    **options: object,
) -> DataFrame:
    """Return ``df`` with columns of an HBase table added to each row, which is looked up by row key.

    ``on`` names the column of ``df`` that is the row key; for a key of several parts it is a list in the key's order,
    or a mapping of ``df``'s columns to the parts. ``how`` is ``inner`` or ``left``. ``columns`` are the columns of the
    catalog to add; by default all that are not part of the key. ``repartitioned`` first shuffles ``df`` by the regions
    of the table (:func:`spark_connector.repartition`): each task then gets rows from one server, which pays if ``df``
    is large or has many rows per region. ``options`` that choose rows restrict the rows of the table.

        hbase.join(orders, users_catalog, on="user_id", url="thrift2://gateway:9090", how="left", columns=["name"])
    """
    if how not in HOW:
        raise ConfigError(f"how must be inner or left, got {how!r}")
    given = given_options(catalog, url, options)
    parsed = Options.parse(given).resolved()
    check_read(given, parsed, Use.JOIN)
    clients.check_reachable(parsed.connection_url)
    if parsed.layout is not Layout.COLUMNS:
        raise ConfigError("a join needs hbase.spark.query.layout=columns")
    known = parsed.catalog()
    names = key_columns(df.schema, known, on)
    if repartitioned:
        df = by_regions(df, parsed, names)
    added = _added(df.schema, known, parsed, columns)
    query = Query.of(parsed, added)
    schema = type(added)([*df.schema.fields, *added.fields])
    lookup_counts.collect(df.sparkSession, parsed.counts_lookups)
    with clients.lease(parsed) as connection:
        locations = ship_locations(connection, known.table, parsed)
    points = frozenset(query.pushed.points)
    task = _Join(query, names, how, schema, points, locations, lookup_counts.planned())
    return df.mapInArrow(lambda batches: _joined(task, batches), schema)


def _added(schema: StructType, catalog: Catalog, options: Options, columns: Sequence[str] | None) -> StructType:
    """Return the schema of the columns to add; raise ConfigError if the DataFrame has one of the names."""
    full = schema_of(catalog, options)
    key = {part.name for part in catalog.key}
    if columns is not None and isinstance(columns, str):
        raise ConfigError(f"columns must be a list of names, got the text {columns!r}")
    wanted = [known_name(name, full.fieldNames()) for name in columns] if columns is not None else full.fieldNames()
    added = [full[name] for name in wanted if columns is not None or name not in key]
    there = {name.lower() for name in schema.fieldNames()}
    twice = [field.name for field in added if field.name.lower() in there]
    if twice:
        raise ConfigError(
            f"both sides have a column {twice[0]!r}: rename it in the DataFrame, or leave it out of columns="
        )
    if not added:
        raise ConfigError("there is no column to add: name some with columns=")
    return type(full)(added)


# -- in a task -------------------------------------------------------------------------------------------------------


def _joined(task: _Join, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    options = task.query.options
    with connected(options, task.planned) as connection:
        learner: Learner | None = None
        for batch in batches:
            learner = learner or Learner(connection, task.locations, attempt=attempt_number())
            yield _beside(task, batch, connection, learner)


def _beside(task: _Join, batch: pa.RecordBatch, connection: Connection, learner: Learner) -> pa.RecordBatch:
    """Return a batch with the columns of HBase added to its rows."""
    import pyarrow as pa

    columns = [batch.column(batch.schema.get_field_index(name)) for name in task.on]
    rows = row_keys_of(columns, task.query.catalog)
    found, places = _got(task, sorted({row for row in rows if row is not None}), connection, learner)
    indexes = pa.array([places.get(row) if row is not None else None for row in rows], pa.int64())
    if task.how == "inner":
        is_there = indexes.is_valid()
        batch, indexes = batch.filter(is_there), indexes.filter(is_there)
    if found.num_rows == 0:  # nothing to take from
        empty = [pa.nulls(batch.num_rows, field.type) for field in found.schema]
        return pa.RecordBatch.from_arrays([*batch.columns, *empty], schema=arrow_schema(task.schema))
    right = [column.take(indexes) for column in found.columns]
    return pa.RecordBatch.from_arrays([*batch.columns, *right], schema=arrow_schema(task.schema))


def _got(
    task: _Join, rows: Sequence[bytes], connection: Connection, learner: Learner
) -> tuple[pa.RecordBatch, dict[bytes, int]]:
    """Return a batch of the rows that exist, and the index in it of each row that the query's options allow."""
    query = task.query
    wanted = sorted({*rows_within(rows, query.pushed.ranges), *task.points.intersection(rows)})
    learner.learn_rows(wanted)
    builder = BatchBuilder(spark_shape(query.catalog, query.read_schema, query.options))
    found: list[bytes] = []
    for result, place in get_rows(connection, query, wanted):
        found.append(result.row)
        builder.add(result, place.replica_id if place is not None else 0)
    batch = builder.build()
    is_wanted = [True] * len(found) if query.exact is None else passing(query.exact, batch).to_pylist()
    places = {row: index for index, (row, is_in) in enumerate(zip(found, is_wanted, strict=True)) if is_in}
    return batch.select(query.schema.fieldNames()), places
