"""Describes the arguments of every filter of HBase's filter language (``createFilterFromArguments`` of HBase 2.6.1).

``SIGNATURES`` is the only description: the parser reads arguments by it, the writer writes them by it, and the code
that makes filters (HBase's messages in the native adapter, the fake's own filters) takes the values by these names.
The names are the fields of the messages in HBase's ``Filter.proto``.

DIVERGENCES: a number of more than 63 bits is refused; ``ParseFilter.convertByteArrayToLong`` lets some of them wrap to
a smaller number. A minus sign without digits is refused, too; HBase reads it as 0.
"""

from __future__ import annotations

import enum
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from metaclient import keys
from metaclient.errors import RequestRefused

__all__ = [
    "COMPARATORS",
    "OPERATORS",
    "SIGNATURES",
    "Argument",
    "Comparison",
    "FilterCall",
    "FilterSyntaxError",
    "Kind",
    "Parameter",
    "Signature",
    "Value",
]

#: Comparison operators, as they are written in a filter.
OPERATORS = (b"<", b"<=", b"=", b"!=", b">=", b">")
#: Kinds of comparators, as they are written before the colon.
COMPARATORS = (b"binary", b"binaryprefix", b"regexstring", b"regexstringnocase", b"substring")
#: Comparators that support only equal and not equal.
_ONLY_EQUALITY = frozenset({b"regexstring", b"regexstringnocase", b"substring"})
_INT_MAX = 2**31 - 1
_LONG_MAX = 2**63 - 1
_NUMBER = re.compile(rb"-?[0-9]+")


class FilterSyntaxError(RequestRefused, ValueError):
    """The text of a filter is wrong; the message has the position."""


@dataclass(frozen=True, slots=True)
class Argument:
    """One argument as it was written, without its quotes."""

    value: bytes
    is_quoted: bool


@dataclass(frozen=True, slots=True)
class Comparison:
    """``OP, 'kind:value'``: *stored* OP *value*."""

    operator: bytes
    kind: bytes
    value: bytes


Value: TypeAlias = bool | int | bytes | Comparison | tuple[bytes, ...] | tuple[int, ...] | None


class Kind(enum.Enum):
    """The type of an argument; the value is its description in error messages."""

    TEXT = "text in single quotes"
    #: The end of a range: None when the text is empty.
    BOUND = "text in single quotes, empty for no bound"
    FLAG = "true or false"
    COUNT = f"a number from 0 to {_INT_MAX}"
    LONG_COUNT = f"a number from 0 to {_LONG_MAX}"
    #: Takes two arguments: an operator and a comparator.
    COMPARISON = "a comparison operator and a comparator"
    #: Any number of texts, none of them twice; sorted.
    DISTINCT_TEXTS = "texts in single quotes"
    #: Any number of numbers; sorted, each once.
    TIMESTAMPS = "timestamps"


@dataclass(frozen=True, slots=True)
class Parameter:
    """One parameter of a filter and the value that it has when it is left out."""

    name: str
    kind: Kind
    default: Value = None


@dataclass(frozen=True, slots=True)
class Signature:
    """The parameters of one filter, and how many arguments it may have; no counts = any number."""

    parameters: tuple[Parameter, ...] = ()
    counts: tuple[int, ...] = ()
    #: True if HBase checks that regular expressions and substrings are compared with = and != only.
    checks_equality: bool = True

    def read(self, filter_name: str, arguments: Sequence[Argument]) -> FilterCall:
        """Return the values of ``arguments`` by name; FilterSyntaxError where they do not fit."""
        if self.counts and len(arguments) not in self.counts:
            wanted = " or ".join(str(count) for count in self.counts)
            raise FilterSyntaxError(f"{filter_name} takes {wanted} arguments, got {len(arguments)}")
        left = list(arguments)
        values: dict[str, Value] = {}
        for parameter in self.parameters:
            if left or parameter.kind in _REPEATED:
                values[parameter.name] = self._take(filter_name, parameter.kind, left)
            else:
                values[parameter.name] = parameter.default
        return FilterCall(filter_name, values)

    def _take(self, filter_name: str, kind: Kind, left: list[Argument]) -> Value:
        match kind:
            case Kind.TEXT:
                return _text(filter_name, left.pop(0))
            case Kind.BOUND:
                return _text(filter_name, left.pop(0)) or None
            case Kind.FLAG:
                return _flag(filter_name, left.pop(0))
            case Kind.COUNT:
                return _count(filter_name, left.pop(0), _INT_MAX)
            case Kind.LONG_COUNT:
                return _count(filter_name, left.pop(0), _LONG_MAX)
            case Kind.COMPARISON:
                return self._comparison(filter_name, left.pop(0), left.pop(0))
            case Kind.DISTINCT_TEXTS:
                return _distinct(filter_name, [_text(filter_name, one) for one in left])
            case Kind.TIMESTAMPS:
                return tuple(sorted({_count(filter_name, one, _LONG_MAX) for one in left}))

    def _comparison(self, filter_name: str, operator: Argument, comparator: Argument) -> Comparison:
        if operator.is_quoted or operator.value not in OPERATORS:
            known = " ".join(name.decode() for name in OPERATORS)
            raise FilterSyntaxError(
                f"{filter_name}: {_shown(operator)} is no comparison operator: use one of {known}, without quotes"
            )
        kind, colon, value = _text(filter_name, comparator).partition(b":")
        if not colon or kind not in COMPARATORS:
            known = ", ".join(name.decode() for name in COMPARATORS)
            raise FilterSyntaxError(
                f"{filter_name}: {_shown(comparator)} is no comparator: write kind:value with one of {known}"
            )
        if self.checks_equality and kind in _ONLY_EQUALITY and operator.value not in (b"=", b"!="):
            raise FilterSyntaxError(f"{filter_name}: {_shown(comparator)} can be compared with = and != only")
        return Comparison(operator.value, kind, value)


_REPEATED = (Kind.DISTINCT_TEXTS, Kind.TIMESTAMPS)


def _shown(argument: Argument) -> str:
    text = keys.printable(argument.value)
    return f"'{text}'" if argument.is_quoted else text


def _text(filter_name: str, argument: Argument) -> bytes:
    if not argument.is_quoted:
        raise FilterSyntaxError(f"{filter_name}: {_shown(argument)} must be in single quotes")
    return argument.value


def _flag(filter_name: str, argument: Argument) -> bool:
    word = argument.value.lower()
    if argument.is_quoted or word not in (b"true", b"false"):
        raise FilterSyntaxError(f"{filter_name}: {_shown(argument)} is neither true nor false")
    return word == b"true"


def _count(filter_name: str, argument: Argument, largest: int) -> int:
    if argument.is_quoted or not _NUMBER.fullmatch(argument.value):
        raise FilterSyntaxError(f"{filter_name}: {_shown(argument)} is not a number")
    digits = argument.value.lstrip(b"-0")  # the length first: int() refuses thousands of digits with another error
    if len(digits) > len(str(largest)) or int(digits or b"0") > largest:
        raise FilterSyntaxError(f"{filter_name}: {_shown(argument)} is not between 0 and {largest}")
    if digits and argument.value.startswith(b"-"):
        raise FilterSyntaxError(f"{filter_name}: {_shown(argument)} must not be negative")
    return int(digits or b"0")


def _distinct(filter_name: str, texts: Sequence[bytes]) -> tuple[bytes, ...]:
    made = tuple(sorted(set(texts)))
    if len(made) != len(texts):
        raise FilterSyntaxError(f"{filter_name}: the prefixes must be distinct")
    return made


@dataclass(frozen=True, slots=True)
class FilterCall:
    """A filter's name and its arguments by name, each of the type that its :class:`Kind` says."""

    name: str
    values: Mapping[str, Value]

    def text(self, name: str) -> bytes:
        value = self.values[name]
        assert isinstance(value, bytes), f"{self.name}.{name}: {value!r}"
        return value

    def bound(self, name: str) -> bytes | None:
        return None if self.values[name] is None else self.text(name)

    def flag(self, name: str) -> bool:
        value = self.values[name]
        assert isinstance(value, bool), f"{self.name}.{name}: {value!r}"
        return value

    def number(self, name: str) -> int:
        value = self.values[name]
        assert isinstance(value, int), f"{self.name}.{name}: {value!r}"
        return value

    def texts(self, name: str) -> tuple[bytes, ...]:
        value = self.values[name]
        assert isinstance(value, tuple), f"{self.name}.{name}: {value!r}"
        return tuple(one for one in value if isinstance(one, bytes))

    def numbers(self, name: str) -> tuple[int, ...]:
        value = self.values[name]
        assert isinstance(value, tuple), f"{self.name}.{name}: {value!r}"
        return tuple(one for one in value if isinstance(one, int))

    def comparison(self) -> Comparison:
        value = self.optional_comparison()
        assert value is not None, f"{self.name} without a comparison"
        return value

    def optional_comparison(self) -> Comparison | None:
        value = self.values["comparison"]
        assert value is None or isinstance(value, Comparison), f"{self.name}.comparison: {value!r}"
        return value


_COMPARED = Signature((Parameter("comparison", Kind.COMPARISON),), (2,))
_SINGLE_COLUMN_VALUE = Signature(
    (
        Parameter("column_family", Kind.TEXT),
        Parameter("column_qualifier", Kind.TEXT),
        Parameter("comparison", Kind.COMPARISON),
        Parameter("filter_if_missing", Kind.FLAG, False),
        Parameter("latest_version_only", Kind.FLAG, True),
    ),
    (4, 6),
)

#: All filters of ``ParseFilter`` in HBase 2.6.1.
SIGNATURES: Mapping[str, Signature] = {
    "KeyOnlyFilter": Signature((Parameter("len_as_val", Kind.FLAG, False),), (0, 1)),
    "FirstKeyOnlyFilter": Signature((), (0,)),
    "PrefixFilter": Signature((Parameter("prefix", Kind.TEXT),), (1,)),
    "ColumnPrefixFilter": Signature((Parameter("prefix", Kind.TEXT),), (1,)),
    "MultipleColumnPrefixFilter": Signature((Parameter("sorted_prefixes", Kind.DISTINCT_TEXTS),)),
    "ColumnCountGetFilter": Signature((Parameter("limit", Kind.COUNT),), (1,)),
    "PageFilter": Signature((Parameter("page_size", Kind.LONG_COUNT),), (1,)),
    "ColumnPaginationFilter": Signature((Parameter("limit", Kind.COUNT), Parameter("offset", Kind.COUNT)), (2,)),
    "InclusiveStopFilter": Signature((Parameter("stop_row_key", Kind.TEXT),), (1,)),
    "TimestampsFilter": Signature((Parameter("timestamps", Kind.TIMESTAMPS),)),
    "RowFilter": _COMPARED,
    "FamilyFilter": _COMPARED,
    "QualifierFilter": _COMPARED,
    "ValueFilter": _COMPARED,
    "ColumnRangeFilter": Signature(
        (
            Parameter("min_column", Kind.BOUND),
            Parameter("min_column_inclusive", Kind.FLAG),
            Parameter("max_column", Kind.BOUND),
            Parameter("max_column_inclusive", Kind.FLAG),
        ),
        (4,),
    ),
    "SingleColumnValueFilter": _SINGLE_COLUMN_VALUE,
    "SingleColumnValueExcludeFilter": _SINGLE_COLUMN_VALUE,
    "DependentColumnFilter": Signature(
        (
            Parameter("column_family", Kind.TEXT),
            Parameter("column_qualifier", Kind.TEXT),
            Parameter("drop_dependent_column", Kind.FLAG, False),
            Parameter("comparison", Kind.COMPARISON, None),
        ),
        (2, 3, 5),
        checks_equality=False,
    ),
    "ColumnValueFilter": Signature(
        (
            Parameter("family", Kind.TEXT),
            Parameter("qualifier", Kind.TEXT),
            Parameter("comparison", Kind.COMPARISON),
        ),
        (4,),
    ),
}
