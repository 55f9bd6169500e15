"""The catalog: an HBase table, the parts of its row key, and the cell, type and codec of each column.

It is parsed from hbase-connectors' JSON (and SHC's), or from the older ``hbase.columns.mapping`` text::

    {"table": {"namespace": "shop", "name": "orders", "tableCoder": "naive"},
     "rowkey": "region:id",
     "columns": {
       "region": {"cf": "rowkey", "col": "region", "type": "string", "length": 2},
       "id":     {"cf": "rowkey", "col": "id", "type": "bigint"},
       "amount": {"cf": "d", "col": "amount", "type": "decimal(10,2)"},
       "note":   {"cf": "d", "col": "note", "type": "string", "coder": "json"},
       "tags":   {"cf": "t", "type": "map<string,string>"}}}

A column of a map type without ``col`` (or with ``"*"``) is a whole family: qualifier -> value, of all cells of the
family that are not another column. Extensions of hbase-connectors' format: columns of whole families, ``coder`` (see
``codecs``), ``ttl`` of a column (the milliseconds that its cells live), and ``"salt": 16`` beside ``rowkey``.
"""

from __future__ import annotations

import difflib
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from metaclient import keys
from metaclient.columns.codecs import Codec, codec_named
from metaclient.columns.fields import CellColumn, FamilyColumn
from metaclient.columns.fields import ColumnField as Field
from metaclient.columns.rowkey import KeyPart
from metaclient.columns.salt import BUCKETS_MAX
from metaclient.columns.types import DataType, parse_type
from metaclient.errors import ConfigError
from metaclient.wording import counted

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

__all__ = ["Catalog", "CellColumn", "FamilyColumn", "Field", "KeyPart"]

_ROWKEY = "rowkey"
_KEYS = frozenset({"table", "rowkey", "columns", "salt"})
_TABLE_KEYS = frozenset({"namespace", "name", "tableCoder", "version"})
_COLUMN_KEYS = frozenset({"cf", "col", "type", "coder", "length", "ttl", "avro", "serdes"})


@dataclass(frozen=True, slots=True)
class Catalog:
    """A table and its columns, in the order of the catalog. ``key`` has all parts, even if columns are selected.

    >>> catalog = Catalog.from_mapping("t", "id STRING :key, a INT cf:a")
    >>> catalog.table, [part.name for part in catalog.key], catalog.cells_of(["id", "a"])
    (b't', ['id'], (b'cf:a',))
    >>> catalog.field("b")
    Traceback (most recent call last):
    metaclient.errors.ConfigError: table t: the catalog has no column b; its columns are id, a
    """

    table: bytes
    key: tuple[KeyPart, ...]
    columns: tuple[Field, ...]
    #: The cells of all columns of the whole catalog: a family's map leaves them out even if they are not selected.
    named_cells: frozenset[bytes] = frozenset()
    #: The number of salt buckets; 0 if row keys have no salt.
    salt: int = 0

    @classmethod
    def parse(cls, catalog: str | Mapping[str, Any], *, default_coder: str = "naive") -> Catalog:
        """Return the catalog of hbase-connectors' JSON, as text or parsed; raise ConfigError with the reason."""
        document = _loaded(catalog) if isinstance(catalog, str) else catalog
        return _Reader(document, default_coder).catalog()

    @classmethod
    def from_mapping(cls, table: str, mapping: str, *, default_coder: str = "naive") -> Catalog:
        """Return the catalog of ``hbase.table`` and ``hbase.columns.mapping``: ``key STRING :key, a INT cf:a``."""
        columns: dict[str, dict[str, str]] = {}
        for text in _split_mapping(mapping):
            parts = text.split(None, 1)
            type_text, _, cell = parts[1].rpartition(" ") if len(parts) == 2 else ("", "", "")
            family, colon, qualifier = cell.partition(":")
            if not type_text.strip() or not colon:
                raise ConfigError(
                    f"hbase.columns.mapping: {text!r} is not NAME TYPE FAMILY:QUALIFIER, or NAME TYPE :KEY"
                )
            if parts[0] in columns:
                raise ConfigError(f"hbase.columns.mapping: column {parts[0]} is declared twice")
            col = qualifier if family else parts[0]
            columns[parts[0]] = {"cf": family or _ROWKEY, "col": col, "type": type_text.strip()}
        rowkey = ":".join(name for name, each in columns.items() if each["cf"] == _ROWKEY)
        namespace, _, name = table.strip().rpartition(":")
        document = {"table": {"namespace": namespace, "name": name}, "rowkey": rowkey, "columns": columns}
        return cls.parse(document, default_coder=default_coder)

    @classmethod
    def of_table(cls, table: str) -> Catalog:
        """Return a catalog without columns: the row key as binary, for the layouts map, cells and raw."""
        part = KeyPart("row", DataType("binary"), codec_named("naive"))
        return cls(_table_name("", table.strip()), (part,), (part,))

    # -- columns

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(field.name for field in self.columns)

    @property
    def has_ttl(self) -> bool:
        """True if a column has a TTL of its own."""
        return any(not isinstance(field, KeyPart) and field.ttl_ms is not None for field in self.columns)

    def field(self, name: str) -> Field:
        """Return the column of this name (exact, else ignoring case); raise ConfigError with the nearest name."""
        found = [field for field in self.columns if field.name == name]
        found = found or [field for field in self.columns if field.name.lower() == name.lower()]
        if len(found) == 1:
            return found[0]
        near = difflib.get_close_matches(name, self.names, 1)
        advice = f"did you mean {near[0]}?" if near else f"its columns are {', '.join(self.names)}"
        raise ConfigError(f"table {keys.printable(self.table)}: the catalog has no column {name}; {advice}")

    def select(self, names: Iterable[str]) -> Catalog:
        """Return the catalog with these columns only, in this order; the key keeps all parts."""
        return replace(self, columns=tuple(self.field(name) for name in names))

    def families(self) -> tuple[bytes, ...]:
        """Return the families of all columns, sorted."""
        found = {each.partition(b":")[0] for each in self.named_cells}
        return tuple(sorted(found | {field.family for field in self.columns if isinstance(field, FamilyColumn)}))

    def cells_of(self, names: Iterable[str]) -> tuple[bytes, ...]:
        """Return what a Scan must ask for: ``b"cf:q"``, or ``b"cf"`` for a whole family; nothing for key parts."""
        fields = [self.field(name) for name in names]
        families = {field.family for field in fields if isinstance(field, FamilyColumn)}
        cells = {field.column for field in fields if isinstance(field, CellColumn)}
        return tuple(sorted(families | {cell for cell in cells if cell.partition(b":")[0] not in families}))

    def schema(self) -> StructType:
        """Return the columns as a pyspark ``StructType``, all nullable (layout ``columns``)."""
        from pyspark.sql.types import StructField, StructType

        from spark_connector.schema.types import to_spark

        return StructType([StructField(field.name, to_spark(field.type), True) for field in self.columns])


def _loaded(text: str) -> Mapping[str, Any]:
    try:
        document = json.loads(text, object_pairs_hook=_no_twins)
    except json.JSONDecodeError as error:
        line = text.splitlines()[error.lineno - 1] if text.strip() else ""
        shown = f": {line[max(0, error.colno - 21) : error.colno - 1]}<here>{line[error.colno - 1 : error.colno + 19]}"
        raise ConfigError(
            f"catalog: no JSON at line {error.lineno}, column {error.colno} ({error.msg}){shown if line else ''}"
        ) from None
    except (ValueError, RecursionError) as error:  # a number of thousands of digits; brackets inside each other
        raise ConfigError(f"catalog: its JSON cannot be read ({error}): use shorter numbers and fewer levels") from None
    if not isinstance(document, dict):
        raise ConfigError(
            f"catalog: a JSON object with table, rowkey and columns is wanted, not {type(document).__name__}"
        )
    return document


def _no_twins(pairs: Sequence[tuple[str, object]]) -> dict[str, object]:
    made: dict[str, object] = {}
    for key, value in pairs:
        if key in made:
            raise ConfigError(f"catalog: one object has {key!r} twice")
        made[key] = value
    return made


def _split_mapping(text: str) -> list[str]:
    """Split at commas outside of brackets: ``a DECIMAL(10,2) cf:a, b INT cf:b``."""
    parts, depth, start = [], 0, 0
    for at, char in enumerate(text):
        depth += (char in "(<") - (char in ")>")
        if char == "," and depth == 0:
            parts.append(text[start:at].strip())
            start = at + 1
    parts.append(text[start:].strip())
    if not all(parts):
        raise ConfigError("hbase.columns.mapping: a column is empty: remove the comma before or after it")
    return parts


def _table_name(namespace: str, name: str) -> bytes:
    full = name if ":" in name or namespace in ("", "default") else f"{namespace}:{name}"
    try:
        return keys.table_name(full)
    except (ValueError, TypeError) as error:
        raise ConfigError(f"catalog: {error}") from None


class _Reader:
    """Parses and checks one catalog document."""

    def __init__(self, document: Mapping[str, Any], default_coder: str) -> None:
        self._document = document
        self._refuse_unknown("catalog", document, _KEYS)
        table = self._object("table")
        self._refuse_unknown("catalog: table", table, _TABLE_KEYS)
        self._table = _table_name(str(table.get("namespace") or ""), self._text("catalog: table", table, "name"))
        self._coder = str(table.get("tableCoder") or default_coder)
        self._where = f"catalog of {keys.printable(self._table)}"

    def catalog(self) -> Catalog:
        columns = self._object("columns")
        if not columns:
            raise ConfigError(f"{self._where}: there are no columns")
        given = {name: self._settings(name, each) for name, each in columns.items()}
        parts = {part.name: part for part in self._key(given)}
        fields: list[Field] = [parts.get(name) or self._column(name, each) for name, each in given.items()]
        cells = [field.column for field in fields if isinstance(field, CellColumn)]
        self._refuse_twins(fields)
        return Catalog(self._table, tuple(parts.values()), tuple(fields), frozenset(cells), self._salt())

    def _salt(self) -> int:
        given = self._document.get("salt")
        if given is None:
            return 0
        if isinstance(given, bool) or not str(given).isdecimal() or not 1 <= int(given) <= BUCKETS_MAX:
            raise ConfigError(f"{self._where}: salt is {given!r}, not a number of buckets (1 to {BUCKETS_MAX})")
        return int(given)

    def _settings(self, name: str, given: object) -> Mapping[str, Any]:
        where = f"{self._where}: column {name}"
        if not name or not isinstance(given, Mapping):
            raise ConfigError(f'{where}: an object such as {{"cf": "f", "col": "q", "type": "string"}} is wanted')
        self._refuse_unknown(where, given, _COLUMN_KEYS)
        if given.get("avro") is not None:
            raise ConfigError(
                f'{where}: avro is not decoded here; declare "type": "binary" and use from_avro of pyspark.sql.avro'
            )
        return given

    # -- the row key

    def _key(self, given: Mapping[str, Mapping[str, Any]]) -> list[KeyPart]:
        wanted = self._text(self._where, self._document, "rowkey").split(":")
        by_col = {str(each.get("col", name)): name for name, each in given.items() if self._is_key(each)}
        if len(set(wanted)) < len(wanted):
            raise ConfigError(f"{self._where}: rowkey {':'.join(wanted)} has a part twice")
        for col in wanted:
            if col not in by_col:
                near = difflib.get_close_matches(col, by_col, 1)
                advice = f"; did you mean {near[0]}?" if near else ""
                raise ConfigError(
                    f'{self._where}: rowkey has the part {col!r}, no column has "cf": "rowkey", "col": "{col}"{advice}'
                )
        for col, name in by_col.items():
            if col not in wanted:
                raise ConfigError(f"{self._where}: column {name} has cf rowkey, but rowkey has no part {col!r}")
        names = [by_col[col] for col in wanted]
        return [self._part(name, given[name], is_last=name == names[-1]) for name in names]

    @staticmethod
    def _is_key(given: Mapping[str, Any]) -> bool:
        return bool(given.get("cf", _ROWKEY) == _ROWKEY)

    def _part(self, name: str, given: Mapping[str, Any], *, is_last: bool) -> KeyPart:
        where = f"{self._where}: row key column {name}"
        type, codec = self._type(where, given), self._codec(where, given)
        if given.get("ttl") is not None:
            raise ConfigError(f"{where}: ttl is for cells: a row ends when all its cells have ended")
        self._need_support(where, codec, type)
        length, width = self._length(where, given), codec.width(type)
        if length is not None and width is not None and length != width:
            raise ConfigError(f"{where}: length is {length}, but {type} takes {counted(width, 'byte')}")
        if length is not None and width is None and codec.is_self_delimiting(type):
            raise ConfigError(f"{where}: {type} of {codec.name} marks its own end: remove the length")
        length = length if length is not None else None if codec.is_self_delimiting(type) and width is None else width
        part = KeyPart(name, type, codec, length, is_last)
        if not is_last and length is None and not codec.is_self_delimiting(type) and not part.delimiter:
            raise ConfigError(
                f"{where}: it is not the last part of the key and {type} has no fixed length: declare one"
            )
        return part

    def _length(self, where: str, given: Mapping[str, Any]) -> int | None:
        text = given.get("length")
        if text is None or str(text) == "-1":
            return None
        if isinstance(text, bool) or not str(text).isdecimal() or not 0 < int(text) <= keys.ROW_LENGTH_MAX:
            raise ConfigError(f"{where}: length is {text!r}, not a number of bytes (1 to {keys.ROW_LENGTH_MAX})")
        return int(text)

    # -- cells and families

    def _column(self, name: str, given: Mapping[str, Any]) -> CellColumn | FamilyColumn:
        where = f"{self._where}: column {name}"
        type, codec = self._type(where, given), self._codec(where, given)
        family = self._text(where, given, "cf")
        col = given.get("col")
        if type.name == "map" and col in (None, "*"):
            return replace(self._family(where, name, family, type, codec), ttl_ms=self._ttl(where, given))
        if col is None:
            raise ConfigError(f"{where}: col (the qualifier) is missing; a whole family needs a map type")
        self._need_support(where, codec, type)
        return CellColumn(name, self._cell(where, f"{family}:{col}"), type, codec, self._ttl(where, given))

    @staticmethod
    def _ttl(where: str, given: Mapping[str, Any]) -> int | None:
        text = given.get("ttl")
        if text is None:
            return None
        if isinstance(text, bool) or not str(text).isdecimal() or not 0 < int(text) < 2**63:
            raise ConfigError(f"{where}: ttl is {text!r}, not a number of milliseconds")
        return int(text)

    def _family(self, where: str, name: str, family: str, type: DataType, codec: Codec) -> FamilyColumn:
        assert type.key is not None
        assert type.element is not None
        if type.key.name not in ("string", "binary"):
            raise ConfigError(f"{where}: the keys of a family's map are qualifiers: string or binary, not {type.key}")
        self._need_support(where, codec, type.element)
        return FamilyColumn(name, self._cell(where, f"{family}:").partition(b":")[0], type, codec)

    def _cell(self, where: str, column: str) -> bytes:
        try:
            return keys.column_name(column, "column", family_only_ok=False)
        except (ValueError, TypeError) as error:
            raise ConfigError(f"{where}: {error}") from None

    def _refuse_twins(self, fields: Iterable[Field]) -> None:
        seen: dict[bytes, str] = {}
        for field in fields:
            if isinstance(field, KeyPart):
                continue
            place = field.column if isinstance(field, CellColumn) else field.family
            if place in seen:
                what = "cell" if isinstance(field, CellColumn) else "family"
                raise ConfigError(
                    f"{self._where}: columns {seen[place]} and {field.name} are the same {what} {keys.printable(place)}"
                )
            seen[place] = field.name

    # -- attributes of a column

    def _type(self, where: str, given: Mapping[str, Any]) -> DataType:
        try:
            return parse_type(self._text(where, given, "type"))
        except ConfigError as error:
            raise error if str(error).startswith(where) else ConfigError(f"{where}: {error}") from None

    def _codec(self, where: str, given: Mapping[str, Any]) -> Codec:
        name = given.get("coder") or given.get("serdes") or self._coder
        try:
            return codec_named(str(name))
        except ConfigError as error:
            raise ConfigError(f"{where}: {error}") from None

    @staticmethod
    def _need_support(where: str, codec: Codec, type: DataType) -> None:
        if not codec.supports(type):
            raise ConfigError(f'{where}: {codec.name} cannot hold {type}; json can (as "coder": "json")')

    def _object(self, key: str) -> Mapping[str, Any]:
        found = self._document.get(key)
        if not isinstance(found, Mapping):
            raise ConfigError(f"catalog: {key} is missing or no object")
        return found

    @staticmethod
    def _text(where: str, given: Mapping[str, Any], key: str) -> str:
        found = given.get(key)
        if not isinstance(found, str) or not found.strip():
            raise ConfigError(f"{where}: {key} is missing or no text")
        return found.strip()

    @staticmethod
    def _refuse_unknown(where: str, given: Mapping[str, Any], known: frozenset[str]) -> None:
        for key in given:
            if key not in known:
                near = difflib.get_close_matches(str(key), known, 1)
                advice = f"did you mean {near[0]}?" if near else f"known are {', '.join(sorted(known))}"
                raise ConfigError(f"{where}: {key!r} has no meaning; {advice}")
