"""Which cells a user's filter (``hbase.spark.query.filter``) looks at, so that a read fetches them for it.

A filter is applied to the row as HBase stores it. What it lets through is cut to the columns that were asked for
afterwards. A filter that were given only the wanted columns would take every other cell for missing:
``SingleColumnValueFilter('d','name',...)`` would drop all rows of a read of column ``d:age``.

1. Filters of the row key look at no cell. The read fetches what it would fetch without them.
2. Filters that judge each cell by itself, or by columns that they name, give the same answer on the wanted columns and
   the named ones. The read fetches these.
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
    b"ColumnCountGetFilter": "in a scan it ends a family for all later rows, too: use ColumnPaginationFilter(LIMIT, 0)",
    b"PageFilter": "it counts the rows of each region by itself: use hbase.spark.query.limit",
    b"WHILE": "it ends each scan by itself, and every region has another one: use hbase.spark.query.stoprow",
}


@dataclass(frozen=True, slots=True)
class Looks:
    """The cells that a filter depends on, beside the cell that it judges."""

    is_row_key_only: bool
    columns: tuple[bytes, ...] | None  # named ones; None: all cells of the row


def looks_of(text: bytes) -> Looks:
    """Return what a filter looks at; raise ConfigError for one that cannot be applied by many scans.

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
