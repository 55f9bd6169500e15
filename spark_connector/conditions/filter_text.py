r"""HBase's filter language, written: only stock filters, quoted so that HBase's own parser reads them back.

ParseFilter takes ``''`` inside of quotes for one quote, and therefore cannot read an empty argument, nor one that
begins with a quote: a column of such a qualifier gets no filter.

>>> compare(b"cf:a", "=", b"it's")
b"SingleColumnValueFilter('cf','a',=,'binary:it''s',true,true)"
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from spark_connector.schema.codecs.spans import Span, Spans

__all__ = ["absent", "all_of", "any_of", "compare", "in_spans", "is_writable", "only_columns", "present", "starts_with"]


def is_writable(column: bytes) -> bool:
    """Whether a filter can name this column."""
    qualifier = column.partition(b":")[2]
    return bool(qualifier) and not qualifier.startswith(b"'")


def compare(column: bytes, operator: str, value: bytes) -> bytes:
    """Rows that have the column, with such a value in its newest version (``= != < <= > >=``)."""
    return _single_value(column, operator, b"binary:" + value, drops_missing=True)


def starts_with(column: bytes, prefix: bytes) -> bytes:
    """Rows that have the column, with a value that begins so."""
    return _single_value(column, "=", b"binaryprefix:" + prefix, drops_missing=True)


def present(column: bytes) -> bytes:
    """Rows that have the column: everything is at least nothing."""
    return compare(column, ">=", b"")


def absent(column: bytes) -> bytes:
    """Rows that do not have it: nothing is less than nothing, and what is missing passes."""
    return _single_value(column, "<", b"binary:", drops_missing=False)


def in_spans(column: bytes, spans: Spans) -> bytes:
    """Rows that have the column, with a value in one of the spans (there is at least one)."""
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
    """Of each row its first cell, whatever it is, and the cells of these columns (and namesakes in other families).

    So no row is lost for having none of them. None: one of the columns cannot be named.
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
