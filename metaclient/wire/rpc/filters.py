"""HBase's filter language as text into the classes that a server runs, and back.

People, and our client, write ``PrefixFilter('a') AND KeyOnlyFilter()``. A Thrift gateway reads that itself; a region
server wants each filter as the name of its Java class and the bytes of its own message.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any

from metaclient.errors import Unsupported
from metaclient.wire import filter_language
from metaclient.wire.filter_language import Arguments, FilterBuilder
from metaclient.wire.rpc.messages import COMPARATOR, FILTER
from metaclient.wire.rpc.protobuf import BOOL, BYTES, SIGNED, TEXT, UNSIGNED, Message, ProtocolError, decode, encode

__all__ = ["COMPARATORS", "comparator_message", "comparator_value", "from_text", "to_text"]

_PACKAGE = "org.apache.hadoop.hbase.filter."
#: As the filter language calls them; ``null`` exists only in conditions.
COMPARATORS: Mapping[bytes, str] = {
    b"binary": _PACKAGE + "BinaryComparator",
    b"binaryprefix": _PACKAGE + "BinaryPrefixComparator",
    b"regexstring": _PACKAGE + "RegexStringComparator",
    b"substring": _PACKAGE + "SubstringComparator",
    b"null": _PACKAGE + "NullComparator",
}
_KINDS = (b"binary", b"binaryprefix", b"regexstring", b"substring")
_OPERATORS = {b"<": 0, b"<=": 1, b"=": 2, b"!=": 3, b">=": 4, b">": 5}
_NO_OP = 6
_ALL, _ONE = 1, 2
#: java.util.regex.Pattern.DOTALL, the comparator's own default.
_DOTALL = 32
#: Filters inside of filters; a message that goes deeper is a mistake or an attack.
DEPTH_MAX = filter_language.DEPTH_MAX

_BYTE_ARRAY = Message("ByteArrayComparable", (1, "value", BYTES))
_BINARY = Message("BinaryComparator", (1, "comparable!", _BYTE_ARRAY))
_REGEX = Message(
    "RegexStringComparator",
    (1, "pattern!", TEXT),
    (2, "pattern_flags!", SIGNED),
    (3, "charset!", TEXT),
    (4, "engine", TEXT),
)
_SUBSTRING = Message("SubstringComparator", (1, "substr!", TEXT))
_COMPARE = Message("CompareFilter", (1, "compare_op!", UNSIGNED), (2, "comparator", COMPARATOR))
_ONE_COMPARISON = Message("CompareFilterHolder", (1, "compare_filter!", _COMPARE))
_SINGLE_VALUE = Message(
    "SingleColumnValueFilter",
    (1, "column_family", BYTES),
    (2, "column_qualifier", BYTES),
    (3, "compare_op!", UNSIGNED),
    (4, "comparator!", COMPARATOR),
    (5, "filter_if_missing", BOOL),
    (6, "latest_version_only", BOOL),
)
_MESSAGES: Mapping[str, Message] = {
    "KeyOnlyFilter": Message("KeyOnlyFilter", (1, "len_as_val!", BOOL)),
    "FirstKeyOnlyFilter": Message("FirstKeyOnlyFilter"),
    "PrefixFilter": Message("PrefixFilter", (1, "prefix", BYTES)),
    "ColumnPrefixFilter": Message("ColumnPrefixFilter", (1, "prefix!", BYTES)),
    "MultipleColumnPrefixFilter": Message("MultipleColumnPrefixFilter", (1, "sorted_prefixes*", BYTES)),
    "ColumnCountGetFilter": Message("ColumnCountGetFilter", (1, "limit!", SIGNED)),
    "PageFilter": Message("PageFilter", (1, "page_size!", SIGNED)),
    "ColumnPaginationFilter": Message(
        "ColumnPaginationFilter", (1, "limit!", SIGNED), (2, "offset", SIGNED), (3, "column_offset", BYTES)
    ),
    "InclusiveStopFilter": Message("InclusiveStopFilter", (1, "stop_row_key", BYTES)),
    "TimestampsFilter": Message("TimestampsFilter", (1, "timestamps*", SIGNED), (2, "can_hint", BOOL)),
    "RowFilter": _ONE_COMPARISON,
    "FamilyFilter": _ONE_COMPARISON,
    "QualifierFilter": _ONE_COMPARISON,
    "ValueFilter": _ONE_COMPARISON,
    "ColumnRangeFilter": Message(
        "ColumnRangeFilter",
        (1, "min_column", BYTES),
        (2, "min_column_inclusive", BOOL),
        (3, "max_column", BYTES),
        (4, "max_column_inclusive", BOOL),
    ),
    "SingleColumnValueFilter": _SINGLE_VALUE,
    "SingleColumnValueExcludeFilter": Message("ExcludeFilter", (1, "single_column_value_filter!", _SINGLE_VALUE)),
    "DependentColumnFilter": Message(
        "DependentColumnFilter",
        (1, "compare_filter!", _COMPARE),
        (2, "column_family", BYTES),
        (3, "column_qualifier", BYTES),
        (4, "drop_dependent_column", BOOL),
    ),
    "ColumnValueFilter": Message(
        "ColumnValueFilter",
        (1, "family!", BYTES),
        (2, "qualifier!", BYTES),
        (3, "compare_op!", UNSIGNED),
        (4, "comparator!", COMPARATOR),
    ),
    "FilterList": Message("FilterList", (1, "operator!", UNSIGNED), (2, "filters*", FILTER)),
    "SkipFilter": Message("SkipFilter", (1, "filter!", FILTER)),
    "WhileMatchFilter": Message("WhileMatchFilter", (1, "filter!", FILTER)),
}

Built = dict[str, Any]


# -- text -> message -----------------------------------------------------------------------------------------------


@lru_cache(maxsize=256)
def from_text(text: bytes) -> Built:
    """The Filter message that ``text`` stands for; FilterSyntaxError says where it cannot be read.

    >>> from_text(b"PrefixFilter('a')")
    {'name': 'org.apache.hadoop.hbase.filter.PrefixFilter', 'serialized_filter': b'\\n\\x01a'}
    """
    return filter_language.parse(text, _BUILDER)


def _filter(name: str, values: Mapping[str, Any]) -> Built:
    return {"name": _PACKAGE + name, "serialized_filter": encode(_MESSAGES[name], values)}


def comparator_message(kind: bytes, value: bytes) -> Built:
    """A comparator by the filter language's name for it."""
    match kind:
        case b"binary" | b"binaryprefix":
            data = encode(_BINARY, {"comparable": {"value": value}})
        case b"regexstring":
            fields = {"pattern": value.decode(), "pattern_flags": _DOTALL, "charset": "UTF-8", "engine": "JAVA"}
            data = encode(_REGEX, fields)
        case b"substring":
            data = encode(_SUBSTRING, {"substr": value.decode().lower()})
        case _:
            data = b""
    return {"name": COMPARATORS[kind], "serialized_comparator": data}


def _comparison(arguments: Arguments) -> Built:
    operator, kind, value = arguments.comparison(_KINDS)
    try:
        return {"compare_op": _OPERATORS[operator], "comparator": comparator_message(kind, value)}
    except UnicodeDecodeError as error:
        raise filter_language.FilterSyntaxError(f"{kind.decode()} needs text in UTF-8: {error}") from error


def _named(name: str, read: Callable[[Arguments], Mapping[str, Any]]) -> Callable[[Arguments], Built]:
    return lambda arguments: _filter(name, read(arguments))


def _nothing(arguments: Arguments) -> Built:
    arguments.expect(0)
    return {}


def _one(field: str, take: Callable[[Arguments], object]) -> Callable[[Arguments], Built]:
    def read(arguments: Arguments) -> Built:
        arguments.expect(1)
        return {field: take(arguments)}

    return read


def _key_only(arguments: Arguments) -> Built:
    arguments.expect(0, 1)
    return {"len_as_val": arguments.boolean() if len(arguments) else False}


def _prefixes(arguments: Arguments) -> Built:
    if not len(arguments):
        arguments.expect(1)
    return {"sorted_prefixes": sorted({arguments.text() for _ in range(len(arguments))})}


def _pagination(arguments: Arguments) -> Built:
    arguments.expect(2)
    return {"limit": arguments.count(), "offset": arguments.count()}


def _timestamps(arguments: Arguments) -> Built:
    return {"timestamps": sorted({arguments.count() for _ in range(len(arguments))}), "can_hint": False}


def _compared(arguments: Arguments) -> Built:
    arguments.expect(2)
    return {"compare_filter": _comparison(arguments)}


def _range(arguments: Arguments) -> Built:
    arguments.expect(4)
    low, with_low, high, with_high = arguments.text(), arguments.boolean(), arguments.text(), arguments.boolean()
    return {
        "min_column": low or None,
        "min_column_inclusive": with_low,
        "max_column": high or None,
        "max_column_inclusive": with_high,
    }


def _single_value(arguments: Arguments) -> Built:
    arguments.expect(4, 6)
    made = {"column_family": arguments.text(), "column_qualifier": arguments.text(), **_comparison(arguments)}
    has_flags = len(arguments) > 0
    made["filter_if_missing"] = arguments.boolean() if has_flags else False
    made["latest_version_only"] = arguments.boolean() if has_flags else True
    return made


def _exclude(arguments: Arguments) -> Built:
    return {"single_column_value_filter": _single_value(arguments)}


def _column_value(arguments: Arguments) -> Built:
    arguments.expect(4)
    return {"family": arguments.text(), "qualifier": arguments.text(), **_comparison(arguments)}


def _dependent(arguments: Arguments) -> Built:
    arguments.expect(2, 3, 5)
    family, qualifier = arguments.text(), arguments.text()
    drops = arguments.boolean() if len(arguments) else False
    compared = _comparison(arguments) if len(arguments) else {"compare_op": _NO_OP}
    return {
        "compare_filter": compared,
        "column_family": family,
        "column_qualifier": qualifier,
        "drop_dependent_column": drops,
    }


_READERS: Mapping[str, Callable[[Arguments], Mapping[str, Any]]] = {
    "KeyOnlyFilter": _key_only,
    "FirstKeyOnlyFilter": _nothing,
    "PrefixFilter": _one("prefix", Arguments.text),
    "ColumnPrefixFilter": _one("prefix", Arguments.text),
    "MultipleColumnPrefixFilter": _prefixes,
    "ColumnCountGetFilter": _one("limit", Arguments.count),
    "PageFilter": _one("page_size", Arguments.count),
    "ColumnPaginationFilter": _pagination,
    "InclusiveStopFilter": _one("stop_row_key", Arguments.text),
    "TimestampsFilter": _timestamps,
    "RowFilter": _compared,
    "FamilyFilter": _compared,
    "QualifierFilter": _compared,
    "ValueFilter": _compared,
    "ColumnRangeFilter": _range,
    "SingleColumnValueFilter": _single_value,
    "SingleColumnValueExcludeFilter": _exclude,
    "DependentColumnFilter": _dependent,
    "ColumnValueFilter": _column_value,
}
_BUILDER: FilterBuilder[Built] = FilterBuilder(
    {name: _named(name, read) for name, read in _READERS.items()},
    both=lambda parts: _filter("FilterList", {"operator": _ALL, "filters": parts}),
    either=lambda parts: _filter("FilterList", {"operator": _ONE, "filters": parts}),
    skip=lambda inner: _filter("SkipFilter", {"filter": inner}),
    while_match=lambda inner: _filter("WhileMatchFilter", {"filter": inner}),
)


# -- message -> text -----------------------------------------------------------------------------------------------


def to_text(message: Mapping[str, Any], depth: int = 0) -> bytes:
    """A Filter message in the filter language; Unsupported for what the language cannot say.

    >>> to_text(from_text(b"SKIP ValueFilter(=, 'binary:x') OR KeyOnlyFilter()"))
    b"(SKIP ValueFilter(=, 'binary:x') OR KeyOnlyFilter(false))"
    """
    if depth > DEPTH_MAX:
        raise ProtocolError(f"filters inside of filters, more than {DEPTH_MAX} deep")
    name: str = message["name"].removeprefix(_PACKAGE)
    schema = _MESSAGES.get(name)
    if schema is None:
        raise Unsupported(f"the filter {message['name']} has no name in the filter language")
    fields = decode(schema, message.get("serialized_filter", b""))
    match name:
        case "FilterList":
            inner = [to_text(one, depth + 1) for one in fields.get("filters", ())]
            if not inner:
                raise Unsupported("a list of no filters has no name in the filter language")
            return b"(" + (b" AND " if fields["operator"] == _ALL else b" OR ").join(inner) + b")"
        case "SkipFilter":
            return b"SKIP " + to_text(fields["filter"], depth + 1)
        case "WhileMatchFilter":
            return b"WHILE " + to_text(fields["filter"], depth + 1)
    return name.encode() + b"(" + b", ".join(_WRITERS[name](fields)) + b")"


def _quoted(value: bytes) -> bytes:
    return b"'" + value.replace(b"'", b"''") + b"'"


def _boolean(value: bool) -> bytes:
    return b"true" if value else b"false"


def _number(value: int) -> bytes:
    return str(value).encode()


def comparator_value(message: Mapping[str, Any]) -> bytes | None:
    """What a comparator compares with; None for nothing."""
    data = message.get("serialized_comparator", b"")
    match message["name"].removeprefix(_PACKAGE):
        case "BinaryComparator" | "BinaryPrefixComparator":
            value: bytes | None = decode(_BINARY, data)["comparable"].get("value")
            return value
        case "RegexStringComparator":
            return bytes(decode(_REGEX, data)["pattern"].encode())
        case "SubstringComparator":
            return bytes(decode(_SUBSTRING, data)["substr"].encode())
        case "NullComparator":
            return None
    raise Unsupported(f"the comparator {message['name']} has no name in the filter language")


def _comparison_words(fields: Mapping[str, Any]) -> list[bytes]:
    comparator = fields["comparator"]
    kind = next((kind for kind in _KINDS if COMPARATORS[kind] == comparator["name"]), None)
    operator = next((text for text, number in _OPERATORS.items() if number == fields["compare_op"]), None)
    if kind is None or operator is None:
        raise Unsupported(f"{comparator['name']} compared by {fields['compare_op']} has no name in the filter language")
    return [operator, _quoted(kind + b":" + (comparator_value(comparator) or b""))]


def _single_value_words(fields: Mapping[str, Any]) -> list[bytes]:
    return [
        _quoted(fields.get("column_family", b"")),
        _quoted(fields.get("column_qualifier", b"")),
        *_comparison_words(fields),
        _boolean(fields.get("filter_if_missing", False)),
        _boolean(fields.get("latest_version_only", True)),
    ]


def _dependent_words(fields: Mapping[str, Any]) -> list[bytes]:
    words = [
        _quoted(fields.get("column_family", b"")),
        _quoted(fields.get("column_qualifier", b"")),
        _boolean(fields.get("drop_dependent_column", False)),
    ]
    compared = fields["compare_filter"]
    return words if compared["compare_op"] == _NO_OP else words + _comparison_words(compared)


def _pagination_words(fields: Mapping[str, Any]) -> list[bytes]:
    if "column_offset" in fields:
        raise Unsupported("a ColumnPaginationFilter that starts at a column has no name in the filter language")
    return [_number(fields["limit"]), _number(fields.get("offset", 0))]


def _range_words(fields: Mapping[str, Any]) -> list[bytes]:
    return [
        _quoted(fields.get("min_column", b"")),
        _boolean(fields.get("min_column_inclusive", True)),
        _quoted(fields.get("max_column", b"")),
        _boolean(fields.get("max_column_inclusive", True)),
    ]


_WRITERS: Mapping[str, Callable[[Mapping[str, Any]], list[bytes]]] = {
    "KeyOnlyFilter": lambda fields: [_boolean(fields["len_as_val"])],
    "FirstKeyOnlyFilter": lambda fields: [],
    "PrefixFilter": lambda fields: [_quoted(fields.get("prefix", b""))],
    "ColumnPrefixFilter": lambda fields: [_quoted(fields["prefix"])],
    "MultipleColumnPrefixFilter": lambda fields: [_quoted(one) for one in fields.get("sorted_prefixes", ())],
    "ColumnCountGetFilter": lambda fields: [_number(fields["limit"])],
    "PageFilter": lambda fields: [_number(fields["page_size"])],
    "ColumnPaginationFilter": _pagination_words,
    "InclusiveStopFilter": lambda fields: [_quoted(fields.get("stop_row_key", b""))],
    "TimestampsFilter": lambda fields: [_number(one) for one in fields.get("timestamps", ())],
    "RowFilter": lambda fields: _comparison_words(fields["compare_filter"]),
    "FamilyFilter": lambda fields: _comparison_words(fields["compare_filter"]),
    "QualifierFilter": lambda fields: _comparison_words(fields["compare_filter"]),
    "ValueFilter": lambda fields: _comparison_words(fields["compare_filter"]),
    "ColumnRangeFilter": _range_words,
    "SingleColumnValueFilter": _single_value_words,
    "SingleColumnValueExcludeFilter": lambda fields: _single_value_words(fields["single_column_value_filter"]),
    "DependentColumnFilter": _dependent_words,
    "ColumnValueFilter": lambda fields: [
        _quoted(fields["family"]),
        _quoted(fields["qualifier"]),
        *_comparison_words(fields),
    ],
}
