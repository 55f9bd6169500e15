"""Rows of the client -> Arrow record batches for Spark, in each layout.

A seam for what does not come as ``Result`` objects: :class:`BatchBuilder` takes results, one by one; a decoder of cell
blocks needs only ``arrow_columns.ColumnDecoder`` and :func:`arrow_schema`.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING

from metaclient import keys
from metaclient.errors import ConfigError
from metaclient.model import Cell, CellType, RegionLocation, Result
from spark_connector import rowkey
from spark_connector.arrow_columns import BadCellError, ColumnDecoder
from spark_connector.catalog import Catalog, CellColumn, FamilyColumn, KeyPart
from spark_connector.codecs.base import BadValueError
from spark_connector.layouts import CELL_COLUMNS, MAP_COLUMNS, Layout
from spark_connector.ranges import text_of
from spark_connector.types import from_spark

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType

    from spark_connector.options import Options

__all__ = ["BYTES_MAX", "ROWS_MAX", "BadCellError", "BatchBuilder", "arrow_schema", "batches_from_results"]

#: A batch has at most so many rows and (but for its last row) bytes: 1,000 to 50,000 rows are equally fast in Spark.
ROWS_MAX = 10_000
BYTES_MAX = 8 << 20

#: The next rows of a column, and the way back to the keys of the rows, for errors.
_Column = Callable[[], "pa.Array"]
_TYPE_NAMES = {each: each.name for each in CellType}


def arrow_schema(schema: StructType) -> pa.Schema:
    """The Arrow schema that Spark expects for this one: order, nullability, timestamps in UTC.

    >>> from pyspark.sql.types import StructType
    >>> arrow_schema(StructType().add("t", "timestamp")).field("t").type
    TimestampType(timestamp[us, tz=UTC])
    """
    from pyspark.sql.pandas.types import to_arrow_schema

    if "timezone" in inspect.signature(to_arrow_schema).parameters:
        return to_arrow_schema(schema, timezone="UTC")
    return to_arrow_schema(schema)  # pyspark 4.0 and 4.1: always UTC


class BatchBuilder:
    """Collects rows and makes record batches of them.

    ``schema`` is what Spark handed to the reader, any selection of the layout's columns. Results that continue the row
    before them (``Scan.batch``) are joined to it, within one batch.
    """

    def __init__(self, catalog: Catalog, schema: StructType, options: Options, *, fast: bool = True) -> None:
        self._table = keys.printable(catalog.table)
        self._key = catalog.key
        self._bad_is_null = options.bad_values_are_null
        self._fast = fast
        self._arrow_schema = arrow_schema(schema)
        self._layout = options.layout
        self._stale_name, self._replica_name = options.stale_column, options.replica_column
        self._named = catalog.named_cells
        self._cell_slots: dict[bytes, int] = {}
        self._family_slots: dict[bytes, int] = {}
        self._key_parts: dict[str, int] = {}
        self._makers: list[_Column] = []
        self._clear()
        for field in schema.fields:
            self._makers.append(self._maker(catalog, field.name, str(from_spark(field.dataType))))
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
        self._split: list[list[bytes | None]] | None = None

    # -- taking rows

    @property
    def rows(self) -> int:
        """Rows of the next batch so far."""
        return len(self._rows)

    @property
    def is_full(self) -> bool:
        """Time to :meth:`build`."""
        return len(self._rows) >= ROWS_MAX or self._bytes >= BYTES_MAX

    def add(self, result: Result, replica_id: int = 0) -> None:
        """One row (or, in the layouts cells and raw, as many as it has cells)."""
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
        for cell in result.cells:
            name, value = cell[0], cell[2]
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
        for cell in result.cells:
            if cell[0] not in found:
                found[cell[0]] = cell[2]
                self._bytes += len(cell[0]) + len(cell[2])

    def _add_cells(self, result: Result, replica_id: int) -> None:
        count = len(result.cells)
        self._rows.extend([result.row] * count)
        self._stale.extend([result.is_stale] * count)
        self._replica.extend([replica_id] * count)
        self._flat.extend(result.cells)
        self._bytes += sum(len(cell[2]) for cell in result.cells) + count * (len(result.row) + 32)

    # -- making batches

    def build(self) -> pa.RecordBatch:
        """What was added since the last time (possibly no rows), as a batch.

        Raises :class:`BadCellError` for a cell that cannot be decoded, unless such cells read as null.
        """
        import pyarrow as pa

        if not self._makers:  # a count: rows without columns
            made = pa.record_batch([pa.nulls(len(self._rows))], names=["rows"]).select([])
        else:
            arrays = [
                array if array.type == field.type else array.cast(field.type)
                for array, field in zip((maker() for maker in self._makers), self._arrow_schema, strict=True)
            ]
            made = pa.RecordBatch.from_arrays(arrays, schema=self._arrow_schema)
        self._clear()
        return made

    def _maker(self, catalog: Catalog, name: str, type: str) -> _Column:
        """How to make one column of the schema; ConfigError if the layout has none such."""
        import pyarrow as pa

        if name == self._stale_name:
            return lambda: pa.array(self._stale, pa.bool_())
        if name == self._replica_name:
            return lambda: pa.array(self._replica, pa.int32())
        if self._layout is not Layout.COLUMNS:
            return self._fixed_maker(name, type)
        field = catalog.field(name)
        if str(field.type) != type:
            raise ConfigError(
                f"table {self._table}: column {name} is {field.type} in the catalog and {type} in the schema"
            )
        if isinstance(field, KeyPart):
            self._key_parts[name] = self._key.index(field)
            return self._key_maker(field)
        if isinstance(field, CellColumn):
            slot = self._cell_slots.setdefault(field.column, len(self._cell_slots))
            decoder = self._decoder(f"column {name} ({keys.printable(field.column)})", name, field)
            return lambda: decoder.array(self._cells[slot], self._rows.__getitem__)
        slot = self._family_slots.setdefault(field.family, len(self._family_slots))
        return self._family_maker(field, slot)

    def _decoder(self, what: str, name: str, field: CellColumn | KeyPart) -> ColumnDecoder:
        arrow_type = self._arrow_schema.field(name).type
        return self._new_decoder(what, field, arrow_type)

    def _new_decoder(
        self, what: str, field: CellColumn | KeyPart | FamilyColumn, arrow_type: pa.DataType
    ) -> ColumnDecoder:
        type = field.value_type if isinstance(field, FamilyColumn) else field.type
        where = f"table {self._table}, {what}"
        return ColumnDecoder(where, type, field.codec, arrow_type, bad_is_null=self._bad_is_null, fast=self._fast)

    # -- row keys

    def _key_maker(self, part: KeyPart) -> _Column:
        decoder = self._decoder(f"row key column {part.name}", part.name, part)
        index = self._key.index(part)
        return lambda: decoder.array(self._split_keys()[index], self._rows.__getitem__)

    def _split_keys(self) -> Sequence[Sequence[bytes | None]]:
        """Per part of the key, the bytes of all rows; done once a batch."""
        if self._split is None:
            parts = self._fixed_parts()
            self._split = self._parts_one_by_one() if parts is None else parts
        return self._split

    def _fixed_parts(self) -> list[list[bytes | None]] | None:
        """Parts of fixed lengths, or one part alone, are slices; None: look at each row."""
        if len(self._key) == 1 and self._key[0].length is None:
            return [list(self._rows)]
        lengths = [part.length for part in self._key]
        if None in lengths or set(map(len, self._rows)) - {sum(length or 0 for length in lengths)}:
            return None
        found: list[list[bytes | None]] = []
        start = 0
        for part, length in zip(self._key, lengths, strict=True):
            stop = start + (length or 0)
            found.append([part.stripped(row[start:stop]) for row in self._rows])
            start = stop
        return found

    def _parts_one_by_one(self) -> list[list[bytes | None]]:
        found: list[list[bytes | None]] = [[] for _ in self._key]
        for row in self._rows:
            try:
                parts: Sequence[bytes | None] = [
                    part.stripped(data) for part, data in zip(self._key, rowkey.split(self._key, row), strict=True)
                ]
            except BadValueError as error:
                if not self._bad_is_null:
                    raise BadCellError(
                        f"table {self._table}, row {keys.printable(row)}: {error}; correct the row key in the catalog, "
                        "or set hbase.spark.query.badvalue=null"
                    ) from None
                parts = [None] * len(self._key)
            for column, data in zip(found, parts, strict=True):
                column.append(data)
        return found

    # -- families, and the layouts that need no catalog

    def _family_maker(self, field: FamilyColumn, slot: int) -> _Column:
        arrow_type = self._arrow_schema.field(field.name).type
        decoder = self._new_decoder(
            f"column {field.name} (family {keys.printable(field.family)})", field, arrow_type.item_type
        )
        skip = len(field.family) + 1
        has_text_keys = field.has_text_keys

        def make() -> pa.Array:
            maps = self._families[slot]
            names = [name[skip:] for each in maps for name in each]
            shown = [text_of(name) for name in names] if has_text_keys else names
            values = [value for each in maps for value in each.values()]
            owners = [row for row, each in zip(self._rows, maps, strict=True) for _ in each]
            items = decoder.array(values, owners.__getitem__)
            return _map_array(arrow_type, shown, items, maps)

        return make

    def _fixed_maker(self, name: str, type: str) -> _Column:
        import pyarrow as pa

        shape = MAP_COLUMNS if self._layout is Layout.MAP else CELL_COLUMNS
        wanted = {each: str(kind) for each, kind in shape}
        if wanted.get(name) != type:
            columns = ", ".join(f"{each} {kind}" for each, kind in wanted.items())
            raise ConfigError(f"layout {self._layout.value} has no column {name} {type}; its columns are {columns}")
        arrow_type = self._arrow_schema.field(name).type
        makers: dict[str, _Column] = {
            "row": lambda: pa.array(self._rows, arrow_type),
            "columns": lambda: _map_array(
                arrow_type,
                [text_of(column) for each in self._whole_rows for column in each],
                pa.array([value for each in self._whole_rows for value in each.values()], pa.binary()),
                self._whole_rows,
            ),
            "family": lambda: pa.array([text_of(cell.family) for cell in self._flat], arrow_type),
            "qualifier": lambda: pa.array([cell.qualifier for cell in self._flat], arrow_type),
            "timestamp": lambda: pa.array([cell.timestamp for cell in self._flat], arrow_type),
            "type": lambda: pa.array([_TYPE_NAMES[cell.type] for cell in self._flat], arrow_type),
            "value": lambda: pa.array([cell.value for cell in self._flat], arrow_type),
        }
        return makers[name]


def _map_array(
    arrow_type: pa.DataType, names: Sequence[object], items: pa.Array, maps: Sequence[dict[bytes, bytes]]
) -> pa.Array:
    """Maps from all keys and all items in a row; a map without entries is null: no cell at all is there."""
    import pyarrow as pa

    ends = [0]
    for each in maps:
        ends.append(ends[-1] + len(each))
    starts = [None if start == stop else start for start, stop in pairwise(ends)]
    offsets = pa.array([*starts, ends[-1]], pa.int32())
    made = pa.MapArray.from_arrays(offsets, pa.array(names, arrow_type.key_type), items)
    return made if made.type == arrow_type else made.cast(arrow_type)


def batches_from_results(
    results: Iterable[Result | tuple[Result, RegionLocation | None]],
    catalog: Catalog,
    schema: StructType,
    options: Options,
) -> Iterator[pa.RecordBatch]:
    """Record batches of at most ``ROWS_MAX`` rows or ``BYTES_MAX`` bytes; takes what ``TableScanner`` yields.

    No rows: no batch. A row that comes in pieces is never cut between two batches.
    """
    builder = BatchBuilder(catalog, schema, options)
    last: bytes | None = None
    for each in results:
        result, place = (each, None) if isinstance(each, Result) else each
        if builder.is_full and result.row != last:
            yield builder.build()
        builder.add(result, 0 if place is None else place.replica_id)
        last = result.row
    if builder.rows:
        yield builder.build()
