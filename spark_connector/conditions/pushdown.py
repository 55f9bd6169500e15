"""Pushes a condition down to HBase: row-key ranges, single rows, and text of HBase's filter language.

The result matches *at least* every row for which the condition is true, because Spark always tests the condition again.
Parts that cannot be expressed in bytes are left out, by four rules:

1. NOT is pushed inwards first (``NOT a < 3`` is ``a >= 3``), and unknown counts as false.
2. Conditions on the row key become ranges (``key_ranges``), in the byte order of each part's codec.
3. Conditions on cells become SingleColumnValueFilters with ``filterIfMissing``: a comparison is never true of null. For
   a cell that cannot be compared by bytes, the filter tests only that the cell exists. ``IS NULL`` tests that the cell
   is missing, or empty where that reads as null, unless the codec can write nulls.
4. AND leaves out the parts that cannot be pushed down; OR is left out as a whole if one of its parts cannot.

A row of the DataFrame is a row of HBase with a cell in at least one of the *catalog's* columns. That must not depend
on the selected columns, so column pruning keeps the first cell of each row, unless the condition requires a cell.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from metaclient import keys
from metaclient.columns.codecs.base import BadValueError
from metaclient.columns.codecs.spans import Spans, union_spans
from metaclient.columns.salt import salted
from spark_connector.conditions import filter_text
from spark_connector.conditions.condition import (
    And,
    Comparison,
    Constant,
    Expression,
    In,
    IsNull,
    Like,
    Not,
    Opaque,
    Or,
    columns_of,
    like_prefix,
)
from spark_connector.conditions.key_ranges import key_ranges
from spark_connector.schema.catalog import Catalog, CellColumn
from spark_connector.schema.ranges import EVERYTHING, KeyRange, intersection, rows_within
from spark_connector.schema.salt import salted_ranges

__all__ = ["Pushed", "ScanColumns", "push", "scan_columns", "superset", "without_not"]

#: The longest filter text of a scan; HBase parses it again for each region.
FILTER_BYTES_MAX = 16 << 10
#: Values of an IN that are compared one by one; more are replaced by one range.
FILTER_VALUES_MAX = 64

_NEGATED = {"=": "<>", "<>": "=", "<": ">=", "<=": ">", ">": "<=", ">=": "<"}


@dataclass(frozen=True, slots=True)
class Pushed:
    """A superset of the rows for which the condition is true: those in ``ranges`` or ``points`` that pass ``filter``.

    Without ranges and points no row can match, and nothing is read.
    """

    ranges: tuple[KeyRange, ...] = EVERYTHING  # sorted, disjoint
    points: tuple[bytes, ...] = ()  # whole row keys for multi-gets: sorted, none of them in a range
    filter: bytes | None = None  # HBase's filter language; goes into Scan.filter and Get.filter
    filter_columns: tuple[bytes, ...] = ()  # b"cf:q" that the filter tests; the scan must ask for them
    present: frozenset[bytes] = frozenset()  # every matching row has a cell in each of these
    columns: tuple[str, ...] = ()  # columns that the condition reads; Spark needs them for its own test

    def within(self, ranges: Iterable[KeyRange]) -> Pushed:
        """Return the part of it that lies in these ranges."""
        allowed = intersection(ranges, EVERYTHING)
        return replace(
            self,
            ranges=intersection(self.ranges, allowed),
            points=tuple(rows_within(self.points, allowed)),
        )


def push(
    condition: Expression | None, catalog: Catalog, *, value_filters: bool = True, bad_values_are_null: bool = False
) -> Pushed:
    """Return the ranges, points and filter for a *bound* condition (``expressions.bind``).

    ``value_filters=False``: row keys only. ``bad_values_are_null``: cells that cannot be decoded read as null.

    >>> from spark_connector.conditions.expressions import bind
    >>> from spark_connector.conditions.sql_text import parse_where
    >>> catalog = Catalog.from_mapping("t", "id INT :id, a STRING cf:a")
    >>> pushed = push(bind(parse_where("id IN (1, 2) AND a LIKE 'x%'"), catalog), catalog)
    >>> pushed.points, pushed.ranges
    ((b'\\x00\\x00\\x00\\x01', b'\\x00\\x00\\x00\\x02'), ())
    >>> pushed.filter
    b"SingleColumnValueFilter('cf','a',=,'binaryprefix:x',true,true)"
    """
    if condition is None:
        return Pushed()
    plain = without_not(condition)
    names = columns_of(condition)
    if plain == Constant(False):
        return Pushed((), columns=names)
    found = key_ranges(plain, catalog.key)
    points = tuple(each.start for each in found if each.is_row)
    ranges = tuple(each for each in found if not each.is_row)
    compiler = _Compiler(catalog, bad_values_are_null)
    text, columns = compiler.whole(plain) if value_filters else (None, ())
    rows = sorted(salted(row, catalog.salt) for row in points if row)
    return Pushed(
        salted_ranges(ranges, catalog.salt),
        tuple(row for row in rows if len(row) <= keys.ROW_LENGTH_MAX),
        text,
        columns,
        compiler.present(plain),
        names,
    )


# ---- rule 1


def without_not(condition: Expression, *, negated: bool = False) -> Expression:
    """Return a condition that is true for the same rows, with NOT only before LIKE and IS NULL and no null values."""
    match condition:
        case Not(part):
            return without_not(part, negated=not negated)
        case And(parts):
            inner = [without_not(part, negated=negated) for part in parts]
            return _either(inner) if negated else _both(inner)
        case Or(parts):
            inner = [without_not(part, negated=negated) for part in parts]
            return _both(inner) if negated else _either(inner)
        case Constant(value):
            return Constant(value is not None and value is not negated)
        case Comparison(column, "<=>", value):
            equal = Comparison(column, "=", value)
            return Or((IsNull(column), without_not(equal, negated=True))) if negated else equal
        case Comparison(column, operator, value):
            return Comparison(column, _NEGATED[operator], value) if negated else condition
        case In(column, values):
            if not negated:
                kept = tuple(value for value in values if value is not None)
                return In(column, kept) if kept else Constant(False)
            if None in values:
                return Constant(False)  # never true: "not found" is unknown
            return _both([Comparison(column, "<>", value) for value in values] or [Not(IsNull(column))])
        case Opaque():
            return condition  # neither it nor its negation can be tested here
    return Not(condition) if negated else condition


def superset(condition: Expression) -> Expression:
    """Return a condition without Opaque that is true for at least the rows for which this one is true."""
    return _without_opaque(without_not(condition))


def _without_opaque(condition: Expression) -> Expression:
    match condition:
        case And(parts):
            return _both([_without_opaque(part) for part in parts])
        case Or(parts):
            return _either([_without_opaque(part) for part in parts])
        case Opaque():
            return Constant(True)
    return condition


def _both(parts: list[Expression]) -> Expression:
    kept: list[Expression] = []
    for part in parts:
        if part == Constant(False):
            return part
        kept.extend(part.parts if isinstance(part, And) else () if part == Constant(True) else (part,))
    return Constant(True) if not kept else kept[0] if len(kept) == 1 else And(tuple(kept))


def _either(parts: list[Expression]) -> Expression:
    kept: list[Expression] = []
    for part in parts:
        if part == Constant(True):
            return part
        kept.extend(part.parts if isinstance(part, Or) else () if part == Constant(False) else (part,))
    return Constant(False) if not kept else kept[0] if len(kept) == 1 else Or(tuple(kept))


# ---- rules 3 and 4


class _Compiler:
    """Writes the filter text of one condition on one catalog."""

    def __init__(self, catalog: Catalog, bad_values_are_null: bool) -> None:
        self._cells = {field.name: field for field in catalog.columns if isinstance(field, CellColumn)}
        self._bad_values_are_null = bad_values_are_null

    def whole(self, condition: Expression) -> tuple[bytes | None, tuple[bytes, ...]]:
        """Return the filter for as many parts as fit into :data:`FILTER_BYTES_MAX`, and the columns that it tests."""
        kept: list[bytes] = []
        columns: set[bytes] = set()
        size = 0
        for part in condition.parts if isinstance(condition, And) else (condition,):
            text = self._text(part)
            if text is not None and size + len(text) <= FILTER_BYTES_MAX:
                size += len(text)
                kept.append(text)
                columns |= {self._cells[name].column for name in columns_of(part) if name in self._cells}
        return (filter_text.all_of(kept) if kept else None), tuple(sorted(columns))

    def present(self, condition: Expression) -> frozenset[bytes]:
        match condition:
            case And(parts):
                return frozenset().union(*map(self.present, parts))
            case Or(parts):
                return frozenset.intersection(*map(self.present, parts))
            case Comparison(name, _, _) | In(name, _) | Like(name, _, _) | Not(Like(name, _, _)) | Not(IsNull(name)):
                return frozenset({self._cells[name].column}) if name in self._cells else frozenset()
        return frozenset()

    def _text(self, condition: Expression) -> bytes | None:
        match condition:
            case And(parts):
                texts = [text for text in map(self._text, parts) if text is not None]
                return filter_text.all_of(texts) if texts else None
            case Or(parts):
                sides = [self._text(part) for part in parts]
                known = [side for side in sides if side is not None]
                return filter_text.any_of(known) if len(known) == len(sides) else None
            case Constant() | Opaque():
                return None
        (name,) = columns_of(condition)
        field = self._cells.get(name)
        if field is None or not filter_text.is_writable(field.column):
            return None
        return self._leaf(condition, field)

    def _leaf(self, condition: Expression, field: CellColumn) -> bytes | None:
        column, codec, type = field.column, field.codec, field.type
        match condition:
            case IsNull():
                if codec.writes_nulls(type) or self._bad_values_are_null:
                    return None
                is_text = not codec.reads_empty_as_null(type)
                return filter_text.absent(column) if is_text else filter_text.absent_or_empty(column)
            case Comparison(_, "<>", value):
                return _unequal(field, value)
            case Comparison(_, operator, value):
                return _in_spans(column, codec.spans(operator, value, type))
            case In(_, values):
                found = [codec.spans("=", value, type) for value in values]
                known = [spans for spans in found if spans is not None]
                united = union_spans(span for spans in known for span in spans) if len(known) == len(found) else None
                return _in_spans(column, united)
            case Like(_, pattern, escape):
                fixed, rest = like_prefix(pattern, escape)
                if not rest:
                    return _in_spans(column, codec.spans("=", fixed, type))
                prefix = codec.prefix(fixed, type) if fixed else None
                return filter_text.starts_with(column, prefix) if prefix else filter_text.present(column)
        return filter_text.present(column)


def _in_spans(column: bytes, spans: Spans | None) -> bytes:
    if spans is None:
        return filter_text.present(column)
    if not spans:
        return filter_text.compare(column, "<", b"")  # no value at all
    if len(spans) > FILTER_VALUES_MAX:
        spans = (replace(spans[0], high=spans[-1].high),)
    return filter_text.in_spans(column, spans)


def _unequal(field: CellColumn, value: object) -> bytes:
    """Return a filter that drops only the cells whose bytes certainly decode to the value."""
    fit = field.codec.fitted(value, field.type)
    if fit is not None and fit.is_exact:
        try:
            encoded = field.codec.encode(fit.value, field.type)
        except BadValueError:
            return filter_text.present(field.column)
        return filter_text.compare(field.column, "!=", encoded)
    return filter_text.present(field.column)


# ---- columns


@dataclass(frozen=True, slots=True)
class ScanColumns:
    """What goes into a Scan or Get: ``columns`` (empty: all) and the whole ``filter``."""

    columns: tuple[bytes, ...]
    filter: bytes | None


def scan_columns(catalog: Catalog, names: Iterable[str], pushed: Pushed) -> ScanColumns:
    """Return how to read these columns of the catalog without losing rows that have none of them.

    >>> catalog = Catalog.from_mapping("t", "id STRING :id, a STRING cf:a, b STRING cf:b")
    >>> scan_columns(catalog, ["id", "a"], Pushed())
    ScanColumns(columns=(b'cf:a', b'cf:b'), filter=b"(FirstKeyOnlyFilter() OR QualifierFilter(=,'binary:a'))")
    """
    everything = catalog.cells_of(catalog.names)
    wanted = _merged(catalog.cells_of(names), pushed.filter_columns)
    if pushed.present:
        witness = () if _covers(wanted, pushed.present) else (min(pushed.present),)
        return ScanColumns(_merged(wanted, witness), pushed.filter)
    if wanted == everything:
        return ScanColumns(everything, pushed.filter)
    if not wanted:  # then no value is filtered either
        return ScanColumns(everything, b"(FirstKeyOnlyFilter() AND KeyOnlyFilter())")
    has_families = any(b":" not in column for column in wanted)
    projection = None if has_families else filter_text.only_columns(wanted)
    if projection is None or len(projection) > FILTER_BYTES_MAX:
        return ScanColumns(everything, pushed.filter)
    # The projection comes second: the condition's filter must see every cell before the projection skips cells.
    whole = projection if pushed.filter is None else filter_text.all_of([pushed.filter, projection])
    return ScanColumns(everything, whole)


def _merged(columns: Iterable[bytes], more: Iterable[bytes]) -> tuple[bytes, ...]:
    """Return both lists of columns, without the columns of families that are listed as a whole."""
    found = {*columns, *more}
    return tuple(sorted(c for c in found if b":" not in c or c.partition(b":")[0] not in found))


def _covers(columns: Iterable[bytes], present: frozenset[bytes]) -> bool:
    found = set(columns)
    return any(column in found or column.partition(b":")[0] in found for column in present)
