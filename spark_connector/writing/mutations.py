"""Converts Arrow record batches of Spark to puts, deletes and increments.

The columns follow ``hbase.spark.query.layout``, as in reads: the catalog's ``columns`` (any selection with the whole
key), ``map``, or ``cells`` and ``raw`` (one row per cell, with its own timestamp and type; adjacent cells of one row
become one mutation).

``hbase.spark.write.operation`` chooses the mutation of a row:

- ``put``: a Put of its cells. A null is skipped, deletes the cell (a Delete after the Put) or is written as an empty
  value, by ``hbase.spark.write.nulls``. A row without cells to write gives no mutation.
- ``delete``: with columns beside the key, a Delete of the cells whose value is not null; otherwise of the whole row. It
  deletes all versions up to the timestamp.
- ``increment``: an Increment by each value that is not null.
"""

from __future__ import annotations

import datetime
from collections.abc import Iterable, Iterator, Sequence
from functools import reduce
from typing import TYPE_CHECKING, Any

from metaclient import keys
from metaclient.backend import PutPage
from metaclient.columns import rowkey
from metaclient.columns.codecs.base import BadValueError, Codec
from metaclient.columns.encoding import check_years, encoded_array, holds
from metaclient.columns.layouts import CELL_COLUMNS, MAP_COLUMNS, Layout
from metaclient.columns.salt import salted_array
from metaclient.columns.types import DataType
from metaclient.errors import ConfigError
from metaclient.model import Cell, CellType, Delete, Increment, Put
from spark_connector.schema.catalog import Catalog, CellColumn, FamilyColumn, KeyPart
from spark_connector.schema.ranges import bytes_of

if TYPE_CHECKING:
    import pyarrow as pa

    from spark_connector.settings.options import Options

__all__ = ["check_writable", "pages_from_batch", "row_keys_of", "rows_from_batch"]

#: A column and its bytes; None if the cell is to be deleted.
_Written = tuple[bytes, bytes | None]
_EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
_MS = datetime.timedelta(milliseconds=1)


def check_writable(schema: pa.Schema, catalog: Catalog, options: Options) -> None:
    """Raise ConfigError for columns, types and settings that do not fit: on the driver, before every task fails.

    >>> import pyarrow as pa
    >>> from spark_connector.settings.options import Options
    >>> catalog = Catalog.from_mapping("t", "id INT :id, a STRING cf:a")
    >>> check_writable(pa.schema([("a", pa.string())]), catalog, Options())
    Traceback (most recent call last):
    metaclient.errors.ConfigError: write to t: the row key's column id is not in the DataFrame (a)
    """
    where = f"write to {keys.printable(catalog.table)}"
    names = list(schema.names)
    if len(set(names)) < len(names):
        raise ConfigError(f"{where}: the DataFrame has a column twice ({', '.join(names)})")
    _check_settings(where, options)
    if options.layout is not Layout.COLUMNS:
        _check_shape(where, names, options)
        return
    written = _written_names(names, options)
    fields = [catalog.field(name) for name in written]
    for part in catalog.key:
        if part not in fields:
            raise ConfigError(f"{where}: the row key's column {part.name} is not in the DataFrame ({', '.join(names)})")
    for name, field in zip(written, fields, strict=True):
        given = schema.field(name).type
        if not holds(given, field.type):
            raise ConfigError(
                f"{where}: column {name} is {field.type} in the catalog and {given} in the DataFrame: cast it"
            )
    cells = [field for field in fields if not isinstance(field, KeyPart)]
    if not cells and options.write_operation != "delete":
        raise ConfigError(f"{where}: the DataFrame has only the row key: there is nothing to {options.write_operation}")
    for field in cells if options.write_operation == "increment" else ():
        type = field.value_type if isinstance(field, FamilyColumn) else field.type
        if type.name != "bigint" or field.codec.name != "naive":
            raise ConfigError(
                f"{where}: column {field.name} cannot be incremented: a counter is bigint with the naive coder"
            )


def _check_settings(where: str, options: Options) -> None:
    """Raise ConfigError for a setting that would have no effect on the written cells."""
    operation, layout = options.write_operation, options.layout
    if operation != "put" and (options.write_ttl_ms is not None or options.write_nulls != "skip"):
        name = "ttl" if options.write_ttl_ms is not None else "nulls"
        raise ConfigError(f"{where}: option hbase.spark.write.{name} is for puts, not for operation {operation}")
    if operation == "increment" and not options.write_timestamp.is_job:
        raise ConfigError(
            f"{where}: option hbase.spark.write.timestamp is not for increments: servers set their timestamps"
        )
    if layout.has_a_row_per_cell and (options.write_nulls != "skip" or options.write_timestamp.column is not None):
        name = "nulls" if options.write_nulls != "skip" else "timestamp"
        raise ConfigError(
            f"{where}: option hbase.spark.write.{name} is not for layout {layout.value}: its columns timestamp, type "
            "and value say what each cell is"
        )


def _written_names(names: Sequence[str], options: Options) -> list[str]:
    """Return the columns without the one that holds the timestamp."""
    column = options.write_timestamp.column
    if column is not None and column not in names:
        raise ConfigError(f"hbase.spark.write.timestamp: the DataFrame has no column {column} ({', '.join(names)})")
    return [name for name in names if name != column]


def _check_shape(where: str, names: Sequence[str], options: Options) -> None:
    shape = [name for name, _ in (MAP_COLUMNS if options.layout is Layout.MAP else CELL_COLUMNS)]
    if sorted(_written_names(names, options) if options.layout is Layout.MAP else names) != sorted(shape):
        raise ConfigError(
            f"{where}: layout {options.layout.value} takes the columns {', '.join(shape)}, "
            f"the DataFrame has {', '.join(names)}"
        )
    if options.layout is not Layout.MAP and options.write_operation != "put":
        raise ConfigError(
            f"{where}: layout {options.layout.value} has a type per cell: leave hbase.spark.write.operation=put"
        )
    if options.layout is Layout.MAP and options.write_operation == "increment":
        raise ConfigError(f"{where}: layout map holds bytes, which cannot be added: use a catalog")


def rows_from_batch(
    batch: pa.RecordBatch, catalog: Catalog, options: Options, timestamp: int
) -> Iterator[Put | Delete | Increment]:
    """Yield the mutations of a batch, in its order; see the module's docstring.

    ``timestamp`` (ms) is the job's; ``hbase.spark.write.timestamp`` may replace it. BadValueError names the row and the
    column of a value that cannot be written.
    """
    check_writable(batch.schema, catalog, options)
    if options.layout is Layout.COLUMNS:
        return _Columns(batch, catalog, options, timestamp).mutations()
    if options.layout is Layout.MAP:
        return _map_mutations(batch, options, timestamp)
    return _cell_mutations(batch, options, timestamp)


def pages_from_batch(batch: pa.RecordBatch, catalog: Catalog, options: Options, timestamp: int) -> list[PutPage] | None:
    """Return the puts of a batch as pages, with the cells of :func:`rows_from_batch`; None if that is impossible.

    There is one page per TTL, because a put has one for all its cells.
    A page cannot hold other layouts, families as maps, deletes and increments.
    """
    check_writable(batch.schema, catalog, options)
    if options.layout is not Layout.COLUMNS or options.write_operation != "put" or options.write_nulls == "delete":
        return None
    return _Columns(batch, catalog, options, timestamp).pages()


class _Columns:
    """One batch of the layout ``columns``."""

    def __init__(self, batch: pa.RecordBatch, catalog: Catalog, options: Options, timestamp: int) -> None:
        self._batch = batch
        self._catalog = catalog
        self._options = options
        self._where = f"write to {keys.printable(catalog.table)}"
        self._timestamps = _timestamps(batch, options, timestamp)
        names = _written_names(batch.schema.names, options)
        fields = {name: catalog.field(name) for name in names}
        for name, field in fields.items():
            try:
                check_years(batch.column(name), field.type)
            except BadValueError as error:
                raise BadValueError(f"{self._where}, column {name}: {error}") from None
        by_part = {field: name for name, field in fields.items() if isinstance(field, KeyPart)}
        self._key_columns = [batch.column(by_part[part]) for part in catalog.key]
        self._fields = [(name, field) for name, field in fields.items() if not isinstance(field, KeyPart)]

    def mutations(self) -> Iterator[Put | Delete | Increment]:
        rows: list[bytes] = self._row_keys().to_pylist()
        if self._options.write_operation == "increment":
            return self._increments(rows)
        if self._options.write_operation == "delete":
            return self._deletes(rows)
        return self._puts_and_deletes(rows)

    def pages(self) -> list[PutPage] | None:
        """Return the puts of all rows with a cell to write, one page per TTL; None if a column is a map."""
        import pyarrow as pa

        by_ttl: dict[int | None, list[tuple[str, CellColumn]]] = {}
        for name, field in self._fields:
            if not isinstance(field, CellColumn):
                return None
            by_ttl.setdefault(self._ttl_ms(field), []).append((name, field))
        rows, timestamps = self._row_keys(), pa.array(self._timestamps, pa.int64())
        return [self._page(rows, timestamps, fields, ttl_ms) for ttl_ms, fields in by_ttl.items()]

    def _ttl_ms(self, field: CellColumn | FamilyColumn) -> int | None:
        """Return the TTL of the cells of a column: the catalog's, or else that of the write."""
        return self._options.write_ttl_ms if field.ttl_ms is None else field.ttl_ms

    def _page(
        self, rows: pa.Array, timestamps: pa.Array, fields: Sequence[tuple[str, CellColumn]], ttl_ms: int | None
    ) -> PutPage:
        import pyarrow.compute as pc

        made = PutPage(
            rows,
            timestamps,
            tuple(field.column for _, field in fields),
            tuple(self._cells(self._batch.column(name), field, rows) for name, field in fields),
            self._options.write_durability,
            ttl_ms,
        )
        if not all(values.null_count for values in made.values):
            return made
        is_there = reduce(pc.or_, [values.is_valid() for values in made.values])
        return made.changed(lambda array: array.filter(is_there))

    def _cells(self, column: pa.Array, field: CellColumn, rows: pa.Array) -> pa.Array:
        """Return the bytes of a column's cells; null for rows without a cell to write."""
        import pyarrow as pa

        cells = encoded_array(column, field.codec, field.type)
        if cells is None:
            pairs = zip(rows.to_pylist(), column.to_pylist(), strict=True)
            encoded = [None if value is None else self._encoded(row, field, value, field.type) for row, value in pairs]
            cells = pa.array(encoded, pa.large_binary())
        return cells.fill_null(b"") if self._options.write_nulls == "empty" else cells

    def _row_keys(self) -> pa.Array:
        import pyarrow as pa

        at_once = _keys_at_once(self._key_columns, self._catalog)
        if at_once is not None:
            return at_once
        rows: list[bytes] = []
        values_of = zip(*(column.to_pylist() for column in self._key_columns), strict=True)
        for index, values in enumerate(values_of):
            try:
                rows.append(rowkey.join_parts(self._catalog.key, values, self._catalog.salt))
            except BadValueError as error:
                raise BadValueError(f"{self._where}, row {index + 1} of a batch: {error}") from None
        return pa.array(rows, pa.large_binary())

    def _puts_and_deletes(self, rows: Sequence[bytes]) -> Iterator[Put | Delete]:
        columns = [self._written(name, field, rows) for name, field in self._fields]
        ttls_ms = [self._ttl_ms(field) for _, field in self._fields]
        durability = self._options.write_durability
        for row, stamp, *written in zip(rows, self._timestamps, *columns, strict=True):
            puts: dict[int | None, list[Cell]] = {}
            gone: list[Cell] = []
            for ttl_ms, cells in zip(ttls_ms, written, strict=True):
                for column, value in cells:
                    if value is None:
                        gone.append(Cell(column, stamp, b"", CellType.DELETE_COLUMN))
                    else:
                        puts.setdefault(ttl_ms, []).append(Cell(column, stamp, value))
            for ttl_ms, some in puts.items():
                yield Put(row, tuple(some), durability, ttl_ms)
            if gone:
                yield Delete(row, tuple(gone), durability=durability)

    def _deletes(self, rows: Sequence[bytes]) -> Iterator[Delete]:
        durability = self._options.write_durability
        columns = [list(self._named(name, field)) for name, field in self._fields]
        for row, stamp, *named in zip(rows, self._timestamps, *columns, strict=True):
            cells = tuple(Cell(column, stamp, b"", CellType.DELETE_COLUMN) for each in named for column, _ in each)
            if cells or not self._fields:
                yield Delete(row, cells, stamp, durability)

    def _increments(self, rows: Sequence[bytes]) -> Iterator[Increment]:
        columns = [list(self._named(name, field)) for name, field in self._fields]
        for row, *named in zip(rows, *columns, strict=True):
            amounts = tuple((column, int(value)) for each in named for column, value in each)
            if amounts:
                yield Increment(row, amounts, self._options.write_durability)

    # -- cells of one column, row by row

    def _named(self, name: str, field: CellColumn | FamilyColumn) -> Iterator[list[tuple[bytes, Any]]]:
        """Yield the cells of each row that are not null, with Python's values."""
        for value in self._batch.column(name).to_pylist():
            if isinstance(field, CellColumn):
                yield [] if value is None else [(field.column, value)]
            else:
                yield [(self._cell_of(field, key), each) for key, each in value or () if each is not None]

    def _written(
        self, name: str, field: CellColumn | FamilyColumn, rows: Sequence[bytes]
    ) -> Iterator[Iterable[_Written]]:
        """Return the cells of each row to be written or deleted."""
        if isinstance(field, FamilyColumn):
            return self._written_family(name, field, rows)
        return self._written_cells(name, field, rows)

    def _written_cells(self, name: str, field: CellColumn, rows: Sequence[bytes]) -> Iterator[Iterable[_Written]]:
        values, is_encoded = _values(self._batch.column(name), field.codec, field.type)
        null = self._null_cells(field.column)
        for row, value in zip(rows, values, strict=True):
            if value is None:
                yield null
            else:
                yield ((field.column, value if is_encoded else self._encoded(row, field, value, field.type)),)

    def _written_family(self, name: str, field: FamilyColumn, rows: Sequence[bytes]) -> Iterator[Iterable[_Written]]:
        for row, entries in zip(rows, self._batch.column(name).to_pylist(), strict=True):
            cells: list[_Written] = []
            for key, value in entries or ():
                column = self._cell_of(field, key)
                if value is None:
                    cells.extend(self._null_cells(column))
                else:
                    cells.append((column, self._encoded(row, field, value, field.value_type)))
            yield cells

    def _null_cells(self, column: bytes) -> tuple[_Written, ...]:
        if self._options.write_nulls == "skip":
            return ()
        return ((column, None if self._options.write_nulls == "delete" else b""),)

    def _encoded(self, row: bytes, field: CellColumn | FamilyColumn, value: object, type: DataType) -> bytes:
        try:
            return field.codec.encode(value, type)
        except BadValueError as error:
            raise BadValueError(f"{self._where}, row {keys.printable(row)}, column {field.name}: {error}") from None

    def _cell_of(self, field: FamilyColumn, key: str | bytes) -> bytes:
        qualifier = bytes_of(key, f"column {field.name}, qualifier") if isinstance(key, str) else key
        column = field.family + b":" + qualifier
        if column in self._catalog.named_cells:
            raise BadValueError(
                f"{self._where}: map {field.name} has the key {key!r}, "
                f"and {keys.printable(column)} is a column of its own"
            )
        return column


def row_keys_of(columns: Sequence[pa.Array], catalog: Catalog) -> list[bytes | None]:
    """Return the row key of each row of these columns, one per part; None for null and values that form no key."""
    at_once = _keys_at_once(columns, catalog)
    if at_once is not None:
        found: list[bytes | None] = at_once.to_pylist()
        return found
    rows = zip(*(column.to_pylist() for column in columns), strict=True)
    return [None if None in values else _row_key(values, catalog) for values in rows]


def _row_key(values: Sequence[object], catalog: Catalog) -> bytes | None:
    try:
        return rowkey.join_parts(catalog.key, values, catalog.salt)
    except BadValueError:
        return None


def _keys_at_once(columns: Sequence[pa.Array], catalog: Catalog) -> pa.Array | None:
    """Return all row keys, encoded together; None for keys of several parts, padded keys, and invalid keys."""
    import pyarrow.compute as pc

    (part, *others), (column, *_) = catalog.key, columns
    rows = encoded_array(column, part.codec, part.type)
    is_filled_up = part.length not in (None, part.codec.width(part.type))
    if others or is_filled_up or rows is None or rows.null_count:
        return None
    lengths = pc.min_max(pc.binary_length(rows)).as_py()
    length_max = keys.ROW_LENGTH_MAX - bool(catalog.salt)
    is_right = not len(rows) or (lengths["min"] and lengths["max"] <= length_max)
    return salted_array(rows, catalog.salt) if is_right else None


def _values(column: pa.Array, codec: Codec, type: DataType) -> tuple[list[Any], bool]:
    """Return the values of a column, and True if they are the cells' bytes already."""
    at_once = encoded_array(column, codec, type)
    return (column.to_pylist(), False) if at_once is None else (at_once.to_pylist(), True)


def _timestamps(batch: pa.RecordBatch, options: Options, job: int) -> list[int]:
    """Return the timestamp of each row, in milliseconds; a null in the column stands for the job's timestamp."""
    given = options.write_timestamp
    if given.column is None:
        return [job if given.ms is None else given.ms] * batch.num_rows
    return [job if value is None else _millis(given.column, value) for value in batch.column(given.column).to_pylist()]


def _millis(column: str, value: object) -> int:
    if isinstance(value, datetime.datetime) and value.tzinfo is not None:
        value = (value - _EPOCH) // _MS
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value < 2**63 - 1:
        raise BadValueError(
            f"hbase.spark.write.timestamp: column {column} holds {value!r}, not milliseconds or a timestamp"
        )
    return value


# ---- layouts without a catalog


def _map_mutations(batch: pa.RecordBatch, options: Options, timestamp: int) -> Iterator[Put | Delete]:
    durability = options.write_durability
    stamps = _timestamps(batch, options, timestamp)
    for row, entries, stamp in zip(
        batch.column("row").to_pylist(), batch.column("columns").to_pylist(), stamps, strict=True
    ):
        row = _checked_row(row)
        columns = [(_column(key), value) for key, value in entries or ()]
        if options.write_operation == "delete":
            cells = tuple(Cell(column, stamp, b"", CellType.DELETE_COLUMN) for column, _ in columns)
            yield Delete(row, cells, stamp, durability)
            continue
        empty_or_none = b"" if options.write_nulls == "empty" else None
        written = [(column, empty_or_none if value is None else value) for column, value in columns]
        puts = tuple(Cell(column, stamp, value) for column, value in written if value is not None)
        if puts:
            yield Put(row, puts, durability, options.write_ttl_ms)
        gone = tuple(Cell(column, stamp, b"", CellType.DELETE_COLUMN) for column, value in written if value is None)
        if gone and options.write_nulls == "delete":
            yield Delete(row, gone, durability=durability)


def _column(text: str) -> bytes:
    try:
        return keys.column_name(bytes_of(text, "column"), "column", family_only_ok=False)
    except ValueError as error:
        raise BadValueError(str(error)) from None


def _checked_row(row: bytes | None) -> bytes:
    try:
        return keys.row_key(row)  # type: ignore[arg-type]  # it refuses None
    except (ValueError, TypeError) as error:
        raise BadValueError(str(error)) from None


def _cell_mutations(batch: pa.RecordBatch, options: Options, timestamp: int) -> Iterator[Put | Delete]:
    columns = [batch.column(name).to_pylist() for name, _ in CELL_COLUMNS]
    puts: list[Cell] = []
    markers: list[Cell] = []
    last = b""
    for row, family, qualifier, stamp, type_name, value in zip(*columns, strict=True):
        row = _checked_row(row)
        if row != last:
            yield from _flushed(last, puts, markers, options)
            puts, markers, last = [], [], row
        cell = _cell(family, qualifier, timestamp if stamp is None else stamp, type_name, value)
        (puts if cell.type is CellType.PUT else markers).append(cell)
    yield from _flushed(last, puts, markers, options)


def _flushed(row: bytes, puts: list[Cell], markers: list[Cell], options: Options) -> Iterator[Put | Delete]:
    if puts:
        yield Put(row, tuple(puts), options.write_durability, options.write_ttl_ms)
    if markers:
        yield Delete(row, tuple(markers), durability=options.write_durability)


def _cell(family: str | None, qualifier: bytes | None, stamp: int, type_name: str | None, value: bytes | None) -> Cell:
    name = type_name or "PUT"
    if name not in CellType.__members__:
        raise BadValueError(f"column type holds {name!r}: one of {', '.join(CellType.__members__)} is wanted")
    column = bytes_of(family or "", "family") + b":" + (qualifier or b"")
    try:
        keys.column_name(column, "column", family_only_ok=False)
    except ValueError as error:
        raise BadValueError(str(error)) from None
    return Cell(column, stamp, value or b"", CellType[name])
