"""Decides which of the fake's filters each filter of HBase's language becomes; ``filter_language`` reads the text."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from metaclient.wire import filter_language
from metaclient.wire.filter_arguments import FilterCall
from metaclient.wire.filter_language import FilterTree, Operator
from metaclient_fake.storage.filters import column_filters, row_filters, value_filters
from metaclient_fake.storage.filters.comparators import Comparison, comparison
from metaclient_fake.storage.filters.filter import Filter
from metaclient_fake.storage.filters.filter_list import AndFilter, OrFilter, SkipFilter, WhileMatchFilter

__all__ = ["FILTERS", "parse"]


def parse(text: bytes) -> Filter:
    """Return the filter that ``text`` describes; raise FilterSyntaxError, with the position, if it is wrong."""
    return _built(filter_language.parse(text))


def _built(tree: FilterTree) -> Filter:
    if isinstance(tree, FilterCall):
        return FILTERS[tree.name](tree)
    parts = [_built(part) for part in tree.parts]
    match tree.operator:
        case Operator.AND:
            return AndFilter(parts)
        case Operator.OR:
            return OrFilter(parts)
        case Operator.SKIP:
            return SkipFilter(parts[0])
        case Operator.WHILE:
            return WhileMatchFilter(parts[0])


def _compared(call: FilterCall) -> Comparison:
    return comparison(call.comparison())


def _pagination(call: FilterCall) -> Filter:
    return column_filters.ColumnPaginationFilter(call.number("limit"), call.number("offset"))


def _range(call: FilterCall) -> Filter:
    return column_filters.ColumnRangeFilter(
        call.bound("min_column"),
        call.flag("min_column_inclusive"),
        call.bound("max_column"),
        call.flag("max_column_inclusive"),
    )


def _single_value(make: type[value_filters.SingleColumnValueFilter]) -> Callable[[FilterCall], Filter]:
    return lambda call: make(
        call.text("column_family"),
        call.text("column_qualifier"),
        _compared(call),
        drops_missing=call.flag("filter_if_missing"),
        latest_only=call.flag("latest_version_only"),
    )


def _column_value(call: FilterCall) -> Filter:
    return value_filters.ColumnValueFilter(call.text("family"), call.text("qualifier"), _compared(call))


def _dependent(call: FilterCall) -> Filter:
    return value_filters.DependentColumnFilter(
        call.text("column_family"),
        call.text("column_qualifier"),
        None if call.optional_comparison() is None else _compared(call),
        drops_column=call.flag("drop_dependent_column"),
    )


FILTERS: Mapping[str, Callable[[FilterCall], Filter]] = {
    "KeyOnlyFilter": lambda call: column_filters.KeyOnlyFilter(call.flag("len_as_val")),
    "FirstKeyOnlyFilter": lambda call: column_filters.FirstKeyOnlyFilter(),
    "PrefixFilter": lambda call: row_filters.PrefixFilter(call.text("prefix")),
    "ColumnPrefixFilter": lambda call: column_filters.ColumnPrefixFilter(call.text("prefix")),
    "MultipleColumnPrefixFilter": lambda call: column_filters.MultipleColumnPrefixFilter(call.texts("sorted_prefixes")),
    "ColumnCountGetFilter": lambda call: column_filters.ColumnCountGetFilter(call.number("limit")),
    "PageFilter": lambda call: row_filters.PageFilter(call.number("page_size")),
    "ColumnPaginationFilter": _pagination,
    "InclusiveStopFilter": lambda call: row_filters.InclusiveStopFilter(call.text("stop_row_key")),
    "TimestampsFilter": lambda call: column_filters.TimestampsFilter(call.numbers("timestamps")),
    "RowFilter": lambda call: row_filters.RowFilter(_compared(call)),
    "FamilyFilter": lambda call: column_filters.FamilyFilter(_compared(call)),
    "QualifierFilter": lambda call: column_filters.QualifierFilter(_compared(call)),
    "ValueFilter": lambda call: value_filters.ValueFilter(_compared(call)),
    "ColumnRangeFilter": _range,
    "SingleColumnValueFilter": _single_value(value_filters.SingleColumnValueFilter),
    "SingleColumnValueExcludeFilter": _single_value(value_filters.SingleColumnValueExcludeFilter),
    "DependentColumnFilter": _dependent,
    "ColumnValueFilter": _column_value,
}
