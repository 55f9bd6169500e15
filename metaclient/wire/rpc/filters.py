"""Converts filters between HBase's filter language and the messages of its Java filter classes.

Users write ``PrefixFilter('a') AND KeyOnlyFilter()``. A Thrift gateway parses that itself; a region server needs each
filter as the name of its Java class and the bytes of its message. Text is read and written by
``metaclient.wire.filter_language``; the arguments of a filter have the names of the message's fields.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Any

from metaclient.errors import Unsupported
from metaclient.protobuf import BOOL, BYTES, SIGNED, TEXT, UNSIGNED, Message, ProtocolError, decode, encode
from metaclient.wire import filter_arguments, filter_language
from metaclient.wire.filter_arguments import SIGNATURES, Comparison, FilterCall, Kind, Parameter, Value
from metaclient.wire.filter_language import Combined, FilterTree, Operator
from metaclient.wire.rpc.messages import COMPARATOR, FILTER

__all__ = ["COMPARATORS", "comparator_message", "comparator_value", "from_text", "to_text"]

_PACKAGE = "org.apache.hadoop.hbase.filter."
#: By their names in the filter language; ``null`` exists only in conditions.
COMPARATORS: Mapping[bytes, str] = {
    b"binary": _PACKAGE + "BinaryComparator",
    b"binaryprefix": _PACKAGE + "BinaryPrefixComparator",
    b"regexstring": _PACKAGE + "RegexStringComparator",
    b"regexstringnocase": _PACKAGE + "RegexStringComparator",
    b"substring": _PACKAGE + "SubstringComparator",
    b"null": _PACKAGE + "NullComparator",
}
#: HBaseProtos.CompareType.
_OPERATORS = {b"<": 0, b"<=": 1, b"=": 2, b"!=": 3, b">=": 4, b">": 5}
_NO_OP = 6
#: FilterList.Operator.
_LISTS = {Operator.AND: 1, Operator.OR: 2}
_WRAPPERS = {Operator.SKIP: "SkipFilter", Operator.WHILE: "WhileMatchFilter"}
#: Flags of java.util.regex.Pattern: DOTALL is the comparator's own default, 2 is CASE_INSENSITIVE.
_REGEX_FLAGS = {b"regexstring": 32, b"regexstringnocase": 32 | 2}
_CHARSET = "UTF-8"
#: The depth of nested filters; a deeper message is a mistake or an attack.
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
    """Return the Filter message of ``text``; FilterSyntaxError, with the position, if the text is wrong.

    >>> from_text(b"PrefixFilter('a')")
    {'name': 'org.apache.hadoop.hbase.filter.PrefixFilter', 'serialized_filter': b'\\n\\x01a'}
    """
    return _built(filter_language.parse(text))


def _built(tree: FilterTree) -> Built:
    if isinstance(tree, FilterCall):
        return _filter(tree.name, _fields(tree))
    parts = [_built(part) for part in tree.parts]
    if tree.operator in _LISTS:
        return _filter("FilterList", {"operator": _LISTS[tree.operator], "filters": parts})
    return _filter(_WRAPPERS[tree.operator], {"filter": parts[0]})


def _filter(name: str, values: Mapping[str, Any]) -> Built:
    return {"name": _PACKAGE + name, "serialized_filter": encode(_MESSAGES[name], values)}


def _fields(call: FilterCall) -> Built:
    """Return the fields of a filter's message: its arguments, and the comparison where the message has it."""
    fields: Built = {name: value for name, value in call.values.items() if name != "comparison"}
    if "comparison" in call.values:
        compared = _comparison(call.optional_comparison())
        fields |= {"compare_filter": compared} if _has_compare_filter(call.name) else compared
    if call.name == "SingleColumnValueExcludeFilter":
        return {"single_column_value_filter": fields}
    return fields


def _has_compare_filter(name: str) -> bool:
    return name == "DependentColumnFilter" or _MESSAGES[name] is _ONE_COMPARISON


def _comparison(compared: Comparison | None) -> Built:
    if compared is None:
        return {"compare_op": _NO_OP}
    comparator = comparator_message(compared.kind, compared.value)
    return {"compare_op": _OPERATORS[compared.operator], "comparator": comparator}


def comparator_message(kind: bytes, value: bytes) -> Built:
    """Return a comparator by its name in the filter language. Bytes that are no UTF-8 are replaced as Java does."""
    match kind:
        case b"binary" | b"binaryprefix":
            data = encode(_BINARY, {"comparable": {"value": value}})
        case b"regexstring" | b"regexstringnocase":
            pattern, flags = value.decode(errors="replace"), _REGEX_FLAGS[kind]
            fields = {"pattern": pattern, "pattern_flags": flags, "charset": _CHARSET, "engine": "JAVA"}
            data = encode(_REGEX, fields)
        case b"substring":
            data = encode(_SUBSTRING, {"substr": value.decode(errors="replace").lower()})
        case _:
            data = b""
    return {"name": COMPARATORS[kind], "serialized_comparator": data}


# -- message -> text -----------------------------------------------------------------------------------------------


def to_text(message: Mapping[str, Any]) -> bytes:
    """Return a Filter message in the filter language; Unsupported if it cannot be written in that language.

    >>> to_text(from_text(b"SKIP ValueFilter(=, 'binary:x') OR KeyOnlyFilter()"))
    b"(SKIP ValueFilter(=, 'binary:x') OR KeyOnlyFilter(false))"
    """
    return filter_language.write(_tree(message, 0))


def _tree(message: Mapping[str, Any], depth: int) -> FilterTree:
    if depth > DEPTH_MAX:
        raise ProtocolError(f"filters inside of filters, more than {DEPTH_MAX} deep")
    name: str = message["name"].removeprefix(_PACKAGE)
    schema = _MESSAGES.get(name)
    if schema is None:
        raise Unsupported(f"the filter {message['name']} has no name in the filter language")
    fields = decode(schema, message.get("serialized_filter", b""))
    if name in SIGNATURES:
        return _call(name, fields)
    if name == "FilterList":
        operator = Operator.AND if fields["operator"] == _LISTS[Operator.AND] else Operator.OR
        parts = tuple(_tree(one, depth + 1) for one in fields.get("filters", ()))
        if not parts:
            raise Unsupported("a list of no filters has no name in the filter language")
        return parts[0] if len(parts) == 1 else Combined(operator, parts)
    operator = next(one for one, wrapper in _WRAPPERS.items() if wrapper == name)
    return Combined(operator, (_tree(fields["filter"], depth + 1),))


def _call(name: str, fields: Mapping[str, Any]) -> FilterCall:
    if "column_offset" in fields:
        raise Unsupported("a ColumnPaginationFilter that starts at a column has no name in the filter language")
    fields = fields.get("single_column_value_filter", fields)
    values = {one.name: _value(name, one, fields) for one in SIGNATURES[name].parameters}
    return FilterCall(name, values)


def _value(name: str, parameter: Parameter, fields: Mapping[str, Any]) -> Value:
    if parameter.kind is Kind.COMPARISON:
        return _comparison_from(name, fields.get("compare_filter", fields))
    value = fields.get(parameter.name, _ABSENT.get(parameter.kind))
    if value is None and parameter.kind is not Kind.BOUND:
        raise Unsupported(f"a {name} without its {parameter.name} has no name in the filter language")
    return tuple(value) if isinstance(value, list) else value


#: The values of missing fields in Java (proto2).
_ABSENT: Mapping[Kind, Value] = {Kind.DISTINCT_TEXTS: (), Kind.TIMESTAMPS: (), Kind.COUNT: 0, Kind.FLAG: False}


def _comparison_from(name: str, fields: Mapping[str, Any]) -> Comparison | None:
    if name == "DependentColumnFilter" and fields["compare_op"] == _NO_OP:
        return None
    comparator = fields.get("comparator", {"name": "nothing"})
    kind = _kind_of(comparator)
    operator = next((text for text, number in _OPERATORS.items() if number == fields["compare_op"]), None)
    if kind is None or operator is None:
        raise Unsupported(f"{comparator['name']} compared by {fields['compare_op']} has no name in the filter language")
    return Comparison(operator, kind, comparator_value(comparator) or b"")


def _kind_of(comparator: Mapping[str, Any]) -> bytes | None:
    """Return the name of a comparator in the filter language; None if it has none, such as for another charset."""
    if comparator["name"] == COMPARATORS[b"regexstring"]:
        fields = decode(_REGEX, comparator.get("serialized_comparator", b""))
        if fields["charset"] != _CHARSET:
            return None
        return next((kind for kind, flags in _REGEX_FLAGS.items() if flags == fields["pattern_flags"]), None)
    return next((kind for kind in filter_arguments.COMPARATORS if COMPARATORS[kind] == comparator["name"]), None)


def comparator_value(message: Mapping[str, Any]) -> bytes | None:
    """Return the value of a comparator; None for a null comparator."""
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
