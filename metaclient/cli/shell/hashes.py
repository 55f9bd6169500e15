"""Options in the form of HBase's shell, ``{NAME => 'cf', VERSIONS => 5}``, as arguments of the shell's functions.

The text is parsed, and nothing of it is run. Keys are HBase's constants (HConstants, ColumnFamilyDescriptor); a key
without a counterpart is a SyntaxError that names it. As in Ruby, the braces of the last hash may be missing.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, TypeAlias

__all__ = ["HASH_VERBS", "call_with_hashes"]

#: A hash of HBase's shell: the keys are upper case.
Hash: TypeAlias = dict[str, Any]
Arguments: TypeAlias = tuple[list[Any], dict[str, Any]]

_TOKEN = re.compile(
    r"\s*(?:(?P<text>[bB]?(?:'(?:\\.|[^'\\])*'|\"(?:\\.|[^\"\\])*\"))|(?P<number>-?\d+(?:\.\d+)?)|(?P<arrow>=>)"
    r"|(?P<word>[A-Za-z_][A-Za-z0-9_:]*)|(?P<mark>[\[\]{},]))",
    re.DOTALL,
)
_WORDS: Mapping[str, Any] = {"true": True, "false": False, "nil": None, "FOREVER": "FOREVER"}
#: HBase's keys of a family, and the options of `create` and `alter`.
_FAMILY = {
    "VERSIONS": "max_versions",
    "MIN_VERSIONS": "min_versions",
    "TTL": "time_to_live",
    "COMPRESSION": "compression",
    "BLOOMFILTER": "bloom_filter_type",
    "IN_MEMORY": "in_memory",
    "BLOCKCACHE": "block_cache_enabled",
    "KEEP_DELETED_CELLS": "keep_deleted_cells",
    "REPLICATION_SCOPE": "replication_scope",
}
_SCAN = {
    "COLUMNS": "columns",
    "COLUMN": "columns",
    "STARTROW": "start",
    "STOPROW": "stop",
    "ENDROW": "stop",
    "ROWPREFIXFILTER": "prefix",
    "FILTER": "filter",
    "LIMIT": "limit",
    "REVERSED": "reverse",
    "CONSISTENCY": "consistency",
}
_COUNT = {"STARTROW": "start", "STOPROW": "stop", "ENDROW": "stop"}
_GET = {"CONSISTENCY": "consistency", "REGION_REPLICA_ID": "replica_id"}


def call_with_hashes(verb: str, text: str) -> str:
    """Return the call in Python.

    >>> call_with_hashes("alter", "'t1', {REGION_REPLICATION => 2}")
    "alter('t1', replicas=2)"
    >>> call_with_hashes("create", "'t', {NAME => 'cf', VERSIONS => 5}, 'x', SPLITS => ['g', 'p']")
    "create('t', {'cf': {'max_versions': 5}}, 'x', splits=['g', 'p'])"
    >>> call_with_hashes("scan", "'t', {COLUMNS => ['cf:a'], LIMIT => 3}")
    "scan('t', columns=['cf:a'], limit=3)"
    >>> call_with_hashes("get", "'t', 'row', {COLUMN => 'cf:a'}")
    "get('t', 'row', 'cf:a')"
    """
    values = _OptionsParser(text).arguments()
    arguments, options = _CALLS[verb](values)
    shown = [*map(repr, arguments), *(f"{name}={value!r}" for name, value in options.items())]
    return f"{verb}({', '.join(shown)})"


class _OptionsParser:
    """Parses the arguments of one line."""

    def __init__(self, text: str) -> None:
        self._tokens = list(_tokens(text))
        self._at = 0

    def arguments(self) -> list[Any]:
        found: list[Any] = []
        last: Hash = {}
        while self._at < len(self._tokens):
            if self._is_pair():
                self._pair(last)
            elif last:
                raise SyntaxError("arguments stand before options such as LIMIT => 3")
            else:
                found.append(self._value())
            if self._at < len(self._tokens):
                self._take(",")
        return [*found, last] if last else found

    def _is_pair(self) -> bool:
        return self._tokens[self._at + 1 : self._at + 2] == [("arrow", "=>")]

    def _pair(self, into: Hash) -> None:
        kind, key = self._next()
        if kind not in ("word", "text"):
            raise SyntaxError(f"the key of an option is a name such as LIMIT, got {key}")
        self._take("=>")
        into[(ast.literal_eval(key) if kind == "text" else key).upper()] = self._value()

    def _value(self) -> Any:
        kind, token = self._next()
        if kind in ("text", "number"):
            return ast.literal_eval(token)  # a literal only: nothing is run
        if token == "[":
            return list(self._until("]", self._value))
        if token == "{":
            made: Hash = {}
            for _ in self._until("}", lambda: self._pair(made)):
                pass
            return made
        if token in _WORDS:
            return _WORDS[token]
        raise SyntaxError(f"{token!r} is no value: texts stand in quotes")

    def _until(self, end: str, one: Callable[[], Any]) -> Iterator[Any]:
        while self._peek() != end:
            yield one()
            if self._peek() != end:
                self._take(",")
        self._take(end)

    def _peek(self) -> str:
        return self._tokens[self._at][1] if self._at < len(self._tokens) else ""

    def _next(self) -> tuple[str, str]:
        if self._at >= len(self._tokens):
            raise SyntaxError("the line ends too early: a value, ] or } is missing")
        self._at += 1
        return self._tokens[self._at - 1]

    def _take(self, expected: str) -> None:
        _, token = self._next()
        if token != expected:
            raise SyntaxError(f"expected {expected!r}, got {token!r}")


def _tokens(text: str) -> Iterator[tuple[str, str]]:
    at = 0
    while text[at:].strip():
        match = _TOKEN.match(text, at)
        if match is None:
            raise SyntaxError(f"cannot read {text[at:].strip()[:20]!r} in the options")
        at = match.end()
        yield str(match.lastgroup), match[str(match.lastgroup)]


# -- one function per verb: the values of a line -> the arguments of the shell's function ---------------------


def _create(values: Sequence[Any]) -> Arguments:
    arguments, options = list(values[:1]), {}
    for value in values[1:]:
        if not isinstance(value, dict):
            arguments.append(value)
            continue
        rest = dict(value)
        if "SPLITS" in rest:
            options["splits"] = rest.pop("SPLITS")
        if "REGION_REPLICATION" in rest:
            options["replicas"] = _integer(rest.pop("REGION_REPLICATION"))
        if "NAME" in rest:
            name = rest.pop("NAME")
            arguments.append({name: _family(rest, "create")})
        elif rest:
            raise _unknown("create", rest, ["NAME", "SPLITS", "REGION_REPLICATION"])
    return arguments, options


def _alter(values: Sequence[Any]) -> Arguments:
    families: dict[str, dict[str, Any]] = {}
    dropped: list[str] = []
    options: dict[str, Any] = {}
    for value in values[1:]:
        rest = dict(value) if isinstance(value, dict) else {"NAME": value}
        method = str(rest.pop("METHOD", "")).lower()
        if method not in ("", "delete", "table_att"):
            raise SyntaxError(f"alter() has no counterpart of METHOD => {method!r}")
        if "DELETE" in rest:
            dropped.append(rest.pop("DELETE"))
        if "REGION_REPLICATION" in rest:
            options["replicas"] = _integer(rest.pop("REGION_REPLICATION"))
        if method == "delete" and "NAME" in rest:
            dropped.append(rest.pop("NAME"))
        elif "NAME" in rest:
            name = rest.pop("NAME")
            families[name] = _family(rest, "alter")
            rest = {}
        if rest:
            raise _unknown("alter", rest, ["NAME", "METHOD", "DELETE", "REGION_REPLICATION", *_FAMILY])
    if dropped:
        options = {"drop": dropped, **options}
    return [*values[:1], *([families] if families else [])], options


def _scan(values: Sequence[Any]) -> Arguments:
    plain, given = _split(values)
    found = _named("scan", given, _SCAN)
    if "columns" in found:
        found["columns"] = _listed(found["columns"])
    return plain, found


def _count(values: Sequence[Any]) -> Arguments:
    plain, given = _split(values)
    for harmless in ("INTERVAL", "CACHE"):  # of the progress, and of the page
        given.pop(harmless, None)
    return plain, _named("count", given, _COUNT)


def _get(values: Sequence[Any]) -> Arguments:
    plain, given = _split(values)
    columns = [*_listed(given.pop("COLUMN", [])), *_listed(given.pop("COLUMNS", []))]
    return [*plain, *columns], _named("get", given, _GET)


def _split(values: Sequence[Any]) -> tuple[list[Any], Hash]:
    """Return the plain arguments, and one hash of all options."""
    given: Hash = {}
    for value in values:
        given |= value if isinstance(value, dict) else {}
    return [value for value in values if not isinstance(value, dict)], given


def _listed(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]


def _named(verb: str, given: Hash, names: Mapping[str, str]) -> dict[str, Any]:
    unknown = {key: value for key, value in given.items() if key not in names}
    if unknown:
        raise _unknown(verb, unknown, list(names))
    return {names[key]: value for key, value in given.items()}


def _family(given: Hash, verb: str) -> dict[str, Any]:
    found = _named(verb, given, _FAMILY)
    for name, value in found.items():
        if name in ("in_memory", "block_cache_enabled"):
            found[name] = str(value).lower() == "true"
        elif name == "time_to_live" and str(value).upper() == "FOREVER":
            found[name] = None
        elif name in ("max_versions", "min_versions", "time_to_live", "replication_scope"):
            found[name] = _integer(value)
        else:
            found[name] = str(value).upper()
    return found


def _integer(value: Any) -> int:
    try:
        return int(value)
    except (TypeError, ValueError):
        raise SyntaxError(f"{value!r} is no whole number") from None


def _unknown(verb: str, given: Hash, known: Sequence[str]) -> SyntaxError:
    return SyntaxError(
        f"{verb}() has no counterpart of {next(iter(given))}; it knows {', '.join(known)}, and help({verb}) lists its "
        "options in Python"
    )


_CALLS: Mapping[str, Callable[[Sequence[Any]], Arguments]] = {
    "alter": _alter,
    "count": _count,
    "create": _create,
    "get": _get,
    "scan": _scan,
}
#: The verbs whose options are translated.
HASH_VERBS = frozenset(_CALLS)
