"""Finds the cells that a user's filter (``hbase.spark.query.filter``) depends on, so that a read fetches them.

A filter is applied to the row as HBase stores it, and unwanted columns are removed afterwards. If a scan asked only for
the wanted columns, the filter would treat every other cell as missing: ``SingleColumnValueFilter('d','name',...)``
would drop all rows of a read of column ``d:age``.

1. Filters of the row key depend on no cell. The read fetches the same cells as without them.
2. Filters that test each cell alone, or columns that they name, give the same result on the wanted columns and the
   named columns. The read fetches these.
3. All others (FirstKeyOnlyFilter, ColumnPaginationFilter, SKIP, and filters that are not known here) depend on all
   cells of a row. The read fetches whole rows.
4. PageFilter, WHILE and ColumnCountGetFilter (which closes a family for the rest of a scan) depend on the rows before.
   Spark reads a table by many scans, each with a filter of its own, so that their answer would depend on the regions:
   they are refused.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

from metaclient.errors import ConfigError

__all__ = ["Looks", "looks_of"]

_TOKEN = re.compile(rb"'((?:[^']|'')*)'|([A-Za-z]+)")
_JOINING = frozenset({b"AND", b"OR", b"true", b"false", b"TRUE", b"FALSE"})
_OF_ROW_KEYS = frozenset({b"PrefixFilter", b"RowFilter", b"InclusiveStopFilter"})
_OF_SINGLE_CELLS = frozenset(
    {
        b"ColumnPrefixFilter",
        b"ColumnRangeFilter",
        b"FamilyFilter",
        b"KeyOnlyFilter",
        b"MultipleColumnPrefixFilter",
        b"QualifierFilter",
        b"TimestampsFilter",
        b"ValueFilter",
    }
)
#: Their first two arguments are a family and a qualifier.
_OF_NAMED_COLUMNS = frozenset(
    {
        b"ColumnValueFilter",
        b"DependentColumnFilter",
        b"SingleColumnValueExcludeFilter",
        b"SingleColumnValueFilter",
    }
)
_OF_ROWS_BEFORE = {
    b"ColumnCountGetFilter": "in a scan it also ends a family for all later rows: use ColumnPaginationFilter(LIMIT, 0)",
    b"PageFilter": "it counts the rows of each region separately: use hbase.spark.query.limit",
    b"WHILE": "it ends the scan of one region and not the other scans: use hbase.spark.query.stoprow",
}


@dataclass(frozen=True, slots=True)
class Looks:
    """The cells that a filter depends on, in addition to the cell that it tests."""

    is_row_key_only: bool
    columns: tuple[bytes, ...] | None  # named ones; None: all cells of the row


def looks_of(text: bytes) -> Looks:
    """Return the cells that a filter depends on; raise ConfigError for a filter that many scans cannot apply.

    >>> looks_of(b"SingleColumnValueFilter('d','name',=,'binary:x') AND ValueFilter(=,'substring:PageFilter')")
    Looks(is_row_key_only=False, columns=(b'd:name',))
    >>> looks_of(b"RowFilter(=,'substring:7')").is_row_key_only, looks_of(b"SKIP ValueFilter(=,'binary:x')").columns
    (True, None)
    """
    tokens = [(match[1], match[2]) for match in _TOKEN.finditer(text)]
    words = [word for _, word in tokens if word is not None and word not in _JOINING]
    for word in words:
        if word in _OF_ROWS_BEFORE:
            raise ConfigError(f"option hbase.spark.query.filter: {word.decode()}: {_OF_ROWS_BEFORE[word]}")
    if set(words) <= _OF_ROW_KEYS:
        return Looks(True, ())
    if not set(words) <= _OF_ROW_KEYS | _OF_SINGLE_CELLS | _OF_NAMED_COLUMNS:
        return Looks(False, None)
    return Looks(False, tuple(sorted(set(_named_columns(tokens)))))


def _named_columns(tokens: list[tuple[bytes | None, bytes | None]]) -> Iterable[bytes]:
    for at, (_, word) in enumerate(tokens):
        if word in _OF_NAMED_COLUMNS:
            arguments = [quoted.replace(b"''", b"'") for quoted, _ in tokens[at + 1 : at + 3] if quoted is not None]
            if len(arguments) == 2:  # else HBase refuses the filter
                yield b":".join(arguments)
