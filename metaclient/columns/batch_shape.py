"""The columns of a record batch: the source of each column's values, and its decoder.

Batches are built from rows of the client (``row_batches``) or from pages of cells in Arrow (``page_batches``).
"""

from __future__ import annotations

import enum
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

from metaclient import keys
from metaclient.columns.decoding import BadCells, ColumnDecoder
from metaclient.columns.fields import CellColumn, ColumnField, FamilyColumn
from metaclient.columns.key_splitter import KeySplitter
from metaclient.columns.layouts import Layout
from metaclient.columns.rowkey import KeyPart

if TYPE_CHECKING:
    import numpy as np
    import pyarrow as pa

__all__ = ["BatchColumn", "BatchShape", "Provenance", "Source", "map_array"]


class Provenance(enum.Enum):
    """Columns about the origin of a row: whether it may be stale, and the id of the replica."""

    STALE = "stale"
    REPLICA = "replica"


#: A field, the name of a column of the layout, or a column about the origin of the row.
Source: TypeAlias = KeyPart | CellColumn | FamilyColumn | Provenance | str


@dataclass(frozen=True, slots=True)
class BatchColumn:
    """One column of a batch; columns of fields have a ``decoder``."""

    source: Source
    arrow_type: pa.DataType
    decoder: ColumnDecoder | None = None


class BatchShape:
    """The columns of a read's batches: a source per field of ``arrow_schema``.

    ``key`` has all parts of the row key, ``named_cells`` all cells that a family's map leaves out, even if they are not
    read. ``salt`` is the number of buckets of salted row keys, 0 if they have no salt. With ``fast=False`` values are
    decoded one by one.
    """

    def __init__(
        self,
        table: bytes,
        sources: Sequence[Source],
        arrow_schema: pa.Schema,
        *,
        layout: Layout,
        key: Sequence[KeyPart],
        named_cells: frozenset[bytes],
        bad_cells: BadCells,
        salt: int = 0,
        fast: bool = True,
    ) -> None:
        self._table = keys.printable(table)
        self._bad_cells = bad_cells
        self._fast = fast
        self.arrow_schema = arrow_schema
        self.layout = layout
        self.key = tuple(key)
        self.keys = KeySplitter(self._table, key, bad_cells, salt=salt)
        self.named_cells = named_cells
        self.columns = tuple(
            self._column(source, arrow_schema.field(index).type) for index, source in enumerate(sources)
        )

    def _column(self, source: Source, arrow_type: pa.DataType) -> BatchColumn:
        if isinstance(source, KeyPart):
            return BatchColumn(source, arrow_type, self._decoder(f"row key column {source.name}", source, arrow_type))
        if isinstance(source, CellColumn):
            shown = keys.printable(source.column)
            what = f"column {source.name}" if source.name == shown else f"column {source.name} ({shown})"
            return BatchColumn(source, arrow_type, self._decoder(what, source, arrow_type))
        if isinstance(source, FamilyColumn):
            what = f"column {source.name} (family {keys.printable(source.family)})"
            return BatchColumn(source, arrow_type, self._decoder(what, source, arrow_type.item_type))
        return BatchColumn(source, arrow_type)

    def _decoder(self, what: str, field: ColumnField, arrow_type: pa.DataType) -> ColumnDecoder:
        type = field.value_type if isinstance(field, FamilyColumn) else field.type
        where = f"table {self._table}, {what}"
        is_cell = not isinstance(field, KeyPart)
        return ColumnDecoder(where, type, field.codec, arrow_type, self._bad_cells, is_cell=is_cell, fast=self._fast)

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
