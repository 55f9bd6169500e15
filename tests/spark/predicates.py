"""Random tables and random conditions for ``test_predicates``: edge values of every type, and Spark SQL about them.

A table has a composite row key (two random parts and a number that is different in each row), salted or not, and a cell
of each type. Cells are missing now and then. Conditions are text, with literals of the column's type, of other number
types, and as strings; some of them are mistakes.
"""

from __future__ import annotations

import datetime
import math
import random
import struct
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from metaclient.columns.codecs import BadValueError, codec_named
from metaclient.columns.rowkey import join_parts
from metaclient.columns.types import parse_type
from spark_connector.schema.catalog import Catalog, CellColumn

CODERS = ("naive", "string", "orderedbytes", "phoenix", "json")
#: Column -> type.
COLUMNS = {
    "b": "boolean",
    "ti": "tinyint",
    "si": "smallint",
    "i": "int",
    "l": "bigint",
    "f": "float",
    "d": "double",
    "m": "decimal(10,2)",
    "w": "decimal(38,18)",
    "s": "string",
    "x": "binary",
    "dt": "date",
    "ts": "timestamp",
    "n": "timestamp_ntz",
}
_UTC = datetime.UTC
_KEY_TYPES = ("boolean", "smallint", "int", "bigint", "double", "string", "date", "timestamp", "decimal(10,2)")


def _single(number: float) -> float:
    found: float = struct.unpack(">f", struct.pack(">f", number))[0]
    return found


def _moments(texts: str, zone: datetime.tzinfo | None) -> list[datetime.datetime]:
    return [datetime.datetime.fromisoformat(each.strip()).replace(tzinfo=zone) for each in texts.split(",")]


def _words(text: str) -> list[str]:
    return text.split()


_SPECIAL = [0.0, -0.0, math.nan, math.inf, -math.inf]
#: Type -> values that rows have.
VALUES: dict[str, list[Any]] = {
    "boolean": [True, False],
    "tinyint": [-128, -1, 0, 1, 5, 127],
    "smallint": [-32768, -129, -1, 0, 1, 255, 32767],
    "int": [-(2**31), -16777217, -1, 0, 1, 255, 16777216, 16777217, 16777219, 2**31 - 1],
    "bigint": [-(2**63), -(2**53) - 1, -1, 0, 1, 16777217, 2**53 - 1, 2**53, 2**53 + 1, 2**53 + 2, 2**63 - 1],
    "float": [*_SPECIAL, *map(_single, (0.1, -1.5, 16777216.0, 1e10, 3.4028235e38, 1.4e-45, 2.5))],
    "double": [*_SPECIAL, 0.1, _single(0.1), -1.5, 2.0**53, 2.0**53 + 2, 1e300, 5e-324, 16777217.0, 2.5],
    "decimal(10,2)": [Decimal(t) for t in ("0.00", "0.10", "-0.01", "1.50", "99999999.99", "-99999999.99", "5.00")],
    "decimal(38,18)": [
        Decimal(t)
        for t in ("0", "0.1", "1.000000000000000001", "-99999999999999.999999999999999999", "2.5", "9007199254740993")
    ],
    "string": ["", "a", "A", "ab", "ab ", "a%b", "a_b", "a\\b", "é", "\U0001f600", "z\nz", "it's", "2024-01-01", "B"],
    "binary": [b"", b"a", b"ab", b"\0", b"\xff\xfe", b"it's", b"A", b"a%b"],
    "date": [
        datetime.date.fromisoformat(t)
        for t in ("0001-01-01", "1969-12-31", "1970-01-01", "2024-01-01", "2024-02-29", "2024-03-10", "9999-12-31")
    ],
    # The hours around New York's changes of 2024: 02:00 to 03:00 is missing on March 10, 01:00 to 02:00 is there
    # twice on November 3.
    "timestamp": _moments(
        "2024-03-10T06:59:59.999000, 2024-03-10T07:00:00, 2024-03-10T07:30:00, 2024-11-03T05:30:00, "
        "2024-11-03T06:30:00, 2024-01-01T00:00:00, 2024-01-01T05:00:00, 2023-12-31T18:30:00, 1970-01-01T00:00:00, "
        "1969-12-31T23:59:59.123456, 1901-01-01T00:00:00, 2024-06-01T12:00:00.000001",
        _UTC,
    ),
    "timestamp_ntz": _moments(
        "2024-03-10T02:30:00, 2024-11-03T01:30:00, 2024-01-01T00:00:00, 1970-01-01T00:00:00.000001, "
        "0001-01-01T00:00:00",
        None,
    ),
}
#: Numbers of any type, as literals.
_NUMBERS = _words(
    "0 1 -1 5 255 127 128 -129 32768 16777216 16777217 16777218 2147483647 2147483648 9007199254740991 "
    "9007199254740992 9007199254740993 9223372036854775807 -9223372036854775808 9223372036854775808 "
    "99999999999999999999 -99999999999999999999 0.1 -0.01 1.5 2.50 1.000000000000000001 "
    "0.0000000000000000000001 12345678901234567890.5 16777217.0 5.00 99999999.995 1e10 1e-5 -1.5e0 0.1D -0.0D "
    "9007199254740993D 1e300 2.5D 5e-324D 16777217D 0.1F 2.5F -0.0F 16777217F 1e10F 3.4028234e38F "
    "9007199254740993F 1Y -128Y 5S 255S 0L 16777217L 9007199254740993L 1.5BD 9007199254740993BD 0.1BD 1E3BD "
    "double('NaN') float('NaN') double('Infinity') float('-Infinity')"
)
#: Type -> numbers that another common type, or another rounding, would answer differently.
_TRAPS = {
    "int": _words("16777216F 16777217F 16777218.0 -99999999999999999999 99999999999999999999 16777217D 0.1F"),
    "bigint": _words(
        "9007199254740992D 9007199254740993D 9007199254740993 9007199254740993F 16777217F 9007199254740992.5 "
        "-99999999999999999999 99999999999999999999 9223372036854775808"
    ),
    "float": _words("16777217 16777217L 16777216 0.1 0.1D 0.1F 16777217D 10000000001 255S -0.0D 0"),
    "double": _words("0.1F 0.1 0.1D 9007199254740993 9007199254740993L 16777217F -0.0F 0 9007199254740993.0"),
    "decimal": _words(
        "0.1D 0.1F 0.1 9007199254740993D 1.0000000000000000010000000000000000001 1.5F "
        "99999999999999999999999999.5 0.10000000000000000000000000000001"
    ),
}
_TIMES = (
    "2024-03-10 01:59:59.999",
    "2024-03-10 02:30:00",
    "2024-03-10 03:00:00",
    "2024-11-03 01:30:00",
    "2024-11-03 01:30:00 America/New_York",
    "2024-01-01",
    "2024-01-01T00:00:00",
    "2024-01-01 05:30",
    "2023-12-31 18:30:00Z",
    "2024-01-01 05:30:00+05:30",
    "1970-01-01 00:00:00.000001",
    "1969-12-31 23:59:59.123456Z",
    "1901-01-01 00:00:00",
    "2024-06-01 12:00:00.000001UTC",
)
_LIKES = (
    "a%",
    "%b",
    "%",
    "a_b",
    "_",
    "",
    "ab",
    "a\\\\_b",
    "a\\\\%%",
    "%\\\\\\\\%",
    "A%",
    "%é%",
    "\\101%",
    "it\\'s",
    "%'s",
)


@dataclass(frozen=True)
class RandomTable:
    """A catalog, the cells of each row, and the same rows as values: what a DataFrame in memory has."""

    catalog: dict[str, Any]
    rows: dict[bytes, dict[bytes, bytes]]
    values: list[dict[str, Any]]


def table(chance: random.Random, name: str, coder: str, count: int) -> RandomTable:
    """Return a table whose cells, and key parts where that can be, have this coder."""
    columns: dict[str, dict[str, Any]] = {}
    for part in ("k0", "k1"):
        type, key_coder = chance.choice(_KEY_TYPES), coder if coder != "json" else "naive"
        parsed, codec = parse_type(type), codec_named(key_coder)
        if not codec.is_self_delimiting(parsed) and codec.delimiter(parsed) is None:
            type, key_coder = "int", "naive"
        columns[part] = {"cf": "rowkey", "col": part, "type": type, "coder": key_coder}
        if type == "string" and key_coder == "naive" and chance.random() < 0.5:
            columns[part]["length"] = 5
    columns["id"] = {"cf": "rowkey", "col": "id", "type": "int", "coder": "naive"}
    for index, (column, type) in enumerate(COLUMNS.items()):
        columns[column] = {"cf": "cg"[index % 2], "col": f"q{column}", "type": type, "coder": coder}
    catalog: dict[str, Any] = {"table": {"name": name}, "rowkey": "k0:k1:id", "columns": columns}
    if chance.random() < 0.4:
        catalog["salt"] = chance.choice([2, 7, 16])
    parsed_catalog = Catalog.parse(catalog)
    rows: dict[bytes, dict[bytes, bytes]] = {}
    values: list[dict[str, Any]] = []
    while len(rows) < count:
        key = [chance.choice(VALUES[str(part.type)]) for part in parsed_catalog.key[:2]]
        try:
            row = join_parts(parsed_catalog.key, [*key, len(rows)], parsed_catalog.salt)
        except BadValueError:  # a text with the delimiter in it, or too long
            continue
        chosen = dict(filter(None, (_chosen(chance, field) for field in parsed_catalog.columns)))
        if chosen:
            rows[row] = {field.column: data for field, (_, data) in chosen.items()}
            cells = {field.name: value for field, (value, _) in chosen.items()}
            values.append({**dict.fromkeys(columns), **cells, "k0": key[0], "k1": key[1], "id": len(values)})
    return RandomTable(catalog, rows, values)


def _chosen(chance: random.Random, field: Any) -> tuple[CellColumn, tuple[Any, bytes]] | None:
    """A value and its bytes; None for no cell, also if the coder refuses the value."""
    if not isinstance(field, CellColumn) or chance.random() < 0.2:
        return None
    value = chance.choice(VALUES[str(field.type)])
    try:
        return field, (value, field.codec.encode(value, field.type))
    except BadValueError:  # Phoenix has no empty text, and the coder naive no microseconds
        return None


class Predicates:
    """Makes conditions on a table."""

    def __init__(self, chance: random.Random, catalog: dict[str, Any], *, any_case: bool) -> None:
        self._chance = chance
        self._types = {name: str(column["type"]) for name, column in catalog["columns"].items()}
        self._any_case = any_case

    def condition(self, depth: int = 0) -> str:
        chance = self._chance
        if depth == 2 or chance.random() < 0.65:
            return self._simple()
        kind = chance.randrange(5)
        if kind == 0:
            return f"NOT ({self.condition(depth + 1)})"
        word = " OR " if kind < 3 else " AND "
        return "(" + word.join(self.condition(depth + 1) for _ in range(2)) + ")"

    def _simple(self) -> str:
        chance = self._chance
        column = chance.choice(["k0", "k1", "i", "l", "f", "s", "ts", *self._types])
        name, type = self._written(column), self._types[column]
        kind = chance.randrange(12)
        negation = chance.choice(["", "", "NOT "])
        if type in ("string", "binary") and kind < 3:
            return f"{name} {negation}LIKE {self._like(type)}"
        if kind < 4:
            count = 12 if chance.random() < 0.1 else chance.randint(1, 4)
            values = [self._literal(type) for _ in range(count)]
            if chance.random() < 0.15:
                values.append("NULL")
            return f"{name} {negation}IN ({', '.join(values)})"
        if kind == 4:
            return f"{name} {negation}BETWEEN {self._literal(type)} AND {self._literal(type)}"
        if kind == 5:
            return f"{name} IS {negation}NULL"
        if kind == 6 and type == "boolean":
            return name
        operator = chance.choice(["=", "=", "==", "<>", "!=", "<", "<=", ">", ">=", "<=>"])
        literal = "NULL" if chance.random() < 0.03 else self._literal(type)
        return f"{literal} {operator} {name}" if chance.random() < 0.15 else f"{name} {operator} {literal}"

    def _written(self, column: str) -> str:
        chance = self._chance.random()
        if chance < 0.1:
            return f"`{column}`"
        return column.upper() if chance < 0.2 and self._any_case else column

    def _like(self, type: str) -> str:
        chance = self._chance
        if type == "binary":
            return chance.choice(["'a%'", "'ab'", "'%'", "'it\\'s%'", "''"])
        if chance.random() < 0.2:
            return chance.choice(["'a/_b' ESCAPE '/'", "'a/%%' ESCAPE '/'", "'//%' ESCAPE '/'", "'%/'  ESCAPE '/'"])
        return f"'{chance.choice(_LIKES)}'"

    def _literal(self, type: str) -> str:
        """Return a literal for a column of this type; a mistake now and then."""
        chance = self._chance
        name = type.partition("(")[0]
        if chance.random() < 0.01:
            return chance.choice(["'x'", "1", "TRUE", "X'61'", "DATE '2024-01-01'"])
        if name in ("tinyint", "smallint", "int", "bigint", "float", "double", "decimal"):
            kind = chance.randrange(5)
            return (
                self._number(type) if kind < 2 else chance.choice(_NUMBERS if kind < 4 else _TRAPS.get(name, _NUMBERS))
            )
        if name == "boolean":
            return chance.choice(["TRUE", "false"])
        if name == "string":
            return self._text(chance.choice(VALUES["string"]))
        if name == "binary":
            value = chance.choice(VALUES["binary"])
            return f"X'{value.hex()}'" if chance.random() < 0.8 else chance.choice(["'a'", "'ab'", "''"])
        if name == "date":
            text = chance.choice(VALUES["date"]).isoformat()
            return f"'{text}'" if chance.random() < 0.25 else f"DATE '{text}'"
        return self._time(name)

    def _number(self, type: str) -> str:
        """Return a value that rows have, in one of the ways to write it."""
        chance = self._chance
        value = chance.choice(VALUES[type])
        if isinstance(value, float):
            word, suffix = ("float", "F") if type == "float" else ("double", "D")
            if not math.isfinite(value):
                return f"{word}('{'NaN' if math.isnan(value) else 'Infinity' if value > 0 else '-Infinity'}')"
            return f"{value!r}{chance.choice([suffix, 'D'])}"
        if isinstance(value, Decimal):
            return f"{value:f}{chance.choice(['', 'BD', 'D'])}"
        return f"{value}{chance.choice(['', '', 'L', '.0', 'D', 'F'])}"

    def _text(self, value: str) -> str:
        chance = self._chance
        escaped = value.replace("\\", "\\\\").replace("'", chance.choice(["\\'", "''"])).replace("\n", "\\n")
        if chance.random() < 0.5 and value.isascii() and value.isalnum():
            form = chance.choice(["\\{:03o}", "\\u{:04x}", "\\U{:08X}", "\\{0:c}"])
            escaped = form.format(ord(value[0])) + value[1:]
        if chance.random() < 0.1:
            return '"' + escaped.replace('"', '""') + '"'
        return f"'{escaped}'"

    def _time(self, name: str) -> str:
        chance = self._chance
        text = chance.choice(_TIMES)
        if name == "timestamp_ntz":
            text = text.removesuffix("Z").removesuffix("UTC").removesuffix(" America/New_York").partition("+")[0]
        if chance.random() < 0.2:
            return f"'{text}'"
        if name == "timestamp_ntz":
            return f"TIMESTAMP_NTZ '{text}'"
        return f"{chance.choice(['TIMESTAMP', 'TIMESTAMP', 'timestamp_ltz'])} '{text}'"
