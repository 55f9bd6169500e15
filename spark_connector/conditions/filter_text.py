r"""Writes text of HBase's filter language: only filters that HBase ships with, quoted for HBase's ParseFilter.

ParseFilter reads ``''`` inside of quotes as one quote. Therefore it cannot parse an empty argument, or one that begins
with a quote: a column with such a qualifier gets no filter.

>>> compare(b"cf:a", "=", b"it's")
b"SingleColumnValueFilter('cf','a',=,'binary:it''s',true,true)"
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from metaclient.columns.codecs.spans import Span, Spans

__all__ = [
    "absent",
    "absent_or_empty",
    "all_of",
    "any_of",
    "compare",
    "in_spans",
    "is_writable",
    "only_columns",
    "present",
    "starts_with",
]


def is_writable(column: bytes) -> bool:
    """Return True if a filter can name this column."""
    qualifier = column.partition(b":")[2]
    return bool(qualifier) and not qualifier.startswith(b"'")


def compare(column: bytes, operator: str, value: bytes) -> bytes:
    """Return a filter for rows whose newest cell of the column compares so (``= != < <= > >=``) with the value."""
    return _single_value(column, operator, b"binary:" + value, drops_missing=True)


def starts_with(column: bytes, prefix: bytes) -> bytes:
    """Return a filter for rows that have the column with a value of this prefix."""
    return _single_value(column, "=", b"binaryprefix:" + prefix, drops_missing=True)


def present(column: bytes) -> bytes:
    """Return a filter for rows that have the column: every value is >= the empty value."""
    return compare(column, ">=", b"")


def absent(column: bytes) -> bytes:
    """Return a filter for rows without the column: no value is < the empty value, and rows without the cell pass."""
    return _single_value(column, "<", b"binary:", drops_missing=False)


def absent_or_empty(column: bytes) -> bytes:
    """Return a filter for rows without the column, or with an empty value in it."""
    return _single_value(column, "=", b"binary:", drops_missing=False)


def in_spans(column: bytes, spans: Spans) -> bytes:
    """Return a filter for rows that have the column with a value in one of the spans; there must be at least one."""
    return any_of([_in_span(column, span) for span in spans])


def _in_span(column: bytes, span: Span) -> bytes:
    if span.is_point:
        return compare(column, "=", span.low[0])
    ends = []
    if span.low != (b"", 0):
        ends.append(compare(column, ">" if span.low[1] else ">=", span.low[0]))
    if span.high is not None:
        ends.append(compare(column, "<=" if span.high[1] else "<", span.high[0]))
    return all_of(ends) if ends else present(column)


def only_columns(columns: Iterable[bytes]) -> bytes | None:
    """Return a filter for the first cell of each row and for the cells with the qualifiers of these columns.

    The first cell keeps rows that have none of the columns. None if a filter cannot name one of the columns.
    """
    columns = tuple(columns)
    if not all(map(is_writable, columns)):
        return None
    qualifiers = sorted({column.partition(b":")[2] for column in columns})
    wanted = [b"QualifierFilter(=,%b)" % _quoted(b"binary:" + each) for each in qualifiers]
    return any_of([b"FirstKeyOnlyFilter()", *wanted])


def all_of(filters: Sequence[bytes]) -> bytes:
    return _joined(b" AND ", filters)


def any_of(filters: Sequence[bytes]) -> bytes:
    return _joined(b" OR ", filters)


def _joined(word: bytes, filters: Sequence[bytes]) -> bytes:
    assert filters
    return filters[0] if len(filters) == 1 else b"(" + word.join(filters) + b")"


def _single_value(column: bytes, operator: str, comparator: bytes, *, drops_missing: bool) -> bytes:
    family, _, qualifier = column.partition(b":")
    return b"SingleColumnValueFilter(%b,%b,%b,%b,%b,true)" % (
        _quoted(family),
        _quoted(qualifier),
        operator.encode(),
        _quoted(comparator),
        b"true" if drops_missing else b"false",
    )


def _quoted(argument: bytes) -> bytes:
    return b"'" + argument.replace(b"'", b"''") + b"'"
