"""Decides what a filter's text means: HBase's filter language (ParseFilter), with every filter its own parser knows.

::

    filter     = either
    either     = both { "OR" both }
    both       = single { "AND" single }
    single     = ("SKIP" | "WHILE") single | "(" either ")" | Name "(" [argument { "," argument }] ")"
    argument   = 'quoted, a quote is doubled' | a bare word, number or operator

SKIP and WHILE bind tightest, then AND, then OR. Keywords are upper case. Names are exact.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from adapters.fake.storage.filters import column_filters, row_filters, value_filters
from adapters.fake.storage.filters.comparators import Comparison, comparison
from adapters.fake.storage.filters.filter import Filter, FilterSyntaxError
from adapters.fake.storage.filters.filter_list import AndFilter, OrFilter, SkipFilter, WhileMatchFilter
from metaclient import keys

__all__ = ["FILTERS", "parse"]

#: Brackets and prefix words inside each other; a text that goes deeper is a mistake or an attack.
DEPTH_MAX = 100

_WORD = re.compile(rb"[A-Za-z]+")
_SPACE = re.compile(rb"[ \t]*")
_QUOTED = re.compile(rb"'((?:[^']|'')*)'")
_BARE = re.compile(rb"[^ \t,()']+")


def parse(text: bytes) -> Filter:
    """The filter that ``text`` describes; :class:`FilterSyntaxError` says where it cannot be read."""
    parser = _Parser(text)
    made = parser.either()
    parser.expect_end()
    return made


@dataclass(frozen=True, slots=True)
class _Argument:
    value: bytes
    is_quoted: bool


class _Arguments:
    """A filter's arguments, taken one by one and by kind."""

    def __init__(self, name: str, values: Sequence[_Argument]) -> None:
        self._name = name
        self._values = list(values)

    def __len__(self) -> int:
        return len(self._values)

    def expect(self, *counts: int) -> None:
        if len(self._values) not in counts:
            wanted = " or ".join(str(count) for count in counts)
            raise FilterSyntaxError(f"{self._name} takes {wanted} arguments, got {len(self._values)}")

    def text(self) -> bytes:
        argument = self._values.pop(0)
        if not argument.is_quoted:
            raise FilterSyntaxError(f"{self._name}: {keys.printable(argument.value)} must be in single quotes")
        return argument.value

    def word(self) -> bytes:
        return self._values.pop(0).value

    def number(self) -> int:
        value = self.word()
        if not re.fullmatch(rb"-?[0-9]+", value):
            raise FilterSyntaxError(f"{self._name}: {keys.printable(value)} is not a number")
        return int(value)

    def count(self) -> int:
        value = self.number()
        if value < 0:
            raise FilterSyntaxError(f"{self._name}: {value} must not be negative")
        return value

    def boolean(self) -> bool:
        value = self.word().lower()
        if value not in (b"true", b"false"):
            raise FilterSyntaxError(f"{self._name}: {keys.printable(value)} is neither true nor false")
        return value == b"true"

    def column(self) -> bytes:
        family = self.text()
        return family + b":" + self.text()

    def comparison(self) -> Comparison:
        operator = self.word()
        return comparison(operator, self.text())


class _Parser:
    """One pass over the text, from left to right."""

    def __init__(self, text: bytes) -> None:
        self._text = text
        self._at = 0
        self._depth = 0

    def either(self) -> Filter:
        parts = [self._both()]
        while self._takes_word(b"OR"):
            parts.append(self._both())
        return parts[0] if len(parts) == 1 else OrFilter(parts)

    def _both(self) -> Filter:
        parts = [self._single()]
        while self._takes_word(b"AND"):
            parts.append(self._single())
        return parts[0] if len(parts) == 1 else AndFilter(parts)

    def _single(self) -> Filter:
        self._depth += 1
        if self._depth > DEPTH_MAX:
            raise self._fault(f"more than {DEPTH_MAX} levels")
        try:
            if self._takes_word(b"SKIP"):
                return SkipFilter(self._single())
            if self._takes_word(b"WHILE"):
                return WhileMatchFilter(self._single())
            if self._takes(b"("):
                inner = self.either()
                self._expect(b")")
                return inner
            return self._simple()
        finally:
            self._depth -= 1

    def _simple(self) -> Filter:
        match = _WORD.match(self._text, self._at)
        if match is None:
            raise self._fault("a filter's name should be here")
        name = match[0].decode()
        if name not in FILTERS:
            near = difflib.get_close_matches(name, FILTERS, 1)
            raise self._fault(f"there is no filter {name}" + (f"; did you mean {near[0]}?" if near else ""))
        self._at = match.end()
        self._expect(b"(")
        return FILTERS[name](_Arguments(name, self._arguments()))

    def _arguments(self) -> list[_Argument]:
        found: list[_Argument] = []
        while not self._takes(b")"):
            if found:
                self._takes(b",")  # HBase takes a space for a comma, too
            found.append(self._argument())
        return found

    def _argument(self) -> _Argument:
        self._skip_space()
        quoted = _QUOTED.match(self._text, self._at)
        if quoted is not None:
            self._at = quoted.end()
            return _Argument(quoted[1].replace(b"''", b"'"), True)
        bare = _BARE.match(self._text, self._at)
        if bare is None:
            raise self._fault("an argument or ')' should be here; a quote may be open")
        self._at = bare.end()
        return _Argument(bare[0], False)

    def _takes(self, token: bytes) -> bool:
        self._skip_space()
        if not self._text.startswith(token, self._at):
            return False
        self._at += len(token)
        return True

    def _takes_word(self, word: bytes) -> bool:
        self._skip_space()
        match = _WORD.match(self._text, self._at)
        if match is None or match[0] != word:
            return False
        self._at = match.end()
        return True

    def _expect(self, token: bytes) -> None:
        if not self._takes(token):
            raise self._fault(f"{token.decode()!r} should be here")

    def expect_end(self) -> None:
        self._skip_space()
        if self._at < len(self._text):
            raise self._fault("the filter should end here, or go on with AND or OR")

    def _skip_space(self) -> None:
        match = _SPACE.match(self._text, self._at)
        assert match is not None
        self._at = match.end()

    def _fault(self, what: str) -> FilterSyntaxError:
        before = keys.printable(self._text[max(0, self._at - 20) : self._at])
        rest = keys.printable(self._text[self._at : self._at + 20])
        return FilterSyntaxError(f"at byte {self._at} of the filter, {before}<here>{rest}: {what}")


def _no_arguments(make: Callable[[], Filter]) -> Callable[[_Arguments], Filter]:
    def build(arguments: _Arguments) -> Filter:
        arguments.expect(0)
        return make()

    return build


def _one_text(make: Callable[[bytes], Filter]) -> Callable[[_Arguments], Filter]:
    def build(arguments: _Arguments) -> Filter:
        arguments.expect(1)
        return make(arguments.text())

    return build


def _one_count(make: Callable[[int], Filter]) -> Callable[[_Arguments], Filter]:
    def build(arguments: _Arguments) -> Filter:
        arguments.expect(1)
        return make(arguments.count())

    return build


def _one_comparison(make: Callable[[Comparison], Filter]) -> Callable[[_Arguments], Filter]:
    def build(arguments: _Arguments) -> Filter:
        arguments.expect(2)
        return make(arguments.comparison())

    return build


def _key_only(arguments: _Arguments) -> Filter:
    arguments.expect(0, 1)
    return column_filters.KeyOnlyFilter(arguments.boolean() if len(arguments) else False)


def _multiple_prefixes(arguments: _Arguments) -> Filter:
    if not len(arguments):
        arguments.expect(1)
    return column_filters.MultipleColumnPrefixFilter([arguments.text() for _ in range(len(arguments))])


def _timestamps(arguments: _Arguments) -> Filter:
    return column_filters.TimestampsFilter([arguments.count() for _ in range(len(arguments))])


def _pagination(arguments: _Arguments) -> Filter:
    arguments.expect(2)
    return column_filters.ColumnPaginationFilter(arguments.count(), arguments.count())


def _range(arguments: _Arguments) -> Filter:
    arguments.expect(4)
    low, with_low, high, with_high = arguments.text(), arguments.boolean(), arguments.text(), arguments.boolean()
    return column_filters.ColumnRangeFilter(low or None, with_low, high or None, with_high)


def _single_value(
    make: Callable[..., value_filters.SingleColumnValueFilter],
) -> Callable[[_Arguments], Filter]:
    def build(arguments: _Arguments) -> Filter:
        arguments.expect(4, 6)
        column, compared = arguments.column(), arguments.comparison()
        if not len(arguments):
            return make(column, compared)
        return make(column, compared, drops_missing=arguments.boolean(), latest_only=arguments.boolean())

    return build


def _column_value(arguments: _Arguments) -> Filter:
    arguments.expect(4)
    return value_filters.ColumnValueFilter(arguments.column(), arguments.comparison())


def _dependent(arguments: _Arguments) -> Filter:
    arguments.expect(2, 3, 5)
    column = arguments.column()
    drops_column = arguments.boolean() if len(arguments) else False
    compared = arguments.comparison() if len(arguments) else None
    return value_filters.DependentColumnFilter(column, compared, drops_column=drops_column)


FILTERS: Mapping[str, Callable[[_Arguments], Filter]] = {
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
