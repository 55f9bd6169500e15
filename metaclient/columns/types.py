"""The types of columns, and the parser of their names (those of Spark's DDL).

>>> parse_type("BIGINT"), parse_type("decimal(10, 2)").precision
(DataType('bigint'), 10)
>>> parse_type("map<string,array<int>>")
DataType('map<string,array<int>>')
"""

from __future__ import annotations

import difflib
import re
from dataclasses import dataclass

from metaclient.errors import ConfigError

__all__ = ["ATOMIC", "FLOATS", "INTEGERS", "DataType", "parse_type"]

#: Type -> (lowest, highest) of Java's whole numbers.
INTEGERS: dict[str, tuple[int, int]] = {
    "tinyint": (-(2**7), 2**7 - 1),
    "smallint": (-(2**15), 2**15 - 1),
    "int": (-(2**31), 2**31 - 1),
    "bigint": (-(2**63), 2**63 - 1),
}
FLOATS = frozenset({"float", "double"})
ATOMIC = frozenset({*INTEGERS, *FLOATS, "boolean", "decimal", "string", "binary", "date", "timestamp", "timestamp_ntz"})

#: Other names of Java, Spark and hbase-connectors -> the name here.
_ALIASES = {
    "bool": "boolean",
    "byte": "tinyint",
    "short": "smallint",
    "integer": "int",
    "long": "bigint",
    "real": "float",
    "dec": "decimal",
    "numeric": "decimal",
    "text": "string",
    "varchar": "string",
    "bytes": "binary",
    "timestamp_ltz": "timestamp",
    "timestampntz": "timestamp_ntz",
}
_COMPLEX = frozenset({"array", "map", "struct"})
#: Spark's Decimal without arguments.
_DECIMAL_DEFAULT = (10, 0)
#: DecimalType.MAX_PRECISION
_PRECISION_MAX = 38
#: The deepest nesting of types.
_DEPTH_MAX = 16

_TOKEN = re.compile(r"\s*(?:([A-Za-z_][A-Za-z0-9_]*)|`((?:[^`]|``)+)`|([0-9]+)|([<>,:()]))")


@dataclass(frozen=True, slots=True, repr=False)
class DataType:
    """A column's type. ``name`` is one of Spark's short names; the rest belongs to some of them only."""

    name: str
    precision: int = 0  # decimal
    scale: int = 0  # decimal
    element: DataType | None = None  # array: its elements; map: its values
    key: DataType | None = None  # map
    fields: tuple[tuple[str, DataType], ...] = ()  # struct

    def __str__(self) -> str:
        """Return the form of Spark's ``simpleString``."""
        if self.name == "decimal":
            return f"decimal({self.precision},{self.scale})"
        if self.name == "array":
            return f"array<{self.element}>"
        if self.name == "map":
            return f"map<{self.key},{self.element}>"
        if self.name == "struct":
            return f"struct<{','.join(f'{name}:{type}' for name, type in self.fields)}>"
        return self.name

    def __repr__(self) -> str:
        return f"DataType('{self}')"

    @property
    def is_atomic(self) -> bool:
        return self.name in ATOMIC

    @property
    def is_number(self) -> bool:
        return self.name in INTEGERS or self.name in FLOATS or self.name == "decimal"


def parse_type(text: str) -> DataType:
    """Return the type that ``text`` names, in any case; raise ``ConfigError`` with the nearest known type.

    >>> parse_type("strng")
    Traceback (most recent call last):
    metaclient.errors.ConfigError: type 'strng': there is no type strng; did you mean string?
    """
    parser = _TypeParser(text)
    made = parser.type(0)
    parser.expect_end()
    return made


class _TypeParser:
    """Parses the text of a type."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._tokens: list[str] = []
        at, end = 0, len(text.rstrip())
        while at < end:
            match = _TOKEN.match(text, at)
            if match is None:
                raise self._fault(f"character {at + 1} ({text[at]!r}) is not allowed here")
            self._tokens.append(match[match.lastindex or 0].replace("``", "`"))
            at = match.end()

    def type(self, depth: int) -> DataType:
        if depth > _DEPTH_MAX:
            raise self._fault(f"more than {_DEPTH_MAX} levels of nested types")
        word = self._next("a type's name")
        name = _ALIASES.get(word.lower(), word.lower())
        if name == "decimal":
            return self._decimal()
        if name == "array":
            self._take("<")
            made = DataType("array", element=self.type(depth + 1))
            self._take(">")
            return made
        if name == "map":
            return self._map(depth)
        if name == "struct":
            return self._struct(depth)
        if name not in ATOMIC:
            near = difflib.get_close_matches(name, [*sorted(ATOMIC | _COMPLEX), *_ALIASES], 1, 0.5)
            advice = f"did you mean {near[0]}?" if near else f"known are {', '.join(sorted(ATOMIC | _COMPLEX))}"
            raise self._fault(f"there is no type {word}; {advice}")
        return DataType(name)

    def _decimal(self) -> DataType:
        if not self._takes("("):
            return DataType("decimal", *_DECIMAL_DEFAULT)
        precision = self._number()
        scale = self._number() if self._takes(",") else 0
        self._take(")")
        if not 1 <= precision <= _PRECISION_MAX or not 0 <= scale <= precision:
            raise self._fault(f"a decimal has 1 to {_PRECISION_MAX} digits, and its scale is 0 to that many")
        return DataType("decimal", precision, scale)

    def _map(self, depth: int) -> DataType:
        self._take("<")
        key = self.type(depth + 1)
        self._take(",")
        value = self.type(depth + 1)
        self._take(">")
        return DataType("map", key=key, element=value)

    def _struct(self, depth: int) -> DataType:
        self._take("<")
        fields: list[tuple[str, DataType]] = []
        while not self._takes(">"):
            if fields:
                self._take(",")
            name = self._next("a field's name")
            self._takes(":")
            fields.append((name, self.type(depth + 1)))
        return DataType("struct", fields=tuple(fields))

    def _number(self) -> int:
        token = self._next("a number")
        if not token.isdigit():
            raise self._fault(f"expected a number, got {token!r}")
        return int(token)

    def _next(self, wanted: str) -> str:
        if not self._tokens:
            raise self._fault(f"{wanted} is missing at the end")
        return self._tokens.pop(0)

    def _takes(self, token: str) -> bool:
        if self._tokens[:1] != [token]:
            return False
        self._tokens.pop(0)
        return True

    def _take(self, token: str) -> None:
        if not self._takes(token):
            found = repr(self._tokens[0]) if self._tokens else "the end"
            raise self._fault(f"expected {token!r}, got {found}")

    def expect_end(self) -> None:
        if self._tokens:
            raise self._fault(f"unexpected {self._tokens[0]!r} after the type")

    def _fault(self, what: str) -> ConfigError:
        return ConfigError(f"type {self._text!r}: {what}")
