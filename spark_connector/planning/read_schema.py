"""The schema of a read: the columns of its layout, and the columns for staleness and replica id."""

from __future__ import annotations

from typing import TYPE_CHECKING

from metaclient.columns.layouts import CELL_COLUMNS, MAP_COLUMNS, Layout
from metaclient.errors import ConfigError
from spark_connector.schema.types import to_spark

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

    from spark_connector.schema.catalog import Catalog
    from spark_connector.settings.options import Options

__all__ = ["schema_of"]


def schema_of(catalog: Catalog, options: Options) -> StructType:
    """Return the schema of a read; ``options.stale_column`` and ``.replica_column``, if set, come last."""
    from pyspark.sql.types import BooleanType, IntegerType, StructField, StructType

    if options.layout is Layout.COLUMNS:
        chosen = catalog.select(options.columns) if options.columns else catalog
        fields = list(chosen.schema().fields)
    else:
        shape = MAP_COLUMNS if options.layout is Layout.MAP else CELL_COLUMNS
        fields = [StructField(name, to_spark(type), True) for name, type in shape]
    taken = {field.name for field in fields}
    extras = ((options.stale_column, BooleanType()), (options.replica_column, IntegerType()))
    for name, type in extras:
        if name is not None:
            if name in taken:
                raise ConfigError(
                    f"column {name} (stale or replica id) is also a column of the table: choose another name"
                )
            fields.append(StructField(name, type, True))
    return StructType(fields)
