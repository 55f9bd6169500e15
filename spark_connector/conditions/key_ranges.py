"""Push-down to row keys: the ranges of row keys for which a condition can be true, from the leading parts of the key.

1. For each part of the key, compute the spans in which it must lie (AND intersects, OR unites, other conditions give no
   bound).
2. From the first part on: while each span is a single value, the parts so far form prefixes. The first part with a
   wider span ends the prefix. If all parts are single values, the result is whole row keys.
3. An OR is the union of the ranges of its sides, so that ``(a=1 AND b=2) OR (a=3 AND b=4)`` gives two ranges.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from metaclient import keys
from metaclient.columns.codecs.spans import ALL, Cut, Span, Spans, intersect_spans, union_spans
from metaclient.columns.rowkey import KeyPart
from spark_connector.conditions.condition import And, Comparison, Constant, Expression, In, Like, Or, like_prefix
from spark_connector.schema.ranges import KeyRange, intersection, union

__all__ = ["POINTS_MAX", "RANGES_MAX", "key_ranges"]

#: Ranges of one condition; more are replaced by fewer, wider ones. Each range costs a scan or a seek.
RANGES_MAX = 1_000
#: Whole row keys of one condition, for multi-gets.
POINTS_MAX = 100_000


def key_ranges(condition: Expression, key: Sequence[KeyPart]) -> tuple[KeyRange, ...]:
    """Return sorted, disjoint ranges of all rows for which a condition *without NOT* may be true.

    A single row is the range ``[row, row+0x00)``.
    """
    match condition:
        case Or(parts):
            return union(each for part in parts for each in key_ranges(part, key))
        case And(parts):
            found = _product(condition, key)
            for part in parts:
                if isinstance(part, Or):
                    found = intersection(found, key_ranges(part, key))
            return _bounded(found)
    return _bounded(_product(condition, key))


def _product(condition: Expression, key: Sequence[KeyPart]) -> tuple[KeyRange, ...]:
    prefixes = [b""]
    for part in key:
        spans = _part_spans(condition, part)
        if spans is None:
            break
        if len(prefixes) * len(spans) > (POINTS_MAX if _all_points(spans) else RANGES_MAX):
            spans = _hull(spans)
            if len(prefixes) > RANGES_MAX:
                break
        if not _all_points(spans) or part.is_last:
            return union(_rows(prefix, span, part) for prefix in prefixes for span in spans)
        prefixes = [prefix + span.low[0] for prefix in prefixes for span in spans]
    return union(KeyRange.of_prefix(prefix) for prefix in prefixes) if prefixes else ()


def _all_points(spans: Spans) -> bool:
    return all(span.is_point for span in spans)


def _hull(spans: Spans) -> Spans:
    return (Span(spans[0].low, spans[-1].high),)


def _rows(prefix: bytes, span: Span, part: KeyPart) -> KeyRange:
    """Return the range of the rows with this prefix and the next part inside of the span."""
    start = _row_of(prefix, span.low, part)
    if not start and span.low != (b"", 0):
        return _NOTHING  # after every possible row key
    stop = keys.prefix_stop(prefix) if span.high is None else _row_of(prefix, span.high, part)
    return KeyRange(start, stop)


_NOTHING = KeyRange(b"\0", b"\0")


def _row_of(prefix: bytes, cut: Cut, part: KeyPart) -> bytes:
    data, is_behind = cut
    row = prefix + data
    if not is_behind:
        return row
    # After the last part comes the next row. After an inner part come the rows that do not begin with these bytes.
    return keys.next_row(row) if part.is_last else keys.prefix_stop(row)


def _part_spans(condition: Expression, part: KeyPart) -> Spans | None:
    """Return the spans in which this part of the key must lie for the condition to be true; None if unbounded."""
    match condition:
        case And(parts):
            found: Spans = ALL
            for each in parts:
                spans = _part_spans(each, part)
                found = found if spans is None else intersect_spans(found, spans)
            return None if found == ALL else found
        case Or(parts):
            return _united(_part_spans(each, part) for each in parts)
        case Constant(value):
            return None if value else ()
        case Comparison(name, operator, value) if name == part.name and operator != "<>":
            return part.spans(operator, value)
        case In(name, values) if name == part.name:
            return _united(part.spans("=", value) for value in values)
        case Like(name, pattern, escape) if name == part.name:
            fixed, rest = like_prefix(pattern, escape)
            if not rest:
                return part.spans("=", fixed)
            return part.prefix_spans(fixed) if fixed else None
    return None


def _united(found: Iterable[Spans | None]) -> Spans | None:
    spans: list[Span] = []
    for each in found:
        if each is None:
            return None
        spans.extend(each)
    return union_spans(spans)


def _bounded(found: tuple[KeyRange, ...]) -> tuple[KeyRange, ...]:
    """Return ranges that cover at least the same rows, within :data:`RANGES_MAX` and :data:`POINTS_MAX`."""
    points = sum(each.is_row for each in found)
    if points <= POINTS_MAX and len(found) - points <= RANGES_MAX:
        return found
    size = -(-len(found) // RANGES_MAX)
    groups = (found[at : at + size] for at in range(0, len(found), size))
    return union(KeyRange(group[0].start, group[-1].stop) for group in groups)
