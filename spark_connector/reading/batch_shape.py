"""The columns of a record batch: the source of each column's values, and its decoder.

Batches are built from rows of the client (``arrow``) or from pages of cells in Arrow (``arrow_cells``).
"""

from __future__ import annotations

import enum
import inspect
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

from metaclient import keys
from metaclient.errors import ConfigError
from spark_connector.reading.arrow_columns import ColumnDecoder
from spark_connector.reading.arrow_keys import KeySplitter
from spark_connector.schema.catalog import Catalog, CellColumn, FamilyColumn, KeyPart
from spark_connector.schema.layouts import CELL_COLUMNS, MAP_COLUMNS, Layout
from spark_connector.schema.types import from_spark

if TYPE_CHECKING:
    import numpy as np
    import pyarrow as pa
    from pyspark.sql.types import StructType

    from spark_connector.settings.options import Options

__all__ = ["BatchColumn", "BatchShape", "Provenance", "arrow_schema", "map_array"]


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


class Provenance(enum.Enum):
    """Columns about the origin of a row: whether it may be stale, and the id of the replica."""

    STALE = "stale"
    REPLICA = "replica"


#: A column of the catalog, the name of a column of the layout, or a column about the origin of the row.
Source: TypeAlias = KeyPart | CellColumn | FamilyColumn | Provenance | str


@dataclass(frozen=True, slots=True)
class BatchColumn:
    """One column of a batch; columns of the catalog have a ``decoder``."""

    source: Source
    arrow_type: pa.DataType
    decoder: ColumnDecoder | None = None


class BatchShape:
    """The columns of a read's batches.

    ``schema`` is the schema that Spark passes to the reader, a selection of the layout's columns; any other column is a
    ``ConfigError``. With ``fast=False`` values are decoded one by one.
    """

    def __init__(self, catalog: Catalog, schema: StructType, options: Options, *, fast: bool = True) -> None:
        self._table = keys.printable(catalog.table)
        self._bad_is_null = options.bad_values_are_null
        self._fast = fast
        self._extras = {options.stale_column: Provenance.STALE, options.replica_column: Provenance.REPLICA}
        self.arrow_schema = arrow_schema(schema)
        self.layout = options.layout
        self.key = catalog.key
        self.keys = KeySplitter(self._table, catalog.key, bad_is_null=self._bad_is_null)
        self.named_cells = catalog.named_cells
        self.columns = tuple(
            self._column(catalog, field.name, str(from_spark(field.dataType)), self.arrow_schema.field(index).type)
            for index, field in enumerate(schema.fields)
        )

    def _column(self, catalog: Catalog, name: str, type: str, arrow_type: pa.DataType) -> BatchColumn:
        if name in self._extras:
            return BatchColumn(self._extras[name], arrow_type)
        if self.layout is not Layout.COLUMNS:
            return BatchColumn(self._checked(name, type), arrow_type)
        field = catalog.field(name)
        if str(field.type) != type:
            raise ConfigError(
                f"table {self._table}: column {name} is {field.type} in the catalog and {type} in the schema"
            )
        if isinstance(field, KeyPart):
            return BatchColumn(field, arrow_type, self._decoder(f"row key column {field.name}", field, arrow_type))
        if isinstance(field, CellColumn):
            what = f"column {name} ({keys.printable(field.column)})"
            return BatchColumn(field, arrow_type, self._decoder(what, field, arrow_type))
        what = f"column {field.name} (family {keys.printable(field.family)})"
        return BatchColumn(field, arrow_type, self._decoder(what, field, arrow_type.item_type))

    def _checked(self, name: str, type: str) -> str:
        """Return the name; raise ConfigError unless the layout has a column of this name and type."""
        shape = MAP_COLUMNS if self.layout is Layout.MAP else CELL_COLUMNS
        wanted = {each: str(kind) for each, kind in shape}
        if wanted.get(name) != type:
            columns = ", ".join(f"{each} {kind}" for each, kind in wanted.items())
            raise ConfigError(f"layout {self.layout.value} has no column {name} {type}; its columns are {columns}")
        return name

    def _decoder(self, what: str, field: CellColumn | KeyPart | FamilyColumn, arrow_type: pa.DataType) -> ColumnDecoder:
        type = field.value_type if isinstance(field, FamilyColumn) else field.type
        where = f"table {self._table}, {what}"
        return ColumnDecoder(where, type, field.codec, arrow_type, bad_is_null=self._bad_is_null, fast=self._fast)

    def batch(self, arrays: Sequence[pa.Array], rows: int) -> pa.RecordBatch:
        """Return the batch of these arrays, one per column."""
        import pyarrow as pa

        if not self.columns:  # a count: rows without columns
            return pa.record_batch([pa.nulls(rows)], names=["rows"]).select([])
        cast = [
            array if array.type == column.arrow_type else array.cast(column.arrow_type)
            for array, column in zip(arrays, self.columns, strict=True)
        ]
        return pa.RecordBatch.from_arrays(cast, schema=self.arrow_schema)


def map_array(arrow_type: pa.DataType, names: pa.Array, items: pa.Array, counts: np.ndarray) -> pa.Array:
    """Return an array of maps with ``counts`` entries each, from the names and items of all; empty maps are null."""
    import numpy as np
    import pyarrow as pa

    ends = np.zeros(len(counts) + 1, dtype=np.int32)
    np.cumsum(counts, out=ends[1:])
    offsets = pa.array(ends, mask=np.append(counts == 0, False))
    made = pa.MapArray.from_arrays(offsets, names, items)
    return made if made.type == arrow_type else made.cast(arrow_type)
