"""Random catalogs, rows and conditions for the tests of this folder."""

from __future__ import annotations

import datetime
import math
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal
from functools import lru_cache
from typing import Any

from hypothesis import strategies as st

from metaclient.columns.codecs import BadValueError, codec_named
from metaclient.columns.rowkey import join_parts
from metaclient.columns.types import DataType, parse_type
from spark_connector.conditions.condition import And, Comparison, Constant, Expression, In, IsNull, Like, Not, Or
from spark_connector.schema.catalog import Catalog, CellColumn, KeyPart

UTC = datetime.UTC
CODECS = ("naive", "string", "orderedbytes", "phoenix", "phoenix_unsigned", "json")
TYPES = [
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
    "decimal(6,2)",
]

_WHOLE = {"tinyint": 7, "smallint": 15, "int": 31, "bigint": 63}
_DAYS = ["1969-12-30", "1969-12-31", "1970-01-01", "1970-01-02", "2024-02-29", "0001-01-01", "9999-12-31"]
_SECONDS = [-(10**9), -1, 0, 1, 1_700_000_000]
_TEXTS = ["", "a", "aa", "ab", "aba", "b", "ba", "\u00e9", "a\u00e9", "~", "~~", "\U0001f600", "b\U0001f600", "abcd"]
_BINARIES = [b"", b"a", b"ab", b"b", b"abc", b"\xff", b"\xff\xff", b"\0", b"\0\0", b"a\0", b"it's", b"\x80"]
_FLOATS = [0.0, -0.0, 1.0, -1.0, 1.5, -2.5, 0.1, 3.4e38, math.inf, -math.inf, math.nan]
_CENTS = [0, 1, -1, 99, 100, -100, 250, 999_999, -999_999]
_NUMBERS = [
    1,
    1.5,
    -0.5,
    Decimal("2.5"),
    Decimal("0.005"),
    0.25,
    2**53 + 1,
    2**70,
    -(2**70),
    1e300,
    Decimal("123456.78"),
]


@lru_cache(maxsize=64)
def values(type: DataType, *, stored: bool) -> st.SearchStrategy[object]:
    """Values of a column; with ``stored`` only those that every codec writes without loss."""
    found = list(_pool(type))
    if not stored and type.is_number:
        found += _NUMBERS
    if not stored and type.name.startswith("timestamp"):
        found += [moment + datetime.timedelta(microseconds=us) for moment in _pool(type) for us in (1, 500, 999)]
    return st.sampled_from(found)


def _pool(type: DataType) -> Sequence[Any]:
    if type.name in _WHOLE:
        top = 2 ** _WHOLE[type.name]
        return [0, 1, -1, 2, 5, -5, top - 1, -top]
    if type.name.startswith("timestamp"):
        start = datetime.datetime(1970, 1, 1, tzinfo=UTC if type.name == "timestamp" else None)
        return [start + datetime.timedelta(seconds=s, milliseconds=ms) for s in _SECONDS for ms in (0, 5)]
    return {
        "float": [struct.unpack(">f", struct.pack(">f", number))[0] for number in _FLOATS],
        "double": _FLOATS,
        "decimal": [Decimal(number).scaleb(-2) for number in _CENTS],
        "boolean": [True, False],
        "string": _TEXTS,
        "binary": _BINARIES,
        "date": [datetime.date.fromisoformat(day) for day in _DAYS],
    }[type.name]


def alike(left: object, right: object) -> bool:
    """Equal, with NaN equal to itself and -0.0 unequal to 0.0."""
    if isinstance(left, float) and isinstance(right, float):
        return repr(left) == repr(right)
    return left == right


@dataclass(frozen=True)
class World:
    """A catalog and its rows: row key -> cell -> bytes, and what each row reads as."""

    catalog: Catalog
    stored: dict[bytes, dict[bytes, bytes]]
    read: dict[bytes, dict[str, object]]


def _key_settings(draw: st.DrawFn, codec: str, type: str, is_last: bool) -> dict[str, object] | None:
    """A key column's settings, or None where no such part can be."""
    made: dict[str, object] = {"cf": "rowkey", "type": type, "coder": codec}
    kind, coder = parse_type(type), codec_named(codec)
    needs = not is_last and not coder.is_self_delimiting(kind) and coder.delimiter(kind) is None
    can = coder.width(kind) is None and not coder.is_self_delimiting(kind) and kind.name in ("string", "binary")
    if needs and not can:
        return None
    if needs or (can and draw(st.booleans())):
        made["length"] = draw(st.integers(1, 4))
    return made


@st.composite
def catalogs(draw: st.DrawFn) -> Catalog:
    """A few codecs and types at a time, so that conditions, parts and cells have to do with each other."""
    codecs = draw(st.sampled_from([("naive",), ("orderedbytes",), ("phoenix",), ("naive", "string"), CODECS]))
    types = draw(
        st.sampled_from([("int", "string"), ("bigint", "timestamp", "binary"), ("double", "date"), tuple(TYPES)])
    )
    columns: dict[str, dict[str, object]] = {}
    count = draw(st.integers(1, 3))
    for index in range(count):
        codec, type = draw(st.sampled_from(codecs)), draw(st.sampled_from(types))
        settings = _key_settings(draw, codec, type, index == count - 1)
        columns[f"k{index}"] = settings or {"cf": "rowkey", "type": "int", "coder": "naive"}
        columns[f"k{index}"]["col"] = f"k{index}"
    for index in range(draw(st.integers(1, 4))):
        columns[f"c{index}"] = {
            "cf": draw(st.sampled_from(["f", "g"])),
            "col": f"q{index}",
            "type": draw(st.sampled_from(types)),
            "coder": draw(st.sampled_from(codecs)),
        }
    rowkey = ":".join(f"k{index}" for index in range(count))
    document: dict[str, object] = {"table": {"name": "t"}, "rowkey": rowkey, "columns": columns}
    if draw(st.integers(0, 3)) == 0:
        document["salt"] = draw(st.sampled_from([1, 3, 16, 256]))
    return Catalog.parse(document)


@st.composite
def worlds(draw: st.DrawFn, *, bad_values: bool = False) -> World:
    catalog = draw(catalogs())
    stored: dict[bytes, dict[bytes, bytes]] = {}
    for _ in range(draw(st.sampled_from([12, 25, 20, 16, 3, 0]))):
        try:
            values_of_key = [draw(values(part.type, stored=True)) for part in catalog.key]
            row = join_parts(catalog.key, values_of_key, catalog.salt)
        except BadValueError:
            continue
        cells = {
            field.column: _cell(draw, field, bad_values) for field in catalog.columns if isinstance(field, CellColumn)
        }
        stored[row] = {column: value for column, value in cells.items() if value is not None}
    stored = {row: cells for row, cells in stored.items() if cells}
    return World(catalog, stored, {row: reading(catalog, row, cells) for row, cells in stored.items()})


def _cell(draw: st.DrawFn, field: CellColumn, bad_values: bool) -> bytes | None:
    if draw(st.integers(0, 3)) == 0:
        return None
    if bad_values and draw(st.integers(0, 3)) == 0:
        return draw(st.binary(max_size=9))
    try:
        return field.codec.encode(draw(values(field.type, stored=True)), field.type)
    except BadValueError:
        return None


def reading(catalog: Catalog, row: bytes, cells: dict[bytes, bytes]) -> dict[str, object]:
    """What a row reads as, decoded value by value; what cannot be decoded is null."""
    from metaclient.columns.rowkey import split_key

    read: dict[str, object] = {}
    parts = dict(zip((part.name for part in catalog.key), split_key(catalog.key, row, catalog.salt), strict=True))
    for field in catalog.columns:
        if isinstance(field, KeyPart):
            read[field.name] = field.decode(parts[field.name])
        else:
            assert isinstance(field, CellColumn)
            read[field.name] = _decoded(field, cells.get(field.column))
    return read


def _decoded(field: CellColumn, data: bytes | None) -> object:
    try:
        return None if data is None else field.codec.decode(data, field.type)
    except BadValueError:
        return None


def conditions(catalog: Catalog) -> st.SearchStrategy[Expression]:
    """Conditions on a catalog's columns, already of the right kinds; half of them on the row key."""
    return _conditions(catalog, 2)


@st.composite
def _conditions(draw: st.DrawFn, catalog: Catalog, depth: int) -> Expression:
    kind = draw(st.sampled_from(["leaf", "leaf", "not", "and", "and", "or"])) if depth else "leaf"
    if kind == "leaf":
        return _leaf(draw, draw(st.sampled_from(_cells(catalog) if draw(st.booleans()) else catalog.key)))
    if kind == "not":
        return Not(draw(_conditions(catalog, depth - 1)))
    parts = tuple(draw(_conditions(catalog, depth - 1)) for _ in range(draw(st.integers(1, 3))))
    if draw(st.integers(0, 9)) == 0:
        parts += (Constant(draw(st.sampled_from([True, False, None]))),)
    return And(parts) if kind == "and" else Or(parts)


def _cells(catalog: Catalog) -> list[CellColumn]:
    return [field for field in catalog.columns if isinstance(field, CellColumn)]


def _leaf(draw: st.DrawFn, field: KeyPart | CellColumn) -> Expression:
    given = values(field.type, stored=draw(st.booleans()))
    kinds = ["compare", "compare", "compare", "in", "null"]
    kind = draw(st.sampled_from([*kinds, "like"] if field.type.name in ("string", "binary") else kinds))
    if kind == "compare":
        operator = draw(st.sampled_from(["=", "<>", "<", "<=", ">", ">=", "<=>"]))
        return Comparison(field.name, operator, draw(given))
    if kind == "in":
        found = tuple(draw(given) for _ in range(draw(st.integers(1, 4))))
        return In(field.name, (*found, None) if draw(st.integers(0, 4)) == 0 else found)
    if kind == "like":
        text = draw(st.sampled_from(_TEXTS))
        return Like(field.name, text + ("%" if field.type.name == "binary" else draw(st.sampled_from(_ENDS))))
    return IsNull(field.name)


_ENDS = ["", "%", "_", "%a", "_%"]
