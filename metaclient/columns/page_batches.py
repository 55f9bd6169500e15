"""Converts pages of cells in Arrow to record batches, in each layout, without a Python object per cell.

1. A row begins where the row key changes: numpy computes the row number of each cell.
2. Family and qualifier of all cells are looked up at once among those of the columns. The two indexes of
   a cell give its *slot*: the column that it belongs to, if any.
3. A stable sort by slot makes the cells of each column adjacent. The first cell of a row is the newest. The values are
   taken out of the page, with nulls for rows without the cell, and decoded together (``decoding``).

The rows are the same as those of ``row_batches``; a test compares the two with random tables. Types and codecs that
numpy cannot decode, and row keys whose parts have no fixed length, need Python code per value, here and there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any

from metaclient.backend import CellPage
from metaclient.columns.batch_shape import BatchColumn, BatchShape, Provenance, map_array
from metaclient.columns.fields import CellColumn, FamilyColumn, KeyPart
from metaclient.columns.key_text import text_of
from metaclient.columns.row_batches import BYTES_MAX, ROWS_MAX
from metaclient.errors import BackendFault
from metaclient.model import CellType, RegionLocation

if TYPE_CHECKING:
    import numpy as np
    import pyarrow as pa

__all__ = ["batches_from_cells", "texts_of"]

#: Pages with fewer rows are joined: 1,000 to 50,000 rows per batch are equally fast in Spark, fewer are slower.
ROWS_MIN = 1000
#: Up to this many slots are 16-bit numbers, which numpy sorts by radix, without comparisons.
_SHORT_MAX = 0x7FFF


def batches_from_cells(
    pages: Iterable[tuple[CellPage, RegionLocation | None]], shape: BatchShape
) -> Iterator[pa.RecordBatch]:
    """Yield record batches of at most ``ROWS_MAX`` rows from the pages of ``CellScanner``; none without rows.

    Raises ``BadCellError`` for a cell that cannot be decoded, unless such cells read as null.
    """
    slots = _Slots(shape)
    waiting: list[pa.RecordBatch] = []
    rows = size = 0
    for page, place in pages:
        waiting.append(_PageColumns(shape, slots, page, 0 if place is None else place.replica_id).batch())
        rows += waiting[-1].num_rows
        size += page.cells.nbytes
        if rows >= ROWS_MIN or size >= BYTES_MAX:
            yield from _cut(_joined(shape, waiting, rows))
            waiting, rows, size = [], 0, 0
    if waiting:
        yield from _cut(_joined(shape, waiting, rows))


def _joined(shape: BatchShape, batches: Sequence[pa.RecordBatch], rows: int) -> pa.RecordBatch:
    import pyarrow as pa

    if len(batches) == 1:
        return batches[0]
    if not shape.columns:
        return shape.batch([], rows)
    return pa.Table.from_batches(batches).combine_chunks().to_batches()[0]


def _cut(batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    for start in range(0, batch.num_rows, ROWS_MAX):
        yield batch.slice(start, ROWS_MAX)


# -- the column of each cell -----------------------------------------------------------------------------------------


class _Slots:
    """Numbers of the cell columns and family columns of a shape, and the lookup of these numbers by name."""

    def __init__(self, shape: BatchShape) -> None:
        import numpy as np
        import pyarrow as pa

        sources = [column.source for column in shape.columns]
        cells = dict.fromkeys(source.column for source in sources if isinstance(source, CellColumn))
        families = dict.fromkeys(source.family for source in sources if isinstance(source, FamilyColumn))
        self._slots = {name: slot for slot, name in enumerate((*cells, *families))}
        # A family's map leaves out the cells of other columns, even if these are not read.
        names = cells if not families else {*cells, *shape.named_cells}
        split = {name: name.partition(b":")[::2] for name in names}
        known_families = sorted({family for family, _ in split.values()} | {*families})
        known_qualifiers = sorted({qualifier for _, qualifier in split.values()})
        self._families = pa.array(known_families, pa.binary())
        self._qualifiers = pa.array(known_qualifiers, pa.binary())
        kind = np.int16 if len(self._slots) <= _SHORT_MAX else np.int32
        # The last row and the last column are for unknown names: their index is -1.
        self._table = np.full((len(known_families) + 1, len(known_qualifiers) + 1), -1, dtype=kind)
        for family in families:
            self._table[known_families.index(family)] = self._slots[family]
        for name, (family, qualifier) in split.items():
            at = known_families.index(family), known_qualifiers.index(qualifier)
            self._table[at] = self._slots.get(name, -1)

    def of(self, name: bytes) -> int:
        """Return the slot of a column or of a family."""
        return self._slots[name]

    def sorted_cells(self, cells: pa.RecordBatch) -> list[np.ndarray]:
        """Return the indexes of each slot's cells, in their order."""
        import numpy as np

        slots = self._table[_found(cells["family"], self._families), _found(cells["qualifier"], self._qualifiers)]
        order = np.argsort(slots, kind="stable")
        ends = np.cumsum(np.bincount(slots + 1, minlength=len(self._slots) + 1))
        return np.split(order, ends[:-1])[1:]


def _found(names: pa.Array, known: pa.Array) -> np.ndarray:
    """Return the index of each name among the known names; -1 for unknown names."""
    import pyarrow.compute as pc

    found: np.ndarray = pc.fill_null(pc.index_in(names, known), -1).to_numpy()
    return found


# -- the columns of one page -----------------------------------------------------------------------------------------


class _PageColumns:
    """Converts one page to the columns of a batch."""

    def __init__(self, shape: BatchShape, slots: _Slots, page: CellPage, replica_id: int) -> None:
        import numpy as np

        self._shape = shape
        self._slots = slots
        self._cells: Any = page.cells
        self._is_stale = page.is_stale
        self._replica_id = replica_id
        self._is_first = _changes(self._cells["row"])  # True for the first cell of each row
        self._starts = np.flatnonzero(self._is_first)
        if len(self._starts) != page.rows:
            raise BackendFault(f"the backend returned {len(self._starts)} rows on a page that should have {page.rows}")
        self._count = page.cells.num_rows if shape.layout.has_a_row_per_cell else page.rows

    def batch(self) -> pa.RecordBatch:
        return self._shape.batch([self._array(column) for column in self._shape.columns], self._count)

    def _array(self, column: BatchColumn) -> pa.Array:
        import numpy as np
        import pyarrow as pa

        source, decoder = column.source, column.decoder
        if source is Provenance.STALE:
            return pa.array(np.full(self._count, self._is_stale))
        if source is Provenance.REPLICA:
            return pa.array(np.full(self._count, self._replica_id, dtype=np.int32))
        if isinstance(source, str):
            return self._fixed_array(source, column.arrow_type)
        assert decoder is not None
        if isinstance(source, KeyPart):
            return decoder.arrow_array(self._key_parts[self._shape.key.index(source)], self._row_key)
        if isinstance(source, CellColumn):
            return decoder.arrow_array(self._newest(self._sorted[self._slots.of(source.column)]), self._row_key)
        of_family = self._sorted[self._slots.of(source.family)]
        text = text_of if source.has_text_keys else None
        return self._maps(
            column.arrow_type, of_family, self._cells["qualifier"].take(pa.array(of_family)), text, decoder
        )

    # -- rows

    @cached_property
    def _rows(self) -> pa.Array:
        """The row key of each row."""
        import pyarrow as pa

        return self._cells["row"].take(pa.array(self._starts))

    def _row_key(self, row: int) -> bytes:
        key: bytes = self._rows[row].as_py()
        return key

    @cached_property
    def _key_parts(self) -> list[pa.Array]:
        return self._shape.keys.split(self._rows)

    @cached_property
    def _row_of(self) -> np.ndarray:
        """The row number of each cell."""
        import numpy as np

        return np.cumsum(self._is_first) - 1

    # -- cells

    @cached_property
    def _sorted(self) -> list[np.ndarray]:
        return self._slots.sorted_cells(self._cells)

    def _newest(self, which: np.ndarray) -> pa.Array:
        """Return the value of each row's first cell among these cells of one column; null for rows without one."""
        import numpy as np
        import pyarrow as pa

        rows = self._row_of[which]
        if len(which) == len(self._starts) and (rows[1:] != rows[:-1]).all():
            return self._cells["value"].take(pa.array(which))
        found = np.full(len(self._starts), -1)
        found[rows[::-1]] = which[::-1]  # the first one is written last
        return self._cells["value"].take(pa.array(found, mask=found < 0))

    def _maps(self, arrow_type: pa.DataType, which: np.ndarray, names: pa.Array, text: Any, decoder: Any) -> pa.Array:
        """Return a map of names to values per row, from the newest version of these cells."""
        import numpy as np
        import pyarrow as pa

        encoded = names.dictionary_encode()
        codes = encoded.indices.to_numpy()
        rows = self._row_of[which]
        is_newest = np.ones(len(which), dtype=bool)  # the versions of a cell are adjacent
        is_newest[1:] = (codes[1:] != codes[:-1]) | (rows[1:] != rows[:-1])
        which, codes, rows = which[is_newest], codes[is_newest], rows[is_newest]
        shown = encoded.dictionary
        if text is not None:
            shown = pa.array([text(name) for name in shown.to_pylist()], arrow_type.key_type)
        values = self._cells["value"].take(pa.array(which))
        items = values if decoder is None else decoder.arrow_array(values, lambda at: self._row_key(rows[at]))
        counts = np.bincount(rows, minlength=len(self._starts))
        return map_array(arrow_type, shown.take(pa.array(codes)), items, counts)

    # -- layouts that need no catalog

    def _fixed_array(self, name: str, arrow_type: pa.DataType) -> pa.Array:
        import numpy as np
        import pyarrow.compute as pc

        cells = self._cells
        match name:
            case "row":
                return cells["row"] if self._shape.layout.has_a_row_per_cell else self._rows
            case "columns":
                names = pc.binary_join_element_wise(cells["family"], cells["qualifier"], b":")
                return self._maps(arrow_type, np.arange(cells.num_rows), names, text_of, None)
            case "family":
                return texts_of(cells["family"], text_of, arrow_type)
            case "type":
                return texts_of(cells["type"], lambda code: CellType(code).name, arrow_type)
            case _:
                return cells[name]


def _changes(values: pa.Array) -> np.ndarray:
    """Return True for each value that differs from the one before, and for the first value."""
    import numpy as np
    import pyarrow.compute as pc

    is_new = np.ones(len(values), dtype=bool)
    is_new[1:] = pc.not_equal(values[1:], values[:-1]).to_numpy(zero_copy_only=False)
    return is_new


def texts_of(values: pa.Array, text: Callable[[Any], str], arrow_type: pa.DataType) -> pa.Array:
    """Return the values as text; each distinct value is converted once."""
    import pyarrow as pa

    encoded = values.dictionary_encode()
    return pa.array([text(value) for value in encoded.dictionary.to_pylist()], arrow_type).take(encoded.indices)
