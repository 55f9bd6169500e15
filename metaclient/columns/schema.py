"""The columns that a user reads or writes: a schema of columns, types and coders.

A schema maps columns to types: ``{"row": "string", "d:age": "int", "d:score": ("double", "orderedbytes")}``.

- ``"d:age"`` is a cell; as text it may have ``\\xNN`` escapes, as bytes it is taken as it is.
- ``"row"`` is the row key: binary, unless the schema has a type for it.
- A family, ``"d"``, has a map type: ``map<string,int>`` is qualifier -> value, of the cells that are no other column.

A type is one of Spark's (``types``), by itself or with a coder (``codecs``); without one the coder is naive, which is
``Bytes.toBytes`` of HBase.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

from metaclient import keys
from metaclient.columns.batch_shape import BatchShape, Provenance, Source
from metaclient.columns.codecs import codec_named
from metaclient.columns.decoding import BadCells
from metaclient.columns.fields import CellColumn, ColumnField, FamilyColumn, KeyPart
from metaclient.columns.key_text import bytes_of, text_of
from metaclient.columns.layouts import CELL_COLUMNS, Layout
from metaclient.columns.types import DataType
from metaclient.columns.types import parse_type as parsed_type
from metaclient.errors import ConfigError

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["ROW", "ColumnType", "SchemaLike", "TableSchema", "arrow_type", "parse_schema", "raw_shape", "schema_shape"]

#: ``"int"``, ``("int", "phoenix")`` or ``{"type": "int", "coder": "phoenix"}``.
ColumnType: TypeAlias = str | Sequence[str] | Mapping[str, str]
SchemaLike: TypeAlias = Mapping[str, ColumnType] | Mapping[bytes, ColumnType]

#: The name of the row key's column.
ROW = "row"
_STALE, _REPLICA = "stale", "replica_id"
_DEFAULT_CODER = "naive"
_ADVICE = "in the schema, or read such cells as null with bad_cells='null'"


@dataclass(frozen=True, slots=True)
class TableSchema:
    """The row key and the other columns, in the order of the schema; ``columns`` includes the key."""

    key: KeyPart
    columns: tuple[ColumnField, ...]

    @property
    def named_cells(self) -> frozenset[bytes]:
        """The cells that are columns of their own: a family's map leaves them out."""
        return frozenset(field.column for field in self.columns if isinstance(field, CellColumn))

    def scanned(self) -> tuple[bytes, ...]:
        """Return the columns that a scan must ask for: ``b"cf:q"``, or ``b"cf"`` for a whole family."""
        families = {field.family for field in self.columns if isinstance(field, FamilyColumn)}
        return tuple(sorted(families | {cell for cell in self.named_cells if cell.partition(b":")[0] not in families}))


def parse_schema(schema: SchemaLike, where: str = "schema") -> TableSchema:
    """Return the checked schema; raise ConfigError, or TypeError for no schema. ``where`` begins the errors.

    >>> parse_schema({"d:age": "int"}).scanned()
    (b'd:age',)
    >>> parse_schema({"age": "int"})
    Traceback (most recent call last):
    metaclient.errors.ConfigError: schema: column 'age' has no family: write 'FAMILY:age', or 'row' for the row key
    """
    if not isinstance(schema, Mapping):
        raise TypeError(f"'schema' must map columns to types, as {{'d:age': 'int'}}, got {type(schema).__name__}")
    fields = [_field(where, name, given) for name, given in schema.items()]
    key = next((field for field in fields if isinstance(field, KeyPart)), None)
    if key is None:
        key = KeyPart(ROW, DataType("binary"), codec_named(_DEFAULT_CODER))
        fields.insert(0, key)
    seen: dict[object, str] = {}
    for field in fields:
        place = ROW if isinstance(field, KeyPart) else field.column if isinstance(field, CellColumn) else field.family
        if place in seen:
            raise ConfigError(f"{where}: columns {seen[place]!r} and {field.name!r} are the same")
        seen[place] = field.name
    return TableSchema(key, tuple(fields))


def _field(where: str, name: str | bytes, given: ColumnType) -> ColumnField:
    if isinstance(name, bytes):
        shown, column = text_of(name), name
    elif isinstance(name, str):
        shown, column = name, bytes_of(name, f"{where}: column")
    else:
        raise TypeError(f"'schema' must map columns (text or bytes) to types, got the column {name!r}")
    where = f"{where}: column {shown!r}"
    type_text, coder = _type_and_coder(where, given)
    try:
        type, codec = parsed_type(type_text), codec_named(coder)
    except ConfigError as error:
        raise ConfigError(f"{where}: {error}") from None
    family, colon, _ = column.partition(b":")
    is_family = not colon and type.name == "map"
    stored = type.element if is_family and type.element is not None else type
    if not codec.supports(stored):
        raise ConfigError(f"{where}: the coder {codec.name} cannot hold {stored}; json can: ({type_text!r}, 'json')")
    if is_family:
        if type.key is None or type.key.name not in ("string", "binary"):
            raise ConfigError(f"{where}: the keys of a family's map are qualifiers: string or binary, not {type.key}")
        return FamilyColumn(shown, _checked_name(where, family + b":").partition(b":")[0], type, codec)
    if colon:
        return CellColumn(shown, _checked_name(where, column), type, codec)
    if shown != ROW:
        raise ConfigError(f"{where} has no family: write 'FAMILY:{shown}', or 'row' for the row key")
    return KeyPart(ROW, type, codec, codec.width(type))


def _type_and_coder(where: str, given: ColumnType) -> tuple[str, str]:
    match given:
        case str():
            return given, _DEFAULT_CODER
        case (str() as type_text, str() as coder):
            return type_text, coder
        case Mapping():
            unknown = [key for key in given if key not in ("type", "coder")]
            if unknown or not isinstance(given.get("type"), str):
                raise ConfigError(f"{where}: {dict(given)!r} must have 'type', may have 'coder', and nothing else")
            return given["type"], str(given.get("coder") or _DEFAULT_CODER)
    raise TypeError(f"{where}: a type such as 'int', or a pair ('int', 'string') of type and coder, got {given!r}")


def _checked_name(where: str, column: bytes) -> bytes:
    try:
        return keys.column_name(column, "column", family_only_ok=False)
    except ValueError as error:
        raise ConfigError(f"{where}: {error}") from None


# -- types of Arrow --------------------------------------------------------------------------------------------------


def arrow_type(type: DataType) -> pa.DataType:
    """Return the Arrow type of a column's values: timestamps in microseconds, UTC.

    >>> from metaclient.columns.types import parse_type
    >>> str(arrow_type(parse_type("map<string,array<decimal(10,2)>>")))
    'map<string, list<item: decimal128(10, 2)>>'
    """
    import pyarrow as pa

    match type.name:
        case "decimal":
            return pa.decimal128(type.precision, type.scale)
        case "array":
            assert type.element is not None
            return pa.list_(arrow_type(type.element))
        case "map":
            assert type.key is not None
            assert type.element is not None
            return pa.map_(arrow_type(type.key), arrow_type(type.element))
        case "struct":
            return pa.struct([pa.field(name, arrow_type(each)) for name, each in type.fields])
    plain = {
        "boolean": pa.bool_(),
        "tinyint": pa.int8(),
        "smallint": pa.int16(),
        "int": pa.int32(),
        "bigint": pa.int64(),
        "float": pa.float32(),
        "double": pa.float64(),
        "string": pa.string(),
        "binary": pa.binary(),
        "date": pa.date32(),
        "timestamp": pa.timestamp("us", tz="UTC"),
        "timestamp_ntz": pa.timestamp("us"),
    }
    return plain[type.name]


# -- shapes of batches -----------------------------------------------------------------------------------------------


def schema_shape(table: bytes, schema: TableSchema, *, bad_are_null: bool, provenance: bool) -> BatchShape:
    """Return the shape of batches with a row per row of HBase; ``provenance`` adds ``stale`` and ``replica_id``."""
    sources: list[tuple[str, Source, DataType]] = [(field.name, field, field.type) for field in schema.columns]
    return _shape(
        table,
        sources,
        provenance=provenance,
        layout=Layout.COLUMNS,
        key=schema.key,
        named_cells=schema.named_cells,
        bad_are_null=bad_are_null,
    )


def raw_shape(table: bytes, *, provenance: bool) -> BatchShape:
    """Return the shape of batches with a row per cell: row, family, qualifier, timestamp (ms), value."""
    sources: list[tuple[str, Source, DataType]] = [(name, name, type) for name, type in CELL_COLUMNS if name != "type"]
    key = KeyPart(ROW, DataType("binary"), codec_named(_DEFAULT_CODER))
    return _shape(
        table,
        sources,
        provenance=provenance,
        layout=Layout.CELLS,
        key=key,
        named_cells=frozenset(),
        bad_are_null=False,
    )


def _shape(
    table: bytes,
    sources: list[tuple[str, Source, DataType]],
    *,
    provenance: bool,
    layout: Layout,
    key: KeyPart,
    named_cells: frozenset[bytes],
    bad_are_null: bool,
) -> BatchShape:
    import pyarrow as pa

    if provenance:
        sources = [
            *sources,
            (_STALE, Provenance.STALE, DataType("boolean")),
            (_REPLICA, Provenance.REPLICA, DataType("int")),
        ]
    return BatchShape(
        table,
        [source for _, source, _ in sources],
        pa.schema([(name, arrow_type(type)) for name, _, type in sources]),
        layout=layout,
        key=(key,),
        named_cells=named_cells,
        bad_cells=BadCells(are_null=bad_are_null, advice=_ADVICE),
    )
