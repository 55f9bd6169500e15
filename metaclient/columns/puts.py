"""Converts Arrow data to pages of puts: a column ``row``, and a column per cell.

Values that are null are no cells, and a row without cells is not written. Without a schema the Arrow types decide: an
int32 is written as ``int``, with the naive coder. With a schema, a column is cast to the schema's type, if no value
changes by that: pandas makes 64-bit numbers of all whole numbers.

The columns of raw cells (``row, family, qualifier, timestamp, value``) are written as the cells that they are.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import reduce
from itertools import groupby
from operator import itemgetter
from typing import TYPE_CHECKING, Any, TypeAlias

from metaclient import keys
from metaclient.backend import PutPage
from metaclient.columns.codecs.base import BadValueError
from metaclient.columns.encoding import check_years, encoded_array, holds
from metaclient.columns.fields import CellColumn
from metaclient.columns.key_text import bytes_of
from metaclient.columns.schema import ROW, ColumnType, TableSchema, arrow_type, parse_schema
from metaclient.columns.types import DataType
from metaclient.errors import ConfigError
from metaclient.model import Cell, Durability, Put

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["ArrowData", "batches_of", "inferred_schema", "is_raw", "page_of", "raw_puts"]

#: A record batch, a table, a reader, another object with Arrow's C stream (polars, DuckDB), or an iterable of batches.
ArrowData: TypeAlias = "pa.RecordBatch | pa.Table | Iterable[pa.RecordBatch]"

_RAW = ("row", "family", "qualifier", "timestamp", "value")


def batches_of(data: ArrowData) -> Iterator[pa.RecordBatch]:
    """Yield the record batches of an object; raise TypeError if it has none."""
    import pyarrow as pa

    if isinstance(data, pa.RecordBatch):
        yield data
    elif isinstance(data, pa.Table):
        yield from data.to_batches()
    elif hasattr(data, "__arrow_c_stream__"):
        yield from pa.RecordBatchReader.from_stream(data)
    elif isinstance(data, Iterable) and not isinstance(data, str | bytes | dict):
        for batch in data:
            if not isinstance(batch, pa.RecordBatch):
                raise TypeError(f"put_arrow() takes record batches, got an iterable with {type(batch).__name__}")
            yield batch
    else:
        hint = ": use put_pandas()" if type(data).__module__.partition(".")[0] == "pandas" else ""
        raise TypeError(f"put_arrow() takes a RecordBatch, a Table or record batches, got {type(data).__name__}{hint}")


def is_raw(schema: pa.Schema) -> bool:
    """Return True if the columns are those of raw cells, as ``scan_arrow`` returns them without a schema."""
    return sorted(schema.names) == sorted(_RAW)


def inferred_schema(where: str, schema: pa.Schema) -> TableSchema:
    """Return the schema of data without one: the naive coder, and the type that each Arrow type stands for."""
    return parse_schema(
        {name: _type_of(where, name, schema.field(name).type) for name in _checked_names(where, schema)},
        where,
    )


def _type_of(where: str, name: str, given: pa.DataType) -> ColumnType:
    import pyarrow.types as kinds

    if kinds.is_decimal(given):
        return f"decimal({given.precision},{given.scale})"
    for type_name in _ATOMIC_NAMES:
        if holds(given, DataType(type_name)):
            return type_name
    if str(given) in _VIEWS:
        return _VIEWS[str(given)]
    if kinds.is_dictionary(given):
        return _type_of(where, name, given.value_type)
    raise ConfigError(f"{where}: column {name!r} is {given}, for which there is no default: give its type in 'schema'")


#: Arrow's views, as polars has them; pyarrow 15 has no predicate for them.
_VIEWS = {"string_view": "string", "binary_view": "binary"}
_ATOMIC_NAMES = (
    "boolean",
    "tinyint",
    "smallint",
    "int",
    "bigint",
    "float",
    "double",
    "string",
    "binary",
    "date",
    "timestamp",
    "timestamp_ntz",
)


def _checked_names(where: str, schema: pa.Schema) -> list[str]:
    names = list(schema.names)
    if len(set(names)) < len(names):
        raise ConfigError(f"{where}: a column is there twice ({', '.join(names)})")
    if ROW not in names:
        raise ConfigError(f"{where}: there is no column 'row', the row key; the columns are {', '.join(names)}")
    if len(names) == 1:
        raise ConfigError(f"{where}: there is only the row key: nothing to write")
    return names


def page_of(where: str, batch: pa.RecordBatch, schema: TableSchema, timestamp: int, durability: Durability) -> PutPage:
    """Return the puts of a batch, sorted by row; rows without cells are left out.

    Raises ConfigError for columns and types that do not fit, and BadValueError, which names row and column, for values.
    """
    import numpy as np
    import pyarrow as pa
    import pyarrow.compute as pc

    columns = _columns(where, batch, schema)
    rows = _row_keys(where, columns[schema.key.name], schema)
    fields = [field for field in schema.columns if isinstance(field, CellColumn) and field.name in columns]
    values = tuple(_cells(where, columns[field.name], field, rows) for field in fields)
    page = PutPage(
        rows,
        pa.array(np.full(len(rows), timestamp, dtype=np.int64)),
        tuple(field.column for field in fields),
        values,
        durability,
    )
    if all(each.null_count for each in values):
        is_there = reduce(pc.or_, [each.is_valid() for each in values])
        page = page.changed(lambda array: array.filter(is_there))
    order = pc.sort_indices(page.rows)
    return page.changed(lambda array: array.take(order))


def _columns(where: str, batch: pa.RecordBatch, schema: TableSchema) -> dict[str, pa.Array]:
    """Return the columns by name, of the types of the schema."""
    names = _checked_names(where, batch.schema)
    fields = {field.name: field for field in schema.columns}
    made: dict[str, pa.Array] = {}
    for name in names:
        field = fields.get(name)
        if field is None:
            raise ConfigError(f"{where}: column {name!r} is not in the schema, which has {', '.join(fields)}")
        if not isinstance(field, CellColumn) and field is not schema.key:
            raise ConfigError(f"{where}: column {name!r} is a whole family, which cannot be written: name its columns")
        made[name] = _cast(where, name, batch.column(name), field.type)
        try:
            check_years(made[name], field.type)
        except BadValueError as error:
            raise BadValueError(f"{where}, column {name}: {error}") from None
    return made


def _cast(where: str, name: str, column: pa.Array, type: DataType) -> pa.Array:
    import pyarrow as pa

    wanted = arrow_type(type)
    if holds(column.type, type):
        return column
    try:
        return column.cast(wanted)  # raises if a value changes
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        raise ConfigError(f"{where}: column {name!r} is {column.type}, and {type} is wanted: {error}") from None


def _row_keys(where: str, column: pa.Array, schema: TableSchema) -> pa.Array:
    import pyarrow as pa
    import pyarrow.compute as pc

    part = schema.key
    rows = encoded_array(column, part.codec, part.type)
    if rows is not None and not rows.null_count:
        lengths = pc.min_max(pc.binary_length(rows)).as_py() if len(rows) else {"min": 1, "max": 1}
        if lengths["min"] and lengths["max"] <= keys.ROW_LENGTH_MAX:
            return rows
    made: list[bytes] = []
    for number, value in enumerate(column.to_pylist()):
        try:
            made.append(keys.row_key(part.encode(value)))
        except ValueError as error:  # BadValueError, too
            raise BadValueError(f"{where}, row {number + 1} of a batch: {error}") from None
    return pa.array(made, pa.large_binary())


def _cells(where: str, column: pa.Array, field: CellColumn, rows: pa.Array) -> pa.Array:
    """Return the bytes of a column's cells; null for rows without one."""
    import pyarrow as pa

    cells = encoded_array(column, field.codec, field.type)
    if cells is not None:
        return cells
    encoded: list[bytes | None] = []
    for number, value in enumerate(column.to_pylist()):
        try:
            encoded.append(None if value is None else field.codec.encode(value, field.type))
        except BadValueError as error:
            row = keys.printable(rows[number].as_py())
            raise BadValueError(f"{where}, row {row}, column {field.name}: {error}") from None
    return pa.array(encoded, pa.large_binary())


# -- raw cells -------------------------------------------------------------------------------------------------------


def raw_puts(where: str, batch: pa.RecordBatch, timestamp: int | None, durability: Durability) -> list[Put]:
    """Return the puts of raw cells, one per run of cells of one row.

    ``timestamp`` replaces those of the cells; None keeps them.
    """
    columns: Sequence[list[Any]] = [batch.column(name).to_pylist() for name in _RAW]
    cells: list[tuple[bytes, Cell]] = []
    for number, (row, family, qualifier, stamp, value) in enumerate(zip(*columns, strict=True)):
        try:
            name = (
                (family if isinstance(family, bytes) else bytes_of(family or "", "family")) + b":" + (qualifier or b"")
            )
            column = keys.column_name(name, "column", family_only_ok=False)
            cells.append((keys.row_key(row), Cell(column, _stamp(timestamp, stamp), value or b"")))
        except (ValueError, TypeError) as error:
            raise BadValueError(f"{where}, cell {number + 1} of a batch: {error}") from None
    return [Put(row, tuple(cell for _, cell in run), durability) for row, run in groupby(cells, key=itemgetter(0))]


def _stamp(given: int | None, of_cell: int | None) -> int:
    if given is not None:
        return given
    if of_cell is None:
        raise ValueError("its timestamp is null: give 'timestamp', or the timestamp of each cell")
    return int(of_cell)
