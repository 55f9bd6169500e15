"""Decides which filter each name of HBase's filter language stands for; ``filter_language`` reads the text."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from metaclient.wire import filter_language
from metaclient.wire.filter_language import Arguments, FilterBuilder, FilterSyntaxError
from metaclient_fake.storage.filters import column_filters, row_filters, value_filters
from metaclient_fake.storage.filters.comparators import KINDS, Comparison, comparison
from metaclient_fake.storage.filters.filter import Filter
from metaclient_fake.storage.filters.filter_list import AndFilter, OrFilter, SkipFilter, WhileMatchFilter

__all__ = ["FILTERS", "parse"]


def parse(text: bytes) -> Filter:
    """The filter that ``text`` describes; FilterSyntaxError says where it cannot be read."""
    return filter_language.parse(text, _BUILDER)


def _compared(arguments: Arguments) -> Comparison:
    return comparison(*arguments.comparison(tuple(KINDS)))


def _no_arguments(make: Callable[[], Filter]) -> Callable[[Arguments], Filter]:
    def build(arguments: Arguments) -> Filter:
        arguments.expect(0)
        return make()

    return build


def _one_text(make: Callable[[bytes], Filter]) -> Callable[[Arguments], Filter]:
    def build(arguments: Arguments) -> Filter:
        arguments.expect(1)
        return make(arguments.text())

    return build


def _one_count(make: Callable[[int], Filter]) -> Callable[[Arguments], Filter]:
    def build(arguments: Arguments) -> Filter:
        arguments.expect(1)
        return make(arguments.count())

    return build


def _one_comparison(make: Callable[[Comparison], Filter]) -> Callable[[Arguments], Filter]:
    def build(arguments: Arguments) -> Filter:
        arguments.expect(2)
        return make(_compared(arguments))

    return build


def _key_only(arguments: Arguments) -> Filter:
    arguments.expect(0, 1)
    return column_filters.KeyOnlyFilter(arguments.boolean() if len(arguments) else False)


def _multiple_prefixes(arguments: Arguments) -> Filter:
    if not len(arguments):
        arguments.expect(1)
    prefixes = [arguments.text() for _ in range(len(arguments))]
    if len(set(prefixes)) != len(prefixes):
        raise FilterSyntaxError("MultipleColumnPrefixFilter: prefixes must be distinct")
    return column_filters.MultipleColumnPrefixFilter(prefixes)


def _timestamps(arguments: Arguments) -> Filter:
    return column_filters.TimestampsFilter([arguments.count() for _ in range(len(arguments))])


def _pagination(arguments: Arguments) -> Filter:
    arguments.expect(2)
    return column_filters.ColumnPaginationFilter(arguments.count(), arguments.count())


def _range(arguments: Arguments) -> Filter:
    arguments.expect(4)
    low, with_low, high, with_high = arguments.text(), arguments.boolean(), arguments.text(), arguments.boolean()
    return column_filters.ColumnRangeFilter(low or None, with_low, high or None, with_high)


def _single_value(
    make: Callable[..., value_filters.SingleColumnValueFilter],
) -> Callable[[Arguments], Filter]:
    def build(arguments: Arguments) -> Filter:
        arguments.expect(4, 6)
        column, compared = arguments.column(), _compared(arguments)
        if not len(arguments):
            return make(column, compared)
        return make(column, compared, drops_missing=arguments.boolean(), latest_only=arguments.boolean())

    return build


def _column_value(arguments: Arguments) -> Filter:
    arguments.expect(4)
    return value_filters.ColumnValueFilter(arguments.column(), _compared(arguments))


def _dependent(arguments: Arguments) -> Filter:
    arguments.expect(2, 3, 5)
    column = arguments.column()
    drops_column = arguments.boolean() if len(arguments) else False
    compared = _compared(arguments) if len(arguments) else None
    return value_filters.DependentColumnFilter(column, compared, drops_column=drops_column)


FILTERS: Mapping[str, Callable[[Arguments], Filter]] = {
    "KeyOnlyFilter": _key_only,
    "FirstKeyOnlyFilter": _no_arguments(column_filters.FirstKeyOnlyFilter),
    "PrefixFilter": _one_text(row_filters.PrefixFilter),
    "ColumnPrefixFilter": _one_text(column_filters.ColumnPrefixFilter),
    "MultipleColumnPrefixFilter": _multiple_prefixes,
    "ColumnCountGetFilter": _one_count(column_filters.ColumnCountGetFilter),
    "PageFilter": _one_count(row_filters.PageFilter),
    "ColumnPaginationFilter": _pagination,
    "InclusiveStopFilter": _one_text(row_filters.InclusiveStopFilter),
    "TimestampsFilter": _timestamps,
    "RowFilter": _one_comparison(row_filters.RowFilter),
    "FamilyFilter": _one_comparison(column_filters.FamilyFilter),
    "QualifierFilter": _one_comparison(column_filters.QualifierFilter),
    "ValueFilter": _one_comparison(value_filters.ValueFilter),
    "ColumnRangeFilter": _range,
    "SingleColumnValueFilter": _single_value(value_filters.SingleColumnValueFilter),
    "SingleColumnValueExcludeFilter": _single_value(value_filters.SingleColumnValueExcludeFilter),
    "DependentColumnFilter": _dependent,
    "ColumnValueFilter": _column_value,
}

_BUILDER: FilterBuilder[Filter] = FilterBuilder(FILTERS, AndFilter, OrFilter, SkipFilter, WhileMatchFilter)
