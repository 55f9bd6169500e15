"""Guesses the catalog of a table from some of its rows: families, qualifiers, how many rows have them, kinds of values.

Only two types are guessed: ``string`` if all sampled values are text, otherwise ``binary``. Four bytes may be an INT or
a FLOAT, and a wrong guess would read as a wrong number; :attr:`SampledColumn.looks` names the candidates for a human.
If the sample is not the whole table, each family also gets a map of its other cells, so that no cell and no row is
missing from the DataFrame.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from metaclient import keys

__all__ = ["Sample", "SampledColumn", "sample_of"]

#: A family with more qualifiers than this in the sample is one map: its qualifiers are data, not names.
QUALIFIERS_MAX = 100
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_CANDIDATES = {
    1: "1 byte: boolean, tinyint?",
    2: "2 bytes: smallint?",
    4: "4 bytes: int, float?",
    8: "8 bytes: bigint, double, timestamp?",
}


@dataclass(frozen=True, slots=True)
class SampledColumn:
    """A column of the guessed catalog, and the facts that led to it."""

    name: str
    cell: str  # "family:qualifier", "family:*" for a map, "" for the row key
    type: str
    rows: int  # sampled rows that have it
    looks: str


@dataclass(frozen=True, slots=True)
class Sample:
    """The guessed catalog of a table; ``is_whole`` if all of its rows were sampled."""

    table: str
    rows: int
    is_whole: bool
    columns: tuple[SampledColumn, ...]

    def catalog(self) -> dict[str, Any]:
        """Return the catalog, in the form of hbase-connectors' JSON."""
        namespace, _, name = self.table.rpartition(":")
        columns: dict[str, dict[str, str]] = {}
        for each in self.columns:
            family, _, qualifier = each.cell.partition(":")
            if not each.cell:
                columns[each.name] = {"cf": "rowkey", "col": each.name, "type": each.type}
            elif qualifier == "*" and each.type.startswith("map<"):
                columns[each.name] = {"cf": family, "type": each.type}
            else:
                columns[each.name] = {"cf": family, "col": qualifier, "type": each.type}
        table = {"namespace": namespace or "default", "name": name}
        return {"table": table, "rowkey": self.columns[0].name, "columns": columns}

    def text(self) -> str:
        """Return a table of the columns and the catalog as JSON, to be kept and corrected."""
        what = "all its rows" if self.is_whole else f"{self.rows} rows"
        lines = [f"table {self.table}: the schema was guessed from {what}"]
        width = max(len(each.name) for each in self.columns)
        for each in self.columns:
            cell = each.cell or "row key"
            lines.append(f"  {each.name:{width}}  {each.type:18}  {cell:20}  in {each.rows} rows; {each.looks}")
        lines.append("pass this catalog, with the types that you know, to read the same columns each time:")
        lines.append(json.dumps(self.catalog(), indent=2))
        return "\n".join(lines)


@dataclass(slots=True)
class _Cells:
    """The values of one column in the sample."""

    rows: int = 0
    is_text: bool = True
    lengths: set[int] = field(default_factory=set)

    def add(self, value: bytes) -> None:
        self.rows += 1
        self.is_text = self.is_text and _is_text(value)
        self.lengths.add(len(value))

    @property
    def type(self) -> str:
        return "string" if self.is_text else "binary"

    @property
    def looks(self) -> str:
        if self.is_text:
            return "text"
        if len(self.lengths) == 1:
            (length,) = self.lengths
            return _CANDIDATES.get(length, f"{length} bytes each")
        return f"{min(self.lengths)} to {max(self.lengths)} bytes"


def sample_of(
    table: str, families: Iterable[bytes], rows: Iterable[tuple[bytes, Mapping[bytes, bytes]]], *, is_whole: bool
) -> Sample:
    """Return the guess for rows of (row key, ``b"family:qualifier"`` -> value).

    >>> sample_of("t", [b"d"], [(b"r1", {b"d:name": b"Ada", b"d:age": b"\\x00\\x00\\x00$"})], is_whole=True).catalog()
    ... # doctest: +NORMALIZE_WHITESPACE
    {'table': {'namespace': 'default', 'name': 't'}, 'rowkey': 'id', 'columns':
    {'id': {'cf': 'rowkey', 'col': 'id', 'type': 'string'},
    'age': {'cf': 'd', 'col': 'age', 'type': 'binary'},
    'name': {'cf': 'd', 'col': 'name', 'type': 'string'}}}
    """
    key, cells = _Cells(), dict[bytes, _Cells]()
    for row, found in rows:
        key.add(row)
        for column, value in found.items():
            cells.setdefault(column, _Cells()).add(value)
    names = _Names()
    columns = [SampledColumn(names.unique("id", "row_key"), "", key.type, key.rows, key.looks)]
    for family in sorted(families):
        columns += _of_family(family, cells, names, is_whole=is_whole)
    return Sample(table, key.rows, is_whole, tuple(columns))


def _of_family(family: bytes, cells: Mapping[bytes, _Cells], names: _Names, *, is_whole: bool) -> list[SampledColumn]:
    mine = {column.partition(b":")[2]: each for column, each in sorted(cells.items()) if _family(column) == family}
    word = family.decode("ascii", "replace")
    is_wide = len(mine) > QUALIFIERS_MAX or not all(map(_is_name, mine))
    if is_wide:
        values = "string" if all(each.is_text for each in mine.values()) else "binary"
        rows = max(each.rows for each in mine.values())
        looks = f"{len(mine)} qualifiers"
        return [SampledColumn(names.unique(word), f"{word}:*", f"map<string,{values}>", rows, looks)]
    found: list[SampledColumn] = []
    for qualifier, each in mine.items():
        text = qualifier.decode()
        name = names.unique(text, f"{word}_{text}")
        found.append(SampledColumn(name, f"{word}:{text}", each.type, each.rows, each.looks))
    if not is_whole or not mine:
        name = names.unique(f"{word}_more", f"{word}_more_cells")
        found.append(SampledColumn(name, f"{word}:*", "map<string,binary>", 0, "cells that were not in the sample"))
    return found


class _Names:
    """Names of columns, each used once; Spark ignores the case of names."""

    def __init__(self) -> None:
        self._taken: set[str] = set()

    def unique(self, *wanted: str) -> str:
        """Return the first name that is free, or the last with a number."""
        for name in (*wanted, *(f"{wanted[-1]}_{number}" for number in range(2, len(self._taken) + 3))):
            if name.lower() not in self._taken:
                self._taken.add(name.lower())
                return name
        raise AssertionError("there are more numbers than names")


def _family(column: bytes) -> bytes:
    return column.partition(b":")[0]


def _is_name(qualifier: bytes) -> bool:
    """Return True for a qualifier that can be a column's name and a catalog's ``col``."""
    return _NAME.fullmatch(qualifier.decode("ascii", "replace")) is not None and keys.printable(qualifier) != ""


def _is_text(value: bytes) -> bool:
    try:
        return value.decode().isprintable()
    except UnicodeDecodeError:
        return False
