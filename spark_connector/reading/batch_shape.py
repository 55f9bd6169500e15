"""The batches that Spark reads: the Arrow schema of its schema, and the source of each column."""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING

from metaclient import keys
from metaclient.columns.batch_shape import BatchShape, Provenance, Source
from metaclient.columns.decoding import BadCells
from metaclient.columns.layouts import CELL_COLUMNS, MAP_COLUMNS, Layout
from metaclient.errors import ConfigError
from spark_connector.schema.catalog import Catalog
from spark_connector.schema.types import from_spark

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType

    from spark_connector.settings.options import Options

__all__ = ["arrow_schema", "spark_shape"]

_ADVICE = "in the catalog, or set hbase.spark.query.badvalue=null"


def arrow_schema(schema: StructType) -> pa.Schema:
    """Return the Arrow schema that Spark expects for a schema: order, nullability, timestamps in UTC.

    >>> from pyspark.sql.types import StructType
    >>> arrow_schema(StructType().add("t", "timestamp")).field("t").type
    TimestampType(timestamp[us, tz=UTC])
    """
    from pyspark.sql.pandas.types import to_arrow_schema

    if "timezone" in inspect.signature(to_arrow_schema).parameters:
        return to_arrow_schema(schema, timezone="UTC")
    return to_arrow_schema(schema)  # pyspark 4.0 and 4.1: always UTC


def spark_shape(catalog: Catalog, schema: StructType, options: Options, *, fast: bool = True) -> BatchShape:
    """Return the shape of a read's batches.

    ``schema`` is the schema that Spark passes to the reader, a selection of the layout's columns; any other column is a
    ``ConfigError``. With ``fast=False`` values are decoded one by one.
    """
    return BatchShape(
        catalog.table,
        [_source(catalog, options, field.name, str(from_spark(field.dataType))) for field in schema.fields],
        arrow_schema(schema),
        layout=options.layout,
        key=catalog.key,
        named_cells=catalog.named_cells,
        bad_cells=BadCells(are_null=options.bad_values_are_null, advice=_ADVICE),
        salt=catalog.salt,
        fast=fast,
    )


def _source(catalog: Catalog, options: Options, name: str, type: str) -> Source:
    extras = {options.stale_column: Provenance.STALE, options.replica_column: Provenance.REPLICA}
    if name in extras:
        return extras[name]
    if options.layout is not Layout.COLUMNS:
        return _checked(options.layout, name, type)
    field = catalog.field(name)
    if str(field.type) != type:
        table = keys.printable(catalog.table)
        raise ConfigError(f"table {table}: column {name} is {field.type} in the catalog and {type} in the schema")
    return field


def _checked(layout: Layout, name: str, type: str) -> str:
    """Return the name; raise ConfigError unless the layout has a column of this name and type."""
    shape = MAP_COLUMNS if layout is Layout.MAP else CELL_COLUMNS
    wanted = {each: str(kind) for each, kind in shape}
    if wanted.get(name) != type:
        columns = ", ".join(f"{each} {kind}" for each, kind in wanted.items())
        raise ConfigError(f"layout {layout.value} has no column {name} {type}; its columns are {columns}")
    return name
