"""The rows of a stream of changes (``hbase.spark.stream.source=wal``): calls of a spool, in each layout.

``raw``      one row per cell: ``row, family, qualifier, timestamp, type, value`` and ``region, sequence, write_time``
``cells``    the same, without delete markers
``columns``  one row per change of a row: the catalog's columns and ``change, changed, sequence, write_time``

In the layout ``columns`` a change has the values that it has written; all other columns are null. ``change`` is
``delete`` if the change has deleted the row (all families of the catalog, and nothing was written), else ``upsert``.
``changed`` has the names of the columns that the change has written or deleted: a column in it that is null was
deleted, and a column that is not in it keeps its value. Of several versions of a column in one change, the one with the
greatest timestamp counts, if no marker of the same change hides it. ``sequence`` orders the changes of a row; it is 0
for rows of a snapshot. ``write_time`` is the region server's clock, in milliseconds.

DIVERGENCES: the columns are those of the changes in their order. HBase orders versions by timestamp: for writers that
set timestamps of their own, and for deletes of single versions, which make the version before visible, use ``raw``.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from metaclient import keys as row_keys
from metaclient.changes.arrow import batch_of_calls
from metaclient.changes.change import ChangeCell
from metaclient.changes.decoding import decode_rows
from metaclient.changes.spool import SpooledCall
from metaclient.columns.batch_shape import BatchColumn
from metaclient.columns.layouts import CELL_COLUMNS, Layout
from metaclient.columns.page_batches import texts_of
from metaclient.errors import ConfigError
from metaclient.model import CellType
from metaclient.wire.rpc.cellblock import skip_cells
from metaclient.wire.rpc.replication import decode_keys
from spark_connector.reading.batch_shape import arrow_schema, spark_shape
from spark_connector.schema.catalog import CellColumn, FamilyColumn, KeyPart
from spark_connector.schema.ranges import text_of
from spark_connector.schema.types import to_spark

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType

    from spark_connector.settings.options import Options

__all__ = ["change_batches", "change_schema", "with_change_layout"]

#: Calls are converted together up to this size: a batch of Arrow has a cost of its own.
_BATCH_BYTES = 4 << 20
_ROWS_MAX = 10_000
UPSERT, DELETE = "upsert", "delete"


def with_change_layout(options: Options) -> Options:
    """Return the options with the layout of a stream of changes: ``raw`` if there is neither a layout nor a catalog."""
    if options.layout is Layout.COLUMNS and options.catalog_text is None and options.columns_mapping is None:
        return replace(options, layout_name=Layout.RAW.value)
    return options


def change_schema(options: Options) -> StructType:
    """Return the schema of a stream of changes; ConfigError for a layout or a catalog that it cannot have."""
    from pyspark.sql.types import ArrayType, LongType, StringType, StructField, StructType

    options = with_change_layout(options)
    if options.layout is Layout.MAP:
        raise ConfigError("a stream of changes has no layout map: use columns (with a catalog), cells or raw")
    if options.layout.has_a_row_per_cell:
        fields = [StructField(name, to_spark(type), True) for name, type in CELL_COLUMNS]
        more = [StructField("region", StringType())]
    else:
        catalog = options.catalog()
        for name in catalog.names:
            if isinstance(catalog.field(name), FamilyColumn):
                raise ConfigError(
                    f"column {name} is a whole family, whose deletes a stream of changes cannot show: leave it out, or "
                    "use hbase.spark.query.layout=raw"
                )
        fields = list(catalog.schema().fields)
        more = [StructField("change", StringType()), StructField("changed", ArrayType(StringType()))]
    more += [StructField("sequence", LongType()), StructField("write_time", LongType())]
    taken = {field.name.lower() for field in fields}
    for field in more:
        if field.name.lower() in taken:
            raise ConfigError(
                f"column {field.name} of the catalog has the name of a column of every stream of changes: rename it"
            )
    return StructType([*fields, *more])


def change_batches(calls: Iterable[SpooledCall], options: Options) -> Iterator[pa.RecordBatch]:
    """Yield the rows of the table of the options in these calls, in their order."""
    if options.layout.has_a_row_per_cell:
        table = options.catalog().table
        for group in _groups(calls):
            batch = _cell_batch(batch_of_calls(group), table, options)
            if batch.num_rows:
                yield batch
        return
    rows = _ChangeRows(options)
    for call in calls:
        rows.add_call(call)
        if rows.count >= _ROWS_MAX:
            yield rows.build()
    if rows.count:
        yield rows.build()


def _groups(calls: Iterable[SpooledCall]) -> Iterator[list[SpooledCall]]:
    waiting: list[SpooledCall] = []
    size = 0
    for call in calls:
        waiting.append(call)
        size += len(call.cells)
        if size >= _BATCH_BYTES:
            yield waiting
            waiting, size = [], 0
    if waiting:
        yield waiting


# -- a row per cell ----------------------------------------------------------------------------------------------------


def _cell_batch(cells: pa.RecordBatch, table: bytes, options: Options) -> pa.RecordBatch:
    """Return the cells of one table with Spark's types; in the layout ``cells`` the puts only."""
    import pyarrow as pa
    import pyarrow.compute as pc

    names = cells["table"].dictionary.to_pylist()
    if names != [table]:
        cells = cells.filter(pc.equal(cells["table"].cast(pa.binary()), table))
    if options.layout is Layout.CELLS:
        cells = cells.filter(pc.equal(cells["type"], int(CellType.PUT)))
    wanted = arrow_schema(change_schema(options))
    arrays = []
    for field in wanted:
        column: Any = cells[field.name]
        if field.name == "family":
            column = texts_of(column, text_of, field.type)
        elif field.name == "type":
            column = texts_of(column, lambda code: CellType(code).name, field.type)
        arrays.append(column if column.type == field.type else column.cast(field.type))
    return pa.RecordBatch.from_arrays(arrays, schema=wanted)


# -- a row per change --------------------------------------------------------------------------------------------------


class _ChangeRows:
    """Collects changes, and builds batches of the layout ``columns``."""

    def __init__(self, options: Options) -> None:
        from pyspark.sql.types import StructType

        catalog = options.catalog()
        full = change_schema(options)
        self._table = catalog.table
        self._schema = arrow_schema(full)
        self._shape = spark_shape(catalog, StructType(full.fields[: len(catalog.names)]), options)
        sources = [(name, catalog.field(name)) for name in catalog.names]
        self._columns = [
            (name, source.column, source.column.partition(b":")[0])
            for name, source in sources
            if isinstance(source, CellColumn)
        ]
        self._slots = {column: slot for slot, (_, column, _) in enumerate(self._columns)}
        self._families = frozenset(family for _, _, family in self._columns)
        self._clear()

    def _clear(self) -> None:
        self._rows: list[bytes] = []
        self._values: list[list[bytes | None]] = [[] for _ in self._columns]
        self._change: list[str] = []
        self._changed: list[list[str]] = []
        self._sequence: list[int] = []
        self._write_time: list[int] = []

    @property
    def count(self) -> int:
        return len(self._rows)

    def add_call(self, call: SpooledCall) -> None:
        """Add the changes of a call that are new and belong to the table."""
        block, end, at = call.cells, len(call.cells), 0
        for index, (key, count) in enumerate(decode_keys(call.param)):
            if key.table != self._table or (call.flags is not None and not call.flags[index]):
                at = skip_cells(block, at, end, count)
                continue
            rows, at = decode_rows(block, at, end, count)
            for row, cells in rows:
                self._add(row, cells, key.sequence_id, key.write_time_ms)

    def _add(self, row: bytes, cells: Sequence[ChangeCell], sequence: int, write_time: int) -> None:
        found = _Effects(cells, is_newest_first=not sequence)
        values = [found.value(column, family) for _, column, family in self._columns]
        touched = [name for name, column, family in self._columns if found.touches(column, family)]
        if self._columns and not touched:
            return  # it concerns other columns
        deleted = self._families or found.families()
        is_delete = bool(deleted) and found.deleted_families() >= deleted and not found.has_values(values)
        self._rows.append(row)
        for column, value in zip(self._values, values, strict=True):
            column.append(value)
        self._change.append(DELETE if is_delete else UPSERT)
        self._changed.append(touched)
        self._sequence.append(sequence)
        self._write_time.append(write_time)

    def build(self) -> pa.RecordBatch:
        import pyarrow as pa

        arrays = [self._array(column) for column in self._shape.columns]
        arrays += [
            pa.array(self._change, pa.string()),
            pa.array(self._changed, pa.list_(pa.string())),
            pa.array(self._sequence, pa.int64()),
            pa.array(self._write_time, pa.int64()),
        ]
        cast = [
            array if array.type == field.type else array.cast(field.type)
            for array, field in zip(arrays, self._schema, strict=True)
        ]
        made = pa.RecordBatch.from_arrays(cast, schema=self._schema)
        self._clear()
        return made

    def _array(self, column: BatchColumn) -> pa.Array:
        import pyarrow as pa

        source, decoder = column.source, column.decoder
        assert decoder is not None
        if isinstance(source, KeyPart):
            parts = self._shape.keys.split(pa.array(self._rows, pa.binary()))
            return decoder.arrow_array(parts[self._shape.key.index(source)], self._rows.__getitem__)
        assert isinstance(source, CellColumn), row_keys.printable(self._table)
        return decoder.array(self._values[self._slots[source.column]], self._rows.__getitem__)


class _Effects:
    """What the cells of one change do to the columns of its row."""

    def __init__(self, cells: Sequence[ChangeCell], *, is_newest_first: bool) -> None:
        """``is_newest_first``: of cells with equal timestamps the first one counts (a scan), else the last (a log)."""
        self._puts: dict[bytes, list[ChangeCell]] = {}
        self._families: dict[bytes, int] = {}  # DELETE_FAMILY: all versions up to a timestamp
        self._columns: dict[bytes, int] = {}  # DELETE_COLUMN: the same
        self._versions: set[tuple[bytes, int]] = set()  # of columns and of families (DELETE_FAMILY_VERSION)
        for cell in cells:
            column = cell.column
            match cell.type:
                case CellType.PUT:
                    self._puts.setdefault(column, []).append(cell)
                case CellType.DELETE_FAMILY:
                    self._families[cell.family] = max(cell.timestamp, self._families.get(cell.family, -1))
                case CellType.DELETE_COLUMN:
                    self._columns[column] = max(cell.timestamp, self._columns.get(column, -1))
                case CellType.DELETE_FAMILY_VERSION:
                    self._versions.add((cell.family, cell.timestamp))
                case _:
                    self._versions.add((column, cell.timestamp))
        for puts in self._puts.values():
            if not is_newest_first:
                puts.reverse()
            puts.sort(key=lambda cell: -cell.timestamp)

    def value(self, column: bytes, family: bytes) -> bytes | None:
        """Return the newest version that no marker hides; None without one."""
        hidden_to = max(self._families.get(family, -1), self._columns.get(column, -1))
        for cell in self._puts.get(column, ()):
            is_hidden = cell.timestamp <= hidden_to or not self._versions.isdisjoint(
                ((column, cell.timestamp), (family, cell.timestamp))
            )
            if not is_hidden:
                return cell.value
        return None

    def touches(self, column: bytes, family: bytes) -> bool:
        return (
            column in self._puts
            or family in self._families
            or column in self._columns
            or any(name in (column, family) for name, _ in self._versions)
        )

    def deleted_families(self) -> frozenset[bytes]:
        return frozenset(self._families)

    def families(self) -> frozenset[bytes]:
        """Return the families that have cells in the change, for a catalog that has none."""
        return frozenset(name.partition(b":")[0] for name in (*self._puts, *self._columns)) | self.deleted_families()

    def has_values(self, values: Sequence[bytes | None]) -> bool:
        """Return True if a column of the catalog has a value, or any column for a catalog of keys only."""
        if values:
            return any(value is not None for value in values)
        return any(self.value(column, column.partition(b":")[0]) is not None for column in self._puts)
