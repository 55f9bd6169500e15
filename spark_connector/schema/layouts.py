"""Layouts: the shapes in which rows of HBase become rows of Spark, each with its schema.

``columns``  the catalog's columns; the newest version of each.
``map``      ``row binary, columns map<string,binary>``: a row with all its cells, keys ``cf:q`` (``ranges.text_of``).
``cells``    ``row, family, qualifier, timestamp, type, value``: a row for each cell and version.
``raw``      the same for a raw scan: delete markers, and what they hide, too.

``timestamp`` is in milliseconds, as HBase has it; ``type`` is PUT, DELETE, DELETE_COLUMN, DELETE_FAMILY or
DELETE_FAMILY_VERSION.
"""

from __future__ import annotations

import enum
from typing import TYPE_CHECKING

from metaclient.errors import ConfigError
from spark_connector.schema.types import DataType, parse_type

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

    from spark_connector.schema.catalog import Catalog
    from spark_connector.settings.options import Options

__all__ = ["CELL_COLUMNS", "MAP_COLUMNS", "Layout", "schema_of"]


class Layout(enum.Enum):
    """The words of ``hbase.spark.query.layout``."""

    COLUMNS = "columns"
    MAP = "map"
    CELLS = "cells"
    RAW = "raw"

    @property
    def has_a_row_per_cell(self) -> bool:
        return self in (Layout.CELLS, Layout.RAW)


MAP_COLUMNS: tuple[tuple[str, DataType], ...] = (
    ("row", parse_type("binary")),
    ("columns", parse_type("map<string,binary>")),
)
CELL_COLUMNS: tuple[tuple[str, DataType], ...] = (
    ("row", parse_type("binary")),
    ("family", parse_type("string")),
    ("qualifier", parse_type("binary")),
    ("timestamp", parse_type("bigint")),
    ("type", parse_type("string")),
    ("value", parse_type("binary")),
)


def schema_of(catalog: Catalog, options: Options) -> StructType:
    """The schema of a read, with ``options.stale_column`` and ``.replica_column`` behind the rest where asked for."""
    from pyspark.sql.types import BooleanType, IntegerType, StructField, StructType

    if options.layout is Layout.COLUMNS:
        chosen = catalog.select(options.columns) if options.columns else catalog
        fields = list(chosen.schema().fields)
    else:
        shape = MAP_COLUMNS if options.layout is Layout.MAP else CELL_COLUMNS
        fields = [StructField(name, type.to_spark(), True) for name, type in shape]
    taken = {field.name for field in fields}
    extras = ((options.stale_column, BooleanType()), (options.replica_column, IntegerType()))
    for name, type in extras:
        if name is not None:
            if name in taken:
                raise ConfigError(
                    f"column {name} (stale or replica id) is a column of the table, too; name it otherwise"
                )
            fields.append(StructField(name, type, True))
    return StructType(fields)
