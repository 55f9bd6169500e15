"""Builds filters for reads: objects instead of text in HBase's filter language.

>>> from metaclient import filters as f
>>> found = f.prefix(b"u") & (f.column(b"d:city") == "Oslo")
>>> print(found)
(PrefixFilter('u') AND SingleColumnValueFilter('d', 'city', =, 'binary:Oslo', true, true))

``table.scan(filter=found)`` and ``table.row(key, filter=found)`` accept such an object as they accept text.
``bytes(found)`` is the text that the servers get; it is the same on every backend.

Values are compared as HBase does, byte by byte: bytes as they are, text as UTF-8, an int as the eight bytes of
``Bytes.toBytes(long)``, which is also how counters are stored: ``f.column(b"d:age") >= 40``. Use :func:`number` for
other widths.

Filters are combined with ``&`` and ``|``. Comparisons need brackets, because ``&`` binds tighter than ``>=``. HBase has
no negation of a filter; most comparisons have an opposite (``!=`` for ``==``).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NoReturn

from metaclient import keys
from metaclient.wire import filter_language
from metaclient.wire.filter_arguments import SIGNATURES, Comparison, FilterCall, FilterSyntaxError, Value
from metaclient.wire.filter_language import Combined, FilterTree, Operator

__all__ = [
    "Comparable",
    "Filter",
    "FilterSyntaxError",
    "cell",
    "column",
    "column_count",
    "column_page",
    "column_prefix",
    "column_range",
    "dependent_column",
    "family",
    "first_cell",
    "keys_only",
    "number",
    "page",
    "parse",
    "prefix",
    "qualifier",
    "row",
    "skip",
    "stop_after",
    "timestamps",
    "value",
    "while_",
]

_Operand = bytes | str | int


class Filter:
    """One filter or a combination of filters. Immutable; equal filters compare equal.

    >>> (prefix(b"a") | prefix(b"b")) & keys_only()
    Filter("((PrefixFilter('a') OR PrefixFilter('b')) AND KeyOnlyFilter(false))")
    """

    __slots__ = ("_text", "_tree")

    def __init__(self, tree: FilterTree) -> None:
        text = filter_language.write(tree)
        filter_language.parse(text)  # the one check of all arguments; raises FilterSyntaxError
        self._tree = tree
        self._text = text

    def __and__(self, other: object) -> Filter:
        return self._combined(Operator.AND, other)

    def __or__(self, other: object) -> Filter:
        return self._combined(Operator.OR, other)

    def _combined(self, operator: Operator, other: object) -> Filter:
        if not isinstance(other, Filter):
            raise TypeError(_not_combinable(operator, other))
        return Filter(Combined(operator, (*_parts(operator, self._tree), *_parts(operator, other._tree))))

    def __bool__(self) -> NoReturn:
        raise TypeError("a filter is neither true nor false: combine filters with & and |, not with 'and' and 'or'")

    def __invert__(self) -> NoReturn:
        raise TypeError("HBase cannot negate a filter: use the opposite comparison, such as != for ==")

    def __bytes__(self) -> bytes:
        return self._text

    def __str__(self) -> str:
        return self._text.decode(errors="backslashreplace")

    def __repr__(self) -> str:
        return f"Filter({str(self)!r})"

    def __eq__(self, other: object) -> bool:
        return self._text == other._text if isinstance(other, Filter) else NotImplemented

    def __hash__(self) -> int:
        return hash(self._text)

    def __reduce__(self) -> tuple[Callable[[bytes], Filter], tuple[bytes]]:
        return parse, (self._text,)


def _parts(operator: Operator, tree: FilterTree) -> tuple[FilterTree, ...]:
    """Return the operands of a chain: ``a & b & c`` is one list of three, not nested lists."""
    return tree.parts if isinstance(tree, Combined) and tree.operator is operator else (tree,)


def _not_combinable(operator: Operator, other: object) -> str:
    sign = "&" if operator is Operator.AND else "|"
    if isinstance(other, Comparable):
        return f"{sign} binds tighter than a comparison: write filter {sign} ({other!r} >= value), with brackets"
    return f"{sign} combines two filters, got {type(other).__name__}"


class Comparable:
    """What servers can compare with a value: the key of a row, a family, a qualifier, a value.

    >>> row() < b"m"
    Filter("RowFilter(<, 'binary:m')")
    >>> qualifier().startswith("addr_")
    Filter("QualifierFilter(=, 'binaryprefix:addr_')")
    """

    __slots__ = ("_call", "_shown")
    __hash__ = None  # type: ignore[assignment]  # == makes a filter

    def __init__(self, shown: str, call: Callable[[Comparison], FilterCall]) -> None:
        self._shown = shown
        self._call = call

    def __eq__(self, other: object) -> Filter:  # type: ignore[override]  # a comparison makes a filter
        return self._compared(b"=", b"binary", other)

    def __ne__(self, other: object) -> Filter:  # type: ignore[override]  # a comparison makes a filter
        return self._compared(b"!=", b"binary", other)

    def __lt__(self, other: _Operand) -> Filter:
        return self._ordered(b"<", other)

    def __le__(self, other: _Operand) -> Filter:
        return self._ordered(b"<=", other)

    def __gt__(self, other: _Operand) -> Filter:
        return self._ordered(b">", other)

    def __ge__(self, other: _Operand) -> Filter:
        return self._ordered(b">=", other)

    def startswith(self, start: bytes | str) -> Filter:
        """Match what begins with these bytes."""
        return self._compared(b"=", b"binaryprefix", _text(start, "start"))

    def contains(self, part: bytes | str) -> Filter:
        """Match what contains this text. HBase ignores case here, and reads the stored bytes as UTF-8."""
        return self._compared(b"=", b"substring", _text(part, "part"))

    def matches(self, pattern: bytes | str, *, ignore_case: bool = False) -> Filter:
        """Match what contains a match of a regular expression of ``java.util.regex``.

        >>> value().matches("^a+$")
        Filter("ValueFilter(=, 'regexstring:^a+$')")
        """
        return self._compared(b"=", b"regexstringnocase" if ignore_case else b"regexstring", _text(pattern, "pattern"))

    def _ordered(self, operator: bytes, other: object) -> Filter:
        if isinstance(other, int) and other < 0:
            raise ValueError(
                f"{self!r} {operator.decode()} {other}: servers compare bytes, by which negative numbers are greater "
                "than positive ones; compare with numbers from 0 on, or use == and !="
            )
        return self._compared(operator, b"binary", other)

    def _compared(self, operator: bytes, kind: bytes, other: object) -> Filter:
        return Filter(self._call(Comparison(operator, kind, _compared_bytes(other))))

    def __bool__(self) -> NoReturn:
        raise TypeError(f"{self!r} is no filter until it is compared, such as {self!r} == b'x'")

    def __and__(self, other: object) -> NoReturn:
        raise TypeError(f"& binds tighter than a comparison: write ({self!r} >= value) & filter, with brackets")

    __or__ = __and__

    def __repr__(self) -> str:
        return self._shown


def column(name: bytes | str, *, missing: bool = False, hide: bool = False) -> Comparable:
    """Return a column, to be compared: rows are kept or dropped as a whole, by the newest value.

    The column must be among those that the read asks for: servers filter what they read.
    ``missing``: keep rows that do not have the column. ``hide``: leave the column out of the rows that are returned.

    >>> column(b"d:name") == "Ann"
    Filter("SingleColumnValueFilter('d', 'name', =, 'binary:Ann', true, true)")
    >>> column("d:name", missing=True).contains("ann")
    Filter("SingleColumnValueFilter('d', 'name', =, 'substring:ann', false, true)")
    """
    family_name, qualifier_name = _split(name)
    filter_name = "SingleColumnValueExcludeFilter" if hide else "SingleColumnValueFilter"

    def call(compared: Comparison) -> FilterCall:
        return _call(
            filter_name,
            column_family=family_name,
            column_qualifier=qualifier_name,
            comparison=compared,
            filter_if_missing=not missing,
            latest_version_only=True,
        )

    return Comparable(f"column({name!r})", call)


def cell(name: bytes | str) -> Comparable:
    """Return the cells of one column, to be compared: only these cells are kept (ColumnValueFilter).

    >>> cell("d:age") == b"40"
    Filter("ColumnValueFilter('d', 'age', =, 'binary:40')")
    """
    family_name, qualifier_name = _split(name)
    return Comparable(
        f"cell({name!r})",
        lambda compared: _call("ColumnValueFilter", family=family_name, qualifier=qualifier_name, comparison=compared),
    )


def row() -> Comparable:
    """Return the key of a row, to be compared."""
    return _comparable("row", "RowFilter")


def family() -> Comparable:
    """Return the family of a cell, to be compared; other cells are left out of the row."""
    return _comparable("family", "FamilyFilter")


def qualifier() -> Comparable:
    """Return the qualifier of a cell, to be compared; other cells are left out of the row."""
    return _comparable("qualifier", "QualifierFilter")


def value() -> Comparable:
    """Return the value of a cell, to be compared; other cells are left out of the row."""
    return _comparable("value", "ValueFilter")


def prefix(start: bytes | str) -> Filter:
    """Keep the rows whose keys begin so. A scan with ``row_prefix`` also *begins* there, and is faster."""
    return Filter(_call("PrefixFilter", prefix=_text(start, "start")))


def column_prefix(*starts: bytes | str) -> Filter:
    """Keep the cells whose qualifiers begin with one of these."""
    texts = tuple(sorted({_text(start, "starts") for start in starts}))
    if not texts:
        raise ValueError("column_prefix() needs at least one prefix")
    if len(texts) == 1:
        return Filter(_call("ColumnPrefixFilter", prefix=texts[0]))
    return Filter(_call("MultipleColumnPrefixFilter", sorted_prefixes=texts))


def column_range(
    start: bytes | str | None = None,
    stop: bytes | str | None = None,
    *,
    include_start: bool = True,
    include_stop: bool = False,
) -> Filter:
    """Keep the cells whose qualifiers are from ``start`` up to ``stop``; None is no bound.

    >>> column_range("a", "c")
    Filter("ColumnRangeFilter('a', true, 'c', false)")
    """
    return Filter(
        _call(
            "ColumnRangeFilter",
            min_column=None if start is None else _text(start, "start") or None,
            min_column_inclusive=include_start,
            max_column=None if stop is None else _text(stop, "stop") or None,
            max_column_inclusive=include_stop,
        )
    )


def column_count(limit: int) -> Filter:
    """Keep the first ``limit`` columns of a row. For ``row``; a scan ends after the first row that has more."""
    return Filter(_call("ColumnCountGetFilter", limit=limit))


def column_page(limit: int, offset: int) -> Filter:
    """Keep ``limit`` columns of each row, after the first ``offset``."""
    return Filter(_call("ColumnPaginationFilter", limit=limit, offset=offset))


def page(rows: int) -> Filter:
    """Keep the first ``rows`` rows of *each region*, as HBase does; ``scan(limit=...)`` limits the whole scan."""
    return Filter(_call("PageFilter", page_size=rows))


def keys_only(*, lengths: bool = False) -> Filter:
    """Return cells without their values; with ``lengths``, each value is its length as four bytes."""
    return Filter(_call("KeyOnlyFilter", len_as_val=lengths))


def first_cell() -> Filter:
    """Keep the first cell of each row, to count rows cheaply."""
    return Filter(_call("FirstKeyOnlyFilter"))


def stop_after(last: bytes | str) -> Filter:
    """End the scan after this row, which is included."""
    return Filter(_call("InclusiveStopFilter", stop_row_key=_text(last, "last")))


def timestamps(*milliseconds: int) -> Filter:
    """Keep the cells with exactly these timestamps."""
    if not milliseconds:
        raise ValueError("timestamps() needs at least one timestamp")
    call = _call("TimestampsFilter", timestamps=milliseconds)
    return Filter(FilterCall(call.name, {"timestamps": tuple(sorted(set(milliseconds)))}))


def dependent_column(name: bytes | str, *, hide: bool = False) -> Filter:
    """Keep the cells that have the same timestamp as the row's cell in this column; ``hide`` leaves that one out."""
    family_name, qualifier_name = _split(name)
    return Filter(
        _call(
            "DependentColumnFilter",
            column_family=family_name,
            column_qualifier=qualifier_name,
            drop_dependent_column=hide,
            comparison=None,
        )
    )


def skip(filter: Filter) -> Filter:
    """Drop a whole row if the filter drops any of its cells.

    >>> skip(value() != b"x")
    Filter("SKIP ValueFilter(!=, 'binary:x')")
    """
    return Filter(Combined(Operator.SKIP, (_tree_of(filter),)))


def while_(filter: Filter) -> Filter:
    """End the scan at the first cell or row that the filter drops."""
    return Filter(Combined(Operator.WHILE, (_tree_of(filter),)))


def parse(text: bytes | str) -> Filter:
    """Return the filter of a text in HBase's filter language; FilterSyntaxError shows where the text is wrong.

    >>> parse("PrefixFilter('a') AND PageFilter(2)") == prefix("a") & page(2)
    True
    """
    return Filter(filter_language.parse(keys.as_bytes(text, "text")))


def number(value: int, width: int) -> bytes:
    r"""Return a number as ``width`` bytes, big-endian, as Java's ``Bytes.toBytes`` writes short, int and long.

    >>> number(40, 4)
    b'\x00\x00\x00('
    """
    try:
        return value.to_bytes(width, "big", signed=True)
    except OverflowError:
        raise ValueError(f"{value} does not fit into {width} bytes") from None


def _comparable(shown: str, filter_name: str) -> Comparable:
    return Comparable(f"{shown}()", lambda compared: _call(filter_name, comparison=compared))


def _call(filter_name: str, **values: Value) -> FilterCall:
    """Return a call of a filter of HBase's language, its values in the order of the signature."""
    parameters = SIGNATURES[filter_name].parameters
    for name in _NUMBERS & values.keys():
        given = values[name]
        for one in given if isinstance(given, tuple) else (given,):
            if not isinstance(one, int) or isinstance(one, bool):
                raise TypeError(f"{filter_name}: {name!r} must be a whole number, got {one!r}")
    return FilterCall(filter_name, {one.name: values[one.name] for one in parameters})


_NUMBERS = frozenset({"limit", "offset", "page_size", "timestamps"})


def _tree_of(filter: object) -> FilterTree:
    if not isinstance(filter, Filter):
        raise TypeError(f"expected a filter, got {type(filter).__name__}")
    return filter._tree


def _split(name: bytes | str) -> tuple[bytes, bytes]:
    family_name, _, qualifier_name = keys.column_name(name, "name", family_only_ok=False).partition(b":")
    return family_name, qualifier_name


def _text(given: bytes | str, argument: str) -> bytes:
    return keys.as_bytes(given, argument)


def _compared_bytes(given: object) -> bytes:
    if isinstance(given, bytes):
        return given
    if isinstance(given, str):
        return given.encode()
    if isinstance(given, int) and not isinstance(given, bool):
        return number(given, 8)
    raise TypeError(f"a value is compared with bytes, text or a whole number, got {type(given).__name__}")
