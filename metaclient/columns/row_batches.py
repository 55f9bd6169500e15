"""Converts rows of the client to Arrow record batches, in each layout.

``page_batches`` converts pages of cells that are Arrow arrays already.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

from metaclient.columns.batch_shape import BatchColumn, BatchShape, Provenance, map_array
from metaclient.columns.fields import CellColumn, FamilyColumn, KeyPart
from metaclient.columns.key_text import text_of
from metaclient.columns.layouts import Layout
from metaclient.model import Cell, CellType, PutCells, RegionLocation, Result

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["BYTES_MAX", "ROWS_MAX", "BatchBuilder", "batches_from_results"]

#: The bounds of a batch: rows, and bytes before its last row. 1,000 to 50,000 rows per batch are equally fast in Spark.
ROWS_MAX = 10_000
BYTES_MAX = 8 << 20

_TYPE_NAMES = {each: each.name for each in CellType}


class BatchBuilder:
    """Collects rows and builds record batches of one shape.

    Results that continue the row before them (``Scan.batch``) are joined to it, within one batch.
    """

    def __init__(self, shape: BatchShape) -> None:
        self._shape = shape
        self._layout = shape.layout
        self._named = self._shape.named_cells
        sources = [column.source for column in self._shape.columns]
        cells = dict.fromkeys(source.column for source in sources if isinstance(source, CellColumn))
        families = dict.fromkeys(source.family for source in sources if isinstance(source, FamilyColumn))
        self._cell_slots = {column: slot for slot, column in enumerate(cells)}
        self._family_slots = {family: slot for slot, family in enumerate(families)}
        self._clear()

    def _clear(self) -> None:
        self._rows: list[bytes] = []
        self._bytes = 0
        self._stale: list[bool] = []
        self._replica: list[int] = []
        self._cells: list[list[bytes | None]] = [[] for _ in self._cell_slots]
        self._families: list[list[dict[bytes, bytes]]] = [[] for _ in self._family_slots]
        self._whole_rows: list[dict[bytes, bytes]] = []  # layout map
        self._flat: list[Cell] = []  # layouts cells and raw
        self._split: list[pa.Array] | None = None

    # -- adding rows

    @property
    def rows(self) -> int:
        """The number of rows of the next batch so far."""
        return len(self._rows)

    @property
    def is_full(self) -> bool:
        """True if the caller should :meth:`build` a batch now."""
        return len(self._rows) >= ROWS_MAX or self._bytes >= BYTES_MAX

    def add(self, result: Result, replica_id: int = 0) -> None:
        """Add one row of HBase: one row of the batch, or (in the layouts cells and raw) one row per cell."""
        if self._layout.has_a_row_per_cell:
            self._add_cells(result, replica_id)
            return
        row = result.row
        if not self._rows or self._rows[-1] != row:
            self._rows.append(row)
            self._stale.append(result.is_stale)
            self._replica.append(replica_id)
            self._bytes += len(row)
            for column in self._cells:
                column.append(None)
            for family in self._families:
                family.append({})
            if self._layout is Layout.MAP:
                self._whole_rows.append({})
        if self._layout is Layout.MAP:
            self._add_to_map(result)
        else:
            self._add_to_columns(result)

    def _add_to_columns(self, result: Result) -> None:
        slots, columns, families = self._cell_slots, self._cells, self._family_slots
        for name, value in _values(result.cells):
            slot = slots.get(name)
            if slot is not None:
                if columns[slot][-1] is None:  # the newest version comes first
                    columns[slot][-1] = value
                    self._bytes += len(value)
            elif families and name not in self._named:
                family = families.get(name.partition(b":")[0])
                if family is not None and name not in self._families[family][-1]:
                    self._families[family][-1][name] = value
                    self._bytes += len(value) + len(name)

    def _add_to_map(self, result: Result) -> None:
        found = self._whole_rows[-1]
        for name, value in _values(result.cells):
            if name not in found:
                found[name] = value
                self._bytes += len(name) + len(value)

    def _add_cells(self, result: Result, replica_id: int) -> None:
        count = len(result.cells)
        self._rows.extend([result.row] * count)
        self._stale.extend([result.is_stale] * count)
        self._replica.extend([replica_id] * count)
        self._flat.extend(result.cells)
        self._bytes += sum(len(cell[2]) for cell in result.cells) + count * (len(result.row) + 32)

    # -- building batches

    def build(self) -> pa.RecordBatch:
        """Return a batch of the rows that were added since the last call (possibly none).

        Raises :class:`BadCellError` for a cell that cannot be decoded, unless such cells read as null.
        """
        made = self._shape.batch([self._array(column) for column in self._shape.columns], len(self._rows))
        self._clear()
        return made

    def _array(self, column: BatchColumn) -> pa.Array:
        import pyarrow as pa

        source, decoder = column.source, column.decoder
        if source is Provenance.STALE:
            return pa.array(self._stale, pa.bool_())
        if source is Provenance.REPLICA:
            return pa.array(self._replica, pa.int32())
        if isinstance(source, str):
            return self._fixed_array(source, column.arrow_type)
        assert decoder is not None
        if isinstance(source, KeyPart):
            return decoder.arrow_array(self._split_keys()[self._shape.key.index(source)], self._rows.__getitem__)
        if isinstance(source, CellColumn):
            return decoder.array(self._cells[self._cell_slots[source.column]], self._rows.__getitem__)
        maps = self._families[self._family_slots[source.family]]
        names = [name[len(source.family) + 1 :] for each in maps for name in each]
        values = [value for each in maps for value in each.values()]
        owners = [row for row, each in zip(self._rows, maps, strict=True) for _ in each]
        items = decoder.array(values, owners.__getitem__)
        return _maps(
            column.arrow_type, [text_of(name) for name in names] if source.has_text_keys else names, items, maps
        )

    def _split_keys(self) -> list[pa.Array]:
        """Return, per part of the key, the bytes of all rows; computed once per batch."""
        import pyarrow as pa

        if self._split is None:
            self._split = self._shape.keys.split(pa.array(self._rows, pa.binary()))
        return self._split

    def _fixed_array(self, name: str, arrow_type: pa.DataType) -> pa.Array:
        """Return a column of the layouts that need no catalog."""
        import pyarrow as pa

        flat = self._flat
        match name:
            case "row":
                return pa.array(self._rows, arrow_type)
            case "columns":
                names = [text_of(column) for each in self._whole_rows for column in each]
                values = [value for each in self._whole_rows for value in each.values()]
                return _maps(arrow_type, names, pa.array(values, pa.binary()), self._whole_rows)
            case "family":
                return pa.array([text_of(cell.family) for cell in flat], arrow_type)
            case "qualifier":
                return pa.array([cell.qualifier for cell in flat], arrow_type)
            case "timestamp":
                return pa.array([cell.timestamp for cell in flat], arrow_type)
            case "type":
                return pa.array([_TYPE_NAMES[cell.type] for cell in flat], arrow_type)
            case _:
                return pa.array([cell.value for cell in flat], arrow_type)


def _maps(
    arrow_type: pa.DataType, names: Sequence[object], items: pa.Array, maps: Sequence[dict[bytes, bytes]]
) -> pa.Array:
    import numpy as np
    import pyarrow as pa

    counts = np.fromiter(map(len, maps), dtype=np.int64, count=len(maps))
    return map_array(arrow_type, pa.array(names, arrow_type.key_type), items, counts)


def _values(cells: Sequence[Cell]) -> Iterable[tuple[bytes, bytes]]:
    """Return pairs of column and value, without creating Cell objects for ``PutCells``."""
    if type(cells) is PutCells:
        return zip(cells.columns, cells.values, strict=False)
    return ((cell[0], cell[2]) for cell in cells)


def batches_from_results(
    results: Iterable[Result | tuple[Result, RegionLocation | None]], shape: BatchShape
) -> Iterator[pa.RecordBatch]:
    """Yield record batches of at most ``ROWS_MAX`` rows or ``BYTES_MAX`` bytes from the results of ``TableScanner``.

    Without rows there is no batch. The pieces of one row are always in one batch.
    """
    builder = BatchBuilder(shape)
    last: bytes | None = None
    for each in results:
        result, place = (each, None) if isinstance(each, Result) else each
        if builder.is_full and result.row != last:
            yield builder.build()
        builder.add(result, 0 if place is None else place.replica_id)
        last = result.row
    if builder.rows:
        yield builder.build()
